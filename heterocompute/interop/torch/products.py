"""Products with packed weights: `linear`. Gradients reach x and the bias, the weight is frozen.

A call that nothing observes (no gradient, no compiler, no transform of torch.func) goes to the core at once; others go
through the operators.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

from ...arrays.dense import as_array
from ...arrays.quantized import QuantizedArray
from ...base.values import shown
from ...formats import Format
from ...products.arguments import as_format
from ...products.matmul import linear as product
from .rounding import OPS, check_tensor
from .weights import PackedWeight

__all__ = ["as_core", "is_direct", "linear"]

_n_modes, _top_transform = torch._C._len_torch_dispatch_stack, torch._C._functorch.peek_interpreter_stack
_is_autocast, _autocast_dtype = torch.is_autocast_enabled, torch.get_autocast_dtype


def is_direct(x: Any, bias: Any = None) -> bool:
    """Tell whether a call with this input can go to the core at once."""
    if torch.compiler.is_compiling() or type(x) is not torch.Tensor:
        return False
    if torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad)):
        return False
    return not _n_modes() and _top_transform() is None and forward_ad._current_level < 0 and x.is_cpu


def as_core(t: torch.Tensor) -> Any:
    """Return a tensor as an ndarray that shares its memory."""
    if t.dtype is torch.float32 and not t.requires_grad and not t.is_neg():
        return t.numpy()
    return as_array(t.detach(), "interop.torch: the tensor")


def linear(
    x: Any,
    q: QuantizedArray | PackedWeight,
    bias: Any = None,
    dtype: Any = None,
    activations: Format | str | None = None,
) -> Any:
    """Multiply by a packed weight, x @ q.T + bias; the gradient reaches x and bias, the weight is frozen.

    Parameters
    ----------
    x : torch.Tensor
        (..., in), floats, on the CPU.
    q : QuantizedArray or PackedWeight
        (out, in), quantized along in.
    bias : torch.Tensor, optional
        (out,).
    dtype : torch.dtype, optional
        Of the answer; None is that of x, under autocast that of autocast. The product is float32 and rounded once.
    activations : Format or str, optional
        Round x to this format, row by row. The gradient of x goes straight through. None is that of a PackedWeight.

    Returns
    -------
    torch.Tensor
        (..., out).

    Raises
    ------
    TypeError, ValueError
        As `fake_quantize` and `heterocompute.linear`.
    """
    if isinstance(q, PackedWeight) and activations is None:
        activations = q.activations
    if dtype is not None and not getattr(dtype, "is_floating_point", False):
        raise TypeError(f"linear: dtype is {shown(dtype)}, wanted a torch.dtype of floats")
    if is_direct(x, bias) and x.dtype in OPS.dtypes:
        array = q.array() if isinstance(q, PackedWeight) else q
        if not isinstance(array, QuantizedArray):
            raise TypeError(f"linear: q is {shown(q)}, expected a QuantizedArray of hc.quantize")
        whole = bias is not None and type(bias) in (torch.Tensor, torch.nn.Parameter) and bias.dtype is torch.float32
        inner = bias.detach().numpy() if whole and bias.is_cpu else None
        y = torch.from_numpy(product(as_core(x), array, inner, activations))
        return _finished(y, x, None if inner is not None else bias, dtype)
    check_tensor(x, "linear: x")
    parts, text = (q.parts(), q.text) if isinstance(q, PackedWeight) else OPS.constant_of(q)
    times = OPS.linear if OPS.is_traced() else OPS.eager.linear
    fmt = _text(activations)
    return _finished(times(x, parts, text, fmt), x, bias, dtype)


def _text(activations: Any) -> str:
    """Return the format of activations as an operator takes it."""
    if activations is None or type(activations) is str:
        return activations or ""
    return str(as_format(activations, "linear: activations"))


def _finished(y: torch.Tensor, x: torch.Tensor, bias: Any, dtype: Any) -> torch.Tensor:
    """Return an answer of float32 with the bias, in the dtype that is wanted."""
    if bias is not None:
        check_tensor(bias, "linear: bias")
        if tuple(bias.shape) != tuple(y.shape[-1:]):
            raise ValueError(f"linear: bias has shape {tuple(bias.shape)}, wanted {tuple(y.shape[-1:])}")
        y = y + bias
    if dtype is None:
        dtype = _autocast_dtype("cpu") if _is_autocast("cpu") else x.dtype
    return y if y.dtype is dtype else y.to(dtype)
