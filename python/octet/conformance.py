"""Which rule does a quantizer follow? Runs somebody's own on the golden vectors, random and adversarial inputs, and says it in words.

    report = octet.conformance.check(my_quantizer)     # x (rows, cols) float32 -> codes (rows, cols), scales (rows, cols / 32)
    print(report)    # like rceil, but blocks with an Inf aren't poisoned; 53 blocks just above 448·2^k are one step low

What is compared with is computed by liboctet; each aspect (scales of ordinary blocks, special values, the lowest scale, elements) is
judged by itself, elements by the scale that the quantizer itself chose, so that one change isn't told as another.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np

from . import core

__all__ = ["Report", "check"]

_LARGEST = {"e4m3": 448.0, "e5m2": 57344.0, "hif8": 32768.0}
_EMAX = {"e4m3": 8, "e5m2": 15}
_MANTISSA = {"e4m3": 3, "e5m2": 2}
_MODES = ("rceil", "floor", "ceil", "even")
_STEPS = {1: "one step high", -1: "one step low", 2: "two steps high", -2: "two steps low"}


@dataclass
class Report:
    """What was found. `rule` is the nearest known one, `findings` what differs from it, in words; none: it agrees to the bit."""
    rule: str
    findings: List[str] = field(default_factory=list)
    n_blocks: int = 0
    n_elements: int = 0

    @property
    def agrees(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        if self.agrees:
            return f"{self.rule}, to the bit ({self.n_elements:,} elements)"
        return f"like {self.rule}, but " + "; ".join(self.findings)


def check(quantizer: Callable, format: str = "e4m3", kind: str = "mx", seed: int = 0) -> Report:
    """Calls `quantizer` on float32 arrays and compares.

    kind "mx": x (rows, cols), cols a multiple of 32 -> (codes (rows, cols), scales (rows, cols / 32), E8M0). kind "element": x (n) -> codes.
    kind "tensor": x (rows, cols) -> (codes, scale), one float32 by which codes are multiplied. Codes and scales are uint8 or types of that
    size; format: e4m3, e5m2, and with element and tensor hif8.
    """
    kinds = {"mx": _check_mx, "element": _check_element, "tensor": _check_tensor}
    if kind not in kinds or format not in _LARGEST or (kind == "mx" and format == "hif8"):
        raise ValueError(f"kind {kind!r} of {format!r}: expected mx, element or tensor, and e4m3, e5m2 or (not with mx) hif8")
    with np.errstate(all="ignore"):
        return kinds[kind](quantizer, format, np.random.default_rng(seed))


def _bytes(x: Any, what: str) -> np.ndarray:
    """Codes of whatever one-byte type."""
    if hasattr(x, "detach"):  # torch's
        import torch
        x = x.detach().view(torch.uint8)
    x = np.asarray(x)
    if x.dtype.itemsize != 1:
        raise TypeError(f"{what}: expected one byte each; got {x.dtype}")
    return np.ascontiguousarray(x).view(np.uint8)


def _bf16(x: np.ndarray) -> np.ndarray:
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).astype(np.uint32).view(np.float32)
    return np.where(np.isnan(x), x, rounded)


def _is_nan(codes: np.ndarray, format: str) -> np.ndarray:
    low = codes & 0x7f
    return {"e4m3": low == 0x7f, "e5m2": low > 0x7c, "hif8": codes == 0x80}[format]


def _same(a: np.ndarray, b: np.ndarray, format: str) -> np.ndarray:
    return (a == b) | (_is_nan(a, format) & _is_nan(b, format))


# ---- inputs ----

def _around(centre: np.ndarray) -> np.ndarray:
    """Numbers a few float32 steps below and above each."""
    steps = np.array([0, 1, -1, 2, -2, 3, -3, 8, -8, 40, -40, 64, 1024, -1024, 1 << 15, -(1 << 15)])
    return (centre.view(np.int32)[:, None] + steps).astype(np.int32).view(np.float32).ravel()


def _amaxes(format: str) -> np.ndarray:
    """Where scale rules turn: powers of two, largest·2^k, and ties of the mantissa, a few steps around each."""
    powers = np.exp2(np.arange(-120, 120)).astype(np.float32)
    bits = _MANTISSA[format]
    centres = [1.0, _LARGEST[format] / 2.0 ** _EMAX[format], 2 - 2.0 ** -(bits + 1), 2 - 2.0 ** -bits, 1.3]
    return _around(np.concatenate([powers * np.float32(c) for c in centres]))


def _blocks_of(amax: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A block of each amax, at a random place and of either sign; others are smaller."""
    n = len(amax)
    rest = (rng.uniform(-1, 1, (n, 32)) * np.exp2(-rng.integers(0, 12, (n, 32))) * 0.99).astype(np.float32)
    x = amax[:, None] * rest
    x[np.arange(n), rng.integers(0, 32, n)] = amax * rng.choice(np.array([-1, 1], np.float32), n)
    return x


