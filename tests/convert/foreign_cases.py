"""Checkpoints of other programs, built from their specifications: tensors, and the configuration or the values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def bitnet(scale: float, linear_class: str | None, codes: Array) -> tuple[dict[str, Array], dict[str, Any]]:
    parts = (codes + 1).astype(np.uint8).reshape(4, len(codes) // 4, codes.shape[1])
    packed = sum(parts[i] << np.uint8(2 * i) for i in range(4))
    config: dict[str, Any] = {"quant_method": "bitnet", "quantization_mode": "offline"}
    config |= {} if linear_class is None else {"linear_class": linear_class}
    tensors = {"fc.weight": np.asarray(packed, np.uint8), "fc.weight_scale": np.array([scale], BFLOAT16)}
    return {**tensors, "norm.weight": np.ones(5, np.float32)}, config


PACKINGS = {8: ("8bit_u8", 8, 1), 4: ("4bit_u8", 4, 2), 3: ("3bit_32", 3, 10), 2: ("2bit_u8", 2, 4),
            1: ("1bit_u8", 1, 8)}  # fmt: skip


def hqq(bits: int, group: int, axis: int, dtype: Any, shape: tuple[int, int]) -> tuple[dict[str, Array], Array]:
    """Return the tensors of a layer, and its values in float32."""
    name, wide, count = PACKINGS[bits]
    size = shape[0] * shape[1]
    grouped = (size // group, group) if axis == 1 else (group, size // group)
    codes = RNG.integers(0, 1 << bits, grouped)
    part = (grouped[0], 1) if axis == 1 else (1, grouped[1])
    scales, zeros = RNG.uniform(0.001, 0.1, part).astype(dtype), RNG.uniform(-1, (1 << bits) + 1, part).astype(dtype)
    padded = np.zeros((-(-grouped[0] // count) * count, grouped[1]), np.int64)
    padded[: grouped[0]] = codes
    stored = sum(one << (wide * (count - 1 - i)) for i, one in enumerate(np.split(padded, count)))
    tensors = {
        "W_q": np.asarray(stored, np.int32 if bits == 3 else np.uint8), "scale": scales, "zero": zeros,
        "shape": np.array(shape, np.int64), "nbits": np.array(bits, np.int32), "axis": np.array(axis, np.int32),
        "group_size": np.array(group, np.int32), "packing": np.frombuffer(name.encode(), np.uint8),
        "quant_zero": np.array(0, np.uint8), "quant_scale": np.array(0, np.uint8), "bias": np.zeros(shape[0], dtype),
        "view_as_float": np.array(0, np.uint8), "channel_wise": np.array(1, np.uint8),
    }  # fmt: skip
    values = (codes.astype(np.float32) - zeros.astype(np.float32)) * scales.astype(np.float32)
    return {f"fc.{key}": part for key, part in tensors.items()}, values.reshape(shape)


def fp8_blocks(shape: tuple[int, ...], high: int, wide: int) -> tuple[dict[str, Array], dict[str, Any], Array]:
    blocks = (*shape[:-2], -(-shape[-2] // high), -(-shape[-1] // wide))
    codes = RNG.integers(0, 256, shape).astype(np.uint8)
    codes[codes & 127 == 127] = 0  # NaN
    scales = RNG.uniform(0.001, 0.1, blocks).astype(np.float32)
    floats = codes.view(ml_dtypes.float8_e4m3fn)
    spread = np.repeat(np.repeat(scales, high, -2)[..., : shape[-2], :], wide, -1)[..., : shape[-1]]
    config = {"quant_method": "fp8", "weight_block_size": [high, wide]}
    return {"fc.weight": floats, "fc.weight_scale_inv": scales}, config, floats.astype(np.float32) * spread


def torchao(
    kind: str, shape: tuple[int, int], block: tuple[int, int], dtype: str, bits: int, points: bool
) -> tuple[dict[str, Array], dict[str, Any], Array]:
    """Return the tensors of a layer, its metadata, and its values in float32."""
    blocks = shape[0] // block[0], shape[1] // block[1]
    least = -(1 << (bits - 1))
    codes: Array = RNG.integers(least + (bits > 1), -least, shape).astype(np.int8)
    scales = RNG.uniform(0.001, 0.1, blocks).astype(np.float32).astype(dtype)
    zeros = RNG.integers(least, -least, blocks).astype(np.int8) if points else np.zeros(blocks, np.int8)
    tensors = {"fc._weight_qdata": codes, "fc._weight_scale": scales, "fc._weight_zero_point": zeros}
    data: dict[str, Any] = {"block_size": list(block), "dtype": {"_type": "torch.dtype", "_data": "bfloat16"}}
    if kind == "Float8Tensor":
        del tensors["fc._weight_zero_point"]
        codes = RNG.normal(size=shape).astype(ml_dtypes.float8_e4m3fn)
        tensors["fc._weight_qdata"] = codes
    if kind.startswith("Intx"):
        data["target_dtype"] = {"_type": "torch.dtype", "_data": f"int{bits}"}

    def spread(part: Array) -> Array:
        return np.repeat(np.repeat(part.astype(np.float32), block[0], 0), block[1], 1)

    values = (codes.astype(np.float32) - spread(zeros)) * spread(scales)
    metadata = {"fc.weight": {"_type": kind, "_data": data, "_tensor_data_names": ["qdata", "scale"]}}
    return tensors, {"quant_method": "torchao", "metadata": metadata}, values
