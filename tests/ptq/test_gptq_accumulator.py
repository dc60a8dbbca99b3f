"""`ptq.gptq` with an accumulator: the guarantee holds, columns are those of a definition, and AXE is not better."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.base import runtime
from heterocompute.products.columns import to_columns
from heterocompute.products.grid_of import grid_of
from heterocompute.ptq.guarantee import Limit, budget_of, thresholds

Array = np.ndarray[Any, Any]
sys.path.append(str(Path(__file__).resolve().parents[2] / "docs" / "figures"))
FORMATS = ("int8", "int4", "int3-g16", "int4-g32", "int4-g64-asym", "int8-asym", "int4-g32-f16", "int4-g32-asym-f16")
INPUTS = ("int8", "int8-asym", "int4", "vsq4-g16-s4", "vsq4u-g16-s4", "int8-g32-asym", "int6")


def problem(seed: int, k: int = 64, rows: int = 9, tokens: int = 200) -> tuple[Array, hc.ptq.Hessian, hc.ptq.Hessian]:
    """Return a weight, the Hessian of correlated inputs, and one of other inputs."""
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((k, k)) * 0.3 + np.eye(k)
    sizes = np.exp(rng.standard_normal(k))
    found = []
    for _ in range(2):
        h = hc.ptq.Hessian(k)
        h.add(rng.standard_normal((tokens, k)) @ mix * sizes)
        found.append(h)
    return rng.standard_normal((rows, k)).astype(np.float32) + np.float32(0.2), found[0], found[1]


@pytest.mark.sweep(every=8)
@pytest.mark.parametrize("activations", INPUTS)
@pytest.mark.parametrize("fmt", FORMATS)
def test_no_input_overflows(fmt: str, activations: str) -> None:
    w, h, _ = problem(len(fmt) + len(activations))
    for bits, tile in ((14, 40), (16, 64), (18, 7)):
        given: dict[str, Any] = {"accumulator": bits, "activations": activations, "tile": tile}
        q = hc.ptq.gptq(w, h, fmt, **given)
        found = hc.ptq.accumulator_bits(q, activations, tile=tile)
        assert found.bits <= bits and str(q.format) == fmt
        with hc.use(threads=1, isa="scalar"):
            again = hc.ptq.gptq(w, h, fmt, **given)
        assert all(np.array_equal(q.components[key], again.components[key]) for key in q.components)
    row = int(found.per_output.argmax())
    x = hc.quantize(found.worst_input(row)[None], activations)
    one = q[row : row + 1]
    sums = [hc.emulate.matmul(x[:, :tile] if x.format.group is None else x, one.T, f"int{b}-sat", chunk=1)
            for b in (18, 60)] if tile >= w.shape[1] else [0, 0]  # fmt: skip
    assert np.array_equal(*sums)


def definition(w: Array, scale: Array, low: float, high: float, factor: Array, order: Array, budget: Any,
               threshold: Array | None, forgets: bool) -> Array:  # fmt: skip
    """Round column by column, in plain NumPy: levels (columns, rows) for a scale per row."""
    k, rows = w.shape
    errors, levels = np.zeros((k, rows)), np.zeros((k, rows))
    sums = np.zeros((2, budget.count, rows))
    for j, column in enumerate(order):
        for row in range(rows):
            segment, own = budget.segment[column], scale[row]
            wanted = w[column, row]
            for i in range(j):  # one chain, as sums of products that are rounded once
                wanted = wanted + errors[i, row] * factor[i, j]
            lost = 0.0 if threshold is None else np.copysign(min(threshold[segment, row], abs(wanted)), wanted)
            target = wanted - lost
            plain = level = float(np.clip(np.rint(target / own) if own > 0 else 0.0, low, high))
            p, n = sums[0, segment, row], sums[1, segment, row]
            sign = 0 if level > 0 else 1
            rooms = [(limit - a * p - b * n) / (a, b)[sign] for a, b, limit in budget.costs if (a, b)[sign] > 0]
            level = np.copysign(min(abs(level), np.floor(max(0, min(rooms, default=np.inf)))), level)
            sums[sign, segment, row] += abs(level)
            moved = forgets and level != plain
            errors[j, row] = (w[column, row] - lost if forgets else w[column, row]) - (target if moved else own * level)
            levels[column, row] = level
    return levels


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("activations", ["int8", "int8-asym"])
def test_columns_are_those_of_the_definition(forgets: bool, activations: str) -> None:
    """Values are small integers and factors are powers of two, so that no sum is rounded."""
    rng = np.random.default_rng(5)
    w = (rng.integers(-40, 41, (7, 24)) / 8).astype(np.float32)
    q = hc.quantize(w, "int4")
    grid, columns = grid_of(q), to_columns(w, (1,))
    grid.scale[...] = 0.5
    budget = budget_of(q, Limit(13, hc.format(activations), 10), "gptq")
    order = rng.permutation(24).astype(np.int32)
    factor = np.triu(rng.choice([0, 0.25, -0.5], (24, 24)), 1) + np.eye(24)
    lost = np.round(thresholds(columns, grid.scale, grid.group, budget) * 16) / 16
    sums, codes = np.zeros((2, budget.count, 7)), np.empty((24, 7), np.int32)
    given = budget.core(sums[0], sums[1], lost, forgets)
    core.ptq_columns(runtime.run(), grid.core(), columns, factor, order, None, codes, None, given)
    levels = definition(columns, grid.scale[0], grid.low, grid.high, factor, order, budget, lost, forgets)
    assert np.array_equal(codes, levels)
    assert np.array_equal(sums, budget.sums(levels)) and budget.holds(levels).all()


@pytest.mark.parametrize(("fmt", "bits", "tile"), [("int8", 16, 32), ("int4", 15, 64), ("int8", 20, 128)])
def test_axe_is_not_better_on_other_inputs(fmt: str, bits: int, tile: int) -> None:
    accumulators = pytest.importorskip("accumulators")
    for seed in range(2):
        w, h, held = problem(seed, 128, 24, 600)
        ours = hc.ptq.gptq(w, h, fmt, accumulator=bits, activations="int8", tile=tile)
        other = accumulators.axe(w, h, fmt, bits, tile)
        assert hc.ptq.accumulator_bits(other, "int8", tile=tile).bits <= bits
        dbs = [hc.ptq.error(w, q, held).output_db for q in (ours, other)]
        assert dbs[0] > dbs[1], dbs


@pytest.mark.parametrize("seed", range(6))
def test_axe_is_not_better_where_nothing_is_limited(seed: int) -> None:
    """Few tokens and wide accumulators: a choice among candidates fits the calibration inputs easily."""
    accumulators = pytest.importorskip("accumulators")
    rng = np.random.default_rng(seed)
    bits, tile = ((20, 64), (24, 128), (20, 32))[seed % 3]
    w, h, held = problem(int(rng.integers(1000)), 96, 12, int(rng.integers(150, 500)))
    ours = hc.ptq.gptq(w, h, "int8", accumulator=bits, activations="int8", tile=tile)
    dbs = [hc.ptq.error(w, q, held).output_db for q in (ours, accumulators.axe(w, h, "int8", bits, tile))]
    assert dbs[0] >= dbs[1], dbs


def test_a_wide_accumulator_changes_little() -> None:
    w, h, held = problem(3)
    free = hc.ptq.gptq(w, h, "int4-g32")
    wide = hc.ptq.gptq(w, h, "int4-g32", accumulator=40, activations="int8", tile=64)
    a, b = (hc.ptq.error(w, q, held).output_db for q in (free, wide))
    assert abs(a - b) < 0.5


def test_whole_networks_keep_the_guarantee() -> None:
    net = hc.zoo.digits()
    found = hc.ptq.quantize(net.weights, lambda weights: net.forward(weights, net.train_x[:16]), "int8",
                            accumulator=16, activations="int8", tile=64)  # fmt: skip
    rounded = {name: q for name, q in found.weights.items() if isinstance(q, hc.QuantizedArray)}
    assert len(rounded) == 5
    assert max(hc.ptq.accumulator_bits(q, "int8", tile=64).bits for q in rounded.values()) <= 16
    logits = net.forward(found.weights, net.test_x[:100])
    assert (logits.argmax(axis=1) == net.test_y[:100]).mean() > 0.95


def test_arguments() -> None:
    w, h, _ = problem(4)
    for given, words in (
        ({"accumulator": 16}, "accumulator is 16 without activations"),
        ({"accumulator": 16, "activations": "int8"}, "accumulator is 16 without tile"),
        ({"activations": "int8"}, "activations is 'int8' without accumulator"),
        ({"tile": 64}, "tile is 64 without accumulator"),
        ({"accumulator": 1, "activations": "int8", "tile": 64}, "accumulator is 1"),
        ({"accumulator": 99, "activations": "int8", "tile": 64}, "accumulator is 99"),
        ({"accumulator": 16, "activations": "fp16", "tile": 64}, "activations is fp16, expected a format of integers"),
        ({"accumulator": 16, "activations": "int8", "tile": 0}, "tile is 0"),
        (
            {"accumulator": 7, "activations": "int8", "tile": 64},
            "accumulator is 7 bits, which one product with int8 exceeds",
        ),
    ):
        with pytest.raises(ValueError, match=f"gptq: {words}"):
            hc.ptq.gptq(w, h, "int8", **given)
    for fmt in ("mxfp4", "int8+2:4", "vsq4-g16-s4", "nf4-g64"):
        with pytest.raises(ValueError, match="integers with float scales"):
            hc.ptq.gptq(w, h, fmt, accumulator=16, activations="int8", tile=64)
    with pytest.raises(ValueError, match="qronos: accumulator is for gptq"):
        hc.ptq.quantize({"w": w}, lambda weights: None, "int8", method="qronos", accumulator=16)
    with pytest.raises(ValueError, match="method is 'rtn'"):
        hc.ptq.quantize({"w": w}, lambda weights: None, "int8", method="rtn", accumulator=16)
