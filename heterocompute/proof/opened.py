"""A checkpoint of any layout as names with arrays as they are stored, under the names of Hugging Face if known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import WrongValue
from ..base.tensors import Info, Tensors
from ..files.foreign import Weights, weights_reader
from ..files.opening import reader_of
from ..files.safetensors import contents, entries, read_array


class OwnArrays(Tensors):
    """The arrays of a file of this package, along any axes; packed ones are read as values by `tensor`."""

    def __init__(self, reader: Tensors) -> None:
        self._reader = reader
        self._held = dict(contents(reader, entries(reader)[0]))
        self.path, self.metadata, self.skipped = reader.path, reader.metadata, reader.skipped
        self.names = list(self._held)
        self._infos = {
            name: reader.info(name) if entry is None else Info("float32", tuple(entry.shape), 0)
            for name, entry in self._held.items()
        }

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def array(self, name: str) -> Any:
        """Read a packed array; None for a plain tensor."""
        entry = self._held[name]
        return None if entry is None else read_array(self._reader, name, entry)

    def tensor(self, name: str) -> NDArray[Any]:
        """Read the values of one array."""
        found = self.array(name)
        return self._reader.tensor(name) if found is None else np.asarray(found, np.float32)

    def declared(self, name: str) -> str:
        """Return the dtype or the format of an array."""
        entry = self._held[name]
        return self.info(name).dtype if entry is None else str(entry.format)


def opened(path: str, layout: str | None = None) -> Tensors:
    """Open a checkpoint; quantized weights of a known layout are read as stored by `array_in`."""
    if layout is None:
        reader = reader_of(path)
        try:
            if entries(reader)[0]:
                return OwnArrays(reader)
        except BaseException:
            reader.close()
            raise
        reader.close()
    try:
        return weights_reader(path, layout, renames=True)
    except WrongValue:
        if layout is not None:
            raise
        return reader_of(path)


def is_packed(reader: Tensors, name: str) -> bool:
    """Tell whether an array is stored as codes."""
    return reader.array(name) is not None if isinstance(reader, OwnArrays) else (
        isinstance(reader, Weights) and name in reader.weights
    )  # fmt: skip


def array_in(reader: Tensors, name: str) -> Any:
    """Return a packed array; None for plain tensors, and for weights that no format of this package holds."""
    if isinstance(reader, OwnArrays):
        return reader.array(name)
    if not isinstance(reader, Weights) or name not in reader.weights:
        return None
    weight = reader.weight(name)
    return weight.packed() if weight.array is not None and weight.order is None else None


def weight_in(reader: Tensors, name: str) -> Any:
    """Return a weight of another program with an order of columns, or with blocks of codes; None for all others."""
    if isinstance(reader, OwnArrays) or not isinstance(reader, Weights) or name not in reader.weights:
        return None
    weight = reader.weight(name)
    return weight if weight.order is not None or weight.blocks is not None else None


def declared_in(reader: Tensors, name: str) -> str:
    """Return a description of how an array is stored."""
    if isinstance(reader, (OwnArrays, Weights)):
        return reader.declared(name)
    return reader.format_of(name) or reader.info(name).dtype
