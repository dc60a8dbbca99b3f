"""Print the tables of docs/cuda.md: instructions and requests of the compiled kernels, as the interpreter counts them.

python tests/cuda/ptx/executed.py [--virtual 80] [--sites] [words of calls ...]
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import heterocompute as hc

sys.path.insert(0, str(Path(__file__).parents[1]))
import compiled  # noqa: E402
import emulated  # noqa: E402

CODECS = ["int8", "vsq4-g16-s4", "fp8_e4m3fn-row", "mxfp4", "nvfp4", "nf4-g64"]
PRODUCTS = [  # rows of x, rows of w, columns, both formats, an architecture
    (1, 64, 4096, None, "vsq4-g16-s4", 80),
    (8, 64, 4096, None, "vsq4-g16-s4", 80),
    (1, 64, 4096, None, "int8", 80),
    (1, 64, 4096, None, "int4-g32-f16", 80),
    (1, 64, 4096, None, "mxfp4", 80),
    (1, 64, 4096, None, "nvfp4", 80),
    (1, 64, 4096, None, "nf4-g64", 80),
    (1, 64, 4096, None, "nf4-g64-dq", 80),
    (1, 64, 4096, None, "q4_0", 80),
    (1, 64, 4096, None, "q8_0", 80),
    (1, 64, 4096, None, "q4_k", 80),
    (1, 64, 4096, None, "fp8_e4m3fn-row", 80),
    (64, 64, 1024, None, "vsq4-g16-s4", 80),
    (1, 64, 4096, "int8", "vsq4-g16-s4", 80),
    (32, 64, 4096, "int8", "vsq4-g16-s4", 80),
    (64, 64, 4096, "int8", "vsq4-g16-s4", 80),
    (1, 64, 4096, "int8", "int8", 80),
    (64, 64, 4096, "int8", "int8", 80),
    (96, 64, 4096, "int8", "int8", 80),
    (128, 128, 4096, "int8", "int8", 80),
    (16, 128, 4096, "int8", "vsq4-g16", 80),
    (16, 128, 4096, "int8", "int4-g32-f16", 80),
    (64, 64, 4096, "int8", "int4-g32-f16", 80),
    (128, 128, 1024, "int8", "int4-g32-f16", 80),
    (128, 128, 4096, "int8", "vsq4-g16-s4", 80),
    (16, 32, 4096, "int16", "int8", 80),
    (128, 128, 4096, "int8", "int8", 90),
    (128, 128, 4096, "int8", "vsq4-g16-s4", 90),
    (128, 256, 4096, "int8", "int8", 90),
    (128, 256, 4096, "int8", "vsq4-g16-s4", 90),
    (128, 128, 1024, "int8", "int4-g32-f16", 90),
    (128, 128, 4096, "vsq4-g16-s4", "vsq4-g16-s4", 90),
    (1, 128, 4096, "int8", "int8+2:4", 80),
    (64, 128, 4096, "int8", "int8+2:4", 80),
    (128, 64, 4096, "int8", "int8+2:4", 90),
    (128, 256, 4096, "int8", "int8+2:4", 90),
]
Counts = dict[str, dict[str, int]]
SPACES = ("shared", "global")
MATMULS = ("hc_gemm", "hc_gemv", "hc_sgemm")


class Site(NamedTuple):
    """Requests of warps by an instruction: wavefronts of shared memory or sectors of global memory, and the least."""

    kernel: str
    opcode: str
    line: int
    space: str
    requests: int
    units: int
    least: int


def library(virtual: str = "80") -> ctypes.CDLL:
    """Return the compiled kernels, which count."""
    loaded = emulated.opened(compiled.kernels(virtual=virtual))
    for function in (loaded.ptx_write_counts, loaded.ptx_write_traffic):
        function.argtypes = [ctypes.c_char_p]
    loaded.ptx_count_traffic.argtypes = [ctypes.c_bool]
    return loaded


def counted(call: Callable[[], Any]) -> tuple[Counts, list[Site]]:
    """Return how often the threads of each kernel execute each instruction in a call, and what its warps request."""
    kernels = emulated.kernels()
    with tempfile.TemporaryDirectory() as folder:
        kernels.ptx_write_counts(os.devnull.encode())
        kernels.ptx_write_traffic(os.devnull.encode())
        kernels.ptx_count_traffic(True)
        call()
        kernels.ptx_count_traffic(False)
        kernels.ptx_write_counts(f"{folder}/counts".encode())
        kernels.ptx_write_traffic(f"{folder}/traffic".encode())
        found: Counts = {}
        for line in Path(folder, "counts").read_text().splitlines():
            kernel, opcode, n = line.split()
            found.setdefault(kernel, {})[opcode] = int(n)
        sites = []
        for line in Path(folder, "traffic").read_text().splitlines():
            kernel, opcode, at, space, *numbers = line.split()
            sites.append(Site(kernel, opcode, int(at), space, *map(int, numbers)))
    return found, sites


def is_issued(opcode: str) -> bool:
    """Whether ptxas makes an instruction of it: copies of registers and reads of parameters become operands."""
    return not opcode.startswith(("mov.", "cvta.", "ld.param."))


def is_product(opcode: str) -> bool:
    return opcode.startswith(("mma.", "wgmma.mma"))


def over(kernel: str, space: str, sites: list[Site]) -> float:
    """Return the wavefronts or sectors of a kernel over the least of them; 0 if there are none."""
    least = sum(site.least for site in sites if (site.kernel, site.space) == (kernel, space))
    units = sum(site.units for site in sites if (site.kernel, site.space) == (kernel, space))
    return units / least if least else 0.0


def of_values(counts: dict[str, int], values: int) -> list[str]:
    """Return the cells of a codec: instructions of a thread per value, and requests of global memory."""
    starts = ("ld.global", "st.global", "cp.async.ca", "cp.async.cg")
    moved = {opcode: n for opcode, n in counts.items() if opcode.startswith(starts)}
    wide = sum(n for opcode, n in moved.items() if ".v4." in opcode or opcode.startswith("cp"))
    total, narrow = sum(n for opcode, n in counts.items() if is_issued(opcode)), sum(moved.values()) - wide
    return [f"{total / values:.3g}", f"{narrow / values:.2g}", f"{wide / values:.2g}"]


def of_products(kernel: str, counts: dict[str, int], sites: list[Site], values: int) -> list[str]:
    """Return the cells of a matmul: instructions of a thread per multiply-add, of a warp per product, and requests."""
    total = sum(n for opcode, n in counts.items() if is_issued(opcode))
    products = sum(n for opcode, n in counts.items() if is_product(opcode))
    per_product = f"{(total - products) / products:.1f}" if products else ""
    requests = [f"{ratio:.2f}" if ratio else "" for ratio in (over(kernel, space, sites) for space in SPACES)]
    return [f"{total / values:.3g}", per_product, *requests]


class Call(NamedTuple):
    """A call, the kernels of it that count, and its number of values or multiply-adds for each."""

    name: str
    run: Callable[[], Any]
    values: dict[str, int]


def codecs() -> Iterator[Call]:
    """Return the codecs of the table."""
    x = normal(32, 2048)
    for text in CODECS:
        q = packed(x, text)
        of_text: dict[str, Callable[[], Any]] = {
            "quantize": partial(emulated.quantize, x, q),
            "dequantize": partial(emulated.dequantize, q),
            "fake_quantize": partial(emulated.fake_quantize, x, q.format, q.axis),
            "quantize bfloat16 to": partial(emulated.quantize, x.astype(ml_dtypes.bfloat16), q),
            "quantize float16 to": partial(emulated.quantize, x.astype(np.float16), q),
        }
        values = dict.fromkeys(["hc_encode", "hc_maximum", "hc_decode"], x.size)
        for name, call in of_text.items():
            yield Call(f"{name} {text}, 32 x 2048", call, values)


def matmuls() -> Iterator[Call]:
    """Return the matmuls of the table."""
    for m, n, k, activations, text, architecture in PRODUCTS:
        x, q, fmt = normal(m, k), packed(normal(n, k), text), hc.format(activations) if activations else None
        ready = emulated.prepack(q) if activations else np.empty(0)
        settings = {"prepacked": ready if ready.size else None, "architecture": architecture}
        if n == 256:  # a device without enough multiprocessors for two blocks
            settings["multiprocessors"] = 1
        name = f"{activations or 'float32'} x {text}, {m} x {k} x {n}"
        values = dict.fromkeys(MATMULS, m * n * k) | dict.fromkeys(["hc_integers", "hc_encode"], m * k)
        yield Call(name, partial(emulated.linear, x, q, None, fmt, **settings), values)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    """Return an array where a device would allocate it."""
    made = emulated.filled(shape)
    made[...] = np.random.default_rng(sum(shape)).standard_normal(shape)
    return made


def packed(x: np.ndarray[Any, Any], text: str) -> Any:
    """Return a packed array whose components are where a device would allocate them."""
    q, parts = hc.quantize(x, text), dict[str, np.ndarray[Any, Any]]()
    for name, part in q.components.items():
        parts[name] = emulated.filled(part.shape, 0, part.dtype)
        parts[name][...] = part
    return hc.QuantizedArray(parts, q.format, q.shape, q.axis, q.source_dtype)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--virtual", default="80")
    parser.add_argument("--sites", action="store_true", help="also the instructions with more than their least")
    parser.add_argument("words", nargs="*", help="only the calls whose names have one of these")
    options = parser.parse_args()
    loaded = library(options.virtual)
    emulated.kernels = lambda: loaded  # type: ignore[assignment]
    tables = {
        ("instructions per value", "loads, stores", "of 16 bytes"): list[list[str]](),
        ("instructions per multiply-add", "others per product of matrices", "wavefronts", "sectors"): [],
    }
    of_codecs, of_matmuls = tables.values()
    for call in (*codecs(), *matmuls()):
        if options.words and not any(word in call.name for word in options.words):
            continue
        found, sites = counted(call.run)
        for kernel, counts in found.items():
            values = next((n for start, n in call.values.items() if kernel.startswith(start)), 0)
            name = f"`{kernel}`"
            if values and kernel.startswith(MATMULS):
                of_matmuls.append([name, call.name, *of_products(kernel, counts, sites, values)])
            elif values:
                cells = of_values(counts, values)
                if (name, cells) not in [(row[0], row[2:]) for row in of_codecs]:
                    of_codecs.append([name, call.name, *cells])
            for site in sites:
                if options.sites and values and site.kernel == kernel and site.units > site.least:
                    print("   ", *site)
    for columns, rows in tables.items():
        head = ["kernel", "call", *columns]
        print("", "|".join(["", *(f" {cell} " for cell in head), ""]), "|---" * len(head) + "|", sep="\n")
        for cells in rows:
            print("|".join(["", *(f" {cell} " for cell in cells), ""]))


if __name__ == "__main__":
    main()
