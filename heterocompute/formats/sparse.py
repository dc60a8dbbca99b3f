"""N:M patterns on any number format: N of every M values along a row are kept."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard

from ..base.errors import WrongType, WrongValue, shown
from .base import Format, StoredRules, parse_family
from .blocks import GGML
from .floats import Float
from .form import StoredForm
from .functions import is_function

MAX_M = 32
_PATTERN = re.compile(r"([1-9][0-9]?):([1-9][0-9]?)")


def parse_pattern(text: str) -> tuple[int, int] | None:
    """Return (N, M) of a text such as ``"2:4"``, or None; 1 <= N <= M <= 32.

    Returns
    -------
    (int, int) or None

    Examples
    --------
    >>> parse_pattern("2:4"), parse_pattern("5:4")
    ((2, 4), None)
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        return None
    n, m = int(match[1]), int(match[2])
    return (n, m) if n <= m <= MAX_M else None


@dataclass(frozen=True)
class OnBase(Format):
    """A format that stores what it makes of an array in another format, `base`."""

    base: Format

    @property
    def bits(self) -> int:  # type: ignore[override]
        return self.base.bits

    @property
    def group(self) -> int | None:  # type: ignore[override]
        return self.base.group

    @property
    def form(self) -> StoredForm:
        """Return the form of `base`."""
        return self.base.form

    @property
    def learns_codebook(self) -> bool:
        """Return False: a codebook is learned and trained for the values themselves."""
        return False

    @property
    def splits_into_rows(self) -> bool:
        """Return the value of `base`."""
        return self.base.splits_into_rows

    @property
    def shared_rows(self) -> int:
        """Return the value of `base`."""
        return self.base.shared_rows


@dataclass(frozen=True)
class Sparse(OnBase):
    """A format whose arrays keep N of every M values along the last reduction axis; all others are zero.

    Parameters
    ----------
    base : Format
        Format of the nonzeros. Its groups run over the nonzeros only.
    n, m : int
        1 <= n <= m <= 32. A group of `base` holds a multiple of n values.

    Attributes
    ----------
    bits, group
        As in `base`.

    Raises
    ------
    ValueError
        The pattern is invalid, or does not match the group.
    TypeError
        base is not a Format, or has a pattern.

    Notes
    -----
    Mishra et al., "Accelerating Sparse Deep Neural Networks", 2021 (arXiv 2104.08378), describes 2:4.

    Examples
    --------
    >>> import heterocompute as hc
    >>> str(hc.Sparse(hc.Int(8), 2, 4)), str(hc.Sparse(hc.Float("fp32"), 1, 8))
    ('int8+2:4', '1:8')
    """

    n: int
    m: int

    examples: ClassVar[tuple[str, ...]] = (
        "2:4", "1:4", "3:7", "int8+2:4", "int4-g32-f16+2:4", "vsq4-g16-s4+2:4", "int8+1:8", "fp16+2:4",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if not isinstance(self.base, Format) or isinstance(self.base, Sparse):
            raise WrongType(f"Sparse: base is {shown(self.base)}, expected a format without a pattern")
        if self.base.rotates:
            raise WrongType(f"Sparse: base is {self.base}, expected a format without a rotation")
        self._set_integer("n", range(1, MAX_M + 1))
        self._set_integer("m", range(1, MAX_M + 1))
        if self.n > self.m:
            raise WrongValue(f"Sparse: n is {self.n} and m is {self.m}, expected 1 <= n <= m <= {MAX_M}")
        if is_function(self.base):
            raise WrongValue(
                f"Sparse: {self.base} is a function of values and takes no pattern; prune the values first"
            )
        if isinstance(self.base, GGML):
            raise WrongValue(f"Sparse: {self.base} holds whole blocks of values and takes no pattern")
        if self.base.group is not None and self.base.group % self.n:
            raise WrongValue(
                f"Sparse: {self.base} has groups of {self.base.group} values, not a multiple of the {self.n} kept "
                f"of every {self.m}"
            )

    @property
    def is_plain(self) -> bool:
        """Return whether the nonzeros are unquantized float32."""
        return self.base == Float("fp32")

    def __str__(self) -> str:
        pattern = f"{self.n}:{self.m}"
        return pattern if self.is_plain else str(self.base) + "+" + pattern  # torch.compile compares no f-string

    @classmethod
    def _parse(cls, text: str) -> Sparse | None:
        base_text, plus, pattern_text = text.rpartition("+")
        pattern = parse_pattern(pattern_text)
        if pattern is None:
            return None
        if not plus:
            return cls(Float("fp32"), *pattern)
        base = parse_family(base_text)
        return cls(base, *pattern) if base is not None and str(base) == base_text else None

    def stored_rules(self) -> StoredRules:
        """Return the rules for the components of `base`.

        Returns
        -------
        StoredRules
        """
        return self.base.stored_rules()

    def stored_length(self, length: int) -> int:
        """Return the number of nonzeros of a run of this length.

        Parameters
        ----------
        length : int

        Returns
        -------
        int
        """
        return -(-length // self.m) * self.n

    def core_params(self) -> tuple[int, ...]:
        """Return the parameters of `base`.

        Returns
        -------
        tuple of int
        """
        return self.base.core_params()


def has_pattern(fmt: Any) -> TypeGuard[Sparse]:
    """Tell whether a format keeps N of every M values, and has a base.

    Parameters
    ----------
    fmt : object
        A format; anything else has no pattern.

    Examples
    --------
    >>> import heterocompute as hc
    >>> has_pattern(hc.format("int8+2:4")), has_pattern(hc.format("int8"))
    (True, False)
    """
    return isinstance(fmt, Sparse)
