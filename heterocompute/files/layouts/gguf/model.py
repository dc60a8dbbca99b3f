"""GGUF: blocks of values in the order of ggml, written by the package `gguf`, and read back as packed arrays.

    Q4_0    float16 d, 16 bytes: value j low, j + 16 high, code + 8      int4-g32-f16
    Q8_0    float16 d, 32 int8                                           int8-g32-f16
    MXFP4   E8M0 byte, 16 bytes as of Q4_0                               mxfp4
    NVFP4   4 E4M3 bytes, 32 bytes: 8 for 16 values, j low, j + 8 high   nvfp4; its float32 is a tensor of its own

The types of `GGML` are blocks of ggml as they are (blocks.py). ggml, src/ggml-common.h, lines 194, 251, 214, 221.
A code for -0 is written as 0, as ggml has it, which decodes both to 0.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ....arrays.quantized import QuantizedArray
from ....arrays.stored import wrong_part
from ....base.errors import WrongType, WrongValue
from ....base.float_env import converted
from ....base.rereading import drawn, refuse_different
from ....base.tensors import Info, Tensors
from ....base.texts import quoted
from ....base.writer import naming, replacing
from ....formats import GGML, MX, NVFP4, Format
from ...containers.gguf_files import Gguf, scale_name
from ..linear import Array, refuse
from .blocks import array_of, blocks_name, bytes_of
from .keys import add_key
from .llama_cpp import Model
from .stacks import Apart

BLOCK, MOST_NAME = 32, 63
PLAIN = ("float32", "float16", "bfloat16", "float64", "int8", "int16", "int32", "int64")


class Blocks(NamedTuple):
    """The blocks of an array: ggml's name of their type, the bytes (..., bytes of a row), the scale of all."""

    kind: str
    data: Array
    scale: Array | None = None


class Whole(np.ndarray[Any, Any]):
    """An array that is written whole or raises: NumPy's own `tofile` loses the last bytes on a full disk, silently."""

    def tofile(self, file: Any, *_: object) -> None:
        file.write(np.ascontiguousarray(self).reshape(-1).view(np.ndarray).view(np.uint8).data)


def block_of(fmt: Format) -> int:
    """Return the values of a block of a format."""
    return fmt.block if isinstance(fmt, GGML) else 64 if isinstance(fmt, NVFP4) else BLOCK


def has_place(fmt: object) -> bool:
    """Tell whether ggml has blocks for a format."""
    return blocks_name(fmt) is not None


def kind_of(fmt: Format) -> str:
    """Return ggml's name of the blocks of a type of ggml or of 4-bit floats."""
    return fmt.type.upper() if isinstance(fmt, GGML) else "NVFP4" if isinstance(fmt, NVFP4) else "MXFP4"


def _check_names(arrays: Mapping[str, Any]) -> None:
    """Refuse names that ggml cannot hold, and tensors with the name of another one's scale."""
    scaled = [name for name, a in arrays.items() if isinstance(getattr(a, "format", None), NVFP4)]
    taken: set[str] = set()
    for name in [*arrays, *map(scale_name, scaled)]:
        if len(name.encode()) > MOST_NAME:
            raise WrongValue(f"save: tensor {quoted(name)}: gguf has names of at most {MOST_NAME} bytes")
        if name in taken:
            raise WrongValue(f"save: two tensors would be called {quoted(name)}")
        taken.add(name)


def blocks_of(name: str, q: QuantizedArray | Apart) -> Blocks:
    """Return the blocks of an array."""
    if isinstance(q, Apart):
        several = [blocks_of(name, one) for one in q.parts]
        scales = np.concatenate([one.scale for one in several if one.scale is not None])
        return Blocks(several[0].kind, np.stack([one.data for one in several]), scales)
    block = block_of(q.format)
    if q.axis != (q.ndim - 1,) or not 1 <= q.ndim <= 4 or q.shape[-1] % block or 0 in q.shape:
        what = f"tensor {quoted(name)} of shape {q.shape} and axis {q.axis}"
        smaller = block > BLOCK and q.ndim > 0 and q.shape[-1] % BLOCK == 0
        fits = "; q8_0, q4_0 and iq4_nl have blocks of 32" if smaller else ""
        raise WrongValue(
            f"save: {what}: gguf stores rows of whole blocks of {block}, quantized along the last axis{fits}"
        )
    scales = q.components.get("scales", np.zeros(0, np.uint8))
    name_of_blocks = blocks_name(q.format)
    if name_of_blocks is None or (isinstance(q.format, MX) and (scales == 255).any()):
        refuse(name, q, "gguf", "int4-g32-f16, int8-g32-f16, nvfp4, mxfp4 without NaN or a type of ggml is the nearest")
    scale = q.components["coarse"].reshape(1) if isinstance(q.format, NVFP4) else None
    return Blocks(name_of_blocks.upper(), bytes_of(q).reshape(*q.shape[:-1], -1), scale)


