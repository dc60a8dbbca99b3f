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


@pytest.mark.parametrize("width", [16, 36, 96, 128])
def test_tiles_of_queries_give_the_bits_of_the_cpu(width: int) -> None:
    cases = [(1, 70, 70, None, None, True), (1, 66, 131, 20, None, True), (2, 5, 129, None, 2.0, False)]
    cases += [(1, 67, 60, None, None, False), (1, 8, 150, 9, None, False)]
    for order, (batch, n, m, window, cap, causal) in enumerate(cases):
        q, k, v = values(batch, 2, n, width), values(batch, 1, m, width), values(batch, 1, m, width)[..., ::-1].copy()
        wanted = hc.attention(q, k, v, causal=causal, window=window, cap=cap)
        got = emulated.attention(q, k, v, causal, window or 0, width**-0.5, cap or 0.0, order)
        assert emulated.launched == ["hc_attend_tiles"]
        assert got.tobytes() == np.ascontiguousarray(wanted).tobytes()


@pytest.mark.parametrize(("width", "kernels"), [(40, 2), (130, 1), (132, 2), (7, 1)])
@pytest.mark.sweep(every=4)
def test_few_queries_give_the_bits_of_the_cpu(width: int, kernels: int) -> None:
    cases = [(2, 1, 1, None, True), (1, 3, 1100, None, True), (1, 4, 1100, 1050, True), (1, 2, 130, 70, False)]
    for order, (batch, n, m, window, causal) in enumerate(cases):
        q, k, v = values(batch, 2, n, width), values(batch, 2, m, width), values(batch, 2, m, width)[..., ::-1].copy()
        wanted = hc.attention(q, k, v, causal=causal, window=window)
        got = emulated.attention(q, k, v, causal, window or 0, width**-0.5, 0.0, order)
        assert emulated.launched == ["hc_attend_scores", "hc_attend_columns"][:kernels] or kernels == 1
        assert got.tobytes() == np.ascontiguousarray(wanted).tobytes()


def test_attention_keeps_the_signs_of_zeros_and_infinities() -> None:
    q, k, v = values(1, 1, 6, 16), values(1, 1, 70, 16), values(1, 1, 70, 16)
    v[0, 0, :, 0] = np.where(np.arange(70) < 65, -1e-44, 0.0)  # underflows to -0
    k[0, 0, :64] = 0
    k[0, 0, 64:, :4] = 200  # the factor of the first tile is 0
    q[..., :4] = 20
    v[0, 0, 69, 1] = np.inf  # the last query alone sees it
    for n in (1, 6):
        wanted = hc.attention(q[:, :, -n:], k, v)
        got = emulated.attention(q[:, :, -n:].copy(), k, v, True, 0, 0.25, 0.0, 3)
        assert got.tobytes() == np.ascontiguousarray(wanted).tobytes()
