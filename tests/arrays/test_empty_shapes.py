"""Arrays without values, with any number of rows or columns: a result or an error message, at once."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from common import FORMATS, HANG, write_raw

import heterocompute as hc
from heterocompute import reference

SHAPES = [(2**40, 0), (3, 2**50, 0), (0, 2**59), (2**40, 0, 3), (0, 2**40, 2), (2**20, 2**20, 0)]


def grants_any_memory() -> bool:
    """Tell whether the system overcommits memory (and then kills the process that uses it)."""
    try:
        return Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "1"
    except OSError:
        return False


@pytest.mark.skipif(grants_any_memory(), reason="no allocation fails here")
def test_huge_arrays_without_values_are_done_at_once() -> None:
    code = f"""
import numpy as np, heterocompute as hc
for shape in {SHAPES}:
    w = np.empty(shape, np.float32)
    for axis in range(w.ndim):
        for text in ("int8", "int4-g32-f16", "vsq4-g16-s4-tensor", "cb4-tensor", "mxfp4", "2:4", "int8+2:4"):
            for call in (
                lambda: hc.quantize(w, text, axis=axis).dequantize(),
                lambda: hc.fake_quantize(w, text, axis=axis),
                lambda: hc.quantize(w, text, axis=axis, clip="octav"),
                lambda: hc.linear(w, hc.quantize(np.ones((2, w.shape[-1]), np.float32), text), activations="int8"),
                lambda: hc.study(w, formats=[text]),
                lambda: hc.quantize(w, text, axis=axis, clip="search"),
                lambda: hc.quantize(w, text, axis=axis).codes(),
                lambda: hc.quantize(w, text, axis=axis).view_ml_dtypes(),
                lambda: hc.code_storage(hc.quantize(w, text, axis=axis)),
            ):
                try:
                    call()
                except (MemoryError, TypeError, ValueError) as error:
                    assert str(error)
images = np.empty((2**29, 0, 2**29), np.float32)
for a, accumulator in ((images, "fp32"), (images.view(np.int32), "int32")):
    assert hc.emulate.matmul(a, a.swapaxes(-1, -2), accumulator=accumulator).shape == (2**29, 0, 0)
for text in ("int8", "cb4-tensor", "nf4-g64", "mxfp4"):
    w = np.empty((0, 2**40), np.float32)
    assert hc.quantize(w, text, clip=None if text[0] in "cm" else 0.5).shape == w.shape
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG)


@pytest.mark.sweep(every=0)
def test_a_file_with_a_huge_empty_tensor_is_read_and_quantized(tmp_path) -> None:
    path = str(tmp_path / "empty.safetensors")
    write_raw(path, {"w": {"dtype": "F32", "shape": [2**40, 0], "data_offsets": [0, 0]}})
    for command in (["inspect", path], ["quantize", path, path + ".out", "--format", "int4-g32"], ["study", path]):
        done = subprocess.run(
            [sys.executable, "-m", "heterocompute", *command], capture_output=True, text=True, timeout=HANG
        )
        assert done.returncode in (0, 1) and "Traceback" not in done.stderr
        assert done.returncode == 0 or done.stderr.splitlines()[-1].startswith("heterocompute ")


@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=3)
def test_rows_without_values_store_zeros(text: str) -> None:
    q = hc.quantize(np.empty((3, 0), np.float32), text)
    defined = reference.quantize(np.empty((3, 0)), hc.format(text), -1)
    for name, part in q.components.items():
        assert part.tobytes() == np.asarray(defined[name]).tobytes()
        assert not len(part.shape) or part.shape[0] != 3 or not np.any(part.view(np.uint8))


@pytest.mark.parametrize("activations", [None, "int8", "mxfp4", "2:4"])
@pytest.mark.parametrize("weights", ["int8", "vsq4-g16-s4", "cb4", "int8+2:4", None])
def test_a_product_over_no_columns_is_zero_and_the_bias(weights: str | None, activations: str | None) -> None:
    bias = np.array([1.5, -2.0, -0.0], np.float32)
    for m, out in itertools.product((1, 8, 9), (None, np.full((4, 20), 7, np.float32)[:, ::2])):
        x, w = np.empty((m, 0), np.float32), np.empty((3, 0), np.float32)
        q = hc.quantize(w, weights) if weights else w
        target = None if out is None else np.full((m, 3), 7, np.float32)
        y = hc.linear(x, q, bias, activations=activations, out=target)
        assert (y == np.broadcast_to([1.5, -2.0, 0.0], (m, 3))).all() and not np.signbit(y[:, 2]).any()
    assert hc.matmul(np.empty((2, 0, 5), np.float32), np.empty((5, 3), np.float32)).shape == (2, 0, 3)


def test_functions_of_layers_and_gradients_have_results_without_values() -> None:
    def zeros(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.float32)

    bias = np.float32([1, -2, 3])
    for x, cosine in (
        (zeros(3, 0, 2, 8), zeros(1, 1, 4)),
        (zeros(0, 8), zeros(4)),
        (zeros(5, 0, 1, 8), zeros(0, 1, 4)),
    ):
        assert hc.layers.rope(x, cosine, cosine).shape == x.shape
    for shape in ((1, 0, 3, 4), (1, 2, 3, 0), (0, 2, 3, 4)):
        assert hc.attention(zeros(*shape), zeros(*shape), zeros(*shape)).shape == shape
    assert hc.conv2d_backward_input(zeros(1, 3, 3, 3), zeros(3, 0, 2, 2), 4).shape == (1, 0, 4, 4)
    for text in ("cb2-g5", "cb4-g64-tensor", "cb8-d2"):
        q = hc.quantize(zeros(0, 5), text)
        assert hc.codebook_step(q, hc.codebook_gradient(zeros(0, 5), q), 0.1) == q
    for text in ("int8-asym", "int4-g16", "vsq4-g16-s4", "log4-1", "affine4"):
        for emulate in ("int32", "fp32"):
            if hc.emulate.accepts(emulate, "int8" if text[:3] != "log" else text, text):
                for activations in ("int8", "int4-asym", "vsq4-g16-s4") if text[:3] != "log" else (text,):
                    y = hc.emulate.linear(zeros(2, 0), hc.quantize(zeros(3, 0), text), bias, activations, emulate)
                    assert (y == bias).all()
                    w = hc.quantize(np.ones((3, 2, 2, 2), np.float32), text, axis=(2, 3, 1))
                    images = zeros(1, 2, 0, 4)
                    y = hc.emulate.conv2d(images, w, bias, padding=1, activations=activations, emulate=emulate)
                    assert np.array_equal(y, hc.conv2d(images, w, bias, padding=1, activations=activations))


def test_windows_larger_than_the_image_are_done_at_once() -> None:
    code = """
import numpy as np, heterocompute as hc
for size in (10**6, (10**6, 10**6)):
    assert hc.layers.avg_pool2d(np.ones((1, 1, 3, 3), np.float32), size).shape == (1, 1, 0, 0)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG)
