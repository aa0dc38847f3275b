"""Folders that a run writes to: one run at a time, and such as can be written to."""
import os
import signal
import socket
import subprocess
import unittest

import program
from program import main
from ranks import ENV, MPIRUN
from training import Training


class Folders(Training):
    def test_given_a_run_in_a_folder_a_second_one_is_told_who_has_it(self):
        job = self.long_run("--checkpoint.enable", "--checkpoint.interval=2", "--checkpoint.keep_latest_k=0")
        self.wait_for_steps(job, 4)
        holder = "another run writes there: process %d on %s since 20" % (job.pid, socket.gethostname())
        before = sorted(os.listdir(self.path("out")))
        for second in (["--checkpoint.enable"], [], ["--training.steps=1"]):
            self.refused(["train", "job.toml", *second], "job.toml:3: job.dump_folder: out: " + holder, status=1)
        self.assertEqual(sorted(os.listdir(self.path("out"))), before)
        # what only reads asks for nothing
        self.accepted(["plan", "job.toml"])
        self.accepted(["eval", "out", "text.txt"])
        self.accepted(["generate", "out", "--max-new-tokens", 2])
        # another folder, or one inside it, is another run's
        self.accepted(["train", "job.toml", "--job.dump_folder=other"])
        self.accepted(["compare", "job.toml", "--recipes", "bf16"])
        self.assertIsNone(job.poll())
        os.kill(job.pid, signal.SIGKILL)  # nothing is left to be cleared away by hand
        job.wait()
        # whatever it was saving or pruning, there is a step to go on from
        steps = [int(name[5:]) for name in os.listdir(self.path("out", "checkpoint"))
                 if os.path.exists(self.path("out", "checkpoint", name, "manifest.json"))]
        self.assertIn("Resumed from", self.accepted(["train", "job.toml", "--checkpoint.enable", "--training.steps=1",
                                                     "--checkpoint.load_step=%d" % max(steps)]).stdout)
        self.assertFalse(os.path.exists(self.path("out", ".octet.lock")))

    def test_given_one_folder_of_checkpoints_of_two_runs_the_second_is_refused(self):
        shared = "--checkpoint.folder=" + self.path("kept")
        job = self.long_run("--checkpoint.enable", shared)
        self.wait_for_steps(job)
        second = ["train", "job.toml", "--job.dump_folder=other", shared]
        self.refused(second + ["--checkpoint.enable"], "--checkpoint.folder: %s: another run" % self.path("kept"),
                     "process %d " % job.pid, status=1)
        self.assertFalse(os.path.exists(self.path("other")))
        self.accepted(second)  # saves nothing

    def test_given_another_name_for_a_runs_folder_of_checkpoints_the_second_is_refused(self):
        saves = ["--checkpoint.enable", "--checkpoint.interval=1000000"]
        job = self.long_run("--job.dump_folder=out/A", *saves)
        self.wait_for_steps(job, folder="out/A")
        os.makedirs(self.path("out", "C"))
        os.symlink("../A/checkpoint", self.path("out", "C", "checkpoint"))
        os.symlink("A", self.path("out", "D"))
        for args, name in ((["--job.dump_folder=out/B", "--checkpoint.folder=../A/checkpoint"], "checkpoint.folder"),
                           (["--job.dump_folder=out/C"], "checkpoint.folder"),
                           (["--job.dump_folder=out/B", "--checkpoint.folder=../D/checkpoint"], "checkpoint.folder"),
                           (["--job.dump_folder=out/B", "--checkpoint.folder=" + self.path("out/A/checkpoint")],
                            "checkpoint.folder"),
                           (["--job.dump_folder=out/A/checkpoint"], "job.dump_folder"),
                           (["--job.dump_folder=out/B", "--checkpoint.folder=../A"], "checkpoint.folder")):
            self.refused(["train", "job.toml", *saves, *args], name + ": ",
                         "another run writes there: process %d " % job.pid, status=1)
            self.assertFalse(os.path.exists(self.path("out", "B")))
        self.accepted(["train", "job.toml", "--job.dump_folder=out/C"])  # saves nothing
        self.assertIsNone(job.poll())

    def test_given_the_dump_folder_itself_for_checkpoints_one_run_uses_both(self):
        os.makedirs(self.path("real"))
        os.symlink("real", self.path("out"))
        for folder in (".", "../out", "../real", self.path("real")):
            self.accepted(["train", "job.toml", "--checkpoint.enable", "--checkpoint.folder=" + folder])
            self.assertIn("step-4", os.listdir(self.path("real")))
            self.assertNotIn(".octet.lock", os.listdir(self.path("real")))

    def test_given_a_run_that_saved_nothing_no_folder_of_checkpoints_is_left(self):
        self.refused(["train", "job.toml", "--checkpoint.enable", "--training.dataset_path=nowhere"], "nowhere")
        self.assertFalse(os.path.exists(self.path("out")))

    def test_given_a_comparison_its_folders_are_its_own(self):
        job = self.background([program.OCTET, "compare", "job.toml", "--recipes", "bf16,fp32", "--training.steps=1000000"])
        self.wait_for_steps(job, folder="out/compare/bf16")
        self.refused(["compare", "job.toml", "--recipes", "hif8"], "out/compare: another run", "process %d " % job.pid,
                     status=1)
        self.refused(["train", "job.toml", "--job.dump_folder=out/compare/bf16"], "another run writes there", status=1)
        self.assertNotIn("hif8", os.listdir(self.path("out", "compare")))

    def test_given_a_run_in_a_recipes_folder_compare_is_refused_before_it_trains(self):
        job = self.long_run("--job.dump_folder=out/compare/fp32")
        self.wait_for_steps(job, folder="out/compare/fp32")
        self.refused(["compare", "job.toml", "--recipes", "bf16,fp32"], "out/compare/fp32: another run", status=1)
        self.assertEqual(os.listdir(self.path("out", "compare")), ["fp32"])

    def test_given_a_folder_that_cannot_be_written_to_compare_trains_nothing(self):
        nobody = self.as_nobody()
        for name in ("own", "own/compare", "own/compare/fp32"):
            os.makedirs(self.path(name))
            os.chmod(self.path(name), 0o555)
            result = self.refused(["compare", "job.toml", "--recipes", "bf16,fp32", "--job.dump_folder=own"],
                                  "--job.dump_folder: own/compare", status=1, **nobody)
            self.assertNotIn("Training", result.stdout + result.stderr)
            os.chmod(self.path(name), 0o777)
        os.mkdir(self.path("reports"))
        os.chmod(self.path("reports"), 0o555)
        result = self.refused(["compare", "job.toml", "--recipes", "bf16", "--report", "reports/a.html"],
                              "--report: reports: can't be written to: Permission denied", status=1, **nobody)
        self.assertNotIn("Training", result.stdout + result.stderr)
        self.assertFalse(os.path.exists(self.path("out")))

    @unittest.skipUnless(MPIRUN, "no mpirun, or built without MPI")
    def test_given_a_run_in_a_folder_several_processes_are_told_once(self):
        job = self.long_run()
        self.wait_for_steps(job)
        second = subprocess.run(MPIRUN + ["-n", "3", program.OCTET, "train", "job.toml"], cwd=self.folder, env=ENV, text=True,
                                capture_output=True, timeout=60)
        self.assertEqual(second.returncode, 1, second.stderr)
        errors = [line for line in second.stderr.splitlines() if line.startswith("octet: ")]
        self.assertEqual(len(errors), 1, second.stderr)
        self.assertIn("out: another run writes there: process %d on " % job.pid, errors[0])


if __name__ == "__main__":
    main()
