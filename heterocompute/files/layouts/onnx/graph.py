"""Weights of quantized ONNX models: `MatMulNBits` of onnxruntime, and `DequantizeLinear` of constants.

A matrix is (out, in) here. It is packed, except if zero points are floats and no format has the same values.
`DequantizeLinear` matrices that are stored as (in, out) are transposed. Filters and stacks keep their shape. matmul.py
and model.py describe the storage of codes, scales and zero points. Constants of other operators are plain tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ....arrays.bits import pack, unpack
from ....arrays.quantized import QuantizedArray
from ....base.errors import WrongValue
from ....base.tensors import Tensors
from ....base.texts import quoted
from ....formats import Int
from ...containers.onnx_files import Onnx
from ...selection import axis_of
from ..linear import Array, Codes, array_of, float_zero_values, with_float_zeros

BITS = (2, 4, 8)
SCALES = ("float16", "bfloat16", "float32")


def readers(reader: Tensors) -> tuple[list[str], dict[str, Callable[[], Any]]]:
    """Return the names of the plain tensors of a model, and a reader for each quantized weight.

    Raises
    ------
    ValueError
        Another file.
    """
    if not isinstance(reader, Onnx):
        raise WrongValue("is not an ONNX model")
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
        elif len(shape) > 1:
            name, read = node.output, partial(_of_tensor, reader, node)
            used |= set(inputs)
        else:
            continue
        name = name if name.endswith(".weight") else f"{name}.weight"
        if name in found:
            raise WrongValue(f"two weights would be called {quoted(name)}")
        found[name] = read
    reader.skipped = {name: what for name, what in reader.skipped.items() if name not in used}
    return [name for name in reader.names if name not in used], found


def _made(name: str, bits: int, group: int | None, codes: Codes, scales: Array, points: Array) -> QuantizedArray:
    """Return an array; it is symmetric if all zero points are the middle and the lowest code is not used."""
    if scales.dtype.name not in SCALES or not np.isfinite(scales.astype(np.float32)).all():
        raise WrongValue(f"{name}: scales of {scales.dtype}, expected finite {', '.join(SCALES)}")
    middle, kind = 1 << (bits - 1), "f16" if scales.dtype == np.float16 else "f32"
    if (points == middle).all() and not codes.holds(0):
        return array_of(Int(bits, group, True, kind), codes._replace(flip=middle), scales, None)
    return array_of(Int(bits, group, False, kind), codes, scales, points)


def _of_blocks(reader: Onnx, node: Any) -> Any:
    stored, given = node.inputs[1], [*node.inputs, "", "", ""]
    sizes = [node.numbers.get(key, 0) for key in ("K", "N", "bits", "block_size")]
    count, rows, bits, group = sizes
    if min(sizes) < 1 or max(sizes) >= 1 << 31 or bits not in BITS or group & (group - 1) or group < 8:
        raise WrongValue(f"{stored}: K, N, bits and block_size are {sizes}, expected 2, 4 or 8 bits in blocks of 2^n")
    if given[4]:
        raise WrongValue(f"{stored}: g_idx of MatMulNBits is not read, expected columns in order")
    codes, scales, blocks = reader.tensor(stored), reader.tensor(given[2]), -(-count // group)
    if codes.dtype != np.uint8 or codes.size != rows * blocks * group * bits // 8 or scales.size != rows * blocks:
        what = f"{codes.dtype} {codes.shape} with {scales.size} scales"
        raise WrongValue(f"{stored} is {what}, expected uint8 {(rows, blocks, group * bits // 8)}")
    whole = Codes(np.ascontiguousarray(codes.reshape(rows, -1)), bits, count)
    points = np.full((rows, blocks), 1 << (bits - 1), np.uint8)
    if given[3] and reader.info(given[3]).dtype in SCALES:
        return _with_float_zeros(stored, whole, reader.tensor(given[3]), scales, min(group, count))
    if given[3]:
        packed, width = reader.tensor(given[3]), -(-blocks * bits // 8)
        if packed.dtype != np.uint8 or packed.size != rows * width:
            what = f"{packed.dtype} {packed.shape}"
            raise WrongValue(f"{given[3]} is {what}, expected uint8 {(rows, width)}: other zero points are not read")
        points = unpack(packed.reshape(rows, width), bits, blocks)
    return _made(stored, bits, min(group, count), whole, scales.reshape(rows, blocks), points)


def _with_float_zeros(name: str, codes: Codes, zeros: Array, scales: Array, group: int) -> Any:
    """Return an array, or the values if no format here represents them exactly."""
    shape = len(codes.packed), -(-codes.length // group)
    if zeros.size != scales.size or not np.isfinite(zeros.astype(np.float32)).all():
        raise WrongValue(f"{name}: zero points are {zeros.dtype} {zeros.shape}, expected finite floats {shape}")
    if scales.dtype.name not in SCALES or not np.isfinite(scales.astype(np.float32)).all():
        raise WrongValue(f"{name}: scales of {scales.dtype}, expected finite {', '.join(SCALES)}")
    wide = zeros.astype(np.float32).reshape(shape), scales.astype(np.float32).reshape(shape)
    q = with_float_zeros(codes, *wide, group)
    return float_zero_values(codes, *wide, group) if q is None else q


def _of_tensor(reader: Onnx, node: Any) -> QuantizedArray:
    stored = node.inputs[0]
    codes, bits, is_signed = reader.codes(stored)
    scales = reader.tensor(node.inputs[1])
    zeros: Array = np.zeros(scales.shape, np.int16)
    if len(node.inputs) > 2 and node.inputs[2]:
        zeros = reader.codes(node.inputs[2])[0].astype(np.int16)
    if zeros.shape != scales.shape:
        raise WrongValue(f"{stored}: zero points {zeros.shape} next to scales {scales.shape}")
    shape, block = codes.shape, node.numbers.get("block_size", 0)
    axis = node.numbers.get("axis", 1) % len(shape)
    if block < 0 or 0 in shape:
        raise WrongValue(f"{stored}: codes {shape} in blocks of {block}, expected sizes above 0")
    wanted = tuple(
        (-(-n // block) if i == axis else n) if block else n if i == axis else 1 for i, n in enumerate(shape)
    )
    one = (1,) * len(shape)
    if scales.size == 1:
        axis, scales, zeros = axis if block else 0, scales.reshape(one), zeros.reshape(one)
    elif scales.ndim == 1 and not block:
        scales, zeros = (part.reshape([-1 if i == axis else 1 for i in range(len(shape))]) for part in (scales, zeros))
    if scales.shape not in (wanted, one):
        raise WrongValue(f"{stored}: scales {scales.shape}, expected {wanted} next to codes {shape}")
    offset = 1 << (bits - 1) if is_signed else 0
    unsigned, points = ((part.astype(np.int16) + offset).astype(np.uint8) for part in (codes, zeros))
    along = _axes(node.output, shape, axis, block)
    if len(shape) == 2 and along == (0,):
        along, shape = (1,), shape[::-1]
        unsigned, scales, points = unsigned.T, scales.T, points.T
    return _along(stored, bits, block, (unsigned, scales, points), along)


def _axes(name: str, shape: tuple[int, ...], axis: int, block: int) -> tuple[int, ...]:
    """Return the reduction axes of a weight with scales per `axis` or blocks along it: the usual axes if they fit."""
    usual = axis_of(name, shape)
    if block:
        return usual if usual[-1] == axis else (axis,)
    others = tuple(i for i in range(len(shape)) if i != axis)
    return usual if set(usual) == set(others) else others


def _along(
    name: str, bits: int, block: int, parts: tuple[Array, Array, Array], axis: tuple[int, ...]
) -> QuantizedArray:
    """Return an array of codes, and of scales and zero points in blocks along the last reduction axis."""
    shape, (*around, last) = parts[0].shape, axis
    kept = [i for i in range(len(shape)) if i not in axis]
    rows, runs, length = (math.prod(shape[i] for i in some) for some in (kept, around, [last]))
    group = min(block or length, length)
    groups = -(-length // group)
    order = (*kept, *around, last)
    sizes = [groups if i == last else shape[i] for i in order]
    codes = parts[0].transpose(order).reshape(rows * runs, length)
    scales, points = (np.broadcast_to(one.transpose(order), sizes).reshape(rows, -1) for one in parts[1:])
    if length % group:  # a short group is filled with its zero point
        filled = np.repeat(points.reshape(rows * runs, groups)[:, -1:], group * groups - length, 1)
        codes = np.concatenate([codes, filled], axis=1)
    if not block or (len(kept) > 1 and not around and groups == 1):
        scales, points, group = scales[:, :1], points[:, :1], 0
    codes = codes.reshape(rows, -1)
    whole = Codes(pack(np.ascontiguousarray(codes), bits), bits, codes.shape[1])
    q = _made(name, bits, group or None, whole, np.ascontiguousarray(scales), np.ascontiguousarray(points))
    return QuantizedArray(dict(q.components), q.format, shape, axis)
