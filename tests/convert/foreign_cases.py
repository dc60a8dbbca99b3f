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


INT4 = ("Int4Tensor", "Int4PlainInt32Tensor", "Int4TilePackedTo4dTensor")


def in_tiles(codes: Array, inner: int) -> Array:
    """Pack codes as one thread after another does: PyTorch, native/cuda/int4mm.cu, matrix_to_m16n8k16_Bint4_layout.

    Its input are bytes (out, in / 2) with even columns in the high halves.
    """
    n, k = codes.shape
    given = codes[:, ::2] << 4 | codes[:, 1::2]
    out = np.zeros((-(-n // 8), k // (inner * 16), 32, inner // 2), np.uint32)
    for n_tile in range(out.shape[0]):
        for outer in range(out.shape[1]):
            for lane in range(32):
                for tile in range(0, inner, 2):
                    row, base = n_tile * 8 + lane // 4, (outer * inner + tile) * 8
                    first = base + lane % 4
                    v = [int(given[row, at]) if row < n else 0 for at in (first, first + 4, first + 8, first + 12)]
                    low = sum((byte & 15) << (16 + 4 * i) for i, byte in enumerate(v))
                    out[n_tile, outer, lane, tile // 2] = low | sum((byte >> 4) << (4 * i) for i, byte in enumerate(v))
    return out.view(np.int32)


def torchao_int4(
    kind: str, shape: tuple[int, int], group: int, dtype: Any, zeros: str = "floats", inner: int = 8
) -> tuple[dict[str, Array], dict[str, Any], Array]:
    """Return the tensors of a layer, its metadata, and its values in float32."""
    rows, columns = shape
    codes = RNG.integers(1 if zeros == "none" else 0, 16, shape).astype(np.uint8)
    scales = RNG.uniform(0.001, 0.1, (rows, columns // group)).astype(np.float32).astype(dtype)
    # zeros far below a scale are not exact in `affine4`
    added = (scales.astype(np.float32) * RNG.integers(-40, 41, scales.shape) / 32).astype(dtype)
    if zeros in ("none", "zero"):
        added[:] = 0
    points = RNG.integers(0, 16, scales.shape).astype(np.int8)
    prefix = "fc._weight_"
    if kind == INT4[2]:
        padded = -(-rows // 8) * 8, -(-columns // 1024) * 1024 if inner == 8 else columns
        given = np.pad(codes, ((0, padded[0] - rows), (0, padded[1] - columns)), constant_values=9)
        both = np.ones((padded[1] // group, padded[0], 2), dtype)
        both[: columns // group, :rows] = np.stack([scales.T, added.T], -1)
        tensors = {f"{prefix}qdata": in_tiles(given, inner), f"{prefix}scale_and_zero": both}
    else:
        signed = codes ^ 8 if kind == INT4[0] else codes
        stored = np.asarray(signed[:, ::2] | signed[:, 1::2] << 4, np.uint8)
        zero = added if kind == INT4[0] else points
        tensors = {f"{prefix}qdata": stored.view(np.int8 if kind == INT4[0] else np.int32),
                   f"{prefix}scale": np.ascontiguousarray(scales.T),
                   f"{prefix}zero_point": np.ascontiguousarray(zero.T)}  # fmt: skip
    wide = [np.repeat(part.astype(np.float32), group, 1) for part in (scales, added, points)]
    values = (codes - np.float32(8)) * wide[0] + wide[1]
    if kind == INT4[1]:
        values = (codes - wide[2]) * wide[0]
    said = {"block_size": [1, group], "shape": list(shape)}
    return tensors, {"_type": kind, "_data": said, "_tensor_data_names": ["qdata"]}, values


def eetq(codes: Array) -> Array:
    """Return codes (in, out) as EETQ stores them, step by step.

    FasterTransformer, cutlass_preprocessors.cc: permute_B_rows_for_mixed_gemm, subbyte_transpose,
    interleave_column_major_tensor, add_bias_and_interleave_int8s_inplace, for 8 bits on sm75 and later.
    """
    rows, columns = codes.shape
    permuted = np.empty_like(codes)
    for base in range(0, rows, 16):
        for row in range(16):
            permuted[base + row] = codes[base + 8 * (row % 4 // 2) + row % 2 + 2 * (row // 4)]
    words = np.ascontiguousarray(permuted.T).view(np.uint32)  # (out, in / 4)
    high = rows // 4
    out = np.zeros(columns * high, np.uint32)
    for column in range(columns):
        for base in range(0, high, 16):
            for row in range(base, min(high, base + 16)):
                place = 2 * base + 16 * (column % 2) + row % 16
                out[column // 2 * high * 2 + place] = words[column, row]
    biased = (out.view(np.int8).astype(np.int16) + 128).astype(np.uint8).reshape(-1, 4)
    biased[:, [1, 2]] = biased[:, [2, 1]]
    return biased.reshape(rows, columns).view(np.int8)
