"""The codec kernels of CUDA, run on the host, give the bits of the CPU's, whatever the order of threads and blocks."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import emulated
import ml_dtypes
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.training.stochastic import stochastic_round

FORMATS = [
    *["int8", "int4", "int2", "int4-g32-f16", "int4-g128", "int3-g5", "int8-g16-asym", "int5-g7-asym-f16"],
    *[
        "vsq4-g16-s4",
        "vsq4-g16",
        "vsq3-g5-s6",
        "vsq8-g64-s10",
        "vsq4u-g16-s8",
        "vsq6-g16-s6-tensor",
        "vsq2-g16-s2-refit",
    ],
    *["mxfp4", "mxfp4-even", "mxfp6_e3m2", "mxfp8_e4m3", "mxint8-rceil", "nvfp4", "nvfp4-4over6"],
    *[
        "fp32",
        "tf32",
        "bf16",
        "fp16",
        "fp8_e5m2",
        "fp8_e4m3fn-nosat",
        "fp8_e4m3fn-row",
        "fp6_e2m3-tensor",
        "fp4_e2m1-row",
    ],
    *["fp8_e4m3fn-g32", "fp4_e2m1-g16", "tq1_0", "tq2_0"],
    *["nf4-g64", "log4-2", "log8-8-g16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"],
]
SHAPES = [(1, 7), (5, 100), (33, 64)]
KNOWN = ["int8", "vsq4-g16-s4", "fp8_e4m3fn-row", "mxfp4", "nvfp4", "nf4-g64"]  # known.def


def values(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Normal values, a row of zeros, and subnormal, large and repeated ones."""
    x = rng.standard_normal(shape).astype(np.float32)
    flat = x.reshape(-1)
    flat[3::11] = 0
    flat[5::13] = -0.0
    flat[6::17] = np.float32(1e-41)
    flat[2::19] *= np.float32(1e4)
    if shape[0] > 2:
        x[1] = 0
        x[2] *= np.float32(1e-38)
    return x


def assert_same(got: dict[str, np.ndarray[Any, Any]], q: Any) -> None:
    for name, part in q.components.items():
        assert got[name].tobytes() == part.tobytes(), name


@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=3)
def test_kernels_give_the_bits_of_the_cpu(text: str) -> None:
    rng = np.random.default_rng(0)
    for order, shape in enumerate(SHAPES):
        x = values(rng, shape)
        q = hc.quantize(x, text)
        got, illegal = emulated.quantize(x, q, order)
        assert illegal == 0
        assert_same(got, q)
        assert emulated.dequantize(q, order=order).tobytes() == q.dequantize().tobytes()
        assert emulated.dequantize(q, np.float64).tobytes() == q.dequantize(dtype=np.float64).tobytes()
        rounded = emulated.fake_quantize(x, q.format, q.axis, order)
        assert rounded.tobytes() == hc.fake_quantize(x, text).tobytes()


@pytest.mark.parametrize("text", KNOWN)
def test_kernels_that_know_the_format_give_the_bits_of_the_cpu(text: str) -> None:
    rng = np.random.default_rng(0)
    for order, shape in enumerate([(9, 64), (130, 64 if text == "nf4-g64" else 32)]):
        x = np.ascontiguousarray(values(rng, shape))
        q = hc.quantize(x, text)
        assert_same(emulated.quantize(x, q, order)[0], q)
        used = [emulated.launched[-1]]
        assert emulated.dequantize(q, order=order).tobytes() == q.dequantize().tobytes()
        used.append(emulated.launched[-1])
        assert emulated.fake_quantize(x, q.format, q.axis, order).tobytes() == q.dequantize().tobytes()
        assert all("known" in name for name in [*used, emulated.launched[-1]])


