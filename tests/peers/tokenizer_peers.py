#!/usr/bin/env python3
"""Compares octet's token ids with those of others: the PyPI package `tokenizers` on tokenizers trained here, and published
tokenizers in the folder that OCTET_SHARED_DATA names:

    tinyshakespeare.txt
    tokenizers/gpt2.json, qwen3.json.zst            tokenizer.json files
    tokenizers/cases.inp                            strings, separated by a line __ggml_vocab_test__
    tokenizers/cases.gpt2.out, cases.qwen.out       their ids, a line a string

Usage: tokenizer_peers.py OCTET. Skips out loud what is missing, with status 77 when nothing was left to check; status 1 when
something differs."""
import os
import random
import subprocess
import sys
import tempfile

OCTET = sys.argv[1]
COUNTS = {"gpt2": 338025, "qwen": 301829}  # tokens of tinyshakespeare.txt
checked = 0


def check(condition, what):
    global checked
    if not condition:
        sys.exit(f"tokenizer_peers: {what}")
    checked += 1


def encode(tokenizer, text):
    run = subprocess.run([OCTET, "tokenizer", "encode", tokenizer], input=text.encode(),
                         capture_output=True, check=True)
    return [int(i) for i in run.stdout.split()]


def awkward_text(seed, n):
    rng = random.Random(seed)
    code_points = (list(range(9, 14)) + 3 * list(range(32, 127)) +
                   [0x85, 0xa0, 0x180e, 0x2003, 0x2028, 0x3000, 0x301, 0x30a, 0xe9, 0x41a, 0x17f, 0x212a, 0x4e2d, 0x1f600,
                    0xad, 0x660, 0xb2, 0x2160, 0xac00, 0x1100, 0x1161, 0x11a8, 0x200d, 0xfeff, 0xfffd])
    parts = [chr(c) for c in code_points] + 4 * ["'s", "'RE", "\u017f", "<|endoftext|>", "\r\n", "  \n  "]
    return "".join(rng.choice(parts) for _ in range(n))


def against_huggingface(folder):
    try:
        from tokenizers import Tokenizer
    except ImportError:
        print("SKIPPED: ids against Hugging Face: the Python package tokenizers is missing")
        return
    text_path = os.path.join(folder, "text.txt")
    with open(text_path, "w", newline="") as file:
        file.write(awkward_text(1, 40000) + "the cat sat on the mat, 12345 times; isn't it?\n" * 300)
    for split in ("gpt2", "llama3"):
        path = os.path.join(folder, split + ".json")
        subprocess.run([OCTET, "tokenizer", "train", text_path, "--vocab-size", "1000", "--output", path, "--split", split],
                       check=True, stdout=subprocess.DEVNULL)
        theirs = Tokenizer.from_file(path)
        for text in (awkward_text(2, 100000), open(text_path, newline="").read()):
            check(encode(path, text) == theirs.encode(text, add_special_tokens=False).ids, f"{split}: ids differ")


def against_published(folder):
    data = os.environ.get("OCTET_SHARED_DATA")
    if not data:
        print("SKIPPED: ids of published tokenizers: OCTET_SHARED_DATA names no folder")
        return
    qwen = os.path.join(folder, "qwen.json")
    with open(qwen, "wb") as file:
        subprocess.run(["zstd", "-dcq", os.path.join(data, "tokenizers/qwen3.json.zst")], stdout=file, check=True)
    tokenizers = {"gpt2": os.path.join(data, "tokenizers/gpt2.json"), "qwen": qwen}
    with open(os.path.join(data, "tokenizers/cases.inp"), newline="") as file:
        cases = file.read().split("\n__ggml_vocab_test__\n")
    with open(os.path.join(data, "tinyshakespeare.txt")) as file:
        plays = file.read()
    for name, path in tokenizers.items():
        with open(os.path.join(data, f"tokenizers/cases.{name}.out")) as file:
            expected = [[int(i) for i in line.split()] for line in file.read().split("\n")]
        check(len(cases) == len(expected), f"{name}: {len(cases)} strings, {len(expected)} lines of ids")
        for text, ids in zip(cases, expected):
            check(encode(path, text) == ids, f"{name}: ids of {text!r} differ")
        check(len(encode(path, plays)) == COUNTS[name], f"{name}: another number of tokens in the plays")


with tempfile.TemporaryDirectory(prefix="octet-test-") as temporary:
    against_huggingface(temporary)
    against_published(temporary)
print(f"{checked} comparisons")
sys.exit(0 if checked else 77)
