"""Rotated formats: blocks of values are multiplied by a Hadamard matrix before they are rounded to any format."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard

from ..base.errors import WrongType, WrongValue, shown
from .base import Format, StoredRules, parse_family
from .functions import is_function
from .sparse import OnBase

LEAST, MOST = 16, 256  # values of a block
BLOCKS = (16, 32, 64, 128, 256)
MAX_SEED = 2**32 - 1
TAKEN_BY = (
    "quantize, matmul, linear, conv2d, prepack, study, ptq.search, language models and their KV caches, and convert of "
    "PyTorch modules"
)
_SUFFIX = re.compile(r"had([1-9][0-9]*)?(?:-s(0|[1-9][0-9]*))?")


def parse_rotation(text: str) -> tuple[int | None, int | None] | None:
    """Return block and seed of a suffix such as ``"had64-s1"``, each None if it is not given, or None.

    Returns
    -------
    (int or None, int or None) or None

    Examples
    --------
    >>> parse_rotation("had"), parse_rotation("had64-s1"), parse_rotation("2:4")
    ((None, None), (64, 1), None)
    """
    match = _SUFFIX.fullmatch(text)
    if match is None:
        return None
    block, seed = (None if part is None else int(part[:20]) for part in match.groups())
    return block, seed


@dataclass(frozen=True)
class Rotated(OnBase):
    """A format whose arrays are rotated in blocks before they are rounded.

        x' = x S M,    S: signs of the seed, M: Sylvester's matrix of each block, +-1 / sqrt(block)

    Parameters
    ----------
    base : Format
        Format of the rotated values.
    block : int, optional
        Values along the last reduction axis that are rotated together: 16, 32, 64, 128 or 256. Default: the largest of
        these that divides the axis. A KV cache rotates the whole head.
    seed : int, optional
        Flip signs before the rotation, with this seed as in `heterocompute.ptq.hadamard`. Default: none.

    Attributes
    ----------
    bits, group
        As in `base`.

    Raises
    ------
    ValueError
        block or seed is invalid, or base is a function of values.
    TypeError
        base is not a Format, has a pattern, or is rotated.

    Examples
    --------
    >>> import heterocompute as hc
    >>> str(hc.Rotated(hc.Int(4, group=32))), str(hc.Rotated(hc.MX("fp4"), block=128, seed=1))
    ('int4-g32+had', 'mxfp4+had128-s1')
    """

    block: int | None = None
    seed: int | None = None

    rotates: ClassVar[bool] = True
    examples: ClassVar[tuple[str, ...]] = ("int4-g32+had", "mxfp4+had", "int8+had16", "vsq4-g16-s4+had64-s1")

    def __post_init__(self) -> None:
        if not isinstance(self.base, Format) or isinstance(self.base, OnBase):
            raise WrongType(f"Rotated: base is {shown(self.base)}, expected a format without pattern and rotation")
        if is_function(self.base):
            raise WrongValue(f"Rotated: {self.base} is a function of values, expected a format with codes")
        self._set_integer("block", *(range(one, one + 1) for one in BLOCKS), optional=True)
        self._set_integer("seed", range(MAX_SEED + 1), optional=True)

    def __str__(self) -> str:
        block = "" if self.block is None else str(self.block)
        return str(self.base) + "+had" + block + ("" if self.seed is None else "-s" + str(self.seed))

    @classmethod
    def _parse(cls, text: str) -> Rotated | None:
        base_text, plus, suffix = text.rpartition("+")
        found = parse_rotation(suffix) if plus else None
        if found is None:
            return None
        base = parse_family(base_text)
        return cls(base, *found) if base is not None and str(base) == base_text else None

    def block_of(self, width: int, name: str) -> int:
        """Return the block of an axis of this width.

        Parameters
        ----------
        width : int
        name : str
            What errors name.

        Returns
        -------
        int

        Raises
        ------
        ValueError
            No block divides the width, or the given one does not.

        Examples
        --------
        >>> import heterocompute as hc
        >>> hc.format("int4+had").block_of(576, "w"), hc.format("int4+had16").block_of(576, "w")
        (64, 16)
        """
        found = min(width & -width, MOST) if self.block is None else self.block
        if width and (found < LEAST or width % found):
            wanted = f"a multiple of {LEAST if self.block is None else self.block}"
            raise WrongValue(f"{name}: the rotated axis has {width} values, expected {wanted} for {self}")
        return found or LEAST

    def stored_rules(self) -> StoredRules:
        """Return the rules for the components of `base`.

        Returns
        -------
        StoredRules
        """
        return self.base.stored_rules()

    def stored_length(self, length: int) -> int:
        """Return the number of stored values of a run.

        Parameters
        ----------
        length : int

        Returns
        -------
        int
        """
        return self.base.stored_length(length)

    def core_params(self) -> tuple[int, ...]:
        """Raise ValueError: the C core stores what is rotated already."""
        raise self.refusal("format")

    def refusal(self, argument: str) -> WrongValue:
        """Return the error of an operation that does not rotate; `argument` is its argument."""
        return WrongValue(
            f"{argument} is {shown(str(self))}, which rotates values before they are rounded, expected a format "
            f"without rotation; {TAKEN_BY} take rotated formats"
        )


def unrotated(fmt: Any) -> Any:
    """Return the format of the stored codes: `base` of a rotated format, any other value unchanged.

    Examples
    --------
    >>> import heterocompute as hc
    >>> unrotated(hc.format("int8+had")), unrotated(None)
    (Int(bits=8, group=None, symmetric=True, scale='f32'), None)
    """
    return fmt.base if isinstance(fmt, Rotated) else fmt


def is_rotated(fmt: Any) -> TypeGuard[Rotated]:
    """Tell whether a format rotates values before it rounds them.

    Parameters
    ----------
    fmt : object

    Examples
    --------
    >>> import heterocompute as hc
    >>> is_rotated(hc.format("int8+had")), is_rotated(hc.format("int8"))
    (True, False)
    """
    return isinstance(fmt, Rotated)
