"""Values that the components of a quantized array must not have: files are checked for them before any product."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..base import runtime
from ..base.errors import WrongValue, shown
from ..base.float_env import counts_subnormals
from ..formats import Format, has_pattern
from .dense import FLOATS
from .metadata import check_metadata

Array = np.ndarray[Any, Any]

UNUSED, PADDING = 1, 2  # hc_code_fault


def check_source(shape: Sequence[int], axis: Sequence[int], dtype: str) -> None:
    """Raise ValueError where no array of this shape and dtype is quantized along this axis.

    Parameters
    ----------
    shape, axis : sequence of int
        Not negative.
    """
    if dtype not in FLOATS:
        raise WrongValue(f"unknown source dtype {shown(dtype)}, expected {', '.join(FLOATS)}")
    if not axis or len(set(axis)) != len(axis) or max(axis) >= len(shape):
        raise WrongValue(f"axis {shown(list(axis))} does not fit shape {shown(list(shape))}")


@counts_subnormals
def wrong_part(
    parts: Mapping[str, Array], fmt: Format, shape: Sequence[int], axis: Sequence[int]
) -> tuple[str, str] | None:
    """Return the first component with a value that its format never stores, and that value.

    Parameters
    ----------
    parts : mapping of str to ndarray
        Of the dtypes and shapes that `component_layout` says.

    Returns
    -------
    (str, str) or None
    """
    for key, part in parts.items():
        if key == "values":  # unchanged, including infinities
            continue
        if key == "codebook":
            if not np.isfinite(part).all():
                return key, "holds a value that is not finite"
        elif part.dtype.kind == "f" and part.size and not _is_sound(part, fmt.stored_rules().negative):
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


def _is_sound(part: Array, may_be_negative: bool) -> bool:
    """Tell whether all floats are finite, and nonnegative unless negative ones are allowed."""
    if part.dtype == np.float16:  # NumPy's minimum of float16 is slow
        bits = part.view(np.uint16)
        finite = bool((bits & np.uint16(0x7FFF)).max() < 0x7C00)
        return finite and (may_be_negative or not (bits > 0x8000).any())
    least, most = part.min(), part.max()  # these propagate NaN
    return bool(-math.inf < least <= most < math.inf) and (may_be_negative or bool(least >= 0))


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
    unused, padding = (-1 if code is None else code for code in (rules.unused_code, rules.padding))
    points = parts.get("zero_points") if padded > length else None  # without groups one of a row, and no padding
    fault = _core.code_fault(
        runtime.run(),
        np.ascontiguousarray(parts["codes"]),
        fmt.bits,
        runs,
        length,
        padded,
        unused,
        padding,
        None if points is None else np.ascontiguousarray(points),
        padded // group,
    )
    if fault == UNUSED:
        return f"holds the code {unused:#x} ({unused - (1 << fmt.bits)} if signed), which {fmt} never uses"
    return "has padding that is not 0" if fault == PADDING else None
