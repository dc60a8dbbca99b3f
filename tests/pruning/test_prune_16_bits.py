"""float16 and bfloat16 keep their dtype in pruning: half the bytes, and the same nonzeros as float32 values."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common import bad_argument, isas, reals, same_bits

import heterocompute as hc
from heterocompute.cli import main

DTYPES = [np.float16, ml_dtypes.bfloat16]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)


@each_dtype
@pytest.mark.parametrize("isa", isas())
def test_values_and_products_are_those_of_float32(dtype: Any, isa: str) -> None:
    with hc.use(isa=isa):
        for pattern, shape, axis in (
            ("2:4", (9, 70), -1),
            ("1:8", (33, 128), -1),
            ("3:7", (6, 5, 3, 3), (2, 3, 1)),
            ("1:1", (4, 9), 0),
            ("2:4", (0, 8), -1),
        ):
            w = reals(shape, 1, dtype)
            s, wide = hc.prune(w, pattern, axis), hc.prune(w.astype(np.float32), pattern, axis)
            assert s.components["values"].dtype == w.dtype and s.source_dtype == w.dtype.name
            for double in (np.float32, np.float64):
                assert same_bits(s.dequantize(double), wide.dequantize(double))
            assert same_bits(s.to_dense(dtype), wide.to_dense(dtype)) and (s.mask == wide.mask).all()
            assert (s.codes().view(dtype) == wide.to_dense(dtype)).all()
            assert same_bits(s.scales_expanded(), wide.scales_expanded())
            assert hc.SparseArray.from_mask(w, s.mask, pattern, axis) == s
            if s.ndim == 2 and axis == -1:
                assert same_bits(s[1:3].to_dense(), wide[1:3].to_dense())
                for rows in (1, 5, 40):
                    x = reals((rows, shape[1]), rows)
                    for activations in (None, "int8"):
                        assert same_bits(hc.linear(x, s, None, activations), hc.linear(x, wide, None, activations))
            elif s.ndim == 4:
                assert same_bits(hc.conv2d(reals((1, 5, 8, 8)), s), hc.conv2d(reals((1, 5, 8, 8)), wide))
            if s.size:
                q, other = hc.quantize(s, "int8"), hc.quantize(wide, "int8")
                assert all(same_bits(q.components[name], other.components[name]) for name in other.components)


@each_dtype
def test_other_patterns_leave_the_dtype(dtype: Any) -> None:
    w = reals((8, 24), 2, dtype)
    w[0, 0] = np.inf
    for pattern in ("50%", "global:30%", "block:4x1:50%"):
        pruned = hc.prune(w.T, pattern)
        assert pruned.dtype == w.dtype
        assert same_bits(pruned.astype(np.float32), hc.prune(w.T.astype(np.float32), pattern))


@each_dtype
def test_files_hold_16_bits_and_older_ones_are_read(dtype: Any, tmp_path: Path) -> None:
    w = reals((16, 64), 3, dtype)
    plain, pruned, again = (str(tmp_path / f"{name}.safetensors") for name in ("plain", "pruned", "again"))
    hc.save(plain, {"w": w})
    assert main(["prune", plain, pruned, "--pattern", "2:4"]) == 0
    s = hc.load(pruned)["w"]
    assert s == hc.prune(w, "2:4") and s.nbytes == w.nbytes * 9 // 16
    assert pickle.loads(pickle.dumps(s)) == s == copy.deepcopy(s)
    values = s.components["values"].astype(np.float32)
    old = hc.SparseArray({**s.components, "values": values}, s.format, s.shape, s.axis, s.source_dtype)
    hc.save(plain, {"w": old})
    assert hc.load(plain)["w"] == old
    for path in (pruned, plain):
        for command in (["quantize", "--format", "int8"], ["dequantize"], ["quantize", "--format", "2:4"]):
            assert main([command[0], path, again, "--overwrite", *command[1:]]) == 0
            found = hc.load(again)["w"]
            if "int8" in command:
                assert found == hc.quantize(s, "int8") and str(found.format) == "int8+2:4"
            elif "2:4" in command:
                assert found == hc.load(path)["w"]
            else:
                assert found.dtype == w.dtype and same_bits(found, s.to_dense(dtype))


def test_values_of_other_dtypes_are_refused() -> None:
    s = hc.prune(reals((2, 8), 4), "2:4")
    for dtype in (np.float64, np.int16):
        parts = {**s.components, "values": s.components["values"].astype(dtype)}
        with bad_argument(ValueError, None, "value", "component values is .*, expected float32"):
            hc.SparseArray(parts, s.format, s.shape, s.axis)
