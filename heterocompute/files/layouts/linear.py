"""Shared by the layouts: the matrix of a linear layer (out, in), quantized along in, and its codes in words."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from ... import _heterocompute as _core
from ...arrays.bits import AWQ, ROWS, TURNED, WORD_COLUMNS, moved, pack, rows_per_chunk, unpack
from ...arrays.components import component_layout
from ...arrays.quantized import QuantizedArray
from ...base import runtime
from ...base.errors import WrongValue, shown
from ...base.texts import counted, quoted
from ...formats import Affine, Format, Int

__all__ = ["AWQ", "ROWS", "WORD_COLUMNS", "Codes", "Matrix", "Packed", "Parts", "array_of", "check_finite", "checked",
           "codes_in", "components_of", "float_zero_values", "from_words", "matrix_of", "no_format", "one_of",
           "order_of", "prefix_of", "refuse", "spaced", "spaced_words", "to_words", "unordered", "with_float_zeros",
           "words"]  # fmt: skip

CHUNK = 1 << 20  # values that are decoded at a time
Array = NDArray[Any]
Parts = dict[str, tuple[str, tuple[int, ...]]]  # NumPy's name of the dtype, shape


class Packed(Protocol):
    """The description of a packed array, made or not yet made: a QuantizedArray, or the Entry of one."""

    @property
    def format(self) -> Any: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def axis(self) -> tuple[int, ...]: ...


class Codes(NamedTuple):
    """Unsigned codes of a weight, packed: each code of the bytes `packed` is combined with `flip` by exclusive or."""

    packed: Array
    bits: int
    length: int
    flip: int = 0

    def unpacked(self) -> Array:
        """Return the codes, uint8 (out, in)."""
        return self.to(np.empty((len(self.packed), self.length), np.uint8), 8, ROWS)

    def stored(self) -> Array:
        """Return the codes in rows of bytes without padding, after `flip`."""
        if not self.flip and self.packed.shape[1] * 8 < self.length * self.bits + 8:
            return self.packed
        return self.to(np.empty((len(self.packed), -(-self.length * self.bits // 8)), np.uint8), self.bits, ROWS)

    def words(self) -> Array:
        """Return rows of int32, dense, little end first, the last word padded."""
        return self.to(np.empty((len(self.packed), words(self.length, self.bits)), np.int32), self.bits, ROWS)

    def word_columns(self) -> Array:
        """Return the transposed words, (words, out): GPTQ."""
        return self.to(np.empty((words(self.length, self.bits), len(self.packed)), np.int32), self.bits, WORD_COLUMNS)

    def columns(self, kind: int = TURNED) -> Array:
        """Return the transposed codes in rows of int32, (in, words); `AWQ` has an order of its own."""
        return self.to(np.empty((self.length, words(len(self.packed), self.bits)), np.int32), self.bits, kind)

    def holds(self, code: int) -> bool:
        """Tell whether any code is this one."""
        found = _core.code_fault(
            runtime.run(), self.packed, self.bits, 1, self.length, self.length, code ^ self.flip, -1, None, 1
        )
        return bool(found)

    def of_columns(self, order: Array) -> Codes:
        """Return some columns."""
        return Codes(pack(self.unpacked()[:, order], self.bits), self.bits, self.length)

    def to(self, target: Array, bits: int, kind: int) -> Array:
        shape = (len(self.packed), self.length)
        return moved((self.packed, self.bits, ROWS), (target, bits, kind), shape, self.flip)


def codes_in(stored: Array, kind: int, bits: int, rows: int, count: int, flip: int = 0) -> Codes:
    """Return the codes of a weight as another program has them.

    Parameters
    ----------
    stored : ndarray of int32
        (out, words), (words, out) or (in, words), as `kind` says: ROWS, WORD_COLUMNS, or TURNED and AWQ.
    flip : int
        As `Codes` has it, where that saves a copy later.
    """
    wanted = {ROWS: (rows, words(count, bits)), WORD_COLUMNS: (words(count, bits), rows)}
    size = wanted.get(kind, (count, words(rows, bits)))
    if stored.dtype != np.int32 or stored.shape != size:
        raise WrongValue(f"codes are {stored.dtype} {stored.shape}, expected int32 {size} of {counted(bits, 'bit')}")
    if kind == ROWS:
        return Codes(np.ascontiguousarray(stored).view(np.uint8), bits, count)
    packed = np.empty((rows, -(-count * bits // 8)), np.uint8)
    return Codes(moved((stored, bits, kind), (packed, bits, ROWS), (rows, count), flip), bits, count, flip)


class Matrix(NamedTuple):
    """The integers of a weight: `packed` and `points` unsigned, `scales` and `points` (out, groups).

    `points` of a symmetric format are the middle, 2^(bits - 1).
    """

    prefix: str
    packed: Codes
    scales: Array
    points: Array
    bits: int
    group: int

    @property
    def codes(self) -> Array:
        return self.packed.unpacked()


def refuse(name: str, q: Packed, layout: str, nearest: str) -> NoReturn:
    """Raise ValueError: the layout cannot store this array; the message names the nearest that it can store."""
    raise WrongValue(f"save: tensor {quoted(name)} is {q.format}, for which {layout} has no place: {nearest}")


def check_finite(name: str, values: Array) -> None:
    """Raise ValueError for floats that are not finite."""
    if not np.isfinite(values.astype(np.float32, copy=False)).all():
        raise WrongValue(f"{name} holds a value that is not finite")


def one_of(name: str, key: str, declared: object, wanted: tuple[Any, ...]) -> Any:
    """Return a configuration's entry for a weight, or the first of `wanted` if it has none; refuse other values."""
    if declared is None:
        return wanted[0]
    declared = declared.lower() if isinstance(declared, str) else declared
    if declared not in wanted:
        raise WrongValue(f"{name}: {key} is {shown(declared)}, expected {' or '.join(map(str, wanted))}")
    return declared


