"""A call of a network as the operations that it ran: `record`.

A recorded call is a list of `Operation`, each with the operations and constants that it reads. It belongs to inputs of
one shape. A packed layer is one operation; all others are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map

from ..modules import PackedConv2d
from ..weights import PackedWeight

OWN = ("heterocompute",)  # namespaces of operators that other packed layers call
IN_PLACE = {  # operations on x alone, whose result replaces x
    "aten.relu_.default": torch.ops.aten.relu.default,
    "aten.hardtanh_.default": torch.ops.aten.hardtanh.default,
    "aten.clamp_.default": torch.ops.aten.clamp.default,
    "aten.clamp_min_.default": torch.ops.aten.clamp_min.default,
    "aten.add_.Tensor": torch.ops.aten.add.Tensor,
}


class Slot(NamedTuple):
    """A result in place of a tensor: output `part` of operation `of`; operation -1 is the input."""

    of: int
    part: int = 0


class Operation(NamedTuple):
    """A function with arguments in which results of earlier operations are slots."""

    function: Any  # a PackedConv2d, a packed layer or an operator
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shapes: tuple[Any, ...]  # of the results
    dtypes: tuple[Any, ...]


class Refused(Exception):
    """A call cannot be recorded; the message is the reason."""


class Recorder(TorchDispatchMode):
    """Records operations on tensors that depend on the input."""

    def __init__(self, x: Any) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self.slots: dict[int, Slot] = {id(x): Slot(-1)}
        self.held: list[Any] = [x]  # ids stay unique
        self.owners: dict[int, set[int]] = {x.untyped_storage().data_ptr(): {id(x)}}

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise Refused(f"{func} draws random numbers")
        known = any(id(one) in self.slots for one in tree_flatten((args, kwargs))[0])
        noted = func
        if func._schema.is_mutable:
            noted = IN_PLACE.get(str(func))
            if noted is None or not self._is_own(args[0]):
                raise Refused(f"{func} writes to a tensor")
        answer = func(*args, **kwargs)
        if not known:
            self.held.append(answer)
            return answer
        self.note(noted, args, kwargs, answer)
        return answer

    def _is_own(self, x: Any) -> bool:
        """Tell whether x is a result, which is no view and has none. The input is the caller's."""
        own = self.slots.get(id(x), Slot(-1)) != Slot(-1)
        return own and len(self.owners[x.untyped_storage().data_ptr()]) == 1

    def note(self, function: Any, args: Any, kwargs: Any, answer: Any) -> None:
        """Add an operation that was run."""
        parts = answer if isinstance(answer, (tuple, list)) else (answer,)
        if not all(isinstance(one, torch.Tensor) for one in parts):
            raise Refused(f"{function} returns no tensor, on which the model may depend")
        args, kwargs = tree_map(lambda one: self.slots.get(id(one), one), (args, kwargs))
        shapes, dtypes = tuple(one.shape for one in parts), tuple(one.dtype for one in parts)
        self.operations.append(Operation(function, tuple(args), kwargs, shapes, dtypes))
        for i, one in enumerate(parts):
            self.held.append(one)
            self.slots[id(one)] = Slot(len(self.operations) - 1, i)
            self.owners.setdefault(one.untyped_storage().data_ptr(), set()).add(id(one))


@contextmanager
def _noting(model: Any, recorder: Recorder) -> Iterator[None]:
    """Let packed layers tell a recorder of their calls."""
    changed = []

    def told(module: Any) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            with _disable_current_modes():
                answer = type(module).forward(module, *args, **kwargs)
            recorder.note(module, args, kwargs, answer)
            return answer

        return forward

    try:
        for one in model.modules():
            if isinstance(one._modules.get("weight"), PackedWeight) and "forward" not in vars(one):
                one.__dict__["forward"] = told(one)
                changed.append(one)
        yield
    finally:
        for one in changed:
            del one.__dict__["forward"]


def record(model: Any, forward: Any, x: Any) -> tuple[list[Operation], Any]:
    """Return the operations of a call with one tensor, and its answer with slots in place of tensors.

    Parameters
    ----------
    model : torch.nn.Module
    forward : callable
        Calls the model.
    x : torch.Tensor

    Raises
    ------
    Refused
        The call has effects other than its answer, or depends on values of tensors.
    """
    recorder = Recorder(x)
    with _noting(model, recorder), recorder:
        answer = forward(x)

    def slot_of(one: Any) -> Any:
        if not isinstance(one, (torch.Tensor, int, float, str, type(None))):
            raise Refused(f"its answer has a {type(one).__name__}")
        if isinstance(one, torch.Tensor) and id(one) not in recorder.slots:
            raise Refused("its answer does not depend on its input")
        return recorder.slots.get(id(one), one)

    return recorder.operations, tree_map(slot_of, answer)


def is_convolution(function: Any) -> bool:
    """Tell whether an operation is a packed convolution of images that a chain computes."""
    return isinstance(function, PackedConv2d)
