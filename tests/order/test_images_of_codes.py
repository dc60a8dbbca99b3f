"""Images of one window are rows of a matmul of packed arrays, and images of 16 bits are those of float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import isas, reals, same_bits

import heterocompute as hc

FORMATS = ("int8", "int4", "vsq4-g16-s4", "vsq8-g16-s8", "int4-g16-f16", "int8-g16", "int16", "ternary")


def images(rng: np.random.Generator, n: int, channels: int, size: tuple[int, int], layout: str) -> Any:
    nhwc = rng.standard_normal((n, *size, channels), dtype=np.float32)
    return nhwc if layout == "NHWC" else np.ascontiguousarray(nhwc.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("seed", range(24))
def test_an_image_of_one_window_is_a_row_of_a_matmul(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fmt, layout = FORMATS[seed % len(FORMATS)], str(rng.choice(["NCHW", "NHWC"]))
    size = (1, 1) if rng.integers(2) else (int(rng.integers(1, 5)), int(rng.integers(1, 5)))
    n, channels, filters = int(rng.integers(1, 20)), 16 * int(rng.integers(1, 9)), int(rng.integers(1, 80))
    x = images(rng, n, channels, size, layout)
    w = reals((filters, channels, *size), seed)
    bias = reals((filters,), seed + 1) if rng.integers(2) else None
    rows = (x if layout == "NHWC" else x.transpose(0, 2, 3, 1)).reshape(n, -1)
    wanted = hc.linear(rows, hc.quantize(w.transpose(0, 2, 3, 1).reshape(filters, -1), fmt), activations="int8")
    if bias is not None:
        wanted = wanted + bias
    packed = hc.quantize(w, fmt, axis=(2, 3, 1))
    for isa in (*isas(), None):
        with hc.use(isa=isa):
            found = hc.conv2d(x, packed, bias, activations="int8", layout=layout)
            assert same_bits(found.reshape(wanted.shape), wanted), isa


def test_the_plan_knows_images_of_one_window() -> None:
    x, w = reals((1, 480, 1, 1), 1), hc.quantize(reals((120, 480, 1, 1), 2), "int4-g32-f16", axis=(2, 3, 1))
    wide = reals((1, 480, 3, 3), 3)
    one, nine = (hc.explain(hc.conv2d, of, w, activations="int8") for of in (x, wide))
    ms = [next(way.predicted_ms for way in found.candidates if way.path == "implicit") for found in (one, nine)]
    assert one.chosen == "implicit" and ms[0] < 0.7 * ms[1]


@pytest.mark.parametrize("seed", range(24))
def test_halves_are_convolved_as_their_float32(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fmt = ("int8", "int4-g16-f16", "mxfp4", "bf16", "vsq8-g16-s8")[seed % 5]
    layout, n = str(rng.choice(["NCHW", "NHWC"])), int(rng.integers(1, 4))
    groups = int(rng.choice([1, 2, 16]))
    channels, size = 16 * int(rng.integers(1, 3)), (int(rng.integers(3, 12)), int(rng.integers(3, 12)))
    x = images(rng, n, channels, size, layout).astype(np.float16)
    kind = rng.integers(4)
    if kind == 1:
        x = np.repeat(x, 2, axis=1)[:, ::2]
    elif kind == 2:
        x = np.concatenate([x, x], axis=-1)[..., : x.shape[-1]]
    elif kind == 3:
        x = x[:, ::-1]
    w = hc.quantize(reals((32, channels // groups, 3, 3), seed), fmt, axis=(2, 3, 1))
    options = {"padding": 1, "stride": int(rng.integers(1, 3)), "groups": groups, "layout": layout}
    for isa in (*isas(), None):
        with hc.use(isa=isa):
            found = hc.conv2d(x, w, activations="int8", **options)
            assert same_bits(found, hc.conv2d(x.astype(np.float32), w, activations="int8", **options)), isa


def test_many_images_of_halves_are_widened_in_parts() -> None:
    x = np.random.default_rng(1).standard_normal((9, 64, 100, 100), dtype=np.float32).astype(np.float16)
    w = hc.quantize(reals((4, 64, 1, 1), 2), "int8", axis=(2, 3, 1))
    bias = reals((4,), 3)
    found = hc.conv2d(x, w, bias, activations="int8", relu=True)
    assert same_bits(found, hc.conv2d(x.astype(np.float32), w, bias, activations="int8", relu=True))
    x[7, 5, 3, 2] = np.nan
    with pytest.raises(ValueError, match=r"nan at index \(7, 5, 3, 2\)"):
        hc.conv2d(x, w, activations="int8")


@pytest.mark.parametrize("seed", range(20))
def test_depthwise_filters_with_a_pattern_have_the_bits_of_a_product(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fmt = ("int8+2:4", "vsq4-g16-s4+2:4", "int4-g32-f16+2:4", "int16+1:4", "int4+2:4")[seed % 5]
    side, channels, layout = int(rng.choice([1, 3, 5, 7])), int(rng.integers(1, 40)), str(rng.choice(["NCHW", "NHWC"]))
    x = images(rng, 2, channels, (int(rng.integers(7, 15)), int(rng.integers(7, 15))), layout)
    w = reals((channels, 1, side, side), seed)
    w[rng.random(w.shape) < 0.2] = 0
    packed = hc.quantize(w, fmt, axis=(2, 3, 1))
    options: dict[str, Any] = {"activations": "int8", "padding": side // 2, "groups": channels, "layout": layout}
    options["stride"] = int(rng.integers(1, 3))
    wanted = hc.conv2d(x, packed, algorithm="implicit", **options)
    for isa in (*isas(), None):
        with hc.use(isa=isa):
            for way in ("depthwise", "auto") if channels > 1 else ("auto",):
                assert same_bits(hc.conv2d(x, packed, algorithm=way, **options), wanted), (isa, way)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_pattern_of_runs_that_are_kept_whole_adds_no_zero(layout: str) -> None:
    x = images(np.random.default_rng(1), 2, 24, (9, 9), layout)
    x[0, 3, 3, 3] = np.inf
    packed = hc.quantize(reals((24, 1, 3, 3), 2), "int8+2:4", axis=(2, 3, 1))
    wanted = hc.conv2d(x, packed, padding=1, groups=24, layout=layout, algorithm="implicit")
    found = hc.conv2d(x, packed, padding=1, groups=24, layout=layout, algorithm="depthwise")
    assert np.isinf(wanted).any() and same_bits(found, wanted)
    whole = hc.quantize(reals((24, 24, 3, 3), 2), "int8+2:4", axis=(2, 3, 1))
    with pytest.raises(ValueError, match="not finite"):
        hc.conv2d(x, whole, padding=1, layout=layout, algorithm="direct")


@pytest.mark.parametrize("isa", [*isas("codes_s8"), None])
def test_rounded_values_are_codes_times_their_scale(isa: str | None) -> None:
    rng = np.random.default_rng(3)
    w = hc.quantize(np.ones((1, 1, 1, 1), np.float32), "bf16", axis=(2, 3, 1))
    for n, scale in ((1, 1.0), (63, 1e-3), (64, 1.0), (200, 1e-38), (257, 1e30), (300, 3e38)):
        x = (rng.uniform(-1, 1, n).astype(np.float32) * np.float32(scale)).reshape(1, 1, 1, n)
        with hc.use(isa=isa):
            found = hc.conv2d(x, w, activations="int8")
        assert same_bits(found, hc.fake_quantize(x, "int8", axis=(1, 2, 3)) + np.float32(0))
