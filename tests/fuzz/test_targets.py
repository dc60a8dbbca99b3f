"""The targets of the fuzzers run: on the seeds, and in C on drawn bytes with a driver in place of libFuzzer."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"


@pytest.mark.parametrize("missing", [None, "onnx"])
def test_files_are_read_or_refused(missing: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing:
        monkeypatch.setitem(sys.modules, missing, None)
    spec = importlib.util.spec_from_file_location("fuzz_files", HERE / "files.py")
    assert spec is not None and spec.loader is not None
    target = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(target)
    assert ("external.onnx" in target.KINDS) <= (missing is None) and len(target.KINDS) > 20
    random = np.random.default_rng(62)
    for number, kind in enumerate(target.KINDS):
        seed = target.SEEDS[kind]
        target.TestOneInput(bytes([number]) + seed)
        target.TestOneInput(bytes([number]) + seed[: len(seed) // 2] + random.bytes(20))


@pytest.mark.skipif(not shutil.which("gcc") or not CSRC.exists(), reason="needs gcc and the sources")
@pytest.mark.parametrize("name", ["blocks", "codes"])
def test_a_target_compiles_with_all_warnings(name: str, tmp_path: Path) -> None:
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{CSRC}", str(HERE / f"{name}.c")]
    subprocess.run([*command, f"-I{sysconfig.get_path('include')}"], check=True, cwd=tmp_path)
