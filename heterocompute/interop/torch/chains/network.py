"""A network whose runs of convolutions are one call each: `fuse_network`."""

from __future__ import annotations

from typing import Any

import torch

from ....base import runtime
from ....base.errors import ArgumentError
from ..modules import PackedConv2d
from ..operators import is_unobserved
from .recording import Refused, record
from .running import Program

MOST = 8  # shapes of inputs whose programs are kept
PROBLEMS = ArgumentError, ValueError, TypeError, MemoryError
_all_hooks = torch.nn.modules.module
_classes: dict[Any, Any] = {}


class Contents:
    """Modules and tensors of a network, as they were when a program was recorded."""

    def __init__(self, model: Any) -> None:
        every = [*model.modules()]
        self.inner = [(vars(one), one.training) for one in every[1:]]
        self.children = [(one, type(one), (*one._modules.values(),)) for one in every if one._modules]
        self.parameters = [(one._parameters, (*one._parameters.values(),)) for one in every if one._parameters]
        self.needs = [one for one in model.parameters() if one.requires_grad]

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
        return not (torch.is_grad_enabled() and any(one.requires_grad for one in self.needs))


class FusedNetwork:
    """The forward of a fused network: `fuse` adds it to the class of the network."""

    _programs: dict[Any, Program | None]
    _contents: Contents | None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program for images of this shape, or as its own class does."""
        program = None
        if len(args) == 1 and not kwargs and _is_plain(args[0]) and not self.training:  # type: ignore[attr-defined]
            program = self._program(args[0])
        if program is not None:
            try:
                return program.run(args[0])
            except PROBLEMS:  # its own steps name the layer
                pass
        return super().forward(*args, **kwargs)  # type: ignore[misc]

    def _program(self, x: Any) -> Program | None:
        contents = self._contents
        if contents is None:
            contents = self._contents = Contents(self)
        if not contents.is_plain():
            again = Contents(self)
            if not again.is_plain():
                return None
            self._programs, self._contents = {}, again
        key = tuple(x.shape)
        if key not in self._programs:
            if len(self._programs) >= MOST:
                self._programs.pop(next(iter(self._programs)))
            made = program_of(self, super().forward, x)  # type: ignore[misc]
            self._programs[key] = None if isinstance(made, str) else made
        return self._programs[key]

    def __reduce_ex__(self, protocol: Any) -> Any:
        state = {**self.__dict__, "_programs": {}, "_contents": None}
        return _remade, (type(self).__mro__[2],), state


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
        wanted = model.forward(x)
        try:
            found = made.run(x)
        except PROBLEMS as problem:
            return str(problem)
    wanted, found = (torch.utils._pytree.tree_leaves(one) for one in (wanted, found))
    tensors = [(a, b) for a, b in zip(wanted, found, strict=True) if isinstance(a, torch.Tensor)]
    if not all(torch.equal(a, b) for a, b in tensors):
        return "its own steps have another result"
    kind = type(model)
    model.__class__ = _class_of(kind)
    model._programs, model._contents = {tuple(x.shape): made}, Contents(model)
    return ""