def _grid(format: str, rng: np.random.Generator) -> np.ndarray:
    """Blocks whose elements are codes' values, the middles between them, and float32 steps beside these, under every rule's scale."""
    values = np.sort(core.decode(np.arange(_first_special(format), dtype=np.uint8), format).astype(np.float64))
    middles = (values[1:] + values[:-1]) / 2
    points = np.concatenate([values, middles, middles * (1 + 2.0 ** -20), middles * (1 - 2.0 ** -20)]).astype(np.float32)
    points = np.concatenate([points, -points])
    n = 400
    x = rng.choice(points, (n, 32))
    x[:, 0] = rng.choice(np.float32([0.6, 0.75, 0.9, 1.0]), n) * np.float32(_LARGEST[format])
    return x * np.exp2(rng.integers(-90, 90, (n, 1))).astype(np.float32)


def _first_special(format: str) -> int:
    return {"e4m3": 0x7f, "e5m2": 0x7c, "hif8": 0x6f}[format]


def _special(rng: np.random.Generator) -> np.ndarray:
    blocks = []
    for value in (np.inf, -np.inf, np.nan):
        x = (rng.standard_normal((60, 32)) * np.exp2(rng.integers(-100, 100, (60, 1)))).astype(np.float32)
        x[np.arange(60), rng.integers(0, 32, 60)] = value
        blocks.append(x)
    both = blocks[0].copy()
    both[:, 5], both[:, 9] = np.nan, np.inf
    return np.concatenate(blocks + [both])


def _low(format: str, rng: np.random.Generator) -> np.ndarray:
    """Zeros of both signs, and blocks at and below the lowest scale, subnormals too."""
    zeros = np.zeros((16, 32), np.float32)
    zeros[8:, ::3] = -0.0
    steps = rng.integers(-149, -127 + _EMAX[format] + 2, 400)
    tiny = (rng.uniform(-1, 1, (400, 32)) * np.exp2(steps.astype(np.float64))[:, None]).astype(np.float32)
    return np.concatenate([zeros, tiny])


