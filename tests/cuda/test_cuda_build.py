"""What a build with nvcc holds, and what the compiler says of the matmul kernels."""

from __future__ import annotations

import ctypes
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from unittest import mock

import emulated
import pytest

MODULES = {path.stem for path in (emulated.ROOT / "csrc/cuda").rglob("*.cu")}
FATBIN = bytes.fromhex("50ed55ba")


class Image(ctypes.Structure):
    """hc_cuda_image of csrc/cuda/hc_cuda.h."""

    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("bytes", ctypes.c_int64)]


def test_a_build_has_all_modules_or_none() -> None:
    find, image, found = emulated.function_of("module"), Image(), set()
    while find(len(found), ctypes.byref(image)) & 1:
        assert ctypes.string_at(image.data, 4) == FATBIN and image.bytes > 1000
        found.add(image.name.decode())
    assert found in (set(), MODULES)


@pytest.mark.sweep(every=0)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("source", ["gemm", "gemm_s4"])
def test_matmul_kernels_keep_all_values_in_registers(source: str, architecture: str, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if not nvcc:
        pytest.skip("no nvcc")
    with mock.patch("setuptools.setup"):
        flags = runpy.run_path(str(emulated.ROOT / "setup.py"))["NVCC_FLAGS"]
    command = [nvcc, *flags, f"-arch={architecture}", "-Xptxas", "-v", "-cubin", f"csrc/cuda/matmul/{source}.cu"]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "kernels.cubin")], cwd=emulated.ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    spilled = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", done.stderr)
    assert spilled and set(spilled) == {("0", "0", "0")}
