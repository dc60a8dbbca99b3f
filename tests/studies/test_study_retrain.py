"""Retraining after a change keeps fixed values, recovers accuracy, and has its own rows in a study."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.cli import command as cli
from heterocompute.studies.run import NETWORK_FORMATS, NETWORK_RETRAINED
from heterocompute.training.retrain import mask_of

RANDOM = np.random.default_rng(8)
W = RANDOM.standard_normal((6, 32)).astype(np.float32)
AXES = {4: (2, 3, 1), 2: (-1,)}


@pytest.fixture(scope="module")
def net() -> hc.zoo.Digits:
    return hc.zoo.digits()


def changed(net: hc.zoo.Digits, text: str, only: str = "") -> dict[str, Any]:
    return {
        name: hc.quantize(w, text, axis=AXES[w.ndim]) if w.ndim > 1 and only in name else w
        for name, w in net.weights.items()
    }


def value(rows: list[dict[str, Any]], fmt: str, retrained: bool | None, key: str = "accuracy") -> Any:
    (found,) = [row[key] for row in rows if row["format"] == fmt and row["retrained"] is retrained]
    return found


@pytest.mark.parametrize("text", ["2:4", "1:8", "int8+2:4", "vsq4-g16-s4+2:4", "cb2+2:4"])
@pytest.mark.sweep(every=4)
def test_a_pattern_stays_where_it_was(net: hc.zoo.Digits, text: str) -> None:
    before = changed(net, text)
    after = net.retrain(net.weights, before, epochs=1)
    assert list(after) == list(net.weights)
    for name, q in before.items():
        if not isinstance(q, hc.QuantizedArray):
            assert after[name] is net.weights[name]
            continue
        assert type(after[name]) is type(q)
        assert (after[name].format, after[name].shape, after[name].axis) == (q.format, q.shape, q.axis)
        np.testing.assert_array_equal(after[name].components["metadata"], q.components["metadata"])
        assert np.any(np.asarray(after[name]) != np.asarray(q))
        assert not np.any(np.asarray(after[name])[~mask_of(after[name])])


def test_zeros_of_an_array_stay(net: hc.zoo.Digits) -> None:
    name = "fc1.weight"
    pruned = hc.prune(net.weights[name], "90%")
    after = net.retrain(net.weights, {**net.weights, name: pruned}, epochs=1)
    np.testing.assert_array_equal(after[name] != 0, pruned != 0)
    assert np.any(after[name] != pruned) and all(after[key] is w for key, w in net.weights.items() if key != name)


@pytest.mark.parametrize("text", ["cb2", "cb1-tensor", "cb4-g64"])
@pytest.mark.sweep(every=4)
def test_a_codebook_keeps_its_codes(net: hc.zoo.Digits, text: str) -> None:
    before = changed(net, text, "fc1.weight")["fc1.weight"]
    after = net.retrain(net.weights, changed(net, text, "fc1.weight"), epochs=1)["fc1.weight"]
    assert after.format == before.format
    for key, component in before.components.items():
        assert np.array_equal(component, after.components[key]) == (key != "codebook"), key


@pytest.mark.parametrize("text", ["int2", "vsq2-g16-s4", "nf4-g64"])
@pytest.mark.sweep(every=4)
def test_other_formats_are_rounded_again(net: hc.zoo.Digits, text: str) -> None:
    before = changed(net, text)
    after = net.retrain(net.weights, before, epochs=1)
    for name, q in before.items():
        if isinstance(q, hc.QuantizedArray):
            assert (after[name].format, after[name].axis) == (q.format, q.axis) and after[name] != q


def test_the_same_training_gives_the_same_bytes(net: hc.zoo.Digits) -> None:
    before = changed(net, "int8+2:4")
    one, same, other = (net.retrain(net.weights, before, seed, epochs=1) for seed in (0, 0, 1))
    assert one["conv3.weight"] == same["conv3.weight"] != other["conv3.weight"]
    untouched = hc.zoo.digits()
    assert all(np.array_equal(w, untouched.weights[name]) for name, w in net.weights.items())


BASE_INSTALL = """
import functools, json, sys
sys.modules["threadpoolctl"] = None  # it comes with no dependency of the package
import dataclasses, heterocompute as hc
net = hc.zoo.digits()
part = {name: getattr(net, name)[:96] for name in ("train_x", "train_y", "test_x", "test_y")}
net = dataclasses.replace(net, **part)
r = hc.study(net, ["cb2", "int2"], retrain=functools.partial(net.retrain, epochs=3))
logits = [net.forward(net.weights, net.test_x[:64], kind).tobytes().hex() for kind in (None, "int8")]
rows = [{**row, "seconds": 0, "kl": round(row["kl"], 12)} for row in r.table]  # kl alone is made of NumPy's exp and log
print(json.dumps([rows, logits]))
"""


@pytest.mark.sweep(every=0)
def test_a_study_has_the_same_rows_with_any_threads_and_instruction_sets() -> None:
    """NumPy's BLAS and exp, whose rounding depends on threads and processors, are not used."""
    numpy_sets = " ".join(np._core._multiarray_umath.__cpu_dispatch__)  # those that NumPy can do without
    found = []
    for threads, ours in (
        ("1", {}),
        ("2", {}),
        ("2", {"HETEROCOMPUTE_ISA": "scalar", "NPY_DISABLE_CPU_FEATURES": numpy_sets}),
    ):
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "HETEROCOMPUTE_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, threads), **ours}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", BASE_INSTALL], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0] == found[1] == found[2]


