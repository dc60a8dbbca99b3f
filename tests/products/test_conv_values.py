"""NaN, infinity and nothing in convolutions: one rule for every algorithm, layout and view."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from common import reals

import heterocompute as hc

ALGORITHMS = ("direct", "depthwise", "implicit", "im2col", "auto")
PATTERNS = ("2:4", "1:4", "int8+2:4", "vsq4-g16-s4+2:4", "nf4-g64+2:4", "mxfp4+1:4")


def equal(a: Any, b: Any) -> bool:
    """The same bits, the sign of a NaN aside."""
    return bool(((a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))).all())


def answers(x: Any, q: Any, **more: Any) -> dict[str, Any]:
    found = {}
    for name in ALGORITHMS:
        try:
            found[name] = hc.conv2d(x, q, algorithm=name, **more)
        except ValueError as error:
            assert "refuses this convolution: " in str(error)
    return found


@pytest.mark.parametrize("text", PATTERNS)
@pytest.mark.parametrize("shape", [(2, 16, 40, 1, 3, 1), (1, 8, 24, 3, 2, 2), (2, 32, 2, 2, 2, 2), (1, 4, 8, 2, 1, 1)])
def test_zeros_that_a_pattern_leaves_out_are_skipped_by_every_algorithm(text: str, shape: Any) -> None:
    n, run, filters, groups, side, stride = shape
    w = reals((filters, run, side, side), 1)
    q = hc.quantize(w, text, axis=(2, 3, 1)) if "+" in text else hc.prune(w, text, axis=(2, 3, 1))
    more = {"stride": stride, "padding": 1, "groups": groups}
    plain = reals((n, run * groups, 6, 7), 2)
    for kind in ("plain", "not finite", "tiny"):
        x = plain.copy()
        if kind == "not finite":
            x[0, ::5, 2, 3], x[0, 1, 0, 0], x[-1, -1, 5, 6] = np.nan, np.inf, -np.inf
        if kind == "tiny":
            x *= np.float32(1e-42)
        for image in (x, np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)):
            found = answers(image, q, **more)
            assert all(equal(one, found["implicit"]) for one in found.values()), kind
            assert ("direct" in found) == (kind == "plain") or kind == "tiny"
    one = np.zeros((1, 4, 1, 1), np.float32)
    one[0, :, 0, 0] = 1, np.nan, 2, np.inf
    kept = hc.prune(np.float32([[[[3]], [[0]], [[5]], [[0]]]]), "2:4", axis=(2, 3, 1))
    assert hc.conv2d(one, kept).item() == 13
    assert hc.explain(hc.conv2d, one, kept).chosen in ("implicit", "im2col")


def test_the_first_value_that_is_refused_is_the_first_of_x_as_it_was_given() -> None:
    x = reals((2, 4, 5, 6), 3)
    x[1, 1, 2, 3], x[1, 2, 0, 1], x[1, 3, 0, 0] = np.nan, np.inf, -np.inf
    names = itertools.product((1, 2, 4), ("direct", "depthwise", "implicit", "winograd2", "auto"), (False, True))
    for groups, algorithm, gaps in names:
        q = hc.quantize(reals((4, 4 // groups, 3, 3), 4), "int8", axis=(2, 3, 1))
        for layout, value, index in (
            ("NCHW", "nan", r"\(1, 1, 2, 3\)"),
            ("NHWC", "-inf", r"\(1, 0, 0, 3\)"),
        ):
            image = x if layout == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))
            image = np.repeat(image, 2, axis=3)[..., ::2] if gaps else image
            words = f"conv2d: x has {value} at index {index}"
            words += "" if groups == 4 or algorithm != "depthwise" else "|refuses this convolution: "
            with pytest.raises(ValueError, match=words):
                hc.conv2d(image, q, groups=groups, activations="int8", algorithm=algorithm, layout=layout)
    wide = reals((1, 2, 2, 3), 5).astype(np.float64)
    wide[0, 0, 1, 1], wide[0, 1, 0, 0] = 1e39, -1e40
    w = np.ones((1, 2, 1, 1), np.float32)
    for layout, index in (("NCHW", r"1e\+39 at index \(0, 0, 1, 1\)"), ("NHWC", r"-1e\+40 at index \(0, 0, 0, 1\)")):
        image = wide if layout == "NCHW" else wide.transpose(0, 2, 3, 1)
        with pytest.raises(ValueError, match=f"conv2d: x has {index}, beyond float32's largest"):
            hc.conv2d(image, w, activations="int8", layout=layout)
    x[1, 1, 2, 3] = 1
    x[1, 3, 3, 3] = np.nan
    with pytest.raises(ValueError, match=r"x has inf at index \(1, 2, 0, 1\)"):
        hc.conv2d(x, np.ones((1, 4, 1, 1), np.float32), activations="int8")


@pytest.mark.parametrize("activations", [None, "int8", "nf4-g64"])
def test_no_images_have_no_answers(activations: Any) -> None:
    for groups in (1, 4):
        x, w = np.zeros((0, 4, 6, 6), np.float32), np.ones((8, 4 // groups, 3, 3), np.float32)
        for weights in (w, hc.quantize(w, "int8", axis=(2, 3, 1)), hc.quantize(w, "nf4-g64", axis=(2, 3, 1))):
            assert hc.conv2d(x, weights, padding=1, groups=groups, activations=activations).shape == (0, 8, 6, 6)
        last = np.zeros((0, 6, 6, 4), np.float32)
        assert hc.conv2d(last, w, groups=groups, activations=activations, layout="NHWC").shape == (0, 4, 4, 8)
        for emulate in ("int32", "fp32"):
            q = hc.quantize(w, "int8", axis=(2, 3, 1)) if emulate == "int32" else w
            kind = "int8" if emulate == "int32" else None
            found = hc.emulate.conv2d(x, q, np.ones(8, np.float32), 1, 1, kind, emulate, groups=groups)
            assert found.shape == (0, 8, 6, 6)
    net = hc.zoo.digits()
    assert net.forward(net.weights, net.test_x[:0], activations).shape == (0, 10)
