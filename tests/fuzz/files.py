"""Files of every kind as any bytes: each is read completely, or refused with one line that names it.

A target of atheris, in the form of OSS-Fuzz: ``python tests/fuzz/files.py -max_total_time=60``. The first byte chooses
the kind. tests/files/fuzz.py has the kinds, their seeds and mutations of them.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "files"))

try:
    import atheris
except ImportError:  # the tests run the target without it
    atheris = None

# The readers tell atheris which branches a file takes: without, all files look alike to it.
with atheris.instrument_imports(include=["heterocompute.files"]) if atheris else contextlib.nullcontext():
    import fuzz

FOLDER = Path(tempfile.mkdtemp())
SEEDS = fuzz.seeds(FOLDER)
KINDS = [kind for kind in fuzz.KINDS if kind in SEEDS]  # some need onnx or gguf


def TestOneInput(data: bytes) -> None:  # noqa: N802 (the name that atheris expects)
    """Read one file."""
    if not data:
        return
    kind = KINDS[data[0] % len(KINDS)]
    path = FOLDER / kind
    path.write_bytes(data[1:])
    fuzz.attempt(path)
    path.write_bytes(SEEDS[kind])  # other kinds need it


if __name__ == "__main__":
    corpus = FOLDER / "corpus"
    corpus.mkdir()
    for number, kind in enumerate(KINDS):
        (corpus / kind).write_bytes(bytes([number]) + SEEDS[kind])
    atheris.Setup([*sys.argv, str(corpus)], TestOneInput)
    atheris.Fuzz()
