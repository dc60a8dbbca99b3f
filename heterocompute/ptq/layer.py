"""One layer rounded by a method, and compared with plain rounding: shared by `quantize` and `quantize_checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..arrays.quantized import QuantizedArray
from ..base.errors import WrongType, WrongValue, shown
from ..files.recipes import with_recipe
from ..formats import Format
from ..formats.base import or_words
from ..products.quantize import quantize
from .error import layer_error
from .gptq import rounded_layer
from .hessian import Hessian
from .methods import CALIBRATED, METHODS, by_method
from .options import Options

Array = np.ndarray[Any, Any]
OPTIONS = ("order", "scales", "damping", "sweeps", "refit", "accumulator", "activations", "tile", "shrinkage")


class Layer(NamedTuple):
    """A rounded weight, its plain rounding, and ``tokens damping dead before after``: SQNR in dB of both."""

    q: QuantizedArray
    plain: QuantizedArray
    report: dict[str, Any]


def check_options(options: Mapping[str, Any], name: str, method: str = "gptq") -> Options:
    """Return a method with its options for whole networks; errors name the calling function."""
    if method == "awq":
        raise WrongValue(
            f"{name}: method 'awq' moves scales into the layer before, which a dict of weights does not say; expected "
            f"{or_words(METHODS)}, or a torch.nn.Module and convert(method='awq')"
        )
    if method not in METHODS:
        raise WrongValue(f"{name}: method is {shown(method)}, expected {or_words(METHODS)}")
    if method not in CALIBRATED:
        if options:
            wanted = f"{or_words(CALIBRATED)}, with options such as {next(iter(options))}"
            raise WrongValue(f"{name}: method is {shown(method)}, expected {wanted}")
        return replace(Options.of(), method=method)
    if unknown := sorted({*options} - {*OPTIONS}):
        raise WrongType(f"{name}: there is no option {shown(unknown[0])}, expected {or_words(OPTIONS)}")
    return Options.of(**options, method=method)


def rounded_to(format: object, recipe: object) -> Any:
    """Return the format of a rounding with inputs, or the mapping of a recipe followed by it."""
    return with_recipe("int4-g32" if format is None and recipe is None else format, recipe)


def round_layer(x: Array, h: Hessian, fmt: Format, axes: tuple[int, ...], options: Options) -> Layer:
    """Round a checked weight by the method of `options`.

    Parameters
    ----------
    axes : tuple of int
        The reduction axes, not negative.
    """
    plain, damping, dead = quantize(x, fmt, axes), 0.0, 0
    if options.method in CALIBRATED:
        found = rounded_layer(x, h, fmt, axes, options)
        q, damping, dead = found.q, found.damping, found.dead
    else:
        q = plain if options.method == "rtn" else by_method(x, fmt, axes, options.method)
    before, after = (layer_error(x, one, h).output_db for one in (plain, q))
    return Layer(q, plain, {"tokens": h.tokens, "damping": damping, "dead": dead, "before": before, "after": after})
