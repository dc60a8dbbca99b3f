"""A user's program passes mypy --strict, and a wrong one does not."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import heterocompute as hc
from heterocompute import _heterocompute

needs_mypy = pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed (extra dev)")

PROGRAM = '''
"""What a user writes."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import heterocompute as hc


def compress(w: NDArray[np.float32], text: str) -> hc.QuantizedArray:
    fmt: hc.Format = hc.format(text)
    return hc.quantize(w, fmt, axis=-1, clip="octav")


def layer(x: NDArray[np.float32], q: hc.QuantizedArray, bias: NDArray[np.float32] | None) -> NDArray[np.float32]:
    with hc.use(isa="scalar", threads=1, blas="own"):
        return hc.linear(x, q, bias=bias, activations=hc.Int(8))


def main(path: Path) -> None:
    w = np.ones((4, 32), dtype=np.float32)
    q = compress(w, "vsq4-g16-s4")
    y: NDArray[np.float32] = hc.matmul(w, q.T, activations="int8")
    rounded: NDArray[np.float32] = hc.fake_quantize(w, hc.VSQ(bits=4, group=16))
    error: hc.ErrorReport = hc.error(w, rounded)
    decibel: float = error.sqnr_db
    shape: tuple[int, ...] = q[1:].shape
    bits: float = q.bits_per_value
    parts: dict[str, int] = {name: part.nbytes for name, part in q.components.items()}
    families: dict[str, str] = hc.formats()
    q.save(path)
    loaded = hc.load(path)
    print(y, decibel, shape, bits, parts, families, loaded, hc.get_num_threads(), layer(w, q, None))


def study() -> None:
    net = hc.zoo.digits()
    result: hc.Study = hc.study(net, formats=["int8", "vsq4-g16-s4"])
    rows: list[dict[str, Any]] = result.pareto()
    print(rows, net.accuracy(net.weights))
'''

MISTAKES = {
    'hc.quantize("hello", "int8")': "arg-type",
    'hc.linear(np.ones((2, 2)), "hello")': "arg-type",
    "hc.quantize(np.ones((2, 2)), 8)": "arg-type",
    "hc.Int(bits=8).group = 3": "misc",
    "hc.nonsense": "attr-defined",
    "text: str = hc.get_num_threads()": "assignment",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which mypy runs, with its cache for the next program."""
    return tmp_path_factory.mktemp("mypy")


def mypy(folder: Path, program: str) -> str:
    (folder / "program.py").write_text(program)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--cache-dir",
        str(folder / "cache"),
        "program.py",
    ]
    parent = Path(hc.__file__).parents[1]
    installed = parent.name == "site-packages"  # else mypy does not see it: it runs no import hooks
    environment = os.environ if installed else {**os.environ, "MYPYPATH": str(parent)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True).stdout


@needs_mypy
@pytest.mark.sweep(every=0)
def test_a_users_program_passes_strict(folder: Path) -> None:
    out = mypy(folder, PROGRAM)
    assert out.startswith("Success"), out


@needs_mypy
def test_mistakes_are_seen(folder: Path) -> None:
    program = "import heterocompute as hc, numpy as np\n" + "\n".join(MISTAKES)
    out = mypy(folder, program)
    for line, code in enumerate(MISTAKES.values(), start=2):
        assert any(f"program.py:{line}:" in message and f"[{code}]" in message for message in out.splitlines()), out


def test_the_stub_names_what_the_extension_has() -> None:
    stub = ast.parse(Path(hc.__file__).with_name("_heterocompute.pyi").read_text())
    named = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    assert named == {name for name in dir(_heterocompute) if not name.startswith("__")}
