"""The windows of a convolution: stride, padding, dilation and groups, checked in one place for all convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..base.errors import WrongType, WrongValue, shown
from ..base.texts import counted
from ..base.values import as_int

MOST = 2**30  # keeps every index of a window within int64

Pair = tuple[int, int]
Padding = int | Pair | tuple[Pair, Pair] | str


@dataclass(frozen=True)
class Window:
    """The window that moves over an image; each pair is (down, across).

    Attributes
    ----------
    kernel, stride, dilation : pair of int
    before, after : pair of int
        Padding above and left, below and right.
    groups : int
    answer : pair of int
        Windows down and across.
    """

    kernel: Pair
    stride: Pair
    dilation: Pair
    before: Pair
    after: Pair
    groups: int
    answer: Pair


def as_pair(value: object, name: str) -> Pair:
    """Return an int, twice, or a pair of ints as it is; `name` is the argument's in errors."""
    try:
        pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
        if len(pair) != 2 or any(isinstance(v, bool) for v in pair):
            raise TypeError
        return int(pair[0].__index__()), int(pair[1].__index__())
    except (TypeError, AttributeError):
        raise WrongType(f"{name} is {shown(value)}, expected an int or a pair of ints") from None


def as_window(
    name: str,
    image: Sequence[int],
    kernel: Sequence[int],
    stride: object,
    padding: object,
    dilation: object = 1,
    groups: object = 1,
    channels: int = 1,
) -> Window:
    """Check a caller's parameters of the windows.

    Parameters
    ----------
    name : str
        Of the function, in errors.
    image, kernel : sequence of int
        Height and width.
    stride, padding, dilation, groups
        As in `heterocompute.conv2d`.
    channels : int
        Of x.

    Raises
    ------
    TypeError
        An argument is not an int, a pair or a text.
    ValueError
        A stride or dilation is below 1, a padding is negative, a dilation leaves fewer than two taps on the image, or
        groups do not divide the channels.
    """
    if type(stride) is type(dilation) is type(groups) is int and type(padding) in (int, str):
        # The same layer is used repeatedly, and these checks take as long as a small layer.
        return _known(name, tuple(image), tuple(kernel), stride, padding, dilation, groups, channels)
    return _checked(name, image, kernel, stride, padding, dilation, groups, channels)


def _checked(
    name: str,
    image: Sequence[int],
    kernel: Sequence[int],
    stride: object,
    padding: object,
    dilation: object,
    groups: object,
    channels: int,
) -> Window:
    strides, dilations = as_pair(stride, f"{name}: stride"), as_pair(dilation, f"{name}: dilation")
    for what, given, pair in (("stride", stride, strides), ("dilation", dilation, dilations)):
        if not 1 <= min(pair) <= max(pair) <= MOST:
            raise WrongValue(f"{name}: {what} is {shown(given)}, expected 1 or more, at most 2^30")
    reach = tuple(d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True))
    same = isinstance(padding, str) and padding == "same"
    before, after = _around(name, padding, image, strides, reach)
    for size, side, k, d, first, last in zip(image, ("rows", "columns"), kernel, dilations, before, after, strict=True):
        if k > 1 and d > max(size + first + last, 1):
            padded = f" with {first + last} of padding" if first + last else ""
            raise WrongValue(
                f"{name}: dilation {shown(d)} is larger than the {size} {side} of x{padded}: no two taps meet the image"
            )
    count = as_int(groups, f"{name}: groups", 1)
    if channels % count:
        raise WrongValue(
            f"{name}: groups is {shown(count)}, expected a divisor of the {counted(channels, 'channel')} of x"
        )
    answer = tuple(
        -(-size // step) if same else max((size + first + last - length) // step + 1, 0)
        for size, first, last, length, step in zip(image, before, after, reach, strides, strict=True)
    )
    return Window((kernel[0], kernel[1]), strides, dilations, before, after, count, (answer[0], answer[1]))


_known = lru_cache(maxsize=1024)(_checked)


def _around(name: str, padding: object, image: Sequence[int], strides: Pair, reach: Sequence[int]) -> tuple[Pair, Pair]:
    """Return the padding before and after, of each axis."""
    if isinstance(padding, str) and padding == "same":
        # ceil(size / stride) windows; an odd pixel of padding is added after.
        total = [
            max((-(-size // step) - 1) * step + length - size, 0)
            for size, step, length in zip(image, strides, reach, strict=True)
        ]
        return (total[0] // 2, total[1] // 2), (total[0] - total[0] // 2, total[1] - total[1] // 2)
    wanted = "an int, a pair, two pairs ((top, bottom), (left, right)), 'same' or 'valid'"
    if isinstance(padding, str):
        if padding == "valid":
            return (0, 0), (0, 0)
        raise WrongValue(f"{name}: padding is {shown(padding)}, expected {wanted}")
    try:
        sides = tuple(padding) if isinstance(padding, (tuple, list)) else (padding, padding)
        if len(sides) != 2:
            raise TypeError
        (top, bottom), (left, right) = (as_pair(side, name) for side in sides)
    except TypeError:
        raise WrongType(f"{name}: padding is {shown(padding)}, expected {wanted}") from None
    if not 0 <= min(top, bottom, left, right) <= max(top, bottom, left, right) <= MOST:
        raise WrongValue(f"{name}: padding is {shown(padding)}, expected 0 or more, at most 2^30")
    return (top, left), (bottom, right)


def check_channels(caller: str, window: Window, channels: int, filters: tuple[int, ...]) -> None:
    """Raise ValueError if filters (K, C / groups, R, S) do not fit images with these channels."""
    if channels != filters[1] * window.groups or filters[0] % window.groups:
        raise WrongValue(
            f"{caller}: x has {counted(channels, 'channel')} and w {filters[0]} filters of {filters[1]} with "
            f"{counted(window.groups, 'group')}, expected channels / groups in each filter"
        )
