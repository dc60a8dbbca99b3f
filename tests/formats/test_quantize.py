"""quantize, dequantize, fake_quantize, error: the C core equals the NumPy definition bitwise on every ISA."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
from common import CODING, FORMATS, bad_argument, guarded_copy, isas, reals, same_bits, takes

import heterocompute as hc
from heterocompute import reference

SHAPES = [
    ((3, 50), -1),
    ((7, 64), 1),
    ((64, 7), 0),
    ((5, 257), -1),
    ((2, 1031), -1),
    ((4, 20, 3, 3), (2, 3, 1)),
    ((2, 3, 33), (0, 2)),
    ((5,), 0),
    ((1, 1), 1),
    ((1, 203), 0),  # short rows
    ((90, 5), 1),
    ((19, 83), 0),
    ((0, 8), 1),
    ((3, 0), 1),
]


def equal_components(q: hc.QuantizedArray, expected: dict[str, np.ndarray]) -> bool:
    return q.components.keys() == expected.keys() and all(
        same_bits(np.ascontiguousarray(part), np.ascontiguousarray(expected[name]).view(part.dtype))
        for name, part in q.components.items()
    )


ISAS = isas(*CODING)


@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=40)
def test_codes_and_values_are_those_of_the_definition(text: str) -> None:
    fmt = hc.format(text)
    for seed, (shape, axis) in enumerate(SHAPES):
        for dtype in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16):
            x = reals(shape, seed).astype(dtype)
            expected = reference.quantize(x, fmt, axis)
            axes = hc.quantize(x, fmt, axis).axis
            values = reference.dequantize(expected, fmt, shape, axes)
            exact = reference.dequantize(expected, fmt, shape, axes, np.float64)
            for isa in ISAS:
                with hc.use(isa=isa):
                    q = hc.quantize(x, fmt, axis)
                    assert equal_components(q, expected), (isa, shape, axis, dtype)
                    assert same_bits(q.dequantize(), values), (isa, shape, axis, dtype)
                    assert same_bits(q.dequantize(np.float64), exact), (isa, shape, axis, dtype)
                    assert same_bits(hc.fake_quantize(x, fmt, axis), values), (isa, shape, axis, dtype)


@pytest.mark.parametrize("clip", [0.5, 1.0, "octav", "percentile:99.9", "percentile:0", "percentile:100"])
@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=20)
def test_clipping_is_that_of_the_definition(text: str, clip: float | str) -> None:
    fmt = hc.format(text)
    if not takes(fmt, 1.0, clip):
        for call in (hc.quantize, hc.fake_quantize):
            with pytest.raises(ValueError, match="clip"):
                call(reals((3, 4)), fmt, clip=clip)
        return
    for seed, (shape, axis) in enumerate(SHAPES):
        x = reals(shape, seed)
        q = hc.quantize(x, fmt, axis, clip)
        assert equal_components(q, reference.quantize(x, fmt, axis, clip)), (shape, axis)
        assert same_bits(hc.fake_quantize(x, fmt, axis, clip), q.dequantize())


@pytest.mark.parametrize("clip", [0.5, "octav", "percentile:90"])
@pytest.mark.parametrize("text", ["uint8-tensor", "ue5m6-tensor", "binary8p4ue-tensor", "int8-tensor"])
def test_the_threshold_of_an_array_leaves_out_negative_values_of_unsigned_formats(text: str, clip: float | str) -> None:
    x, fmt = reals((7, 33), 2), hc.format(text)
    x[0, 0] = -2 * np.abs(x).max()
    for isa in isas(*CODING, "octav", "top_pair"):
        with hc.use(isa=isa):
            assert equal_components(hc.quantize(x, fmt, clip=clip), reference.quantize(x, fmt, -1, clip))


TIED = ["int8", "int3", "int5-g16-asym", "vsq4-g16-s4", "vsq8-g16-s10-refit", "vsq3-g16", "nvfp4", "nvfp4-4over6"]
TIED += ["fp8_e4m3fn-row", "fp16-tensor", "bf16-row", "fp4_e2m1-g16", "tf32-row", "log4-2", "nf4-g64"]


@pytest.mark.parametrize("text", TIED)
@pytest.mark.sweep(every=4)
def test_values_beside_ties_get_the_codes_of_the_definition(text: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(8):
        x = reals((16, 8, 16), 1) * np.float32(2.0 ** rng.integers(-20, 20))
        kept = np.abs(x) == np.abs(x).max(axis=2, keepdims=True)  # scales do not change
        values = hc.fake_quantize(x.reshape(16, 128), text).reshape(x.shape).astype(np.float64)
        middles = ((values + rng.permuted(values, axis=2)) / 2).astype(np.float32)
        for steps in range(-2, 3):
            beside = np.where(kept, x, middles)
            for _ in range(abs(steps)):
                beside = np.where(kept, x, np.nextafter(beside, np.float32(np.inf * steps)))
            rows = beside.reshape(16, 128)
            expected = reference.quantize(rows, hc.format(text), -1)
            for isa in ISAS:
                with hc.use(isa=isa):
                    assert equal_components(hc.quantize(rows, text), expected), (isa, steps)


def hard_rows() -> np.ndarray:
    """Return rows that are difficult to round: ties, tiny and huge scales, steps of one ulp around midpoints."""
    rows = []
    for top in (1.0, 7.0, 127.0, 3.0e38, 2.0**-126, 2.0**-140, 2.0**-149, 2.0**-149 * 40, 0.0, 1e-30):
        base = np.float32(top) * (np.arange(-63, 65, dtype=np.float64) / 64)
        rows.append(base.astype(np.float32))
    for scale in (np.float32(0.1), np.float32(1.0), np.float32(2.0**-120), np.float32(3.3e-39)):
        halves = ((np.arange(-64, 64) + 0.5) * np.float64(scale)).astype(np.float32)
        halves[0] = np.float32(127 * np.float64(scale))
        up = np.nextafter(halves, np.float32(np.inf), dtype=np.float32)
        down = np.nextafter(halves, np.float32(-np.inf), dtype=np.float32)
        rows += [halves, up, down]
    return np.array(rows)


@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=20)
def test_hard_values_round_as_the_definition_says(text: str) -> None:
    x, fmt = hard_rows(), hc.format(text)
    for dtype in (np.float32, np.float64):
        for axis in (-1, 0):
            expected = reference.quantize(x.astype(dtype), fmt, axis)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # NumPy warns where the definition saturates
                values = reference.dequantize(expected, fmt, x.shape, axis % 2)
            assert np.isfinite(values).all() or not getattr(fmt, "saturate", True)
            for isa in ISAS:
                with hc.use(isa=isa):
                    q = hc.quantize(x.astype(dtype), text, axis)
                    assert equal_components(q, expected), isa
                    assert same_bits(q.dequantize(), values), isa


@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=3)
def test_every_isa_decodes_what_another_encoded(text: str) -> None:
    x = reals((9, 131), 3)
    found = {}
    for isa in ISAS:
        with hc.use(isa=isa):
            found[isa] = hc.quantize(x, text)
    for encoder, q in found.items():
        assert q == found["scalar"], encoder
        for decoder in ISAS:
            with hc.use(isa=decoder):
                assert same_bits(q.dequantize(), found["scalar"].dequantize()), (encoder, decoder)


@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=3)
def test_the_same_values_give_the_same_codes_in_every_dtype(text: str) -> None:
    x = reals((4, 100), 5).astype(ml_dtypes.bfloat16).astype(np.float16)
    x = np.where(np.isfinite(x), x, 0).astype(np.float16)
    first = hc.quantize(x, text)
    for dtype in (np.float32, np.float64):
        assert hc.quantize(x.astype(dtype), text) == first
    y = reals((4, 100), 6).astype(ml_dtypes.bfloat16)
    assert hc.quantize(y, text) == hc.quantize(y.astype(np.float64), text)


@pytest.mark.parametrize(
    "text", ["int8", "int4-g16", "int3-g5-asym", "vsq4-g16-s4", "vsq3-g16", "mxfp4", "nvfp4", "bf16"]
)
def test_strides_and_memory_order_change_nothing(text: str) -> None:
    base = reals((6, 5, 96), 7)
    views = [base[::-1], base[:, ::2], base[..., ::3], base.T, np.asfortranarray(base), base[::2, 1:, ::-1]]
    views.append(np.broadcast_to(base[:1, :1], (3, 4, 96)))
    for view in views:
        for axis in (-1, 0, (1, 2), (2, 0)):
            plain = np.ascontiguousarray(view)
            q = hc.quantize(view, text, axis)
            assert q == hc.quantize(plain, text, axis)
            targets = [np.zeros((*view.shape, 2), np.float32)[..., 0], np.zeros(view.shape[::-1], np.float32).T[::-1]]
            for target in targets:
                assert same_bits(np.ascontiguousarray(hc.fake_quantize(view, text, axis, out=target)), q.dequantize())


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("text", ["int8", "vsq4-g16-s4-tensor", "int4-g32-f16", "nvfp4", "fp4_e2m1-tensor"])
def test_threads_change_nothing(text: str, threads: int) -> None:
    x = reals((203, 117), 8)
    with hc.use(threads=1, isa="scalar"):
        expected = hc.quantize(x, text)
    with hc.use(threads=threads):
        assert hc.quantize(x, text) == expected
        assert same_bits(expected.dequantize(), np.asarray(expected))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=3)
def test_nothing_is_read_past_the_end(text: str, isa: str) -> None:
    with hc.use(isa=isa):
        for shape in ((3, 37), (2, 64), (1, 5), (5, 129)):
            with guarded_copy(reals(shape, 9)) as x:
                q = hc.quantize(x, text)
                parts = {name: part for name, part in q.components.items()}
                for name, part in parts.items():
                    with guarded_copy(part) as copy:
                        moved = hc.QuantizedArray({**parts, name: copy}, q.format, q.shape, q.axis)
                        assert same_bits(moved.dequantize(), q.dequantize())
                        del copy, moved
                del x


def test_fake_quantize_in_place() -> None:
    for text in ("int8", "vsq4-g16-s4", "int4-asym", "vsq4-g16-s4-tensor", "nvfp4", "mxfp8_e5m2", "fp8_e4m3fn-tensor"):
        for axis in (0, 1):
            x = reals((40, 300), 11)
            expected = hc.fake_quantize(x, text, axis)
            assert hc.fake_quantize(x, text, axis, out=x) is x
            assert same_bits(x, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=20)
def test_the_first_bad_value_is_named_or_the_definition_takes_it(text: str, value: float) -> None:
    fmt = hc.format(text)
    for dtype in (np.float32, np.float64, np.float16):
        for axis in (0, 1):
            x = reals((40, 70), 12).astype(dtype)
            x[20, 60] = x[20, 61] = x[33, 2] = value
            expected = reference.quantize(x, fmt, axis) if takes(fmt, value) else None
            for isa in ISAS:
                with hc.use(isa=isa):
                    if expected is not None:
                        q = hc.quantize(x, fmt, axis)
                        assert equal_components(q, expected)
                        assert same_bits(q.dequantize(), reference.dequantize(expected, fmt, q.shape, q.axis))
                        continue
                    with bad_argument(ValueError, "w", "value"):
                        hc.quantize(x, fmt, axis)


def test_values_beyond_float32_are_named() -> None:
    x = np.ones((3, 4))
    x[1, 2] = 1e39
    with bad_argument(ValueError, "w", "value"):
        hc.quantize(x, "int8")
    x[1, 2] = 3.4028235e38  # rounds to float32's largest
    assert np.isfinite(hc.quantize(x, "int8").dequantize()).all()


def test_error_measures() -> None:
    w = reals((30, 50), 13)
    q = hc.quantize(w, "int4")
    found = hc.error(w, q)
    d = w.astype(np.float64) - q.dequantize()
    assert found.mse == pytest.approx((d**2).mean(), rel=1e-12)
    assert found.max_abs == np.abs(d).max()
    assert found.sqnr_db == pytest.approx(10 * np.log10((w.astype(np.float64) ** 2).sum() / (d**2).sum()), rel=1e-12)
    assert found.cosine == pytest.approx(
        (w.astype(np.float64) * q.dequantize()).sum()
        / np.linalg.norm(w.astype(np.float64))
        / np.linalg.norm(q.dequantize().astype(np.float64)),
        rel=1e-12,
    )
    assert found.bits_per_value == q.bits_per_value
    assert hc.error(w, w).sqnr_db == np.inf
    for threads in (1, 2):
        with hc.use(threads=threads):
            assert hc.error(w, q) == found
    with bad_argument(ValueError, "w", "shape"):
        hc.error(w, w[1:])


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda x: hc.quantize(x.astype(np.int32), "int8"), TypeError, "astype"),
        (lambda x: hc.quantize(x > 0, "int8"), TypeError, "astype"),
        (lambda x: hc.quantize(x.astype(complex), "int8"), TypeError, "astype"),
        (lambda x: hc.quantize(x.astype(object), "int8"), TypeError, "astype"),
        (lambda x: hc.quantize(hc.quantize(x, "int8"), "int8"), TypeError, "astype"),
        (lambda x: hc.quantize(np.float32(1), "int8"), ValueError, "dimensions"),
        (lambda x: hc.quantize(x, "int8", axis=2), ValueError, "axis 2"),
        (lambda x: hc.quantize(x, "int8", axis=(0, 0)), ValueError, "axis"),
        (lambda x: hc.quantize(x, "int8", axis=()), ValueError, "axis"),
        (lambda x: hc.quantize(x, "int8", axis=1.0), TypeError, "axis"),
        (lambda x: hc.quantize(x, "int17"), ValueError, "int16"),
        (lambda x: hc.quantize(x, 8), TypeError, "format"),
        (lambda x: hc.quantize(x, "int8", clip=0), ValueError, "clip"),
        (lambda x: hc.quantize(x, "int8", clip=1.5), ValueError, "clip"),
        (lambda x: hc.quantize(x, "int8", clip=float("nan")), ValueError, "clip"),
        (lambda x: hc.quantize(x, "int8", clip="percentile:101"), ValueError, "clip"),
        (lambda x: hc.quantize(x, "int8", clip="percentile:nan"), ValueError, "clip"),
        (lambda x: hc.quantize(x, "int8", clip="best"), ValueError, "clip"),
        (lambda x: hc.quantize(x, "int8", clip=[1]), TypeError, "clip"),
        (lambda x: hc.fake_quantize(x, "int8", out=np.zeros(x.shape)), TypeError, "float32"),
        (lambda x: hc.fake_quantize(x, "int8", out=np.zeros((1, 1), np.float32)), ValueError, "shape"),
        (lambda x: hc.fake_quantize(x, "int8", out=x[::-1]), ValueError, "memory"),
        (lambda x: hc.fake_quantize(x, "int8", out=np.broadcast_to(np.float32(0), x.shape)), ValueError, "read-only"),
    ],
)
def test_bad_arguments_are_named(call, kind, words) -> None:
    with pytest.raises(kind, match=words):
        call(reals((4, 6), 14))


@pytest.mark.parametrize("scale", [1e-300, 1e-162, 1e-150, 1e150, 1e160, 1e300])
def test_errors_of_values_whose_squares_are_beyond_float64(scale: float) -> None:
    w = np.random.default_rng(0).standard_normal((8, 32))
    near = w * (1 + 2.0**-10)
    expected, found = hc.error(w, near), hc.error(w * scale, near * scale)
    assert found.sqnr_db == pytest.approx(expected.sqnr_db) and found.cosine == pytest.approx(1)
    assert found.max_abs == pytest.approx(expected.max_abs * scale)
    assert hc.error(w * 1e-170, hc.quantize(w * 1e-170, "int8")).sqnr_db == 0  # all codes are 0
    assert hc.error(np.array([scale, 1.0]), np.array([2 * scale, 1.0])).sqnr_db != np.inf
    assert hc.error(np.array([1e300, 1.0]), np.array([1e300, 2.0])).sqnr_db == pytest.approx(6000)
