"""Signals stop long calls of the C core; arrays that change meanwhile crash nothing; messages are printable."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import HANG

import heterocompute as hc

CALLS: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "codebooks of pairs, one row": lambda x: hc.quantize(x.reshape(1, -1), "cb8-d2"),
    "one codebook of all": lambda x: hc.quantize(x, "cb8-tensor"),
    "codebooks of rows": lambda x: hc.quantize(x, "cb8"),
    "blocks": lambda x: hc.quantize(np.tile(x, (16, 1)), "q3_k"),
    "attention": lambda x: hc.attention(*[x.reshape(1, 8, -1, 64)] * 3),
    "systolic arrays": lambda x: hc.hardware.systolic.simulate(x, x.T, rows=32, columns=32),
    "permutations": lambda x: hc.permute_channels(x, "2:4"),
}


class Alarm(Exception):
    """Raised by the handler of a signal."""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.sweep(every=3)
def test_a_signal_stops_a_long_call(name: str, threads: int) -> None:
    x = np.random.default_rng(0).standard_normal((1024, 2048), dtype=np.float32)
    came: list[float] = []

    def handler(number: int, frame: object) -> None:
        came.append(time.perf_counter())
        hc.linear(x[:1, :8], x[:1, :8])  # a handler may call the core
        raise Alarm

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with hc.use(threads=threads):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Alarm):
                for _ in range(1000):
                    CALLS[name](x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.perf_counter() - came[0] < HANG
    q = hc.quantize(x[:4], "cb4")
    assert np.array_equal(hc.quantize(x[:4].copy(), "cb4").dequantize(), q.dequantize())


@pytest.mark.sweep(every=0)
def test_a_handler_that_returns_lets_the_call_go_on() -> None:
    x, came = np.random.default_rng(0).standard_normal((1, 1 << 15), dtype=np.float32), []
    wanted = hc.quantize(x, "cb8-d2").components
    before = signal.signal(signal.SIGINT, lambda *_: came.append(0))
    timer = threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        timer.start()
        found = hc.quantize(x, "cb8-d2").components
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert came and all(np.array_equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("part", ["indices", "indptr"])
@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.sweep(every=8)
def test_a_sparse_matrix_that_changes_meanwhile_is_right_or_refused(kind: str, part: str, rows: int) -> None:
    code = f"""
import sys, threading, time, numpy as np, heterocompute as hc, scipy.sparse as sp
sys.setswitchinterval(1e-5)
c = sp.random(300, 4000, .05, format={kind!r}, dtype="f", random_state=0)
x, target = np.ones(({rows}, 4000), np.float32), c.{part}
good, end = target.copy(), time.time() + 0.7
def spoil():
    for i in range(0, 10**9, 7):
        target[i % len(good)] = 2**31 - 1
        target[i % len(good)] = good[i % len(good)]
        if time.time() > end: return
thread = threading.Thread(target=spoil, daemon=True)
thread.start()
while time.time() < end:
    try: hc.linear(x, c)
    except ValueError: pass
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["BLAS", "CUDA_DRIVER"])
@pytest.mark.parametrize("value", [b"/x/\x1b[31mlib.so", b"/x/a\nb", b"/x/\xff\xfe", b"/x/" + b"y" * 3000])
@pytest.mark.sweep(every=4)
def test_paths_of_the_environment_are_printable_in_messages(name: str, value: bytes) -> None:
    code = """
import numpy as np, heterocompute as hc
x = np.ones((512, 512), np.float32)
try: hc.matmul(x, x)
except OSError as error: print("OSError", ascii(str(error)), str(error).isprintable() and len(str(error)) < 800)
else: print(ascii(hc.show_config(mode="dicts")["cuda"]), hc.show_config(mode="dicts")["cuda"].isprintable())
"""
    environment = {**os.environb, f"HETEROCOMPUTE_{name}".encode(): value}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=HANG)
    assert done.stdout.endswith(" True\n"), done.stdout + done.stderr
    assert (name == "BLAS") == done.stdout.startswith("OSError"), done.stdout


def test_a_structured_dtype_is_refused_however_deep() -> None:
    deep: Any = "<f4"
    for _ in range(900):
        deep = [("a", deep)]

    class Nested:
        __array_interface__ = {"shape": (1,), "typestr": "|V4", "descr": deep, "version": 3, "data": (8, True)}

    for call in (lambda: hc.quantize(Nested(), "int8"), lambda: hc.encode_bitmap(Nested())):
        with pytest.raises(TypeError, match="has a structured dtype, expected an array of floats"):
            call()


def test_a_space_of_numbers_without_order_is_refused() -> None:
    from heterocompute import hardware as hw

    for value in (np.nan, np.inf, np.float32("nan")):
        with pytest.raises(ValueError, match="explore: space has (nan|inf|np.*nan.*) for vector, expected finite"):
            hw.explore({"vector": [value, 16]}, "digits")
    study = [{"format": text, "activations": text, "accuracy": n} for text, n in (("int8", np.nan), ("int4", 0.5))]
    found = hw.explore({"format": ["int8", "int4"]}, "digits", "-accuracy", study=study)
    assert found.best["format"] == "int4"
