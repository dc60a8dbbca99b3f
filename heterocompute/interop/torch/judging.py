"""Batches that choose steps of a conversion, and held-out batches that judge them.

Every fourth batch is held out, of two or three batches the last one. A single batch chooses and judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..models.batches import EVERY, Batches, evaluating

Array = np.ndarray[Any, Any]

ROWS = 512  # inputs of a layer that its candidates are compared on


class Divided:
    """Batches in two parts, by their index.

    Parameters
    ----------
    batches : object
        As of `heterocompute.ptq.calibrate`. They are read several times.

    Attributes
    ----------
    source : Batches
    first : object
        The first batch.
    count : int
        Number of batches.
    """

    def __init__(self, batches: object) -> None:
        self.source = Batches(batches, "convert: inputs")
        self.first: Any = None
        self.count = 0
        for batch in self.source:
            self.first = batch if self.first is None else self.first
            self.count += 1

    def chosen(self) -> Iterator[Any]:
        """Yield the batches that choose."""
        return (batch for index, batch in enumerate(self.source) if self.count == 1 or not self._is_held(index))

    def held(self) -> Iterator[Any]:
        """Yield the batches that judge."""
        return (batch for index, batch in enumerate(self.source) if self._is_held(index))

    def _is_held(self, index: int) -> bool:
        return index == self.count - 1 if self.count < EVERY else index % EVERY == EVERY - 1

    @property
    def share(self) -> int:
        """Inputs of a layer that each batch contributes, so that all batches that choose have a part in `ROWS`."""
        held = self.count // EVERY or 1
        return -(-ROWS // max(self.count - held, 1))

    def returns_floats(self, model: Any) -> bool:
        """Tell whether the model returns floats for the first batch."""
        return bool(answer_of(model, self.source, self.first))

    def errors(self, model: Any, others: Sequence[Any]) -> list[float]:
        """Return the relative squared error of the outputs of each model on the held-out batches."""
        wholes: dict[int, float] = {}
        lost: list[dict[int, float]] = [{} for _ in others]
        for batch in self.held():
            exact = answer_of(model, self.source, batch)
            for i, y in enumerate(exact):
                wholes[i] = wholes.get(i, 0.0) + _squares(y)
            for sums, other in zip(lost, others, strict=True):
                for i, (y, z) in enumerate(zip(exact, answer_of(other, self.source, batch), strict=True)):
                    sums[i] = sums.get(i, 0.0) + _squares(y - z)
        return [sum(own / wholes[i] for i, own in sums.items() if wholes[i]) for sums in lost]


def improves(model: Any, small: Any, batches: Divided, rounded: Callable[[Any], Any]) -> bool:
    """Tell whether a changed model has less error than the model if the layers of both are rounded."""
    before, after = batches.errors(model, [rounded(model), rounded(small)])
    return after < before


def some_rows(x: Any, count: int) -> Array:
    """Return up to `count` inputs (rows of the last axis) of a call as float32, spread evenly over all of them."""
    rows = x.detach().reshape(-1, x.shape[-1])
    step = max(len(rows) // count, 1)
    found: Array = rows[::step][:count].float().numpy().copy()
    return found


def answer_of(model: Any, source: Batches, batch: Any) -> list[Array]:
    """Return the float tensors that a model returns for a batch."""
    with evaluating(model):
        return _tensors(source.run(model, batch, 0))


def _tensors(answer: Any) -> list[Array]:
    if hasattr(answer, "detach"):
        return [answer.detach().float().numpy()] if answer.is_floating_point() else []
    parts = answer.values() if hasattr(answer, "values") else answer if isinstance(answer, (tuple, list)) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


def _squares(x: Array) -> float:
    return float(np.square(x, dtype=np.float64).sum())
