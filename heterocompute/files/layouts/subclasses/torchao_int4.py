"""torchao's packed int4: two codes in a byte, words of eight codes, or the tiles of tinygemm's tensor cores.

    Int4Tensor                qdata int8 (out, in / 2): code ^ 8, even columns in the low half; float scale, zero_point
    Int4PlainInt32Tensor      qdata int32 (out, in / 8), the first code in the lowest bits; int8 zero_point
    Int4TilePackedTo4dTensor  qdata int32 (out / 8, in / 16 t, 32, t / 2), t = 2, 4 or 8 tiles; float scale_and_zero

value = (code - 8) scale + zero in float32, of Int4PlainInt32Tensor (code - zero) scale; both (groups, out). Tiles are
padded. Lane l of 32 holds row l / 4. Its word holds columns 2 (l % 4) + 8 p + h of two tiles, p = 0 to 3, h = 0 and 1,
in the bits 4 p + 16 h. torchao 0.18, quantize_/workflows/int4; PyTorch, int4mm.cu,
matrix_to_m16n8k16_Bint4_layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ....arrays.bits import pack, rows_per_chunk
from ....arrays.quantized import QuantizedArray
from ....base.errors import WrongValue, shown
from ....formats import Int
from .. import linear, scaled
from ..forms import CHUNK
from ..linear import Array
from ..mlx import with_biases

KINDS = ("Int4Tensor", "Int4PlainInt32Tensor", "Int4TilePackedTo4dTensor")
BITS, MIDDLE = 4, 8
LANES, PER_TILE = 32, 16  # of a warp; columns of a tile


class Weight(NamedTuple):
    """Codes from 0 to 15 (out, in), and floats (out, groups): zeros that are added, or integer points."""

    codes: Array
    scales: Array
    zeros: Array | None
    points: Array | None
    group: int
    nbytes: int

    def rows(self, some: slice) -> Array:
        """Return the values of some rows, float32."""
        codes = self.codes[some].astype(np.float32).reshape(-1, self.scales.shape[1], self.group)
        with np.errstate(over="ignore", under="ignore"):
            codes -= MIDDLE if self.points is None else self.points[some].astype(np.float32)[:, :, None]
            codes *= self.scales[some].astype(np.float32)[:, :, None]
            if self.zeros is not None:
                codes += self.zeros[some].astype(np.float32)[:, :, None]
        return codes.reshape(len(codes), -1)


def _part(prefix: str, tensors: Mapping[str, Array], end: str, dtypes: tuple[str, ...], shape: object) -> Array:
    part = tensors[f"{prefix}{end}"]
    if part.dtype.name not in dtypes or (shape is not None and part.shape != shape):
        wanted = f"{' or '.join(dtypes)} {shape or '(out / 8, in / 128, 32, 4)'}"
        raise WrongValue(f"{prefix}{end} is {part.dtype} {part.shape}, expected {wanted}")
    if part.dtype.kind not in "iu":
        linear.check_finite(f"{prefix}{end}", part)
    return part


def _from_halves(stored: Array) -> Array:
    """Return the codes of bytes (out, in / 2), the first in the low half."""
    bytes_ = stored.view(np.uint8)
    return np.stack([bytes_ & np.uint8(15), bytes_ >> np.uint8(4)], -1).reshape(len(stored), -1)


def _from_tiles(stored: Array) -> Array:
    """Return the codes of tiles (out / 8, in / 16 t, 32, t / 2), with the rows and columns of the padding."""
    high, wide, _, pairs = stored.shape
    words = np.ascontiguousarray(stored).view(np.uint32).reshape(high, wide, 8, 4, pairs)
    codes = np.empty((high, 8, wide, pairs, 4, 4, 2), np.uint8)  # of row, tiles: p, lane % 4, h
    for p in range(4):
        for h in range(2):
            part = (words >> np.uint32(4 * p + 16 * h) & np.uint32(15)).astype(np.uint8)
            codes[:, :, :, :, p, :, h] = part.transpose(0, 2, 1, 4, 3)
    return codes.reshape(high * 8, wide * pairs * 2 * PER_TILE)


def weight_of(prefix: str, kind: str, declared: Mapping[str, Any], tensors: Mapping[str, Array], ends: Any) -> Weight:
    """Return the codes, scales and zero points of a weight.

    Parameters
    ----------
    kind : str
        Of `KINDS`.
    declared : mapping
        The attributes of the tensor: `block_size` and `shape`.
    ends : tuple of str
        Ends of the names of codes, scales, zero points, and scales with zero points.
    """
    name, shape, block = f"{prefix}.weight", declared.get("shape"), declared["block_size"]
    if not isinstance(shape, list) or len(shape) != 2 or any(type(n) is not int or not 0 < n < 1 << 31 for n in shape):
        raise WrongValue(f"{name}: shape is {shown(shape)}, expected two numbers (out, in)")
    (rows, columns), group = shape, block[1]
    if block[0] != 1 or columns % group or columns % 2:
        raise WrongValue(f"{name}: block_size is {block} of {rows} x {columns} values, expected whole groups of a row")
    groups = columns // group
    qdata, scale, zero, both = ends
    if kind == KINDS[2]:
        stored = _part(prefix, tensors, qdata, ("int32",), None)
        padded = (8 * len(stored), stored.shape[1] * stored.shape[-1] * 2 * PER_TILE) if stored.ndim == 4 else (0, 0)
        if stored.ndim != 4 or stored.shape[2] != LANES or padded[0] < rows or padded[1] < columns or padded[1] % group:
            raise WrongValue(f"{prefix}{qdata} is {stored.shape}, expected tiles of {rows} x {columns} values")
        pairs = _part(prefix, tensors, both, scaled.SCALES, (padded[1] // group, padded[0], 2))[:groups, :rows]
        scales, zeros = (np.ascontiguousarray(pairs[:, :, i].T) for i in (0, 1))
        codes = np.ascontiguousarray(_from_tiles(stored)[:rows, :columns])
        return Weight(codes, scales, zeros, None, group, stored.nbytes + tensors[f"{prefix}{both}"].nbytes)
    is_plain = kind == KINDS[1]
    if is_plain and columns % 8:
        raise WrongValue(f"{name}: shape is {shown(shape)}, expected whole words of 8 columns")
    sizes = (("int32", (rows, columns // 8)), ("int8", (rows, columns // 2)))
    dtype, size = sizes[0 if is_plain else 1]
    stored = np.ascontiguousarray(_part(prefix, tensors, qdata, (dtype,), size))
    codes = _from_halves(stored)
    scales = np.ascontiguousarray(_part(prefix, tensors, scale, scaled.SCALES, (groups, rows)).T)
    kinds = ("int8",) if is_plain else scaled.SCALES
    zeros = np.ascontiguousarray(_part(prefix, tensors, zero, kinds, (groups, rows)).T)
    nbytes = stored.nbytes + scales.nbytes + zeros.nbytes
    if is_plain:
        return Weight(codes, scales, None, zeros, group, nbytes)
    return Weight(codes ^ np.uint8(MIDDLE), scales, zeros, None, group, nbytes)


def array_of(weight: Weight) -> QuantizedArray | None:
    """Return the array of a weight, None if no format here has its values."""
    codes, scales, zeros, points, group, _ = weight
    if zeros is None or not zeros.any():
        found = np.full(scales.shape, MIDDLE, np.int8) if points is None else points
        if (found < 0).any() or (found > 15).any():
            return None
        symmetric = bool((found == MIDDLE).all() and codes.min() > 0)
        kind = "f16" if scales.dtype == np.float16 else "f32"
        own = group if group < codes.shape[1] else None
        if symmetric:
            return linear.array_of(Int(BITS, own, True, kind), codes ^ np.uint8(MIDDLE), scales, None)
        return linear.array_of(Int(BITS, own, False, kind), codes, scales, found.view(np.uint8))
    wide = scales.astype(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        biases = zeros.astype(np.float32) - np.float32(MIDDLE) * wide
        halves = biases.astype(np.float16)
    if not np.isfinite(biases).all():
        return None
    stored = linear.Codes(pack(codes, BITS), BITS, codes.shape[1])
    is_half = scales.dtype == np.float16 and np.array_equal(halves, biases)
    q = with_biases(stored, scales if is_half else wide, halves if is_half else biases, group)
    if q is not None and isinstance(q.format, Int) and not is_half:  # scales of float16 are stored as float32
        with np.errstate(over="ignore", under="ignore"):
            narrow = q.components["scales"].astype(np.float16)
        if np.array_equal(narrow, q.components["scales"]):
            fmt = Int(BITS, q.format.group, q.format.symmetric, "f16")
            q = QuantizedArray({**q.components, "scales": narrow}, fmt, q.shape, q.axis)
    return q if q is not None and _is_same(q, weight) else None


def _is_same(q: QuantizedArray, weight: Weight) -> bool:
    rows, columns = weight.codes.shape
    step = rows_per_chunk(rows, columns, CHUNK)
    some = (slice(i, i + step) for i in range(0, rows, step))
    return all(np.array_equal(q[one].dequantize(), weight.rows(one)) for one in some)


def values_of(weight: Weight) -> tuple[Array, str, int]:
    """Return the float32 values of a weight, what it is, and its bytes."""
    return weight.rows(slice(None)), f"{BITS} bits with float zero points in groups of {weight.group}", weight.nbytes
