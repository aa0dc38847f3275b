#!/usr/bin/env python3
"""Compares octet's files with those of other programs, both ways: the PyPI packages `safetensors`
(with numpy) and `tensorboard`. Usage: io_peers.py BUILD/tests/peers/io_files. Skips out loud, with
status 77, what a missing package would check; status 1 when something differs."""
import math
import os
import subprocess
import sys
import tempfile

checked, skipped = 0, 0


def check(condition, what):
    global checked
    if not condition:
        sys.exit(f"io_peers: {what}")
    checked += 1


def skip(package, what):
    global skipped
    skipped += 1
    print(f"SKIPPED: {what}: the Python package {package} is missing")


def safetensors_both_ways(program, folder):
    try:
        import numpy as np
        from safetensors import safe_open
        from safetensors.numpy import save_file
    except ImportError as missing:
        skip(missing.name, "safetensors files")
        return
    kinds = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64,
             "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_}
    ours = os.path.join(folder, "ours.safetensors")
    subprocess.run([program, "write", ours], check=True)
    with safe_open(ours, "np") as f:
        check(f.metadata() == {"format": "pt", "quote": 'a "b"\n\u00e9'}, "metadata differ")
        check(set(kinds) <= set(f.keys()), "tensors are missing")
        for name, kind in kinds.items():
            want = (np.arange(15) % 2 if name == "BOOL" else np.arange(15)).astype(kind)
            got = f.get_tensor(name)
            check(got.dtype == kind and (got == want.reshape(3, 5)).all(), f"{name} differs")
        check(f.get_tensor("scalar").shape == (), "the scalar has dimensions")
        check(f.get_tensor("empty").shape == (4, 0), "the empty tensor's shape differs")
        for name in ("BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0"):
            shape = f.get_slice(name).get_shape()
            check(list(shape) == [3, 5] and f.get_slice(name).get_dtype() == name, name)

    theirs = os.path.join(folder, "theirs.safetensors")
    arrays = {name: (np.arange(60) % 2 if name == "BOOL" else np.arange(60)).astype(kind)
              .reshape(3, 4, 5) for name, kind in kinds.items()}
    arrays["scalar"] = np.array(2.5, dtype=np.float32)
    arrays["empty"] = np.zeros((0, 3), dtype=np.float16)
    save_file(arrays, theirs, metadata={"who": "numpy"})
    lines = subprocess.run([program, "list", theirs], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    names = {str(np.dtype(kind)): name for name, kind in kinds.items()}
    want = sorted(f"{name} {names[str(a.dtype)]} {','.join(map(str, a.shape))} {a.tobytes().hex()}"
                  for name, a in arrays.items())
    check(sorted(lines) == want, "a file of the safetensors package is read differently")


def tensorboard_reads(program, folder):
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as missing:
        skip(missing.name, "event files")
        return
    tb = os.path.join(folder, "tb")
    subprocess.run([program, "events", tb], check=True)
    events = EventAccumulator(tb)
    events.Reload()
    check(sorted(events.Tags()["scalars"]) == ["grad_norm", "loss", "tokens"], "tags differ")
    loss = [(e.step, e.value) for e in events.Scalars("loss")]
    check(loss == [(1, 0.5), (2, 1.0), (3, 1.5), (300, 150.0)],
          f"the resumed run's losses are {loss}")
    check(all(math.isnan(e.value) for e in events.Scalars("grad_norm")), "NaN isn't kept")
    check([e.value for e in events.Scalars("tokens")] == [2048.0 * s for s in (1, 2, 3, 300)],
          "integers differ")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        safetensors_both_ways(sys.argv[1], folder)
        tensorboard_reads(sys.argv[1], folder)
    print(f"{checked} checks passed")
    sys.exit(77 if skipped else 0)


main()
