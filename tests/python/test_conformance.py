"""Given quantizers that follow a rule, and twelve that differ from it in one thing each, the kit names the rule and the difference.

usage: test_conformance.py LIBRARY (numpy is needed, nothing else)

The quantizer with changes is written here in numpy, so that nothing of it is the library's."""
import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/cli")]
os.environ["OCTET_LIBRARY"] = os.path.abspath(sys.argv[1])
import numpy as np

import octet
from octet.conformance import check
from program import Checked

VALUES = np.array([(m / 8 * 2.0 ** -6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)) for e in range(16) for m in range(8)][:127])


def e4m3(q, ties="even", saturates=True, subnormals=True, signed=True):
    """Codes of float64 numbers, by search."""
    magnitude = np.abs(q)
    low = np.clip(np.searchsorted(VALUES, magnitude, side="right") - 1, 0, 126)
    high = np.minimum(low + 1, 126)
    middle = (VALUES[low] + VALUES[high]) / 2
    up = {"even": (magnitude > middle) | ((magnitude == middle) & (low % 2 == 1)), "away": magnitude >= middle,
          "zero": np.zeros(q.shape, bool)}[ties]
    codes = np.where(up & (magnitude > VALUES[low]), high, low)
    if not saturates:
        codes = np.where(magnitude > 464, 0x7f, codes)
    if not subnormals:
        codes = np.where(codes < 8, 0, codes)
    codes = codes | np.where(np.signbit(q) & (signed | (codes > 0)), 0x80, 0)
    return np.where(np.isnan(q), 0x7f, codes).astype(np.uint8)


