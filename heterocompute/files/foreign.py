"""Checkpoints quantized by other programs: their weights as plain float32 tensors, or as they are stored."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from numpy.typing import NDArray

from ..arrays.layout import KEY as PACKED
from ..base.container import numpy_dtype
from ..base.errors import WrongValue, printable, shown
from ..base.float_env import converted
from ..base.tensors import Info, Tensors
from .containers.folder import Located
from .layouts.configuration import KEY
from .layouts.layout import Layout
from .layouts.reading import weights_in
from .layouts.refusals import refuse_unread
from .layouts.table import LAYOUTS, layout_said, read_layout
from .layouts.weight import Weight, of_array, of_rows, of_values
from .opening import reader_of
from .own import OURS

Opened = TypeVar("Opened", bound=Tensors)


class Weights(Tensors):
    """The tensors of a reader, with weights as they are stored: `weight` and `lent` return a `Weight`.

    Parameters
    ----------
    reader : Tensors
        Closed with this.
    layout : str, optional
        Its name. By default what the file says.
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
        found = _layout_of(reader) if layout is None else OURS if layout == OURS.name else _read_layout(reader, layout)
        self._reader, self._found, self.layout = reader, found, found.name
        order, self.weights = weights_in(reader, found) if found.has_tensors else found.weights(reader)
        plain = [name for name in order if name not in self.weights]
        self.why_not_renamed: str | None = None
        self._model: Any = None
        if renames:
            self._model, self.why_not_renamed = found.renamed(reader)
        self.config = {} if self._model is None else self._model.config
        self._plain = {name: name for name in plain}
        self._infos = dict[str, Info]()
        self._made = dict[str, Callable[[], NDArray[Any]]]()  # tensors that are made of several
        self._expert: dict[str, int] = {}  # numbers of tensors that are one expert of a stack
        self._stack: tuple[str, Any] | None = None  # the last one
        if self._model is not None:
            held = {own: (name,) for name, own in self._model.names.items()} | self._model.experts
            stacks = self._model.experts
            self._plain = {name: own for own in plain for name in held.get(own, ())}
            self._expert = {name: j for names in stacks.values() for j, name in enumerate(names)}
            reads, self.weights = self.weights, {}
            for own, read in reads.items():
                for name in held.get(own, ()):
                    one = partial(_in_rows, read, self._model.rows.get(name))
                    self.weights[name] = partial(self._one_of, own, read, name) if own in stacks else one
            order = [name for own in order for name in held.get(own, ())]
            order += [self._join(name, reads) for name in self._model.joins]
        self.path, self.names, self.skipped = reader.path, order, dict(reader.skipped)
        self.metadata = _metadata_left(reader, found)
        self.others = sorted({*reader.others, *(reader.files.values() if isinstance(reader, Located) else ())})
        self._infos |= {name: self._info_of(name, reader.info(own)) for name, own in self._plain.items()}
        self._infos |= dict(infos or {})
        self._said: dict[str, str] = {}
        self._last: tuple[str, Weight] | None = None
        self.keys = found.keys(reader)

    def companions(self) -> tuple[dict[str, str], str | None]:
        """Return further files of a folder with the model, by name, and the reason if there are none."""
        if self._model is None:
            return {}, None
        try:
            return self._found.companions(self._reader), None
        except (ValueError, ImportError) as error:
            return {}, str(error).removeprefix(f"{printable(self._reader.path)}: ")

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
            self._said[name] = found.declared
            self._last = name, found
        return self._last[1]

    def know(self, name: str, info: Info, declared: str) -> None:
        """Store what another reader of the same file found about a weight."""
        self._infos[name], self._said[name] = info, declared

    def _join(self, name: str, reads: Mapping[str, Callable[[], Weight]]) -> str:
        """Add a tensor that is made of several of the file, or of a turned one, and return its name."""
        one = self._model.joins[name]
        if all(own in reads for own in one.names) and not one.of_heads:
            parts = [partial(_in_rows, reads[own], self._model.rows.get(name)) for own in one.names]
            self.weights[name] = partial(_of_parts, one, parts)
            return name
        infos = [self._reader.info(own) for own in one.names]
        kinds = {info.dtype for info in infos} if not any(own in reads for own in one.names) else {"float32"}
        dtype = kinds.pop() if len(kinds) == 1 else "float32"
        shape = one.shape([tuple(info.shape) for info in infos])
        self._infos[name] = Info(dtype, shape, math.prod(shape) * numpy_dtype(dtype).itemsize)
        self._made[name] = partial(self._of_join, one, reads, dtype)
        return name

    def _of_join(self, one: Any, reads: Mapping[str, Callable[[], Weight]], dtype: str) -> NDArray[Any]:
        """Return the values of a tensor that is made of several."""
        parts = [reads[own]().values() if own in reads else self._reader.tensor(own) for own in one.names]
        found: NDArray[Any] = one.values([converted(part, numpy_dtype(dtype)) for part in parts])
        return found

    def _info_of(self, name: str, info: Info) -> Info:
        """Return the description of a plain tensor, of which the file may have a stack."""
        if name not in self._expert:
            return info
        return Info(info.dtype, info.shape[1:], info.nbytes // info.shape[0])

    def _one_of(self, own: str, read: Callable[[], Weight], name: str) -> Weight:
        """Return the weight of one expert; the last stack is kept."""
        if self._stack is None or self._stack[0] != own or self._stack[1].is_released:
            self._stack = None
            self._stack = own, read()
        weight, j = self._stack[1], self._expert[name]
        if weight.array is not None:
            rows = weight.model_shape[1]
            return of_array(weight.array[j * rows : (j + 1) * rows])
        return of_values(weight.values()[j], weight.declared, weight.nbytes // weight.model_shape[0])

    def declared(self, name: str) -> str:
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
        if name in self._made:
            return self._made[name]()
        values = self._reader.tensor(self._plain[name])
        values = values[self._expert[name]] if name in self._expert else values
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


def _of_parts(one: Any, parts: Iterable[Callable[[], Weight]]) -> Weight:
    found: Weight = one.weight([read() for read in parts])
    return found


def _in_rows(read: Callable[[], Weight], rows: NDArray[Any] | None) -> Weight:
    """Return a weight with its rows in another order."""
    weight = read()
    if rows is None:
        return weight
    if weight.array is not None:
        return replace(weight, array=of_rows(weight.array, rows))
    values = weight.values()[rows]
    return of_values(values, weight.declared, weight.nbytes)


def _layout_of(reader: Tensors) -> Layout:
    """Return the layout of the weights of a file."""
    found = next((one for one in (OURS, *LAYOUTS.values()) if one.recognizes(reader)), None)
    declared = None if found is not None else layout_said(reader)
    if found is not None or declared is not None:
        return found or LAYOUTS[declared or ""]
    try:
        refuse_unread(reader)
    except ValueError as error:
        raise WrongValue(f"{printable(reader.path)}: {error}") from None
    return OURS


def _read_layout(reader: Tensors, name: str) -> Layout:
    if name not in LAYOUTS:
        known = ", ".join((OURS.name, *LAYOUTS))
        raise WrongValue(f"{printable(reader.path)}: source is {shown(name)}, expected {known}")
    return LAYOUTS[name]


def _metadata_left(reader: Tensors, layout: Layout) -> dict[str, str]:
    """Return the metadata that do not describe how weights are stored."""
    if layout.reads_metadata:
        return {key: value for key, value in reader.metadata.items() if key == "format"}
    return {key: value for key, value in reader.metadata.items() if key not in (KEY, PACKED)}


class Foreign(Weights):
    """The tensors of a reader, with weights decoded to float32 under the names and with the shapes of their model.

    Parameters
    ----------
    reader : Tensors
        Closed with this.
    layout : str
        Of a layout of safetensors.
    """

    def __init__(self, reader: Tensors, layout: str) -> None:
        super().__init__(reader, read_layout(layout, tensors=True).name)
        stacks = LAYOUTS[layout].model_stacks(reader, self.weights)
        for name, own in stacks.items():
            self.weights[own] = partial(_turned, self.weights.pop(name))
        self.names = [stacks.get(name, name) for name in self.names]

    def lent(self, name: str) -> NDArray[Any]:
        """Read one tensor."""
        return self.tensor(name) if name in self.weights else self._reader.lent(name)

    def format_of(self, name: str) -> str | None:
        """Return the format in which a weight is stored, None for a plain tensor."""
        return self.declared(name) if name in self.weights else None


def _turned(read: Callable[[], Weight]) -> Weight:
    return replace(read(), turned=True)


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
    return _closing(path, lambda reader: Weights(reader, layout, infos, renames))


def foreign_reader(path: str | os.PathLike[str], layout: str) -> Foreign:
    """Open a checkpoint in the layout of another program, with its weights decoded.

    Raises
    ------
    ValueError, OSError, ImportError
        As `reader_of` and `Foreign`.
    """
    return _closing(path, lambda reader: Foreign(reader, layout))


def _closing(path: str | os.PathLike[str], made: Callable[[Tensors], Opened]) -> Opened:
    """Return what is made of a reader, which is closed if that fails."""
    reader = reader_of(path)
    try:
        return made(reader)
    except BaseException:
        reader.close()
        raise