def test_names_and_shapes_are_checked(net: hc.zoo.Digits) -> None:
    with bad_argument(ValueError, "changed", "value"):
        net.retrain(net.weights, {"fc1.weight": net.weights["fc1.weight"]})
    with bad_argument(ValueError, "changed", "shape"):
        net.retrain(net.weights, {**net.weights, "fc1.weight": W})


def test_training_images_are_the_first_of_scikit_learn(net: hc.zoo.Digits) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    images, labels = datasets.load_digits(return_X_y=True)
    assert net.train_x.shape == (1198, 1, 8, 8) and net.train_x.dtype == np.float32
    np.testing.assert_array_equal(net.train_x.reshape(1198, 64) * 16, images[:1198])
    np.testing.assert_array_equal(net.train_y, labels[:1198])


@pytest.mark.sweep(every=0)
def test_one_shot_loses_and_retrained_recovers(net: hc.zoo.Digits) -> None:
    texts = ["2:4", "int8+1:4", "cb1", "int2"]
    r = hc.study(net, texts, retrain=True)
    assert [(row["format"], row["retrained"]) for row in r.table] == [
        ("fp32", None), *((text, again) for text in texts for again in (None, True))
    ]  # fmt: skip
    base = value(r.table, "fp32", None)
    assert base - 0.02 < value(r.table, "2:4", None) < base
    assert value(r.table, "2:4", True) > base - 0.02
    for text in texts[1:]:
        assert value(r.table, text, None) < base - 0.1
        assert value(r.table, text, True) > base - 0.06
        assert value(r.table, text, True, "bytes") == value(r.table, text, None, "bytes")
        assert value(r.table, text, True, "sqnr_db") != value(r.table, text, None, "sqnr_db")


def test_retrained_patterns_reach_the_packed_products(net: hc.zoo.Digits) -> None:
    after = net.retrain(net.weights, changed(net, "2:4"), epochs=1)
    packed = [name for name, w in after.items() if isinstance(w, hc.SparseArray)]
    assert len(packed) == 5
    dense = {name: w.to_dense() if name in packed else w for name, w in after.items()}
    with hc.use(blas="own"):  # the same order of sums, with the zeros added
        np.testing.assert_array_equal(net.forward(after, net.test_x[:64]), net.forward(dense, net.test_x[:64]))


