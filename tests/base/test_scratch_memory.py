"""Operations of odd shapes run with scratch memory that ends at inaccessible pages (tests/c/preload)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]
COMPILER = shutil.which(os.environ.get("CC", "cc"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which scratch memory is guarded."""
    if "LD_PRELOAD" in os.environ or sys.platform != "linux" or not COMPILER:
        pytest.skip("another library stands before the allocator, or there is no compiler")
    library = tmp_path_factory.mktemp("preload") / "guarded_heap.so"
    source = HERE / "c" / "preload" / "guarded_heap.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, source, "-ldl"], check=True)
    return {**os.environ, "LD_PRELOAD": str(library)}


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
