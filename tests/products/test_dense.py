"""Dense float32 matmuls: the package's kernels, whose bits are the same everywhere, and on request OpenBLAS."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from common import reals, same_bits

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.base import runtime
from heterocompute.reference import product as reference

AVX512 = core.isa_mask("avx512") & ~core.cpu_isa() == 0
needs_blas = pytest.mark.skipif(not importlib.util.find_spec("scipy_openblas32"), reason="no OpenBLAS here")
needs_avx512 = pytest.mark.skipif(not AVX512, reason="the cores that are asked for are slower with AVX-512 alone")


def child(code: str, **environment: str) -> list[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("OPENBLAS_", "HETEROCOMPUTE_"))}
    code = "import numpy as np, heterocompute as hc\n" + code
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, env={**env, **environment}, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


SHOW = """
import json
x, w = np.ones((64, 512), np.float32), np.ones((512, 512), np.float32)
def show():
    choices = [hc.explain(x[:m], w.T).chosen for m in (1, 8, 64)]
    print(json.dumps([*choices, hc.show_config("dicts")["dense"], str(hc.explain(x, w))]))
show()
"""


def choices(text: str) -> list[str]:
    answer: list[str] = json.loads(text)
    return answer


def test_no_blas_is_opened_by_default() -> None:
    code = "import sys; x = np.ones((9, 7), np.float32); hc.matmul(x, x.T); hc.linear(x, x); x @ x.T\n"
    assert child(code + "print([name for name in sys.modules if 'openblas' in name])") == ["[]"]
    assert child("print(hc.show_config('dicts')['dense'])") == ["own kernels (the default)"]


LAYOUTS = ("plain", "transposed", "views", "strided", "batches", "transposed x", "transposed out")


def operands(layout: str, m: int, n: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if layout == "batches":
        return reals((3, m, k), seed), reals((3, k, n), seed + 1), np.empty((3, m, n), np.float32)
    x, w, out = reals((m, k), seed), reals((k, n), seed + 1), np.empty((m, n), np.float32)
    if layout == "transposed":
        w = np.ascontiguousarray(w.T).T
    if layout == "views":
        x, w = reals((m, k + 5), seed)[:, 3:-2], reals((k, n + 7), seed + 1)[:, 4:-3]
    if layout == "strided":
        x, w, out = (
            reals((m, 2 * k), seed)[:, ::2],
            reals((k, 3 * n), seed + 1)[:, ::3],
            np.empty((m, 2 * n), np.float32)[:, ::2],
        )
    if layout == "transposed x":
        x = np.ascontiguousarray(x.T).T
    if layout == "transposed out":
        out = np.empty((n, m), np.float32).T
    return x, w, out


@pytest.mark.parametrize("seed", range(70))
@pytest.mark.sweep(every=4)
def test_each_output_is_one_chain_for_every_kernel_and_number_of_threads(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = (1, 2, 3, 4, 5, 8, 9, 17, 63, 64, 65, 80, 81, 130, 193, 200, 513)
    m, n, k = int(rng.choice(rows)), int(rng.choice((1, 3, 10, 16, 33, 64, 100, 700))), int(rng.integers(1, 300))
    if seed % 5 == 0:
        m, n, k = min(m, 65), 320, 256 * int(rng.integers(1, 4))  # rows that share the sets of a cache
    x, w, out = operands(LAYOUTS[seed % len(LAYOUTS)], m, n, k, seed)
    wanted = reference.matmul(x, w) if m * n * k <= 1 << 19 else None
    found = set()
    for isa in ("scalar", *(isa for isa in ("avx2", "avx512") if core.isa_mask(isa) & ~core.cpu_isa() == 0)):
        for threads in (1, 3):
            out[...] = np.nan
            with hc.use(isa=isa, threads=threads):
                hc.matmul(x, w, out=out)
            assert wanted is None or same_bits(np.ascontiguousarray(out), wanted)
            found.add(out.tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("seed", range(24))
def test_rows_a_page_apart_are_chains_too(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stride = int(rng.choice((1023, 1024, 1025, 1031, 2047, 2048)))
    m, n, k = int(rng.integers(1, 9)), int(rng.integers(1, 90)), int(rng.integers(200, stride + 1))
    x, w = reals((m, k), seed), reals((n, stride), seed + 1)[:, stride - k :]
    wanted = reference.matmul(x, w.T)
    for isa in ("scalar", *(isa for isa in ("avx2", "avx512") if core.isa_mask(isa) & ~core.cpu_isa() == 0)):
        with hc.use(isa=isa):
            assert same_bits(hc.linear(x, w), wanted)


@needs_blas
@needs_avx512
@pytest.mark.parametrize("core", ["Nehalem", "Haswell"])
def test_a_core_of_an_older_kind_keeps_few_rows_alone(core: str) -> None:
    one, eight, many, why, table = choices(child(SHOW, OPENBLAS_CORETYPE=core, HETEROCOMPUTE_BLAS="auto")[0])
    assert (one, eight, many) == ("OpenBLAS", "gemm", "gemm")
    assert why == f"own kernels, OpenBLAS for one or two rows (its core is {core})"
    row = next(line for line in table.splitlines() if "OpenBLAS" in line)
    assert row.split()[1] != "-" and "slower by estimate" in row  # it has an estimate, as paths have


@needs_blas
@needs_avx512
def test_a_core_of_the_machines_kind_keeps_what_it_is_good_at() -> None:
    one, eight, many, why, _ = choices(child(SHOW, OPENBLAS_CORETYPE="SkylakeX", HETEROCOMPUTE_BLAS="auto")[0])
    assert (one, eight, many) == ("OpenBLAS", "gemm", "gemm")
    assert why == "own kernels, OpenBLAS for one or two rows (its core is SkylakeX)"


@needs_blas
def test_the_choice_can_be_made_by_hand() -> None:
    code = SHOW + "".join(f"with hc.use({text}): show()\n" for text in ("blas='own'", "blas='openblas'", "path='gemm'"))
    for name, first, last in (("own", "gemm", "as asked for"), ("openblas", "OpenBLAS", "a path is forced")):
        lines = [choices(line) for line in child(code, HETEROCOMPUTE_BLAS=name, OPENBLAS_CORETYPE="Nehalem")]
        assert [line[:3] for line in lines] == [[first] * 3, ["gemm"] * 3, ["OpenBLAS"] * 3, ["gemm"] * 3]
        assert "(as asked for)" in lines[0][3] and f"({last})" in lines[3][3]


@needs_blas
def test_what_is_kept_has_the_bits_of_the_own_kernels() -> None:
    runtime.open_blas()
    for m, n, k in ((8, 512, 512), (2, 512, 300), (64, 64, 64), (20, 24, 600), (1, 300, 70)):
        x, w, bias = reals((m, k), 1), reals((n, k), 2), reals((n,), 3)
        with hc.use(blas="auto"):
            kept = hc.explain(x, w.T).chosen == "gemm"
            got = hc.linear(x, w, bias), hc.matmul(x, np.ascontiguousarray(w.T))
        with hc.use(blas="own"):
            own = hc.linear(x, w, bias), hc.matmul(x, w.T)
        if kept:
            assert same_bits(got[0], own[0])
        bound = 2 * (k + 2) * np.finfo(np.float32).eps * np.abs(x).max() * np.abs(w).max()
        assert all(np.abs(a - b).max() <= bound for a, b in zip(got, own, strict=True))


@needs_blas
@pytest.mark.parametrize(
    "shape", [((5, 6, 7), (7, 4)), ((3, 1, 5, 7), (2, 7, 4)), ((1, 7), (3, 7, 1)), ((2, 0, 7), (7, 3))]
)
def test_strides_that_a_blas_does_not_take_are_copied(shape: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    def strided(size: tuple[int, ...], seed: int) -> np.ndarray:
        return reals((*size[:-2], 2 * size[-2], 3 * size[-1]), seed)[..., ::2, ::-3]

    a, b = strided(shape[0], 1), strided(shape[1], 2)
    with hc.use(blas="openblas"):
        wanted = hc.matmul(np.ascontiguousarray(a), np.ascontiguousarray(b))
        assert wanted.size == 0 or hc.explain(a, b).chosen == "OpenBLAS"
        bound = 2 * 9 * np.finfo(np.float32).eps * np.abs(a).max(initial=0) * np.abs(b).max()
        out = np.full((*wanted.shape[:-1], 2 * wanted.shape[-1]), np.nan, np.float32)
        for x, w, y in ((a, b, None), (a, b, out[..., ::2])):
            assert np.abs(hc.matmul(x, w, out=y) - wanted).max(initial=0) <= bound
        assert np.isnan(out[..., 1::2]).all()
    assert np.abs(np.matmul(a.astype(np.float64), b) - wanted).max(initial=0) <= bound


@needs_blas
def test_threads_take_turns_with_the_number_of_the_library() -> None:
    code = """
