"""Shapes of layers: checks of inputs, and the output size of a window."""

from __future__ import annotations

from typing import Any

from ...base.errors import WrongValue, shown

Shape = tuple[int, ...]
Pair = int | tuple[int, int]


def pair(value: Pair) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


def want_image(layer: object, shape: Shape, channels: int | None) -> None:
    name = type(layer).__name__
    if len(shape) != 3:
        raise WrongValue(f"{name}: input is {shown(shape)}, expected (channels, height, width), without a batch")
    if channels is not None and shape[0] != channels:
        raise WrongValue(f"{name}: input is {shown(shape)}, which has {shape[0]} channels, expected {channels}")


def want_last(layer: object, shape: Shape, width: int) -> None:
    """Raise ValueError if the last axis has another size."""
    if not shape or shape[-1] != width:
        raise WrongValue(f"{type(layer).__name__}: input is {shown(shape)}, expected {width} as its last axis")


def window(layer: Any, shape: Shape, dilation: Pair, ceil_mode: bool = False) -> tuple[int, int]:
    """Return output height and width of a layer with a kernel_size, a stride and a padding."""
    found = []
    places = zip(
        shape[1:], pair(layer.kernel_size), pair(layer.stride), pair(layer.padding), pair(dilation), strict=True
    )
    for size, kernel, stride, padding, step in places:
        room = size + 2 * padding - step * (kernel - 1) - 1
        # A window that would begin in the padding after the input is left out, as in torch. One that is larger than the
        # whole input still counts once, if it may go beyond the end.
        count = (room + (stride - 1 if ceil_mode else 0)) // stride + 1
        if ceil_mode and (count - 1) * stride >= size + padding:
            count -= 1
        if count < 1:
            raise WrongValue(
                f"{type(layer).__name__}: a window of {step * (kernel - 1) + 1} does not fit on "
                f"{size} + 2 x {padding} of padding"
            )
        found.append(count)
    return found[0], found[1]
