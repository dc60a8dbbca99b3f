"""Reads and writes packed arrays, and plain arrays next to them, in safetensors files.

`heterocompute.arrays.layout` describes the storage. An EIEArray has the format "eie-pP" with P elements, a BitmapArray
"bitmap". The content of a file is not trusted: dtypes and shapes of the components are computed from format, shape and
axis, and the components are checked.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from ..arrays.base import PackedArray
from ..arrays.bitmap import BitmapArray
from ..arrays.dense import as_any
from ..arrays.eie import EIEArray
from ..arrays.foreign import as_exported, exports_dlpack, refuse_elsewhere
from ..arrays.layout import COMPONENTS, DEFINED, FIELDS, KEY, SINGLE, VERSION, Entry, as_path, save_arrays
from ..arrays.quantized import QuantizedArray
from ..arrays.rotated import RotatedArray
from ..arrays.sparse import SparseArray
from ..base.container import MAX_DIMENSIONS, Reader as Reader
from ..base.errors import WrongType, WrongValue, printable, shown
from ..base.float_env import counts_subnormals
from ..base.json_text import is_count, strict_json
from ..base.magic import refuse_other_name
from ..base.rereading import as_check
from ..base.tensors import Tensors
from ..base.texts import quoted
from ..base.writer import Writer as Writer
from ..formats.defining import from_definition
from .layouts.table import check_layout

__all__ = ["Reader", "Writer", "contents", "entries", "read_array", "save"]

KINDS: tuple[type[PackedArray], ...] = (BitmapArray, EIEArray, RotatedArray, SparseArray, QuantizedArray)


def entries(reader: Tensors) -> tuple[dict[str, Entry], bool]:
    """Return the packed arrays that a file describes, and whether it stands for one array.

    Returns
    -------
    (dict of str to Entry, bool)
        Empty and False for a file of another origin. Every component is there, with its dtype and shape.

    Raises
    ------
    ValueError
        If the description is not one that `save` writes, or does not fit the tensors of the file.
    """
    text = reader.metadata.get(KEY)
    if text is None:
        return {}, False
    try:
        described = strict_json(text)
    except ValueError as error:
        _fail(reader, f"metadata {shown(KEY)} is not JSON ({printable(str(error))})")
    if not isinstance(described, dict):
        _fail(reader, f"metadata {shown(KEY)} is not a JSON object")
    version = described.get("version")
    if type(version) is not int or version not in (VERSION, DEFINED):
        _fail(reader, f"metadata {shown(KEY)} has version {shown(version)}, expected {VERSION} or {DEFINED}")
    if set(described) != {"version", "single", "tensors"}:
        _fail(reader, f"metadata {shown(KEY)} does not have exactly version, single and tensors")
    single, tensors = described["single"], described["tensors"]
    if type(single) is not bool or not isinstance(tensors, dict):
        _fail(reader, f"metadata {shown(KEY)}: single is no bool, or tensors is not an object")
    found = {name: _entry(reader, name, fields, version == DEFINED) for name, fields in tensors.items()}
    parts = _check_components(reader, found)
    if single and (list(found) != [SINGLE] or len(parts) != len(reader.names)):
        _fail(reader, f"is marked as a single array, but does not hold exactly {shown(SINGLE)}")
    return found, single


def _entry(reader: Tensors, name: str, fields: object, may_define: bool) -> Entry:
    allowed = (FIELDS, FIELDS | {"definition"}) if may_define else (FIELDS,)
    if not isinstance(fields, dict) or set(fields) not in allowed:
        _fail(reader, f"tensor {quoted(name)} does not have exactly format, shape, axis and dtype")
    text, shape, axis, dtype = (fields[field] for field in ("format", "shape", "axis", "dtype"))
    if not isinstance(text, str):
        _fail(reader, f"tensor {quoted(name)}: its format is not a string")
    for field, numbers in (("shape", shape), ("axis", axis)):
        if not isinstance(numbers, list) or len(numbers) > MAX_DIMENSIONS or not all(map(is_count, numbers)):
            _fail(reader, f"tensor {quoted(name)} has the illegal {field} {shown(numbers)}")
    if not isinstance(dtype, str):
        _fail(reader, f"tensor {quoted(name)} has the unknown dtype {shown(dtype)}")
    if math.prod(n for n in shape if n) >= 2**60:
        _fail(reader, f"tensor {quoted(name)} has the shape {shown(shape)}, whose size overflows")

    def stored(key: str) -> tuple[str, tuple[int, ...]]:
        part = f"{name}.{key}"
        return (reader.info(part).dtype, reader.info(part).shape) if part in reader else ("", (0,))

    try:
        is_own = "definition" in fields
        fmt: Any = from_definition(fields["definition"], text) if is_own else text
        kinds = (RotatedArray, QuantizedArray) if is_own else KINDS
        found = (kind._described(fmt, tuple(shape), tuple(axis), dtype, stored) for kind in kinds)
        return next(entry for entry in found if entry is not None)
    except (ValueError, MemoryError, OverflowError, NotImplementedError) as error:
        _fail(reader, f"tensor {quoted(name)}: {printable(str(error))}")


def _check_components(reader: Tensors, found: Mapping[str, Entry]) -> set[str]:
    stored = set(reader.names)
    parts: set[str] = set()
    for name, entry in found.items():
        wanted = entry.components
        if name in stored:
            _fail(reader, f"tensor {quoted(name)} stands there plain and packed")
        for key, (dtype, shape) in wanted.items():
            part = f"{name}.{key}"
            if part not in stored:
                _fail(reader, f"tensor {quoted(name)} lacks its component {quoted(part)}")
            if part in parts:
                _fail(reader, f"tensor {quoted(part)} belongs to two packed arrays")
            parts.add(part)
            info = reader.info(part)
            if (info.dtype, info.shape) != (dtype, shape):
                _fail(
                    reader,
                    f"tensor {quoted(part)} is {info.dtype} {list(info.shape)}, but {entry.format} of shape "
                    f"{list(entry.shape)} and axis {list(entry.axis)} has {dtype} {list(shape)}",
                )
        surplus = {f"{name}.{key}" for key in COMPONENTS - set(wanted)} & stored
        if surplus - parts:
            _fail(reader, f"tensor {quoted(min(surplus))} is no component of {entry.format}")
    return parts


def read_array(reader: Tensors, name: str, entry: Entry) -> Any:
    """Read one packed array and check what its components hold.

    Parameters
    ----------
    entry : Entry
        From `entries`, which has checked dtypes and shapes.

    Returns
    -------
    QuantizedArray, RotatedArray, SparseArray, EIEArray or BitmapArray

    Raises
    ------
    ValueError
        If a scale is negative or not finite, or a code is one that the format never writes.
    """
    parts = {key: reader.tensor(f"{name}.{key}") for key in entry.components}
    wrong = entry.kind._wrong_part(entry, parts)
    if wrong is not None:
        _fail(reader, f"tensor {quoted(f'{name}.{wrong[0]}')} {wrong[1]}")
    try:
        return entry.kind._restored(entry, parts)
    except (TypeError, ValueError) as error:
        _fail(reader, f"tensor {quoted(name)}: {printable(str(error))}")


def _fail(reader: Tensors, what: str) -> NoReturn:
    raise WrongValue(f"{printable(reader.path)}: {what}")


@counts_subnormals
def save(
    path: str | os.PathLike[str],
    arrays: PackedArray | Mapping[str, Any],
    layout: str | None = None,
    check: str = "sample",
) -> None:
    """Write arrays to a safetensors file, packed arrays as their components.

    Parameters
    ----------
    path : str or os.PathLike
        Replaced by renaming if it exists.
    arrays : QuantizedArray, RotatedArray, SparseArray, EIEArray, BitmapArray, or mapping of str to these and arrays
        One packed array, as its method ``save`` writes it, or several arrays by name: packed arrays, NumPy arrays, and
        arrays with DLPack support. `load` reads them back.
    layout : str, optional
        Layout of another program, such as ``"gptq"``, for a dict whose quantized arrays are matrices named
        ``NAME.weight``. docs/files.md lists the layouts.
    check : {"sample", "all", "none"}
        What is read again from the written file and compared before the file takes its name: at least one array of each
        kind and a sixteenth of the bytes, everything, or nothing.

    Raises
    ------
    TypeError
        path is not a path, an entry is not an array, or a safetensors file cannot hold its dtype.
    ValueError
        Two arrays would get the same name, the layout is unknown or cannot represent a format, or the suffix belongs to
        another kind of file, such as ``.gguf`` without that layout. The written file has other values than the arrays,
        and is deleted.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, heterocompute as hc
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> q = hc.quantize(np.ones((2, 32), np.float32), "int4")
    >>> hc.save(path, q)
    >>> hc.load(path) == q
    True
    >>> hc.save(path, {"w": q, "b": np.ones(3, np.float16)})
    >>> sorted(hc.load(path)), hc.load(path)["w"] == q
    (['b', 'w'], True)
    """
    path, check = as_path(path, "save"), as_check(check, "save")
    if isinstance(arrays, PackedArray) and layout is None:
        arrays.save(path, check)
        return
    if isinstance(arrays, PackedArray):
        check_layout(layout)
        raise WrongType(
            f"save: layout {layout} stores weights by name, got one {type(arrays).__name__}: expected a dict of arrays "
            "such as {'fc.weight': q}"
        )
    if not isinstance(arrays, Mapping):
        hint = ", such as {'name': array}" if isinstance(arrays, np.ndarray) or exports_dlpack(arrays) else ""
        raise WrongType(f"save: expected a packed array or a dict of arrays{hint}, got {type(arrays).__name__}")
    arrays = _checked(arrays)
    if layout is not None:
        found = check_layout(layout)
        if not found.is_file:
            refuse_other_name(path)
        found.save(path, arrays, check)
        return
    _write(path, arrays, check)


def save_with(path: str | os.PathLike[str], arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Write arrays as `save` does, and more texts in the header of the file."""
    _write(as_path(path, "save"), _checked(arrays), "sample", metadata)


