"""The class of layouts, and the layouts of safetensors by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ...arrays.layout import Entry
from ...arrays.quantized import QuantizedArray
from ...base.texts import quoted
from . import bitnet, compressed_tensors, eetq, fp8, gpt_oss, gptq, hqq, mlx, modelopt, nf4
from .configuration import KEY
from .linear import Packed, Parts, not_written
from .subclasses import quanto, torchao

__all__ = ["LAYOUTS", "Layout", "layout_in_file", "refuse_no_stack"]


class Layout(NamedTuple):
    """Functions that convert weights to tensors and back; `marks` are ends of tensors' names that show a weight.

    layout_of, parts_of     dtypes and shapes of a weight's tensors before it is quantized (or an error); the tensors
    array_from              a weight as a packed array; `sorted_from` if columns may be stored in another order than
                            their groups: returns them sorted, and the order
    values_from             a weight that no format represents: its values, a description of its storage, its bytes
    blocks_from             8-bit codes, the shape of a stack, the order of columns
    check_blocks, parts_of_blocks    `layout_of` and `parts_of` for 8-bit codes with scales of blocks
    stacked, check_stack    a stack's tensors from those of one matrix of all rows; an error for an unsupported stack
    files_of                further entries of config.json and further files, from a configuration
    config_key              the program's key in config.json, if `KEY` is missing
    ends                    ends of the names of all tensors of a weight, by default `PARTS`
    bare                    the mark of stacks of experts whose codes have the layer's own name: both are read
                            under the names of those of a matrix
    is_weight               tells whether a tensor with a mark belongs to a weight, if others may have its name
    markers                 tensors that only mark a file of the layout
    order_name              the tensor with the group of each column
    depends_on_values       tells whether only some arrays of a format can be stored
    is_whole                the tensors of a weight describe it without a configuration
    has_several             one file may have several formats
    reads_metadata          the file's metadata describe each weight: `config` has them under ``metadata``
    is_read_alone           the layout is not written
    """

    layout_of: Callable[[str, Entry], Parts]
    parts_of: Callable[[str, QuantizedArray], dict[str, Any]]
    config_of: Callable[..., dict[str, Any]]
    array_from: Callable[[str, Mapping[str, Any], Mapping[str, Any]], QuantizedArray]
    marks: tuple[str, ...]
    sorted_from: Callable[[str, Mapping[str, Any], Mapping[str, Any]], tuple[QuantizedArray, Any]] | None = None
    values_from: Callable[[str, Mapping[str, Any], Mapping[str, Any]], tuple[Any, str, int] | None] | None = None
    blocks_from: Callable[[str, Mapping[str, Any], Mapping[str, Any]], Any] | None = None
    check_blocks: Callable[[str, tuple[int, ...], Any], None] | None = None
    parts_of_blocks: Callable[[str, tuple[int, ...], Any], dict[str, Any]] | None = None
    stacks_blocks: bool = False
    stacked: Callable[[str, dict[str, Any], tuple[int, ...]], dict[str, Any]] | None = None
    check_stack: Callable[[str, tuple[int, ...], Any], None] | None = None
    files_of: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    config_key: str = KEY
    ends: tuple[str, ...] = ()
    bare: str = ""
    is_weight: Callable[[Any, str, str], bool] | None = None
    markers: tuple[str, ...] = ()
    depends_on_values: Callable[[Any], bool] | None = None
    only_stacks: bool = False
    has_several: bool = False
    order_name: str = ""
    is_whole: bool = False
    reads_metadata: bool = False
    is_read_alone: bool = False


LAYOUTS = {
    "compressed-tensors": Layout(
        compressed_tensors.layout_of,
        compressed_tensors.parts_of,
        compressed_tensors.config_of,
        compressed_tensors.array_from,
        (".weight_packed", ".weight_scale"),
        compressed_tensors.sorted_from,
        compressed_tensors.values_from,
        blocks_from=compressed_tensors.blocks_from,
        depends_on_values=compressed_tensors.depends_on_values,
        check_blocks=compressed_tensors.check_blocks,
        parts_of_blocks=compressed_tensors.parts_of_blocks,
        stacks_blocks=True,
        stacked=compressed_tensors.stacked,
        check_stack=compressed_tensors.check_stack,
        has_several=True,
        order_name="weight_g_idx",
    ),
    "gptq": Layout(
        gptq.layout_of_gptq,
        gptq.parts_of_gptq,
        gptq.config_of_gptq,
        gptq.array_from_gptq,
        (".qweight",),
        gptq.sorted_from_gptq,
        order_name="g_idx",
    ),
    "gptq-v1": Layout(
        gptq.layout_of_gptq,
        partial(gptq.parts_of_gptq, is_first=True),
        partial(gptq.config_of_gptq, is_first=True),
        gptq.array_from_gptq,
        (".qweight",),
        gptq.sorted_from_gptq,
        order_name="g_idx",
    ),
    "awq": Layout(gptq.layout_of_awq, gptq.parts_of_awq, gptq.config_of_awq, gptq.array_from_awq, (".qweight",)),
    "bitsandbytes": Layout(
        nf4.layout_of,
        nf4.parts_of,
        nf4.config_of,
        nf4.array_from,
        (".weight.absmax", ".SCB"),
        values_from=nf4.values_from,
        stacked=nf4.stacked,
        is_whole=True,
    ),
    "fp8": Layout(
        fp8.layout_of,
        fp8.parts_of,
        fp8.config_of,
        fp8.array_from,
        fp8.MARKS,
        ends=fp8.ENDS,
        bare=fp8.BARE,
        is_weight=fp8.is_weight,
        markers=fp8.MARKERS,
        blocks_from=fp8.blocks_from,
        check_blocks=fp8.check_blocks,
        parts_of_blocks=fp8.parts_of_blocks,
        is_whole=True,
    ),
    "modelopt": Layout(
        modelopt.layout_of,
        modelopt.parts_of,
        modelopt.config_of,
        modelopt.array_from,
        (".weight_scale",),
        ends=modelopt.ENDS,
        blocks_from=modelopt.blocks_from,
        files_of=modelopt.files_of,
        is_whole=True,
    ),
    "gpt-oss": Layout(
        gpt_oss.layout_of,
        gpt_oss.parts_of,
        gpt_oss.config_of,
        gpt_oss.array_from,
        ("_blocks",),
        ends=gpt_oss.ENDS,
        stacked=gpt_oss.stacked,
        only_stacks=True,
        is_whole=True,
    ),
    "mlx": Layout(
        mlx.layout_of,
        mlx.parts_of,
        mlx.config_of,
        mlx.array_from,
        (".scales",),
        values_from=mlx.values_from,
        stacked=mlx.stacked,
        ends=mlx.ENDS,
        files_of=mlx.files_of,
        depends_on_values=mlx.depends_on_values,
        config_key="quantization",
        has_several=True,
    ),
    "hqq": Layout(
        not_written("hqq"),
        not_written("hqq"),
        not_written("hqq"),
        hqq.array_from,
        (".W_q",),
        values_from=hqq.values_from,
        ends=hqq.ENDS,
        is_whole=True,
        has_several=True,
        is_read_alone=True,
    ),
    "quanto": Layout(
        not_written("quanto"),
        not_written("quanto"),
        not_written("quanto"),
        quanto.array_from,
        (".weight._scale",),
        values_from=quanto.values_from,
        blocks_from=quanto.blocks_from,
        ends=quanto.ENDS,
        is_whole=True,
        has_several=True,
        is_read_alone=True,
    ),
    "torchao": Layout(
        not_written("torchao"),
        not_written("torchao"),
        not_written("torchao"),
        torchao.array_from,
        ("._weight_qdata",),
        values_from=torchao.values_from,
        blocks_from=torchao.blocks_from,
        ends=torchao.ENDS,
        is_whole=True,
        has_several=True,
        reads_metadata=True,
        is_read_alone=True,
    ),
    "bitnet": Layout(
        bitnet.layout_of,
        bitnet.parts_of,
        bitnet.config_of,
        bitnet.array_from,
        (".weight_scale",),
        ends=bitnet.ENDS,
        depends_on_values=bitnet.depends_on_values,
    ),
    "eetq": Layout(
        eetq.layout_of,
        eetq.parts_of,
        eetq.config_of,
        eetq.array_from,
        eetq.MARKS,
        ends=eetq.ENDS,
        is_whole=True,
    ),
}


def layout_in_file(layout: str, name: str, q: Entry) -> Parts:
    """Return dtypes and shapes of the tensors that represent a weight in a layout of `LAYOUTS`, or refuse it."""
    refuse_no_stack(layout, name, q)
    return LAYOUTS[layout].layout_of(name, q)


def refuse_no_stack(layout: str, name: str, q: Packed) -> None:
    """Raise ValueError for a matrix in a layout that stores stacks of experts alone."""
    if LAYOUTS[layout].only_stacks and (len(q.shape) != 3 or tuple(q.axis) != (2,)):
        raise ValueError(
            f"save: tensor {quoted(name)} of shape {q.shape} and axis {q.axis}: {layout} stores stacks of experts "
            "(experts, out, in) quantized along in"
        )
