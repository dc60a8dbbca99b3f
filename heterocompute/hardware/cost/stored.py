"""Bytes of a weight matrix in a format, with all components, and the effect of its sparsity on rates."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ... import _heterocompute as _core
from ...base.errors import WrongType, WrongValue, shown
from ...formats import Format, format as parse_format, is_rotated, unrotated
from ..chips.chip import dtype_bits
from ..network.graph import Flow
from ..network.loops import matmuls

PATTERN = re.compile(r"(?:(?P<base>.+)\+)?(?P<n>\d{1,2}):(?P<m>\d{1,2})")


@dataclass(frozen=True)
class Stored:
    """The storage of weights in memory.

    Attributes
    ----------
    text : str
    format : Format or None
        None: plain values of `plain_bits`.
    plain_bits : int
    pattern : (int, int) or None
        N of every M along the reduction axis are kept.
    """

    text: str
    format: Format | None
    plain_bits: int
    pattern: tuple[int, int] | None = None

    def bits(self, rows: int, columns: int) -> int:
        """Return the bits of a matrix (rows, reduction length): codes, scales, row padding and sparse indices."""
        nonzeros = columns
        index = 0
        if self.pattern is not None:
            n, m = self.pattern
            nonzeros = -(-columns // m) * n
            index = rows * 8 * -(-nonzeros * math.ceil(math.log2(m)) // 8)  # a row starts on a byte
        if self.format is None:
            return rows * nonzeros * self.plain_bits + index
        return _packed_bits(self.format, rows, nonzeros) + index

    def of(self, name: str) -> Stored:
        """Return the storage of the weights of a layer."""
        return self

    @property
    def density(self) -> float:
        """Return the share of weights that is kept."""
        return 1.0 if self.pattern is None else self.pattern[0] / self.pattern[1]

    @property
    def doubles_the_rate(self) -> bool:
        """Return whether matrix units with 2:4 sparsity run it at twice the rate."""
        return self.pattern == (2, 4)


@dataclass(frozen=True)
class Mixed(Stored):
    """The storage of weights of several formats, by patterns of layers' names."""

    choose: Callable[[str], Stored] = lambda _: Stored("", None, 0)

    def of(self, name: str) -> Stored:
        return self.choose(name)


def _mixed(formats: Mapping[str, Any], dtype: str, name: str) -> Mixed:
    from ...files.recipes import SKIP  # files reads counts, too
    from ...files.selection import FirstMatch  # files reads counts, too

    plain = stored(None, dtype)
    match = FirstMatch(
        {key: plain if fmt in (None, SKIP) else stored(fmt, dtype, name) for key, fmt in formats.items()}
    )
    text = " ".join(f"{key}={SKIP if fmt is None else fmt}" for key, fmt in formats.items())
    return Mixed(text, None, plain.plain_bits, None, lambda layer: match(layer) or plain)


def stored(
    fmt: str | Format | Mapping[str, Any] | None, dtype: str, name: str = "format", rotates: bool = False
) -> Stored:
    """Return the storage of weights in a format.

    Parameters
    ----------
    fmt : str, Format, mapping or None
        A format or its text; a pattern such as ``"2:4"`` or ``"int8+2:4"``; a plain type such as ``"int4"`` of the
        device; None is `dtype`. A mapping has patterns of layers' names; the first match applies.
    dtype : str
        The type of plain weights.
    name : str, optional
        The argument that errors name.
    rotates : bool, optional
        A format with ``+had`` has the bytes of its codes; otherwise it is refused.

    Raises
    ------
    TypeError
        Not a format or its text.
    ValueError
        No such format.
    """
    bits = dtype_bits(dtype)
    if fmt is None:
        return Stored(dtype, None, bits)
    if isinstance(fmt, Mapping):
        return _mixed(fmt, dtype, name)
    base, n, m = getattr(fmt, "base", None), getattr(fmt, "n", None), getattr(fmt, "m", None)
    if getattr(fmt, "is_plain", False):  # a pattern without a format: the values have their original dtype
        base = None
    if isinstance(fmt, str):
        match = PATTERN.fullmatch(fmt.strip())
        if match:
            base, n, m = match["base"], int(match["n"]), int(match["m"])
    if n is not None and m is not None:
        if not 1 <= n <= m <= 32:
            raise WrongValue(f"format is {fmt!s}: the pattern is {n}:{m}, expected 1 <= N <= M <= 32")
        under = stored(base, dtype)
        return Stored(str(fmt), under.format, under.plain_bits, (n, m))
    if isinstance(fmt, str) and fmt in ("fp32", "fp16", "bf16", "fp64", "tf32"):
        return Stored(fmt, None, dtype_bits(fmt))
    if not isinstance(fmt, (str, Format)):
        raise WrongType(f"{name} is {shown(fmt)}, expected a format or its text")
    found = parse_format(fmt)
    if is_rotated(found) and not rotates:
        raise found.refusal(name)
    return Stored(str(found), unrotated(found), bits)


def stored_cache(fmt: str | Format | None, dtype: str) -> Stored:
    """Return the storage of keys and values, whose rows are heads of tokens.

    Parameters
    ----------
    fmt : str, Format or None
        As in `stored`; rotated heads have the bytes of their codes.
    dtype : str
        The type without a format.

    Raises
    ------
    ValueError
        No such format, or it has a pattern.
    """
    found = stored(fmt, dtype, "kv_cache", rotates=True)
    if found.pattern is not None:
        raise WrongValue(f"kv_cache is {found.text}, expected a format without a pattern")
    return found


def weight_matrix(flow: Flow, batch: int = 1) -> tuple[int, int] | None:
    """Return (rows, reduction length) of a node's weights, as formats quantize them; None if it has none.

    Parameters
    ----------
    batch : int, optional
        Number of samples, which decides how many experts are reached.

    Returns
    -------
    (int, int) or None
    """
    products = matmuls(flow, batch)
    if products is None or not (flow.layer.weight_params or getattr(flow.layer, "shared", False)):
        return None
    groups, _, n, k = products
    return groups * n, k


def _packed_bits(fmt: Format, rows: int, columns: int) -> int:
    params: tuple[Any, ...] = (fmt.core_family, *fmt.core_params())
    layout = _core.layout(params, (rows, columns), (1,))
    return sum(8 * dtype.itemsize * math.prod(shape) for dtype, shape, _ in layout.values())
