"""`calibrate`: costs of this machine, kept in one file and used, without other bits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from common import same_bits

import heterocompute as hc
from heterocompute.base import cache_files, runtime
from heterocompute.bench import calibration
from heterocompute.bench.calibration.fit import fit


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HETEROCOMPUTE_CACHE", str(tmp_path))
    yield
    cache_files.costs_of_build(runtime.run()[0])


def doubled(mask: int) -> dict[str, dict[str, np.ndarray]]:
    return {
        kind: {name: 2 * of for name, of in found.items()} for kind, found in cache_files.costs_of_build(mask).items()
    }


def test_few_calls_change_nothing(tmp_path: Path) -> None:
    found = hc.calibrate(seconds=0)
    assert found.path is None and found.calls == 2 and found.before >= 1 and found.after >= 1
    assert list(tmp_path.iterdir()) == [] and hc.show_config(mode="dicts")["costs"] == "of this build"
    assert found.processor in cache_files.costs_file().name


def test_costs_that_choose_better_are_kept_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, q = np.random.default_rng(0).standard_normal((4, 64), dtype=np.float32), hc.quantize(np.eye(64), "vsq8-g16-s8")
    wanted = hc.linear(x, q, activations="int8")
    monkeypatch.setattr(calibration, "LEAST", {"product": 1, "conv": 1})
    monkeypatch.setattr(calibration, "_ratios", lambda points, *_: [2.0] * len(points))
    held = iter((1.0, 3.0))  # matmuls choose better, convolutions do not
    monkeypatch.setattr(calibration, "_held_out", lambda points, _: [next(held)] * len(points))
    build = cache_files.costs_of_build(runtime.run()[0])
    found = hc.calibrate(seconds=0)
    assert found.path is not None and Path(found.path).parent == tmp_path and (found.before, found.after) == (2, 1.5)
    kept = json.loads(Path(found.path).read_text())
    assert {
        kind: any(kept[kind][name] != pytest.approx(list(of)) for name, of in build[kind].items()) for kind in build
    } == {"product": True, "conv": False}
    assert found.path in hc.show_config(mode="dicts")["costs"]
    assert same_bits(hc.linear(x, q, activations="int8"), wanted)


def test_calls_are_judged_by_costs_of_the_other_half() -> None:
    known = {"a": np.array([1.0, 1]), "b": np.array([1.0, 2])}
    counts = np.array([1.0, 100])
    estimates = {name: float(counts @ of) for name, of in known.items()}
    call = [("a", counts, 500.0, estimates["a"]), ("b", counts, 100.0, estimates["b"])]  # b is faster than expected
    assert calibration._ratios([call] * 4, known, known) == [5] * 4
    assert calibration._held_out([call] * 4, known) == [1] * 4
    odd = [(name, counts, 600 - ns, estimate) for name, counts, ns, estimate in call]  # halves of opposite times
    assert calibration._held_out([call, odd] * 2, known) == [5] * 4


def test_the_file_decides_the_estimates(tmp_path: Path) -> None:
    mask = runtime.run()[0]
    x, q = np.ones((4, 64), np.float32), hc.quantize(np.ones((64, 64), np.float32), "int8")
    before = {c.path: c.predicted_ms for c in hc.explain(hc.linear, x, q, activations="int8").candidates}
    cache_files.keep_costs(mask, doubled(mask))
    assert cache_files.use_costs() is not None
    after = {c.path: c.predicted_ms for c in hc.explain(hc.linear, x, q, activations="int8").candidates}
    for path, ms in before.items():
        assert after[path] == (None if ms is None else pytest.approx(2 * ms, rel=1e-3))
    other = "scalar" if mask else hc.show_config(mode="dicts")["isa_found"][-1]
    if mask == 0 and other == "scalar":
        return  # a processor without others
    with hc.use(isa=other):  # costs hold for the instruction sets that were measured
        alone = hc.explain(hc.linear, x, q, activations="int8").candidates
    cache_files.costs_of_build(mask)
    with hc.use(isa=other):
        assert alone == hc.explain(hc.linear, x, q, activations="int8").candidates


@pytest.mark.parametrize(
    "damage",
    [
        {"version": "0"},
        {"counts": 1},
        {"isa": "all"},
        {"isa": -1},
        {"measured": 3},
        {"product": {}},
        {"conv": []},
        {"product": {"EXACT_gemm": [1]}},
    ],
)
def test_a_file_of_another_kind_is_ignored(damage: dict[str, object], tmp_path: Path) -> None:
    mask = runtime.run()[0]
    path = cache_files.keep_costs(mask, doubled(mask))
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    assert cache_files.use_costs() is None and cache_files.measured_costs() is None


def test_a_negative_cost_is_ignored() -> None:
    mask = runtime.run()[0]
    costs = doubled(mask)
    costs["product"][next(iter(costs["product"]))][0] = -1
    cache_files.keep_costs(mask, costs)
    assert cache_files.use_costs() is None


def test_known_costs_decide_what_measurements_do_not() -> None:
    rng = np.random.default_rng(0)
    counts = np.column_stack([np.ones(50), rng.integers(1, 1000, 50), np.zeros(50)])
    costs, ratios = fit(counts, counts @ [500, 3, 7], np.ones(50), np.array([400.0, 4, 9]))
    assert np.allclose(costs, [500, 3, 9], rtol=0.1) and np.allclose(ratios, 1, rtol=0.1)


@pytest.mark.parametrize(("seconds", "text"), [(-1, "expected 0 to 3600"), ("long", "seconds"), (4000, "3600")])
def test_bad_seconds(seconds: object, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        hc.calibrate(seconds=seconds)  # type: ignore[arg-type]


def test_a_forced_path_is_refused() -> None:
    with hc.use(path="gemm"), pytest.raises(ValueError, match="forced"):
        hc.calibrate(seconds=0)


@pytest.mark.parametrize("folder", ["~nobody-has-this-name/x", "n" * 5000, "/dev/null/x"])
def test_a_cache_folder_that_cannot_be_read_breaks_nothing(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HETEROCOMPUTE_CACHE", folder)
    assert cache_files.use_costs() is None and hc.show_config(mode="dicts")["costs"] == "of this build"
