"""Finds the layout of a file that another program quantized, by its configuration or names and dtypes of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.tensors import Tensors
from . import fp8
from .configuration import config_in, layout_named, method_of
from .layout import LAYOUTS
from .subclasses import torchao

__all__ = ["layout_in", "layout_said"]

# Suffixes of the names of a weight's tensors, for files without a configuration; the first match counts.
SIGNS = (
    ("compressed-tensors", (".weight_packed", ".weight_scale")),
    ("bitsandbytes", (".weight.absmax", ".weight.quant_map")),
    ("bitsandbytes", (".SCB", ".weight")),
    ("gptq", (".qweight", ".qzeros", ".scales", ".g_idx")),
    ("awq", (".qweight", ".qzeros", ".scales")),
    ("modelopt", (".weight_scale_2", ".weight_scale", ".weight")),
    ("fp8", (".weight_scale_inv", ".weight")),
    ("fp8", ("_scale_inv", "")),
    ("fp8", (".scale_weight", ".weight")),
    ("fp8", (".weight_scale", ".weight")),
    ("gpt-oss", ("_blocks", "_scales")),
    ("hqq", (".W_q", ".zero", ".scale", ".shape", ".packing")),
    ("mlx", (".scales", ".weight")),
    ("quanto", (".weight._scale", ".weight._data")),
    ("torchao", ("._weight_qdata",)),
)


def layout_said(reader: Tensors) -> str | None:
    """Return the layout of a file's weights: what its configuration names, or without one what its tensors are called.

    Parameters
    ----------
    reader : Tensors

    Returns
    -------
    str or None
        Of `LAYOUTS`; None where there are no weights in one, or the configuration names another program.
    """
    return layout_in(reader, config_in(reader))


def layout_in(reader: Tensors, config: Mapping[str, Any]) -> str | None:
    method, names = layout_named(config), reader.names
    if method is not None or method_of(config) is not None:
        found = LAYOUTS.get(method or "")
        return method if found is not None and any(one.endswith(found.marks) for one in names) else None
    for layout, ends in SIGNS:
        prefixes = [one.removesuffix(ends[0]) for one in names if one.endswith(ends[0])]
        if (
            prefixes
            and all(f"{prefixes[0]}{end}" in reader for end in ends)
            and _fits(reader, layout, prefixes[0], ends)
        ):
            return layout
    return None


def _fits(reader: Tensors, layout: str, prefix: str, ends: Sequence[str]) -> bool:
    """Tell whether tensors with the names of a layout have its dtypes; other programs use some of these names, too."""
    dtypes = [reader.info(f"{prefix}{end}").dtype for end in ends]
    if LAYOUTS[layout].reads_metadata:
        return torchao.is_described(prefix, reader.metadata)
    if layout == "fp8":
        return dtypes[-1] in fp8.EIGHTS and dtypes[0] in fp8.SCALE_DTYPES
    wanted = {"modelopt": ("float32", "float8_e4m3fn", "uint8"), "gpt-oss": ("uint8", "uint8")}.get(layout)
    return dtypes[-1] == "uint32" if layout == "mlx" else wanted is None or tuple(dtypes) == wanted
