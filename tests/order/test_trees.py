"""The trees of sums, reconstructed from results, are the documented ones (docs/errors-and-exactness.md)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import fprev
import numpy as np
import pytest
from common import isas
from fprev import Array, Tree, chain, halves, tree_of

import heterocompute as hc

ISAS = [isas()[0], None]


def by_groups(k: int, group: int) -> Tree:
    """Return the stated order of few vectors: a chain in each group, group g in accumulator g mod 16."""
    sums = [chain(range(first, min(first + group, k))) for first in range(0, k, group)]
    return halves([chain(sums[lane::16]) for lane in range(16)])


def by_columns(k: int) -> Tree:
    """Return the stated order of few vectors without groups: column k in accumulator k mod 64."""
    return halves([chain(range(lane, k, 64)) for lane in range(64)])


def products(q: Any, rows: int, k: int) -> Callable[[Array], Array]:
    """Return the sums of rows, in units of one term, by matmuls of `rows` rows at a time."""

    def total(terms: Array) -> Array:
        one = float(hc.linear(np.ones((1, k), np.float32), q)[0, 0]) / k
        whole = np.concatenate([terms, np.ones((-len(terms) % rows, k), np.float32)])
        parts = [hc.linear(whole[at : at + rows], q)[:, 0] for at in range(0, len(whole), rows)]
        return np.concatenate(parts)[: len(terms)] / one

    return total


def test_the_method_finds_trees_of_numpy_loops() -> None:
    def pairwise(x: Array) -> np.float32:
        return x[0] if len(x) == 1 else np.float32(pairwise(x[: len(x) // 2]) + pairwise(x[len(x) // 2 :]))

    def running(x: Array) -> np.float32:
        total = np.float32(0)
        for value in x:
            total = np.float32(total + value)
        return total

    def nested(first: int, n: int) -> Tree:
        return first if n == 1 else fprev.joined(nested(first, n // 2), nested(first + n // 2, n - n // 2))

    assert tree_of(lambda rows: np.array([pairwise(row) for row in rows]), 13) == nested(0, 13)
    assert tree_of(lambda rows: np.array([running(row) for row in rows]), 9) == chain(range(9))
    with pytest.raises(ValueError, match="2 of the terms"):
        tree_of(lambda rows: np.array([math.fsum(row) for row in rows]), 7)  # exact, in no order


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "weights, k, group",
    [("int4-g8-f16", 150, 8), ("nf4-g32", 100, 32), ("mxfp4", 70, 32), ("int8", 140, 0), ("fp8_e4m3fn-row", 131, 0)],
)
@pytest.mark.parametrize("rows", [1, 3, 8, 9, 20])
@pytest.mark.sweep(every=16)
def test_products_of_packed_and_float_have_the_stated_tree(
    weights: str, k: int, group: int, rows: int, isa: str | None
) -> None:
    q = hc.quantize(np.ones((1, k), np.float32), weights)
    few = by_groups(k, group) if group else by_columns(k)
    with hc.use(isa=isa):
        assert tree_of(products(q, rows, k), k) == (few if rows <= 8 else chain(range(k)))
        with hc.use(order="one"):
            assert tree_of(products(q, rows, k), k) == few
            assert tree_of(products(hc.prepack(q), rows, k), k) == few


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [1, 2, 9, 33])
def test_dense_products_of_this_package_are_one_chain(rows: int, isa: str | None) -> None:
    k = 90
    w = np.ones((5, k), np.float32)
    for setting in ({"blas": "own"}, {"order": "one"}):
        with hc.use(isa=isa, **setting):  # type: ignore[arg-type]
            assert tree_of(products(w, rows, k), k) == chain(range(k))


@pytest.mark.parametrize("isa", ISAS)
def test_convolutions_in_one_order_are_one_chain_over_windows(isa: str | None) -> None:
    channels, k = 5, 45
    filters = np.ones((32, channels, 3, 3), np.float32)

    def total(terms: Array) -> Array:
        """Windows are (r, s, c): image by image, or side by side in one image."""
        windows = terms.reshape(-1, 3, 3, channels).transpose(0, 3, 1, 2)
        apart = hc.conv2d(windows, filters)[:, 0, 0, 0]
        whole = np.concatenate(windows, axis=-1)[None]
        along = hc.conv2d(whole, filters, stride=(1, 3))[0, 7, 0, :]
        np.testing.assert_array_equal(apart, along)
        return apart

    with hc.use(isa=isa, order="one"):
        assert tree_of(total, k) == chain(range(k))


@pytest.mark.parametrize(
    "instruction, step, k", [("hmma-v100", 4, 40), ("hmma-a100", 8, 40), ("hmma-h100", 16, 30), ("hfma", 1, 14)]
)
def test_emulated_tensor_cores_add_a_whole_step_at_once(instruction: str, step: int, k: int) -> None:
    def total(terms: Array) -> Array:
        sums, others = ("fp16", np.ones_like(terms)) if instruction == "hfma" else ("fp32", np.abs(terms))
        return hc.emulate.matmul(terms[:, None], others[:, :, None], sums, instruction=instruction)[:, 0, 0]

    found: Tree = None
    for first in range(0, k, step):
        terms = range(first, min(first + step, k))
        found = fprev.joined(found, *terms)
    assert tree_of(total, k, 2.0**15) == found


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("queries", [1, 20])
def test_attention_adds_values_in_one_chain(queries: int, isa: str | None) -> None:
    keys = 80

    def total(terms: Array) -> Array:
        """All scores are 0, so that all weights are 1; a column of the values is a row of terms."""
        v = np.ascontiguousarray(terms.T)[None]
        q = np.zeros((1, queries, len(terms)), np.float32)
        with hc.use(isa=isa):
            return hc.attention(q, np.zeros_like(v), v)[0, -1] * keys

    assert tree_of(total, keys) == chain(range(keys))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("queries", [1, 20])
def test_attention_scores_fold_16_accumulators(queries: int, isa: str | None) -> None:
    width = 50
    values = np.eye(2, width, dtype=np.float32)[None]

    def total(terms: Array) -> Array:
        k = np.stack([np.ones(width, np.float32), np.zeros(width, np.float32)])[None]
        found = []
        for row in terms:  # exp(score) : 1 are the weights of the two keys
            q = np.tile(row, (1, queries, 1))
            with hc.use(isa=isa):
                out = hc.attention(q, k, values, causal=False, scale=1 / 8)[0, -1]
            found.append(8 * np.log(out[0] / out[1]))
        return np.array(found)

    assert tree_of(total, width) == halves([chain(range(lane, width, 16)) for lane in range(16)])
