"""What a user of `octet eval` and `octet generate` types and sees: which checkpoint, which text."""
import json
import os
import shutil

from program import main
from training import JOB, Training

SAVE = ["train", "job.toml", "--checkpoint.enable"]
HELD_OUT = 2 * 2 * 32 + 1  # validation.steps batches of local_batch_size sequences, and the last label


class Inference(Training):
    def evaluated(self, *args):
        return json.loads(self.accepted(["eval", *args, "--json"]).stdout)

    def losses(self, folder="out"):
        with open(self.path(folder, "metrics.jsonl")) as file:
            return [json.loads(line) for line in file]

    def with_bytes_as_tokens(self):
        """A tokenizer without merges, so that the test knows which token each byte is."""
        self.accepted(["tokenizer", "train", "text.txt", "--vocab-size", 257, "--output", "tokenizer.json"])
        with open(self.path("text.txt")) as file:
            return file.read()

    def test_given_no_text_eval_takes_what_training_held_out_and_never_saw(self):
        text = self.with_bytes_as_tokens()
        cut = len(text) + 1 - HELD_OUT  # the end token follows the text
        self.write("text.txt", text)
        self.accepted(SAVE + ["--validation.enable"])
        self.write("other/text.txt", text[:cut] + text[cut:][::-1])  # another end, of the same length
        self.accepted(SAVE + ["--validation.enable", "--job.dump_folder=twin", "--training.dataset_path=other/text.txt"])
        first, twin = self.losses(), self.losses("twin")
        # Training saw no byte of the end: its losses are the same to the last bit.
        self.assertEqual([step["loss"] for step in first], [step["loss"] for step in twin])
        # Evaluating reads the end, and all of it: it's what validation saw.
        for folder, steps in (("out", first), ("twin", twin)):
            result = self.evaluated(folder)
            self.assertEqual(result["tokens"], HELD_OUT - 1)
            self.assertTrue(result["validation_data"])
            self.assertAlmostEqual(result["loss"], steps[-1]["validation_loss"], places=6)
        self.assertNotEqual(self.evaluated("out")["loss"], self.evaluated("twin")["loss"])
        self.assertIn("text: the end of text.txt, which its training held out\n", self.accepted(["eval", "out"]).stdout)

    def test_given_a_share_of_the_text_held_out_eval_takes_it(self):
        self.accepted(SAVE + ["--validation.enable", "--validation.steps=-1"])
        self.assertAlmostEqual(self.evaluated("out")["loss"], self.losses()[-1]["validation_loss"], places=6)

    def test_given_validation_data_of_its_own_eval_takes_it(self):
        self.write("own.txt", "go down to egypt " * 40)
        self.accepted(SAVE + ["--validation.enable", "--validation.dataset_path=own.txt"])
        result = self.evaluated("out")
        self.assertEqual((result["text"], result["validation_data"]), ("own.txt", True))
        named = self.evaluated("out", "own.txt")
        self.assertEqual((named["loss"], named["validation_data"]), (result["loss"], False))

    def test_given_nothing_held_out_or_another_text_eval_asks_for_one(self):
        self.accepted(SAVE)
        self.refused(["eval", "out"], "out/checkpoint/step-4", "held no text out", "name a TEXT")
        self.accepted(SAVE + ["--validation.dataset_path=text.txt", "--job.dump_folder=same"])
        self.refused(["eval", "same"], "held no text out")
        self.accepted(SAVE + ["--validation.enable", "--job.dump_folder=held"])
        self.evaluated("held")
        with open(self.path("text.txt")) as file:
            text = file.read()
        self.write("text.txt", text[-300:] + text[:-300])  # as long, but training has seen this end
        self.refused(["eval", "held"], "text.txt", "the text or the tokenizer has changed")
        self.write("text.txt", text)
        self.evaluated("held")
        with open(self.path("text.txt"), "a") as file:
            file.write(" amen" * 30)
        self.refused(["eval", "held"], "text.txt", "the text or the tokenizer has changed")
        self.write("text.txt", "the lord " * 60)
        self.refused(["eval", "held"], "text.txt", "the text or the tokenizer has changed")

    def test_given_a_limit_eval_takes_the_first_whole_sequences(self):
        text = self.with_bytes_as_tokens()
        self.accepted(SAVE)
        for limit, n in ((32, 1), (63, 1), (64, 2), (70, 2), (320, 10)):
            result = self.evaluated("out", "text.txt", "--limit", str(limit))
            self.assertEqual(result["tokens"], 32 * n)
            self.write("begin.txt", text[:32 * n + 1])  # n windows, and an end token that is in none
            begin = self.evaluated("out", "begin.txt")
            self.assertEqual((begin["tokens"], begin["loss"]), (32 * n, result["loss"]))
        whole = self.evaluated("out", "text.txt")
        self.assertEqual(self.evaluated("out", "text.txt", "--limit", "1000000")["loss"], whole["loss"])
        self.refused(["eval", "out", "text.txt", "--limit", "31"], "--limit", "32", "got 31")
        self.refused(["eval", "out", "text.txt", "--limit", "0"], "--limit: expected an integer from 1")

    def test_given_a_folder_without_a_checkpoint_those_below_it_are_named(self):
        self.accepted(["compare", "job.toml", "--recipes", "bf16,mxfp8", "--checkpoint.enable"])
        for command in (["generate"], ["eval"]):
            for folder in ("out", "out/", "out/compare", "."):
                self.refused(command + [folder], "it has none; there are some in ", "out/compare/bf16, ", "out/compare/mxfp8")
            self.refused(command + ["out/mxfp8"], "it doesn't exist; there are some in out/compare/bf16, out/compare/mxfp8")
            self.refused(command + ["out/compare/bf16/checkpoint/step-4/manifest.json"],
                         "it's a file; did you mean out/compare/bf16/checkpoint/step-4")
            self.refused(command + ["out/compare/bf16/cache"], "doesn't exist; there is one in out/compare/bf16")
        for i in range(40):
            os.symlink("../bf16/checkpoint", self.path("out", "compare", "bf16", "checkpoint-%d" % i))  # no folders
            shutil.copytree(self.path("out", "compare", "bf16", "checkpoint"), self.path("many", "long-name-%d" % i))
        self.assertRegex(self.refused(["eval", "many"]).stderr, r"many/long-name-10, .* and \d\d more\n$")
        shutil.rmtree(self.path("out", "compare", "mxfp8"))
        self.refused(["generate", "out"], "there is one in out/compare/bf16")
        self.accepted(["generate", "out/compare/bf16", "--prompt", "the", "--max-new-tokens", 2])

    def test_given_several_runs_the_one_that_is_taken_is_told(self):
        self.accepted(["compare", "job.toml", "--recipes", "bf16", "--checkpoint.enable"])
        self.accepted(SAVE)
        result = self.accepted(["eval", "out", "text.txt", "--json"])
        self.assertEqual(json.loads(result.stdout)["checkpoint"], "out/checkpoint/step-4")
        self.assertIn("out: taking out/checkpoint/step-4; there are others in out/compare/bf16", result.stderr)
        self.assertEqual(self.accepted(["eval", "out/compare/bf16", "text.txt"]).stderr, "")

    def test_given_links_in_a_circle_or_odd_names_looking_for_checkpoints_ends(self):
        os.makedirs(self.path("a", "b"))
        os.symlink("..", self.path("a", "b", "up"))
        os.symlink("/", self.path("a", "root"))
        self.write("a/step-4/other", "")  # named as a checkpoint is, but none
        self.refused(["eval", "a", "text.txt"], "none of its 1 checkpoints is valid")
        shutil.rmtree(self.path("a", "step-4"))
        self.assertTrue(self.refused(["eval", "a"]).stderr.endswith("run's dump folder; it has none\n"))

    def test_given_a_folder_with_a_config_json_it_is_a_hugging_face_model(self):
        self.write("llama/config.json", "{}")
        self.refused(["generate", "llama"], "llama/config.json: model_type: expected; it is missing")


if __name__ == "__main__":
    assert "steps = 2\n" in JOB.partition("[validation]")[2], "HELD_OUT is of that job"
    main()
