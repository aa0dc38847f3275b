"""liboctet through ctypes: its structs, its enumerators, one wrapper that turns a status into an exception.

ctypes releases the interpreter's lock during a call.
"""
from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

F32, BF16, E4M3, E5M2, HIF8, E8M0, F64, F16 = range(8)  # oct_dtype
FORMATS = {"e4m3": E4M3, "e5m2": E5M2, "hif8": HIF8, "e8m0": E8M0}
FORMAT_NAMES = {number: name for name, number in FORMATS.items()}
ROUNDINGS = {"own": 0, "even": 1, "away": 2, "hybrid": 3, "stochastic": 4}
SCALE_MODES = {"floor": 0, "ceil": 1, "even": 2, "rceil": 3}
USES = {"input": 0, "weight": 1, "gradient": 2, "expert_input": 4, "expert_weight": 5, "expert_gradient": 6}
PRODUCTS = {"auto": 0, "exact": 1, "fast": 2}


class Sized(Structure):
    """A struct that begins with its size."""

    def __init__(self, **fields):
        super().__init__(ctypes.sizeof(type(self)), **fields)


class Codec(Sized):
    _fields_ = [("struct_size", c_size_t), ("format", c_int), ("rounding", c_int), ("overflow", c_int), ("seed", c_uint64),
                ("counter", c_uint64)]


class Matrix(Sized):
    _fields_ = [("struct_size", c_size_t), ("dtype", c_int), ("data", c_void_p), ("rows", c_int64), ("cols", c_int64),
                ("row_stride", c_int64), ("col_stride", c_int64)]


class Quantizer(Sized):
    _fields_ = [("struct_size", c_size_t), ("format", c_int), ("scale_dtype", c_int), ("block_rows", c_int64), ("block_cols", c_int64),
                ("scale_mode", c_int), ("target", c_float), ("source", c_int), ("rounding", c_int), ("quirks", c_uint32),
                ("seed", c_uint64), ("counter", c_uint64)]


class Coded(Sized):
    _fields_ = [("struct_size", c_size_t), ("format", c_int), ("rows", c_int64), ("cols", c_int64), ("codes", c_void_p),
                ("row_stride", c_int64), ("col_stride", c_int64), ("scale_dtype", c_int), ("block_rows", c_int64), ("block_cols", c_int64),
                ("scales", c_void_p), ("scale_row_stride", c_int64), ("scale_col_stride", c_int64)]


class Statistics(Sized):
    _fields_ = [("struct_size", c_size_t), ("n", c_int64), ("n_special", c_int64), ("n_zero", c_int64), ("n_underflow", c_int64),
                ("n_saturated", c_int64), ("signal", c_double), ("noise", c_double), ("sqnr_db", c_double), ("max_error", c_double)]


class Product(Sized):
    _fields_ = [("struct_size", c_size_t), ("a", POINTER(Coded)), ("b", POINTER(Coded)), ("c", c_void_p), ("c_dtype", c_int),
                ("ld_c", c_int64), ("accumulate", c_int), ("bias", c_void_p)]


class Error(Structure):
    _fields_ = [("status", c_int), ("message", c_char * 1024)]


def _load() -> ctypes.CDLL:
    """The library in this package, or the one that OCTET_LIBRARY names."""
    path = os.environ.get("OCTET_LIBRARY") or pathlib.Path(__file__).with_name("_octet.so")
    lib = ctypes.CDLL(str(path))
    status = c_int
    signatures = {
        "oct_api_version": (c_int, []),
        "oct_version": (c_char_p, []),
        "oct_rules_name": (c_char_p, [c_int]),
        "oct_threads": (c_int, []),
        "oct_threads_set": (None, [c_int]),
        "oct_encode_array": (status, [POINTER(Codec), c_void_p, c_int, c_int64, c_void_p, c_int]),
        "oct_decode_array": (status, [c_int, c_void_p, c_int64, c_void_p, c_int, c_int]),
        "oct_quantizer_preset": (status, [c_char_p, c_char_p, c_int, c_int, POINTER(Quantizer), POINTER(Error)]),
        "oct_quantizer_scales": (status, [POINTER(Quantizer), c_int64, c_int64, POINTER(c_int64), POINTER(c_int64)]),
        "oct_matrix_quantize": (status, [POINTER(Quantizer), POINTER(Matrix), POINTER(Coded), c_int]),
        "oct_matrix_dequantize": (status, [POINTER(Coded), POINTER(Matrix), c_int]),
        "oct_matrix_measure": (status, [POINTER(Matrix), POINTER(Coded), POINTER(Statistics), c_int]),
        "oct_multiply": (status, [POINTER(Product), c_int64, c_int, c_int]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    if lib.oct_api_version() != 1:
        raise ImportError(f"{path}: expected API 1 of liboctet; got {lib.oct_api_version()}")
    return lib


lib = _load()


def check(status: int, what: str) -> None:
    """Raises what a status that isn't OCT_OK means."""
    if status == 3:
        raise MemoryError(what)
    if status:
        raise ValueError(what)


def preset(recipe: str, rules: str, use: str, axis: int) -> Quantizer:
    quantizer, error = Quantizer(), Error()
    status = lib.oct_quantizer_preset(recipe.encode(), rules.encode(), named(use, USES, "use"), axis, byref(quantizer), byref(error))
    check(status, error.message.decode())
    return quantizer


def named(name: str, names: dict, what: str) -> int:
    """The number of a name, whatever its case."""
    number = names.get(str(name).lower())
    if number is None:
        raise ValueError(f"{what} {name!r}: expected {', '.join(names)}")
    return number
