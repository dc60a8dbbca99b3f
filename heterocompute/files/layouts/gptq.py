"""GPTQ and AWQ: words of 32 bits along in or along out, scales float16.

    GPTQ  NAME.qweight int32 (in bits/32, out), little end first along in; NAME.qzeros (groups, out bits/32);
          NAME.scales float16 (groups, out); NAME.g_idx int32 (in,)
    AWQ   NAME.qweight int32 (in, out/8), qzeros (groups, out/8): 4 bits, in the order 0 2 4 6 1 3 5 7; scales as above

GPTQ version 1 stores the zero point less 1, which 0 has no place for: symmetric arrays are version 1, others version 2,
``checkpoint_format`` of the config. GPTQModel, nn_modules/qlinear; AutoAWQ, gemm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.bits import pack
from ...arrays.quantized import QuantizedArray
from ...base.texts import quoted
from ...formats import Int
from .linear import (
    AWQ,
    WORD_COLUMNS,
    Array,
    Codes,
    Packed,
    Parts,
    array_of,
    checked,
    codes_in,
    from_words,
    in_order,
    matrix_of,
    one_of,
    order_of,
    refuse,
    to_words,
)

VERSIONS = ("gptq", "gptq_v2")


def layout_of_gptq(name: str, q: Packed) -> Parts:
    """Return dtypes and shapes of the tensors of GPTQ that stand for one weight, or refuse it."""
    fmt = q.format
    if not isinstance(fmt, Int) or fmt.scale != "f16" or fmt.bits not in (2, 3, 4, 8):
        refuse(name, q, "gptq", "int4-g128-f16, or int4-g128-asym-f16, is the nearest")
    (prefix, _, groups), (rows, count), bits = checked(name, q, "gptq"), q.shape, fmt.bits
    if count * bits % 32 or rows * bits % 32:
        what = f"tensor {quoted(name)} of shape {q.shape}"
        raise ValueError(f"save: {what} does not fill words of 32 bits, as gptq has them")
    return {
        f"{prefix}.qweight": ("int32", (count * bits // 32, rows)),
        f"{prefix}.qzeros": ("int32", (groups, rows * bits // 32)),
        f"{prefix}.scales": ("float16", (groups, rows)),
        f"{prefix}.g_idx": ("int32", (count,)),
    }


def parts_of_gptq(name: str, q: QuantizedArray) -> dict[str, Array]:
    """Return the tensors of GPTQ that stand for one weight."""
    layout_of_gptq(name, q)  # refuses
    fmt: Any = q.format
    m = matrix_of(name, q, "gptq")
    points = m.points - np.uint8(fmt.symmetric)
    return {
        f"{m.prefix}.qweight": m.packed.word_columns(),
        f"{m.prefix}.qzeros": to_words(points.T, m.bits),
        f"{m.prefix}.scales": np.ascontiguousarray(m.scales.T),
        f"{m.prefix}.g_idx": np.arange(q.shape[1], dtype=np.int32) // np.int32(m.group),
    }


def config_of_gptq(formats: Mapping[str, Any], plain: Sequence[str]) -> dict[str, Any]:
    """Return the quantization_config of config.json, for one format of all weights."""
    fmt = next(iter(formats.values()))
    version = "gptq" if fmt.symmetric else "gptq_v2"
    return {"quant_method": "gptq", "bits": fmt.bits, "group_size": fmt.group or -1, "sym": fmt.symmetric,
            "desc_act": False, "checkpoint_format": version,
            "lm_head": any(name.endswith("lm_head.weight") for name in formats)}  # fmt: skip


def array_from_gptq(prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> QuantizedArray:
    """Return one weight stored as GPTQ."""
    return in_order(f"{prefix}.g_idx", "gptq", sorted_from_gptq(prefix, tensors, config))


def sorted_from_gptq(
    prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]
) -> tuple[QuantizedArray, Array | None]:
    """Return one weight stored as GPTQ with its columns sorted by group, and which they are; None where they are all.

    GPTQ with ``desc_act`` rounds columns in the order of their activations, and groups what it rounds together.
    """
    bits, symmetric = int(config["bits"]), config["sym"] is True
    version = one_of(prefix, "checkpoint_format", config.get("checkpoint_format", config.get("format")), VERSIONS)
    one_of(prefix, "is_marlin_format", config.get("is_marlin_format"), (False,))
    scales, qweight = tensors[f"{prefix}.scales"], tensors[f"{prefix}.qweight"]
    groups, rows = scales.shape
    count = qweight.shape[0] * 32 // bits
    group = count // groups
    index = tensors.get(f"{prefix}.g_idx")
    codes = codes_in(qweight, WORD_COLUMNS, bits, rows, count, 1 << (bits - 1) if symmetric else 0)
    order = None if index is None else order_of(f"{prefix}.g_idx", index, np.arange(count) // group)
    if order is not None:
        codes = codes.of_columns(order)
    points = from_words(tensors[f"{prefix}.qzeros"], bits, rows).T
    points = (points + np.uint8(version == "gptq")) & np.uint8((1 << bits) - 1)
    return _made(bits, _group(config, group, groups), symmetric, codes, scales, points), order


def layout_of_awq(name: str, q: Packed) -> Parts:
    """Return dtypes and shapes of the tensors of AWQ that stand for one weight, or refuse it."""
    fmt = q.format
    if not isinstance(fmt, Int) or fmt.scale != "f16" or fmt.bits != 4:
        refuse(name, q, "awq", "int4-g128-asym-f16 is the nearest")
    (prefix, _, groups), (rows, count) = checked(name, q, "awq"), q.shape
    if rows % 8:
        raise ValueError(f"save: tensor {quoted(name)} of shape {q.shape}: awq wants a multiple of 8 outputs")
    return {
        f"{prefix}.qweight": ("int32", (count, rows // 8)),
        f"{prefix}.qzeros": ("int32", (groups, rows // 8)),
        f"{prefix}.scales": ("float16", (groups, rows)),
    }


def parts_of_awq(name: str, q: QuantizedArray) -> dict[str, Array]:
    """Return the tensors of AWQ that stand for one weight."""
    layout_of_awq(name, q)  # refuses
    m = matrix_of(name, q, "awq")
    return {
        f"{m.prefix}.qweight": m.packed.columns(AWQ),
        f"{m.prefix}.qzeros": Codes(pack(m.points, 4), 4, m.points.shape[1]).columns(AWQ),
        f"{m.prefix}.scales": np.ascontiguousarray(m.scales.T),
    }


def config_of_awq(formats: Mapping[str, Any], plain: Sequence[str]) -> dict[str, Any]:
    """Return the quantization_config of config.json, for one format of all weights but the plain ones."""
    fmt = next(iter(formats.values()))
    return {"quant_method": "awq", "bits": 4, "group_size": fmt.group or -1, "zero_point": True, "version": "gemm",
            "modules_to_not_convert": [name.removesuffix(".weight") for name in plain]}  # fmt: skip


def array_from_awq(prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> QuantizedArray:
    """Return one weight stored as AWQ."""
    for key in ("version", "checkpoint_format", "format"):
        one_of(prefix, key, config.get(key), ("gemm",))
    one_of(prefix, "bits", config.get("bits", config.get("w_bit")), (4,))
    scales, qweight = tensors[f"{prefix}.scales"], tensors[f"{prefix}.qweight"]
    groups, rows = scales.shape
    codes = codes_in(qweight, AWQ, 4, rows, len(qweight))
    points = codes_in(tensors[f"{prefix}.qzeros"], AWQ, 4, rows, groups).unpacked()
    group = len(qweight) // groups
    return _made(4, _group(config, group, groups), False, codes, scales, points)


def _group(config: Mapping[str, Any], group: int, groups: int) -> int | None:
    return None if groups == 1 and config.get("group_size", -1) == -1 else group


def _made(bits: int, group: int | None, symmetric: bool, codes: Codes, scales: Array, points: Array) -> QuantizedArray:
    middle = 1 << (bits - 1)
    if symmetric and (points == middle).all() and not codes.holds(0):
        return array_of(Int(bits, group, True, "f16"), codes._replace(flip=codes.flip ^ middle), scales.T, None)
    return array_of(Int(bits, group, False, "f16"), codes, scales.T, points)
