"""Checkpoints quantized by other programs: their weights as plain float32 tensors, or as they are stored."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.layout import KEY as PACKED
from ..arrays.quantized import QuantizedArray
from ..base.tensors import Info, Tensors
from ..base.texts import printable
from ..base.values import shown
from .containers.folder import Located
from .containers.gguf_files import Gguf
from .containers.onnx_files import Onnx
from .layouts.configuration import KEY
from .layouts.detection import layout_said
from .layouts.gguf.hugging_face import Renamed, renamed
from .layouts.gguf.model import readers as gguf_readers
from .layouts.layout import LAYOUTS
from .layouts.onnx.graph import readers as onnx_readers
from .layouts.refusals import refuse_unread
from .layouts.table import weights_in
from .layouts.targets import OURS
from .layouts.weight import Weight, of_array, of_rows, of_values, turned_array
from .opening import reader_of
from .roles import is_turned, roles_of
from .safetensors import contents, entries, read_array

__all__ = ["Foreign", "Weights", "foreign_reader", "weights_reader"]

GGUF = "gguf"
ONNX = ("onnx", "onnx-matmulnbits")


class Foreign(Tensors):
    """The tensors of a reader, decoded from the layout of another program.

    Shapes of weights are known once they have been decoded: `info` reads a weight when it is first asked for.

    Parameters
    ----------
    reader : Tensors
        Closed with this.
    layout : str
        Of `layouts.layout.LAYOUTS`.

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
        if LAYOUTS[layout].only_stacks:
            self._weights = dict(_of_model(reader, name, read) for name, read in self._weights.items())
        self.path, self.names, self.skipped = reader.path, [*plain, *self._weights], dict(reader.skipped)
        self.metadata = _metadata_left(reader, layout)
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
        self._infos[name] = Info("float32", weight.model_shape, weight.nbytes)
        self._formats[name] = weight.said
        return weight.values()

    def format_of(self, name: str) -> str | None:
        """Return the format in which a weight is stored, None for a plain tensor."""
        if name not in self._weights:
            return None
        self.info(name)
        return self._formats[name]


def _metadata_left(reader: Tensors, layout: str) -> dict[str, str]:
    """Return the metadata that do not describe how weights are stored."""
    if layout in LAYOUTS and LAYOUTS[layout].reads_metadata:
        return {key: value for key, value in reader.metadata.items() if key == "format"}
    return {key: value for key, value in reader.metadata.items() if key not in (KEY, PACKED)}


def _of_model(reader: Tensors, name: str, read: Callable[[], Weight]) -> tuple[str, Callable[[], Weight]]:
    """Return a stack of experts under the name and in the order that its model has, if a configuration says them.

    gpt-oss stores (experts, out, in). transformers has the values as (experts, in, out), in a parameter of the experts.
    """
    own = name.removesuffix(".weight")
    count, rows, groups = reader.info(f"{own}{LAYOUTS['gpt-oss'].ends[1]}").shape
    roles = roles_of(reader, {own: (count, 32 * groups, rows)})
    return (own, partial(_turned, read)) if is_turned(roles.axes.get(own), (count, 32 * groups, rows)) else (name, read)


def _turned(read: Callable[[], Weight]) -> Weight:
    return replace(read(), turned=True)


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