def readers(reader: Tensors) -> dict[str, Callable[[], Any]]:
    """Return how each tensor of a file is read, packed where a format here has its blocks.

    Parameters
    ----------
    reader : Tensors
        Of a GGUF file.

    Returns
    -------
    dict of str to callable
        Each answers with a QuantizedArray or an ndarray, or raises ValueError where blocks hold what their format never
        has.

    Raises
    ------
    ValueError
        Another file.
    """
    if not isinstance(reader, Gguf):
        raise WrongValue("is not a GGUF file")
    scales = {name: scale_name(name) for name in reader.names if reader.kind(name) == "NVFP4"}
    scales = {name: scale for name, scale in scales.items() if scale in reader}
    several = {name for name, scale in scales.items() if not _is_one(reader.info(scale))}
    taken = {scale for name, scale in scales.items() if name not in several}
    found: dict[str, Callable[[], Any]] = {}
    for name in reader.names:
        kind = reader.kind(name)
        if kind is not None and name not in several and (kind in FLOATS or kind.lower() in GGML.examples):
            found[name] = partial(_packed, reader, name, kind, scales.get(name))
        elif name in several:
            found[name] = partial(_decoded, reader, name, scales[name])
        elif name not in taken:
            found[name] = partial(reader.tensor, name)
    return found


def _is_one(info: Info) -> bool:
    return str(info.dtype) == "float32" and math.prod(info.shape) == 1


def _packed(reader: Gguf, name: str, kind: str, scale: str | None) -> Any:
    """Return one tensor of blocks, packed; an empty one is plain."""
    held, shape = reader.blocks(name), reader.info(name).shape
    if held is None:
        return reader.tensor(name)
    if kind in FLOATS:
        q = _floats_of(name, kind, held[1], shape, reader.tensor(scale) if scale else np.ones(1, np.float32))
    else:
        q = array_of(GGML(kind.lower()), held[1], shape)
    wrong = wrong_part(dict(q.components), q.format, q.shape, q.axis)
    if wrong is not None and wrong[0] == "codes" and kind in ("Q8_0", "TQ2_0"):
        return reader.tensor(name)  # -128, or 2 in TQ2_0: codes that ggml never writes but reads
    if wrong is not None:
        raise WrongValue(f"tensor {quoted(name)}: component {wrong[0]} {wrong[1]}")
    return q


def _decoded(reader: Gguf, name: str, scale: str) -> Array:
    """Return the values of a stack whose matrices have scales of their own."""
    held, shape, factors = reader.blocks(name), reader.info(name).shape, reader.tensor(scale).reshape(-1)
    if held is None or len(shape) != 3 or len(factors) != shape[0]:
        return reader.tensor(name)
    rows = held[1].reshape(*shape[:2], -1)
    each = (_floats_of(name, "NVFP4", part, shape[1:], factors[i : i + 1]) for i, part in enumerate(rows))
    return np.stack([q.dequantize() for q in each])


FLOATS: dict[str, Format] = {"MXFP4": MX("fp4"), "NVFP4": NVFP4()}


def _floats_of(name: str, kind: str, data: Array, shape: tuple[int, ...], scale: Array) -> QuantizedArray:
    """Return the array of blocks of 4-bit floats."""
    q = array_of(FLOATS[kind], data, shape, {"coarse": scale.reshape(())} if kind == "NVFP4" else None)
    if kind == "MXFP4" and (q.components["scales"] == 255).any():
        raise WrongValue(f"tensor {quoted(name)}: component scales holds the byte 255, which MXFP4 of ggml never uses")
    return q


