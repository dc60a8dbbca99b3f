"""`hc.ptq.accept`: the smallest recipe of a ladder that is good enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute.ptq.gate import Step, climb

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
    small, gate = hc.ptq.accept(NET.weights, ladder, NET.accuracy, 0.99, calibration=run)
    assert gate.passed and gate.score == NET.accuracy(small) >= 0.99
    assert sum(np.asarray(v).nbytes if isinstance(v, np.ndarray) else v.nbytes for v in small.values()) == next(
        row["bytes"] for row in gate.table if row["recipe"] == gate.recipe
    )
    kept, gate = hc.ptq.accept(NET.weights, ["int2-g16"], NET.accuracy, 1.01)
    assert not gate.passed and all(kept[name] is NET.weights[name] for name in NET.weights)


@pytest.mark.parametrize(
    ("ladder", "options", "sentence"),
    [
        ("int8", {}, "accept: ladder is 'int8', expected a list"),
        ([], {}, "accept: ladder is empty"),
        ([("int8", "best")], {}, "accept: the ladder has the method 'best'"),
        (["int8"], {"method": "gptq"}, "accept: calibration is missing"),
        (["int8"], {"at_least": "good"}, "accept: at_least is 'good'"),
        (["int8"], {"evaluate": lambda weights: float("nan")}, "accept: the score is nan"),
        (["int8"], {"evaluate": 3}, "accept: evaluate is 3"),
        (["int8"], {"evaluations": 0}, "accept: evaluations is 0"),
    ],
)
def test_bad_input_is_one_sentence(ladder: Any, options: dict[str, Any], sentence: str) -> None:
    given = {"evaluate": NET.accuracy, "at_least": 0.9, **options}
    with pytest.raises((TypeError, ValueError), match=sentence):
        hc.ptq.accept(NET.weights, ladder, **given)
