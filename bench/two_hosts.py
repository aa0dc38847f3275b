#!/usr/bin/env python3
"""What gathering weights in 8 bits gains between two hosts on a slow link, against gathering them in bf16.

usage: bench/two_hosts.py OCTET JOB RATE [STEPS [ROUNDS]]      as root; RATE as tc writes it: 200mbit, 1gbit

JOB converts linears, and its gathers are in bf16 by itself. Each round trains STEPS steps (3) with low-precision gathers and
STEPS without, one process with one thread a host; the first step of a run, in which memory is allocated, counts only where STEPS is 1.
Prints medians and extremes of the others, and one line for the table in docs/performance.md:

- gathers: seconds in which gathers of converted weights were on the wire, late ranks included. With bf16 they can't be told from
  the other weights' gathers, so what these take in the other runs, which move the same ones, is subtracted.
- predicted gain: of steps that take as long as their bytes need at the link's rate, or as one process computes if that's
  longer; so all computing hides behind the wire, or the wire behind it.
"""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

LOW = ["--quantize.linear.mx.enable_fsdp_low_precision_all_gather"]
KINDS = ("gather_8bit", "gather_high", "reduce_scatter")
PAYLOAD = 1448 / 1514  # of an Ethernet frame that TCP fills


def bytes_a_second(rate):
    number, unit = re.fullmatch(r"([0-9.]+)([mg])bit", rate).groups()
    return float(number) * {"m": 1e6, "g": 1e9}[unit] / 8 * PAYLOAD


def train(prefix, octet, job, steps, *args):
    """metrics.jsonl of a run, from its second step on if it has one."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*prefix, octet, "train", job, f"--training.steps={steps}", f"--job.dump_folder={folder}", *args],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        lines = pathlib.Path(folder, "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines][1 if steps > 1 else 0:]


def describe(name, values):
    print(f"{name}: {statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")
    return statistics.median(values)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    octet, job, rate = sys.argv[1:4]
    steps, rounds = (int(n) for n in (sys.argv[4:] + ["3", "1"][len(sys.argv) - 4:]))
    os.environ["OMP_NUM_THREADS"] = "1"
    script = str(pathlib.Path(__file__).with_name("two_hosts.sh"))
    low, bf16 = [], []
    compute = describe("seconds a step, one process alone", [m["duration_s"] for m in train([], octet, job, 3)])
    for _ in range(rounds):
        low += train([script, rate], octet, job, steps, *LOW)
        bf16 += train([script, rate], octet, job, steps)
    step_low = describe("seconds a step, 8 bits", [m["duration_s"] for m in low])
    step_bf16 = describe("seconds a step, bf16", [m["duration_s"] for m in bf16])
    codes = describe("seconds of gathers, 8 bits", [m["wire_s_gather_8bit"] for m in low])
    others = describe("seconds of gathers, other weights", [m["wire_s_gather_high"] for m in low])
    both = describe("seconds of gathers, bf16, all weights", [m["wire_s_gather_high"] for m in bf16])

    # The two hosts send at the same time.
    wire_low, wire_bf16 = (sum(m["bytes_" + kind] for kind in KINDS) / 2 / bytes_a_second(rate) for m in (low[0], bf16[0]))
    gain, predicted = step_bf16 / step_low, max(wire_bf16, compute) / max(wire_low, compute)
    bytes_ratio = (bf16[0]["bytes_gather_high"] - low[0]["bytes_gather_high"]) / low[0]["bytes_gather_8bit"]
    print(f"seconds that the bytes need: 8 bits {wire_low:.2f}, bf16 {wire_bf16:.2f}")
    print("| link | gathers of converted weights, bf16 and 8 bits | faster (bytes) | step, bf16 and 8 bits | gain | predicted |")
    print(f"| {rate} | {both - others:.2f} s, {codes:.2f} s | {(both - others) / codes:.2f} ({bytes_ratio:.2f}) "
          f"| {step_bf16:.1f} s, {step_low:.1f} s | {gain:.3f} | {predicted:.3f}, of it {gain / predicted:.2f} |")


if __name__ == "__main__":
    main()
