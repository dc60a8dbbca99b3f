"""Streams of other libraries: who waits for whom, what a graph allows, how long they live; threads and devices."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import driven
import numpy as np
import pytest
from driven import Lent

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.arrays.device import DeviceArray
from heterocompute.base.runtime import run_on


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[driven.Driver]:
    yield from driven.without_leaks(monkeypatch)


def values(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("library", "stream", "waits"), [("cupy", 1, 0), ("cupy", 7, 1), ("jax", 1, 0)])
def test_the_first_product_stays_in_its_library(
    library: str, stream: int, waits: int, monkeypatch: pytest.MonkeyPatch, driver: driven.Driver
) -> None:
    cp = driven.StandIn(stream)
    monkeypatch.setitem(sys.modules, library, cp)
    w, x = values(64, 64), values(64, 64)[::-1].copy()
    q = hc.quantize(cp.asarray(w), "vsq4-g16-s4")
    there, before = cp.asarray(x), driver.counts()[3]
    y = hc.linear(there, q, activations="int8")
    assert isinstance(y, driven.Imported) and cp.taken == [stream]
    assert driver.counts()[3] - before == waits  # for the library's own stream
    assert y.get().tobytes() == hc.linear(x, q.to("cpu"), activations="int8").tobytes()


def test_a_stream_that_is_captured_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    x, q = Lent(values(5, 64)), hc.quantize(values(7, 64), "int8").to("cuda")
    out, there = DeviceArray.empty((5, 7), np.float32), hc.quantize(Lent(values(5, 7)), "int8")
    monkeypatch.setenv("FAKE_DRIVER_CAPTURES", "1")
    with pytest.raises(RuntimeError, match="cuda: the stream is captured into a graph, and this call waits for it"):
        core.quantize(run_on(0, 1), out.view, None, there._packed())
    with pytest.raises(RuntimeError, match="operation not permitted when stream is capturing"):
        hc.linear(x, q)
    hc.linear(x, q, out=out)
    monkeypatch.delenv("FAKE_DRIVER_CAPTURES")
    assert out.to_numpy().tobytes() == hc.linear(values(5, 64), q.to("cpu")).tobytes()


def test_a_graph_takes_no_memory_for_what_other_calls_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = hc.quantize(values(3, 8), "int8").to("cuda")
    for rows in range(256):  # each leaves a guess of its workspace, in most of the 256 places
        hc.linear(DeviceArray.empty((rows // 16 + 1, rows % 16 + 1, 8), np.float32), weights, activations="int8")
    ready = [(Lent(values(rows, 8)), DeviceArray.empty((rows, 3), np.float32)) for rows in range(1, 9)]
    monkeypatch.setenv("FAKE_DRIVER_CAPTURES", "1")
    for x, out in ready:
        hc.linear(x, weights, out=out)
    monkeypatch.delenv("FAKE_DRIVER_CAPTURES")


def test_streams_that_differ_are_waited_for(driver: driven.Driver) -> None:
    x, w, bias = values(5, 64), values(7, 64), values(7)
    q = hc.quantize(w, "int8")
    there, lent = q.to("cuda"), Lent(x, stream=2)
    before = driver.counts()[3]
    y = hc.linear(lent, there)
    assert y.stream == y.__cuda_array_interface__["stream"] == 2
    assert driver.counts()[3] - before == 2  # for the weights, and before their memory may be freed
    y.__dlpack__(stream=2)
    assert driver.counts()[3] - before == 2
    y.__dlpack__(stream=1)
    assert driver.counts()[3] - before == 3
    assert y.to_numpy().tobytes() == hc.linear(x, q).tobytes()
    added = hc.linear(Lent(x), there, Lent(bias, stream=7))
    assert added.to_numpy().tobytes() == hc.linear(x, q, bias).tobytes()


def test_streams_live_as_long_as_the_memory_that_is_freed_on_them(
    monkeypatch: pytest.MonkeyPatch, driver: driven.Driver
) -> None:
    cp = driven.StandIn()
    monkeypatch.setitem(sys.modules, "cupy", cp)
    x, w = values(5, 64), values(7, 64)

    def work() -> tuple[Any, Any]:
        with cp.cuda.Stream() as stream:
            q = hc.quantize(cp.asarray(w), "vsq4-g16-s4")
            y = hc.linear(cp.asarray(x), q, activations="int8")
            assert q.stream == y.__cuda_array_interface__["stream"] == stream.ptr
        return q, y

    q, y = work()
    gc.collect()
    assert not cp.destroyed
    wanted = hc.linear(x, hc.quantize(w, "vsq4-g16-s4"), activations="int8")
    assert y.get().tobytes() == wanted.tobytes()
    rounded = hc.fake_quantize(q.dequantize(), "int8")
    del q, y
    gc.collect()
    assert not cp.destroyed and rounded.stream == 77
    del rounded
    gc.collect()
    assert cp.destroyed and driver.fault() == ""
    other = hc.fake_quantize(Lent(x, stream=99), "int8")  # of a library that says no more
    assert other.stream == 1
    lent: Any = Lent(x, stream=99)
    lent.stream = stream = cp.cuda.Stream()  # as Numba's arrays have
    rounded, ended = hc.fake_quantize(lent, "int8"), weakref.ref(stream)
    core.cuda_wait(0, 99)  # before the memory is freed on another stream
    del lent, stream
    gc.collect()
    assert ended() is not None and rounded.stream == 99
    del rounded
    gc.collect()
    assert ended() is None


def test_threads_compute_at_once_each_with_its_own_backend() -> None:
    x, w = values(40, 64), values(7, 64)
    q = hc.quantize(w, "vsq4-g16-s4")
    there, wanted = q.to("cuda"), hc.linear(x, q, activations="int8").tobytes()

    def work(number: int) -> bytes:
        with hc.use(backend="cuda" if number % 2 else "cpu", threads=1):
            assert ("on cuda:0" in str(hc.explain(hc.linear, x, q))) == bool(number % 2)
            given = there if number % 2 else q
            return b"".join({hc.linear(x, given, activations="int8").tobytes() for _ in range(5)})

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(work, range(8))) == {wanted}


def test_the_second_device_computes_too() -> None:
    x, w = values(5, 64), values(7, 64)
    q = hc.quantize(w, "vsq4-g16-s4")
    y = hc.linear(Lent(x, 1), q.to("cuda:1"), activations="int8")
    assert y.device == "cuda:1"
    assert y.to_numpy().tobytes() == hc.linear(x, q, activations="int8").tobytes()
