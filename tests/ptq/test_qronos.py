"""Qronos: columns rounded with the inputs of the rounded and of the unrounded network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute.ptq.hessian import Hessian

Array = np.ndarray[Any, Any]
K = 48


def layer(groups: int = 1) -> tuple[Array, Hessian, Hessian]:
    """Return a weight, the Hessian of its inputs with those of the unrounded network, and another to judge by."""
    rng = np.random.default_rng(7)
    mix = rng.standard_normal((K, K))
    parts = []
    for _ in range(2):
        h = Hessian(K, groups)
        x_float = (rng.standard_normal((768, groups, K)) @ mix).astype(np.float32)
        x = np.asarray(hc.quantize(x_float, "int4"))  # depends on x_float
        h.add(*((one if groups > 1 else one[:, 0]) for one in (x, x_float)))
        parts.append(h)
    return rng.standard_normal((24, K), dtype=np.float32), parts[0], parts[1]


def published(w: Array, h: Hessian, bits: int, share: float) -> Array:
    """Return Qronos as the paper states it: least squares for the remaining weights after each rounded column."""
    matrix, cross = h.matrix, h.cross
    assert cross is not None
    top = float(np.linalg.eigvalsh(matrix)[-1]) * share
    turn = np.argsort(-np.diagonal(matrix), kind="stable")
    matrix, cross, w = matrix[turn][:, turn], cross[turn][:, turn], w.astype(np.float64)[:, turn]
    damped, target = matrix + top * np.eye(K), w @ (cross + top * np.eye(K))
    solved = np.linalg.solve(damped, target.T).T
    step = np.abs(np.float32(solved)).max(axis=1) / (2 ** (bits - 1) - 1)
    step = step.astype(np.float32).astype(np.float64)
    q = np.zeros_like(w)
    for t in range(K):
        if t == 0:
            value = (w @ cross[:, 0] - w[:, 1:] @ matrix[1:, 0]) / matrix[0, 0]
        else:  # the best remaining weights for the columns that are rounded
            rest = target[:, t:] - q[:, :t] @ damped[:t, t:]
            value = np.linalg.solve(damped[t:, t:], rest.T)[0]
        q[:, t] = np.clip(np.rint(value / step), 1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1) * step
    found = np.empty_like(q)
    found[:, turn] = q
    return found


def test_it_is_the_published_method() -> None:
    w, h, _ = layer()
    for bits, share, agreeing in ((4, 1e-3, 1.0), (3, 1e-6, 0.9)):
        found = hc.ptq.qronos(w, h, f"int{bits}", damping=share, scales="absmax", sweeps=0)
        wanted = published(w, h, bits, share)
        agree = np.abs(found.dequantize() - wanted).max(axis=1) < 1e-5
        assert agree.mean() >= agreeing  # plain rounding replaces rows of which it has less error
        lost, known = (hc.ptq.error(w, q, h).squared for q in (found, np.float32(wanted)))
        assert lost <= known * (1 + 1e-6)


@pytest.mark.parametrize(
    "fmt", ["int4", "int3-g16", "vsq3-g16-s4", "mxfp4", "cb3-g16", "log4-1-g16", "int8+2:4", "2:4"]
)
def test_it_corrects_the_drift_of_inputs(fmt: str) -> None:
    w, h, judge = layer()
    without = Hessian(K)
    without._sum, without._mirrored, without._tokens = h._sum, h._mirrored, h._tokens
    plain, alone, both = hc.quantize(w, fmt), hc.ptq.gptq(w, without, fmt), hc.ptq.qronos(w, h, fmt)
    plain_db, alone_db, db = (hc.ptq.error(w, q, judge).output_db for q in (plain, alone, both))
    assert db > max(plain_db + 1, alone_db - 0.1) and type(both) is type(plain) and both.nbytes == plain.nbytes


def test_without_drift_it_is_gptq_with_another_damping() -> None:
    w, h, _ = layer()
    alone = Hessian(K)
    alone._sum, alone._mirrored, alone._tokens = h._sum, h._mirrored, h._tokens
    top = hc.ptq.qronos(w, alone, "int4-g16", damping=0.0)
    assert top == hc.ptq.gptq(w, alone, "int4-g16", damping=0.0)


def test_groups_are_rounded_alone() -> None:
    w, h, _ = layer(groups=2)
    found = hc.ptq.qronos(w, h, "int4-g16")
    for i in range(2):
        one = Hessian(K)
        cross, unrounded = h._cross, h._unrounded
        assert cross is not None and unrounded is not None
        one._sum, one._cross, one._unrounded = h.full()[i : i + 1], cross[i : i + 1], unrounded[i : i + 1]
        one._tokens = h._tokens[i : i + 1]
        rows = slice(12 * i, 12 * i + 12)
        assert np.array_equal(found.dequantize()[rows], hc.ptq.qronos(w[rows], one, "int4-g16").dequantize())


def test_errors_name_qronos() -> None:
    w, h, _ = layer()
    for options in ({"damping": -1.0}, {"order": "size"}, {"sweeps": -1}, {"mask": np.ones(w.shape, bool)}):
        with pytest.raises(ValueError, match="^qronos: "):
            hc.ptq.qronos(w, h, "int4", **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="^qronos: "):
        hc.ptq.qronos(w, h, "fp16")


def test_the_error_counts_the_drift(tmp_path: Any) -> None:
    w, h, _ = layer()
    x_float, x = np.float64(np.eye(K)[:5]), np.float64(np.eye(K)[1:6]) * 2
    both = Hessian(K)
    both.add(x, x_float)
    q = hc.quantize(w, "int4")
    lost = float(np.square(w @ x_float.T - q.dequantize() @ x.T).sum())
    found = hc.ptq.error(w, q, both)
    assert np.isclose(found.squared, lost) and np.isclose(found.relative, lost / np.square(w @ x_float.T).sum())
    h.save(tmp_path / "h.safetensors")
    again = Hessian.load(tmp_path / "h.safetensors")
    for name in ("matrix", "cross", "unrounded"):
        assert np.array_equal(getattr(again, name), getattr(h, name))
    assert np.allclose((again + h).unrounded, 2 * h.unrounded)


class TestNetworks:
    net = hc.zoo.digits()

    def run(self, weights: Any) -> Any:
        return self.net.forward(weights, self.net.train_x[:48])

    def test_a_network_is_calibrated_in_pairs(self) -> None:
        weights = self.net.weights
        first = hc.ptq.quantize(weights, self.run, {"conv1*": "int3-g16"}, method="rtn")
        pairs = hc.ptq.calibrate(weights, self.run, rounded={"conv1.weight": first.weights["conv1.weight"]})
        plain = hc.ptq.calibrate(weights, self.run)
        assert np.array_equal(pairs["conv1.weight"].cross, plain["conv1.weight"].matrix)
        assert np.array_equal(pairs["fc1.weight"].unrounded, plain["fc1.weight"].matrix)
        assert not np.array_equal(pairs["fc1.weight"].matrix, plain["fc1.weight"].matrix)
        with pytest.raises(ValueError, match="calibrate: rounded is a mapping with 'none'"):
            hc.ptq.calibrate(weights, self.run, rounded={"none": first.weights["conv1.weight"]})

    def test_the_outputs_of_a_network_are_closer(self) -> None:
        exact = self.net.forward(self.net.weights, self.net.test_x)
        lost = {}
        for method in ("rtn", "gptq", "qronos"):
            found = hc.ptq.quantize(self.net.weights, self.run, "int2-g16", method=method)
            lost[method] = np.square(self.net.forward(found.weights, self.net.test_x) - exact).mean()
        assert lost["qronos"] < lost["gptq"] < lost["rtn"]


def test_a_module_is_rounded_in_pairs() -> None:
    torch = pytest.importorskip("torch")
    ht = pytest.importorskip("heterocompute.interop.torch")
    torch.manual_seed(0)
    sizes = (K, 64, 64, 10)
    layers = [part for a, b in zip(sizes, sizes[1:], strict=False) for part in (torch.nn.Linear(a, b), torch.nn.ReLU())]
    model, mix = torch.nn.Sequential(*layers[:-1]), torch.randn(K, K)
    batches = [torch.randn(128, K) @ mix for _ in range(8)]
    test = torch.randn(512, K) @ mix
    with torch.no_grad():
        exact, lost = model(test), {}
        for method in ("gptq", "qronos"):
            found = hc.ptq.quantize(model, batches, "int3-g16", method=method)
            lost[method] = float((ht.convert(model, found)(test) - exact).square().mean())
    assert lost["qronos"] < lost["gptq"]
    with pytest.raises(ValueError, match="quantize: method='qronos' runs the model again"):
        hc.ptq.quantize(model, hc.ptq.calibrate(model, batches), "int4", method="qronos")
