"""Columns and sentences of accumulators in a study: what no input overflows, what inputs need, what a MAC saves."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc

RNG = np.random.default_rng(0)
WEIGHTS = {
    "one": RNG.standard_normal((24, 64), dtype=np.float32),
    "two": RNG.standard_normal((8, 24), dtype=np.float32),
}
X = RNG.standard_normal((20, 64)).astype(np.float32)


def evaluate(weights: Any, activations: Any = None, emulate: str | None = None) -> float:
    def linear(x: Any, w: Any) -> Any:
        if emulate is not None:
            return hc.emulate.linear(x, w, activations=activations, emulate=emulate)
        return hc.linear(x, w, activations=activations)

    def run(used: Any) -> Any:
        return linear(np.maximum(linear(X, used["one"]), 0), used["two"])

    exact = np.maximum(X @ WEIGHTS["one"].T, 0) @ WEIGHTS["two"].T
    return float(np.square(run(weights) - exact).mean())


@pytest.fixture(scope="module")
def study() -> Any:
    return hc.study(WEIGHTS, ["int8", "int4", "mxfp4"], evaluate, activations=["int8"],
                    emulate=["int14-sat", "int14-wrap", "hmma"], timing=False)  # fmt: skip


def test_guaranteed_and_needed_bits_are_those_of_accumulator_bits(study: Any) -> None:
    rows = [row for row in study.table if str(row["emulate"]).startswith("int14")]
    assert len(rows) == 4
    for row in rows:
        both = {name: hc.quantize(w, row["format"]) for name, w in WEIGHTS.items()}
        assert row["guaranteed_bits"] == max(hc.ptq.accumulator_bits(q, "int8").bits for q in both.values())
        inputs = {"one": X[:16], "two": np.maximum(X @ WEIGHTS["one"].T, 0)[:16]}
        found = [hc.ptq.accumulator_bits(both[name], "int8", inputs=x) for name, x in inputs.items()]
        key = "needed_wrapping" if "wrap" in row["emulate"] else "needed_saturating"
        assert row["needed_bits"] == max(getattr(one, key) for one in found) <= row["guaranteed_bits"]
    others = [row for row in study.table if not str(row["emulate"]).startswith("int14")]
    assert all(row["guaranteed_bits"] is None and row["needed_bits"] is None for row in others)


def test_sentences_name_the_cost_and_what_a_mac_saves(study: Any) -> None:
    assert "of one MAC" not in str(study)  # 14 bits do not hold a product of 16
    narrow, wide = (hc.hardware.mac("int8", "int8", accumulator_bits=bits, vector=1) for bits in (16, 32))
    assert narrow.energy_pj < wide.energy_pj and narrow.area_um2 < wide.area_um2
    wider = hc.study(WEIGHTS, ["int8"], evaluate, activations=["int8"], emulate=["int16-sat"], timing=False)
    words = f"saves {1 - narrow.energy_pj / wide.energy_pj:.0%} of the energy"
    assert words in " ".join(str(wider).split()), str(wider)


def test_a_function_that_cannot_be_recorded_has_no_needed_bits() -> None:
    def strict(weights: Any, activations: Any = None, emulate: str | None = None) -> float:
        assert all(type(one) in (np.ndarray, hc.QuantizedArray) for one in weights.values())
        return evaluate(weights, activations, emulate)

    found = hc.study(WEIGHTS, ["int4"], strict, activations=["int8"], emulate=["int16-sat"], timing=False)
    (row,) = [row for row in found.table if row["emulate"]]
    assert row["guaranteed_bits"] is not None and row["needed_bits"] is None


def test_kept_bits_of_trained_weights_are_their_own(tmp_path: Path) -> None:
    def trained(_: Any, weights: Any) -> Any:
        return {name: hc.quantize(np.asarray(w).clip(0), "int8") if isinstance(w, hc.QuantizedArray) else w
                for name, w in weights.items()}  # fmt: skip

    options: Any = {"activations": ["int8"], "emulate": ["int16-sat"], "retrain": trained, "timing": False}
    twice = [hc.study(WEIGHTS, ["int8"], evaluate, keep=tmp_path / "kept", **options).table for _ in range(2)]
    plain = hc.study(WEIGHTS, ["int8"], evaluate, **options).table
    for rows in twice:
        assert [row["guaranteed_bits"] for row in rows] == [row["guaranteed_bits"] for row in plain]
    assert len({row["guaranteed_bits"] for row in plain if row["emulate"]}) > 1


def test_a_language_model_has_the_bits_that_its_first_tokens_need(tmp_path: Path) -> None:
    sys.path.append(str(Path(__file__).resolve().parents[1] / "llm"))
    made: Any = pytest.importorskip("made")
    net = hc.zoo.open_llm(made.write_gguf(tmp_path / "m.gguf"))
    ids = np.random.default_rng(0).integers(2, 96, 16)

    def rows(*emulate: str) -> list[Any]:
        found = hc.study(net, ["int8"], text=ids, activations=["int8"], emulate=emulate, timing=False).table
        return [row for row in found if row["emulate"] in emulate]

    (wide,) = rows("int32-sat")
    needed = wide["needed_bits"]
    assert needed < wide["guaranteed_bits"]
    enough, narrow = rows(f"int{needed + 1}-sat", f"int{needed - 3}-sat")  # the rounded network has other inputs
    assert enough["kl"] == wide["kl"] != narrow["kl"]
