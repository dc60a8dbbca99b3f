"""Threads with small stacks, as in musl and users' pools: the core does not store its arrays on the stack."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from common import FORMATS, HANG

# A sample of the formats; tests/c runs all of them. Each call runs once in the main thread, to import what it needs.
# Python and NumPy take some 32 KiB.
PROGRAM = f"""
import sys, threading
import numpy as np, heterocompute as hc

draw = np.random.default_rng(0)
w, x = (draw.standard_normal((64, 1024), dtype=np.float32) for _ in range(2))
image, filters = draw.standard_normal((1, 16, 12, 12), np.float32), draw.standard_normal((32, 16, 3, 3), np.float32)
h = hc.ptq.Hessian(1024)
h.add(x)

def products(text):
    q = hc.quantize(w, text)
    hc.fake_quantize(w, text)
    q.dequantize()
    for rows in (1, 4, 64):
        hc.linear(x[:rows], q)
        hc.linear(x[:rows], q, activations="int8")
    hc.conv2d(image, hc.quantize(filters, text, axis=(2, 3, 1)), padding=1, activations="int8")

def others():
    for pattern in ("2:4", "1:32", "7:8"):
        hc.linear(x[:4], hc.prune(w, pattern))
        hc.linear(x[:4], hc.quantize(w, f"int8+{{pattern}}"))
    for clip in ("octav", "percentile:90", 0.5):
        hc.quantize(w, "int4-g128", clip=clip)
    hc.quantize(w, "cb8-d2", importance=np.abs(x))
    hc.linear(x, w)
    hc.linear(x, hc.encode_eie(np.where(w > 0, w, 0)))
    hc.ptq.gptq(w, h, "int4-g16")
    hc.permute_channels(w, "2:4")
    hc.emulate.matmul(x, w.T, accumulator="fp32")
    hc.emulate.matmul(hc.quantize(x, "int8"), hc.quantize(w, "int8").T)
    hc.conv2d_outer(image, filters)
    for algorithm in ("direct", "implicit", "im2col", "winograd4", "fft"):
        hc.conv2d(image, filters, padding=1, algorithm=algorithm)

def everything():
    with hc.use(isa="scalar"):
        for text in ("vsq4-g16-s4", "cb4", "mxfp4", "q4_k"):
            hc.quantize(w, text)
    for text in {FORMATS[::4]!r}:
        products(text)
    others()
    done.append(True)

done = []
hc.set_num_threads(int(sys.argv[1]))
everything()
threading.stack_size(96 << 10)
thread = threading.Thread(target=everything)
thread.start()
thread.join()
assert len(done) == 2
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the least stack of a thread is known for Linux")
@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="sanitizers surround arrays on the stack")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.sweep(every=0)
def test_calls_from_a_thread_of_a_small_stack(threads: int) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(threads)], capture_output=True, text=True, timeout=HANG)
    assert done.returncode != -signal.SIGSEGV, "the stack overflowed"
    assert done.returncode == 0, done.stderr