def write(path: str | os.PathLike[str], arrays: Mapping[str, Any], model: Model | None, check: str) -> None:
    """Write a file; it has its name when it is complete.

    Parameters
    ----------
    model : Model or None
        The language model that the arrays are. None: the file is of the architecture ``none``.
    check : str
        What is read again, of `rereading.CHECKS`.

    Raises
    ------
    ImportError
        gguf is not installed.
    ValueError
        ggml has no type for a format, or cannot hold a name.
    TypeError
        GGUF does not have a dtype.
    """
    try:
        import gguf  # optional
    except ImportError:
        raise ImportError("save: the layout gguf needs gguf: pip install 'heterocompute[gguf]'") from None
    if model is not None:
        named = {model.names[name]: array for name, array in arrays.items() if name in model.names}
        made = {own: stack.of(own, [arrays[name] for name in stack.names]) for own, stack in model.stacks.items()}
        arrays = {**named, **made, **model.more}
        for name, array in arrays.items():
            refuse_scales(name, array, model)
    _check_names(arrays)
    stored: dict[str, tuple[str | None, Array]] = {}
    wanted: dict[str, Callable[[], Array]] = {}  # the values of each tensor
    for name, array in arrays.items():
        order = None if model is None else model.rows.get(name)
        if isinstance(array, QuantizedArray | Apart):
            blocks = blocks_of(name, array)
            stored[name] = blocks.kind, blocks.data if order is None else blocks.data[order]
            wanted[name] = partial(_in_order, array, order)
            if blocks.scale is not None:
                stored[scale_name(name)] = None, blocks.scale
            continue
        plain = np.asarray(array)
        if plain.dtype.name not in PLAIN or plain.ndim > 4:
            what = f"tensor {quoted(name)} is {plain.dtype} {plain.shape}"
            raise WrongType(f"save: {what}: gguf needs {', '.join(PLAIN)} and at most 4 dimensions")
        if model is not None and (plain.ndim == 1 or plain.dtype == np.float64 or name.endswith(".bias")):
            plain = converted(plain, np.float32)  # llama.cpp has vectors and biases of float32 only
            plain = plain + np.float32(1) if name in model.plus_one else plain
        plain = np.ascontiguousarray(_in_order(plain, order))  # 0 dimensions become 1
        wanted[name] = partial(_in_order, plain, None)
        stored[name] = ("BF16", plain.view(np.uint8)) if plain.dtype.name == "bfloat16" else (None, plain)
    with replacing(path) as temporary:
        with naming(os.fspath(path)):
            writer = gguf.GGUFWriter(temporary, "none" if model is None else model.architecture)
            for key, value in ({} if model is None else model.keys).items():
                add_key(writer, gguf, key, value)
            for name, (kind, values) in stored.items():
                writer.add_tensor(
                    name, values.view(Whole), raw_dtype=None if kind is None else gguf.GGMLQuantizationType[kind]
                )
            try:
                writer.write_header_to_file()
                writer.write_kv_data_to_file()
                writer.write_tensors_to_file()
            finally:
                writer.close()
        kinds = {name: ((kind, values.dtype.name, values.ndim), values.nbytes) for name, (kind, values) in
                 stored.items() if name in wanted}  # fmt: skip
        refuse_others(os.fspath(path), temporary, {name: wanted[name] for name in drawn(kinds, check)})


def refuse_scales(name: str, array: object, model: Model) -> None:
    """Raise ValueError for a tensor whose scale llama.cpp does not read."""
    if model.has_scales or ".ffn_" not in name or not isinstance(array, QuantizedArray | Apart):
        return
    several = array.parts if isinstance(array, Apart) else [array]
    if isinstance(array.format, NVFP4) and any(one.components["coarse"].item() != 1 for one in several):
        raise WrongValue(
            f"save: tensor {quoted(name)}: llama.cpp does not read the scale of nvfp4 in the feed-forward part of "
            f"{model.architecture}: choose another format, and dequantize the folder first if it is quantized"
        )


def refuse_others(path: str, temporary: str, wanted: Mapping[str, Callable[[], Array]]) -> None:
    """Raise ValueError if a written file does not hold the values of some tensors.

    Parameters
    ----------
    path, temporary : str
        The name of the file, in the error, and where it is.
    wanted : mapping of str to callable
        Returns the values of a tensor.
    """
    if not wanted:
        return
    with Gguf(temporary) as reader:
        found = readers(reader)
        for name, values in wanted.items():
            refuse_different(path, name, values(), np.asarray(found[name]()))


def _in_order(array: object, order: Any) -> Array:
    """Return the values of an array, its rows in the order of another program."""
    values = np.asarray(array)
    return values if order is None else values[order]
