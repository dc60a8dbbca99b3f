"""The results of `study` equal quantizing, measuring and evaluating by hand."""

from __future__ import annotations

import csv
import functools
import json
import math
import re
import sys
import types
import warnings
import weakref
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.base import container as safetensors_file
from heterocompute.base.writer import Writer
from heterocompute.files.safetensors import save
from heterocompute.studies.run import NETWORK_ACTIVATIONS, NETWORK_FORMATS, TENSOR_FORMATS

RANDOM = np.random.default_rng(5)
CONV = RANDOM.standard_normal((8, 12, 3, 3)).astype(np.float32)
LINEAR = (RANDOM.standard_normal((10, 40)) * np.geomspace(0.1, 10, 40)).astype(np.float32)
BIAS = RANDOM.standard_normal(10).astype(np.float32)
WEIGHTS = {"conv": CONV, "fc": LINEAR, "bias": BIAS, "steps": np.arange(6).reshape(2, 3)}
AXES = {"conv": (2, 3, 1), "fc": (1,)}
X = RANDOM.standard_normal((30, 40)).astype(np.float32)


def find(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    assert len(found) == 1, (wanted, len(found))
    return found[0]


def distance(weights: dict[str, Any]) -> float:
    """Return a user-defined metric: the change of the results of one matmul."""
    return float(np.abs(hc.linear(X, weights["fc"]) - X @ LINEAR.T).mean())


def test_table_agrees_with_measuring_by_hand() -> None:
    formats = ["int4", "vsq4-g16-s4", hc.Int(3, group=8)]
    r = hc.study(WEIGHTS, formats, timing=True)
    assert [row["format"] for row in r.table] == ["fp32", "int4", "vsq4-g16-s4", "int3-g8"]
    base = r.table[0]
    assert (base["bits"], base["bytes"], base["sqnr_db"]) == (32, CONV.nbytes + LINEAR.nbytes, None)
    for row in r.table[1:]:
        packed = {name: hc.quantize(WEIGHTS[name], row["format"], axis=axis) for name, axis in AXES.items()}
        assert row["bytes"] == sum(q.nbytes for q in packed.values())
        assert row["bits"] == 8 * row["bytes"] / (CONV.size + LINEAR.size)
        signal = sum(np.square(WEIGHTS[name].astype(np.float64)).sum() for name in packed)
        noise = sum(np.square(WEIGHTS[name].astype(np.float64) - np.asarray(q)).sum() for name, q in packed.items())
        assert row["sqnr_db"] == pytest.approx(10 * math.log10(signal / noise), abs=1e-9)
        assert row["seconds"] > 0 and row["activations"] is None
        for name, q in packed.items():
            layer = find(r.layers, name=name, format=row["format"])
            assert layer["sqnr_db"] == hc.error(WEIGHTS[name], q).sqnr_db
            assert (layer["shape"], layer["bytes"], layer["bits"]) == (list(q.shape), q.nbytes, q.bits_per_value)


def test_evaluate_sees_quantized_arrays_beside_the_rest() -> None:
    seen = []

    def evaluate(weights: dict[str, Any]) -> float:
        seen.append({name: type(value) for name, value in weights.items()})
        assert weights["bias"] is BIAS and weights["steps"] is WEIGHTS["steps"]
        weights.clear()  # the caller's own copy
        return len(seen)

    r = hc.study(WEIGHTS, ["int8"], evaluate)
    assert seen[0] == dict.fromkeys(WEIGHTS, np.ndarray)
    assert seen[1] == {"conv": hc.QuantizedArray, "fc": hc.QuantizedArray, "bias": np.ndarray, "steps": np.ndarray}
    assert [row["evaluate"] for row in r.table] == [1, 2]


def test_numbers_of_evaluate_become_columns() -> None:
    answers = iter([{"a": np.float32(1.5), "loss": 2}, {"a": math.nan, "loss": math.inf, "more": True}])
    r = hc.study(LINEAR, "int8", lambda weights: next(answers))
    assert r.metrics == ["a", "loss", "more"]
    assert [(row["a"], row["loss"], row["more"]) for row in r.table] == [(1.5, 2, None), (None, None, 1)]
    json.dumps(r.to_dict(), allow_nan=False)


@pytest.mark.parametrize("answer", ["good", None, {"a": "good"}, [1, 2]])
def test_evaluate_must_return_numbers(answer: object) -> None:
    with bad_argument(TypeError, "evaluate", "type"):
        hc.study(LINEAR, "int8", lambda weights: answer)


@pytest.mark.parametrize("key", ["bits", "format", 3])
def test_evaluate_must_not_take_our_columns(key: object) -> None:
    with bad_argument(ValueError, "evaluate", "value"):
        hc.study(LINEAR, "int8", lambda weights: {key: 1.0})


def test_activations_make_a_row_each_and_reach_evaluate() -> None:
    calls = []

    def evaluate(weights: dict[str, Any], activations: hc.Format | None = None) -> float:
        calls.append((isinstance(weights["fc"], hc.QuantizedArray), activations))
        return 1.0

    r = hc.study(WEIGHTS, ["int4"], evaluate, activations=["none", "int8", hc.Int(8), "vsq8-g16"], timing=True)
    kinds = [None, hc.Int(8), hc.VSQ(8, 16, None)]
    assert calls == [(quantized, kind) for quantized in (False, True) for kind in kinds]
    texts = [None, "int8", "vsq8-g16"]
    assert [(row["format"], row["activations"]) for row in r.table] == [(f, a) for f in ("fp32", "int4") for a in texts]
    assert all(row["seconds"] > 0 for row in r.table)


def test_a_missing_keyword_is_found_before_any_work(tmp_path: Path) -> None:
    with bad_argument(TypeError, "evaluate", "type"):
        hc.study(tmp_path / "absent", ["int4"], lambda weights: 1.0, activations=["int8"])
    with bad_argument(TypeError, "evaluate", "type"):
        hc.study(tmp_path / "absent", ["int4"], 3.0)
    r = hc.study(LINEAR, ["int4"], lambda weights, **options: len(options), activations=["int8"])
    assert [row["evaluate"] for row in r.table] == [1] * 4


def test_the_baseline_is_first_once_and_plain() -> None:
    for formats in (["int8", "fp32", "none", "int8"], ["int8"], "int8", hc.Int(8)):
        assert [row["format"] for row in hc.study(LINEAR, formats).table] == ["fp32", "int8"]
    half = hc.study(LINEAR.astype(np.float16), [])
    assert [(row["format"], row["bits"]) for row in half.table] == [("stored", 16)]
    mixed = hc.study({"a": LINEAR, "b": LINEAR.astype(np.float64)}, ["int4"])
    assert [row["format"] for row in mixed.table] == ["stored", "int4"] and "stored" in repr(mixed)
    assert [row["format"] for row in mixed.layers if row["sqnr_db"] is None] == ["stored"] * 2


def test_a_number_has_the_name_of_its_function() -> None:
    def word_error(weights: dict[str, Any], scale: float = 1.0) -> float:
        return scale

    class TopFive:
        def __call__(self, weights: dict[str, Any]) -> float:
            return 0.5

        def evaluate(self, weights: dict[str, Any]) -> float:
            return 0.5

    half = functools.partial(lambda weights, scale: scale, scale=0.5)
    for evaluate, name in ((word_error, "word_error"), (functools.partial(word_error, scale=2.0), "word_error"),
                           (lambda weights: 1.0, "evaluate"), (half, "evaluate"), (TopFive(), "top_five"),
                           (TopFive().evaluate, "evaluate"), (functools.partial(TopFive()), "top_five")):  # fmt: skip
        found = hc.study(LINEAR, ["int4"], evaluate)
        assert found.metrics == [name] and list(found.table[0])[-2] == name
        for text in (repr(found), found._repr_html_()):
            assert name.replace("_", " ") in text.replace("_", " ") and "metric" not in re.sub("<[^>]*>", "", text)


def test_packed_arrays_alone_are_studied_by_their_values() -> None:
    q = hc.quantize(LINEAR, "int8")
    assert hc.study({"w": q}, ["int4"]).table[1]["sqnr_db"] == hc.study(q.dequantize(), ["int4"]).table[1]["sqnr_db"]
    assert {row["name"] for row in hc.study({"w": q, "v": LINEAR}, ["int4"]).layers} == {"v"}


def test_few_values_are_not_timed_unless_asked() -> None:
    few, many = np.ones((4, 64), np.float32), np.ones((400, 256), np.float32)
    few[0, 0] = many[0, 0] = 2
    for array, timing, timed in ((few, None, False), (few, True, True), (many, None, True), (many, False, False)):
        r = hc.study(array, ["int4"], timing=timing)
        assert all((row["seconds"] is not None) == timed for row in (*r.table, *r.layers))
        assert ("vs fp32" in repr(r)) == timed and ("no times" in repr(r)) != timed
    with bad_argument(TypeError, "timing", "type"):
        hc.study(few, ["int4"], timing="yes")  # type: ignore[arg-type]


def test_mixed_precision_gives_each_tensor_its_format() -> None:
    mixed = {"conv*": "int8", "fc": hc.VSQ(4, 16, 4), "*": "int2"}
    r = hc.study(
        WEIGHTS, [mixed, {"fc": "int4"}], lambda weights: float(isinstance(weights["conv"], hc.QuantizedArray))
    )
    assert [row["format"] for row in r.table] == ["fp32", "conv*=int8 fc=vsq4-g16-s4 *=int2", "fc=int4"]
    sizes = [hc.quantize(CONV, "int8", axis=(2, 3, 1)).nbytes, hc.quantize(LINEAR, "vsq4-g16-s4").nbytes]
    assert r.table[1]["bytes"] == sum(sizes)
    assert r.table[2]["bytes"] == CONV.nbytes + hc.quantize(LINEAR, "int4").nbytes
    assert [row["evaluate"] for row in r.table] == [0, 1, 0]
    assert {(row["name"], row["format"]) for row in r.layers} == {
        ("conv", "fp32"), ("conv", "int8"), ("fc", "fp32"), ("fc", "vsq4-g16-s4"), ("fc", "int4")
    }  # fmt: skip


def test_include_exclude_and_axis_choose() -> None:
    assert {row["name"] for row in hc.study(WEIGHTS, "int8", include="c*").layers} == {"conv"}
    assert {row["name"] for row in hc.study(WEIGHTS, "int8", exclude=["c*"]).layers} == {"fc"}
    assert {row["name"] for row in hc.study(WEIGHTS, "int8", include=["fc", "bias"]).layers} == {"fc", "bias"}
    r = hc.study(WEIGHTS, "int4-g16", axis={"fc": 0}, include="fc")
    assert r.table[1]["sqnr_db"] == pytest.approx(hc.error(LINEAR, hc.quantize(LINEAR, "int4-g16", axis=0)).sqnr_db)
    with bad_argument(ValueError, None, "value", "absent"):
        hc.study(WEIGHTS, "int8", include="absent")
    with bad_argument(ValueError, None, "value", "absent"):
        hc.study(WEIGHTS, [{"absent": "int8"}])
    with bad_argument(ValueError, None, "value", "absent"):
        hc.study(WEIGHTS, "int8", axis={"absent": 0})
    with bad_argument(ValueError, None, "shape", "no float tensor"):
        hc.study({"bias": BIAS}, "int8")


@pytest.mark.parametrize("bad", ["int17", "nonsense"])
def test_an_unknown_format_is_an_error(bad: str) -> None:
    for options in ({"formats": ["int8", bad]}, {"formats": [{"*": bad}]}, {"activations": [bad]}):
        with pytest.raises(ValueError, match=bad):
            hc.study(LINEAR, **options)


def test_nan_names_the_tensor() -> None:
    broken = LINEAR.copy()
    broken[3, 7] = np.nan
    with bad_argument(ValueError, None, "value", r"tensor 'w'.*\(3, 7\)"):
        hc.study({"good": LINEAR, "w": broken}, "int8")


def test_integers_alone_are_an_error() -> None:
    with bad_argument(TypeError, "weights", "dtype"):
        hc.study(np.arange(12).reshape(3, 4), "int8")


def test_an_empty_tensor_costs_nothing() -> None:
    r = hc.study({"empty": np.zeros((0, 4), np.float32), "fc": LINEAR}, ["int4", "vsq4-g16-s4"])
    assert find(r.layers, name="empty", format="int4")["bits"] is None
    assert find(r.layers, name="empty", format="int4")["seconds"] is None
    assert r.table[1]["sqnr_db"] == pytest.approx(hc.error(LINEAR, hc.quantize(LINEAR, "int4")).sqnr_db)
    r.to_dict(), repr(r), r._repr_html_()


def checkpoint(path: Path) -> dict[str, np.ndarray]:
    tensors = {
        "a": LINEAR,
        "b": CONV.astype(np.float16),
        "c": LINEAR.astype(ml_dtypes.bfloat16),
        "bias": BIAS,
        "d": LINEAR[:5].astype(np.float64),
        "ids": np.arange(8).reshape(2, 4),
    }
    infos = {name: (array.dtype.name, array.shape) for name, array in tensors.items()}
    with Writer(path, infos) as writer:
        for name, array in tensors.items():
            writer.write(name, array)
    return tensors


def without_seconds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(({**row, "seconds": None} for row in rows), key=lambda row: (row.get("name", ""), row["format"]))


def test_a_file_says_the_same_as_its_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    tensors = checkpoint(path)
    alive: list[weakref.ref[np.ndarray]] = []
    read = safetensors_file.Reader.tensor

    def tensor(self: safetensors_file.Reader, name: str) -> np.ndarray:
        assert not any(one() is not None for one in alive), "two tensors of the file are in memory"
        array = read(self, name)
        alive.append(weakref.ref(array))
        return array

    monkeypatch.setattr(safetensors_file.Reader, "tensor", tensor)
    from_file = hc.study(path, ["int8", "vsq4-g16-s4"])
    assert len(alive) == 4
    from_arrays = hc.study(tensors, ["int8", "vsq4-g16-s4"])
    assert without_seconds(from_file.table) == without_seconds(from_arrays.table)
    assert without_seconds(from_file.layers) == without_seconds(from_arrays.layers)
    assert {row["name"] for row in from_file.layers} == {"a", "b", "c", "d"}


def test_a_file_can_be_evaluated(tmp_path: Path) -> None:
    tensors = checkpoint(tmp_path / "m")

    def evaluate(weights: dict[str, Any]) -> float:
        assert set(weights) == set(tensors)
        return float(np.abs(np.asarray(weights["a"]) - LINEAR).max())

    r = hc.study(str(tmp_path / "m"), ["int4"], evaluate)
    assert r.table[0]["evaluate"] == 0 < r.table[1]["evaluate"]


def test_what_a_file_holds_quantized_stays_beside_the_rest(tmp_path: Path) -> None:
    q = hc.quantize(LINEAR, "int4-g16")
    save(tmp_path / "m", {"packed": q, "fc": LINEAR})

    def evaluate(weights: dict[str, Any]) -> float:
        assert weights["packed"] == q
        return distance(weights)

    r = hc.study(tmp_path / "m", ["int8"], evaluate)
    assert {row["name"] for row in r.layers} == {"fc"} and r.table[0]["evaluate"] < r.table[1]["evaluate"]


def test_defaults_depend_on_what_there_is_to_evaluate() -> None:
    assert [row["format"] for row in hc.study(LINEAR).table] == ["fp32", *TENSOR_FORMATS]
    r = hc.study({"fc": LINEAR}, evaluate=distance)
    assert [row["format"] for row in r.table] == ["fp32", *NETWORK_FORMATS]
    assert {row["activations"] for row in r.table} == {None}


class Network:
    """A minimal network: any object with these two attributes is a network."""

    weights = {"fc": LINEAR}

    def evaluate(self, weights: dict[str, Any], activations: hc.Format | None = None) -> dict[str, float]:
        y = hc.linear(X, weights["fc"], activations=activations)
        return {"loss": float(np.abs(y - X @ LINEAR.T).mean())}


def test_a_network_brings_its_own_evaluate() -> None:
    r = hc.study(Network())
    assert r.metrics == ["loss"]
    assert {row["activations"] for row in r.table} == {None, *NETWORK_ACTIVATIONS}
    assert (
        find(r.table, format="int2", activations=None)["loss"] > find(r.table, format="int8", activations=None)["loss"]
    )
    assert {row["activations"] for row in hc.study(Network(), ["int8"]).table} == {None}
    own = hc.study(Network(), ["int8"], evaluate=lambda weights: 7)
    assert own.metrics == ["evaluate"]


def test_the_shipped_network_tells_formats_apart() -> None:
    r = hc.study(hc.zoo.digits(), ["int8", "int2", "vsq2-g16-s4", "vsq4-g16-s4"], activations=["int8"])
    accuracy = {(row["format"], row["activations"]): row["accuracy"] for row in r.table}
    base = accuracy["fp32", None]
    for kind in (None, "int8"):
        assert abs(accuracy["int8", kind] - base) < 0.005
        assert abs(accuracy["vsq4-g16-s4", kind] - base) < 0.01
        assert accuracy["int2", kind] < accuracy["vsq2-g16-s4", kind] < base
    assert r.layers[0]["name"] == "conv3.weight" and r.layers[-1]["name"] == "conv1.weight"


def beaten(row: dict[str, Any], other: dict[str, Any], metric: str, sign: float) -> bool:
    gain, price = sign * (other[metric] - row[metric]), row["bits"] - other["bits"]
    return gain >= 0 and price >= 0 and (gain > 0 or price > 0)


@pytest.mark.parametrize(("metric", "sign"), [("accuracy", 1.0), ("valid_perplexity", -1.0)])
def test_the_front_holds_exactly_the_rows_that_none_beats(metric: str, sign: float) -> None:
    random = np.random.default_rng(7)
    for _ in range(50):
        rows = [
            {"format": str(i), "activations": None, "bits": float(b), "bytes": 1, "sqnr_db": None, metric: float(m)}
            | {"seconds": 1.0}
            for i, (b, m) in enumerate(random.integers(0, 6, (9, 2)))
        ]
        front = hc.Study(rows, [], [metric], []).pareto()
        found = [int(row["format"]) for row in front]
        wanted = {i for i, row in enumerate(rows) if not any(beaten(row, other, metric, sign) for other in rows)}
        assert set(found) == wanted and len(found) == len(wanted)
        assert [rows[i]["bits"] for i in found] == sorted(rows[i]["bits"] for i in found)
        turned = hc.Study(rows, [], [metric], []).pareto(maximize=sign < 0)
        assert {int(row["format"]) for row in turned} == {
            i for i, row in enumerate(rows) if not any(beaten(row, o, metric, -sign) for o in rows)
        }


def test_the_front_without_evaluate_takes_sqnr() -> None:
    r = hc.study(LINEAR, ["int8", "int4", "vsq4-g16-s4"])
    assert r.pareto()[-1]["format"] == "fp32"  # exact is better than any number
    assert r.pareto("sqnr_db", cost="bytes") == r.pareto()
    with bad_argument(ValueError, None, "value", "'accuracy'"):
        r.pareto("accuracy")
    with bad_argument(ValueError, None, "value", "'accuracy'"):
        r.plot(metric="accuracy")


def test_progress_counts_to_the_end() -> None:
    steps: list[tuple[int, int, str]] = []
    hc.study(WEIGHTS, ["int8", "int4"], lambda weights: 1.0, progress=lambda *step: steps.append(step))
    total = 2 * 3 + 3  # tensors x formats, and one evaluation each
    assert [done for done, _, _ in steps] == list(range(total + 1))
    assert {count for _, count, _ in steps} == {total}


def test_levels_are_the_values_of_one_row() -> None:
    r = hc.study({"w": CONV[:, :1]}, ["int3", "vsq4-g16-s4"], axis={"w": (2, 3, 1)})
    (one,) = r.histograms
    for fmt, levels in one["levels"].items():
        q = hc.quantize(CONV[:, :1], fmt, axis=(2, 3, 1))
        assert levels == np.unique(np.asarray(q)[one["row"]]).tolist()
    assert sum(one["counts"]) == round((1 - one["outside"]) * CONV[:, :1].size)


def test_every_way_out_holds_the_same(tmp_path: Path) -> None:
    r = hc.study(Network(), ["int8", "vsq4-g16-s4"], activations=["int8"])
    found = json.loads(json.dumps(r.to_dict(), allow_nan=False))
    front = [r.table.index(row) for row in r.pareto()]
    assert found == {"rows": r.table, "layers": r.layers, "pareto": front, "notes": r.notes, "advice": []}
    r.to_csv(tmp_path / "r.csv")
    with open(tmp_path / "r.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["format"] for line in lines] == [row["format"] for row in r.table]
    assert [float(line["loss"]) for line in lines] == [row["loss"] for row in r.table]
    r.to_html(tmp_path / "r.html", title="A <title>")
    assert "A &lt;title&gt;" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.csv", "r.html"]
    for text in (repr(r), r._repr_html_()):
        assert all(row["format"] in text for row in r.table)


def test_to_pandas() -> None:
    pytest.importorskip("pandas")
    r = hc.study(LINEAR, ["int8", "int4"])
    frame = r.to_pandas()
    assert list(frame["format"]) == ["fp32", "int8", "int4"] and frame["bits"].tolist() == [x["bits"] for x in r.table]


def test_plot_draws_points_and_layers(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    r = hc.study(Network())
    figure = r.plot(tmp_path / "r.png")
    scatter, heat = figure.axes[:2]
    drawn = sum(len(line.get_xdata()) for line in scatter.lines if line.get_gid() == "dot")
    assert drawn == len(r.table)
    assert heat.images and (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


def test_the_examples_of_the_manual_run(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    text = (checkout / "docs" / "study.md").read_text(encoding="utf-8")
    (mlp,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "MLPClassifier" in block]
    function, printed = re.search(r"```python\n([^`]*cosines[^`]*)```\n\n```text\n(.*?)```", text, re.DOTALL).groups()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns that 80 iterations may be too few
        exec(mlp, found := {})
    accuracy = {(row["format"], row["activations"]): row["accuracy"] for row in found["r"].table}
    own = found["mlp"].score(found["x"][1198:], found["y"][1198:])
    assert accuracy["fp32", None] == pytest.approx(own, abs=0.005)
    assert accuracy["int8", "int8"] > accuracy["vsq2-g16-s4", "int8"]
    capsys.readouterr()
    exec(function, {})
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("values", [[2e38, -3e38, 1, 2], [1e-45, 1e-45, -1e-45, 0]])
def test_extreme_weights_have_a_histogram(values: list[float]) -> None:
    (found,) = hc.study({"w": np.float32([values])}, ["int8"]).histograms
    assert sum(found["counts"]) == 4
    assert max(abs(value) for value in values) < found["range"] < np.inf


def test_an_error_of_evaluate_says_what_it_was_given() -> None:
    w = {"w": np.ones((8, 32), np.float32)}

    def fails(weights, activations=None):
        if isinstance(weights["w"], hc.QuantizedArray) and activations is not None:
            raise RuntimeError("boom")
        return 1.0

    with pytest.raises(RuntimeError, match="boom") as caught:
        hc.study(w, ["int8"], fails, activations=["int4"])
    assert caught.value.__notes__ == ["study: evaluate was given int8  activations int4"]
    with pytest.raises(RuntimeError, match="boom") as caught:
        hc.study(w, ["int8"], lambda weights: fails(weights, True), per_layer=True)
    assert caught.value.__notes__ == ["study: evaluate was given int8"]


def test_sentences_name_tensors_that_a_format_does_not_suit():
    random = np.random.default_rng(0)
    shapes = {"conv1.weight": (128, 1, 3), "fc.weight": (64, 100), "fits": (64, 128)}
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    r = hc.study(weights, ["int8", "int4-g32"])
    few, padded = r.notes
    assert few.startswith("Scales serve fewer than 8 values in 1 tensor: 'conv1.weight' (1 per scale in int4-g32, ")
    assert padded == (
        "Rows are padded to whole groups in 1 tensor: 'fc.weight' (100 to 128 values in int4-g32, 6.40 bits per value "
        "instead of 5.00)"
    )
    assert repr(r).count("'fc.weight'") == r._repr_html_().count("&#x27;fc.weight&#x27;") == 1  # once
    assert r.to_dict()["notes"] == [few, padded]
    assert hc.study({"fits": weights["fits"]}, ["int8", "int4-g32"]).notes == []
    assert hc.study({"empty": np.zeros((0, 5), np.float32)}, ["int4-g32"]).notes == []


def test_a_notebook_sees_a_bar_and_the_advice_and_the_logger_each_step(monkeypatch, caplog):
    pytest.importorskip("tqdm")
    import tqdm.auto

    moved = []

    class Bar:
        n = total = 0

        def __init__(self, **options):
            moved.append(options["desc"])
            assert options["delay"] > 1 and options["mininterval"] >= 1  # a short study leaves no line in the notebook

        def set_postfix_str(self, text, refresh):
            self.text = text

        def update(self, steps):
            self.n += steps
            moved.append((self.n, self.total, self.text))

        def close(self):
            moved.append("closed")

    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    w = {"fc": np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)}
    with caplog.at_level("DEBUG", "heterocompute"):
        r = hc.study(w, ["int8"])
    assert not moved and any("fc  int8" in record.message for record in caplog.records)
    shell = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=None))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    hc.study(w, ["int8"])
    assert moved[0] == "study" and moved[-2:] == [(2, 2, "done"), "closed"]
    assert "→ <b>int8</b>: 8.50 bits: the smallest" in r._repr_html_()
