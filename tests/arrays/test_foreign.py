"""Objects that are not readable arrays are named in the error, with the argument to pass instead."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, reals

import heterocompute as hc

X = reals((4, 32))
Q = hc.quantize(X, "int8")

# Every public function that accepts arrays, by the name of the argument in its messages.
TAKES: dict[str, Callable[[Any], Any]] = {
    "quantize: w": lambda a: hc.quantize(a, "int8"),
    "quantize: importance": lambda a: hc.quantize(X, "cb4", importance=a),
    "fake_quantize: w": lambda a: hc.fake_quantize(a, "int8"),
    "error: w": lambda a: hc.error(a, Q),
    "error: q": lambda a: hc.error(X, a),
    "matmul: a": lambda a: hc.matmul(a, Q.T),
    "matmul: b": lambda a: hc.matmul(Q, a),
    "linear: x": lambda a: hc.linear(a, Q),
    "linear: w": lambda a: hc.linear(X, a),
    "linear: bias": lambda a: hc.linear(X, Q, a),
    "conv2d: x": lambda a: hc.conv2d(a, reals((1, 1, 2, 2))),
    "conv2d: w": lambda a: hc.conv2d(reals((1, 1, 4, 4)), a),
    "conv2d_outer: x": lambda a: hc.conv2d_outer(a, reals((1, 1, 2, 2))),
    "prune: w": lambda a: hc.prune(a, "2:4"),
    "prune: scores": lambda a: hc.prune(X, "2:4", scores=a),
    "prune_mask: w": lambda a: hc.prune_mask(a, "2:4"),
    "permute_channels: w": lambda a: hc.permute_channels(a, "2:4"),
    "permute_linear: first": lambda a: hc.permute_linear(a, X, None, np.arange(4)),
    "wanda: w": lambda a: hc.scores.wanda(a, X),
    "encode_eie: w": lambda a: hc.encode_eie(a, elements=2),
    "encode_bitmap: a": hc.encode_bitmap,
    "codebook_gradient: dw": lambda a: hc.codebook_gradient(a, hc.quantize(X, "cb4")),
    "emulate.matmul: a": lambda a: hc.emulate.matmul(a, X),
    "study: weights": lambda a: hc.study(a, ["int8"]),
    "study: weights['w']": lambda a: hc.study({"w": a}, ["int8"]),
}


class Tensor:
    """An array of another library, on the CPU by default."""

    device = "cpu"
    requires_grad = False
    kind = 1

    def __init__(self, array: np.ndarray[Any, Any] = X) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.kind, 0)


class Recording(Tensor):
    requires_grad = True


class Distant(Tensor):
    kind, device = 2, "cuda:0"

    def cpu(self) -> Tensor:
        return Tensor(self.array)


class Module:
    """A stand-in for torch.nn.Module."""

    def state_dict(self) -> dict[str, Tensor]:
        return {"fc.weight": Tensor()}


class Layer:
    """A stand-in for a layer of Keras."""

    def get_weights(self) -> list[np.ndarray[Any, Any]]:
        return [X]


class Tracer:
    """A stand-in for the arguments of a function inside jax.jit."""

    def __array__(self, *_: object, **__: object) -> np.ndarray[Any, Any]:
        raise TypeError("no values yet")


class CuPy:
    device = "<CUDA Device 0>"
    __cuda_array_interface__: dict[str, int] = {}

    def get(self) -> np.ndarray[Any, Any]:
        return X


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make arrays of a GPU be refused even on a machine with a GPU."""
    monkeypatch.setenv("HETEROCOMPUTE_CUDA_DRIVER", "/nonexistent/libcuda.so.1")


def sentence(call: Callable[[Any], Any], given: Any) -> str:
    with pytest.raises(TypeError) as caught:
        call(given)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", TAKES)
def test_no_gradient_is_lost_silently(name: str) -> None:
    message = sentence(TAKES[name], Recording())
    assert message.startswith(f"{name} is a Recording that requires a gradient, which would be lost here: pass ")
    assert ".detach()" in message


@pytest.mark.parametrize("name", TAKES)
def test_what_lies_elsewhere_says_how_to_fetch_it(name: str) -> None:
    wanted = f"{name} is a Distant on 'cuda:0', expected an array in the memory of the CPU: pass .cpu() of it"
    assert sentence(TAKES[name], Distant()) == wanted


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Module(), ["is a Module", "module.weight.detach()", "hc.study takes all of module.state_dict()"]),
        (Layer(), ["is a Layer", "get_weights()"]),
        (OrderedDict(a=X, b=X), ["is an OrderedDict of 2", "such as that of 'a'", "hc.study"]),
        ({}, ["is a dict of 0"]),
        ([Tensor(), Tensor()], ["is a list of 2, the first a Tensor", "one at a time", "torch.stack"]),
        ("model.pt", ["is 'model.pt'", "hc.load"]),
        (Path("model.bin"), ["model.bin", "hc.load"]),
        (Tracer(), ["is a Tracer", "outside of jit and grad"]),
        (CuPy(), ["is a CuPy on '<CUDA Device 0>'", "pass .get() of it"]),
        (object(), ["is <object object", "expected an array of floats"]),
        (None, ["is None, expected an array of floats"]),
        ((Tensor() for _ in range(2)), ["is <generator object", "expected an array of floats"]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
@pytest.mark.parametrize("name", ["quantize: w", "linear: x", "linear: w"])
def test_what_is_no_array_is_called_by_its_name(name: str, given: Any, words: list[str]) -> None:
    message = sentence(TAKES[name], given)
    assert message.startswith(f"{name} is ")
    for word in words:
        assert word in message
    assert "dtype object" not in message


def test_lists_of_numbers_and_of_arrays_are_arrays() -> None:
    assert hc.quantize(X.tolist(), "int8").shape == X.shape
    assert hc.quantize(list(X), "int8") == Q


def test_a_dict_of_foreign_arrays_is_studied() -> None:
    state = {"w": Tensor(), "step": 3, "half": Tensor(X.astype(np.float16)), "name": "net"}
    assert {row["name"] for row in hc.study(state, ["int8"]).layers} == {"w", "half"}


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(32, 4)
    for name, call in TAKES.items():
        assert sentence(call, module.weight).startswith(f"{name} is a Parameter that requires a gradient")
        with torch.no_grad():  # tensors that require a gradient are refused nevertheless
            assert "pass" in sentence(call, module.weight)
        if not name.startswith("study"):  # study accepts modules, and ignores entries that are not arrays
            assert "is a Linear, expected an array" in sentence(call, module)
    assert "on the device 'meta', which has no values" in sentence(TAKES["quantize: w"], torch.ones(2, device="meta"))
    assert "torch.stack" in sentence(TAKES["quantize: w"], [module.weight, module.weight])
    weight = module.weight.detach()
    assert hc.quantize(weight, "int8") == hc.quantize(weight.numpy(), "int8")
    for state in (module.state_dict(), {name: w.bfloat16() for name, w in module.state_dict().items()}):
        layers = hc.study(state, ["int8"]).layers
        assert {(layer["name"], tuple(layer["shape"])) for layer in layers} == {("weight", (4, 32))}
    with bad_argument(TypeError, "weights", "type"):
        hc.study(dict(module.named_parameters()), ["int8"])
