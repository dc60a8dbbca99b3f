"""Convolutions of plain arguments use the direct path, with the bits and errors of the general path."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
from common import reals, same_bits

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.products import conv


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether each convolution used the direct path."""
    taken: list[bool] = []
    real = core.direct_conv2d

    def noted(*arguments: Any) -> Any:
        answer = real(*arguments)
        taken.append(answer is not None)
        return answer

    monkeypatch.setattr(conv._core, "direct_conv2d", noted)
    return taken


def general(monkeypatch: pytest.MonkeyPatch, call: Any) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(conv, "DIRECT", frozenset())
        return call()


def of_either(rng: np.random.Generator, value: int) -> Any:
    return value if rng.integers(2) else (value, int(rng.integers(1, 3)))


@pytest.mark.parametrize("seed", range(60))
def test_drawn_convolutions_have_the_bits_of_the_general_path(
    seed: int, direct: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    groups, each, filters = (int(n) for n in rng.integers(1, 5, 3))
    kernel = tuple(int(n) for n in rng.integers(1, 4, 2))
    channels, layout = groups * each, str(rng.choice(["NCHW", "NHWC"]))
    size = tuple(int(n) for n in rng.integers(4, 9, 2))
    shape = (2, channels, *size) if layout == "NCHW" else (2, *size, channels)
    x = reals(shape, seed, rng.choice([np.float16, np.float32]))
    if rng.integers(2):
        x = np.repeat(x, 2, axis=1)[:, ::2]
    w = reals((groups * filters, each, *kernel), seed + 1)
    fmt = rng.choice([None, "int8", "vsq4-g16-s4", "fp8_e4m3fn", "int8+2:4"])
    operand = w if fmt is None else hc.quantize(w, str(fmt), axis=(2, 3, 1))
    pad = of_either(rng, int(rng.integers(0, 3)))
    options = {
        "bias": reals((groups * filters,), 5) if rng.integers(2) else None,
        "stride": of_either(rng, int(rng.integers(1, 3))),
        "padding": ((1, 0), (0, 2)) if rng.integers(4) == 0 else pad,
        "dilation": 1 if rng.integers(2) else (1, 1),
        "groups": groups,
        "activations": "int8" if fmt is not None and rng.integers(2) else None,
        "layout": layout,
        "relu": bool(rng.integers(2)),
        "accuracy": str(rng.choice(["default", "strict"])),
    }
    wanted = general(monkeypatch, lambda: hc.conv2d(x, operand, **options))
    found = hc.conv2d(x, operand, **options)
    assert direct[-1:] == [True]
    assert found.shape == wanted.shape and found.flags.c_contiguous and same_bits(found, wanted)
    out = np.full(wanted.shape, np.nan, np.float32)
    assert hc.conv2d(x, operand, **options, out=out) is out and same_bits(out, wanted)
    assert direct == [True, True]
    again = reals(x.shape, seed + 2)  # the choice is known now
    wanted = general(monkeypatch, lambda: hc.conv2d(again, operand, **options))
    assert same_bits(hc.conv2d(again, operand, **options), wanted)


X, W = reals((1, 4, 6, 6), 1), reals((8, 4, 3, 3), 2)


@pytest.mark.parametrize(
    "change",
    [
        {"stride": True}, {"stride": 0}, {"stride": (1, 0)}, {"stride": 1.0}, {"stride": 2**40}, {"stride": (1, 1, 1)},
        {"stride": "1"}, {"stride": None}, {"padding": -1}, {"padding": True}, {"padding": (1, True)},
        {"padding": "around"}, {"padding": ((1, 1), (1, -1))}, {"padding": None},
        {"dilation": 9}, {"dilation": 0}, {"dilation": False}, {"groups": 3}, {"groups": 0}, {"groups": True},
        {"groups": 2}, {"layout": "NWHC"}, {"layout": "NHWC"}, {"layout": None}, {"algorithm": "fastest"},
        {"algorithm": None}, {"algorithm": "depthwise"}, {"algorithm": "direct\0"}, {"accuracy": "high"},
        {"accuracy": 1}, {"relu": 1}, {"relu": None}, {"relu": "yes"}, {"bias": np.ones(7, np.float32)},
        {"bias": np.ones((8, 1), np.float32)}, {"bias": "none"}, {"activations": "int99"},
        {"activations": 8}, {"out": np.empty((1, 8, 4, 4))}, {"out": np.empty((1, 8, 4, 5), np.float32)},
        {"out": []}, {"x": X[0]}, {"x": X.astype(np.int32)}, {"w": W[0]}, {"w": W.astype(np.complex64)},
        {"x": X[:, :3]}, {"w": hc.quantize(W, "int8", axis=1)},
        {"x": np.full_like(X, np.nan), "w": hc.quantize(W, "int8", axis=(2, 3, 1)), "activations": "int8"},
    ],
)  # fmt: skip
def test_errors_are_those_of_the_general_path(change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"x": X, "w": W, **change}
    with pytest.raises((ValueError, TypeError)) as wanted:
        general(monkeypatch, lambda: hc.conv2d(**arguments))
    for _ in range(2):
        with pytest.raises(type(wanted.value)) as found:
            hc.conv2d(**arguments)
        assert str(found.value) == str(wanted.value)


class Mine(np.ndarray[Any, Any]):
    pass


@pytest.mark.parametrize(
    "change",
    [
        {"x": X.view(Mine)}, {"w": W.view(Mine)}, {"padding": np.int64(1)}, {"padding": [1, 1]}, {"padding": "same"},
        {"stride": np.int8(1)}, {"relu": np.False_}, {"x": X.astype(">f4")}, {"padding": ((1, 1), 1)},
        {"bias": np.zeros(8)},
    ],
)  # fmt: skip
def test_other_arguments_use_the_general_path(change: dict[str, Any], direct: list[bool]) -> None:
    wanted = hc.conv2d(X, W, padding=1)
    assert direct == [True]
    arguments = {"x": X, "w": W, "padding": 1, **change}
    assert same_bits(hc.conv2d(**arguments), wanted)
    assert True not in direct[1:]


def test_a_result_shares_no_memory_with_an_input() -> None:
    memory = np.zeros(X.size + 8 * 36, np.float32)
    x = memory[: X.size].reshape(X.shape)
    out = memory[X.size - 1 : X.size - 1 + 8 * 36].reshape(1, 8, 6, 6)
    for _ in range(2):
        with pytest.raises(ValueError, match="out shares memory with an input"):
            hc.conv2d(x, W, padding=1, out=out)
    bias = out[0, 0, 0, :6]
    with pytest.raises(ValueError, match="out shares memory with an input"):
        hc.conv2d(X, W[:6].copy(), bias, padding=1, out=memory[X.size - 1 : X.size - 1 + 6 * 36].reshape(1, 6, 6, 6))


def test_large_results_begin_at_a_cache_line() -> None:
    x = reals((1, 8, 192, 192), 3)
    w = reals((8, 8, 1, 1), 4)
    for layout in ("NCHW", "NHWC"):
        found = hc.conv2d(x if layout == "NCHW" else x.transpose(0, 2, 3, 1), w, layout=layout)
        assert found.ctypes.data % 64 == 0 and found.flags.c_contiguous and found.flags.writeable


def test_no_call_keeps_memory() -> None:
    q, bad = hc.quantize(W, "int8", axis=(2, 3, 1)), np.full_like(X, np.nan)
    held = [X, W, q, bad]

    def calls(n: int) -> None:
        for _ in range(n):
            hc.conv2d(X, W, padding=1)
            hc.conv2d(X, q, activations="int8")

    calls(3)
    gc.collect()
    counts = [sys.getrefcount(one) for one in held]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        calls(200)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 100_000  # less than half of the results
    finally:
        tracemalloc.stop()
    for _ in range(20):
        with pytest.raises(ValueError, match="x has nan"):
            hc.conv2d(bad, q, activations="int8")
    gc.collect()
    assert counts == [sys.getrefcount(one) for one in held]


def test_a_forced_path_and_one_order_reach_the_direct_path(direct: list[bool]) -> None:
    x, w = reals((2, 16, 12, 12), 1), reals((32, 16, 3, 3), 2)
    plain, strict = hc.conv2d(x, w, padding=1), hc.conv2d(x, w, padding=1, accuracy="strict")
    assert not same_bits(plain, strict)
    with hc.use(order="one"):
        assert same_bits(hc.conv2d(x, w, padding=1), strict)
    with hc.use(isa="scalar"):
        assert same_bits(hc.conv2d(x, w, padding=1), plain)
    assert same_bits(hc.conv2d(x, w, padding=1), plain) and all(direct)
