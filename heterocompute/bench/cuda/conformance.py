"""Results of the device compared with those of the CPU, bit for bit: codecs by format, products by pair of formats."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.device import DeviceArray
from ...products.matmul import linear
from ...products.quantize import fake_quantize, quantize
from ..measure import CheckFailed, Options, Table
from .instructions import check_instructions

Array = np.ndarray[Any, Any]

INTEGERS = ("int8", "int4", "int4-g32-f16", "vsq4-g16-s4", "mxint8", "mxfp4", "nvfp4", "q8_0", "int16")
CODECS = (*INTEGERS, "int4-g16-asym", "vsq8-g64", "mxfp8_e4m3", "fp8_e4m3fn-row", "bf16", "nf4-g64", "log4-2", "q4_1")
SHAPES = ((1, 64), (5, 96), (33, 256), (200, 1024))  # rows and columns of x
ROWS = 70  # of weights


def conformance(options: Options) -> Table:
    """Compare all kernels with the CPU; CheckFailed names the first result that differs."""
    rng = np.random.default_rng(0)
    shapes = SHAPES[1:2] if options.quick else SHAPES
    counts = {f"instruction: {name}": count for name, count in check_instructions(options).items()}

    def same(name: str, what: str, found: DeviceArray, wanted: Array) -> None:
        if found.to_numpy().tobytes() != wanted.tobytes():
            raise CheckFailed(f"{name} {what}: the device gives other bits than the CPU")
        counts[name] = counts.get(name, 0) + 1

    for m, k in shapes:
        x, w, bias = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (ROWS, k), (ROWS,)))
        x[m // 2, ::3] = 0
        x_there, bias_there = DeviceArray.from_numpy(x), DeviceArray.from_numpy(bias)
        for text in CODECS:
            options.say(f"checks {text}, {m} x {k}")
            q, there = quantize(x, text), quantize(x_there, text)
            for part, values in q.components.items():
                same("quantize", f"{text} {part} {m} x {k}", there.components[part], values)  # type: ignore[arg-type]
            same("dequantize", f"{text} {m} x {k}", there.dequantize(), q.dequantize())  # type: ignore[arg-type]
            rounded: Any = fake_quantize(x_there, text)
            same("fake_quantize", f"{text} {m} x {k}", rounded, fake_quantize(x, text))
            weights = quantize(w, text)
            for activations in (None, "int8", "vsq4-g16-s4") if text in INTEGERS else (None,):
                y: Any = linear(x_there, weights.to("cuda"), bias_there, activations)
                same("linear", f"{activations} {text} {m} x {k}", y, linear(x, weights, bias, activations))
    rows = [{"name": name, "cases": count} for name, count in counts.items()]
    return {"title": "results equal to those of the CPU, bit for bit", "threads": 1, "rows": rows}