class Weights(Tensors):
    """The tensors of a reader, with weights as they are stored: `weight` and `lent` return a `Weight`.

    Parameters
    ----------
    reader : Tensors
        Closed with this.
    layout : str, optional
        By default what the file says.
    infos : mapping of str to Info, optional
        Of the weights, where they are known: else a weight is read for its shape.
    renames : bool
        Whether the tensors of a language model in GGUF get the names and the order of rows of Hugging Face.

    Attributes
    ----------
    layout : str
    weights : mapping of str to callable
    keys : mapping of str to Any
        The keys of a GGUF file.
    config : dict of str to Any
        What config.json has of a model that was renamed; empty without one.
    why_not_renamed : str or None
        The reason why the tensors of a language model keep the names of GGUF.

    Raises
    ------
    ValueError
        No layout that is read, or another one than `layout`.
    """

    def __init__(
        self,
        reader: Tensors,
        layout: str | None = None,
        infos: Mapping[str, Info] | None = None,
        renames: bool = False,
    ) -> None:
        self._reader, self.layout = reader, layout or _layout_of(reader)
        plain, self.weights, order = _weights_of(reader, self.layout)
        self._model, self.why_not_renamed = _renamed(reader) if renames else (None, None)
        self.config = {} if self._model is None else self._model.config
        self._plain = {name: name for name in plain}
        if self._model is not None:
            held = {own: name for name, own in self._model.names.items()}
            self._plain = {held[name]: name for name in plain if name in held}
            self.weights = {
                held[name]: partial(_in_rows, read, self._model.rows.get(held[name]))
                for name, read in self.weights.items()
            }
            order = [held[name] for name in order if name in held]
        self.path, self.names, self.skipped = reader.path, order, dict(reader.skipped)
        self.metadata = _metadata_left(reader, self.layout)
        self.others = sorted({*reader.others, *(reader.files.values() if isinstance(reader, Located) else ())})
        self._infos = {name: reader.info(own) for name, own in self._plain.items()} | dict(infos or {})
        self._said: dict[str, str] = {}
        self._last: tuple[str, Weight] | None = None
        self.keys = reader.keys() if isinstance(reader, Gguf) else {}

    @property
    def infos(self) -> dict[str, Info]:
        """Description of each weight, by name."""
        return {name: self.info(name) for name in self.weights}

    def close(self) -> None:
        """Close the file."""
        self._last = None
        self._reader.close()

    def __contains__(self, name: str) -> bool:
        return name in self._infos or name in self.weights

    def info(self, name: str) -> Info:
        """Return the dtype and shape of one tensor, of a weight as it is decoded, and the bytes that are stored."""
        if name in self.weights and name not in self._infos:
            self.weight(name)
        return super().info(name)

    def weight(self, name: str) -> Weight:
        """Read one weight; the last one is kept."""
        if self._last is None or self._last[0] != name or self._last[1].is_released:
            self._last = None
            found = self.weights[name]()
            self._infos[name] = Info("float32", found.model_shape, found.nbytes)
            self._said[name] = found.said
            self._last = name, found
        return self._last[1]

    def know(self, name: str, info: Info, said: str) -> None:
        """Store what another reader of the same file found about a weight."""
        self._infos[name], self._said[name] = info, said

    def said(self, name: str) -> str:
        """Return a description of how a tensor is stored."""
        if name not in self.weights:
            return self.info(name).dtype
        if name not in self._said:
            self.weight(name)
        return self._said[name]

    def tensor(self, name: str) -> NDArray[Any]:
        """Read one tensor; a weight is decoded to float32."""
        if name in self.weights:
            return self.weight(name).values()
        values = self._reader.tensor(self._plain[name])
        if self._model is None:
            return values
        rows = self._model.rows.get(name)
        values = values if rows is None else values[rows]
        return values - values.dtype.type(1) if name in self._model.minus_one else values

    def lent(self, name: str) -> Any:
        """Read one tensor, or one weight as it is stored."""
        if name in self.weights:
            return self.weight(name)
        return self.tensor(name) if self._model is not None else self._reader.lent(name)

    def chunks(self, name: str) -> Iterable[memoryview]:
        """Yield a tensor's bytes in pieces; a plain tensor is not read as a whole."""
        return super().chunks(name) if name in self.weights or self._model is not None else self._reader.chunks(name)


def _renamed(reader: Tensors) -> tuple[Renamed | None, str | None]:
    """Return a language model of llama.cpp under the names of Hugging Face, or why it has none.

    Both are None for other files.
    """
    if not isinstance(reader, Gguf) or reader.metadata.get("general.architecture", "none") == "none":
        return None, None
    try:
        return renamed(reader), None
    except ValueError as error:
        return None, str(error).removeprefix(f"{printable(reader.path)}: ")


