"""The one file layout: packed arrays, and plain ones beside them, in a safetensors file.

A quantized array `name` is stored as its components, tensors `name.codes`, `name.scales`, ...; the metadata
key `heterocompute` says what they mean:

    {"version": 1, "single": bool, "tensors": {name: {"format", "shape", "axis", "dtype"}}}

An EIEArray has the format "eie-pP", of P elements. `single` marks the file of one array, which is then called `array`.
Nothing in a file is believed: dtypes and shapes of the components are computed again from format, shape and axis, and
their contents are checked.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..arrays.bits import unpack
from ..arrays.eie import CODES, EIEArray
from ..arrays.metadata import check_metadata
from ..arrays.quantized import QuantizedArray, component_layout
from ..arrays.sparse import SparseArray
from ..base.container import MAX_DIMENSIONS, Reader, Writer
from ..base.float_env import counts_subnormals
from ..base.json_text import is_count, strict_json
from ..base.texts import printable, quoted
from ..base.values import shown
from ..formats import Format, Sparse, format
from .selection import FLOATS

KEY = "heterocompute"
VERSION = 1
SINGLE = "array"
FIELDS = {"format", "shape", "axis", "dtype"}
# Every component that some format may have, so that one too many is found.
COMPONENTS = {"codes", "values", "scales", "coarse", "codebook", "zero_points", "mean", "metadata"}
COMPONENTS |= {"pointers", "entries"}
EIE = re.compile(r"eie-p([1-9][0-9]{0,8})")


@dataclass(frozen=True)
class Entry:
    """What is known of a quantized array before its components are read or made.

    Attributes
    ----------
    format : Format
    shape : tuple of int
    axis : tuple of int
    dtype : str
        NumPy's name of the dtype that was quantized.
    """

    format: Format
    shape: tuple[int, ...]
    axis: tuple[int, ...]
    dtype: str

    def components(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return component -> (NumPy's name of its dtype, shape).

        Raises
        ------
        ValueError
            If no array has this format, shape and axis.
        """
        layout = component_layout(self.format, self.shape, self.axis)
        return {key: (np.dtype(dtype).name, tuple(shape)) for key, (dtype, shape) in layout.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the entry as it stands in the file."""
        return {
            "format": str(self.format),
            "shape": list(self.shape),
            "axis": list(self.axis),
            "dtype": self.dtype,
        }


@dataclass(frozen=True)
class EIEEntry:
    """What is known of an EIEArray before its components are read.

    Attributes
    ----------
    elements, entries : int
        How many there are.
    shape, axis : tuple of int
    dtype : str
    """

    elements: int
    entries: int
    shape: tuple[int, ...]
    axis: tuple[int, ...]
    dtype: str = "float32"

    @property
    def format(self) -> str:
        """What stands for a format's text."""
        return f"eie-p{self.elements}"

    def components(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return component -> (NumPy's name of its dtype, shape)."""
        return {
            "codebook": ("float32", (CODES,)),
            "pointers": ("uint32", (self.elements, self.shape[self.axis[0]] + 1)),
            "entries": ("uint8", (self.entries,)),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the entry as it stands in the file."""
        return {"format": self.format, "shape": list(self.shape), "axis": list(self.axis), "dtype": self.dtype}


Packed = Entry | EIEEntry


def file_layout(
    tensors: Mapping[str, Packed | tuple[str, tuple[int, ...]]],
    single: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> tuple[dict[str, tuple[str, tuple[int, ...]]], dict[str, str]]:
    """Work out what a file of these tensors holds, before any of them exists.

    Parameters
    ----------
    tensors : mapping of str to Entry, EIEEntry or (str, tuple of int)
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
        If two tensors would have one name.
    """
    stored: dict[str, tuple[str, tuple[int, ...]]] = {}
    described: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, Packed):
            described[name] = tensor.to_json()
            parts = {f"{name}.{key}": part for key, part in tensor.components().items()}
        else:
            parts = {name: tensor}
        for part, layout in parts.items():
            if part in stored:
                raise ValueError(f"save: two tensors would be called {quoted(part)}")
            stored[part] = layout
    reserved = {f"{name}.{key}" for name in described for key in COMPONENTS}
    clashing = reserved & tensors.keys()
    if clashing:
        raise ValueError(f"save: the name {quoted(min(clashing))} is taken by a component of a quantized array")
    key = {"version": VERSION, "single": single, "tensors": described}
    return stored, {**(metadata or {}), KEY: json.dumps(key, ensure_ascii=False)}


def entries(reader: Reader) -> tuple[dict[str, Packed], bool]:
    """Return the quantized arrays that a file describes, and whether it stands for one array.

    Parameters
    ----------
    reader : Reader

    Returns
    -------
    (dict of str to Entry or EIEEntry, bool)
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
        _fail(reader, f"metadata {KEY!r} is no JSON ({printable(str(error))})")
    if not isinstance(described, dict):
        _fail(reader, f"metadata {KEY!r} is no JSON object")
    version = described.get("version")
    if type(version) is not int or version != VERSION:
        _fail(reader, f"metadata {KEY!r} has version {shown(version)}, wanted {VERSION}")
    if set(described) != {"version", "single", "tensors"}:
        _fail(reader, f"metadata {KEY!r} does not have exactly version, single and tensors")
    single, tensors = described["single"], described["tensors"]
    if type(single) is not bool or not isinstance(tensors, dict):
        _fail(reader, f"metadata {KEY!r}: single is no bool, or tensors is no object")
    found = {name: _entry(reader, name, fields) for name, fields in tensors.items()}
    parts = _check_components(reader, found)
    if single and (list(found) != [SINGLE] or len(parts) != len(reader.names)):
        _fail(reader, f"is marked as a single array, but does not hold exactly {SINGLE!r}")
    return found, single


def _entry(reader: Reader, name: str, fields: object) -> Packed:
    if not isinstance(fields, dict) or set(fields) != FIELDS:
        _fail(reader, f"tensor {quoted(name)} does not have exactly format, shape, axis and dtype")
    text, shape, axis, dtype = (fields[field] for field in ("format", "shape", "axis", "dtype"))
    if not isinstance(text, str):
        _fail(reader, f"tensor {quoted(name)}: its format is no text")
    for field, numbers in (("shape", shape), ("axis", axis)):
        if not isinstance(numbers, list) or len(numbers) > MAX_DIMENSIONS or not all(map(is_count, numbers)):
            _fail(reader, f"tensor {quoted(name)} has the illegal {field} {shown(numbers)}")
    if dtype not in FLOATS:
        _fail(reader, f"tensor {quoted(name)} has the unknown source dtype {shown(dtype)}")
    if not axis or len(set(axis)) != len(axis) or max(axis) >= len(shape):
        _fail(reader, f"tensor {quoted(name)}: axis {shown(axis)} does not fit shape {shown(shape)}")
    if math.prod(n for n in shape if n) >= 2**60:
        _fail(reader, f"tensor {quoted(name)} has the shape {shown(shape)}, whose size overflows")
    eie = EIE.fullmatch(text)
    if eie and (len(shape) != 2 or len(axis) != 1):
        _fail(reader, f"tensor {quoted(name)}: {text} has two dimensions and one axis, not {shown(shape)} and {axis}")
    if eie:
        part = f"{name}.entries"
        stored = math.prod(reader.info(part).shape) if part in reader else 0
        return EIEEntry(int(eie[1]), stored, tuple(shape), tuple(axis), dtype)
    try:
        return Entry(format(text), tuple(shape), tuple(axis), dtype)
    except ValueError as error:
        _fail(reader, f"tensor {quoted(name)}: {printable(str(error))}")


def _check_components(reader: Reader, found: Mapping[str, Packed]) -> set[str]:
    stored = set(reader.names)
    parts: set[str] = set()
    for name, entry in found.items():
        try:
            wanted = entry.components()
        except (ValueError, MemoryError, OverflowError, NotImplementedError) as error:
            _fail(reader, f"tensor {quoted(name)}: {printable(str(error))}")
        if name in stored:
            _fail(reader, f"tensor {quoted(name)} stands there plain and quantized")
        for key, (dtype, shape) in wanted.items():
            part = f"{name}.{key}"
            if part not in stored:
                _fail(reader, f"tensor {quoted(name)} lacks its component {quoted(part)}")
            if part in parts:
                _fail(reader, f"tensor {quoted(part)} belongs to two quantized arrays")
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


@counts_subnormals
def read_array(reader: Reader, name: str, entry: Packed) -> Any:
    """Read one packed array and check what its components hold.

    Parameters
    ----------
    reader : Reader
    name : str
    entry : Entry or EIEEntry
        From `entries`, which has checked dtypes and shapes.

    Returns
    -------
    QuantizedArray, SparseArray or EIEArray

    Raises
    ------
    ValueError
        If a scale is negative or not finite, or a code is one that the format never writes.
    """
    parts = {key: reader.tensor(f"{name}.{key}") for key in entry.components()}
    if isinstance(entry, EIEEntry):
        try:
            return EIEArray(parts, entry.shape, entry.axis)
        except ValueError as error:
            _fail(reader, f"tensor {quoted(name)}: {printable(str(error))}")
    for key, part in parts.items():
        if key == "values":  # float32 as they are, infinities and all
            continue
        if key == "codebook":
            if not np.isfinite(part).all():
                _fail(reader, f"tensor {quoted(f'{name}.{key}')} holds a value that is not finite")
        # minimum and maximum see NaN too; `not <=` is true for it
        elif part.dtype.kind == "f" and part.size and not 0 <= part.min() <= part.max() < math.inf:
            _fail(reader, f"tensor {quoted(f'{name}.{key}')} holds a value that is negative or not finite")
    if isinstance(entry.format, Sparse):
        problem = check_metadata(parts["metadata"], entry.format, entry.shape, entry.axis)
        if problem:
            _fail(reader, f"tensor {quoted(f'{name}.metadata')} holds {problem}")
        if entry.format.is_plain:
            return SparseArray._trusted(parts, entry.format, entry.shape, entry.axis, entry.dtype)
    _check_codes(reader, name, entry, parts)
    return QuantizedArray(parts, entry.format, entry.shape, entry.axis, entry.dtype)


def _check_codes(reader: Reader, name: str, entry: Entry, parts: Mapping[str, NDArray[Any]]) -> None:
    """Refuse what the format never stores: an unused code, padding that does not decode to 0, a scale."""
    fmt = entry.format
    rules = fmt.stored_rules()
    scales = parts.get("scales")
    if scales is not None and scales.dtype == np.uint8 and np.any(scales > rules.largest_scale):
        _fail(reader, f"tensor {quoted(f'{name}.scales')} holds the byte {int(scales.max())}, which {fmt} never uses")
    if rules.unused_code is None and rules.padding is None:
        return
    length = fmt.stored_length(entry.shape[entry.axis[-1]])
    runs = math.prod(entry.shape[axis] for axis in entry.axis[:-1])
    group = runs * length if fmt.group is None else min(fmt.group, length)
    if not parts["codes"].size or not group:
        return
    padded = length if fmt.group is None else -(-length // group) * group
    count = runs * padded
    block = max(1, (1 << 20) // count)
    for first in range(0, len(parts["codes"]), block):
        codes = unpack(parts["codes"][first : first + block], fmt.bits, count)
        if rules.unused_code is not None and np.any(codes == rules.unused_code):
            code = f"{rules.unused_code:#x} ({rules.unused_code - (1 << fmt.bits)} if signed)"
            _fail(reader, f"tensor {quoted(f'{name}.codes')} holds the code {code}, which {fmt} never uses")
        if padded == length or rules.padding is None:
            continue
        tails = codes.reshape(-1, runs, padded)[:, :, length:]
        zero: Any = rules.padding
        if "zero_points" in parts:
            points = unpack(parts["zero_points"][first : first + block], fmt.bits, runs * (padded // group))
            zero = points.reshape(-1, runs, padded // group)[:, :, -1:]
        if np.any(tails != zero):
            _fail(reader, f"tensor {quoted(f'{name}.codes')} has padding that is not 0")


def _fail(reader: Reader, what: str) -> NoReturn:
    raise ValueError(f"{printable(reader.path)}: {what}")


def save(path: str | os.PathLike[str], arrays: QuantizedArray | EIEArray | Mapping[str, Any]) -> None:
    """Write arrays to a safetensors file, packed ones as their components.

    Parameters
    ----------
    path : str or os.PathLike
        Replaced by renaming if it exists.
    arrays : QuantizedArray, EIEArray, or mapping of str to these and ndarrays
        One packed array (stored as ``array.codes``, ``array.scales``, ...), or several arrays by name.

    Raises
    ------
    TypeError
        If path is no path, something is no array, or of a dtype that a safetensors file cannot hold.
    ValueError
        If two arrays would be stored under one name.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> save(path, {"w": np.ones((2, 3), np.float16)})
    >>> load(path)["w"].dtype
    dtype('float16')
    """
    path = _as_path(path, "save")
    single = isinstance(arrays, (QuantizedArray, EIEArray))
    named: Mapping[str, Any] = {SINGLE: arrays} if isinstance(arrays, (QuantizedArray, EIEArray)) else arrays
    if not isinstance(named, Mapping):
        raise TypeError(f"save: wanted a QuantizedArray or a dict of arrays, got {type(arrays).__name__}")
    tensors: dict[str, Packed | tuple[str, tuple[int, ...]]] = {}
    for name, array in named.items():
        if not isinstance(name, str):
            raise TypeError(f"save: a tensor's name must be a str, got {shown(name)}")
        if isinstance(array, QuantizedArray):
            tensors[name] = Entry(array.format, array.shape, array.axis, array.source_dtype)
        elif isinstance(array, EIEArray):
            tensors[name] = EIEEntry(array.elements, array.components["entries"].size, array.shape, array.axis)
        elif isinstance(array, (np.ndarray, np.generic)):
            tensors[name] = (array.dtype.name, array.shape)
        else:
            raise TypeError(f"save: tensor {quoted(name)} is {type(array).__name__}, wanted an array")
    stored, metadata = file_layout(tensors, single)
    with Writer(path, stored, metadata if any(isinstance(t, Packed) for t in tensors.values()) else None) as writer:
        for name, array in named.items():
            write_array(writer, name, array)


def write_array(writer: Writer, name: str, array: Any) -> None:
    """Write one array, a packed one as its components.

    Parameters
    ----------
    writer : Writer
        Made with what `file_layout` says.
    name : str
    array : QuantizedArray, EIEArray or ndarray
    """
    if not isinstance(array, (QuantizedArray, EIEArray)):
        writer.write(name, np.asarray(array))
        return
    for key, part in array.components.items():
        writer.write(f"{name}.{key}", part)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a safetensors file, of this package or any other.

    Parameters
    ----------
    path : str or os.PathLike

    Returns
    -------
    QuantizedArray, SparseArray, EIEArray, or dict of str to these and ndarrays
        The array itself where a method ``save`` wrote the file, else everything by name; bfloat16 and
        float8 as the dtypes of ml_dtypes.

    Raises
    ------
    TypeError
        If path is no path.
    ValueError
        If the file is no safetensors file, is cut off, contradicts itself, or describes quantized arrays
        that no format has; one line that names the file and the tensor.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> save(path, {"w": np.ones((2, 3), np.float32)})
    >>> sorted(load(path))
    ['w']
    """
    with Reader(_as_path(path, "load")) as reader:
        found, single = entries(reader)
        if single:
            return read_array(reader, SINGLE, found[SINGLE])
        return {
            name: reader.tensor(name) if entry is None else read_array(reader, name, entry)
            for name, entry in contents(reader, found)
        }


def _as_path(path: Any, name: str) -> str:
    try:
        text = os.fsdecode(os.fspath(path))
    except TypeError:
        raise TypeError(f"{name}: path is {shown(path)}, wanted a str or os.PathLike") from None
    if not text or "\0" in text:
        raise ValueError(f"{name}: path is {shown(path)}, wanted the name of a file")
    return text


def contents(reader: Reader, found: Mapping[str, Packed]) -> list[tuple[str, Packed | None]]:
    """List what a file holds: packed arrays with their entry, plain ones with None, by place in the file."""
    owner = {f"{name}.{key}": name for name, entry in found.items() for key in entry.components()}
    names = dict.fromkeys(owner.get(name, name) for name in reader.names)
    return [(name, found.get(name)) for name in names]
