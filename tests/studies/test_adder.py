"""The adder network: its training data, its outputs, and that accuracy and KL distinguish formats on it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.cli import command as cli
from heterocompute.training import train_adder
from heterocompute.training.descent import first_weights
from heterocompute.training.gradients import exponential, gradients
from heterocompute.zoo import addition
from heterocompute.zoo.layers import ADDER

RANDOM = np.random.default_rng(3)


@pytest.fixture(scope="module")
def net() -> hc.zoo.Adder:
    return hc.zoo.adder()


def plain_forward(weights: dict[str, Any], x: np.ndarray) -> np.ndarray:
    """Compute the network in float64 without the package."""
    for name in ADDER:
        x = x.astype(np.float64) @ np.asarray(weights[f"{name}.weight"]).T.astype(np.float64) + weights[f"{name}.bias"]
        x = np.maximum(x, 0) if name != "fc3" else x
    return x


def quantized(net: hc.zoo.Network, fmt: str) -> dict[str, Any]:
    return {name: hc.quantize(w, fmt) if w.ndim > 1 else w for name, w in net.weights.items()}


def rows_of(r: hc.Study, column: str) -> dict[str, Any]:
    return {row["format"]: row[column] for row in r.table if row["retrained"] is None and row["activations"] is None}


def numbers(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    digits = x.reshape(len(x), 2, 3, 10).argmax(axis=3)
    a, b = (digits @ [1, 10, 100]).T
    return a, b


def test_what_is_right_is_the_sum(net: hc.zoo.Adder) -> None:
    for x, y in ((net.test_x, net.test_y), (net.train_x, net.train_y)):
        assert x.dtype == np.float32 and set(x.sum(axis=1)) == {6.0}
        a, b = numbers(x)
        np.testing.assert_array_equal(y @ [1, 10, 100, 1000], a + b)


def test_held_out_pairs_were_never_shown(net: hc.zoo.Adder) -> None:
    held, shown = addition.pairs()
    assert len(held) == len(net.test_x) == 4096 and len(held) + len(shown) == 10**6
    assert not np.isin(held, shown).any()
    a, b = numbers(net.train_x)
    assert np.isin(1000 * a + b, shown).all()


def test_accuracy_and_kl_are_those_of_an_independent_forward_pass(net: hc.zoo.Adder) -> None:
    base = plain_forward(net.weights, net.test_x)
    for fmt in ("int8", "int4", "vsq3-g16-s4"):
        weights = quantized(net, fmt)
        logits = plain_forward(weights, net.test_x)
        found = net.forward(weights, net.test_x)
        np.testing.assert_allclose(found, logits, rtol=0, atol=1e-5 * np.abs(logits).max())
        p, q = (np.exp(z - z.max(axis=2, keepdims=True)) for z in (base.reshape(-1, 4, 10), logits.reshape(-1, 4, 10)))
        p, q = (z / z.sum(axis=2, keepdims=True) for z in (p, q))
        judged = net.evaluate(weights)
        right = (logits.reshape(-1, 4, 10).argmax(axis=2) == net.test_y).all(axis=1)
        assert judged["accuracy"] == net.accuracy(weights) == right.mean()
        assert judged["kl"] == pytest.approx((p * np.log(p / q)).sum(axis=2).mean(), rel=1e-3)


def test_four_bits_make_a_difference(net: hc.zoo.Adder) -> None:
    """The order of VS-Quant: one scale per row, per 32 values, per 16 in two levels with as many bits as the second."""
    r = hc.study(net, ["int2", "int3", "int4", "int4-g32-f16", "vsq4-g16-s4", "int8"])
    accuracy, kl, bits = (rows_of(r, column) for column in ("accuracy", "kl", "bits"))
    order = ["int2", "int3", "int4", "int4-g32-f16", "vsq4-g16-s4", "int8"]
    for worse, better in zip(order, order[1:], strict=False):
        assert accuracy[worse] < accuracy[better] - 0.05
        assert kl[worse] > kl[better] * 1.1
    assert accuracy["fp32"] > 0.999 and accuracy["int8"] > 0.99 and kl["fp32"] == 0.0
    assert abs(bits["vsq4-g16-s4"] - bits["int4-g32-f16"]) < 0.1


@pytest.mark.sweep(every=0)
def test_training_brings_back_what_a_pattern_took(net: hc.zoo.Adder) -> None:
    changed = quantized(net, "int8+2:4")
    after = net.retrain(net.weights, changed)
    assert net.accuracy(changed) < 0.5 < 0.8 < net.accuracy(after)
    assert net.evaluate(after)["kl"] < 0.2 * net.evaluate(changed)["kl"]


def test_kl_tells_apart_what_accuracy_does_not() -> None:
    r = hc.study(hc.zoo.digits(), ["int8", "int4", "vsq4-g32-s4"])
    accuracy, kl = rows_of(r, "accuracy"), rows_of(r, "kl")
    assert len(set(accuracy.values())) == 1
    assert 0.0 == kl["fp32"] < kl["int8"] < 0.1 * kl["vsq4-g32-s4"] < 0.1 * kl["int4"]


def test_kl_is_the_mean_over_rows() -> None:
    p, q = RANDOM.standard_normal((2, 5, 7, 3))
    wanted = [
        float(np.sum(np.exp(a) / np.exp(a).sum() * np.log(np.exp(a) / np.exp(a).sum() / (np.exp(b) / np.exp(b).sum()))))
        for a, b in zip(p.reshape(-1, 3), q.reshape(-1, 3), strict=True)
    ]
    assert hc.kl_divergence(p, q) == pytest.approx(np.mean(wanted), rel=1e-12)
    assert hc.kl_divergence(p, q) != pytest.approx(hc.kl_divergence(q, p), rel=1e-3)
    assert hc.kl_divergence(p, p) == 0.0 <= hc.kl_divergence(p, p + 1e-9)
    assert hc.kl_divergence([[0.0, 0.0]], [[0.0, np.log(3)]]) == pytest.approx(np.log(2) - np.log(3) / 2, rel=1e-14)


def test_kl_of_far_logits_is_finite() -> None:
    far = np.float32([[3e38, 0, -3e38]])
    assert hc.kl_divergence(far, far) == 0.0
    assert hc.kl_divergence([[1000.0, 0.0]], [[0.0, 0.0]]) == pytest.approx(np.log(2), rel=1e-14)
    assert hc.kl_divergence([[1000.0, 0.0]], [[0.0, 1000.0]]) == 1000.0
    farther = np.array([[1e308, -1e308]])  # a difference that float64 does not hold
    assert hc.kl_divergence(farther, farther) == 0.0
    assert hc.kl_divergence(farther, [[0.0, 0.0]]) == pytest.approx(np.log(2), rel=1e-14)
    for bad in (np.nan, np.inf, -np.inf):
        assert np.isnan(hc.kl_divergence([[1.0, 2.0]], [[1.0, bad]]))
        assert np.isnan(hc.kl_divergence([[bad, 2.0]], [[1.0, 2.0]]))


def test_kl_says_what_does_not_fit() -> None:
    with bad_argument(ValueError, "logits", "shape"):
        hc.kl_divergence(np.ones((2, 3)), np.ones((3, 2)))
    for shape in ((), (0, 3), (3, 0)):
        with bad_argument(ValueError, "logits", "shape"):
            hc.kl_divergence(np.ones(shape), np.ones(shape))
    with bad_argument(TypeError, "logits", "dtype"):
        hc.kl_divergence(np.ones((2, 3), np.int32), np.ones((2, 3)))


def test_kl_stands_in_every_way_out(net: hc.zoo.Adder, tmp_path: Path) -> None:
    r = hc.study(net, ["int4"], activations=["int8"])
    assert r.metrics == ["accuracy", "kl"] and "kl" in repr(r) and "<th" in r._repr_html_()
    rows = json.loads(json.dumps(r.to_dict(), allow_nan=False))["rows"]
    assert [row["kl"] > 0 for row in rows] == [False, True, True, True]
    r.to_csv(tmp_path / "r.csv")
    with open(tmp_path / "r.csv", newline="") as file:
        assert [float(line["kl"]) for line in csv.DictReader(file)] == [row["kl"] for row in rows]
    r.to_html(tmp_path / "r.html")
    assert f'"kl":{rows[1]["kl"]}' in (tmp_path / "r.html").read_text(encoding="utf-8")
    front = r.pareto("kl")
    assert [row["kl"] for row in front] == sorted((row["kl"] for row in front), reverse=True)  # less is better


def test_float64_weights_emulation_and_densities(net: hc.zoo.Adder) -> None:
    wide = {name: w.astype(np.float64) for name, w in net.weights.items()}
    np.testing.assert_array_equal(net.forward(wide, net.test_x[:64]), net.forward(net.weights, net.test_x[:64]))
    r = hc.study(net, ["int8"], activations=["int8"], emulate=["int16-sat", "int32"])
    found = {row["emulate"]: row for row in r.table if (row["format"], row["activations"]) == ("int8", "int8")}
    assert {key: found[None][key] for key in r.metrics} == {key: found["int32"][key] for key in r.metrics}
    assert found["int16-sat"]["accuracy"] < 0.9 * found["int32"]["accuracy"]
    d = hc.study_density(net, ["50%"], retrain=False)
    assert d.metrics == ["accuracy", "kl"] and d.table[0]["kl"] == 0.0 < d.table[1]["kl"]


def test_the_gradient_of_several_answers_is_the_slope_of_the_loss() -> None:
    weights = {k: w.astype(np.float64) for k, w in first_weights(ADDER, np.random.default_rng(1)).items()}
    x, labels = addition.examples(np.array([1002, 999_999, 10_500]))
    _, found = gradients(ADDER, weights, x, labels)
    for name, w in weights.items():
        place, step, loss = int(np.abs(found[name]).argmax()), 1e-6, []
        for sign in (1, -1):
            moved = {**weights, name: w.copy()}
            moved[name].flat[place] += sign * step
            loss.append(gradients(ADDER, moved, x, labels)[0])
        assert found[name].flat[place] == pytest.approx((loss[0] - loss[1]) / (2 * step), rel=1e-5), name


def test_the_exponential_is_that_of_numpy() -> None:
    x = -np.concatenate([RANDOM.uniform(0, 1, 5000), RANDOM.uniform(0, 700, 5000), [0, 745, 1e9]])
    np.testing.assert_allclose(exponential(x), np.exp(np.maximum(x, -745)), rtol=5e-16)


@pytest.mark.sweep(every=0)
def test_training_again_writes_the_same_bytes(tmp_path: Path) -> None:
    for out, threads in (("a", 1), ("b", 2)):
        with hc.use(threads=threads):
            train_adder.main(["--epochs", "1", "--pairs", "100000", "--out", str(tmp_path / out)])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    trained = hc.zoo.Adder.load(tmp_path / "a")
    digits = trained.forward(trained.weights, trained.test_x).reshape(-1, 4, 10).argmax(axis=2)
    assert (digits == trained.test_y).mean() > 0.5  # one of ten by guessing
    assert (tmp_path / "a").stat().st_size == addition.FILE.stat().st_size


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["study", "--network", "adder", "--formats", "int4", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["format"] for row in rows] == ["fp32", "int4"] and rows[1]["accuracy"] < 0.8
    assert cli.main(["study", "adder"]) == 1  # a file of this name, which is not there
    assert cli.main(["study", str(tmp_path / "a.safetensors"), "--network", "adder"]) == 2
    assert "give one of them" in capsys.readouterr().err
