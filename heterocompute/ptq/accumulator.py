"""The width of an accumulator that no input, or no input of a calibration set, can overflow: `accumulator_bits`.

An output adds products of integers, ``S = sum of p_i w_i x_i`` over one segment. A segment ends where the machine
spills S: at a group of float scales, or after `tile` values. With P the sum of the positive ``p_i w_i``, and N that of
the negative ones, inputs of lowest .. largest give at most ``largest P + lowest N``, and one input reaches it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from ..arrays.dense import as_array
from ..arrays.quantized import QuantizedArray
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import counts_subnormals
from ..base.notebooks.shown import Facts
from ..base.texts import counted
from ..base.values import as_int
from ..emulate.codes import Codes, code_rows, code_runs
from ..emulate.model import NAME, Model, parse_model
from ..formats import Format, has_pattern
from ..products.arguments import as_format
from ..products.quantize import quantize

Array = np.ndarray[Any, Any]

CALLER = "accumulator_bits"
LARGEST = 2**62  # sums are computed as int64
BLOCK = 1 << 22  # products held at a time


@dataclass(frozen=True)
class AccumulatorBits(Facts):
    """The answer of `accumulator_bits`.

    Attributes
    ----------
    bits : int
        The smallest accumulator that no input overflows, the largest of `per_output`.
    per_output : ndarray of int
        The same for each output.
    low, high : ndarray of int
        The smallest and the largest sum of each output, over all segments and inputs.
    needed_saturating, needed_wrapping : int or None
        The smallest accumulator for the calibration inputs. Saturating: every partial sum, k ascending, is in the
        range. Wrapping: every sum of a segment is. None without `inputs`.
    activations : Format
    """

    bits: int
    per_output: Array
    low: Array
    high: Array
    needed_saturating: int | None
    needed_wrapping: int | None
    activations: Format
    _weights: Array = field(repr=False)
    _segments: list[tuple[int, int]] = field(repr=False)

    def __repr__(self) -> str:
        n = self.per_output.size
        least = int(self.per_output.min()) if n else self.bits
        return f"<AccumulatorBits: {self.bits} bits, {counted(n, 'output')} from {least} bits on, x {self.activations}>"

    def worst_input(self, output: int) -> Array:
        """Return an input that reaches the bound of an output.

        Parameters
        ----------
        output : int

        Returns
        -------
        ndarray of float32, (k,)
            ``hc.quantize(x, activations)`` multiplies to `high` or `low` in one segment, the one that needs more bits.

        Raises
        ------
        ValueError
            The output does not exist.
        """
        i = as_int(output, f"{CALLER}: output", 0)
        if i >= len(self._weights):
            raise WrongValue(f"{CALLER}: output is {i}, expected less than {len(self._weights)}")
        w = self._weights[i]
        _, up, down = range_of(self.activations)
        x = np.where(w > 0, up, np.where(w < 0, down, 0))
        if bits_for(int(self.low[i]), 0) > bits_for(0, int(self.high[i])):
            x = np.where(w > 0, down, np.where(w < 0, up, 0))
        if self.activations.form.zero_points:
            # One zero point serves a row, so that its inputs are all >= 0, or all <= 0: the better one of both.
            positive, negative = (np.where(sign * w > 0, up, 0) for sign in (1, -1))
            sums = [max(abs(int((w[a:b] * one[a:b]).sum())) for a, b in self._segments) for one in (positive, negative)]
            x = positive if sums[0] >= sums[1] else -negative
        return x.astype(np.float32)


@counts_subnormals
def accumulator_bits(
    q: QuantizedArray,
    activations: Format | str,
    tile: int | None = None,
    inputs: object = None,
) -> AccumulatorBits:
    """Return the smallest accumulator that no input of a format can overflow, from the codes of a weight.

    An accumulator of b bits holds -2^(b-1) to 2^(b-1) - 1. The products are those of `heterocompute.emulate.matmul`:
    zero points are subtracted, integer scales multiply inside of the sum, and float scales of groups end a sum.

    Parameters
    ----------
    q : QuantizedArray
        Integers, (outputs, k) or filters, quantized along the reduction axes.
    activations : Format or str
        The format of the inputs, integers.
    tile : int, optional
        The number of values along k after which the machine stores the sum elsewhere and starts at 0. Default: none.
    inputs : array_like, optional
        Calibration inputs (n, k): the accumulator that these need is also returned. Their cost is n x outputs x k.

    Returns
    -------
    AccumulatorBits

    Raises
    ------
    TypeError
        q is not a QuantizedArray.
    ValueError
        A format has no integers, or the arguments do not match.

    Notes
    -----
    Colbert, Pappalardo, Petri-Koenig, "A2Q: Accumulator-Aware Quantization with Guaranteed Overflow Avoidance",
    ICCV 2023 (arXiv 2308.13504), bounds the sum by the l1 norm of the codes. The bound here uses the sums of both
    signs, as in A2Q+ (arXiv 2401.10432), so that it is reached.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> q = hc.quantize(np.ones((1, 256), np.float32), "int8")
    >>> found = hc.ptq.accumulator_bits(q, "int8")
    >>> found.bits, int(found.high[0])
    (23, 4129024)
    >>> hc.ptq.accumulator_bits(q, "int8", tile=32).bits
    20
    >>> x = hc.quantize(found.worst_input(0)[None], "int8")
    >>> sums = [hc.emulate.matmul(x, q.T, f"int{bits}-sat").item() for bits in (22, 23, 32)]
    >>> sums[1] == sums[2], sums[0] < sums[2]
    (True, True)
    """
    if not isinstance(q, QuantizedArray):
        raise WrongType(f"{CALLER}: q is {shown(q)}, expected a QuantizedArray")
    if q._is_far:
        raise WrongType(f"{CALLER}: q is on {q.device!s}, expected an array on the CPU: take q.to('cpu')")
    fmt = as_format(activations, f"{CALLER}: activations")
    for name, one in (("q", q.format), ("activations", fmt)):
        if has_pattern(one) or one.form.codes != "integer" or one.form.minima:
            raise WrongValue(f"{CALLER}: {name} is {one}, expected a format of integers")
    tile = None if tile is None else as_int(tile, f"{CALLER}: tile", 1)
    sums = sums_of(q, fmt, tile)
    w, segments = sums.weights, sums.segments
    scaled = w.codes.astype(np.int64)
    if not sums.is_joined:
        scaled = scaled * _expanded(w.integer_scales, w.group, w.codes.shape[-1]) * sums.factor
    low, high = _bounds(scaled, segments, fmt)
    per_output = np.array([bits_for(int(a), int(b)) for a, b in zip(low, high, strict=True)], np.int64)
    needed: tuple[int | None, int | None] = (None, None)
    if inputs is not None:
        needed = _needed(_model(), w, fmt, inputs, segments, sums.is_joined)
    return AccumulatorBits(int(per_output.max(initial=1)), per_output, low, high, *needed, fmt, scaled, segments)


@dataclass(frozen=True)
class Sums:
    """The order in which the products of a weight are added.

    Attributes
    ----------
    weights : Codes
        Of each output, in the order of its sum.
    factor : int
        The largest integer scale of the inputs, which multiplies inside of the sum.
    is_joined : bool
        Whether float scales end a sum.
    segments : list of (int, int)
        The runs of k between two spills.
    """

    weights: Codes
    factor: int
    is_joined: bool
    segments: list[tuple[int, int]]


def sums_of(q: QuantizedArray, fmt: Format, tile: int | None, name: str = CALLER) -> Sums:
    """Return how the products of a weight and of inputs of a format are added; errors have the name of the caller."""
    model = _model()
    w = _weights(model, q, name)
    k = w.codes.shape[-1]
    x = _probe(model, fmt, k)
    joined = w.float_scales is not None or x.float_scales is not None
    factor = 1 if joined or x.integer_scales is None else 2**x.scale_bits - 1
    return Sums(w, factor, joined, list(_segments(k, tile, *((w.group, x.group) if joined else ()))))


def _model() -> Model:
    return parse_model("int32", None, None, None, None)


def bits_for(low: int, high: int) -> int:
    """Return the smallest two's complement that holds a range with 0.

    Examples
    --------
    >>> bits_for(-128, 127), bits_for(-128, 128), bits_for(-129, 0), bits_for(0, 0)
    (8, 9, 9, 1)
    """
    return 1 + max(high.bit_length(), (-low - 1).bit_length() if low < 0 else 0)


def _weights(model: Model, q: QuantizedArray, name: str) -> Codes:
    """Return the codes of each output in the order of its sum."""
    *outer, last = q.axis
    lead = tuple(size for i, size in enumerate(q.shape) if i not in q.axis)
    try:
        rows = code_runs(model, q, "q", lead, prod(q.shape[i] for i in outer), q.shape[last])
    except ValueError as error:
        raise WrongValue(str(error).replace(NAME, name, 1)) from None
    count = prod(lead)
    k = rows.codes.shape[-1]

    def flat(scales: Array | None) -> Array | None:
        return None if scales is None else scales.reshape(count, scales.shape[-1])

    return replace(
        rows,
        codes=rows.codes.reshape(count, k),
        integer_scales=flat(rows.integer_scales),
        float_scales=flat(rows.float_scales),
        row_scale=rows.row_scale.reshape(count),
    )


def _probe(model: Model, fmt: Format, k: int) -> Codes:
    """Return the codes of an input, which have the groups and the kind of scales of each."""
    return code_rows(model, quantize(np.ones((1, k), np.float32), fmt), "activations", False)


def range_of(fmt: Format) -> tuple[int, int, int]:
    """Return the number of steps between both ends, the largest input, and the smallest, in steps."""
    form = fmt.form
    if form.zero_points:
        steps = 2**form.bits - 1
        return steps, steps, -steps
    return form.largest - form.lowest, form.largest, form.lowest


def _expanded(scales: Array | None, group: int, k: int) -> Any:
    return 1 if scales is None else np.repeat(scales.astype(np.int64), group, axis=-1)[..., :k]


def _segments(k: int, tile: int | None, *groups: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of k between two spills."""
    ends = {0, k, *(start for one in groups for start in range(0, k, one))}
    if tile is not None:
        ends |= set(range(0, k, tile))
    yield from pairwise(sorted(ends))


