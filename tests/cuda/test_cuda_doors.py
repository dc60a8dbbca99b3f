"""Attention and the device's own order of sums go through the public functions, with the fake driver."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import driven
import numpy as np
import pytest
from driven import Lent, LentByDlpack

import heterocompute as hc
from heterocompute.arrays.device import DeviceArray


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[driven.Driver]:
    yield driven.used(monkeypatch)


def values(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


SHAPES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((4, 1, 32), (2, 70, 32), {}),
    ((2, 4, 3, 32), (2, 2, 65, 32), {"window": 40}),
    ((1, 2, 4, 5, 32), (1, 2, 1, 66, 32), {"cap": 3.0, "scale": 0.5}),
    ((3, 5, 32), (3, 2, 32), {"causal": False}),
]


@pytest.mark.parametrize("lend", [Lent, LentByDlpack, DeviceArray.from_numpy])
@pytest.mark.parametrize("text", [None, "int8-g32", "vsq4-g16-s4", "mxfp8_e4m3", "q8_0"])
@pytest.mark.sweep(every=4)
def test_attention_stays_there_with_the_bits_of_the_cpu(lend: Any, text: str | None, driver: driven.Driver) -> None:
    for of_q, of_k, options in SHAPES:
        q, k, v = values(*of_q), values(*of_k), values(*of_k)[..., ::-1].copy()
        if text:
            k, v = hc.quantize(k, text), hc.quantize(v, text)
            there = k.to("cuda"), v.to("cuda")
        else:
            there = lend(k), lend(v)
        lent, before = lend(q), driver.counts()
        y = hc.attention(lent, *there, **options)
        launches, uploads, downloads, waits = (now - old for now, old in zip(driver.counts(), before, strict=True))
        # of attention, one kernel, or two for few queries whose rows begin on 16 bytes
        assert launches - (2 if text else 0) in (1, 2) and (uploads, downloads, waits) == (0, 0, 0)
        assert y.device == "cuda:0" and y.shape == of_q  # type: ignore[attr-defined]
        wanted = np.ascontiguousarray(hc.attention(q, k, v, **options))
        assert y.to_numpy().tobytes() == wanted.tobytes()  # type: ignore[attr-defined]


def test_attention_reads_strides_streams_and_mixed_keys(monkeypatch: pytest.MonkeyPatch, driver: driven.Driver) -> None:
    q, k, v = values(2, 4, 3, 16), values(2, 2, 9, 16), values(2, 2, 9, 16)[..., ::-1].copy()
    wanted = np.ascontiguousarray(hc.attention(q, k, v)).tobytes()
    turned = [DeviceArray.from_numpy(one.transpose(0, 2, 1, 3)).transposed((0, 2, 1, 3)) for one in (q, k, v)]
    assert hc.attention(*turned).to_numpy().tobytes() == wanted  # type: ignore[attr-defined]
    packed = hc.quantize(k, "int8")
    there = hc.attention(Lent(q), packed.to("cuda"), Lent(v))
    assert there.to_numpy().tobytes() == np.ascontiguousarray(hc.attention(q, packed, v)).tobytes()  # type: ignore[attr-defined]
    given = Lent(q), Lent(k, stream=7), Lent(v)
    before = driver.counts()[3]
    there = hc.attention(*given)
    assert driver.counts()[3] - before == 1  # for the keys, whose stream may be destroyed later
    assert there.to_numpy().tobytes() == wanted  # type: ignore[attr-defined]
    cp = driven.StandIn()
    monkeypatch.setitem(sys.modules, "cupy", cp)
    assert hc.attention(*(cp.asarray(one) for one in (q, k, v))).get().tobytes() == wanted  # type: ignore[attr-defined]
    assert hc.attention(Lent(q[:, :, :0]), Lent(k), Lent(v)).shape == (2, 4, 0, 16)


def test_attention_refuses_in_one_sentence() -> None:
    q, k = values(2, 4, 3, 16), values(2, 2, 9, 16)
    lent, keys, packed = Lent(q), Lent(k), hc.quantize(k, "int8")
    cache = hc.KVCache("int8", heads=2, width=16, batch=2)
    kept, _ = cache.add(0, k, k)
    five = DeviceArray.from_numpy(values(2, 2, 3, 4, 16)).transposed((1, 0, 2, 3, 4))
    wide = Lent(values(1, 1, 20001)), Lent(values(1, 1, 20001)), Lent(values(1, 1, 20001))
    cases: list[tuple[tuple[Any, ...], type[Exception], str]] = [
        ((lent, k, keys), TypeError, "attention: k is on the CPU and another argument on cuda:0, expected all on one"),
        ((lent, keys, packed), TypeError, "attention: v is on the CPU and another argument on cuda:0"),
        ((lent, kept, kept), TypeError, "attention: k is on the CPU and another argument on cuda:0"),
        ((q, keys, keys), TypeError, "attention: q is on the CPU and another argument on cuda:0"),
        ((q, packed.to("cuda"), k), TypeError, "attention: q is on the CPU and another argument on cuda:0"),
        ((lent, Lent(k, 1), keys), TypeError, "attention: k is on cuda:1 and another argument on cuda:0"),
        ((Lent(q.astype(np.float16)), keys, keys), NotImplementedError, "attention: q is float16 with strides"),
        ((Lent(q, strides=(4, 8, 32, 96)), keys, keys), NotImplementedError, "a contiguous last axis on a CUDA"),
        ((five, five, five), NotImplementedError, "expected contiguous values or four dimensions on a CUDA device"),
        ((lent, Lent(values(2, 3, 9, 16)), keys), ValueError, "expected one shape"),
        ((lent, Lent(values(2, 2, 9, 8)), keys), ValueError, "attention: k has shape"),
        ((Lent(values(4, 16)), keys, keys), ValueError, r"attention: q has shape \(4, 16\), expected"),
        ((lent, hc.quantize(k, "int8", axis=2).to("cuda"), keys), ValueError, "quantized along the last axis"),
        ((lent, hc.quantize(k, "int8+2:4").to("cuda"), keys), ValueError, "without a pattern"),
        (
            (lent, hc.quantize(k, "cb4").to("cuda"), keys),
            NotImplementedError,
            r"learned codebooks: copy the arguments to the CPU \(\.to",
        ),
        (wide, NotImplementedError, "attention: the CUDA kernels do not take attention of these shapes: copy"),
    ]
    for given, kind, sentence in cases:
        with pytest.raises(kind, match=sentence) as raised:
            hc.attention(*given)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["int4-g32-f16", "vsq4-g16-s4", "nf4-g64", "fp8_e4m3fn-row"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.sweep(every=3)
def test_the_device_s_order_is_used_by_name_and_within_its_bound(text: str, dtype: type) -> None:
    for m, n, k in [(9, 5, 40), (70, 66, 333)]:
        x, w, bias = values(m, k).astype(dtype), values(n, k), values(n)
        q = hc.quantize(w, text)
        there, lent, added = q.to("cuda"), Lent(x), Lent(bias)
        with hc.use(order="device"):
            got = hc.linear(lent, there, added).to_numpy().astype(np.float64)
            assert "hc_gemm_bf16" in str(hc.explain(hc.linear, lent, there))
            few = hc.linear(Lent(x[:3]), there, added).to_numpy()
            integers = hc.linear(lent, there, activations="int8").to_numpy() if text[0] in "iv" else None
            at_home = hc.linear(x, q, bias)
        wide, decoded = x.astype(np.float64), q.dequantize().astype(np.float64)
        exact, sizes = wide @ decoded.T + bias, np.abs(wide) @ np.abs(decoded).T + np.abs(bias)
        assert (np.abs(got - exact) <= (3 * 2.0**-16 + (3 * k + 2) * 2.0**-22) * sizes).all()
        assert at_home.tobytes() == hc.linear(x, q, bias).tobytes()  # on the CPU as fast
        assert few.tobytes() == hc.linear(x[:3], q, bias).tobytes()
        if integers is not None:
            assert integers.tobytes() == hc.linear(x, q, activations="int8").tobytes()
        for order in ("fast", None):
            with hc.use(order=order):
                assert hc.linear(lent, there, added).to_numpy().tobytes() == at_home.tobytes()


def test_the_device_s_order_and_one_order_exclude_each_other() -> None:
    lent, there = Lent(values(9, 64)), hc.quantize(values(7, 64), "int8").to("cuda")
    with hc.use(order="device"), hc.use(order="one"), pytest.raises(NotImplementedError, match="order='one'"):
        hc.linear(lent, there)
