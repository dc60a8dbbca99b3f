"""Codebooks that are given: the codes of learned ones, and those of the NumPy definition; their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import reals, same_bits

import heterocompute as hc
from heterocompute.reference import kmeans

TABLE = np.sort(np.random.default_rng(4).standard_normal(16)).astype(np.float32)


@pytest.mark.parametrize(
    "text", ["cb4", "cb2", "cb3-tensor", "cb4-g16", "cb3-g5-tensor", "cb8", "cb2+2:4", "cb4-g16+2:4"]
)
@pytest.mark.parametrize(
    ("shape", "axis"), [((7, 64), -1), ((64, 7), 0), ((5, 4, 3, 3), (2, 3, 1)), ((3, 16, 8), (1, 2))]
)
def test_the_codes_under_a_learned_codebook_are_those_of_learning(text: str, shape: Any, axis: Any) -> None:
    for dtype in (np.float32, np.float64, np.float16):
        x = reals(shape, len(text)).astype(dtype)
        learned = hc.quantize(x, text, axis)
        given = hc.quantize(x, text, axis, codebook=learned.components["codebook"])
        assert given == learned and given.source_dtype == learned.source_dtype


def test_one_table_serves_all_rows_and_ties_go_to_the_lower_number() -> None:
    x = reals((9, 40), 3)
    q = hc.quantize(x, "cb4", codebook=TABLE)
    wanted = TABLE[kmeans.nearest(TABLE, x.astype(np.float64))]
    assert same_bits(q.dequantize(), wanted) and q.components["codebook"].shape == (9, 16)
    assert hc.quantize(x, "cb4", codebook=np.tile(TABLE, (9, 1))) == q
    halves = hc.quantize(np.float32([[0.5, 1.5, -1, 9, 2.5]]), "cb2", codebook=[0, 1, 2, 3])
    assert halves.dequantize().tolist() == [[0, 1, 0, 3, 2]]
    short = hc.quantize(np.float32([[0.5, 1.5, 9]]), "cb2", codebook=[0, 1, 2, 2])  # three numbers
    assert short.components["codes"].tolist() == [[0b100100]]
    grouped = hc.quantize(x, "cb4-g8", codebook=np.linspace(-1, 1, 16))
    assert np.abs(grouped.dequantize() - x).max() < np.abs(x).max() / 14
    y = reals((2, 40), 5)
    np.testing.assert_allclose(hc.linear(y, q), y @ wanted.T, rtol=1e-5, atol=1e-5)


def test_given_codebooks_are_checked() -> None:
    x = reals((3, 16), 1)
    for fmt, codebook, options, words in (
        ("cb4", TABLE[:4], {}, r"shape \(4,\), expected \(16,\) or \(3, 16\)"),
        ("cb4-tensor", np.tile(TABLE, (3, 1)), {}, r"shape \(3, 16\), expected \(16,\)"),
        ("cb2", [0, 2, 1, 3], {}, r"has 1.0 at index \(2,\), expected ascending"),
        ("cb2", [0, 0, 1, 2], {}, r"has 0.0 at index \(1,\), expected ascending"),
        ("cb2", [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 0]], {}, r"has 0.0 at index \(2, 3\)"),
        ("cb2", [0, 1, 2, np.nan], {}, "codebook has nan at index"),
        ("cb2", [0, 1, 2, 1e300], {}, "codebook has inf at index"),
        ("cb2", ["a", 1, 2, 3], {}, "expected an array of floats"),
        ("cb8-d2", TABLE, {}, "with cb8-d2, expected a codebook of single values"),
        ("int4", TABLE, {}, "with int4, expected a codebook of single values"),
        ("cb4", TABLE, {"clip": 0.5}, "given with clip"),
        ("cb4", TABLE, {"importance": np.ones((3, 16))}, "given with importance"),
    ):
        with pytest.raises(ValueError, match=words):
            hc.quantize(x, fmt, codebook=codebook, **options)
    with pytest.raises(ValueError, match=r"w has inf at index \(1, 2\)"):
        broken = x.copy()
        broken[1, 2] = np.inf
        hc.quantize(broken, "cb4", codebook=TABLE)


def test_a_mask_of_ones_own_prunes() -> None:
    x, rng = reals((6, 30), 2), np.random.default_rng(1)
    mask = np.zeros(x.shape, bool)
    for i in range(6):
        for first in range(0, 30, 4):
            mask[i, first + rng.permutation(min(4, 30 - first))[: rng.integers(0, 3)]] = True
    s = hc.prune(x, "2:4", mask=mask)
    assert np.array_equal(s.to_dense(), np.where(mask, x, 0)) and str(hc.quantize(s, "int8").format) == "int8+2:4"
    mask[3, 8:12] = True
    with pytest.raises(ValueError, match=r"keeps 4 values of the block of 4 that begins at index \(3, 8\)"):
        hc.prune(x, "2:4", mask=mask)
    with pytest.raises(TypeError, match="dtype float32, expected bool"):
        hc.prune(x, "2:4", mask=mask.astype(np.float32))
