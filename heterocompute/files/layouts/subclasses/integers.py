"""Tensors and metadata of torchao for arrays of integers: packed int4, and other bits in int8.

    4 bits           Int4Tensor, see `torchao_int4`; zero = (8 - zero point) scale, exact for scales of float16
    2, 3, 5 to 8     IntxUnpackedToInt8Tensor: signed codes and zero points

torchao 0.18, prototype/safetensors; transformers, quantizers/quantizer_torchao.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ....arrays.quantized import QuantizedArray
from ....base.errors import WrongValue
from ....base.texts import quoted
from ..linear import Array, Packed, Parts, checked, matrix_of, refuse

BITS, MIDDLE = 4, 8
QDATA, SCALE, ZERO = "._weight_qdata", "._weight_scale", "._weight_zero_point"


def shapes(name: str, q: Packed, layout: str) -> Parts:
    """Return dtypes and shapes of the tensors of a weight, or refuse it."""
    (prefix, _, groups), (rows, count), fmt = checked(name, q, layout), q.shape, q.format
    dtype = "float16" if fmt.scale == "f16" else "float32"
    if fmt.bits != BITS:
        return {
            prefix + QDATA: ("int8", (rows, count)),
            prefix + SCALE: (dtype, (rows, groups)),
            prefix + ZERO: ("int8", (rows, groups)),
        }
    if not fmt.symmetric and fmt.scale != "f16":
        refuse(name, q, layout, f"int4-g{fmt.group or 128}-asym-f16 is the nearest")
    if count % 2:
        raise WrongValue(f"save: tensor {quoted(name)} of shape {q.shape}: {layout} has two codes in a byte")
    dtype = dtype if fmt.symmetric else "float32"
    return {
        prefix + QDATA: ("int8", (rows, count // 2)),
        prefix + SCALE: (dtype, (groups, rows)),
        prefix + ZERO: (dtype, (groups, rows)),
    }


def values(name: str, q: QuantizedArray, layout: str) -> Iterable[Array]:
    """Return the tensors in the order of `shapes`."""
    fmt: Any = q.format
    m, middle = matrix_of(name, q, layout), np.uint8(1 << (fmt.bits - 1))
    codes = m.packed.unpacked()
    if fmt.bits != BITS:
        signed, points = ((part - middle).view(np.int8) for part in (codes, m.points))
        return signed, m.scales, points
    codes ^= np.uint8(MIDDLE)
    halves = (codes[:, ::2] | codes[:, 1::2] << np.uint8(4)).view(np.int8)
    scales = m.scales if fmt.symmetric else m.scales.astype(np.float32)
    zeros = (np.float32(MIDDLE) - m.points.astype(np.float32)).astype(scales.dtype) * scales
    return halves, np.ascontiguousarray(scales.T), np.ascontiguousarray(zeros.T)


def metadata(parts: Parts, plain: Iterable[str], bits: Mapping[str, int]) -> dict[str, str]:
    """Return the metadata of a file.

    Parameters
    ----------
    parts : mapping of str to (str, tuple of int)
        Dtypes and shapes of the tensors of weights.
    plain : iterable of str
        Names of other tensors.
    bits : mapping of str to int
        Of the integers of each weight.
    """
    found = {}
    for name in parts:
        if not name.endswith(QDATA):
            continue
        prefix = name.removesuffix(QDATA)
        (_, (rows, count)), (_, scales) = parts[name], parts[prefix + SCALE]
        data: dict[str, Any]
        if bits[f"{prefix}.weight"] == BITS:
            data = {"block_size": [1, 2 * count // scales[0]], "shape": [rows, 2 * count]}
            kind = "Int4Tensor"
        else:
            target = f"int{bits[f'{prefix}.weight']}"  # "dtype": that of the values, which are not rounded again
            data = {"target_dtype": _dtype(target), "block_size": [1, count // scales[1]],
                    "dtype": _dtype("float32"), "activation_quantization": None}  # fmt: skip
            kind = "IntxUnpackedToInt8Tensor"
        said = {"_type": kind, "_data": data, "_tensor_data_names": ["qdata", "scale", "zero_point"]}
        found[f"{prefix}.weight"] = json.dumps(said)
    found |= {name: json.dumps({"_type": "Tensor"}) for name in plain}
    return found | {"tensor_names": json.dumps(list(found))}


def _dtype(name: str) -> dict[str, str]:
    return {"_type": "torch.dtype", "_data": name}


def configuration(formats: Mapping[str, Any], plain: Sequence[str]) -> dict[str, Any]:
    """Return the quantization_config. Loaders take the type of each weight from the metadata, not from here."""
    fmt: Any = next(iter(formats.values()))
    group = fmt.group or 128
    default: dict[str, Any] = {"_type": "Int4WeightOnlyConfig", "_version": 2, "_data": {"group_size": group}}
    if fmt.bits != BITS:
        default = {
            "_type": "IntxWeightOnlyConfig",
            "_version": 2,
            "_data": {
                "weight_dtype": _dtype(f"int{fmt.bits}"),
                "granularity": {"_type": "PerGroup", "_version": 1, "_data": {"group_size": group}},
            },
        }
    return {"quant_method": "torchao", "quant_type": {"default": default}, "modules_to_not_convert": list(plain)}
