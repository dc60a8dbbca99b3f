"""Ten thousand mutations of files of every kind (`fuzz.py`); each run tests a seventh of them."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("files_fuzz", Path(__file__).parent / "fuzz.py")
assert spec and spec.loader
fuzz = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fuzz)


@pytest.mark.sweep(every=100)
@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("kind", fuzz.KINDS)
def test_mutations_are_read_or_refused(kind: str, seed: int, tmp_path: Path) -> None:
    if kind.endswith("onnx"):
        pytest.importorskip("onnx")
    if kind == "gguf":
        pytest.importorskip("gguf")
    found = list(fuzz.cases(kind, tmp_path, seed, 45))
    assert len(found) == 45 and ("refused" in found or kind == "tuning.json")


def test_a_dtype_of_several_lines_is_one_line(tmp_path: Path) -> None:
    """Found by mutation: a dtype from a file was quoted in the message without escapes."""
    header = b"{'descr': '<\n4', 'fortran_order': False, 'shape': (3, 4), }".ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "calibration.npz", "w") as archive:
        archive.writestr("w.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(48))
    assert fuzz.attempt(tmp_path / "calibration.npz") == "refused"
