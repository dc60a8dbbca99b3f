"""The built-in network matches its script, and every operand reaches the real matmuls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute.training import gradients, train_digits
from heterocompute.zoo.digit_images import FILE
from heterocompute.zoo.layers import DIGITS, STRIDES

AXES = {4: (2, 3, 1), 2: (-1,)}


@pytest.fixture(scope="module")
def net() -> hc.zoo.Digits:
    return hc.zoo.digits()


def quantized(weights: dict[str, np.ndarray], fmt: str) -> dict[str, object]:
    return {k: hc.quantize(w, fmt, axis=AXES[w.ndim]) if w.ndim > 1 else w for k, w in weights.items()}


def plain_forward(weights: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Compute the network in float64 without the package."""
    x = x.astype(np.float64)
    for name in DIGITS:
        w, b = np.asarray(weights[f"{name}.weight"]).astype(np.float64), weights[f"{name}.bias"]
        if w.ndim == 4:
            padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
            stride = STRIDES[name]
            windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::stride, ::stride]
            x = np.einsum("nchwrs,kcrs->nkhw", windows, w, optimize=True) + b[:, None, None]
        else:
            x = x.reshape(len(x), -1) @ w.T + b
        x = np.maximum(x, 0) if name != "fc2" else x
    return x


def test_shapes_and_size(net: hc.zoo.Digits) -> None:
    assert {k: w.shape for k, w in net.weights.items() if k.endswith("weight")} == {
        f"{name}.weight": shape for name, shape in DIGITS.items()
    }
    assert all(w.dtype == np.float32 for w in net.weights.values())
    assert 30_000 <= sum(w.size for w in net.weights.values()) <= 100_000
    assert net.test_x.shape == (599, 1, 8, 8) and net.test_x.dtype == np.float32
    assert net.test_y.shape == (599,) and set(net.test_y) == set(range(10))
    assert net.test_x.min() == 0 and net.test_x.max() == 1


def test_accuracy_is_that_of_an_independent_forward_pass(net: hc.zoo.Digits) -> None:
    logits = plain_forward(net.weights, net.test_x)
    assert net.accuracy(net.weights) == (logits.argmax(axis=1) == net.test_y).mean() >= 0.98
    np.testing.assert_allclose(net.forward(net.weights, net.test_x), logits, rtol=0, atol=1e-5 * np.abs(logits).max())


@pytest.mark.parametrize("fmt", ["int8", "int4-g32-asym", "vsq4-g16", "vsq4-g16-s4", "vsq2-g64-s8"])
def test_quantized_weights_act_as_their_values(net: hc.zoo.Digits, fmt: str) -> None:
    weights = quantized(net.weights, fmt)
    logits = plain_forward(weights, net.test_x[:50])
    found = net.forward(weights, net.test_x[:50])
    np.testing.assert_allclose(found, logits, rtol=0, atol=1e-5 * np.abs(logits).max())


def test_quantized_activations_change_the_logits_a_little(net: hc.zoo.Digits) -> None:
    weights = quantized(net.weights, "vsq4-g16-s4")
    plain, rounded = (net.forward(weights, net.test_x, kind) for kind in (None, "int8"))
    distance = np.abs(plain - rounded).max() / np.abs(plain).max()
    assert 0 < distance < 0.1
    assert net.evaluate(weights, activations=hc.Int(8)) == {
        "accuracy": net.accuracy(weights, "int8"),
        "kl": hc.kl_divergence(net.forward(net.weights, net.test_x), rounded),
    }


def test_test_images_are_the_last_of_scikit_learn(net: hc.zoo.Digits) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    images, labels = datasets.load_digits(return_X_y=True)
    np.testing.assert_array_equal(net.test_x.reshape(599, 64) * 16, images[train_digits.TRAIN_IMAGES :])
    np.testing.assert_array_equal(net.test_y, labels[train_digits.TRAIN_IMAGES :])


def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the convolutions of `gradients` use float64, so that slopes are precise."""

    def columns(x: Any, size: Any, stride: int) -> Any:
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        view = np.lib.stride_tricks.sliding_window_view(padded, size, axis=(2, 3))[:, :, ::stride, ::stride]
        return view.transpose(0, 2, 3, 1, 4, 5).reshape(-1, x.shape[1] * 9)

    def rows(dy: Any) -> Any:
        return dy.transpose(0, 2, 3, 1).reshape(-1, dy.shape[1])

    def forward(x: Any, w: Any, b: Any, stride: int, padding: int) -> Any:
        y = columns(x, (3, 3), stride) @ w.reshape(len(w), -1).T + b
        return y.reshape(len(x), x.shape[2] // stride, -1, len(w)).transpose(0, 3, 1, 2)

    def backward_weight(dy: Any, x: Any, size: Any, stride: int, padding: int) -> Any:
        return (rows(dy).T @ columns(x, size, stride)).reshape(-1, x.shape[1], 3, 3)

    def backward_input(dy: Any, w: Any, size: Any, stride: int, padding: int) -> Any:
        taps = (rows(dy) @ w.reshape(len(w), -1)).reshape(len(dy), *dy.shape[2:], -1, 3, 3)
        dx = np.zeros((len(dy), w.shape[1], size[0] + 2, size[1] + 2))
        for r, s in np.ndindex(3, 3):
            down, across = (slice(a, a + size[i] - stride + 1, stride) for i, a in enumerate((r, s)))
            dx[:, :, down, across] += taps[..., r, s].transpose(0, 3, 1, 2)
        return dx[:, :, 1:-1, 1:-1]

    monkeypatch.setattr(gradients, "conv2d", forward)
    monkeypatch.setattr(gradients, "conv2d_backward_weight", backward_weight)
    monkeypatch.setattr(gradients, "conv2d_backward_input", backward_input)


def test_the_gradient_is_the_slope_of_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    in_float64(monkeypatch)
    random = np.random.default_rng(1)
    weights = {k: w.astype(np.float64) for k, w in train_digits.first_weights(DIGITS, random).items()}
    for name in weights:
        weights[name] += 0.05 * random.standard_normal(weights[name].shape)
    x, labels = random.random((2, 1, 8, 8)), np.array([3, 1])
    _, found = train_digits.gradients(DIGITS, weights, x, labels)
    for name, w in weights.items():
        for place in random.integers(0, w.size, 3):
            step, loss = 1e-6, []
            for sign in (1, -1):
                moved = {**weights, name: w.copy()}
                moved[name].flat[place] += sign * step
                loss.append(train_digits.gradients(DIGITS, moved, x, labels)[0])
            slope = (loss[0] - loss[1]) / (2 * step)
            assert found[name].flat[place] == pytest.approx(slope, rel=1e-3, abs=1e-7), (name, place)


def test_training_again_writes_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    for out in ("a", "b"):
        train_digits.main(["--epochs", "1", "--out", str(tmp_path / out)])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    trained = hc.zoo.Digits.load(tmp_path / "a")
    assert trained.accuracy(trained.weights) > 0.5  # ten digits: 0.1 by guessing
    assert (tmp_path / "a").stat().st_size == FILE.stat().st_size