@pytest.mark.parametrize("text", [*KNOWN, "int4-g32-f16", "fp4_e2m1-g16", "nvfp4-4over6"])
def test_values_at_and_next_to_ties_get_the_codes_of_the_cpu(text: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-254, 255, (64, 64)).astype(np.float32) / 2
    x[:, 0] = 127  # int8 then has a scale of 1
    x[16:32] = rng.integers(-14, 15, (16, 64)) / 2
    x[16:32, ::16] = 7
    x[32:40] = rng.choice([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6], (8, 64)) * rng.choice([-1, 1], (8, 64))
    x[32:40, ::16] = 6
    x[40:48] = rng.integers(0, 1 << 16, (8, 64)).astype(np.uint16).view(np.float16)  # about 1 in 2^16 is a tie of fp8
    x[~np.isfinite(x)] = 448
    levels = np.unique(hc.fake_quantize(np.linspace(-1, 1, 1 << 12, dtype=np.float32).reshape(1, -1), "nf4-g4096"))
    x[48:] = rng.choice((levels[1:] + levels[:-1]) / 2, (16, 64))
    x[48:, 0] = 1
    for scale in (1.0, 2.0**-30, 2.0**-140, 1.1, 2.0**110):
        for moved in (x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(0))):
            y = np.ascontiguousarray((moved * np.float32(scale)).astype(np.float32))
            q = hc.quantize(y, text)
            assert_same(emulated.quantize(y, q)[0], q)


@pytest.mark.parametrize("text", ["int4-g32-f16", "vsq4-g16-s4", "mxfp4", "fp8_e4m3fn-row", "q4_0"])
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_kernels_take_values_of_any_float_type(text: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((9, 70)).astype(dtype)
    q = hc.quantize(x, text)
    assert_same(emulated.quantize(x, q)[0], q)
    if dtype == np.float64:
        assert emulated.fake_quantize(x, q.format, q.axis).tobytes() == hc.fake_quantize(x, text).tobytes()


@pytest.mark.parametrize("text", "int8 vsq4-g16-s4 mxfp6_e3m2 mxfp4 mxfp8_e4m3 fp8_e4m3fn-row nvfp4 nf4-g64".split())
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("offset", [0, 1])  # values from a multiple of 16 bytes on, and not
@pytest.mark.sweep(every=3)
def test_contiguous_rows_of_whole_chunks_give_the_bits_of_the_cpu(text: str, dtype: Any, offset: int) -> None:
    rng = np.random.default_rng(0)
    room = np.zeros(9 * 128 + 16, dtype)
    begin = -room.ctypes.data % 16 // room.itemsize + offset
    x = room[begin : begin + 9 * 128].reshape(9, 128)
    x[:] = values(rng, x.shape).astype(dtype)
    q = hc.quantize(x, text)
    assert_same(emulated.quantize(x, q)[0], q)
    knows = emulated.launched[-1].startswith("hc_encode_known")
    assert knows == (offset == 0 and text in KNOWN)
    assert emulated.dequantize(q).tobytes() == q.dequantize().tobytes()
    rounded = emulated.fake_quantize(x, q.format, q.axis)
    assert rounded.tobytes() == q.dequantize().tobytes()
    x[4, 77] = np.nan
    if not text.startswith("mx"):
        assert emulated.quantize(x, q)[1] == 2**32 - 5
    else:
        assert_same(emulated.quantize(x, q)[0], hc.quantize(x, text))


@pytest.mark.parametrize("text", ["int8", "int4-g8", "vsq4-g16-s4", "mxfp8_e4m3", "nvfp4"])
def test_kernels_take_any_axes_and_strides(text: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 20, 3, 5)).astype(np.float32)
    for array, axis in [
        (x, (2, 3, 1)),
        (x, (1,)),
        (x.transpose(3, 1, 0, 2)[::2, ::-1], (1,)),
        (np.asfortranarray(x), (0, 2)),
    ]:
        q = hc.quantize(array, text, axis=axis)
        assert_same(emulated.quantize(array, q, 2)[0], q)
        assert emulated.dequantize(q).tobytes() == q.dequantize().tobytes()