def _bounds(w: Array, segments: list[tuple[int, int]], fmt: Format) -> tuple[Array, Array]:
    """Return the smallest and the largest sum of each output."""
    steps, up, down = range_of(fmt)
    low, high = np.zeros(len(w), np.int64), np.zeros(len(w), np.int64)
    limit = max(abs(up), abs(down)) * (int(np.abs(w).max(initial=0)) or 1)
    if limit * max((b - a for a, b in segments), default=0) >= LARGEST:
        raise WrongValue(f"{CALLER}: a sum can have more than 62 bits, expected codes of fewer bits")
    for a, b in segments:
        positive = np.maximum(w[:, a:b], 0).sum(-1)
        negative = np.maximum(-w[:, a:b], 0).sum(-1)
        if fmt.form.zero_points:  # all inputs of a row are >= 0, or all <= 0, at the ends of a range of zero points
            most = steps * np.maximum(positive, negative)
            high, low = np.maximum(high, most), np.minimum(low, -most)
        else:
            high = np.maximum(high, up * positive - down * negative)
            low = np.minimum(low, down * positive - up * negative)
    return low, high


def _needed(
    model: Model, w: Codes, fmt: Format, inputs: object, segments: list[tuple[int, int]], joined: bool
) -> tuple[int, int]:
    """Return the bits for partial sums, k ascending, and those for sums of whole segments."""
    values = as_array(inputs, f"{CALLER}: inputs")
    k = w.codes.shape[-1]
    if values.ndim < 2 or values.shape[-1] != k:
        raise WrongValue(f"{CALLER}: inputs has the shape {values.shape}, expected (n, {k})")
    x = code_rows(model, quantize(values.reshape(-1, k), fmt), "inputs", False)
    left, right = x.codes.astype(np.int64), w.codes.astype(np.int64)
    if not joined:
        left = left * _expanded(x.integer_scales, x.group, k)
        right = right * _expanded(w.integer_scales, w.group, k)
    low = high = final_low = final_high = 0
    rows = max(1, BLOCK // max(k, 1))
    for a, b in segments:
        for first in range(0, len(left), rows):
            some = left[first : first + rows, a:b]
            for row in right[:, a:b]:
                sums = np.cumsum(some * row, axis=-1)
                low, high = min(low, int(sums.min(initial=0))), max(high, int(sums.max(initial=0)))
                last = sums[:, -1:]
                final_low, final_high = (
                    min(final_low, int(last.min(initial=0))),
                    max(final_high, int(last.max(initial=0))),
                )
    return bits_for(low, high), bits_for(final_low, final_high)
