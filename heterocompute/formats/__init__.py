"""Number formats as immutable values: their parameters and their texts, not the arithmetic of bits.

A family is one frozen dataclass derived from `Format`. Its `family` attribute registers it; `format`, `formats` and
everything that iterates over them (tests, study, command line) then include it.

Texts follow one grammar: the family with its bits, then suffixes in the order of the constructor's
arguments, e.g. ``int4-g32-asym-f16`` or ``vsq4u-g16-s4-tensor-refit``. Each format has exactly one text.
"""

from __future__ import annotations

import contextlib
import re
import sys
from itertools import permutations
from types import ModuleType

from ..base.errors import WrongType, WrongValue, shown
from ..base.texts import near_words
from .base import Format as Format, StoredRules as StoredRules, or_words, parse_family
from .blocks import GGML
from .codebooks import NF4, Codebook
from .defining import define, from_carried
from .elements import Integer, Levels, Minifloat
from .floats import ELEMENTS, FLOAT_NAMES, MX, NVFP4, Float
from .functions import Function as Function, is_function as is_function
from .integers import VSQ, Affine, Int
from .logs import Log
from .own import Own as Own, is_own as is_own
from .rotated import Rotated as Rotated, is_rotated as is_rotated, unrotated as unrotated
from .sparse import Sparse as Sparse, has_pattern as has_pattern, parse_pattern as parse_pattern

__all__ = [
    "GGML", "MX", "NF4", "NVFP4", "VSQ", "Affine", "Codebook", "Float", "Format", "Int", "Integer", "Levels", "Log",
    "Minifloat", "Rotated", "Sparse", "define", "format", "formats",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


def format(text: str | Format) -> Format:
    """Return the format with this format string; the inverse of ``str``.

    Parameters
    ----------
    text : str or Format
        Format string, such as ``"vsq4-g16-s4"``. A Format is returned unchanged. JSON of a definition, in which other
        programs carry a format of `define`, is read too.

    Returns
    -------
    Format

    Raises
    ------
    ValueError
        The format string is invalid; the message names similar format strings, if any. A family such as ``nf4`` or
        ``fp8`` is invalid, because a format string is complete.
    TypeError
        text is neither a str nor a Format.

    Examples
    --------
    >>> import heterocompute as hc
    >>> hc.format("int4-g128")
    Int(bits=4, group=128, symmetric=True, scale='f32')
    >>> hc.format("int4-g128") == hc.Int(4, group=128)
    True
    """
    if isinstance(text, Format):
        return text
    if not isinstance(text, str):
        kind = type(text).__name__
        raise WrongType(f"format: text is {shown(text)} of type {kind}, expected a str such as 'vsq4-g16-s4'")
    if not text.strip():
        raise WrongValue(
            f"format: {shown(text[:64])} is not a format: an empty text, expected one such as 'vsq4-g16-s4'"
        )
    if text.lstrip().startswith("{"):
        return from_carried(text)
    reason = ""
    nearest: list[str] = []
    try:
        found = _parse(text)
        if found is not None:
            if str(found) == text:
                return found
            nearest = [str(found)]
    except ValueError as error:
        reason = f" ({error})"
    if text.endswith("%"):
        raise WrongValue(
            f"format: {shown(text)} is not a format; a share of values that become zero is a pattern of prune"
        )
    nearest = nearest or _nearest(text)
    if nearest:
        words = f"{'the nearest is' if len(nearest) == 1 else 'it could be'} {or_words(map(repr, nearest))}"
        raise WrongValue(f"format: {shown(text)} is not a format{reason}; {words}")
    raise WrongValue(
        f"format: {shown(text)} is not a format{reason}; 'heterocompute formats' lists them, such as 'vsq4-g16-s4'"
    )


def formats() -> dict[str, str]:
    """Return every family of formats with its description.

    Returns
    -------
    dict of str to str

    Examples
    --------
    >>> from heterocompute.formats import formats
    >>> formats()["int"]
    'uniform integers, one scale for a row or a group, zero point or none'
    """
    return {cls.family: cls.description for cls in Format.families()}


class _Callable(ModuleType):
    """The name ``heterocompute.formats`` is both this module and the function in it."""

    def __call__(self) -> dict[str, str]:
        return formats()


sys.modules[__name__].__class__ = _Callable


def _parse(text: str) -> Format | None:
    return Sparse._parse(text) or Rotated._parse(text) or parse_family(text)


# Names of other programs, and the closest format. The activations of w8a8 are a separate argument.
OTHERS = {"half": "fp16", "w4a16": "int4-g128-f16", "w8a16": "int8", "w4a8": "vsq4-g16-s4", "w8a8": "int8"}
OTHERS |= {
    "f16": "fp16",
    "f32": "fp32",
    "single": "fp32",
    "fp8-e4m3": "fp8_e4m3fn",
    "mxfp4_e2m1": "mxfp4",
    "q8": "q8_0",
}


def _nearest(text: str) -> list[str]:
    if text.strip().lower() in OTHERS:
        return [OTHERS[text.strip().lower()]]
    plain = text[:64].strip().lower().replace(" ", "-").replace("bfloat", "bf").replace("float", "fp")
    plain = re.sub(r"-sym(metric)?(?=-|$)", "", plain)  # integers without -asym are symmetric
    candidates = [example for cls in Format.families() for example in cls.examples] + list(Sparse.examples)
    # Any group is valid, so an example with the requested group is nearer than the example itself.
    for group in re.findall(r"-g[0-9]+", plain)[:1]:
        candidates += [re.sub(r"-g[0-9]+", group, example) for example in candidates]
    # Correct suffixes in the wrong order or case are nearer than any example.
    for words in (plain, plain.replace("_", "-")):  # some names contain an underscore
        family, *suffixes = words.split("-")
        for order in permutations(suffixes[:5]):
            candidate = "-".join((family, *order))
            if _is_canonical(candidate):
                return [candidate]
    # A part of a name without options stands for all options; for other families the format with the usual parameters
    # is shown.
    usual = _defaults()
    whole = [name for name in (*FLOAT_NAMES, *(f"mx{element}" for element in ELEMENTS), *usual) if plain in name]
    begun = [name for name in whole if name.startswith(plain)]
    if len(plain) > 1 and whole:
        return begun or whole
    candidates = [candidate for candidate in candidates if _is_canonical(candidate)]
    longer = [candidate for candidate in candidates if plain and candidate.startswith(plain)]
    # The same text with another number of bits is shown, too.
    head = re.fullmatch(r"([a-z]+)([0-9]{1,2})(.*)", plain)
    if head and not longer:
        for bits in sorted(range(1, 25), key=lambda bits: abs(bits - int(head[2]))):
            if _is_canonical(f"{head[1]}{bits}{head[3]}"):
                return [f"{head[1]}{bits}{head[3]}"]
    for default in usual:
        if head and not head[3] and default.startswith(head[1] + "4"):
            return [default]
    return near_words(plain, longer or candidates) or longer[:1]


def _defaults() -> list[str]:
    found = []
    for cls in Format.families():
        with contextlib.suppress(TypeError):  # some need an argument
            found.append(str(cls()))
    return found


def _is_canonical(text: str) -> bool:
    try:
        return str(_parse(text)) == text
    except ValueError:
        return False
