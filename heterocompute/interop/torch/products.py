"""Products with packed weights. Gradients reach x and the bias, the weight is frozen.

A call that nothing observes (no gradient, no compiler, no transform of torch.func) goes to the core at once; others go
through the operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch

from ...arrays.dense import as_array
from ...arrays.quantized import QuantizedArray
from ...base.devices import is_far
from ...base.errors import WrongType, WrongValue, shown
from ...formats import Format
from ...formats.defining import carried
from ...products.arguments import as_format
from ...products.conv import conv2d as core_conv2d
from ...products.matmul import linear as core_linear
from .operators import PLAIN, is_plain, is_unobserved, rows_of
from .rounding import OPS, check_tensor
from .weights import PRODUCTS, PackedPart, PackedWeight

_is_autocast, _autocast_dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
_has_gradients, _is_tracing = torch.is_grad_enabled, torch._C._is_tracing


def is_direct(x: Any) -> bool:
    """Return True if a call with this input can use the core directly."""
    return is_unobserved(x) and bool(x.is_cpu)


def as_core(t: torch.Tensor) -> Any:
    """Return a tensor as an ndarray that shares its memory."""
    if t.dtype is torch.float32 and not t.requires_grad and not t.is_neg():
        return t.numpy()
    return as_array(t.detach(), "interop.torch: the tensor")


def linear(
    x: Any,
    q: QuantizedArray | PackedWeight,
    bias: object = None,
    dtype: Any = None,
    activations: Format | str | None = None,
) -> Any:
    """Apply a packed linear layer, ``x @ q.T + bias``. The gradient reaches x and bias; the weight is frozen.

    Parameters
    ----------
    x : torch.Tensor
        Floats of shape (..., in), on the CPU or on the device of a PackedWeight.
    q : QuantizedArray or PackedWeight
        Shape (out, in), quantized along in.
    bias : torch.Tensor, optional
        Shape (out,).
    dtype : torch.dtype, optional
        Dtype of the result. Default: that of x, or of autocast if it is active. The matmul is float32, rounded once.
    activations : Format or str, optional
        Round x to this format, per row. The gradient of x passes straight through. Default: the format of the
        PackedWeight.

    Returns
    -------
    torch.Tensor
        Shape (..., out).

    Raises
    ------
    TypeError, ValueError
        As in `fake_quantize` and `heterocompute.linear`.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> q = hc.quantize(np.ones((3, 32), np.float32), "vsq4-g16-s4")
    >>> linear(torch.ones(2, 32), q, activations="int8").tolist()
    [[32.0, 32.0, 32.0], [32.0, 32.0, 32.0]]
    """
    activations = _activations(q, activations)
    if dtype is not None and not getattr(dtype, "is_floating_point", False):
        raise WrongType(f"linear: dtype is {shown(dtype)}, expected a torch.dtype of floats")
    is_free = is_unobserved(x)
    if is_free and x.is_cpu and x.dtype in OPS.dtypes:
        inner = _inner(bias)
        y = torch.from_numpy(core_linear(as_core(x), _array(q, "linear"), inner, activations))
        return _finished(y, x, bias if inner is None else None, "linear", dtype)
    check_tensor(x, "linear: x")
    if is_free and is_far(x):
        y = OPS.raw["linear"](x, *_constant(q), _text(activations, "linear"))
        return _finished(y, x, bias, "linear", dtype)
    times = OPS.linear if OPS.is_traced() or _is_tracing() else OPS.eager.linear
    return _finished(times(x, *_constant(q), _text(activations, "linear")), x, bias, "linear", dtype)


def conv2d(
    x: Any,
    q: QuantizedArray | PackedWeight,
    bias: object = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    activations: Format | str | None = None,
) -> Any:
    """Convolve images with packed filters. The gradient reaches x and bias; the filters are frozen.

    Parameters
    ----------
    x : torch.Tensor
        Floats of shape (N, C, H, W) or (C, H, W), on the CPU or on the device of a PackedWeight.
    q : QuantizedArray or PackedWeight
        Shape (K, C / groups, R, S), quantized with ``axis=(2, 3, 1)``.
    bias : torch.Tensor, optional
        Shape (K,).
    stride, padding, dilation : int or pair of int
    groups : int
    activations : Format or str, optional
        Round x to this format, per image. Default: the format of the PackedWeight.

    Returns
    -------
    torch.Tensor
        Shape (N, K, P, Q) or (K, P, Q), in the dtype of x, or of autocast if it is active.

    Raises
    ------
    TypeError, ValueError
        As in `fake_quantize` and `heterocompute.conv2d`.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> q = hc.quantize(np.ones((1, 16, 1, 1), np.float32), "int8", axis=(2, 3, 1))
    >>> conv2d(torch.ones(1, 16, 2, 2), q).tolist()
    [[[[16.0, 16.0], [16.0, 16.0]]]]
    """
    check_tensor(x, "conv2d: x")
    if len(q.shape) != 4 or x.dim() not in (3, 4):
        raise WrongValue(
            f"conv2d: x has shape {tuple(x.shape)} and q {tuple(q.shape)}, expected (N, C, H, W) and (K, C, R, S)"
        )
    window = _pair(stride), _pair(padding), _pair(dilation)
    return convolve(x, q, bias, tuple(q.shape[2:]), *window, groups, activations)


def convolve(
    x: torch.Tensor,
    q: QuantizedArray | PackedWeight,
    bias: object,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    activations: object = None,
) -> Any:
    """Convolve like `conv2d`, with windows of 1, 2 or 3 dimensions and an optional batch.

    q is (K, C / groups, 1, S) for one dimension, (K, C / groups, T R S, 1) for three: 3-D windows are stored as
    images with one window each.
    """
    n, name = len(kernel), f"conv{len(kernel)}d"
    check_tensor(x, f"{name}: x")
    if x.dim() == n + 1:
        return convolve(x[None], q, bias, kernel, stride, padding, dilation, groups, activations)[0]
    if x.dim() != n + 2:
        raise WrongValue(f"{name}: x has shape {tuple(x.shape)}, expected {n + 2} dimensions, or {n + 1} of one image")
    if n == 1:
        y = _images(x[:, :, None], q, None, (1, *stride), (0, *padding), (1, *dilation), groups, activations)
        return _finished(y[:, :, 0], x, bias, name, None)
    if n == 3:
        windows, sizes = unfolded(x, kernel, stride, padding, dilation)
        y = _images(windows, q, None, (1, 1), (0, 0), (1, 1), groups, activations)
        return _finished(y.reshape(x.shape[0], *sizes, q.shape[0]).movedim(-1, 1), x, bias, name, None)
    inner = _inner(bias) if is_direct(x) else None
    y = _images(x, q, inner, stride, padding, dilation, groups, activations)
    return _finished(y, x, bias if inner is None else None, name, None)


def _images(
    x: Any, q: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int, activations: Any
) -> torch.Tensor:
    """Return the float32 result for two dimensions; `bias` is only for direct calls."""
    activations = _activations(q, activations)
    if is_direct(x):
        window = _int(stride), _int(padding), _int(dilation)
        return torch.from_numpy(core_conv2d(as_core(x), _array(q, "conv2d"), bias, *window, groups, activations))
    times = OPS.conv2d if OPS.is_traced() or _is_tracing() else OPS.eager.conv2d
    numbers = [*stride, *padding, *dilation, groups]
    y: torch.Tensor = times(x, *_constant(q), numbers, _text(activations, "conv2d"))
    return y


def unfolded(
    x: torch.Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> tuple[torch.Tensor, list[int]]:
    """Return the windows of volumes, (N, C, D, H, W) -> (N P Q R, C, taps, 1), and P, Q, R."""
    x = torch.nn.functional.pad(x, [one for pad in reversed(padding) for one in (pad, pad)])
    sizes = [  # 0 for volumes that are smaller than a window
        max((size - step * (taps - 1) - 1) // along + 1, 0)
        for size, taps, along, step in zip(x.shape[2:], kernel, stride, dilation, strict=True)
    ]
    if not min(sizes):
        return x.new_zeros((0, x.shape[1], math.prod(kernel), 1)), sizes
    found = []
    for taps in product(*map(range, kernel)):
        index = [
            slice(tap * step, tap * step + along * (n - 1) + 1, along)
            for tap, step, along, n in zip(taps, dilation, stride, sizes, strict=True)
        ]
        found.append(x[:, :, index[0], index[1], index[2]])
    windows = torch.stack(found, 1).permute(0, 3, 4, 5, 2, 1)  # N, P, Q, R, C, taps
    return windows.reshape(-1, x.shape[1], len(found), 1), sizes


def embedding(ids: torch.Tensor, q: QuantizedArray | PackedWeight, dtype: object = None) -> torch.Tensor:
    """Return rows of a packed table, decoded as they are looked up.

    Parameters
    ----------
    ids : torch.Tensor
        Integers of any shape, on the CPU.
    q : QuantizedArray or PackedWeight
        (rows, length), quantized along the rows' length.
    dtype : torch.dtype, optional
        Of the answer; None is float32.

    Returns
    -------
    torch.Tensor
        (..., length).

    Raises
    ------
    IndexError
        A row that there is not.
    TypeError
        No integers.
    """
    if not isinstance(ids, torch.Tensor) or ids.dtype not in (torch.int64, torch.int32):
        raise WrongType(f"embedding: x is {_kind(ids)}, expected a torch.Tensor of int64 or int32")
    if not torch.compiler.is_compiling() and is_plain(ids) and ids.is_cpu and not _is_tracing():
        y = torch.from_numpy(rows_of(_array(q, "embedding"), ids.numpy()))
    else:
        y = OPS.rows(ids, *_constant(q))
    return y if dtype is None or y.dtype is dtype else y.to(dtype)


def _kind(value: object) -> str:
    return f"a torch.Tensor of {value.dtype}" if isinstance(value, torch.Tensor) else shown(value)


def _int(pair: Sequence[int]) -> Any:
    """Return a pair of equal numbers as one int, so that `conv2d` recognizes the window."""
    return pair[0] if pair[0] == pair[1] else tuple(pair)


def _pair(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


def _activations(q: object, activations: object) -> Any:
    return q.activations if activations is None and isinstance(q, (PackedWeight, PackedPart)) else activations


def _array(q: object, name: str) -> QuantizedArray:
    array = q if isinstance(q, QuantizedArray) else q.array() if isinstance(q, (PackedWeight, PackedPart)) else None
    if array is None:
        raise WrongType(f"{name}: q is {shown(q)}, expected a QuantizedArray of hc.quantize")
    return array


def _constant(q: object) -> tuple[list[torch.Tensor], str]:
    """Return a packed weight as the argument of an operator."""
    if isinstance(q, PackedWeight):
        return q.operands(), q.text
    if isinstance(q, PackedPart):
        return q.constant()
    found: tuple[list[torch.Tensor], str] = OPS.constant_of(q)
    return found


def _text(activations: object, name: str) -> str:
    """Return the format of activations as the argument of an operator."""
    if activations is None or type(activations) is str:
        return activations or ""
    return carried(as_format(activations, f"{name}: activations"))


def _inner(bias: Any) -> Any:
    """Return a bias that the core can add, otherwise None: PyTorch adds a bias that has a gradient."""
    if bias is None or type(bias) not in PLAIN or bias.dtype is not torch.float32 or not bias.is_cpu:
        return None
    return None if bias.requires_grad and _has_gradients() else bias.detach().numpy()


def _finished(y: torch.Tensor, x: torch.Tensor, bias: Any, name: str, dtype: object) -> torch.Tensor:
    """Return a float32 result with the bias added, in the requested dtype."""
    if bias is not None:
        check_tensor(bias, f"{name}: bias")
        dim = -1 if name == "linear" else 1
        if tuple(bias.shape) != (y.shape[dim],):
            raise WrongValue(f"{name}: bias has shape {tuple(bias.shape)}, expected {(y.shape[dim],)}")
        y = y + (bias if dim < 0 else bias.reshape(-1, *[1] * (y.dim() - 2)))
    if dtype is None:
        kind = x.device.type
        dtype = _autocast_dtype(kind) if kind != "meta" and _is_autocast(kind) else x.dtype
    return y if y.dtype is dtype else y.to(dtype)


def _linear_as_called(input: Any, weight: Any, bias: Any = None) -> Any:
    return linear(input, weight, bias)


def _embedding_as_called(
    input: Any, weight: Any, padding_idx: object = None, max_norm: object = None, *_: object, **_more: object
) -> Any:
    if max_norm is not None:
        raise WrongType("embedding: max_norm changes the rows of a table, expected None with a packed weight")
    return embedding(input, weight, weight.dtype)


def _conv2d_as_called(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    if isinstance(padding, str):
        raise WrongType(f"conv2d: padding is {shown(padding)}, expected numbers with a packed weight")
    return conv2d(input, weight, bias, stride, padding, dilation, groups)


PRODUCTS[torch.nn.functional.linear] = _linear_as_called
PRODUCTS[torch.nn.functional.conv2d] = _conv2d_as_called
PRODUCTS[torch.nn.functional.embedding] = _embedding_as_called
