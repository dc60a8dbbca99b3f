"""Times are those of weights outside of caches: other memory is read first, and no copy is used twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute.products import clock as module
from heterocompute.products.clock import COPIES, LARGEST, Clock, _settled

RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((1, 64), dtype=np.float32)
W = RANDOM.standard_normal((64, 64), dtype=np.float32)  # 16 KiB


@pytest.mark.parametrize("text", [None, "int4", "vsq4-g16-s4", "int8+2:4", "cb4"])
def test_copies_are_the_same_weights_elsewhere(text: str | None) -> None:
    w: Any = W if text is None else hc.quantize(W, text)
    copies = Clock(1 << 20).copies(w)
    assert copies[0] is w and len(copies) == COPIES
    for copy in copies[1:]:
        assert type(copy) is type(w)
        np.testing.assert_array_equal(np.asarray(copy), np.asarray(w))
        assert hc.linear(X, copy).tobytes() == hc.linear(X, w).tobytes()
    parts = [[one] if text is None else list(one.components.values()) for one in copies]
    assert not any(np.shares_memory(a, b) for a, b in zip(parts[0], parts[1], strict=True))


@pytest.mark.parametrize("beyond", [W.nbytes // 2, W.nbytes, 3 * W.nbytes, 3 * W.nbytes + 1, 100 * W.nbytes])
def test_copies_take_no_more_than_is_read(beyond: int) -> None:
    copies = Clock(beyond).copies(W)
    assert len(copies) == max(1, min(beyond // W.nbytes, COPIES))
    assert len(copies) == 1 or sum(w.nbytes for w in copies) <= beyond


def test_by_default_twice_the_last_cache_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for cache, wanted in ((1 << 20, 2 << 20), (1 << 40, LARGEST)):
        monkeypatch.setattr(module, "l3_bytes", lambda cache=cache: cache)
        clock = Clock()
        assert clock.beyond == clock._memory.nbytes == wanted


@pytest.mark.parametrize(("beyond", "copies"), [(W.nbytes, 1), (3 * W.nbytes, 3), (1 << 20, COPIES)])
def test_no_weights_are_multiplied_twice_in_a_turn(monkeypatch: pytest.MonkeyPatch, beyond: int, copies: int) -> None:
    turns: list[list[int]] = []

    class Memory:
        def max(self) -> None:
            turns.append([])

    def linear(x: Any, w: Any, activations: Any = None) -> None:
        assert hc.get_num_threads() == 1 and x is X and activations == kind
        turns[-1].append(id(w))

    monkeypatch.setattr(module, "linear", linear)
    monkeypatch.setattr(module, "_settled", lambda times: len(times) >= 8)
    clock = Clock(beyond)
    clock._memory = Memory()  # type: ignore[assignment]
    for kind in (None, hc.Int(8)):
        turns.clear()
        (seconds,) = clock.seconds(X, W, [kind])
        assert seconds >= 0
        assert all(len(turn) == len(set(turn)) == copies for turn in turns)
        assert len(turns) == -(-8 // max(1, copies - 1))  # the first of several warms the code


def test_three_times_that_agree_are_enough() -> None:
    assert not _settled([1e-5] * 7) and _settled([1e-5] * 8)
    apart = [1e-5 * 1.2**i for i in range(24)]
    assert not _settled(apart[:8]) and not _settled(apart) and _settled([*apart, 1.0])
    assert _settled([0.1 * 1.2**i for i in range(8)])  # a third of a second in all: enough waiting


def test_every_row_with_weights_has_its_time() -> None:
    r = hc.study({"w": W, "empty": np.zeros((0, 64), np.float32)}, ["int4"], activations=None, timing=True)
    assert all(row["seconds"] > 0 for row in r.table)
    times = {(row["name"], row["format"]): row["seconds"] for row in r.layers}
    assert times["empty", "int4"] is None and times["w", "int4"] == r.table[1]["seconds"]
    assert "in no cache" in repr(r) and "in no cache" in r._repr_html_()