def prefix_of(name: str, q: Packed, layout: str) -> str:
    """Return the name of the layer: of ``fc.weight`` it is ``fc``."""
    if len(q.shape) != 2 or q.axis != (1,) or 0 in q.shape or not name.endswith(".weight"):
        raise WrongValue(
            f"save: tensor {quoted(name)} of shape {q.shape} and axis {q.axis}: {layout} stores matrices (out, in) "
            "quantized along in, called NAME.weight"
        )
    return name.removesuffix(".weight")


def checked(name: str, q: Packed, layout: str) -> tuple[str, int, int]:
    """Return the layer, the values of a group and the groups of a row, of an `Int` of 2 to 8 bits in whole groups."""
    prefix, fmt = prefix_of(name, q, layout), q.format
    if not isinstance(fmt, Int) or fmt.bits > 8:
        refuse(name, q, layout, f"int{min(fmt.bits, 8)}-g128-f16 is the nearest")
    group = q.shape[1] if fmt.group is None else fmt.group
    if q.shape[1] % group:
        raise WrongValue(f"save: tensor {quoted(name)}: {counted(q.shape[1], 'value')} in groups of "
                         f"{group}: {layout} has no "
                         "short groups")  # fmt: skip
    return prefix, group, q.shape[1] // group


def matrix_of(name: str, q: QuantizedArray, layout: str) -> Matrix:
    """Return the integers of an array that `checked` takes."""
    prefix, group, groups = checked(name, q, layout)
    fmt: Any = q.format
    middle = 1 << (fmt.bits - 1)
    codes = Codes(q.components["codes"], fmt.bits, q.shape[1], middle if fmt.symmetric else 0)
    if fmt.symmetric:
        points = np.full((len(codes.packed), groups), middle, np.uint8)
    else:
        points = unpack(q.components["zero_points"], fmt.bits, groups)
    return Matrix(prefix, codes, q.components["scales"], points, fmt.bits, group)


