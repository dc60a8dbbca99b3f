"""The CUDA kernels, compiled by nvcc: one fatbin per .cu file, kept in build/cuda, and only what changed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(path.relative_to(ROOT) for path in (ROOT / "csrc/cuda").rglob("*.cu"))
NAMES = ["nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-runtime"]
PACKAGES = [f"{name}==13.0.*" for name in NAMES]  # of NVIDIA, with nvcc
RELEASE = 13  # of CUDA, at least

# Same bits as on the CPU: no contraction, subnormals in full, quotients and roots rounded correctly.
FLAGS = ["-std=c++20", "-O3", "-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true", "-Icsrc"]
FLAGS += ["--compress-mode=size"]
if os.environ.get("HETEROCOMPUTE_WERROR") == "1":
    FLAGS += ["-Werror", "all-warnings"]
# A cubin also serves later minor versions of its major version (sm_80: 86 and 89). The driver compiles the PTX on
# other devices such as sm_100 and sm_120, once. All fatbins together stay below 2 MB, so that the codecs have one
# cubin, and so do matmuls of few rows, of floats and of minima.
CODE = {"80": "compute_80", "90": "sm_90"}
MATMUL_CODE = {"80": "[sm_80,compute_80]", "90a": "sm_90a"}
ONE_CUBIN = ("few_grouped", "few_rows", "floats", "floats_bf16", "minima")


def code_of(source: Path) -> dict[str, str]:
    """Return what a .cu file is compiled for: virtual architectures, and the code for each."""
    if source.stem.endswith("_90a"):  # instructions that no other device has
        return {"90a": "sm_90a"}
    return MATMUL_CODE if source.parent.name == "matmul" and source.stem not in ONE_CUBIN else CODE


def version() -> str:
    """Return the version of heterocompute in this repository."""
    found = re.search(r'__version__ = "(.+)"', (ROOT / "heterocompute/base/version.py").read_text())
    assert found
    return found[1]


def digest() -> int:
    """Return a number of the sources that kernels and core share: kernels of another number do not fit the core."""
    files = sorted([*(ROOT / "csrc").rglob("*.h"), *(ROOT / "csrc").rglob("*.def"), *(ROOT / "csrc").rglob("*.cu")])
    number = 0
    for path in files:
        number = zlib.crc32(path.read_bytes(), zlib.crc32(path.relative_to(ROOT).as_posix().encode(), number))
    return number


def is_current(target: str | Path) -> bool:
    """Return True if a file is newer than what the compiler's own list (-MD) says it was made of."""
    listed = Path(target).with_suffix(".d")
    if not (os.path.exists(target) and listed.exists()):
        return False
    made_of = listed.read_text().split(":", 1)[1].replace("\\\n", " ").split()
    made = os.path.getmtime(target)
    made_of = [file for file in made_of if not file.endswith(".gch")]  # a header read once, which is gone after a build
    return all((ROOT / file).exists() and os.path.getmtime(ROOT / file) <= made for file in made_of)


def release_of(nvcc: str) -> int:
    """Return the major release of a compiler, 0 if it does not run."""
    try:
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return 0
    found = re.search(r"release (\d+)\.", said)
    return int(found[1]) if found else 0


def find_nvcc() -> str | None:
    """Return a compiler of CUDA 13 or later, of the PATH or of NVIDIA's packages; None where there is none."""
    packaged = (Path(folder, "nvidia/cu13/bin/nvcc") for folder in sys.path if folder)
    found = [shutil.which("nvcc"), *(str(path) for path in packaged if path.exists())]
    return next((nvcc for nvcc in found if nvcc and release_of(nvcc) >= RELEASE), None)


def compile_one(nvcc: str, source: Path) -> Path:
    """Compile a .cu file to a fatbin, unless one is newer than all that it was made of."""
    command = [nvcc, "-fatbin", *FLAGS]
    for virtual, real in code_of(source).items():
        command += ["-gencode", f"arch=compute_{virtual},code={real}"]
    folder = ROOT / "build/cuda" / f"{zlib.crc32(repr(command).encode()):08x}"
    target = folder / f"{source.stem}.fatbin"
    if not is_current(target):
        folder.mkdir(parents=True, exist_ok=True)
        made, begun = target.with_suffix(".part"), time.time()
        command += ["-MD", "-MF", str(target.with_suffix(".d")), str(source), "-o", str(made)]
        print(" ".join(command), flush=True)
        if subprocess.run(command, cwd=ROOT).returncode:
            raise SystemExit(f"heterocompute-cuda: {nvcc} fails on {source}")
        os.utime(made, (begun, begun))  # a source that changed meanwhile is newer
        os.replace(made, target)
    return target


def build(folder: Path) -> None:
    """Write all fatbins, and a file that says of which version and sources they are."""
    nvcc = find_nvcc()
    if nvcc is None:
        raise SystemExit(f"heterocompute-cuda: there is no nvcc {RELEASE} or later; pip install {' '.join(PACKAGES)}")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(partial(compile_one, nvcc), SOURCES))
    for old in folder.glob("*.fatbin"):
        old.unlink()
    for path in made:
        shutil.copyfile(path, folder / path.name)
    (folder / "made_of").write_text(f"{version()} {digest():08x}\n")
