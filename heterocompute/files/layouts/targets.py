"""Representation of a weight in a layout: the supported formats, the nearest of them, and the tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays.bits import rows_per_chunk, unpack
from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue
from ...base.texts import quoted
from ...formats import GGML, MX, NF4, NVFP4, Affine, Float, Format, Int
from ..own import OURS
from . import scaled
from .configuration import KEY
from .forms import CHUNK, forms, has_zero_points, in_form, joined
from .layout import METADATA, Layout, Target
from .linear import Array, Codes
from .reading import sound
from .table import LAYOUTS, WRITTEN
from .weight import Weight, of_blocks

TARGETS: dict[str, Layout] = {OURS.name: OURS, **{name: LAYOUTS[name] for name in WRITTEN}}


def targets_of(layout: Layout, name: str, weight: Weight) -> list[Target]:
    """Return the possible targets of a weight in a layout, the nearest first; nothing is converted yet."""
    wanted: list[Target] = []
    if weight.blocks is not None:
        grouped = scaled.group_format_of(weight.blocks)
        wanted = [scaled.blocks_of(weight.blocks), *([] if grouped is None else [grouped])]
    elif weight.array is not None:
        fmt, columns = weight.array.format, weight.matrix[1]
        wanted = [*forms(fmt, columns)]
        if (blocks := scaled.blocks_in(weight.array, weight.shape[-2])) is not None:
            wanted.append(scaled.blocks_of(blocks))
        if fmt.form.minima and not has_zero_points(weight.array):
            integers = [
                one for one in wanted if isinstance(one, Int) and refusal_of(layout, name, weight.shape, one) is None
            ]
            # the last one gives the reason if no format represents the weight
            minima = [one for one in wanted if not isinstance(one, scaled.Blocks) and one.form.minima]
            wanted = [*minima, *integers[:1]]
        if layout.reaches_lowest and isinstance(fmt, Int) and not fmt.symmetric and _is_middle(weight.array):
            wanted.insert(0, Int(fmt.bits, fmt.group, True, fmt.scale))
    return [one for one in wanted if refusal_of(layout, name, weight.shape, one) is None]


def refusal_of(layout: Layout, name: str, shape: tuple[int, ...], target: Target) -> str | None:
    """Return the reason why a layout does not support a weight, None if it does."""
    try:
        layout.check(name, shape, target)
    except ValueError as error:
        return str(error).removeprefix("save: ").removeprefix(f"tensor {quoted(name)}: ")
    return None


def _is_middle(q: QuantizedArray) -> bool:
    fmt: Any = q.format
    groups = -(-q.shape[1] // min(fmt.group or q.shape[1], q.shape[1]))
    return bool((unpack(q.components["zero_points"], fmt.bits, groups) == 1 << (fmt.bits - 1)).all())


def converted(layout: Layout, weight: Weight, target: Target) -> Weight:
    """Return a weight as one of `targets_of`; ValueError if the target cannot represent its values."""
    if isinstance(target, scaled.Blocks):
        blocks = weight.blocks
        if blocks is None:
            assert weight.array is not None
            blocks = scaled.blocks_in(weight.array, weight.shape[-2])
        assert blocks is not None
        return replace(of_blocks(blocks, weight.shape, weight.order), turned=weight.turned)
    if weight.blocks is not None:
        whole = scaled.grouped(weight.blocks)
        assert whole is not None
        q, order = whole, weight.order
    else:
        assert weight.array is not None
        q, order = in_form(weight.array, target, layout.reaches_lowest), weight.order
    if order is not None and not layout.order_name:
        if getattr(target, "group", None) not in (None, q.shape[1]):
            raise WrongValue(f"groups of columns that are not contiguous (act-order) have no place in {layout.name}: "
                             "gptq and compressed-tensors have one")  # fmt: skip
        q, order = _in_place(q, order), None
    return Weight(str(q.format), weight.shape, q.nbytes, q, order, turned=weight.turned)


def _in_place(q: QuantizedArray, order: Array) -> QuantizedArray:
    """Return an array with its columns, sorted by group before, in their original order; groups are not kept."""
    fmt: Any = q.format
    codes = Codes(q.components["codes"], fmt.bits, q.shape[1]).of_columns(np.argsort(order))
    return QuantizedArray({**q.components, "codes": codes.packed}, fmt, q.shape, (1,), q.source_dtype)


def rounded(layout: Layout, weight: Weight, fmt: Format) -> Weight:
    """Return the values of a weight rounded to a format, as the programs of the layout do."""
    rows, columns = weight.matrix
    if fmt.splits_into_rows and rows and columns:
        step = rows_per_chunk(rows, columns, CHUNK)
        pieces = (layout.rounded(weight.rows(i, min(i + step, rows)), fmt, (1,)) for i in range(0, rows, step))
        q = joined(pieces, rows)
    else:
        q = layout.rounded(weight.rows(0, rows).reshape(rows, columns), fmt, (1,))
    return Weight(str(fmt), weight.shape, q.nbytes, q, turned=weight.turned)


def names_of(layout: Layout, name: str, shape: Sequence[int], is_blocks: bool) -> list[str]:
    """Return the names under which a layout stores a weight: its own, or those of the experts of a stack.

    Expert 2 of ``NA.ME.weight`` is ``NA.2.ME.weight``. `is_blocks`: its format is `scaled.Blocks`.
    """
    whole = layout.stacks_blocks if is_blocks else layout.stacks
    if whole or len(shape) == 2:
        return [name]
    above, dot, own = name.removesuffix(".weight").rpartition(".")
    return [f"{above}{dot}{i}.{own}.weight" for i in range(shape[0])]


def experts_of(layout: Layout, name: str, weight: Weight) -> list[tuple[str, Weight]]:
    """Return names and weights: the weight itself, or each expert of a stack if the layout has only matrices."""
    names = names_of(layout, name, weight.shape, weight.blocks is not None)
    if names == [name]:
        return [(name, weight)]
    count, rows, columns = weight.shape
    experts = []
    for i, own in enumerate(names):
        some = slice(i * rows, (i + 1) * rows)
        array = None if weight.array is None else weight.array[some]
        blocks = None if weight.blocks is None else scaled.some_rows(weight.blocks, some)
        one = Weight(weight.declared, (rows, columns), weight.nbytes // count, array, weight.order, blocks)
        experts.append((own, one))
    return experts


def parts_of(layout: Layout, name: str, weight: Weight) -> dict[str, Array]:
    """Return the tensors that represent a weight in a layout of tensors."""
    parts: dict[str, Array] = {}
    for own, one in experts_of(layout, name, weight):
        parts |= _parts_of(layout, own, one)
    return parts


def _parts_of(layout: Layout, name: str, weight: Weight) -> dict[str, Array]:
    if weight.blocks is not None:
        return layout.block_tensors(name, weight.shape, weight.blocks)
    q = weight.array
    assert q is not None
    parts = layout.tensors(name, q if weight.order is None else _in_place(q, weight.order))
    if weight.order is not None:
        fmt: Any = q.format
        index = np.empty(q.shape[1], np.int32)
        index[weight.order] = np.arange(q.shape[1]) // min(fmt.group or q.shape[1], q.shape[1])
        parts[f"{name.removesuffix('.weight')}.{layout.order_name}"] = index
    return parts if len(weight.shape) == 2 or not layout.stacks else layout.stacked(name, parts, weight.shape)


@dataclass(frozen=True)
class Written:
    """The tensors that represent a weight in a layout of tensors, by the name of the weight or of its experts."""

    layout: Layout
    experts: list[tuple[str, Any, dict[str, Array]]]  # name, configuration, tensors

    @property
    def parts(self) -> dict[str, Array]:
        """All tensors by name."""
        return {key: part for _, _, parts in self.experts for key, part in parts.items()}

    def read_back(self) -> Iterator[Weight]:
        """Yield what a program reads from these tensors: one weight, or one per expert."""
        for name, config, parts in self.experts:
            prefix = name.removesuffix(".weight")
            yield sound(prefix, self.layout.read(prefix, parts, config))


def written(layout: Layout, name: str, weight: Weight) -> Written:
    """Return the tensors that represent a weight in a layout of tensors."""
    experts = []
    for own, one in experts_of(layout, name, weight):
        described, parts = (
            layout.described({own: target_of(one)}, [], one.order is not None),
            _parts_of(layout, own, one),
        )
        about = {key: (part.dtype.name, part.shape) for key, part in parts.items()}
        more = {"metadata": described[METADATA](about, [])} if METADATA in described else {}
        experts.append((own, {**described[KEY], **more}, parts))
    return Written(layout, experts)


def target_of(weight: Weight) -> Target:
    """Return the target that a weight already has."""
    if weight.blocks is not None:
        return scaled.blocks_of(weight.blocks)
    assert weight.array is not None
    return weight.array.format


def nearest(layout: Layout, name: str, weight: Weight) -> Format | None:
    """Return the format that is nearest to a weight among those that a layout supports."""
    columns = weight.matrix[1]
    fmt: Any = None if weight.array is None else weight.array.format
    bits = 8 if weight.blocks is not None else (4 if fmt is None else fmt.bits)
    floats: list[Format] = [Float("fp8_e4m3fn", scaled="row")] if weight.blocks is not None else []
    if isinstance(fmt, MX | NVFP4):
        floats += [MX("fp4"), NVFP4()]
    usual = next((one for one in (128, 64, 32) if columns % one == 0), None)
    groups = [fmt.group if isinstance(fmt, Int | Affine | GGML) else usual, usual, 32]
    symmetric = (True, False) if isinstance(fmt, Int) and fmt.symmetric else (False, True)
    integers: list[Format] = [
        Int(n, group, flag, "f16")
        for n in (bits, *((4, 8) if bits <= 4 else (8, 4)))
        if n <= 8
        for group in groups
        for flag in symmetric
    ]
    blocks: list[Format] = [GGML(type) for type in (f"q{bits}_k", f"q{bits}_0", "q8_0") if type in GGML.examples]
    last: list[Format] = [NF4(64), MX("fp4"), NVFP4(), Float("fp8_e4m3fn", scaled="tensor"), *blocks]
    for one in (*floats, *(blocks if layout.has_blocks else integers), *last):
        if refusal_of(layout, name, weight.shape, one) is None:
            return one
    return None


def why_not(layout: Layout, name: str, weight: Weight, tried: Sequence[str]) -> str:
    """Return the reason why a layout cannot represent a weight."""
    if tried:
        return tried[0]
    if weight.array is None and weight.blocks is None:
        if "+had" in weight.declared:
            return f"conversions do not keep {weight.declared}, whose values are rotated: copy the file, or round again"
        return f"no format here holds {weight.declared}"
    target = target_of(weight)
    declared = refusal_of(layout, name, weight.shape, target)
    return f"{layout.name} has no place for {target}" if declared is None or "for which" in declared else declared
