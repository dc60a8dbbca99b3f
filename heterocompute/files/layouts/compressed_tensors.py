"""compressed-tensors, which vLLM reads: pack-quantized integers, and MXFP4.

    NAME.weight_packed      int32 (out, words): code + 2^(bits - 1), dense across words; mxfp4 uint8, the even one low
    NAME.weight_scale       (out, groups)
    NAME.weight_zero_point  int32 (words, groups), packed along out; asymmetric formats alone
    NAME.weight_shape       int64 (2,)
    NAME.weight_g_idx       int32 (in,): the group of each column; with actorder "group" alone, read only

compressed_tensors/compressors/pack_quantized, mxfp4. NVFP4 has no exact place: there the scale of the tensor is stored
as its reciprocal, whose rounding changes values in their last bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.quantized import QuantizedArray
from ...base.texts import counted
from ...formats import MX, Int
from .linear import (
    Array,
    Packed,
    Parts,
    array_of,
    checked,
    from_words,
    in_order,
    matrix_of,
    one_of,
    order_of,
    prefix_of,
    refuse,
    to_words,
    words,
)

NAME = "compressed-tensors"


def _is_mxfp4(q: Packed) -> bool:
    return isinstance(q.format, MX) and q.format.element == "fp4" and q.shape[-1] % 32 == 0


def layout_of(name: str, q: Packed) -> Parts:
    """Return dtypes and shapes of the tensors that stand for one weight, or refuse it."""
    if _is_mxfp4(q):
        prefix, (rows, count) = prefix_of(name, q, NAME), q.shape
        return {
            f"{prefix}.weight_packed": ("uint8", (rows, count // 2)),
            f"{prefix}.weight_scale": ("uint8", (rows, count // 32)),
        }
    if not isinstance(q.format, Int):
        refuse(name, q, NAME, "mxfp4, or int4-g128, is the nearest")
    fmt, (prefix, _, groups), (rows, count) = q.format, checked(name, q, NAME), q.shape
    found: Parts = {
        f"{prefix}.weight_packed": ("int32", (rows, words(count, fmt.bits))),
        f"{prefix}.weight_scale": ("float16" if fmt.scale == "f16" else "float32", (rows, groups)),
        f"{prefix}.weight_shape": ("int64", (2,)),
    }
    if not fmt.symmetric:
        found[f"{prefix}.weight_zero_point"] = ("int32", (words(rows, fmt.bits), groups))
    return found


def parts_of(name: str, q: QuantizedArray) -> dict[str, Array]:
    """Return the tensors that stand for one weight."""
    layout_of(name, q)  # refuses
    if _is_mxfp4(q):
        prefix, scales = prefix_of(name, q, NAME), q.components["scales"]
        return {f"{prefix}.weight_packed": q.components["codes"], f"{prefix}.weight_scale": scales}
    fmt: Any = q.format
    m = matrix_of(name, q, NAME)
    found = {
        f"{m.prefix}.weight_packed": to_words(m.codes, m.bits),
        f"{m.prefix}.weight_scale": m.scales,
        f"{m.prefix}.weight_shape": np.array(q.shape, np.int64),
    }
    if not fmt.symmetric:
        found[f"{m.prefix}.weight_zero_point"] = np.ascontiguousarray(to_words(m.points.T, m.bits).T)
    return found


def config_of(formats: Mapping[str, Any], plain: Sequence[str]) -> dict[str, Any]:
    """Return the quantization_config of config.json, for one format of all weights; it names these alone."""
    fmt = next(iter(formats.values()))
    if isinstance(fmt, MX):
        weights: dict[str, Any] = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}
        weights |= {"symmetric": True, "scale_dtype": "torch.uint8"}
        layout = "mxfp4-pack-quantized"
    else:
        weights = {"num_bits": fmt.bits, "type": "int", "symmetric": fmt.symmetric, "group_size": fmt.group}
        weights["strategy"] = "channel" if fmt.group is None else "group"
        layout = "pack-quantized"
    group = {"targets": [name.removesuffix(".weight") for name in formats], "weights": weights, "format": layout}
    status = {"quantization_status": "compressed"}  # else programs take the weights for plain ones
    return {"quant_method": NAME, "format": layout, **status, "config_groups": {"group_0": group}}


def array_from(prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> QuantizedArray:
    """Return one weight that `parts_of`, or the layout's own program, has stored."""
    return in_order(f"{prefix}.weight_g_idx", NAME, sorted_from(prefix, tensors, config))


def sorted_from(
    prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]
) -> tuple[QuantizedArray, Array | None]:
    """Return one weight with its columns sorted by group, and which they are; None where they are all."""
    packed = tensors[f"{prefix}.weight_packed"]
    first = config.get("config_groups", {}).get("group_0", {})
    is_mx = packed.dtype == np.uint8
    stored = "mxfp4-pack-quantized" if is_mx else "pack-quantized"
    one_of(prefix, "format", first.get("format") or config.get("format"), (stored,))
    scales = tensors[f"{prefix}.weight_scale"]
    if is_mx:
        rows, count = packed.shape[0], packed.shape[1] * 2
        if _order(prefix, tensors, count, 32) is not None:
            raise ValueError(f"{prefix}.weight_g_idx: columns of mxfp4 in another order than their groups are not read")
        return QuantizedArray({"codes": packed, "scales": scales}, MX("fp4"), (rows, count), (1,)), None
    weights = first["weights"]
    one_of(prefix, "type", weights.get("type"), ("int",))
    strategy = one_of(prefix, "strategy", weights["strategy"], ("group", "channel"))
    rows, count = map(int, tensors[f"{prefix}.weight_shape"])
    bits, symmetric = int(weights["num_bits"]), weights["symmetric"] is True
    group = None if strategy == "channel" else int(weights["group_size"])
    if packed.shape != (rows, words(count, bits)):
        wanted = (rows, words(count, bits))
        raise ValueError(f"{prefix}.weight_packed is {packed.shape}, wanted {wanted} of {counted(bits, 'bit')}")
    codes, middle = from_words(packed, bits, count), np.uint8(1 << (bits - 1))
    order = _order(prefix, tensors, count, group or count)
    if order is not None:
        codes = codes[:, order]
    points = None
    if not symmetric:
        points = from_words(np.ascontiguousarray(tensors[f"{prefix}.weight_zero_point"].T), bits, rows).T
    elif codes.min(initial=1):
        codes = (codes - middle) & np.uint8((1 << bits) - 1)
    else:  # the code -2^(bits - 1), which symmetric formats here do not have
        points = np.full(scales.shape, middle)
    fmt = Int(bits, group, points is None, "f16" if scales.dtype == np.float16 else "f32")
    return array_of(fmt, codes, scales, points), order


def _order(prefix: str, tensors: Mapping[str, Array], count: int, group: int) -> Array | None:
    """Return the columns sorted by group, or None where they lie so: an index with -1 in it was never set."""
    index = tensors.get(f"{prefix}.weight_g_idx")
    if index is None or (index == -1).any():
        return None
    return order_of(f"{prefix}.weight_g_idx", index, np.arange(count) // group)
