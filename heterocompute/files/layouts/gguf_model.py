"""GGUF: blocks of 32 values in the order of ggml, written by the package `gguf`.

    Q4_0    float16 d, 16 bytes: value j low, j + 16 high, code + 8      int4-g32-f16
    Q8_0    float16 d, 32 int8                                           int8-g32-f16
    MXFP4   E8M0 byte, 16 bytes as of Q4_0                               mxfp4

The types of `GGML` are blocks of ggml as they are (ggml_blocks.py). ggml, src/ggml-common.h, lines 194, 251 and 214.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...arrays.quantized import QuantizedArray
from ...base.texts import quoted
from ...formats import GGML, MX, Int
from .ggml_blocks import bytes_of
from .linear import Array, refuse

BLOCK = 32
PLAIN = ("float32", "float16", "float64", "int8", "int16", "int32", "int64")


def blocks_of(name: str, q: QuantizedArray) -> tuple[str, Array]:
    """Return the type of ggml, and the bytes of each row."""
    if isinstance(q.format, GGML):
        if q.ndim != 2 or q.axis != (1,) or q.shape[1] % q.format.block or 0 in q.shape:
            what = f"tensor {quoted(name)} of shape {q.shape} and axis {q.axis}"
            raise ValueError(f"save: {what}: gguf stores matrices whose rows are blocks of {q.format.block}")
        return q.format.type.upper(), bytes_of(q)
    if q.ndim != 2 or q.axis != (1,) or q.shape[1] % BLOCK or 0 in q.shape:
        what = f"tensor {quoted(name)} of shape {q.shape} and axis {q.axis}"
        raise ValueError(f"save: {what}: gguf stores matrices whose rows are blocks of 32")
    rows, scales = q.shape[0], q.components["scales"]
    if q.format == Int(8, BLOCK, scale="f16"):
        codes = q.codes().reshape(rows, -1, BLOCK).view(np.uint8)
        kind = "Q8_0"
    elif q.format == Int(4, BLOCK, scale="f16"):
        codes = _paired((q.codes() + np.int8(8)).astype(np.uint8).reshape(rows, -1, BLOCK))
        kind = "Q4_0"
    elif isinstance(q.format, MX) and q.format.element == "fp4" and not (scales == 255).any():
        codes = _paired(q.codes().reshape(rows, -1, BLOCK))
        kind = "MXFP4"
    else:
        refuse(name, q, "gguf", "int4-g32-f16, int8-g32-f16, mxfp4 without NaN or a type of ggml is the nearest")
    heads = np.ascontiguousarray(scales).view(np.uint8).reshape(rows, codes.shape[1], -1)
    return kind, np.concatenate([heads, codes], axis=2).reshape(rows, -1)


def _paired(codes: Array) -> Array:
    return np.asarray(codes[..., :16] | codes[..., 16:] << np.uint8(4))


def write(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write a file of the architecture ``none``; it has its name when it is complete.

    Raises
    ------
    ImportError
        gguf is not installed.
    ValueError
        A format without a type of ggml, or names that ggml cannot hold.
    TypeError
        A dtype that GGUF does not have.
    """
    try:
        import gguf  # optional
    except ImportError:
        raise ImportError("save: the layout gguf needs gguf: pip install heterocompute[gguf]") from None
    stored: dict[str, tuple[str | None, Array]] = {}
    for name, array in arrays.items():
        if len(name.encode()) > 63:
            raise ValueError(f"save: tensor {quoted(name)}: gguf has names of at most 63 bytes")
        if isinstance(array, QuantizedArray):
            stored[name] = blocks_of(name, array)
            continue
        plain = np.asarray(array)
        if plain.dtype.name not in PLAIN or not 1 <= plain.ndim <= 4:
            what = f"tensor {quoted(name)} is {plain.dtype} {plain.shape}"
            raise TypeError(f"save: {what}: gguf wants {', '.join(PLAIN)} and 1 to 4 dimensions")
        stored[name] = None, np.ascontiguousarray(plain)
    temporary = f"{os.fspath(path)}.{os.urandom(8).hex()}.tmp"
    try:
        writer = gguf.GGUFWriter(temporary, "none")
        for name, (kind, values) in stored.items():
            writer.add_tensor(name, values, raw_dtype=None if kind is None else gguf.GGMLQuantizationType[kind])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
