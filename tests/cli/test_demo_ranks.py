"""examples/demo.toml in fp32 on 1 to 4 processes: 20 steps have the same losses and validation losses within 1e-5, also
where the number of processes changes at a checkpoint in the middle. Minutes, so in the slow suite."""
import os
import shutil
import subprocess
import sys

from program import OCTET
from ranks import OnRanks, main

SOURCE = os.environ.get("OCTET_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
TOLERANCE = 1e-5
JOB = ["train", "demo.toml", "--training.mixed_precision_param=float32", "--model.converters=", "--training.steps=20",
       "--training.global_batch_size=12", "--training.local_batch_size=1", "--validation.freq=5", "--validation.steps=2",
       "--checkpoint.interval=10", "--checkpoint.no-last_save_model_only"]


class Demo(OnRanks):
    def setUp(self):
        super().setUp()
        shutil.copy(os.path.join(SOURCE, "examples", "demo.toml"), self.folder)
        made = subprocess.run([os.path.join(SOURCE, "tools", "make-demo-data"), OCTET, self.path("data")],
                              capture_output=True, text=True)
        if made.returncode != 0:
            print("skipped: no text of the demo: " + made.stderr)
            sys.exit(77)

    def curves(self, n, *args):
        result = self.run_ranks(n, JOB + list(args), timeout=1500)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return [(line["loss"], line.get("validation_loss"), line["n_tokens"]) for line in self.metrics("outputs/demo")]

    def assert_close(self, expected, got):
        self.assertEqual(len(got), 20)
        worst = 0
        for (loss, validation, n), (own_loss, own_validation, own_n) in zip(expected, got):
            self.assertEqual(n, own_n)
            self.assertEqual(validation is None, own_validation is None)
            worst = max(worst, abs(loss - own_loss), abs((validation or 0) - (own_validation or 0)))
        self.assertLess(worst, TOLERANCE)
        return worst

    def test_given_any_number_of_processes_the_demos_losses_are_those_of_one(self):
        one = self.curves(1)
        self.assertEqual(sum(validation is not None for _, validation, _ in one), 5)
        for n in (2, 3, 4):
            shutil.rmtree(self.path("outputs", "demo", "checkpoint"))
            print("%d processes: %.1e" % (n, self.assert_close(one, self.curves(n))), flush=True)
            for m in (1, 3):  # from step 10 on with others
                shutil.rmtree(self.path("outputs", "demo", "checkpoint", "step-20"))
                print("%d, then %d: %.1e" % (n, m, self.assert_close(one, self.curves(m))), flush=True)


if __name__ == "__main__":
    main()
