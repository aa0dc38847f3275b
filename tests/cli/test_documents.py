"""Whether documents in a window see each other: plan, log, training, validation, evaluation, resuming."""
import json
import os

from program import main
from training import JOB, WORDS, Training

BLOCK = "--model.args.attn_mask_type=block_causal"


class Documents(Training):
    def setUp(self):
        super().setUp()
        lines = [" ".join(WORDS[(i * j + j // 3) % len(WORDS)] for j in range(i % 13 + 1)) for i in range(1500)]
        self.write("text.jsonl", "".join(json.dumps({"text": line}) + "\n" for line in lines))
        self.write("job.toml", JOB.replace("text.txt", "text.jsonl"))

    def run_of(self, folder, *args):
        result = self.accepted(["train", "job.toml", "--job.dump_folder=" + folder, "--checkpoint.enable", "--validation.enable",
                                *args])
        with open(self.path(folder, "metrics.jsonl")) as file:
            return result.stdout + result.stderr, [json.loads(line) for line in file]

    def loss_of(self, model):
        return json.loads(self.accepted(["eval", model, "--json"]).stdout)["loss"]

    def test_given_a_mask_plan_and_log_say_whether_documents_see_each_other(self):
        self.assertIn("documents in a window see each other (attn_mask_type causal)", self.accepted(["plan", "job.toml"]).stdout)
        self.assertIn("documents in a window don't see each other (attn_mask_type block_causal)",
                      self.accepted(["plan", "job.toml", BLOCK]).stdout)
        for args, mask, see in (([], "causal", True), ([BLOCK], "block_causal", False)):
            told = json.loads(self.accepted(["plan", "job.toml", "--json", *args]).stdout)
            self.assertEqual(told["documents"], {"attn_mask_type": mask, "see_each_other": see})
        self.assertIn("attn_mask_type causal", self.run_of("causal", "--training.steps=1")[0])
        self.assertIn("Attention stays inside its document: attn_mask_type block_causal; token 0 ends a document",
                      self.run_of("block", "--training.steps=1", BLOCK)[0])

    def test_given_block_causal_training_validation_and_evaluation_have_it(self):
        _, causal = self.run_of("causal")
        _, block = self.run_of("block", BLOCK)
        self.assertEqual(causal[0]["n_tokens"], block[0]["n_tokens"])
        self.assertNotEqual(causal[0]["loss"], block[0]["loss"])  # the same weights and tokens
        validated = [next(line["validation_loss"] for line in reversed(lines) if "validation_loss" in line)
                     for lines in (causal, block)]
        # Evaluation of a checkpoint has the mask that it was trained with.
        for folder, loss in zip(("causal", "block"), validated):
            self.assertAlmostEqual(self.loss_of(folder), loss, places=6)
        self.accepted(["generate", "block", "--prompt", "the lord said", "--max-new-tokens", 4])

    def test_given_a_resumed_run_another_mask_is_told_and_the_same_one_goes_on(self):
        _, whole = self.run_of("whole", BLOCK)
        self.run_of("out", BLOCK, "--training.steps=2")
        _, resumed = self.run_of("out", BLOCK)
        self.assertEqual([line["loss"] for line in resumed if "loss" in line], [line["loss"] for line in whole if "loss" in line])
        out, _ = self.run_of("out", "--training.steps=6")
        self.assertIn('resumed with another model.args.attn_mask_type: was "block_causal", is "causal"', out)

    def test_given_no_end_token_or_an_unknown_word_it_is_refused(self):
        self.refused(["train", "job.toml", "--model.args.attn_mask_type=block_casual"],
                     'attn_mask_type: impossible value; expected "causal" or "block_causal"; got "block_casual"')
        self.accepted(["data", "pack", "text.jsonl", "--tokenizer", "tokenizer.json", "--output", "packed"])
        packed = ["train", "job.toml", BLOCK, "--training.dataset_path=packed", "--validation.enable=false",
                  "--model.hf_assets_path=."]
        self.accepted(packed + ["--training.steps=1"])
        os.remove(self.path("tokenizer.json"))
        self.write("job.toml", JOB.replace('tokenizer_path = "tokenizer.json"\n', ""))
        self.refused(["train", "job.toml", BLOCK, "--training.dataset_path=packed"],
                     "model.args.attn_mask_type", "documents (attn_mask_type block_causal), which end with the tokenizer's end token",
                     "got no tokenizer")


if __name__ == "__main__":
    main()
