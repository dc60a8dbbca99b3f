"""Linear layers and convolutions whose three matmuls use the formats of a recipe.

The rounding is that of `heterocompute.training.step.layer`, on the memory of the tensors.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from ....base.errors import WrongType, WrongValue, shown
from ....formats import Format
from ....training.step.layer import Arrays, LayerState, is_free
from ....training.step.recipe import FP32
from ....training.step.sums import multiplied
from ..rounding import fake_quantize


class TorchArrays(Arrays):
    """The array operations of a step for float32 tensors; those of the CPU are rounded as NumPy arrays."""

    def rounded(self, x: Any, fmt: Format, axis: int | tuple[int, ...], seed: int | None) -> Any:
        """Return the values rounded to a format."""
        if fmt == FP32:
            return x
        if x.device.type == "cpu":
            return torch.from_numpy(super().rounded(x.detach().numpy(), fmt, axis, seed))
        return fake_quantize(x.detach(), fmt, axis, None, "nearest" if seed is None else "stochastic", seed or 0)

    def amax(self, x: Any) -> float:
        """Return the largest magnitude; NaN if there is one."""
        if not x.numel():
            return 0.0
        low, high = torch.aminmax(x)
        return float(torch.maximum(high, -low))

    def scaled(self, x: Any, scale: np.float32) -> Any:
        """Return x / scale; the scale is a tensor, because a device may multiply by 1 / scale otherwise."""
        return x if scale == 1 else x / torch.tensor(scale, device=x.device)

    def restored(self, x: Any, scale: np.float32) -> Any:
        """Return x times scale, in place: x is the result of a rounding."""
        return x if scale == 1 else x.mul_(torch.tensor(scale, device=x.device))

    def turned(self, x: Any, matrix: np.ndarray[Any, Any]) -> Any:
        """Return the rows of x, padded with zeros, multiplied by a matrix, block by block."""
        size = len(matrix)
        padded = functional.pad(x, (0, 0, 0, -len(x) % size)) if len(x) % size else x
        turning = torch.from_numpy(matrix).to(x.device)
        return (turning @ padded.reshape(-1, size, x.shape[1])).reshape(padded.shape)

    def host(self, x: Any) -> np.ndarray[Any, Any]:
        """Return x as a contiguous NumPy array."""
        return np.ascontiguousarray(x.detach().cpu().numpy())

    def back(self, x: np.ndarray[Any, Any], like: Any) -> Any:
        """Return a NumPy array as a tensor on the device of `like`."""
        return torch.from_numpy(x).to(like.device)

    def product(self, a: Any, b: Any) -> Any:
        """Return a @ b in float32."""
        return a @ b


ARRAYS = TorchArrays()
MOST_INDICES = 2**18  # values of the patches of one image whose indices are kept, 1 MiB


class Product(torch.autograd.Function):
    """x w^T of two matrices, or of several, and its two gradients, in the formats of a layer."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, state: LayerState) -> Any:
        operands = state.forward(x, w)
        kept_x, kept_w, ctx.scales = state.kept_for_backward(x, w, operands)
        ctx.state = state
        ctx.save_for_backward(kept_x, kept_w)
        return multiplied(state, operands[0], operands[1].mT, "activations", "weights")

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g: Any) -> Any:
        state, (x, w) = ctx.state, ctx.saved_tensors
        state.begin_backward(ctx.scales)
        dx, dw, rounded_g = None, None, None
        if ctx.needs_input_grad[0]:
            rounded_g, rounded_w = state.input_gradient(g, w)
            dx = multiplied(state, rounded_g, rounded_w, "gradients", "weights")
        if ctx.needs_input_grad[1]:
            last_g, last_x = state.weight_gradient(g, x, rounded_g)
            dw = state.result(multiplied(state, last_g.mT, last_x, "wgrad_gradients", "wgrad_activations"))
        return dx, dw, None


