"""Odd or hostile arguments: subclasses, sizes beyond the machine's memory, NaN in activations, invalid out=."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from typing import Any

import numpy as np
import pytest
from common import bad_argument, reals, same_bits

import heterocompute as hc
from heterocompute import _heterocompute as core

HUGE = 2**70


class Liar(np.ndarray[Any, Any]):
    """An array whose attributes do not describe its memory."""

    @property  # type: ignore[misc]
    def shape(self) -> tuple[int, ...]:
        return (1, 2)


def test_of_a_subclass_only_the_memory_counts() -> None:
    x = reals((10, 32))
    q = hc.quantize(x, "int8")
    for other in (x.view(Liar), np.ma.masked_array(x)):
        assert hc.quantize(other, "int8") == q
        assert same_bits(hc.fake_quantize(other, "int8"), q.dequantize())
        assert same_bits(hc.matmul(other, q.T), hc.matmul(x, q.T))
        assert type(hc.linear(other, x)) is np.ndarray


def test_masked_values_are_refused(tmp_path: Any) -> None:
    x = reals((10, 32))
    q, masked = hc.quantize(x, "int8"), np.ma.masked_array(x, x > 0)
    for call in (
        lambda: hc.quantize(masked, "int8"),
        lambda: hc.linear(masked, q, activations="int8"),
        lambda: hc.matmul(q, masked.T),
        lambda: masked @ q.T,
        lambda: hc.conv2d(masked[None, None], x[None, None]),
        lambda: hc.error(x, masked),
        lambda: hc.save(tmp_path / "x.safetensors", {"x": masked}),
    ):
        with pytest.raises(TypeError, match="masked array with masked values"):
            call()


@pytest.mark.parametrize("blas", ["openblas", "own"])
def test_a_masked_out_is_written_whole(blas: str) -> None:
    x, bias = reals((10, 32)), reals((10,), 1)
    out = np.ma.masked_array(np.zeros((10, 10), np.float32), np.eye(10) > 0)
    with hc.use(blas=blas):
        assert hc.linear(x, x, bias=bias, out=out) is out
        assert same_bits(np.asarray(out), hc.linear(x, x, bias=bias))


def test_core_refuses_codes_of_another_shape() -> None:
    small = hc.quantize(reals((1, 2)), "int8")
    with bad_argument(ValueError, "x", "shape"):
        core.quantize((0, 1), reals((10, 32)), None, small._packed())


@pytest.mark.parametrize("shape", [(HUGE, 1), (2**62, 4), (1,) * 33])
def test_sizes_beyond_the_machine_are_a_value_error(shape: tuple[int, ...]) -> None:
    components = dict(hc.quantize(reals((2, 16)), "int8").components)
    with pytest.raises(ValueError, match="overflow|dimensions"):
        hc.QuantizedArray(components, hc.Int(), shape, (1,))


def test_33_dimensions_are_a_value_error() -> None:
    x = np.ones((1,) * 33, np.float32)
    for call in (lambda: hc.quantize(x, "int8"), lambda: hc.fake_quantize(x, "int8"), lambda: hc.error(x, x)):
        with bad_argument(ValueError, "w", "shape"):
            call()


def test_array_of_wrong_parts() -> None:
    components = dict(hc.quantize(reals((2, 16)), "int8").components)
    with bad_argument(TypeError, None, "type", "component codes is list"):
        hc.QuantizedArray({**components, "codes": [1]}, hc.Int(), (2, 16), (1,))  # type: ignore[dict-item]
    with bad_argument(TypeError, "format", "type"):
        hc.QuantizedArray(components, "int8", (2, 16), (1,))  # type: ignore[arg-type]


@pytest.mark.parametrize("activations", ["int8", "vsq4-g16-s4-tensor"])
def test_nan_in_activations_has_the_callers_name_and_index(activations: str) -> None:
    x, w = reals((10, 32)), reals((6, 32), 1)
    x[3, 4] = np.nan
    q = hc.quantize(w, "int8")
    for call, place in (
        (lambda: hc.matmul(x, q.T, activations=activations), r"matmul: a has nan at index \(3, 4\)"),
        (lambda: hc.matmul(q, x.T, activations=activations), r"matmul: b has nan at index \(4, 3\)"),
        (lambda: hc.matmul(q, x[3], activations=activations), r"matmul: b has nan at index \(4,\)"),
        (lambda: hc.linear(x[3], q, activations=activations), r"linear: x has nan at index \(4,\)"),
        (lambda: hc.linear(x, w, activations=activations), r"linear: x has nan at index \(3, 4\)"),
    ):
        with pytest.raises(ValueError, match=place):
            call()


@pytest.mark.parametrize("activations", ["int8", "vsq4-g16", "int3-g16"])
def test_rows_are_the_same_alone_and_among_others(activations: str) -> None:
    """Activations are quantized in blocks of rows; the last may be short, and one row takes another path."""
    x = np.tile(reals((1, 1 << 19)), (21, 1))
    q = hc.quantize(reals((3, 1 << 19), 1), "vsq4-g16")
    together = hc.linear(x, q, activations=activations)
    assert same_bits(together, np.tile(hc.linear(x[:1], q, activations=activations), (21, 1)))


@pytest.mark.parametrize("packed", [False, True])
def test_nan_in_an_image_has_the_callers_index(packed: bool) -> None:
    x, w = reals((2, 6, 4, 5)), reals((4, 3, 2, 2), 1)
    x[1, 4, 0, 3] = x[1, 2, 3, 1] = np.inf
    filters = hc.quantize(w, "int8", axis=(2, 3, 1)) if packed else w
    with bad_argument(ValueError, "x", "value", r"at index \(1, 2, 3, 1\)"):
        hc.conv2d(x, filters, groups=2, activations="int8")
    nhwc = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    with bad_argument(ValueError, "x", "value", r"at index \(1, 0, 3, 4\)"):
        hc.conv2d(nhwc, filters, groups=2, activations="int8", layout="NHWC")


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"stride": HUGE}, ValueError),
        ({"padding": (0, HUGE)}, ValueError),
        ({"dilation": HUGE, "padding": "same"}, ValueError),
        ({"groups": HUGE}, ValueError),
        ({"groups": (1, 2)}, TypeError),
        ({"groups": True}, TypeError),
    ],
)
def test_conv2d_numbers_out_of_range(options: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=f"conv2d: .*{next(iter(options))}"):
        hc.conv2d(reals((1, 4, 5, 5)), reals((6, 4, 3, 3)), **options)


def test_error_of_what_is_not_finite_or_far_apart() -> None:
    x = np.array([1.0, 2.0])
    for bad in (np.nan, np.inf):
        for w, q in ((x, x * [1, bad]), (x * [1, bad], x)):
            found = hc.error(w, q)
            assert math.isnan(found.sqnr_db) and math.isnan(found.cosine) and not math.isfinite(found.max_abs)
    assert hc.error(np.array([1e-150]), np.array([1e150])).sqnr_db == pytest.approx(-6000)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.sweep(every=0)
def test_a_child_forked_while_threads_multiply_can_multiply() -> None:
    x, q = reals((64, 256)), hc.quantize(reals((200, 256), 1), "vsq4-g16-s4")
    small = hc.quantize(reals((16, 16)), "vsq4-g16-s4")
    wanted = hc.linear(x, q, activations="int8")
    done = threading.Event()

    def multiply() -> None:
        while not done.is_set():
            with hc.use(threads=2):
                hc.linear(x, q, activations="int8")

    def choose() -> None:  # `use` is evaluated in each call: a lock that is held there stays locked in the child
        while not done.is_set():
            with hc.use(threads=2):
                hc.linear(x[:1, :16], small)

    threads = [threading.Thread(target=task) for task in (multiply, choose, choose)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(60)  # ends it, should it hang
                with hc.use(threads=2):
                    os._exit(0 if same_bits(hc.linear(x, q, activations="int8"), wanted) else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        done.set()
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join()
