"""`train_in`: linear layers and convolutions whose three matmuls use the formats of a recipe.

The classes of the layers change in place, so that parameters, names and hooks stay. The rounding is that of
`heterocompute.training.step.layer`, on the memory of the tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.nn.utils.parametrize import is_parametrized

from ....base.errors import WrongType, WrongValue, shown
from ....formats import Format, is_function
from ....training.step.layer import Arrays, LayerState
from ....training.step.named import as_recipe
from ....training.step.recipe import FP32, Recipe
from ....training.step.sums import multiplied
from ..rounding import fake_quantize
from ..walk import check_matches, every_layer

# Modules that multiply by matrices without being layers that the recipe knows.
OPAQUE = (
    torch.nn.MultiheadAttention, torch.nn.RNNBase, torch.nn.RNNCellBase, torch.nn.Bilinear, torch.nn.Conv3d,
    torch.nn.modules.conv._ConvTransposeNd,
)  # fmt: skip


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


class _Linear(torch.autograd.Function):
    """x w^T of two matrices, and its two gradients, in the formats of a layer."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, state: LayerState) -> Any:
        operands = state.forward(x, w)
        kept_x, kept_w, ctx.scales = state.kept_for_backward(x, w, operands)
        ctx.state = state
        ctx.save_for_backward(kept_x, kept_w)
        return multiplied(state, operands[0], operands[1].t(), "activations", "weights")

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
            dw = state.result(multiplied(state, last_g.t(), last_x, "wgrad_gradients", "wgrad_activations"))
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


def _run(module: Any, x: Any) -> Any:
    """Run a layer, in code that torch.compile does not trace."""
    state = module.recipe_state
    if torch.is_autocast_enabled(x.device.type):
        raise WrongValue(
            f"train_in: layer {shown(state.name)} runs inside of torch.autocast, expected float32: a recipe has formats"
        )
    if x.dtype != torch.float32:
        raise WrongType(f"train_in: layer {shown(state.name)} receives {x.dtype}, expected torch.float32")
    state.training = module.training
    return module.multiplied(x)


CALLED: dict[str, Any] = {"run": _run}  # train_in excludes it from torch.compile, which takes an import of seconds


class _Layer:
    """Base of the layers of a recipe: one call, and the state in `state_dict`."""

    recipe_state: LayerState

    def forward(self, x: Any) -> Any:
        return CALLED["run"](self, x)

    def get_extra_state(self) -> dict[str, Any]:
        return self.recipe_state.state()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.recipe_state.restore(state)


class RecipeLinear(_Layer, torch.nn.Linear):
    """A `torch.nn.Linear` in the formats of a recipe. `train_in` makes it.

    Attributes
    ----------
    recipe_state : LayerState
        Formats, scales and step of the layer.
    """

    def multiplied(self, x: Any) -> Any:
        """Return x w^T + bias."""
        y = _Linear.apply(x.reshape(-1, x.shape[-1]), self.weight, self.recipe_state)
        y = y if self.bias is None else y + self.bias
        return y.reshape(*x.shape[:-1], y.shape[-1])


class _RecipeConvolution(_Layer):
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
            _Linear.apply(rows[..., i * each : (i + 1) * each].reshape(-1, each), part, self.recipe_state)
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


CLASSES: dict[type, type] = {
    torch.nn.Linear: RecipeLinear, torch.nn.Conv1d: RecipeConv1d, torch.nn.Conv2d: RecipeConv2d,
}  # fmt: skip


