"""The bytes that `save_gguf` and ``quantize --layout gguf`` write from floats, against the Python package of ggml."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.files.checkpoint import quantize_checkpoint
from heterocompute.files.layouts.gguf.rounding import rounded
from heterocompute.reference.formats import mx
from heterocompute.reference.layout import Geometry

gguf = pytest.importorskip("gguf")
quants = pytest.importorskip("gguf.quants")

Array = np.ndarray[Any, Any]
BLOCKS = {"q4_0": 32, "q4_1": 32, "q5_0": 32, "q5_1": 32, "q8_0": 32, "tq1_0": 256, "tq2_0": 256, "mxfp4": 32}
RNG = np.random.default_rng(7)


def draws() -> dict[str, Array]:
    g = RNG.standard_normal((8, 512)).astype(np.float32)
    zeros = np.where(RNG.random(g.shape) < 0.5, np.float32(0), g)
    wide = (g * np.exp2(RNG.integers(-8, 8, (8, 1)))).astype(np.float32)
    return {
        "normal": g, "float16": g.astype(np.float16), "bfloat16": (0.02 * g).astype(ml_dtypes.bfloat16), "zeros": zeros,
        "float64": RNG.standard_normal((8, 512)), "integers": RNG.integers(-8, 9, g.shape).astype(np.float32),
        "halves": (RNG.integers(-16, 17, g.shape) / 2).astype(np.float32), "wide": wide, "none": np.zeros_like(g),
        "ternary": (RNG.integers(-1, 2, g.shape) * np.float32(0.37)).astype(np.float32),
        "same": np.full_like(g, 0.3), "negative": np.full_like(g, -0.3), "positive": np.abs(g),
    }  # fmt: skip


def stored(path: Path, name: str) -> Array:
    found = next(one for one in gguf.GGUFReader(path).tensors if one.name == name)
    return np.array(found.data).view(np.uint8)


@pytest.mark.parametrize("text", BLOCKS)
def test_bytes_of_floats_are_those_of_ggml(tmp_path: Path, text: str) -> None:
    for case, w in draws().items():
        path = tmp_path / f"{case}.gguf"
        hc.save_gguf(path, {"w": w}, types={"w": text})
        expected = quants.quantize(w.astype(np.float32), gguf.GGMLQuantizationType[text.upper()])
        assert np.array_equal(stored(path, "w"), expected), case


@pytest.mark.parametrize("factor", [1e-37, 1e-30, 1e-12, 1e6, 1e30, 3e37])
def test_mxfp4_has_the_bytes_of_ggml_at_every_size(tmp_path: Path, factor: float) -> None:
    w = (RNG.standard_normal((8, 512)) * factor).astype(np.float32)
    hc.save_gguf(tmp_path / "a.gguf", {"w": w}, types={"w": "mxfp4"})
    with np.errstate(over="ignore"):
        expected = quants.quantize(w, gguf.GGMLQuantizationType.MXFP4)
    assert np.array_equal(stored(tmp_path / "a.gguf", "w"), expected)


def test_a_checkpoint_gets_the_rounding_of_ggml_and_quantize_that_of_ocp(tmp_path: Path) -> None:
    """Of two levels as near, ggml takes the smaller magnitude: 0.75 is 0.5, and OCP has 1."""
    w = np.zeros((2, 32), np.float32)
    w[:, 0] = 6
    w[0, 1:15] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5]
    w[1, 1:] = -0.0
    hc.save(tmp_path / "model.safetensors", {"w": w})
    quantize_checkpoint(tmp_path / "model.safetensors", tmp_path / "a.gguf", "mxfp4", layout="gguf")
    hc.save_gguf(tmp_path / "b.gguf", {"w": w}, types={"w": "mxfp4"})
    hc.save_gguf(tmp_path / "c.gguf", {"w": hc.quantize(w, "mxfp4")})
    expected = quants.quantize(w, gguf.GGMLQuantizationType.MXFP4)
    assert np.array_equal(stored(tmp_path / "a.gguf", "w"), expected)
    assert np.array_equal(stored(tmp_path / "b.gguf", "w"), expected)
    lower, even = [0, 0.5, 1, 1.5, 2, 3, 4], [0, 1, 1, 2, 2, 4, 4]
    for path, levels in (("b.gguf", lower), ("c.gguf", even)):
        found = np.asarray(hc.load(tmp_path / path, layout="gguf")["w"])
        assert found[0, 1:15].tolist() == [*levels, *(-level for level in levels)]
        assert not np.signbit(found[1]).any()
    assert hc.fake_quantize(w, "mxfp4")[0, 1:8].tolist() == even


def definition(w: Array) -> dict[str, Array]:
    rows = w.astype(np.float32).astype(np.float64).reshape(len(w), -1, 32)
    n, groups, group = rows.shape
    sizes = Geometry(rows=n, runs=1, run_length=groups * group, group=group, groups_per_run=groups, groups=groups)
    return mx.encode(SimpleNamespace(element="fp4", bits=4, scale_rule="ggml"), sizes, rows, None)


def test_the_rounding_of_ggml_is_its_definition() -> None:
    """The scale takes the logarithm as float32, which is a whole number for a few values below a power of two."""
    powers = np.arange(-149, 128)
    below = (2.0 ** powers[:, None] * (1 - np.arange(99) * 2.0**-24)).astype(np.float32)
    groups = np.zeros((*below.shape, 32), np.float32)
    groups[..., 0], groups[..., 1] = below, -0.3 * below
    groups = np.concatenate([groups.reshape(len(powers), -1), RNG.standard_normal((3, 99 * 32)).astype(np.float32)])
    for w in (groups, groups.astype(np.float64) * (1 + 2.0**-40), groups.astype(ml_dtypes.bfloat16)):
        q, expected = rounded(w, hc.format("mxfp4"), (1,)), definition(w)
        assert np.array_equal(q.components["scales"], expected["scales"])
        assert np.array_equal(q.components["codes"], expected["codes"])
    clipped = rounded(groups[:24], hc.format("mxfp4"), (1,)).components["scales"]
    assert not clipped.any()  # below 2^-125


def test_what_ggml_cannot_store_is_finite(tmp_path: Path) -> None:
    """Factors beyond float16 are its largest number; a factor that rounds to 0 has codes 0."""
    for factor in (1e6, 1e38, 1e-9, 1e-40):
        w = (RNG.standard_normal((2, 256)) * factor).astype(np.float32)
        w = np.clip(w, -3e38, 3e38)
        for text in BLOCKS.keys() - {"mxfp4"}:
            hc.save_gguf(tmp_path / "a.gguf", {"w": w}, types={"w": text})
            found = np.asarray(hc.load(tmp_path / "a.gguf", layout="gguf")["w"])
            assert np.isfinite(found).all() and np.abs(found).max() <= 65504 * 128
            if factor < 1:
                assert not found.any()
    equal = np.full((1, 32), -0.0, np.float32)
    hc.save_gguf(tmp_path / "a.gguf", {"w": equal}, types={"w": "q4_1"})
    assert not stored(tmp_path / "a.gguf", "w").any()  # ggml writes the sign of this minimum


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_mxfp4_of_ggml_lacks_are_refused(tmp_path: Path, value: float) -> None:
    w = np.ones((2, 32), np.float32)
    w[1, 3] = value
    with pytest.raises(ValueError, match="w"):
        hc.save_gguf(tmp_path / "a.gguf", {"w": w}, types={"w": "mxfp4"})
    assert not (tmp_path / "a.gguf").exists()


def test_convert_rounds_to_mxfp4_as_ggml_does(tmp_path: Path) -> None:
    q = hc.quantize(RNG.integers(-8, 9, (8, 64)).astype(np.float32), "int8")
    hc.save(tmp_path / "model.safetensors", {"fc.weight": q})
    hc.convert_checkpoint(tmp_path / "model.safetensors", tmp_path / "a.gguf", "gguf", lossy="mxfp4")
    expected = quants.quantize(q.dequantize(), gguf.GGMLQuantizationType.MXFP4)
    assert np.array_equal(stored(tmp_path / "a.gguf", "fc.weight"), expected)
