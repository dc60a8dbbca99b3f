"""Learned rounding: codes moved to their neighbours by the gradient of a model's outputs: `convert(method="learned")`.

    gain of a weight    -g d - h d^2 / 2,    d = v' - v,    v' the value of the neighbouring code against the gradient

L is the relative squared error of the outputs on some batches, g = dL / dv, and h the diagonal of its Gauss-Newton
matrix: the mean of squared gradients of the outputs times random signs. A step moves the weights with the largest
gains, at most one of each row and block of columns. If L is then not less, the step is undone, and the next one moves
fewer weights.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue
from ...products.columns import to_columns
from ...products.grid import Grid
from ...products.grid_of import check_grid, grid_of
from ..models.batches import evaluating
from .judging import Divided
from .rounding import fake_quantize
from .turned import TurnedLinear
from .walk import every_layer
from .weights import PackedWeight

Array = np.ndarray[Any, Any]

STEPS = 200
TOGETHER = 4  # batches of a step
BLOCK = 64  # columns of a row of which one weight moves in a step
FIRST = 8  # the first step moves this part of all rows and blocks
MORE, FEWER = 2, 4  # factors of the number of weights after a step that is kept or undone
KINDS = ("linear", "conv1d", "conv2d", "conv3d")


@dataclass
class Choice:
    """The codes of a weight, which are learned.

    Attributes
    ----------
    name : str
        Of the weight in the float model.
    weight : PackedWeight
        The start.
    grid : Grid
        The codes under the scales of the start.
    start, codes : ndarray of int32, (columns, rows)
    squares : ndarray of float64, (columns, rows)
        Sum of squared gradients of the outputs times random signs, over `probes` batches.
    tried : ndarray of bool, (columns, rows)
        Weights that were moved alone without success.
    shape : tuple of int
        Of the weight in the float model.
    is_turned : bool
        The float model has the transpose.
    dtype : torch.dtype
        Of the weight in the float model.
    """

    name: str
    weight: PackedWeight
    grid: Grid
    start: Array
    codes: Array
    squares: Array
    tried: Array
    shape: tuple[int, ...]
    is_turned: bool
    dtype: torch.dtype
    probes: int = 0

    def rounded(self) -> QuantizedArray:
        """Return the weight of the present codes."""
        return self.grid.quantized(self.codes, self.weight.array().source_dtype)

    def parameter(self) -> torch.Tensor:
        """Return the values of the present codes as a parameter of the float model."""
        values = torch.from_numpy(self.rounded().dequantize())
        return (values.t() if self.is_turned else values).reshape(self.shape).to(self.dtype).contiguous()

    def _levels(self, codes: Array) -> Array:
        """Return the values of codes without their scale."""
        levels = self.grid.levels
        if levels is None:
            return codes.astype(np.float64)
        found: Array = levels[codes] if levels.ndim == 1 else np.take_along_axis(levels, codes, axis=0)
        return found

    def columns(self, gradient: torch.Tensor) -> Array:
        """Return a gradient of `parameter` as `codes`."""
        q = self.weight.array()
        own = (gradient.t() if self.is_turned else gradient).reshape(q.shape).float().numpy()
        return to_columns(own, q.axis)

    def gains(self, gradient: torch.Tensor, batches: int) -> tuple[Array, Array, Array]:
        """Return the best gain of each row in each block of columns, its column, and the code that has it."""
        grid, slope = self.grid, self.columns(gradient)
        low, high = (grid.low, grid.high) if grid.levels is None else (0, len(grid.levels) - 1)
        moved = np.clip(self.codes - np.sign(slope).astype(np.int32), int(low), int(high)).astype(np.int32)
        allowed = (np.abs(moved - self.start) <= 1) & ~self.tried
        if grid.pattern is not None:
            allowed &= grid.pattern.mask != 0
        change = grid.scale[grid.group] * (self._levels(moved) - self._levels(self.codes))
        bend = self.squares * (batches / max(self.probes, 1))
        gain = np.where(allowed, -slope * change - bend * change * change / 2, -np.inf)
        firsts = range(0, len(gain), BLOCK)
        best = np.array([first + gain[first : first + BLOCK].argmax(axis=0) for first in firsts])
        return np.take_along_axis(gain, best, axis=0), best, np.take_along_axis(moved, best, axis=0)


def choices_of(wide: Any, small: Any) -> list[Choice]:
    """Return the weights of linear layers and convolutions whose codes can be learned; tied weights once."""
    floats = {layer.name: layer for layer in every_layer(wide, "convert") if layer.packed is None}
    found: dict[int, Choice] = {}
    for layer in every_layer(small, "convert"):
        own = floats.get(layer.name)
        if layer.packed is None or own is None or own.kind not in KINDS or id(layer.packed) in found:
            continue
        parameter = own.module._parameters.get(own.attribute)
        if parameter is None:  # computed by a parametrization
            continue
        q = layer.packed.array()
        try:
            check_grid(q.format)
        except ValueError:
            continue
        grid = grid_of(q)
        if grid.exact:
            continue
        codes = grid.nearest(to_columns(q.dequantize(), q.axis))
        found[id(layer.packed)] = Choice(
            layer.name,
            layer.packed,
            grid,
            codes,
            codes,
            np.zeros(codes.shape),
            np.zeros(codes.shape, bool),
            own.shape,
            own.axis == (0,),
            parameter.dtype,
        )
    return [*found.values()]


def learned(model: Any, wide: Any, small: Any, batches: Divided, steps: int, seed: int) -> Any:
    """Return a packed model with learned codes, or the packed model itself if that is not better.

    Parameters
    ----------
    model : torch.nn.Module
        Whose outputs are the target.
    wide, small : torch.nn.Module
        The model with moved scales and rotations, and the same packed: the start.
    batches : Divided
        Batches to learn from, in a random order, and held-out batches that judge.
    steps, seed : int
        Number of steps, and the seed of the order of batches.
    """
    choices = choices_of(wide, small)
    if not choices or not steps:
        return small
    frozen, hooks = _training_copy(wide, small)
    source, order = [*batches.chosen()], list[int]()
    rng, count = np.random.default_rng(seed), 0
    try:
        for _ in range(steps):
            if len(order) < min(TOGETHER, len(source)):
                order += rng.permutation(len(source)).tolist()
            some = [source[order.pop(0)] for _ in range(min(TOGETHER, len(source)))]
            count, is_done = _step(model, frozen, choices, batches, some, count, rng)
            if is_done and len(some) == len(source):
                break
    finally:
        for hook in hooks:
            hook.remove()
    better = copy.deepcopy(small)
    changed = {id(one.weight): one.rounded() for one in choices}
    known = set[int]()
    for old, new in zip(every_layer(small, "convert"), every_layer(better, "convert"), strict=True):
        if old.packed is not None and new.packed is not None and id(old.packed) in changed:
            if id(new.packed) not in known:
                new.packed._become(changed[id(old.packed)])
                known.add(id(new.packed))
    before, after = batches.errors(model, [small, better])
    return better if after < before else small


def _step(
    model: Any, frozen: Any, choices: list[Choice], batches: Divided, some: list[Any], count: int, rng: Any
) -> tuple[int, bool]:
    """Move weights, or none if the error does not fall; return the number for the next step, and whether none gains."""
    before, gradients = _loss(model, frozen, choices, batches, some, rng)
    found = [None if g is None else one.gains(g, len(some)) for one, g in zip(choices, gradients, strict=True)]
    gains = np.concatenate([one[0].ravel() for one in found if one is not None])
    positive = int((gains > 0).sum())
    count = min(count or max(positive // FIRST, 1), positive)
    if not count:
        return 0, True
    limit = np.sort(gains)[-count]
    held = [one.codes for one in choices]
    for one, moves in zip(choices, found, strict=True):
        if moves is None:
            continue
        gain, columns, codes = moves
        at = np.nonzero((gain >= limit) & (gain > 0))
        one.codes = one.codes.copy()
        one.codes[columns[at], at[1]] = codes[at]
    after, _ = _loss(model, frozen, choices, batches, some, None)
    if after < before:
        return count * MORE, False
    for one, codes in zip(choices, held, strict=True):
        if count == 1:
            one.tried |= one.codes != codes
        one.codes = codes
    return max(count // FEWER, 1), False


def _loss(
    model: Any, frozen: Any, choices: list[Choice], batches: Divided, some: list[Any], rng: Any
) -> tuple[float, list[Any]]:
    """Return the relative squared error of the outputs; with `rng` also its gradients, and add to the curvatures."""
    slopes = rng is not None
    values = {one.name: one.parameter().requires_grad_(slopes) for one in choices}
    total = 0.0
    sums: list[Any] = [None] * len(choices)
    for batch in some:
        args, kwargs = batches.source.arguments(model, batch, 0)
        with evaluating(model):
            exact = _floats(model(*args, **kwargs))
        with torch.inference_mode(False), torch.set_grad_enabled(slopes):
            found = _floats(torch.func.functional_call(frozen, values, tuple(args), kwargs))
            if not found:
                raise WrongValue("convert: method is 'learned', but the model returns no floats")
            sizes = [y.square().sum().clamp(min=1e-30) for y in exact]
            parts = zip(exact, found, sizes, strict=True)
            loss = torch.stack([(z - y).square().sum() / size for y, z, size in parts]).sum()
            if slopes and not loss.requires_grad:
                raise WrongValue("convert: method is 'learned', but the model turns gradients off")
            if slopes:
                leaves = [*values.values()]
                signs = [torch.from_numpy(rng.integers(0, 2, tuple(z.shape)) * 2.0 - 1).float() for z in found]
                probe = [(z * u).sum() * (2 / size).sqrt() for z, u, size in zip(found, signs, sizes, strict=True)]
                squares = torch.autograd.grad(torch.stack(probe).sum(), leaves, retain_graph=True, allow_unused=True)
                gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
                sums = [b if a is None else a if b is None else a + b for a, b in zip(sums, gradients, strict=True)]
                for one, g in zip(choices, squares, strict=True):
                    if g is not None:
                        one.squares += np.square(one.columns(g))
                        one.probes += 1
        total += float(loss.detach())
    return total, sums


def _training_copy(wide: Any, small: Any) -> tuple[Any, list[Any]]:
    """Return a float copy with the biases of the packed model, whose layers round their inputs as it does."""
    frozen = copy.deepcopy(wide).eval().requires_grad_(False)
    hooks = []
    for layer in every_layer(small, "convert"):
        if layer.packed is None:
            continue
        module, bias = frozen.get_submodule(layer.path), getattr(layer.module, "bias", None)
        if isinstance(bias, torch.Tensor) and module._parameters.get("bias") is not None:
            module._parameters["bias"] = torch.nn.Parameter(bias.detach().clone(), requires_grad=False)
        fmt = layer.packed.activations
        if fmt is not None and layer.kind in KINDS and not isinstance(module, TurnedLinear):
            n = 0 if layer.kind == "linear" else int(layer.kind[4])  # dimensions of an image

            def rounding(own: Any, args: Any, kwargs: Any, fmt: str = fmt, n: int = n) -> Any:
                x = args[0] if args else kwargs.get("input")
                if x is None:
                    return None
                channel = x.dim() - n - 1
                y = fake_quantize(x, fmt, (*range(channel + 1, x.dim()), channel) if n else -1)
                return ((y, *args[1:]), kwargs) if args else (args, {**kwargs, "input": y})

            hooks.append(module.register_forward_pre_hook(rounding, with_kwargs=True))
    return frozen, hooks


def _floats(answer: Any) -> list[torch.Tensor]:
    """Return the float tensors of an answer, with their gradients."""
    if isinstance(answer, torch.Tensor):
        return [answer.float()] if answer.is_floating_point() else []
    parts = answer.values() if hasattr(answer, "values") else answer if isinstance(answer, (tuple, list)) else ()
    return [tensor for part in parts for tensor in _floats(part)]
