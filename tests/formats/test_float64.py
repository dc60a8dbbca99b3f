"""float64 arrays: kernels round them once, as the scalar definition does, and give its float64 values back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import FORMATS, isas, same_bits

import heterocompute as hc

MORE = [
    "int8-asym",
    "int4-g16-asym-f16",
    "int5-g48",
    "vsq8u-g16-s8-tensor",
    "vsq4-g16-s4-tensor-refit",
    "mxint8-ceil",
    "mxfp4-even",
    "mxfp8_e5m2-rceil",
    "fp8_e5m2-nosat",
    "fp8_e4m3fn-tensor",
    "fp32",
    "fp32-nosat",
    "bf16-nosat",
    "log8-8",
    "log4-1-g16",
    "log8-1",
    "cb2-g16",
]
TEXTS = list(dict.fromkeys([*FORMATS, *MORE]))
# Relative distances from a float32: none, far below its error, half of it, and more.
APART = [0, 0, 0, 2**-30, 2**-52, -(2**-53), 2**-25, -(2**-24), 1.5 * 2**-24]
WIDTHS = [512, 1040, 31, 2304]
SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 1e300, 2.0**128, 3.4028235677973362e38, 3.4028235677973366e38]


def arrays(seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return float64 rows of several kinds: values that no float32 has, midpoints, tiny and huge ones."""
    rng = np.random.default_rng(seed)
    shape = (2, WIDTHS[seed % len(WIDTHS)])
    x = rng.standard_normal(shape)
    apart = 1 + rng.choice(APART, shape)
    halves = rng.integers(-254, 255, shape) / 2.0
    halves[:, 0] = 127
    steps = rng.integers(0, 16, shape) / 2 * 2.0 ** rng.integers(-8, 8, shape) * rng.choice([-1, 1], shape)
    return {
        "normal": x,
        "near a float32": x.astype(np.float32).astype(np.float64) * apart,
        "near a midpoint": halves * apart,
        "near a midpoint of floats": steps * apart,
        "near a power of two": 2.0 ** -(rng.integers(0, 200, shape) / 16 + 1 / 32) * apart,
        "zeros": x * (rng.random(shape) < 0.1),
        "subnormal": x * 2.0 ** rng.integers(-150, -120, shape),
        "below float32": x * 2.0 ** rng.integers(-1070, -100, shape),
        "huge": x * 2.0 ** rng.integers(100, 126, shape),
    }


def outcome(x: np.ndarray[Any, Any], fmt: str) -> list[np.ndarray[Any, Any]] | str:
    """Return the components and values of an array, or the message of its error."""
    try:
        q = hc.quantize(x, fmt)
        return [*q.components.values(), q.dequantize(np.float64), hc.fake_quantize(x, fmt)]
    except ValueError as error:
        return str(error)


def assert_as_scalar(x: np.ndarray[Any, Any], fmt: str, what: str) -> None:
    """Compare the outcome of each instruction set with that of the scalar definition."""
    with hc.use(isa="scalar"):
        wanted = outcome(x, fmt)
    for isa in isas("encode_", "doubles_")[1:]:
        with hc.use(isa=isa):
            got = outcome(x, fmt)
        if isinstance(wanted, str) or isinstance(got, str):
            assert got == wanted, (isa, what)
        else:
            for a, b in zip(got, wanted, strict=True):
                values = a.dtype in (np.float32, np.float64)  # the bits of a computed NaN are not defined
                same = np.array_equal(np.isnan(a), np.isnan(b)) if values else True
                assert same and same_bits(
                    np.nan_to_num(a, nan=0) if values else a, np.nan_to_num(b, nan=0) if values else b
                ), (isa, what)


@pytest.mark.sweep(every=16)
@pytest.mark.parametrize("seed", range(len(WIDTHS)))
@pytest.mark.parametrize("fmt", TEXTS)
def test_kernels_of_float64_equal_the_definition(fmt: str, seed: int) -> None:
    for what, x in arrays(seed).items():
        assert_as_scalar(x if hc.format(fmt).family != "ggml" else np.resize(x, (2, 512)), fmt, what)


@pytest.mark.sweep(every=8)
@pytest.mark.parametrize("value", SPECIAL)
@pytest.mark.parametrize("fmt", TEXTS)
def test_float64_without_a_code_is_refused_or_stored_as_by_the_definition(fmt: str, value: float) -> None:
    x = np.random.default_rng(1).standard_normal((2, 512))
    x[1, 300] = value
    assert_as_scalar(x, fmt, str(value))
    x[1, 301] = np.inf  # a group that is NaN in mx
    assert_as_scalar(x, fmt, f"{value} and infinity")


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("clip", [0.9, "octav", "percentile:99.9", "percentile:95", "percentile:40"])
@pytest.mark.parametrize(
    "fmt", ["int8", "int4-g32-asym", "int4-g16", "vsq4-g16-s4", "vsq4u-g16-s4", "nf4-g64", "log4-2"]
)
def test_thresholds_of_float64_are_those_of_equal_float32(fmt: str, clip: float | str) -> None:
    for width in (512, 31, 1100):
        single = np.random.default_rng(width).standard_normal((37, width), np.float32)
        wanted = hc.quantize(single, fmt, clip=clip).components
        for isa in isas("octav", "top_pair", "maxima", "encode_"):
            with hc.use(isa=isa):
                got = hc.quantize(single.astype(np.float64), fmt, clip=clip).components
            assert all(same_bits(got[name], wanted[name]) for name in wanted), (isa, width)


def test_a_percentile_of_float64_is_rounded_once() -> None:
    x = np.random.default_rng(0).standard_normal((3, 64))
    scales = hc.quantize(x, "int8-g64", clip="percentile:99").components["scales"]
    wanted = np.percentile(np.abs(x), 99, axis=1).astype(np.float32) / np.float32(127)
    assert np.array_equal(scales.ravel(), wanted)
