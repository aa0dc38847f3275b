"""Signals that ask a run to end, as a user or a scheduler sends them: what is saved, what is said, how it goes on."""
import fcntl
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import termios
import time
import unittest

from program import OCTET, main
from ranks import ENV, MPIRUN
from training import WORDS, Training

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
SAVE = "--checkpoint.enable", "--checkpoint.interval=1000000"
LONG_STEP = "--training.global_batch_size=200000"  # 100,000 micro-batches: minutes


class Stops(Training):
    def out(self):
        return self.text_of("background.out")

    def err(self):
        return self.text_of("background.err")

    def wait_for_words(self, job, words, name="background.out"):
        self.wait_until(words, lambda: words in self.text_of(name), job)

    def ends(self, job, *status):
        self.assertIn(job.wait(timeout=60), status, self.out() + self.err())

    def checkpoints(self, folder="out"):
        path = self.path(folder, "checkpoint")
        names = set(os.listdir(path)) if os.path.exists(path) else set()
        return sorted(names - {".octet.lock"})  # which a process that ends at once leaves, unlocked

    def steps(self):
        return [int(step) for step in re.findall(r'"step": (\d+)', self.text_of("out", "metrics.jsonl"))]

    def big_text(self, name, copies):
        self.write(name, " ".join(WORDS[(i * i) % len(WORDS)] for i in range(5000)) * copies)


