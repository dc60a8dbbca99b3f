"""`heterocompute.diff` of functions: the first output that parts, and its cause."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import heterocompute as hc

X = np.random.default_rng(0).standard_normal((6, 32)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((32, 8)).astype(np.float32)


def plain(x: Any) -> dict[str, Any]:
    h = np.maximum(x @ W, 0)
    return {"hidden": h, "output": h @ W[:8]}


def split(x: Any) -> dict[str, Any]:
    h = np.maximum(x[:, 16:] @ W[16:] + x[:, :16] @ W[:16], 0)
    return {"hidden": h, "output": h @ W[:8]}


def rounded(x: Any) -> dict[str, Any]:
    found = plain(x)
    return {**found, "output": found["output"].astype(np.float16)}


def turned(x: Any) -> dict[str, Any]:
    found = plain(x)
    return {**found, "hidden": found["hidden"][::-1]}


def wrong(x: Any) -> dict[str, Any]:
    return {name: value * np.float32(1.01) for name, value in plain(x).items()}


def random(x: Any) -> dict[str, Any]:
    return {name: value + np.random.default_rng().standard_normal() for name, value in plain(x).items()}


def few(x: Any) -> dict[str, Any]:
    return {"hidden": plain(x)["hidden"]}


def broken(x: Any) -> dict[str, Any]:
    found = plain(x)
    found["output"][1, 2] = np.nan
    return found


def wide(x: Any) -> dict[str, Any]:
    return plain(x.astype(np.float64))


@pytest.mark.parametrize(("b", "layer", "cause"), [
    (plain, None, None),
    (split, "hidden", "order"),
    (rounded, "output", "format"),
    (turned, "hidden", "layout"),
    (wrong, "hidden", "unexplained"),
    (random, "hidden", "nondeterminism"),
    (few, "output", "unexplained"),
    (broken, "output", "unexplained"),
])  # fmt: skip
def test_outputs_of_functions(b: Any, layer: str | None, cause: str | None) -> None:
    found = hc.diff(plain, b, X)
    assert (found.equal, found.layer, found.cause) == (layer is None, layer, cause), found.tested
    back = hc.diff(random, plain, X)
    assert (back.layer, back.cause) == ("hidden", "nondeterminism")


def test_scalars_and_wider_types() -> None:
    found = hc.diff(wide, plain, X)
    assert (found.layer, found.cause, found.notes) == ("hidden", "format", ["b is computed in float32"])
    assert hc.diff(lambda x: np.float32(x.sum()), lambda x: np.float32(x.sum()), X).equal
    assert not hc.diff(lambda x: np.float32(1), lambda x: np.float32(np.nan), X).equal
    assert hc.diff(lambda x: x * np.nan, lambda x: x * np.nan, X).equal


def test_other_inputs_and_kinds() -> None:
    other = X.copy()
    other[2, 5] = 7
    found = hc.diff(plain, plain, X, other)
    assert (found.layer, found.cause) == ("(whole)", "input") and "(2, 5)" in found.notes[0]
    assert hc.diff(lambda x, y: x + y, lambda y, x: x + y, {"x": X, "y": X}).equal
    for b in (3, None):
        with pytest.raises(TypeError, match="diff: b is"):
            hc.diff(plain, b, X)
    with pytest.raises(TypeError, match=r"a file that ends in \.onnx"):
        hc.diff("a.safetensors", "b.safetensors", X)


def test_an_output_that_only_b_has_is_a_difference() -> None:
    found = hc.diff(lambda x: (x,), lambda x: (x, x + 1), X)
    assert (found.equal, found.layer, found.cause) == (False, "1", "operation")
    with pytest.raises(ValueError, match="diff: an output is .*, expected an array"):
        hc.diff(plain, lambda x: {"hidden": [[1.0], [1.0, 2.0]], "output": x}, X)