class Network:
    """A network whose training sums its arguments."""

    def __init__(self, weights: dict[str, Any] | None = None) -> None:
        self.weights = {"w": W, "b": W[0]} if weights is None else weights
        self.calls: list[dict[str, str]] = []

    def evaluate(self, weights: dict[str, Any], activations: Any = None, emulate: Any = None) -> float:
        return float(np.abs(np.asarray(weights["w"])).sum())

    def retrain(self, weights: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
        assert np.array_equal(weights["w"], W) and changed["b"] is weights["b"]
        self.calls.append({name: str(getattr(value, "format", "array")) for name, value in changed.items()})
        weights.clear()  # the callee's own copies
        return {**changed, "w": hc.quantize(2 * W, changed["w"].format)}


def test_a_network_brings_its_own_training() -> None:
    own = Network()
    r = hc.study(own, ["int8", "2:4"], activations=["int8"], retrain=True)
    assert own.calls == [{"w": "int8", "b": "array"}, {"w": "2:4", "b": "array"}]
    assert [(row["format"], row["activations"], row["retrained"]) for row in r.table] == [
        (fmt, kind, again)
        for fmt, runs in (("fp32", (None,)), ("int8", (None, True)), ("2:4", (None, True)))
        for again in runs
        for kind in (None, "int8")
    ]
    for row in r.table[4:6]:
        assert row["evaluate"] == float(np.abs(np.asarray(hc.quantize(2 * W, "int8"))).sum())
        assert row["sqnr_db"] == pytest.approx(hc.error(W, hc.quantize(2 * W, "int8")).sqnr_db, abs=1e-9)
        assert (row["bytes"], row["bits"]) == (r.table[2]["bytes"], r.table[2]["bits"])
    assert {(row["name"], row["format"]) for row in r.layers} == {("w", "fp32"), ("w", "int8"), ("w", "2:4")}


def test_by_default_some_rows_are_trained() -> None:
    own = Network()
    steps: list[tuple[int, int, str]] = []
    r = hc.study(own, progress=lambda *step: steps.append(step))
    assert [row["format"] for row in r.table if row["retrained"] and not row["activations"]] == NETWORK_RETRAINED
    assert set(NETWORK_RETRAINED) < set(NETWORK_FORMATS) and {"int8+2:4", "vsq4-g16-s4+2:4"} < set(NETWORK_RETRAINED)
    assert len(own.calls) == len(NETWORK_RETRAINED)
    assert [done for done, _, _ in steps] == list(range(steps[-1][1] + 1))
    for options in ({"retrain": False}, {"formats": ["int8+2:4"]}, {"emulate": ["int32"]}):
        assert not any(row["retrained"] for row in hc.study(Network(), **options).table)


def test_a_function_trains_any_weights() -> None:
    r = hc.study({"w": W}, ["int4", {"w": "cb2"}], lambda weights: 1.0, retrain=lambda weights, changed: changed)
    assert [(row["format"], row["retrained"]) for row in r.table[1:]] == [
        ("int4", None), ("int4", True), ("w=cb2", None), ("w=cb2", True)
    ]  # fmt: skip
    assert value(r.table, "int4", True, "sqnr_db") == pytest.approx(value(r.table, "int4", None, "sqnr_db"))


def test_several_seeds_give_the_mean_and_how_far_they_lie_apart() -> None:
    given: list[int] = []

    def train(weights: dict[str, Any], changed: dict[str, Any], seed: int) -> dict[str, Any]:
        given.append(seed)
        return {"w": hc.quantize(W * (1 + seed), "int4")}

    def judge(weights: dict[str, Any]) -> dict[str, float]:
        return {"size": float(np.abs(np.asarray(weights["w"])).sum())}

    r = hc.study({"w": W}, ["int4"], judge, retrain=train, seeds=3)
    sizes = [judge({"w": hc.quantize(W * (1 + seed), "int4")})["size"] for seed in range(3)]
    assert given == [0, 1, 2] and r.metrics == ["size", "size_lowest", "size_highest"]
    assert value(r.table, "int4", True, "size") == pytest.approx(np.mean(sizes), rel=1e-12)
    assert value(r.table, "int4", True, "size_lowest") == min(sizes)
    assert value(r.table, "int4", True, "size_highest") == max(sizes)
    assert value(r.table, "int4", None, "size_lowest") is None and "size_highest" in repr(r)
    assert value(r.table, "fp32", None, "size_highest") is None
    noise = np.mean([np.sum((W - np.asarray(hc.quantize(W * (1 + seed), "int4"))) ** 2.0) for seed in range(3)])
    assert value(r.table, "int4", True, "sqnr_db") == pytest.approx(10 * np.log10(np.sum(W**2.0) / noise), abs=1e-4)


def test_seeds_want_a_training_that_takes_them() -> None:
    def judge(weights: dict[str, Any]) -> float:
        return 1.0

    with bad_argument(ValueError, "seeds", "value"):
        hc.study({"w": W}, ["int4"], judge, seeds=2)
    with bad_argument(TypeError, "retrain", "type"):
        hc.study({"w": W}, ["int4"], judge, retrain=lambda weights, changed: changed, seeds=2)
    for odd in (True, 1.5, "2", None):
        with bad_argument(TypeError, "seeds", "type"):
            hc.study({"w": W}, ["int4"], judge, retrain=lambda weights, changed: changed, seeds=odd)  # type: ignore[arg-type]
    for odd in (0, -1, 10**6):
        with bad_argument(ValueError, "seeds", "value"):
            hc.study({"w": W}, ["int4"], judge, retrain=lambda weights, changed: changed, seeds=odd)
    for arguments in (["--seeds", "2"], ["--retrain", "--seeds", "0"], ["--density", "--seeds", "2"]):
        try:
            code = cli.main(["study", "--formats", "int4", *arguments])
        except SystemExit as end:
            code = int(str(end.code))
        assert code == 2


def test_a_seed_and_epochs_are_counts(net: hc.zoo.Digits) -> None:
    before = changed(net, "2:4")
    for seed, epochs in ((-1, 1), (0, -1)):
        with pytest.raises(ValueError, match="retrain: (seed|epochs) is -1, expected 0 or more"):
            net.retrain(net.weights, before, seed=seed, epochs=epochs)
    for seed, epochs in ((None, 1), (0, 1.5), (0, "2"), (True, 1)):
        with pytest.raises(TypeError, match="retrain: (seed|epochs) is .*, expected an int"):
            net.retrain(net.weights, before, seed=seed, epochs=epochs)  # type: ignore[arg-type]
    with bad_argument(TypeError, "changed", "type"):
        net.retrain(net.weights, None)  # type: ignore[arg-type]
    with bad_argument(ValueError, "changed", "shape"):
        net.retrain(net.weights, {**net.weights, "fc1.weight": 3})
    assert net.retrain(net.weights, before, epochs=0)["fc1.weight"] == before["fc1.weight"]


def test_training_cannot_change_the_weights_in_place() -> None:
    w = np.random.default_rng(0).standard_normal((8, 64), dtype=np.float32)
    before = w.copy()

    def retrain(weights: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
        weights["w"] -= 1
        return changed

    with pytest.raises(ValueError, match="read-only"):
        hc.study({"w": w}, ["int8"], evaluate=lambda weights: 0.0, retrain=retrain)
    assert w.flags.writeable
    assert np.array_equal(w, before)


def test_what_cannot_be_trained_is_refused() -> None:
    with bad_argument(ValueError, "retrain", "missing"):
        hc.study({"w": W}, "int8", lambda weights: 1.0, retrain=True)
    with bad_argument(ValueError, "retrain", "missing"):
        hc.study({"w": W}, "int8", retrain=lambda weights, changed: changed)
    with bad_argument(TypeError, "retrain", "type"):
        hc.study({"w": W}, "int8", lambda weights: 1.0, retrain=3)
    for answer, words in [
        (lambda q: {"v": q}, "names of the weights"),
        (lambda q: [q], "expected a mapping"),
        (lambda q: {"w": W}, "ndarray for 'w', expected int8"),
        (lambda q: {"w": hc.quantize(W, "int4")}, "int4 for 'w', expected int8"),
        (lambda q: {"w": hc.quantize(W[:2], "int8")}, "expected int8 of shape"),
    ]:
        with pytest.raises(ValueError, match=re.escape(words)):
            hc.study({"w": W}, "int8", lambda weights: 1.0, retrain=lambda weights, changed, a=answer: a(changed["w"]))


def test_every_way_out_tells_them_apart(tmp_path: Path) -> None:
    r = hc.study(Network(), ["int8", "2:4"], retrain=True)
    rows = json.loads(json.dumps(r.to_dict(), allow_nan=False))["rows"]
    assert [row["retrained"] for row in rows] == [None, None, True, None, True]
    r.to_csv(tmp_path / "r.csv")
    with open(tmp_path / "r.csv", newline="") as file:
        assert [line["retrained"] for line in csv.DictReader(file)] == ["", "", "True", "", "True"]
    for text in (repr(r), r._repr_html_()):
        assert "retrained" in text and "yes" in text
    assert "retrained" not in repr(hc.study(Network(), ["int8"]))
    r.to_html(tmp_path / "r.html")
    assert '"retrained":true' in (tmp_path / "r.html").read_text(encoding="utf-8")
    with bad_argument(ValueError, None, "value", "retrained"):
        r.pareto("retrained")


def test_the_figure_marks_retrained_rows() -> None:
    pytest.importorskip("matplotlib")
    scatter = hc.study(Network(), ["int8", "2:4"], retrain=True).plot().axes[0]
    assert sum(len(line.get_xdata()) for line in scatter.lines if line.get_gid() == "ring") == 2


@pytest.mark.sweep(every=0)
def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["study", "--formats", "cb1", "--include", "fc2*", "--retrain", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["format"], row["retrained"]) for row in rows] == [("fp32", None), ("cb1", None), ("cb1", True)]
    assert cli.main(["study", str(tmp_path / "a.safetensors"), "--retrain"]) == 2
    assert "judges" in capsys.readouterr().err
