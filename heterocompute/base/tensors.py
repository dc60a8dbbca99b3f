"""What every file of tensors offers: names, dtypes and shapes at once, one tensor when it is asked for."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from .texts import printable, quoted

__all__ = ["CHUNK", "Info", "Tensors"]

CHUNK = 16 << 20


@dataclass(frozen=True)
class Info:
    """What a file says of one tensor: `dtype` by NumPy's name, `shape`, `nbytes`, `begin` in the data."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    begin: int = 0


class Tensors:
    """A file of tensors, or several that are one.

    A kind of file sets the attributes and defines `tensor`.

    Attributes
    ----------
    path : str
    names : list of str
        In the order of the file.
    metadata : dict of str to str
    skipped : dict of str to str
        What stands in the file and is not a tensor of a dtype that is known here -> what it is.
    others : collection of str
        Paths of further files that hold data of tensors.
    axes : mapping of str to tuple of int
        Reduction axes of the tensors of which the file says what multiplies by them.
    quantized : str or None
        What the file says that shows tensors to be codes, not weights; "" where it says that none are.
    """

    path: str
    names: list[str]
    metadata: dict[str, str]
    skipped: dict[str, str]
    others: Collection[str] = ()
    axes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    quantized: str | None = None
    _infos: dict[str, Info]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open."""

    def __contains__(self, name: str) -> bool:
        return name in self._infos

    def info(self, name: str) -> Info:
        """Return the dtype, shape and bytes of one tensor.

        Raises
        ------
        ValueError
            If there is no such tensor.
        """
        try:
            return self._infos[name]
        except KeyError:
            self._fail(f"no tensor {quoted(name)}")

    def format_of(self, name: str) -> str | None:
        """Return the format of a tensor that is stored as codes, though it is read as values; None of others."""
        return None

    def stored_bytes(self, name: str) -> int:
        """Return how many bytes of the file a tensor takes."""
        return self.info(name).nbytes

    def tensor(self, name: str) -> NDArray[Any]:
        """Read one tensor into an array of its own; bfloat16 and float8 as the dtypes of ml_dtypes."""
        raise NotImplementedError

    def lent(self, name: str) -> NDArray[Any]:
        """Read one tensor, into memory that the next call may use again: as fast as it can be had."""
        return self.tensor(name)

    def shared(self, name: str) -> NDArray[Any]:
        """Read one tensor; those that share memory in the file may share it here, so that all take no more than it."""
        return self.tensor(name)

    def same(self, name: str) -> Hashable:
        """Return what two names have in common that are one array in the file."""
        return name

    def parts(self, name: str) -> Iterator[NDArray[Any]]:
        """Yield a tensor's values, some at a time and flat."""
        yield self.tensor(name).reshape(-1)

    def chunks(self, name: str) -> Iterable[memoryview]:
        """Yield a tensor's bytes in C order, little end first, a piece at a time."""
        array = self.tensor(name)
        flat = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
        for begin in range(0, flat.size, CHUNK):
            yield flat[begin : begin + CHUNK].data

    def values(self, data: NDArray[np.uint8], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
        """Return bytes as values; a bool is 0 or 1."""
        if dtype.kind == "b" and data.size and data.max() > 1:
            self._fail(f"tensor {quoted(name)} holds a bool that is neither 0 nor 1")
        return data.view(dtype)

    def _fail(self, what: str) -> NoReturn:
        raise ValueError(f"{printable(self.path)}: {what}")
