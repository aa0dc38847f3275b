"""`octet compare --seeds`: gaps with their uncertainty, verdicts, and runs that are kept."""
import json
import math
import os
import signal
import statistics

from program import OCTET, main
from training import JOB, Training

T95 = {1: 12.7062, 2: 4.3027}  # Student's t, two-sided: any table


class Seeds(Training):
    def compare(self, *args, recipes="bf16,mxfp8", seeds=3, status=0):
        result = self.run_octet(["compare", "job.toml", "--recipes", recipes, "--seeds", seeds, *args])
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        return result

    def rows(self, result):
        lines = result.stdout.splitlines()
        head = lines[0]
        starts = [head.index(name) for name in ("recipe", "seeds", "train loss")]
        self.assertEqual(starts[0], 0)
        return {line.split()[0]: line.split() for line in lines[1:] if line.split()[0] in os.listdir(self.path("out", "compare"))}

    def losses(self, recipe, seeds=(5, 6, 7)):
        return [json.loads(self.text_of("out", "compare", recipe, "seed-%d" % seed, "metrics.jsonl").splitlines()[-1])["validation_loss"]
                for seed in seeds]

    def test_given_seeds_the_gap_is_the_mean_of_pairs_with_its_error(self):
        result = self.compare()
        rows = self.rows(result)
        self.assertEqual(list(rows), ["bf16", "bf16-other-order", "mxfp8"])
        base = self.losses("bf16")
        for recipe in ("bf16-other-order", "mxfp8"):
            gaps = [a - b for a, b in zip(self.losses(recipe), base)]
            mean, error = statistics.mean(gaps), statistics.stdev(gaps) / math.sqrt(3)
            half = T95[2] * error
            self.assertEqual(rows[recipe][:2], [recipe, "3"])
            self.assertEqual(" ".join(rows[recipe][4:10]), "%+.4f ± %.4f %+.4f .. %+.4f" % (mean, error, mean - half, mean + half))
            percent = 100 / statistics.mean(base)
            self.assertEqual(rows[recipe][10:13], ["%+.3f%%" % (percent * mean), "±", "%.3f" % (percent * error)])
        self.assertEqual(rows["bf16"][4], "-")
        self.assertNotIn("equivalent", result.stdout)  # without a gate nothing is judged
        for seed, loss in zip((5, 6, 7), base):  # a seed's run is the plain run with that seed
            self.accepted(["train", "job.toml", "--debug.seed=%d" % seed, "--validation.enable", "--job.dump_folder=plain%d" % seed])
            plain = json.loads(self.text_of("plain%d" % seed, "metrics.jsonl").splitlines()[-1])
            self.assertEqual(plain["validation_loss"], loss)

    def test_given_another_order_of_sums_the_step_is_the_same_but_for_rounding(self):
        self.compare(recipes="fp32", seeds=2)
        for seed in (5, 6):
            first, other = (self.text_of("out", "compare", recipe, "seed-%d" % seed, "metrics.jsonl").splitlines()
                            for recipe in ("fp32", "fp32-other-order"))
            pairs = [(json.loads(a)["loss"], json.loads(b)["loss"]) for a, b in zip(first, other)]
            self.assertNotEqual([a for a, _ in pairs], [b for _, b in pairs])
            for a, b in pairs:
                self.assertAlmostEqual(a, b, delta=2e-5)
        self.refused(["compare", "job.toml", "--seeds", 2, "--training.local_batch_size=1", "--recipes", "bf16"],
                     "--seeds", "expected training.local_batch_size above 1, or --no-noise")
        self.compare("--training.local_batch_size=1", "--no-noise", "--job.dump_folder=alone", recipes="bf16", seeds=2)
        self.assertEqual(sorted(os.listdir(self.path("alone", "compare"))), ["bf16", "report.html"])

    def test_given_a_gate_each_recipe_gets_a_verdict_and_the_program_a_status(self):
        fine = self.compare("--gate", 1)
        self.assertIn("mxfp8: equivalent to bf16 within 1 nats: ", fine.stdout)
        self.assertNotIn("bf16-other-order:", fine.stdout)
        gaps = [a - b for a, b in zip(self.losses("mxfp8"), self.losses("bf16"))]
        mean, half = statistics.mean(gaps), T95[2] * statistics.stdev(gaps) / math.sqrt(3)
        unresolved = self.compare("--gate", mean, status=4)  # in the middle of the interval
        self.assertIn("mxfp8: unresolved at %g nats (more than a thousand seeds more would not decide)" % mean, unresolved.stdout)
        self.compare("--gate", mean + 1.01 * half, status=0)
        self.compare("--gate", mean + 0.99 * half, status=4)
        # The other way round the gap has the other sign, so that one of both is worse than a tiny gate if the interval is small enough.
        first, second = ("bf16", "mxfp8") if mean > 0 else ("mxfp8", "bf16")
        turned = [second + ": worse than " + first, second + ": unresolved"][abs(mean) < half + 1e-9]
        self.assertIn(turned, self.compare("--gate", "1e-9", "--no-noise", recipes=first + "," + second,
                                           status=4 if "unresolved" in turned else 3).stdout)
        one = self.compare("--gate", 1, seeds=1, status=4)
        self.assertIn("mxfp8: unresolved at 1 nats (one run a recipe can't tell)", one.stdout)
        with open(self.path("out", "compare", "report.html")) as file:
            self.assertIn("unresolved", file.read())

    def test_given_the_same_command_again_only_what_is_missing_trains(self):
        first = self.compare(seeds=2)
        self.assertEqual(first.stderr.count("Training starts"), 6)
        before = {recipe: self.losses(recipe, (5, 6)) for recipe in ("bf16", "mxfp8")}
        again = self.compare(seeds=2)
        self.assertEqual(again.stderr.count("Training starts"), 0)
        self.assertEqual(again.stderr.count("Kept: recipe"), 6)
        self.assertEqual(self.rows(again), self.rows(first))
        more = self.compare(seeds=3, recipes="bf16,mxfp8,hif8")
        self.assertEqual(more.stderr.count("Training starts"), 4 + 2)  # the third seed of all, the first two of hif8
        self.assertEqual({recipe: self.losses(recipe, (5, 6)) for recipe in ("bf16", "mxfp8")}, before)

    def test_given_anything_that_counts_changed_the_runs_begin_anew(self):
        self.compare(seeds=1, recipes="bf16")
        for change in (["--training.steps=5"], ["--optimizer.lr=1e-3"], ["--model.args.n_layers=1"], ["--debug.seed=6"]):
            self.assertEqual(self.compare(*change, seeds=1, recipes="bf16").stderr.count("Training starts"), 1, change)
            self.assertEqual(self.compare(*change, seeds=1, recipes="bf16").stderr.count("Training starts"), 0, change)
        self.compare(seeds=1, recipes="bf16")
        self.assertEqual(self.compare("--metrics.log_freq=2", seeds=1, recipes="bf16").stderr.count("Training starts"), 0)
        self.write("text.txt", self.text_of("text.txt") + " and pharaoh said")
        self.assertEqual(self.compare(seeds=1, recipes="bf16").stderr.count("Training starts"), 1)
        self.write("out/compare/bf16/seed-5/run.json", "{}")
        self.refused(["compare", "job.toml", "--recipes", "bf16", "--seeds", 1], "out/compare/bf16/seed-5/run.json", "inputs", "move it away")

    def test_given_a_stop_the_same_command_goes_on_to_the_same_losses(self):
        args = ["--checkpoint.enable", "--training.steps=60", "--checkpoint.interval=20", "--validation.freq=60"]
        whole = self.compare(*args, "--job.dump_folder=whole", seeds=2)
        job = self.background([OCTET, "compare", "job.toml", "--recipes", "bf16,mxfp8", "--seeds", "2", *args])
        self.wait_for_steps(job, folder="out/compare/mxfp8/seed-5")
        os.kill(job.pid, signal.SIGINT)
        self.assertEqual(job.wait(60), -signal.SIGINT)
        self.assertIn("the same command goes on from there", self.text_of("background.err"))
        result = self.compare(*args, seeds=2)
        self.assertGreaterEqual(result.stderr.count("Kept: recipe"), 2)
        self.assertEqual(self.rows(result)["mxfp8"][1:13], {line.split()[0]: line.split() for line in whole.stdout.splitlines()}["mxfp8"][1:13])

    def test_given_rules_behind_a_recipe_the_arm_is_trained_by_them(self):
        self.compare(recipes="mxfp8@octet,mxfp8@mindspeed@2026-07,mxfp8", seeds=2)
        losses = {recipe: self.losses(recipe, (5, 6)) for recipe in ("mxfp8@octet", "mxfp8@mindspeed@2026-07", "mxfp8")}
        self.assertNotEqual(losses["mxfp8@octet"], losses["mxfp8@mindspeed@2026-07"])
        self.accepted(["train", "job.toml", "--validation.enable", "--quantize.rules=octet", "--model.converters=quantize.linear.mx",
                       "--job.dump_folder=plain"])
        plain = json.loads(self.text_of("plain", "metrics.jsonl").splitlines()[-1])["validation_loss"]
        self.assertEqual(losses["mxfp8@octet"][0], plain)
        self.refused(["compare", "job.toml", "--recipes", "bf16,mxfp8@oktet"], "quantize.rules", "octet")
        for recipes in ("mxfp8@", "@octet", "bf16,,hif8", "bf16,BF16"):
            self.refused(["compare", "job.toml", "--recipes", recipes], "--recipes: ")

    def test_given_a_gate_and_nothing_to_judge_it_is_refused_or_said(self):
        for recipes in ("bf16", "mxfp8@octet"):
            self.refused(["compare", "job.toml", "--gate", "0.01", "--seeds", 2, "--recipes", recipes], "--gate: it judges the gaps to the first recipe",
                         'got "%s" alone' % recipes)
        failed = self.run_octet(["compare", "job.toml", "--recipes", "bf16,mxfp8", "--seeds", 2, "--gate", 1, "--optimizer.lr=1e30"])
        self.assertEqual(failed.returncode, 1, failed.stderr)
        self.assertIn("mxfp8: unresolved at 1 nats (no seed was trained to its end in both)", failed.stdout)

    def test_given_seeds_out_of_range_they_are_refused(self):
        for args in (["--seeds", "0"], ["--seeds", "257"], ["--gate", "0"], ["--gate", "-1"], ["--no-noise"], ["--seeds", "1", "--no-noise"]):
            self.refused(["compare", "job.toml", *args], args[-2] if len(args) == 2 and args[0] != "--no-noise" else "--no-noise")


main()
