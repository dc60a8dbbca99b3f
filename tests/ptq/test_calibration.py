"""Networks gather the inputs of their layers, and are rounded for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import bad_argument, reals

import heterocompute as hc
from heterocompute.ptq.recorder import Recorder

X = reals((40, 12), 1)
W = {"a.weight": reals((12, 12), 2), "b.weight": reals((7, 12), 3), "unused": reals((3, 4), 4)}


def forward(weights: Any, product: str) -> Any:
    a, b = weights["a.weight"], weights["b.weight"]
    if product == "@":
        return np.maximum(X @ a.T, 0) @ b.T
    if product == "np.matmul":
        return np.matmul(np.maximum(np.matmul(X, a.T), 0), b.T)
    if product == "weight first":
        return np.matmul(b, np.maximum(a @ X.T, 0)).T
    if product == "hc.matmul":
        return hc.matmul(np.maximum(hc.matmul(X, a.T), 0), b.T)
    return hc.linear(np.maximum(hc.linear(X, a), 0), b)


@pytest.mark.parametrize("product", ["@", "np.matmul", "weight first", "hc.matmul", "hc.linear"])
def test_weights_hear_what_they_are_multiplied_with(product: str) -> None:
    answers: list[Any] = []
    hs = hc.ptq.calibrate(W, lambda weights: answers.append(forward(weights, product)))
    assert np.allclose(answers[0], forward(W, product), rtol=1e-5, atol=1e-4)
    assert list(hs) == ["a.weight", "b.weight"] and hs.axes == {"a.weight": (1,), "b.weight": (1,)}
    first, second = hc.ptq.Hessian(12), hc.ptq.Hessian(12)
    first.add(X)
    second.add(np.maximum(X @ W["a.weight"].T, 0))
    assert (hs["a.weight"].matrix == first.matrix).all() and hs["a.weight"].tokens == 40
    assert np.allclose(hs["b.weight"].matrix, second.matrix, rtol=1e-4, atol=1e-3)


PRODUCTS = {
    "dot": lambda x, w: np.dot(x, w.T),
    "method": lambda x, w: w.dot(x.T).T,
    "inner": lambda x, w: np.inner(x, w),
    "tensordot": lambda x, w: np.tensordot(x, w, (-1, 1)),
    "turned": lambda x, w: np.tensordot(w, x.T, 1).T,
    "einsum": lambda x, w: np.einsum("ij,kj->ik", x, w),
    "implicit": lambda x, w: np.einsum("ij, jk", x, w.T),
    "weight first": lambda x, w: np.einsum("kj,...j->k...", w, x).T,
    "several axes": lambda x, w: np.einsum("abj,kj->bka", x.reshape(8, 5, 12), w).transpose(2, 0, 1).reshape(40, -1),
    "astype": lambda x, w: x @ w.astype(np.float64).T,
    "out": lambda x, w: np.matmul(x, w.T, out=np.empty((40, len(w)), np.float32)),
    "integers": lambda x, w: np.rint(4 * x).astype(int) @ w.T / 4,
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_functions_of_numpy_are_heard(name: str) -> None:
    answers: list[Any] = []
    hs = hc.ptq.calibrate({"w": W["b.weight"]}, lambda weights: answers.append(PRODUCTS[name](X, weights["w"])))
    inputs = np.rint(4 * X) if name == "integers" else X
    wanted = hc.ptq.Hessian(12)
    wanted.add(inputs)
    assert np.allclose(answers[0], PRODUCTS[name](X, W["b.weight"]), atol=1e-4) and type(answers[0]) is np.ndarray
    assert hs.axes == {"w": (1,)} and hs["w"].tokens == 40 and np.allclose(hs["w"].matrix, wanted.matrix, rtol=1e-6)


@pytest.mark.parametrize("text", ["ij,kj->ikj", "ij,kj->i", "ij,kj->", "ii,ki->k", "ij,jj->i", "ij,ij->ij"])
def test_einsum_that_is_no_product_of_matrices_is_that_of_numpy(text: str) -> None:
    x, w = reals((7, 7), 8), reals((7, 7), 9)
    answers: list[Any] = []
    assert not hc.ptq.calibrate({"w": w}, lambda weights: answers.append(np.einsum(text, x, weights["w"])))
    assert np.allclose(answers[0], np.einsum(text, x, w))
    with pytest.raises(ValueError):
        hc.ptq.calibrate({"w": w}, lambda weights: np.einsum("ij,jkl->k", x, weights["w"]))


def test_complex_inputs_are_those_of_numpy() -> None:
    x, w, answers = X + 1j, W["b.weight"], list[Any]()
    assert not hc.ptq.calibrate({"w": w}, lambda weights: answers.append((x @ weights["w"].T, weights["w"].dot(x.T))))
    assert np.allclose(answers[0][0], x @ w.T) and np.allclose(answers[0][1], w @ x.T)


def test_a_weight_that_lies_the_other_way_is_calibrated_along_its_first_axis() -> None:
    turned = {"w": np.ascontiguousarray(W["a.weight"].T)}
    hs = hc.ptq.calibrate(turned, lambda weights: X @ weights["w"])
    assert hs.axes == {"w": (0,)}
    found = hc.ptq.quantize(turned, lambda weights: X @ weights["w"], "int4", held=hs)
    assert found.weights["w"].axis == (0,) and found.table[0]["held_after"] == found.table[0]["after"]
    with bad_argument(ValueError, None, "value", r"'w' is multiplied along the axes \(0,\) and \(1,\)"):
        hc.ptq.calibrate(turned, lambda weights: (X @ weights["w"], X @ weights["w"].T))


@pytest.mark.parametrize("stride, padding, dilation", [(1, 0, 1), (2, 1, 1), (1, "same", 2), ((2, 1), (0, 2), (1, 2))])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_convolution_is_calibrated_by_its_windows(stride: Any, padding: Any, dilation: Any, layout: str) -> None:
    image, w = reals((2, 3, 7, 9), 5), reals((4, 3, 3, 2), 6)
    x = image if layout == "NCHW" else image.transpose(0, 2, 3, 1)
    more = {"stride": stride, "padding": padding, "dilation": dilation, "layout": layout}
    hs = hc.ptq.calibrate({"w": w}, lambda weights: hc.conv2d(x, weights["w"], **more))
    assert hs.axes == {"w": (2, 3, 1)}
    # the windows, one after the other, by a convolution with one-hot filters
    one_hot = np.eye(18, dtype=np.float32).reshape(18, 3, 2, 3).transpose(0, 3, 1, 2)
    seen = hc.conv2d(x, one_hot, **more)
    seen = seen.transpose(0, 2, 3, 1) if layout == "NCHW" else seen
    wanted = hc.ptq.Hessian(18)
    wanted.add(seen)
    assert (hs["w"].matrix == wanted.matrix).all() and hs["w"].tokens == wanted.tokens


def test_a_recorder_is_an_array_and_its_slices_are_plain() -> None:
    recorder = Recorder.of(W["a.weight"], "a.weight")
    assert (recorder + 1 == W["a.weight"] + 1).all() and type(recorder + 1) is np.ndarray
    assert recorder[:3].recorded is None and (X @ recorder[:3].T).shape == (40, 3) and recorder.recorded is None
    assert (np.asarray(recorder) == W["a.weight"]).all()


def test_a_network_is_rounded_with_a_report() -> None:
    net = hc.zoo.digits()
    run = lambda weights: net.forward(weights, net.train_x[:24])  # noqa: E731
    held = hc.ptq.calibrate(net.weights, lambda weights: net.forward(weights, net.test_x[:24]))
    found = hc.ptq.quantize(net.weights, run, {"conv1*": "int4", "*": "int3-g16"}, held=held, sweeps=1)
    assert [row["format"] for row in found.table] == ["int4", *["int3-g16"] * 4] and found.left == []
    for row in found.table:
        assert row["after"] > row["before"] + 1 and row["held_after"] > row["held_before"] and row["damping"] == 0.01
    assert "held_after" in str(found).splitlines()[0] and len(str(found).splitlines()) == 6
    plain = {
        name: hc.quantize(w, "int3-g16", found.weights[name].axis) for name, w in net.weights.items() if w.ndim > 1
    }
    exact = net.forward(net.weights, net.test_x)
    assert (
        hc.error(exact, net.forward(found.weights, net.test_x)).sqnr_db
        > hc.error(exact, net.forward({**net.weights, **plain}, net.test_x)).sqnr_db
    )
    again = hc.ptq.quantize(net.weights, run, {"fc*": "int3-g16"}, sequential=True, sweeps=0)
    assert [row["name"] for row in again.table] == ["fc1.weight", "fc2.weight"]
    assert again.weights["conv1.weight"] is net.weights["conv1.weight"]


def test_what_nothing_is_multiplied_with_is_left_and_named() -> None:
    found = hc.ptq.quantize(W, lambda weights: forward(weights, "@"), "int4")
    assert found.left == ["unused"] and found.weights["unused"] is W["unused"]
    with bad_argument(ValueError, None, "missing", "'a.weight'"):
        hc.ptq.quantize(W, lambda weights: forward(weights, "@"), "fp16")
    with bad_argument(TypeError, "inputs", "type"):
        hc.ptq.calibrate(W, 3)  # type: ignore[arg-type]
    with bad_argument(TypeError, None, "type", "'foo'"):
        hc.ptq.quantize(W, lambda weights: forward(weights, "@"), foo=3)


@pytest.mark.parametrize("fmt", ["int4", "vsq4-g16-s4", "fp8_e4m3fn-tensor", "cb3-tensor", "cb2", "int8+2:4"])
def test_each_group_of_a_convolution_has_its_own_inputs(fmt: str, tmp_path: Any) -> None:
    """Two groups of 4 channels and 3 filters: as two convolutions of one group, where their rows share nothing."""
    x, w = reals((4, 8, 9, 9), 5), reals((6, 4, 3, 3), 6)
    x = x.cumsum(axis=3) * np.exp(reals((8, 1, 1), 9))
    run = lambda weights: hc.conv2d(x, weights["w"], groups=2, padding=1)  # noqa: E731
    hs = hc.ptq.calibrate({"w": w}, run)
    halves = [
        hc.ptq.calibrate({"w": w[:3]}, lambda weights, i=i: hc.conv2d(x[:, i : i + 4], weights["w"], padding=1))["w"]
        for i in (0, 4)
    ]
    assert hs.axes == {"w": (2, 3, 1)} and (hs["w"].groups, hs["w"].k, hs["w"].tokens) == (2, 36, 4 * 81)
    assert (hs["w"].matrix == np.stack([half.matrix for half in halves])).all()
    assert (hs["w"].mean == np.stack([half.mean for half in halves])).all() and hs["w"].absmax.shape == (2, 36)
    hs["w"].save(tmp_path / "h.safetensors")
    assert (hc.ptq.Hessian.load(tmp_path / "h.safetensors").matrix == hs["w"].matrix).all()
    q, plain = hc.ptq.gptq(w, hs["w"], fmt), hc.quantize(w, fmt, (2, 3, 1))
    before, after = hc.ptq.error(w, plain, hs["w"]), hc.ptq.error(w, q, hs["w"])
    assert after.output_db > before.output_db + 0.3 and hc.ptq.gptq(w, hs["w"].matrix, fmt) == q
    exact = run({"w": w})
    lost = [float(((run({"w": one.dequantize()}) - exact) ** 2).sum()) for one in (plain, q)]
    assert np.allclose(lost, [before.squared, after.squared], rtol=1e-3)
    if "tensor" not in fmt:
        alone = [hc.ptq.gptq(w[3 * i : 3 * i + 3], half, fmt) for i, half in enumerate(halves)]
        if not fmt.startswith("vsq"):  # its coarse scale belongs to the row and is searched, too
            assert (q.dequantize() == np.concatenate([one.dequantize() for one in alone])).all()
    found = hc.ptq.quantize({"w": w}, run, fmt)
    assert found.weights["w"] == q and found.table[0]["after"] == after.output_db
    bias = hc.ptq.correct_bias(w, q, hs["w"])
    assert np.allclose(bias, (exact - run({"w": q.dequantize()})).mean(axis=(0, 2, 3)), atol=1e-4)


def test_what_groups_refuse(tmp_path: Any) -> None:
    h = hc.ptq.Hessian(4, groups=2)
    with bad_argument(ValueError, "x", "shape"):
        h.add(np.ones((3, 4)))
    with bad_argument(ValueError, None, "value", r"one is of \(2, 4\) inputs and the other of \(4,\)"):
        h + hc.ptq.Hessian(4)
    with bad_argument(ValueError, "h", "value"):
        hc.ptq.gptq(np.ones((3, 4), np.float32), h, "int4")
    with bad_argument(ValueError, "w", "shape"):
        hc.ptq.rescale(np.ones((3, 4), np.float32), h)
    assert repr(h) == "Hessian(k=4, groups=2, tokens=0)"


def test_names_of_one_array_hear_together_and_stay_one() -> None:
    shared = reals((12, 12), 2)
    weights = {"a": shared, "b": W["b.weight"], "c": shared[:]}
    run = lambda held: (X @ held["a"].T, np.abs(X) @ held["c"].T, X @ held["b"].T)  # noqa: E731
    hs = hc.ptq.calibrate(weights, run)
    assert hs["a"].tokens == hs["c"].tokens == 80 and hs["b"].tokens == 40 and (hs["a"].matrix == hs["c"].matrix).all()
    for sequential in (False, True):
        found = hc.ptq.quantize(weights, run, "int4", sequential=sequential)
        assert [row["name"] for row in found.table] == ["a", "b"] and found.weights["a"] is found.weights["c"]
        assert found.weights["a"] == hc.ptq.gptq(shared, hs["a"], "int4")
    with bad_argument(ValueError, None, "value", "'a' and 'c' are one array, expected one format for both"):
        hc.ptq.quantize(weights, run, {"a": "int4", "*": "int8"})


def test_drift_is_corrected_where_the_unrounded_inputs_are_known() -> None:
    rng = np.random.default_rng(0)
    exact = rng.standard_normal((500, 32)) @ rng.standard_normal((32, 32))
    given = exact + 0.3 * rng.standard_normal((500, 32)) @ rng.standard_normal((32, 32))
    w = rng.standard_normal((40, 32)).astype(np.float32)
    plain, knowing = hc.ptq.Hessian(32), hc.ptq.Hessian(32)
    plain.add(given)
    knowing.add(given, exact)

    def loss(h: hc.ptq.Hessian, fmt: str) -> float:
        q = hc.ptq.gptq(w, h, fmt, damping=1e-6).dequantize(np.float64)
        return float(((exact @ w.T - given @ q.T) ** 2).sum())

    for fmt in ("int8", "int4-g16"):
        assert loss(knowing, fmt) < 0.9 * loss(plain, fmt)
    best = np.linalg.lstsq(given, exact @ w.T, rcond=None)[0].T
    assert loss(knowing, "int16") < 1.001 * ((exact @ w.T - given @ best.T) ** 2).sum()


def test_packed_weights_stay_and_the_others_are_rounded() -> None:
    w = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
    weights = {"a": w, "b": hc.quantize(w, "int8"), "c": hc.prune(w, "2:4")}
    found = hc.ptq.quantize(weights, lambda held: np.ones((3, 32), np.float32) @ held["a"].T)
    assert [row["name"] for row in found.table] == ["a"] and found.left == []
    assert all(found.weights[name] is weights[name] for name in "bc")
    plan = hc.ptq.search(weights, ["int4-g32", "int8"], {"bits": 9})
    assert plan.recipe == {"a": "int8"} and all(plan.weights[name] is weights[name] for name in "bc")
