"""A share of the mean of the diagonal that is added to a Hessian for all steps of a method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import heterocompute as hc

Array = np.ndarray[Any, Any]
FORMATS = (
    "int4",
    "int3-g8",
    "int4-g16-asym",
    "vsq3-g16-s4",
    "mxfp4",
    "nvfp4",
    "nf4-g16",
    "cb3-g16",
    "log4-2-g8",
    "2:4",
    "int8+2:4",
)


def layer(seed: int, k: int, tokens: int, drift: float = 0.0) -> tuple[Array, hc.ptq.Hessian, hc.ptq.Hessian]:
    """Return a weight, the Hessian of few inputs and that of many."""
    rng = np.random.default_rng(seed)
    mix, found = rng.standard_normal((k, k)), []
    for count in (tokens, 40 * k):
        x_float = rng.standard_normal((count, k)) @ mix
        h = hc.ptq.Hessian(k)
        if drift:
            h.add(x_float + drift * rng.standard_normal(x_float.shape), x_float)
        else:
            h.add(x_float)
        found.append(h)
    return rng.standard_normal((12, k), dtype=np.float32), found[0], found[1]


@pytest.mark.parametrize("seed", range(12))
def test_it_is_the_same_as_a_larger_diagonal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fmt, method = FORMATS[seed % len(FORMATS)], ("gptq", "qronos")[rng.integers(2)]
    k, share = int(rng.choice([16, 32, 48])), float(rng.choice([1e-3, 0.1, 2.0]))
    options = {"order": ("activation", "natural")[rng.integers(2)], "sweeps": int(rng.integers(4)),
               "scales": ("search", "absmax")[rng.integers(2)], "refit": bool(rng.integers(2))}  # fmt: skip
    w, h, _ = layer(seed, k, 2 * k)
    matrix = h.matrix.copy()
    matrix[np.diag_indices(k)] += share * float(np.add.accumulate(np.diagonal(matrix))[-1] / k)
    rounding = getattr(hc.ptq, method)
    assert rounding(w, h, fmt, shrinkage=share, **options) == rounding(w, matrix, fmt, **options)
    assert rounding(w, h, fmt, shrinkage=0, **options) == rounding(w, h, fmt, **options)


def test_inputs_that_are_always_0_stay_ignored() -> None:
    w, h, _ = layer(1, 16, 64)
    matrix = h.matrix.copy()
    matrix[3], matrix[:, 3] = 0, 0
    found = hc.ptq.gptq(w, matrix, "int4", scales="absmax", sweeps=0, shrinkage=0.1)
    assert np.array_equal(np.asarray(found)[:, 3], np.asarray(hc.quantize(w, "int4"))[:, 3])


@pytest.mark.parametrize("method", ["gptq", "qronos"])
@pytest.mark.parametrize("fmt", ["int4", "int3-g16"])
def test_few_inputs_round_better_for_others(method: str, fmt: str) -> None:
    gains = []
    for seed in range(3):
        w, few, many = layer(seed, 48, 72, drift=0.5 * (method == "qronos"))
        rounding = getattr(hc.ptq, method)
        lost = [hc.ptq.error(w, rounding(w, few, fmt, shrinkage=share), many).output_db for share in (0, 0.1)]
        gains.append(lost[1] - lost[0])
    assert np.mean(gains) > 0.1


def test_whole_networks_take_it_and_refuse_bad_values() -> None:
    net = hc.zoo.digits()

    def run(weights: Any) -> Any:
        return net.forward(weights, net.train_x[:32])

    recipe = {"fc2.weight": "int4", "*": None}
    plain, shrunk = (hc.ptq.quantize(net.weights, run, recipe, shrinkage=share).weights for share in (0, 0.3))
    assert plain["fc2.weight"] != shrunk["fc2.weight"]
    w, h, _ = layer(0, 16, 32)
    for bad in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="gptq: shrinkage is .*, expected a finite number, 0 or more"):
            hc.ptq.gptq(w, h, "int4", shrinkage=bad)
    with pytest.raises(TypeError, match="qronos: shrinkage"):
        hc.ptq.qronos(w, h, "int4", shrinkage="much")  # type: ignore[arg-type]
