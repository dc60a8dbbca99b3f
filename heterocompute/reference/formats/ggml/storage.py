"""The bytes of ggml's blocks (src/ggml-common.h), from the components of an array and back.

A block is a sequence of fields: float16 numbers, bytes that are scales, the small integers of its groups, and planes:
some bits of each code, several of them to a byte, those of codes `inner` apart.

    byte a * inner + l of a plane = sum over i of (bits of code (a * n + i) * inner + l) << (i * width), n = 8 / width
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...arithmetic import Array
from ...layout import pack, unpack


class Plane(NamedTuple):
    """Bits [shift, shift + width) of the codes; see above."""

    shift: int
    width: int
    inner: int


class Blocks(NamedTuple):
    """The layout of a block.

    Attributes
    ----------
    bits : int
        Bits of a code.
    offset : int
        Stored codes are the array's codes plus this, modulo 2^bits.
    block, group : int
        Values per block, and values that share a scale.
    scale_bits : int
        Bits of packed scales, 8 for bytes; 0: float16.
    fields : tuple
        "d", "e": float16 numbers of the block; "s", "m": its float16 scale and minimum; "bytes": scales; "small":
        small integer scales, and minima if the type has them; "trits": codes of 0 to 2, five to a byte; planes.
    """

    bits: int
    offset: int
    block: int
    group: int
    scale_bits: int
    fields: tuple[str | Plane, ...]


BLOCKS = {
    "q4_0": Blocks(4, 8, 32, 32, 0, ("s", Plane(0, 4, 16))),
    "q4_1": Blocks(4, 0, 32, 32, 0, ("s", "m", Plane(0, 4, 16))),
    "q5_0": Blocks(5, 16, 32, 32, 0, ("s", Plane(4, 1, 1), Plane(0, 4, 16))),
    "q5_1": Blocks(5, 0, 32, 32, 0, ("s", "m", Plane(4, 1, 1), Plane(0, 4, 16))),
    "q8_0": Blocks(8, 0, 32, 32, 0, ("s", Plane(0, 8, 1))),
    "q2_k": Blocks(2, 0, 256, 16, 4, ("small", Plane(0, 2, 32), "d", "e")),
    "q3_k": Blocks(3, 4, 256, 16, 6, (Plane(2, 1, 32), Plane(0, 2, 32), "small", "d")),
    "q4_k": Blocks(4, 0, 256, 32, 6, ("d", "e", "small", Plane(0, 4, 32))),
    "q5_k": Blocks(5, 0, 256, 32, 6, ("d", "e", "small", Plane(4, 1, 32), Plane(0, 4, 32))),
    "q6_k": Blocks(6, 32, 256, 16, 8, (Plane(0, 4, 64), Plane(4, 2, 32), "small", "d")),
    "iq4_nl": Blocks(4, 0, 32, 32, 0, ("s", Plane(0, 4, 16))),
    "iq4_xs": Blocks(4, 0, 256, 32, 6, ("d", "small", Plane(0, 4, 16))),
    "tq1_0": Blocks(2, 1, 256, 256, 0, ("trits", "s")),
    "tq2_0": Blocks(2, 1, 256, 256, 0, (Plane(0, 2, 32), "s")),
    "mxfp4": Blocks(4, 0, 32, 32, 8, ("bytes", Plane(0, 4, 16))),
    "nvfp4": Blocks(4, 0, 64, 16, 8, ("bytes", Plane(0, 4, 8))),
}
SMALL_BYTES = {"q2_k": 16, "q3_k": 12, "q4_k": 12, "q5_k": 12, "q6_k": 16, "iq4_xs": 6}
TRIT_BYTES, TRIT_RUNS = 52, ((0, 32, 5), (160, 16, 5), (240, 4, 4))  # first code, distance of codes, digits per byte
MINUS_ZERO = 8  # of 4-bit floats: written as 0


def blocks_of(name: str, parts: Mapping[str, Array], rows: int, count: int) -> Array:
    """Return the blocks of an array.

    Parameters
    ----------
    name : str
        Of `BLOCKS`.
    parts : mapping of str to ndarray
        The array's components.
    rows, count : int
        Rows, and blocks of a row.

    Returns
    -------
    ndarray of uint8, (rows, bytes of a row)
    """
    kind = BLOCKS[name]
    codes = unpack(parts["codes"], kind.bits, count * kind.block, signed=False).astype(np.uint8)
    codes = codes + np.uint8(kind.offset) & np.uint8((1 << kind.bits) - 1)
    if name in ("mxfp4", "nvfp4"):
        codes[codes == MINUS_ZERO] = 0
    codes = codes.reshape(rows, count, kind.block)
    found: list[Array] = []
    for one in kind.fields:
        if isinstance(one, Plane):
            found.append(_joined(codes, one))
        elif one == "trits":
            found.append(_joined_trits(codes))
        elif one == "small":
            found.append(_small_bytes(name, parts, rows, count))
        elif one == "bytes":
            found.append(parts["scales"].reshape(rows, count, -1))
        else:
            key = {"s": "scales", "m": "minima"}.get(one, "coarse")
            place = parts[key].reshape(rows, count, -1)[..., 1 if one == "e" else 0]
            found.append(np.ascontiguousarray(place[..., None]).view(np.uint8))
    return np.concatenate(found, axis=-1).reshape(rows, -1)


def parts_of(name: str, data: Array, count: int) -> dict[str, Array]:
    """Return the components that are in blocks; the inverse of `blocks_of`, but for -0.

    Parameters
    ----------
    name : str
    data : ndarray of uint8, (rows, bytes of a row)
    count : int
        Blocks of a row.

    Returns
    -------
    dict of str to ndarray
    """
    kind, rows = BLOCKS[name], len(data)
    data = data.reshape(rows, count, -1)
    codes, parts, halves = np.zeros((rows, count, kind.block), np.uint8), {}, {}
    at = 0
    for one in kind.fields:
        size = 2
        if isinstance(one, Plane):
            size = kind.block * one.width // 8
            codes |= _split(data[..., at : at + size], one)
        elif one == "trits":
            size = TRIT_BYTES
            codes |= _split_trits(data[..., at : at + size])
        elif one == "bytes":
            size = kind.block // kind.group
            parts["scales"] = np.ascontiguousarray(data[..., at : at + size]).reshape(rows, -1)
        elif one == "small":
            size = SMALL_BYTES[name]
            scales, minima = _small_integers(name, data[..., at : at + size])
            parts["scales"] = pack(scales.reshape(rows, -1), kind.scale_bits)
            if "e" in kind.fields:
                parts["minima"] = pack(minima.reshape(rows, -1), kind.scale_bits)
        else:
            halves[one] = np.ascontiguousarray(data[..., at : at + 2]).view(np.float16).reshape(rows, count)
        at += size
    parts |= {key: halves[one] for one, key in (("s", "scales"), ("m", "minima"), ("d", "coarse")) if one in halves}
    if "e" in halves:
        parts["coarse"] = np.stack([halves["d"], halves["e"]], axis=-1)
    codes = codes - np.uint8(kind.offset) & np.uint8((1 << kind.bits) - 1)
    parts["codes"] = pack(codes.reshape(rows, -1), kind.bits)
    return parts


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


def _joined_trits(codes: Array) -> Array:
    """Return bytes of five digits of base 3, the first code leading: ceil(256 / 243 of their number)."""
    found = []
    for first, inner, digits in TRIT_RUNS:
        run = codes[..., first : first + inner * digits].reshape(*codes.shape[:2], digits, inner).astype(np.int64)
        number = (run * 3 ** np.arange(4, 4 - digits, -1)[:, None]).sum(axis=-2)
        found.append((number * 256 + 242) // 243)
    return np.concatenate(found, axis=-1).astype(np.uint8)


def _split_trits(data: Array) -> Array:
    """Return the codes: digit i is the integer part of 3 times the fraction of byte / 256 below the digits above."""
    found, at = [], 0
    for _, inner, digits in TRIT_RUNS:
        rest = data[..., None, at : at + inner].astype(np.int64) * 3 ** np.arange(digits)[:, None] % 256
        found.append((rest * 3 // 256).reshape(*data.shape[:2], -1))
        at += inner
    return np.concatenate(found, axis=-1).astype(np.uint8)


def _small_bytes(name: str, parts: Mapping[str, Array], rows: int, count: int) -> Array:
    """Return the field of the integers, (rows, blocks, bytes)."""
    kind = BLOCKS[name]
    shape = (rows, count, kind.block // kind.group)
    each = shape[1] * shape[2]
    s = unpack(parts["scales"], kind.scale_bits, each, signed=False).astype(np.uint8).reshape(shape)
    if "e" in kind.fields:
        m = unpack(parts["minima"], kind.scale_bits, each, signed=False).astype(np.uint8).reshape(shape)
        if name == "q2_k":
            return np.asarray(s | m << np.uint8(4))
        high = np.uint8(4), np.uint8(6), np.uint8(15)
        first, second = s[..., :4] | s[..., 4:] >> high[0] << high[1], m[..., :4] | m[..., 4:] >> high[0] << high[1]
        return np.concatenate([first, second, s[..., 4:] & high[2] | (m[..., 4:] & high[2]) << high[0]], axis=-1)
    if kind.scale_bits == 8:
        return s
    s ^= np.uint8(32)
    if name == "iq4_xs":
        return np.concatenate([_joined(s >> np.uint8(4), Plane(0, 2, 1)), _joined(s, Plane(0, 4, 1))], axis=-1)
    return np.concatenate([_joined(s, Plane(0, 4, 8)), _joined(s >> np.uint8(4), Plane(0, 2, 4))], axis=-1)


def _small_integers(name: str, field: Array) -> tuple[Array, Array]:
    """Return packed scales and minima, uint8 (rows, blocks, groups)."""
    kind = BLOCKS[name]
    low, high, four = np.uint8(15), np.uint8(63), np.uint8(4)
    if name == "q2_k":
        return field & low, field >> four
    if "e" in kind.fields:
        first, second, third = field[..., :4], field[..., 4:8], field[..., 8:]
        top = np.uint8(6)
        s = np.concatenate([first & high, third & low | first >> top << four], axis=-1)
        return s, np.concatenate([second & high, third >> four | second >> top << four], axis=-1)
    if kind.scale_bits == 8:
        return field, field
    if name == "iq4_xs":
        s = _split(field[..., 2:], Plane(0, 4, 1)) | _split(field[..., :2], Plane(0, 2, 1)) << four
    else:
        s = _split(field[..., :8], Plane(0, 4, 8)) | _split(field[..., 8:], Plane(0, 2, 4)) << four
    return s ^ np.uint8(32), s
