"""Weights of quantized ONNX models: `MatMulNBits` of onnxruntime, and `DequantizeLinear` of constant matrices.

A weight is (out, in) here, packed, or values where zero points are floats and no format has the same values. Codes of
`DequantizeLinear` that lie (in, out) are turned. onnx_matmul.py and onnx_model.py say where codes, scales and zero
points lie. Constants of other operators are plain tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...arrays.bits import pack, unpack
from ...arrays.quantized import QuantizedArray
from ...base.tensors import Tensors
from ...base.texts import quoted
from ...formats import Int
from ..containers.onnx_files import Onnx
from .linear import Array, Codes, array_of, float_zero_values, with_float_zeros

__all__ = ["readers"]

BITS = (2, 4, 8)
SCALES = ("float16", "bfloat16", "float32")


def readers(reader: Tensors) -> tuple[list[str], dict[str, Callable[[], Any]]]:
    """Return the plain tensors of a model, and how each quantized weight is read.

    Raises
    ------
    ValueError
        Another file.
    """
    if not isinstance(reader, Onnx):
        raise ValueError("is not an ONNX model")
    found: dict[str, Callable[[], Any]] = {}
    used: set[str] = set()
    for node in reader.packed:
        first = 1 if node.kind == "MatMulNBits" else 0
        inputs = [name for name in node.inputs[first : first + 3] if name]
        codes = inputs[0]
        shape = reader.shape_of(codes)
        if node.kind == "MatMulNBits":
            name, read = codes.removesuffix(".B"), partial(_of_blocks, reader, node)
            used |= set(inputs)
        elif len(shape) == 2:
            name, read = node.output, partial(_of_matrix, reader, node)
            used |= set(inputs)
        else:
            continue
        name = name if name.endswith(".weight") else f"{name}.weight"
        if name in found:
            raise ValueError(f"two weights would be called {quoted(name)}")
        found[name] = read
    return [name for name in reader.names if name not in used], found


def _made(name: str, bits: int, group: int | None, codes: Codes, scales: Array, points: Array) -> QuantizedArray:
    """Return an array, symmetric where all zero points are the middle and the lowest code is not used."""
    if scales.dtype.name not in SCALES or not np.isfinite(scales.astype(np.float32)).all():
        raise ValueError(f"{name}: scales of {scales.dtype}, expected finite {', '.join(SCALES)}")
    middle, kind = 1 << (bits - 1), "f16" if scales.dtype == np.float16 else "f32"
    if (points == middle).all() and not codes.holds(0):
        return array_of(Int(bits, group, True, kind), codes._replace(flip=middle), scales, None)
    return array_of(Int(bits, group, False, kind), codes, scales, points)


def _of_blocks(reader: Onnx, node: Any) -> Any:
    stored, given = node.inputs[1], [*node.inputs, "", "", ""]
    sizes = [node.numbers.get(key, 0) for key in ("K", "N", "bits", "block_size")]
    count, rows, bits, group = sizes
    if min(sizes) < 1 or max(sizes) >= 1 << 31 or bits not in BITS or group & (group - 1) or group < 8:
        raise ValueError(f"{stored}: K, N, bits and block_size are {sizes}, expected 2, 4 or 8 bits in blocks of 2^n")
    if given[4]:
        raise ValueError(f"{stored}: g_idx of MatMulNBits is not read, expected columns in order")
    codes, scales, blocks = reader.tensor(stored), reader.tensor(given[2]), -(-count // group)
    if codes.dtype != np.uint8 or codes.size != rows * blocks * group * bits // 8 or scales.size != rows * blocks:
        what = f"{codes.dtype} {codes.shape} with {scales.size} scales"
        raise ValueError(f"{stored} is {what}, expected uint8 {(rows, blocks, group * bits // 8)}")
    whole = Codes(np.ascontiguousarray(codes.reshape(rows, -1)), bits, count)
    points = np.full((rows, blocks), 1 << (bits - 1), np.uint8)
    if given[3] and reader.info(given[3]).dtype in SCALES:
        return _with_float_zeros(stored, whole, reader.tensor(given[3]), scales, min(group, count))
    if given[3]:
        packed, width = reader.tensor(given[3]), -(-blocks * bits // 8)
        if packed.dtype != np.uint8 or packed.size != rows * width:
            what = f"{packed.dtype} {packed.shape}"
            raise ValueError(f"{given[3]} is {what}, expected uint8 {(rows, width)}: other zero points are not read")
        points = unpack(packed.reshape(rows, width), bits, blocks)
    return _made(stored, bits, min(group, count), whole, scales.reshape(rows, blocks), points)


def _with_float_zeros(name: str, codes: Codes, zeros: Array, scales: Array, group: int) -> Any:
    """Return an array, or values where no format here has exactly those."""
    shape = len(codes.packed), -(-codes.length // group)
    if zeros.size != scales.size or not np.isfinite(zeros.astype(np.float32)).all():
        raise ValueError(f"{name}: zero points are {zeros.dtype} {zeros.shape}, expected finite floats {shape}")
    if scales.dtype.name not in SCALES or not np.isfinite(scales.astype(np.float32)).all():
        raise ValueError(f"{name}: scales of {scales.dtype}, expected finite {', '.join(SCALES)}")
    wide = zeros.astype(np.float32).reshape(shape), scales.astype(np.float32).reshape(shape)
    q = with_float_zeros(codes, *wide, group)
    return float_zero_values(codes, *wide, group) if q is None else q


def _of_matrix(reader: Onnx, node: Any) -> QuantizedArray:
    stored = node.inputs[0]
    codes, bits, is_signed = reader.codes(stored)
    scales = reader.tensor(node.inputs[1])
    zeros: Array = np.zeros(scales.shape, np.int16)
    if len(node.inputs) > 2 and node.inputs[2]:
        zeros = reader.codes(node.inputs[2])[0].astype(np.int16)
    if zeros.shape != scales.shape:
        raise ValueError(f"{stored}: zero points {zeros.shape} next to scales {scales.shape}")
    axis, block = node.numbers.get("axis", 1) % 2, node.numbers.get("block_size", 0)
    along = axis if block else 1 - axis  # of the sums
    if scales.size == 1:
        along, scales, zeros = 1, scales.reshape(1, 1), zeros.reshape(1, 1)
    elif scales.ndim == 1:
        scales, zeros = np.expand_dims(scales, along), np.expand_dims(zeros, along)
    if along == 0:
        codes, scales, zeros = codes.T, scales.T, zeros.T
    rows, count = codes.shape
    groups = -(-count // block) if block > 0 else 1
    if scales.ndim != 2 or scales.shape not in ((rows, groups), (1, 1)) or block < 0:
        raise ValueError(f"{stored}: scales {scales.shape}, expected {(rows, groups)} next to {rows} x {count} codes")
    scales, zeros = (np.ascontiguousarray(np.broadcast_to(part, (rows, groups))) for part in (scales, zeros))
    offset = 1 << (bits - 1) if is_signed else 0
    unsigned = np.ascontiguousarray((codes.astype(np.int16) + offset).astype(np.uint8))
    group = min(block, count) if block else None
    points = (zeros + offset).astype(np.uint8)
    return _made(stored, bits, group, Codes(pack(unsigned, bits), bits, count), scales, points)
