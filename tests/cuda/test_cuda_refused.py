"""Every public function computes with arrays of a device, or says in one sentence what to do with them."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import driven
import numpy as np
import pytest
from driven import Lent, LentByDlpack

import heterocompute as hc
from heterocompute.arrays.device import DeviceArray, is_on_device

sys.path.append(str(Path(__file__).parents[1] / "base"))
from test_long_values import CALLS, W

LEND = {
    "interface": Lent,
    "DLPack": lambda array: LentByDlpack(array, {"f": 2, "i": 0, "u": 1, "b": 6}[array.dtype.kind]),
    "own": DeviceArray.from_numpy,
}
HOW = (".get()", ".cpu()", ".copy_to_host()", "to('cpu')", "jax.device_get", "use CuPy or torch", "or use torch",
       "expected all on one")  # fmt: skip
# Arguments that no function takes from a device, whose errors say that much, and calls that end before they are read.
ELSEWHERE = {"tune", "run_onnx", "save", "study_density", "ptq.accept"}


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Use the fake driver, whose memory ends the process if code of the host touches it."""
    driven.used(monkeypatch)
    monkeypatch.chdir(tmp_path)
    yield
    gc.collect()


def moved(value: Any, lend: Any) -> Any:
    """Return an argument with its arrays on the device, None if it has none."""
    if isinstance(value, dict):
        found = {key: moved(one, lend) for key, one in value.items()}
        return None if None in found.values() or not found else found
    if isinstance(value, list):
        several = [moved(one, lend) for one in value]
        return several if several and all(one is not None for one in several) else None
    if isinstance(value, hc.QuantizedArray):
        return value.to("cuda")
    return lend(value) if isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.size else None


@pytest.mark.parametrize("lend", LEND)
@pytest.mark.parametrize("name", [name for name in CALLS if name not in ELSEWHERE])
@pytest.mark.sweep(every=3)
def test_a_function_takes_arrays_of_a_device_or_says_what_to_do(name: str, lend: str) -> None:
    function, arguments = CALLS[name]
    there = {key: moved(value, LEND[lend]) for key, value in arguments.items()}
    there = {key: value for key, value in there.items() if value is not None}
    for some in [*({key: value} for key, value in there.items()), there] if len(there) > 1 else [there]:
        if not some:
            continue
        try:
            answer = function(**{**arguments, **some})
        except (NotImplementedError, TypeError) as error:
            assert any(how in str(error) for how in HOW) and "\n" not in str(error), error
        else:
            first = answer[0] if isinstance(answer, tuple) else answer
            assert is_on_device(first) or isinstance(first, hc.Explanation) or first.device == "cuda:0"


def test_other_arguments_are_refused_in_one_sentence() -> None:
    lent, own, q = Lent(W), DeviceArray.from_numpy(W), hc.quantize(W, "int8")
    there, ones = q.to("cuda"), np.ones(32, np.float32)
    eie = hc.encode_eie(np.ones((4, 32), np.float32), elements=4)
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: hc.quantize([lent, lent], "int8"), TypeError, "a list of 2, the first a Lent, expected one array"),
        (lambda: hc.quantize(LentByDlpack(W > 0, 6), "int8"), TypeError, "has dtype bool8, expected float16"),
        (lambda: hc.linear(lent, eie), NotImplementedError, "w is an EIEArray, which has no CUDA kernels"),
        (lambda: hc.linear(W, q, lent), TypeError, "linear: bias is a Lent on '0'"),
        (lambda: hc.linear(W, q, out=own), TypeError, "linear: out is a DeviceArray on 'cuda:0'"),
        (lambda: hc.prune(W, "2:4", scores=lent), TypeError, "prune: scores is a Lent"),
        (lambda: hc.quantize(W, "int4-g16", importance=lent), TypeError, "quantize: importance is a Lent"),
        (lambda: hc.ptq.Hessian(32).add(own), TypeError, r"Hessian: x is a DeviceArray .* pass .get\(\) of it"),
        (lambda: hc.ptq.Hessian(32).add(there), TypeError, r"Hessian: x is a QuantizedArray; take its to"),
        (lambda: hc.QuantizedArray(there.components, there.format, (8, 32), (1,)), TypeError, "component codes is a"),
        (lambda: hc.save("x.safetensors", {"w": own}), TypeError, r"tensor 'w' is a DeviceArray .* \.get\(\)"),
        (lambda: hc.save("x.safetensors", {"w": lent}), TypeError, "tensor 'w' is a Lent on '0'"),
        (lambda: hc.save("x.safetensors", {"w": there}), TypeError, r"an array is on a CUDA device, .* to\('cpu'\)"),
        (lambda: hc.layers.rms_norm(lent, ones), TypeError, "x is on cuda:0 and another argument on the CPU"),
        (lambda: hc.error(W, there), TypeError, r"error: q is a QuantizedArray .* pass .to\('cpu'\) of it"),
        (lambda: pickle.dumps(own), TypeError, r"pickle: the array is on cuda:0, .* to_numpy\(\)"),
        (lambda: copy.deepcopy(own), TypeError, r"copy: the array is on cuda:0, .* to_numpy\(\)"),
        (lambda: copy.deepcopy(there), TypeError, r"copy: the array is on a CUDA device, .* to\('cpu'\)"),
    ]
    for call, kind, sentence in cases:
        with pytest.raises(kind, match=sentence) as raised:
            call()
        assert "\n" not in str(raised.value)
    assert not list(Path().iterdir())
    assert copy.copy(own).to_numpy().tobytes() == W.tobytes() and copy.copy(there).to("cpu") == q


