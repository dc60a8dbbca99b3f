"""A checkpoint that another program has quantized, as plain float32 tensors by the names that the weights had."""

from __future__ import annotations

import os
from typing import Any

from numpy.typing import NDArray

from ..base.tensors import Info, Tensors
from .containers.folder import Located
from .layouts.table import KEY, weights_in
from .opening import reader_of

__all__ = ["Foreign", "foreign_reader"]


class Foreign(Tensors):
    """What a reader holds, decoded from the layout of another program.

    Shapes of weights are known once they have been decoded: `info` reads a weight when it is first asked for.

    Parameters
    ----------
    reader : Tensors
        Closed with this.
    layout : str
        Of `layouts.table.LAYOUTS`.

    Attributes
    ----------
    layout : str

    Raises
    ------
    ValueError
        Another name, or no configuration of that program.
    """

    def __init__(self, reader: Tensors, layout: str) -> None:
        self._reader, self.layout = reader, layout
        plain, self._weights = weights_in(reader, layout)
        self.path, self.names, self.skipped = reader.path, [*plain, *self._weights], dict(reader.skipped)
        self.metadata = {key: value for key, value in reader.metadata.items() if key != KEY}
        self.others = sorted({*reader.others, *(reader.files.values() if isinstance(reader, Located) else ())})
        self._infos = {name: reader.info(name) for name in plain}
        self._formats: dict[str, str] = {}

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def __contains__(self, name: str) -> bool:
        return name in self._infos or name in self._weights

    def info(self, name: str) -> Info:
        """Return the dtype and shape of one tensor, of a weight as it is decoded, and the bytes that are stored."""
        if name in self._weights and name not in self._infos:
            self.tensor(name)
        return super().info(name)

    def tensor(self, name: str) -> NDArray[Any]:
        """Read one tensor; a weight is decoded to float32."""
        if name not in self._weights:
            return self._reader.tensor(name)
        weight = self._weights[name]()
        self._infos[name] = Info("float32", weight.shape, weight.nbytes)
        self._formats[name] = weight.said
        return weight.values()

    def format_of(self, name: str) -> str | None:
        """Return the format that a weight is stored in, None of a plain tensor."""
        if name not in self._weights:
            return None
        self.info(name)
        return self._formats[name]


def foreign_reader(path: str | os.PathLike[str], layout: str) -> Foreign:
    """Open a checkpoint in the layout of another program.

    Raises
    ------
    ValueError, OSError, ImportError
        As `reader_of` and `Foreign`.
    """
    reader = reader_of(path)
    try:
        return Foreign(reader, layout)
    except BaseException:
        reader.close()
        raise
