"""octet: the 8-bit floating-point formats of training, to the bit (docs/python.md)."""
from . import conformance
from ._library import lib as _lib
from .core import (Quantized, Statistics, decode, dequantize, encode, matmul, quantize, rules, set_threads, stats, threads, vectors)
from .program import compare, plan, train


def __getattr__(name: str):
    """octet.torch, which needs PyTorch, when it is asked for."""
    if name == "torch":
        import importlib
        return importlib.import_module(".torch", __name__)
    raise AttributeError(f"module 'octet' has no attribute {name!r}")


__version__: str = _lib.oct_version().decode()
__all__ = ["Quantized", "Statistics", "compare", "conformance", "decode", "dequantize", "encode", "matmul", "plan", "quantize", "rules",
           "set_threads", "stats", "threads", "train", "vectors"]
