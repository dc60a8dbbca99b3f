"""torchao's 8-bit tensors and integers stored in 8 bits, flattened for safetensors.

    NAME._weight_qdata       int8, float8_e4m3fn or float8_e5m2 (out, in)
    NAME._weight_scale       float (out / high, in / wide), or one
    NAME._weight_zero_point  int8, as the scales
    metadata, NAME.weight    {"_type": "Int8Tensor", "_data": {"block_size": [high, wide], ...}}

value = (code - zero point) scale in float32, before torchao rounds it to the dtype of the weight. `torchao_int4` reads
packed int4, `torchao_mx` MX and NVFP4; `integers` writes integers.

torchao 0.18, prototype/safetensors/safetensors_support.py, quantization/quantize_/workflows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ....arrays.quantized import QuantizedArray
from ....base.errors import WrongValue, shown
from ....base.json_text import strict_json
from ....base.tensors import Tensors
from ....formats import Int
from .. import linear, scaled
from ..layout import Layout
from ..linear import Array, Packed, Parts, check_finite, no_format
from ..weight import Weight, of_array, of_codes, of_values
from . import integers, torchao_int4, torchao_mx

ENDS = (
    "._weight_qdata",
    "._weight_scale",
    "._weight_zero_point",
    "._weight_scale_and_zero",
    "._weight_per_tensor_scale",
)
INTEGERS = tuple(f"int{bits}" for bits in range(1, 9))
# Type of a tensor -> dtypes of its codes.
TYPES: dict[str, tuple[str, ...]] = {
    "Float8Tensor": ("float8_e4m3fn", "float8_e5m2"),
    "Int8Tensor": ("int8",),
    "IntxUnpackedToInt8Tensor": ("int8",),
}
KINDS = (*TYPES, *torchao_int4.KINDS, *torchao_mx.KINDS)


def _said(prefix: str, metadata: Mapping[str, str]) -> tuple[str, Mapping[str, Any]]:
    """Return the type of a weight and its attributes; `block_size` are two numbers of values, of MX and NVFP4 any."""
    name = f"{prefix}.weight"
    if name not in metadata:
        raise WrongValue(f"{name}: the metadata of the file do not describe it, expected those of torchao")
    declared = strict_json(metadata[name])
    kind, data = (declared.get(key) for key in ("_type", "_data")) if isinstance(declared, Mapping) else (None, None)
    if not isinstance(kind, str) or kind not in KINDS or not isinstance(data, Mapping):
        what = f"{name} is a tensor of type {shown(kind)}, which is not read here"
        raise WrongValue(f"{what}: expected {', '.join(KINDS)}, or the original")
    if kind in torchao_mx.KINDS:
        return kind, data
    block = data.get("block_size")
    if not isinstance(block, list) or len(block) != 2 or any(type(n) is not int or not 1 <= n < 1 << 31 for n in block):
        raise WrongValue(f"{name}: block_size is {shown(block)}, expected two numbers of values")
    return kind, data


def _codes_in(
    prefix: str, kind: str, data: Mapping[str, Any], tensors: Mapping[str, Array]
) -> tuple[scaled.Codes, int]:
    """Return the codes and scales of a weight of 8 bits, and the bits of its integers."""
    high, wide = data["block_size"]
    target: Any = data.get("target_dtype") if kind == "IntxUnpackedToInt8Tensor" else {"_data": "int8"}
    dtype = target.get("_data") if isinstance(target, Mapping) else None
    if dtype not in INTEGERS:
        raise WrongValue(f"{prefix}.weight: target_dtype is {shown(target)}, expected {', '.join(INTEGERS)}")
    bits = int(dtype.removeprefix("int"))
    codes, scales, points = (
        tensors[f"{prefix}{ENDS[0]}"],
        tensors[f"{prefix}{ENDS[1]}"],
        tensors.get(f"{prefix}{ENDS[2]}"),
    )
    if codes.dtype.name not in TYPES[kind] or codes.ndim != 2 or 0 in codes.shape:
        wanted = " or ".join(TYPES[kind])
        raise WrongValue(f"{prefix}{ENDS[0]} is {codes.dtype} {codes.shape}, expected {wanted} (out, in)")
    rows, columns = codes.shape
    if rows % min(high, rows) or columns % min(wide, columns):
        raise WrongValue(f"{prefix}{ENDS[0]} is {codes.shape}, expected whole blocks of {high} x {wide}")
    blocks = rows // min(high, rows), columns // min(wide, columns)
    kinds = (scales, ENDS[1], scaled.SCALES), (points, ENDS[2], ("int8",))
    for part, end, dtypes in kinds:
        if part is None:
            continue
        if part.dtype.name not in dtypes or (part.shape != blocks and not (part.size == 1 and blocks == (1, 1))):
            what = f"{part.dtype} {part.shape}"
            raise WrongValue(
                f"{prefix}{end} is {what}, expected {', '.join(dtypes)} {blocks} of blocks {high} x {wide}"
            )
    check_finite(f"{prefix}{ENDS[1]}", scales)
    if points is not None and (kind == "Float8Tensor" or not points.any()):
        points = None
    points = None if points is None else points.reshape(blocks)
    return scaled.Codes(codes, scales.reshape(blocks), points, (min(high, rows), min(wide, columns))), bits


def _of_eight_bits(prefix: str, layout: str, weight: scaled.Codes, bits: int) -> Weight:
    """Return a weight of 8 bits: integers of fewer bits where all codes fit."""
    codes, scales, points, (high, wide) = weight
    least = -(1 << (bits - 1))
    held = [codes] if points is None else [codes, points]
    fits = all(part.min() >= least and part.max() < -least for part in held)
    if codes.dtype != np.int8 or bits in (1, 8) or high > 1 or not fits:
        return of_codes(f"{prefix}.weight", layout, weight)
    is_symmetric = points is None and bool(codes.min() > least)
    group = wide if wide < codes.shape[1] else None
    fmt = Int(bits, group, is_symmetric, "f16" if scales.dtype == np.float16 else "f32")
    if is_symmetric:
        return of_array(linear.array_of(fmt, codes.view(np.uint8) & np.uint8((1 << bits) - 1), scales, None))
    middle = np.zeros(scales.shape, np.int8) if points is None else points
    unsigned, points = ((part - np.int8(least)).view(np.uint8) for part in (codes, middle))
    return of_array(linear.array_of(fmt, unsigned, scales, points))


class TorchAO(Layout):
    name = "torchao"
    marks = ("._weight_qdata",)
    ends = ENDS
    signs = (("._weight_qdata",),)
    needs_config = False
    has_several = True
    reads_metadata = True
    examples = ("int4-g32", "int4-g32-asym-f16", "int8-g32", "int3-g64-asym-f16")

    def fits(self, reader: Tensors, prefix: str, dtypes: Sequence[str]) -> bool:
        return f"{prefix}.weight" in reader.metadata

    def shapes(self, name: str, q: Packed) -> Parts:
        return integers.shapes(name, q, self.name)

    def values(self, name: str, q: QuantizedArray) -> Iterable[Array]:
        return integers.values(name, q, self.name)

    def config(self, formats: Mapping[str, Any], plain: Sequence[str], ordered: bool) -> dict[str, Any]:
        return integers.configuration(formats, plain)

    def metadata(self, formats: Mapping[str, Any], parts: Parts, plain: Iterable[str]) -> dict[str, str]:
        return integers.metadata(parts, plain, {name: fmt.bits for name, fmt in formats.items()})

    def read(self, prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Weight:
        kind, data = _said(prefix, config["metadata"])
        if kind in torchao_mx.KINDS:
            return of_array(torchao_mx.array_of(prefix, kind, data, tensors, (*ENDS[:2], ENDS[4])))
        if kind in torchao_int4.KINDS:
            four = torchao_int4.weight_of(prefix, kind, data, tensors, ENDS[:4])
            if (q := torchao_int4.array_of(four)) is not None:
                return of_array(q)
            why = f"{prefix}.weight: zero points whose values are rounded otherwise {no_format(self.name)}"
            return of_values(*torchao_int4.values_of(four), why)
        return _of_eight_bits(prefix, self.name, *_codes_in(prefix, kind, data, tensors))
