"""The layout of packed arrays in a safetensors file.

An array `name` is its components, tensors `name.codes`, `name.scales`, ...; the metadata key `heterocompute` says what
they mean:

    {"version": 1, "single": bool, "tensors": {name: {"format", "shape", "axis", "dtype"}}}

Version 2 has a "definition" (formats/defining.py) beside each "format" that is one's own.

`single` marks the file of one array, which is then called `array`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import WrongType, WrongValue, shown
from ..base.rereading import drawn
from ..base.texts import file_name, quoted
from ..base.writer import Writer, bytes_of
from ..formats.defining import definition_of

KEY = "heterocompute"
VERSION, DEFINED = 1, 2  # 2: an entry may have a definition of its format
SINGLE = "array"
FIELDS = {"format", "shape", "axis", "dtype"}
# Every component that any array may have, so that an unknown one is found.
COMPONENTS = {"codes", "values", "scales", "coarse", "codebook", "zero_points", "mean", "metadata", "minima"}
COMPONENTS |= {"pointers", "entries", "bitmap"}

Plain = tuple[str, tuple[int, ...]]  # NumPy's name of the dtype, shape


@dataclass(frozen=True)
class Entry:
    """The description of a packed array without its components.

    Attributes
    ----------
    format : Format or str
        The file holds its text.
    shape, axis : tuple of int
    dtype : str
        NumPy's name of the dtype that was packed.
    components : mapping of str to (str, tuple of int)
        NumPy's name of the dtype, and the shape.
    kind : type or None
        The class of the array, if the file names it.
    """

    format: Any
    shape: tuple[int, ...]
    axis: tuple[int, ...]
    dtype: str
    components: Mapping[str, Plain]
    kind: Any = None

    def to_json(self) -> dict[str, Any]:
        """Return the entry as the JSON of the file."""
        found = {"format": str(self.format), "shape": list(self.shape), "axis": list(self.axis), "dtype": self.dtype}
        definition = None if isinstance(self.format, str) else definition_of(self.format)
        return found if definition is None else {**found, "definition": definition}


def file_layout(
    tensors: Mapping[str, Entry | Plain], single: bool = False, metadata: Mapping[str, str] | None = None
) -> tuple[dict[str, Plain], dict[str, str]]:
    """Return the layout of a file with these tensors, before any of them exists.

    Parameters
    ----------
    tensors : mapping of str to Entry or (str, tuple of int)
        Packed arrays, and plain ones as (NumPy's name of the dtype, shape).
    single : bool
        Whether the file stands for one array.
    metadata : mapping of str to str, optional
        More metadata.

    Returns
    -------
    (dict, dict)
        Tensors and metadata for `Writer`.

    Raises
    ------
    ValueError
        Two tensors would have the same name.
    """
    stored: dict[str, Plain] = {}
    described: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, Entry):
            described[name] = tensor.to_json()
            parts = {f"{name}.{key}": part for key, part in tensor.components.items()}
        else:
            parts = {name: tensor}
        for part, layout in parts.items():
            if part in stored:
                raise WrongValue(f"save: two tensors would be called {quoted(part)}")
            stored[part] = layout
    reserved = {f"{name}.{key}" for name in described for key in COMPONENTS}
    clashing = reserved & tensors.keys()
    if clashing:
        raise WrongValue(f"save: the name {quoted(min(clashing))} is taken by a component of a packed array")
    version = DEFINED if any("definition" in one for one in described.values()) else VERSION
    key = {"version": version, "single": single, "tensors": described}
    return stored, {**(metadata or {}), KEY: json.dumps(key, ensure_ascii=False)}


def save_arrays(
    path: str | os.PathLike[str],
    arrays: Mapping[str, Any],
    entries: Mapping[str, Entry],
    single: bool = False,
    metadata: Mapping[str, str] | None = None,
    check: str = "sample",
) -> None:
    """Write arrays by name: those with an entry as their components.

    Parameters
    ----------
    entries : mapping of str to Entry
        Of the packed ones.
    single : bool
        Whether the file stands for one array.
    metadata : mapping of str to str, optional
        More texts of the header.
    check : str
        What is read again, of `rereading.CHECKS`.
    """
    tensors = {name: entries.get(name) or (array.dtype.name, array.shape) for name, array in arrays.items()}
    stored, described = file_layout(tensors, single)
    with Writer(path, stored, {**(metadata or {}), **(described or {})} if entries else metadata) as writer:
        for name, array in arrays.items():
            for part, values in parts_of(name, array, entries.get(name)).items():
                writer.write(part, values)
        for name in drawn({name: (_kind_of(array), array.nbytes) for name, array in arrays.items()}, check):
            for part, values in parts_of(name, arrays[name], entries.get(name)).items():
                writer.check(part, [bytes_of(values)])


def parts_of(name: str, array: Any, entry: Entry | None = None) -> dict[str, NDArray[Any]]:
    """Return the tensors that store an array: the components of a packed one.

    Parameters
    ----------
    array : ndarray, or PackedArray
    entry : Entry, optional
        Of a packed one.
    """
    if entry is None:
        return {name: np.asarray(array)}
    return {f"{name}.{key}": array.components[key] for key in entry.components}


def _kind_of(array: Any) -> tuple[str, int]:
    return str(getattr(array, "format", None) or array.dtype), array.ndim


def as_path(path: Any, name: str) -> str:
    """Return the path of a file as a text.

    Raises
    ------
    TypeError
        The value is not a path.
    ValueError
        The value is not the name of a file.
    """
    try:
        text = file_name(path)
    except TypeError:
        raise WrongType(f"{name}: path is {shown(path)}, expected a str or os.PathLike") from None
    if not text or "\0" in text:
        raise WrongValue(f"{name}: path is {shown(path)}, expected the name of a file")
    return text
