"""The bytes of ggml's blocks (src/ggml-common.h), from the components of an array and back.

A block is a sequence of fields: float16 numbers, the small integers of its groups, and planes: some bits of each code,
several of them to a byte, those of codes `inner` apart.

    byte a * inner + l of a plane = sum over i of (bits of code (a * n + i) * inner + l) << (i * width), n = 8 / width
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...arrays.bits import pack, unpack
from ...arrays.quantized import QuantizedArray
from ...formats import GGML
from ...formats.blocks import Kind

__all__ = ["array_of", "block_bytes", "bytes_of"]

Array = np.ndarray[Any, Any]


class Plane(NamedTuple):
    """Bits [shift, shift + width) of the codes; see above."""

    shift: int
    width: int
    inner: int


# d, e: float16. m: the minimum of a block without integers. small: the integers of a block's groups.
FIELDS: dict[str, tuple[str | Plane, ...]] = {
    "q4_0": ("d", Plane(0, 4, 16)),
    "q4_1": ("d", "m", Plane(0, 4, 16)),
    "q5_0": ("d", Plane(4, 1, 1), Plane(0, 4, 16)),
    "q5_1": ("d", "m", Plane(4, 1, 1), Plane(0, 4, 16)),
    "q8_0": ("d", Plane(0, 8, 1)),
    "q2_k": ("small", Plane(0, 2, 32), "d", "e"),
    "q3_k": (Plane(2, 1, 32), Plane(0, 2, 32), "small", "d"),
    "q4_k": ("d", "e", "small", Plane(0, 4, 32)),
    "q5_k": ("d", "e", "small", Plane(4, 1, 32), Plane(0, 4, 32)),
    "q6_k": (Plane(0, 4, 64), Plane(4, 2, 32), "small", "d"),
    "iq4_nl": ("d", Plane(0, 4, 16)),
    "iq4_xs": ("d", "small", Plane(0, 4, 16)),
}
SMALL_BYTES = {"q2_k": 16, "q3_k": 12, "q4_k": 12, "q5_k": 12, "q6_k": 16, "iq4_xs": 6}


def block_bytes(fmt: GGML) -> int:
    """Return the bytes of a block.

    Parameters
    ----------
    fmt : GGML

    Returns
    -------
    int
    """
    sizes = {"d": 2, "e": 2, "m": 2, "small": SMALL_BYTES.get(fmt.type, 0)}
    return sum(sizes[one] if isinstance(one, str) else fmt.block * one.width // 8 for one in FIELDS[fmt.type])


def bytes_of(q: QuantizedArray) -> Array:
    """Return the blocks of an array whose rows hold whole ones.

    Parameters
    ----------
    q : QuantizedArray
        Quantized along its last axis.

    Returns
    -------
    ndarray of uint8, (rows, bytes of a row)
    """
    fmt, parts = q.format, q.components
    assert isinstance(fmt, GGML)
    kind, rows, count = fmt.kind, math.prod(q.shape[:-1]), q.shape[-1] // fmt.block
    codes = unpack(parts["codes"], kind.bits, count * kind.block).astype(np.uint8)
    if kind.signed and kind.bits < 8:
        codes ^= np.uint8(1 << (kind.bits - 1))  # two's complement to that much more
    codes = codes.reshape(rows, count, kind.block)
    fields: dict[str, Array] = {}
    if kind.scale_bits:
        coarse = parts["coarse"].reshape(rows, count, -1)
        fields |= {"d": coarse[..., :1], "e": coarse[..., 1:], "small": _small_bytes(fmt, parts, rows, count)}
    else:
        fields |= {"d": parts["scales"][..., None]}
        if kind.has_minimum:
            fields["m"] = parts["minima"][..., None]
    found = [
        np.ascontiguousarray(fields[one]).view(np.uint8) if isinstance(one, str) else _joined(codes, one)
        for one in FIELDS[fmt.type]
    ]
    return np.concatenate(found, axis=-1).reshape(rows, count * block_bytes(fmt))


def array_of(fmt: GGML, data: Array, shape: tuple[int, ...]) -> QuantizedArray:
    """Return the array of some blocks; what they hold is believed.

    Parameters
    ----------
    fmt : GGML
    data : ndarray of uint8, (rows, bytes of a row)
    shape : tuple of int
        (..., columns), none of them 0.

    Returns
    -------
    QuantizedArray
    """
    kind, rows, count = fmt.kind, len(data), shape[-1] // fmt.block
    data = data.reshape(rows, count, block_bytes(fmt))
    codes = np.zeros((rows, count, kind.block), np.uint8)
    fields: dict[str, Array] = {}
    at = 0
    for one in FIELDS[fmt.type]:
        if isinstance(one, str):
            size = SMALL_BYTES[fmt.type] if one == "small" else 2
            fields[one] = np.ascontiguousarray(data[..., at : at + size])
        else:
            size = kind.block * one.width // 8
            codes |= _split(data[..., at : at + size], one)
        at += size
    if kind.signed and kind.bits < 8:
        codes ^= np.uint8(1 << (kind.bits - 1))
    parts: dict[str, Array] = {"codes": pack(codes.reshape(rows, -1), kind.bits)}
    halves = {name: fields[name].view(np.float16).reshape(rows, count) for name in "dem" if name in fields}
    if not kind.scale_bits:
        parts["scales"] = halves["d"]
        if kind.has_minimum:
            parts["minima"] = halves["m"]
    else:
        scales, minima = _small_integers(fmt, fields["small"])
        parts["scales"] = pack(scales.reshape(rows, -1), kind.scale_bits)
        parts["coarse"] = np.stack([halves["d"], halves["e"]], axis=-1) if kind.has_minimum else halves["d"]
        if kind.has_minimum:
            parts["minima"] = pack(minima.reshape(rows, -1), kind.scale_bits)
    return QuantizedArray(parts, fmt, shape, (len(shape) - 1,))


def _joined(codes: Array, plane: Plane) -> Array:
    n = 8 // plane.width
    bits = codes >> np.uint8(plane.shift) & np.uint8((1 << plane.width) - 1)
    bits = bits.reshape(*codes.shape[:2], -1, n, plane.inner)
    joined = bits[..., 0, :].copy()
    for i in range(1, n):
        joined |= bits[..., i, :] << np.uint8(i * plane.width)
    return joined.reshape(*codes.shape[:2], -1)


def _split(data: Array, plane: Plane) -> Array:
    n = 8 // plane.width
    shifts = (np.arange(n, dtype=np.uint8) * np.uint8(plane.width))[:, None]
    bits = data.reshape(*data.shape[:2], -1, 1, plane.inner) >> shifts & np.uint8((1 << plane.width) - 1)
    return np.asarray(bits.reshape(*data.shape[:2], -1) << np.uint8(plane.shift))


def _small_bytes(fmt: GGML, parts: Mapping[str, Array], rows: int, count: int) -> Array:
    """Return the field of the integers, (rows, blocks, bytes)."""
    kind = fmt.kind
    shape = (rows, count, kind.block // kind.group)
    s = unpack(parts["scales"], kind.scale_bits, rows and shape[1] * shape[2]).astype(np.uint8).reshape(shape)
    if kind.has_minimum:
        m = unpack(parts["minima"], kind.scale_bits, shape[1] * shape[2]).astype(np.uint8).reshape(shape)
        if fmt.type == "q2_k":
            return np.asarray(s | m << np.uint8(4))
        high = np.uint8(4), np.uint8(6), np.uint8(15)
        first, second = s[..., :4] | s[..., 4:] >> high[0] << high[1], m[..., :4] | m[..., 4:] >> high[0] << high[1]
        return np.concatenate([first, second, s[..., 4:] & high[2] | (m[..., 4:] & high[2]) << high[0]], axis=-1)
    if kind.scale_bits == 8:
        return s
    s ^= np.uint8(32)
    if fmt.type == "iq4_xs":
        return np.concatenate([_joined(s >> np.uint8(4), Plane(0, 2, 1)), _joined(s, Plane(0, 4, 1))], axis=-1)
    return np.concatenate([_joined(s, Plane(0, 4, 8)), _joined(s >> np.uint8(4), Plane(0, 2, 4))], axis=-1)


def _small_integers(fmt: GGML, field: Array) -> tuple[Array, Array]:
    """Return scales and minima as they are packed, uint8 (rows, blocks, groups)."""
    kind: Kind = fmt.kind
    low, high, four = np.uint8(15), np.uint8(63), np.uint8(4)
    if fmt.type == "q2_k":
        return field & low, field >> four
    if kind.has_minimum:
        first, second, third = field[..., :4], field[..., 4:8], field[..., 8:]
        top = np.uint8(6)
        s = np.concatenate([first & high, third & low | first >> top << four], axis=-1)
        return s, np.concatenate([second & high, third >> four | second >> top << four], axis=-1)
    if kind.scale_bits == 8:
        return field, field
    if fmt.type == "iq4_xs":
        s = _split(field[..., 2:], Plane(0, 4, 1)) | _split(field[..., :2], Plane(0, 2, 1)) << four
    else:
        s = _split(field[..., :8], Plane(0, 4, 8)) | _split(field[..., 8:], Plane(0, 2, 4)) << four
    return s ^ np.uint8(32), s
