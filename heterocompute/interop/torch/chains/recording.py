"""A call of a network as the operations that it ran: `record`.

A recorded call is a list of `Operation`, each with the operations and constants that it reads. It belongs to inputs of
one shape. A packed layer is one operation; all others are PyTorch's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map

from ..modules import PackedConv2d
from ..weights import PackedWeight

aten = torch.ops.aten
IN_PLACE = {  # operations that write to their first tensor alone, and those that return the same values
    aten.relu_.default: aten.relu.default,
    aten.hardtanh_.default: aten.hardtanh.default,
    aten.clamp_.default: aten.clamp.default,
    aten.clamp_min_.default: aten.clamp_min.default,
    aten.add_.Tensor: aten.add.Tensor,
    aten.mul_.Tensor: aten.mul.Tensor,
    aten.silu_.default: aten.silu.default,
    aten.sigmoid_.default: aten.sigmoid.default,
    aten.hardswish_.default: aten.hardswish.default,
    aten.hardsigmoid_.default: aten.hardsigmoid.default,
    aten.leaky_relu_.default: aten.leaky_relu.default,
}
STRIDES = (aten.as_strided.default, aten._reshape_alias.default)  # read memory by strides, which other images change
LOCK = threading.RLock()  # one recording at a time: it changes modules that other threads call
FORWARD = "forward"
LIBRARIES = ("torch", "heterocompute")
OF_FUSED = ("_programs", "_contents")  # attributes that a call of a fused network changes


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
    """Records all operations of a call, also those on parameters, which may change between calls."""

    def __init__(self, x: Any) -> None:
        super().__init__()
        self.thread = threading.get_ident()
        self.operations: list[Operation] = []
        self.slots: dict[int, Slot] = {id(x): Slot(-1)}
        self.held: list[Any] = [x]  # ids stay unique
        self.owners: dict[int, set[int]] = {x.untyped_storage().data_ptr(): {id(x)}}

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise Refused(f"{func} draws random numbers")
        if torch.Tag.dynamic_output_shape in func.tags:
            raise Refused(f"the shape of {func} depends on values of tensors")
        if func in STRIDES:
            raise Refused(f"{func} reads memory by strides")
        if func._schema.is_mutable or _updates(func, args):
            if not self._replaces(func, args, kwargs):
                raise Refused(f"{func} writes to a tensor")
            answer = func(*args, **kwargs)
            self.note(IN_PLACE[func], args, kwargs, answer)
        else:
            answer = func(*args, **kwargs)
            self.note(func, args, kwargs, answer)
        return answer

    def _replaces(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Tell whether an operation writes to a result that nothing else reads, and keeps its dtype."""
        x = args[0]
        if func not in IN_PLACE or self.slots.get(id(x), Slot(-1)).of < 0:
            return False
        tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)]
        return len(self.owners[x.untyped_storage().data_ptr()]) == 1 and all(one.dtype == x.dtype for one in tensors)

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


def is_own(module: Any) -> bool:
    """Tell whether a module is none of a library, and may keep attributes or read those that others set."""
    return type(module).__module__.partition(".")[0] not in LIBRARIES


def _updates(func: Any, args: Any) -> bool:
    """Tell whether an operation is a batch norm that updates running means, which its schema does not say."""
    return func is aten.native_batch_norm.default and bool(args[5]) and args[3] is not None


def _attributes(model: Any) -> dict[tuple[str, str], Any]:
    """Return the attributes of modules of users: the object, and the size of a list, dictionary or set."""
    return {
        (path, name): (value, len(value) if isinstance(value, (list, dict, set)) else 0)
        for path, module in model.named_modules()
        if is_own(module)
        for name, value in vars(module).items()
        if name not in OF_FUSED
    }


def _check_attributes(model: Any, before: dict[tuple[str, str], Any]) -> None:
    """Refuse a model whose forward keeps something: a call of the core would not."""
    after = _attributes(model)
    for (path, name), (value, size) in after.items():
        was = before.get((path, name))
        if was is None or was[0] is not value or was[1] != size:
            raise Refused(f"its forward changes {f'{path}.{name}' if path else name}")


@contextmanager
def _noting(model: Any, recorder: Recorder) -> Iterator[None]:
    """Let packed layers tell a recorder of their calls."""
    changed = []

    def told(module: Any) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != recorder.thread:
                return type(module).forward(module, *args, **kwargs)
            with _disable_current_modes():
                answer = type(module).forward(module, *args, **kwargs)
            recorder.note(module, args, kwargs, answer)
            return answer

        return forward

    try:
        for one in model.modules():
            if isinstance(one._modules.get("weight"), PackedWeight) and FORWARD not in vars(one):
                one.__dict__[FORWARD] = told(one)
                changed.append(one)
        yield
    finally:
        for one in changed:
            del one.__dict__[FORWARD]


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
    with LOCK:
        recorder, before = Recorder(x), _attributes(model)
        with _noting(model, recorder), recorder:
            answer = forward(x)
        _check_attributes(model, before)

    def slot_of(one: Any) -> Any:
        if not isinstance(one, (torch.Tensor, int, float, str, type(None))):
            raise Refused(f"its answer has a {type(one).__name__}")
        if isinstance(one, torch.Tensor) and id(one) not in recorder.slots:
            raise Refused("its answer has a tensor that it did not compute")
        return recorder.slots.get(id(one), one)

    return recorder.operations, tree_map(slot_of, answer)


def is_convolution(function: Any) -> bool:
    """Tell whether an operation is a packed convolution of images that a chain computes."""
    return type(function) is PackedConv2d
