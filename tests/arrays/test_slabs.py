"""Arrays processed some rows at a time have the same bits as the whole array."""

from __future__ import annotations

import importlib
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.arrays import dense, sparse

CASES = [
    ((7, 1000), 1, ["int4-g32", "vsq4-g16-s4", "nf4-g64-dq", "int8+2:4", "2:4", "mxfp4", "int4-g24", "int8-asym"]),
    ((1000, 7), 0, ["int4-g32", "vsq4-g16-s4", "int8+2:4", "2:4", "int4-g24", "mxfp4"]),
    ((20, 30, 3, 3), (2, 3, 1), ["int4-g16", "int8+2:4"]),
    ((20, 30), (0, 1), ["int8"]),
    ((5000,), 0, ["int8", "int4-g32"]),
    ((3, 1024), 1, ["q4_k", "q6_k"]),
]


def module(name: str) -> Any:
    """Return a module, which a function of the same name may hide."""
    return importlib.import_module(f"heterocompute.{name}")


@pytest.mark.parametrize(("shape", "axis", "texts"), CASES)
def test_error_is_the_same_in_blocks(shape: Any, axis: Any, texts: list[str], monkeypatch: Any) -> None:
    w = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    for text in texts:
        q = hc.prune(w, text, axis=axis) if text == "2:4" else hc.quantize(w, text, axis=axis)
        wanted = astuple(hc.error(w, q.dequantize()))[:-1]
        for values in (1, 100, 512, 3000, 1 << 22):
            monkeypatch.setattr(module("products.error"), "_BLOCK", values)
            assert astuple(hc.error(w, q))[:-1] == wanted
        found = np.full(shape, np.nan, np.float32)
        for index, slab in q._slabs(777):
            found[index] = slab
        assert np.array_equal(found, q.dequantize())


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 2**30), (1,)])
def test_error_of_few_values_or_none(shape: tuple[int, ...]) -> None:
    w = np.ones(shape, np.float32)
    assert hc.error(w, hc.quantize(w, "int8")).mse == 0


FORMATS = ["int4-g32", "int4-g32-asym-f16", "int8", "vsq4-g16-s4", "vsq4-g16-s4-tensor", "mxfp4", "nvfp4", "nf4-g64",
           "nf4-g16-dq", "fp8_e4m3fn-tensor", "cb4-g16", "int3-g20-asym", "int8+2:4"]  # fmt: skip


@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=12)
def test_scales_are_searched_the_same_in_blocks(text: str, monkeypatch: Any) -> None:
    rng = np.random.default_rng(0)
    for shape, axis in (((40, 96), 1), ((96, 40), 0), ((6, 8, 3, 3), (2, 3, 1)), ((3, 4, 5, 50), (1, 3))):
        x = rng.standard_normal(shape).astype(np.float32)
        found = []
        for values in (1, 1000, 1 << 19):
            monkeypatch.setattr(module("products.scale_search"), "_BLOCK", values)
            found.append(hc.quantize(x, text, axis=axis, clip="search"))
        assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.sweep(every=4)
def test_pruning_is_the_same_in_blocks(dtype: Any, monkeypatch: Any) -> None:
    rng = np.random.default_rng(0)
    for shape, axis in (((40, 96), 1), ((96, 40), 0), ((6, 8, 3, 3), (2, 3, 1)), ((3, 4, 5, 50), (1, 3)), ((64,), 0)):
        w = rng.integers(-9, 9, shape).astype(dtype)  # with ties
        for scores in (None, rng.integers(0, 5, shape).astype(np.float32)):
            for pattern in ("2:4", "3:5", "50%", "33.3%", "global:50%", "block:2x3:40%"):
                found = []
                for values in (1, 100, 1 << 20):
                    monkeypatch.setattr(module("pruning.prune"), "_CHUNK", values)
                    monkeypatch.setattr(sparse, "_BLOCK", values)
                    kept = hc.prune(w, pattern, axis=axis, scores=scores)
                    mask = hc.prune_mask(w, pattern, axis=axis, scores=scores)
                    found.append((kept if pattern[1] == ":" else (kept.dtype, kept.tobytes()), mask.tobytes()))
                    whole = kept.to_dense() if pattern[1] == ":" else kept
                    assert np.array_equal(whole.astype(np.float32), np.where(mask, w, 0).astype(np.float32))
                assert found[0] == found[1] == found[2], (shape, pattern)


def test_refusals_name_the_index_in_the_whole_array(monkeypatch: Any) -> None:
    for place, name in ((dense, "_BLOCK"), (sparse, "_BLOCK"), (module("pruning.prune"), "_CHUNK")):
        monkeypatch.setattr(place, name, 8)
    w = np.zeros((6, 2, 8), np.float16)
    w[4, 1, 3] = np.nan
    for pattern in ("2:4", "50%", "global:50%"):
        with bad_argument(ValueError, "w", "value", r"at index \(4, 1, 3\)"):
            hc.prune(w, pattern)
        with bad_argument(ValueError, "w", "value", r"at index \(4, 1, 3\)"):
            hc.prune_mask(w, pattern)
    with bad_argument(ValueError, "x", "value", r"at index \(4, 1, 3\)"):
        hc.ptq.Hessian(8).add(w)


def test_rotations_are_the_same_in_blocks(monkeypatch: Any) -> None:
    rng = np.random.default_rng(0)
    cases: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((3, 12), {}), ((5, 8, 24), {"axis": 1}), ((4, 8, 24), {"axis": 0}), ((30, 64), {"seed": 3}),
        ((30, 64), {"seed": 3, "inverse": True, "block": 16}), ((256,), {"seed": 1, "block": 32}), ((256,), {}),
        ((0, 8), {}), ((3, 0), {}), ((1, 1), {}), ((70, 80), {"seed": 5, "inverse": True}),
    ]  # fmt: skip
    for shape, more in cases:
        x = rng.standard_normal(shape).astype(np.float32)
        found = []
        for values in (1, 100, 1 << 16):
            monkeypatch.setattr(module("ptq.hadamard"), "_BLOCK", values)
            found += [hc.ptq.hadamard(y, **more).tobytes() for y in (x, np.asfortranarray(x))]
            own = x.copy()
            assert hc.ptq.hadamard(own, out=own, **more) is own
            found.append(own.tobytes())
        assert len(set(found)) == 1, (shape, more)


def test_sums_of_inputs_are_the_same_for_any_strides(monkeypatch: Any) -> None:
    inputs = np.random.default_rng(0).standard_normal((6, 10, 4, 32)).astype(np.float32)
    views = [
        inputs,
        inputs[:, ::2],
        inputs.transpose(1, 0, 2, 3),
        inputs[:, :1],
        inputs[:0],
        inputs[0, 0],
        inputs[::-1],
    ]
    for values in (64, 32 * 7, 1 << 21):
        monkeypatch.setattr(module("ptq.hessian"), "_CHUNK", values)
        for x in views:
            for groups in (1, 4):
                one, other = hc.ptq.Hessian(32, groups), hc.ptq.Hessian(32, groups)
                one.add(x, x * 2)
                plain = np.ascontiguousarray(x).reshape((-1, groups, 32) if groups > 1 else (-1, 32))
                other.add(plain, plain * 2)
                assert (one.tokens, one.matrix.tobytes()) == (other.tokens, other.matrix.tobytes())
                assert one.mean.tobytes() == other.mean.tobytes()
                assert one.cross is None or one.cross.tobytes() == other.cross.tobytes()  # type: ignore[union-attr]
