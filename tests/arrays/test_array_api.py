"""Layers and errors of arrays of other libraries: what comes in as torch, JAX or the array API comes back as that."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import heterocompute as hc

LIBRARIES = {"torch": "torch", "jax": "jax.numpy", "array_api_strict": "array_api_strict"}


def taken(library: str, array: np.ndarray[Any, Any]) -> Any:
    room = pytest.importorskip(LIBRARIES[library])
    if library == "array_api_strict" and array.dtype == np.float16:  # which the standard lacks
        array = array.astype(np.float32)
    return room.asarray(array)


def kind_of(library: str) -> type:
    room = importlib.import_module(LIBRARIES[library])
    return {"torch": lambda: room.Tensor, "jax": lambda: importlib.import_module("jax").Array,
            "array_api_strict": lambda: type(room.asarray([1.0]))}[library]()  # fmt: skip


def calls(rng: np.random.Generator) -> dict[str, tuple[Any, list[np.ndarray[Any, Any]], dict[str, Any]]]:
    n, rows = 2 * int(rng.integers(1, 20)), int(rng.integers(1, 6))
    dtype = rng.choice(["float32", "float64", "float16"])
    x, y = (rng.standard_normal((rows, n)).astype(dtype) for _ in range(2))
    w, b = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    image = rng.standard_normal((1, rows, 6, n + 4)).astype(dtype)
    filters = rng.standard_normal((rows, 3, 3, 3)).astype(np.float32)
    per_filter = [np.abs(rng.standard_normal(rows)).astype(np.float32) for _ in range(4)]
    turn = rng.standard_normal((rows, n // 2)).astype(np.float32)
    heads = [rng.standard_normal((1, 2, rows, 8)).astype(np.float32) for _ in range(3)]
    some = hc.layers
    return {
        "rms_norm": (some.rms_norm, [x, w], {}),
        "layer_norm": (some.layer_norm, [x, w, b], {}),
        "softmax": (some.softmax, [x], {}),
        "gelu": (some.gelu, [x], {}),
        "swiglu": (some.swiglu, [x, y], {}),
        "rope": (some.rope, [x, np.cos(turn), np.sin(turn)], {}),
        "max_pool2d": (some.max_pool2d, [image, ], {"size": 2}),
        "avg_pool2d": (some.avg_pool2d, [image, ], {"size": 3}),
        "fold_batch_norm": (some.fold_batch_norm, [filters, None, *per_filter], {}),
        "attention": (hc.attention, heads, {}),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("library", LIBRARIES)
def test_layers_answer_in_the_library_of_the_first_argument(library: str, seed: int) -> None:
    for name, (function, arrays, options) in calls(np.random.default_rng(seed)).items():
        given = [None if one is None else taken(library, one) for one in arrays]
        whole = function(*arrays, **options)
        found = function(*given, **options)
        pairs = zip(found, whole, strict=True) if isinstance(whole, tuple) else [(found, whole)]
        for mine, exact in pairs:
            assert isinstance(mine, kind_of(library)) and isinstance(exact, np.ndarray), name
            assert np.array_equal(np.from_dlpack(mine), exact), name
        mixed = function(arrays[0], *given[1:], **options)  # the first one decides
        assert isinstance(mixed[0] if isinstance(mixed, tuple) else mixed, np.ndarray)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("library", LIBRARIES)
def test_errors_are_numbers_for_every_library(library: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((int(rng.integers(1, 9)), 32)).astype(rng.choice(["float32", "float64"]))
    other, q = w + rng.standard_normal(w.shape).astype(w.dtype), hc.quantize(w, "int4-g8")
    for given in (q, other):
        same = given if given is q else taken(library, given)
        found = hc.error(taken(library, w), same)
        if library == "jax" and w.dtype == np.float64:  # JAX has float32 unless it is told otherwise
            assert found.sqnr_db == pytest.approx(hc.error(w, given).sqnr_db, rel=1e-6)
        else:
            assert found == hc.error(w, given)
        assert all(type(value) is float for value in vars(found).values())
    if library != "jax":
        assert hc.quantize(taken(library, w), "int4-g8") == q


def test_values_that_are_traced_or_need_gradients_are_refused_in_one_line() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(2, 4, requires_grad=True)
    for call in (hc.layers.gelu, lambda one: hc.error(one, one)):
        with pytest.raises(TypeError, match=r"^[^\n]*requires a gradient[^\n]*$"):
            call(x)
    assert isinstance(hc.layers.gelu(x.detach()), torch.Tensor)
    assert isinstance(hc.layers.gelu([[0.0, 1.0]]), np.ndarray)