@pytest.mark.parametrize("text", ["int8", "int4-g32", "vsq4-g16-s4", "fp8_e4m3fn-tensor", "nvfp4", "nf4-g64", "q8_0"])
def test_kernels_name_the_first_row_that_is_refused(text: str) -> None:
    x = np.ones((40, 64), np.float32)
    q = hc.quantize(x, text)
    x[31, 7], x[12, 63], x[12, 2] = np.nan, np.inf, np.nan
    assert emulated.quantize(x, q)[1] == 2**32 - 1 - 12


@pytest.mark.parametrize("text", ["int4-asym", "nf4-g64-dq", "q4_k", "q6_k", "cb4"])
def test_what_the_kernels_lack_is_refused(text: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 256)).astype(np.float32)
    q = hc.quantize(x, text)
    with pytest.raises(emulated.Unsupported, match="the CUDA kernels do not encode"):
        emulated.quantize(x, q)
    if text != "cb4":
        assert emulated.dequantize(q).tobytes() == q.dequantize().tobytes()


@pytest.mark.parametrize(
    "text",
    [*"int8 int4-g32-f16 int5-g7-asym vsq4-g16-s4 mxfp4 mxint8 nvfp4 fp8_e4m3fn-row nf4-g64 log4-2".split()],
)
def test_chances_are_the_cpu_s(text: str) -> None:
    rng = np.random.default_rng(0)
    for order, shape in enumerate([(1, 7), (5, 100)]):
        x = values(rng, shape)
        q = hc.quantize(x, text)
        got = emulated.stochastic_round(x, q, 42 + order, order)
        assert got.tobytes() == stochastic_round(x, q, 42 + order).tobytes()


@pytest.mark.parametrize("pattern", ["2:4", "1:4", "3:7", "4:8", "1:32"])
def test_pruning_keeps_what_the_cpu_keeps(pattern: str) -> None:
    rng = np.random.default_rng(0)
    n, m = map(int, pattern.split(":"))
    arrays = [(values(rng, (5, 100)), (1,)), (values(rng, (4, 20, 3, 5)), (2, 3, 1)), (values(rng, (67, 256)), (1,))]
    for order, (x, axes) in enumerate(arrays):
        kept = hc.prune(x, pattern, axis=axes).components
        for name, part in emulated.prune(x, n, m, axes, kept, order).items():
            assert part.tobytes() == kept[name].tobytes()


