"""The distribution of the kernels, how the core finds it, and what the compiler says of the matmul kernels."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import compiled
import driven
import emulated
import pytest
import registers

import heterocompute as hc
from heterocompute import _heterocompute
from heterocompute.base.cuda import kernels

MODULES = {path.stem for path in (emulated.ROOT / "csrc/cuda").rglob("*.cu")}
FATBIN = bytes.fromhex("50ed55ba")
MOST_BYTES = 2_000_000  # of all fatbins


def test_the_distribution_has_all_modules() -> None:
    if not find_spec("heterocompute_cuda"):
        pytest.skip("heterocompute-cuda is not installed")
    found = kernels.read()
    assert set(found) == MODULES
    assert all(image.startswith(FATBIN) and len(image) > 1000 for image in found.values())
    assert sum(map(len, found.values())) < MOST_BYTES


def pretend(path: Path, release: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V'\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernels are built on Linux")
def test_the_compiler_is_found_on_the_path_and_in_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build = compiled.build()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site-packages")])
    assert build["find_nvcc"]() is None
    with pytest.raises(SystemExit, match="there is no nvcc 13 or later; pip install nvidia-cuda-nvcc==13"):
        build["build"](tmp_path)
    packaged = pretend(tmp_path / "site-packages/nvidia/cu13/bin/nvcc", "13.0")
    assert build["find_nvcc"]() == packaged
    mine = pretend(tmp_path / "nvcc", "13.1")
    assert build["find_nvcc"]() == mine
    pretend(tmp_path / "nvcc", "12.8")
    assert build["find_nvcc"]() == packaged


def test_the_core_knows_the_sources_of_its_kernels() -> None:
    assert _heterocompute.cuda_sources() == compiled.build()["digest"]()
    assert compiled.build()["version"]() == hc.__version__


@pytest.fixture(scope="module")
def bare_driver() -> dict[str, str]:
    """Build the fake driver without kernels of its own; it takes a module whose image is its name."""
    return driven.environment("-Dhc_cuda_brings_kernels=hc_cuda_brings_nothing")


LAUNCH = """
import sys, numpy as np, heterocompute as hc
print(hc.show_config(mode="dicts")["cuda"])
print("heterocompute_cuda" in sys.modules)
x = np.random.default_rng(0).standard_normal((4, 256), np.float32)
try:
    q = hc.quantize(x, "int8")
    with hc.use(backend="cuda"):
        y = hc.linear(x, q.to("cuda"), activations="int8")
    print(np.array_equal(y, hc.linear(x, q, activations="int8")))
except Exception as problem:
    print(type(problem).__name__, problem)
"""


def launched(driver: dict[str, str], folder: Path, made_of: str | None) -> list[str]:
    """Run LAUNCH beside a package of kernels that say of which version and sources they are."""
    if made_of is not None:
        (folder / "heterocompute_cuda").mkdir()
        (folder / "heterocompute_cuda/__init__.py").touch()  # else an installed one comes first
        (folder / "heterocompute_cuda/made_of").write_text(made_of)
        for name in MODULES:
            (folder / f"heterocompute_cuda/{name}.fatbin").write_bytes(name.encode())
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, **driver, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", LAUNCH], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_kernels_of_the_distribution_are_loaded_at_first_use(bare_driver: dict[str, str], tmp_path: Path) -> None:
    fitting = f"{hc.__version__} {_heterocompute.cuda_sources():08x}"
    config, imported, equal = launched(bare_driver, tmp_path, fitting)
    assert config.startswith(f"kernels for sm_80 to sm_120 ({len(MODULES)} modules, 0.0 MB); driver 13.0; cuda:0 fake")
    assert imported == "False" and equal == "True"


@pytest.mark.parametrize(
    ("made_of", "sentence"),
    [
        (None, f"the kernels are missing: pip install heterocompute-cuda=={hc.__version__}, or pip install ./cuda"),
        ("0.0.9 00000000", f"the kernels are those of version 0.0.9: pip install heterocompute-cuda=={hc.__version__}"),
        (f"{hc.__version__} 00000000", "the kernels in .*/heterocompute_cuda are of other sources than heterocompute"),
    ],
)
def test_kernels_that_do_not_fit_are_a_sentence(
    bare_driver: dict[str, str], tmp_path: Path, made_of: str | None, sentence: str
) -> None:
    if made_of is None and find_spec("heterocompute_cuda"):
        pytest.skip("heterocompute-cuda is installed")
    config, _, problem = launched(bare_driver, tmp_path, made_of)
    assert re.match(sentence, config) and re.match(f"Unsupported cuda: {sentence}", problem)


def compile_as(source: Path, target: Path, *options: str) -> str:
    """Compile a file of kernels with the flags of the build; return what the compiler says."""
    command = [compiled.find_nvcc(), *compiled.flags(), "-Werror", "all-warnings", *options, str(source)]
    done = subprocess.run([*command, "-o", str(target)], cwd=emulated.ROOT, capture_output=True, text=True)
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


def test_too_many_modules_are_an_error() -> None:
    code = (
        "from heterocompute import _heterocompute as core\n"
        "for i in range(32): core.cuda_give(b'module%d' % i, b'x')\n"
        "core.cuda_give(b'module3', b'y')\n"  # a name that is known
        "try: core.cuda_give(b'one more', b'x')\n"
        "except RuntimeError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "cuda: one more is one of more than 32 modules\n", done.stderr
