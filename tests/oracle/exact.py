"""Arithmetic of the definitions: roundings, fused multiply-add, small floats, powers of two, packed bits."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

import numpy as np

F32_MAX = float(np.finfo(np.float32).max)


def float32(values):
    """Round float64 to float32 once; beyond its largest it saturates, infinities and NaN stay."""
    values = np.asarray(values, np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rounded = values.astype(np.float32)
        return np.where(np.isfinite(values), np.clip(rounded, -F32_MAX, F32_MAX), rounded).astype(np.float32)


def divide32(a, b):
    """Divide in float32: one correctly rounded operation."""
    with np.errstate(all="ignore"):
        return np.float32(a) / np.float32(b)


def quotient(x, s):
    """Return q = float64(x) / float64(s), rounded once."""
    with np.errstate(under="ignore", over="ignore"):
        return np.asarray(x, np.float64) / np.float64(s)


def fma32(a, b, c):
    """float32(a * b + c), rounded once.

    The product of two float32 is exact in float64. The float64 sum is rounded to odd (its error decides the last bit),
    and rounding such a sum to float32 is the same as rounding the exact one, because 53 >= 24 + 2.
    """
    a, b, c = (np.asarray(v, np.float32).astype(np.float64) for v in (a, b, c))
    with np.errstate(all="ignore"):
        product = a * b
        total = product + c
        part = total - product
        error = (product - (total - part)) + (c - part)
        inexact = (error != 0) & np.isfinite(total) & (total.view(np.int64) & 1 == 0)
        towards = np.where(error > 0, np.inf, -np.inf)
        total = np.where(inexact, np.nextafter(total, towards), total)
        return total.astype(np.float32)


def root_of_half(e: int, gamma: int) -> float:
    """Return the float64 nearest to 2^(-e / gamma), gamma a power of two, by integer square roots of a long integer."""
    bits = 400
    value = 1 << (bits * gamma - e)
    while gamma > 1:
        value, gamma = isqrt(value), gamma // 2
    return float(Fraction(value, 1 << bits))


def pack(codes, bits: int) -> np.ndarray:
    """Return codes of each row as bytes: code i in bits i*b to i*b+b-1 of the row, little-endian."""
    rows = []
    n_bytes = -(-codes.shape[1] * bits // 8)
    for row in codes.tolist():
        text = "".join(format(int(code) & ((1 << bits) - 1), f"0{bits}b") for code in reversed(row)) if bits else ""
        rows.append(int(text or "0", 2).to_bytes(n_bytes, "little"))
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), n_bytes)


@dataclass(frozen=True)
class Small:
    """A binary float type: exponent and fraction bits, bias, the largest finite value, its special values."""

    exponent_bits: int
    fraction_bits: int
    bias: int
    largest: float
    infinity: int | None
    nan: int | None
    bits: int
    shift: int = 0  # zero bits below the fraction, as it is stored

    @property
    def min_exponent(self) -> int:
        return 1 - self.bias

    def round(self, values):
        """Round to nearest, ties to even, with an unbounded exponent above: float64 in and out."""
        values = np.asarray(values, np.float64)
        exponent = np.maximum(np.frexp(values)[1] - 1, self.min_exponent)
        finite = np.isfinite(values)
        steps = np.rint(np.ldexp(np.where(finite, values, 0), self.fraction_bits - exponent))
        with np.errstate(over="ignore"):
            return np.where(finite, np.copysign(np.ldexp(steps, exponent - self.fraction_bits), values), values)

    def nearest(self, values, saturate: bool = True):
        """Return the nearest values of the type; larger values become the largest, infinity or NaN."""
        rounded = self.round(values)
        if self.infinity is not None:
            beyond = np.inf
        else:
            beyond = np.nan if self.nan is not None else self.largest
        if saturate:
            beyond = self.largest
        with np.errstate(invalid="ignore"):
            return np.where(np.abs(rounded) > self.largest, np.copysign(beyond, rounded), rounded)

    def code(self, values):
        """Return codes of values of the type; NaN gets the type's code of NaN, with the sign of the NaN."""
        values = np.asarray(values, np.float64)
        finite = np.isfinite(values)
        magnitude = np.where(finite, np.abs(values), 0)
        exponent = np.where(magnitude > 0, np.frexp(magnitude)[1] - 1, self.min_exponent)
        exponent = np.maximum(exponent, self.min_exponent)
        steps = np.ldexp(magnitude, self.fraction_bits - exponent).astype(np.int64)
        codes = steps + (exponent - self.min_exponent).astype(np.int64) * (1 << self.fraction_bits)
        codes = np.where(np.isinf(values), self.infinity or 0, codes)
        codes = np.where(np.isnan(values), self.nan or 0, codes)
        sign = np.signbit(values).astype(np.int64) << (self.exponent_bits + self.fraction_bits)
        return (codes | sign) << self.shift

    def value(self, codes):
        """Return the finite values of codes, float64."""
        codes = np.asarray(codes, np.int64) >> self.shift
        fraction = codes & ((1 << self.fraction_bits) - 1)
        exponent = (codes >> self.fraction_bits) & ((1 << self.exponent_bits) - 1)
        normal = exponent > 0
        steps = fraction + normal * (1 << self.fraction_bits)
        power = np.where(normal, exponent - self.bias, self.min_exponent) - self.fraction_bits
        sign = np.where(codes >> (self.exponent_bits + self.fraction_bits) & 1, -1.0, 1.0)
        return sign * np.ldexp(steps.astype(np.float64), power)


SMALL = {
    "fp8_e4m3fn": Small(4, 3, 7, 448.0, None, 0x7F, 8),
    "fp8_e5m2": Small(5, 2, 15, 57344.0, 0x7C, 0x7E, 8),
    "fp6_e3m2": Small(3, 2, 3, 28.0, None, None, 6),
    "fp6_e2m3": Small(2, 3, 1, 7.5, None, None, 6),
    "fp4_e2m1": Small(2, 1, 1, 6.0, None, None, 4),
    "bf16": Small(8, 7, 127, float.fromhex("0x1.fep127"), 0x7F80, 0x7FC0, 16),
    "fp16": Small(5, 10, 15, 65504.0, 0x7C00, 0x7E00, 16),
    "tf32": Small(8, 10, 127, float.fromhex("0x1.ffcp127"), 0x3FC00, 0x3FE00, 32, 13),
    "fp32": Small(8, 23, 127, F32_MAX, 0x7F800000, 0x7FC00000, 32),
}