class Stop(Stops):
    def test_given_any_of_the_signals_the_step_is_finished_and_saved_and_the_command_said_goes_on(self):
        for number in SIGNALS:
            job = self.long_run(*SAVE, "--job.description=it's $1 & more")
            self.wait_for_steps(job)
            os.kill(job.pid, number)
            self.ends(job, -number)  # as if the signal had ended it: a shell shows 128 + its number
            done = self.steps()[-1]
            self.assertEqual(self.checkpoints(), ["step-%d" % done])
            self.assertIn("octet: %s: stops at the end of this step; a second signal stops at once\n" % number.name, self.err())
            self.assertIn("Stopped by %s after step %d of 1000000, which is saved" % (number.name, done), self.out())
            self.assertNotIn("Training completed", self.out())
            command = re.search("To go on: (.*)", self.out()).group(1)
            self.assertEqual(shlex.split(command), job.args)
            go_on = subprocess.run(["sh", "-c", "%s --training.steps=%d" % (command, done + 2)], cwd=self.folder,
                                   text=True, capture_output=True, timeout=60)
            self.assertEqual(go_on.returncode, 0, go_on.stderr)
            self.assertIn("Training starts at step %d: 2 steps of 64 tokens: 128 tokens" % (done + 1), go_on.stdout)
            self.assertEqual(self.steps(), list(range(1, done + 3)))  # none is lost, none done twice
            subprocess.run(["rm", "-r", self.path("out")], check=True)

    def test_given_a_stop_the_losses_are_those_of_a_run_that_never_stopped(self):
        job = self.long_run(*SAVE, "--lr_scheduler.decay_ratio=0", "--lr_scheduler.decay_type=linear")
        self.wait_for_steps(job, 3)
        os.kill(job.pid, signal.SIGTERM)
        self.ends(job, -signal.SIGTERM)
        done = self.steps()[-1]
        def losses(folder):
            return re.findall(r'"loss": ([\d.e-]+)', self.text_of(folder, "metrics.jsonl"))
        args = ["train", "job.toml", *SAVE, "--lr_scheduler.decay_ratio=0", "--lr_scheduler.decay_type=linear",
                "--training.steps=%d" % (done + 3)]
        self.accepted(args)
        self.accepted(args + ["--job.dump_folder=whole"])
        self.assertEqual(losses("out"), losses("whole"))

    def test_given_a_step_to_load_the_command_goes_on_from_the_newest_instead(self):
        self.accepted(["train", "job.toml", "--checkpoint.enable"])
        job = self.long_run(*SAVE, "--checkpoint.load_step=2")
        self.wait_for_steps(job, 1)
        os.kill(job.pid, signal.SIGTERM)
        self.ends(job, -signal.SIGTERM)
        command = re.search("To go on: (.*)", self.out()).group(1)
        self.assertTrue(command.endswith(" --checkpoint.load_step=-1"), command)
        done = int(re.search(r"after step (\d+) of", self.out()).group(1))
        go_on = subprocess.run(["sh", "-c", command + " --training.steps=%d" % (done + 1)], cwd=self.folder,
                               text=True, capture_output=True, timeout=60)
        self.assertIn("Resumed from out/checkpoint/step-%d\n" % max(done, 4), go_on.stdout)

    def test_given_no_checkpoints_a_run_says_at_both_ends_that_nothing_is_saved(self):
        for options, why in ((["--checkpoint.interval=1"], "checkpoint.enable is false"),
                             (["--checkpoint.enable", "--checkpoint.load_only"], "checkpoint.load_only is true")):
            job = self.long_run(*options)
            self.wait_for_steps(job)
            os.kill(job.pid, signal.SIGTERM)
            self.ends(job, -signal.SIGTERM)
            self.assertIn("WARNING - nothing of this run will be saved, as " + why, self.out())
            self.assertRegex(self.out(), r"WARNING - stopped by SIGTERM after step \d+ of 1000000: nothing was saved, as " + why)
            self.assertNotIn("To go on", self.out())
            self.assertEqual(self.checkpoints(), [])
        self.assertNotIn("will be saved", self.accepted(["train", "job.toml", "--checkpoint.enable"]).stdout)

    def test_given_two_signals_at_once_they_are_one(self):
        job = self.long_run(*SAVE)  # timeout(1) sends one to the process and one to its group
        self.wait_for_steps(job)
        os.kill(job.pid, signal.SIGTERM)
        os.killpg(job.pid, signal.SIGTERM)
        self.ends(job, -signal.SIGTERM)
        self.assertEqual(len(self.checkpoints()), 1)
        self.assertNotIn("ends at once;", self.err())

    def test_given_a_second_signal_in_a_long_step_the_run_ends_at_once(self):
        for first, second in ((signal.SIGINT, signal.SIGINT), (signal.SIGUSR1, signal.SIGTERM)):
            job = self.long_run(*SAVE, LONG_STEP)
            self.wait_for_words(job, "Training starts")
            time.sleep(0.2)
            os.kill(job.pid, first)
            self.wait_for_words(job, "octet: %s: stops at the end of this step" % first.name, "background.err")
            time.sleep(0.7)
            self.assertIsNone(job.poll())
            os.kill(job.pid, second)
            self.ends(job, -second)
            self.assertIn("octet: %s: ends at once; what came after the last checkpoint is lost" % second.name, self.err())
            self.assertEqual(self.checkpoints(), [])

    def test_given_a_signal_while_it_tokenizes_the_run_ends_at_once(self):
        self.big_text("big.txt", 1500)
        job = self.long_run(*SAVE, "--training.dataset_path=big.txt")
        self.wait_for_words(job, "Model llama3")
        os.kill(job.pid, signal.SIGTERM)
        self.ends(job, -signal.SIGTERM)
        self.assertIn("octet: SIGTERM: ends at once, before the first step", self.err())
        self.assertNotIn("Training starts", self.out())

    def test_given_a_signal_in_a_long_validation_it_is_left_out_and_the_step_saved(self):
        self.big_text("held.txt", 100)
        job = self.long_run(*SAVE, "--validation.enable", "--validation.dataset_path=held.txt", "--validation.steps=-1")
        self.wait_for_words(job, "Training starts")
        time.sleep(1)
        self.assertFalse(os.path.exists(self.path("out", "metrics.jsonl")) and self.steps())
        os.kill(job.pid, signal.SIGTERM)
        self.ends(job, -signal.SIGTERM)
        self.assertIn("The validation of step 1 is left out", self.out())
        self.assertEqual((self.steps(), self.checkpoints()), ([1], ["step-1"]))
        self.assertNotIn("validation_loss", self.text_of("out", "metrics.jsonl"))

    def test_given_a_signal_that_its_starter_ignored_a_run_goes_on(self):
        def ignore():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        job = self.long_run(*SAVE, preexec_fn=ignore)
        self.wait_for_steps(job)
        os.kill(job.pid, signal.SIGINT)
        self.wait_for_steps(job)
        os.kill(job.pid, signal.SIGTERM)
        self.ends(job, -signal.SIGTERM)

    def test_given_a_run_its_start_says_how_long_it_is_and_a_few_steps_later_how_long_it_takes(self):
        out = self.accepted(["train", "job.toml", "--training.steps=30", "--training.global_batch_size=4"]).stdout
        self.assertRegex(out, r"Training starts at step 1: 30 steps of 128 tokens: 3,840 tokens, 0\.\d+ times the training data")
        self.assertRegex(out, r"About \d+ s to go: [\d.e-]+ s a step")
        self.assertNotIn("training: step", out)  # the progress bar is for terminals

    def on_terminal(self, columns, *args):
        """What the run draws on a terminal of so many columns, a list of its lines."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        env = {name: value for name, value in os.environ.items() if not name.startswith("OMPI_")}
        with open(self.path("log"), "w") as log:
            run = subprocess.Popen([OCTET, "train", "job.toml", *args], cwd=self.folder, stdout=log, stderr=slave, env=env)
        os.close(slave)
        drawn = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            drawn += part
        os.close(master)
        self.assertEqual(run.wait(), 0, drawn)
        return [line for line in drawn.decode().replace("\r\n", "\r").split("\r\033[K") if line.strip()]

    def test_given_a_terminal_the_bar_shows_step_loss_rate_and_time_left_and_fits(self):
        args = "--training.steps=12", "--training.global_batch_size=400"  # a tenth of a second a step or more
        bars = [line for line in self.on_terminal(120, *args) if line.startswith("training: ")]
        self.assertTrue(bars[0].startswith("training: step 0/12 ["), bars[0])
        full = re.compile(r"training: step \d+/12  loss \d\.\d{4}  \d+ tokens/s  \d+ s left \[=* *\] \d+%")
        self.assertTrue(any(full.fullmatch(bar) for bar in bars), bars)
        self.assertIn("training: step 12/12  loss", bars[-1])
        for line in self.on_terminal(40, *args):
            self.assertLess(len(line), 40, line)


class ProcessOne(Stops):
    """As in a container: the system ignores signals to process 1 for which it has no handler."""

    def setUp(self):
        super().setUp()
        if subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode:
            self.skipTest("unshare --pid isn't allowed here")

    def start(self, *args):
        job = self.background(["unshare", "--pid", "--fork", OCTET, "train", "job.toml", "--training.steps=1000000", *args])
        def children():
            with open("/proc/%d/task/%d/children" % (job.pid, job.pid)) as file:
                return file.read().split()
        self.wait_until("process 1", children, job)
        return job, int(children()[0])

    def test_given_process_1_a_signal_is_heard_and_its_exit_status_says_which(self):
        for number in SIGNALS:
            job, pid = self.start(*SAVE)
            self.wait_for_steps(job)
            os.kill(pid, number)
            self.ends(job, 128 + number)
            self.assertIn("Stopped by " + number.name, self.out())
            self.assertEqual(len(self.checkpoints()), 1)
            subprocess.run(["rm", "-r", self.path("out")], check=True)

    def test_given_process_1_a_second_signal_ends_it_at_once(self):
        job, pid = self.start(*SAVE, LONG_STEP)
        self.wait_for_words(job, "Training starts")
        os.kill(pid, signal.SIGTERM)
        self.wait_for_words(job, "stops at the end of this step", "background.err")
        time.sleep(0.7)
        os.kill(pid, signal.SIGTERM)
        self.ends(job, 128 + signal.SIGTERM)


class StopOfCompare(Stops):
    def start(self, steps):
        return self.background([OCTET, "compare", "job.toml", "--recipes", "bf16,fp32,mxfp8", *SAVE,
                                "--training.steps=%d" % steps, "--validation.freq=1000000"])

    def test_given_a_signal_compare_ends_with_all_its_runs(self):
        for send in (os.kill, os.killpg):  # to the process alone; Ctrl-C: to its group
            job = self.start(1000000)
            self.wait_for_steps(job, folder="out/compare/bf16")
            send(job.pid, signal.SIGINT)
            self.ends(job, -signal.SIGINT)
            self.assertEqual(self.err().count("octet: SIGINT: "), 1, self.err())
            self.assertIn("stopped by SIGINT: 0 of 3 recipes were trained to the end; the same command begins all of them anew",
                          self.err())
            self.assertEqual(self.out(), "")
            self.assertEqual(len(self.checkpoints("out/compare/bf16")), 1)
            self.assertEqual([name for name in ("fp32", "mxfp8") if os.path.exists(self.path("out", "compare", name))], [])
            subprocess.run(["rm", "-r", self.path("out")], check=True)

    def test_given_a_signal_in_the_second_run_the_first_one_is_shown(self):
        job = self.start(400)
        self.wait_for_steps(job, folder="out/compare/fp32")
        os.kill(job.pid, signal.SIGTERM)
        self.ends(job, -signal.SIGTERM)
        rows = [line.split() for line in self.out().splitlines()]
        self.assertEqual([row[0] for row in rows[1:4]], ["bf16", "fp32", "mxfp8"])
        self.assertEqual(rows[1][3:5], ["+0.0000", "+0.00%"])
        self.assertEqual([row[1] for row in rows[2:4]], ["stopped", "stopped"])
        self.assertIn("stopped by SIGTERM: 1 of 3", self.err())
        self.assertIn("stopped", self.text_of("out", "compare", "report.html"))

    def test_given_a_second_signal_compare_and_its_run_end_at_once(self):
        job = self.background([OCTET, "compare", "job.toml", "--recipes", "bf16", "--training.steps=1000000", LONG_STEP])
        self.wait_for_words(job, "Training starts", "background.err")
        with open("/proc/%d/task/%d/children" % (job.pid, job.pid)) as file:
            run = int(file.read())
        time.sleep(0.2)
        os.kill(job.pid, signal.SIGTERM)
        self.wait_for_words(job, "stops at the end of this step", "background.err")
        time.sleep(0.7)
        os.kill(job.pid, signal.SIGTERM)
        self.ends(job, -signal.SIGTERM)
        self.wait_until("the run's end", lambda: not os.path.exists("/proc/%d" % run) or "Z" in self.state_of(run))

    def state_of(self, pid):
        try:
            with open("/proc/%d/stat" % pid) as file:
                return file.read().split(") ")[1][0]
        except OSError:
            return "Z"


@unittest.skipUnless(MPIRUN, "no mpirun, or built without MPI")
class StopOfRanks(Stops):
    BATCH = "--training.global_batch_size=6", "--training.local_batch_size=1"

    def start(self, *args):
        return self.background(MPIRUN + ["-n", "3", OCTET, "train", "job.toml", "--training.steps=1000000", *self.BATCH,
                                         *args], env=ENV)

    def rank(self, job, number):
        """The process that runs as this rank of the job."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/environ" % pid, "rb") as file:
                    environ = file.read()
                with open("/proc/%s/stat" % pid) as file:
                    parent = int(file.read().split(") ")[1].split()[1])
                if parent == job.pid and b"\0OMPI_COMM_WORLD_RANK=%d\0" % number in environ:
                    return int(pid)
            except OSError:
                pass
        self.fail("no rank %d" % number)

    def check_stop(self, job, number):
        self.ends(job, 128 + number)
        done = self.steps()[-1]
        self.assertEqual(self.checkpoints(), ["step-%d" % done])
        self.assertEqual(self.out().count("Stopped by %s after step %d of" % (number.name, done)), 1)
        self.assertRegex(self.out(), r"To go on: mpirun -n 3 .*octet train job.toml")
        go_on = self.accepted(["train", "job.toml", *self.BATCH, *SAVE, "--training.steps=%d" % (done + 1)])
        self.assertIn("Training starts at step %d:" % (done + 1), go_on.stdout)
        subprocess.run(["rm", "-r", self.path("out")], check=True)

    def test_given_a_signal_that_mpirun_forwards_all_ranks_stop_after_one_step(self):
        job = self.start(*SAVE)
        self.wait_for_steps(job)
        os.kill(job.pid, signal.SIGUSR1)
        self.check_stop(job, signal.SIGUSR1)

    def test_given_a_signal_to_one_rank_all_stop_after_one_step(self):
        for rank, number in ((0, signal.SIGTERM), (2, signal.SIGUSR1)):
            job = self.start(*SAVE, "--validation.enable", "--validation.freq=1")
            self.wait_for_steps(job)
            os.kill(self.rank(job, rank), number)
            self.check_stop(job, number)

    def test_given_a_second_signal_to_one_rank_the_job_ends_at_once(self):
        job = self.start(*SAVE, "--training.global_batch_size=300000")
        self.wait_for_words(job, "Training starts")
        pid = self.rank(job, 1)
        os.kill(pid, signal.SIGUSR1)
        time.sleep(0.8)
        self.assertIsNone(job.poll())
        os.kill(pid, signal.SIGUSR1)
        self.assertNotEqual(job.wait(timeout=60), 0)
        self.assertEqual(self.checkpoints(), [])


if __name__ == "__main__":
    main()
