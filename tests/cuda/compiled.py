"""The CUDA kernels as nvcc compiles them: their PTX runs on the host, in the interpreter of ptx/."""

from __future__ import annotations

import fcntl
import hashlib
import os
import runpy
import shutil
import subprocess
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import emulated
import pytest

FOLDER = Path(__file__).parent / "ptx"
INTERPRETER = [*sorted(FOLDER.glob("*.cpp")), emulated.ROOT / "csrc/cuda/host.cpp"]
KERNELS = sorted((emulated.ROOT / "csrc/cuda").rglob("*.cu"))


def find_nvcc() -> str:
    """Return the compiler of CUDA; skip the test where there is none."""
    packaged = Path(sysconfig.get_path("purelib"), "nvidia/cu13/bin/nvcc")
    nvcc = shutil.which("nvcc") or (str(packaged) if packaged.exists() else None)
    return nvcc or pytest.skip("no nvcc")


def flags() -> list[str]:
    """Return the flags that setup.py gives to nvcc."""
    with mock.patch("setuptools.setup"):
        return list(runpy.run_path(str(emulated.ROOT / "setup.py"))["NVCC_FLAGS"])


def kernels(sources: list[Path] = KERNELS, root: Path = emulated.ROOT) -> Path:
    """Return a library that runs the PTX of .cu files; it lies with their PTX, for processes with the same sources.

    `root` has the folder csrc that the sources include.
    """
    nvcc = find_nvcc()
    library = emulated.library_of("ptx", INTERPRETER, sorted(FOLDER.glob("*.h")), interpreter_flags())
    made_of = [*sources, *sorted(path for suffix in ("*.c", "*.h") for path in (root / "csrc").rglob(suffix))]
    words = [*flags(), *(path.read_text() for path in made_of), *(str(path) for path in sources)]
    digest = hashlib.sha256("\0".join(words).encode()).hexdigest()[:20]
    folder = Path(tempfile.gettempdir(), f"heterocompute-ptx-{os.getuid()}-{digest}")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of several processes compiles
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as made:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    list(pool.map(lambda source: compile_one(nvcc, source, Path(made), root), sources))
                shutil.copytree(made, folder)
        copy = folder / library.name
        if not copy.exists():
            shutil.copy(library, f"{copy}.part")
            os.replace(f"{copy}.part", copy)
    return copy


def interpreter_flags() -> list[str]:
    """Return the flags of the C++ compiler: those of the host build, and a faster interpreter."""
    return ["-O2" if flag == "-O1" else flag for flag in emulated.FLAGS]


def compile_one(nvcc: str, source: Path, folder: Path, root: Path = emulated.ROOT) -> None:
    """Write the PTX of a file to a folder, by the flags of the package's build."""
    architecture = "compute_90a" if source.stem.endswith("_90a") else "compute_80"
    command = [nvcc, "-ptx", f"-arch={architecture}", *flags(), str(source), "-o", f"{folder}/{source.stem}.ptx"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
