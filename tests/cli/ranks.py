"""Several processes of octet, as a user starts them: mpirun octet train."""
import json
import os
import re
import signal
import subprocess
import sys
import time

import program
from program import OCTET
from training import Training

MPIRUN = os.environ.get("OCTET_MPIRUN", "").split()  # with its options
BATCH = ["--training.global_batch_size=12", "--training.local_batch_size=1", "--training.steps=6",
         "--metrics.disable_color_printing"]
LOW = ["--model.converters=quantize.linear.mx", "--quantize.linear.mx.enable_fsdp_low_precision_all_gather"]
ENV = dict(os.environ, OMP_NUM_THREADS="1", OMPI_MCA_btl_vader_single_copy_mechanism="none")


class OnRanks(Training):
    def command(self, n, args):
        return MPIRUN + ["-n", str(n), OCTET] + [str(a) for a in args]

    def run_ranks(self, n, args, timeout=100):
        return subprocess.run(self.command(n, args), cwd=self.folder, env=ENV, text=True, errors="replace",
                              capture_output=True, timeout=timeout)

    def train(self, n, *args):
        result = self.run_ranks(n, ["train", "job.toml"] + BATCH + list(args))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def metrics(self, folder="out"):
        with open(self.path(folder, "metrics.jsonl")) as file:
            return [json.loads(line) for line in file]

    def errors(self, result):
        return [line for line in result.stderr.splitlines() if line.startswith("octet: ")]

    def process_of(self, rank):
        """The id of the process that runs as this rank in the test's folder."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink("/proc/%s/cwd" % pid) != os.path.realpath(self.folder):
                    continue
                with open("/proc/%s/environ" % pid, "rb") as file:
                    if re.search(rb"(^|\0)(OMPI_COMM_WORLD_RANK|PMI_RANK)=%d\0" % rank, file.read()):
                        return int(pid)
            except OSError:
                pass
        return None

    def kill_last(self, n, *args):
        """Kills the last of n processes once there is a checkpoint: the job ends, and none is half-written."""
        job = subprocess.Popen(self.command(n, ["train", "job.toml", "--checkpoint.enable",
                                                "--training.steps=1000000", "--checkpoint.interval=20", *args]),
                               cwd=self.folder, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            deadline = time.time() + 60
            while not os.path.exists(self.path("out", "checkpoint", "step-20")) and time.time() < deadline:
                time.sleep(0.1)
            pid = self.process_of(n - 1)
            self.assertIsNotNone(pid)
            os.kill(pid, signal.SIGKILL)
            start = time.time()
            job.communicate(timeout=30)
            self.assertLess(time.time() - start, 30)
            self.assertNotEqual(job.returncode, 0)
        finally:
            if job.poll() is None:
                job.kill()
        steps = [d for d in os.listdir(self.path("out", "checkpoint")) if "." not in d]
        self.assertTrue(steps)
        for step in steps:
            self.assertTrue(os.path.exists(self.path("out", "checkpoint", step, "manifest.json")))


def main():
    if not MPIRUN:
        print("skipped: no mpirun, or built without MPI")
        sys.exit(77)
    program.main()
