"""Attention has the bits of its definition on every instruction set; packed keys give the results of their values."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from common import isas, same_bits

import heterocompute as hc
from heterocompute import _heterocompute as _core
from heterocompute.base import runtime
from heterocompute.reference import layers as definition


def drawn(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def heads(q: int, kv: int, n: int, m: int, width: int) -> tuple[np.ndarray[Any, Any], ...]:
    return drawn(q, n, width), drawn(kv, m, width, seed=1), drawn(kv, m, width, seed=2)


CASES = [
    ((1, 1, 1, 1, 1), {}),
    ((4, 2, 3, 70, 16), {}),
    ((6, 2, 1, 130, 64), {"window": 20}),
    ((2, 2, 20, 20, 80), {"scale": 0.7, "cap": 2.0}),
    ((3, 1, 5, 66, 13), {"causal": False}),
    ((2, 1, 40, 200, 96), {"window": 65}),
    ((4, 2, 9, 140, 16), {"window": 30, "sinks": np.float32([0.5, -3, 4, 90])}),
    ((4, 2, 1, 150, 24), {"bias": drawn(4, 150, seed=3)}),
    ((6, 3, 20, 130, 17), {"bias": drawn(6, 130, seed=3), "scale": 0.3, "cap": 5.0, "window": 40}),
    ((2, 1, 40, 64, 64), {"bias": drawn(2, 64, seed=3), "causal": False, "sinks": np.float32([1, 2])}),
]


@pytest.mark.parametrize(("sizes", "options"), CASES)
def test_attention_has_the_bits_of_its_definition(sizes: tuple[int, ...], options: dict[str, Any]) -> None:
    q, k, v = heads(*sizes)
    wanted = definition.attention(q, k, v, **options)
    for isa in isas("attend"):
        for threads in (1, 3):
            with hc.use(isa=isa, threads=threads):
                assert same_bits(hc.attention(q, k, v, **options), wanted), (isa, threads)


@pytest.mark.parametrize(("sizes", "options"), CASES)
def test_attention_is_near_exact_values(sizes: tuple[int, ...], options: dict[str, Any]) -> None:
    """Errors of scores are (width / 16 + 6) eps sum|q k|, relative after exp; the sums add (m + 20) eps."""
    q, k, v = heads(*sizes)
    group, n, m, width = len(q) // len(k), q.shape[1], k.shape[1], q.shape[2]
    exact = q.astype(np.float64), np.repeat(k, group, 0).astype(np.float64), np.repeat(v, group, 0).astype(np.float64)
    scale = options.get("scale", width**-0.5)
    scores = scale * exact[0] @ exact[1].swapaxes(1, 2) + np.float64(options.get("bias", np.zeros((1, 1))))[:, None]
    if "cap" in options:
        scores = options["cap"] * np.tanh(scores / options["cap"])
    at, to = np.arange(m - n, m)[:, None], np.arange(m)
    hidden = (to > at) & options.get("causal", True) | (to <= at - options.get("window", m + n))
    shares = np.exp(np.where(hidden, -np.inf, scores))
    sinks = np.exp(options["sinks"].astype(np.float64))[:, None, None] if "sinks" in options else 0.0
    shares /= shares.sum(axis=-1, keepdims=True) + sinks
    size = float((scale * np.abs(exact[0]) @ np.abs(exact[1]).swapaxes(1, 2)).max()) + 4
    bound = 2 * ((width / 16 + 8) * size + m + 20) * np.finfo(np.float32).eps
    assert (np.abs(hc.attention(q, k, v, **options) - shares @ exact[2]) <= bound * (shares @ np.abs(exact[2]))).all()


@pytest.mark.parametrize(
    "fmt",
    [
        "int8",
        "int4-g32",
        "int4-g32-f16",
        "vsq4-g16-s4",
        "mxfp4",
        "mxfp8_e4m3",
        "fp8_e4m3fn",
        "fp8_e4m3fn-row",
        "nf4-g64",
    ]
    + ["bf16", "q8_0", "nvfp4", "cb4", "vsq3-g16-s4", "nf4-g8-dq", "int8-b4x16", "int4-b3x8-e8m0"],
)
@pytest.mark.parametrize("width", [64, 32, 96])
@pytest.mark.sweep(every=3)
def test_packed_keys_and_values_give_what_their_values_give(fmt: str, width: int) -> None:
    q, k, v = drawn(2, 4, 3, width), drawn(2, 2, 150, width, seed=1), drawn(2, 2, 150, width, seed=2)
    packed = hc.quantize(k, fmt), hc.quantize(v, fmt)
    for isa in isas("attend"):
        with hc.use(isa=isa):
            for window in (None, 30):
                wanted = hc.attention(q, packed[0].dequantize(), packed[1].dequantize(), window=window)
                assert same_bits(hc.attention(q, *packed, window=window), wanted)
                assert same_bits(hc.attention(q, packed[0].dequantize(), packed[1], window=window), wanted)
            values, bias = [one.dequantize() for one in packed], drawn(4, 150, seed=3)
            assert same_bits(hc.attention(q, *packed, bias=bias), hc.attention(q, *values, bias=bias))


def test_strides_of_queries_and_keys_are_followed() -> None:
    q, k, v = drawn(2, 5, 4, 8), drawn(2, 9, 2, 8, seed=1), drawn(2, 9, 2, 8, seed=2)
    turned = [one.transpose(0, 2, 1, 3) for one in (q, k, v)]
    wanted = hc.attention(*(np.ascontiguousarray(one) for one in turned))
    assert same_bits(hc.attention(*turned), wanted)
    assert same_bits(hc.attention(*(one.astype(np.float64) for one in turned)), wanted)
    assert same_bits(hc.attention(q[0].transpose(1, 0, 2), k[0].transpose(1, 0, 2), v[0].transpose(1, 0, 2)), wanted[0])


@pytest.mark.parametrize("width", [8, 16, 40, 64, 80, 128, 192])
@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 8])
@pytest.mark.sweep(every=4)
def test_codes_of_8_bits_are_read_as_they_are_stored(width: int, group: int) -> None:
    q = drawn(2, 2 * group, 2, width)
    k, v = drawn(2, 2, 150, width, seed=1), drawn(2, 2, 150, width, seed=2)
    packed = [(hc.quantize(k, fmt), hc.quantize(v, fmt)) for fmt in ("int8", "int8-g16", "int8-g32", "int8-g32-f16")]
    for keys, values in [*packed, (packed[0][0], v), (k, packed[1][1]), (packed[0][0], packed[2][1])]:
        floats = [one if isinstance(one, np.ndarray) else one.dequantize() for one in (keys, values)]
        for options in ({}, {"window": 30}, {"cap": 2.0}, {"causal": False}):
            wanted = hc.attention(q, floats[0], floats[1], **options)
            for isa in isas("attend"):
                with hc.use(isa=isa, threads=2):
                    assert same_bits(hc.attention(q, keys, values, **options), wanted), (keys, options, isa)


def test_codes_whose_values_saturate_are_decoded() -> None:
    q, k, v = np.zeros((1, 2, 64), np.float32), drawn(1, 150, 64), drawn(1, 150, 64, seed=1)
    v[0, 149] = np.finfo(np.float32).max
    packed = hc.quantize(k, "int8"), hc.quantize(v, "int8")
    wanted = hc.attention(q, *(one.dequantize() for one in packed), window=1)
    assert np.isfinite(wanted[:, 1]).all()
    for isa in isas("attend"):
        with hc.use(isa=isa):
            assert same_bits(hc.attention(q, *packed, window=1), wanted), isa


@pytest.mark.parametrize("fmt", [None, "int8", "vsq4-g16-s4", "int4-g32"])
@pytest.mark.parametrize("window", [None, 10])
def test_tokens_one_by_one_give_the_bits_of_all_at_once(fmt: str | None, window: int | None) -> None:
    q, k, v = (drawn(2, h, 300, 32, seed=i) for i, h in enumerate((4, 2, 2)))
    whole = hc.KVCache(fmt, 1, 2, 32, 2)
    wanted = hc.attention(q, *whole.add(0, k, v), window=window)
    cache = hc.KVCache(fmt, 1, 2, 32, 2, [window])
    found, at = [], 0
    for n in [1, 7, 1, 1, 90, 64, 1, 64, 70, 1]:
        part = slice(at, at + n)
        found.append(hc.attention(q[:, :, part], *cache.add(0, k[:, :, part], v[:, :, part]), window=window))
        at += n
    assert same_bits(np.concatenate(found, axis=2), wanted) and cache.length == whole.length == at == 300
    per_token = whole.nbytes // 300
    assert cache.nbytes == 300 * per_token if window is None else cache.nbytes < 200 * per_token
    kept = whole.add(0, k[:, :, :0], v[:, :, :0])
    stored = k if fmt is None else hc.fake_quantize(k, fmt)
    assert same_bits(kept[0] if fmt is None else kept[0].dequantize(), stored)


@pytest.mark.parametrize("hidden", [-np.inf, np.finfo(np.float32).min, -1e31])
def test_a_bias_hides_keys(hidden: float) -> None:
    q, k, v = heads(4, 2, 3, 150, 16)
    bias = np.zeros((4, 150), np.float32)
    bias[:, :100] = hidden
    wanted = hc.attention(q, k[:, 100:], v[:, 100:])
    assert np.allclose(hc.attention(q, k, v, bias=bias), wanted, rtol=1e-5, atol=1e-6)


def test_infinities_and_nan_reach_the_answer() -> None:
    q, k, v = (np.ones((1, 2, 4), np.float32) for _ in range(3))
    assert np.isnan(hc.attention(q * np.float32(np.nan), k, v)).all()
    k[0, 1] = np.inf  # of the second token, which the first does not see
    found = hc.attention(q, k, v)
    assert found[0, 0].tolist() == [1, 1, 1, 1] and np.isnan(found[0, 1]).all()


@pytest.mark.parametrize(("n", "m"), [(5, 1), (40, 70), (130, 3)])
def test_queries_may_outnumber_the_keys_of_another_text(n: int, m: int) -> None:
    q, k, v = heads(6, 3, n, m, 16)
    assert same_bits(hc.attention(q, k, v, causal=False), definition.attention(q, k, v, causal=False))
    packed = hc.quantize(k, "int8")
    assert same_bits(hc.attention(q, packed, v, causal=False), hc.attention(q, packed.dequantize(), v, causal=False))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda q, k: hc.attention(q, k[:, :1], k[:, :1]), "expected a divisor of 3 heads and at least 2 tokens"),
        (lambda q, k: hc.attention(q, k[:, :1], k[:, :1], False, window=1), "at least 2 tokens; causal=False without"),
        (lambda q, k: hc.attention(q, k[:, :0], k[:, :0], False), "at least 1 token"),
        (lambda q, k: hc.attention(q, k, k[:, :1]), r"k has shape \(3, 2, 4\) and v \(3, 1, 4\)"),
        (lambda q, k: hc.attention(q, k[:2], k[:2]), "expected a divisor of 3 heads"),
        (lambda q, k: hc.attention(q, k[..., :3], k[..., :3]), r"k has shape \(3, 2, 3\), expected"),
        (lambda q, k: hc.attention(q[0], k, k), r"q has shape \(2, 4\), expected \(..., heads, tokens, width\)"),
        (lambda q, k: hc.attention(q, k, k, window=0), "window is 0, expected 1 or more"),
        (lambda q, k: hc.attention(q, k, k, scale=np.nan), "scale is nan"),
        (lambda q, k: hc.attention(q, k, k, cap=0.0), "cap above 0"),
        (lambda q, k: hc.attention(q, k, k, sinks=[1.0]), r"sinks have shape \(1,\), expected \(3,\)"),
        (lambda q, k: hc.attention(q, k, k, bias=np.zeros((3, 1))), r"bias has shape \(3, 1\), expected \(3, 2\)"),
        (lambda q, k: hc.attention(q, k, k, scale=0.0, bias=np.zeros((3, 2))), "scale is 0.0, expected 1e-8 or more"),
        (lambda q, k: hc.attention(q, k, k, bias=np.full((3, 2), 1e300)), "bias has NaN or numbers beyond"),
        (lambda q, k: hc.attention(q, k, k, bias=np.full((3, 2), np.nan)), "bias has NaN"),
        (lambda q, k: hc.attention(q, k, k, cap=1.0, bias=np.full((3, 2), -np.inf)), "with a cap at least -1e30"),
        (lambda q, k: hc.attention(q, hc.quantize(k, "int8", axis=0), k), r"along axis \(0,\), expected"),
        (lambda q, k: hc.attention(q, hc.quantize(k, "int8+2:4"), k), "without a pattern"),
        (lambda q, k: hc.KVCache("nvfp4"), "whose rows share a scale"),
        (lambda q, k: hc.KVCache("cb4-tensor"), "whose rows share"),
        (lambda q, k: hc.KVCache("int8", heads=0), "heads is 0, expected 1"),
        (lambda q, k: hc.KVCache("int8", layers=2, windows=[1]), "windows has 1 entries, expected 2"),
        (lambda q, k: hc.KVCache(None, 1, 2, 4).add(0, k[None], k[None]), r"k has shape \(1, 3, 2, 4\), expected"),
    ],
)
def test_shapes_and_options_that_do_not_fit_are_refused(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(drawn(3, 2, 4), drawn(3, 2, 4))


def at_odd_address(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    raw = np.zeros(x.nbytes + 1, np.uint8)
    moved: np.ndarray[Any, Any] = raw[1:].view(x.dtype).reshape(x.shape)
    moved[...] = x
    return moved


def test_arrays_at_odd_addresses_are_read() -> None:
    q, k, v = (part[None] for part in heads(2, 1, 3, 5, 16))
    fields = np.zeros(k.shape[:-1], [("flag", "u1"), ("row", np.float32, 16)])
    fields["row"] = k
    assert same_bits(hc.attention(*map(at_odd_address, (q, k, v))), hc.attention(q, k, v))
    assert same_bits(hc.attention(q, fields["row"], v), hc.attention(q, k, v))
    assert same_bits(
        hc.layers.rms_norm(at_odd_address(q), at_odd_address(q[0, 0, 0])), hc.layers.rms_norm(q, q[0, 0, 0])
    )
    for fmt in (None, "int8"):
        kept = [
            hc.KVCache(fmt, heads=1, width=16).add(0, *map(lay_out, (k, v))) for lay_out in (at_odd_address, np.array)
        ]
        for moved, plain in zip(*kept, strict=True):
            assert same_bits(*(part if fmt is None else part.dequantize() for part in (moved, plain)))


@pytest.mark.parametrize("fmt", ["int8-asym", "int4-g16", "fp8_e4m3fn-row", "affine4-g32"])
def test_a_cache_rounds_float64_once(fmt: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 40, 64))
    kept, _ = hc.KVCache(fmt, heads=2, width=64).add(0, x, x)
    assert same_bits(kept.dequantize(), hc.fake_quantize(x, fmt))


@pytest.mark.parametrize(
    ("windows", "error"),
    [([0], ValueError), ([-5], ValueError), ([1.5], TypeError), ([True], TypeError), (3, TypeError)],
)
def test_windows_of_a_cache_are_counts_of_tokens(windows: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="KVCache: windows is "):
        hc.KVCache(windows=windows)


def test_shapes_of_array_likes_are_named() -> None:
    ones = lambda *shape: np.ones(shape, np.float32)  # noqa: E731
    q, k = ones(1, 2, 3, 8), ones(1, 2, 3, 8).tolist()
    assert same_bits(hc.attention(q.tolist(), k, k), hc.attention(q, q, q))
    cases: list[tuple[Any, Any, Any, str]] = [
        (q, ones(1, 2, 3, 4).tolist(), k, r"k has shape \(1, 2, 3, 4\), expected \(1, 'kv_heads'"),
        (q, k, ones(1, 2, 4, 8).tolist(), r"k has shape \(1, 2, 3, 8\) and v \(1, 2, 4, 8\), expected one"),
        (ones(2, 2, 3, 8), k, k, r"k has shape \(1, 2, 3, 8\), expected \(2, 'kv_heads'"),
    ]
    for *arguments, sentence in cases:
        with pytest.raises(ValueError, match=f"attention: {sentence}"):
            hc.attention(*arguments)


class Stop(BaseException):
    """Not an Exception, as a KeyboardInterrupt."""


def fill(cache: hc.KVCache, k: Any, v: Any, error: type[BaseException], stop: int) -> bool:
    """Add all tokens, ten at a time; raise an error once, at line `stop` of the module; tell whether it was raised."""
    lines = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.endswith("layers/attention.py"):
            return None
        if event == "line":
            lines += 1
            if lines == stop:
                raise error
        return trace

    while cache.length < k.shape[2]:
        some, was = slice(cache.length, cache.length + 10), sys.gettrace()
        sys.settrace(trace)
        try:
            cache.add(0, k[:, :, some], v[:, :, some])
        except error:
            pass
        finally:
            sys.settrace(was)
    return lines >= stop


@pytest.mark.parametrize(("fmt", "error"), [(None, Stop), ("int8", Stop), ("int8", MemoryError)])
def test_an_addition_that_ends_early_changes_nothing(fmt: str | None, error: type[BaseException]) -> None:
    """The error comes at each line in turn, while tokens are added, dropped, and memory grows."""
    window, before, tokens = 65, 150, 170
    rng = np.random.default_rng(3)
    k, v, q = (rng.standard_normal((1, 2, n, 16), dtype=np.float32) for n in (tokens, tokens, 1))
    plain = [one if fmt is None else hc.quantize(one, fmt).dequantize() for one in (k, v)]
    wanted, stop, raised = hc.attention(q, *plain, window=window), 0, True
    while raised:
        cache, stop = hc.KVCache(fmt, heads=2, width=16, windows=[window]), stop + 1
        cache.add(0, k[:, :, :before], v[:, :, :before])
        raised = fill(cache, k, v, error, stop)
        kept = cache.add(0, k[:, :, :0], v[:, :, :0])
        assert same_bits(hc.attention(q, *kept, window=window), wanted), f"line {stop}"
    assert stop > 20


def test_rows_that_share_a_component_are_adjacent() -> None:
    x = drawn(1, 2, 40, 16)
    for fmt in ("nf4-g1-dq", "int8-b4x16"):
        packed = hc.quantize(x, fmt)._packed(), (80, 1, 2), (2, 40, 16)
        with pytest.raises(ValueError, match="rows of k share a component, expected adjacent tokens"):
            _core.attention((1, 1), x, packed, x, x.copy(), 2, True, 0, 1.0, 0.0, None, None)


def test_sizes_beyond_64_bits_are_refused_by_the_binding() -> None:
    x, large = np.ones((1, 2, 3, 16), np.float32), 2**62
    packed = hc.quantize(x, "int8")._packed()
    run = (1, 1)
    for steps in ((6, large, 1), (6, 3, large), (2**63 - 1,) * 3, (-1, 3, 1)):
        with pytest.raises(ValueError, match="attention"):
            _core.attention(run, x, (packed, steps, (2, 3, 16)), x, x.copy(), 2, True, 0, 1.0, 0.0, None, None)
    for heads in (4, large, 2**63 - 1):
        with pytest.raises(ValueError, match="attention"):
            _core.attention(run, x, x, x, x.copy(), heads, True, 0, 1.0, 0.0, None, None)
    for kind, sizes in ((0, (large, 4)), (5, (2, 16, 2**62, 1, 1)), (5, (2, 16, 8, 1, large))):
        rows, n, half, repeat, turns = (*sizes, 0, 1, 1)[:5] if len(sizes) == 2 else sizes
        with pytest.raises(ValueError, match="layer"):
            _core.layer(run, kind, rows, n, x, x, None, x.copy(), 0.0, half, repeat, turns, False)


@pytest.mark.parametrize("fmt", ["int4-g32", "mxfp4", "int3"])
@pytest.mark.parametrize("heads", [(4, 2), (3, 3)])
def test_a_rotated_cache_rounds_outliers_less(fmt: str, heads: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    q_heads, kv_heads = heads
    q = rng.standard_normal((1, q_heads, 40, 64), dtype=np.float32)
    k, v = (rng.standard_normal((1, kv_heads, 40, 64), dtype=np.float32) for _ in range(2))
    k[..., 3], v[..., 7] = 12 * k[..., 3], 20 * v[..., 7]
    exact, lost = hc.attention(q, k, v), {}
    for text in (fmt, f"{fmt}+had", f"{fmt}+had32"):
        cache = hc.KVCache(text, layers=1, heads=kv_heads, width=64)
        found = [cache.add(0, k[:, :, i : i + 20], v[:, :, i : i + 20]) for i in (0, 20)][-1]
        lost[text] = float(np.square(hc.attention(q, *found) - exact).mean())
        plain = hc.attention(q, found[0].dequantize(), found[1].dequantize())
        assert np.allclose(hc.attention(q, *found), plain, atol=1e-4 * np.abs(plain).max())
        assert cache.nbytes == 2 * hc.quantize(k, fmt).nbytes
    assert max(lost[f"{fmt}+had"], lost[f"{fmt}+had32"]) < lost[fmt] / 2


@pytest.mark.parametrize("width", [1, 2, 8, 64, 256])
def test_rotated_heads_have_the_bits_of_the_definition(width: int) -> None:
    rng = np.random.default_rng(width)
    for shape in ((width,), (0, width), (3, 2, width), (600, width)):
        x = (rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 20, shape)).astype(np.float32)
        found = x.copy()
        _core.rotate_heads(runtime.run(), found)
        assert found.tobytes() == definition.rotate_heads(x).tobytes()
        assert np.allclose(definition.rotate_heads(found), x, atol=1e-5 * np.abs(x).max(initial=0))
    matrix = definition.rotate_heads(np.eye(width, dtype=np.float32))
    assert np.allclose(matrix @ matrix.T, np.eye(width), atol=1e-6) and (matrix == matrix.T).all()
    strange = np.ones((4, 4), np.float32)[:, :2]
    for bad in (np.ones(3, np.float32), np.ones((2, 4)), strange, 1.0, np.ones(0)):
        with pytest.raises(ValueError, match="rotate_heads: expected contiguous float32"):
            _core.rotate_heads(runtime.run(), bad)


def test_a_rotation_of_heads_is_refused_where_there_is_none() -> None:
    for bad, sentence in (("int4-g32+had+had", "is not a format"), ("none+had", "is not a format")):
        with pytest.raises(ValueError, match=sentence):
            hc.KVCache(bad, layers=1, heads=1, width=64)
    with pytest.raises(ValueError, match="KVCache: width is 96, expected a power of two"):
        hc.KVCache("int4-g32+had", layers=1, heads=1, width=96)
    with pytest.raises(ValueError, match=r"KVCache: width is 96, expected a multiple of 64 for int4-g32\+had64"):
        hc.KVCache("int4-g32+had64", layers=1, heads=1, width=96)
    with pytest.raises(
        ValueError, match=r"format is int4-g32\+had32-s1, expected int4-g32\+had32: a cache has no signs"
    ):
        hc.KVCache("int4-g32+had32-s1", layers=1, heads=1, width=96)
    cache, token = hc.KVCache("int8+had", layers=1, heads=1, width=64), np.ones((1, 1, 1, 64), np.float32)
    k, v = cache.add(0, token, token)
    with pytest.raises(ValueError, match="attention: k and v are rotated differently"):
        hc.attention(token, k, v.dequantize())


@pytest.mark.parametrize(("width", "block"), [(96, 16), (96, 32), (64, 64), (256, 32)])
def test_a_cache_rotates_blocks_of_heads(width: int, block: int) -> None:
    k, v = drawn(1, 2, 9, width), drawn(1, 2, 9, width)
    cache = hc.KVCache(f"int4-g16+had{block}", layers=1, heads=2, width=width)
    kept = cache.add(0, k, v)
    for one, x in zip(kept, (k, v), strict=True):
        blocks = definition.rotate_heads(x.reshape(-1, block)).reshape(x.shape)
        rounded = hc.quantize(blocks, "int4-g16", axis=-1).dequantize()
        wanted = definition.rotate_heads(rounded.reshape(-1, block)).reshape(x.shape)
        assert one.dequantize().tobytes() == wanted.tobytes()
    assert f"int4-g16+had{block}, " in repr(cache)
    q = drawn(1, 4, 9, width)
    plain = hc.attention(q, kept[0].dequantize(), kept[1].dequantize())
    assert np.allclose(hc.attention(q, *kept), plain, atol=1e-4 * np.abs(plain).max())
    with pytest.raises(ValueError, match="attention: "):
        hc.attention(drawn(1, 4, 9, 24), *kept)


def test_a_cache_prints_its_sizes() -> None:
    cache = hc.KVCache("int4-g32+had", layers=2, heads=3, width=32)
    cache.add(0, drawn(1, 3, 5, 32), drawn(1, 3, 5, 32))
    cache.add(1, drawn(1, 3, 5, 32), drawn(1, 3, 5, 32))
    assert repr(cache) == (
        f"<KVCache: int4-g32+had, layers x batch x heads x width 2 x 1 x 3 x 32, 5 tokens, {cache.nbytes:,} bytes>"
    )
