"""Memory of calls besides their arguments and results: the numbers of docs/memory.md, measured.

One child process runs all calls, each with operands that are large enough for a copy to show.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import ctypes, gc, json, os, sys
import numpy as np
import heterocompute as hc
from heterocompute.files.checkpoint import quantize_checkpoint

MIB = 1 << 20
folder = sys.argv[1]
rng = np.random.default_rng(0)

def matrix(rows, columns=8192, dtype=np.float32):
    return np.tile(rng.standard_normal((64, columns)).astype(dtype), (rows // 64, 1))

def size(value):
    parts = getattr(value, "components", None)
    return sum(part.nbytes for part in parts.values()) if parts is not None else getattr(value, "nbytes", 0)

def held(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key)) * 1024

def measure(name, call, small, allowed=0):
    small()  # threads and code are not what is measured
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = held("VmRSS")
    answer = call()
    peak = held("VmHWM") - before
    print(json.dumps([name, peak / MIB, (size(answer) + allowed) / MIB + 64]), flush=True)

def on(call, w, small=None):
    return lambda: call(w), lambda: call(w[:64, :512].copy() if small is None else small)

w = matrix(3072)
measure("hadamard", *on(hc.ptq.hadamard, w))
measure("kl_divergence", *on(lambda x: hc.kl_divergence(x, x), w))
measure("wanda", *on(lambda x: hc.scores.wanda(x, x), w))
q = hc.quantize(w, "int8")
measure("error", lambda: hc.error(w, q), lambda: hc.error(w[:64], q[:64]))
turned, columns = hc.quantize(w, "int4-g32", axis=0), w
measure("error, axis 0", lambda: hc.error(columns, turned), lambda: hc.error(columns, turned))
for pattern in ("2:4", "50%"):
    measure(f"prune {pattern}", *on(lambda x: hc.prune(x, pattern), w))
    measure(f"prune_mask {pattern}", *on(lambda x: hc.prune_mask(x, pattern), w))
half = w.astype(np.float16)
measure("prune of float16", *on(lambda x: hc.prune(x, "2:4"), half))
del half, turned, columns, q
for text in ("int4-g32", "vsq4-g16-s4", "nf4-g64", "mxfp4", "nvfp4"):
    some = w[:512]
    measure(f"search {text}", *on(lambda x: hc.quantize(x, text, clip="search"), some))
inputs = w.reshape(-1, 256)
plain, both = hc.ptq.Hessian(256), hc.ptq.Hessian(256)
both.add(inputs[:1], inputs[:1])
measure("Hessian.add", lambda: plain.add(inputs), lambda: plain.add(inputs[:8]))
two = lambda x: both.add(x, x)
measure("Hessian.add, x_float", *on(two, inputs[:65536], inputs[:8]))
apart = w.reshape(3072, 32, 256).swapaxes(0, 1)
measure("Hessian.add, strides", lambda: plain.add(apart), lambda: plain.add(apart[:1, :8]))
filters = np.ones((4, 64, 3, 3), np.float32)
for weights in (filters, hc.quantize(filters, "int4-g16", axis=(2, 3, 1))):
    image = w.reshape(1, 64, 3, 131072)
    narrow = image[..., :256].copy()
    measure("conv2d of wide rows", lambda: hc.conv2d(image, weights), lambda: hc.conv2d(narrow, weights))
line, slopes = w.reshape(1, 1, 1, -1)[..., :4128], w[:512, :33].copy().reshape(1, 512, 1, 33)
spread, few = w.reshape(-1)[: 180 * 33 * 33 * 128].reshape(180, 33, 33, 128), np.ones((180, 1, 1, 128), np.float32)
def backward(dy, x, *args):
    with hc.use(threads=2):
        return hc.conv2d_backward_weight(dy, x, *args)
taps, dilated = ((1, 4096), 1, 0, 1, 1), (3, 1, 0, 16, 128, "NHWC")  # "1 MiB per thread, up to 16 MiB more"
measure("backward of long filters", lambda: backward(slopes, line, *taps),
        lambda: backward(slopes[..., :1], line[..., :8], (1, 8)), (2 - 64) * MIB)
measure("backward of one window", lambda: backward(few, spread, *dilated),
        lambda: backward(few[:1], spread[:1], *dilated), (2 * 17 - 64) * MIB)
for text in ("nvfp4", "q4_k", "q8_0", "f16", "bf16"):
    path = os.path.join(folder, "model.gguf")
    blocks = {"f16": 2, "bf16": 2, "q8_0": 34 / 32}.get(text, 0.5625) * w.size
    codes = 0 if text in ("f16", "bf16") else blocks
    call = lambda x: hc.save_gguf(path, {"a": x}, types={"*": text}) and None
    measure(f"save_gguf {text}", *on(call, w), blocks + codes)
before, after, first = (os.path.join(folder, name) for name in ("before", "after.safetensors", "first"))
hc.save(before, {"a.weight": w})
hc.save(first, {"a.weight": w[:64, :512].copy()})
tensor = w.nbytes
del w, inputs, apart, image, some, line, spread
for layout, text, bits in (
    ("awq", "int4-g128-asym-f16", 4.2),
    ("gptq", "int4-g128-f16", 4.2),
    ("gptq", "int8-g128-asym-f16", 8.2),
    ("compressed-tensors", "int4-g128-f16", 4.2),
    ("bitsandbytes", "nf4-g64", 4.5),
):
    def call(path):
        quantize_checkpoint(path, after, text, layout=layout)
        os.remove(after)
    measure(f"quantize_checkpoint {layout} {text}", *on(call, before, first), tensor + tensor / 32 * bits)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs Linux's peak of resident memory")
@pytest.mark.sweep(every=0)
def test_calls_keep_within_their_memory(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) > 20
    assert [row for row in found if row[1] > 1.1 * row[2]] == []
