"""Golden vectors of a format: tables of codes, casts, scales, dot products, stochastic rounding and N:M patterns.

Each table is computed by functions of the package, whose definition is `heterocompute.reference`. In a format with
scales, a group begins with its largest level. So the scale of the group is known, and the other elements are casts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import emulate
from ..arrays.bits import pack, unpack
from ..arrays.unpacked import code_geometry, row_codes
from ..base.errors import WrongValue, shown
from ..formats import Format, Sparse, has_pattern
from ..products.quantize import quantize
from ..training.chance import chances
from ..training.straight_through import fake_quantize
from .reasons import siblings
from .tables import Words, float_words, integer_words

Array = np.ndarray[Any, Any]

KINDS = ("codes", "casts", "scales", "dots", "stochastic", "nm")
MOST_CODES = 16  # bits of a code of which all are listed
ROW = 32  # elements of a row of casts without groups
INTEGER_SUMS = ("int32", "int24-sat", "int16-sat", "int16-wrap")
FLOAT_SUMS = ("fp32", "fp16", "bf16", "fp22")


@dataclass(frozen=True)
class Order:
    """The options of `vectors`.

    Attributes
    ----------
    format : Format
    seed, count, length : int
        Seed of the drawn values, rows of a table, and products per dot product.
    accumulators : tuple of str
        Emulations; empty: all that accept the elements.
    pattern : str
        For the table ``nm``.
    """

    format: Format
    seed: int
    count: int
    length: int
    accumulators: tuple[str, ...]
    pattern: str

    @property
    def rng(self) -> np.random.Generator:
        """A generator that starts with the seed."""
        return np.random.Generator(np.random.PCG64(self.seed))

    @property
    def group(self) -> int:
        """Elements of a row of the tables with scales."""
        fmt = self.format
        if not fmt.form.has_scales:
            return 1
        return math.lcm(fmt.group or ROW, max(fmt.unit, 1))


def table(order: Order, kind: str) -> dict[str, Words]:
    """Return the columns of a table.

    Raises
    ------
    ValueError
        The format does not have this table.
    """
    makers = {"codes": _codes, "casts": _casts, "scales": _scales, "dots": _dots, "stochastic": _stochastic, "nm": _nm}
    return makers[kind](order)


def _refuse(order: Order, kind: str, why: str) -> WrongValue:
    return WrongValue(f"vectors: kinds has {shown(kind)}, which {order.format} does not have: {why}")


def _levels(order: Order, kind: str) -> Array:
    """Return the finite levels of an element in ascending order, float64; a sample of those of long codes."""
    values = _values(order, kind)
    if values is None:
        drawn = order.rng.integers(0, 2**32, 16 * order.count, np.uint32).view(np.float32)
        values = quantize(drawn[np.isfinite(drawn)], order.format).dequantize().astype(np.float64)
    form = order.format.form
    if form.codes == "integer":  # encoding makes no other codes
        unit = 2.0**-form.fraction_bits
        values = values[(values >= form.lowest * unit) & (values <= form.largest * unit)]
    found = np.unique(values[np.isfinite(values)])
    if len(found) > 16 * order.count:
        most = 16 * order.count
        inner = order.rng.choice(len(found) - 2, most - 2, replace=False) + 1
        found = found[np.sort(np.concatenate([[0, len(found) - 1], inner]))]
    return found


def _values(order: Order, kind: str) -> Array | None:
    """Return the value of each code of an element without its scale; None if codes are too long to list."""
    fmt, form = order.format, order.format.form
    if has_pattern(fmt) or form.codes in ("learned", "unstated"):
        raise _refuse(order, kind, "its codes have no fixed values")
    if form.levels:
        return np.array(form.levels, np.float64)
    if form.bits > MOST_CODES:
        return None
    codes = np.arange(2**form.bits)
    if form.codes == "integer":
        if form.signed:
            codes = np.where(codes < 2 ** (form.bits - 1), codes, codes - 2**form.bits)
        return np.asarray(codes * 2.0**-form.fraction_bits)
    if form.has_scales:
        raise _refuse(order, kind, "codes of more than 8 bits with scales are not listed")
    shell = quantize(np.zeros((1, len(codes)), np.float32), fmt)
    parts = {**shell.components, "codes": pack(codes[None].astype(np.uint32), form.bits)}
    return np.asarray(shell._remade(parts, shell.shape, shell.axis).dequantize()[0], np.float64)


def _codes(order: Order) -> dict[str, Words]:
    values = _values(order, "codes")
    if values is None:
        raise _refuse(order, "codes", f"it has codes of {order.format.form.bits} bits")
    bits = order.format.form.bits
    return {
        "code": integer_words(np.arange(2**bits)[:, None], bits, "code"),
        "value": float_words(values[:, None], "value of the code without scale, float32"),
    }


def _cast_inputs(order: Order) -> Array:
    """Return values at, between and around the levels, float32; without scales also beyond them."""
    levels = _levels(order, "casts")
    middles = (levels[1:] + levels[:-1]) / 2
    points = np.concatenate([levels, middles]).astype(np.float32)
    points = np.concatenate(
        [points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))]
    )
    if order.format.form.has_scales:
        most = np.float32(np.abs(levels).max())
        low, high = (-most if levels[0] < 0 else np.float32(0)), most
        points = np.clip(points, low, high)
    else:
        top = levels[-1]
        beyond = top + (top - levels[-2]) * np.array([0.25, 0.5, 0.75, 1, 2, 1e3])
        with np.errstate(over="ignore"):
            beyond = beyond.astype(np.float32)
        beyond = np.concatenate([beyond, np.nextafter(beyond, np.float32(np.inf)), np.nextafter(beyond, np.float32(0))])
        tiny = np.array([1e-45, 1e-38, 2**-126, 2**-127], np.float32)
        more = np.concatenate([beyond, tiny, np.array([np.finfo(np.float32).max, np.inf], np.float32)])
        points = np.concatenate([points, more, -more, np.array([0.0, -0.0, np.nan], np.float32)])
    _, first = np.unique(points.view(np.uint32), return_index=True)
    return np.asarray(points[np.sort(first)])


def _casts(order: Order) -> dict[str, Words]:
    fmt, form = order.format, order.format.form
    points = _cast_inputs(order)
    if not form.has_scales:
        if not _is_accepted(fmt, points):
            points = points[[_is_accepted(fmt, one) for one in points]]
        return _encoded(fmt, points[:, None])
    if form.minima or fmt.unit > 1 or form.second != "none" and form.shared and fmt.group is None:
        raise _refuse(order, "casts", "its scale is not that of the largest level")
    anchors = _anchors(order)
    width = order.group - len(anchors)
    if width < 1:
        raise _refuse(order, "casts", "its groups have no room for the largest level and another value")
    padded = np.concatenate([points, np.zeros(-len(points) % width, np.float32)]).reshape(-1, width)
    return _encoded(fmt, np.concatenate([np.broadcast_to(anchors, (len(padded), len(anchors))), padded], axis=1))


def _anchors(order: Order) -> Array:
    """Return the values that fix the scale of a group to that of its largest level."""
    form = order.format.form
    if form.zero_points:
        return np.array([0, 2**form.bits - 1], np.float32)
    levels = _levels(order, "casts")
    most = form.largest * 2.0**-form.fraction_bits if form.codes == "integer" else np.abs(levels).max()
    return np.array([most], np.float32)


def _is_accepted(fmt: Format, values: Array) -> bool:
    """Tell whether a format accepts NaN or infinity."""
    try:
        quantize(np.array(values, np.float32, ndmin=1)[None], fmt)
    except ValueError:
        return False
    return True


def _encoded(fmt: Format, rows: Array, suffix: str = "") -> dict[str, Words]:
    """Return inputs and what is stored for them: codes, scales, zero points, and the decoded values."""
    q = quantize(rows, fmt)
    real = code_geometry(q)[3]
    columns = {"input": float_words(rows, "values to encode, float32")}
    codes = row_codes(q)[:, :, :real].reshape(len(rows), -1)
    columns[f"code{suffix}"] = Words(fmt.bits, codes.astype(np.uint64), "codes, element by element")
    for key, part in q.components.items():
        if key == "codes" or not part.size:
            continue
        words = _component(fmt, key, part, len(rows))
        if words is not None:
            columns[f"{key}{suffix}"] = words
    columns[f"value{suffix}"] = float_words(q.dequantize(), "decoded values, float32")
    return columns


def _component(fmt: Format, key: str, part: Array, rows: int) -> Words | None:
    """Return a stored component as a column, repeated if it is one for all rows."""
    meaning = {"scales": "stored scales", "zero_points": "packed zero points", "coarse": "second-level scales, float32"}
    flat = np.ascontiguousarray(part).reshape(rows, -1) if part.size and len(part.reshape(-1)) % rows == 0 else None
    if flat is None or (part.ndim == 0 and rows > 1):
        flat = np.broadcast_to(np.ascontiguousarray(part).reshape(1, -1), (rows, part.size)).copy()
    unsigned = flat.view(f"u{flat.dtype.itemsize}").astype(np.uint64)
    return Words(8 * flat.dtype.itemsize, unsigned, meaning.get(key, f"stored {key}"))


def _scales(order: Order) -> dict[str, Words]:
    """Groups of many magnitudes: powers of two and their neighbours, subnormal numbers, zeros, and drawn values."""
    fmt = order.format
    if not fmt.form.has_scales or has_pattern(fmt) or fmt.form.codes == "unstated":
        raise _refuse(order, "scales", "it has no scales" if not fmt.form.has_scales else "it has a pattern")
    rng, width = order.rng, order.group
    rows = rng.standard_normal((order.count, width)).astype(np.float32)
    largest = np.abs(rows).max(1, keepdims=True)
    exponents = rng.integers(-20, 20, (order.count, 1))
    tops = np.ldexp(np.float32(1), exponents).astype(np.float32)
    kind = np.arange(order.count)[:, None] % 6
    tops = np.where(kind == 1, np.nextafter(tops, np.float32(0)), tops)
    tops = np.where(kind == 2, np.nextafter(tops, np.float32(np.inf)), tops)
    tops = np.where(kind == 3, tops * np.float32(1.5), tops)
    tops = np.where(kind == 4, tops * rng.uniform(1, 2, tops.shape).astype(np.float32), tops)
    wide = kind == 5
    tops = np.where(wide, np.ldexp(np.float32(1), rng.integers(-140, 100, tops.shape)).astype(np.float32), tops)
    rows = np.asarray(rows / largest * tops, np.float32)
    at = rng.integers(0, width, order.count)
    sign = np.where(fmt.form.is_unsigned, 1, rng.choice([-1, 1], order.count))
    rows[np.arange(order.count), at] = tops[:, 0] * sign.astype(np.float32)  # exact powers of two
    rows[0] = 0
    if order.count > 1:
        rows[1] = -0.0
    if fmt.form.is_unsigned:
        rows = np.abs(rows)
    columns = _encoded(fmt, rows)
    for other in siblings(fmt):
        rule = getattr(other, "scale_rule", None)
        if rule is not None and rule != getattr(fmt, "scale_rule", None):
            more = _encoded(other, rows, f"_{rule}")
            columns |= {name: column for name, column in more.items() if name != "input"}
    return columns


def _dots(order: Order) -> dict[str, Words]:
    """Dot products of elements, without scales, by each accumulator."""
    if has_pattern(order.format):
        raise _refuse(order, "dots", "it has a pattern")
    form, rng, shape = order.format.form, order.rng, (2, order.count, order.length)
    if form.codes == "integer":
        low, high = (form.lowest, form.largest) if not form.zero_points else (-(2**form.bits - 1), 2**form.bits - 1)
        operands = rng.integers(low, high + 1, shape)
        operands = np.where(_is_extreme(order), np.where(rng.random(shape) < 0.5, low, high), operands)
        operands[:, 2::4] = np.abs(operands[:, 2::4])  # sums of one sign reach the limits
        a, b = operands.astype(np.int32)
        bits = form.bits + form.zero_points
        columns = {"a": integer_words(a, bits, "left elements"), "b": integer_words(b, bits, "right elements")}
        for text in order.accumulators or INTEGER_SUMS:
            options = emulate.parse(text)
            sums = [emulate.matmul(x[None], w[:, None], **options).item() for x, w in zip(a, b, strict=True)]
            columns[f"sum_{text}"] = integer_words(np.array(sums)[:, None], 64, f"sum by {text}, one product per step")
        return columns
    levels = _levels(order, "dots")
    operands = rng.choice(levels, shape)
    operands = np.where(_is_extreme(order), rng.choice(levels[[0, -1]], shape), operands)
    operands[1, 2::4] = -operands[0, 2::4, ::-1]  # cancellation
    near = np.flatnonzero(np.abs(levels) <= max(1.0, float(np.abs(levels).min())))
    operands[:, 3::4] = rng.choice(levels[near], operands[:, 3::4].shape)
    a, b = operands.astype(np.float32)
    columns = {"a": float_words(a, "left values, float32"), "b": float_words(b, "right values, float32")}
    if form.levels:
        columns |= {f"code_{name}": _code_column(form, x) for name, x in (("a", a), ("b", b))}
    for text in order.accumulators or _float_sums(a, b):
        options = emulate.parse(text)
        with np.errstate(all="ignore"):
            sums = [emulate.matmul(x[None], w[:, None], **options).item() for x, w in zip(a, b, strict=True)]
        columns[f"sum_{text}"] = float_words(np.array(sums)[:, None], f"sum by {text}, float32")
    return columns


def _is_extreme(order: Order) -> Array:
    return np.asarray(np.arange(order.count) % 4 == 1)[None, :, None]


def _float_sums(a: Array, b: Array) -> Iterator[str]:
    for text in (*FLOAT_SUMS, *emulate.INSTRUCTIONS):
        try:
            emulate.matmul(a[:1], b[:1].T, **emulate.parse(text))
            emulate.matmul(a.reshape(1, -1), b.reshape(-1, 1), **emulate.parse(text))
        except (TypeError, ValueError):  # the instruction multiplies another type
            continue
        yield text


def _code_column(form: Any, values: Array) -> Words:
    levels = np.array(form.levels)
    order = np.argsort(levels, kind="stable")
    found = order[np.searchsorted(levels, values.astype(np.float64), sorter=order)]
    return Words(form.bits, found.astype(np.uint64), "the codes of these values")


def _stochastic(order: Order) -> dict[str, Words]:
    """Stochastic rounding: the random number of each element is stated, and rounds up if it is below the fraction."""
    fmt, rng, width = order.format, order.rng, order.group if order.format.form.has_scales else 8
    if has_pattern(fmt):
        raise _refuse(order, "stochastic", "it has a pattern")
    levels = _levels(order, "stochastic")
    most = float(np.abs(levels).max())
    x = rng.uniform(-1, 1, (order.count, width)) * min(most, 1e30)
    x[1::2] *= np.ldexp(1.0, -rng.integers(0, 8, (len(x[1::2]), width)))
    if fmt.form.is_unsigned:
        x = np.abs(x)
    inputs = x.astype(np.float32)
    try:
        values = fake_quantize(inputs, fmt, rounding="stochastic", seed=order.seed)[0]
    except ValueError as error:
        raise _refuse(order, "stochastic", str(error).partition(": ")[2]) from None
    random = (chances(order.seed, 0, inputs.size) * 2.0**53).astype(np.uint64).reshape(inputs.shape)
    return {
        "input": float_words(inputs, "values to round, float32"),
        "random": Words(53, random, "random number u * 2^53: up if u < (t - below) / (above - below)"),
        "value": float_words(values, "rounded values, float32"),
    }


def _nm(order: Order) -> dict[str, Words]:
    """Rows pruned to N:M: the nonzeros, the stored positions, and the decoded dense row."""
    fmt = order.format
    try:
        sparse = fmt if has_pattern(fmt) else Sparse(fmt, *map(int, order.pattern.split(":")))
        width = math.lcm(sparse.m, max(order.group, 8) * sparse.m)
        w = order.rng.standard_normal((order.count, width)).astype(np.float32)
        q = quantize(np.abs(w) if sparse.form.is_unsigned else w, sparse)
    except (TypeError, ValueError) as error:
        raise _refuse(order, "nm", str(error)) from None
    bits = (sparse.m - 1).bit_length()
    kept = width // sparse.m * sparse.n
    columns = {"position": Words(
        bits, unpack(q.components["metadata"], bits, kept).astype(np.uint64).reshape(order.count, -1),
        f"position of each nonzero in its block of {sparse.m}")}  # fmt: skip
    for key, part in q.components.items():
        if key == "codes":
            runs, _, padded, real = code_geometry(q)
            codes = unpack(part, sparse.bits, runs * padded).reshape(len(part), -1)[:, :real]
            columns["code"] = Words(sparse.bits, codes.astype(np.uint64), "codes of the nonzeros")
        elif key != "metadata":
            words = _component(sparse, key, part, order.count)
            if words is not None:
                columns[key] = words
    columns["dense"] = float_words(q.dequantize(), "decoded dense row, float32")
    return columns
