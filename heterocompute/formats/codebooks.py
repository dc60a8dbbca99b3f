"""Formats with a table of values: NF4 with 16 fixed values, and codebooks with learned ones."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from ..base.errors import WrongValue
from .base import MAX_GROUP, Format, StoredRules, optional


@dataclass(frozen=True)
class NF4(Format):
    """NormalFloat: 16 fixed levels, the quantiles of a normal distribution, times the largest magnitude of a group.

    Parameters
    ----------
    group : int
        Values along the quantized axis that share a scale.
    double : bool
        Double quantization: the scales are stored as 8-bit integers, with one float32 per 256 scales.
    bits : int
        4; not an argument.

    Raises
    ------
    ValueError
        The format does not support a parameter.
    TypeError
        A parameter has the wrong type; bool is not accepted as an integer.

    Notes
    -----
    Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs", NeurIPS 2023 (arXiv 2305.14314), section 3
    and appendix E.

    Examples
    --------
    >>> from heterocompute.formats import NF4
    >>> str(NF4(group=64, double=True))
    'nf4-g64-dq'
    """

    group: int = 64
    double: bool = False
    bits: int = field(default=4, init=False, repr=False, compare=False)

    family: ClassVar[str] = "nf4"
    description: ClassVar[str] = "16 fixed levels, quantiles of a normal distribution, one scale for a group"
    examples: ClassVar[tuple[str, ...]] = ("nf4-g64", "nf4-g16", "nf4-g5", "nf4-g64-dq", "nf4-g5-dq")

    _grammar: ClassVar[re.Pattern[str]] = re.compile(r"nf4-g([0-9]{1,12})(-dq)?")

    def __post_init__(self) -> None:
        self._set_integer("group", range(1, MAX_GROUP + 1))
        self._check_flag("double")

    @property
    def splits_into_rows(self) -> bool:
        """Return True if single rows can be decoded: not with `double`, whose blocks of 256 scales cross rows."""
        return not self.double

    def __str__(self) -> str:
        return f"nf4-g{self.group}{'-dq' if self.double else ''}"

    @classmethod
    def _parse(cls, text: str) -> NF4 | None:
        match = cls._grammar.fullmatch(text)
        return None if match is None else cls(int(match[1]), match[2] is not None)

    def stored_rules(self) -> StoredRules:
        """Return the rules that files are checked against: padding has the code of the value nearest to 0.

        Returns
        -------
        StoredRules
        """
        return StoredRules(padding=None)

    def core_params(self) -> tuple[int, ...]:
        """Return (4 bits, group, double).

        Returns
        -------
        tuple of int
        """
        return (self.bits, self.group, int(self.double))


@dataclass(frozen=True)
class Codebook(Format):
    """Learned codebooks: 2^bits values with the least squared error, found by k-means.

    Parameters
    ----------
    bits : int
        Bits of a code, 1 to 8.
    group : int or None
        Values along the quantized axis that are first divided by their largest magnitude. None: no scaling.
    per : {"row", "tensor"}
        Values that share a codebook.
    dim : int
        Number of consecutive values per code: 1, 2, 4 or 8 (product quantization). It must divide the group. With 1
        the codebook is optimal; otherwise breathing k-means starts from k-means++ with a fixed seed.

    Raises
    ------
    ValueError
        The format does not support a parameter.
    TypeError
        A parameter has the wrong type; bool is not accepted as an integer.

    Notes
    -----
    Han, Mao, Dally, "Deep Compression", ICLR 2016 (arXiv 1510.00149), section 3. The paper uses Lloyd's iteration for
    k-means; this format uses the optimum.

    Examples
    --------
    >>> from heterocompute.formats import Codebook
    >>> str(Codebook(bits=4, group=64, per="tensor")), str(Codebook(bits=8, dim=2))
    ('cb4-g64-tensor', 'cb8-d2')
    """

    bits: int = 4
    group: int | None = None
    per: str = "row"
    dim: int = 1

    family: ClassVar[str] = "codebook"
    description: ClassVar[str] = "learned codebooks, one for a row or the array: optimal k-means, product quantization"
    # fmt: off
    examples: ClassVar[tuple[str, ...]] = (
        "cb4", "cb1", "cb2", "cb3", "cb7", "cb4-tensor", "cb2-tensor", "cb5-g64", "cb3-g5", "cb4-g64-tensor",
        "cb6-g5-tensor", "cb8-d2", "cb3-tensor-d4", "cb4-g16-d8", "cb2-g6-tensor-d2",
    )
    # fmt: on

    _grammar: ClassVar[re.Pattern[str]] = re.compile(
        r"cb([0-9]{1,12})(?:-g([0-9]{1,12}))?(-tensor)?(?:-d([0-9]{1,12}))?"
    )

    def __post_init__(self) -> None:
        self._set_integer("bits", range(1, 9))
        self._set_integer("group", range(1, MAX_GROUP + 1), optional=True)
        self._check_word("per", "row", "tensor")
        self._set_integer("dim", range(1, 3), range(4, 5), range(8, 9))
        if self.group is not None and self.group % self.dim:
            raise WrongValue(f"Codebook: group is {self.group}, expected a multiple of dim {self.dim}")

    @property
    def unit(self) -> int:
        """Return the number of values per code."""
        return self.dim

    def __str__(self) -> str:
        group = "" if self.group is None else f"-g{self.group}"
        suffixes = ("-tensor" if self.per == "tensor" else "") + ("" if self.dim == 1 else f"-d{self.dim}")
        return f"cb{self.bits}{group}{suffixes}"

    @classmethod
    def _parse(cls, text: str) -> Codebook | None:
        match = cls._grammar.fullmatch(text)
        if match is None:
            return None
        bits, group, tensor, dim = match.groups()
        return cls(int(bits), optional(group), "row" if tensor is None else "tensor", 1 if dim is None else int(dim))

    def stored_rules(self) -> StoredRules:
        """Return the rules that files are checked against: padding has the code of the value nearest to 0.

        Returns
        -------
        StoredRules
        """
        return StoredRules(padding=None)

    def core_params(self) -> tuple[int, ...]:
        """Return (bits, group or 0, one codebook for the tensor, dim).

        Returns
        -------
        tuple of int
        """
        return (self.bits, self.group or 0, int(self.per == "tensor"), self.dim)
