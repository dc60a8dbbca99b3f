"""bitsandbytes' 4-bit weights: NF4 in blocks of 64 over the flattened matrix.

    NAME.weight            uint8 (values / 2, 1), the even one high
    NAME.weight.absmax     float32 (blocks,)
    NAME.weight.quant_map  float32 (16,), the levels
    NAME.weight.quant_state.bitsandbytes__nf4   uint8, JSON of the type, block size, dtype and shape

bitsandbytes, functional.py, QuantState.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.layout import Entry
from ...arrays.quantized import QuantizedArray
from ...base.json_text import strict_json
from ...base.values import shown
from ...formats import NF4
from .linear import Array, Packed, Parts, one_of, prefix_of, refuse

STATE = "quant_state.bitsandbytes__nf4"


def _check(name: str, q: Packed) -> None:
    fmt = q.format
    if not isinstance(fmt, NF4) or fmt.double or q.shape[-1] % fmt.group or q.shape[-1] % 2:
        refuse(name, q, "bitsandbytes", "nf4-g64 with rows of whole groups is the nearest")
    prefix_of(name, q, "bitsandbytes")


def _state(q: Packed, dtype: str) -> bytes:
    state = {"quant_type": "nf4", "blocksize": q.format.group, "dtype": dtype, "shape": list(q.shape)}
    return json.dumps(state).encode()


def _levels() -> Array:
    every = np.array([[i | (i + 1) << 4 for i in range(0, 16, 2)]], np.uint8)
    parts: dict[str, Array] = {"codes": every, "scales": np.ones((1, 1), np.float32)}
    levels: Array = QuantizedArray(parts, NF4(16), (1, 16), (1,)).dequantize()
    return levels.reshape(16)


def layout_of(name: str, q: Entry) -> Parts:
    """Return dtypes and shapes of the tensors that stand for one weight, or refuse it."""
    _check(name, q)
    size = q.shape[0] * q.shape[1]
    return {
        name: ("uint8", (size // 2, 1)),
        f"{name}.absmax": ("float32", (size // q.format.group,)),
        f"{name}.quant_map": ("float32", (16,)),
        f"{name}.{STATE}": ("uint8", (len(_state(q, q.dtype)),)),
    }


def parts_of(name: str, q: QuantizedArray) -> dict[str, Array]:
    """Return the tensors that stand for one weight."""
    _check(name, q)
    codes = q.components["codes"].reshape(-1, 1)
    return {
        name: codes << np.uint8(4) | codes >> np.uint8(4),
        f"{name}.absmax": q.components["scales"].reshape(-1),
        f"{name}.quant_map": _levels(),
        f"{name}.{STATE}": np.frombuffer(_state(q, q.source_dtype), np.uint8).copy(),
    }


def config_of(formats: Mapping[str, Any], plain: Sequence[str]) -> dict[str, Any]:
    """Return the quantization_config of config.json."""
    return {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": False, "bnb_4bit_quant_storage": "uint8",
            "llm_int8_skip_modules": [name.removesuffix(".weight") for name in plain]}  # fmt: skip


def array_from(prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> QuantizedArray:
    """Return one weight stored by bitsandbytes."""
    name = f"{prefix}.weight"
    state = strict_json(tensors[f"{name}.{STATE}"].tobytes())
    rows, count = state["shape"]
    group = int(state["blocksize"])
    if count % group or "nested_absmax" in str(list(tensors)):
        raise ValueError(f"{name}: blocks that cross rows, or nested scales, have no format here")
    one_of(name, "quant_type", state.get("quant_type"), ("nf4",))
    levels = tensors.get(f"{name}.quant_map", _levels())
    if levels.shape != (16,) or not np.allclose(levels, _levels(), rtol=0, atol=2**-23):
        raise ValueError(f"{name}.quant_map is {shown(levels.tolist())}, wanted the 16 levels of nf4")
    packed = tensors[name].reshape(rows, count // 2)
    scales = tensors[f"{name}.absmax"].reshape(rows, count // group).astype(np.float32, copy=False)
    codes = packed << np.uint8(4) | packed >> np.uint8(4)
    return QuantizedArray({"codes": codes, "scales": scales}, NF4(group), (rows, count), (1,))
