"""Plans of matmuls on devices that are not there: what they launch for shapes, formats and architectures by a seed.

    python tests/cuda/planned.py

writes choices.csv, and prints the digests of test_cuda_paths.py: for costs that changed on purpose.
"""

from __future__ import annotations

import csv
import ctypes
import functools
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import emulated
import numpy as np

import heterocompute as hc

WEIGHTS = (
    "int8 int4 int4-g32-f16 int4-g64-f16 int4-g128-f16 int4-g16 int8-g32 int8-g64 int8-g128 int8-g48 int16 int3 "
    "int2-g32 vsq4-g16-s4 vsq4-g16 vsq8-g32 vsq6-g16-s6 mxfp4 mxfp8_e4m3 mxint8 nvfp4 nf4-g64 nf4-g64-dq "
    "fp8_e4m3fn-row bf16 log8-8 q4_0 q8_0 q4_k q6_k q2_k int8+2:4 int4+2:4 vsq4-g16-s4+2:4 int4-g32-f16+2:4 int8+1:4 "
    "int4-g32-f16+1:4 int8 int8 int4 vsq4-g16-s4 vsq4-g16-s4 int8+2:4 vsq4-g16-s4+2:4 int8-g32+2:4"
).split()
ACTIVATIONS = (*["int8"] * 7, None, None, None, "int16", "int4", "vsq4-g16-s4", "int8-g32", "mxfp8_e4m3", "int8-g128")
ADDRESS = 1 << 32  # of memory that no plan reads


class Case(NamedTuple):
    """A matmul of x (m, k) with w (n, k): activations None for float32; shifts: bytes from an address of 256."""

    w: str
    activations: str | None
    m: int
    n: int
    k: int
    architecture: int
    multiprocessors: int
    device_order: bool
    shift_x: int
    shift_w: int


def cases(seed: int, count: int) -> Iterator[Case]:
    """Draw matmuls: rows near the limits of kernels, sizes of layers and odd ones, devices of several sizes."""
    random = np.random.default_rng(seed)

    def size(exponents: tuple[int, int], step: int) -> int:
        found = 2 ** random.uniform(*exponents)
        return max(step, int(found / step) * step) if random.random() < 0.85 else max(1, int(found))

    for _ in range(count):
        near = random.choice([1, 8, 16, 32, 64, 127, 128, 256, 1024, 8192]) + random.integers(-1, 2)
        m = max(1, int(near)) if random.random() < 0.7 else size((0, 13), 1)
        architecture, multiprocessors = [(90, 0), (90, 132), (90, 78), (80, 108), (86, 82), (0, 0), (120, 188)][
            random.integers(7)
        ]
        yield Case(
            WEIGHTS[random.integers(len(WEIGHTS))],
            ACTIVATIONS[random.integers(len(ACTIVATIONS))],
            m,
            size((0, 15), int(random.choice([1, 16, 64, 128]))),
            size((4, 14.5), int(random.choice([32, 64, 128, 256]))),
            architecture,
            multiprocessors,
            bool(random.random() < 0.2),
            int(random.choice([0, 0, 0, 0, 4, 16])),
            int(random.choice([0, 0, 0, 0, 0, 8, 16, 1])),
        )


@functools.cache
def row_of(spec: str, k: int) -> Any:
    """Return one row of k values in a format, whose components have the strides of any array."""
    fmt = hc.format(spec)
    row = np.ones((1, k), np.float32)
    if "+" in spec:
        _, _, pattern = spec.partition("+")
        return hc.quantize(hc.prune(row, pattern), spec.partition("+")[0])
    return hc.quantize(row, fmt)


@functools.cache
def describe() -> Any:
    """Return the function of host/steps.cpp."""
    library = emulated.library_of("steps", [emulated.HOST.with_name("steps.cpp")])
    return ctypes.CDLL(str(library)).hc_cuda_host_steps


def packed(spec: str, rows: int, k: int, shift: int) -> emulated.Packed:
    """Describe a packed array that is nowhere."""
    q = row_of(spec, k)
    made = emulated.packed(q, q.components)
    made.shape[0] = rows
    for number, part in enumerate(made.parts):
        if part.data:
            part.data = ADDRESS * (number + 2) + shift
    return made


class Candidate(ctypes.Structure):
    """A candidate of hc_cuda_explanation."""

    _fields_ = [
        *[(name, ctypes.c_char_p) for name in ("path", "id", "what", "reason")],
        ("seconds", ctypes.c_double),
        ("work", ctypes.c_double * 3),
    ]


class Explanation(ctypes.Structure):
    """hc_cuda_explanation of csrc/cuda/hc_cuda.h."""

    _fields_ = [("n", ctypes.c_int), ("chosen", ctypes.c_int), ("candidates", Candidate * 24)]


def plan(case: Case, **said: Any) -> tuple[Any, str]:
    """Return the plan of a matmul, and its error."""
    x, out = emulated.View(ADDRESS + case.shift_x, 0, 2), emulated.View(ADDRESS * 90, 0, 2)
    x.shape[:2], x.strides[:2] = (case.m, case.k), (4 * case.k, 4)
    out.shape[:2], out.strides[:2] = (case.m, case.n), (4 * case.n, 4)
    operand = emulated.Operand(ctypes.addressof(x))
    spec = emulated.format_of(hc.format(case.activations)) if case.activations else None
    made, error = ctypes.create_string_buffer(emulated.PLAN_BYTES), emulated.Error()
    head = emulated.PlanHead.from_buffer(made)
    head.architecture, head.multiprocessors = case.architecture, case.multiprocessors
    head.device_order = case.device_order
    for field, value in said.items():
        setattr(head, field, value)
    weights = packed(case.w, case.n, case.k, case.shift_w)
    first = [ctypes.byref(operand), ctypes.byref(spec) if spec else None, ctypes.byref(weights)]
    failed = emulated.function_of("matmul")(*first, None, ctypes.byref(out), None, made, ctypes.byref(error))
    return made, error.text.decode() if failed else ""


