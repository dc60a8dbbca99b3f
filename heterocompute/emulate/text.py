"""Emulations as texts in studies and networks: an accumulator, or an instruction."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ..base.errors import WrongType, WrongValue, shown
from ..base.texts import near_words
from ..base.values import as_int
from ..formats import Format, format as parse_format
from ..products.quantize import quantize
from .model import FLOATS, INSTRUCTIONS
from .product import matmul

_INTEGERS = [f"int{bits}-{way}" for bits in range(2, 64) for way in ("sat", "wrap")]
_OTHERS = ["int32", *FLOATS, "float64", *INSTRUCTIONS]
_CHOICES = [f"{name}+{kind}" for name, one in INSTRUCTIONS.items() for kind in one.accumulators if one.accumulators[1:]]
_NAMES = [*_OTHERS, *_CHOICES, *_INTEGERS]
_WIDTHS = range(2, 17)
_CONVERSION = re.compile(r"(.+)\+(mitchell|hybrid:[0-9]{1,2})")


def parse(emulate: str) -> dict[str, Any]:
    """Return the arguments of `matmul` for an emulation string.

    Parameters
    ----------
    emulate : str
        The name of an accumulator; the suffix ``-p8`` rounds products of integer scales to 8 bits. The last suffix
        ``+mitchell`` or ``+hybrid:n`` is a conversion of `matmul`. Or one of `INSTRUCTIONS`; the suffix ``+fp16`` names
        its accumulator, if it has several.

    Returns
    -------
    dict

    Raises
    ------
    ValueError
        The emulation string is unknown; the message names the nearest.
    TypeError
        emulate is not a str.

    Examples
    --------
    >>> import heterocompute as hc
    >>> hc.emulate.parse("int24-sat-p8"), hc.emulate.parse("hmma")
    ({'accumulator': 'int24-sat', 'scale_product_bits': 8}, {'instruction': 'hmma'})
    >>> hc.emulate.parse("int24-sat+hybrid:2")
    {'accumulator': 'int24-sat', 'conversion': 'hybrid:2'}
    """
    if not isinstance(emulate, str):
        raise WrongType(f"emulate: {shown(emulate)} is of type {type(emulate).__name__}, expected a str")
    if converted := _CONVERSION.fullmatch(emulate):
        options = parse(converted[1])
        if "instruction" in options or options["accumulator"] in FLOATS:
            raise WrongValue(
                f"emulate: {shown(emulate)} has a conversion, expected it after {_INTEGERS[0]} to {_INTEGERS[-1]}, "
                "int32 or float64"
            )
        return {**options, "conversion": converted[2]}
    name, _, width = re.sub(r"-p([0-9]{1,3})$", r" \1", emulate).partition(" ")
    if name in INSTRUCTIONS and not width:
        return {"instruction": name}
    if name in _CHOICES and not width:
        instruction, _, accumulator = name.partition("+")
        return {"instruction": instruction, "accumulator": accumulator}
    if name in _NAMES and not width:
        return {"accumulator": name}
    if name in ("int32", *_INTEGERS) and int(width or 0) in _WIDTHS:
        return {"accumulator": name, "scale_product_bits": int(width)}
    for nearest in near_words(name.lower(), _NAMES[::-1]):
        if width and nearest in ("int32", *_INTEGERS):
            nearest += f"-p{min(max(int(width), _WIDTHS[0]), _WIDTHS[-1])}"
        raise WrongValue(f"emulate: {shown(emulate)} is not a known emulation; the nearest is {shown(nearest)}")
    raise WrongValue(
        f"emulate: {shown(emulate)} is not a known emulation, expected {', '.join(_OTHERS)}, or {_INTEGERS[0]} to "
        f"{_INTEGERS[-1]}"
    )


def accumulator_bits(emulate: str) -> int:
    """Return the bits of the accumulator of an emulation; an instruction has the first of its accumulators."""
    options = parse(emulate)
    name = options.get("accumulator") or INSTRUCTIONS[options["instruction"]].accumulators[0]
    return int("".join(filter(str.isdigit, name.partition("-")[0])))


def accepts(emulate: str, activations: Format | str | None, weights: Format | str | None, length: int = 64) -> bool:
    """Tell whether `matmul` supports these operands, by trying it with rows of zeros.

    Parameters
    ----------
    emulate : str
        As accepted by `parse`.
    activations, weights : Format, str or None
        Formats of the operands; None is float32.
    length : int
        Length of a row. For log numbers an integer accumulator must hold as many products as a group has.

    Returns
    -------
    bool

    Raises
    ------
    ValueError
        The emulation or the format is unknown.

    Examples
    --------
    >>> import heterocompute as hc
    >>> hc.emulate.accepts("int16-sat", "int8", "vsq4-g16-s4"), hc.emulate.accepts("int16-sat", None, "int4")
    (True, False)
    """
    options = parse(emulate)
    formats = [None if fmt is None else parse_format(fmt) for fmt in (activations, weights)]
    zeros = np.zeros((1, as_int(length, "emulate.accepts: length", 0, 1 << 24)), np.float32)
    try:
        a, b = (zeros if fmt is None else quantize(zeros, fmt) for fmt in formats)
        matmul(a, b.T, **options)
    except (ValueError, TypeError):
        return False
    return True
