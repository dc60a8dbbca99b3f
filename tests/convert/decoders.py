"""Plain NumPy decoders of other programs' tensors, written from their documents, not from the package."""

from __future__ import annotations

import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def bits_of(words, bits, count):
    """Return dense codes of rows of little-endian words."""
    data = np.ascontiguousarray(words).view(np.uint8)
    stream = np.unpackbits(data, axis=1, bitorder="little")[:, : count * bits].reshape(len(data), count, bits)
    return (stream.astype(np.int64) << np.arange(bits)).sum(2)


def e4m3(codes):
    """Return float8_e4m3fn: sign, 4 bits of exponent of bias 7, 3 of mantissa; 0x7f is NaN."""
    codes = codes.view(np.uint8).astype(np.int64)
    sign, exponent, mantissa = codes >> 7, codes >> 3 & 15, codes & 7
    normal = np.ldexp(1 + mantissa / 8, exponent - 7)
    values = np.where(exponent == 0, np.ldexp(mantissa / 8, -6), normal)
    values = np.where(codes & 127 == 127, np.nan, values)
    return np.where(sign == 1, -values, values).astype(np.float32)


def gptq(tensors, name, bits, version):
    qweight, qzeros, scales = (tensors[f"{name}.{part}"] for part in ("qweight", "qzeros", "scales"))
    out, count = qweight.shape[1], qweight.shape[0] * 32 // bits
    codes = bits_of(np.ascontiguousarray(qweight.T), bits, count)  # (out, in)
    zeros = bits_of(qzeros, bits, out) + (version == 1)  # (groups, out)
    index = tensors[f"{name}.g_idx"]
    return ((codes - zeros.T[:, index]) * scales.astype(np.float32).T[:, index]).astype(np.float32)


def awq(tensors, name, group):
    order = [0, 4, 1, 5, 2, 6, 3, 7]  # position of value i of eight

    def unpacked(words):
        nibbles = words.view(np.uint32)[:, :, None] >> np.uint32(4) * np.array(order, np.uint32) & np.uint32(15)
        return nibbles.reshape(len(words), -1).astype(np.int64)

    codes, zeros = unpacked(tensors[f"{name}.qweight"]), unpacked(tensors[f"{name}.qzeros"])
    index = np.arange(len(codes)) // group
    scales = tensors[f"{name}.scales"].astype(np.float32)
    return ((codes - zeros[index]) * scales[index]).T.astype(np.float32)


def compressed(tensors, name, bits, group, symmetric=True):
    rows, count = map(int, tensors[f"{name}.weight_shape"].reshape(-1)[-2:])
    codes = bits_of(tensors[f"{name}.weight_packed"], bits, count) - (1 << bits - 1)
    index = tensors.get(f"{name}.weight_g_idx", np.arange(count) // (group or count))
    if not symmetric:
        zeros = bits_of(np.ascontiguousarray(tensors[f"{name}.weight_zero_point"].T), bits, rows) - (1 << bits - 1)
        codes = codes - zeros.T[:, index]
    return (codes * tensors[f"{name}.weight_scale"].astype(np.float32)[:, index]).astype(np.float32)


def fp8_blocks(tensors, name, scale="weight_scale_inv", block=128):
    values, scales = e4m3(tensors[f"{name}.weight"]), tensors[f"{name}.{scale}"].astype(np.float32)
    rows, columns = np.arange(len(values)) // block, np.arange(values.shape[1]) // block
    return values * scales[rows][:, columns]


def modelopt_nvfp4(tensors, name):
    packed = tensors[f"{name}.weight"]
    values = E2M1[np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1)]
    scales = e4m3(tensors[f"{name}.weight_scale"]) * tensors[f"{name}.weight_scale_2"].astype(np.float32)
    return values * np.repeat(scales, 16, 1)


def compressed_nvfp4(tensors, name):
    packed = tensors[f"{name}.weight_packed"]
    values = E2M1[np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1)]
    scales = e4m3(tensors[f"{name}.weight_scale"]) / tensors[f"{name}.weight_global_scale"].astype(np.float32)
    return values * np.repeat(scales, 16, 1)


def gpt_oss(tensors, name):
    blocks, scales = tensors[f"{name}_blocks"], tensors[f"{name}_scales"]
    values = E2M1[np.stack([blocks & 15, blocks >> 4], -1)].reshape(*blocks.shape[:-1], 32)
    values = np.ldexp(values, scales.astype(np.int64)[..., None] - 127)
    return values.reshape(*blocks.shape[:2], -1).astype(np.float32)


def mlx(tensors, name, bits, group):
    scales, biases = (tensors[f"{name}.{part}"].astype(np.float32) for part in ("scales", "biases"))
    count = scales.shape[-1] * group
    codes = bits_of(tensors[f"{name}.weight"], bits, count).astype(np.float32)
    return codes * np.repeat(scales, group, 1) + np.repeat(biases, group, 1)


def nf4(tensors, name, group, shape):
    packed = tensors[name].reshape(-1)
    codes = np.stack([packed >> 4, packed & 15], -1).reshape(-1)
    levels, scales = tensors[f"{name}.quant_map"], tensors[f"{name}.absmax"]
    return (levels[codes] * np.repeat(scales, group)).reshape(shape)
