"""Given the Python package, it says of arrays what the golden vectors and the formats' definitions say, and touches nothing else.

usage: test_python.py LIBRARY OCTET (numpy is needed, nothing else)"""
import ctypes
import os
import pathlib
import struct
import sys
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/cli")]
os.environ["OCTET_LIBRARY"], os.environ["OCTET_PROGRAM"] = (os.path.abspath(path) for path in sys.argv[1:3])
import numpy as np

import octet
from octet import _arrays
from program import Checked, Program


def f32(digits):
    return np.array([int(digits[i:i + 8], 16) for i in range(0, len(digits), 8)], np.uint32).view(np.float32)


def is_nan(format, codes):
    return {"e4m3": codes & 0x7f == 0x7f, "e5m2": codes & 0x7f > 0x7c, "hif8": codes == 0x80}[format]


RNG = np.random.default_rng(18)
X = RNG.standard_normal((70, 96)).astype(np.float32) * np.exp2(RNG.integers(-20, 20, (70, 96))).astype(np.float32)


class Elements(Checked):
    def same_codes(self, format, expected, got):
        wrong = (expected != got) & ~(is_nan(format, expected) & is_nan(format, got))
        self.assertFalse(wrong.any(), f"{format}: {got[wrong][:3]}, expected {expected[wrong][:3]}")

    def test_given_golden_vectors_every_code_and_value_is_theirs(self):
        tables = octet.vectors()
        for format in ("e4m3", "e5m2", "hif8"):
            rows = tables["encode_" + format]
            x = np.concatenate([f32(row["x"]) for row in rows])
            pairs = {("own", True): "sat", ("own", False): "nosat"} if format != "hif8" else {
                ("away", True): "ta_sat", ("own", False): "ta_nosat", ("hybrid", True): "hybrid_sat", ("hybrid", False): "hybrid_nosat"}
            for (rounding, saturate), column in pairs.items():
                expected = np.array([int(row[column], 16) for row in rows], np.uint8)
                self.same_codes(format, expected, octet.encode(x, format, rounding, saturate))
        for format in ("e4m3", "e5m2", "hif8", "e8m0"):
            rows = tables["decode_" + format]
            got = octet.decode(np.array([int(row["code"], 16) for row in rows], np.uint8), format)
            self.assertTrue(np.array_equal(got, np.concatenate([f32(row["fp32"]) for row in rows]), equal_nan=True))

    def test_given_golden_blocks_scales_and_codes_are_theirs_along_either_axis(self):
        n = 0
        for row in octet.vectors()["mx_quant"]:
            x = f32(row["x"])
            codes = np.frombuffer(bytes.fromhex(row["codes"]), np.uint8)
            scales = np.frombuffer(bytes.fromhex(row["scales"]), np.uint8)
            for axis in (0, 1):
                line = x[None] if axis == 1 else x[:, None]
                q = octet.quantize(line, row["fmt"] + ":mx", axis=axis, scale_mode=row["mode"])
                self.same_codes(row["fmt"], codes, q.codes.ravel())
                self.assertTrue(np.array_equal(q.scales.ravel(), scales))
                n += 1
        self.assertGreater(n, 100)

    def test_given_golden_hif8_tensors_scale_and_codes_are_theirs(self):
        for row in octet.vectors()["hif8_tensor"]:
            q = octet.quantize(f32(row["x"]), "hif8", target=float(row["target"]))
            self.same_codes("hif8", np.frombuffer(bytes.fromhex(row["codes"]), np.uint8), q.codes)
            self.assertTrue(np.array_equal(q.scales, f32(row["scale"])[0], equal_nan=True))


