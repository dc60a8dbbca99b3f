"""The layers of transformers have the bits of their definition on every instruction set, and are near exact values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from common import isas, same_bits

import heterocompute as hc
from heterocompute.products.layers.transformer import activated
from heterocompute.reference import layers as definition

SHAPES = [(1, 1), (3, 15), (2, 16), (5, 17), (2, 3, 576), (1, 1000)]
EPS = float(np.finfo(np.float32).eps)


def drawn(shape: tuple[int, ...], seed: int = 0, spread: float = 3.0) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(seed).standard_normal(shape) * spread).astype(np.float32)


def calls(x: np.ndarray[Any, Any]) -> dict[str, tuple[Any, ...]]:
    w, b, up = drawn(x.shape[-1:], 1), drawn(x.shape[-1:], 2), drawn(x.shape, 3)
    angles = drawn((x.shape[-2], x.shape[-1] // 2), 4)
    turns = np.cos(angles), np.sin(angles)
    return {
        "rms_norm": (x, w), "layer_norm": (x, w, b), "softmax": (x,), "swiglu": (x, up), "gelu": (x, up),
        "rope": (x, *turns),
    }  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_layers_have_the_bits_of_their_definition(shape: tuple[int, ...]) -> None:
    for name, arguments in calls(drawn(shape)).items():
        wanted = getattr(definition, name)(*arguments)
        for isa in isas("norm"):
            for threads in (1, 3):
                with hc.use(isa=isa, threads=threads):
                    assert same_bits(getattr(hc.layers, name)(*arguments), wanted), (name, isa, threads)


@pytest.mark.parametrize("name", ["gelu_erf", "relu", "relu2"])
def test_plain_gates_have_the_bits_of_their_definition(name: str) -> None:
    x = np.concatenate([drawn((1000,)), np.float32([0, -0.0, np.inf, -np.inf, np.nan, 9, -9, 1e-30, 5.66, -5.66])])
    for up in (None, drawn(x.shape, 3)):
        assert same_bits(activated(name, x, up), definition.activated(name, x, up))
    exact = {
        "gelu_erf": [v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x[:1000].tolist()],
        "relu": np.maximum(x[:1000], 0), "relu2": np.maximum(x[:1000], 0).astype(np.float64) ** 2,
    }[name]  # fmt: skip
    assert np.abs(activated(name, x)[:1000] - exact).max() <= 2 * EPS * np.abs(exact).max()


def test_exact_gelu_is_within_its_bounds() -> None:
    x = np.concatenate([np.linspace(-9, 9, 20_001), np.logspace(-30, 0, 500), -np.logspace(-30, 0, 500)]).astype(
        np.float32
    )
    exact = np.array([v * math.erfc(-v / math.sqrt(2)) / 2 for v in x.astype(np.float64).tolist()])
    error = np.abs(activated("gelu_erf", x) - exact)
    units = error / np.spacing(np.maximum(np.abs(exact), 1e-38).astype(np.float32))
    for least, bound in ((0, 2), (-1, 3), (-2, 8)):
        assert units[x >= least].max() <= bound
    assert error[x < 0].max() <= 5e-8
    assert (activated("gelu_erf", np.float32([6.5, 1e30, np.inf])) == np.float32([6.5, 1e30, np.inf])).all()


def test_pairs_are_neighbors_or_halves() -> None:
    x, (_, cosine, sine) = drawn((4, 7, 2, 12)), calls(drawn((7, 8)))["rope"]
    for pairs in (False, True):
        wanted = definition.rope(x, cosine[:, None], sine[:, None], pairs)
        assert same_bits(hc.layers.rope(x, cosine[:, None], sine[:, None], pairs), wanted)
        full = np.broadcast_to(cosine[:, None], (4, 7, 2, 4)), np.broadcast_to(sine[:, None], (4, 7, 2, 4))
        assert same_bits(hc.layers.rope(x, *full, pairs), wanted)
    assert same_bits(wanted[..., 8:], x[..., 8:])


def test_exp_is_within_two_units_in_the_last_place() -> None:
    x = np.concatenate([np.linspace(-87, 88.7, 200_001), [0.0, -0.0, 1e-30]]).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    assert np.abs(definition.exp(x) - exact).max(initial=0, where=exact < 3e38) >= 0
    assert (np.abs(definition.exp(x) / exact - 1) <= 2 * EPS).all()
    edges = definition.exp(np.float32([-np.inf, -200, -104, 89, np.inf, np.nan]))
    assert edges[:3].tolist() == [0, 0, 0] and np.isinf(edges[3:5]).all() and np.isnan(edges[5])


@pytest.mark.parametrize("n", [1, 64, 577])
def test_layers_are_near_exact_values(n: int) -> None:
    """Each float32 step adds at most eps of its value: sums of n terms of one sign (n / 16 + 5) eps."""
    x = drawn((4, n))
    exact, bound = x.astype(np.float64), (n / 16 + 12) * EPS
    norm = exact / np.sqrt((exact**2).mean(axis=-1, keepdims=True) + 1e-6)
    assert (np.abs(hc.layers.rms_norm(x) - norm) <= bound * np.abs(norm)).all()
    shares = np.exp(exact - exact.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    spread = np.abs(exact - exact.max(axis=-1, keepdims=True))  # the difference is rounded before exp
    assert (np.abs(hc.layers.softmax(x) - shares) <= (bound + spread * EPS) * shares).all()
    gate = exact / (1 + np.exp(-exact))
    assert (np.abs(hc.layers.swiglu(x, np.ones_like(x)) - gate) <= 8 * EPS * np.abs(gate)).all()
    tanh = exact / (1 + np.exp(-np.sqrt(8 / np.pi) * (exact + 0.044715 * exact**3)))  # 1 + tanh(u) = 2 sigmoid(2 u)
    steep = 1 + np.abs(1.6 * (exact + 0.045 * exact**3))  # the effect of rounding the argument of exp
    assert (np.abs(hc.layers.gelu(x) - tanh) <= 8 * EPS * steep * np.abs(tanh) + 1e-44).all()


def test_infinities_and_nan_are_not_silent() -> None:
    x = np.float32([[1, np.nan], [np.inf, 1], [-np.inf, -np.inf], [-np.inf, 0]])
    assert np.isnan(hc.layers.softmax(x)[:3]).any(axis=1).all()
    assert hc.layers.softmax(x)[3].tolist() == [0, 1]
    assert np.isnan(hc.layers.rms_norm(x)[:3]).any(axis=1).all()
    assert hc.layers.swiglu(np.float32([-np.inf, -1000, np.inf]), np.ones(3, np.float32))[1:].tolist() == [0, np.inf]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: hc.layers.rms_norm(np.ones((2, 3)), np.ones(2)),
            ValueError,
            r"weight has shape \(2,\), expected \(3,\)",
        ),
        (lambda: hc.layers.rms_norm(np.ones(3), epsilon=-1.0), ValueError, "epsilon is -1.0, expected 0 or more"),
        (lambda: hc.layers.layer_norm(np.float32(1)), ValueError, "x has no dimensions"),
        (lambda: hc.layers.swiglu(np.ones(2), np.ones(3)), ValueError, r"up has shape \(3,\), expected \(2,\)"),
        (lambda: hc.layers.rope(np.ones((2, 4)), np.ones((3, 2)), np.ones((3, 2))), ValueError, "does not fit x"),
        (lambda: hc.layers.rope(np.ones((2, 4)), np.ones((2, 3)), np.ones((2, 3))), ValueError, "half of at most 2"),
        (lambda: hc.layers.softmax(np.ones(2, int)), TypeError, "softmax: x"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_empty_arrays_and_one_value() -> None:
    for shape in ((0, 4), (2, 0), (0, 0)):
        assert hc.layers.rms_norm(np.zeros(shape, np.float32)).shape == shape
        assert hc.layers.softmax(np.zeros(shape, np.float32)).shape == shape
    assert hc.layers.gelu(np.float32(0)).shape == () and hc.layers.swiglu(np.float32(2), np.float32(0)) == 0
