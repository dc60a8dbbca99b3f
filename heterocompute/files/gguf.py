"""Weights to a GGUF file, one tensor in memory at a time: `save_tensors`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays.dense import FLOATS, as_any
from ..arrays.layout import as_path
from ..arrays.quantized import QuantizedArray
from ..base.container import numpy_dtype
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import converted, counts_subnormals
from ..base.rereading import as_check, drawn, refuse_other_bytes
from ..base.texts import quoted
from ..base.writer import bytes_of, naming, replacing
from ..formats import GGML, MX, NVFP4, Format, format as parse_format
from .containers.gguf_files import Gguf, scale_name
from .layouts.gguf.blocks import block_bytes
from .layouts.gguf.importance import importance_in
from .layouts.gguf.keys import add_key, check_text
from .layouts.gguf.lattices import BLOCK, LATTICES, Lattice, encoded
from .layouts.gguf.model import MOST_NAME, Whole, block_of, blocks_of, kind_of
from .layouts.gguf.rounding import rounded
from .layouts.gguf.stacks import Apart
from .selection import FirstMatch

Array = np.ndarray[Any, Any]
PLAIN: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": numpy_dtype("bfloat16"),
}
INTEGERS: dict[str, np.dtype[Any]] = {f"i{8 * n}": np.dtype(f"i{n}") for n in (1, 2, 4, 8)}
LARGEST = {
    "f16": "float16's largest, 65504",
    "bf16": "bfloat16's largest, 3.39e+38",
    "f32": f"float32's largest, {np.finfo(np.float32).max}",
}
MOST_DIMENSIONS = 4
_CHUNK = 1 << 20  # values converted at a time
FLOAT_BLOCKS = {"MXFP4": 17, "NVFP4": 36}  # bytes
# The types of llama.cpp for rows that are not whole blocks of 256.
INSTEAD = {"q2_k": "iq4_nl", "q3_k": "iq4_nl", "iq4_xs": "iq4_nl", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0",
           "tq1_0": "q4_0", "tq2_0": "q4_0"}  # fmt: skip


@counts_subnormals
def save_tensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Any],
    metadata: Mapping[str, Any] | None = None,
    types: Mapping[str, str | Format] | None = None,
    importance: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    check: str = "sample",
) -> dict[str, str]:
    """Write tensors by name, with the arguments of `saving.save_gguf`."""
    try:
        import gguf  # optional
    except ImportError:
        raise ImportError("save_gguf: needs gguf: pip install 'heterocompute[gguf]'") from None
    path, check = as_path(path, "save_gguf"), as_check(check, "save_gguf")
    if isinstance(importance, str | os.PathLike) and isinstance(tensors, Mapping):
        importance = {name: w for name, w in importance_in(as_path(importance, "save_gguf")).items() if name in tensors}
    for declared, given in (("tensors", tensors), ("metadata", metadata), ("types", types), ("importance", importance)):
        if not isinstance(given, Mapping) and (given is not None or declared == "tensors"):
            raise WrongType(f"save_gguf: {declared} is {shown(given)}, expected a mapping of names")
    for name in tensors:
        _check_name(name)
    first = FirstMatch({name: _type_of(text) for name, text in ({"*": "q4_k"} if types is None else types).items()})
    weights: dict[str, Any] = dict(importance) if isinstance(importance, Mapping) else {}
    unknown = [name for name in weights if name not in tensors]
    if unknown:
        raise WrongValue(f"save_gguf: importance is given for {shown(unknown[0])}, which is not a tensor")
    keys = dict(metadata or {})
    architecture = keys.pop("general.architecture", "none")
    if not isinstance(architecture, str):
        raise WrongType(f"save_gguf: general.architecture is {shown(architecture)}, expected a str")
    check_text("general.architecture", architecture)
    chosen: dict[str, str | Format | Lattice] = {}
    sizes: dict[str, tuple[str, int]] = {}
    with replacing(path) as temporary:
        writer = gguf.GGUFWriter(temporary, architecture)
        try:
            for key, value in keys.items():
                add_key(writer, gguf, key, value)
            for name in tensors:
                chosen[name], nbytes = _add_tensor(writer, gguf, name, tensors[name], first(name, "f32"))
                sizes[name] = str(chosen[name]), nbytes
            with naming(path):
                writer.write_header_to_file()
                writer.write_kv_data_to_file()
                writer.write_ti_data_to_file()
            for name, kind in chosen.items():
                for stored in _stored(name, tensors[name], kind, weights.get(name)):
                    with naming(path):
                        writer.write_tensor_data(stored.view(Whole))
                    del stored  # the check makes it again
        finally:
            with naming(path):
                writer.close()
        _compare(path, temporary, tensors, chosen, weights, drawn(sizes, check))
    return {name: str(kind) for name, kind in chosen.items()}


def _compare(
    path: str,
    temporary: str,
    tensors: Mapping[str, Any],
    chosen: Mapping[str, str | Format | Lattice],
    weights: Mapping[str, Any],
    names: Sequence[str],
) -> None:
    """Convert some tensors a second time; ValueError if the written file has other bytes for them."""
    if not names:
        return
    with Gguf(temporary) as reader:
        for name in names:
            stored = _stored(name, tensors[name], chosen[name], weights.get(name))
            places = [name] if len(stored) == 1 else [name, scale_name(name)]
            for place, wanted in zip(places, stored, strict=True):
                done, data = 0, np.frombuffer(bytes_of(wanted), np.uint8)
                for found in reader.stored(place):
                    refuse_other_bytes(path, place, data[done : done + found.size], found, done)
                    done += found.size


def _type_of(text: str | Format) -> str | Format | Lattice:
    if isinstance(text, str) and text in PLAIN:
        return text
    if isinstance(text, str) and text in LATTICES:
        return LATTICES[text]
    found = parse_format(text)
    if not isinstance(found, GGML | NVFP4) and found != MX("fp4"):
        raise WrongValue(
            f"save_gguf: {found} has no place in GGUF, expected a type of GGML, mxfp4, nvfp4, f16, bf16 or f32"
        )
    return found


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise WrongType(f"save_gguf: a tensor's name is {shown(name)}, expected a str")
    check_text("a tensor's name", name)
    if len(name.encode()) > MOST_NAME:
        raise WrongValue(f"save_gguf: tensor {quoted(name)}: gguf has names of at most {MOST_NAME} bytes")


def _add_tensor(
    writer: Any, gguf: Any, name: Any, array: object, kind: str | Format | Lattice | None
) -> tuple[str | Format | Lattice, int]:
    """Enter a tensor's name and size; return its type and its bytes."""
    if isinstance(array, QuantizedArray | Apart):
        kind = array.format
        if array.axis != (array.ndim - 1,):
            what = f"tensor {quoted(name)} of shape {array.shape} and axis {array.axis}"
            raise WrongValue(f"save_gguf: {what}: gguf stores only arrays that are quantized along the last axis")
        _type_of(kind)
    else:
        array = as_any(array, f"save_gguf: tensor {quoted(name)}")
        kind = next((text for text, dtype in INTEGERS.items() if array.dtype == dtype), kind)
        if array.dtype.name not in FLOATS and kind not in INTEGERS:
            raise WrongType(
                f"save_gguf: tensor {quoted(name)} has dtype {array.dtype}, expected {', '.join(FLOATS)}, int8 to int64"
            )
    shape = tuple(array.shape) or (1,)
    if len(shape) > MOST_DIMENSIONS:
        raise WrongValue(
            f"save_gguf: tensor {quoted(name)} has shape {shape}, expected at most {MOST_DIMENSIONS} dimensions"
        )
    if not isinstance(array, QuantizedArray | Apart) and kind not in INTEGERS:
        kind = fitting(kind or "f32", shape)
    assert kind is not None
    if isinstance(kind, str):
        dtype = {**PLAIN, **INTEGERS}[kind]
        size = int(np.prod(shape)) * dtype.itemsize
        if kind == "bf16":  # the package returns it as bytes
            shape, raw = (*shape[:-1], 2 * shape[-1]), gguf.GGMLQuantizationType.BF16
            writer.add_tensor_info(name, shape, np.dtype(np.uint8), size, raw_dtype=raw)
        else:
            writer.add_tensor_info(name, shape, dtype, size)
        return kind, size
    if isinstance(kind, Lattice):
        shape = (*shape[:-1], shape[-1] // BLOCK * kind.nbytes)
        total, raw = int(np.prod(shape)), gguf.GGMLQuantizationType[kind.name.upper()]
        writer.add_tensor_info(name, shape, np.dtype(np.uint8), total, raw_dtype=raw)
        return kind, total
    block, text = block_of(kind), kind_of(kind)
    size = block_bytes(kind) if isinstance(kind, GGML) else FLOAT_BLOCKS[text]
    if shape[-1] % block or 0 in shape:
        raise WrongValue(f"save_gguf: tensor {quoted(name)} has shape {shape}, expected rows of blocks of {block}")
    row_bytes = shape[-1] // block * size
    total = int(np.prod(shape[:-1])) * row_bytes
    raw = gguf.GGMLQuantizationType[text]
    writer.add_tensor_info(name, (*shape[:-1], row_bytes), np.dtype(np.uint8), total, raw_dtype=raw)
    if isinstance(kind, NVFP4):
        _check_name(scale_name(name))
        count = len(array.parts) if isinstance(array, Apart) else 1
        writer.add_tensor_info(scale_name(name), (count,), PLAIN["f32"], 4 * count)
    return kind, total


def fitting(kind: str | Format | Lattice, shape: tuple[int, ...]) -> str | Format | Lattice:
    """Return the type, or its substitute if rows are not whole blocks; vectors are ``"f32"``."""
    if isinstance(kind, str) or len(shape) < 2 or 0 in shape:
        return kind if isinstance(kind, str) and len(shape) > 1 else "f32"
    if isinstance(kind, GGML) and shape[-1] % kind.block and kind.type in INSTEAD:
        kind = GGML(INSTEAD[kind.type])
    if isinstance(kind, Lattice):
        kind = GGML("iq4_nl") if shape[-1] % BLOCK else kind
    return kind if isinstance(kind, Lattice) else "f16" if shape[-1] % block_of(kind) else kind


def _stored(name: str, array: object, kind: str | Format | Lattice, importance: object) -> list[Array]:
    """The bytes of a tensor, and its separate scale."""
    if isinstance(array, QuantizedArray | Apart):
        return _in_order(name, array)
    array = as_any(array, f"save_gguf: tensor {quoted(name)}")
    if kind in INTEGERS:
        return [np.ascontiguousarray(array)]
    if isinstance(kind, str):
        return [_converted(name, np.atleast_1d(array), kind)]
    rows = array.reshape(-1, array.shape[-1])
    weights = None
    is_searched = isinstance(kind, Lattice) or (
        isinstance(kind, GGML) and (kind.kind.scale_bits or kind.kind.has_levels)
    )
    if importance is not None and is_searched:
        try:
            weights = np.asarray(importance, np.float32)
        except (TypeError, ValueError):
            raise WrongType(
                f"save_gguf: importance of {quoted(name)} is {shown(importance)}, expected numbers of shape (columns,)"
            ) from None
        if weights.shape in ((1, array.shape[-1]), (*array.shape[:1], array.shape[-1])):
            weights = np.repeat(weights, len(rows) // len(weights), 0)  # of each matrix
        elif weights.shape != rows.shape[1:]:
            raise WrongValue(
                f"save_gguf: importance of {quoted(name)} has shape {weights.shape}, expected {rows.shape[1:]}"
            )
        weights = np.broadcast_to(weights, rows.shape)
    try:
        if isinstance(kind, Lattice):
            return [encoded(kind, converted(rows, np.float32), weights).reshape(*array.shape[:-1], -1)]
        q = rounded(rows, kind, (1,), weights)
    except ValueError as error:
        raise WrongValue(f"save_gguf: tensor {quoted(name)}: {error}") from None
    return _in_order(name, q)


def _converted(name: str, array: Array, kind: str) -> Array:
    """Return the values in a plain type, converted some at a time."""
    if array.dtype == PLAIN[kind] and array.flags.c_contiguous:
        return array.view(np.uint8) if kind == "bf16" else array
    stored: Array = np.empty(array.shape, PLAIN[kind])
    step = max(_CHUNK * len(array) // max(array.size, 1), 1)
    for first in range(0, len(array) if array.size else 0, step):
        part, some = array[first : first + step], stored[first : first + step]
        with np.errstate(over="ignore"):
            some[...] = converted(part, PLAIN[kind])
        if not np.isfinite(some[np.isfinite(part)]).all():
            raise WrongValue(f"save_gguf: tensor {quoted(name)} has values beyond {LARGEST[kind]}")
    return stored.view(np.uint8) if kind == "bf16" else stored


def _in_order(name: str, q: QuantizedArray | Apart) -> list[Array]:
    blocks = blocks_of(name, q)
    return [blocks.data] if blocks.scale is None else [blocks.data, blocks.scale]
