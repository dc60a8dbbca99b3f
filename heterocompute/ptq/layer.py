"""One layer rounded, and compared with plain rounding: shared by `quantize` and `quantize_checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..arrays.quantized import QuantizedArray
from ..base.errors import WrongType, shown
from ..formats import Format
from ..formats.base import or_words
from ..products.quantize import quantize
from .error import layer_error
from .gptq import Options, rounded_layer
from .hessian import Hessian

Array = np.ndarray[Any, Any]
OPTIONS = ("order", "scales", "damping", "sweeps", "refit")


class Layer(NamedTuple):
    """A rounded weight, its plain rounding, and ``tokens damping dead before after``: SQNR in dB of both."""

    q: QuantizedArray
    plain: QuantizedArray
    report: dict[str, Any]


def check_options(options: Mapping[str, Any], name: str, method: str = "gptq") -> Options:
    """Return options of a method for whole networks; errors name the calling function."""
    if unknown := sorted({*options} - {*OPTIONS}):
        raise WrongType(f"{name}: there is no option {shown(unknown[0])}, expected {or_words(OPTIONS)}")
    return Options.of(**options, method=method)


def round_layer(x: Array, h: Hessian, fmt: Format, axes: tuple[int, ...], options: Options) -> Layer:
    """Round a checked weight under its inputs.

    Parameters
    ----------
    axes : tuple of int
        The reduction axes, not negative.
    """
    found, plain = rounded_layer(x, h, fmt, axes, options), quantize(x, fmt, axes)
    before, after = (layer_error(x, q, h).output_db for q in (plain, found.q))
    report = {"tokens": h.tokens, "damping": found.damping, "dead": found.dead, "before": before, "after": after}
    return Layer(found.q, plain, report)
