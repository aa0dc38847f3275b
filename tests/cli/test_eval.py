"""What `octet eval` makes of questions and overlapping windows, held to a model so simple that Python can run it: layers that
add nothing, so that what follows a token depends on that token alone."""
import json
import math
import random

import safetensors_file
from program import main
from test_models import LLAMA, f32, shapes
from training import Training

V, D = LLAMA["vocab_size"], LLAMA["hidden_size"]
WORDS = "the lord said unto moses go down to egypt and say let my people".split()
QUESTIONS = [("the lord said unto", ["moses", "go", "egypt and say"], 0), ("let my people ", ["go", "down to the lord", "x"], "go"),
             ("", ["the lord", "moses said unto the lord go"], 1), ("go down", [" to", " and say let my people go unto egypt"], 1),
             ("said", ["ab", "cd", "ef", "gh"], 2), ("moses", ["aaaaaaaaaaaa", "e"], 0)]
draw = random.Random(6)
QUESTIONS += [(" ".join(draw.sample(WORDS, 3)), [" ".join(draw.sample(WORDS, n)) for n in (1, 2, 3)], draw.randrange(3)) for _ in range(20)]


class Eval(Training):
    def setUp(self):
        super().setUp()
        draw = random.Random(11)
        self.embed = [[draw.gauss(0, 1) for _ in range(D)] for _ in range(V)]
        self.head = [[draw.gauss(0, 0.5) for _ in range(D)] for _ in range(V)]
        tensors = {}
        for name, shape in shapes(LLAMA).items():
            zero = name.endswith(("o_proj.weight", "down_proj.weight"))
            tensors[name] = f32(shape, [0.0 if zero else 1.0] * math.prod(shape))
        tensors["model.embed_tokens.weight"] = f32([V, D], sum(self.embed, []))
        tensors["lm_head.weight"] = f32([V, D], sum(self.head, []))
        self.write("model/config.json", json.dumps(LLAMA))
        self.write("model/model.safetensors", safetensors_file.written(tensors))
        self.accepted(["tokenizer", "train", "text.txt", "--vocab-size", V, "--output", "model/tokenizer.json"])
        self.known = {}
        self.end, = self.ids("<|endoftext|>")

    def ids(self, text):
        return [int(i) for i in self.accepted(["tokenizer", "encode", "model/tokenizer.json", "--text", text]).stdout.split()]

    def log_probability(self, before, token):
        if before not in self.known:
            x = self.embed[before]
            scale = 1 / math.sqrt(sum(v * v for v in x) / D + 1e-6)
            logits = [scale * sum(a * b for a, b in zip(x, row)) for row in self.head]
            top = max(logits)
            total = top + math.log(sum(math.exp(v - top) for v in logits))
            self.known[before] = [v - total for v in logits]
        return self.known[before][token]

    def evaluated(self, *args):
        return [json.loads(line) for line in self.accepted(["eval", "model", *args, "--json"]).stdout.splitlines()]

    def test_given_windows_that_overlap_every_label_counts_once(self):
        text = "the lord said unto moses go down to egypt"
        self.write("short.txt", text)
        ids = self.ids(text) + [self.end]
        losses = [-self.log_probability(a, b) for a, b in zip(ids, ids[1:])]
        for window, stride in ((7, 3), (8, 8), (1, 1), (5, 1), (40, 20), (41, 40), (64, 2), (6, None), (1, None)):
            for limit in (None, 1, 17):
                args = ["--window", window] + (["--stride", stride] if stride else []) + (["--limit", limit] if limit else [])
                result, = self.evaluated("short.txt", *args)
                self.assertEqual(result["tokens"], limit or len(losses))
                self.assertAlmostEqual(result["loss"], sum(losses[:limit]) / len(losses[:limit]), places=5)
                self.assertAlmostEqual(result["perplexity"], math.exp(result["loss"]), places=3)

    def likelihoods(self, question, choice):
        """Summed, and a character."""
        joined = choice if not question or question[-1] == " " or choice[0] == " " else " " + choice
        before = self.ids(question) if question else [self.end]
        ids = self.ids(question + joined) if question else before + self.ids(joined)
        total = sum(self.log_probability(ids[i - 1], ids[i]) for i in range(len(before), len(ids)))
        return total, total / len(choice)

    def test_given_questions_accuracy_is_that_of_the_likeliest_choice(self):
        self.write("task.jsonl", "".join(json.dumps(dict(question=q, choices=c, answer=a, id=7)) + "\n" for q, c, a in QUESTIONS))
        right = [0, 0]
        for question, choices, answer in QUESTIONS:
            scores = [self.likelihoods(question, choice) for choice in choices]
            for kind in (0, 1):
                best = max(range(len(choices)), key=lambda i: scores[i][kind])
                right[kind] += best == (choices.index(answer) if isinstance(answer, str) else answer)
        self.assertTrue(0 < right[0] < len(QUESTIONS) and right[0] != right[1], right)
        result, = self.evaluated("--task", "task.jsonl")
        n = len(QUESTIONS)
        self.assertEqual((result["questions"], result["accuracy"], result["accuracy_normalized"]),
                         (n, float("%.9g" % (right[0] / n)), float("%.9g" % (right[1] / n))))
        share = right[0] / n
        self.assertAlmostEqual(result["accuracy_deviation"], math.sqrt(share * (1 - share) / (n - 1)), places=8)
        said = self.accepted(["eval", "model", "--task", "task.jsonl"]).stdout
        self.assertIn(f"questions: {n}  accuracy: {share:.4f} +- ", said)

    def test_given_several_recipes_they_stand_side_by_side(self):
        recipes = ["fp32", "bf16", "mxfp8", "hif8"]
        named = [word for recipe in recipes for word in ("--recipe", recipe)]
        alone = [self.evaluated("text.txt", "--limit", 640, "--seq-len", 32, "--recipe", r)[0] for r in recipes]
        self.assertEqual(self.evaluated("text.txt", "--limit", 640, "--seq-len", 32, *named), alone)
        self.assertEqual([result["recipe"] for result in alone], recipes)
        table = self.accepted(["eval", "model", "text.txt", "--limit", 640, "--seq-len", 32, *named]).stdout.splitlines()
        self.assertEqual(table[0].split(), ["recipe", "loss", "gap", "(nats)", "perplexity"])
        for line, result in zip(table[1:], alone):
            name, loss, gap, perplexity = line.split()
            self.assertEqual((name, loss, perplexity), (result["recipe"], f"{result['loss']:.5f}", f"{result['perplexity']:.3f}"))
            self.assertEqual(gap, f"{result['loss'] - alone[0]['loss']:+.5f}")
        self.assertEqual(len(table), 6)
        self.write("task.jsonl", json.dumps(dict(question="the", choices=["a", "b"], answer=0)))
        rows = self.accepted(["eval", "model", "--task", "task.jsonl", *named]).stdout.splitlines()
        self.assertEqual([row.split()[0] for row in rows], ["recipe"] + recipes + ["step"])
        self.refused(["eval", "model", "text.txt", "--recipe", "bf16", "--recipe", "mxfp9"], "mxfp9")

    def test_given_options_that_cannot_act_they_are_refused(self):
        self.write("task.jsonl", json.dumps(dict(question="the", choices=["a", "b"], answer=0)))
        for option in ("--seq-len", "--window", "--stride", "--batch", "--limit"):
            self.refused(["eval", "model", "--task", "task.jsonl", option, 4], option + ": has no effect beside --task")
        self.refused(["eval", "model", "text.txt", "--task", "task.jsonl"], "--task: has no effect beside a TEXT")
        self.refused(["eval", "model", "text.txt", "--window", 8, "--seq-len", 8], "--seq-len: has no effect beside --window")
        self.refused(["eval", "model", "text.txt", "--stride", 8], "--stride: has no effect without --window")
        self.refused(["eval", "model", "--window", 8], "--window: has no effect without a TEXT")
        self.refused(["eval", "model", "text.txt", "--window", 8, "--stride", 9], "--stride: expected at most the 8 tokens of --window; got 9")

    def test_given_files_that_are_no_questions_they_are_refused_by_line(self):
        good = dict(question="the", choices=["a", "b"], answer=0)
        for changes, words in ((dict(question=None), ("question: expected a string", "null")),
                               (dict(choices="a"), ("choices: expected a list", "a string")),
                               (dict(choices=["a"]), ("choices: expected a list", "fewer")),
                               (dict(choices=["a", 1]), ("choices: expected texts", "an integer")),
                               (dict(choices=["a", ""]), ("choices: expected texts", "an empty one")),
                               (dict(answer=2), ("answer: expected the index of a choice, 0 to 1",)),
                               (dict(answer=-1), ("answer: expected the index",)), (dict(answer="c"), ("answer: expected",)),
                               (dict(answer=True), ("answer: expected",)),
                               (dict(choices=["a", "a"], answer="a"), ("that of several",))):
            self.write("task.jsonl", json.dumps(good) + "\n\n" + json.dumps(dict(good, **changes)) + "\n")
            self.refused(["eval", "model", "--task", "task.jsonl"], "task.jsonl:3: ", *words)
        self.write("task.jsonl", "\n")
        self.refused(["eval", "model", "--task", "task.jsonl"], "task.jsonl: expected questions; it has none")
        self.refused(["eval", "model", "--task", "nowhere"], "nowhere")


if __name__ == "__main__":
    main()
