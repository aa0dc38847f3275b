#!/usr/bin/env python3
"""Runs the test programs with each mutant in turn and prints those that none noticed.

usage: run_mutants.py SOURCE_ROOT (NAME PROGRAM)... [--only WORD] [--every N] [--verbose]

A mutant is killed by the first program that fails, at its first failing story. Programs are asked in the order that SUITES gives
for the mutant's area. Ends with the counts of each area; status 1 if any mutant survived.
"""
import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import threading

SUITES = {"codecs": ["vectors", "format", "quant", "kernels_quantize"],
          "quantizers": ["vectors", "quant", "kernels_quantize"],
          "api": ["api"],
          "products": ["kernels_products", "quant", "kernels_gemm_exact", "kernels_gemm_fast", "kernels_gemm_bf16", "kernels_gemm_blocks"],
          "elementwise": ["op", "op_rope", "kernels_elementwise"],
          "checkpoint": ["checkpoint", "checkpoint_faults", "checkpoint_pieces"],
          "base": ["format", "base", "quant", "op", "op_rope", "checkpoint", "checkpoint_faults", "checkpoint_pieces"]}
N_WORKERS = 2
NO_MUTANT = 97  # as mutants.c has it
LONGEST = 900  # seconds until a program that doesn't end has noticed


class Runner:
    def __init__(self, root, programs, verbose):
        self.programs, self.verbose = programs, verbose
        self.args = {"vectors": [os.path.join(root, "tests", "golden", "vectors-data")]}
        self.sound = {}
        self.lock, self.output = threading.Lock(), threading.Lock()

    def run(self, name, mutant):
        """(whether it passed, how it ended)."""
        env = dict(os.environ, OCTET_STOP_AT_FAILURE="1", OCTET_MUTANT=mutant)
        command = [self.programs[name]] + self.args.get(name, [])
        with tempfile.TemporaryFile() as output:
            try:
                status = subprocess.run(command, env=env, stdout=output, stderr=subprocess.STDOUT, timeout=LONGEST).returncode
            except subprocess.TimeoutExpired:
                return False, "no end"
            output.seek(0)
            lines = output.read().decode(errors="replace").splitlines()
        if status == NO_MUTANT:
            print("\n".join(lines[-3:]), flush=True)
            os._exit(3)
        stops = [line for line in lines if line.startswith("stopped at ")]
        return status == 0, stops[-1] if stops else "status %d" % status

    def check(self, name):
        """A program that kills must pass without a mutant, or it would kill them all."""
        with self.lock:
            if name not in self.sound:
                self.sound[name], end = self.run(name, "")
            if not self.sound[name]:
                print("%s fails without a mutant: %s" % (name, end), flush=True)
                os._exit(3)

    def survives(self, area, function, kind):
        mutant = "%s: %s" % (function, kind)
        for name in SUITES[area]:
            passed, end = self.run(name, mutant)
            if not passed:
                self.check(name)
                self.tell(mutant, "%s, %s" % (name, end))
                return False
        self.tell(mutant, "SURVIVED")
        return True

    def tell(self, mutant, what):
        if self.verbose or what == "SURVIVED":
            with self.output:
                print("%s: %s" % (mutant, what), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root")
    parser.add_argument("programs", nargs="+", metavar="NAME PROGRAM")
    parser.add_argument("--only", default="", help="mutants whose area, function or kind has this word")
    parser.add_argument("--every", type=int, default=1, help="each N-th of them")
    parser.add_argument("--verbose", action="store_true", help="says who killed each")
    args = parser.parse_args()
    programs = dict(zip(args.programs[::2], args.programs[1::2]))
    listed = subprocess.run([programs["quant"]], env=dict(os.environ, OCTET_MUTANT="list"), capture_output=True, text=True, check=True)
    mutants = [line.split("|") for line in listed.stdout.splitlines()]
    mutants = [m for m in mutants if args.only in "%s: %s: %s" % tuple(m[:3])][::args.every]
    runner = Runner(args.root, programs, args.verbose)
    here = [m for m in mutants if not m[3]]
    areas = list(dict.fromkeys(m[0] for m in mutants))
    with concurrent.futures.ThreadPoolExecutor(N_WORKERS) as pool:
        survived = list(pool.map(lambda m: runner.survives(*m[:3]), here))
    for area in areas:
        of_area = [s for m, s in zip(here, survived) if m[0] == area]
        n_elsewhere = sum(m[0] == area and bool(m[3]) for m in mutants)
        print("%-12s %4d mutants, %d survived%s" % (area, len(of_area), sum(of_area),
                                                  ", %d of kernels that this CPU lacks not run" % n_elsewhere if n_elsewhere else ""))
    print("%d mutants, %d survived" % (len(here), sum(survived)))
    return 1 if any(survived) or not here else 0


if __name__ == "__main__":
    sys.exit(main())
