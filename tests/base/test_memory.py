"""Failed allocations: a MemoryError with a message, and no effect on the next call.

tests/c/allocations.c tests every call of the core. This file tests the path to Python: a preloaded library refuses the
n-th `aligned_alloc`, which only the core uses, for n = 1, 2, ... until a call succeeds. The library also counts bytes,
so that a call that should read its operands where they lie cannot copy them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOOK = """
#include <stdlib.h>
static long asked, wanted, total;
void refuse(long number) { asked = total = 0; wanted = number; }
long count(void) { return asked; }
long sum(void) { return total; }
void *aligned_alloc(size_t alignment, size_t bytes) {
    void *memory = NULL;
    __atomic_add_fetch(&total, bytes, __ATOMIC_SEQ_CST);
    if (__atomic_add_fetch(&asked, 1, __ATOMIC_SEQ_CST) == wanted)
        return NULL;
    return posix_memalign(&memory, alignment, bytes) == 0 ? memory : NULL;
}
"""

SCRIPT = """
import ctypes, os, pickle
import numpy as np, scipy.sparse
import heterocompute as hc
from heterocompute import hardware as hw

hook = ctypes.CDLL(os.environ["LD_PRELOAD"])
rng = np.random.default_rng(0)
w, x = rng.standard_normal((40, 64), dtype=np.float32), rng.standard_normal((20, 64), dtype=np.float32)
image, filters = rng.standard_normal((2, 6, 7, 7)), rng.standard_normal((4, 6, 3, 3), dtype=np.float32)
q, nf4, kept = hc.quantize(w, "vsq4-g16-s4"), hc.quantize(w, "nf4-g64-dq"), hc.quantize(w, "int8+2:4")
k = hc.quantize(filters, "int8", axis=(2, 3, 1))
columns = hc.quantize(w, "int4", axis=0)
csr, eie = scipy.sparse.csr_array(w * (w > 1)), hc.encode_eie(w * (w > 1))

def memory(value):
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if hasattr(value, "components"):
        return [(name, memory(part)) for name, part in value.components.items()]
    return pickle.dumps(value)

CALLS = {
    "quantize": lambda: hc.quantize(w.T, "int8"),
    "quantize, octav": lambda: hc.quantize(w, "fp8_e4m3fn-tensor", clip="octav"),
    "quantize, learned": lambda: hc.quantize(w, "cb3-g16-tensor", importance=np.abs(w)),
    "quantize, pattern": lambda: hc.quantize(w, "int4-g16+2:4"),
    "dequantize": lambda: columns.dequantize(np.float64),
    "dequantize, pattern": lambda: kept.dequantize(),
    "fake_quantize": lambda: hc.fake_quantize(w.T, "nvfp4"),
    "error": lambda: tuple(vars(hc.error(w, q)).values()),
    "prune": lambda: hc.prune(w, "2:4"),
    "permute_channels": lambda: hc.permute_channels(w[:4, :8], "2:4"),
    "matmul, dense": lambda: hc.matmul(x.astype(np.float64), q.T),
    "matmul, few": lambda: x[:3] @ nf4.T,
    "matmul, few integers": lambda: hc.matmul(x[:3], q.T, activations="int8"),
    "matmul, both": lambda: hc.matmul(hc.quantize(x, "int8-g16-asym"), q.T),
    "matmul, pattern": lambda: hc.matmul(x, kept.T, activations="int8"),
    "linear, prepacked": lambda: hc.linear(x, hc.prepack(q), np.ones(40, np.float32), activations="vsq4-g16-s4"),
    "matmul, csr": lambda: hc.matmul(x, csr.T),
    "matmul, eie": lambda: hc.matmul(eie, np.tile(x, (9, 1)).T),
    "encode_eie": lambda: hc.encode_eie(w * (w > 1)),
    "encode_bitmap": lambda: hc.encode_bitmap(w * (w > 1)),
    "conv2d": lambda: hc.conv2d(image, k, padding=1),
    "conv2d, prepacked": lambda: hc.conv2d(image, hc.prepack(filters), padding=1),
    "conv2d, integers": lambda: hc.conv2d(image, k, padding=1, activations="int8"),
    "conv2d_outer": lambda: hc.conv2d_outer(image, filters, padding=1),
    "emulate": lambda: hc.emulate.matmul(x.astype(np.float32), w.T.copy(), accumulator="fp16"),
    "systolic": lambda: hw.systolic.simulate(x[:5, :9], w[:9, :7], rows=4, columns=3).cycles,
}

