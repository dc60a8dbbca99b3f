"""The CUDA kernels as nvcc compiles them: their PTX runs on the host, in the interpreter of ptx/."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import runpy
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import emulated
import pytest

FOLDER = Path(__file__).parent / "ptx"
KERNELS = sorted((emulated.ROOT / "csrc/cuda").rglob("*.cu"))


def find_nvcc() -> str:
    """Return the compiler of CUDA; skip the test where there is none, and where sanitizers check the host build."""
    if os.environ.get("HETEROCOMPUTE_SANITIZE"):
        pytest.skip("PTX runs without sanitizers")
    return build()["find_nvcc"]() or pytest.skip("no nvcc")


@functools.cache
def build() -> dict[str, Any]:
    """Return the names of cuda/fatbins.py."""
    return runpy.run_path(str(emulated.ROOT / "cuda/fatbins.py"))


def flags() -> list[str]:
    """Return the flags that the build gives to nvcc."""
    return list(build()["FLAGS"])


def kernels(sources: Sequence[Path] = tuple(KERNELS), virtual: str = "80") -> Path:
    """Return a library that runs the PTX of .cu files; the PTX is kept for processes with the same sources.

    The build has PTX or code of compute_80, 90, 90a, 100 and 120. The first three have one PTX, so have the last two.
    """
    find_nvcc()
    made_of = [*sources, *emulated.included()]
    words = [virtual, *flags(), *(path.read_text() for path in made_of), *(str(path) for path in sources)]
    digest = hashlib.sha256("\0".join(words).encode()).hexdigest()[:20]
    folder = Path(tempfile.gettempdir(), f"heterocompute-ptx-{os.getuid()}-{digest}")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of several processes compiles
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as made:
                write_ptx(sources, Path(made), virtual=virtual)
                Path(f"{folder}.part").mkdir(exist_ok=True)
                shutil.copytree(made, f"{folder}.part", dirs_exist_ok=True)
                os.rename(f"{folder}.part", folder)
        return copy_interpreter(folder)


def write_ptx(sources: Sequence[Path], folder: Path, given: Sequence[str] = (), virtual: str = "80") -> None:
    """Compile each source, two at a time, by the flags of the package's build or those that are given."""

    def compile_one(source: Path) -> None:
        architecture = "90a" if source.stem.endswith("_90a") else virtual
        command = [find_nvcc(), "-ptx", f"-arch=compute_{architecture}", *(given or flags())]
        command += [str(source), "-o", f"{folder}/{source.stem}.ptx"]
        plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # a sanitizer is not nvcc's
        done = subprocess.run(command, cwd=emulated.ROOT, env=plain, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, sources))


def copy_interpreter(folder: Path) -> Path:
    """Return a copy of the interpreter in a folder: it runs the PTX that lies there."""
    sources = [*sorted(FOLDER.glob("*.cpp")), emulated.HOST]
    faster = ["-O2" if flag == "-O1" else flag for flag in emulated.FLAGS]
    library = emulated.library_of("ptx", sources, sorted(FOLDER.glob("*.h")), faster)
    copy = folder / library.name
    if not copy.exists():
        shutil.copy(library, f"{copy}.part")
        os.replace(f"{copy}.part", copy)
    return copy
