"""Whole checkpoints in, whole checkpoints out, one tensor in memory at a time.

`quantize_checkpoint` knows the size of every component before it quantizes anything, so that the header can go
first; then each tensor is read, quantized and written. What is not selected is copied byte for byte.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.layout import KEY, Entry, file_layout, write_array
from ..arrays.quantized import entry_of
from ..base.container import DTYPES, FILE_NAMES, Reader, Writer
from ..base.float_env import counts_subnormals
from ..base.texts import is_same_file, printable, quoted, sentence
from ..formats import Format, Sparse, format as parse_format
from ..products.quantize import quantize
from ..pruning.prune import mask_of, prune
from .recipes import Zeros, parse_pattern_text, parse_recipe, read_recipe
from .safetensors import contents, entries, read_array
from .selection import SMALL_FLOATS, Axis, FirstMatch, axis_of, select

# done bytes, all bytes, the tensor that comes next ("" at the end)
Progress = Callable[[int, int, str], None]
BLOCK = 1 << 20


@dataclass(frozen=True)
class _Zeroed:
    format: Zeros
    axis: tuple[int, ...]


def quantize_checkpoint(
    in_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    format: str | Format | None = None,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    recipe: str | os.PathLike[str] | Mapping[str, str | Format | None] | None = None,
    axis: Axis | Mapping[str, Axis] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Quantize the tensors of a safetensors file into another one.

    Peak memory is the largest tensor, its components and less than 64 MiB. The new file appears under its
    name when it is complete, or not at all.

    Parameters
    ----------
    in_path, out_path : str or os.PathLike
        Two different files; an existing `out_path` is replaced.
    format : Format or str, optional
        For every selected tensor that the recipe does not name. Needed where there is no recipe.
    include, exclude : str or iterable of str, optional
        Globs that choose among the float tensors with two or more dimensions, see `selection.select`.
    recipe : path, or mapping of str to (Format, str or None), optional
        Pattern -> format, ``"skip"`` or None; the first match wins. A tensor that neither the recipe nor
        `format` concerns is copied, and so is one without any value.
    axis : int, tuple of int or mapping of str to these, optional
        The reduction axes; by default (2, 3, 1) of 4-D tensors and -1 of others.
    progress : callable, optional
        ``progress(done_bytes, all_bytes, name)``, before each tensor and at the end.

    Returns
    -------
    dict
        ``{"input", "output", "bytes_before", "bytes", "tensors": [{"name", "format", "shape", "dtype",
        "bytes_before", "bytes"}]}``; `format` is None for what was copied, bytes are those of the data.

    Raises
    ------
    ValueError
        If the file is illegal or quantized already, both paths are one file, a tensor holds NaN or infinity
        (with its name and the first index), a name collides with a component's, or a pattern fits nothing.
    OSError
        If a file cannot be read or written.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from heterocompute.files.safetensors import load, save
    >>> folder = tempfile.mkdtemp()
    >>> before, after = os.path.join(folder, "model.safetensors"), os.path.join(folder, "int8.safetensors")
    >>> save(before, {"fc.weight": np.ones((2, 64), np.float32), "fc.bias": np.ones(2, np.float32)})
    >>> quantize_checkpoint(before, after, "int8")["bytes"]
    144
    >>> str(load(after)["fc.weight"].format)
    'int8'
    """
    if format is None and recipe is None:
        raise ValueError("quantize_checkpoint: format or recipe must be given")
    if is_same_file(in_path, out_path):
        raise ValueError(f"{printable(os.fspath(out_path))}: is the input itself")
    default = parse_format(format) if isinstance(format, str) else format
    formats = parse_recipe(_texts(recipe))
    return _rewrite(in_path, out_path, default, formats, include, exclude, axis, progress)


