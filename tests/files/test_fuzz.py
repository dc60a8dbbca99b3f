"""Ten thousand mutations of files of every kind, as `fuzz.py` says; a seventh of them each time."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("files_fuzz", Path(__file__).parent / "fuzz.py")
assert spec and spec.loader
fuzz = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fuzz)


@pytest.mark.sweep(every=25)
@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("kind", fuzz.KINDS)
def test_mutations_are_read_or_refused(kind: str, seed: int, tmp_path: Path) -> None:
    if kind.endswith("onnx"):
        pytest.importorskip("onnx")
    found = list(fuzz.cases(kind, tmp_path, seed, 45))
    assert len(found) == 45 and ("refused" in found or kind == "tuning.json")
