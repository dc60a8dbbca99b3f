"""A KVCache on a device holds the bytes of one on the CPU, and attention over it gives the same bits."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import driven
import numpy as np
import pytest
from driven import Lent, LentByDlpack

import heterocompute as hc
from heterocompute.arrays.device import DeviceArray
from heterocompute.arrays.quantized import QuantizedArray


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[driven.Driver]:
    yield from driven.without_leaks(monkeypatch)


def values(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def turned(array: np.ndarray[Any, Any]) -> DeviceArray:
    """Return an array on the device whose tokens are stored before its heads."""
    return DeviceArray.from_numpy(array.transpose(0, 2, 1, 3)).transposed((0, 2, 1, 3))


def same(there: Any, here: Any) -> bool:
    """Tell whether what two caches return has the same bytes."""
    if isinstance(there, DeviceArray):
        device_values = DeviceArray.from_numpy(np.empty(0, np.float32)) if not there.size else there
        order = (2, 0, 1, 3)
        return bool(device_values.transposed(order).to_numpy().tobytes() == here.transpose(order).tobytes())
    return bool(isinstance(there.packed, QuantizedArray) and there.packed.to("cpu") == here.packed)


@pytest.mark.parametrize("lend", [Lent, LentByDlpack, turned])
@pytest.mark.parametrize("text", [None, "int8", "int4-g32", "vsq4-g16-s4", "mxfp8_e4m3", "fp8_e4m3fn-row", "q8_0"])
@pytest.mark.sweep(every=3)
def test_tokens_are_added_on_the_device_with_the_bytes_of_the_cpu(
    lend: Any, text: str | None, driver: driven.Driver
) -> None:
    sizes = {"layers": 2, "heads": 2, "width": 32, "batch": 2, "windows": [None, 33]}
    here, there = hc.KVCache(text, **sizes), hc.KVCache(text, **sizes)
    for step, n in enumerate((5, 1, 70, 1, 64, 1)):
        k, v = values(2, 2, n, 32) * (1 + step), values(2, 2, n, 32)[..., ::-1].copy()
        for layer, window in enumerate(sizes["windows"]):  # type: ignore[arg-type]
            before, given = driver.counts(), (lend(k), lend(v))
            uploads = driver.counts()[1] - before[1]
            kept = there.add(layer, *given)
            counts = [now - then for now, then in zip(driver.counts(), before, strict=True)]
            # keys and values of a format wait, to find NaN
            assert counts[1:] == [uploads, 0, uploads + (2 if text else 0)]
            wanted = here.add(layer, k, v)
            assert all(same(*pair) for pair in zip(kept, wanted, strict=True))
            if n == 1 and step > 2:  # each head of a query takes long on the host
                q = values(2, 2, 1, 32)
                y = hc.attention(lend(q), *kept, window=window)
                assert y.device == "cuda:0"  # type: ignore[attr-defined]
                expected = np.ascontiguousarray(hc.attention(q, *wanted, window=window))
                assert y.to_numpy().tobytes() == expected.tobytes()  # type: ignore[attr-defined]
    assert (there.device, there.length, there.nbytes) == ("cuda:0", here.length, here.nbytes)
    assert here.device == "cpu" and there._tokens[1].held < there._tokens[1].seen  # the window was used
    if text:
        both = kept[0].dequantize(), wanted[0].dequantize()
        assert both[0].shape == both[1].shape


def test_tokens_of_16_bits_and_of_other_streams_are_added(driver: driven.Driver) -> None:
    k, half = values(1, 1, 3, 32), values(1, 1, 3, 32).astype(np.float16)
    for text in (None, "int8"):
        here, there = hc.KVCache(text, width=32), hc.KVCache(text, width=32)
        there.add(0, Lent(half), Lent(half))
        here.add(0, half, half)
        given, before = (Lent(k, stream=7), Lent(k)), driver.counts()[3]
        kept = there.add(0, *given)
        assert driver.counts()[3] - before == 1 + (2 if text else 0)  # for k, whose stream may be destroyed later
        assert all(same(*pair) for pair in zip(kept, here.add(0, k, k), strict=True))
        none = there.add(0, Lent(k[:, :, :0], data=(0, False)), Lent(k[:, :, :0], data=(0, False)))
        assert same(none[0], here.add(0, k[:, :, :0], k[:, :, :0])[0])


def test_a_value_that_is_refused_adds_nothing() -> None:
    k, bad = values(1, 2, 3, 32), values(1, 2, 3, 32)
    bad[0, 1, 2, 5] = np.nan
    here, there = hc.KVCache("int8", heads=2, width=32), hc.KVCache("int8", heads=2, width=32)
    here.add(0, k, k)
    there.add(0, Lent(k), Lent(k))
    for pair in ((bad, k), (k, bad)):
        with pytest.raises(ValueError, match=r"KVCache.add: [kv] has a value that int8 cannot hold .* \(0, 1, 2, :\)"):
            there.add(0, *map(Lent, pair))
    assert there.length == 3
    kept = there.add(0, Lent(k), Lent(k))
    assert all(same(*pair) for pair in zip(kept, here.add(0, k, k), strict=True))


def test_a_cache_of_one_place_refuses_tokens_of_another() -> None:
    k = values(1, 1, 3, 32)
    lent, here, there, empty = Lent(k), hc.KVCache(width=32), hc.KVCache("int8", width=32), hc.KVCache(width=32)
    here.add(0, k, k)
    there.add(0, lent, lent)
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: here.add(0, lent, lent), TypeError, "k or v is on a CUDA device and the cache on the CPU, expected"),
        (lambda: there.add(0, k, k), TypeError, "KVCache.add: k is on the CPU and the cache on cuda:0, expected all"),
        (lambda: there.add(0, lent, k), TypeError, "KVCache.add: v is on the CPU and the cache on cuda:0"),
        (lambda: there.add(0, Lent(k, 1), lent), TypeError, "KVCache.add: k is on cuda:1 and the cache on cuda:0"),
        (lambda: empty.add(0, lent, k), TypeError, "KVCache.add: v is on the CPU and the cache on cuda:0"),
        (lambda: empty.add(0, k, lent), TypeError, "KVCache.add: k is on the CPU and the other argument on a CUDA"),
        (lambda: empty.add(0, lent, Lent(k[:, :, :2])), ValueError, r"v has shape \(1, 1, 2, 32\), expected"),
        (lambda: empty.add(0, Lent(k[0]), lent), ValueError, r"k has shape \(1, 3, 32\), expected"),
        (lambda: empty.add(0, Lent(k.astype(np.float64)), lent), NotImplementedError, "is float64, expected float32"),
        (lambda: there.room(0, 1), TypeError, "KVCache.room: the cache is on cuda:0, expected one on the CPU"),
        (lambda: hc.KVCache("q4_k", width=256).add(0, *[Lent(values(1, 1, 1, 256))] * 2), NotImplementedError,
         r"KVCache.add: the CUDA kernels do not encode blocks .*: copy the arguments to the CPU"),
        (lambda: hc.attention(k, *there.add(0, lent, lent)), TypeError, "attention: q is on the CPU"),
        (lambda: copy.deepcopy(there), TypeError, r"copy: the array is on cuda:0, .* to_numpy\(\)"),
    ]  # fmt: skip
    for call, kind, sentence in cases:
        with pytest.raises(kind, match=sentence) as raised:
            call()
        assert "\n" not in str(raised.value)
    assert empty.length == 0 and empty.device == "cpu" and here.length == 3
