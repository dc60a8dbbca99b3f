"""`ptq.accumulator_bits`: bounds are never exceeded, and the worst input reaches them in the emulated machine."""

from __future__ import annotations

import numpy as np
import pytest

import heterocompute as hc

WEIGHTS = ("int8", "int4", "int4-asym", "int4-g16", "int4-g16-asym", "vsq4-g16-s4", "vsq4-g16", "vsq8-g16-s8")
INPUTS = ("int8", "int8-asym", "int4-g16", "vsq4-g16-s4", "vsq4u-g16-s4", "int8-g32-asym")


def sums(x: object, q: hc.QuantizedArray, bits: int) -> np.ndarray:
    return hc.emulate.matmul(x, q.T, f"int{bits}-sat", chunk=1)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("activations", INPUTS)
def test_the_worst_input_reaches_the_bound_and_no_other_exceeds_it(weights: str, activations: str) -> None:
    rng = np.random.default_rng(0)
    q = hc.quantize(
        rng.standard_normal((5, 64), dtype=np.float32) + np.linspace(-1, 1, 5, dtype=np.float32)[:, None], weights
    )
    found = hc.ptq.accumulator_bits(q, activations)
    assert found.per_output.shape == (5,) and found.bits == found.per_output.max()
    for i in range(5):
        x = hc.quantize(found.worst_input(i)[None], activations)
        row, bits = q[i : i + 1], int(found.per_output[i])
        exact = sums(x, row, 62)
        assert (sums(x, row, bits) == exact).all()
        assert (sums(x, row, bits - 1) != exact).all()  # the bound is tight
    for scale in (1, 100):
        for x in (rng.standard_normal((50, 64)), np.abs(rng.standard_normal((50, 64))), rng.choice([-1, 1], (50, 64))):
            a = hc.quantize((x * scale).astype(np.float32), activations)
            assert (sums(a, q, found.bits) == sums(a, q, 62)).all()


def test_bounds_are_the_largest_over_all_inputs() -> None:
    """Every input of a short row is tried."""
    rng = np.random.default_rng(1)
    q = hc.quantize(rng.standard_normal((3, 3), dtype=np.float32), "int4")
    codes = np.stack(np.meshgrid(*[np.arange(-7, 8)] * 3), -1).reshape(-1, 3)
    w = np.array([[q.dequantize()[i, j] / (np.abs(q.dequantize()[i]).max() / 7) for j in range(3)] for i in range(3)])
    w = np.rint(w).astype(int)
    found = hc.ptq.accumulator_bits(q, "int4")
    every = codes @ w.T
    assert (every.max(0) == found.high).all() and (every.min(0) == found.low).all()
    for i in range(3):
        need = next(
            b for b in range(1, 20) if -(2 ** (b - 1)) <= every[:, i].min() and every[:, i].max() < 2 ** (b - 1)
        )
        assert found.per_output[i] == need


@pytest.mark.parametrize("activations", ["int8", "int8-asym"])
def test_a_tile_ends_a_sum(activations: str) -> None:
    rng = np.random.default_rng(2)
    q = hc.quantize(rng.standard_normal((4, 96), dtype=np.float32), "int8")
    whole = hc.ptq.accumulator_bits(q, activations)
    tiled = hc.ptq.accumulator_bits(q, activations, tile=32)
    assert tiled.bits < whole.bits and (tiled.high <= whole.high).all()
    assert hc.ptq.accumulator_bits(q, activations, tile=96).bits == whole.bits
    codes = np.rint(q.dequantize() / q.dequantize().__abs__().max(1, keepdims=True) * 127).astype(np.int64)
    for i in range(4):
        x = tiled.worst_input(i).astype(np.int64)
        parts = (codes[i] * x).reshape(3, 32).sum(1)
        assert max(parts.max() - tiled.high[i], tiled.low[i] - parts.min()) == 0


def test_calibration_needs_at_most_the_guarantee() -> None:
    rng = np.random.default_rng(3)
    q = hc.quantize(rng.standard_normal((6, 128), dtype=np.float32), "int8")
    x = rng.standard_normal((20, 128), dtype=np.float32)
    found = hc.ptq.accumulator_bits(q, "int8", inputs=x)
    a = hc.quantize(x, "int8")
    exact = hc.emulate.matmul(a, q.T, "int62-sat")
    saturating, wrapping = found.needed_saturating, found.needed_wrapping
    assert saturating is not None and wrapping is not None and wrapping <= saturating <= found.bits
    for bits, kind in ((saturating, "sat"), (wrapping, "wrap")):
        assert (hc.emulate.matmul(a, q.T, f"int{bits}-{kind}", chunk=1) == exact).all()
        assert (hc.emulate.matmul(a, q.T, f"int{bits - 1}-{kind}", chunk=1) != exact).any()
    assert hc.ptq.accumulator_bits(q, "int8").needed_wrapping is None


def test_filters_and_empty_rows() -> None:
    rng = np.random.default_rng(4)
    filters = rng.standard_normal((4, 8, 3, 3), dtype=np.float32)
    q = hc.quantize(filters, "int4", axis=(2, 3, 1))
    found = hc.ptq.accumulator_bits(q, "int8")
    rows = hc.quantize(filters.transpose(0, 2, 3, 1).reshape(4, 72), "int4")
    assert (found.high == hc.ptq.accumulator_bits(rows, "int8").high).all() and found.worst_input(0).shape == (72,)
    zeros = hc.ptq.accumulator_bits(hc.quantize(np.zeros((2, 16), np.float32), "int8"), "int8")
    assert zeros.bits == 1 and not zeros.worst_input(1).any()
    for fmt in ("int8", "int4-g4", "q5_0"):
        assert hc.ptq.accumulator_bits(hc.quantize(np.zeros((0, 8), np.float32), fmt), "int8").high.shape == (0,)


def test_arguments_are_checked() -> None:
    q = hc.quantize(np.eye(4, 32, dtype=np.float32), "int8")
    for bad in ("fp8_e4m3fn", "mxfp4", "nf4-g64", "int8+2:4"):
        with pytest.raises(ValueError, match="accumulator_bits: activations is"):
            hc.ptq.accumulator_bits(q, bad)
        with pytest.raises(ValueError, match="accumulator_bits: q is"):
            hc.ptq.accumulator_bits(hc.quantize(np.eye(4, 64, dtype=np.float32), bad), "int8")
    with pytest.raises(TypeError, match="accumulator_bits: q is"):
        hc.ptq.accumulator_bits(np.eye(4), "int8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="accumulator_bits: tile is 0"):
        hc.ptq.accumulator_bits(q, "int8", tile=0)
    with pytest.raises(ValueError, match="accumulator_bits: inputs has the shape"):
        hc.ptq.accumulator_bits(q, "int8", inputs=np.ones((2, 3), np.float32))
    with pytest.raises(ValueError, match="accumulator_bits: output is 4"):
        hc.ptq.accumulator_bits(q, "int8").worst_input(4)
