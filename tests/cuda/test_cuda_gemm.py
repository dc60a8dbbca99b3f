"""The int8 matmul of CUDA, run on the host, gives the bits of the CPU's."""

from __future__ import annotations

import emulated
import numpy as np
import pytest

import heterocompute as hc

PAIRS = [
    *[("int8", "int8"), ("int8", "vsq4-g16-s4"), ("vsq4-g16-s4", "vsq4-g16-s4"), ("int4", "int8")],
    *[("int8", "int4-g32-f16"), ("int4-g32", "int4-g32"), ("vsq4-g16", "vsq8-g64"), ("vsq4-g16-s4", "int4-g64")],
    *[("int8", "int4-g16-asym"), ("int4-g24", "int4-g48"), ("int8", "mxint8"), ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4")],
    *[("int8", "q8_0"), ("int8", "q4_0"), ("int8", "vsq4-g16-s6"), ("vsq8-g16-s8", "vsq8-g16-s10"), ("int16", "int8")],
    *[("int24", "vsq4-g16-s4"), ("int16", "int4-g32-f16"), ("vsq4-g16-s6", "int4-g16")],
]
SHAPES = [(1, 3, 16), (17, 65, 100), (129, 33, 96)]


@pytest.mark.parametrize(("x_text", "w_text"), PAIRS)
def test_matmul_gives_the_bits_of_the_cpu(x_text: str, w_text: str) -> None:
    rng = np.random.default_rng(0)
    for order, (m, n, k) in enumerate(SHAPES):
        x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
        bias = rng.standard_normal(n).astype(np.float32)
        q, activations = hc.quantize(w, w_text), hc.format(x_text)
        wanted = hc.linear(x, q, bias, activations=activations)
        assert emulated.linear(x, q, bias, activations, order).tobytes() == wanted.tobytes()
        packed = hc.quantize(x, activations)
        assert emulated.linear(packed, q).tobytes() == hc.linear(packed, q).tobytes()
