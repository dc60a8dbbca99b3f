"""Elements as sentences write them."""

from __future__ import annotations

import re
from functools import lru_cache

from ...base.errors import WrongValue, shown
from ..base import optional
from .element import Element
from .floats import Minifloat, PowersOfTwo
from .integers import Integer, Logs
from .levels import Levels, levels_named
from .tapered import Posit, Takum

FLOAT = r"(u)?e([1-8])m([0-9]{1,2})(?:b(-?[0-9]{1,3}))?(ieee|fnuz|fn|finite)?(ns)?"
_INTEGER = r"(u)?int([0-9]{1,2})(?:f([0-9]{1,2}))?(full)?"
_OTHERS = r"ternary|binary|e8m0|posit[0-9]\.[0-9]|takum[0-9]{1,2}|log[0-9]-[0-9]{1,4}|binary[0-9]p[0-9][su][ef]"


def uncounted(pattern: str) -> str:
    """Return a pattern whose groups are not counted."""
    return re.sub(r"\((?!\?)", "(?:", pattern)


@lru_cache(maxsize=256)
def element(text: str) -> Element:
    """Return the element of a text, such as ``"e3m4fnuz"``, ``"int4f2"`` or ``"posit8.1"``.

    Raises
    ------
    ValueError
        The text is no element.

    Examples
    --------
    >>> from heterocompute.formats.elements.text import element
    >>> element("e4m3b11fnuz").bias, element("ternary").values
    (11, (-1.0, 0.0, 1.0))
    """
    found = element_or_none(text)
    if found is None or str(found) != text:
        usual = "" if found is None else f"; the nearest is {shown(str(found))}"
        raise WrongValue(
            f"element: {shown(text[:64])} is not an element, expected one such as 'e3m4', 'int12', 'uint4', 'ternary', "
            f"'posit8.1' or 'log5-3'{usual}"
        )
    return found


def element_or_none(text: str) -> Element | None:
    if text == "e8m0":  # without a sign, unlike the floats of this pattern
        return PowersOfTwo()
    match = re.fullmatch(FLOAT, text)
    if match:
        unsigned, exponent, mantissa, bias, specials, flat = match.groups()
        return Minifloat(int(exponent), int(mantissa), optional(bias), specials, flat is None, unsigned is None)
    match = re.fullmatch(_INTEGER, text)
    if match:
        unsigned, bits, fraction, full = match.groups()
        return Integer(int(bits), unsigned is None, full is not None, int(fraction or 0))
    known = levels_named(text)
    if known is not None:
        return known
    if text in ("ternary", "binary"):
        return Levels.ternary() if text == "ternary" else Levels.binary()
    match = re.fullmatch(r"posit([0-9])\.([0-9])", text)
    if match:
        return Posit(int(match[1]), int(match[2]))
    match = re.fullmatch(r"takum([0-9]{1,2})", text)
    if match:
        return Takum(int(match[1]))
    match = re.fullmatch(r"log([0-9])-([0-9]{1,4})", text)
    if match:
        return Logs(int(match[1]), int(match[2]))
    match = re.fullmatch(r"binary([0-9])p([0-9])([su])([ef])", text)
    if match:  # the names of the interim report of P3109
        bits, precision, signed = int(match[1]), int(match[2]), match[3] == "s"
        exponent = bits - precision + (not signed)
        return Minifloat(exponent, precision - 1, None, "p3109" if match[4] == "e" else "p3109f", True, signed)
    return None


ELEMENTS = rf"{uncounted(FLOAT)}|{uncounted(_INTEGER)}|{_OTHERS}"
