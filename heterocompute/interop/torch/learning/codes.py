"""Learned rounding, one block after another: `convert(method="learned")`.

    L = mean |z - y|^2 / |y|^2 over calls,    gain of a weight = -g d - h d^2 / 2,    g = dL / dv,    d = v' - v

y are outputs of a block in the unrounded model, z those in the rounded one, whose earlier blocks are rounded, too. The
block begins with the codes of the start or of Qronos with one of `SHRINKAGES`: those with the least L on the held-out
batches. Each step moves the weights with the largest gains to neighbouring codes, at most one of each row and `BLOCK`
columns. h is the diagonal of the Gauss-Newton matrix of L, v' the value of the neighbouring code against the gradient.
If L is not less, the step is undone, and the next one moves fewer weights.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from ....arrays.quantized import QuantizedArray
from ....base.errors import WrongValue
from ....base.progress import Progress, Steps
from ....files.selection import escaped
from ....products.columns import to_columns
from ....products.grid import Grid
from ....products.grid_of import check_grid, grid_of
from ....ptq.gptq import rounded_layer
from ....ptq.options import Options
from ...models.blocks import blocks_of, cloned
from ...models.calibration import calibrated, calibrated_in_pairs
from ..forms import formed_of
from ..judging import Divided
from ..rounding import fake_quantize
from ..turned import TurnedLinear
from ..walk import Layer, every_layer
from ..weights import PackedWeight
from .blocks import Recorded, Repeated, compared, floats_of, order_of, record

Array = np.ndarray[Any, Any]

STEPS = 200
TOGETHER = 4  # batches of a step
BLOCK = 64  # columns of a row of which one weight moves in a step
FIRST = 8  # the first step moves this part of all rows and blocks
MORE, FEWER = 2, 4  # factors of the number of weights after a step that is kept or undone
CHECKED, PATIENCE = 4, 3  # steps between two errors on held-out batches, and how many of these may not be less
SHRINKAGES = (0.1, 0.3, 1.0)
FEW = 12  # a model of so many blocks is then learned as a whole
KINDS = ("linear", "conv1d", "conv2d", "conv3d")


@dataclass
class Choice:
    """The codes of a weight, which are learned.

    Attributes
    ----------
    layer : Layer
        Of the float model.
    q : QuantizedArray
        The start.
    grid : Grid
        The codes under the scales of the start.
    start, codes : ndarray of int32, (columns, rows)
        Of `q`, and the present ones.
    squares : ndarray of float64, (columns, rows)
        Sum of squared gradients of the outputs times random signs, over `probes` batches.
    tried : ndarray of bool, (columns, rows)
        Weights that were moved alone without success.
    """

    layer: Layer
    q: QuantizedArray
    grid: Grid
    start: Array
    codes: Array
    squares: Array
    tried: Array
    probes: int = 0

    @classmethod
    def of(cls, layer: Layer, q: QuantizedArray) -> Choice:
        grid = grid_of(q)
        codes = grid.nearest(to_columns(q.dequantize(), q.axis))
        return cls(layer, q, grid, codes, codes, np.zeros(codes.shape), np.zeros(codes.shape, bool))

    @property
    def is_turned(self) -> bool:
        """The float model has the transpose."""
        return self.layer.axis == (0,)

    def rounded(self) -> QuantizedArray:
        """Return the weight of the present codes."""
        return self.q if self.codes is self.start else self.grid.quantized(self.codes, self.q.source_dtype)

    def parameter(self) -> torch.Tensor:
        """Return the values of the present codes as a parameter of the float model."""
        return _values(self.layer, self.rounded())

    def _levels(self, codes: Array) -> Array:
        """Return the values of codes without their scale."""
        levels = self.grid.levels
        if levels is None:
            return codes.astype(np.float64)
        found: Array = levels[codes] if levels.ndim == 1 else np.take_along_axis(levels, codes, axis=0)
        return found

    def columns(self, gradient: torch.Tensor) -> Array:
        """Return a gradient of `parameter` as `codes`."""
        q = self.q
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


def learnable(wide: Any, small: Any) -> dict[str, tuple[Layer, PackedWeight]]:
    """Return the weights of linear layers and convolutions whose codes can be learned, by name; tied weights once.

    The layers are those of the float model `wide`.
    """
    floats = {layer.name: layer for layer in every_layer(wide, "convert") if layer.packed is None}
    found: dict[str, tuple[Layer, PackedWeight]] = {}
    known = set[int]()
    for layer in every_layer(small, "convert"):
        own = floats.get(layer.name)
        if layer.packed is None or own is None or own.kind not in KINDS or id(layer.packed) in known:
            continue
        if own.module._parameters.get(own.attribute) is None:  # computed by a parametrization
            continue
        try:
            check_grid(layer.packed.format)
        except ValueError:
            continue
        if not grid_of(layer.packed.array()).exact:
            known.add(id(layer.packed))
            found[own.name] = own, layer.packed
    return found


@torch.inference_mode(False)  # type: ignore[untyped-decorator]  # tensors of the caller's mode have no gradients
def learned(
    model: Any, wide: Any, small: Any, batches: Divided, steps: int, seed: int, progress: Progress | None = None
) -> Any:
    """Return a packed model with learned codes, or the packed model itself if that is not better.

    Parameters
    ----------
    model : torch.nn.Module
        Whose outputs judge.
    wide, small : torch.nn.Module
        The model with moved scales and rotations, and the same packed: the start.
    batches : Divided
        Batches to learn from, in a random order, and held-out batches that judge.
    steps, seed : int
        Number of steps of a block, and the seed of the order of batches and of the signs.
    progress : callable, optional
        Called before each block.
    """
    begun = learnable(wide, small)
    if not begun or not steps:
        return small
    if not batches.returns_floats(model):
        raise WrongValue("convert: method is 'learned', but the model returns no floats")
    frozen, hooks = _training_copy(wide, small)
    present = {name: weight.array() for name, (_, weight) in begun.items()}
    try:
        parts = list(_parts(wide, batches, {name: one.path for name, (one, _) in begun.items()}))
        step = Steps(len(parts), progress or False, "convert")
        for path, count, names, corrects in parts:
            step(path or "the whole model")
            sides = [
                record(wide, frozen, batches.source, some, path, count) for some in (batches.chosen(), batches.held())
            ]
            if sides[0] is None or sides[1] is None:
                continue
            block = _Block(path, frozen.get_submodule(path), sides[0], sides[1], seed)
            start = [Choice.of(begun[name][0], present[name]) for name in names]
            found = block.learned(start, wide if corrects else None, steps)
            present |= {name: one.rounded() for name, one in zip(names, found, strict=True)}
            for one in found:
                _put(frozen, one.layer.name, one.parameter())
        step.finish()
    finally:
        for hook in hooks:
            hook.remove()
    changed = {id(begun[name][1]): q for name, q in present.items()}
    better = copy.deepcopy(small)
    known = set[int]()
    for old, new in zip(every_layer(small, "convert"), every_layer(better, "convert"), strict=True):
        if old.packed is not None and new.packed is not None and id(old.packed) in changed:
            if id(new.packed) not in known:
                new.packed._become(changed[id(old.packed)])
                known.add(id(new.packed))
    before, after = batches.errors(model, [small, better])
    return better if after < before else small


def _parts(wide: Any, batches: Divided, paths: dict[str, str]) -> Iterator[tuple[str, int, list[str], bool]]:
    """Yield (path, calls for a batch, names of weights, whether Qronos begins) of each block, then of a small model."""
    blocks = blocks_of(wide, paths.values())
    for path, count in order_of(wide, batches.source, batches.first, blocks).items():
        yield path, count, [name for name, own in paths.items() if own in blocks[path]], True
    every = blocks_of(wide, [layer.path for layer in every_layer(wide, "convert") if layer.kind in KINDS])
    if len(every) <= FEW and [*blocks] != [""]:
        yield "", 1, [*paths], False


class _With(torch.nn.Module):
    """A block whose parameters are replaced for the forward and the backward pass: checkpoints compute it again."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.block = block

    def forward(self, work: Callable[[], Any]) -> Any:
        return work()


