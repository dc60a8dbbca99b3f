"""The convolutions of CUDA, run on the host, give the bits of the CPU's."""

from __future__ import annotations

from typing import Any

import emulated
import numpy as np
import pytest

import heterocompute as hc

# images, channels, height, width; filters, groups, kernel; stride, padding, dilation
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ((2, 5, 6, 7), (9, 1, 3), (1, 1, 1)),
    ((1, 40, 9, 8), (70, 1, 3), (2, 1, 2)),
    ((2, 24, 5, 5), (16, 2, 2), (1, 0, 1)),
    ((1, 6, 7, 6), (6, 6, 3), (1, 1, 1)),
]
PAIRS = [
    *[(None, "int4-g32-f16"), (None, "vsq4-g16-s4"), (None, "mxfp4"), (None, "nf4-g64"), ("int8", "int8")],
    *[("int8", "vsq4-g16-s4"), ("int4-g16", "int4-g32"), ("int8", "int4-g16"), ("vsq4-g16-s4", "vsq8-g16")],
    *[("int16", "int8"), ("mxint8", "mxint8"), ("fp8_e4m3fn-row", "int8"), ("int8", "nf4-g64"), ("int8", "int8+2:4")],
]


def case(number: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any], dict[str, int]]:
    """Return images, filters, a bias and the keywords of hc.conv2d."""
    rng = np.random.default_rng(number)
    shape, (filters, groups, kernel), (stride, padding, dilation) = SHAPES[number]
    x = rng.standard_normal(shape).astype(np.float32)
    w = rng.standard_normal((filters, shape[1] // groups, kernel, kernel)).astype(np.float32)
    bias = rng.standard_normal(filters).astype(np.float32)
    return x, w, bias, {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


def window_of(stride: int, padding: int, dilation: int, groups: int) -> emulated.Window:
    made = emulated.Window(groups=groups)
    made.stride[:], made.pad_before[:], made.dilation[:] = [stride] * 2, [padding] * 2, [dilation] * 2
    return made


@pytest.mark.parametrize(("x_text", "w_text"), PAIRS)
@pytest.mark.sweep(every=3)
def test_convolutions_give_the_bits_of_the_cpu(x_text: str | None, w_text: str) -> None:
    activations = None if x_text is None else hc.format(x_text)
    for number in range(len(SHAPES)):
        x, w, bias, keywords = case(number)
        q = hc.quantize(w, w_text, axis=(2, 3, 1))
        wanted = hc.conv2d(x, q, bias, activations=x_text, **keywords)
        got = emulated.conv2d(x, q, wanted.shape, window_of(**keywords), bias, activations, order=number)
        assert got.tobytes() == wanted.tobytes()
    names = {
        "hc_conv_f32",
        "hc_conv_direct_f32",
        "hc_conv_s8_folded",
        "hc_conv_s8_grouped",
        "hc_conv_direct_folded",
        "hc_conv_direct_grouped",
    }
    assert emulated.launched[-1] in names


@pytest.mark.parametrize(("x_text", "w_text"), [(None, "int4-g32"), ("int8", "int8"), ("int4-g16", "int4-g16")])
@pytest.mark.parametrize("relu", [False, True])
def test_channels_may_lie_last(x_text: str | None, w_text: str, relu: bool) -> None:
    activations = None if x_text is None else hc.format(x_text)
    x, w, bias, keywords = case(1)
    q = hc.quantize(w, w_text, axis=(2, 3, 1))
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    wanted = hc.conv2d(x, q, bias, activations=x_text, **keywords)
    if relu:
        wanted = np.where(wanted <= 0, np.float32(0), wanted)
    for order in (1, 7):
        got = emulated.conv2d(last, q, wanted.shape, window_of(**keywords), bias, activations, relu, order)
        assert got.tobytes() == wanted.tobytes()


KNOWN = [("int8", "int8"), ("int8", "int4-g32"), ("vsq4-g16-s4", "vsq4-g16-s4"), ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4")]


@pytest.mark.parametrize(("x_text", "w_text"), KNOWN)
@pytest.mark.parametrize("channels", [64, 48, 80, 20])
@pytest.mark.sweep(every=4)
def test_images_become_integers_where_they_are_quantized(x_text: str, w_text: str, channels: int) -> None:
    rng = np.random.default_rng(0)
    for order, shape in enumerate([(2, channels, 4, 2), (1, channels, 3, 3)]):
        x, w = rng.standard_normal(shape), rng.standard_normal((9, channels, 2, 2))
        last = np.ascontiguousarray(x.astype(np.float32).transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        q, keywords = (
            hc.quantize(w.astype(np.float32), w_text, axis=(2, 3, 1)),
            dict.fromkeys(("stride", "dilation"), 1),
        )
        wanted = hc.conv2d(last, q, activations=x_text, padding=1, groups=1, **keywords)
        window = window_of(padding=1, groups=1, **keywords)
        got = emulated.conv2d(last, q, wanted.shape, window, None, hc.format(x_text), order=order)
        assert got.tobytes() == wanted.tobytes()
        assert sum(name.startswith("hc_integers") for name in emulated.launched) == 1  # of the filters


@pytest.mark.parametrize(("x_text", "w_text"), [pair for pair in PAIRS if pair[0]])
@pytest.mark.sweep(every=3)
def test_nan_makes_the_answers_nan_that_depend_on_it(x_text: str, w_text: str) -> None:
    activations = hc.format(x_text)
    for number in range(len(SHAPES)):
        x, w, _, keywords = case(number)
        q = hc.quantize(w, w_text, axis=(2, 3, 1))
        x[0, 1, 3, 4] = 0
        ones = np.zeros_like(x)
        ones[0, 1, 3, 4] = 1
        touched = hc.conv2d(ones, np.ones_like(w), **keywords) > 0
        if x_text[:2] in {"in", "fp"} and "-g" not in x_text or x_text.startswith("vsq"):  # a scale of the image
            touched[0] = True
        wanted = hc.conv2d(x, q, activations=x_text, relu=True, **keywords)
        x[0, 1, 3, 4] = np.nan
        y = emulated.conv2d(x, q, wanted.shape, window_of(**keywords), None, activations, relu=True, order=number)
        assert (np.isnan(y) == touched).all()
        if touched[0].all():
            assert y[1:].tobytes() == wanted[1:].tobytes()