def words(count: int, bits: int) -> int:
    """Return how many int32 `to_words` needs for a row.

    Examples
    --------
    >>> words(32, 3), words(33, 3)
    (3, 4)
    """
    return -(-count * bits // 32)


def to_words(codes: Array, bits: int) -> Array:
    """Return rows of codes in rows of int32, dense, little end first, the last word padded."""
    return Codes(codes.astype(np.uint8, copy=False), 8, codes.shape[1]).to(
        np.empty((len(codes), words(codes.shape[1], bits)), np.int32), bits, ROWS
    )


def from_words(words: Array, bits: int, count: int) -> Array:
    """Return the first `count` codes of each row; the inverse of `to_words`."""
    stored = np.ascontiguousarray(words, words.dtype.newbyteorder("<")).view(np.uint8)
    if count * bits > 8 * stored.shape[1]:
        raise WrongValue(f"{counted(count, 'code')} of {counted(bits, 'bit')} in {counted(stored.shape[1], 'byte')}")
    return unpack(stored, bits, count)


def spaced(words: Array, bits: int, count: int) -> Array:
    """Return the first `count` codes of each row of int32, 32 // bits in each word and no code across words.

    Older programs wrote 3, 5, 6 and 7 bits so.

    Raises
    ------
    ValueError
        The words have bits that no code has.
    """
    per = 32 // bits
    whole = np.ascontiguousarray(words).view(np.uint32)
    if (whole >> np.uint32(per * bits)).any():
        raise WrongValue(f"words of {per} codes of {counted(bits, 'bit')} have other bits")
    codes = whole[..., None] >> (np.arange(per, dtype=np.uint32) * np.uint32(bits)) & np.uint32((1 << bits) - 1)
    return codes.reshape(len(words), -1)[:, :count].astype(np.uint8)


def spaced_words(count: int, bits: int) -> int:
    """Return how many int32 `spaced` reads for a row."""
    return -(-count // (32 // bits))


def array_of(fmt: Format, codes: Codes | Array, scales: Array, points: Array | None) -> QuantizedArray:
    """Return the array of codes as the format stores them, scales (out, groups) and zero points."""
    if not isinstance(codes, Codes):
        codes = Codes(pack(codes, fmt.bits), fmt.bits, codes.shape[1])
    return QuantizedArray(components_of(fmt, codes, scales, points), fmt, (len(codes.packed), codes.length), (1,))


def components_of(fmt: Format, codes: Codes, scales: Array, points: Array | None) -> dict[str, Array]:
    """Return the components of `array_of`."""
    shape, stored = (len(codes.packed), codes.length), codes.stored()
    if fmt.group is not None and (missing := -shape[1] % min(fmt.group, shape[1])):  # a short group is padded with 0
        zero = np.zeros((shape[0], 1), np.uint8) if points is None else points[:, -1:]
        filled = np.concatenate([unpack(stored, fmt.bits, shape[1]), np.repeat(zero, missing, 1)], axis=1)
        stored = pack(filled, fmt.bits)
    parts = {"codes": stored, "scales": np.ascontiguousarray(scales)}
    if points is not None:
        parts["zero_points"] = pack(np.ascontiguousarray(points), fmt.bits)
    layout = component_layout(fmt, shape, (1,))
    return {key: part.astype(layout[key][0], copy=False) for key, part in parts.items() if key in layout}


def with_float_zeros(codes: Codes, zeros: Array, scales: Array, group: int) -> QuantizedArray | None:
    """Return the array of values (code - zero) scale in float32, None where its own values differ.

    Parameters
    ----------
    codes : Codes
        Of up to 8 bits.
    zeros, scales : ndarray of float32, (out, groups)
    """
    fmt = Affine(codes.bits, group if group < codes.length else None)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        minima = -(zeros * scales) + np.float32(0)
    stored = codes.stored()
    if missing := -codes.length % min(group, codes.length):
        stored = pack(np.pad(unpack(stored, fmt.bits, codes.length), ((0, 0), (0, missing))), fmt.bits)
    parts = {"codes": stored, "scales": np.ascontiguousarray(scales), "minima": np.ascontiguousarray(minima)}
    q = QuantizedArray(parts, fmt, (len(codes.packed), codes.length), (1,))
    if not np.isfinite(minima).all():
        return None
    step = rows_per_chunk(len(scales), codes.length, CHUNK)
    for first in range(0, len(scales), step):
        some = slice(first, first + step)
        if not np.array_equal(q[some].dequantize(), float_zero_values(codes, zeros, scales, group, some)):
            return None
    return q


def float_zero_values(codes: Codes, zeros: Array, scales: Array, group: int, some: slice = slice(None)) -> Array:
    """Return (code - zero) scale of some rows in float32; see `with_float_zeros`."""
    rows = codes._replace(packed=np.ascontiguousarray(codes.packed[some])).unpacked().astype(np.float32)
    columns = np.arange(codes.length) // group
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rows -= zeros[some][:, columns]
        rows *= scales[some][:, columns]
    return rows


def order_of(name: str, index: Array, wanted: Array) -> Array | None:
    """Return the columns sorted by group, from the group of each column and that of sorted columns; None if sorted."""
    if np.array_equal(index, wanted):
        return None
    if index.shape != wanted.shape or index.dtype.kind not in "iu":
        raise WrongValue(f"{name} is {index.dtype} {index.shape}, expected integers {wanted.shape}")
    order = np.argsort(index, kind="stable")
    if not np.array_equal(index[order], wanted):
        raise WrongValue(f"{name}: groups of columns that are not all equally long have no format here")
    return order


def unordered(name: str, layout: str) -> str:
    """Return the reason why columns in another order than their groups have no array; `name` is that of their index."""
    return f"{name}: groups of columns that are not contiguous (act-order) {no_format(layout)}"


def no_format(layout: str) -> str:
    """Return the end of a sentence about weights that can only be read as floats."""
    return (
        "have no format here: their values are read by dequantize_checkpoint, or heterocompute dequantize, with layout "
        f"{layout}"
    )
