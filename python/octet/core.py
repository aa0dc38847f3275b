"""Quantizing, multiplying and measuring arrays: what liboctet computes, in numpy's terms."""
from __future__ import annotations

import csv
import ctypes
import math
import pathlib
from ctypes import byref
from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import _arrays, _library
from ._library import BF16, E8M0, F16, F32, FORMAT_NAMES, FORMATS, HIF8, lib

__all__ = ["Quantized", "Statistics", "decode", "dequantize", "encode", "matmul", "quantize", "rules", "set_threads", "stats", "threads",
           "vectors"]


class _Layout(NamedTuple):
    """An array as `lead` matrices (rows, cols) one after the other, and the axis of a matrix that blocks lie along."""
    lead: int
    rows: int
    cols: int
    axis: int


def _layout(shape: Sequence[int], axis: int, block: Tuple[int, int]) -> _Layout:
    n = len(shape)
    if n <= 1:
        return _Layout(1, 1, math.prod(shape), 1)
    if block == (0, 0) or (axis == n - 1 and block[0] <= 1):
        return _Layout(1, math.prod(shape[:-1]), shape[-1], 1)
    if axis == n - 1:
        return _Layout(math.prod(shape[:-2]), shape[-2], shape[-1], 1)
    return _Layout(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1:]), 0)


def _axis_of(axis: int, n: int) -> int:
    if not -max(n, 1) <= axis < max(n, 1):
        raise ValueError(f"axis {axis}: expected one of {max(n, 1)} dimensions")
    return axis % max(n, 1)


def _split(shape: Sequence[int], axis: int, layout: _Layout) -> Tuple[int, int]:
    """How many leading dimensions are `lead`, and where columns begin."""
    n = len(shape)
    if n <= 1:
        return 0, 0
    if layout.axis == 0:
        return axis, axis + 1
    return (0, n - 1) if layout.lead == 1 and layout.rows == math.prod(shape[:-1]) else (n - 2, n - 1)


def _placed(v: _arrays.View, axis: int, layout: _Layout) -> Tuple[int, int, int]:
    """Strides of the source between matrices, rows and columns."""
    first, second = _split(v.shape, axis, layout)
    parts = ((0, first), (first, second), (second, len(v.shape)))
    return tuple(_arrays.collapsed(v.shape[a:b], v.strides[a:b])[1] for a, b in parts)  # type: ignore[return-value]


def _matrices(v: _arrays.View, axis: int, layout: _Layout):
    """The C library's view of each matrix of an array."""
    lead, row, col = _placed(v, axis, layout)
    size = 4 if v.dtype == F32 else 2
    for i in range(layout.lead):
        yield _library.Matrix(dtype=v.dtype, data=v.address + i * lead * size, rows=layout.rows, cols=layout.cols, row_stride=row,
                              col_stride=col)


def _source(x: Any, axis: int, layout: _Layout) -> _arrays.View:
    """The array itself, or, where its strides are not those of matrices, a copy in C order."""
    v = _arrays.source(x)
    try:
        _placed(v, axis, layout)
        return v
    except ValueError:
        if not isinstance(x, np.ndarray):
            raise ValueError("expected an array whose dimensions lie one after the other; make it contiguous first") from None
        return _arrays.source(np.ascontiguousarray(x))


