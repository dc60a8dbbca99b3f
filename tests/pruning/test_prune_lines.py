"""The kernels that choose N of every M: the bits of the definition for any scores, on every instruction set."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from common import guarded_copy, isas, same_bits

import heterocompute as hc
from heterocompute.reference import sparsity

FAST = [
    (1, 4),
    (2, 4),
    (2, 8),
    (4, 8),
    (1, 8),
    (1, 16),
    (1, 2),
    (3, 4),
    (2, 5),
    (6, 7),
    (3, 8),
    (5, 16),
    (8, 16),
    (16, 32),
]
ALL = [(n, m) for m in range(1, 33) for n in range(1, m + 1)]
SPECIAL = np.float32([0, -0.0, 1e-45, -1e-45, 1.2e-38, -1.2e-38, 1, -1, 3.4e38, -3.4e38, np.inf, -np.inf])

Array = np.ndarray[Any, Any]


def expect_definition(w: Array, scores: Array | None, n: int, m: int) -> None:
    values, _, metadata = sparsity.keep(w[:, None], None if scores is None else scores[:, None], n, m)
    with guarded_copy(w) as x, guarded_copy(w if scores is None else scores) as given:
        s = hc.prune(x, f"{n}:{m}", scores=None if scores is None else given)
    assert same_bits(s.components["values"], values)
    assert same_bits(s.components["metadata"], metadata)


@pytest.mark.parametrize("isa", isas("choose_nm"))
@pytest.mark.parametrize(("n", "m"), FAST)
@pytest.mark.sweep(every=3)
def test_scores_of_any_size_and_sign_compare(n: int, m: int, isa: str) -> None:
    rng = np.random.default_rng(m * 10 + n)
    with hc.use(isa=isa):
        for few in (2, 3, len(SPECIAL)):  # few different ones: mostly ties
            w = rng.choice(rng.permutation(SPECIAL)[:few], (9, 64 * m))
            expect_definition(w, None, n, m)
            expect_definition(rng.standard_normal(w.shape).astype(np.float32), w, n, m)


@pytest.mark.parametrize("isa", isas("choose_nm"))
@pytest.mark.parametrize(("n", "m"), FAST)
@pytest.mark.sweep(every=3)
def test_any_number_of_blocks(n: int, m: int, isa: str) -> None:
    rng = np.random.default_rng(m)
    with hc.use(isa=isa):
        for blocks in range(36):
            w = rng.standard_normal((2, blocks * m)).astype(np.float32)
            expect_definition(w, None, n, m)
            expect_definition(w, rng.integers(-2, 3, w.shape).astype(np.float32), n, m)


@pytest.mark.parametrize("isa", isas("choose_nm"))
@pytest.mark.parametrize(("n", "m"), FAST)
@pytest.mark.sweep(every=3)
def test_a_nan_anywhere_is_found(n: int, m: int, isa: str) -> None:
    with hc.use(isa=isa):
        for at in (*range(16 * m), 17 * m - 1, 18 * m, 19 * m + 1):  # whole groups of blocks, and what is left
            w = np.ones((1, 19 * m + 2), np.float32)
            w[0, at] = -np.nan if at % 2 else np.nan
            with pytest.raises(ValueError, match=rf"w has nan at index \(0, {at}\)"):
                hc.prune(w, f"{n}:{m}")
            with pytest.raises(ValueError, match=rf"scores has nan at index \(0, {at}\)"):
                hc.prune(np.ones_like(w), f"{n}:{m}", scores=w)


@pytest.mark.parametrize("isa", isas("choose_nm"))
@pytest.mark.sweep(every=3)
def test_every_pattern_keeps_what_is_largest(isa: str) -> None:
    rng = np.random.default_rng(3)
    with hc.use(isa=isa):
        for n, m in ALL:
            w = rng.standard_normal((2, m * int(rng.integers(8, 99)))).astype(np.float32)
            w[1] = rng.choice(SPECIAL, w.shape[1])
            scores = rng.choice(SPECIAL, w.shape)  # mostly ties
            expect_definition(w, scores if (n + m) % 2 else None, n, m)


@pytest.mark.parametrize("isa", isas("choose_nm"))
def test_runs_that_end_within_a_block(isa: str) -> None:
    rng = np.random.default_rng(4)
    for n, m in ALL[::7]:
        w = rng.integers(-3, 4, (3, 2, 20 * m + int(rng.integers(0, m)))).astype(np.float32)
        with hc.use(isa="scalar"):
            wanted = [hc.prune(w, f"{n}:{m}", axis=(1, 2), scores=scores) for scores in (None, w)]
        with hc.use(isa=isa):
            assert [hc.prune(w, f"{n}:{m}", axis=(1, 2), scores=scores) for scores in (None, w)] == wanted


@pytest.mark.parametrize("kind", ["different", "few", "mostly zero", "special"])
def test_shares_of_long_rows(kind: str) -> None:
    rng = np.random.default_rng(5)
    shape = (3, 2**16 + 77)  # beyond what is sorted
    w = rng.standard_normal(shape).astype(np.float32)
    if kind == "few":
        w = np.round(w)
    elif kind == "mostly zero":
        w[rng.random(shape) < 0.8] = -0.0
    elif kind == "special":
        w = rng.choice(SPECIAL, shape)
    scores = w if kind == "special" else -w  # of any sign
    for given, by in ((None, np.abs(w)), (scores, scores)):
        for pattern, rows in (
            ("30%", by),
            ("85%", by),
            ("global:60%", by.reshape(1, -1)),
            ("block:1x1:60%", by.reshape(1, -1)),
        ):
            gone = rows.shape[1] * int(pattern.split(":")[-1][:-1]) // 100
            wanted = np.ones(rows.shape, np.bool_)
            order = np.argsort(rows[:, ::-1], axis=1, kind="stable")[:, :gone]  # the least, higher indices first
            np.put_along_axis(wanted, rows.shape[1] - 1 - order, False, axis=1)
            assert (hc.prune_mask(w, pattern, scores=given) == wanted.reshape(shape)).all()
            assert same_bits(hc.prune(w, pattern, scores=given), np.where(wanted.reshape(shape), w, np.float32(0)))


def peak(work: Callable[[], Any]) -> int:
    """Return the most bytes of arrays that the work holds at once."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("pattern", ["global:50%", "50%", "block:16x1:50%"])
@pytest.mark.parametrize("rows", [1024, 16])
def test_shares_need_little_beside_the_array(pattern: str, rows: int) -> None:
    w = np.resize(np.random.default_rng(3).standard_normal(2**16, dtype=np.float32), (rows, 2**23 // rows))
    w[:, ::3] = 0
    assert peak(lambda: hc.prune(w, pattern)) < 2 * w.nbytes + 2**25


def test_patterns_convert_no_whole_array() -> None:
    w = np.ones((2048, 4096), np.float16)
    assert peak(lambda: hc.prune(w, "2:4")) < 1.6 * w.nbytes  # float32 values of half of it, and their places


@pytest.mark.parametrize("nth", [1, 700_000, 1_500_000, 3 * 2**20])
def test_equal_scores_of_a_long_row_go_from_its_end(nth: int) -> None:
    w = np.tile(np.float32([2, 1, 1]), 2**20)
    share = f"global:{100 * nth / w.size:.6f}%"
    gone = int(Fraction(share[7:-1]) / 100 * w.size)
    order = np.lexsort((-np.arange(w.size), w))
    expected = np.ones(w.size, np.bool_)
    expected[order[:gone]] = False
    assert np.array_equal(hc.prune_mask(w, share), expected)
