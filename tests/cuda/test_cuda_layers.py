"""The layers of CUDA, run on the host, give the bits of the CPU's."""

from __future__ import annotations

from typing import Any

import emulated
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.products.layers.transformer import gelu, layer_norm, rms_norm, rope, softmax, swiglu

RMS_NORM, NORM, SOFTMAX, SILU, GELU, ROPE = range(6)
SHAPES = [(1, 5), (3, 64), (2, 3, 333)]


def values(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", [0, 1, 5])
def test_layers_give_the_bits_of_the_cpu(shape: tuple[int, ...], order: int) -> None:
    x, up, weight, bias = (
        values(*shape),
        values(*shape)[::-1].copy(),
        values(shape[-1]),
        values(shape[-1] + 1)[1:].copy(),
    )
    epsilon = float(np.float32(1e-5))
    pairs = [
        (emulated.layer(RMS_NORM, x, weight, epsilon=epsilon, order=order), rms_norm(x, weight, epsilon)),
        (emulated.layer(NORM, x, weight, bias, epsilon=epsilon, order=order), layer_norm(x, weight, bias, epsilon)),
        (emulated.layer(NORM, x, epsilon=epsilon, order=order), layer_norm(x, epsilon=epsilon)),
        (emulated.layer(SOFTMAX, 40 * x, order=order), softmax(40 * x)),
        (emulated.layer(SILU, 9 * x, up, order=order), swiglu(9 * x, up)),
        (emulated.layer(GELU, 9 * x, order=order), gelu(9 * x)),
    ]
    for got, wanted in pairs:
        assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("pairs", [False, True])
def test_positions_are_turned_as_on_the_cpu(pairs: bool) -> None:
    x, cosine, sine = values(2, 3, 5, 12), values(5, 4), values(6, 4)[1:].copy()
    got = emulated.layer(ROPE, x, cosine, sine, half=4, repeat=1, turns=5, pairs=pairs, order=3)
    assert got.tobytes() == rope(x, cosine, sine, pairs).tobytes()


@pytest.mark.parametrize("text", [None, "int8-g32", "vsq4-g16-s4", "mxfp8_e4m3"])
def test_attention_gives_the_bits_of_the_cpu(text: str | None) -> None:
    cases = [(1, 1, 70, None, None, True), (2, 5, 130, 40, None, True), (1, 3, 65, None, 3.0, False)]
    for order, (batch, n, m, window, cap, causal) in enumerate(cases):
        q, k, v = values(batch, 4, n, 32), values(batch, 2, m, 32), values(batch, 2, m, 32)[..., ::-1].copy()
        if text:
            k, v = hc.quantize(k, text, axis=-1), hc.quantize(v, text, axis=-1)
        wanted = hc.attention(q, k, v, causal=causal, window=window, cap=cap)
        got = emulated.attention(q, k, v, causal, window or 0, 32**-0.5, cap or 0.0, order)
        assert got.tobytes() == np.ascontiguousarray(wanted).tobytes()
