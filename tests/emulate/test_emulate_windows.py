"""Emulated convolutions with groups and dilation: the bits of plain convolutions if sums are exact, per group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import bad_argument, reals

import heterocompute as hc

# x, w, groups, stride, padding, dilation
LAYERS: list[Any] = [
    ((3, 8, 6, 7), (4, 4, 3, 2), 2, 1, (1, 0), 1),
    ((2, 12, 7, 9), (6, 4, 3, 3), 3, 2, 2, (2, 3)),
    ((1, 5, 6, 6), (10, 1, 2, 2), 5, 1, "same", 2),
    ((2, 40, 5, 5), (4, 20, 1, 1), 2, 1, 0, 4),
    ((2, 4, 9, 9), (3, 4, 3, 3), 1, 3, "valid", 4),
    ((2, 4, 3, 6), (4, 4, 1, 1), 1, (1, 2), 0, 1),
]


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize(
    ("weights", "activations"),
    [("int8", "int8"), ("vsq4-g16-s4", "int8"), ("vsq4-g5-s4", "vsq4u-g16-s6"), ("int4-g16-f16", "int8-g5")],
)
def test_wide_accumulators_give_the_bits_of_the_plain_convolution(weights: str, activations: str, layer: Any) -> None:
    x, w = np.maximum(reals(layer[0], 1), 0), reals(layer[1], 2)
    bias = reals((len(w),), 3)
    groups, stride, padding, dilation = layer[2:]
    q = hc.quantize(w, weights, axis=(2, 3, 1))
    plain = hc.conv2d(x, q, bias, stride, padding, dilation, groups, activations)
    found = hc.emulate.conv2d(x, q, bias, stride, padding, activations, "int40-sat", dilation=dilation, groups=groups)
    assert np.array_equal(found, plain)


@pytest.mark.parametrize(
    ("text", "weights", "activations"),
    [("int10-sat", "int8", "int8"), ("fp16", None, None), ("int20-sat", "log8-8", "log8-8"), ("hmma", None, None)],
)
def test_a_group_is_a_convolution_of_its_own(text: str, weights: str | None, activations: str | None) -> None:
    x, w = reals((2, 6, 7, 8), 4), reals((4, 3, 3, 3), 5)
    scaled = activations is not None
    if scaled:  # one row per image: both halves have the same scale
        x[:, 0, 0, 0] = x[:, 3, 0, 0] = 100
    options: dict[str, Any] = {"stride": 2, "padding": 1, "activations": activations, "emulate": text, "dilation": 2}
    make = (lambda part: hc.quantize(part, weights, axis=(2, 3, 1))) if weights else (lambda part: part)
    whole = hc.emulate.conv2d(x, make(w), groups=2, **options)
    halves = [hc.emulate.conv2d(x[:, 3 * g : 3 * g + 3], make(w[2 * g : 2 * g + 2]), **options) for g in (0, 1)]
    assert np.array_equal(whole, np.concatenate(halves, axis=1))
    assert not np.array_equal(whole, hc.conv2d(x, make(w), None, 2, 1, 2, 2, activations))  # something was lost


def test_wrong_groups_and_dilations_are_sentences() -> None:
    x, w = np.ones((1, 6, 5, 5), np.float32), np.ones((4, 3, 3, 3), np.float32)
    for groups, sentence in [(1, "with groups 1, expected"), (4, "divisor of the 6 channels"), (0, "groups is 0")]:
        with pytest.raises(ValueError, match=sentence):
            hc.emulate.conv2d(x, w, groups=groups, emulate="fp32")
    with bad_argument(ValueError, "x", "shape"):
        hc.emulate.conv2d(x, w[:, :2], groups=3, emulate="fp32")
    with bad_argument(ValueError, "dilation", "value"):
        hc.emulate.conv2d(x, w, groups=2, dilation=0, emulate="fp32")
    with bad_argument(TypeError, "groups", "type"):
        hc.emulate.conv2d(x, w, groups="all", emulate="fp32")  # type: ignore[arg-type]
