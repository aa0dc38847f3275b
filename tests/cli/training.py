"""A small job in the test's folder: a text, a tokenizer trained on it, a job file."""
from program import Program

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