class _Convolution(torch.autograd.Function):
    """A convolution and its gradients, in formats without groups: operands are rounded before they are unfolded."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, state: LayerState, window: Any) -> Any:
        operands = state.forward(x, w)
        kept_x, kept_w, ctx.scales = state.kept_for_backward(x, w, operands)
        ctx.state, ctx.window = state, window
        ctx.save_for_backward(kept_x, kept_w)
        return torch.convolution(*operands, None, *window[:3], False, [0] * (x.dim() - 2), window[3])

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g: Any) -> Any:
        state, (x, w) = ctx.state, ctx.saved_tensors
        state.begin_backward(ctx.scales)
        dx, dw, rounded_g = None, None, None
        wants = ctx.needs_input_grad

        def gradients(g: Any, x: Any, w: Any, mask: list[bool]) -> Any:
            window = (*ctx.window[:3], False, [0] * (x.dim() - 2), ctx.window[3])
            return torch.ops.aten.convolution_backward(g, x, w, None, *window, mask)

        if wants[0]:
            rounded_g, w = state.input_gradient(g, w)
        last_g, last_x = state.weight_gradient(g, x, rounded_g) if wants[1] else (None, None)
        if wants[0] and wants[1] and last_g is rounded_g:
            dx, dw, _ = gradients(rounded_g, last_x, w, [True, True, False])
        else:
            dx = gradients(rounded_g, x, w, [True, False, False])[0] if wants[0] else None
            dw = gradients(last_g, last_x, w, [False, True, False])[1] if wants[1] else None
        if dw is not None:
            dw = state.result(dw.flatten(1)).reshape(dw.shape)
        return dx, dw, None, None


class _PatchProduct(torch.autograd.Function):
    """A convolution and its gradients as matmuls of patches, whose values are in the order channel, row, column."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, state: LayerState, window: Any) -> Any:
        stride, padding, dilation = window
        image = functional.pad(x, (padding[1], padding[1], padding[0], padding[0]))
        rows, count = _patches(image, tuple(w.shape[2:]), stride, dilation)
        filters = w.flatten(1)
        operands = state.forward(rows, filters)
        kept_rows, kept_w, ctx.scales = state.kept_for_backward(rows, filters, operands)
        ctx.state, ctx.window, ctx.shapes = state, window, (x.shape, image.shape, w.shape)
        ctx.save_for_backward(kept_rows, kept_w)
        y = multiplied(state, operands[0], operands[1].mT, "activations", "weights")
        return y.reshape(len(x), *count, len(w)).permute(0, 3, 1, 2)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g: Any) -> Any:
        state, (rows, w) = ctx.state, ctx.saved_tensors
        state.begin_backward(ctx.scales)
        dx, dw, rounded_g = None, None, None
        shape, padded, filters = ctx.shapes
        slopes = g.permute(0, 2, 3, 1).reshape(-1, g.shape[1])
        if ctx.needs_input_grad[0]:
            rounded_g, rounded_w = state.input_gradient(slopes, w)
            turned = rounded_w.reshape(*filters[:2], -1).mT.reshape(filters[0], -1)  # channels last
            each = multiplied(state, rounded_g, turned, "gradients", "weights")
            each = each.reshape(len(g), *g.shape[2:], *filters[2:], filters[1])
            dx = _folded(each, shape, padded, ctx.window)
        if ctx.needs_input_grad[1]:
            last_g, last_x = state.weight_gradient(slopes, rows, rounded_g)
            dw = state.result(multiplied(state, last_g.mT, last_x, "wgrad_gradients", "wgrad_activations"))
            dw = dw.reshape(filters)
        return dx, dw, None, None


def _folded(each: Any, shape: Any, padded: Any, window: Any) -> Any:
    """Return the sums of patches (image, y, x, row, column, channel) at their positions in the images."""
    (down, across), (top, left), (steps, strides) = window
    height, width = each.shape[1:3]
    found = each.new_zeros(padded[0], *padded[2:], padded[1])
    for row in range(each.shape[3]):
        rows = slice(row * steps, row * steps + (height - 1) * down + 1, down)
        for column in range(each.shape[4]):
            columns = slice(column * strides, column * strides + (width - 1) * across + 1, across)
            found[:, rows, columns] += each[:, :, :, row, column]
    return found[:, top : top + shape[2], left : left + shape[3]].permute(0, 3, 1, 2)


def _patches(x: Any, size: Any, stride: Any, dilation: Any) -> tuple[Any, tuple[int, int]]:
    """Return the patches of padded images as rows, and the number of rows and columns of patches."""
    height, width = ((n - d * (k - 1) - 1) // s + 1
                     for n, k, s, d in zip(x.shape[2:], size, stride, dilation, strict=True))  # fmt: skip
    values = height * width * size[0] * size[1] * x.shape[1]
    if x.device.type == "cpu" and len(x) and 0 < values <= MOST_INDICES:
        is_last = not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
        index = _indices(tuple(x.shape[1:]), size, stride, dilation, (height, width), is_last)
        rows = (x.permute(0, 2, 3, 1) if is_last else x).reshape(len(x), -1).index_select(1, index)
    else:
        rows = functional.unfold(x, size, dilation, 0, stride).mT
    return rows.reshape(-1, x.shape[1] * size[0] * size[1]), (height, width)


@lru_cache(maxsize=64)
def _indices(
    shape: tuple[int, ...], size: Any, stride: Any, dilation: Any, count: tuple[int, int], is_last: bool
) -> Any:
    """Return the index of each value of the patches in one image: four times as fast as `unfold`."""
    channels, height, width = shape
    places = torch.arange(math.prod(shape), dtype=torch.int32, device="cpu")
    one, down, across = (1, width * channels, channels) if is_last else (height * width, width, 1)
    steps = down * stride[0], across * stride[1], one, down * dilation[0], across * dilation[1]
    return places.as_strided((*count, channels, *size), steps).reshape(-1)


