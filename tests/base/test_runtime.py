"""Settings, threads, fork and the BLAS change only the speed of calls, not their results."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from common import HANG, isas, reals, same_bits

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.base import writer as files_writer


def product() -> np.ndarray:
    return hc.linear(reals((20, 256), 1), hc.quantize(reals((70, 256), 2), "vsq4-g16-s4"), activations="int8")


def test_masks_hold_inside_the_block_only() -> None:
    before = hc.show_config(mode="dicts")
    for isa in isas():
        with hc.use(isa=isa):
            inside = hc.show_config(mode="dicts")
            assert inside["isa_used"][-1] == isa or isa in inside["isa_used"]
            assert all(core.isa_mask(k.rsplit("_", 1)[1]) & ~core.isa_mask(isa) == 0 for k in inside["kernels"])
    assert hc.show_config(mode="dicts") == before
    with hc.use(threads=3):
        assert hc.get_num_threads() == 3
        with hc.use(isa="scalar"):
            assert hc.get_num_threads() == 3


def test_every_family_ends_in_a_line_that_every_machine_has_or_the_format_itself() -> None:
    families: dict[str, list[str]] = {}
    for family, isa, _ in core.kernels():
        families.setdefault(family, []).append(isa)
    for family, lines in families.items():
        assert len(set(lines)) == len(lines), family
        if "scalar" in lines:
            assert lines[-1] == "scalar", family


def test_settings_belong_to_their_context() -> None:
    seen = []
    with hc.use(threads=1):
        thread = threading.Thread(target=lambda: seen.append(hc.get_num_threads()))
        thread.start()
        thread.join()
        assert hc.get_num_threads() == 1
    with hc.use(threads=5):
        assert seen != [5]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"isa": "avx1024"}, ValueError),
        ({"isa": 3}, TypeError),
        ({"threads": 0}, ValueError),
        ({"threads": 10**6}, ValueError),
        ({"threads": 1.5}, TypeError),
        ({"threads": True}, TypeError),
        ({"blas": "mkl"}, ValueError),
    ],
)
def test_bad_settings_are_named(options, error) -> None:
    with pytest.raises(error, match="use"), hc.use(**options):
        pass


def test_an_isa_that_the_machine_lacks_is_a_runtime_error() -> None:
    missing = [n for n in core.isa_names(0xFFFFFFFF) if core.isa_mask(n) & ~core.cpu_isa()]
    for name in missing:
        with pytest.raises(RuntimeError, match="lacks"), hc.use(isa=name):
            pass


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=HANG)


def test_the_environment_says_the_same() -> None:
    code = "import heterocompute as hc; print(hc.show_config('dicts')['isa_used'], hc.get_num_threads())"
    found = run(code, HETEROCOMPUTE_ISA="scalar", HETEROCOMPUTE_THREADS="3")
    assert found.stdout.strip() == "['scalar'] 3", found.stderr


@pytest.mark.parametrize(
    "environment",
    [
        {"HETEROCOMPUTE_ISA": "foo"},
        {"HETEROCOMPUTE_THREADS": "many"},
        {"HETEROCOMPUTE_THREADS": "0"},
        {"HETEROCOMPUTE_THREADS": "9" * 5000},
    ],
)
@pytest.mark.sweep(every=4)
def test_a_bad_environment_fails_at_the_first_call_not_at_import(environment) -> None:
    name = next(iter(environment))
    code = "import heterocompute as hc; print('imported'); hc.get_num_threads(); hc.quantize([0.5, 1.0], 'int8')"
    found = run(code, **environment)
    assert found.stdout.strip() == "imported"
    assert found.returncode != 0 and name in found.stderr.splitlines()[-1]


def test_a_blas_that_is_no_blas_is_named() -> None:
    found = run(
        "import numpy as np, heterocompute as hc; hc.matmul(np.ones((2, 2)), np.ones((2, 2)))",
        HETEROCOMPUTE_BLAS="/nowhere/libblas.so",
    )
    assert found.returncode != 0 and "/nowhere/libblas.so" in found.stderr.splitlines()[-1]


def test_dense_products_without_a_blas_use_the_own_kernels() -> None:
    code = (
        "import sys; sys.modules['scipy_openblas32'] = None\n"
        "import numpy as np, heterocompute as hc\n"
        "a = np.arange(12, dtype=np.float32).reshape(3, 4)\n"
        "assert (hc.matmul(a, a.T) == a @ a.T).all(); print(hc.show_config('dicts')['blas'])"
    )
    found = run(code)
    assert found.returncode == 0 and "own" in found.stdout, found.stderr


def test_several_threads_may_call_at_once() -> None:
    expected, wrong = product(), []

    def work() -> None:
        for _ in range(20):
            if not same_bits(product(), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_child_can_multiply() -> None:
    with hc.use(threads=4):
        expected = product()  # the thread pool exists now
        pid = os.fork()
        if pid == 0:
            signal.alarm(HANG)  # ends it, should it hang
            ok = False
            try:
                ok = same_bits(product(), expected)
            finally:
                os._exit(0 if ok else 1)
        _, status = os.waitpid(pid, 0)
        assert status == 0
        assert same_bits(product(), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_forked_while_a_file_is_written_can_write(tmp_path: Path) -> None:
    with files_writer.Writer(tmp_path / "parents", {"a": ("int8", (3,))}) as writer:
        with files_writer._temporaries_lock:  # another thread would hold it while it creates its file
            child = os.fork()
            if child == 0:
                signal.alarm(HANG)  # ends it, should it hang
                hc.save(tmp_path / "childs", {"b": np.ones(2, np.float32)})
                files_writer.remove_temporaries()  # must not remove the parent's files
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        writer.write("a", np.arange(3, dtype=np.int8))
    assert hc.load(tmp_path / "childs")["b"].tolist() == [1, 1]
    assert hc.load(tmp_path / "parents")["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_workers_can_multiply(method: str) -> None:
    x, q = reals((20, 256), 1), hc.quantize(reals((70, 256), 2), "vsq4-g16-s4")
    expected = hc.linear(x, q)
    with multiprocessing.get_context(method).Pool(2) as pool:
        answers = [pool.apply_async(hc.linear, (x, q)) for _ in range(4)]
        assert all(same_bits(answer.get(timeout=HANG), expected) for answer in answers)


def test_flush_to_zero_of_the_process_changes_nothing() -> None:
    """A library that sets the flush bits, as with -ffast-math, must not affect our kernels."""
    torch = pytest.importorskip("torch")
    x = (reals((5, 64), 3) * np.float32(2.0**-130)).astype(np.float32)
    expected = hc.quantize(x, "int8"), hc.fake_quantize(x, "vsq4-g16-s4")
    assert torch.set_flush_denormal(True)
    try:
        assert hc.quantize(x, "int8") == expected[0]
        assert same_bits(hc.fake_quantize(x, "vsq4-g16-s4"), expected[1])
    finally:
        torch.set_flush_denormal(False)


def test_threadpoolctl_sees_and_limits_the_pool() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    pools = [p for p in threadpoolctl.threadpool_info() if p["user_api"] == "heterocompute"]
    assert len(pools) == 1 and pools[0]["num_threads"] == hc.get_num_threads()
    before = hc.get_num_threads()
    with threadpoolctl.threadpool_limits(1, user_api="heterocompute"):
        assert hc.get_num_threads() == 1
    assert hc.get_num_threads() == before


def test_references_and_memory_stay() -> None:
    x, w = reals((2, 32), 1), reals((4, 32), 2)
    q = hc.quantize(w, "vsq4-g16-s4")
    out = np.empty((2, 4), np.float32)
    held = [x, w, out, *q.components.values()]
    objects: tuple[object, ...] = ()

    def cycle(count: int) -> None:
        for _ in range(count):
            hc.linear(x, q, activations="int8", out=out)
            hc.quantize(w, "int4-g16")
            for call in (lambda: hc.quantize(w, "int8", axis=5), lambda: hc.matmul(x, q)):
                try:
                    call()
                except ValueError:
                    pass

    cycle(200)
    gc.collect()
    before, objects = [sys.getrefcount(part) for part in held], (len(gc.get_objects()),)
    cycle(5_000)
    gc.collect()
    assert [sys.getrefcount(part) for part in held] == before
    assert abs(len(gc.get_objects()) - objects[0]) < 50


@pytest.mark.sweep(every=0)
def test_resident_memory_is_steady_over_many_calls() -> None:
    code = """
