"""Representation of a weight in a layout: the supported formats, the nearest of them, and the tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays.bits import rows_at_once, unpack
from ...arrays.components import entry_of
from ...arrays.layout import Entry
from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue
from ...base.texts import quoted
from ...formats import GGML, MX, NF4, NVFP4, Affine, Float, Format, Int
from ...products.quantize import quantize
from . import scaled
from .configuration import KEY
from .forms import AT_ONCE, forms, has_zero_points, in_form, joined
from .gguf.blocks import blocks_name
from .gguf.model import block_of
from .gguf.rounding import rounded as rounded_for_gguf
from .layout import LAYOUTS
from .linear import Array, Codes
from .onnx.matmul import operands
from .table import WRITTEN, described, weight_from
from .weight import Weight, of_blocks, turned_array

__all__ = ["OURS", "TARGETS", "Target", "config_in", "converted", "entry_in", "experts_of", "has_one_format",
           "names_of", "nearest", "parts_of", "refusal_of", "rounded", "target_of", "targets_of", "why_not",
           "written"]  # fmt: skip

OURS = "heterocompute"
TARGETS = (OURS, *WRITTEN)
LOWEST = ("gptq", "gptq-v1", "compressed-tensors", "mlx")  # layouts whose symmetric codes reach -2^(bits - 1)
Target = Format | scaled.Blocks


def has_one_format(layout: str) -> bool:
    """Tell whether a layout has one format for all weights of a file."""
    return (layout in LAYOUTS and not LAYOUTS[layout].has_several) or layout.startswith("onnx")


def targets_of(layout: str, name: str, weight: Weight) -> list[Target]:
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
        if layout in LOWEST and isinstance(fmt, Int) and not fmt.symmetric and _is_middle(weight.array):
            wanted.insert(0, Int(fmt.bits, fmt.group, True, fmt.scale))
    return [one for one in wanted if refusal_of(layout, name, weight.shape, one) is None]


def _is_middle(q: QuantizedArray) -> bool:
    fmt: Any = q.format
    groups = -(-q.shape[1] // min(fmt.group or q.shape[1], q.shape[1]))
    return bool((unpack(q.components["zero_points"], fmt.bits, groups) == 1 << (fmt.bits - 1)).all())


def refusal_of(layout: str, name: str, shape: tuple[int, ...], target: Target) -> str | None:
    """Return the reason why a layout does not support a weight, None if it does."""
    try:
        if layout in LAYOUTS:
            _check_layout(layout, name, shape, target)
        elif layout == "gguf":
            fmt: Any = target
            if isinstance(target, Int) or isinstance(target, scaled.Blocks) or blocks_name(target) is None:
                raise WrongValue(f"gguf has no place for {target}")
            if shape[-1] % block_of(fmt):
                raise WrongValue(f"rows of {shape[-1]} values, {fmt} has blocks of {block_of(fmt)}")
        elif layout != OURS:
            _refuse_onnx(layout, name, shape, target)
        elif isinstance(target, scaled.Blocks):
            raise WrongValue(f"no format here has the scales of {target}")
    except ValueError as error:
        return str(error).removeprefix("save: ").removeprefix(f"tensor {quoted(name)}: ")
    return None


def _refuse_onnx(layout: str, name: str, shape: tuple[int, ...], target: Target) -> None:
    if not isinstance(target, Int) or len(shape) != 2 or not name.endswith(".weight"):
        raise WrongValue(f"{layout} has no place for {target} of shape {shape}")
    if layout == "onnx":
        if target.bits not in (2, 4, 8):
            raise WrongValue(f"onnx has no place for {target}: int4-g32 or int8 is the nearest")
        return
    one = np.zeros((1, min(shape[1], 512)), np.float32)
    operands(name, quantize(one, target, 1))


def _check_layout(layout: str, name: str, shape: tuple[int, ...], target: Target) -> None:
    """Raise ValueError if a layout does not support a weight, a matrix or a stack of matrices."""
    found = LAYOUTS[layout]
    if found.only_stacks and len(shape) != 3:
        raise WrongValue(f"{layout} has stacks of experts (experts, out, in) alone, not {shape}")
    if len(shape) not in (2, 3) or 0 in shape:
        raise WrongValue(f"{layout} has matrices (out, in) and stacks of them, not {shape}")
    if isinstance(target, scaled.Blocks):
        if found.check_blocks is None:
            raise WrongValue(f"{layout} has no place for {target}")
        found.check_blocks(name, shape, target)
        return
    if found.depends_on_values is not None and found.depends_on_values(target):
        return
    rows = shape[0] * shape[1] if len(shape) == 3 and found.stacked is not None else shape[-2]
    found.layout_of(name, entry_of(target, (rows, shape[-1]), (1,), "float32"))
    if found.stacked is not None and found.check_stack is not None and len(shape) == 3:
        found.check_stack(name, shape, target)


def converted(layout: str, weight: Weight, target: Target) -> Weight:
    """Return a weight as one of `targets_of`; ValueError if the target cannot represent its values."""
    if isinstance(target, scaled.Blocks):
        blocks = weight.blocks
        if blocks is None:
            assert weight.array is not None
            blocks = scaled.blocks_in(weight.array, weight.shape[-2])
        assert blocks is not None
        return replace(of_blocks(blocks, weight.shape, weight.order), turned=weight.turned)
    if weight.blocks is not None:
        q, order = scaled.grouped(weight.blocks), weight.order
    else:
        assert weight.array is not None
        q, order = in_form(weight.array, target, layout in LOWEST), weight.order
    if order is not None and not (layout in LAYOUTS and LAYOUTS[layout].order_name):
        if getattr(target, "group", None) not in (None, q.shape[1]):
            raise WrongValue(f"groups of columns that are not contiguous (act-order) have no place in {layout}: "
                             "gptq and compressed-tensors have one")  # fmt: skip
        q, order = _in_place(q, order), None
    return Weight(str(q.format), weight.shape, q.nbytes, q, order, turned=weight.turned)


def _in_place(q: QuantizedArray, order: Array) -> QuantizedArray:
    """Return an array with its columns, sorted by group before, in their original order; groups are not kept."""
    fmt: Any = q.format
    codes = Codes(q.components["codes"], fmt.bits, q.shape[1]).of_columns(np.argsort(order))
    return QuantizedArray({**q.components, "codes": codes.packed}, fmt, q.shape, (1,), q.source_dtype)


def rounded(layout: str, weight: Weight, fmt: Format) -> Weight:
    """Return the values of a weight rounded to a format, for GGUF as ggml does."""
    rows, columns = weight.matrix
    encode = rounded_for_gguf if layout == "gguf" else quantize
    if fmt.splits_into_rows and rows and columns:
        step = rows_at_once(rows, columns, AT_ONCE)
        pieces = (encode(weight.rows(i, min(i + step, rows)), fmt, (1,)) for i in range(0, rows, step))
        q = joined(pieces, rows)
    else:
        q = encode(weight.rows(0, rows).reshape(rows, columns), fmt, (1,))
    return Weight(str(fmt), weight.shape, q.nbytes, q, turned=weight.turned)


def names_of(layout: str, name: str, shape: Sequence[int], is_blocks: bool) -> list[str]:
    """Return the names under which a layout stores a weight: its own, or those of the experts of a stack.

    Expert 2 of ``NA.ME.weight`` is ``NA.2.ME.weight``. `is_blocks`: its format is `scaled.Blocks`.
    """
    found = LAYOUTS.get(layout)
    if found is None or len(shape) == 2 or (found.stacks_blocks if is_blocks else found.stacked is not None):
        return [name]
    above, dot, own = name.removesuffix(".weight").rpartition(".")
    return [f"{above}{dot}{i}.{own}.weight" for i in range(shape[0])]


def experts_of(layout: str, name: str, weight: Weight) -> list[tuple[str, Weight]]:
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
        one = Weight(weight.said, (rows, columns), weight.nbytes // count, array, weight.order, blocks)
        experts.append((own, one))
    return experts


def parts_of(layout: str, name: str, weight: Weight) -> dict[str, Array]:
    """Return the tensors that represent a weight in a layout of `LAYOUTS`."""
    parts: dict[str, Array] = {}
    for own, one in experts_of(layout, name, weight):
        parts |= _parts_of(layout, own, one)
    return parts


def _parts_of(layout: str, name: str, weight: Weight) -> dict[str, Array]:
    found = LAYOUTS[layout]
    if weight.blocks is not None:
        assert found.parts_of_blocks is not None
        return found.parts_of_blocks(name, weight.shape, weight.blocks)
    q = weight.array
    assert q is not None
    parts = found.parts_of(name, q if weight.order is None else _in_place(q, weight.order))
    if weight.order is not None:
        fmt: Any = q.format
        index = np.empty(q.shape[1], np.int32)
        index[weight.order] = np.arange(q.shape[1]) // min(fmt.group or q.shape[1], q.shape[1])
        parts[f"{name.removesuffix('.weight')}.{found.order_name}"] = index
    return parts if len(weight.shape) == 2 or found.stacked is None else found.stacked(name, parts, weight.shape)


@dataclass(frozen=True)
class Written:
    """The tensors that represent a weight in a layout of `LAYOUTS`, by the name of the weight or of its experts."""

    layout: str
    experts: list[tuple[str, Any, dict[str, Array]]]  # name, configuration, tensors

    @property
    def parts(self) -> dict[str, Array]:
        """All tensors by name."""
        return {key: part for _, _, parts in self.experts for key, part in parts.items()}

    def read_back(self) -> Iterator[Weight]:
        """Yield what a program reads from these tensors: one weight, or one per expert."""
        for name, config, parts in self.experts:
            yield weight_from(LAYOUTS[self.layout], name.removesuffix(".weight"), parts, config)


def written(layout: str, name: str, weight: Weight) -> Written:
    """Return the tensors that represent a weight in a layout of `LAYOUTS`."""
    experts = []
    for own, one in experts_of(layout, name, weight):
        config = described(layout, {own: target_of(one)}, [], ordered=one.order is not None)[KEY]
        experts.append((own, config, _parts_of(layout, own, one)))
    return Written(layout, experts)


def target_of(weight: Weight) -> Target:
    """Return the target that a weight already has."""
    if weight.blocks is not None:
        return scaled.blocks_of(weight.blocks)
    assert weight.array is not None
    return weight.array.format


def entry_in(weight: Weight) -> tuple[Entry, QuantizedArray]:
    """Return a weight as an entry and an array of this package, with the shape that its model has."""
    assert weight.array is not None
    shape, axis, q = weight.shape, (len(weight.shape) - 1,), weight.array
    whole = q if q.shape == shape else QuantizedArray(dict(q.components), q.format, shape, axis, q.source_dtype)
    whole = turned_array(whole) if weight.turned else whole
    return entry_of(q.format, whole.shape, whole.axis, q.source_dtype), whole


def nearest(layout: str, name: str, weight: Weight) -> Format | None:
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
    for one in (*floats, *(blocks if layout == "gguf" else integers), *last):
        if refusal_of(layout, name, weight.shape, one) is None:
            return one
    return None


def why_not(layout: str, name: str, weight: Weight, tried: Sequence[str]) -> str:
    """Return the reason why a layout cannot represent a weight."""
    if tried:
        return tried[0]
    if weight.array is None and weight.blocks is None:
        return f"no format here holds {weight.said}"
    target = target_of(weight)
    said = refusal_of(layout, name, weight.shape, target)
    return f"{layout} has no place for {target}" if said is None or "for which" in said else said


def config_in(layout: str, formats: Mapping[str, Target], plain: Sequence[str], ordered: bool) -> dict[str, Any]:
    """Return the entries of config.json that describe weights in a layout; None removes an entry."""
    return described(layout, formats, plain, ordered=ordered) if layout in LAYOUTS and formats else {KEY: None}
