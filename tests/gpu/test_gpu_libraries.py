"""Arrays of CuPy, JAX and Numba on a GPU, with the real libraries: runs where there is a GPU, skips elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute.arrays.device import DeviceArray
from heterocompute.base.devices import has_device

if not has_device():
    pytest.skip("no GPU", allow_module_level=True)

FORMATS = ["int8", "vsq4-g16-s4", "int4-g32-f16", "nf4-g64", "mxfp4", "nvfp4", "fp8_e4m3fn-row", "q8_0", "int8+2:4"]
RNG = np.random.default_rng(0)
W, X, BIAS = (RNG.standard_normal(shape, dtype=np.float32) for shape in ((96, 256), (40, 256), (96,)))


def same(found: Any, wanted: Any) -> None:
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    assert found.tobytes() == wanted.tobytes()


def test_numpy_arrays_are_copied_there_and_back() -> None:
    q = hc.quantize(W, "vsq4-g16-s4")
    with hc.use(backend="cuda"):
        same(hc.linear(X, q.to("cuda"), activations="int8"), hc.linear(X, q, activations="int8"))


def test_a_value_that_is_not_a_number_is_refused() -> None:
    bad = W.copy()
    bad[3, 4] = np.nan
    with pytest.raises(ValueError, match=r"at index \(3, :\)"):
        hc.quantize(DeviceArray.from_numpy(bad), "int8")


@pytest.mark.parametrize("text", FORMATS)
def test_cupy_arrays_give_the_bits_of_the_cpu(text: str) -> None:
    cp = pytest.importorskip("cupy")
    w, x, q = cp.asarray(W), cp.asarray(X), hc.quantize(W, text)
    there = hc.quantize(w, text)
    for given in (x, x[:1], x[:8], x[:9]):
        y = hc.linear(given, there, cp.asarray(BIAS))
        assert isinstance(y, cp.ndarray)
        same(y.get(), hc.linear(given.get(), q, BIAS))
    out = cp.empty((40, 96), cp.float32)
    hc.linear(x, there, out=out)
    same(out.get(), hc.linear(X, q))
    same(hc.fake_quantize(x, text).get(), hc.fake_quantize(X, text))
    same(hc.fake_quantize(x[:, 64:192].T, text, 0).get(), hc.fake_quantize(X[:, 64:192].T, text, 0))


def test_the_stream_of_cupy_may_end_before_the_arrays() -> None:
    cp = pytest.importorskip("cupy")

    def made() -> Any:
        with cp.cuda.Stream(non_blocking=True):
            x = cp.asarray(X) * 1
            q = hc.quantize(cp.asarray(W), "int8")
            return q, hc.linear(x, q, activations="int8") + 0

    q, y = made()
    cp.cuda.runtime.deviceSynchronize()
    same(y.get(), hc.linear(X, hc.quantize(W, "int8"), activations="int8"))
    same(hc.linear(cp.asarray(X), q).get(), hc.linear(X, hc.quantize(W, "int8")))


def test_jax_arrays_give_the_bits_of_the_cpu() -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(X)
    if next(iter(x.devices())).platform != "gpu":
        pytest.skip("a JAX without a GPU")
    y = hc.linear(x, hc.quantize(jax.numpy.asarray(W), "vsq4-g16-s4"), activations="int8")
    assert isinstance(y, jax.Array)
    same(np.asarray(y), hc.linear(X, hc.quantize(W, "vsq4-g16-s4"), activations="int8"))


def test_numba_arrays_give_the_bits_of_the_cpu() -> None:
    cuda = pytest.importorskip("numba.cuda")
    y = hc.linear(cuda.to_device(X), hc.quantize(cuda.to_device(W), "int8"))
    same(cuda.as_cuda_array(y).copy_to_host(), hc.linear(X, hc.quantize(W, "int8")))