def bf16(x):
    bits = x.view(np.uint32).astype(np.uint64)
    return np.where(np.isnan(x), x, ((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).astype(np.uint32).view(np.float32))


def scale_codes(amax, mode, log2_rounded=False, ties_even=False):
    fraction, exponent = np.frexp(amax.astype(np.float64))
    k = exponent - 1 - 8
    if mode == "ceil":
        k = k + (fraction != 0.5)
    elif mode == "even":
        k = ((amax.view(np.uint32).astype(np.int64) + (1 << 19)) >> 23) - 127 - 8
    elif mode == "rceil" and log2_rounded:
        k = np.ceil(np.log2((amax / np.float32(448)).astype(np.float64)).astype(np.float32))
    elif mode == "rceil":
        fraction, exponent = np.frexp((amax * np.float32(1 / 448)).astype(np.float64))
        k = np.where(fraction == 0, -127, exponent - 1 + (fraction != 0.5))
    return np.where(amax == 0, 0, np.clip(np.nan_to_num(k, nan=0, neginf=-127) + 127, 0, 254)).astype(np.int64)


def quantizer(mode="rceil", source=None, inf="poison", nan="poison", zero=0, lowest=None, least=0, step=0, log2_rounded=False, **elements):
    def quantize(x):
        with np.errstate(all="ignore"):
            blocks = (bf16(x) if source == "bf16" else x).reshape(-1, 32)
            finite = np.where(np.isfinite(blocks), np.abs(blocks), np.float32(0))
            amax = finite.max(1)
            has_nan, has_inf = np.isnan(blocks).any(1), np.isinf(blocks).any(1)
            scales = np.clip(scale_codes(amax, mode, log2_rounded) + np.where(amax > 0, step, 0), 0, 254)
            scales = np.maximum(scales, least)
            scales = np.where(amax == 0, max(zero, least), scales)
            scales = np.where(has_inf & (inf == "large"), 254, scales)
            scales = np.where((has_inf & (inf == "poison") & ~has_nan) | (has_nan & ((nan == "poison") | (has_inf & (inf == "poison")))),
                              255, scales)
            factor = np.exp2(127.0 - scales)
            if lowest is not None:
                factor = np.where(scales == 0, lowest, factor)
            q = blocks.astype(np.float64) * factor[:, None]
            q[scales == 255] = np.nan
            return e4m3(q, **elements).reshape(x.shape), scales.astype(np.uint8).reshape(x.shape[0], -1)
    return quantize


PLANTED = [  # what is changed, the rule it is still like, the words for the change
    (dict(mode="rceil", log2_rounded=True), "rceil", r"[\d,]+ blocks just above 448·2\^k are one step low"),
    (dict(inf="large"), "rceil", r"blocks with an Inf aren't poisoned: their scale is 254"),
    (dict(nan="ignored"), "rceil", r"blocks with a NaN aren't poisoned: their scale is that of the other elements"),
    (dict(ties="away"), "rceil", r"elements are rounded to nearest, ties away from zero"),
    (dict(ties="zero"), "rceil", r"elements are rounded toward zero"),
    (dict(mode="floor", saturates=False), "floor", r"what is beyond the largest value becomes NaN"),
    (dict(subnormals=False), "rceil", r"subnormal codes are flushed to zero"),
    (dict(signed=False), "rceil", r"zeros lose their sign"),
    (dict(zero=127), "rceil", r"blocks of zeros have scale 127 \(2\^0\) instead of 0"),
    (dict(lowest=1.0), "rceil", r"under scale 0 elements are encoded as they are"),
    (dict(source="bf16"), "rceil", r"elements are rounded to bf16 first"),
    (dict(mode="floor", step=1), "floor", r"every scale is one step high"),
    (dict(least=1), "rceil", r"blocks at the lowest scale have another: none is below 1 \(2\^-126\)"),
]


class Conformance(Checked):
    def test_given_quantizers_that_follow_a_rule_it_is_named_and_nothing_is_found(self):
        for mode in ("rceil", "floor", "ceil", "even"):
            report = check(quantizer(mode))
            self.assertEqual((report.rule, report.findings), (f"E4M3 {mode}", []))
            self.assertIn("to the bit", str(report))

    def test_given_a_planted_change_it_is_found_and_named_and_nothing_else_is(self):
        for seed, (change, rule, words) in enumerate(PLANTED):
            report = check(quantizer(**change), seed=seed)
            self.assertEqual(report.rule, f"E4M3 {rule}", f"{change}: {report}")
            self.assertRegex(str(report), words)
            extra = [finding for finding in report.findings if "zero" not in finding] if change == dict(least=1) else report.findings
            self.assertEqual(len(extra), 1, f"{change}: {report}")

    def test_given_several_changes_at_once_each_is_named(self):
        text = str(check(quantizer(mode="even", inf="large", ties="away", zero=127)))
        for words in ("like E4M3 even", "an Inf aren't poisoned", "ties away", "blocks of zeros have scale 127"):
            self.assertIn(words, text)

    def test_given_blocks_of_16_it_says_so(self):
        def halves(x):
            codes, scales = quantizer()(x)
            return codes, np.repeat(scales, 2, 1)
        self.assertIn("blocks have 16 elements instead of 32", str(check(halves)))

    def test_given_a_rule_that_nobody_has_it_says_that(self):
        def fixed(x):
            return e4m3(x.astype(np.float64)), np.full((x.shape[0], x.shape[1] // 32), 127, np.uint8)
        self.assertIn("no known rule is near", str(check(fixed)))

    def test_given_encoders_their_rounding_is_named(self):
        encoders = [(lambda x: e4m3(x.astype(np.float64)), "to the bit"), (lambda x: e4m3(x.astype(np.float64), ties="away"), "ties away from zero"),
                    (lambda x: e4m3(x.astype(np.float64), ties="zero"), "rounded toward zero"),
                    (lambda x: e4m3(x.astype(np.float64), saturates=False), "becomes NaN"),
                    (lambda x: e4m3(np.nan_to_num(x.astype(np.float64), posinf=np.inf, neginf=-np.inf)), "a NaN becomes a number")]
        for encoder, words in encoders:
            self.assertIn(words, str(check(encoder, kind="element")))
        self.assertIn("hybrid rule", str(check(lambda x: octet.encode(x, "hif8", "hybrid"), "hif8", "element")))

    def test_given_one_scale_a_tensor_its_target_and_kind_are_named(self):
        def divides(x, target):
            scale = np.abs(x).max() / np.float32(target)
            return e4m3((x / scale).astype(np.float64)), scale

        def multiplies(x):
            factor = np.float32(np.float64(448) / np.float64(np.abs(x).max()))
            return e4m3((x * factor).astype(np.float64)), np.float32(1) / factor
        self.assertTrue(check(lambda x: divides(x, 448), kind="tensor").agrees)
        self.assertEqual(str(check(lambda x: divides(x, 240), kind="tensor")), "E4M3 per tensor, amax to 240, to the bit (65,536 elements)")
        self.assertEqual(check(multiplies, kind="tensor").findings, ["elements are multiplied by target / amax, whose inverse is the scale"])

    def test_given_what_isnt_codes_the_error_says_so(self):
        with self.assertRaisesRegex(TypeError, "expected one byte each; got float32"):
            check(lambda x: (x, x))
        with self.assertRaisesRegex(ValueError, "expected mx, element or tensor"):
            check(quantizer(), kind="block")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
