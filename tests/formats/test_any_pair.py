"""Random pairs of operands, each dense or in any format or pattern, against float64 and against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import FORMATS, isas, same_bits

import heterocompute as hc

PATTERNS = ["2:4", "1:4", "3:5", "4:8", "1:32"]
SIZES = [1, 2, 3, 5, 8, 9, 16, 17, 31, 32, 33, 64, 65, 100, 128, 130]
MACHINES = isas()


class Drawn:
    """One operand along its last axis, its values, and the magnitude of the terms that they are sums of."""

    def __init__(self, rng: Any, shape: tuple[int, ...]) -> None:
        x = rng.standard_normal(shape).astype(np.float32) * (rng.random((*shape[:-1], 1)) < 0.9)
        self.operand: Any = x
        kind = rng.choice(["dense", "pattern", "packed", "packed", "packed"])
        if kind == "pattern":
            self.operand = hc.prune(x.astype(rng.choice([np.float16, np.float32])), str(rng.choice(PATTERNS)))
        elif kind == "packed":
            self.operand = self._packed(rng, x)
        self.is_dense = isinstance(self.operand, np.ndarray)
        self.values = np.asarray(self.operand, np.float64)
        minima = 0 if self.is_dense or kind == "pattern" else self.operand.minima_expanded()
        self.terms = abs(self.values) + 2 * np.abs(minima)

    def _packed(self, rng: Any, x: Any) -> hc.QuantizedArray:
        while True:
            text = str(rng.choice(FORMATS))
            if rng.random() < 0.25:
                text += "+" + str(rng.choice(PATTERNS))
            try:
                return hc.quantize(x, text)
            except ValueError:  # no such format, or one of blocks that do not divide the row
                pass


@pytest.mark.parametrize("seed", range(400))
@pytest.mark.sweep(every=10)
def test_any_pair_is_the_product_of_its_values(seed: int, tmp_path: Any) -> None:
    rng = np.random.default_rng(seed)
    k = 256 if rng.random() < 0.25 else int(rng.choice(SIZES))
    rows = [(int(rng.choice(SIZES)),), (2, int(rng.choice(SIZES[:8])))][int(rng.random() < 0.2)]
    x, w = Drawn(rng, (*rows, k)), Drawn(rng, (int(rng.choice(SIZES)), k))
    bias = rng.standard_normal(len(w.values)).astype(np.float32)
    described = (x.operand if not x.is_dense else "dense", w.operand if not w.is_dense else "dense", rows)

    y = hc.linear(x.operand, w.operand)
    bound = (k + 8) * 2.0**-23 * (x.terms @ w.terms.T)
    assert (abs(y - x.values @ w.values.T) <= bound).all(), described
    if x.is_dense and w.is_dense:
        return
    assert same_bits(hc.linear(x.operand, w.operand, bias), y + bias), described
    out = np.full((*rows, 2 * len(w.values)), np.nan, np.float32)[..., ::-2]
    assert same_bits(np.ascontiguousarray(hc.linear(x.operand, w.operand, bias, out=out)), y + bias), described
    assert same_bits(hc.matmul(x.operand, w.operand.T), y), described
    with hc.use(isa=str(rng.choice(MACHINES)), threads=int(rng.integers(1, 4))):
        assert same_bits(hc.linear(x.operand, w.operand, bias), y + bias), described
    with hc.use(order="one"):
        one = hc.linear(x.operand, w.operand, bias)
        assert (abs(one - x.values @ w.values.T - bias) <= bound + 2.0**-22 * abs(bias)).all(), described
        if x.is_dense or x.operand.format.splits_into_rows:
            assert same_bits(hc.linear(x.operand[:1], w.operand, bias), one[:1]), described
    for side in (x, w):
        if not side.is_dense:
            side.operand.save(tmp_path / "side.safetensors")
            assert hc.load(tmp_path / "side.safetensors") == side.operand
