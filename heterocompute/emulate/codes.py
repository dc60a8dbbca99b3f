"""Integers and log numbers: operands as rows of codes with their scales, handed to the core, and scaled once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.bits import unpack
from ..arrays.quantized import QuantizedArray
from ..base import runtime
from ..base.errors import WrongType, WrongValue, shown
from ..formats import Log, has_pattern
from ..formats.form import StoredForm
from ..products.arguments import Array
from .model import NAME, Model, as_integer, is_integers, refuse

_LOG_SUMS, LOG_ZERO, _LOG_SIGN = (
    2047,
    512,
    10,
)  # as in csrc/hc_emulate.h; LOG_ZERO is larger than every sum of exponents


@dataclass(frozen=True)
class Codes:
    """Rows of codes over k, leading dimensions first; scales (rows, groups) of one kind or none; one factor per row."""

    codes: Array
    group: int
    integer_scales: Array | None
    float_scales: Array | None
    row_scale: Array
    scale_bits: int
    gamma: int  # 0: integers

    @property
    def has_groups(self) -> bool:
        return self.integer_scales is not None or self.float_scales is not None

    def joining_scales(self) -> Array:
        """Return the codes' factors if the other operand has float32 scales; they saturate like decoded values."""
        if self.float_scales is not None:
            return self.float_scales
        scales = self.row_scale.astype(np.float64)[..., None]
        if self.integer_scales is not None:
            scales = scales * self.integer_scales
        largest = float(np.finfo(np.float32).max)
        return np.clip(scales, -largest, largest).astype(np.float32)


def code_rows(model: Model, operand: Any, name: str, is_b: bool) -> Codes:
    """Return the codes of an operand: the rows of a matrix, or the columns of b, with any leading dimensions."""
    if isinstance(operand, Codes):
        return operand
    k = operand.shape[-2 if is_b else -1]
    if is_integers(operand):
        rows = np.swapaxes(operand, -1, -2) if is_b else operand
        wanted = range(-(2**31) + 1, 2**31) if model.instruction is None else range(-128, 256)
        if operand.size and not (int(operand.min()) in wanted and int(operand.max()) in wanted):
            raise WrongValue(f"{NAME}: {name} has integers beyond {wanted[0]} to {wanted[-1]}")
        codes = np.require(rows, np.int32, ("C", "A"))
        return Codes(codes, max(k, 1), None, None, np.ones(codes.shape[:-1], np.float32), 0, 0)
    operand = quantized(model, operand, name)
    axis = operand.ndim - (2 if is_b else 1)
    if operand.axis != (axis,):
        raise WrongValue(f"{NAME}: {name} is quantized along axis {operand.axis}, its reduction axis is {axis}")
    return code_runs(model, operand, name, tuple(size for i, size in enumerate(operand.shape) if i != axis), 1, k)


def quantized(model: Model, operand: Any, name: str) -> QuantizedArray:
    if isinstance(operand, QuantizedArray):
        return operand
    raise WrongValue(
        f"{NAME}: accumulator is {shown(model.text)}, which adds products of integers or of log numbers, and {name} "
        f"has dtype {operand.dtype}; quantize it, or take accumulator 'fp32', 'fp16' or 'bf16'"
    )


