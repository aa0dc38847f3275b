"""Layers for PyTorch that train in 8 bits by octet's quantizers and products, on the CPU.

    import octet.torch
    octet.torch.convert(model, "hif8")          # or "mxfp8", ...; rules="torchtitan-npu"

As octet's own linears (docs/numerics.md): y = Q_K(x) Q_K(W)^T + b, dX = Q_N(dY) Q_N(W), dW = Q_T(dY)^T Q_T(x), where Q_k is quantized
along dimension k. Weights stay as they are, in the dtype that they have; for the backward pass Q_T(x) is kept, a byte an element.
"""
from __future__ import annotations

from typing import Any, Optional, Sequence

import torch

from . import core

__all__ = ["Linear", "convert", "linear"]


def _product(a: Any, b: Any, mode: str, dtype: torch.dtype, bias: Any = None) -> torch.Tensor:
    """In the dtype of what it belongs to; float16 by way of float32."""
    wide = dtype if dtype in (torch.float32, torch.bfloat16) else torch.float32
    out = torch.empty(a.shape[0], b.shape[1], dtype=wide)
    core.matmul(a, b, mode=mode, bias=bias, out=out)
    return out.to(dtype)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor], recipe: str, rules: str,
                mode: str) -> torch.Tensor:
        rows = x.detach().reshape(-1, x.shape[-1])
        w = weight.detach()
        y = _product(core.quantize(rows, recipe, 1, rules, "input"), core.quantize(w, recipe, 1, rules, "weight").T, mode, x.dtype,
                     None if bias is None else bias.detach().float().numpy())
        ctx.save_for_backward(weight)
        ctx.along_rows = core.quantize(rows, recipe, 0, rules, "input") if ctx.needs_input_grad[1] else None
        ctx.options = recipe, rules, mode, x.shape, x.dtype
        return y.reshape(*x.shape[:-1], weight.shape[0])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple:
        (weight,), (recipe, rules, mode, shape, dtype) = ctx.saved_tensors, ctx.options
        dy = gradients[0].detach().reshape(-1, weight.shape[0]).contiguous()
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            w = core.quantize(weight.detach(), recipe, 0, rules, "weight")
            dx = _product(core.quantize(dy, recipe, 1, rules, "gradient"), w, mode, dtype).reshape(shape)
        if ctx.needs_input_grad[1]:
            dw = _product(core.quantize(dy, recipe, 0, rules, "gradient").T, ctx.along_rows, mode, weight.dtype)
        if ctx.needs_input_grad[2]:
            db = dy.sum(0)
        return dx, dw, db, None, None, None


def linear(x: torch.Tensor, weight: torch.Tensor, bias: Optional[torch.Tensor] = None, recipe: str = "mxfp8", rules: str = "octet",
           mode: str = "auto") -> torch.Tensor:
    """x (..., K), weight (N, K), bias (N) -> (..., N), differentiable; mode as in octet.matmul."""
    return _Linear.apply(x, weight, bias, recipe, rules, mode)


class Linear(torch.nn.Linear):
    """torch.nn.Linear in 8 bits."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, recipe: str = "mxfp8", rules: str = "octet",
                 mode: str = "auto", **kwargs: Any) -> None:
        super().__init__(in_features, out_features, bias, **kwargs)
        self.recipe, self.rules, self.mode = recipe, rules, mode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.weight, self.bias, self.recipe, self.rules, self.mode)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, recipe={self.recipe}, rules={self.rules}"


def convert(model: torch.nn.Module, recipe: str = "mxfp8", rules: str = "octet", mode: str = "auto",
            filter_fqns: Sequence[str] = ("output", "lm_head")) -> torch.nn.Module:
    """Each torch.nn.Linear becomes one in 8 bits, in place, with the same parameters, but those whose name contains one of filter_fqns."""
    core.quantize(torch.zeros(1, 32), recipe, 1, rules)  # what isn't known is said before anything is changed
    for name, module in list(model.named_modules()):
        if type(module) is not torch.nn.Linear or any(pattern in name for pattern in filter_fqns):
            continue
        made = Linear(module.in_features, module.out_features, module.bias is not None, recipe, rules, mode, device="meta")
        made.weight, made.bias, made.training = module.weight, module.bias, module.training
        parent, _, own = name.rpartition(".")
        if not name:
            raise ValueError("the model itself is a torch.nn.Linear: take octet.torch.Linear")
        setattr(model.get_submodule(parent), own, made)
    return model
