"""The block formats of ggml: a float16 scale for 32 values, or for 256 with small integers for each 16 or 32."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from .base import Format, StoredRules


class Kind(NamedTuple):
    """The layout of a block.

    Attributes
    ----------
    number : int
        The kind's number in the C core.
    bits : int
        Bits of a code.
    signed : bool
        Whether codes are two's complement; otherwise they start at 0.
    group, block : int
        Values that share a scale, and values per block.
    scale_bits : int
        Bits of the integer scales of a block's groups; 0: a group is a block, with a float16 scale.
    has_minimum : bool
        Whether a group has a minimum, stored like its scale.
    has_levels : bool
        Whether codes are indices of 16 levels.
    """

    number: int
    bits: int
    signed: bool
    group: int
    block: int
    scale_bits: int = 0
    has_minimum: bool = False
    has_levels: bool = False


KINDS = {
    "q4_0": Kind(0, 4, True, 32, 32),
    "q4_1": Kind(1, 4, False, 32, 32, has_minimum=True),
    "q5_0": Kind(2, 5, True, 32, 32),
    "q5_1": Kind(3, 5, False, 32, 32, has_minimum=True),
    "q8_0": Kind(4, 8, True, 32, 32),
    "q2_k": Kind(5, 2, False, 16, 256, 4, has_minimum=True),
    "q3_k": Kind(6, 3, True, 16, 256, 6),
    "q4_k": Kind(7, 4, False, 32, 256, 6, has_minimum=True),
    "q5_k": Kind(8, 5, False, 32, 256, 6, has_minimum=True),
    "q6_k": Kind(9, 6, True, 16, 256, 8),
    "iq4_nl": Kind(10, 4, False, 32, 32, has_levels=True),
    "iq4_xs": Kind(11, 4, False, 32, 256, 6, has_levels=True),
    "tq1_0": Kind(12, 2, True, 256, 256),
    "tq2_0": Kind(13, 2, True, 256, 256),
}


@dataclass(frozen=True)
class GGML(Format):
    """ggml blocks of 32 or 256 values, including K-quants, as in llama.cpp and GGUF files.

    Parameters
    ----------
    type : {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", \
           "tq1_0", "tq2_0"}
        ggml's name of the block.
    bits, group, block : int
        Bits of a code, values per scale, and values per block. Rows hold whole blocks. Not arguments.

    Raises
    ------
    ValueError
        The type is unknown.
    TypeError
        The type is not a str.

    Notes
    -----
    ggml, src/ggml-common.h and src/ggml-quants.c (https://github.com/ggml-org/ggml).

    Examples
    --------
    >>> from heterocompute.formats import GGML
    >>> str(GGML("q4_k")), GGML("q4_k").group, GGML("q4_k").block
    ('q4_k', 32, 256)
    """

    type: str = "q4_k"
    bits: int = field(init=False, repr=False, compare=False)
    group: int = field(init=False, repr=False, compare=False)
    block: int = field(init=False, repr=False, compare=False)

    family: ClassVar[str] = "ggml"
    description: ClassVar[str] = "blocks of ggml: a float16 for 32 values, or for 256 and integer scales below it"
    examples: ClassVar[tuple[str, ...]] = tuple(KINDS)

    def __post_init__(self) -> None:
        self._check_word("type", *KINDS)
        for name in ("bits", "group", "block"):
            object.__setattr__(self, name, getattr(self.kind, name))

    def __str__(self) -> str:
        return self.type

    @classmethod
    def _parse(cls, text: str) -> GGML | None:
        return cls(text) if text in KINDS else None

    @property
    def kind(self) -> Kind:
        """Return the description of the block's parts."""
        return KINDS[self.type]

    @property
    def is_ternary(self) -> bool:
        """Return whether the codes are -1, 0 and 1."""
        return self.type in ("tq1_0", "tq2_0")

    @property
    def unit(self) -> int:
        """Return the number of values per block."""
        return self.block

    @property
    def element_dtype(self) -> str | None:
        if self.kind.has_levels or self.bits not in (2, 4, 8):
            return None
        return f"{'' if self.kind.signed else 'u'}int{self.bits}"

    def core_params(self) -> tuple[int, ...]:
        """Return (bits, group, number of the type).

        Returns
        -------
        tuple of int
        """
        return (self.bits, self.group, self.kind.number)

    def stored_rules(self) -> StoredRules:
        """Return rules for components: q8_0 has no code -128, ternary types no -2; float16 scales may be negative.

        Returns
        -------
        StoredRules
        """
        return StoredRules(
            unused_code=0x80 if self.type == "q8_0" else 2 if self.is_ternary else None,
            padding=0 if self.kind.signed else None,
            negative=True,
        )