def code_runs(model: Model, q: QuantizedArray, name: str, lead: tuple[int, ...], runs: int, length: int) -> Codes:
    """Return rows of `runs` runs of `length` values; each run begins a new group."""
    fmt, k = q.format, runs * length
    if has_pattern(fmt):
        raise WrongValue(
            f"{NAME}: {name} is {fmt}, but {model.instruction or f'accumulator {shown(model.text)}'} adds "
            "products of dense "
            "codes; decoded values take accumulator 'fp32', 'fp16' or 'bf16'"
        )
    if fmt.form.codes == "log" and fmt.form.scale == "f32" and fmt.form.second == "none":
        return _log_runs(q, lead, runs, length)
    rows = int(np.prod(lead, dtype=np.int64))
    group, per_run = k, 1  # values per group, groups per run
    stored, packed = length, q._packed()
    if fmt.group:
        group = min(fmt.group, length) if fmt.unit == 1 else fmt.group
        whole = -(-length // max(group, fmt.unit, 1)) * max(group, fmt.unit)  # blocks hold several groups
        per_run = whole // group if group else 0
        if group and runs > 1 and whole != length:  # as the matrix of the stored whole groups
            stored = whole
            packed = (packed[0], (rows, runs * stored), (1,), packed[3])
    n_groups = (runs * per_run if group else 0) if fmt.group else 1
    codes = np.empty((rows, runs * stored), np.float32)
    scales = np.ones((rows, n_groups), np.float32)
    row_scale = np.ones(rows, np.float32)
    integers = groups = integer_scales = False
    if "scales" in q.components:  # all integers have them
        integers, groups, integer_scales = _core.terms(runtime.run(), packed, codes, scales, row_scale)
    if not integers or model.instruction is not None and (groups or fmt.bits > 8):
        kinds = "integers or log numbers" if model.instruction is None else "integers of 8 bits with one scale a row"
        raise WrongValue(
            f"{NAME}: {name} is {fmt}, but {model.instruction or f'accumulator {shown(model.text)}'} adds products of "
            f"{kinds}; decoded values take accumulator 'fp32', 'fp16' or 'bf16'"
        )
    if fmt.group and group and -(-length // group) < per_run:
        scales = scales.reshape(rows, runs, per_run)[:, :, : -(-length // group)]
    scales = scales.reshape(*lead, scales.size // max(rows, 1) if rows else n_groups)
    return Codes(
        codes.reshape(*lead, runs, stored)[..., :length].astype(np.int32).reshape(*lead, k),
        max(group, 1),
        scales.astype(np.int32) if integer_scales else None,
        scales if groups and not integer_scales else None,
        row_scale.reshape(lead),
        fmt.form.scale_bits if integer_scales else 0,
        0,
    )


def _log_runs(q: QuantizedArray, lead: tuple[int, ...], runs: int, length: int) -> Codes:
    fmt = q.format
    group = max(min(fmt.group, length), 1) if fmt.group else max(runs * length, 1)
    stored_length = -(-length // group) * group if fmt.group else length
    stored = unpack(q.components["codes"], fmt.bits, runs * stored_length).astype(np.int32)
    stored = stored.reshape(*lead, runs, stored_length)[..., :length]
    codes = log_codes(fmt.form)[stored].reshape(*lead, runs * length)
    scales = q.components["scales"]
    if fmt.group is None:
        return Codes(codes, group, None, None, scales.reshape(lead), 0, fmt.form.steps)
    return Codes(codes, group, None, scales.reshape(*lead, -1), np.ones(lead, np.float32), 0, fmt.form.steps)


def log_codes(form: StoredForm) -> Array:
    """Return sign and exponent of each code of a log format for the core: +-2^(-exponent / steps), or 0."""
    levels = np.array(form.levels)
    magnitudes = np.where(levels == 0, 1, np.abs(levels))
    exponents = np.where(levels == 0, LOG_ZERO, np.rint(-form.steps * np.log2(magnitudes)))
    codes: Array = exponents.astype(np.int32) | np.signbit(levels).astype(np.int32) << _LOG_SIGN
    return codes


def multiply_codes(
    model: Model,
    a: object,
    b: object,
    shape: tuple[int, ...],
    scale_product_bits: object,
    conversion: object,
    fraction_bits: object,
) -> Array:
    left, right = code_rows(model, a, "a", False), code_rows(model, b, "b", True)
    k = left.codes.shape[-1]
    if left.gamma != right.gamma:
        described = [f"log numbers of gamma {side.gamma}" if side.gamma else "integers" for side in (left, right)]
        raise WrongValue(f"{NAME}: a holds {described[0]} and b {described[1]}, expected integers or one gamma")
    if model.kind == "float64" and not left.gamma:
        raise WrongValue(f"{NAME}: accumulator is 'float64', but a and b hold integers, expected log numbers")
    table_bits = _table_bits(conversion, left.gamma)
    joined = left.float_scales is not None or right.float_scales is not None
    shift, limit = _scale_rounding(scale_product_bits, left, right, joined)
    powers, unit = None, 2.0**shift
    if left.gamma:
        longest = min(left.group, right.group)
        fraction = _fraction_bits(fraction_bits, model, longest)
        powers, unit = _powers(left.gamma, table_bits, fraction if model.bits else None), 2.0**-fraction
    else:
        refuse(fraction_bits is not None, "fraction_bits", fraction_bits, "a and b hold integers, not log numbers")
    chunk = model.chunk or (0 if left.has_groups or right.has_groups else 1)
    if not model.saturates and model.chunk is None:
        chunk = 0  # modulo 2^bits the order does not matter
    elif chunk and _cannot_overflow(model.bits, left, right, powers, k):
        chunk = 0
    scaled = not (is_integers(a) and is_integers(b))
    dtype = np.float32 if joined else np.float64 if model.kind == "float64" else np.int64
    y = np.empty(shape, np.float32 if scaled else np.int64)
    rows = [np.ascontiguousarray(side.joining_scales()) if joined else side.integer_scales for side in (left, right)]
    for index in np.ndindex(shape[:-2]) if y.size else ():
        sides = [_matrix(side, scales, index) for side, scales in zip((left, right), rows, strict=True)]
        total = np.empty(shape[-2:], dtype)
        _core.emulate_codes(
            runtime.run(),
            (sides[0][0], left.group if left.has_groups else max(k, 1), sides[0][1]),
            (sides[1][0], right.group if right.has_groups else max(k, 1), sides[1][1]),
            model.bits,
            model.saturates,
            chunk,
            conversion == "mitchell" and not left.gamma,
            shift,
            limit,
            powers,
            unit,
            total,
        )
        if joined or not scaled:
            y[index] = total
            continue
        factor = sides[0][2].astype(np.float64)[:, None] * sides[1][2].astype(np.float64)[None, :]
        with np.errstate(over="ignore"):
            y[index] = (factor * (total.astype(np.float64) * unit)).astype(np.float32)
    return y


def _matrix(side: Codes, scales: Array | None, index: tuple[int, ...]) -> tuple[Array, Array | None, Array]:
    lead = side.codes.shape[:-2]
    own = index[len(index) - len(lead) :]
    at = tuple(i if size > 1 else 0 for i, size in zip(own, lead, strict=True))
    return side.codes[at], None if scales is None else scales[at], side.row_scale[at]


def _table_bits(conversion: object, gamma: int) -> int:
    if not isinstance(conversion, str):
        kind = type(conversion).__name__
        raise WrongType(f"{NAME}: conversion is {shown(conversion)} of type {kind}, expected a str")
    most = gamma.bit_length() - 1
    if conversion == "exact":
        return most
    if conversion == "mitchell":
        return 0
    match = re.fullmatch(r"hybrid:([0-9])", conversion)
    if match is None:
        raise WrongValue(f"{NAME}: conversion is {shown(conversion)}, expected 'exact', 'mitchell' or 'hybrid:n'")
    refuse(not gamma, "conversion", conversion, "a and b hold integers, which take 'exact' or 'mitchell'")
    reason = f"gamma {gamma} has {most} bits below the octave, expected hybrid:0 to hybrid:{most}"
    refuse(int(match[1]) > most, "conversion", conversion, reason)
    return int(match[1])


def _scale_rounding(scale_product_bits: object, left: Codes, right: Codes, joined: bool) -> tuple[int, int]:
    """Return the bits that a product of integer scales loses and its largest value, 0 if it is exact."""
    bits = as_integer(scale_product_bits, "scale_product_bits", range(2, 17))
    if bits is None:
        return 0, 0
    width = left.scale_bits + right.scale_bits
    if joined or not width:
        which = "an operand has float32 scales" if joined else "neither operand has integer scales"
        raise WrongValue(
            f"{NAME}: scale_product_bits is {bits}, but {which}; expected VSQ with scale_bits next to integers with "
            "one "
            "scale a row, or two of them"
        )
    return (width - bits, 2**bits - 1) if width > bits else (0, 0)


def _fraction_bits(fraction_bits: object, model: Model, longest: int) -> int:
    bits = as_integer(fraction_bits, "fraction_bits", range(63))
    if model.kind == "float64":
        refuse(bits is not None, "fraction_bits", bits, "accumulator 'float64' has none")
        return 0
    room = model.bits - 1 - longest.bit_length()
    if bits is None and room < 0:
        raise WrongValue(
            f"{NAME}: accumulator {shown(model.text)} has no room for {longest} products, expected "
            f"{longest.bit_length() + 1} bits or more, or fraction_bits"
        )
    return room if bits is None else bits


def _powers(gamma: int, table_bits: int, fraction: int | None) -> Array:
    """Return the power of each sum of exponents; given a fraction, in units of 2^-fraction, truncated."""
    table = np.append(Log(8, gamma).form.levels[:gamma], 0.5)  # 2^(-r / gamma)
    sums = np.arange(LOG_ZERO)
    r = -sums % gamma
    low = r % (gamma >> table_bits)
    high = np.where(r > low, 2 * table[gamma - (r - low)], 1.0)
    powers = np.zeros(_LOG_SUMS)
    powers[:LOG_ZERO] = np.ldexp(high * (1 + low / gamma), -((sums + r) // gamma))
    return powers if fraction is None else np.floor(np.ldexp(powers, fraction))


def _cannot_overflow(bits: int, left: Codes, right: Codes, powers: Array | None, k: int) -> bool:
    bound = k * (1 if powers is None else int(powers[0]))
    for side in (left, right):
        parts = [side.integer_scales] if powers is not None else [side.codes, side.integer_scales]
        for part in parts:
            if part is not None and part.size:
                bound *= int(np.abs(part).max())
    return bool(bound < 2 ** (bits - 1))
