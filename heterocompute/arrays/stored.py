"""What the components of a quantized array never hold: a file is checked for it before products believe them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base.float_env import counts_subnormals
from ..base.values import shown
from ..formats import Format, has_pattern
from .bits import unpack
from .dense import FLOATS
from .metadata import check_metadata

__all__ = ["check_source", "wrong_part"]

Array = np.ndarray[Any, Any]

_BLOCK = 1 << 20  # codes unpacked at a time


def check_source(shape: Sequence[int], axis: Sequence[int], dtype: str) -> None:
    """Raise ValueError where no array of this shape and dtype is quantized along this axis.

    Parameters
    ----------
    shape, axis : sequence of int
        Not negative.
    dtype : str
    """
    if dtype not in FLOATS:
        raise ValueError(f"unknown source dtype {shown(dtype)}, wanted {', '.join(FLOATS)}")
    if not axis or len(set(axis)) != len(axis) or max(axis) >= len(shape):
        raise ValueError(f"axis {shown(list(axis))} does not fit shape {shown(list(shape))}")


@counts_subnormals
def wrong_part(
    parts: Mapping[str, Array], fmt: Format, shape: Sequence[int], axis: Sequence[int]
) -> tuple[str, str] | None:
    """Return the first component that holds what its format never stores, and what that is.

    Parameters
    ----------
    parts : mapping of str to ndarray
        Of the dtypes and shapes that `component_layout` says.
    fmt : Format
    shape, axis : sequence of int

    Returns
    -------
    (str, str) or None
    """
    for key, part in parts.items():
        if key == "values":  # as they are, infinities and all
            continue
        if key == "codebook":
            if not np.isfinite(part).all():
                return key, "holds a value that is not finite"
        # minimum and maximum see NaN too; `not <=` is true for it
        elif part.dtype.kind == "f" and part.size and not -math.inf < part.min() <= part.max() < math.inf:
            return key, "holds a value that is negative or not finite"
        elif part.dtype.kind == "f" and part.size and part.min() < 0 and not fmt.stored_rules().negative:
            return key, "holds a value that is negative or not finite"
    if has_pattern(fmt):
        problem = check_metadata(parts["metadata"], fmt, shape, axis)
        if problem:
            return "metadata", f"holds {problem}"
        if fmt.is_plain:
            return None
    scales, largest = parts.get("scales"), fmt.stored_rules().largest_scale
    if scales is not None and scales.dtype == np.uint8 and np.any(scales > largest):
        return "scales", f"holds the byte {int(scales.max())}, which {fmt} never uses"
    wrong = _wrong_codes(parts, fmt, shape, axis)
    return None if wrong is None else ("codes", wrong)


def _wrong_codes(parts: Mapping[str, Array], fmt: Format, shape: Sequence[int], axis: Sequence[int]) -> str | None:
    """Find an unused code, or padding that does not decode to 0."""
    rules = fmt.stored_rules()
    if rules.unused_code is None and rules.padding is None:
        return None
    length = fmt.stored_length(shape[axis[-1]])
    runs = math.prod(shape[a] for a in axis[:-1])
    group = runs * length if fmt.group is None else min(fmt.group, length)
    if not parts["codes"].size or not group:
        return None
    whole = max(group, fmt.unit)
    padded = length if fmt.group is None else -(-length // whole) * whole
    count = runs * padded
    block = max(1, _BLOCK // count)
    for first in range(0, len(parts["codes"]), block):
        codes = unpack(parts["codes"][first : first + block], fmt.bits, count)
        if rules.unused_code is not None and np.any(codes == rules.unused_code):
            code = f"{rules.unused_code:#x} ({rules.unused_code - (1 << fmt.bits)} if signed)"
            return f"holds the code {code}, which {fmt} never uses"
        if padded == length or rules.padding is None:
            continue
        tails = codes.reshape(-1, runs, padded)[:, :, length:]
        zero: Any = rules.padding
        if "zero_points" in parts:
            points = unpack(parts["zero_points"][first : first + block], fmt.bits, runs * (padded // group))
            zero = points.reshape(-1, runs, padded // group)[:, :, -1:]
        if np.any(tails != zero):
            return "has padding that is not 0"
    return None