class InItsMode(Checked):
    """The interpreter's own arithmetic tells which mode the process is in."""

    def test_given_a_floating_point_mode_it_is_in_force_and_stays(self):
        mode = os.environ.get("FLOAT_MODE", "")
        for _ in range(2):
            tiny, third = struct.unpack("<d", struct.pack("<q", 1 << 44))[0], 1 / 3  # 2^-1030, without arithmetic
            self.assertEqual(tiny * 2.0 ** 100 == 0, "daz" in mode)
            self.assertEqual(float.fromhex("0x1p-1000") * float.fromhex("0x1p-30") == 0, "ftz" in mode or "daz" in mode)
            self.assertEqual(third.hex(), "0x1.5555555555556p-2" if mode == "up" else "0x1.5555555555555p-2")
            self.assertEqual((-1 / 3.0).hex(), "-0x1.5555555555556p-2" if mode == "down" else "-0x1.5555555555555p-2")
            octet.quantize(X)


class Arrays(Checked):
    def test_given_any_shape_and_axis_it_is_that_of_the_same_numbers_as_a_matrix(self):
        x = X.reshape(5, 14, 8, 12)
        for axis in range(-4, 4):
            q = octet.quantize(x, "mxfp8", axis=axis)
            moved = np.ascontiguousarray(np.moveaxis(x, axis, -1))
            flat = octet.quantize(moved.reshape(-1, moved.shape[-1]), "mxfp8")
            self.assertTrue(np.array_equal(np.moveaxis(q.codes, axis, -1).ravel(), flat.codes.ravel()))
            self.assertTrue(np.array_equal(np.moveaxis(q.scales, axis, -1).ravel(), flat.scales.ravel()))
            self.assertTrue(np.array_equal(np.moveaxis(q.dequantize(), axis, -1).ravel(), flat.dequantize().ravel()))
            self.assertEqual(octet.stats(x, q).n_underflow, octet.stats(moved.reshape(flat.shape), flat).n_underflow)

    def test_given_strides_of_any_kind_results_are_those_of_a_copy(self):
        big = np.zeros((140, 300), np.float32)
        for view in (big[::2, ::3], big[::-2, 4:100], big.T[:96, :70].T, big[:70, :96], np.broadcast_to(X[0], (70, 96))):
            if view.flags.writeable and view.base is big:
                view[...] = X[:, :view.shape[1]] if view.shape[1] <= 96 else np.resize(X, view.shape)
            for recipe in ("mxfp8", "hif8", "e4m3:mx32x32", "e5m2:channel", "e4m3:7x5"):
                for axis in (0, 1):
                    a, b = (octet.quantize(v, recipe, axis=axis, use="weight") for v in (view, view.copy()))
                    self.assertTrue(np.array_equal(a.codes, b.codes) and np.array_equal(a.scales, b.scales), recipe)

    def test_given_arrays_of_numpy_or_dlpack_their_own_memory_is_read(self):
        x = X.copy()
        self.assertEqual(_arrays.view(x).address, x.ctypes.data)
        self.assertEqual(_arrays.view(x[1:, ::2]).strides, (96, 2))

        class Other:  # as torch's tensors are seen
            def __dlpack__(self):
                return x.__dlpack__()
        v = _arrays.view(Other())
        self.assertEqual((v.address, v.shape, v.strides), (x.ctypes.data, (70, 96), (96, 1)))
        self.assertTrue(np.array_equal(octet.quantize(Other()).codes, octet.quantize(x).codes))

    def test_given_what_cant_be_right_the_error_says_what_was_expected(self):
        wrong = [(lambda: octet.quantize(X.astype(np.float64)), TypeError, "expected float32, float16|float32, bfloat16 or float16"),
                 (lambda: octet.quantize(X, "mxfp9"), ValueError, "mxfp8"),
                 (lambda: octet.quantize(X, rules="torchaoo"), ValueError, 'did you mean "torchao"'),
                 (lambda: octet.quantize(X, axis=2), ValueError, "axis 2"),
                 (lambda: octet.quantize(X, rounding="hybrid"), ValueError, "refused"),
                 (lambda: octet.quantize(X, use="bias"), ValueError, "expected input, weight"),
                 (lambda: octet.quantize(X, "hif8", scale_mode="ceil"), ValueError, "scale_mode is for MX scales"),
                 (lambda: octet.decode(X, "e4m3"), TypeError, "expected uint8 codes"),
                 (lambda: octet.matmul(X, X), ValueError, r"a is \(70, 96\), b \(70, 96\)"),
                 (lambda: octet.matmul(octet.quantize(X), octet.quantize(X).T, out=np.zeros((2, 2), np.float32)), ValueError, "out: expected")]
        for call, error, says in wrong:
            with self.assertRaisesRegex(error, says):
                call()


