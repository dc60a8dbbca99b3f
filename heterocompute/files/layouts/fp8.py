"""FP8 with scales beside the codes: blocks of 128 x 128 as in DeepSeek's files, or one scale per tensor or per row.

    NAME.weight            float8_e4m3fn or float8_e5m2 (out, in), or a stack (experts, out, in); or int8 or uint8
                           (out, in / 2): E2M1, the even code low, with a scale for every 32 values
    NAME.weight_scale_inv  float (blocks of out, blocks of in), the factor itself; for experts, (experts, ...)
    NAME, NAME_scale_inv   the same of stacks of experts in transformers; (experts, in, out) where the model has them so
    NAME.weight_scale      float (), (1,), (out,), (out, 1) or blocks; also scale_weight (ComfyUI), scale, qscale_weight

value = code x scale in float32. A scale of one byte (float8_e8m0fnu or uint8) is 2^(byte - 127). Scales of inputs are
plain tensors. Blocks have `weight_block_size` of the configuration; without it 128 x 128, or equal ones. Hugging Face,
integrations/finegrained_fp8.py, Fp8Dequantize; FbgemmFp8Config. vLLM, layers/quantization/fp8.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue, shown
from ...base.tensors import Tensors
from ...formats import MX, Float
from . import scaled
from .layout import Layout
from .linear import Array, Packed, Parts, check_finite, prefix_of, refuse
from .weight import Weight, of_array, of_codes

SCALES = (".weight_scale_inv", ".weight_scale", ".scale_weight", ".qscale_weight", ".scale")
FLOATS = scaled.SCALES
POWERS = ("float8_e8m0fnu", "uint8")
SCALE_DTYPES = (*FLOATS, *POWERS)
EIGHTS = ("float8_e4m3fn", "float8_e5m2")
FOURS = ("int8", "uint8")  # two codes of E2M1
USUAL = (128, 128)
Block = tuple[int, int]


def _scales_in(prefix: str, tensors: Mapping[str, Array]) -> tuple[str, Array, bool]:
    """Return the name of the scales, the scales, and whether they are powers of two of one byte each."""
    name = next((end for end in SCALES if f"{prefix}{end}" in tensors), SCALES[0])
    stored = tensors[f"{prefix}{name}"]
    if stored.dtype.name not in SCALE_DTYPES:
        raise WrongValue(f"{prefix}{name} is {stored.dtype}, expected {', '.join(SCALE_DTYPES)}")
    scales = stored
    if stored.dtype.name in POWERS:
        scales = scaled.powers(stored)
    check_finite(f"{prefix}{name}", scales)
    return f"{prefix}{name}", scales, scales is not stored


def _per_expert(name: str, scales: Array, shape: tuple[int, ...]) -> Array:
    """Return the scales of a stack (experts, out, in) with one dimension for the experts and two for a matrix."""
    count, rows = shape[:2]
    if scales.size == count and len(scales.reshape(-1)) == len(scales):
        return scales.reshape(count, 1, 1)
    if scales.shape == (count, rows):
        return scales.reshape(count, rows, 1)
    if scales.ndim != 3 or len(scales) != count:
        raise WrongValue(f"{name} is {scales.shape}, expected those of {count} matrices of {shape[1]} x {shape[2]}")
    return scales


def _block_in(name: str, scales: tuple[int, ...], shape: tuple[int, int], stated: Block | None) -> Block:
    """Return the rows and columns of a block of a matrix: as stated, 128 x 128, or those that make equal blocks."""
    (rows, columns), (high, wide) = shape, stated or USUAL
    sizes = [n for n in scales if n > 1]
    if not sizes and (stated is None or high < rows or wide < columns):
        return shape
    if scales in ((rows,), (rows, 1)) and (stated is None or high == 1):
        return 1, columns
    count = -(-rows // high), -(-columns // wide)
    if sizes == [n for n in count if n > 1]:
        return high, wide
    if stated is None and len(scales) == 2 and min(scales) > 0 and not (rows % scales[0] or columns % scales[1]):
        return rows // scales[0], columns // scales[1]
    what = f"{count} for {rows} x {columns} values in blocks of {high} x {wide}"
    raise WrongValue(f"{name} is {scales}, expected {what}")


def codes_in(prefix: str, tensors: Mapping[str, Array], stated: Block | None) -> scaled.Codes:
    """Return the codes and scales of a weight; `stated` is the size of a block, if a configuration states it."""
    codes = tensors[f"{prefix}.weight"]
    name, scales, is_power = _scales_in(prefix, tensors)
    if codes.dtype.name not in EIGHTS or codes.ndim not in (2, 3) or 0 in codes.shape:
        raise WrongValue(f"{prefix}.weight is {codes.dtype} {codes.shape}, expected {' or '.join(EIGHTS)} (out, in)")
    count, (rows, columns) = 1, codes.shape[-2:]
    if codes.ndim == 3:
        scales, count = _per_expert(name, scales, codes.shape), len(codes)
    size = scales.shape[codes.ndim - 2 :]
    try:
        high, wide = _block_in(name, size, (rows, columns), stated)
    except ValueError:
        if not is_power or stated is None:
            raise
        high, wide = _block_in(name, size, (rows, columns), None)  # MXFP8 beside blocks of another size
    if rows % high and count > 1:
        raise WrongValue(f"{name} is {scales.shape}, expected those of whole blocks of {high} rows an expert")
    blocks = count * -(-rows // high), -(-columns // wide)
    # The rows of all experts are one matrix, in which blocks do not cross experts.
    return scaled.Codes(codes.reshape(-1, columns), scales.reshape(blocks), None, (high, wide))


def _fours_in(prefix: str, tensors: Mapping[str, Array]) -> QuantizedArray | None:
    """Return codes of E2M1 with a power of two for every 32 values; None for other dtypes."""
    codes = tensors[f"{prefix}.weight"]
    if codes.dtype.name not in FOURS:
        return None
    name, _, is_power = _scales_in(prefix, tensors)
    shape = (*codes.shape[:-1], 2 * codes.shape[-1])
    stored, wanted = tensors[name], (*shape[:-1], shape[-1] // 32)
    if codes.ndim not in (2, 3) or not is_power or shape[-1] % 32 or stored.shape != wanted or 0 in shape:
        what = f"{codes.dtype} {codes.shape} with scales {stored.dtype} {stored.shape}"
        raise WrongValue(f"{prefix}.weight is {what}, expected {' or '.join(EIGHTS)}, or E2M1 with e8m0 {wanted}")
    rows = int(np.prod(shape[:-1]))
    parts = {"codes": codes.view(np.uint8).reshape(rows, -1), "scales": stored.view(np.uint8).reshape(rows, -1)}
    return QuantizedArray(parts, MX("fp4"), shape, (len(shape) - 1,))


def _block_of(prefix: str, config: Mapping[str, Any]) -> Block | None:
    declared = config.get("weight_block_size")
    if declared is None:
        return None
    if (
        not isinstance(declared, list)
        or len(declared) != 2
        or any(type(n) is not int or not 1 <= n < 1 << 31 for n in declared)
    ):
        raise WrongValue(f"{prefix}: weight_block_size is {shown(declared)}, expected two numbers of values")
    return declared[0], declared[1]


def weight_in(prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any], layout: str) -> Weight:
    """Return one weight; other layouts have such tensors, too."""
    fours = _fours_in(prefix, tensors)
    if fours is not None:
        return of_array(fours)
    codes = codes_in(prefix, tensors, _block_of(prefix, config))
    return of_codes(f"{prefix}.weight", layout, codes, tensors[f"{prefix}.weight"].shape)


class FP8(Layout):
    name = "fp8"
    methods = ("fbgemm_fp8", "mxfp8")
    ends = (".weight", *SCALES)
    bare = "_scale_inv"
    marks = (*SCALES, bare)
    markers = ("scaled_fp8",)
    signs = (
        (".weight_scale_inv", ".weight"), ("_scale_inv", ""), (".scale_weight", ".weight"), (".weight_scale", ".weight")
    )  # fmt: skip
    needs_config = False
    examples = ("fp8_e4m3fn-tensor",)

    def fits(self, reader: Tensors, prefix: str, dtypes: Sequence[str]) -> bool:
        return dtypes[-1] in EIGHTS and dtypes[0] in SCALE_DTYPES

    def is_weight(self, reader: Tensors, prefix: str, mark: str) -> bool:
        """Tell whether scales belong to a weight: layers also have parameters called `scale`."""
        if mark == self.bare:
            info = reader.info(prefix) if not prefix.endswith(".weight") and prefix in reader else None
            return info is not None and info.dtype in EIGHTS and len(info.shape) == 3
        codes = f"{prefix}.weight"
        return mark != ".scale" or (codes in reader and reader.info(codes).dtype in (*EIGHTS, *FOURS))

    def shapes(self, name: str, q: Packed) -> Parts:
        if not isinstance(q.format, Float) or not scaled.is_scaled(q.format) or q.format.scaled != "tensor":
            refuse(name, q, self.name, "fp8_e4m3fn-tensor is the nearest")
        return scaled.parts_like(prefix_of(name, q, self.name), q.format, q.shape)

    def values(self, name: str, q: QuantizedArray) -> Iterable[Array]:
        return scaled.parts_of(name, q).values()

    def check_blocks(self, name: str, shape: tuple[int, ...], blocks: scaled.Blocks) -> None:
        if blocks.dtype not in EIGHTS or not name.endswith(".weight"):
            raise WrongValue(f"{self.name} has no place for {blocks}")

    def block_tensors(self, name: str, shape: tuple[int, ...], codes: scaled.Codes) -> dict[str, Array]:
        prefix = name.removesuffix(".weight")
        return {f"{prefix}.weight": codes.codes, f"{prefix}.weight_scale_inv": codes.scales}

    def config(self, formats: Mapping[str, Any], plain: Sequence[str], ordered: bool) -> dict[str, Any]:
        one = next(iter(formats.values()))
        found: dict[str, Any] = {
            "quant_method": self.name,
            "fmt": str(one).removeprefix("float8_").removeprefix("fp8_")[:4],
        }
        found["activation_scheme"] = "dynamic"
        if isinstance(one, scaled.Blocks):
            found["weight_block_size"] = [one.high, one.wide]
        return found | {"modules_to_not_convert": list(plain)}

    def read(self, prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Weight:
        return weight_in(prefix, tensors, config, self.name)
