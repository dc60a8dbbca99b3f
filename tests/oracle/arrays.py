"""One random array through quantize, dequantize and fake_quantize."""

from __future__ import annotations

import re

import numpy as np

import heterocompute as hc

from .compare import Mismatch, same, unpack
from .draw import (
    DTYPES,
    cast,
    chance,
    choose,
    draw_axis,
    draw_clip,
    draw_format,
    draw_shape,
    lay_out,
    machine,
    magnitudes,
    poison,
)
from .formats import encode
from .rows import Refused


def draw(rng, masks, fmt=None) -> dict:
    fmt = fmt or draw_format(rng)
    shape = draw_shape(rng, 200 if learns(fmt) else 3000)
    if chance(rng, 0.01) and shape and not learns(fmt):  # large enough for several threads
        shape = (int(rng.integers(20, 60)) * 1000 // max(shape[-1], 1), shape[-1])
    kind, values = magnitudes(rng, shape, fmt)
    exact = kind == "codes" and chance(rng, 0.6)  # narrower types would round values between codes
    values = cast(values, np.float64 if exact else choose(rng, DTYPES))
    if values.size and chance(rng, 0.1):
        kind, values = "poisoned " + kind, poison(rng, values)
    importance = None
    if learns(fmt) and not isinstance(fmt, hc.Sparse) and chance(rng, 0.3):
        importance = rng.integers(0, 4, shape).astype(np.float64)
    layout, x = lay_out(rng, values)
    return {
        "format": fmt,
        "axis": draw_axis(rng, len(shape)),
        "clip": draw_clip(rng),
        "values": kind,
        "layout": layout,
        "quantize": machine(rng, masks),
        "dequantize": machine(rng, masks),
        "x": x,
        "importance": importance,
    }


def smaller(case):
    """Return the same case with one axis halved."""
    for axis, size in enumerate(case["x"].shape):
        for half in (slice(size // 2), slice(size // 2, None)) if size > 1 else ():
            part = (slice(None),) * axis + (half,)
            yield case | {name: case[name][part] for name in ("x", "importance") if case[name] is not None}


def learns(fmt) -> bool:
    return isinstance(fmt.base if isinstance(fmt, hc.Sparse) else fmt, hc.Codebook)


def check(case) -> None:
    fmt, x, axis, clip, importance = (case[name] for name in ("format", "x", "axis", "clip", "importance"))
    named = axis if len(axis) > 1 else axis[0]
    before, got, refused = x.tobytes(), None, None
    with hc.use(**case["quantize"]):
        try:
            got = hc.quantize(x, fmt, axis=named, clip=clip, importance=importance)
        except ValueError as error:
            refused = error
    if before != x.tobytes():
        raise Mismatch("quantize: wrote into its input")
    try:
        wanted = encode(fmt, x, axis, clip, components(got) if learns(fmt) and got is not None else None, importance)
    except Refused as error:
        agree_on_refusal(error, refused)
        return
    if refused is not None:
        raise Mismatch(f"quantize: refused ({refused}), by the oracle it is legal") from refused
    compare_components(got, wanted)
    with hc.use(**case["dequantize"]):
        same("dequantize float32", got.dequantize(), wanted.dequantize())
        same("dequantize float64", got.dequantize(dtype=np.float64), wanted.dequantize(np.float64))
        if importance is None:
            same("fake_quantize", hc.fake_quantize(x, fmt, axis=named, clip=clip), wanted.dequantize())
            out = np.full(x.shape[::-1], 7, np.float32).T
            hc.fake_quantize(x, fmt, axis=named, clip=clip, out=out)
            same("fake_quantize out=", out, wanted.dequantize())
        if isinstance(fmt, hc.Sparse) and x.dtype != np.float64:  # `N:M` alone stores float32, and would round those
            pattern = f"{fmt.n}:{fmt.m}"
            mask = wanted.mask()
            same("prune_mask", hc.prune_mask(x, pattern, axis=named), mask)
            again = hc.quantize(hc.prune(x, pattern, axis=named), fmt.base, axis=named, clip=clip)
            compare_components(again, wanted)
    if 0 not in got.axis and x.ndim > 1:
        part = slice(len(x) // 3, None, 2)
        try:
            view = got[part]
        except ValueError:
            if "mean" not in got.components:  # double quantized scales are not an array of rows
                raise
        else:
            same("rows of it", view.dequantize(), wanted.dequantize()[part])


def compare_components(got, wanted) -> None:
    parts = components(got)
    if parts.keys() != wanted.components.keys():
        raise Mismatch(f"components: got {sorted(parts)}, the oracle {sorted(wanted.components)}")
    for name in sorted(parts, key=lambda name: name == "codes"):  # components that codes depend on come first
        compare_component(name, parts[name], wanted)
    stored = sum(part.nbytes for part in got.components.values())
    if got.nbytes != stored or (got.size and got.bits_per_value != 8 * stored / got.size):
        raise Mismatch(f"nbytes: got {got.nbytes} and {got.bits_per_value} bits, {stored} bytes are stored")


def components(got) -> dict[str, np.ndarray]:
    """Return the components of a packed array; those of an unquantized pattern are `values`, here as float32."""
    parts = dict(got.components)
    if "values" in parts:
        values = parts.pop("values").astype(np.float32)
        parts["codes"] = np.ascontiguousarray(values).view(np.uint8).reshape(values.shape[0], 4 * values.shape[1])
    return parts


def compare_component(name: str, got, wanted) -> None:
    if name != "codes" or not wanted.free_codes.any():
        same(name, got, wanted.components[name])
        return
    bits = wanted.code_bits
    count = wanted.free_codes[0].size
    expected = unpack(wanted.components[name], bits, count)
    same(name, unpack(got, bits, count), expected, wanted.free_codes.reshape(expected.shape))


def agree_on_refusal(wanted: Refused, got: ValueError | None) -> None:
    if got is None:
        raise Mismatch(f"quantize: took what the definition refuses ({wanted})")
    if wanted.index is not None:
        numbers = re.search(r"\(([\d, ]+)\)", str(got))
        if numbers is None or tuple(int(n) for n in re.findall(r"\d+", numbers[1])) != wanted.index:
            raise Mismatch(f"quantize: says '{got}', the first is at {wanted.index}")
