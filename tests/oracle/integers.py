"""Uniform integers and VS-Quant: sections 1 and 2 of the definitions."""

from __future__ import annotations

import numpy as np

from .encoded import Encoded
from .exact import divide32, pack, quotient
from .rows import Rows, check_finite, check_float32, threshold


def nearest(q, low: int, high: int):
    return np.clip(np.rint(q), low, high)


def encode_int(fmt, x, axis, clip) -> Encoded:
    check_finite(x)
    check_float32(x)
    rows = Rows(x.shape, axis, fmt.group)
    values = rows.split(x)
    shape = values.shape[:2]
    top = 2 ** (fmt.bits - 1) - 1
    scales = np.zeros(shape, np.float32)
    zeros = np.zeros(shape, np.int64)
    codes = np.zeros(values.shape, np.int64)
    for place in np.ndindex(*shape):
        group = values[place][rows.real[place[1]]]
        if fmt.symmetric:
            s = divide32(threshold(group, clip, fmt.bits), top)
        else:
            low, high = min(group.min(initial=0.0), 0.0), max(group.max(initial=0.0), 0.0)
            if clip is not None:
                t = float(threshold(group, clip, fmt.bits))
                low, high = max(low, -t), min(high, t)
            s = np.float32((high - low) / (2**fmt.bits - 1))
        if fmt.scale == "f16":
            s = np.float32(np.float16(min(s, np.float32(65504))))
        scales[place] = s
        if s == 0:
            continue
        if fmt.symmetric:
            codes[place] = nearest(quotient(values[place], s), -top, top)
        else:
            z = nearest(quotient(-low, s), 0, 2**fmt.bits - 1)
            zeros[place] = z
            codes[place] = nearest(np.rint(quotient(values[place], s)) + z, 0, 2**fmt.bits - 1)
    components = {"codes": codes_as_bytes(codes, fmt.bits)}
    components["scales"] = scales.astype(np.float16) if fmt.scale == "f16" else scales
    if not fmt.symmetric:
        components["zero_points"] = pack(zeros, fmt.bits)
    units = (codes - zeros[:, :, None]).astype(np.float64)
    scale = scales.astype(np.float64)
    if fmt.group is None:
        return Encoded(rows, components, units, outer=scale[:, 0], integers=True)
    return Encoded(rows, components, units, scale=scale, grouped=True, integers=True)


def codes_as_bytes(codes, bits: int):
    return pack(codes.reshape(len(codes), codes.shape[1] * codes.shape[2]), bits)


def encode_vsq(fmt, x, axis, clip) -> Encoded:
    check_finite(x)
    check_float32(x)
    rows = Rows(x.shape, axis, fmt.group)
    values = rows.split(x)
    if fmt.unsigned:
        values = np.maximum(values, 0.0)
        low, high = 0, 2**fmt.bits - 1
    else:
        high = 2 ** (fmt.bits - 1) - 1
        low = -high
    scales = np.zeros(values.shape[:2], np.float32)
    codes = np.zeros(values.shape, np.int64)
    for place in np.ndindex(*scales.shape):
        group = values[place][rows.real[place[1]]]
        scales[place] = s = divide32(threshold(group, clip, fmt.bits), high)
        if s > 0:
            codes[place] = nearest(quotient(values[place], s), low, high)
    if fmt.scale_bits is None:
        components = {"codes": codes_as_bytes(codes, fmt.bits), "scales": scales}
        return Encoded(rows, components, codes.astype(np.float64), scales.astype(np.float64), None, True, True)

    most = 2**fmt.scale_bits - 1
    if fmt.coarse == "tensor":
        gamma = np.full(rows.rows, divide32(scales.max(initial=0), most), np.float32)
    else:
        gamma = divide32(scales.max(axis=1, initial=0), np.float32(most))
    s_q = np.zeros(scales.shape, np.int64)
    for row, i in np.ndindex(*scales.shape):
        if gamma[row] > 0:
            s_q[row, i] = nearest(quotient(scales[row, i], gamma[row]), 0, most)
        if s_q[row, i] == 0:
            codes[row, i] = 0
        elif fmt.refit:
            codes[row, i] = nearest(quotient(values[row, i], np.float64(gamma[row]) * s_q[row, i]), low, high)
    one = divide32(scales.max(initial=0), most)
    coarse = np.asarray(one, np.float32) if fmt.coarse == "tensor" else gamma
    components = {"codes": codes_as_bytes(codes, fmt.bits), "scales": pack(s_q, fmt.scale_bits), "coarse": coarse}
    scale = s_q.astype(np.float64)
    return Encoded(rows, components, codes.astype(np.float64), scale, gamma.astype(np.float64), True, True)
