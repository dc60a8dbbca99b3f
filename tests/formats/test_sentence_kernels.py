"""Kernels of sentences: every instruction set gives the bytes of the definition, near all bounds and for all codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import isas, same_bits

import heterocompute as hc
from heterocompute.formats import Levels
from heterocompute.formats.own import Own
from heterocompute.reference import product

SENTENCES = [
    "e3m4", "e4m3-nosat", "e2m1", "e4m3fnuz", "e5m2fnuz-row", "e3m4-g32-e8m0", "e4m3b11fnuz-g16-e8m0-ceil",
    "e2m1-g16-e4m3fn-f32tensor", "e2m3-g16-f16", "e4m3fn-b3x16", "e3m0-g8", "posit8.1-row", "posit6.2-g16-bf16",
    "takum8-row", "ternary-g128-absmean", "ternary-tensor-absmean", "binary-g64-absmean", "log5-3-g32",
    "log8-8-tensor", "int2-g64-bf16", "int3full-g9", "int4f2-g32-e8m0", "uint5-g16-s8-f32row", "int8-g16-s4-f32tensor",
    "int8f6-g32-e8m0-rceil", "int7-g16-e4m3fn-f32row", "uint8", "uint8-b2x8-f16", "binary8p3se", "binary8p4ue-row",
    "int9-tensor", "int12-g64-bf16", "int16full-tensor", "uint11-g5-f16", "int13f5-g8-e8m0", "int10-g16-s6-f32row",
    "e5m10", "e5m10-g16", "e4m5-g32-e8m0", "e8m7-row", "e5m8-g16", "ue5m6-row",
]  # fmt: skip


def formats() -> list[Own]:
    """Return formats of all kinds, with tables of different spacing."""
    found: list[Any] = [hc.format(text) for text in SENTENCES]
    found += [Own(Levels.student_float(4, 5), "f16", 64), Own(Levels.normal_float(3), group=16)]
    found.append(Own(Levels((-1.0, -1 + 2.0**-22, 0.0, 2.0**-90, 1.0)), group=8))  # no buckets separate these
    found.append(Own(Levels((-3.0, 1.0), (0.25,)), group=8))
    return found


def near_bounds(fmt: Own, rng: np.random.Generator, scale: float) -> np.ndarray[Any, Any]:
    """Return numbers near all bounds and levels times a scale, and others."""
    if fmt.element.bits > 8:
        step = np.arange(-70000, 70000, 97) / 2
        return np.concatenate([step, step / 64, rng.standard_normal(2000) * 1000]) * scale
    table = fmt.element.table(fmt.saturate)
    at = np.concatenate([table.bounds, table.levels, np.logspace(-30, 30, 40), -np.logspace(-30, 30, 40)])
    at = at[np.isfinite(at) & (np.abs(at) < 1e30)]
    at = np.concatenate([at * (1 + k * 2.0**-24) for k in range(-9, 10)] + [np.nextafter(at, 9), np.nextafter(at, -9)])
    return np.concatenate([at, rng.choice(at, 500) * rng.uniform(0.9, 1.1, 500), [0.0, -0.0] * 20]) * scale


def arrays(fmt: Own) -> list[np.ndarray[Any, Any]]:
    """Return arrays whose scales are powers of two, other floats, and very small ones."""
    rng, found = np.random.default_rng(3), []
    for scale in (1.0, 2.0**-7, 0.7123, 1e-33, 3e-42):
        for dtype in (np.float32, np.float64):
            x = near_bounds(fmt, rng, scale)
            if (fmt.scale is not None) and rng.random() < 0.8:  # so that the scale of most rows is `scale`
                x = np.clip(x, -fmt.used_target * scale, fmt.used_target * scale)
            x = rng.permutation(x)
            x = np.resize(x, (4, -(-len(x) // 4)))
            if fmt.scale is not None:
                x[:, ::64] = fmt.used_target * scale
            found.append(x.astype(dtype))
    found.append(rng.standard_normal((9, 1100)).astype(np.float32))
    found.append(rng.standard_normal((3, 37)))
    found[-1][1] = 0
    return found


def outcome(x: np.ndarray[Any, Any], fmt: hc.Format) -> Any:
    try:
        return hc.quantize(x, fmt)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("fmt", formats(), ids=lambda fmt: str(fmt)[:40])
@pytest.mark.sweep(every=4)
def test_every_instruction_set_encodes_and_decodes_as_the_definition(fmt: Own) -> None:
    for x in arrays(fmt):
        with hc.use(isa="scalar"):
            wanted = outcome(x, fmt)
            if not isinstance(wanted, str):
                decoded = wanted.dequantize(), wanted.dequantize(np.float64)
        for isa in isas("encode_own", "values_own", "codes_own"):
            with hc.use(isa=isa):
                found = outcome(x, fmt)
                if isinstance(wanted, str):
                    assert found == wanted
                    continue
                for name, part in wanted.components.items():
                    assert part.tobytes() == found.components[name].tobytes(), (isa, name, x.dtype)
                assert same_bits(decoded[0], wanted.dequantize()), isa
                assert same_bits(decoded[1], wanted.dequantize(np.float64)), isa
                for first in (8, 16, 1024):
                    if first < x.shape[1]:
                        assert same_bits(decoded[0][:, first:], wanted.dequantize()[:, first:])


@pytest.mark.parametrize("text", SENTENCES)
def test_values_that_are_not_finite_are_refused_or_kept_alike(text: str) -> None:
    for bad in (np.nan, np.inf, -np.inf, 1e39):
        x = np.random.default_rng(1).standard_normal((3, 200)).astype(np.float64 if bad == 1e39 else np.float32)
        x[1, 77] = bad
        with hc.use(isa="scalar"):
            wanted = outcome(x, hc.format(text))
        for isa in isas("encode_own"):
            with hc.use(isa=isa):
                found = outcome(x, hc.format(text))
            if isinstance(wanted, str):
                assert found == wanted
            else:
                assert all(p.tobytes() == found.components[n].tobytes() for n, p in wanted.components.items())


@pytest.mark.parametrize("text", ["int4f2-g32-e8m0", "int4f2", "int8f3", "e2m1-row", "e2m3-row", "e2m3-g16-f16",
                                  "ternary-g128-absmean", "int9", "int12-g64-bf16", "uint5-g16-s8-f32row",
                                  "int10-g16-s6-f32row", "e3m4-g32-e8m0", "int8-g16-s4-f32tensor",
                                  "binary-g64-absmean", "log5-3-g32", "whole", "uneven"])  # fmt: skip
def test_matmuls_have_the_bits_of_the_definition_with_each_instruction_set(text: str) -> None:
    rng = np.random.default_rng(5)
    tables = {"whole": [-9.0, -4, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64], "uneven": [-1.0, -0.3, 0, 0.3, 1]}
    fmt = Own(Levels(tuple(tables[text])), "f16", 64) if text in tables else hc.format(text)
    q = hc.quantize(rng.standard_normal((33, 320)).astype(np.float32), fmt)
    for rows in (1, 3, 20):
        x: Any = rng.standard_normal((rows, 320)).astype(np.float32)
        for values in (x, hc.quantize(x, "int8"), hc.quantize(x, "int8-g32")):
            wanted = product.matmul(values, q.T)
            for isa in isas():
                with hc.use(isa=isa):
                    assert same_bits(wanted, hc.matmul(values, q.T)), isa
