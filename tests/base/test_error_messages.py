"""Error messages: infinities, overflows and clips combined, and arbitrary arguments of the sparsity functions."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from math import inf, isnan
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.base.errors import WrongValue


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_equal_infinities_lose_nothing(dtype: type) -> None:
    w = np.array([[inf, 1, -inf, 3], [2, -1, 0, inf]], dtype)
    q = np.array([[inf, 1.5, -inf, 3], [2, -1, 0, inf]], dtype)
    same, near = hc.error(w, w), hc.error(w, q)
    assert (same.sqnr_db, same.mse, same.max_abs) == (inf, 0, 0) and same.cosine == pytest.approx(1, abs=1e-15)
    finite = np.isfinite(w)
    alone = hc.error(np.where(finite, w, 0), np.where(finite, q, 0))
    assert near == alone and near.mse == 0.25 / 8


def test_an_infinity_against_another_value_is_an_infinite_error() -> None:
    for other in (-inf, 3e38):
        found = hc.error(np.float32([inf, 1]), np.float32([other, 1]))
        assert isnan(found.sqnr_db) and found.mse == inf == found.max_abs
    assert isnan(hc.error(np.float32([np.nan, inf]), np.float32([np.nan, inf])).mse)


def test_a_format_that_keeps_infinities_has_the_error_of_the_rest() -> None:
    w = np.float32([[inf, 1.0001, -inf, 2.5]])
    q = hc.quantize(w, "fp16-nosat")
    assert np.isinf(np.asarray(q)).sum() == 2
    assert hc.error(w, q).max_abs == pytest.approx(1e-4, rel=0.5) and hc.error(w, q).sqnr_db > 60


@pytest.mark.parametrize("value", [1e308, 1e39, inf])
def test_importance_beyond_float32_is_named_as_it_came(value: float) -> None:
    weights = np.ones((2, 3))
    weights[1, 2] = value
    with pytest.raises(
        ValueError, match=rf"importance has {value:g} at index \(1, 2\), expected .*float32".replace("+", "\\+")
    ):
        hc.quantize(np.ones((2, 3), np.float32), "cb1", importance=weights)


@pytest.mark.parametrize("text", ["cb4", "cb2-tensor", "fp16", "fp8_e4m3fn", "mxfp4-ceil", "mxint8"])
def test_a_clip_names_the_format(text: str) -> None:
    w = np.ones((2, 64), np.float32)
    for call in (hc.quantize, hc.fake_quantize):
        for clip in (0.5, "octav", "percentile:99"):
            with pytest.raises(ValueError, match=f": {text} has no scale that clip= could change"):
                call(w, text, clip=clip)
    with bad_argument(ValueError, None, "value", "int4-g32"):
        hc.quantize(w, "int4-g32", importance=w)


def test_an_empty_text_says_so() -> None:
    for text in ("", "  \n"):
        with bad_argument(ValueError, None, "value", "'vsq4-g16-s4'"):
            hc.format(text)


W = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
S, E, B, Q = hc.prune(W, "2:4"), hc.encode_eie(W), hc.encode_bitmap(W), hc.quantize(W, "int8")
HALF = hc.prune(np.ones((32, 32), np.float32), "2:4")
X4, W4 = np.ones((1, 4, 6, 6), np.float32), np.ones((4, 4, 3, 3), np.float32)
RECURSIVE: list[Any] = []
RECURSIVE.append(RECURSIVE)
ODD: list[Any] = [
    None, "x", "2:4\0", "9" * 5000, b"2:4", 2.5, -1, True, 2**70, -(2**70), 1j, np.nan, np.inf, np.float32(3),
    np.array(2.0), [], (), {}, set(), (1.5, 2), [[1.0, 2.0], [3.0]], RECURSIVE, range(3), slice(None), Ellipsis,
    object(), float, len, np.array([None, 1], object), W.astype(complex), np.zeros((8, 16), [("a", "f4")]),
    W.astype(int), W > 0, W[:0], W[:, :0], W[0], np.ones((2, 8, 16), np.float32), np.where(W > 1, np.nan, W),
    np.where(W > 1, 1e300, W.astype(float)),
    np.array(["a"]), np.datetime64("2020"), memoryview(W), (i for i in ()), S, E, B, Q, [W.tolist()],
]  # fmt: skip
CALLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "prune": (hc.prune, {"w": W, "pattern": "2:4", "axis": -1, "scores": W}),
    "prune share": (hc.prune, {"w": W, "pattern": "50%", "axis": -1, "scores": W}),
    "prune_mask": (hc.prune_mask, {"w": W, "pattern": "block:4x1:50%", "axis": -1, "scores": W}),
    "permute_channels": (hc.permute_channels, {"w": W, "pattern": "2:4", "axis": -1, "effort": "fast"}),
    "permute_linear": (hc.permute_linear, {"first": W, "bias": W[:, 0], "second": W.T, "permutation": np.arange(8)}),
    "wanda": (hc.scores.wanda, {"w": W, "x": W}),
    "sparsegpt": (hc.scores.sparsegpt, {"w": W, "h": np.eye(16), "pattern": "2:4", "damping": 0.01}),
    "SparseArray": (
        hc.SparseArray,
        {"components": S.components, "format": S.format, "shape": (8, 16), "axis": (1,), "source_dtype": "float32"},
    ),
    "from_mask": (hc.SparseArray.from_mask, {"w": W, "mask": S.mask, "pattern": "2:4", "axis": -1}),
    "from_semi_structured": (
        hc.SparseArray.from_semi_structured,
        dict(zip(("values", "metadata"), HALF.to_semi_structured(), strict=True)),
    ),
    "to_semi_structured": (HALF.to_semi_structured, {"dtype": np.float16}),
    "to_dense": (S.to_dense, {"dtype": np.float32}),
    "to_scipy": (S.to_scipy, {"layout": "csr"}),
    "encode_eie": (hc.encode_eie, {"w": W, "codebook": np.arange(16.0), "elements": 4}),
    "EIEArray": (hc.EIEArray, {"components": E.components, "shape": (8, 16), "axis": (1,)}),
    "EIEArray.to_dense": (E.to_dense, {"dtype": np.float32}),
    "load_balance": (E.load_balance, {"x": W[0], "depth": 8}),
    "encode_bitmap": (hc.encode_bitmap, {"a": W}),
    "BitmapArray": (hc.BitmapArray, {**B.components, "shape": (8, 16)}),
    "conv2d_outer": (
        hc.conv2d_outer,
        {
            "x": X4,
            "w": W4,
            "bias": np.ones(4, np.float32),
            "stride": 1,
            "padding": 1,
            "counts": True,
            "cells": (2, 2),
            "multipliers": (4, 4),
            "banks": 32,
            "accumulators": 1024,
            "out": None,
        },
    ),  # fmt: skip
    "explain": (hc.explain, {"a": W, "b": S.T, "activations": "2:4"}),
    "explain compressed": (hc.explain, {"a": E, "b": W.T, "activations": "int8"}),
    "matmul": (hc.matmul, {"a": E, "b": W.T, "activations": "int8", "out": None}),
    "linear": (hc.linear, {"x": W, "w": S, "bias": W[:, 0], "activations": "int8", "out": None}),
    "Sparse": (hc.Sparse, {"base": hc.Int(8), "n": 2, "m": 4}),
    "quantize": (hc.quantize, {"w": S, "format": "int8", "axis": -1, "clip": None, "importance": None}),
    "study_density": (
        hc.study_density,
        {
            "weights": {"a": W},
            "patterns": ["2:4"],
            "evaluate": lambda w: 0.5,
            "include": None,
            "axis": None,
            "slack": 0.01,
            "progress": None,
        },
    ),  # fmt: skip
}
PYTHONS_OWN = re.compile(
    "not iterable|as an integer|truth value|not supported between|has no attribute|subscriptable|Cannot interpret|"
    "inhomogeneous|unhashable|not callable|not understood|update sequence|scalar arrays|PathLike object, not|sub-views"
)
USERS = (float, len)  # callables of the user, whose own errors are passed on


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("error")
def test_whatever_comes_the_answer_is_a_sentence(name: str) -> None:
    call, good = CALLS[name]
    call(**good)
    for argument in good:
        for odd in ODD:
            if argument in ("evaluate", "progress") and any(odd is one for one in USERS):
                continue
            given = {**good, argument: odd.copy() if isinstance(odd, np.ndarray) else odd}
            try:
                call(**given)
            except (TypeError, ValueError) as error:
                text = str(error)
                assert text and "\n" not in text and len(text) < 400, (argument, text)
                assert not PYTHONS_OWN.search(text), (argument, text)
            except OSError:  # a string is treated as a file name
                assert argument == "weights" and isinstance(odd, (str, bytes))


def test_numbers_of_any_kind_are_numbers() -> None:
    for slack in (1, np.float32(0.5), np.float16(0.5), np.int8(1), Fraction(1, 2), Decimal("0.5"), np.array(0.5)):
        assert hc.study_density({"a": W}, ["2:4"], lambda w: 1.0, slack=slack).slack == float(slack)
    for odd in (True, np.True_, "1", None, 1j, [0.5], np.ones(1)):
        with bad_argument(TypeError, "slack", "type"):
            hc.study_density({"a": W}, ["2:4"], lambda w: 1.0, slack=odd)
    for value in (0, -1, np.nan, np.inf, 10**400):
        with bad_argument(ValueError, "slack", "value"):
            hc.study_density({"a": W}, ["2:4"], lambda w: 1.0, slack=value)


def test_a_value_of_a_sparse_array_is_named_by_its_place_in_the_array() -> None:
    w = np.ones((4, 8), np.float32)
    w[2, 5] = inf
    for array in (hc.prune(w, "2:4"), hc.prune(w.T, "2:4", axis=0)):
        place = r"\(2, 5\)" if array.axis == (1,) else r"\(5, 2\)"
        with pytest.raises(ValueError, match=rf"quantize: w has inf at index {place}$"):
            hc.quantize(array, "int8")
    with bad_argument(ValueError, "w", "value", r"at index \(2, 5\)"):
        hc.fake_quantize(w, "int8+2:4")
    w[2, 5] = np.nan
    with bad_argument(ValueError, "w", "value", r"at index \(2, 5\)"):
        hc.fake_quantize(w, "2:4")
    with bad_argument(ValueError, "w", "value", r"at index \(2, 5\)"):
        hc.prune(w, "2:4")


def test_a_source_dtype_is_one_of_floats() -> None:
    for odd in (None, "int8", 3, np.float32):
        with bad_argument(ValueError, "source_dtype", "value"):
            hc.SparseArray(S.components, S.format, S.shape, S.axis, odd)  # type: ignore[arg-type]
    with bad_argument(TypeError, "shape", "type"):
        hc.SparseArray(S.components, S.format, None, S.axis)  # type: ignore[arg-type]
    with bad_argument(ValueError, "axis", "axis"):
        hc.SparseArray(S.components, S.format, S.shape, (2,))


def test_scores_beyond_float32_are_refused() -> None:
    with bad_argument(
        ValueError, None, "value", r"wanda: the score of w at index \(0, 0\) is beyond float32's largest"
    ):
        hc.scores.wanda(np.full((2, 4), 1e30), np.full((3, 4), 1e30))
    with bad_argument(ValueError, None, "value", "sparsegpt: changed weights are beyond float32's largest"):
        hc.scores.sparsegpt(np.full((2, 4), 1e300), np.eye(4))
    with bad_argument(ValueError, "x", "value", r"at index \(0, 1\)"):
        hc.scores.wanda(np.ones((2, 2)), np.array([[1, np.nan]]))


@pytest.mark.parametrize("value", [np.nan, inf, 1e300])
def test_a_study_names_what_is_not_finite(value: float) -> None:
    w = np.ones((4, 8))
    w[2, 5] = value
    for formats in (["int8"], ["2:4"], ["fp16-nosat"], ["fp32"]):
        with pytest.raises(ValueError, match=rf"^tensor 'w': w has {value} at index \(2, 5\)".replace("+", r"\+")):
            hc.study({"w": w}, formats)


def test_the_core_names_the_value_that_it_refuses_not_one_that_it_takes() -> None:
    x = np.ones((3, 8), np.float32)
    x[0, 0], x[1, 2] = np.inf, np.nan  # a pattern keeps infinities
    q = hc.quantize(np.ones((4, 8), np.float32), "int8")
    calls = {
        "linear: x": lambda: hc.linear(x, q, activations="fp16+2:4"),
        "matmul: b": lambda: hc.matmul(q, x.T, activations="2:4"),
        "quantize: w": lambda: hc.quantize(x, "2:4"),
        "prune_mask: w": lambda: hc.prune_mask(x, "2:4"),
        "prune: scores": lambda: hc.prune(np.ones_like(x), "2:4", scores=x),
    }
    for name, call in calls.items():
        index = (2, 1) if name == "matmul: b" else (1, 2)
        with pytest.raises(ValueError) as caught:
            call()
        assert type(caught.value) is WrongValue and str(caught.value) == f"{name} has nan at index {index}"


def test_a_text_is_not_an_array() -> None:
    x, w = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 3, 3), np.float32)
    for call, name in (
        (lambda text: hc.conv2d(x, w, layout=text), "layout"),
        (lambda text: hc.conv2d(x, w, accuracy=text), "accuracy"),
        (lambda text: hc.conv2d(x, w, algorithm=text), "algorithm"),
        (lambda text: hc.conv2d_backward_weight(x, x, 1, layout=text), "layout"),
        (lambda text: hc.training.fake_quantize(w, "int8", rounding=text), "rounding"),
    ):
        with pytest.raises(TypeError, match=rf": {name} is an array of float32 \(1, 1, 3, 3\), expected a str"):
            call(w)
