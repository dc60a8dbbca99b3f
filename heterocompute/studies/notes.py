"""Sentences on tensors that do not suit a format: few values per scale, or groups that do not divide the rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ..arrays.components import bits_of_long_rows, component_layout
from ..base.texts import counted, quoted
from ..formats import Format, is_function, unrotated

FEWEST = 8  # values per scale: below, a float32 scale takes 4 or more bits of each value
PADDING = 1.05  # times the bits of rows of whole groups: above this, a tensor is named
SHOWN = 3


def notes_on(
    shapes: Mapping[str, Sequence[int]], axes: Mapping[str, Sequence[int]], formats: Mapping[str, Iterable[Format]]
) -> list[str]:
    """Return at most one sentence for each of the two reasons, naming the tensors that it costs most.

    Parameters
    ----------
    shapes, axes : mapping of str to tuple of int
        Of the tensors by name. The axes are the reduction axes.
    formats : mapping of str to iterable of Format
        The formats of each tensor.
    """
    few: dict[str, tuple[float, str]] = {}
    padded: dict[str, tuple[float, str]] = {}
    for name, shape in shapes.items():
        axis = tuple(axes[name])
        length, size = math.prod(shape[i] for i in axis), math.prod(shape)
        rows = size // length if length else 0
        for fmt in formats[name] if rows else ():
            if is_function(fmt):
                continue
            parts = component_layout(unrotated(fmt), shape, axis)
            bits = _bits(parts, size)
            scales = math.prod(parts["scales"][1]) if "scales" in parts else 1
            if size < FEWEST * scales:
                words = f"{size / scales:.3g} per scale in {fmt}, {_instead(bits, bits_of_long_rows(fmt))}"
                few[name] = max(few.get(name, (0.0, "")), (bits, words))
            elif fmt.group and length > fmt.group and length % fmt.group:
                whole = -(-length // fmt.group) * fmt.group
                usual = _bits(component_layout(unrotated(fmt), (rows, whole), (1,)), rows * whole)
                if bits > PADDING * usual:
                    words = f"{length} to {whole} values in {fmt}, {_instead(bits, usual)}"
                    padded[name] = max(padded.get(name, (0.0, "")), (bits / usual, words))
    return [
        *_sentence(f"Scales serve fewer than {FEWEST} values in", few),
        *_sentence("Rows are padded to whole groups in", padded),
    ]


def _bits(parts: Mapping[str, tuple[object, tuple[int, ...]]], size: int) -> float:
    return 8 * sum(dtype.itemsize * math.prod(shape) for dtype, shape in parts.values()) / size  # type: ignore[attr-defined]


def _instead(bits: float, usual: float) -> str:
    return f"{bits:.2f} bits per value instead of {usual:.2f}"


def _sentence(what: str, found: Mapping[str, tuple[float, str]]) -> list[str]:
    if not found:
        return []
    worst = sorted(found, key=lambda name: -found[name][0])[:SHOWN]
    more = ", ..." if len(found) > SHOWN else ""
    named = ", ".join(f"{quoted(name)} ({found[name][1]})" for name in worst)
    return [f"{what} {counted(len(found), 'tensor')}: {named}{more}"]