@pytest.mark.parametrize("text", ["int8", "int3", "vsq4-g16-s4", "vsq3-g5-s6", "fp8_e4m3fn-row", "log4-2"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_that_fit_in_a_block_are_read_once(text: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for order, (rows, columns) in enumerate([(9, 640), (3, 4000), (2, 5000), (2, 20000), (3, 9216)]):
        x = values(rng, (rows, columns)).astype(dtype)
        q = hc.quantize(x, text)
        got, illegal = emulated.quantize(x, q, order)
        assert illegal == 0
        assert_same(got, q)
        passes = sum(name.startswith("hc_maximum") for name in emulated.launched)
        assert passes == (columns > 640) or columns in (4000, 5000, 9216)  # which may fit
        rounded = emulated.fake_quantize(x, q.format, q.axis, order)
        assert rounded.tobytes() == hc.fake_quantize(x, text).astype(np.float32).tobytes()
        x[1, columns - 1] = np.nan
        _, illegal = emulated.quantize(x, q, order)
        assert illegal == 2**32 - 2


# the values that share a scale: a group of so many, the row, the array, or the value alone
SPANS: list[tuple[str, Any]] = [
    *[
        ("int8", "row"),
        ("int3", "row"),
        ("int16", "row"),
        ("int4-g32-f16", 32),
        ("int4-g16-asym", 16),
        ("int4-g24", 24),
    ],
    *[("vsq4-g16-s4", "row"), ("vsq4u-g16-s4", "row"), ("vsq4-g16", 16), ("vsq6-g16-s6-tensor", "array")],
    *[("mxfp4", 32), ("mxint8", 32), ("nvfp4", "array"), ("nf4-g64", 64), ("log4-2", "row"), ("log8-8-g16", 16)],
    *[("fp8_e4m3fn-row", "row"), ("fp8_e4m3fn-tensor", "array"), ("fp4_e2m1", "value"), ("fp6_e2m3", "value")],
    *[("q8_0", 32), ("q4_0", 32), ("q4_1", 32), ("fp8_e4m3fn", "value")],
]


@pytest.mark.parametrize(("text", "span"), SPANS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.sweep(every=4)
def test_a_value_that_a_format_cannot_hold_makes_the_values_of_its_scale_nan(text: str, span: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for order, (columns, value) in enumerate([(192, np.nan), (70, -np.nan), (192, np.inf), (5120, -np.inf)]):
        if columns % 32 and text[:2] in {"mx", "nv", "q8", "q4"}:
            continue
        clean = values(rng, (3, columns)).astype(dtype)
        x, at = clean.copy(), columns - 27
        x[1, at] = value
        if span == "value" and np.isinf(value):
            continue  # saturates, or stays
        got = emulated.fake_quantize(x, hc.format(text), (1,), order)
        lost = np.zeros(x.shape, bool)
        first = at // span * span if isinstance(span, int) else 0
        end = min(first + span, columns) if isinstance(span, int) else columns
        lost[slice(None) if span == "array" else 1, at if span == "value" else slice(first, end)] = True
        assert (np.isnan(got) == lost).all()
        clean[1] = np.where(lost[1], 0, clean[1])
        if span != "array":  # what stays has the scales that it has without the value
            assert got[~lost].tobytes() == hc.fake_quantize(clean, text).astype(np.float32)[~lost].tobytes()


def test_pruning_orders_all_magnitudes_of_four_as_the_cpu_does() -> None:
    fours = np.stack(np.meshgrid(*[np.array([-3, -2, -1, 0, 1, 2, 3], np.float32)] * 4), -1).reshape(-1, 4)
    x = np.resize(fours, (76, 128))  # 7^4 blocks, some twice
    kept = hc.prune(x, "2:4").components
    for name, part in emulated.prune(x, 2, 4, (1,), kept).items():
        assert part.tobytes() == kept[name].tobytes()


QUICK_KINDS = ["int8", "int4", "e4m3", "e2m1", "nf4"]
QUICK_SCALES = [1.0, 3.0 / 127, 1.9999999, 1.0000001, 0.7071068, 2.0**-120 * 1.1, 2.0**100 * 1.7]


def quick_counts(kind: str, scale: float, first: int, step: int) -> tuple[int, int, int]:
    """Count values from `first` on, `step` apart: certain, of these wrong, in range (quick/sweep.cu)."""
    counts = (ctypes.c_int64 * 3)()
    sources = [Path(__file__).parent / "quick/sweep.cu", emulated.HOST]
    nf4 = emulated.ROOT / "csrc/cuda/formats/nf4.cu"  # which sweep.cu includes
    library = emulated.opened(emulated.library_of("quick", sources, [nf4]))
    library.hc_sweep_quick(QUICK_KINDS.index(kind), ctypes.c_float(scale), first, step, counts)
    return counts[0], counts[1], counts[2]


@pytest.mark.parametrize("kind", QUICK_KINDS)
def test_certain_codes_are_those_of_the_definitions(kind: str) -> None:
    for number, scale in enumerate(QUICK_SCALES):
        certain, wrong, in_range = quick_counts(kind, scale, number, 40_009)
        assert wrong == 0
        assert certain > 0.99 * in_range > 1000


@pytest.mark.parametrize("kind", QUICK_KINDS)
@pytest.mark.parametrize("scale", QUICK_SCALES)
@pytest.mark.sweep(every=35)
def test_certain_codes_of_many_values_are_those_of_the_definitions(kind: str, scale: float) -> None:
    first = int(np.random.default_rng().integers(1009))
    assert quick_counts(kind, scale, first, 1009)[1] == 0, (first, scale)