for name, call in CALLS.items():
    number = refused = 0
    while True:
        number += 1
        hook.refuse(number)
        try:
            found = call()
        except MemoryError as error:
            hook.refuse(0)
            assert "enough memory" in str(error), (name, number, error)
            refused += 1
        else:
            asked = hook.count()
            hook.refuse(0)
            assert memory(found) == memory(call()), (name, number, "other bits")
            if asked < number:
                break
    print(f"{name}: {refused} of {number - 1}")
    assert refused, name + " asks for none"
"""


OBJECTS = """
import _testcapi
import numpy as np
import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.base import runtime

x = np.ones((3, 64), np.float32)
q = hc.quantize(np.linspace(-1, 1, 640, dtype=np.float32).reshape(10, 64), "vsq4-g16-s4")
run, packed, turned = runtime.run(), q._packed(), q.T._packed()
values, product = np.empty((10, 64), np.float32), np.empty((3, 10), np.float32)
for call in (lambda: core.dequantize(run, packed, values), lambda: core.matmul(run, x, turned, None, None, product)):
    refused = 0
    for number in range(1, 40):  # more objects than the call makes
        try:
            _testcapi.set_nomemory(number, number + 1)
            try:
                call()
            finally:
                _testcapi.remove_mem_hooks()
        except MemoryError:
            refused += 1
    assert refused, call
    call()
assert values.tobytes() == q.dequantize().tobytes() and product.tobytes() == (x @ q.T).tobytes()
"""

IN_PLACE = """
import ctypes, os
import numpy as np
import heterocompute as hc

hook = ctypes.CDLL(os.environ["LD_PRELOAD"])
hook.sum.restype = ctypes.c_long
for filters in (16, 31, 48, 63, 64, 200):
    w = np.ones((filters, 1, 1, 2048), np.float32).transpose(0, 3, 1, 2)
    for images in (1, 3, 8):
        x = np.ones((images, 2048, 1, 1), np.float32)
        hook.refuse(0)
        hc.conv2d(x, w)
        assert hook.sum() <= x.nbytes + 4096, ("conv2d", filters, images, hook.sum())
w = np.ones((500, 2048), np.float32)
for rows in (1, 2, 3, 8):
    x = np.ones((rows, 2048), np.float32)
    hook.refuse(0)
    hc.matmul(x, w.T)
    assert hook.sum() == 0, ("matmul", rows, hook.sum())
row = np.ones((1, 3 << 20), np.float32)
w = np.broadcast_to(row, (16, row.size)).T
apart = np.ones((1 << 20, 256), np.float32)[:, :1]  # rows that share the sets of a cache
alike = np.broadcast_to(row[:, :1], (1 << 21, 1))
for x, w in ((np.ones((row.size, 8), np.float32).T, w), (alike, row[:, :3]), (apart, row[:, :3])):
    hook.refuse(0)
    hc.matmul(x, w)
    assert hook.sum() < 64 << 20, ("matmul", x.shape, x.strides, hook.sum())
"""


def run_hooked(tmp_path: Path, script: str) -> None:
    """Run a script with HOOK in place of the core's allocator."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux" or "asan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("needs a C compiler, Linux's loader, and an allocator of its own")
    source, library = tmp_path / "hook.c", tmp_path / "hook.so"
    source.write_text(HOOK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "HETEROCOMPUTE_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_refused_memory_is_a_memory_error(tmp_path: Path) -> None:
    run_hooked(tmp_path, SCRIPT)


def test_few_rows_and_windows_read_weights_where_they_lie(tmp_path: Path) -> None:
    run_hooked(tmp_path, IN_PLACE)


def test_refused_objects_of_python_are_a_memory_error() -> None:
    pytest.importorskip("_testcapi")
    done = subprocess.run([sys.executable, "-c", OBJECTS], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
