"""Anybody's arrays as addresses, without copying: numpy's (with ml_dtypes' element types), and by DLPack torch's, jax's and others'."""
from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any, NamedTuple, Optional

import numpy as np

from ._library import BF16, E4M3, E5M2, E8M0, F16, F32

U8 = -1  # codes of any format

_NUMPY = {"float32": F32, "float16": F16, "bfloat16": BF16, "uint8": U8, "float8_e4m3fn": E4M3, "float8_e5m2": E5M2, "float8_e8m0fnu": E8M0}
# (DLDataTypeCode, bits)
_DLPACK = {(2, 32): F32, (2, 16): F16, (4, 16): BF16, (1, 8): U8, (10, 8): E4M3, (12, 8): E5M2, (14, 8): E8M0}
NAMES = {F32: "float32", F16: "float16", BF16: "bfloat16", U8: "uint8", E4M3: "float8_e4m3fn", E5M2: "float8_e5m2", E8M0: "float8_e8m0fnu"}


class View(NamedTuple):
    """Where elements are. `owner` keeps them alive."""
    address: int
    dtype: int
    shape: tuple
    strides: tuple  # in elements
    owner: Any

    def matrix(self) -> tuple:
        """(rows, cols, row stride, col stride) with all dimensions but the last as rows; of a copy if strides forbid it."""
        if len(self.shape) == 0:
            return 1, 1, 1, 1
        cols, step = self.shape[-1], self.strides[-1]
        rows, stride = collapsed(self.shape[:-1], self.strides[:-1])
        return rows, cols, stride if rows > 1 else max(cols, 1) * step if step else cols, step


def collapsed(shape: tuple, strides: tuple) -> tuple:
    """Dimensions as one: (elements, stride). ValueError where no single stride reaches them."""
    n, stride = 1, None
    for size, step in zip(reversed(shape), reversed(strides)):
        if size == 1:
            continue
        if stride is None:
            stride = step
        elif step != stride * n:
            raise ValueError("strides of leading dimensions are not those of one")
        n *= size
    return n, 1 if stride is None else stride


class _Tensor(Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8),
                ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _of_dlpack(x: Any) -> View:
    """The capsule is never consumed: it dies with the view, and releases the tensor as nobody took it."""
    capsule = x.__dlpack__()
    t = ctypes.cast(_pointer_of(capsule, b"dltensor"), POINTER(_Tensor)).contents
    if t.device_type != 1:
        raise ValueError(f"expected an array in the CPU's memory; got DLPack device {t.device_type}")
    dtype = _DLPACK.get((t.code, t.bits)) if t.lanes == 1 else None
    if dtype is None:
        raise TypeError(f"expected {', '.join(NAMES.values())}; got DLPack type {t.code} of {t.bits} bits")
    shape = tuple(t.shape[i] for i in range(t.ndim))
    strides = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else _contiguous(shape)
    return View((t.data or 0) + t.byte_offset, dtype, shape, strides, (capsule, x))


def _contiguous(shape: tuple) -> tuple:
    strides, n = [], 1
    for size in reversed(shape):
        strides.append(n)
        n *= max(size, 1)
    return tuple(reversed(strides))


def view(x: Any) -> View:
    """Of an array: its own memory. Lists and numbers are made float32 arrays first."""
    if not isinstance(x, np.ndarray) and hasattr(x, "__dlpack__"):
        return _of_dlpack(x)
    if not isinstance(x, np.ndarray):
        x = np.asarray(x, np.float32)
    dtype = _NUMPY.get(x.dtype.name)
    if dtype is None or not x.dtype.isnative:
        raise TypeError(f"expected {', '.join(NAMES.values())}; got {x.dtype}")
    size = x.dtype.itemsize
    if any(stride % size for stride in x.strides):
        raise ValueError("expected strides of whole elements")
    return View(x.ctypes.data, dtype, x.shape, tuple(stride // size for stride in x.strides), x)


def source(x: Any) -> View:
    """An array of numbers in high precision."""
    v = view(x)
    if v.dtype not in (F32, BF16, F16):
        raise TypeError(f"expected float32, bfloat16 or float16; got {NAMES[v.dtype]}")
    return v


def codes_of(x: Any, format: int) -> View:
    """An array of codes of a format: uint8, or the format's own type."""
    v = view(x)
    if v.dtype not in (U8, format):
        raise TypeError(f"expected uint8 codes{' or ' + NAMES[format] if format in NAMES else ''}; got {NAMES[v.dtype]}")
    return v


def like(dtype: Optional[Any], default: int = F32) -> tuple:
    """(numpy's dtype, ours) of what an output is to be."""
    if dtype is None:
        return np.dtype(np.float32), default
    name = getattr(dtype, "__name__", None) or str(dtype)
    name = name.rpartition(".")[2]
    if name == "bfloat16":
        import ml_dtypes
        return np.dtype(ml_dtypes.bfloat16), BF16
    if name in ("float32", "float16"):
        return np.dtype(name), _NUMPY[name]
    raise TypeError(f"expected float32, bfloat16 or float16; got {dtype}")