def described(made: Any) -> str:
    """Return the steps of a plan, one a line, and the bytes of its workspace."""
    text = ctypes.create_string_buffer(4096)
    describe()(made, text, len(text))
    return f"{text.value.decode()}workspace {emulated.PlanHead.from_buffer(made).workspace_bytes}\n"


def steps(case: Case, **said: Any) -> str:
    """Return the steps of a matmul, or why there is none."""
    made, error = plan(case, **said)
    return error or described(made)


def explain(case: Case, **said: Any) -> Explanation:
    """Return the paths of a matmul; ValueError with the sentence of the core."""
    found = Explanation()
    _, error = plan(case, explanation=ctypes.addressof(found), **said)
    if error:
        raise ValueError(error)
    return found


class Convolution(NamedTuple):
    """A convolution of x (images, channels, size, size), channels last or not, with filters of kernel x kernel."""

    w: str
    activations: str | None
    images: int
    channels: int
    groups: int
    filters: int
    size: int
    kernel: int
    stride: int
    channels_last: bool
    architecture: int


def convolutions(seed: int, count: int) -> Iterator[Convolution]:
    """Draw convolutions with few and many filters of a group."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        groups = int(random.choice([1, 1, 1, 2, 32]))
        kernel = int(random.choice([1, 3, 5]))
        yield Convolution(
            WEIGHTS[random.integers(len(WEIGHTS))],
            ACTIVATIONS[random.integers(len(ACTIVATIONS))],
            int(random.choice([1, 2, 32])),
            groups * int(random.choice([1, 3, 8, 32, 64])),
            groups,
            groups * int(random.choice([1, 4, 7, 8, 9, 64, 100])),
            kernel + int(random.integers(0, 60)),
            kernel,
            int(random.choice([1, 2])),
            bool(random.random() < 0.5),
            int(random.choice([0, 80, 90])),
        )


@functools.cache
def filter_of(spec: str, depth: int, kernel: int) -> Any:
    """Return one filter in a format."""
    values = np.ones((1, depth, kernel, kernel), np.float32)
    name, _, pattern = spec.partition("+")
    return hc.quantize(hc.prune(values, pattern, axis=(2, 3, 1)) if pattern else values, name, axis=(2, 3, 1))


def steps_of(case: Convolution) -> str:
    """Return the steps of a convolution, one a line, and the bytes of its workspace, or why there is none."""
    shape = (case.images, case.channels, case.size, case.size)
    size = (case.size - case.kernel) // case.stride + 1
    answer = (case.images, case.filters, size, size)

    def view(address: int, shape: tuple[int, ...]) -> emulated.View:
        made = emulated.View(address, 0, 4)
        n, c, h, w = shape
        made.shape[:4] = shape
        last = (4 * h * w * c, 4, 4 * w * c, 4 * c)
        made.strides[:4] = last if case.channels_last else (4 * c * h * w, 4 * h * w, 4 * w, 4)
        return made

    q = filter_of(case.w, case.channels // case.groups, case.kernel)
    filters = emulated.packed(q, q.components)
    filters.shape[0] = case.filters
    for number, part in enumerate(filters.parts):
        if part.data:
            part.data = ADDRESS * (number + 2)
    window = emulated.Window(groups=case.groups)
    window.stride[:], window.dilation[:] = [case.stride] * 2, [1, 1]
    spec = emulated.format_of(hc.format(case.activations)) if case.activations else None
    made, error = ctypes.create_string_buffer(emulated.PLAN_BYTES), emulated.Error()
    emulated.PlanHead.from_buffer(made).architecture = case.architecture
    x, out = view(ADDRESS, shape), view(ADDRESS * 90, answer)
    passed = [ctypes.byref(x), ctypes.byref(spec) if spec else None, ctypes.byref(filters), ctypes.byref(window)]
    passed += [ctypes.c_bool(False), None, ctypes.byref(out), None, made, ctypes.byref(error)]
    return error.text.decode() if emulated.function_of("conv2d")(*passed) else described(made)


def multiplying(steps: str) -> str:
    """Return the kernels of a plan without those that make the operands."""
    names = (line.split()[0] for line in steps.splitlines())
    first = ("hc_gemm", "hc_sgemm", "hc_gemv", "hc_expand_nibbles", "hc_add_minima")
    return " ".join(name for name in names if name.startswith(first))


def digest(plans: Iterable[str]) -> str:
    """Return the digest of plans in words."""
    made = hashlib.sha256()
    for text in plans:
        made.update(text.encode())
    return made.hexdigest()


def record(path: Path) -> None:
    """Write two matmuls of each kernel, on compute capability 9.0 and on another one."""
    rows: list[tuple[Any, ...]] = []
    counts: Counter[tuple[str, bool]] = Counter()
    for seed in range(1, 5):
        for case in cases(seed, 15000):
            kernels = multiplying(steps(case))
            key = kernels, case.architecture == 90
            counts[key] += bool(kernels)
            if kernels and counts[key] <= 2:
                rows.append((*case[:7], int(case.device_order), *case[8:], kernels))
    rows.sort(key=lambda row: (row[-1].split()[-1], row[5], row[2]))
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*Case._fields, "kernels"])
        writer.writerows(rows)


if __name__ == "__main__":
    record(Path(__file__).with_name("choices.csv"))
    print(digest(steps(case) for case in cases(1, 4000)))
    print(digest(steps_of(case) for case in convolutions(1, 3000)))
