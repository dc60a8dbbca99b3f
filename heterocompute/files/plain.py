"""Plain types: floats of 16 and 32 bits that a checkpoint stores with their dtype, not as packed codes."""

from __future__ import annotations

from dataclasses import dataclass

from ..arrays.dense import FLOATS
from ..base.errors import WrongValue, shown
from ..formats import Format, format as parse_format

SHORT_NAMES = {
    "f32": "float32", "fp32": "float32", "float": "float32", "f16": "float16", "fp16": "float16", "half": "float16",
    "bf16": "bfloat16", "f64": "float64", "fp64": "float64", "double": "float64",
}  # fmt: skip
NAMES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Plain:
    """A plain type, with NumPy's name of its dtype."""

    dtype: str

    def __str__(self) -> str:
        return NAMES[self.dtype]


def plain_dtype(text: str) -> str:
    """Return NumPy's name of a dtype of floats, from that or a short one.

    Raises
    ------
    ValueError
        Another text.

    Examples
    --------
    >>> plain_dtype("bf16")
    'bfloat16'
    """
    found = SHORT_NAMES.get(text, text)
    if found not in FLOATS:
        raise WrongValue(f"dtype is {shown(text)}, expected {', '.join(FLOATS)}")
    return found


def plain_of(wanted: object) -> Plain | None:
    """Return the plain type of a format or of its text, None where codes are stored for it.

    Examples
    --------
    >>> plain_of("fp16"), plain_of("half"), plain_of("int8")
    (Plain(dtype='float16'), Plain(dtype='float16'), None)
    """
    text = str(wanted) if isinstance(wanted, (str, Format)) else ""
    dtype = SHORT_NAMES.get(text, text)
    return Plain(dtype) if dtype in NAMES else None


def parse_type(wanted: str | Format | Plain) -> Format | Plain:
    """Return the plain type or the format of a text; a plain type is returned unchanged.

    Raises
    ------
    ValueError
        Another text.
    TypeError
        Neither a text nor a format.

    Examples
    --------
    >>> parse_type("bf16"), str(parse_type("int4-g32"))
    (Plain(dtype='bfloat16'), 'int4-g32')
    """
    return wanted if isinstance(wanted, Plain) else plain_of(wanted) or parse_format(wanted)
