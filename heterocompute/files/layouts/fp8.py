"""FP8 with scales beside the codes: blocks of 128 x 128 as in DeepSeek's files, or one scale per tensor or per row.

    NAME.weight            float8_e4m3fn or float8_e5m2 (out, in), or a stack (experts, out, in) with blocks
    NAME.weight_scale_inv  float (blocks of out, blocks of in), the factor itself
    NAME.weight_scale      float (), (1,), (out,) or (out, 1); or blocks
    NAME.scale_weight      the same, in ComfyUI's files, with a marker `scaled_fp8`

`weight_block_size` of the configuration is the size of a block.

value = code x scale in float32. Scales of inputs (`input_scale`) are plain tensors. Hugging Face, FineGrainedFP8Config;
vLLM, layers/quantization/fp8.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.quantized import QuantizedArray
from ...base.values import shown
from ...formats import Float
from . import scaled
from .linear import Array, Packed, Parts, prefix_of, refuse

__all__ = ["ENDS", "MARKERS", "array_from", "blocks_from", "check_blocks", "codes_in", "config_of", "layout_of",
           "parts_of", "parts_of_blocks"]  # fmt: skip

NAME = "fp8"
SCALES = (".weight_scale_inv", ".weight_scale", ".scale_weight")
ENDS = (".weight", *SCALES)
MARKERS = ("scaled_fp8",)
FLOATS = scaled.SCALES
EIGHTS = ("float8_e4m3fn", "float8_e5m2")
USUAL = (128, 128)


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
        raise ValueError(f"{NAME} has no place for {blocks}")


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


def codes_in(prefix: str, tensors: Mapping[str, Array], block: tuple[int, int] | None) -> scaled.Codes:
    """Return the codes and scales of a weight; `block` is the block's size, if a configuration states it."""
    codes = tensors[f"{prefix}.weight"]
    name = next((end for end in SCALES if f"{prefix}{end}" in tensors), SCALES[0])
    scales = tensors[f"{prefix}{name}"]
    if codes.ndim == scales.ndim == 3:  # a stack of experts, with the rows of all experts one after another
        high = (block or USUAL)[0]
        if codes.shape[1] % high or len(scales) != len(codes):
            raise ValueError(
                f"{prefix}{name} is {scales.shape}, expected those of whole blocks of {high} rows an expert"
            )
        codes, scales = codes.reshape(-1, codes.shape[2]), scales.reshape(-1, scales.shape[2])
    if codes.dtype.name not in EIGHTS or codes.ndim != 2 or 0 in codes.shape:
        raise ValueError(f"{prefix}.weight is {codes.dtype} {codes.shape}, expected {' or '.join(EIGHTS)} (out, in)")
    if scales.dtype.name not in FLOATS:
        raise ValueError(f"{prefix}{name} is {scales.dtype}, expected {', '.join(FLOATS)}")
    (rows, columns), flat = codes.shape, scales.reshape(-1)
    if not np.isfinite(flat.astype(np.float32)).all():
        raise ValueError(f"{prefix}{name} holds a value that is not finite")
    if scales.size == 1 and (block is None or block[0] < rows or block[1] < columns):
        return scaled.Codes(codes, scales.reshape(1, 1), None, (rows, columns))
    if scales.shape in ((rows,), (rows, 1)) and (block is None or block[0] == 1):
        return scaled.Codes(codes, scales.reshape(rows, 1), None, (1, columns))
    high, wide = block or USUAL
    count = -(-rows // high), -(-columns // wide)
    if [n for n in scales.shape if n > 1] != [n for n in count if n > 1]:
        what = f"{count} for {rows} x {columns} values in blocks of {high} x {wide}"
        raise ValueError(f"{prefix}{name} is {scales.shape}, expected {what}")
    return scaled.Codes(codes, scales.reshape(count), None, (high, wide))


def _block_of(prefix: str, config: Mapping[str, Any]) -> tuple[int, int] | None:
    said = config.get("weight_block_size")
    if said is None:
        return None
    if not isinstance(said, list) or len(said) != 2 or any(type(n) is not int or not 1 <= n < 1 << 31 for n in said):
        raise ValueError(f"{prefix}: weight_block_size is {shown(said)}, expected two numbers of values")
    return said[0], said[1]


def array_from(prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> QuantizedArray:
    """Return one weight with a scale per row, for all, or per block; a block's scale is repeated for each row."""
    q = scaled.array_of(prefix, codes_in(prefix, tensors, _block_of(prefix, config)), NAME)
    shape = tensors[f"{prefix}.weight"].shape
    return q if q.shape == shape else QuantizedArray(dict(q.components), q.format, shape, (2,))


def blocks_from(prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Any:
    """Return codes with one scale for each block; None for other tensors."""
    codes = codes_in(prefix, tensors, _block_of(prefix, config))
    return None if scaled.format_of(codes) is not None else (codes, tensors[f"{prefix}.weight"].shape, None)
