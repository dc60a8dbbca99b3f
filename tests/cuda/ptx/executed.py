"""Print the table of docs/cuda.md: instructions that the compiled kernels execute, as the interpreter counts them.

python tests/cuda/ptx/executed.py [--virtual 80]
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import heterocompute as hc

sys.path.insert(0, str(Path(__file__).parents[1]))
import compiled  # noqa: E402
import emulated  # noqa: E402

CODECS = ["int8", "vsq4-g16-s4", "fp8_e4m3fn-row", "mxfp4", "nvfp4", "nf4-g64"]
PRODUCTS = [  # rows of x, rows of w, columns, both formats, an architecture
    (1, 64, 4096, None, "vsq4-g16-s4", 80),
    (1, 64, 4096, "int8", "vsq4-g16-s4", 80),
    (32, 64, 4096, "int8", "vsq4-g16-s4", 80),
    (128, 128, 4096, "int8", "int8", 80),
    (128, 128, 4096, "int8", "int8", 90),
    (128, 128, 4096, "int8", "vsq4-g16-s4", 90),
    (128, 256, 4096, "int8", "int8", 90),
    (128, 256, 4096, "int8", "vsq4-g16-s4", 90),
    (128, 128, 4096, "int8", "int4-g32-f16", 90),
    (128, 128, 4096, "vsq4-g16-s4", "vsq4-g16-s4", 90),
    (64, 128, 4096, "int8", "int8+2:4", 80),
]
Counts = dict[str, dict[str, int]]


def counted(call: Callable[[], Any]) -> Counts:
    """Return how often the threads of each kernel execute each instruction in a call."""
    library = emulated.kernels()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/counts"
        library.ptx_write_counts(os.devnull.encode())
        call()
        library.ptx_write_counts(path.encode())
        found: Counts = {}
        for line in Path(path).read_text().splitlines():
            kernel, opcode, n = line.split()
            found.setdefault(kernel, {})[opcode] = int(n)
    return found


def is_issued(opcode: str) -> bool:
    """Whether ptxas makes an instruction of it: copies of registers and reads of parameters become operands."""
    return not opcode.startswith(("mov.", "cvta.", "ld.param."))


def is_product(opcode: str) -> bool:
    return opcode.startswith(("mma.", "wgmma.mma"))


def row(kernel: str, counts: dict[str, int], call: str, values: int) -> str:
    """Return a row: instructions of a thread per value, or of a warp per product of matrices."""
    total = sum(n for opcode, n in counts.items() if is_issued(opcode))
    products = sum(n for opcode, n in counts.items() if is_product(opcode))
    moved = {opcode: n for opcode, n in counts.items() if opcode.startswith(("ld.global", "st.global", "cp.async.cg"))}
    wide = sum(n for opcode, n in moved.items() if ".v4." in opcode or opcode.startswith("cp"))
    per_value = f"{total / values:.3g}"
    per_product = f"{(total - products) / products:.1f}" if products else ""
    narrow = sum(moved.values()) - wide
    return f"| `{kernel}` | {call} | {per_value} | {narrow / values:.2g} | {wide / values:.2g} | {per_product} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--virtual", default="80")
    options = parser.parse_args()
    loaded = emulated.opened(compiled.kernels(virtual=options.virtual))
    loaded.ptx_write_counts.argtypes = [ctypes.c_char_p]
    emulated.kernels = lambda: loaded  # type: ignore[assignment]
    rng = np.random.default_rng(0)
    print("| kernel | call | instructions per value | loads, stores | of 16 bytes | others per product of matrices |")
    print("|---|---|---|---|---|---|")
    x = rng.standard_normal((32, 2048)).astype(np.float32)
    for text in CODECS:
        q = hc.quantize(x, text)
        calls: dict[str, Callable[[], Any]] = {
            f"quantize {text}": partial(emulated.quantize, x, q),
            f"dequantize {text}": partial(emulated.dequantize, q),
            f"fake_quantize {text}": partial(emulated.fake_quantize, x, q.format, q.axis),
            f"quantize {text}, bfloat16": partial(emulated.quantize, x.astype(ml_dtypes.bfloat16), q),
            f"quantize {text}, float16": partial(emulated.quantize, x.astype(np.float16), q),
        }
        for name, call in calls.items():
            for kernel, counts in counted(call).items():
                if kernel != "hc_clear":
                    print(row(kernel, counts, f"{name}, 32 x 2048", x.size))
    for m, n, k, activations, text, architecture in PRODUCTS:
        x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
        q, fmt = hc.quantize(w, text), hc.format(activations) if activations else None
        ready = emulated.prepack(q)
        settings = {"prepacked": ready if ready.size else None, "architecture": architecture}
        if n == 256:  # a device without enough multiprocessors for two blocks
            settings["multiprocessors"] = 1
        found = counted(partial(emulated.linear, x, q, None, fmt, **settings))
        for kernel, counts in found.items():
            if kernel.startswith(("hc_gemm", "hc_gemv", "hc_sgemm")):
                print(row(kernel, counts, f"{activations or 'float32'} x {text}, {m} x {k} x {n}", m * n * k))
            elif kernel.startswith(("hc_integers", "hc_encode")):
                print(row(kernel, counts, f"x of {activations} x {text}, {m} x {k}", m * k))


if __name__ == "__main__":
    main()
