"""What a user of `octet generate` types and sees: prompts, one or many, where texts end, and options that can't act."""
import json
import re

from program import main
from training import Training

GREEDY = ["--temperature", 0, "--recipe", "fp32", "--max-new-tokens", 24]
PROMPTS = ["the lord", "", "go down to egypt and say let my people go unto moses", "said unto"]


class Generate(Training):
    def setUp(self):
        super().setUp()
        self.accepted(["train", "job.toml", "--checkpoint.enable", "--training.steps=120", "--checkpoint.interval=120"])

    def alone(self, prompt, *args):
        result = self.accepted(["generate", "out", "--prompt", prompt, *GREEDY, *args])
        self.assertTrue(result.stdout.startswith(prompt))
        return result.stdout[len(prompt):-1]

    def together(self, file, *args):
        return [json.loads(line) for line in self.accepted(["generate", "out", "--prompts", file, *GREEDY, *args]).stdout.splitlines()]

    def test_given_prompts_of_a_file_each_is_continued_as_alone(self):
        self.write("prompts.txt", "\n".join(PROMPTS) + "\n")
        self.write("prompts.jsonl", "".join(json.dumps(dict(id=i, prompt=p)) + "\n\n" for i, p in enumerate(PROMPTS)))
        expected = [self.alone(p) for p in PROMPTS]
        self.assertGreater(len(set(expected)), 1)
        for args in (["prompts.txt"], ["prompts.jsonl"], ["prompts.txt", "--batch", 1], ["prompts.txt", "--batch", 3]):
            lines = self.together(*args)
            self.assertEqual([line["prompt"] for line in lines], PROMPTS)
            self.assertEqual([line["text"] for line in lines], expected)
            self.assertTrue(all(line["end"] == "length" and line["tokens"] == 24 for line in lines))
        drawn = ["--temperature", 1, "--seed", 4, "--top-p", 0.9]
        lines = self.together("prompts.txt", *drawn)
        self.assertEqual(*[[re.sub("\ufffd+", "\ufffd", text) for text in texts]  # bytes that aren't UTF-8, in Python's way
                           for texts in ([line["text"] for line in lines], [self.alone(p, *drawn) for p in PROMPTS])])

    def test_given_stop_strings_a_text_ends_before_the_first(self):
        whole = self.alone("the lord")
        self.assertTrue(whole.isascii() and len(whole) > 30, whole)
        for first, last in ((0, 3), (5, 9), (11, 12), (len(whole) - 4, len(whole))):
            stop = whole[first:last]
            self.assertEqual(self.alone("the lord", "--stop", stop), whole[:whole.index(stop)])
            both = self.alone("the lord", "--stop", "never there", "--stop", stop)
            self.assertEqual(both, whole[:whole.index(stop)])
        self.assertEqual(self.alone("the lord", "--stop", whole[-3:] + "never"), whole)  # what waited for its end comes
        self.write("prompts.txt", "the lord\n")
        line, = self.together("prompts.txt", "--stop", whole[5:9])
        self.assertEqual((line["text"], line["end"]), (whole[:whole.index(whole[5:9])], "stop"))
        self.refused(["generate", "out", "--stop", ""], "--stop")
        self.refused(["generate", "out"] + ["--stop", "x"] * 17, "--stop", "16")

    def test_given_a_penalty_repeated_tokens_become_rarer(self):
        def repeats(*args):
            words = self.alone("the lord", "--max-new-tokens", 60, *args).split()
            return len(words) - len(set(words))
        self.assertLess(repeats("--repeat-penalty", 5), repeats())
        self.assertEqual(self.alone("the lord", "--repeat-penalty", 1), self.alone("the lord"))

    def test_given_options_that_cannot_act_they_are_refused(self):
        greedy = ["generate", "out", "--temperature", 0]
        for option, value in (("top-k", 5), ("top-p", 0.9), ("min-p", 0.1), ("seed", 3)):
            self.refused(greedy + [f"--{option}", value], f"--{option}: has no effect", "--temperature 0")
        self.refused(["generate", "out", "--top-p", 0], "--top-p", "above 0")
        self.refused(["generate", "out", "--top-p", 1.5], "--top-p: expected a number from 0 to 1; got '1.5'")
        self.refused(["generate", "out", "--repeat-penalty", 0], "--repeat-penalty", "above 0")
        self.refused(["generate", "out", "--batch", 2], "--batch: has no effect without --prompts")
        self.write("prompts.txt", "the\n")
        self.refused(["generate", "out", "--prompt", "a", "--prompts", "prompts.txt"], "--prompts", "got both")

    def test_given_files_that_are_no_prompts_they_are_refused_by_line(self):
        self.write("empty.txt", "")
        self.refused(["generate", "out", "--prompts", "empty.txt"], "empty.txt", "it has none")
        self.write("nul.txt", b"a\0b\n")
        self.refused(["generate", "out", "--prompts", "nul.txt"], "nul.txt", "NUL")
        self.refused(["generate", "out", "--prompts", "nowhere"], "nowhere")
        for text, words in (('{"prompt": "a"}\n{"text": "b"}\n', ("bad.jsonl:2", "prompt: expected a string", "nothing")),
                            ('{"prompt": 7}', ("bad.jsonl:1", "prompt: expected a string", "an integer")),
                            ('{"prompt": "a"', ("bad.jsonl:1",)), ("[]", ("bad.jsonl:1", "object"))):
            self.write("bad.jsonl", text)
            self.refused(["generate", "out", "--prompts", "bad.jsonl"], *words)

    def test_given_a_text_its_speed_is_said_at_the_end(self):
        said = self.accepted(["generate", "out", "--prompt", "the", "--max-new-tokens", 7, "--temperature", 0]).stderr
        self.assertTrue(re.fullmatch(r"7 tokens in \d+\.\d\d s, \d+\.\d tokens/s\n", said), said)


if __name__ == "__main__":
    main()
