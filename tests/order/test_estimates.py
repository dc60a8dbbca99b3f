"""Estimates know what a call costs besides its multiply-adds: empty lanes, results, biases and zeros of patterns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import isas, reals, same_bits

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.base import runtime
from heterocompute.products.arguments import core_operand
from heterocompute.products.conv import prepared

COUNTS = ("codes", "decoded", "unpacked", "limbs", "spread", "products", "wide", "groups", "values")


def counts(fmt: str, m: int, n: int, k: int, activations: str | None = None) -> dict[str, dict[str, float]]:
    """Return the counts of the paths that apply."""
    x: Any = reals((m, k), 1)
    w = core_operand(hc.quantize(reals((n, k), 2), fmt).T)
    operand = core_operand(hc.quantize(x, activations)) if activations else x
    _, _, (_, found, _) = core.explain(runtime.run(), operand, w, None, np.empty((m, n), np.float32))
    return {name: dict(zip(COUNTS, work, strict=True)) for name, _, reason, _, _, work in found if reason is None}


@pytest.mark.parametrize("isa", isas("gemv_groups"))
def test_empty_lanes_of_groups_are_counted(isa: str) -> None:
    with hc.use(isa=isa):
        few, many = (counts("nf4-g64", 2, 8, 64 * groups)["gemv"] for groups in (1, 16))
    assert few["products"] * (16 if isa == "scalar" else 1) == many["products"]


@pytest.mark.parametrize("isa", isas("gemv_scaled"))
def test_codes_that_a_kernel_widens_are_counted(isa: str) -> None:
    with hc.use(isa=isa):
        bytes_, nibbles = (counts(fmt, 8, 64, 512, "int8")["gemv"] for fmt in ("int8-g64", "int4-g64"))
    assert bytes_["wide"] == (bytes_["products"] if isa == "avx2" else 0)
    assert nibbles["wide"] == 0


def test_rows_that_fill_a_block_are_counted() -> None:
    one, four = (counts("int8", 2, rows, 512)["gemv"] for rows in (1, 4))
    assert one["products"] == four["products"]


@pytest.mark.parametrize(("fmt", "activations"), [("int8", None), ("int8", "int8"), ("int8-g64", "int8")])
def test_results_count_as_values(fmt: str, activations: str | None) -> None:
    few, many = (counts(fmt, 16, rows, 128, activations) for rows in (8, 64))
    for path in few.keys() & many.keys():
        assert many[path]["values"] > few[path]["values"], path


def seconds(x: Any, w: Any, bias: Any, activations: str | None = None) -> dict[str, float]:
    call = prepared("conv2d", x, w, bias, stride=1, padding=0, dilation=1, groups=1, activations=activations)
    return {name: time for name, _, reason, time, *_ in core.explain_conv2d(*call.core)[1] if reason is None}


def test_a_bias_takes_time_where_an_algorithm_does_not_add_it() -> None:
    x, w = reals((1, 16, 20, 20), 1), reals((24, 16, 1, 1), 2)
    without, with_bias = seconds(x, w, None), seconds(x, w, reals((24,), 3))
    assert with_bias["implicit"] > without["implicit"]
    assert with_bias["direct"] == without["direct"]


def test_zeros_of_a_pattern_take_time_where_they_are_multiplied() -> None:
    x, w = reals((1, 64, 8, 8), 1), reals((80, 64, 1, 1), 2)
    dense, pattern = (seconds(x, hc.quantize(w, fmt, axis=(2, 3, 1)), None) for fmt in ("int8", "int8+2:4"))
    assert pattern["direct"] > dense["direct"]
    assert pattern["implicit"] == dense["implicit"]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("isa", isas())
def test_a_bias_is_added_alike_in_every_layout(isa: str, relu: bool, layout: str) -> None:
    x, w = reals((2, 5, 6, 7), 1), reals((19, 5, 3, 3), 2)
    x[1, 2, 3, 4] = np.nan
    x = x if layout == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    wide = reals((38,), 3)
    wide[0] = -0.0
    for bias in (wide[:19], wide[::2], None):
        with hc.use(isa=isa):
            wanted = hc.conv2d(x, w, bias, padding=1, relu=relu, layout=layout, algorithm="direct")
            for gap in (0, 3):
                shape = [*wanted.shape[:3], wanted.shape[3] + gap]
                out = np.empty(shape, np.float32)[..., : wanted.shape[3]]
                hc.conv2d(x, w, bias, padding=1, relu=relu, layout=layout, algorithm="implicit", out=out)
                assert same_bits(out, wanted)