def _golden_blocks(format: str) -> np.ndarray:
    rows = [np.frombuffer(bytes.fromhex(row["x"]), ">u4").astype(np.uint32).view(np.float32) for row in core.vectors()["mx_quant"]
            if row["fmt"] == format]
    return np.concatenate([row[:len(row) // 32 * 32].reshape(-1, 32) for row in rows])


def _mx_inputs(format: str, rng: np.random.Generator) -> np.ndarray:
    ordinary = rng.standard_normal((4096, 32)) * np.exp2(rng.integers(-60, 60, (4096, 1)))
    blocks = np.concatenate([_golden_blocks(format), ordinary.astype(np.float32), _blocks_of(_amaxes(format), rng), _grid(format, rng),
                             _special(rng), _low(format, rng)])
    blocks = np.concatenate([blocks, np.ones((-len(blocks) % 8, 32), np.float32)])
    return rng.permutation(blocks)


# ---- MX ----

@dataclass
class _Mx:
    """Blocks, what the quantizer made of them, and what they are."""
    format: str
    x: np.ndarray       # (n, 32)
    codes: np.ndarray   # (n, 32)
    scales: np.ndarray  # (n)

    def __post_init__(self) -> None:
        self.nan = np.isnan(self.x).any(1)
        self.inf = np.isinf(self.x).any(1) & ~self.nan
        self.zero = (self.x == 0).all(1)
        self.amax = np.where(np.isfinite(self.x), np.abs(self.x), 0).max(1)


def _check_mx(quantizer: Callable, format: str, rng: np.random.Generator) -> Report:
    blocks = _mx_inputs(format, rng)
    codes, scales = quantizer(blocks.reshape(-1, 256).copy())
    codes, scales = _bytes(codes, "codes"), _bytes(scales, "scales")
    rows = len(blocks) // 8
    if codes.shape != (rows, 256):
        raise ValueError(f"codes: expected ({rows}, 256); got {codes.shape}")
    if scales.size != len(blocks):
        size = rows * 256 / scales.size
        return Report("MX", [f"blocks have {size:g} elements instead of 32; nothing else was compared"], len(blocks), blocks.size)
    m = _Mx(format, blocks, codes.reshape(-1, 32), scales.reshape(-1))
    fit = _nearest_rule(m)
    report = Report(f"{format.upper()} {fit.mode}", n_blocks=len(blocks), n_elements=blocks.size)
    report.findings += fit.findings
    report.findings += _special_findings(m)
    report.findings += _lowest_findings(m, fit)
    report.findings += _element_findings(m, fit)
    return report


@dataclass
class _Fit:
    mode: str
    offset: int
    source: str             # "", "bf16"
    expected: np.ndarray    # scales
    findings: List[str]


def _scales(x: np.ndarray, format: str, mode: str) -> np.ndarray:
    return core.quantize(x, f"{format}:mx-{mode}").scales.reshape(-1)


def _seen(x: np.ndarray, source: str) -> np.ndarray:
    if source == "flushed":
        return np.where(np.abs(x) < 2.0 ** -126, np.copysign(np.float32(0), x), x)
    return _bf16(x) if source == "bf16" else x


def _ordinary(m: _Mx, expected: np.ndarray) -> np.ndarray:
    return ~(m.nan | m.inf | m.zero) & (expected > 0) & (expected < 254)


def _fits(m: _Mx) -> Iterator[Tuple[int, _Fit]]:
    """Each known rule, with the blocks that contradict it."""
    for source in ("", "bf16"):
        seen = _seen(m.x, source)
        for mode in _MODES:
            expected = _scales(seen, m.format, mode)
            ordinary = _ordinary(m, expected)
            for offset in (0, 1, -1, 2, -2):
                wrong = int(np.count_nonzero((m.scales.astype(int) - expected - offset)[ordinary]))
                yield wrong + 5 * (offset != 0) + 5 * (source != ""), _Fit(mode, offset, source, expected, [])


def _nearest_rule(m: _Mx) -> _Fit:
    wrong, fit = min(_fits(m), key=lambda pair: pair[0])
    ordinary = _ordinary(m, fit.expected)
    if wrong > 0.4 * np.count_nonzero(ordinary):
        fit.findings.append(f"{wrong:,} of {np.count_nonzero(ordinary):,} scales of ordinary blocks are others: no known rule is near")
        return fit
    if fit.source:
        fit.findings.append("elements are rounded to bf16 first")
    if fit.offset:
        fit.findings.append(f"every scale is {_STEPS[fit.offset]}")
    off = m.scales.astype(int) - fit.expected - fit.offset
    for step in sorted(set(off[ordinary])):
        if step:
            fit.findings.append(_scale_finding(m, fit, ordinary & (off == step), int(step)))
    return fit


def _scale_finding(m: _Mx, fit: _Fit, blocks: np.ndarray, step: int) -> str:
    """Where the blocks are whose scales are `step` off."""
    amax = _seen(m.amax[blocks], fit.source).astype(np.float64)
    low = _STEPS.get(step, f"{abs(step)} steps {'high' if step > 0 else 'low'}")
    what = f"{np.count_nonzero(blocks):,} blocks"
    bits = _MANTISSA[m.format]
    places = [(_LARGEST[m.format], f"{_LARGEST[m.format]:g}·2^k"), (1.0, "2^k"),
              (2 - 2.0 ** -(bits + 1), "a tie of the mantissa that carries into the next power of two")]
    for place, name in places:
        ratio = amax / place
        distance = ratio / np.exp2(np.rint(np.log2(ratio))) - 1
        if (np.abs(distance) < 2.0 ** -14).all():
            side = "at" if (distance == 0).all() else "just above" if (distance >= 0).all() else "just below" if (distance <= 0).all() else "near"
            return f"{what} {side} {name} are {low}"
    fraction = np.frexp(amax)[0] * 2
    return f"{what} whose amax is {fraction.min():.4g} to {fraction.max():.4g} times a power of two are {low}"


def _special_findings(m: _Mx) -> List[str]:
    findings = []
    for name, blocks in (("an Inf", m.inf), ("a NaN", m.nan)):
        scales = m.scales[blocks]
        poisoned = scales == 255
        nan_codes = _is_nan(m.codes[blocks], m.format).all(1)
        if poisoned.all() and nan_codes.all():
            continue
        if poisoned.all():
            finite = np.isfinite(m.x[blocks])
            zeros = (m.codes[blocks] & 0x7f)[finite] == 0
            findings.append(f"in blocks with {name} (scale 255) finite elements are " + ("zeros" if zeros.all() else "not all NaN"))
            continue
        findings.append(f"blocks with {name} aren't poisoned: {_scale_words(m, blocks & (m.scales != 255))}")
    return findings


def _scale_words(m: _Mx, blocks: np.ndarray) -> str:
    scales = set(m.scales[blocks].tolist())
    if len(scales) == 1:
        return f"their scale is {scales.pop()}"
    for mode in _MODES:
        finite = np.where(np.isfinite(m.x[blocks]), m.x[blocks], np.float32(0))
        if (np.abs(m.scales[blocks].astype(int) - _scales(finite, m.format, mode)) <= 1).mean() > 0.9:
            return "their scale is that of the other elements"
    return f"their scales are {min(scales)} to {max(scales)}"


def _lowest_findings(m: _Mx, fit: _Fit) -> List[str]:
    findings = []
    zeros = set(m.scales[m.zero].tolist()) - {0}
    if zeros:
        findings.append(f"blocks of zeros have scale {sorted(zeros)[0]} (2^{sorted(zeros)[0] - 127}) instead of 0 (2^-127)")
    low = ~(m.nan | m.inf | m.zero) & (fit.expected == 0)
    wrong = low & (m.scales != np.clip(fit.expected.astype(int) + fit.offset, 0, 254))
    if wrong.any():
        least = int(m.scales[low].min())
        more = f": none is below {least} (2^{least - 127})" if least > 0 else ""
        findings.append(f"{np.count_nonzero(wrong):,} of {np.count_nonzero(low):,} blocks at the lowest scale have another{more}")
    return findings


# ---- elements ----

_ELEMENT_RULES: Dict[str, Callable[[np.ndarray, str], np.ndarray]] = {
    "to nearest, ties to even": lambda q, format: core.encode(q, format, "even" if format != "hif8" else "own"),
    "to nearest, ties away from zero": lambda q, format: core.encode(q, format, "away"),
    "toward zero": lambda q, format: _toward_zero(q, format),
    "away from zero": lambda q, format: _from_zero(q, format),
}


def _ordered(codes: np.ndarray, format: str, step: int) -> np.ndarray:
    """The next codes of the same sign in magnitude."""
    order = np.argsort(core.decode(np.arange(_first_special(format) if format != "hif8" else 128, dtype=np.uint8), format), kind="stable")
    order = order[np.isfinite(core.decode(order.astype(np.uint8), format))].astype(np.uint8)
    place = np.zeros(128, int)
    place[order] = np.arange(len(order))
    moved = order[np.clip(place[codes & 0x7f] + step, 0, len(order) - 1)]
    return np.where((moved == 0) & (format == "hif8"), 0, moved | (codes & 0x80)).astype(np.uint8)


def _signed(codes: np.ndarray, q: np.ndarray, format: str) -> np.ndarray:
    return codes if format == "hif8" else (codes & 0x7f | (np.signbit(q).astype(np.uint8) << 7)).astype(np.uint8)


def _toward_zero(q: np.ndarray, format: str) -> np.ndarray:
    codes = core.encode(q, format)
    over = np.abs(core.decode(codes, format)) > np.abs(q)
    return np.where(over, _ordered(codes, format, -1), codes)


def _from_zero(q: np.ndarray, format: str) -> np.ndarray:
    codes = core.encode(q, format)
    under = np.abs(core.decode(codes, format)) < np.abs(q)
    if format == "hif8":
        codes = np.where(codes == 0, np.signbit(q).astype(np.uint8) << 7, codes)
    return np.where(under, _ordered(codes, format, 1), codes)


def _quotients(m: _Mx, source: str, scales: np.ndarray) -> np.ndarray:
    return (_seen(m.x, source).astype(np.float64) * np.exp2(127.0 - scales)[:, None]).astype(np.float32)


def _element_findings(m: _Mx, fit: _Fit) -> List[str]:
    """By the scale that the quantizer chose."""
    judged = ~(m.nan | m.inf) & (m.scales != 255)
    lowest = judged & (m.scales == 0)
    q = _quotients(m, fit.source, m.scales)
    high = judged & ~lowest
    findings, rule = _elements(q[high], m.codes[high], m.format)
    together, _ = _elements(q[judged], m.codes[judged], m.format)
    if _kinds(together) != _kinds(findings):  # something is peculiar to the lowest scale
        findings.append(_lowest_elements(m, fit, lowest, _ELEMENT_RULES[rule]))
    return findings


def _kinds(findings: List[str]) -> List[str]:
    """Findings without their numbers of elements."""
    return ["".join(letter for letter in finding if not letter.isdigit() and letter != ",") for finding in findings]


def _lowest_elements(m: _Mx, fit: _Fit, lowest: np.ndarray, used: Callable) -> str:
    seen = _seen(m.x, fit.source)[lowest]
    for words, x, factor in (("are encoded as they are (times 1)", seen, 1.0), ("are divided by 2^-126 instead of 2^-127", seen, 2.0 ** 126),
                             ("that are subnormal in float32 count as zeros", _seen(seen, "flushed"), 2.0 ** 127)):
        expected = used((x.astype(np.float64) * factor).astype(np.float32), m.format)
        if _same(expected, m.codes[lowest], m.format).all() or ((expected ^ m.codes[lowest]) & 0x7f == 0).all():
            return f"under scale 0 elements {words}"
    wrong = np.count_nonzero(~_same(used((seen.astype(np.float64) * 2.0 ** 127).astype(np.float32), m.format), m.codes[lowest], m.format))
    return f"under scale 0 {wrong:,} elements have other codes"


def _elements(q: np.ndarray, codes: np.ndarray, format: str) -> Tuple[List[str], str]:
    """What differs from the format's own rounding, saturating; and the name of the rounding that is nearest."""
    q, codes = q.ravel(), codes.ravel()
    own = "to nearest, ties to even" if format != "hif8" else "to nearest, ties away from zero"
    limit = {"e4m3": 464.0, "e5m2": 61440.0, "hif8": 40960.0}[format]
    over = ~np.isnan(q) & (np.abs(q) > _LARGEST[format])
    small = np.abs(q) < {"e4m3": 2.0 ** -6, "e5m2": 2.0 ** -14, "hif8": 2.0 ** -15}[format]
    middle = ~over & ~small & ~np.isnan(q)
    wrongs = {name: int(np.count_nonzero(~_same(rule(q[middle], format), codes[middle], format))) for name, rule in _ELEMENT_RULES.items()}
    if format == "hif8":
        del wrongs["to nearest, ties to even"]
    rule = min(wrongs, key=lambda name: (wrongs[name], name != own))
    findings = []
    if rule != own:
        findings.append(f"elements are rounded {rule}")
    if wrongs[rule]:
        findings.append(f"{wrongs[rule]:,} of {np.count_nonzero(middle):,} elements have other codes than rounding {rule} gives")
    findings += _overflow(q[over], codes[over], format, limit)
    findings += _underflow(q[small], codes[small], format, rule)
    return findings, rule


def _overflow(q: np.ndarray, codes: np.ndarray, format: str, limit: float) -> List[str]:
    beyond = np.abs(q) > limit if format == "e4m3" else np.abs(q) >= limit
    if not beyond.any():
        return []
    got = codes[beyond]
    if _is_nan(got, format).all():
        return ["what is beyond the largest value becomes NaN instead of it"]
    if format != "e4m3" and ((got & 0x7f) == _first_special(format)).all():
        return ["what is beyond the largest value becomes Inf instead of it"]
    expected = core.encode(q, format)
    wrong = np.count_nonzero(~_same(expected, codes, format))
    return [f"{wrong:,} of {len(q):,} elements beyond the largest value have other codes"] if wrong else []


def _underflow(q: np.ndarray, codes: np.ndarray, format: str, rule: str) -> List[str]:
    expected = _ELEMENT_RULES[rule](q, format)
    findings, lost = [], (expected == 0x80) & (codes == 0) if format != "hif8" else np.zeros(len(q), bool)
    if lost.any() and not ((expected == 0x80) & (codes == 0x80)).any():
        findings.append("zeros lose their sign")
    tiny = (expected & 0x7f != 0) & (np.abs(core.decode(expected, format)) < {"e4m3": 2.0 ** -6, "e5m2": 2.0 ** -14, "hif8": 2.0 ** -15}[format])
    if tiny.any() and (codes[tiny] & 0x7f == 0).all():
        return findings + ["subnormal codes are flushed to zero"]
    wrong = ~_same(expected, codes, format) & ~lost & (q != 0)
    if wrong.any():
        findings.append(f"{np.count_nonzero(wrong):,} of {len(q):,} elements below the smallest normal value have other codes")
    return findings


def _points(format: str, rng: np.random.Generator) -> np.ndarray:
    """The golden inputs, all bits, ordinary numbers, and where codes turn."""
    rows = core.vectors()["encode_" + format]
    golden = np.array([int(row["x"], 16) for row in rows], np.uint32).view(np.float32)
    values = core.decode(np.arange(_first_special(format), dtype=np.uint8), format).astype(np.float64)
    values = np.sort(values[np.isfinite(values)])
    turns = _around(((values[1:] + values[:-1]) / 2).astype(np.float32))
    anything = rng.integers(0, 1 << 32, 100000, dtype=np.uint32).view(np.float32)
    normal = (rng.standard_normal(100000) * np.exp2(rng.integers(-20, 16, 100000))).astype(np.float32)
    return np.concatenate([golden, turns, -turns, anything, normal])


def _check_element(encoder: Callable, format: str, rng: np.random.Generator) -> Report:
    x = _points(format, rng)
    codes = _bytes(encoder(x.copy()), "codes")
    if codes.shape != x.shape:
        raise ValueError(f"codes: expected {x.shape}; got {codes.shape}")
    findings, rule = _elements(x, codes, format)
    nan = np.isnan(x)
    if not _is_nan(codes[nan], format).all():
        findings.append("a NaN becomes a number")
    if format == "hif8" and findings and _same(core.encode(x, format, "hybrid"), codes, format).all():
        return Report("HIF8 by the paper's hybrid rule, saturating", [], 0, x.size)
    own = "to nearest, ties to even" if format != "hif8" else "to nearest, ties away from zero"
    return Report(f"{format.upper()} {own}, saturating", findings, 0, x.size)


def _divides(amax: np.float32, target: float) -> Tuple[np.float32, Optional[np.float32]]:
    return amax / np.float32(target), None


def _multiplies(amax: np.float32, target: float) -> Tuple[np.float32, Optional[np.float32]]:
    factor = np.float32(np.float64(target) / np.float64(amax))
    return np.float32(1) / factor, factor


def _multiplies_from(amax: np.float32, target: float) -> Tuple[np.float32, Optional[np.float32]]:
    return _multiplies(max(np.float64(amax), 1e-12), target)


def _by_power(amax: np.float32, target: float) -> Tuple[np.float32, Optional[np.float32]]:
    factor = np.float32(np.exp2(np.floor(np.log2(np.float64(np.float32(np.float64(target) / np.float64(amax)))))))
    return np.float32(1) / factor, factor


# How a scale and what elements are multiplied by (None: divided by the scale) follow from amax; the last words say what differs.
_SCALE_RULES: List[Tuple[Callable, str]] = [
    (_divides, ""),
    (_multiplies, "elements are multiplied by target / amax, whose inverse is the scale"),
    (_multiplies_from, "elements are multiplied by target / amax, whose inverse is the scale, and amax counts as at least 1e-12"),
    (_by_power, "elements are multiplied by target / amax rounded down to a power of two, whose inverse is the scale")]


def _check_tensor(quantizer: Callable, format: str, rng: np.random.Generator) -> Report:
    targets = {"e4m3": (448.0, 240.0, 256.0), "e5m2": (57344.0, 32768.0), "hif8": (32768.0, 15.0, 224.0)}[format]
    inputs, codes, scales = [], [], []
    for _ in range(64):
        inputs.append((rng.standard_normal((16, 64)) * np.exp2(rng.integers(-60, 60))).astype(np.float32))
        got, scale = quantizer(inputs[-1].copy())
        codes.append(_bytes(got, "codes").ravel())
        scales.append(np.float32(np.asarray(scale).reshape(())))
    amaxes = [np.abs(x).max() for x in inputs]
    wrongs = {(rule, target): sum(rule[0](amax, target)[0] != scale for amax, scale in zip(amaxes, scales))
              for rule in _SCALE_RULES for target in targets}
    rule, target = min(wrongs, key=lambda key: wrongs[key])
    findings = [rule[1]] if rule[1] else []
    if wrongs[rule, target]:
        findings.append(f"{wrongs[rule, target]} of {len(inputs)} scales are others")
    factors = [rule[0](amax, target)[1] for amax in amaxes]
    q = np.concatenate([(x / scale if factor is None else x * factor).ravel() for x, scale, factor in zip(inputs, scales, factors)])
    findings += _elements(q, np.concatenate(codes), format)[0]
    return Report(f"{format.upper()} per tensor, amax to {target:g}", findings, 0, q.size)
