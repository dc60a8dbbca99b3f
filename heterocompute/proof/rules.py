"""The rules by which other programs round integers in groups, as levels (code - zero point) and scales.

GPTQ's quantizer without calibration (``rtn``): s = (max - min) / (2^b - 1), z = round(-min / s) and
code = clamp(round(w / s) + z). Symmetric: max = -min = max |w| and z = 2^(b-1). Other programs divide max |w| by
2^(b-1) - 1 or by 2^(b-1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..arrays.unpacked import codes_of, scales_of, zero_points_of
from ..base.container import numpy_dtype
from ..base.float_env import converted

Array = np.ndarray[Any, Any]


def integer_rules(values: Array, q: Any) -> Iterator[tuple[str, Array, Array]]:
    """Yield the rules for an array of integers in groups along its last axis: name, levels and scales of each value.

    Parameters
    ----------
    values : ndarray
        Of the base.
    q : QuantizedArray
        Its format says how many bits, which group, and the dtype of the scales.
    """
    fmt = q.format
    length = values.shape[-1]
    group = min(fmt.group or length, length)
    if fmt.form.codes != "integer" or q.axis != (values.ndim - 1,) or not length or length % group:
        return
    x = np.asarray(values, np.float32).reshape(*values.shape[:-1], length // group, group)
    largest = 2**fmt.bits - 1
    low, high = np.minimum(x.min(-1), 0), np.maximum(x.max(-1), 0)
    absolute = np.maximum(-low, high)
    half = np.float32(2 ** (fmt.bits - 1))
    with np.errstate(all="ignore"):
        kinds = {
            "rtn of GPTQ, asymmetric": ((high - low) / np.float32(largest), None, (0, largest)),
            "rtn of GPTQ, symmetric": (2 * absolute / np.float32(largest), half, (0, largest)),
            f"max / {2 ** (fmt.bits - 1) - 1}": (absolute / (half - 1), half, (1, largest)),
            f"max / {2 ** (fmt.bits - 1)}": (absolute / half, half, (0, largest)),
        }
        for name, (scale, zero, (least, most)) in kinds.items():
            scale = np.where(scale == 0, np.float32(1), scale).astype(np.float32)
            stored = scale.astype(np.float16).astype(np.float32) if fmt.form.scale == "f16" else scale
            for used, words in ((scale, name), (stored, f"{name}, codes from the stored scale")):
                point = np.rint(-low / used) if zero is None else zero
                point = np.broadcast_to(point, scale.shape)[..., None]
                codes = np.clip(np.rint(x / used[..., None]) + point, least, most)
                levels = (codes - point).reshape(values.shape)
                yield words, levels, np.repeat(stored, group, axis=-1).reshape(values.shape)
                if used is stored or fmt.form.scale != "f16":
                    break


def levels_of(q: Any) -> tuple[Array, Array]:
    """Return the codes minus their zero points, and the scale of each value."""
    return codes_of(q).astype(np.int32) - zero_points_of(q).astype(np.int32), scales_of(q, np.float32)


def block_rules(values: Array, shape: tuple[int, int], dtype: Any) -> Iterator[tuple[str, Array, Array]]:
    """Yield the rules for float8 codes with one scale per block of a matrix: name, codes and scales.

    With a the largest magnitude of a block and m that of the type: scales are a / m, or the reciprocal of m / a, and
    values are divided by the one or multiplied with the other (transformers, finegrained_fp8.py; DeepGEMM,
    per_block_cast_to_fp8). Some programs use at least 1e-4 for a, or the next power of two.
    """
    import ml_dtypes  # 5 ms

    rows, columns = values.shape
    high, wide = shape
    kind = np.dtype(dtype)
    most = np.float32(ml_dtypes.finfo(kind).max)  # type: ignore[no-untyped-call]
    x = np.asarray(values, np.float32)
    padded = np.zeros((-(-rows // high) * high, -(-columns // wide) * wide), np.float32)
    padded[:rows, :columns] = x
    blocks = padded.reshape(-1, high, padded.shape[1] // wide, wide)
    largest = np.abs(blocks).max(axis=(1, 3))

    def spread(scales: Array) -> Array:
        return np.repeat(np.repeat(scales, high, axis=0), wide, axis=1)[:rows, :columns]

    def codes(scaled: Array) -> Array:
        return np.clip(scaled, -most, most).astype(kind)

    with np.errstate(all="ignore"):
        for words, a in (("", largest), (", at least 1e-4", np.maximum(largest, np.float32(1e-4)))):
            divided, factor = a / most, most / a
            safe = np.where(divided > 0, divided, np.float32(1))
            ceiling = np.exp2(np.ceil(np.log2(safe))).astype(np.float32)
            inverse = np.where(np.isfinite(factor), factor, np.float32(1))
            yield f"max / {most:g}{words}", codes(x / spread(safe)), safe
            yield f"max / {most:g}{words}, multiplied", codes(x * spread(inverse)), safe
            yield f"1 / ({most:g} / max){words}", codes(x * spread(inverse)), np.float32(1) / inverse
            yield f"powers of two{words}", codes(x / spread(ceiling)), ceiling


def casts(values: Array, dtype: str) -> Iterator[tuple[str, Array]]:
    """Yield the rules of a cast to a plain dtype: name and values."""
    wanted = numpy_dtype(dtype)
    with np.errstate(all="ignore"):
        yield f"cast to {dtype}", converted(values, wanted)
        if dtype == "bfloat16":
            bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
            yield "cast to bfloat16, truncated", (bits >> np.uint32(16)).astype(np.uint16).view(wanted)
        if dtype.startswith("float8"):
            import ml_dtypes  # 5 ms

            most = float(ml_dtypes.finfo(wanted).max)  # type: ignore[no-untyped-call]
            clipped = np.clip(np.asarray(values, np.float32), -most, most)
            yield f"cast to {dtype}, saturated", converted(clipped, wanted)
        for other in ("bfloat16", "float16"):
            if other != dtype:
                yield f"cast to {other}, then to {dtype}", converted(converted(values, numpy_dtype(other)), wanted)
