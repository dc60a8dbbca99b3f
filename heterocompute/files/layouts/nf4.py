"""bitsandbytes' 4-bit weights: NF4 in blocks of 64 over the flattened matrix; read only, FP4, LLM.int8 (scaled.py).

    NAME.weight            uint8 (values / 2, 1), the even one high
    NAME.weight.absmax     float32 (blocks,)
    NAME.weight.quant_map  float32 (16,), the levels
    NAME.weight.quant_state.bitsandbytes__nf4   uint8, JSON of the type, block size, dtype and shape; or __fp4

With nested scales ("double quantization"), read only, absmax is uint8 and represents these float32 values:
nested_quant_map[absmax] nested_absmax[block of 256] + nested_offset.

bitsandbytes, functional.py, QuantState, dequantize_4bit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from ...arrays.bits import HIGH_FIRST, ROWS, moved
from ...arrays.layout import Entry
from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue, shown
from ...base.json_text import strict_json
from ...base.texts import counted
from ...formats import NF4
from ..selection import FLOATS
from .layout import Layout
from .linear import Array, Packed, Parts, check_finite, no_format, one_of, prefix_of, refuse
from .scaled import from_row_maxima
from .weight import Weight, of_array, of_values

STATE, FP4_STATE = "quant_state.bitsandbytes__nf4", "quant_state.bitsandbytes__fp4"
FP4 = (0, 0.0625, 8, 12, 4, 6, 2, 3)  # times 1 / 12; bit 3 is the sign. functional.py, get_4bit_type


def _state(q: Packed, dtype: str) -> bytes:
    state = {"quant_type": "nf4", "blocksize": q.format.group, "dtype": dtype, "shape": list(q.shape)}
    return json.dumps(state).encode()


def _levels() -> Array:
    every = np.array([[i | (i + 1) << 4 for i in range(0, 16, 2)]], np.uint8)
    parts: dict[str, Array] = {"codes": every, "scales": np.ones((1, 1), np.float32)}
    levels: Array = QuantizedArray(parts, NF4(16), (1, 16), (1,)).dequantize()
    return levels.reshape(16)


def _levels_of(kind: str) -> Array:
    if kind == "nf4":
        return _levels()
    half = np.array(FP4, np.float32) / np.float32(12)
    return np.concatenate([half, -half])


def _parts_in(name: str, tensors: Mapping[str, Array]) -> tuple[Array, Array, int, tuple[int, ...]]:
    """Return codes, scales, values of a block and shape of a weight of NF4 or FP4, a matrix or a stack of them."""
    kind = "fp4" if f"{name}.{FP4_STATE}" in tensors else "nf4"
    state = strict_json(tensors[f"{name}.quant_state.bitsandbytes__{kind}"].tobytes())
    shape = tuple(map(int, state["shape"]))
    if len(shape) not in (2, 3):
        raise WrongValue(f"{name} is of the shape {shown(shape)}, expected (out, in) or (experts, out, in)")
    rows, count = math.prod(shape[:-1]), shape[-1]
    group = int(state["blocksize"])
    one_of(name, "quant_type", state.get("quant_type"), (kind,))
    levels = tensors.get(f"{name}.quant_map", _levels_of(kind))
    if levels.shape != (16,) or not np.allclose(levels, _levels_of(kind), rtol=0, atol=2**-23):
        raise WrongValue(f"{name}.quant_map is {shown(levels.tolist())}, expected the 16 levels of {kind}")
    packed = np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8)  # the bytes may have another dtype
    scales = _scales(name, tensors, state)
    if min(shape) < 1 or group < 1 or len(packed) != -(-rows * count // 2):
        raise WrongValue(f"{name} has {counted(packed.size, 'byte')}, expected {rows} x {count} values of 4 bits")
    if scales.size != -(-rows * count // group):
        raise WrongValue(f"{name}.absmax has {scales.size} values, expected one for each {group} of {rows} x {count}")
    return packed, scales, group, shape


def _scales(name: str, tensors: Mapping[str, Array], state: Mapping[str, Any]) -> Array:
    """Return the scales of the blocks, decoded if they are stored as codes."""
    absmax = tensors[f"{name}.absmax"]
    nested = tensors.get(f"{name}.nested_absmax")
    if nested is None:
        if absmax.dtype.name not in FLOATS:
            raise WrongValue(f"{name}.absmax is {absmax.dtype}, expected floats, or nested_absmax next to it")
        return absmax.reshape(-1).astype(np.float32, copy=False)
    levels, block, offset = tensors[f"{name}.nested_quant_map"], int(state["nested_blocksize"]), state["nested_offset"]
    if absmax.dtype != np.uint8 or levels.shape != (256,) or levels.dtype != np.float32 or nested.dtype != np.float32:
        what = f"{absmax.dtype}, its levels {levels.dtype} {levels.shape}, nested_absmax {nested.dtype}"
        raise WrongValue(f"{name}.absmax is {what}, expected uint8, float32 (256,) and float32")
    if block < 1 or nested.shape != (-(-absmax.size // block),):
        raise WrongValue(f"{name}.nested_absmax is {nested.shape}, expected {absmax.size} values in blocks of {block}")
    if type(offset) not in (int, float):
        raise WrongValue(f"{name}: nested_offset is {shown(offset)}, expected a number")
    one_of(name, "nested_dtype", state.get("nested_dtype"), ("float32",))
    scales: Array = levels[absmax.reshape(-1)] * nested[np.arange(absmax.size) // block]
    scales += np.float32(offset)
    return scales


class BitsAndBytes(Layout):
    name = "bitsandbytes"
    programs = ("bnb", "qlora")
    marks = (".weight.absmax", ".SCB")
    signs = ((".weight.absmax", ".weight.quant_map"), (".SCB", ".weight"))
    needs_config = False
    stacks = True
    reads_conv1d = True
    examples = ("nf4-g64",)

    def shapes(self, name: str, q: Packed) -> Parts:
        fmt = q.format
        if not isinstance(fmt, NF4) or fmt.double or q.shape[-1] % fmt.group or q.shape[-1] % 2:
            refuse(name, q, self.name, "nf4-g64 with rows of whole groups is the nearest")
        prefix_of(name, q, self.name)
        size, dtype = q.shape[0] * q.shape[1], q.source_dtype if isinstance(q, QuantizedArray) else cast(Entry, q).dtype
        return {
            name: ("uint8", (size // 2, 1)),
            f"{name}.absmax": ("float32", (size // fmt.group,)),
            f"{name}.quant_map": ("float32", (16,)),
            f"{name}.{STATE}": ("uint8", (len(_state(q, dtype)),)),
        }

    def values(self, name: str, q: QuantizedArray) -> Iterable[Array]:
        codes = q.components["codes"]
        turned = moved((codes, 4, ROWS), (np.empty_like(codes), 4, HIGH_FIRST), (q.shape[0], q.shape[1]))
        state = np.frombuffer(_state(q, q.source_dtype), np.uint8).copy()
        return turned.reshape(-1, 1), q.components["scales"].reshape(-1), _levels(), state

    def stacked(self, name: str, parts: dict[str, Array], shape: tuple[int, ...]) -> dict[str, Array]:
        state = {**json.loads(parts[f"{name}.{STATE}"].tobytes()), "shape": list(shape)}
        return {**parts, f"{name}.{STATE}": np.frombuffer(json.dumps(state).encode(), np.uint8).copy()}

    def config(self, formats: Mapping[str, Any], plain: Sequence[str], ordered: bool) -> dict[str, Any]:
        return {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
                "bnb_4bit_use_double_quant": False, "bnb_4bit_quant_storage": "uint8",
                "llm_int8_skip_modules": list(plain)}  # fmt: skip

    def read(self, prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Weight:
        name, maxima = f"{prefix}.weight", tensors.get(f"{prefix}.SCB")
        if maxima is not None:
            order = tensors.get(f"{prefix}.weight_format")
            if order is not None and order.any():
                raise WrongValue(f"{prefix}.weight_format is {shown(order.tolist())}, expected 0, rows as they are")
            what = "codes of int8 whose scale is SCB / 127, which is rounded anew at each value,"
            why = f"{name}: {what} {no_format(self.name)}"
            return of_values(*from_row_maxima(name, tensors[name], maxima), why)
        packed, scales, group, shape = _parts_in(name, tensors)
        rows, count = math.prod(shape[:-1]), shape[-1]
        kind = "fp4" if f"{name}.{FP4_STATE}" in tensors else "nf4"
        if kind == "nf4" and count % group == 0 and count % 2 == 0 and not (scales < 0).any():
            codes, size = np.empty((rows, count // 2), np.uint8), (rows, count)
            moved((packed.reshape(codes.shape), 4, HIGH_FIRST), (codes, 4, ROWS), size)
            parts = {"codes": codes, "scales": scales.reshape(rows, count // group)}
            return of_array(QuantizedArray(parts, NF4(group), shape, (len(shape) - 1,)))
        check_finite(f"{name}.absmax", scales)
        codes = np.stack([packed >> np.uint8(4), packed & np.uint8(15)], axis=1).reshape(-1)[: rows * count]
        values: Array = _levels_of(kind)[codes] * scales[np.arange(rows * count) // group]
        levels = f"codes of fp4 in blocks of {group}, whose levels are those of bitsandbytes,"
        what = levels if kind == "fp4" else "blocks that cross rows, or scales below 0,"
        declared, why = f"{kind} in blocks of {group}", f"{name}: {what} {no_format(self.name)}"
        return of_values(values.reshape(shape), declared, packed.nbytes + scales.nbytes, why)
