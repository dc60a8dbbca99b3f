"""Log numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from .base import MAX_GROUP, Format, StoredRules, optional


@dataclass(frozen=True)
class Log(Format):
    """Log numbers: a sign and an exponent in steps of 1 / gamma octave below the largest magnitude.

    Parameters
    ----------
    bits : int
        Bits of a code, 2 to 8: a sign and ``2**(bits - 1) - 1`` magnitudes. One exponent code means zero.
    gamma : int
        Steps per octave, 1, 2, 4, 8, 16 or 32. The base of the logarithm is ``2**(1 / gamma)``.
    group : int or None
        Values along the quantized axis that share a scale. None: one scale per row.

    Raises
    ------
    ValueError
        The format does not support a parameter.
    TypeError
        A parameter has the wrong type; bool is not accepted as an integer.

    Notes
    -----
    Miyashita, Lee and Murmann, "Convolutional Neural Networks using Logarithmic Data Representation", 2016
    (arXiv 1603.01025); gamma as in Zhao et al., "LNS-Madam: Low-Precision Training in Logarithmic Number System
    using Multiplicative Weight Update", 2021 (arXiv 2106.13914).

    Examples
    --------
    >>> from heterocompute.formats import Log
    >>> str(Log(bits=4, gamma=1, group=16))
    'log4-1-g16'
    """

    bits: int = 8
    gamma: int = 8
    group: int | None = None

    family: ClassVar[str] = "log"
    description: ClassVar[str] = "log numbers: sign and exponent in steps of 1/gamma octave, one code for zero"
    # fmt: off
    examples: ClassVar[tuple[str, ...]] = (
        "log8-8", "log8-1", "log8-32", "log7-16", "log6-4", "log5-2", "log4-2", "log4-1", "log3-1", "log2-1",
        "log8-8-g64", "log6-8-g32", "log5-4-g5", "log4-1-g16", "log3-32-g1", "log2-2-g5",
    )
    # fmt: on

    _grammar: ClassVar[re.Pattern[str]] = re.compile(r"log([0-9]{1,12})-([0-9]{1,12})(?:-g([0-9]{1,12}))?")

    def __post_init__(self) -> None:
        self._set_integer("bits", range(2, 9))
        self._set_integer("gamma", *(range(gamma, gamma + 1) for gamma in (1, 2, 4, 8, 16, 32)))
        self._set_integer("group", range(1, MAX_GROUP + 1), optional=True)

    def __str__(self) -> str:
        return f"log{self.bits}-{self.gamma}" + ("" if self.group is None else f"-g{self.group}")

    @classmethod
    def _parse(cls, text: str) -> Log | None:
        match = cls._grammar.fullmatch(text)
        if match is None:
            return None
        bits, gamma, group = match.groups()
        return cls(int(bits), int(gamma), optional(group))

    def core_params(self) -> tuple[int, ...]:
        """Return (bits, group or 0, gamma).

        Returns
        -------
        tuple of int
        """
        return (self.bits, self.group or 0, self.gamma)

    def stored_rules(self) -> StoredRules:
        """Return rules for components: padding is any code, since a group of zeros has code 0 and a scale of 0.

        Returns
        -------
        StoredRules
        """
        return StoredRules(padding=None)
