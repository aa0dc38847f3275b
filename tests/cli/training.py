"""A small job in the test's folder: a text, a tokenizer trained on it, a job file; runs in the background."""
import os
import signal
import subprocess
import time

from program import OCTET, Program

JOB = """
[job]
dump_folder = "out"
[model]
name = "llama3"
flavor = "demo"
tokenizer_path = "tokenizer.json"
[model.args]
dim = 64
n_layers = 2
n_heads = 4
n_kv_heads = 2
vocab_size = 320
hidden_dim = 96
[optimizer]
lr = 3e-3
[lr_scheduler]
warmup_steps = 2
[training]
dataset_path = "text.txt"
local_batch_size = 2
seq_len = 32
steps = 4
[checkpoint]
interval = 2
last_save_model_only = false
[validation]
local_batch_size = 2
seq_len = 32
freq = 4
steps = 2
[debug]
seed = 5
"""
WORDS = "the lord said unto moses go down to egypt and say let my people go".split()


class Training(Program):
    def setUp(self):
        super().setUp()
        text = " ".join(WORDS[(i * i + i // 7) % len(WORDS)] for i in range(6000))
        self.write("text.txt", text)
        self.write("job.toml", JOB)
        self.accepted(["tokenizer", "train", "text.txt", "--vocab-size", 300, "--output",
                       "tokenizer.json"])

    def background(self, command, **kwargs):
        """Starts a command that goes on while the test does, and is killed at its end if it still runs."""
        with open(self.path("background.out"), "wb") as out, open(self.path("background.err"), "wb") as err:
            job = subprocess.Popen([str(c) for c in command], cwd=self.folder, stdout=out, stderr=err,
                                   start_new_session=True, **kwargs)
        def end():
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        self.addCleanup(end)
        return job

    def long_run(self, *args, octet=OCTET, **kwargs):
        """A training run that only a signal ends."""
        return self.background([octet, "train", "job.toml", "--training.steps=1000000", *args], **kwargs)

    def text_of(self, *names):
        with open(self.path(*names), errors="replace") as file:
            return file.read()

    def wait_until(self, what, condition, job=None):
        deadline = time.time() + 60
        while not condition():
            self.assertLess(time.time(), deadline, what)
            self.assertTrue(job is None or job.poll() is None,
                            what + ": ended early: " + self.text_of("background.out") + self.text_of("background.err"))
            time.sleep(0.02)

    def wait_for_steps(self, job, n=2, folder="out"):
        """Waits until a run has finished n steps more than it had."""
        path = self.path(folder, "metrics.jsonl")
        def lines():
            return self.text_of(path).count("\n") if os.path.exists(path) else 0
        before = lines()
        self.wait_until("a step", lambda: lines() >= before + n, job)
