"""The interface of files of tensors: names, dtypes and shapes when a file is opened, each tensor on access."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from .errors import WrongValue, printable
from .texts import quoted

CHUNK = 16 << 20


@dataclass(frozen=True)
class Info:
    """Description of one tensor in a file: NumPy's name of the dtype, shape, bytes, and offset `begin` in the data."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    begin: int = 0


class Tensors:
    """A file of tensors, or several files that form one.

    A kind of file sets the attributes and defines `tensor`.

    Attributes
    ----------
    path : str
    names : list of str
        In the order of the file.
    metadata : dict of str to str
    skipped : dict of str to str
        Entries that are not tensors of a known dtype, each with a description.
    others : collection of str
        Paths of further files that hold data of tensors.
    axes : mapping of str to tuple of int
        Reduction axes of the tensors for which the file says which operator multiplies by them.
    is_configured : bool
        Whether a config.json in the folder of the file may describe the tensors under their names.
    quantized : str or None
        Evidence in the file that tensors are codes instead of weights; "" if the file says that none are.
    """

    path: str
    names: list[str]
    metadata: dict[str, str]
    skipped: dict[str, str]
    others: Collection[str] = ()
    axes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    is_configured: bool = True
    quantized: str | None = None
    _infos: dict[str, Info]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the open files."""

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
        """Return the format of a tensor that is stored as codes and read as values; None for other tensors."""
        return None

    def stored_bytes(self, name: str) -> int:
        """Return the number of bytes of a tensor in the file."""
        return self.info(name).nbytes

    def tensor(self, name: str) -> NDArray[Any]:
        """Read one tensor into a new array; bfloat16 and float8 have the dtypes of ml_dtypes."""
        raise NotImplementedError

    def lent(self, name: str) -> NDArray[Any]:
        """Read one tensor into memory that is reused once no array refers to it; the fastest way to read."""
        return self.tensor(name)

    def shared(self, name: str) -> NDArray[Any]:
        """Read one tensor; tensors that share memory in the file may share it here, too, which saves memory."""
        return self.tensor(name)

    def same(self, name: str) -> Hashable:
        """Return a key that is the same for all names of one array in the file."""
        return name

    def parts(self, name: str) -> Iterator[NDArray[Any]]:
        """Yield a tensor's values in flat parts."""
        yield self.tensor(name).reshape(-1)

    def chunks(self, name: str) -> Iterable[memoryview]:
        """Yield a tensor's bytes in C order, little-endian, in pieces."""
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
        raise WrongValue(f"{printable(self.path)}: {what}")
