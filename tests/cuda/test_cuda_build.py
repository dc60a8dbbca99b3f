"""What a build with nvcc holds, and what the compiler says of the matmul kernels."""

from __future__ import annotations

import ctypes
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any
from unittest import mock

import emulated
import pytest
import registers

MODULES = {path.stem for path in (emulated.ROOT / "csrc/cuda").rglob("*.cu")}
FATBIN = bytes.fromhex("50ed55ba")
MOST_BYTES = 2_000_000  # of all fatbins, which every wheel has


class Image(ctypes.Structure):
    """hc_cuda_image of csrc/cuda/hc_cuda.h."""

    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("bytes", ctypes.c_int64)]


def test_a_build_has_all_modules_or_none() -> None:
    find, image, found, total = emulated.function_of("module"), Image(), set(), 0
    while find(len(found), ctypes.byref(image)) & 1:
        assert ctypes.string_at(image.data, 4) == FATBIN and image.bytes > 1000
        found.add(image.name.decode())
        total += image.bytes
    assert found in (set(), MODULES) and total < MOST_BYTES
    assert found or os.environ.get("HETEROCOMPUTE_CUDA") != "1"  # asked for


def build_functions(monkeypatch: pytest.MonkeyPatch, wanted: str | None, path: Path) -> dict[str, Any]:
    """Return what setup.py defines, on a machine with this PATH and value of HETEROCOMPUTE_CUDA."""
    monkeypatch.delenv("HETEROCOMPUTE_CUDA", raising=False)
    if wanted is not None:
        monkeypatch.setenv("HETEROCOMPUTE_CUDA", wanted)
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.chdir(emulated.ROOT)
    with mock.patch("setuptools.setup"):
        found = runpy.run_path("setup.py")
    found["sysconfig"] = mock.Mock(get_path=lambda _: str(path / "site-packages"))
    found["find_nvcc"].__globals__.update(sysconfig=found["sysconfig"])
    return found


