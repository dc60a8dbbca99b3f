"""Drawn calls: equal seeds draw equal calls, each kind is verified and timed, and hostile options are one sentence."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest

from heterocompute.bench import KINDS, drawn
from heterocompute.bench.drawn import call as calls_of, products, shapes
from heterocompute.bench.measure import CheckFailed, Options
from heterocompute.cli import command as cli
from heterocompute.products.matmul import linear
from heterocompute.products.quantize import quantize

KEYS = {"kind", "call", "seed", "ms", "peer", "peer_ms", "ratio", "path", "estimate_ms", "fastest_path", "fastest_ms"}


def quick(kind, seed=0):
    return Options(quick=True, threads=[1], name="drawn", kind=kind, seed=seed, seconds=0)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_verified_and_timed(kind, capfd):
    if kind == "models":
        pytest.importorskip("torch")
    (table,) = drawn.measure(quick(kind, 11))
    (row,) = table["calls"]
    assert row.keys() >= KEYS
    assert row["kind"] == kind and row["seed"] == 11 and row["ms"] > 0
    assert (row["peer"] is None) == (row["ratio"] is None) == (row["peer_ms"] is None)
    if kind in ("conv", "matmul"):
        assert row["path"] and row["fastest_path"] and row["fastest_ms"] > 0
    json.dumps(table, allow_nan=False)


@pytest.mark.parametrize("kind", ["conv", "matmul", "sparse"])
def test_a_seed_draws_the_same_calls(kind):
    first, again, other = (list(islice(drawn.draws(kind, quick(kind, seed), 1), 3)) for seed in (5, 5, 6))
    assert [(seed, call.text) for seed, call in first] == [(seed, call.text) for seed, call in again]
    assert [call.text for _, call in first] != [call.text for _, call in other]
    second = first[1]
    assert next(drawn.draws(kind, quick(kind, second[0]), 1))[1].text == second[1].text


def test_the_operands_of_a_seed_are_the_same():
    def result(seed):
        call = next(drawn.draws("matmul", quick("matmul", seed), 1))[1]
        call.run()
        return call.result().tobytes()

    assert result(3) == result(3) != result(4)


def test_the_shapes_are_those_of_networks():
    assert len(shapes.windows()) > 200 and len(shapes.matrices()) > 80
    assert {(one.r, one.s) for one in shapes.windows()} >= {(1, 1), (3, 3), (5, 5), (7, 7), (1, 7), (16, 16)}
    assert any(1 < one.groups < one.c for one in shapes.windows())
    assert any(one.dilation > 1 for one in shapes.windows())
    assert (4096, 4096) in shapes.matrices() and shapes.Heads(12, 12, 64) in shapes.attentions()
    assert max(n * k for n, k in shapes.matrices()) <= shapes.MOST_WEIGHTS


def test_a_wrong_result_is_not_timed():
    calls = (call for _, call in drawn.draws("matmul", quick("matmul"), 1))
    call = next(call for call in calls if call.chosen not in call.loose)
    right, run = call.result, call.run
    call.run, call.check = (lambda: (run(), right().fill(1))), (lambda: None)
    with pytest.raises(CheckFailed, match="gives other bits"):
        list(calls_of._near(call))


def test_a_wrong_peer_is_left_out(capfd):
    call = next(drawn.draws("matmul", quick("matmul", 1), 1))[1]
    call.peers = {"wrong": (lambda: np.zeros(3), calls_of.close("wrong", lambda: np.zeros(3), np.ones(3)))}
    row = calls_of.timed(call, "matmul", 1, 1, quick("matmul"))
    assert row["peer"] is None and row["ratio"] is None
    assert "left out" in capfd.readouterr().err


def test_integers_are_timed_with_prepacked_weights_too():
    pytest.importorskip("torch")
    drawn_calls = drawn.draws("matmul", quick("matmul", 3), 1)
    seed, call = next((seed, call) for seed, call in drawn_calls if call.ready is not None)
    row = calls_of.timed(call, "matmul", seed, 1, quick("matmul"))
    assert "integers" in row["group"] and row["prepacked_ms"] > 0 and row["prepacked_ratio"] > 0
    (last,) = (one for one in drawn.summary([row | {"ms": 1.0}]) if one["name"] == "the integers, prepacked")
    assert last["cases"] == 1 and last["geomean"] == pytest.approx(row["prepacked_ratio"])
    call.ready = lambda: call.result().fill(1)
    with pytest.raises(CheckFailed, match="other bits"):
        calls_of.timed(call, "matmul", seed, 1, quick("matmul"))


def test_the_summary_counts_calls():
    def row(ms, ratio, group="a"):
        return {"ms": ms, "peer_ms": ms * ratio, "ratio": ratio, "group": group, "fastest_ms": ms / 2}

    none = {"ms": 1.0, "peer_ms": None, "ratio": None, "group": "a", "fastest_ms": None}
    rows = drawn.summary([row(1.0, 0.4), row(1.0, 0.9), row(2.0, 4.0, "b"), row(0.01, 0.5), row(0.001, 0.5), none])
    found = {one["name"]: one for one in rows}
    assert found["all of 20 us and more"]["shares"] == [2 / 3, 1 / 3, 1 / 3]
    assert found["all of 20 us and more"]["geomean"] == pytest.approx((0.4 * 0.9 * 4) ** (1 / 3))
    assert found["all of 20 us and more"]["slower"] == 2.0
    assert found["b"]["cases"] == 1 and found["shorter ones"]["limit"] == "1 more than 3 us slower"
    assert found["without another library"]["cases"] == 1


def test_a_product_of_other_values_is_a_failure():
    x, w = np.random.default_rng(0).standard_normal((2, 3, 64), np.float32)
    q, out = quantize(w, "int4"), np.empty((3, 3), np.float32)
    products._checked(lambda: linear(x, q, out=out), x, q, None, None, out)()
    with pytest.raises(CheckFailed, match="linear"):
        products._checked(lambda: linear(x, w, out=out), x, q, None, None, out)()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["drawn", "--kind", "all"], "--kind 'all'"),
        (["drawn", "--kind", ""], "--kind ''"),
        (["drawn", "--seed", "-1"], "--seed"),
        (["drawn", "--seed", "1.5"], "--seed '1.5'"),
        (["drawn", "--seed", "9" * 5000], "--seed"),
        (["drawn", "--seconds", "nan"], "--seconds 'nan'"),
        (["drawn", "--seconds", "inf"], "--seconds 'inf'"),
        (["drawn", "--seconds=-1"], "--seconds '-1'"),
        (["drawn", "--seconds", "soon"], "--seconds 'soon'"),
        (["gemm", "--seed", "1"], "bench drawn"),
        (["--kind", "conv"], "bench drawn"),
    ],
)
def test_hostile_options_are_one_sentence(options, reason, capsys):
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(cli.main(["bench", *options]))
    assert ended.value.code == 2
    line = " ".join(capsys.readouterr().err.split())
    assert reason in line and len(line) < 400 and "Traceback" not in line
