"""Training as a user drives it: what train, plan, eval, generate and compare print and leave behind."""
import json
import os
import re
import shutil

from program import main
from training import Training

MX = "--model.converters=quantize.linear.mx"


class Train(Training):
    def test_given_a_job_file_that_an_option_names_all_is_as_with_one_that_an_argument_names(self):
        losses = []
        for name in (["job.toml"], ["--job.config_file", "job.toml"], ["--job.config-file=job.toml"]):
            run = ["train", *name, "--checkpoint.enable", "--debug.seed", 6]
            self.accepted(run + ["--training.steps=2"])
            result = self.accepted(run + ["--optimizer.name=Adam"])
            self.assertIn("resumed with another optimizer.name", result.stdout + result.stderr)
            losses.append(self.accepted(["eval", "out", "text.txt", "--recipe", "mxfp8"]).stdout)
            self.accepted(["generate", "out", "--max-new-tokens", 2])
            shutil.rmtree(self.path("out"))
        self.assertEqual(losses, losses[:1] * 3)

    def test_given_a_checkpoint_folder_outside_the_dump_folder_it_is_used(self):
        for name in ("../kept", "../../kept", "a/../../kept", self.path("kept")):
            os.makedirs(self.path("runs", "out"), exist_ok=True)
            save = ["train", "job.toml", "--job.dump_folder=" + self.path("runs", "out"), "--checkpoint.enable",
                    "--checkpoint.folder=" + name]
            self.accepted(save)
            kept = os.path.normpath(os.path.join(self.path("runs", "out"), name))
            self.assertEqual(sorted(os.listdir(kept)), ["step-2", "step-4"])
            self.assertIn("Resumed from", self.accepted(save + ["--training.steps=6"]).stdout)
            self.accepted(["eval", kept, "text.txt"])
            shutil.rmtree(self.path("runs"))
            shutil.rmtree(kept, ignore_errors=True)

    def test_given_the_end_of_an_example_more_steps_go_on_from_it(self):
        examples = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
        os.makedirs(self.path("data"))
        shutil.copy(self.path("text.txt"), self.path("data", "kjv.txt"))
        shutil.copy(self.path("tokenizer.json"), self.path("data", "tokenizer.json"))
        for name in ("demo", "moe_demo"):
            run = ["train", os.path.join(examples, name + ".toml"), "--validation.no-enable", "--training.seq_len=32",
                   "--training.steps"]
            self.accepted(run + [1])
            self.assertIn("Training starts at step 2", self.accepted(run + [2]).stdout)

    def test_given_a_job_it_trains_and_leaves_metrics_and_a_checkpoint(self):
        out = self.accepted(["train", "job.toml", "--checkpoint.enable", "--validation.enable"]).stdout
        for step in (1,):
            self.assertRegex(out, r"\[titan\] \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - root - INFO - "
                                  r"step:  %d  loss:  \d\.\d{5}  grad_norm: +\d+\.\d{4}  memory: +\d+\.\d\dGiB"
                                  r"\(\d+\.\d\d%%\)  tps: [\d,]+  tflops: \d+\.\d\d\n" % step)
        self.assertRegex(out, r"validate step:  4  loss:  \d\.\d{5}  memory: ")
        self.assertNotIn("\033", out)
        with open(self.path("out", "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual([line["step"] for line in lines], [1, 2, 3, 4])
        self.assertIn("validation_loss", lines[3])
        self.assertTrue(os.path.exists(self.path("out", "checkpoint", "step-4", "manifest.json")))

    def test_given_the_keywords_of_check_lists_the_log_has_them(self):
        out = self.accepted(["train", "job.toml", MX]).stdout
        self.assertIn("MX training active with recipe mxfp8", out)
        self.assertRegex(out, r"Swapped to MXLinear_NPU layers: 14\b")

    def test_given_tensorboard_an_event_file_is_written(self):
        self.accepted(["train", "job.toml", "--metrics.enable_tensorboard"])
        names = [n for _, _, files in os.walk(self.path("out", "tb")) for n in files]
        self.assertEqual(len(names), 1)
        self.assertTrue(names[0].startswith("events.out.tfevents."))

    def test_given_config_file_as_an_option_it_is_the_job(self):
        self.accepted(["train", "--job.config_file", "job.toml"])

    def test_given_the_saved_config_of_a_run_it_is_a_job_again(self):
        self.accepted(["train", "job.toml", "--job.save_config_file=saved.toml", "--job.dump_folder=kept"])
        self.accepted(["plan", "kept/saved.toml"])

    def test_given_an_interrupted_run_it_goes_on_where_it_was(self):
        def losses():
            with open(self.path("out", "metrics.jsonl")) as file:
                return [(j["step"], j["loss"], j["grad_norm"]) for j in map(json.loads, file)]
        self.accepted(["train", "job.toml", "--checkpoint.enable"])
        whole = losses()
        out = self.accepted(["train", "job.toml", "--checkpoint.enable", "--checkpoint.load_step=2"]).stdout
        self.assertIn("Training starts at step 3", out)
        self.assertEqual(losses(), whole)

    def test_given_a_learning_rate_that_explodes_the_run_fails_and_saves_nothing(self):
        result = self.refused(["train", "job.toml", "--checkpoint.enable", "--checkpoint.interval=1",
                               "--optimizer.lr=1e38", "--lr_scheduler.warmup_steps=0",
                               "--training.max_norm=1e38"], "is not finite", status=1)
        step = int(re.search(r"octet: step (\d+): ", result.stderr).group(1))
        self.assertFalse(os.path.exists(self.path("out", "checkpoint", "step-%d" % step)))

    def test_given_a_learning_rate_that_overflows_the_weights_the_first_one_is_named_and_nothing_is_saved(self):
        self.refused(["train", "job.toml", "--checkpoint.enable", "--checkpoint.interval=1", "--training.steps=1",
                      "--lr_scheduler.warmup_steps=0", "--optimizer.lr=3.3e38", "--optimizer.weight_decay=1e38"],
                     "step 1: after the update (learning rate 3.3e+38, eps 1e-08) the value of tok_embeddings.weight[0, 0]",
                     "the run stops and nothing was saved", status=1)
        self.assertFalse(os.path.exists(self.path("out", "checkpoint")))

    def test_given_a_checkpoint_eval_and_generate_read_it(self):
        self.accepted(["train", "job.toml", "--checkpoint.enable", MX])
        text = self.accepted(["eval", "out", "text.txt"]).stdout
        self.assertRegex(text, r"^step: 4  tokens: \d+  loss: \d\.\d{5}  perplexity: [\d.]+\n$")
        mx = json.loads(self.accepted(["eval", "out/checkpoint/step-4", "text.txt", "--json"]).stdout)
        again = json.loads(self.accepted(["eval", "out", "text.txt", "--json", "--recipe", "mxfp8"]).stdout)
        bf16 = json.loads(self.accepted(["eval", "out", "text.txt", "--json", "--recipe", "bf16"]).stdout)
        self.assertEqual(mx["loss"], again["loss"])
        self.assertNotEqual(mx["loss"], bf16["loss"])
        sample = ["generate", "out", "--prompt", "the lord", "--max-new-tokens", 12]
        one = self.accepted(sample).stdout
        self.assertTrue(one.startswith("the lord"))
        self.assertGreater(len(one), len("the lord\n"))
        self.assertEqual(one, self.accepted(sample).stdout)
        self.assertNotEqual(one, self.accepted(sample + ["--seed", 3, "--temperature", 2]).stdout)

    def test_given_a_plan_rows_say_what_and_why(self):
        out = self.accepted(["plan", "job.toml", MX]).stdout
        self.assertRegex(out, r"layers\.0\.attention\.wq +64x64 +MXLinear")
        self.assertRegex(out, r'output .*Linear .*filter_fqns: "output"')
        rows = json.loads(self.accepted(["plan", "job.toml", MX, "--json"]).stdout)
        self.assertIn("layers.0.attention.wq", json.dumps(rows))
        self.assertFalse(os.path.exists(self.path("out")))

    def test_given_a_filter_that_matches_nothing_plan_names_the_closest_and_exits_2(self):
        self.refused(["plan", "job.toml", MX, "--quantize.linear.mx.filter_fqns=outputs"], "output")
        self.refused(["plan", "job.toml", MX, "--quantize.linear.mx.filter_fqns=lm_head"], 'closest: "output"')

    def test_given_recipes_compare_prints_their_gaps_and_writes_a_page(self):
        out = self.accepted(["compare", "job.toml", "--recipes", "bf16,mxfp8,hif8"]).stdout
        rows = [line.split() for line in out.splitlines()]
        self.assertEqual([row[0] for row in rows[1:4]], ["bf16", "mxfp8", "hif8"])
        self.assertEqual(rows[1][3:5], ["+0.0000", "+0.00%"])
        with open(self.path("out", "compare", "report.html")) as file:
            page = file.read()
        self.assertIn("<svg", page)
        self.assertEqual(page.count("<polyline"), 3 + 3 + 3)
        self.assertNotIn("http", page)
        first = [self.first_loss(r) for r in ("bf16", "mxfp8", "hif8")]
        self.assertLess(max(first) - min(first), 0.05)

    def first_loss(self, recipe):
        with open(self.path("out", "compare", recipe, "metrics.jsonl")) as file:
            return json.loads(file.readline())["loss"]


if __name__ == "__main__":
    main()
