"""Refuses files without plain weights: quantized in a known layout, or by a program whose layout is not supported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...base.errors import WrongValue, shown
from ...base.tensors import Tensors
from ...base.texts import quoted
from .configuration import config_in, declared_by, plain_names
from .programs import EIGHTS, is_codes, program_in
from .table import layout_in

# Suffixes of scales or codes of a weight in files of other programs; this package does not use them.
SCALES = (".weight_scale", ".weight_scale_inv", ".SCB", ".absmax", ".qweight", ".weight_packed")


def refuse_layout(reader: Tensors) -> None:
    """Raise ValueError if another program quantized the tensors of a file: codes and scales are not weights.

    Raises
    ------
    ValueError
        Without the name of the file.
    """
    config = config_in(reader)
    declared = layout_in(reader, config)
    if declared is not None:
        raise WrongValue(
            f"is already quantized, in the layout {declared}: dequantize --layout {declared} makes a plain one of it"
        )
    blocks = next((one for one in reader.names if reader.format_of(one) is not None), None)
    if blocks is not None:
        kind = reader.format_of(blocks)
        raise WrongValue(
            f"is already quantized, tensor {quoted(blocks)} to {kind}: dequantize makes a plain file of it, whose "
            "rounding is not undone, and quantize --requantize rounds a second time"
        )
    _refuse_others(reader, config)


def refuse_unread(reader: Tensors) -> None:
    """Raise ValueError if a file is quantized in a layout that this package does not read.

    Raises
    ------
    ValueError
        Without the name of the file.
    """
    config = config_in(reader)
    if reader.quantized or layout_in(reader, config) is None:
        _refuse_others(reader, config)


def _refuse_others(reader: Tensors, config: Mapping[str, Any]) -> None:
    if reader.quantized:
        raise WrongValue(quantized_already(reader.quantized))
    if reader.quantized is not None:
        return
    declared, names = declared_by(reader, config), plain_names(reader)
    if declared is not None:
        refuse_scales(names, declared)
    refuse_programs(reader, names, declared)
    if declared is not None:
        refuse_lone_codes(reader, names, declared)
    refuse_changed(config)


def quantized_already(program: str) -> str:
    """Return the message for a model whose operators decode constants, such as ``"MatMulNBits of 'fc.B'"``."""
    return (
        f"is already quantized, by {program}, in the layout of another program that is not read here: "
        "expected the original"
    )


def refuse_changed(config: Mapping[str, Any]) -> None:
    """Raise ValueError if weights are stored without their zeros, or rotated, which no layout here supports."""
    sparsity = config.get("sparsity_config")
    stored = sparsity.get("format") if isinstance(sparsity, Mapping) else sparsity
    if stored not in (None, "dense"):
        raise WrongValue(
            f"sparsity_config says the format {shown(stored)}, which is not read here: expected the original"
        )
    turned = config.get("transform_config")
    if turned and (not isinstance(turned, Mapping) or turned.get("config_groups")):
        raise WrongValue(
            "transform_config says that weights are rotated, which is not undone here: expected the original"
        )


def refuse_programs(reader: Tensors, names: Sequence[str], declared: str | None) -> None:
    infos = {name: (info.dtype, info.shape) for name, info in ((name, reader.info(name)) for name in names)}
    # Raw bytes without a NumPy dtype are codes if they have scales. Their shape is unknown.
    infos |= {name: (EIGHTS[0], (1 << 30, 1 << 30)) for name, what in reader.skipped.items() if "raw bytes" in what}
    refuse_codes(infos, declared)


def refuse_codes(infos: Mapping[str, tuple[str, tuple[int, ...]]], declared: str | None = None) -> None:
    """Raise ValueError if some arrays are codes of another program next to their scales.

    Parameters
    ----------
    infos : mapping of str to (str, tuple of int)
        Name -> NumPy's name of the dtype, shape.
    declared : str, optional
        The program, if it is known from elsewhere.
    """
    found = program_in(infos)
    if found is not None:
        refuse_one(found.name, declared or found.program)


def refuse_scales(names: Iterable[str], declared: str) -> None:
    refuse_one(next((one for one in names if one.endswith(SCALES)), None), declared)


def refuse_lone_codes(reader: Tensors, names: Iterable[str], declared: str) -> None:
    """Raise ValueError if codes have no scales: in a rewritten file they could not be told from weights."""
    codes = (one for one in names if one.endswith("weight") and _are_codes(reader.info(one)))
    refuse_one(next(codes, None), declared)


def refuse_one(name: str | None, declared: str) -> None:
    if name is not None:
        raise WrongValue(
            f"is already quantized, by {declared} with {quoted(name)}, in no layout that is read here: expected the "
            "original"
        )


def _are_codes(info: Any) -> bool:
    return len(info.shape) > 1 and is_codes("", info.dtype, info.shape)
