"""Axes to rows and groups, thresholds of clipping, and invalid inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, prod

import numpy as np

from .exact import float32


class Refused(ValueError):
    """The definition requires a ValueError; `index` is the first invalid element of the caller's array, if named."""

    def __init__(self, reason: str, index: tuple[int, ...] | None = None):
        super().__init__(reason)
        self.index = index


@dataclass
class Rows:
    """Rows: one index of the other axes in C order each; groups run along the last named axis."""

    shape: tuple[int, ...]
    axis: tuple[int, ...]
    group: int | None
    others: tuple[int, ...] = field(init=False)

    def __post_init__(self):
        self.axis = tuple(a % len(self.shape) for a in self.axis)
        self.others = tuple(a for a in range(len(self.shape)) if a not in self.axis)
        self.rows = prod(self.shape[a] for a in self.others)
        lengths = [self.shape[a] for a in self.axis]
        self.length = prod(lengths)
        if self.group is None:  # the whole row is one group
            self.segments, self.last, self.size, per_segment = 1, self.length, self.length, 1
        else:
            self.segments, self.last = prod(lengths[:-1]), lengths[-1]
            self.size = min(self.group, self.last)
            per_segment = ceil(self.last / self.size) if self.size else 0
        self.groups = self.segments * per_segment
        self.padded_last = per_segment * self.size
        places = np.zeros((self.segments, self.padded_last), bool)
        places[:, : self.last] = True
        self.real = places.reshape(self.groups, self.size)  # mask of the positions of groups that are not padding

    def split(self, x, fill=0):
        """Return the array as (rows, groups, size), with padded tail groups."""
        flat = np.transpose(x, self.others + self.axis).reshape(self.rows, self.segments, self.last)
        out = np.full((self.rows, self.segments, self.padded_last), fill, flat.dtype)
        out[:, :, : self.last] = flat
        return out.reshape(self.rows, self.groups, self.size)

    def flat(self, groups):
        """Return (rows, groups, size) as (rows, length), without the padding, in the order of reduction."""
        padded = groups.reshape(self.rows, self.segments, self.padded_last)
        return padded[:, :, : self.last].reshape(self.rows, self.length)

    def join(self, groups):
        """Return (rows, groups, size) as the caller's array."""
        order = self.others + self.axis
        return np.transpose(self.flat(groups).reshape([self.shape[a] for a in order]), np.argsort(order))

    def group_of(self) -> np.ndarray:
        """Return the group of each element of a row, in the order of reduction."""
        numbers = np.repeat(np.arange(self.groups), self.size).reshape(self.segments, self.padded_last)
        return numbers[:, : self.last].reshape(self.length)


def first(mask) -> tuple[int, ...]:
    """Return the index of the first true element in C order."""
    return tuple(int(i) for i in np.argwhere(mask)[0])


def check_finite(x):
    if not np.isfinite(x).all():
        raise Refused("NaN or infinity", first(~np.isfinite(x)))


def check_float32(x):
    """Refuse |x| >= 2^128 after rounding to float32, which has no float32 scale."""
    with np.errstate(over="ignore"):
        huge = ~np.isfinite(x.astype(np.float32))
    if huge.any():
        raise Refused("|x| >= 2^128", None)


def absmax32(values) -> np.float32:
    """Return the largest magnitude, rounded to float32 once."""
    return np.float32(np.abs(values).max(initial=0.0))


def threshold(values, clip, bits: int) -> np.float32:
    """Return the threshold that replaces the largest magnitude of the values of a scale, in the order of the row."""
    if clip is None:
        return absmax32(values)
    if clip == "octav":
        return octav(np.abs(values), bits)
    if isinstance(clip, str):
        return percentile(np.abs(values), float(clip.removeprefix("percentile:")))
    return np.float32(np.float64(clip) * np.float64(absmax32(values)))


def percentile(magnitudes, p: float) -> np.float32:
    if magnitudes.size == 0:
        return np.float32(0)
    ordered = np.sort(magnitudes)
    h = (ordered.size - 1) * p / 100
    i = int(np.floor(h))
    t = h - i
    a, b = ordered[i], ordered[min(i + 1, ordered.size - 1)]
    return np.float32(float32(b - (b - a) * (1 - t) if t >= 0.5 else a + (b - a) * t))


def lanes(terms) -> float:
    """Return a sum in 8 lanes, each ascending, folded in pairs."""
    s = [0.0] * 8
    for i, term in enumerate(terms.tolist()):
        s[i % 8] += term
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))


def octav(magnitudes, bits: int) -> np.float32:
    """Return the fixed point of OCTAV, after at most 20 steps."""
    if not magnitudes.any():
        return np.float32(0)
    s = lanes(magnitudes) / np.count_nonzero(magnitudes)
    for _ in range(20):
        above = magnitudes > s
        if not above.any():
            return absmax32(magnitudes)
        inside = np.count_nonzero((magnitudes > 0) & ~above)
        following = lanes(np.where(above, magnitudes, 0.0)) / (4.0**-bits / 3 * inside + np.count_nonzero(above))
        if following == s:
            break
        s = following
    return np.float32(float32(s))
