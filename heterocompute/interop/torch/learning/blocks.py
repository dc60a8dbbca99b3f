"""The recorded calls of a model's blocks, which learned rounding repeats."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...models.batches import evaluating
from ...models.blocks import cloned, without_cache
from ...models.chain import tokens_of

Array = np.ndarray[Any, Any]
Call = tuple[tuple[Any, ...], dict[str, Any]]


class _Enough(BaseException):
    """Ends a run of a model after the last call of a block; a model that catches Exception does not catch it."""


@dataclass
class Recorded:
    """Calls of a block in one batch.

    Attributes
    ----------
    exact, calls : list of (args, kwargs)
        Inputs in the unrounded and in the rounded model.
    outputs : list of list of tensor
        Outputs in the unrounded model.
    keep : ndarray of bool, or None
        Tokens of the batch that are not padding.
    """

    exact: list[Call]
    calls: list[Call]
    outputs: list[list[torch.Tensor]]
    keep: Array | None


class Repeated(torch.nn.Module):
    """A block that is run with its recorded calls: a model whose batches are their indices."""

    def __init__(self, block: Any, calls: list[list[Call]]) -> None:
        super().__init__()
        self.block, self.calls = block, calls

    def forward(self, index: int) -> None:
        for args, kwargs in self.calls[index]:
            self.block(*cloned(args), **cloned(kwargs))


def order_of(model: Any, source: Any, batch: Any, paths: Iterable[str]) -> dict[str, int]:
    """Return the number of calls of each block for a batch, in the order of their first calls."""
    counts: dict[str, int] = {}
    hooks = []
    for path in paths:

        def called(module: Any, args: Any, path: str = path) -> None:
            counts[path] = counts.get(path, 0) + 1

        hooks.append(model.get_submodule(path).register_forward_pre_hook(called))
    try:
        with evaluating(model), without_cache(model):
            source.run(model, batch, 0)
    finally:
        for hook in hooks:
            hook.remove()
    return counts


def record(
    model: Any, rounded: Any, source: Any, batches: Iterable[Any], path: str, count: int
) -> list[Recorded] | None:
    """Return the calls of a block for each batch, or None if they cannot be repeated.

    Parameters
    ----------
    model, rounded : torch.nn.Module
    source : Batches
    batches : iterable
    path : str
        Of the block.
    count : int
        Number of its calls for a batch. The models are not run further.
    """
    found = list[Recorded]()
    for batch in batches:
        exact, calls = list[Call](), list[Call]()
        outputs, others = list[list[torch.Tensor]](), list[list[torch.Tensor]]()
        _run(model, source, batch, path, count, exact, outputs)
        _run(rounded, source, batch, path, count, calls, others)
        if not len(exact) == len(calls) == count or not all(outputs) or [*map(len, outputs)] != [*map(len, others)]:
            return None
        if not found and not _repeats(rounded.get_submodule(path), calls[0], others[0]):
            return None
        found.append(Recorded(exact, calls, outputs, tokens_of(batch)))
    return found


def compared(found: list[torch.Tensor], exact: list[torch.Tensor], keep: Array | None) -> list[tuple[Any, Any, Any]]:
    """Return (output, output in the unrounded model, its sum of squares) without padding, for each output of a call."""
    parts = []
    for z, y in zip(found, exact, strict=True):
        if keep is not None and z.shape[:2] == keep.shape:
            z, y = z[torch.from_numpy(keep)], y[torch.from_numpy(keep)]
        parts.append((z, y, y.square().sum().clamp(min=1e-30)))
    return parts


def floats_of(answer: Any) -> list[torch.Tensor]:
    """Return the float tensors of an answer, with their gradients."""
    if isinstance(answer, torch.Tensor):
        return [answer.float()] if answer.is_floating_point() else []
    parts = answer.values() if hasattr(answer, "values") else answer if isinstance(answer, (tuple, list)) else ()
    return [tensor for part in parts for tensor in floats_of(part)]


def _run(
    model: Any, source: Any, batch: Any, path: str, count: int, calls: list[Call], outputs: list[list[torch.Tensor]]
) -> None:
    """Run a model until the last call of a block, and append the inputs and outputs of the block."""
    module = model.get_submodule(path)

    def before(own: Any, args: Any, kwargs: Any) -> None:
        calls.append((cloned(args), cloned(kwargs)))

    def after(own: Any, args: Any, answer: Any) -> None:
        outputs.append([one.detach().clone() for one in floats_of(answer)])
        if len(outputs) == count:
            raise _Enough

    hooks = [
        module.register_forward_pre_hook(before, with_kwargs=True, prepend=True),
        module.register_forward_hook(after),
    ]
    try:
        with evaluating(model), without_cache(model), contextlib.suppress(_Enough):
            source.run(model, batch, 0)
    finally:
        for hook in hooks:
            hook.remove()


def _repeats(module: Any, call: Call, outputs: list[torch.Tensor]) -> bool:
    """Tell whether a block returns the same for the same inputs; one with a state, such as a cache, may not."""
    args, kwargs = cloned(call)
    try:
        with evaluating(module):
            again = floats_of(module(*args, **kwargs))
    except Exception:  # whatever a block raises outside of its model
        return False
    shapes = [one.shape for one in again] == [one.shape for one in outputs]
    return shapes and all(torch.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in zip(again, outputs, strict=True))