@dataclass
class _Block:
    """A block of the rounded model, and its calls in batches that choose and in batches that judge."""

    path: str
    module: Any
    chosen: list[Recorded]
    held: list[Recorded]
    seed: int

    def learned(self, start: list[Choice], wide: Any, steps: int) -> list[Choice]:
        """Return the choices with the least error on the held-out batches; Qronos needs the unrounded model `wide`."""
        best, least = start, self._error(start, self.held)
        for shrinkage in SHRINKAGES if wide is not None else ():
            found = self._corrected(start, wide, shrinkage)
            error = self._error(found, self.held)
            if not error < least:
                break
            best, least = found, error
        rng, order, count, stale = np.random.default_rng(self.seed), list[int](), 0, 0
        present = [replace(one) for one in best]
        for step in range(steps):
            if len(order) < min(TOGETHER, len(self.chosen)):
                order += rng.permutation(len(self.chosen)).tolist()
            some = [self.chosen[order.pop(0)] for _ in range(min(TOGETHER, len(self.chosen)))]
            count, is_done = self._step(present, some, count, rng)
            is_done = is_done and len(some) == len(self.chosen)
            if is_done or step % CHECKED == CHECKED - 1 or step == steps - 1:
                error = self._error(present, self.held)
                stale = 0 if error < least else stale + 1
                if error < least:
                    best, least = [replace(one) for one in present], error
                if is_done or stale == PATIENCE:
                    break
        return best

    def _corrected(self, start: list[Choice], wide: Any, shrinkage: float) -> list[Choice]:
        """Return the block rounded by Qronos, each layer for its inputs after the layers before it."""
        exact = Repeated(wide.get_submodule(self.path), [one.exact for one in self.chosen])
        rounded = Repeated(self.module, [one.calls for one in self.chosen])
        batches = [{"index": i, "attention_mask": one.keep} for i, one in enumerate(self.chosen)]
        names = {self._name(one, "block"): one for one in start}
        options = Options.of(method="qronos", shrinkage=shrinkage)
        found: dict[str, Choice] = {}
        for one in start:
            _put(self.module, self._name(one), one.parameter())
        firsts = calibrated(exact, batches, [*map(escaped, names)], None, False, "convert")
        last: tuple[Any, Any] | None = None
        for name in firsts:  # in the order of the products
            one, layer = names[name], names[name].layer
            if last is None or not last[0].equals(firsts[name]):
                some = [other for other in firsts if other not in found and firsts[other].equals(firsts[name])]
                pairs = calibrated_in_pairs(exact, rounded, batches, [*map(escaped, some)], None, False, "convert")
                last = firsts[name], pairs[name]
            w = layer.module._parameters[layer.attribute].detach().float().numpy()
            q = rounded_layer(w, last[1], one.q.format, firsts.axes[name], options).q
            found[name] = Choice.of(layer, formed_of(layer, q))
            _put(self.module, self._name(one), found[name].parameter())
        return [found.get(name, one) for name, one in names.items()]

    def _name(self, one: Choice, root: str = "") -> str:
        """Return the name of a weight in the block."""
        name = one.layer.name.removeprefix(self.path).removeprefix(".") if self.path else one.layer.name
        return f"{root}.{name}" if root else name

    def _step(self, choices: list[Choice], some: list[Recorded], count: int, rng: Any) -> tuple[int, bool]:
        """Move weights, or none if the error does not fall; return the next number of moves, and whether none gains."""
        before, gradients = self._loss(choices, some, rng)
        found = [None if g is None else one.gains(g, len(some)) for one, g in zip(choices, gradients, strict=True)]
        gains = np.concatenate([np.zeros(0), *(one[0].ravel() for one in found if one is not None)])
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
        after, _ = self._loss(choices, some, None)
        if after < before:
            return count * MORE, False
        for one, codes in zip(choices, held, strict=True):
            if count == 1:
                one.tried = one.tried | (one.codes != codes)
            one.codes = codes
        return max(count // FEWER, 1), False

    def _error(self, choices: list[Choice], batches: list[Recorded]) -> float:
        return self._loss(choices, batches, None)[0]

    def _loss(self, choices: list[Choice], batches: list[Recorded], rng: Any) -> tuple[float, list[Any]]:
        """Return the error of the outputs; with `rng` also its gradients, and add to the curvatures."""
        values = {self._name(one): one.parameter().requires_grad_(rng is not None) for one in choices}
        held = {f"block.{name}": value for name, value in _shared(self.module, values).items()}
        work = partial(self._sums, choices, [*values.values()], batches, rng)
        found: tuple[float, list[Any]] = torch.func.functional_call(
            _With(self.module), held, (work,), tie_weights=False
        )
        return found

    def _sums(
        self, choices: list[Choice], leaves: list[torch.Tensor], batches: list[Recorded], rng: Any
    ) -> tuple[float, list[Any]]:
        slopes, total = rng is not None, 0.0
        sums: list[Any] = [None] * len(choices)
        for batch in batches:
            squares: list[Any] = [None] * len(choices)
            for call, exact in zip(batch.calls, batch.outputs, strict=True):
                args, kwargs = cloned(call)
                with torch.inference_mode(False), torch.set_grad_enabled(slopes):
                    answer = floats_of(self.module(*args, **kwargs))
                    parts = compared(answer, exact, batch.keep)
                    loss = torch.stack([(z - y).square().sum() / size for z, y, size in parts]).sum()
                    if slopes and not loss.requires_grad:
                        raise WrongValue("convert: method is 'learned', but the model turns gradients off")
                    if slopes:
                        signs = [
                            torch.from_numpy(rng.integers(0, 2, tuple(z.shape)) * 2.0 - 1).float() for z, _, _ in parts
                        ]
                        probes = [
                            (z * u).sum() * (2 / size).sqrt() for (z, _, size), u in zip(parts, signs, strict=True)
                        ]
                        probe = torch.stack(probes).sum()
                        bends = torch.autograd.grad(probe, leaves, retain_graph=True, allow_unused=True)
                        sums = _added(sums, torch.autograd.grad(loss, leaves, allow_unused=True))
                        squares = _added(squares, [None if g is None else g.square() for g in bends])
                total += float(loss.detach())
            for one, g in zip(choices, squares, strict=True):
                if g is not None:
                    one.squares = one.squares + one.columns(g)
                    one.probes += 1
        return total, sums


def _shared(module: Any, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return values by one name of each layer that has the parameter.

    `torch.func.functional_call` finds such names itself, but leaves the values in a layer that has several names.
    """
    found = {id(module.get_parameter(name)): value for name, value in values.items()}
    return {
        f"{path}.{attribute}" if path else attribute: found[id(parameter)]
        for path, layer in module.named_modules()
        for attribute, parameter in layer._parameters.items()
        if id(parameter) in found
    }


def _added(sums: list[Any], more: Any) -> list[Any]:
    return [b if a is None else a if b is None else a + b for a, b in zip(sums, more, strict=True)]


def _values(layer: Layer, q: QuantizedArray) -> torch.Tensor:
    """Return a packed weight as a parameter of the float model."""
    values = torch.from_numpy(q.dequantize())
    values = values.t() if layer.axis == (0,) else values
    return values.reshape(layer.shape).to(layer.module._parameters[layer.attribute].dtype).contiguous()


def _put(model: Any, name: str, values: torch.Tensor) -> None:
    """Replace the values of a parameter."""
    with torch.no_grad():
        model.get_parameter(name).copy_(values)


def _training_copy(wide: Any, small: Any) -> tuple[Any, list[Any]]:
    """Return a copy with the values and biases of the packed model, whose layers round their inputs as it does."""
    frozen = copy.deepcopy(wide).eval().requires_grad_(False)
    hooks = []
    for name, (own, weight) in learnable(wide, small).items():
        _put(frozen, name, _values(own, weight.array()))
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
