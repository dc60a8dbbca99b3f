"""Compares results of a device with those of the CPU, bitwise: codecs per format, matmuls per pair of formats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from ...arrays.device import DeviceArray
from ...arrays.prepacked import prepack
from ...base.devices import KIND
from ...products.conv import conv2d
from ...products.layers import gelu, layer_norm, rms_norm, softmax, swiglu
from ...products.layers.attention import KVCache, attention
from ...products.matmul import linear
from ...products.quantize import fake_quantize, quantize
from ...pruning.prune import prune
from ...training.straight_through import fake_quantize as stochastic
from ..measure import CheckFailed, Options, Table
from .instructions import check_instructions

Array = np.ndarray[Any, Any]

INTEGERS = ("int8", "int4", "int4-g32-f16", "vsq4-g16-s4", "mxint8", "mxfp4", "nvfp4", "q8_0", "int16")
CODECS = (*INTEGERS, "int4-g16-asym", "vsq8-g64", "mxfp8_e4m3", "fp8_e4m3fn-row", "bf16", "nf4-g64", "log4-2", "q4_1")
CHANCES = ("int8", "vsq4-g16-s4", "mxfp4", "nf4-g64")
PATTERNS = ("2:4", "1:3", "int8+2:4", "vsq4-g16-s4+2:4")
DTYPES: tuple[Any, ...] = (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)
SPARSE = ("int8+2:4", "int8+1:4")
LOST = (
    *(("int8", "vsq4-g16-s4"), ("int8", "int8"), ("int8", "int8+2:4"), ("int4-g32", "int4-g32-f16")),
    *(("vsq4-g16-s4", "vsq4-g16-s4"), ("int16", "int8"), ("mxfp4", "mxfp4")),
)
CACHES = (None, "int8", "vsq4-g16-s4")
SHAPES = ((1, 64), (5, 96), (33, 256), (200, 1024))  # rows and columns of x
TILES = (1, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 300)  # rows of x: each tile of the matmul kernels, and one more
CONVOLUTIONS: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 5, 6, 7), (9, 5, 3, 3), {"padding": 1}),
    ((1, 40, 9, 8), (70, 40, 3, 3), {"stride": 2, "padding": 1, "dilation": 2}),
    ((1, 6, 7, 6), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
)
ROWS, LARGE = 70, (300, 4096)  # of weights
WIDE = (1025, 3000, 1024)  # rows of x and of weights, columns: blocks of 256 columns of y fill an H100 once


class Comparison:
    """Counts equal results; raises CheckFailed with the name of the first that differs."""

    def __init__(self, options: Options) -> None:
        self.options, self.counts, self.rng = options, dict[str, int](), np.random.default_rng(0)

    def values(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape, dtype=np.float32)

    def same(self, name: str, what: str, found: Any, wanted: Array) -> None:
        if found.to_numpy().tobytes() != wanted.tobytes():
            raise CheckFailed(f"{name} {what}: the device gives other bits than the CPU")
        self.counts[name] = self.counts.get(name, 0) + 1

    def same_parts(self, name: str, what: str, found: Any, wanted: Any) -> None:
        for part, values in wanted.components.items():
            self.same(name, f"{what} {part}", found.components[part], values)

    def codecs(self, text: str, x: Array, axis: Any) -> None:
        """Compare one format on one array: its components, its values and its rounding."""
        what = f"{text} {x.dtype} {x.shape} axis {axis}"
        on_device = DeviceArray.from_numpy(x)
        q: Any = quantize(on_device, text, axis)
        wanted = quantize(x, text, axis)
        self.same_parts("quantize", what, q, wanted)
        self.same("dequantize", what, q.dequantize(), wanted.dequantize())
        self.same("dequantize", what, q.dequantize(np.float64), wanted.dequantize(np.float64))
        self.same("fake_quantize", what, fake_quantize(on_device, text, axis), fake_quantize(x, text, axis))

    def products(self, text: str, x: Array, w: Array, bias: Array) -> None:
        """Compare the matmuls of one format of weights with float and with quantized activations."""
        on_device, device_bias, q = DeviceArray.from_numpy(x), DeviceArray.from_numpy(bias), quantize(w, text)
        moved = q.to(KIND)
        others = ("int8", "vsq4-g16-s4") if text in (*INTEGERS, *SPARSE, "q4_1") else ()
        for activations in (None, *others):
            what = f"{activations} {text} {x.shape} {w.shape}"
            wanted = linear(x, q, bias, activations)
            self.same("linear", what, linear(on_device, moved, device_bias, activations), wanted)
            if activations:
                self.same("prepacked", what, linear(on_device, prepack(moved), device_bias, activations), wanted)

    def lost(self, activations: str, text: str, x: Array, w: Array) -> None:
        """Compare a matmul whose last row has a NaN: this row is NaN, and all other rows equal the CPU's."""
        q, bad = quantize(w, text), x.copy()
        bad[-1, 3] = np.nan
        found: Any = linear(DeviceArray.from_numpy(bad), q.to(KIND), None, activations)
        y = found.to_numpy()
        if not np.isnan(y[-1]).all():
            raise CheckFailed(f"NaN in x {activations} {text} {x.shape}: the device gives no NaN for its row")
        wanted = linear(x, q, None, activations)
        self.same("NaN in x", f"{activations} {text} {x.shape}", DeviceArray.from_numpy(y[:-1]), wanted[:-1])

    def cache(self, text: str | None, tokens: int) -> None:
        """Compare a cache of keys and values, and attention over it."""
        on_host, on_device = (KVCache(text, heads=2, width=64) for _ in range(2))
        for n in (tokens, 1, 20, 1):  # the cache begins with memory for 16 tokens
            k, v, q = self.values(1, 2, n, 64), self.values(1, 2, n, 64), self.values(1, 4, min(n, 2), 64)
            wanted = attention(q, *on_host.add(0, k, v))
            added = on_device.add(0, DeviceArray.from_numpy(k), DeviceArray.from_numpy(v))
            y = attention(DeviceArray.from_numpy(q), *added)
            self.same("attention", f"{text} {n} of {on_host.length} tokens", y, np.ascontiguousarray(wanted))

    def steps(self) -> Iterator[str]:
        """Compare all parts, and yield the name of each before it starts."""
        shapes = SHAPES[1:2] if self.options.quick else SHAPES
        for m, k in shapes:
            x, w, bias = self.values(m, k), self.values(ROWS, k), self.values(ROWS)
            x[m // 2, ::3] = 0
            for text in CODECS:
                yield f"{text}, {m} x {k}"
                self.codecs(text, x, -1)
                self.products(text, x, w, bias)
        yield "clips"
        x = self.values(6, 32, 40)
        for text in ("int8", "int4-g32", "vsq4-g16-s4"):
            for clip in (0.9, "percentile:99", "octav"):
                wanted = fake_quantize(x, text, -1, clip)
                found = fake_quantize(DeviceArray.from_numpy(x), text, -1, clip)
                self.same("clip", f"{text} {clip}", found, wanted)
        yield "dtypes, axes and strides"
        for text in ("int8", "vsq4-g16-s4") if self.options.quick else CODECS:
            for dtype in DTYPES:
                self.codecs(text, x[0].astype(dtype), -1)
            self.codecs(text, x, (0, 1))
            self.codecs(text, x, 1)
        yield "stochastic rounding"
        x = self.values(*shapes[-1])
        for text in CHANCES:
            for seed in (0, 2**64 - 1):
                found, _ = stochastic(DeviceArray.from_numpy(x), text, rounding="stochastic", seed=seed)
                wanted, _ = stochastic(x, text, rounding="stochastic", seed=seed)
                self.same("stochastic rounding", f"{text} {seed}", found, wanted)
        yield "gradients"
        gradient, scale = x[::-1].copy(), np.full((len(x), 1), 0.01, np.float32)
        trained: list[tuple[Any, Any]] = [(0.7, None), ("octav", None), (None, scale)]
        for clip, scale in trained:
            rounded = stochastic(
                DeviceArray.from_numpy(x),
                "int8",
                clip=clip,
                scale=None if scale is None else DeviceArray.from_numpy(scale),
            )
            wanted, back_of_cpu = stochastic(x, "int8", clip=clip, scale=scale)
            self.same("gradients", f"values {clip}", rounded[0], wanted)
            pair: Any = rounded[1](DeviceArray.from_numpy(gradient)), back_of_cpu(gradient)
            for one, at_home in zip(*(pair if scale is not None else ([one] for one in pair)), strict=True):
                self.same("gradients", f"gradient {clip}", one, at_home)
        yield "patterns"
        for text in PATTERNS:
            on_device, q = DeviceArray.from_numpy(x), quantize(x, text)
            moved: Any = quantize(on_device, text)
            self.same_parts("patterns", text, moved, q)
            self.same("patterns", f"{text} values", moved.dequantize(), q.dequantize())
            for rows in (x[:3], np.repeat(x, 3, 0)[:40]):
                y = linear(DeviceArray.from_numpy(rows), moved)
                self.same("linear", f"None {text} {rows.shape} {x.shape}", y, linear(rows, q))
        self.same_parts("patterns", "prune 2:4", prune(DeviceArray.from_numpy(x), "2:4"), prune(x, "2:4"))
        yield "layers of transformers and caches"
        for layer in (rms_norm, layer_norm, softmax, swiglu, gelu):
            given = (x, x[::-1].copy()) if layer is swiglu else (x,)
            y = layer(*map(DeviceArray.from_numpy, given))
            self.same("layers", layer.__name__, y, layer(*given))
        for cache_format in CACHES:
            self.cache(cache_format, 3 if self.options.quick else 300)
        yield "convolutions"
        for shape, filters, options in CONVOLUTIONS:
            image, w, bias = self.values(*shape), self.values(*filters), self.values(filters[0])
            on_device, device_bias = DeviceArray.from_numpy(image), DeviceArray.from_numpy(bias)
            for text in ("int8", "vsq4-g16-s4", "int4-g32", "int8+2:4"):
                q = quantize(w, text, (2, 3, 1))
                for activations in (None, "int8"):
                    algorithm = "auto" if activations else "direct"
                    wanted = conv2d(image, q, bias, activations=activations, algorithm=algorithm, **options)
                    y = conv2d(on_device, q.to(KIND), device_bias, activations=activations, **options)
                    self.same("conv2d", f"{activations} {text} {shape} {filters}", y, wanted)
        n, k = (40, 128) if self.options.quick else LARGE
        w, bias = self.values(n, k), self.values(n)
        for m in TILES[3:5] if self.options.quick else TILES:
            yield f"tiles of the matmul, {m} x {k} x {n}"
            for text in ("vsq4-g16-s4", "int8", "int4-g32-f16", "int8+2:4", "int8+1:4", "q4_1"):
                self.products(text, self.values(m, k), w, bias)
            for activations, text in LOST:
                self.lost(activations, text, self.values(m + 1, k), w)
        if not self.options.quick:
            m, n, k = WIDE
            yield f"wide tiles of the matmul, {m} x {k} x {n}"
            x, w, bias = self.values(m, k), self.values(n, k), self.values(n)
            for text in ("int8", "int4", "vsq4-g16-s4"):
                self.products(text, x, w, bias)


def conformance(options: Options) -> Table:
    """Compare all kernels with the CPU; raise CheckFailed with the name of the first result that differs."""
    comparison = Comparison(options)
    for what in comparison.steps():
        options.report_progress(f"checks {what}")
    counts = {f"instruction: {name}": count for name, count in check_instructions(options).items()}
    rows = [{"name": name, "cases": count} for name, count in {**counts, **comparison.counts}.items()]
    return {"title": "results equal to those of the CPU, bit for bit", "threads": 1, "rows": rows}
