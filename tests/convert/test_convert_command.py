"""Messages of `heterocompute convert`: the options that it suggests, and its report after writing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import run

import heterocompute as hc
from heterocompute.files.layouts.table import LAYOUTS
from heterocompute.files.layouts.targets import TARGETS

RNG = np.random.default_rng(0)
READ_ALONE = ("hqq", "quanto")
CONVERTED_ALONE = ("heterocompute", "gpt-oss", "bitnet")


def test_help_names_every_layout(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    names = set(TARGETS)
    listed = {}
    for command in ("convert", "quantize", "dequantize"):
        _, out, _ = run(capsys, command, "--help")
        [words] = re.findall(r"--layout L +[\w ()]+: (.*)", out)
        listed[command] = set(re.split(", | or ", words.partition(";")[0]))
    assert listed["convert"] == names
    assert listed["quantize"] == names - {*CONVERTED_ALONE}
    assert {*READ_ALONE} < listed["dequantize"]
    for name in READ_ALONE:
        assert not LAYOUTS[name].is_written and name not in names


def test_another_name_of_a_layout_has_a_nearest(tmp_path: Path, capsys: Any) -> None:
    hc.save(tmp_path / "a.safetensors", {"fc.weight": hc.quantize(np.ones((4, 32), np.float32), "int4-g32")})
    for name, words in (("vllm", "; the nearest is 'compressed-tensors'"), ("hqq", "expected one of heterocompute")):
        code, _, errors = run(capsys, "convert", tmp_path / "a.safetensors", tmp_path / "b", "--layout", name)
        assert code == 1 and words in errors and "quanto" not in errors


def test_the_suggestion_fits_all_weights(tmp_path: Path, capsys: Any) -> None:
    """The suggested format has the groups of the weights, and the suggested command succeeds."""
    pytest.importorskip("gguf")
    weights = {f"{n}.weight": RNG.standard_normal((32, n), np.float32) for n in (128, 96, 160)}
    hc.save_gguf(tmp_path / "a.gguf", weights, types={"*": "q4_1"})
    command = ("convert", tmp_path / "a.gguf", tmp_path / "out/", "--layout", "compressed-tensors")
    code, said, errors = run(capsys, *command)
    assert code == 1 and "nothing is written" in said and not (tmp_path / "out").exists()
    [suggestion] = re.findall(r"; (--lossy [\w-]+) rounds such weights", errors)
    assert suggestion == "--lossy int4-g32-asym-f16"
    assert run(capsys, *command, *suggestion.split())[0] == 0


def test_six_bits_become_eight(tmp_path: Path, capsys: Any) -> None:
    """A format of more bits is nearer than one of fewer."""
    pytest.importorskip("gguf")
    hc.save_gguf(tmp_path / "a.gguf", {"fc.weight": RNG.standard_normal((8, 256), np.float32)}, types={"*": "q6_k"})
    _, _, errors = run(capsys, "convert", tmp_path / "a.gguf", tmp_path / "out/", "--layout", "gptq")
    assert "--lossy int8-g16-asym-f16 rounds such weights" in errors


def test_a_link_in_the_current_folder_is_converted(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf")
    (tmp_path / "blobs").mkdir()
    hc.save_gguf(tmp_path / "blobs" / "a.gguf", {"fc.weight": np.ones((4, 256), np.float32)}, types={"*": "q4_1"})
    monkeypatch.chdir(tmp_path)
    Path("link.gguf").symlink_to(Path("blobs") / "a.gguf")
    code, _, errors = run(capsys, "convert", "link.gguf", "mlx", "--layout", "mlx")
    assert code == 0 and Path("mlx", "config.json").is_file(), errors
