"""Odd shapes run with scratch memory that ends at inaccessible pages, and with fresh memory of 0xff bytes.

The libraries are in tests/c/preload."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]
COMPILER = shutil.which(os.environ.get("CC", "cc"))


def preloaded(name: str, folder: Path) -> dict[str, str]:
    """Return the environment in which a library of tests/c/preload stands before the allocator."""
    if "LD_PRELOAD" in os.environ or sys.platform != "linux" or not COMPILER:
        pytest.skip("another library stands before the allocator, or there is no compiler")
    library, source = folder / f"{name}.so", HERE / "c" / "preload" / f"{name}.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, source, "-ldl"], check=True)
    return {**os.environ, "LD_PRELOAD": str(library)}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which scratch memory is guarded."""
    return preloaded("guarded_heap", tmp_path_factory.mktemp("preload"))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which fresh memory has 0xff bytes."""
    return preloaded("filled_heap", tmp_path_factory.mktemp("preload"))


def run(code: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *code], env=environment, capture_output=True, text=True, timeout=300)


def test_the_guard_fires(guarded: dict[str, str]) -> None:
    call = "from ctypes import *; c = CDLL(None); c.aligned_alloc.restype = c_void_p; p = c.aligned_alloc(64, 128);"
    inside = run(["-c", call + "memset(p, 1, 128); c.free(c_void_p(p)); print('freed')"], guarded)
    assert inside.stdout == "freed\n", inside.stderr
    assert run(["-c", call + "memset(p, 1, 129)"], guarded).returncode < 0
    assert run(["-c", call + "c.free(c_void_p(p)); memset(p, 1, 1)"], guarded).returncode < 0


@pytest.mark.sweep(every=0)
def test_nothing_beside_scratch_memory_is_touched(guarded: dict[str, str]) -> None:
    done = run([str(HERE / "scratch_sweep.py"), "--seconds", "4", "--seed", "1"], guarded)
    assert done.returncode == 0, f"{done.stdout.splitlines()[-1]}\n{done.stderr}"


@pytest.mark.parametrize("weights", ["int4-g128+2:4", "int8-g32+1:4", "int4-g32-f16+2:4", "nf4-g64+1:2"])
@pytest.mark.sweep(every=4)
def test_the_last_group_of_a_pattern_is_read_inside_the_row(weights: str, guarded: dict[str, str]) -> None:
    code = f"""
import numpy as np, heterocompute as hc
from heterocompute import _heterocompute as core
w = np.random.default_rng(0).standard_normal((16, 4100), dtype=np.float32)
for k in (513, 1030, 4100):
    q = hc.quantize(w[:, :k], {weights!r})
    for isa in core.isa_names(core.cpu_isa()):
        with hc.use(isa=isa, threads=1):
            for rows in range(1, 9):
                hc.linear(w[:rows, :k], q)
"""
    done = run(["-c", code], guarded)
    assert done.returncode == 0, done.stderr


def test_fresh_memory_is_filled(filled: dict[str, str]) -> None:
    code = """
from ctypes import *
c = CDLL(None)
c.malloc.restype = c.aligned_alloc.restype = c.realloc.restype = c.calloc.restype = c_void_p
m = c.malloc(100); string = string_at(m, 100); memset(m, 1, 100); r = c.realloc(c_void_p(m), 5000)
print({*string}, {*string_at(c.aligned_alloc(64, 640), 640)}, {*string_at(r, 100)}, {*string_at(r + 200, 4800)})
p = c_void_p(); print(c.posix_memalign(byref(p), c_size_t(64), c_size_t(640)), {*string_at(p, 640)})
print(c.posix_memalign(byref(p), c_size_t(3), c_size_t(8)) != 0, {*string_at(c.calloc(10, 10), 100)})
"""
    done = run(["-c", code], filled)
    assert done.stdout == "{255} {255} {1} {255}\n0 {255}\nTrue {0}\n", done.stdout + done.stderr


def test_images_without_values_give_the_bias_whatever_memory_holds(filled: dict[str, str]) -> None:
    code = """
import numpy as np, heterocompute as hc
bias = np.float32([1, -2, 3, 5])
for text in ("int8", "int8-asym", "int4-g16", "vsq4-g16-s4", "affine4", "mxint8", "cb4", "int8+2:4"):
    w = hc.quantize(np.full((4, 2, 2, 2), 0.5, np.float32), text, axis=(2, 3, 1))
    for act in (None, "int8", "int4-asym", "vsq4-g16-s4", "int16", "mxfp4", "int8+2:4", "int4-g32"):
        for shape, groups in (((1, 2, 0, 4), 1), ((2, 2, 3, 0), 1), ((1, 4, 0, 0), 2)):
            for isa in ("scalar", None):
                with hc.use(isa=isa) if isa else hc.use():
                    y = hc.conv2d(np.zeros(shape, np.float32), w, bias, padding=2, activations=act, groups=groups)
                assert (y == bias[:, None, None]).all(), (text, act, shape, isa)
"""
    done = run(["-c", code], filled)
    assert done.returncode == 0, done.stderr


def test_results_do_not_depend_on_fresh_memory(filled: dict[str, str]) -> None:
    sweep = [str(HERE / "scratch_sweep.py"), "--calls", "60", "--seed", "5"]
    usual, done = run(sweep, dict(os.environ)), run(sweep, filled)
    assert usual.returncode == done.returncode == 0, done.stderr
    assert usual.stdout == done.stdout