def pretend(path: Path, release: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V'\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernels are built on Linux")
def test_kernels_are_built_where_there_is_a_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    find = build_functions(monkeypatch, None, tmp_path)["find_nvcc"]
    assert find() is None
    line = "heterocompute: built without CUDA kernels: there is no nvcc; the extra [cuda-build] brings it\n"
    assert capsys.readouterr().out == line
    packaged = pretend(tmp_path / "site-packages/nvidia/cu13/bin/nvcc", "13.0")
    assert find() == packaged
    mine = pretend(tmp_path / "nvcc", "13.1")
    assert find() == mine and capsys.readouterr().out == ""
    pretend(tmp_path / "nvcc", "12.8")
    assert find() is None and "nvcc is older than CUDA 13\n" in capsys.readouterr().out
    assert build_functions(monkeypatch, "0", tmp_path)["find_nvcc"]() is None and capsys.readouterr().out == ""
    with pytest.raises(SystemExit, match="HETEROCOMPUTE_CUDA is 1, but .*nvcc is older than CUDA 13"):
        build_functions(monkeypatch, "1", tmp_path)["find_nvcc"]()
    with pytest.raises(SystemExit, match="HETEROCOMPUTE_CUDA is 'yes', expected 0 or 1"):
        build_functions(monkeypatch, "yes", tmp_path)["find_nvcc"]()


def compile_as(source: Path, target: Path, *options: str) -> str:
    """Compile a file of kernels with the flags of the build; return what the compiler says."""
    packaged = Path(sysconfig.get_path("purelib"), "nvidia/cu13/bin/nvcc")
    nvcc = shutil.which("nvcc") or (str(packaged) if packaged.exists() else None)
    if not nvcc:
        pytest.skip("no nvcc")
    with mock.patch("setuptools.setup"):
        flags = runpy.run_path(str(emulated.ROOT / "setup.py"))["NVCC_FLAGS"]
    command = [nvcc, *flags, "-Werror", "all-warnings", *options, str(source), "-o", str(target)]
    done = subprocess.run(command, cwd=emulated.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.sweep(every=0)
@pytest.mark.parametrize("source", sorted((emulated.ROOT / "csrc/cuda").rglob("*.cu")), ids=lambda path: path.stem)
def test_kernels_have_no_operation_that_a_cpu_rounds_otherwise(source: Path, tmp_path: Path) -> None:
    architecture = "sm_90a" if source.stem.endswith("_90a") else "sm_80"
    compile_as(source, tmp_path / "kernels.ptx", f"-arch={architecture}", "-ptx")
    ptx = (tmp_path / "kernels.ptx").read_text()
    assert ".visible .entry" in ptx
    assert not re.findall(r"\.approx|\.full\.|\.ftz|\b(?:ex2|lg2|sin|cos|tanh|rsqrt)\.|\bcall\b|\bfma\.rn\.f64", ptx)


@pytest.mark.sweep(every=0)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("source", sorted(MODULES))
def test_no_kernel_spills_registers(source: str, architecture: str, tmp_path: Path) -> None:
    if source.endswith("_90a") and architecture != "sm_90a":
        pytest.skip("instructions of sm_90a")
    (path,) = (emulated.ROOT / "csrc/cuda").rglob(f"{source}.cu")
    options = (f"-arch={architecture}", "-Xptxas", "-v", "-cubin")
    said = compile_as(path, tmp_path / "kernels.cubin", *options)
    assert "serialized" not in said  # products of warpgroups that the compiler could not leave running
    found = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", said)
    assert found and {spilled[1:] for spilled in found} == {("0", "0")}
    if path.parent.name in ("matmul", "conv"):
        assert {spilled[0] for spilled in found} == {"0"}


def overwritten_places(disassembly: str) -> tuple[int, list[str]]:
    """Return the number of sparse products in a loop, and instructions that overwrite their places too early.

    From the head of the loop to the last wait, `hc_wgmma_replace` alone may write such a register, which it reads.
    """
    lines = [(int(at, 16), text) for at, text in re.findall(r"/\*([0-9a-f]{4,})\*/ +(.*?) *;", disassembly)]
    products = [(at, int(re.findall(r"\bR(\d+)", text)[-1])) for at, text in lines if "IGMMA.SP" in text]
    ends = [at for at, text in lines if re.search(r"DEPBAR.LE gsb0, 0x0$", text)]
    jumps = [(at, int(to, 16)) for at, text in lines for to in re.findall(r"BRA 0x([0-9a-f]+)$", text)]
    head = min(to for at, to in jumps if to <= products[0][0] < products[-1][0] < at)
    wrong = []
    for _, places in products:
        for at, text in lines:
            written = re.match(r"(?:@!?U?P\w+ )?([A-Z]\w+[\w.]*) (?:U?P\w+, )*R(\d+)\b", text)
            if not written or not head <= at <= max(ends) or written[1].startswith(("ST", "IGMMA", "LDGSTS", "BAR")):
                continue
            first, wide = (
                int(written[2]),
                4 if ".128" in written[1] else 2 if re.search("64|WIDE|CS2R", written[1]) else 1,
            )
            is_replaced = written[1] == "LOP3.LUT" and len(re.findall(rf"\bR{places}\b", text)) == 2
            if first <= places < first + wide and not is_replaced:
                wrong.append(text)
    return len(products), wrong


@pytest.mark.sweep(every=0)
def test_places_of_sparse_products_keep_their_registers(tmp_path: Path) -> None:
    if not shutil.which("cuobjdump") or not shutil.which("nvcc"):
        pytest.skip("no nvcc with cuobjdump")
    source = emulated.ROOT / "csrc/cuda/matmul/sparse_24_90a.cu"
    _, disassembly = registers.compile_one(source, "sm_90a", tmp_path)
    kernels = re.split(r"Function : ", disassembly)[1:]
    assert len(kernels) == 6
    assert [overwritten_places(text) for text in kernels] == [(4, [])] * 6
