"""Memory of a conversion: twice the largest tensor, for all layouts, and blocks of rows."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import heterocompute as hc

BLOCKS = 40 << 20  # a piece of a file, and some unpacked rows


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("memory") / "model.safetensors"
    w = np.random.default_rng(0).standard_normal((12288, 4096), np.float32)
    hc.save(path, {"fc.weight": hc.quantize(w, "int8-g64-f16")}, layout="compressed-tensors")
    return path


@pytest.mark.sweep(every=16)
@pytest.mark.parametrize(
    "layout, lossy",
    [
        ("gptq", None),
        ("heterocompute", None),
        ("compressed-tensors", None),
        ("mlx", None),
        ("compressed-tensors", "int4-g32-f16"),
        ("awq", "int4-g64-asym-f16"),
        ("heterocompute", "nf4-g64"),
    ],
)
def test_a_conversion_holds_the_largest_tensor_twice(source, tmp_path, layout, lossy):
    row, excess = converted(source, tmp_path / "out", layout, lossy)
    assert row["status"] in ("equal", "closed form", "lossy") and 50e6 < max(row["bytes_before"], row["bytes"]) < 60e6
    assert excess < BLOCKS, excess >> 20


@pytest.mark.sweep(every=0)
@pytest.mark.parametrize("layout", ["mlx", "gptq"])
def test_small_groups_have_many_scales(tmp_path, layout):
    """Scales and biases of groups of 32 are a seventh of the weight, so they are unpacked in blocks, too."""
    w = np.tile(np.random.default_rng(0).standard_normal((1024, 4096), np.float32), (24, 1))
    hc.save(tmp_path / "model.safetensors", {"fc.weight": hc.quantize(w, "int4-g32-f16")})
    del w
    row, excess = converted(tmp_path / "model.safetensors", tmp_path / "out", layout)
    assert row["status"] in ("equal", "closed form") and excess < BLOCKS, excess >> 20


def converted(before, after, layout, lossy=None):
    """Convert one tensor; return its row, and the memory beyond twice the tensor."""
    tracemalloc.start()
    try:
        [row] = hc.convert_checkpoint(before, after, layout, lossy)["tensors"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return row, peak - 2 * max(row["bytes_before"], row["bytes"])


def test_a_digest_is_that_of_the_values():
    """0 and -0 have the same digest, and rows can be digested in pieces."""
    from heterocompute.files.layouts.weight import of_array, of_values

    q = hc.quantize(np.random.default_rng(1).standard_normal((64, 96), np.float32), "int4-g32")
    first, second = of_array(q), of_values(q.dequantize(), "float32", 0)
    assert first.digest().digest() == second.digest().digest()
    values = q.dequantize()
    values[values == 0] = -0.0
    third = of_values(values[32:], "", 0).digest(of_values(values[:32], "", 0).digest())
    assert third.digest() == first.digest().digest()
    values[3, 5] += 1
    assert of_values(values, "", 0).digest().digest() != first.digest().digest()
    first.release()
    assert first.is_released and first.array is None
