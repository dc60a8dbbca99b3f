"""Products of drawn own formats: right, and the same on every path, prepacked, scalar and with one thread."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import heterocompute as hc

ELEMENTS = (
    "ternary", "binary", "posit8.1", "posit6.0", "takum8", "log5-3", "log8-10", "e8m0", "binary8p3se",
    "binary8p1uf", "int8full", "int4full", "binary4p2sf", "e2m1", "e2m3", "e5m2b3", "e4m3fnuz", "e1m6finite",
    "e4m1b3", "ue5m3", "e6m4b-5finite", "e3m8",
)  # fmt: skip
PARTS = {
    "scale": ("f32", "f16", "bf16", "e8m0", "e4m3fn", "ue5m3", "s4", "s8"),
    "group": (3, 16, 32, 64, 128),
    "block": ((2, 16), (16, 16), (3, 5)),
    "per": ("row", "tensor"),
    "second": ("row", "tensor"),
    "rule": ("absmax", "absmean", "even"),
}
ACTIVATIONS = (None, "int8", "vsq4-g16-s4", "mxfp4", "fp8_e4m3fn-row", "int4-g32")


def drawn(draw: random.Random) -> hc.Format:
    while True:
        kind = draw.randrange(4)
        element: object = draw.choice(ELEMENTS)
        if kind == 0:
            signed, places = draw.random() < 0.7, draw.choice([0, 0, draw.randint(1, 15)])
            element = hc.Integer(draw.randint(2, 16), signed, signed and draw.random() < 0.3, places)
        elif kind == 1:
            values = np.random.default_rng(draw.randrange(10**6)).standard_normal(draw.choice([2, 5, 16, 17, 200]))
            element = hc.Levels(np.unique(values))
        chosen = {key: draw.choice(values) for key, values in PARTS.items() if draw.random() < 0.35}
        try:
            fmt = hc.define(None, element, **chosen)
            pattern = draw.choice([None, None, (2, 4), (1, 4), (4, 8)])
            return fmt if pattern is None else hc.Sparse(fmt, *pattern)
        except ValueError:  # parts that do not go together
            continue


@pytest.mark.parametrize("seed", range(240))
@pytest.mark.sweep(every=4)
def test_drawn_products_are_right_on_every_path(seed: int) -> None:
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    fmt = drawn(draw)
    m, n, k = (
        draw.choice([1, 2, 3, 7, 8, 33]),
        draw.choice([1, 3, 16, 65, 128]),
        draw.choice([5, 16, 64, 128, 256, 384]),
    )
    w, x = rng.standard_normal((n, k)).astype(np.float32), rng.standard_normal((m, k)).astype(np.float32)
    q = hc.quantize(w, fmt)
    decoded = q.dequantize(np.float64)
    activations = draw.choice([*ACTIVATIONS, getattr(fmt, "base", fmt)])
    try:
        rounded = x.astype(np.float64) if activations is None else hc.quantize(x, activations).dequantize(np.float64)
        y = hc.linear(x, q, activations=activations)
    except ValueError as refusal:
        assert "activations" in str(refusal) or "NaN" in str(refusal)
        return
    right = rounded @ decoded.T
    assert np.isfinite(right).all()
    bound = float(Fraction(k + 8) / 2**23) * (np.abs(rounded) @ np.abs(decoded).T) + 1e-30
    assert (np.abs(y - right) <= bound).all()
    for use in ({"isa": "scalar"}, {"threads": 1}):
        with hc.use(**use):
            assert hc.linear(x, q, activations=activations).tobytes() == y.tobytes(), use
    assert hc.linear(x, hc.prepack(q), activations=activations).tobytes() == y.tobytes()
    for candidate in hc.explain(hc.linear, x, q, activations=activations).candidates:
        try:
            with hc.use(path=candidate.path):
                other = hc.linear(x, q, activations=activations)
        except ValueError:  # the path does not take this product
            continue
        assert (np.abs(other - right) <= bound).all(), candidate.path
        assert activations is None or other.tobytes() == y.tobytes(), candidate.path


@pytest.mark.parametrize("parts", [{}, {"group": 16}, {"group": 64, "scale": "f16"}, {"group": 128}])
@pytest.mark.parametrize("most", [15, 16, 31, 32, 61])
def test_integer_levels_do_not_overflow_the_kernels_of_small_integers(most: int, parts: dict[str, Any]) -> None:
    levels = np.array([-most, *range(-7, 7), most], np.float64)
    w = np.where(np.arange(8 * 256).reshape(8, 256) % 11 == 0, -most, most).astype(np.float32)
    x = np.full((1, 256), 127, np.float32)
    q = hc.quantize(w, hc.define(None, hc.Levels(levels), **parts))
    y = hc.linear(x, q, activations="int8")
    right = x.astype(np.float64) @ q.dequantize(np.float64).T
    assert (np.abs(y - right) <= 1e-6 * np.abs(right)).all()
    with hc.use(isa="scalar"):
        assert hc.linear(x, q, activations="int8").tobytes() == y.tobytes()


@pytest.mark.parametrize("text", ["ternary", "binary-g128-absmean", "int3full-g8", "log3-1-g16", "uint2f1-g64-f16"])
@pytest.mark.parametrize("activations", [None, "int8"])
@pytest.mark.parametrize("columns", [5, 64, 100, 384])
def test_codes_of_up_to_3_bits_are_read_as_4_bits(text: str, activations: str | None, columns: int) -> None:
    rng = np.random.default_rng(columns)
    q = hc.quantize(rng.standard_normal((19, columns)), text)
    x = rng.standard_normal((3, columns)).astype(np.float32)
    y = hc.linear(x, q, activations=activations)
    given = x.astype(np.float64) if activations is None else hc.quantize(x, activations).dequantize(np.float64)
    decoded = q.dequantize(np.float64)
    assert (np.abs(y - given @ decoded.T) <= 1e-4 * (np.abs(given) @ np.abs(decoded).T)).all()
    with hc.use(isa="scalar"):
        assert hc.linear(x, q, activations=activations).tobytes() == y.tobytes()
