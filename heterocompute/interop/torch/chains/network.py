"""A network whose runs of convolutions are one call each: `fuse_network`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ....base import runtime
from ....base.texts import sentence
from ..modules import PackedConv2d
from ..operators import is_unobserved
from ..weights import PackedWeight
from .recording import OF_FUSED, Refused, is_own, record
from .running import Program

MOST = 8  # shapes of inputs whose programs are kept
_all_hooks = torch.nn.modules.module
_classes: dict[Any, Any] = {}


class Contents:
    """Modules and tensors of a network, as they were when a program was recorded."""

    def __init__(self, model: Any) -> None:
        every = [*model.modules()]
        self.inner = [(vars(one), one.training) for one in every[1:]]
        self.own = [(vars(one), [*vars(one).values()], _numbers(vars(one))) for one in every if is_own(one)]
        self.children = [(one, type(one), (*one._modules.values(),)) for one in every if one._modules]
        self.parameters = [(one._parameters, (*one._parameters.values(),)) for one in every if one._parameters]
        self.parameters += [
            (one._buffers, (*one._buffers.values(),))
            for one in every
            if one._buffers and not isinstance(one, PackedWeight)
        ]
        self.all = [*model.parameters()]

    def is_plain(self) -> bool:
        """Tell whether all is as it was, and no hook and no replaced function has to be called."""
        for own, training in self.inner:
            if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["training"] != training or "forward" in own:
                return False
        for one, kind, children in self.children:
            if type(one) is not kind or (*one._modules.values(),) != children:
                return False
        for holder, kept in self.parameters:
            found = (*holder.values(),)
            if len(found) != len(kept) or any(a is not b for a, b in zip(found, kept, strict=True)):
                return False
        if any(_numbers(holder) != numbers for holder, _, numbers in self.own):
            return False
        return not (torch.is_grad_enabled() and any(one.requires_grad for one in self.all))


def _numbers(attributes: dict[str, Any]) -> list[int]:
    return [id(value) for name, value in attributes.items() if name not in OF_FUSED]


class FusedNetwork:
    """The forward of a fused network: `fuse` adds it to the class of the network."""

    _programs: dict[Any, Program | None] | None = None  # None too in a slice of a Sequential
    _contents: Contents | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program for images of this shape, or as its own class does."""
        program = None
        if len(args) == 1 and not kwargs and _is_plain(args[0]) and not self.training:  # type: ignore[attr-defined]
            program = self._program(args[0])
        if program is not None:
            try:
                return program.run(args[0])
            except Exception:  # its own steps name the layer
                pass
        return super().forward(*args, **kwargs)  # type: ignore[misc]

    def _program(self, x: Any) -> Program | None:
        contents, programs = self._contents, self._programs
        if contents is None or programs is None or not contents.is_plain():
            contents, programs = Contents(self), {}
            if not contents.is_plain():
                return None
            self._programs, self._contents = programs, contents
        key = _key_of(x)
        if key in programs:
            return programs.get(key)
        made = program_of(self, super().forward, x)  # type: ignore[misc]
        program = None if isinstance(made, str) else made
        while len(programs) >= MOST:
            programs.pop(next(iter([*programs])), None)
        programs[key] = program
        return program

    def __reduce_ex__(self, protocol: Any) -> Any:
        state = {**self.__dict__, "_programs": {}, "_contents": None}
        return _remade, (type(self).__mro__[2],), state


def _key_of(x: Any) -> Any:
    """Return what a program depends on: a view of x may be a copy with other strides."""
    return tuple(x.shape), x.stride()


def _is_plain(x: Any) -> bool:
    """Tell whether a program computes a call with an input."""
    if type(x) is not torch.Tensor or x.dtype is not torch.float32 or not x.is_cpu or not is_unobserved(x):
        return False
    if x.dim() != 4 or not x.numel() or x.is_neg() or torch.is_autocast_enabled("cpu") or runtime.tuned():
        return False
    if _all_hooks._global_forward_hooks or _all_hooks._global_forward_pre_hooks:
        return False
    return runtime.backend_device() is None


def program_of(model: Any, forward: Any, x: Any) -> Program | str:
    """Return the program of a network for images like x, or the reason why it has none."""
    try:
        with torch.inference_mode(False), torch.no_grad():
            made = Program(*record(model, forward, x), tuple(x.shape))
    except Refused as reason:
        return str(reason)
    return made if made.chains else "no two of its packed convolutions with 8-bit inputs follow each other"


def _class_of(kind: Any) -> Any:
    if kind not in _classes:
        own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        _classes[kind] = type(kind.__name__, (FusedNetwork, kind), own)
    return _classes[kind]


def _remade(kind: Any) -> Any:
    made = _class_of(kind)
    return made.__new__(made)


def has_convolutions(model: Any) -> bool:
    """Tell whether a model has packed convolutions of images."""
    return any(isinstance(one, PackedConv2d) for one in model.modules())


def fuse_network(model: Any, x: Any) -> str:
    """Change the class of a network; return the reason if it stays as it is."""
    if isinstance(model, FusedNetwork):
        return "it is fused already"
    if not _is_plain(x):
        return "inputs are not float32 images (N, C, H, W) on the CPU"
    if any(one._forward_hooks or one._forward_pre_hooks for one in [*model.modules()][1:]):
        return "its layers have hooks: fuse the model first, and then add them"
    if model.training:
        return "it is in training mode: call its eval() first"
    made = program_of(model, model.forward, x)
    if isinstance(made, str):
        return made
    with torch.inference_mode(False), torch.no_grad():
        for one in (x, _others(x)):  # two, since numbers that left PyTorch are those of the recorded call
            wanted = model.forward(one)
            try:
                found = made.run(one)
            except Exception as problem:
                return sentence(problem)
            if not _is_same(found, wanted):
                return "its own steps have another result"
    kind = type(model)
    model.__class__ = _class_of(kind)
    model._programs, model._contents = {_key_of(x): made}, Contents(model)
    return ""


def _others(x: Any) -> Any:
    """Return drawn images with values between the least and the largest of some images."""
    low, high = float(x.min()), float(x.max())
    drawn = torch.from_numpy(np.random.default_rng(0).random(x.shape, np.float32))
    return torch.empty_like(x).copy_(drawn * ((high - low) or 1) + low)


def _is_same(found: Any, wanted: Any) -> bool:
    """Tell whether two answers have the same tensors, with NaN in the same places."""
    for a, b in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(wanted), strict=True):
        if isinstance(a, torch.Tensor) and (
            a.dtype != b.dtype or a.shape != b.shape or not bool(((a == b) | ((a != a) & (b != b))).all())
        ):
            return False
    return True