@pytest.mark.parametrize("text", ["int8", "int4-g32", "vsq4-g16-s4", "int8+2:4", "2:4"])
def test_rows_and_stacked_matrices_are_views(text: str) -> None:
    stacked, x = np.random.default_rng(0).standard_normal((3, 7, 64)).astype(np.float32), Lent(W[:2, :1].repeat(64, 1))
    q = hc.quantize(stacked, text)
    there = q.to("cuda")
    for index in (0, -1, slice(1, 3), slice(2, 2)):
        assert there[index].to("cpu") == q[index]
    wanted = hc.linear(W[:2, :1].repeat(64, 1), q[1])
    assert hc.linear(x, there[1]).to_numpy().tobytes() == wanted.tobytes()
    part = hc.linear(x, there[1][2:5])
    assert part.to_numpy().tobytes() == np.ascontiguousarray(wanted[:, 2:5]).tobytes()
    for bad, kind, sentence in (
        (3, IndexError, "index 3 is out of range for axis 0 with size 3"),
        (slice(None, None, 2), ValueError, r"a slice without a step on a CUDA device; call to\('cpu'\)"),
        ("x", ValueError, "only an int or a slice of axis 0"),
    ):
        with pytest.raises(kind, match=sentence):
            there[bad]
    with pytest.raises(ValueError, match=r"axis 0 is a reduction axis; call to\('cpu'\) to index the values"):
        hc.quantize(W, "int8", axis=0).to("cuda")[0]


FORMATS = ["int8", "int4-g32-asym", "vsq4-g16-s4-tensor", "mxfp4", "nvfp4", "nf4-g64", "fp8_e4m3fn-tensor", "bf16",
           "int8+2:4", "2:4"]  # fmt: skip


@pytest.mark.parametrize("text", FORMATS)
def test_arrays_without_values_are_those_of_the_cpu(text: str) -> None:
    for shape in ((0, 64), (8, 0), (2, 0, 32)):
        x = np.zeros(shape, np.float32)
        there, q = hc.quantize(DeviceArray.from_numpy(x), text), hc.quantize(x, text)
        assert there.to("cpu") == q and there.device == "cuda:0"  # type: ignore[attr-defined]
        for found in (there.dequantize(), hc.fake_quantize(DeviceArray.from_numpy(x), text)):
            assert found.shape == shape and found.device == "cuda:0"  # type: ignore[attr-defined]
    w = hc.quantize(W, text).to("cuda")
    for activations in (None, "int8") if text[:3] in ("int", "vsq") else (None,):
        y = hc.linear(DeviceArray.from_numpy(np.zeros((0, W.shape[1]), np.float32)), w, activations=activations)
        assert y.shape == (0, len(W)) and y.device == "cuda:0"  # type: ignore[attr-defined]
    pruned = hc.prune(DeviceArray.from_numpy(np.zeros((0, 64), np.float32)), "2:4")
    assert pruned.to("cpu") == hc.prune(np.zeros((0, 64), np.float32), "2:4")
    filters = hc.quantize(np.ones((4, 3, 3, 3), np.float32), "int8", axis=(2, 3, 1)).to("cuda")
    assert hc.conv2d(DeviceArray.from_numpy(np.zeros((0, 3, 5, 5), np.float32)), filters).shape == (0, 4, 3, 3)


def test_a_bias_with_strides_is_refused_by_matmuls_and_convolutions() -> None:
    bias = Lent(np.arange(8, dtype=np.float32), shape=(4,), strides=(8,))
    weights = hc.quantize(np.ones((4, 64), np.float32), "int8").to("cuda")
    filters = hc.quantize(np.ones((4, 3, 3, 3), np.float32), "int8", axis=(2, 3, 1)).to("cuda")
    for call in (
        lambda: hc.linear(Lent(np.ones((2, 64), np.float32)), weights, bias),
        lambda: hc.conv2d(Lent(np.ones((1, 3, 5, 5), np.float32)), filters, bias),
    ):
        with pytest.raises(TypeError, match=r"bias is float32 with strides \(8,\), expected contiguous float32"):
            call()


def test_reasons_name_the_format_and_the_index() -> None:
    affine = hc.quantize(W, "affine4-g32").to("cuda")
    with pytest.raises(NotImplementedError, match="do not decode affine integers"):
        affine.dequantize()  # type: ignore[attr-defined]
    with pytest.raises(NotImplementedError, match=r"to: device is 'cuda', expected 'cpu': an EIEArray has no CUDA"):
        hc.encode_eie(np.ones((4, 32), np.float32), elements=4).to("cuda")
    eie = hc.encode_eie(np.ones((4, 32), np.float32), elements=4)
    assert eie.to("cpu") is eie
    x = W.copy()
    x[3, :4] = np.inf
    with pytest.raises(ValueError, match=r"cannot hold \(NaN or infinity\) at index \(3, :\)"):
        hc.quantize(Lent(x), "int8+2:4")
