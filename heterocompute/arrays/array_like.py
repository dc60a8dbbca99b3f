"""The types of array arguments of public functions, for type checkers. A text or a number is not an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

__all__ = ["ArrayLike"]


class SupportsArray(Protocol):
    """An object that NumPy converts: a packed array, a DataFrame."""

    def __array__(self, *args: Any, **options: Any) -> Any: ...


class SupportsDLPack(Protocol):
    """An array of another library: a tensor of PyTorch, an array of JAX or CuPy."""

    def __dlpack__(self, *args: Any, **options: Any) -> Any: ...


class SupportsSparse(Protocol):
    """A sparse array, as those of SciPy."""

    @property
    def nnz(self) -> Any: ...


_Row: TypeAlias = Sequence[float]
_Matrix: TypeAlias = Sequence[_Row]
ArrayLike: TypeAlias = (
    np.ndarray[Any, Any] | SupportsArray | SupportsDLPack | SupportsSparse | _Row | _Matrix | Sequence[_Matrix]
)
