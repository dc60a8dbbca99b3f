"""Rounding with a gradient for arrays on a CUDA device, for formats whose gradient passes everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arrays.device import as_device, is_on_device
from ..formats import Format, has_pattern
from ..products.device import fake_quantize_on_device, round_by_chance_on_device
from .passing import bounds_of
from .stochastic import levels_of

__all__ = ["rounded_on_device"]


def rounded_on_device(
    w: Any, fmt: Format, axis: Any, clip: Any, rounding: str, seed: int, scale: Any
) -> tuple[Any, Callable[[Any], Any]]:
    """Round an array on a device, as `heterocompute.training.fake_quantize`."""
    base, by_chance = fmt.base if has_pattern(fmt) else fmt, rounding == "stochastic"
    if scale is not None or bounds_of(base, clip) is not None or (by_chance and base is not fmt):
        what = "scale is given" if scale is not None else f"fmt is {fmt}"
        raise NotImplementedError(
            f"fake_quantize: {what}, expected a format whose gradient passes everywhere and no scale on a CUDA device: "
            "use interop.torch, or the CPU"
        )
    if by_chance:
        y = round_by_chance_on_device(w, fmt, axis, clip, levels_of(fmt), seed)
    else:
        y = fake_quantize_on_device(w, fmt, axis, clip, None)

    def back(g: Any) -> Any:
        shape = as_device(g, "back: g").shape if is_on_device(g) else getattr(g, "shape", None)
        if shape is None or tuple(shape) != tuple(y.shape):
            raise ValueError(f"back: g has shape {shape}, expected {tuple(y.shape)}")
        return g

    return y, back