@dataclass(frozen=True)
class Quantized:
    """Codes and scales.

    codes: uint8, of the shape of what was quantized. scales: uint8 E8M0 codes (MX) or float32, of the same number of dimensions, each as
    long as there are blocks along it; of one scale alone: shape (). Value = decode(code) * scale.
    """
    codes: np.ndarray
    scales: np.ndarray
    format: str                 # "e4m3", "e5m2", "hif8"
    scale_format: str           # "e8m0", "float32"
    block: Tuple[int, int]      # rows and columns of a block of the last matrix; 0: all
    axis: int                   # along which blocks lie; not negative
    recipe: str = ""
    rules: str = ""

    @property
    def shape(self) -> Tuple[int, ...]:
        return self.codes.shape

    @property
    def T(self) -> "Quantized":
        """The transposed matrix, of the same memory."""
        if self.codes.ndim != 2:
            raise ValueError(f"expected a matrix; got {self.codes.ndim} dimensions")
        return Quantized(self.codes.T, self.scales.T, self.format, self.scale_format, self.block[::-1], 1 - self.axis, self.recipe, self.rules)

    def dequantize(self, dtype: Any = None, threads: int = 0) -> np.ndarray:
        return dequantize(self, dtype, threads)

    def _coded(self) -> list:
        """The C library's view of each matrix."""
        layout = _layout(self.shape, self.axis, self.block)
        codes = _arrays.codes_of(self.codes, FORMATS[self.format])
        lead, row, col = _placed(codes, self.axis, layout)
        scale_size = 1 if self.scale_format == "e8m0" else 4
        down, across = _grid(layout, self.block)
        scales = self.scales.reshape(layout.lead, down, across) if self.scales.ndim != 2 else self.scales[None]
        if scales.shape != (layout.lead, down, across) or scales.dtype != (np.uint8 if scale_size == 1 else np.float32):
            raise ValueError(f"expected {self.scale_format} scales of ({layout.lead}, {down}, {across}); got {scales.dtype} of {scales.shape}")
        steps = [stride // scale_size for stride in scales.strides]
        return [_library.Coded(format=FORMATS[self.format], rows=layout.rows, cols=layout.cols, codes=codes.address + i * lead,
                               row_stride=row, col_stride=col, scale_dtype=E8M0 if scale_size == 1 else F32, block_rows=self.block[0],
                               block_cols=self.block[1], scales=scales.ctypes.data + i * steps[0] * scale_size, scale_row_stride=steps[1],
                               scale_col_stride=steps[2]) for i in range(layout.lead)]


def _grid(layout: _Layout, block: Tuple[int, int]) -> Tuple[int, int]:
    return tuple(1 if b == 0 else -(-n // b) for n, b in zip(layout[1:3], block))  # type: ignore[return-value]


def _scale_shape(shape: Sequence[int], axis: int, layout: _Layout, block: Tuple[int, int]) -> Tuple[int, ...]:
    if block == (0, 0):
        return ()
    down, across = _grid(layout, block)
    first, second = _split(shape, axis, layout)
    if len(shape) <= 1:
        return (across,) * len(shape)
    if layout.axis == 0:
        return (*shape[:first], down, *(shape[second:] if block[1] == 1 else (across,)))
    return (*shape[:-1], across) if first == 0 and down == layout.rows and block[0] == 1 else (*shape[:first], down, across)


def quantize(x: Any, recipe: str = "mxfp8", axis: int = -1, rules: str = "octet", use: str = "input", rounding: str = "own", seed: int = 0,
             counter: int = 0, scale_mode: Optional[str] = None, target: Optional[float] = None, threads: int = 0) -> Quantized:
    """x in 8 bits.

    x: an array of float32, bfloat16 or float16 of any shape: numpy's, or one that speaks DLPack (torch, jax); read where it is.
    recipe: as in a job ("mxfp8", "hif8", "dynamic_per_tensor_E4M3_E4M3_E5M2"), or "FORMAT:BLOCK" with e4m3, e5m2 or hif8 and mx, mx32x32,
    tensor, channel, 1x128, 128x128 or any RxC. axis: what a product contracts over; blocks lie along it. rules: whose ("octet",
    "torchtitan-npu", "mindspeed", "torchtitan", "torchao", "transformer-engine", "ocp"). use: input, weight or gradient, or of experts:
    expert_input, ... rounding: own, even, away, hybrid (HiF8), or stochastic, by seed and counter. scale_mode (floor, ceil, even, rceil)
    and target (what amax maps to, of float32 scales) win over the rules'. ValueError says what isn't known.
    """
    v = _arrays.source(x)
    axis = _axis_of(axis, len(v.shape))
    side = 0 if len(v.shape) > 1 and axis < len(v.shape) - 1 else 1
    q = _library.preset(recipe, rules, use, side)
    if scale_mode is not None:
        if q.scale_dtype != E8M0:
            raise ValueError(f"scale_mode is for MX scales; {recipe} has float32 scales")
        _library.named(scale_mode, _library.SCALE_MODES, "scale_mode")
        tiles = "32x32" if q.block_rows == q.block_cols else ""
        q = _library.preset(f"{FORMAT_NAMES[q.format]}:mx{tiles}-{scale_mode}", rules, use, side)
    if target is not None:
        if q.scale_dtype == E8M0:
            raise ValueError(f"target is for float32 scales; {recipe} has MX scales")
        q.target = target
    q.rounding = _library.named(rounding, _library.ROUNDINGS, "rounding")
    q.seed, q.counter = seed, counter
    block = (q.block_rows, q.block_cols)
    if len(v.shape) > 2 and axis < len(v.shape) - 2 and block[1] > 1:
        raise ValueError(f"blocks of {block[0]}x{block[1]} lie in the last two dimensions; got axis {axis} of {len(v.shape)}")
    layout = _layout(v.shape, axis, block)
    v = _source(x, axis, layout)
    codes = np.empty(v.shape, np.uint8)
    mx = q.scale_dtype == E8M0
    scales = np.empty(_scale_shape(v.shape, axis, layout, block), np.uint8 if mx else np.float32)
    result = Quantized(codes, scales, FORMAT_NAMES[q.format], "e8m0" if mx else "float32", block, axis, recipe, rules)
    for matrix, coded in zip(_matrices(v, axis, layout), result._coded()):
        _library.check(lib.oct_matrix_quantize(byref(q), byref(matrix), byref(coded), threads), f"quantize {recipe}: refused")
        q.counter += layout.rows * layout.cols
    return result


def dequantize(q: Quantized, dtype: Any = None, threads: int = 0) -> np.ndarray:
    """Codes times scales, rounded once to float32, then to dtype (float32, bfloat16, float16) if that is another; of q's shape."""
    kind, ours = _arrays.like(dtype)
    y = np.empty(q.shape, kind)
    v = _arrays.view(y)
    for matrix, coded in zip(_matrices(v, q.axis, _layout(q.shape, q.axis, q.block)), q._coded()):
        _library.check(lib.oct_matrix_dequantize(byref(coded), byref(matrix), threads), f"dequantize {q.format}: refused")
    return y


@dataclass(frozen=True)
class Statistics:
    """What quantizing cost: counts of elements, sums of squares in float64, the ratio of those in dB. NaN and Inf are counted apart."""
    n: int
    n_special: int
    n_zero: int
    n_underflow: int
    n_saturated: int
    signal: float
    noise: float
    max_error: float

    @property
    def sqnr_db(self) -> float:
        if self.signal == 0:
            return math.nan
        return math.inf if self.noise == 0 else 10 * math.log10(self.signal / self.noise)


def stats(x: Any, q: Quantized, threads: int = 0) -> Statistics:
    """Of x and what it was quantized to; shapes are the same."""
    layout = _layout(q.shape, q.axis, q.block)
    v = _source(x, q.axis, layout)
    if v.shape != q.shape:
        raise ValueError(f"x has the shape {v.shape}, q {q.shape}")
    names = ("n", "n_special", "n_zero", "n_underflow", "n_saturated", "signal", "noise")
    sums: Dict[str, Any] = dict.fromkeys(names, 0)
    largest = 0.0
    for matrix, coded in zip(_matrices(v, q.axis, layout), q._coded()):
        out = _library.Statistics()
        _library.check(lib.oct_matrix_measure(byref(matrix), byref(coded), byref(out), threads), "stats: refused")
        sums = {name: sums[name] + getattr(out, name) for name in names}
        largest = max(largest, out.max_error)
    return Statistics(**sums, max_error=largest)


Operand = Union[Quantized, Any]


def _operand(x: Operand) -> Tuple[_library.Coded, Any]:
    """A matrix (rows, cols) for the product, and what has to stay alive."""
    if isinstance(x, Quantized):
        if x.codes.ndim != 2:
            raise ValueError(f"expected a matrix; got {x.codes.ndim} dimensions")
        return x._coded()[0], x
    v = _arrays.source(x)
    if len(v.shape) != 2 or v.dtype == F16:
        raise ValueError(f"expected a Quantized or a float32 or bfloat16 matrix; got {_arrays.NAMES[v.dtype]} of {v.shape}")
    return _library.Coded(format=v.dtype, rows=v.shape[0], cols=v.shape[1], codes=v.address, row_stride=v.strides[0],
                          col_stride=v.strides[1]), v


def matmul(a: Operand, b: Operand, mode: str = "auto", bias: Any = None, dtype: Any = None, out: Any = None,
           accumulate: bool = False, threads: int = 0) -> Any:
    """a (M, K) @ b (K, N) [+ bias (N)], of quantized, float32 or bfloat16 matrices.

    mode: "exact" has defined bits on every CPU (docs/numerics.md), "fast" meets an error bound where this CPU has it, "auto" is fast where
    it can be. dtype: float32 or bfloat16. out: a C-contiguous array (M, N), of DLPack too, to write to, or, with accumulate, to add to.
    Blocks should lie along K: a quantized with axis=-1, b with axis=0, or w (N, K) with axis=-1 and given as w.T.
    """
    left, keep_left = _operand(a)
    right, keep_right = _operand(b)
    if left.cols != right.rows:
        raise ValueError(f"a is ({left.rows}, {left.cols}), b ({right.rows}, {right.cols})")
    _turn(right)
    if out is None:
        if accumulate:
            raise ValueError("accumulate adds to out; expected one")
        out = np.empty((left.rows, right.rows), _arrays.like(dtype)[0])
    c = _arrays.view(out)
    writeable = not isinstance(out, np.ndarray) or out.flags.writeable
    if c.dtype not in (F32, BF16) or c.shape != (left.rows, right.rows) or _flat(c, None) is not c or not writeable:
        raise ValueError(f"out: expected a C-contiguous float32 or bfloat16 array of ({left.rows}, {right.rows}); got "
                         f"{_arrays.NAMES[c.dtype]} of {c.shape}")
    if bias is not None:
        bias = np.ascontiguousarray(bias, np.float32)
        if bias.shape != (right.rows,):
            raise ValueError(f"bias: expected ({right.rows},); got {bias.shape}")
    product = _library.Product(a=ctypes.pointer(left), b=ctypes.pointer(right), c=c.address, c_dtype=c.dtype, ld_c=right.rows,
                               accumulate=int(accumulate), bias=None if bias is None else bias.ctypes.data)
    number = _library.named(mode, _library.PRODUCTS, "mode")
    _library.check(lib.oct_multiply(byref(product), 1, number, threads), f"matmul: mode {mode} isn't there for these operands on this CPU"
                   if number == 2 else "matmul: refused")
    del keep_left, keep_right
    return out


def _turn(q: _library.Coded) -> None:
    """Rows for columns."""
    for a, b in (("rows", "cols"), ("row_stride", "col_stride"), ("block_rows", "block_cols"), ("scale_row_stride", "scale_col_stride")):
        first, second = getattr(q, a), getattr(q, b)
        setattr(q, a, second)
        setattr(q, b, first)


def _flat(v: _arrays.View, x: Any) -> _arrays.View:
    """One run of elements: the array itself or, of numpy's, a copy."""
    if v.strides == _arrays._contiguous(v.shape) or math.prod(v.shape) <= 1:
        return v
    if not isinstance(x, np.ndarray):
        raise ValueError("expected a contiguous array")
    return _arrays.view(np.ascontiguousarray(x))


def encode(x: Any, format: str, rounding: str = "own", saturate: bool = True, seed: int = 0, counter: int = 0, threads: int = 0) -> np.ndarray:
    """Codes (uint8) of x as it is, without a scale; of x's shape. format: e4m3, e5m2, hif8."""
    v = _flat(_arrays.source(x), x)
    codec = _library.Codec(format=_library.named(format, FORMATS, "format"), rounding=_library.named(rounding, _library.ROUNDINGS, "rounding"),
                           overflow=int(saturate), seed=seed, counter=counter)
    codes = np.empty(v.shape, np.uint8)
    status = lib.oct_encode_array(byref(codec), v.address, v.dtype, math.prod(v.shape), codes.ctypes.data, threads)
    _library.check(status, f"encode: {format} has no {rounding} rounding")
    return codes


def decode(codes: Any, format: str, dtype: Any = None, threads: int = 0) -> np.ndarray:
    """Values of codes (uint8, or ml_dtypes' or torch's own types); format may be e8m0 too. dtype: float32, bfloat16, float16."""
    number = _library.named(format, FORMATS, "format")
    v = _flat(_arrays.codes_of(codes, number), codes)
    kind, ours = _arrays.like(dtype)
    y = np.empty(v.shape, kind)
    _library.check(lib.oct_decode_array(number, v.address, math.prod(v.shape), y.ctypes.data, ours, threads), "decode: refused")
    return y


def threads() -> int:
    """How many threads functions use that aren't told."""
    return lib.oct_threads()


def set_threads(n: int) -> None:
    lib.oct_threads_set(n)


def rules() -> List[str]:
    """The sets of rules, with their versions."""
    names = []
    while (name := lib.oct_rules_name(len(names))) is not None:
        names.append(name.decode())
    return names


def vectors() -> Dict[str, List[Dict[str, str]]]:
    """The golden vectors: rows by the name of their table, as README.md beside them explains (vectors/README.md of this package)."""
    tables = {}
    for path in sorted(pathlib.Path(__file__).with_name("vectors").glob("*.csv")):
        with open(path, newline="") as file:
            tables[path.stem] = list(csv.DictReader(file))
    return tables