import threading
x = np.ones((32, 64), np.float32)
def work():
    for i in range(300):
        with hc.use(threads=1 + i % 2, blas="openblas"):
            assert (x @ x.T == 64).all() and (hc.matmul(x, x.T) == 64).all()
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
import threadpoolctl
found = [one["num_threads"] for one in threadpoolctl.threadpool_info() if "scipy_openblas" in one["filepath"]]
print(len(set(found)) <= 1)
import os
if os.fork() == 0:
    work()
    print("child", flush=True)
    os._exit(0)
os.wait()
"""
    pytest.importorskip("threadpoolctl")
    assert child(code)[-1] == "child"


@needs_blas
def test_the_bias_is_added_last() -> None:
    x, w = reals((4, 32), 1), reals((24, 32), 2)
    bias = reals((24,), 3) * np.float32(1e6)
    for blas in ("openblas", "own"):
        with hc.use(blas=blas):
            for given in (bias, np.repeat(bias, 2)[::2]):
                for out in (None, np.empty((4, 24), np.float32), np.empty((24, 4), np.float32).T):
                    assert same_bits(hc.linear(x, w, given, out=out), hc.linear(x, w) + bias)


@needs_blas
def test_rows_that_are_taken_again_are_not_merged() -> None:
    a, b = reals((3, 1, 1, 8), 1), reals((8, 4), 2)
    out = np.full((3, 5, 1, 4), np.nan, np.float32)
    with hc.use(blas="openblas"):
        whole = hc.matmul(np.broadcast_to(a, (3, 5, 1, 8)), b, out=out)
        bound = 2 * 10 * np.finfo(np.float32).eps * np.abs(a).max() * np.abs(b).max()
        assert np.abs(whole - a @ b).max() <= bound


@needs_blas
def test_every_choice_of_shapes_is_that_of_the_table() -> None:
    """Shapes that a table entry of blas.c assigns to this package use its kernels, all others use the BLAS."""
    code = """