def train_in(model: Any, recipe: Recipe | str) -> Any:
    """Train the linear layers and convolutions of a model in the formats of a recipe.

    Parameters
    ----------
    model : torch.nn.Module
        A model with float32 parameters. Its layers change in place. Parameters stay the same tensors.
    recipe : Recipe or str
        A recipe, or the name of a published recipe.

    Returns
    -------
    torch.nn.Module
        The model. A call of it in training mode with gradients begins a step: seeds change, and the largest magnitudes
        of the last step enter the histories of `Delayed`. `state_dict` contains steps and histories.

    Raises
    ------
    TypeError, ValueError
        The recipe is unknown. A group does not divide the rows of a layer. A module multiplies by matrices inside, as
        `torch.nn.MultiheadAttention`, and `keep` does not set it to None. A layer is rounded already.

    Notes
    -----
    Everything else stays float32: embeddings, norms, `scaled_dot_product_attention`, functions. The second derivative
    is not available. Inside of `torch.autocast` the layers raise an error.

    Examples
    --------
    >>> from heterocompute.interop import torch as ht
    >>> net = ht.train_in(torch.nn.Sequential(torch.nn.Linear(64, 32)), "mxfp8")  # doctest: +SKIP
    >>> net(torch.ones(2, 64)).sum().backward()  # doctest: +SKIP
    """
    chosen = as_recipe(recipe, "train_in: recipe")
    if chosen.keep:
        check_matches(model, every_layer(model, "train_in"), chosen.keep, "train_in")
    elif not isinstance(model, torch.nn.Module):
        raise WrongType(f"train_in: model is {shown(model)}, expected a torch.nn.Module")
    found: list[tuple[Any, LayerState]] = []
    covered: list[str] = []
    for path, module in model.named_modules():
        if any(path.startswith(f"{one}.") for one in covered):
            continue
        if isinstance(module, OPAQUE):
            if chosen.kept(path) != FP32:
                raise WrongValue(
                    f"train_in: {path or 'model'} is a {type(module).__name__}, whose matmuls are not layers, expected "
                    f"Linear, Conv1d or Conv2d: set keep={{{shown(path)}: None}} to leave it in float32"
                )
            covered.append(path)
        elif isinstance(module, tuple(CLASSES)):
            state = _state_of(module, path, len(found), chosen)
            if state is not None:
                found.append((module, state))
    if not found:
        raise WrongValue("train_in: model has no Linear, Conv1d or Conv2d to round")
    CALLED["run"] = torch.compiler.disable(_run)
    for module, state in found:
        module.__class__ = CLASSES[type(module)]
        module.recipe_state = state
    model.register_forward_pre_hook(begin_step)
    return model


def begin_step(model: Any, _: object = None) -> None:
    """Begin a training step of all layers of a recipe, if the model is in training mode."""
    if model.training and torch.is_grad_enabled():
        for state in states_of(model):
            state.begin()


def states_of(model: Any) -> list[LayerState]:
    """Return the states of the layers that `train_in` changed, in the order of the model."""
    return [module.recipe_state for module in model.modules() if isinstance(module, _Layer)]


def _state_of(module: Any, path: str, index: int, recipe: Recipe) -> LayerState | None:
    """Return the state of a layer, or None if it is left in float32."""
    if isinstance(module, _Layer):
        raise WrongValue(f"train_in: layer {shown(path)} has a recipe already, expected a model without one")
    if type(module) not in CLASSES or is_parametrized(module) or "forward" in vars(module):
        if recipe.kept(path) == FP32:
            return None
        kind = f"{type(module).__name__} with a forward pass or parametrization of its own"
        raise WrongValue(
            f"train_in: layer {shown(path)} is a {kind}, expected one of PyTorch: set keep={{{shown(path)}: None}}"
        )
    if module.weight.dtype != torch.float32:
        raise WrongType(f"train_in: layer {shown(path)} has weights of {module.weight.dtype}, expected torch.float32")
    if getattr(module, "padding_mode", "zeros") != "zeros" or getattr(module, "padding", None) == "same":
        raise WrongValue(
            f"train_in: layer {shown(path)} has padding {shown(module.padding)} of {module.padding_mode}, expected "
            "numbers and zeros"
        )
    state = LayerState(recipe, path, index, ARRAYS)
    shape = module.weight.flatten(1).shape
    state.check(shape[1], shape[0] // getattr(module, "groups", 1))
    return state


def _is_free(fmt: Format) -> bool:
    return not is_function(fmt) and fmt.form.any_axis
