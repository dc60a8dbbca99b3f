"""Tensors of GGUF that are made of several tensors of a folder, of a part of one, or of a matrix (in, out)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....arrays.components import rows_stand_alone
from ....arrays.quantized import QuantizedArray
from ....base.errors import WrongValue
from ....base.texts import quoted
from ....formats import NVFP4
from ....zoo.llm.experts import stacked


@dataclass(frozen=True)
class Stack:
    """A stack of experts, or a matrix that is stored the other way round.

    Attributes
    ----------
    names : tuple of str
        Tensors of the checkpoint: one matrix of each expert, or one stack.
    rows : slice
        Rows of each expert in that stack.
    is_turned : bool
        The plain tensor is (..., in, out). A packed one has been turned when it was rounded.
    """

    names: tuple[str, ...]
    rows: slice = field(default_factory=lambda: slice(None))
    is_turned: bool = False

    def of(self, name: str, parts: list[Any]) -> Any:
        """Return the tensor.

        Parameters
        ----------
        name : str
            In the file, for errors.
        parts : list of array
            The tensors of the checkpoint, in the order of `names`.
        """
        if len(self.names) > 1:
            return _joined(name, parts)
        if isinstance(parts[0], QuantizedArray):
            return self._of_rows(name, parts[0])
        values = np.asarray(parts[0])
        values = values.swapaxes(-2, -1) if self.is_turned else values
        return np.ascontiguousarray(values if self.rows == slice(None) else values[:, self.rows])

    def _of_rows(self, name: str, q: QuantizedArray) -> QuantizedArray:
        if self.rows == slice(None):
            return q
        _check_rows(name, q)
        rows = np.arange(math.prod(q.shape[:2])).reshape(q.shape[:2])[:, self.rows]
        parts = {key: part[rows.reshape(-1)] for key, part in q.components.items()}
        return QuantizedArray(parts, q.format, (*rows.shape, q.shape[2]), q.axis, q.source_dtype)


@dataclass(frozen=True)
class Apart:
    """Matrices of one format that are a stack, each with a scale of its own."""

    parts: list[QuantizedArray]

    @property
    def format(self) -> Any:
        """The format of each matrix."""
        return self.parts[0].format

    @property
    def shape(self) -> tuple[int, ...]:
        """(matrices, rows, columns)."""
        return (len(self.parts), *self.parts[0].shape)

    @property
    def axis(self) -> tuple[int, ...]:
        """The quantized axis."""
        return (2,)

    @property
    def ndim(self) -> int:
        """3."""
        return 3

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        values = np.stack([one.dequantize() for one in self.parts])
        return values if dtype is None else values.astype(dtype)


@dataclass(frozen=True)
class Heads:
    """Rows of each head of one matrix, as (heads, rows, in), or turned as (heads, in, rows).

    `names` and `rows` are those of `Stack`. Packed rows that are turned are decoded.
    """

    names: tuple[str, ...]
    heads: int
    rows: slice
    is_turned: bool = False

    def of(self, name: str, parts: list[Any]) -> Any:
        """Return the tensor, as `Stack.of`."""
        [found] = parts
        if isinstance(found, QuantizedArray) and not self.is_turned:
            _check_rows(name, found)
            rows = np.arange(found.shape[0]).reshape(self.heads, -1)[:, self.rows]
            held = {key: part[rows.reshape(-1)] for key, part in found.components.items()}
            return QuantizedArray(held, found.format, (*rows.shape, found.shape[1]), (2,), found.source_dtype)
        values = np.asarray(found)
        values = values.reshape(self.heads, -1, values.shape[-1])[:, self.rows]
        return np.ascontiguousarray(values.swapaxes(1, 2) if self.is_turned else values)


def _joined(name: str, parts: list[Any]) -> Any:
    packed = [part for part in parts if isinstance(part, QuantizedArray)]
    if not packed:
        return stacked(parts)
    if len(packed) < len(parts) or len({(str(one.format), one.shape) for one in packed}) > 1:
        raise WrongValue(f"save: the experts of {quoted(name)} have several formats, expected one")
    if isinstance(packed[0].format, NVFP4):
        return Apart(packed)
    _check_rows(name, packed[0])
    return stacked(parts)


def _check_rows(name: str, q: QuantizedArray) -> None:
    """Refuse formats with one scale for a matrix: a stack has one of each expert."""
    if not rows_stand_alone(q.format, q.shape[-1]) or any(part.ndim == 0 for part in q.components.values()):
        raise WrongValue(f"save: tensor {quoted(name)}: {q.format} has a scale of the tensor, and a stack has several")
