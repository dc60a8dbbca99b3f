"""Errors of bad arguments name a parameter of the function that was called, and a reason, over the public API."""

from __future__ import annotations

import inspect
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute import ptq
from heterocompute.base.errors import WrongType, WrongValue

RNG = np.random.default_rng(0)
W = RNG.standard_normal((8, 64), dtype=np.float32)
X, Q = W[:4].copy(), hc.quantize(W, "int8")
IMAGE, FILTERS = RNG.standard_normal((1, 3, 8, 8), np.float32), RNG.standard_normal((4, 3, 3, 3), np.float32)
REASONS = {"type", "dtype", "shape", "axis", "value", "missing", "device", "memory", "file", "unsupported"}
PASSED_ON = ("progress", "evaluate", "retrain")  # functions of the caller: they may return or raise anything
BAD: list[Any] = [object(), "nonsense", -1, 3.5, 1 << 80, [], {}, W.astype(complex)]
BAD += [np.full((8, 64), np.nan, np.float32), np.zeros((3, 5, 7), np.float32)]
CALLS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (hc.quantize, {"w": W, "format": "int8"}),
    (hc.fake_quantize, {"w": W, "format": "int8"}),
    (hc.linear, {"x": X, "w": Q}),
    (hc.matmul, {"a": X, "b": Q.T}),
    (hc.conv2d, {"x": IMAGE, "w": FILTERS}),
    (hc.conv2d_outer, {"x": IMAGE, "w": FILTERS}),
    (hc.conv2d_backward_weight, {"x": IMAGE, "dy": np.zeros((1, 4, 6, 6), np.float32), "size": 3}),
    (hc.attention, {"q": X[None], "k": X[None], "v": X[None]}),
    (hc.kl_divergence, {"logits": X, "changed": X}),
    (hc.error, {"w": W, "q": Q}),
    (hc.prune, {"w": W, "pattern": "2:4"}),
    (hc.prune_mask, {"w": W, "pattern": "50%"}),
    (hc.permute_channels, {"w": W, "pattern": "2:4"}),
    (hc.encode_bitmap, {"a": W}),
    (hc.prepack, {"w": Q}),
    (hc.format, {"text": "int8"}),
    (hc.Int, {}),
    (hc.VSQ, {}),
    (hc.Affine, {}),
    (hc.MX, {"element": "fp4"}),
    (hc.hardware.count, {"network": "digits"}),
    (hc.hardware.roofline, {"network": "digits", "device": "a100-sxm-80gb"}),
    (ptq.gptq, {"w": W, "h": X.T @ X, "format": "int4"}),
    (hc.study, {"weights": W, "formats": ["int4"]}),
]


@pytest.mark.parametrize("function, given", CALLS, ids=lambda one: getattr(one, "__name__", ""))
def test_errors_name_a_parameter(
    function: Callable[..., Any], given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a text may be the name of a file to write
    parameters = inspect.signature(function).parameters
    found: Counter[str] = Counter()
    for name in parameters:
        for value in BAD if name not in PASSED_ON else ():
            try:
                function(**{**given, name: value})
            except OSError:
                continue
            except Exception as error:
                assert isinstance(error, hc.ArgumentError), (name, value, error)
                assert error.argument is None or error.argument in parameters, (name, error)
                assert error.reason in REASONS
                found["named" if error.argument == name else "other"] += 1
    assert found["named"] >= max(5, found["other"]), found


@pytest.mark.parametrize(
    "message, argument, reason",
    [
        ("linear: x has shape (5,), expected two dimensions", "x", "shape"),
        ("interop.torch: load: x has dtype int64, expected floats", "x", "dtype"),
        ("quantize: axis 3 is out of range for an array with 2 dimensions", "axis", "axis"),
        ("conv2d: cells (rows) is 300, expected 1 to 256", "cells", "value"),
        ("conv2d: algorithm 'fft' refuses this convolution: it multiplies floats", "algorithm", "unsupported"),
        ("use: isa: there is no instruction set 'x'", "isa", "value"),
        ("linear: out shares memory with an input", "out", "memory"),
        ("matmul: b is quantized along axis (1,), its reduction axis is 0", "b", "axis"),
        ("quantize: w is on meta, expected the CPU", "w", "device"),
        ("conv2d: padding is 'has shape', expected 0 or more", "padding", "value"),
        ("linear: bias is 3, expected an array of dtype float32", "bias", "value"),
        ("a/b.json: hidden_size is 3, expected 4", None, "file"),
        ("study: tensor 'fc': w has nan at index (0, 0)", None, "value"),
        ("matmul: both operands are compressed", None, "value"),
    ],
)
def test_messages_are_read(message: str, argument: str | None, reason: str) -> None:
    error = pickle.loads(pickle.dumps(WrongValue(message)))
    assert (error.argument, error.reason, str(error)) == (argument, reason, message)


def test_errors_are_the_built_in_ones() -> None:
    with pytest.raises(TypeError) as caught:
        hc.linear(X.astype(int), Q)
    assert isinstance(caught.value, hc.ArgumentError) and type(caught.value) is WrongType
    assert (caught.value.argument, caught.value.reason) == ("x", "dtype")
