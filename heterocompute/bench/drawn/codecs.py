"""Drawn rounding and packing of arrays, next to torch, ml_dtypes and gguf."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ... import reference
from ...formats import format as parse_format, has_pattern
from ...products.quantize import fake_quantize, quantize
from ...reference import sparsity
from ..measure import expect_equal
from ..peers import installed
from .call import Array, Call, Calls, Draw, close, sizes_text
from .products import OTHERS
from .shapes import matrices

FORMATS = ("int8", "int8", "int4", "int8-g64", "int4-g32-f16", "int4-g128-asym", "vsq4-g16-s4", "vsq8-g64-s8",
           "bf16", "fp16", "fp8_e4m3fn", "fp8_e5m2", "q8_0", "q4_0", *OTHERS)  # fmt: skip
OPERATIONS = ("quantize", "quantize", "dequantize", "fake_quantize")
CASTS = {"bf16": "bfloat16", "fp16": "float16", "fp8_e4m3fn": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}
BLOCKS = {"q8_0": "Q8_0", "q4_0": "Q4_0"}  # of gguf, which rounds them in NumPy
GROUPS = {"int8": (0, 127), "int4": (0, 7), "int8-g64": (64, 127), "int4-g32-f16": (32, 7)}  # and the largest code
LOSS = 0.3  # of values that another library rounds, relative to their norm
MOST_VALUES, SAMPLE = 1 << 23, 8


def draw_codec(draw: Draw, threads: int) -> Call | None:
    """Return an operation on an array; None if it is too large."""
    operation, fmt = draw.pick(OPERATIONS), draw.pick(FORMATS)
    n, k = (draw.size(size) for size in draw.pick(matrices()))
    n = draw.pick((n, n, 1, 16, 128))
    if fmt in ("q4_k", "q6_k", "q8_0", "q4_0"):
        k = max(256, k - k % 256)
    if n * k > (1 << 14 if draw.quick else MOST_VALUES) or fmt in ("2:4", "cb4"):
        return None
    x, dtype = draw.floats(n, k)
    axis = 0 if draw.chance(0.15) and fmt not in ("q4_k", "q6_k", "int8+2:4", *BLOCKS) else -1
    text = f"{operation} {fmt}, {sizes_text((n, k))}{dtype}{', axis 0' if axis == 0 else ''}"
    q = quantize(x, fmt, axis)
    values = q.dequantize()
    run: Callable[[], Any]
    check: Callable[[], None]
    if operation == "quantize":
        run = partial(quantize, x, fmt, axis)
        check = partial(_expect_codes, x, fmt, axis, q)
    elif operation == "dequantize":
        run, check = q.dequantize, partial(_expect_values, q, x, values, axis)
    else:
        run = partial(fake_quantize, x, fmt, axis)
        check = lambda: expect_equal(text, fake_quantize(x, fmt, axis), values)  # noqa: E731
    found = _casts(operation, fmt, x, values, axis) | _groups(operation, fmt, x, axis) | _gguf(operation, fmt, x)
    return Call(operation, text, run, check, found)


def _expect_codes(x: Array, fmt: str, axis: int, q: Any) -> None:
    some = x[:SAMPLE] if axis else x[:, :SAMPLE]
    wanted = _defined(np.asarray(some, np.float32), fmt, axis)
    of_whole = any(array.ndim == 0 for array in wanted.values())  # a scale of the array
    found = quantize(some, fmt, axis) if of_whole or axis == 0 else q
    for part, array in wanted.items():
        rows = found.components[part]
        expect_equal(f"quantize {fmt}: {part}", rows[: len(array)] if rows.ndim else rows, array)


def _defined(x: Array, fmt: str, axis: int) -> dict[str, Array]:
    """Return components by the NumPy definition; of a pattern (last axis only), of the values that it keeps."""
    parsed = parse_format(fmt)
    if not has_pattern(parsed):
        return reference.quantize(x, parsed, axis)
    kept, _, metadata = sparsity.keep(x[:, None], None, parsed.n, parsed.m)
    return {**reference.quantize(kept, parsed.base, axis), "metadata": metadata}


def _expect_values(q: Any, x: Array, values: Array, axis: int) -> None:
    some = q[:SAMPLE] if axis else q
    if some.size > MOST_VALUES >> 4:
        return
    fmt = some.format
    if has_pattern(fmt):
        kept, positions, _ = sparsity.keep(x[:SAMPLE, None], None, fmt.n, fmt.m)  # a kept value may have become 0
        decoded = reference.dequantize(some.components, fmt.base, kept.shape, -1)
        wanted = sparsity.scatter(decoded, positions, fmt.n, fmt.m, 1, some.shape[-1])[:, 0]
    else:
        wanted = reference.dequantize(some.components, fmt, some.shape, some.axis)
    expect_equal(f"dequantize {fmt}", np.ascontiguousarray(values[: some.shape[0]]), wanted)


def _casts(operation: str, fmt: str, x: Array, values: Array, axis: int) -> Calls:
    """Return casts of torch and ml_dtypes to the same floats; there and back for fake_quantize.

    Codes along axis 0 are stored transposed; these casts then transpose, too.
    """
    name = CASTS.get(fmt)
    found: Calls = {}
    if name is None:
        return found
    torch, ml_dtypes = installed("torch"), installed("ml_dtypes")
    wanted = values.astype(np.float64).T if axis == 0 and operation == "quantize" else values.astype(np.float64)
    if torch is not None:
        given, dtype = torch.from_numpy(x), getattr(torch, name)
        turned: Callable[[Any], Any] = (lambda array: array.t().contiguous()) if axis == 0 else lambda array: array
        codes = turned(given.to(dtype))
        calls: dict[str, Callable[[], Any]] = {
            "quantize": lambda: turned(given.to(dtype, copy=True)),
            "dequantize": lambda: turned(codes).float(),
            "fake_quantize": lambda: given.to(dtype, copy=True).float(),
        }
        back = lambda: calls[operation]().float()  # noqa: E731
        found["torch"] = (calls[operation], close("torch", back, wanted, 0.02))
    if ml_dtypes is not None:
        kind = np.dtype(getattr(ml_dtypes, name, name))
        flipped: Callable[[Array], Array] = (lambda a: np.ascontiguousarray(a.T)) if axis == 0 else lambda a: a
        stored = flipped(x.astype(kind))
        casts: dict[str, Callable[[], Any]] = {
            "quantize": lambda: flipped(x.astype(kind)),
            "dequantize": lambda: flipped(stored).astype(np.float32),
            "fake_quantize": lambda: x.astype(kind).astype(np.float32),
        }
        there = lambda: casts[operation]().astype(np.float32)  # noqa: E731
        found["ml_dtypes"] = (casts[operation], close("ml_dtypes", there, wanted, 0.02))
    return found


def _groups(operation: str, fmt: str, x: Array, axis: int) -> Calls:
    """Return scaled integers by operations of torch, codes one a byte."""
    torch, (group, largest) = installed("torch"), GROUPS.get(fmt, (0, 0))
    if torch is None or not largest or axis == 0 or (group and x.shape[1] % group):
        return {}
    given = torch.from_numpy(x)

    def packed() -> tuple[Any, Any]:
        rows = given.float().reshape(-1, group or x.shape[1])
        scale = rows.abs().amax(1, keepdim=True).div_(largest).clamp_(min=1e-30)
        return rows.div(scale).round_().to(torch.int8), scale

    codes, scales = packed()
    values = lambda: codes.float().mul_(scales).reshape(x.shape)  # noqa: E731

    def rounded() -> Any:
        found, scale = packed()
        return found.float().mul_(scale).reshape(x.shape)

    calls: dict[str, Callable[[], Any]] = {"quantize": packed, "dequantize": values, "fake_quantize": rounded}
    return {"torch": (calls[operation], close("torch", values, x.astype(np.float64), LOSS))}


def _gguf(operation: str, fmt: str, x: Array) -> Calls:
    gguf = installed("gguf")
    if gguf is None or fmt not in BLOCKS or operation == "fake_quantize":
        return {}
    kind = getattr(gguf.GGMLQuantizationType, BLOCKS[fmt])
    given = np.ascontiguousarray(x, np.float32)
    blocks = gguf.quants.quantize(given, kind)
    values = partial(gguf.quants.dequantize, blocks, kind)
    run = partial(gguf.quants.quantize, given, kind) if operation == "quantize" else values
    return {"gguf": (run, close("gguf", values, x.astype(np.float64), LOSS))}
