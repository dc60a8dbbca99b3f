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

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue, shown
from ...base.tensors import Tensors
from ...formats import MX, Float
from . import scaled
from .linear import Array, Packed, Parts, prefix_of, refuse

__all__ = ["BARE", "ENDS", "MARKERS", "MARKS", "array_from", "blocks_from", "check_blocks", "codes_in", "config_of",
           "is_weight", "layout_of", "parts_of", "parts_of_blocks"]  # fmt: skip

NAME = "fp8"
SCALES = (".weight_scale_inv", ".weight_scale", ".scale_weight", ".qscale_weight", ".scale")
ENDS = (".weight", *SCALES)
BARE = "_scale_inv"  # after the name of a stack itself
MARKS = (*SCALES, BARE)
MARKERS = ("scaled_fp8",)
FLOATS = scaled.SCALES
POWERS = ("float8_e8m0fnu", "uint8")
SCALE_DTYPES = (*FLOATS, *POWERS)
EIGHTS = ("float8_e4m3fn", "float8_e5m2")
FOURS = ("int8", "uint8")  # two codes of E2M1
USUAL = (128, 128)
Block = tuple[int, int]


def layout_of(name: str, q: Packed) -> Parts:
    """Return dtypes and shapes of the tensors that represent one weight, or refuse it."""
    if not isinstance(q.format, Float) or not scaled.is_scaled(q.format) or q.format.scaled != "tensor":
        refuse(name, q, NAME, "fp8_e4m3fn-tensor is the nearest")
    return scaled.parts_like(prefix_of(name, q, NAME), q.format, q.shape)


def parts_of(name: str, q: QuantizedArray) -> dict[str, Array]:
    """Return the tensors that represent one weight."""
    layout_of(name, q)  # refuses
    return scaled.parts_of(prefix_of(name, q, NAME), q)


def check_blocks(name: str, shape: tuple[int, ...], blocks: scaled.Blocks) -> None:
    """Raise ValueError if the layout cannot store codes with scales of blocks."""
    if blocks.dtype not in EIGHTS or not name.endswith(".weight"):
        raise WrongValue(f"{NAME} has no place for {blocks}")


def parts_of_blocks(name: str, shape: tuple[int, ...], codes: scaled.Codes) -> dict[str, Array]:
    """Return the tensors that represent codes with scales of blocks."""
    prefix = name.removesuffix(".weight")
    return {f"{prefix}.weight": codes.codes, f"{prefix}.weight_scale_inv": codes.scales}


def config_of(formats: Mapping[str, Any], plain: Sequence[str], ordered: bool = False) -> dict[str, Any]:
    """Return the quantization_config of config.json."""
    one = next(iter(formats.values()))
    found: dict[str, Any] = {"quant_method": NAME, "fmt": str(one).removeprefix("float8_").removeprefix("fp8_")[:4]}
    found["activation_scheme"] = "dynamic"
    if isinstance(one, scaled.Blocks):
        found["weight_block_size"] = [one.high, one.wide]
    return found | {"modules_to_not_convert": [name.removesuffix(".weight") for name in plain]}


def is_weight(reader: Tensors, prefix: str, mark: str) -> bool:
    """Tell whether a tensor with the name of scales belongs to a weight: layers also have parameters called `scale`."""
    if mark == BARE:
        return not prefix.endswith(".weight") and prefix in reader and _are_codes(reader.info(prefix))
    codes = f"{prefix}.weight"
    return mark != ".scale" or (codes in reader and reader.info(codes).dtype in (*EIGHTS, *FOURS))


def _are_codes(info: Any) -> bool:
    return info.dtype in EIGHTS and len(info.shape) == 3


def _scales_in(prefix: str, tensors: Mapping[str, Array]) -> tuple[str, Array, bool]:
    """Return the name of the scales, the scales, and whether they are powers of two of one byte each."""
    name = next((end for end in SCALES if f"{prefix}{end}" in tensors), SCALES[0])
    stored = tensors[f"{prefix}{name}"]
    if stored.dtype.name not in SCALE_DTYPES:
        raise WrongValue(f"{prefix}{name} is {stored.dtype}, expected {', '.join(SCALE_DTYPES)}")
    scales = stored
    if stored.dtype.name in POWERS:
        scales = scaled.powers(stored)
    if not np.isfinite(scales.astype(np.float32)).all():
        raise WrongValue(f"{prefix}{name} holds a value that is not finite")
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
    said = config.get("weight_block_size")
    if said is None:
        return None
    if not isinstance(said, list) or len(said) != 2 or any(type(n) is not int or not 1 <= n < 1 << 31 for n in said):
        raise WrongValue(f"{prefix}: weight_block_size is {shown(said)}, expected two numbers of values")
    return said[0], said[1]


def array_from(prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> QuantizedArray:
    """Return one weight with a scale per row, for all, or per block; a block's scale is repeated for each row."""
    fours = _fours_in(prefix, tensors)
    if fours is not None:
        return fours
    q = scaled.array_of(prefix, codes_in(prefix, tensors, _block_of(prefix, config)), NAME)
    shape = tensors[f"{prefix}.weight"].shape
    return q if q.shape == shape else QuantizedArray(dict(q.components), q.format, shape, (2,))


def blocks_from(prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Any:
    """Return codes with one scale for each block; None for other tensors."""
    if tensors[f"{prefix}.weight"].dtype.name in FOURS:
        return None
    codes = codes_in(prefix, tensors, _block_of(prefix, config))
    return None if scaled.format_of(codes) is not None else (codes, tensors[f"{prefix}.weight"].shape, None)
