"""Linear layers and convolutions whose three matmuls use the formats of a recipe.

The rounding is that of `heterocompute.training.step.layer`, on the memory of the tensors.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from ....base.errors import WrongType, WrongValue, shown
from ....formats import Format, is_function
from ....training.step.layer import Arrays, LayerState
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
        padded = functional.pad(x, (0, 0, 0, -len(x) % size))
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
        if x.dim() == ndim + 1:
            return self.multiplied(x.unsqueeze(0)).squeeze(0)
        padding = (0,) * ndim if self.padding == "valid" else tuple(self.padding)
        if all(_is_free(fmt) for fmt in self.recipe_state.formats.values()) and self.recipe_state.is_direct:
            window = self.stride, padding, self.dilation, self.groups
            y = _Convolution.apply(x, self.weight, self.recipe_state, window)
        else:
            y = self._of_patches(x, padding)
        return y if self.bias is None else y + self.bias.reshape(-1, *(1,) * ndim)

    def _of_patches(self, x: Any, padding: tuple[int, ...]) -> Any:
        """Return the convolution as a matmul of patches, whose values are in the order channel, row, column."""
        one = self.weight.dim() == 3
        image = x.unsqueeze(2) if one else x
        size, stride, dilation, padding = (
            (first, *given) if one else given
            for given, first in (
                (tuple(self.weight.shape[2:]), 1), (self.stride, 1), (self.dilation, 1), (padding, 0),
            )
        )  # fmt: skip
        height, width = (
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip(image.shape[2:], padding, dilation, size, stride, strict=True)
        )
        rows = functional.unfold(image, size, dilation, padding, stride).transpose(1, 2)
        each = rows.shape[2] // self.groups
        filters = self.weight.flatten(1).chunk(self.groups)
        parts = [
            Product.apply(rows[..., i * each : (i + 1) * each].reshape(-1, each), part, self.recipe_state)
            for i, part in enumerate(filters)
        ]
        y = torch.cat(parts, 1) if self.groups > 1 else parts[0]
        y = y.reshape(len(x), height, width, -1).permute(0, 3, 1, 2)
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


def _is_free(fmt: Format) -> bool:
    return not is_function(fmt) and fmt.form.any_axis