class Products(Checked):
    def test_given_quantized_operands_the_exact_product_is_the_definition_s(self):
        a, b = octet.quantize(X, "mxfp8"), octet.quantize(X[:11], "e4m3:1x48")
        x, y = a.dequantize(), b.dequantize()
        expected = np.zeros((70, 11), np.float32)
        for k in range(96):  # below 512: one chunk of fused multiply-adds, which fp64 holds
            expected = (x[:, k, None].astype(np.float64) * y[None, :, k] + expected).astype(np.float32)
        got = octet.matmul(a, b.T, mode="exact")
        self.assertTrue(np.allclose(got, expected, rtol=1e-6, atol=1e-30))
        bias = np.arange(11, dtype=np.float32)
        self.assertTrue(np.array_equal(octet.matmul(a, b.T, mode="exact", bias=bias), got + bias))
        out = np.ones((70, 11), np.float32)
        self.assertIs(octet.matmul(a, b.T, mode="exact", out=out, accumulate=True), out)
        self.assertTrue(np.array_equal(out, got + np.float32(1)))
        again = octet.matmul(a, octet.quantize(np.ascontiguousarray(X[:11].T), "e4m3:1x48", axis=0), mode="exact")
        self.assertTrue(np.array_equal(again, got))

    def test_given_a_long_call_other_threads_run_meanwhile(self):
        x = np.ones((2048, 2048), np.float32)
        ticks, stop = [], threading.Event()

        def count():
            while not stop.is_set():
                ticks.append(time.monotonic())
                time.sleep(0)
        counter = threading.Thread(target=count)
        counter.start()
        begin = time.monotonic()
        octet.quantize(x, "e4m3:3x7", threads=1)  # no kernel's: long
        end = time.monotonic()
        stop.set()
        counter.join()
        self.assertGreater(sum(begin < tick < end for tick in ticks), 2)


class Runs(Program):
    def test_given_a_job_plan_train_and_compare_give_tables(self):
        self.write("text.txt", "In the beginning God created the heaven and the earth. " * 400)
        job = self.write("job.toml", f"""
[job]
dump_folder = "{self.path('out')}"
[model]
name = "llama3"
flavor = "demo"
tokenizer_path = "{self.path('tok')}"
converters = ["quantize.linear.mx"]
[training]
dataset_path = "{self.path('text.txt')}"
local_batch_size = 1
seq_len = 32
steps = 2
[validation]
enable = true
local_batch_size = 1
seq_len = 32
steps = 1
""")
        self.run_octet(["tokenizer", "train", "text.txt", "--output", "tok", "--vocab-size", "300"], octet=os.environ["OCTET_PROGRAM"])
        plan = octet.plan(job)
        modules = plan["modules"] if isinstance(plan["modules"], list) else plan["modules"].to_dict("records")
        self.assertEqual(plan["dump_folder"], self.path("out"))
        self.assertEqual({row["recipe"] for row in modules if row["converted"]}, {"mxfp8"})
        rows = octet.train(job, training__steps=3)
        rows = rows if isinstance(rows, list) else rows.to_dict("records")
        self.assertEqual(rows[-1]["step"], 3)
        rows = octet.compare(job, recipes=["bf16", "hif8"])
        rows = rows if isinstance(rows, list) else rows.to_dict("records")
        self.assertEqual([row["recipe"] for row in rows], ["bf16", "hif8"])
        self.assertGreater(rows[0]["train loss"], 1)
        with self.assertRaisesRegex(ValueError, "trainig"):
            octet.train(job, trainig__steps=3)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
