"""`heterocompute prune` writes the results of `hc.prune` for all patterns, and files completely or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.cli import main
from heterocompute.files.checkpoint import prune_checkpoint
from heterocompute.files.safetensors import save

RANDOM = np.random.default_rng(6)
DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
AXES = {4: (2, 3, 1), 3: (-1,), 2: (-1,)}


def tensors(dtype: Any = np.float32) -> dict[str, np.ndarray]:
    shapes = {
        "fc.weight": (12, 40),
        "conv.weight": (6, 5, 3, 3),
        "experts": (2, 3, 8),
        "empty": (0, 7),
        "hollow": (3, 0),
    }
    found = {name: RANDOM.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    return {**found, "bias": RANDOM.standard_normal(12).astype(dtype), "ids": np.arange(6).reshape(2, 3)}


@pytest.fixture
def paths(tmp_path: Path) -> tuple[str, str]:
    return str(tmp_path / "before.safetensors"), str(tmp_path / "after.safetensors")


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("pattern", ["50%", "33.3%", "global:70%", "block:4x1:50%", "0%", "100%"])
@pytest.mark.sweep(every=3)
def test_zeros_stand_in_tensors_of_the_same_type(paths: tuple[str, str], dtype: Any, pattern: str) -> None:
    weights = tensors(dtype)
    save(paths[0], weights)
    assert main(["prune", *paths, "--pattern", pattern]) == 0
    after = hc.load(paths[1])
    assert list(after) == list(weights)
    for name, w in weights.items():
        assert after[name].dtype == w.dtype and after[name].shape == w.shape
        wanted = w
        if w.ndim > 1 and w.dtype.kind != "i":
            wanted = np.where(hc.prune_mask(w, pattern, axis=AXES[w.ndim]), w, w.dtype.type(0))
        assert after[name].tobytes() == wanted.tobytes(), name


def test_rows_in_blocks_are_rows_at_once(paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heterocompute.files.changes.BLOCK", 100)  # two rows of the matrix, two filters
    weights = tensors()
    save(paths[0], weights)
    prune_checkpoint(*paths, "60%")
    after = hc.load(paths[1])
    for name in ("fc.weight", "conv.weight"):
        np.testing.assert_array_equal(after[name], hc.prune(weights[name], "60%", axis=AXES[weights[name].ndim]))
    weights["fc.weight"][7, 31] = np.nan
    save(paths[0], weights)
    with bad_argument(ValueError, None, "file", r"'fc.weight'.*\(7, 31\)"):
        prune_checkpoint(*paths, "60%")


def test_infinity_is_large_and_minus_zero_stays(paths: tuple[str, str]) -> None:
    w = np.float32([[np.inf, 1, -np.inf, 2], [-0.0, 3, 4, 0]])
    save(paths[0], {"w": w})
    prune_checkpoint(*paths, "50%")
    assert hc.load(paths[1])["w"].tobytes() == np.float32([[np.inf, 0, -np.inf, 0], [0, 3, 4, 0]]).tobytes()
    prune_checkpoint(*paths, "0%")
    assert hc.load(paths[1])["w"].tobytes() == w.tobytes()


def test_a_recipe_mixes_patterns(paths: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = tensors()
    save(paths[0], weights)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[formats]\n"conv*" = "2:4"\n"fc*" = "int8+2:4"\n"experts" = "skip"\n')
    assert main(["prune", *paths, "--pattern", "50%", "--recipe", str(recipe), "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["tensors"]}
    found = {name: rows[name]["format"] for name in weights}
    assert found == {"fc.weight": "int8+2:4", "conv.weight": "2:4", "experts": None, "empty": "50%", "hollow": "50%",
                     "bias": None, "ids": None}  # fmt: skip
    assert rows["empty"]["bytes"] == rows["empty"]["bytes_before"] == 0
    after = hc.load(paths[1])
    assert after["conv.weight"] == hc.prune(weights["conv.weight"], "2:4", axis=(2, 3, 1))
    assert after["fc.weight"] == hc.quantize(weights["fc.weight"], "int8+2:4")


def test_pruning_again_changes_nothing(paths: tuple[str, str], tmp_path: Path) -> None:
    save(paths[0], tensors())
    prune_checkpoint(*paths, "global:60%")
    once = Path(paths[1]).read_bytes()
    prune_checkpoint(paths[1], str(tmp_path / "again.safetensors"), "global:60%")
    assert (tmp_path / "again.safetensors").read_bytes() == once


@pytest.mark.parametrize(
    "pattern", ["half", "50", "101%", "global:2:4", "block:0x1:50%", "5:4", "int8", "int8+2:4", ""]
)
def test_other_texts_are_usage_errors(paths: tuple[str, str], capsys: pytest.CaptureFixture[str], pattern: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["prune", *paths, "--pattern", pattern])
    *usage, last = capsys.readouterr().err.splitlines()
    assert stopped.value.code == 2 and usage[0].startswith("usage: heterocompute prune ")
    assert "N:M" in last and "global:P%" in last


def test_a_recipe_of_other_formats_is_a_usage_error(
    paths: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(paths[0], tensors())
    for text in ("int8", "int8+9", "most"):
        (tmp_path / "recipe.toml").write_text(f'[formats]\n"*" = "{text}"\n')
        assert main(["prune", *paths, "--recipe", str(tmp_path / "recipe.toml")]) == 2
        assert text in capsys.readouterr().err
    assert not Path(paths[1]).exists()


def test_a_nan_leaves_the_old_file(paths: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for pattern in ("50%", "global:50%", "block:2x2:50%", "2:4"):
        weights = tensors()
        weights["experts"][1, 2, 3] = np.nan
        save(paths[0], weights)
        Path(paths[1]).write_bytes(b"old")
        assert main(["prune", *paths, "--pattern", pattern, "--overwrite"]) == 1
        found = capsys.readouterr().err.splitlines()[-1]
        assert "before.safetensors" in found and "'experts': prune: w has nan" in found and "(1, 2, 3)" in found
        assert Path(paths[1]).read_bytes() == b"old"


def test_a_file_that_holds_patterns_is_pruned_already(paths: tuple[str, str], tmp_path: Path) -> None:
    save(paths[0], tensors())
    prune_checkpoint(*paths, "2:4")
    with bad_argument(ValueError, None, "file", r"is already pruned \(2:4\)"):
        prune_checkpoint(paths[1], str(tmp_path / "again.safetensors"), "2:4")


def test_the_two_files_differ(paths: tuple[str, str]) -> None:
    save(paths[0], tensors())
    assert main(["prune", paths[0], paths[0], "--pattern", "50%"]) == 2
    with bad_argument(ValueError, None, "file", "the input itself"):
        prune_checkpoint(paths[0], paths[0], "50%")
    with bad_argument(ValueError, None, "value", "pattern or recipe"):
        prune_checkpoint(*paths)


def test_what_stays_is_largest_and_first_of_equals() -> None:
    """Compared with sorting, with ties, infinities and both zeros."""
    random = np.random.default_rng(2)
    for trial in range(200):
        w = random.integers(-3, 4, (4, 37)).astype(np.float32)
        w[0, :2] = np.inf, -0.0
        percent = int(random.integers(0, 101))
        for pattern, rows in ((f"{percent}%", w), (f"global:{percent}%", w.reshape(1, -1))):
            gone = percent * rows.shape[1] // 100
            order = np.argsort(-np.abs(rows), axis=1, kind="stable")[:, : rows.shape[1] - gone]
            wanted = np.zeros(rows.shape, np.bool_)
            np.put_along_axis(wanted, order, True, axis=1)
            np.testing.assert_array_equal(hc.prune_mask(w, pattern), wanted.reshape(w.shape), err_msg=str(trial))