for m in (1, 2, 3, 8, 64, 95, 96):
    for transposed in (False, True):
        x, w = np.ones((m, 300), np.float32), np.ones((300, 300), np.float32)
        print(m, int(transposed), hc.explain(x, w.T if transposed else w).chosen)
"""
    if not AVX512:
        pytest.skip("the rows for AVX-512")
    for kind, isa in (("SkylakeX", "avx512"), ("Haswell", "avx512"), ("Haswell", "avx2")):
        for line in child(code, OPENBLAS_CORETYPE=kind, HETEROCOMPUTE_ISA=isa, HETEROCOMPUTE_BLAS="auto"):
            *numbers, chosen = line.split()
            m, transposed = map(int, numbers)
            kept = 2 <= m <= 95 if isa == "avx2" else not (transposed and m <= 2)
            assert (chosen == "gemm") == kept, line


def test_a_row_has_the_bits_that_it_has_alone() -> None:
    """Rows of x that share the sets of a cache are copied if they are few, and packed if they are many."""
    x, w = reals((4200, 1024), 1), reals((16, 1024), 2)
    whole = hc.linear(x, w)
    for rows in (x[:1], x[:7], x[:30], x[1000:1200]):
        first = (rows.ctypes.data - x.ctypes.data) // x.strides[0]
        assert same_bits(hc.linear(rows, w), whole[first : first + len(rows)])