def _write(path: str, arrays: Mapping[str, Any], check: str, metadata: Mapping[str, str] | None = None) -> None:
    refuse_other_name(path)
    packed = {name: array._entry() for name, array in arrays.items() if isinstance(array, PackedArray)}
    save_arrays(path, arrays, packed, metadata=metadata, check=check)


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays by name as arrays of NumPy and packed arrays."""
    arrays = dict(given)
    for name, array in arrays.items():
        if not isinstance(name, str):
            raise WrongType(f"save: a tensor's name must be a str, got {shown(name)}")
        if any("\ud800" <= character <= "\udfff" for character in name):
            raise WrongValue(f"save: tensor {quoted(name)}: half a character, which UTF-8 cannot write")
        if isinstance(array, np.ndarray):
            array = arrays[name] = as_any(array, f"save: tensor {quoted(name)}")
        if not isinstance(array, (PackedArray, np.ndarray)) and exports_dlpack(array):
            array = arrays[name] = as_exported(array, f"save: tensor {quoted(name)}")
        if not isinstance(array, (PackedArray, np.ndarray, np.generic)):
            refuse_elsewhere(array, f"save: tensor {quoted(name)}")
            raise WrongType(f"save: tensor {quoted(name)} is {type(array).__name__}, expected an array")
    return arrays


def contents(reader: Tensors, found: Mapping[str, Entry]) -> list[tuple[str, Entry | None]]:
    """List the arrays of a file in its order: packed arrays with their entry, plain arrays with None."""
    owner = {f"{name}.{key}": name for name, entry in found.items() for key in entry.components}
    names = dict.fromkeys(owner.get(name, name) for name in reader.names)
    return [(name, found.get(name)) for name in names]
