"""Products with rotated arrays: the other operand is rotated in the call, then the stored codes are multiplied.

x w^T = (x R)(w R)^T,   R: the rotation of the format of w, R R^T = I
"""

from __future__ import annotations

from typing import Any

from ...arrays.dense import as_array
from ...arrays.quantized import QuantizedArray
from ...arrays.rotated import RotatedArray
from ...base.errors import WrongValue


def alike(caller: str, a: Any, b: Any, words: tuple[str, str]) -> tuple[Any, Any]:
    """Return the operands of ``a @ b``, at least one of them rotated, as the stored codes and what multiplies them.

    Parameters
    ----------
    caller : str
        The function that errors name.
    words : (str, str)
        Its names of the operands.

    Raises
    ------
    ValueError
        One operand is rotated and the other is quantized without this rotation.
    """
    if isinstance(a, RotatedArray) and isinstance(b, RotatedArray):
        mine, theirs = ((one.block, one.format.seed) for one in (a, b))
        if mine != theirs:
            raise WrongValue(
                f"{caller}: {words[0]} is rotated as {a.format} in blocks of {a.block} and {words[1]} as {b.format} in "
                f"blocks of {b.block}, expected the same block and seed"
            )
        return a.source, b.source
    if isinstance(b, RotatedArray):
        x = _dense(caller, a, words[0], words[1], b)
        fits = bool(x.ndim) and x.shape[-1] == b.shape[max(b.ndim - 2, 0)] and b.axis == (max(b.ndim - 2, 0),)
        return b.rotated(x, x.ndim - 1, f"{caller}: {words[0]}") if fits else x, b.source  # else errors of the product
    x, along = _dense(caller, b, words[1], words[0], a), 0
    along = max(x.ndim - 2, 0)
    fits = bool(x.ndim) and x.shape[along] == a.shape[-1] and a.axis == (a.ndim - 1,)
    return a.source, a.rotated(x, along, f"{caller}: {words[1]}") if fits else x


def rotated_images(x: Any, w: RotatedArray, groups: object, layout: object) -> tuple[Any, QuantizedArray]:
    """Return the images of a convolution with their channels rotated, and the stored filters."""
    images = _dense("conv2d", x, "x", "w", w)
    if w.axis != (2, 3, 1):
        raise WrongValue(f"conv2d: w is quantized along axis {w.axis}, expected (2, 3, 1) for {w.format}")
    if groups != 1:
        raise WrongValue(f"conv2d: groups is {groups}, expected 1 with filters in {w.format}")
    along = 3 if layout == "NHWC" else 1
    fits = images.ndim == 4 and images.shape[along] == w.shape[1]
    return w.rotated(images, along, "conv2d: x") if fits else images, w.source


def _dense(caller: str, value: Any, word: str, other: str, rotated: RotatedArray) -> Any:
    if isinstance(value, QuantizedArray):
        raise WrongValue(
            f"{caller}: {word} is {value.format} and {other} is {rotated.format}, expected a dense {word}, or one "
            "rotated alike"
        )
    return as_array(value, f"{caller}: {word}")
