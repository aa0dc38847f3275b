"""Given torchao and ml_dtypes, the Python package gives their codes and scales.

usage: python_peers.py LIBRARY [ELEMENTS]

ml_dtypes rounds the elements of an oracle in numpy: every format, scale mode and axis. torchao is compared as it is, by the rules
"torchao": what differs is counted, and docs/library.md names it. What isn't installed is skipped out loud; SCALE of elements in all."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
os.environ["OCTET_LIBRARY"] = os.path.abspath(sys.argv[1])
ELEMENTS = int(float(sys.argv[2])) if len(sys.argv) > 2 else 1 << 18
try:
    import ml_dtypes
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
import octet
from octet import conformance

CHUNK = 1 << 21
failures = []
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0, "hif8": 32768.0}
EMAX = {"e4m3": 8, "e5m2": 15}
TYPES = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def hif8_values():
    """Of the codes of positive numbers, from the table in docs/numerics.md."""
    values = {0: 0.0}
    for code in range(1, 0x80):
        if code == 0x6f:  # Inf
            continue
        if code >= 0x60:
            e, m, bits = 8 | code >> 1 & 7, code & 1, 1
        elif code >= 0x40:
            e, m, bits = 4 | code >> 2 & 3, code & 3, 2
        elif code >= 0x20:
            e, m, bits = 2 | code >> 3 & 1, code & 7, 3
        elif code >= 0x10:
            e, m, bits = 1, code & 7, 3
        elif code >= 8:
            e, m, bits = 0, code & 7, 3
        else:
            values[code] = 2.0 ** (code - 23)
            continue
        down = code >> 4 & 1 if code >= 0x20 else code >> 3 & 1 if code >= 0x10 else 0
        values[code] = (1 + m / 2 ** bits) * 2.0 ** (-e if down else e)
    pairs = sorted((value, code) for code, value in values.items())
    return np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs], np.uint8)


HIF8_VALUES, HIF8_CODES = hif8_values()


def encode(x, format):
    """Codes of fp32 numbers, saturating."""
    if format != "hif8":
        top = np.float32(LARGEST[format])
        return np.clip(x, -top, top).astype(TYPES[format]).view(np.uint8)
    middles = (HIF8_VALUES[1:] + HIF8_VALUES[:-1]) / 2
    codes = HIF8_CODES[np.searchsorted(middles, np.abs(x).astype(np.float64), side="right")]
    codes = np.where((codes != 0) & np.signbit(x), codes | 0x80, codes).astype(np.uint8)
    return np.where(np.isnan(x), np.uint8(0x80), codes)


def mx_scales(amax, format, mode):
    exponent = np.frexp(amax.astype(np.float64))[1] - 1
    if mode == "ceil":
        exponent += np.frexp(amax.astype(np.float64))[0] != 0.5
    if mode == "even":
        half = 1 << (22 - (3 if format == "e4m3" else 2))
        exponent = ((amax.view(np.uint32).astype(np.int64) + half) >> 23) - 127
    k = exponent - EMAX[format]
    if mode == "rceil":
        d = (amax * np.float32(1 / LARGEST[format])).astype(np.float64)
        fraction, e = np.frexp(d)
        k = np.where(d > 0, e - 1 + (fraction != 0.5), -127)
    codes = np.clip(np.where(amax == 0, 0, k + 127), 0, 254)
    return np.where(np.isfinite(amax), codes, 255).astype(np.uint8)


def mx(x, format, mode):
    """(codes, scales) of blocks of 32 along the last axis."""
    blocks = x.reshape(-1, 32)
    amax = np.where(np.isfinite(blocks), np.abs(blocks), np.float32(np.inf)).max(1)
    scales = mx_scales(amax, format, mode)
    with np.errstate(invalid="ignore"):
        quotients = (blocks.astype(np.float64) * np.exp2(127.0 - scales)[:, None]).astype(np.float32)
    quotients[scales == 255] = np.nan
    return encode(quotients, format).reshape(x.shape), scales.reshape(x.shape[0], -1)


def draw(rng, rows, cols, raw):
    """Numbers whose binades differ from block to block; now and then any 32 bits."""
    x = rng.standard_normal((rows, cols), dtype=np.float32)
    x *= np.exp2(rng.integers(-140, 120, (rows, cols // 32)).astype(np.float64)).astype(np.float32).repeat(32, 1)
    if raw:
        bits = rng.integers(0, 1 << 32, x.size // 64, dtype=np.uint32).view(np.float32)
        x.reshape(-1)[rng.integers(0, x.size, bits.size)] = bits
    return x


def is_nan(format, codes):
    return {"e4m3": codes & 0x7f == 0x7f, "e5m2": codes & 0x7f > 0x7c, "hif8": codes == 0x80}[format]


def compare(what, format, got, expected):
    """(codes, scales) that differ; NaN of either sign is one."""
    codes = (got.codes != expected[0]) & ~(is_nan(format, got.codes) & is_nan(format, expected[0]))
    scales = (got.scales != expected[1]) & ~(np.isnan(got.scales.astype(np.float64)) & np.isnan(expected[1].astype(np.float64)))
    return int(np.count_nonzero(codes)), int(np.count_nonzero(scales))


def report(what, n, wrong, allowed=False):
    print(f"{what}: {n} elements, {wrong[0]} codes and {wrong[1]} scales differ", flush=True)
    if any(wrong) and not allowed:
        failures.append(what)


def turns(format):
    """Blocks whose amax is where scale rules turn, and special ones: those that octet.conformance tries."""
    rng = np.random.default_rng(3)
    return conformance._mx_inputs(format, rng).reshape(-1, 256)


def chunks(seed, raw=True):
    rng, left = np.random.default_rng(seed), ELEMENTS
    while left > 0:
        rows = max(32, min(CHUNK, left) // 1024)
        left -= rows * 1024
        yield draw(rng, rows, 1024, raw)


def against_ml_dtypes():
    for format in ("e4m3", "e5m2"):
        for mode in ("floor", "ceil", "even", "rceil"):
            for axis in (1, 0):
                n, wrong = 0, np.zeros(2, int)
                for x in chunks(axis + 2):
                    source = x if axis == 1 else np.ascontiguousarray(x.T)
                    got = octet.quantize(source, f"{format}:mx-{mode}", axis=axis)
                    if axis == 0:
                        got = got.T
                    wrong += compare("", format, got, mx(x, format, mode))
                    n += x.size
                report(f"ml_dtypes {format} MX {mode} axis {axis}", n, wrong)
    for format in ("e4m3", "e5m2", "hif8"):
        for block in ("tensor", "channel", "1x128", "128x128"):
            for axis in (1, 0):
                n, wrong = 0, np.zeros(2, int)
                for x in chunks(axis + 9, raw=False):
                    x = np.clip(x, -1e30, 1e30)
                    got = octet.quantize(x, f"{format}:{block}", axis=axis)
                    wrong += compare("", format, got, by_blocks(x, format, got.block))
                    n += x.size
                report(f"ml_dtypes {format} {block} axis {axis}", n, wrong)


def by_blocks(x, format, block):
    """(codes, scales) by fp32 scales of blocks of (rows, cols), 0: all."""
    rows, cols = (b or n for b, n in zip(block, x.shape))
    down, across = -(-x.shape[0] // rows), -(-x.shape[1] // cols)
    padded = np.zeros((down * rows, across * cols), np.float32)
    padded[:x.shape[0], :x.shape[1]] = np.abs(x)
    amax = padded.reshape(down, rows, across, cols).max((1, 3))
    target = np.float32({"hif8": 15}.get(format, LARGEST[format]))
    scales = np.where(amax == 0, np.float32(1), np.maximum(amax / target, np.float32(2.0 ** -126)))
    whole = scales.repeat(rows, 0).repeat(cols, 1)[:x.shape[0], :x.shape[1]]
    return encode(x / whole, format), scales.reshape(()) if block == (0, 0) else scales


# What the kit has to say of torchao: by rceil, and by the other modes.
TOLD = {True: "2^k are one step low; blocks with an Inf aren't poisoned: their scale is 254; under scale 0 elements are encoded as they are",
        False: "(scale 255) finite elements are zeros; under scale 0 elements are divided by 2^-126"}


def mx_of_torchao(x, type, mode):
    import torch
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.prototype.mx_formats.mx_tensor import to_mx
    return to_mx(torch.from_numpy(x), type, 32, getattr(ScaleCalculationMode, mode.upper()))


def against_torchao():
    try:
        import torch
        from torchao.float8.float8_utils import amax_to_scale, tensor_to_amax, to_fp8_saturated
        from torchao.prototype.mx_formats.mx_tensor import to_mx  # noqa: F401
    except ImportError as missing:
        print(f"skipped: {missing}")
        return
    torch.set_num_threads(1)
    types = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
    for format in ("e4m3", "e5m2"):
        for mode in ("floor", "ceil", "even", "rceil"):
            n, wrong, sizes = 0, np.zeros(2, int), 0.0
            for x in (turns(format), *chunks(5)):
                scales, codes = mx_of_torchao(x, types[format], mode)
                got = octet.quantize(x, f"{format}:mx-{mode}", rules="torchao")
                theirs = codes.view(torch.uint8).numpy(), scales.view(torch.uint8).numpy()
                wrong += compare("", format, got, theirs)
                if mode == "rceil":
                    sizes = max(sizes, furthest(x, format, got.scales != theirs[1]))
                n += x.size
            # rceil: torch's log2 is off by a last place here and there, so a few blocks within 2^-19 of a power of two differ.
            report(f"torchao {format} MX {mode}", n, wrong, allowed=mode == "rceil" and wrong[1] * 20000 <= n / 32 and sizes < 2 ** -15)
            if mode == "rceil":
                print(f"    those blocks' amax is within {sizes:.3g} of a power of two times {LARGEST[format]:g}")
            told = conformance.check(lambda x: reversed(mx_of_torchao(x, types[format], mode)), format)  # noqa: B023
            print(f"    octet.conformance: {told}")
            if TOLD[mode == "rceil"] not in str(told):
                failures.append(f"the kit's words on torchao {format} {mode}")
        n, wrong = 0, np.zeros(2, int)
        for x in chunks(6, raw=False):
            t = torch.from_numpy(np.clip(x, -1e30, 1e30))
            factor = amax_to_scale(tensor_to_amax(t), types[format])
            codes = to_fp8_saturated(t.to(torch.float32) * factor, types[format]).view(torch.uint8).numpy()
            got = octet.quantize(t, f"{format}:tensor", rules="torchao")
            wrong += compare("", format, got, (codes, (1 / factor).numpy().reshape(())))
            n += x.size
        report(f"torchao {format} tensorwise", n, wrong)


def furthest(x, format, blocks):
    """How far from 2^k * largest the amax of these blocks are at most."""
    amax = np.abs(x.reshape(-1, 32)).max(1)[blocks.reshape(-1)].astype(np.float64)
    ratio = amax / LARGEST[format]
    with np.errstate(all="ignore"):
        return float(np.max(np.abs(ratio / np.exp2(np.rint(np.log2(ratio))) - 1), initial=0))


def kit_on_ml_dtypes():
    """Its casts don't saturate, but are to nearest, ties to even."""
    for format in ("e4m3", "e5m2"):
        bare = str(conformance.check(lambda x: x.astype(TYPES[format]), format, "element"))  # noqa: B023
        top = np.float32(LARGEST[format])
        clipped = str(conformance.check(lambda x: np.clip(x, -top, top).astype(TYPES[format]), format, "element"))  # noqa: B023
        print(f"octet.conformance on ml_dtypes: {bare}\n    clipped first: {clipped}")
        if "but what is beyond the largest value becomes" not in bare or "to the bit" not in clipped:
            failures.append(f"the kit's words on ml_dtypes {format}")


against_ml_dtypes()
kit_on_ml_dtypes()
against_torchao()
print(f"{len(failures)} failed" + "".join("\n  " + what for what in failures))
sys.exit(1 if failures else 0)
