"""A recorded call in which runs of convolutions are one call of the core each: `Program`.

A run is convolutions one after the other, with the steps between them that change no bits: zeros around an image, the
largest values of windows, a sum with an earlier image, and ReLU, ReLU6 or other limits after it. All other operations
are PyTorch's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_map

from .... import _heterocompute as _core
from ....arrays.components import core_format
from ....arrays.prepacked import prepack
from ....base import runtime
from ....products.arguments import as_format
from .recording import Operation, Slot, is_convolution

aten = torch.ops.aten
LEAST = 2  # convolutions of a run


def _limits(one: Operation) -> tuple[float, float] | None:
    """Return the limits of an operation that clamps its input, None for any other."""
    function, args = one.function, one.args
    low: Any
    high: Any
    if one.kwargs or (function is aten.hardtanh.default and len(args) == 2):
        return None
    if function is aten.relu.default:
        return 0.0, np.inf
    if function is aten.hardtanh.default:
        low, high = tuple(args[1:]) if len(args) == 3 else (-1.0, 1.0)
    elif function is aten.clamp_min.default:
        low, high = args[1], np.inf
    elif function is aten.clamp.default:
        low, high = (*args[1:], None, None)[:2]
    else:
        return None
    low, high = -np.inf if low is None else low, np.inf if high is None else high
    exact = all(isinstance(edge, (int, float)) and float(np.float32(edge)) == edge for edge in (low, high))
    return (float(low), float(high)) if exact and low <= high else None


def _two(values: Any) -> tuple[int, int]:
    """Return the rows and columns of an argument of pooling: a number, or a list of one or two."""
    values = [values] if isinstance(values, int) else values
    return (values[0], values[-1])


class Step:
    """A convolution of a run or, without a module, the largest values of windows; with what follows it."""

    def __init__(self, module: Any, source: Any, around: tuple[int, ...] = (0, 0, 0, 0), pool: Any = None) -> None:
        self.module, self.source, self.around = module, source, around
        self.pool = pool  # size, stride and padding of windows
        self.plus: Any = None
        self.limits: tuple[float, float] | None = None
        self.guess, self.out = True, False
        self.shape: Any = ()


class Chain:
    """A run of convolutions: its steps, and the slots that it reads and answers."""

    def __init__(self, shapes: dict[Slot, Any]) -> None:
        self.shapes = shapes  # of all slots of float32
        self.steps: list[Step] = []
        self.of: dict[Slot, int] = {}  # the step whose result a slot is
        self.padded: dict[Slot, tuple[Any, tuple[int, ...]]] = {}
        self.inputs: list[Slot] = []
        self.outputs: list[tuple[Slot, int]] = []
        self.kept: Any = None
        self.operations: list[int] = []

    def add(self, number: int, one: Operation, uses: dict[Slot, int]) -> bool:
        """Take an operation if the run can compute it."""
        here = Slot(number)
        source = one.args[0] if one.args else None
        if is_convolution(one.function):
            taken = self._convolution(here, one)
        elif not isinstance(source, Slot) or len(one.shapes[0]) != 4:
            return False
        elif one.function is aten.constant_pad_nd.default:
            taken = self._zeros(here, one)
        elif one.function is aten.max_pool2d_with_indices.default:
            taken = self._pool(here, one, uses)
        elif one.function is aten.add.Tensor and len(one.args) == 2 and not one.kwargs:
            taken = self._sum(here, one, uses)
        else:
            taken = self._clamp(here, one, uses)
        if taken:
            self.operations.append(number)
        return taken

    def _convolution(self, here: Slot, one: Operation) -> bool:
        module, source = one.function, one.args[0]
        weight = module._modules["weight"]
        if one.kwargs or not isinstance(source, Slot) or len(one.shapes[0]) != 4 or module.padding_mode != "zeros":
            return False
        if weight.activations is None or weight.device.type != "cpu":
            return False
        bias = module._parameters.get("bias")
        if source not in self.shapes or here not in self.shapes or not (bias is None or bias.dtype is torch.float32):
            return False
        twice = module._reversed_padding_repeated_twice
        if isinstance(module.padding, str) and any(twice):
            return False
        source, around = self.padded.get(source, (source, (0, 0, 0, 0)))
        if source not in self.of and source not in self.inputs:
            self.inputs.append(source)
        return self._append(here, Step(module, source, around), one)

    def _append(self, here: Slot, step: Step, one: Operation) -> bool:
        step.shape = one.shapes[0]
        self.of[here] = len(self.steps)
        self.steps.append(step)
        return True

    def _pool(self, here: Slot, one: Operation, uses: dict[Slot, int]) -> bool:
        missing: tuple[Any, ...] = ([], 0, 1, False)[len(one.args) - 2 :]
        source, size, stride, padding, dilation, _ = one.args + missing
        if one.kwargs or source not in self.of or uses.get(Slot(here.of, 1)) or _two(dilation) != (1, 1):
            return False
        size, padding = _two(size), _two(padding)
        stride = _two(stride) if stride else size
        shape = self.steps[self.of[source]].shape
        rows = [(shape[2 + i] + 2 * padding[i] - size[i]) // stride[i] + 1 for i in range(2)]
        if rows != list(one.shapes[0][2:]):  # windows that end after the image, by ceil_mode
            return False
        return self._append(here, Step(None, source, pool=(size, stride, padding)), one)

    def _zeros(self, here: Slot, one: Operation) -> bool:
        source, pads = one.args[0], one.args[1]
        value = one.args[2] if len(one.args) > 2 else 0
        if source not in self.of or len(pads) > 4 or any(one < 0 for one in pads) or value != 0 or one.kwargs:
            return False
        left, right, top, bottom = (*pads, 0, 0, 0, 0)[:4]
        self.padded[here] = source, (top, bottom, left, right)
        return True

    def _last(self, source: Any, uses: dict[Slot, int]) -> Step | None:
        """Return the step that a slot is the result of, if nothing else reads the slot."""
        at = self.of.get(source)
        return None if at is None or uses[source] != 1 else self.steps[at]

    def _sum(self, here: Slot, one: Operation, uses: dict[Slot, int]) -> bool:
        first, other = one.args
        if not isinstance(other, Slot) or first == other or first in self.padded or other in self.padded:
            return False
        if self.of.get(other, -1) > self.of.get(first, -1):
            first, other = other, first
        step, before = self._last(first, uses), self.of.get(other, -1)
        if step is None or step.plus is not None or step.limits is not None or step.shape != one.shapes[0]:
            return False
        at = self.of[first]
        inside = before >= 0
        if inside and before >= at:
            return False
        if self.shapes.get(other) != step.shape or (not inside and other.of >= self.operations[0]):
            return False
        if not inside and other not in self.inputs:
            self.inputs.append(other)
        step.plus = other
        self.of[here] = self.of.pop(first)
        return True

    def _clamp(self, here: Slot, one: Operation, uses: dict[Slot, int]) -> bool:
        limits, step = _limits(one), self._last(one.args[0], uses)
        if limits is None or step is None or step.limits is not None:
            return False
        step.limits = limits
        self.of[here] = self.of.pop(one.args[0])
        return True

    def close(self, uses_outside: set[Slot]) -> None:
        """Name the slots that others read."""
        self.outputs = [(slot, at) for slot, at in self.of.items() if slot in uses_outside]
        for _, at in self.outputs:
            self.steps[at].out = True

    def run(self, values: dict[Slot, Any]) -> None:
        """Compute the slots of the run."""
        every, filters = self._arguments()
        inputs = tuple(values[one].detach().contiguous().numpy() for one in self.inputs)
        number = {slot: i for i, slot in enumerate(self.inputs)}
        outs: dict[int, Any] = {}
        for slot, at in self.outputs:
            outs[at] = np.empty((len(inputs[0]), *self.steps[at].shape[1:]), np.float32)
            values[slot] = torch.from_numpy(outs[at])
        n = len(inputs)
        tuples = []
        for i, (step, fixed) in enumerate(zip(self.steps, every, strict=True)):
            source, plus = step.source, step.plus
            tuples.append((
                number[source] if source in number else n + self.of[source],
                -1 if plus is None else number[plus] if plus in number else n + self.of[plus],
                *fixed[:-1], step.guess, filters[i], outs.get(i),
            ))  # fmt: skip
        kept = _core.conv_chain(runtime.run(), inputs, tuple(tuples))
        for i, (step, (guess, packed)) in enumerate(zip(self.steps, kept, strict=True)):
            step.guess = guess
            if packed is not None and every[i][-1]:
                filters[i] = packed

    def _arguments(self) -> tuple[list[Any], list[Any]]:
        """Return the arguments of each step that are the same in every call, and the filters that calls packed.

        Both are new if a weight or bias changed. Last is whether filters may be kept: inference tensors have no
        versions, and their codes are read in each call.
        """
        modules = [one.module for one in self.steps if one.module is not None]
        weights = [one._modules["weight"] for one in modules]
        arrays = [one.array() for one in weights]
        biases = [one._parameters.get("bias") for one in modules]
        now = [*map(id, arrays), *map(_version, biases)]
        for weight in weights:
            now += map(_version, weight._buffers.values())
        kept = self.kept  # one look: another thread may replace it
        if kept is not None and kept[0] == now:
            found: tuple[list[Any], list[Any]] = kept[1]
            return found
        made: list[Any] = []
        packed = iter(zip(arrays, biases, strict=True))
        for step in self.steps:
            module, limits = step.module, (step.limits is not None, step.limits or (0.0, 0.0))
            if module is None:
                size, stride, padding = step.pool
                made.append((None, None, None, stride, padding, (1, 1), 1, step.around, *limits, size, False))
                continue
            weight, bias = next(packed)
            padding = (0, 0) if isinstance(module.padding, str) else tuple(module.padding)
            keeps = not any(map(torch.is_inference, module._modules["weight"]._buffers.values()))  # writes are seen
            made.append((
                prepack(weight) if keeps and module.groups == 1 else weight,
                None if bias is None else bias.detach().contiguous().numpy(),
                core_format(as_format(module.weight.activations, "fuse")), tuple(module.stride), padding,
                tuple(module.dilation), module.groups, step.around, *limits, (0, 0), keeps,
            ))  # fmt: skip
        answer = made, [None] * len(made)
        self.kept = now, answer, arrays, biases
        return answer


def _version(one: Any) -> Any:
    """Return what changes when a tensor is replaced or written to."""
    return one if one is None else (id(one), one.data_ptr(), 0 if one.is_inference() else one._version)


class Program:
    """A recorded call that runs its chains as one call each.

    Parameters
    ----------
    operations : list of Operation
    answer : object
        The answer with slots.
    """

    def __init__(self, operations: list[Operation], answer: Any, shape: Any) -> None:
        self.answer = answer
        uses: dict[Slot, int] = {}
        for one in operations:
            for slot in _slots(one.args, one.kwargs):
                uses[slot] = uses.get(slot, 0) + 1
        for slot in _slots(answer):
            uses[slot] = uses.get(slot, 0) + 1
        shapes = {Slot(-1): shape}
        for i, one in enumerate(operations):
            found = enumerate(zip(one.shapes, one.dtypes, strict=True))
            shapes |= {Slot(i, part): shape for part, (shape, dtype) in found if dtype is torch.float32}
        self.parts: list[Any] = []  # chains, and pairs of a number and an operation
        chain: Chain | None = None
        for i, one in enumerate(operations):
            if chain is not None and chain.add(i, one, uses):
                continue
            chain = Chain(shapes)
            if is_convolution(one.function) and chain.add(i, one, uses):
                self.parts.append(chain)
            else:
                chain = None
                self.parts.append((i, one))
        self._dissolve(operations)
        self._close(operations)

    def _dissolve(self, operations: list[Operation]) -> None:
        """Take apart runs that are too short, or whose zeros others read."""
        parts: list[Any] = []
        for one in self.parts:
            if isinstance(one, Chain) and sum(step.module is not None for step in one.steps) < LEAST:
                parts += [(i, operations[i]) for i in one.operations]
            else:
                parts.append(one)
        self.parts = parts

    def _close(self, operations: list[Operation]) -> None:
        """Find the results of each run that others read, and when a slot is read last."""
        for chain in self.chains:
            others = [one for one in self.parts if one is not chain]
            outside = set(_slots(self.answer)).union(*map(_read, others))
            at = self.parts.index(chain) + 1
            wide = [(slot.of, operations[slot.of]) for slot in chain.padded if slot in outside]
            self.parts[at:at] = wide  # zeros that PyTorch adds after the run
            chain.close(outside.union(*map(_read, wide)))
        reads: dict[Slot, int] = {}
        for i, one in enumerate(self.parts):
            reads |= dict.fromkeys(_read(one), i)
        kept = set(_slots(self.answer))
        self.dead = [
            [slot for slot, last in reads.items() if last == i and slot not in kept] for i in range(len(self.parts))
        ]

    @property
    def chains(self) -> list[Chain]:
        return [one for one in self.parts if isinstance(one, Chain)]

    def run(self, x: Any) -> Any:
        """Return the answer of the recorded call for another input of the same shape."""
        values: dict[Slot, Any] = {Slot(-1): x}

        for part, dead in zip(self.parts, self.dead, strict=True):
            if isinstance(part, Chain):
                part.run(values)
            else:
                i, one = part
                args, kwargs = _filled((one.args, one.kwargs), values)
                found = one.function(*args, **kwargs)
                for j, result in enumerate(found if isinstance(found, (tuple, list)) else (found,)):
                    values[Slot(i, j)] = result
            for slot in dead:
                values.pop(slot, None)
        return _filled(self.answer, values)


def _filled(one: Any, values: dict[Slot, Any]) -> Any:
    """Return an object with values in place of slots; common containers without the slower functions of PyTorch."""
    kind = type(one)
    if kind is Slot:
        return values[one]
    if one is None or kind in (int, float, bool, str) or isinstance(one, torch.Tensor):
        return one
    if kind is tuple:
        return tuple([_filled(part, values) for part in one])
    if kind is list:
        return [_filled(part, values) for part in one]
    if kind is dict:
        return {key: _filled(part, values) for key, part in one.items()}
    return tree_map(lambda part: values[part] if _is_slot(part) else part, one, is_leaf=_is_slot)


def _is_slot(one: Any) -> bool:
    return isinstance(one, Slot)


def _read(part: Any) -> list[Slot]:
    return part.inputs if isinstance(part, Chain) else _slots(part[1].args, part[1].kwargs)


def _slots(*values: Any) -> list[Slot]:
    return [one for one in tree_flatten(values, is_leaf=_is_slot)[0] if isinstance(one, Slot)]
