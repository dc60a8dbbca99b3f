"""`hc.ptq.accept`: the smallest recipe of a ladder that is good enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute.ptq.gate import Exchange, Gate, Step, blended, climb

NET = hc.zoo.digits()


@pytest.mark.parametrize("seed", range(12))
def test_the_search_is_exhaustive_where_scores_rise_with_bytes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 20))
    sizes = rng.integers(1, 100, count).tolist()
    order = sorted(range(count), key=lambda i: (sizes[i], i))
    scores = dict(zip(order, np.sort(rng.random(count)).tolist(), strict=True))
    steps = [Step(None, "rtn", str(i)) for i in range(count)]
    chosen, gate = climb(steps, sizes, scores.__getitem__, 0.5, None)
    passing = [i for i in order if scores[i] >= 0.5]
    assert chosen == (passing[0] if passing else None)
    assert gate.evaluations <= np.ceil(np.log2(count + 1)) + 2 and len(gate.table) == count


def made_network() -> tuple[dict[str, Any], Any]:
    """Return two layers of random weights, and the function that runs them."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((128, 48)).astype(np.float32)
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in (("a", (64, 48)), ("b", (9, 64)))}
    return weights, lambda w: hc.linear(np.maximum(hc.linear(x, w["a"]), 0), w["b"])


@pytest.mark.parametrize("at_least", [0.9, 0.99, 0.999])
@pytest.mark.parametrize("name", ["digits", "adder", "made"])
def test_the_gate_is_the_exhaustive_search_of_three_networks(name: str, at_least: float) -> None:
    weights, run = made_network()
    if name != "made":
        net = getattr(hc.zoo, name)()
        weights, run = net.weights, lambda w: net.forward(w, net.test_x[:64])
    exact = run(weights).ravel()

    def cosine(small: Any) -> float:
        found = run(small).ravel()
        return float(found @ exact / np.sqrt((found @ found) * (exact @ exact)))

    ladder = ["int8", "int2-g16", "int3-g16", "int4-g16", ("int3-g16", "search"), "vsq4-g16-s4", "int6", "int5-g16"]
    small, gate = hc.ptq.accept(weights, ladder, cosine, at_least)
    assert gate.passed and gate.score == cosine(small) >= at_least
    passing = []
    for step in ladder:
        one, alone = hc.ptq.accept(weights, [step], cosine, at_least)
        if alone.passed:
            passing.append(next(row["bytes"] for row in alone.table))
    assert next(row["bytes"] for row in gate.table if row["recipe"] == gate.recipe) == min(passing)
    assert gate.evaluations <= 6


def test_neighbours_below_the_answer_are_tried() -> None:
    steps = [Step(None, "rtn", str(i)) for i in range(5)]
    scores = [0.0, 1.0, 0.0, 0.0, 1.0]  # the second is better than the two larger ones
    chosen, gate = climb(steps, range(5), scores.__getitem__, 1.0, None)
    assert chosen == 1 and gate.recipe == "1" and [row["passed"] for row in gate.table].count(True) == 2
    chosen, gate = climb(steps, range(5), scores.__getitem__, 1.0, 1)
    assert chosen is None and gate.evaluations == 1 and "the best of 1 has 0" in gate.reason


def test_a_network_is_rounded_as_far_as_its_accuracy_allows() -> None:
    def run(weights: Any) -> Any:
        return NET.forward(weights, NET.train_x[:32])

    ladder: list[Any] = ["int8", "int2-g16", {"conv*": "int4", "*": "int3-g16"}, ("int3-g16", "gptq")]
    small, gate = hc.ptq.accept(NET.weights, ladder, NET.accuracy, 0.99, inputs=run)
    assert gate.passed and gate.score == NET.accuracy(small) >= 0.99
    assert sum(np.asarray(v).nbytes if isinstance(v, np.ndarray) else v.nbytes for v in small.values()) == next(
        row["bytes"] for row in gate.table if row["recipe"] == gate.recipe
    )
    kept, gate = hc.ptq.accept(NET.weights, ["int2-g16"], NET.accuracy, 1.01)
    assert not gate.passed and all(kept[name] is NET.weights[name] for name in NET.weights)


def test_times_of_the_network_are_in_the_table() -> None:
    _, gate = hc.ptq.accept(
        NET.weights, ["int2-g16", "int8"], NET.accuracy, 0.99, lambda w: NET.forward(w, NET.train_x[:8])
    )
    assert all((row["ms"] > 0) == (row["score"] is not None) for row in gate.table)
    _, gate = hc.ptq.accept(NET.weights, ["int8"], NET.accuracy, 0.5)
    assert gate.table[0]["ms"] is None and gate.layers == {}