def prune_checkpoint(
    in_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    pattern: str | Format | Zeros | None = None,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    recipe: str | os.PathLike[str] | Mapping[str, str | Format | Zeros | None] | None = None,
    axis: Axis | Mapping[str, Axis] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Prune the tensors of a safetensors file into another one.

    N:M is stored as `heterocompute.prune` returns it. After any other pattern a tensor has the dtype and shape that it
    had, pruned values as zeros, and every other byte as it was. Peak memory is a few times the largest tensor.

    Parameters
    ----------
    in_path, out_path : str or os.PathLike
        Two different files; an existing `out_path` is replaced when the new one is complete.
    pattern : str, optional
        ``"2:4"``, ``"50%"`` of each row, ``"global:50%"`` of each tensor, ``"block:16x1:50%"``. Needed where there is
        no recipe.
    include, exclude, axis, progress
        As in `quantize_checkpoint`.
    recipe : path, or mapping of str to str, optional
        Name pattern -> pattern, or a format with one such as ``"int8+2:4"``, or ``"skip"``.

    Returns
    -------
    dict
        As of `quantize_checkpoint`, with the pattern as the `format`.

    Raises
    ------
    ValueError, OSError
        As `quantize_checkpoint`; infinity in a tensor counts as large.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from heterocompute.files.safetensors import load, save
    >>> folder = tempfile.mkdtemp()
    >>> before, after = os.path.join(folder, "model.safetensors"), os.path.join(folder, "half.safetensors")
    >>> save(before, {"w": np.array([[1, -2, 3, 4], [0, 5, 1, 1]], np.float16)})
    >>> prune_checkpoint(before, after, "global:50%")["bytes"]
    16
    >>> load(after)["w"]
    array([[ 0., -2.,  3.,  4.],
           [ 0.,  5.,  0.,  0.]], dtype=float16)
    """
    if pattern is None and recipe is None:
        raise ValueError("prune_checkpoint: pattern or recipe must be given")
    if is_same_file(in_path, out_path):
        raise ValueError(f"{printable(os.fspath(out_path))}: is the input itself")
    default = parse_pattern_text(pattern) if isinstance(pattern, str) else pattern
    return _rewrite(
        in_path, out_path, default, parse_recipe(_texts(recipe), parse_pattern_text), include, exclude, axis, progress
    )


def _texts(recipe: Any) -> Mapping[str, Any]:
    return recipe or {} if recipe is None or isinstance(recipe, Mapping) else read_recipe(recipe)


def _rewrite(
    in_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    default: Format | Zeros | None,
    formats: Mapping[str, Any],
    include: str | Iterable[str],
    exclude: str | Iterable[str],
    axis: Axis | Mapping[str, Axis] | None,
    progress: Progress | None,
) -> dict[str, Any]:
    with Reader(in_path) as reader:
        chosen = _choose(reader, default, formats, include, exclude, axis)
        tensors: dict[str, Entry | tuple[str, tuple[int, ...]]] = {}
        for name in reader.names:
            info = reader.info(name)
            change = chosen.get(name)
            tensors[name] = change if isinstance(change, Entry) else (info.dtype, info.shape)
        stored, metadata = _file_layout(reader, tensors)
        total = sum(reader.info(name).nbytes for name in reader.names)
        rows, done = [], 0
        with Writer(out_path, stored, metadata) as writer:
            for name in tensors:
                if progress:
                    progress(done, total, name)
                info, change, n_bytes = reader.info(name), chosen.get(name), reader.info(name).nbytes
                if isinstance(change, Entry):
                    n_bytes = _quantize_one(reader, writer, name, change)
                elif change is not None:
                    _zero_one(reader, writer, name, change)
                else:
                    writer.copy(name, reader)
                done += info.nbytes
                rows.append(
                    {
                        "name": name,
                        "format": None if change is None else str(change.format),
                        "shape": list(info.shape),
                        "dtype": info.dtype,
                        "bytes_before": info.nbytes,
                        "bytes": n_bytes,
                    }
                )
            if progress:
                progress(total, total, "")
    return {
        "input": os.fspath(in_path),
        "output": os.fspath(out_path),
        "bytes_before": total,
        "bytes": sum(row["bytes"] for row in rows),
        "tensors": rows,
    }


def _choose(
    reader: Reader,
    default: Format | Zeros | None,
    recipe: Mapping[str, Any],
    include: str | Iterable[str],
    exclude: str | Iterable[str],
    axis: Axis | Mapping[str, Axis] | None,
) -> dict[str, Entry | _Zeroed]:
    found, _ = entries(reader)
    for name, entry in found.items():
        plain = isinstance(entry.format, Sparse) and entry.format.is_plain
        done = "pruned" if plain else "quantized"
        raise ValueError(f"{printable(reader.path)}: tensor {quoted(name)} is already {done} ({entry.format})")
    infos = {name: reader.info(name) for name in reader.names}
    try:
        names = select({n: (i.dtype, i.shape) for n, i in infos.items()}, include, exclude, named=recipe)
        first = FirstMatch(recipe)
        chosen: dict[str, Entry | _Zeroed] = {}
        for name in names:
            fmt = first(name, default)
            if isinstance(fmt, Zeros):
                chosen[name] = _Zeroed(fmt, axis_of(name, len(infos[name].shape), axis))
            elif fmt is not None and 0 not in infos[name].shape:  # scales of empty rows would be all that is stored
                shape, dtype = infos[name].shape, infos[name].dtype
                dtype = "float32" if dtype in SMALL_FLOATS else dtype  # as `quantize` takes them
                chosen[name] = entry_of(fmt, shape, axis_of(name, len(shape), axis), dtype)
    except ValueError as error:
        raise ValueError(f"{printable(reader.path)}: {error}") from None
    return chosen


def _file_layout(reader: Reader, tensors: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    # An input without quantized tensors may carry the key; what was in it is said anew.
    kept = {key: value for key, value in reader.metadata.items() if key != KEY}
    try:
        return file_layout(tensors, metadata=kept)
    except ValueError as error:
        raise ValueError(f"{printable(reader.path)}: {error}") from None


@contextmanager
def _about(reader: Reader, name: str) -> Iterator[None]:
    """Put file and tensor before the message of an error that does not name them."""
    prefix = f"{printable(reader.path)}: "
    try:
        yield
    except (ValueError, MemoryError) as error:
        text = sentence(error)
        if text.startswith(prefix):
            raise
        kind = ValueError if isinstance(error, ValueError) else MemoryError
        raise kind(f"{prefix}tensor {quoted(name)}: {text}") from None


def _quantize_one(reader: Reader, writer: Writer, name: str, entry: Entry) -> int:
    tensor, fmt = reader.tensor(name), entry.format
    plain = isinstance(fmt, Sparse) and fmt.is_plain
    with _about(reader, name):
        array = prune(tensor, str(fmt), entry.axis) if plain else quantize(tensor, fmt, axis=entry.axis)
    write_array(writer, name, array, entry)
    return array.nbytes


def _zero_one(reader: Reader, writer: Writer, name: str, change: _Zeroed) -> None:
    array = reader.tensor(name)
    pattern, axis = change.format.pattern, change.axis
    # Rows that know nothing of each other are pruned some at a time.
    alone = ":" not in pattern and 0 not in axis and array.size
    block = max(1, BLOCK * len(array) // array.size) if alone else max(1, len(array))
    with _about(reader, name):
        for first in range(0, len(array), block):
            part = array[first : first + block]
            try:
                part[~mask_of(part, pattern, axis, None, "prune")] = 0
            except ValueError:
                mask_of(reader.tensor(name), pattern, axis, None, "prune")  # says where in all of the tensor
                raise
    writer.write(name, array)


def inspect(path: str | os.PathLike[str], progress: Progress | None = None) -> list[dict[str, Any]]:
    """Describe the tensors of a safetensors file, reading one at a time.

    Parameters
    ----------
    path : str or os.PathLike
    progress : callable, optional
        As in `quantize_checkpoint`.

    Returns
    -------
    list of dict
        One a tensor, in the file's order: `name`; `dtype`, NumPy's name of it, of a quantized array the dtype
        that was quantized; `shape`; `format`, a text, or None for a plain tensor; `bytes` stored; `min` and
        `max` of the values that are no NaN, None where there are none or they have no order; `nan`, how many.

    Raises
    ------
    ValueError
        If the file is illegal; one line that names the file and the tensor.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from heterocompute.files.safetensors import save
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> save(path, {"w": np.array([[1, -2, np.nan]], np.float16)})
    >>> inspect(path)
    [{'name': 'w', 'dtype': 'float16', 'shape': [1, 3], 'format': None, 'bytes': 6, 'min': -2.0, 'max': 1.0, 'nan': 1}]
    """
    with Reader(path) as reader:
        found, _ = entries(reader)
        total = sum(reader.info(name).nbytes for name in reader.names)
        rows: list[dict[str, Any]] = []
        done = 0
        for name, entry in contents(reader, found):
            if progress:
                progress(done, total, name)
            rows.append(_plain_row(reader, name) if entry is None else _packed_row(reader, name, entry))
            done += rows[-1]["bytes"]
        if progress:
            progress(total, total, "")
    return rows


def _plain_row(reader: Reader, name: str) -> dict[str, Any]:
    info = reader.info(name)
    packed = DTYPES[FILE_NAMES[info.dtype]][1] < 8  # no array, and neither NaN nor infinity
    low, high, n_nan = (None, None, 0) if packed else _range(reader.parts(name))
    return _row(name, info.dtype, info.shape, None, info.nbytes, low, high, n_nan)


def _packed_row(reader: Reader, name: str, entry: Entry) -> dict[str, Any]:
    with _about(reader, name):
        array = read_array(reader, name, entry)
        low, high, n_nan = _range(array._occurring())
    return _row(name, entry.dtype, entry.shape, str(entry.format), array.nbytes, low, high, n_nan)


def _row(
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    fmt: str | None,
    n_bytes: int,
    low: float | None,
    high: float | None,
    n_nan: int,
) -> dict[str, Any]:
    return {
        "name": name,
        "dtype": dtype,
        "shape": list(shape),
        "format": fmt,
        "bytes": n_bytes,
        "min": low,
        "max": high,
        "nan": n_nan,
    }


@counts_subnormals
def _range(parts: Iterable[NDArray[Any]]) -> tuple[float | None, float | None, int]:
    """Return the least value, the greatest and the number of NaN; None where there is no value or no order."""
    low, high, n_nan = math.inf, -math.inf, 0
    ordered = False
    for part in parts:
        flat = part.reshape(-1)
        for first in range(0, flat.size, BLOCK):
            block = flat[first : first + BLOCK]
            if block.dtype.kind == "b":
                block = block.view(np.uint8)
            elif block.dtype.name.startswith(("bfloat", "float8")):
                block = block.astype(np.float32)
            if block.dtype.kind in "fc":
                wrong = np.isnan(block)
                n_nan += int(np.count_nonzero(wrong))
                block = block[~wrong]
            if block.size and block.dtype.kind != "c":
                low, high, ordered = min(low, block.min().item()), max(high, block.max().item()), True
    return (low, high, n_nan) if ordered else (None, None, n_nan)