import resource, numpy as np, heterocompute as hc
x, w = np.ones((2, 64), np.float32), np.ones((8, 64), np.float32)
q = hc.quantize(w, "vsq4-g16-s4")
def cycle(n):
    for _ in range(n):
        hc.linear(x, q, activations="int8"); hc.quantize(w, "int8"); q.dequantize()
        hc.conv2d(x.reshape(1, 2, 8, 8), w.reshape(8, 64, 1, 1)[:, :2])
cycle(500)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
cycle(25_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    found = run(code)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) < 2048, "KiB gained over 100,000 calls"


def test_a_product_works_within_its_memory() -> None:
    """Besides the result a matmul needs less than 64 MiB, with weights that would take 256 MiB as float32."""
    code = """
import resource, numpy as np, heterocompute as hc
q = hc.quantize(np.ones((1, 8192), np.float32), "vsq4-g16-s4")
parts = {k: np.repeat(v, 8192, axis=0) for k, v in q.components.items()}
w = hc.QuantizedArray(parts, q.format, (8192, 8192), (1,))
x = np.ones((64, 8192), np.float32)
hc.linear(x[:9, :64].copy(), hc.quantize(x[:, :64].copy(), "int8"), activations="int8")
out = np.ones((64, 8192), np.float32)
for activations in (None, "int8", "int24", "int4-g32"):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    hc.linear(x, w, activations=activations, out=out)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    found = run(code)
    assert found.returncode == 0, found.stderr
    assert max(map(int, found.stdout.split())) < 64, found.stdout


def test_a_limit_on_the_blas_holds() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    a = reals((64, 64), 1)
    hc.matmul(a, a)
    if "OpenBLAS" not in str(hc.show_config(mode="dicts")["blas"]):
        pytest.skip("no OpenBLAS here")

    def threads() -> list[int]:
        return [p["num_threads"] for p in threadpoolctl.threadpool_info() if "scipy_openblas32" in p["filepath"]]

    with hc.use(threads=2, blas="openblas"):
        hc.matmul(a, a)
        before = threads()
        assert before[0] >= 2
        for first in (2, 1):  # a matmul with one thread leaves no trace: 1 is then a limit, too
            with hc.use(threads=first):
                hc.matmul(a, a)
            with threadpoolctl.threadpool_limits(1, user_api="blas"):
                hc.matmul(a, a)
                assert threads() == [1]
            hc.matmul(a, a)
            assert threads() == before


def test_public_names_come_when_they_are_asked_for():
    code = """
    import sys
    import heterocompute as hc
    for late in ("hardware", "studies", "files", "report", "zoo", "emulate"):
        assert f"heterocompute.{late}" not in sys.modules, late
    assert {"hardware", "save", "load", "study", "quantize", "zoo"} <= set(dir(hc))
    assert hc.hardware.roofline is sys.modules["heterocompute.hardware"].roofline
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


@pytest.mark.parametrize(
    "package, name, use",
    [
        (hc, "encode_csr", "encode_eie"),
        (hc.hardware, "Conv2d", "layers.Conv2d"),
        (hc.hardware, "Level", "mapper.Level"),
        (hc.hardware, "Roofline", "results.Roofline"),
        (hc.hardware, "PETAFLOP_DAY", "systems.PETAFLOP_DAY"),
        (hc.hardware, "Conv9d", ""),
    ],
)
def test_an_old_name_is_an_error_that_states_the_new_one(package, name, use):
    with pytest.raises(AttributeError) as caught:
        getattr(package, name)
    use = use and f", use {package.__name__}.{use}"
    assert str(caught.value) == f"module '{package.__name__}' has no attribute '{name}'{use}"