@pytest.mark.parametrize("at_least", [0.9, 0.97, 0.99, 2.0])
@pytest.mark.parametrize("ladder", [["int2-g16", "int8"], ["int2-g16"]])
def test_a_mixture_is_smaller_and_good_enough(at_least: float, ladder: list[str]) -> None:
    calls = []

    def evaluate(weights: Any) -> float:
        calls.append(1)
        return NET.accuracy(weights)

    alone, first = hc.ptq.accept(NET.weights, ladder, NET.accuracy, at_least)
    calls.clear()
    small, gate = hc.ptq.accept(NET.weights, ladder, evaluate, at_least, mix=True)
    assert gate.evaluations == len(calls) <= first.evaluations + 3  # log2 of 5 layers
    size, before = (sum(np.asarray(v).nbytes if isinstance(v, np.ndarray) else v.nbytes for v in one.values())
                    for one in (small, alone))  # fmt: skip
    if not gate.passed:
        assert at_least > 0.98 and not first.passed and size == before and "float weights remain" in gate.reason
        return
    assert gate.passed and size <= before and NET.accuracy(small) == gate.score >= at_least
    row = next(row for row in gate.table if row["recipe"] == gate.recipe)
    assert row["bytes"] == size and row["passed"]
    if gate.layers:
        assert size < before and {str(getattr(small[name], "format", "float")) for name in gate.layers} == {
            *gate.layers.values()
        }


def test_the_cheapest_layers_are_exchanged_first() -> None:
    costs = {"a": 1.0, "b": 0.1, "c": 0.5, "d": 3.0}
    exchanges = [Exchange(name, 10, cost, 0.0) for name, cost in costs.items()] + [Exchange("e", 0, 0.0, 0.0)]
    gate = Gate("int8", True, 1.0, 2, [{"recipe": "int8", "bytes": 100, "score": 1.0, "passed": True}], "")

    def judge(names: Any) -> tuple[float, None]:
        return 1 - sum(costs[name] for name in names), None

    for limit, wanted in ((0.95, ""), (0.9, "b"), (0.4, "bc"), (-0.7, "bca"), (-9.0, "bcad")):
        names, found = blended(gate, "int4", 100, exchanges, judge, limit, None)
        assert "".join(names) == wanted and (found.layers == {}) == (not wanted)
        assert found.recipe == (f"int4 in {len(wanted)} of 4 layers, int8 in the others" if wanted else "int8")
    assert blended(gate, "int4", 100, exchanges, judge, 0.9, 2)[0] == []  # no evaluation is left


def test_the_page_shows_scores_against_bytes_and_times(tmp_path: Path) -> None:
    _, gate = hc.ptq.accept(
        NET.weights, ["int2-g16", {"conv*": "int4", "*": "int3-g16"}, "int8"], NET.accuracy, 0.99,
        lambda w: NET.forward(w, NET.train_x[:8]), mix=True,
    )  # fmt: skip
    gate.to_html(tmp_path / "gate.html")
    text = (tmp_path / "gate.html").read_text()
    assert text.count("<svg") >= 2 and "bytes of all weights" in text and "milliseconds of a run, measured" in text
    assert gate.reason.split(",")[0] in text


@pytest.mark.parametrize(
    ("ladder", "options", "sentence"),
    [
        ("int8", {}, "accept: ladder is 'int8', expected a list"),
        ([], {}, "accept: ladder is empty"),
        ([("int8", "best")], {}, "accept: the ladder has the method 'best'"),
        (["int8"], {"method": "gptq"}, "accept: inputs is None"),
        (["int8"], {"at_least": "good"}, "accept: at_least is 'good'"),
        (["int8"], {"evaluate": lambda weights: float("nan")}, "accept: the score is nan"),
        (["int8"], {"evaluate": 3}, "accept: evaluate is 3"),
        (["int8"], {"mix": "yes"}, "accept: mix is 'yes'"),
        (["int8"], {"evaluations": 0}, "accept: evaluations is 0"),
    ],
)
def test_bad_input_is_one_sentence(ladder: Any, options: dict[str, Any], sentence: str) -> None:
    given = {"evaluate": NET.accuracy, "at_least": 0.9, **options}
    with pytest.raises((TypeError, ValueError), match=sentence):
        hc.ptq.accept(NET.weights, ladder, **given)