def check_input(name: str, x: Any) -> None:
    """Refuse values that are not float32, and autocast.

    Raises
    ------
    TypeError, ValueError
    """
    if torch.is_autocast_enabled(x.device.type):
        raise WrongValue(
            f"train_in: layer {shown(name)} runs inside of torch.autocast, expected float32: a recipe has formats"
        )
    if x.dtype != torch.float32:
        raise WrongType(f"train_in: layer {shown(name)} receives {x.dtype}, expected torch.float32")


def _run(module: Any, x: Any) -> Any:
    """Run a layer, in code that torch.compile does not trace."""
    state = module.recipe_state
    check_input(state.name, x)
    state.training = module.training
    with torch._C.DisableTorchFunction():  # no call inside is one that the mode of `attention` replaces
        return module.multiplied(x)


# Functions that torch.compile does not trace. `train_in` excludes them, which takes an import of seconds.
CALLED: dict[str, Any] = {"run": _run}


@cache
def exclude_from_compiling() -> None:
    """Exclude the functions of `CALLED` from torch.compile, once in a process."""
    for name, function in CALLED.items():
        CALLED[name] = torch.compiler.disable(function)


class RecipeLayer:
    """Base of the layers of a recipe: one call, and the state in `state_dict`."""

    recipe_state: LayerState

    def forward(self, x: Any) -> Any:
        return CALLED["run"](self, x)

    def get_extra_state(self) -> dict[str, Any]:
        return self.recipe_state.state()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.recipe_state.restore(state)


class RecipeLinear(RecipeLayer, torch.nn.Linear):
    """A `torch.nn.Linear` in the formats of a recipe. `train_in` makes it.

    Attributes
    ----------
    recipe_state : LayerState
        Formats, scales and step of the layer.
    """

    def multiplied(self, x: Any) -> Any:
        """Return x w^T + bias."""
        y = Product.apply(x.reshape(-1, x.shape[-1]), self.weight, self.recipe_state)
        y = y if self.bias is None else y + self.bias
        return y.reshape(*x.shape[:-1], y.shape[-1])


class _RecipeConvolution(RecipeLayer):
    weight: Any
    bias: Any
    stride: tuple[int, ...]
    padding: Any
    dilation: tuple[int, ...]
    groups: int
    out_channels: int

    def multiplied(self, x: Any) -> Any:
        """Return the convolution of x with the filters, plus bias."""
        ndim = self.weight.dim() - 2
        channels = self.weight.shape[1] * self.groups
        if not isinstance(x, torch.Tensor) or x.dim() not in (ndim + 1, ndim + 2) or x.shape[-ndim - 1] != channels:
            given = f"has shape {tuple(x.shape)}" if isinstance(x, torch.Tensor) else f"is a {type(x).__name__}"
            sizes = "length" if ndim == 1 else "height, width"
            raise WrongValue(
                f"train_in: the input of layer {shown(self.recipe_state.name)} {given}, expected a tensor (images, "
                f"{channels}, {sizes})"
            )
        if x.dim() == ndim + 1:
            return self.multiplied(x.unsqueeze(0)).squeeze(0)
        padding = (0,) * ndim if self.padding == "valid" else tuple(self.padding)
        if all(is_free(fmt) for fmt in self.recipe_state.formats.values()) and self.recipe_state.is_direct:
            window = self.stride, padding, self.dilation, self.groups
            y = _Convolution.apply(x, self.weight, self.recipe_state, window)
        else:
            y = self._of_patches(x, padding)
        return y if self.bias is None else y + self.bias.reshape(-1, *(1,) * ndim)

    def _of_patches(self, x: Any, padding: tuple[int, ...]) -> Any:
        """Return the convolution as a matmul of patches."""
        one = self.weight.dim() == 3
        image, filters = (x.unsqueeze(2), self.weight.unsqueeze(2)) if one else (x, self.weight)
        stride, padding, dilation = (
            (first, *given) if one else given for first, given in ((1, self.stride), (0, padding), (1, self.dilation))
        )
        parts = [
            _PatchProduct.apply(part, each, self.recipe_state, (stride, padding, dilation))
            for part, each in zip(image.chunk(self.groups, 1), filters.chunk(self.groups), strict=True)
        ]
        y = torch.cat(parts, 1) if self.groups > 1 else parts[0]
        return y.squeeze(2) if one else y


class RecipeConv1d(_RecipeConvolution, torch.nn.Conv1d):
    """A `torch.nn.Conv1d` in the formats of a recipe. `train_in` makes it.

    Attributes
    ----------
    recipe_state : LayerState
        Formats, scales and step of the layer.
    """


class RecipeConv2d(_RecipeConvolution, torch.nn.Conv2d):
    """A `torch.nn.Conv2d` in the formats of a recipe. `train_in` makes it.

    Attributes
    ----------
    recipe_state : LayerState
        Formats, scales and step of the layer.
    """