def _in_rows(read: Callable[[], Weight], rows: NDArray[Any] | None) -> Weight:
    """Return a weight with its rows in another order."""
    weight = read()
    if rows is None:
        return weight
    if weight.array is not None:
        return replace(weight, array=of_rows(weight.array, rows))
    values = weight.values()[rows]
    return of_values(values, weight.said, weight.nbytes)


def _layout_of(reader: Tensors) -> str:
    """Return the layout of the weights of a file."""
    if entries(reader)[0]:
        return OURS
    if isinstance(reader, Gguf):
        return GGUF
    if isinstance(reader, Onnx) and reader.packed:
        return ONNX[0]
    said = layout_said(reader)
    if said is not None:
        return said
    try:
        refuse_unread(reader)
    except ValueError as error:
        raise ValueError(f"{printable(reader.path)}: {error}") from None
    return OURS


def _weights_of(reader: Tensors, layout: str) -> tuple[list[str], dict[str, Callable[[], Weight]], list[str]]:
    """Return the plain tensors of a file, a reader for each weight, and all names in order."""
    if layout == OURS:
        held = dict(contents(reader, entries(reader)[0]))
        shapes = {name: (entry or reader.info(name)).shape for name, entry in held.items()}
        axes = roles_of(reader, shapes).axes
        weights: dict[str, Callable[[], Weight]] = {
            name: partial(_ours, reader, name, entry, is_turned(axes.get(name), entry.shape))
            for name, entry in held.items()
            if entry is not None
        }
        return [name for name in held if name not in weights], weights, list(held)
    if layout == GGUF:
        found = gguf_readers(reader)
        weights = {name: partial(_of_blocks, reader, name, read) for name, read in found.items()
                   if reader.format_of(name) is not None}  # fmt: skip
        return [name for name in found if name not in weights], weights, list(found)
    if layout in ONNX:
        plain, packed = onnx_readers(reader)
        return plain, {name: partial(_of_onnx, read) for name, read in packed.items()}, [*plain, *packed]
    if layout not in LAYOUTS:
        raise ValueError(
            f"{printable(reader.path)}: source is {shown(layout)}, expected {', '.join((OURS, *LAYOUTS, GGUF, *ONNX))}"
        )
    plain, stored = weights_in(reader, layout)
    return plain, stored, [*plain, *stored]


def _ours(reader: Tensors, name: str, entry: Any, turned: bool) -> Weight:
    return _of_packed(read_array(reader, name, entry), str(entry.format), turned)


def _of_packed(array: Any, said: str, turned: bool = False) -> Weight:
    """Return the weight of an array of this package, or its values if it is not quantized along its last axis.

    `turned`: its model has it as (..., in, out).
    """
    if turned and isinstance(array, QuantizedArray) and array.axis == (array.ndim - 2,):
        return replace(of_array(turned_array(array)), turned=True)
    if isinstance(array, QuantizedArray) and array.ndim > 1 and array.axis == (array.ndim - 1,):
        return of_array(array)
    along = f" along axes {array.axis}" if isinstance(array, QuantizedArray) else ""
    return of_values(np.asarray(array, np.float32), said + along, array.nbytes)


def _of_blocks(reader: Tensors, name: str, read: Callable[[], Any]) -> Weight:
    array = read()
    if isinstance(array, QuantizedArray) and array.ndim > 1:
        return of_array(array)
    values = np.asarray(array, np.float32)
    return of_values(values, str(reader.format_of(name)), reader.stored_bytes(name))


def _of_onnx(read: Callable[[], Any]) -> Weight:
    found = read()
    if isinstance(found, QuantizedArray):
        return _of_packed(found, str(found.format))
    return of_values(found, "MatMulNBits with float zero points", found.nbytes)


def weights_reader(
    path: str | os.PathLike[str],
    layout: str | None = None,
    infos: Mapping[str, Info] | None = None,
    renames: bool = False,
) -> Weights:
    """Open a checkpoint with its weights as they are stored.

    Raises
    ------
    ValueError, OSError, ImportError
        As `reader_of` and `Weights`.
    """
    reader = reader_of(path)
    try:
        return Weights(reader, layout, infos, renames)
    except BaseException:
        reader.close()
        raise
