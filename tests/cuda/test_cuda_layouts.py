"""Registers and shared memory of the matrix instructions, as CuTe lays them out: CUTLASS 4, include/cute.

At the end, the host's function of each instruction does what NumPy's definition says.

A layout is shape:stride, both nested alike; an index counts the first mode fastest. The numbers are facts of
``atom/mma_traits_sm80.hpp``, ``atom/mma_traits_sm90_gmma.hpp``, ``atom/mma_traits_sm90_gmma_sparse.hpp``,
``atom/mma_traits_sm120_sparse.hpp`` and ``atom/copy_traits_sm75.hpp``.
"""

from __future__ import annotations

import ctypes
from typing import Any

import emulated
import numpy as np
import pytest

from heterocompute.bench.cuda.instructions import (
    ANSWERS,
    PARTS,
    PRODUCTS,
    answers_of,
    products_of,
    random_sides,
    random_words,
)

Array = np.ndarray[Any, Any]
SOURCES = [emulated.HOST.with_name("layouts.cu"), emulated.HOST]


def offsets(shape: Any, stride: Any) -> Array:
    """Return the offset of every index of a mode."""
    if isinstance(shape, int):
        return np.arange(shape) * stride
    made = np.zeros(1, np.int64)
    for inner, step in zip(shape, stride, strict=True):
        made = (made[None, :] + offsets(inner, step)[:, None]).reshape(-1)
    return made


def thread_values(shape: Any, stride: Any) -> Array:
    """Return the offset of value v of thread t, (threads, values)."""
    threads, values = (offsets(shape[i], stride[i]) for i in range(2))
    return threads[:, None] + values[None, :]


# (thread, value) to m + 16 k, n + 8 k and m + 16 n
A_S8 = thread_values(((4, 8), (4, 2, 2)), ((64, 1), (16, 8, 256)))
B_S8 = thread_values(((4, 8), (4, 2)), ((32, 1), (8, 128)))
A_BF16 = thread_values(((4, 8), (2, 2, 2)), ((32, 1), (16, 8, 128)))
B_BF16 = thread_values(((4, 8), (2, 2)), ((16, 1), (8, 64)))
C_16X8 = thread_values(((4, 8), (2, 2)), ((32, 1), (16, 8)))
# 16 x 8 x 64 with a 2:4 pattern: values of a, and 2 bits of metadata for every two values, counted in whole columns
A_SPARSE = thread_values(((4, 8), (8, 2, 2)), ((128, 1), (16, 8, 512)))
B_SPARSE = thread_values(((4, 8), (4, 4)), ((32, 1), (8, 128)))
E_SPARSE = thread_values(((2, 2, 8), 32), ((8, 512, 1), 16))
# 64 x n x 64 of a warpgroup: two bits for every two columns, counted in whole columns (ELayout_64x64)
E_WARPGROUP = thread_values(((2, 2, 8, 4), 32), ((8, 2048, 1, 16), 64))
# bits: from the rows that threads name, to registers
LDMATRIX_FROM = thread_values((32, 128), (128, 1))
LDMATRIX_TO = thread_values((32, (32, 4)), (32, (1, 1024)))


def c_of_warpgroup(n: int) -> Array:
    """Return (thread, value) to m + 64 n: CLayout_64xN."""
    return thread_values(((4, 8, 4), (2, 2, n // 8)), ((128, 1, 16), (64, 8, 512)))


def matrix(layout: Array, values: Array, rows: int) -> Array:
    """Return the matrix whose element at row + rows * column is the value that the layout puts there."""
    made = np.full(layout.size, np.iinfo(np.int64).min)
    made[layout] = values
    assert (made != np.iinfo(np.int64).min).all()  # every element once
    return made.reshape(-1, rows).T


def as_bytes(registers: Array, dtype: Any = np.int8) -> Array:
    """Return the bytes of each lane, the lowest of its first register first."""
    made: Array = np.ascontiguousarray(registers.T).view(dtype)
    return made.astype(np.int64)


@pytest.fixture(scope="module")
def ran() -> tuple[Array, Array]:
    memory = np.zeros(17 * 32 + 4, np.uint32)
    words = memory[-memory.ctypes.data % 16 // 4 :][: 17 * 32].reshape(17, 32)
    words[:] = random_words(np.random.default_rng(5))
    answers = np.zeros((ANSWERS, 32), np.uint32)
    emulated.check(words, answers)
    return words, answers


@pytest.mark.parametrize(
    ("name", "a_type", "b_type"),
    [
        ("mma of signed bytes", np.int8, np.int8),
        ("mma of unsigned bytes", np.uint8, np.uint8),
        ("mma of signed times unsigned bytes", np.int8, np.uint8),
        ("mma of unsigned times signed bytes", np.uint8, np.int8),
    ],
)
def test_registers_of_mma_s8(ran: tuple[Array, Array], name: str, a_type: Any, b_type: Any) -> None:
    words, answers = ran
    a, b = matrix(A_S8, as_bytes(words[4:8], a_type), 16), matrix(B_S8, as_bytes(words[8:10], b_type), 8)
    c = matrix(C_16X8, words[:4].view(np.int32).T, 16)
    assert (matrix(C_16X8, answers[PARTS[name]].view(np.int32).T, 16) == c + a @ b.T).all()


def test_registers_and_metadata_of_sparse_mma(ran: tuple[Array, Array]) -> None:
    words, answers = ran
    kept, b = as_bytes(words[4:8]), matrix(B_SPARSE, as_bytes(words[8:12]), 8)
    a = np.zeros(16 * 64, np.int64)
    places = np.full(16 * 64 // 2, -1)  # of each kept value of a, by row + 16 * pair of columns
    for lane in range(32):
        for i in range(16):  # two bits stand for two whole columns
            at = E_SPARSE[lane, 2 * i]
            places[at % 16 + 16 * (at // 32)] = int(words[12, lane]) >> 2 * i & 3
    assert (places >= 0).all()
    for lane in range(32):
        for i in range(16):
            at = A_SPARSE[lane, 2 * i]
            row, column = at % 16, at // 16
            a[row + 16 * (column // 4 * 4 + places[row + 16 * (column // 2)])] += kept[lane, i]
    c = matrix(C_16X8, words[:4].view(np.int32).T, 16)
    found = matrix(C_16X8, answers[PARTS["sparse mma"]].view(np.int32).T, 16)
    assert (found == c + a.reshape(64, 16).T @ b.T).all()


def test_registers_of_mma_bf16(ran: tuple[Array, Array]) -> None:
    words, answers = ran
    values = [as_bytes(words[first:last])[:, ::2] for first, last in ((4, 8), (8, 10))]  # check.cu takes low bytes
    a, b = matrix(A_BF16, values[0], 16), matrix(B_BF16, values[1], 8)
    exact = matrix(C_16X8, words[:4].view(np.int32).T, 16).astype(np.float32) + a @ b.T
    found = answers[PARTS["mma of bfloat16"]].view(np.float32).T
    made = np.empty(C_16X8.size, np.float32)
    made[C_16X8] = found
    assert (made.reshape(8, 16).T == exact.astype(np.float32)).all()


def test_registers_of_ldmatrix(ran: tuple[Array, Array]) -> None:
    words, answers = ran
    rows = np.unpackbits(np.ascontiguousarray(words[13:17].T).view(np.uint8), axis=1, bitorder="little")
    bits = np.empty(rows.size, np.uint8)
    bits[LDMATRIX_FROM] = rows
    loaded = np.ascontiguousarray(answers[PARTS["ldmatrix"]].T).view(np.uint8)
    assert (np.unpackbits(loaded, axis=1, bitorder="little") == bits[LDMATRIX_TO]).all()


class Params(ctypes.Structure):
    """layout_params of host/layouts.cu."""

    _fields_ = [
        ("out", ctypes.c_void_p),
        ("given", ctypes.c_void_p),
        *[(n, ctypes.c_int32) for n in ("bytes", "a", "b")],
    ]


def launch(kernel: str, threads: int, image: Array, words: int, a: int = 0, b: int = 0) -> Array:
    """Run a kernel of host/layouts.cu; return its output."""
    library = emulated.load("layouts", SOURCES)
    memory = np.zeros(image.size + 16, np.uint8)
    given = memory[-memory.ctypes.data % 16 :][: image.size]
    given[:] = image
    out = np.zeros(words, np.uint32)
    params = Params(out.ctypes.data, given.ctypes.data, image.size, a, b)
    one, block = (ctypes.c_uint32 * 3)(1, 1, 1), (ctypes.c_uint32 * 3)(threads, 1, 1)
    size = ctypes.sizeof(params)
    fault = library.hc_cuda_host_launch(kernel.encode(), one, block, image.size, ctypes.byref(params), size, 0)
    assert fault is None, fault.decode()
    return out


def swizzled(offset: Array, bits: int = 3, base: int = 4, shift: int = 3) -> Array:
    """Return Swizzle<bits, base, shift> of an offset in bytes."""
    made: Array = offset ^ (offset >> shift & ((1 << bits) - 1) << base)
    return made


def canonical(rows: int, atom_bytes: int, pieces: int = 2) -> Array:
    """Return the offset of byte k of a row: ((8,m),(T,2)):((8T,SBO),(1,T)), K-major, before its swizzle.

    A row of an atom with Swizzle<2,4,3> has 4T bytes.
    """
    t = 16
    return offsets((8, rows // 8), (atom_bytes // 8, atom_bytes))[:, None] + offsets((t, pieces), (1, t))[None, :]


@pytest.mark.parametrize("columns", [64, 128, 256])
@pytest.mark.parametrize("k", [0, 32, 96])
def test_operands_and_sums_of_wgmma(columns: int, k: int) -> None:
    image = np.random.default_rng(columns + k).integers(0, 256, (64 + columns) * 128, np.uint8)
    first, second = k, 64 * 128 + k
    a, b = (
        image[swizzled(begin + canonical(rows, 1024))].view(np.int8).astype(np.int64)
        for begin, rows in ((first, 64), (second, columns))
    )
    out = launch(f"multiply_image_{columns}", 128, image, 128 * columns // 2, first, second)
    sums = out.view(np.int32).reshape(128, columns // 2)
    assert (matrix(c_of_warpgroup(columns), sums, 64) == a @ b.T).all()


@pytest.mark.parametrize("k", [0, 64])
def test_operands_and_metadata_of_sparse_wgmma(k: int) -> None:
    rng = np.random.default_rng(k)
    words = random_words(rng)[12].repeat(4)  # of 128 threads
    image = rng.integers(0, 256, 64 * 64 + 128 * 128 + 512, np.uint8)
    image[-512:] = rng.permutation(words).view(np.uint8)
    words, second = image[-512:].view(np.uint32), 64 * 64 + k
    kept = image[swizzled(k // 2 + canonical(64, 512), bits=2)].view(np.int8).astype(np.int64)
    b = image[swizzled(second + canonical(128, 1024, 4))].view(np.int8).astype(np.int64)
    a, seen = np.zeros((64, 64), np.int64), np.zeros((64, 32), bool)
    for thread in range(128):
        for i in range(16):  # two bits stand for two whole columns
            at = E_WARPGROUP[thread, 2 * i]
            row, pair = at % 64, at // 64 // 2
            seen[row, pair] = True
            a[row, pair // 2 * 4 + (int(words[thread]) >> 2 * i & 3)] = kept[row, pair]
    assert seen.all()
    out = launch("multiply_sparse_image_128", 128, image, 128 * 64, k // 2, second)
    assert (matrix(c_of_warpgroup(128), out.view(np.int32).reshape(128, 64), 64) == a @ b.T).all()


@pytest.mark.parametrize(("is_half", "stride", "layout"), [(0, 64, 1), (1, 32, 2)])
def test_fields_of_a_descriptor(is_half: int, stride: int, layout: int) -> None:
    first = 0x20000
    out = launch("describe", 1, np.zeros(16, np.uint8), 2048 + 512, first, is_half)
    for i, (low, high) in enumerate(out[:2048].reshape(1024, 2).astype(np.uint64)):
        made = int(low) | int(high) << 32
        fields = {"address": (0, 14), "leading": (16, 14), "stride": (32, 14), "base": (49, 3), "layout": (62, 2)}
        got = {name: made >> at & (1 << bits) - 1 for name, (at, bits) in fields.items()}
        # offsets in units of 16 bytes; the leading one is unused with a swizzle and assumed to be 1; B128 is 1, B64 2
        assert got == {"address": (first >> 4) + i, "leading": 1, "stride": stride, "base": 0, "layout": layout}
        assert made == sum(value << fields[name][0] for name, value in got.items())  # no other bit
    rows, pieces = np.arange(64)[:, None], np.arange(8)[None, :]
    places = out[2048:].reshape(64, 8)
    assert (places == swizzled(rows // 8 * 1024 + rows % 8 * 128 + pieces * 16)).all()


def aligned(array: np.ndarray) -> np.ndarray:
    memory = np.empty(array.nbytes + 16, np.uint8)
    first = -memory.ctypes.data % 16
    made = memory[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    made[:] = array
    return made


@pytest.mark.parametrize("seed", range(4))
def test_instructions_do_what_their_definitions_say(seed: int) -> None:
    words = aligned(random_words(np.random.default_rng(seed)))
    answers = np.zeros((ANSWERS, 32), np.uint32)
    emulated.check(words, answers)
    wanted = answers_of(words)
    for name, part in PARTS.items():
        assert (answers[part] == wanted[part]).all(), name


def test_products_of_warpgroups_are_exact() -> None:
    sides = aligned(random_sides(np.random.default_rng(0)))
    answers = np.zeros(PRODUCTS, np.int32)
    emulated.check(sides, answers, of_warpgroups=True)
    assert (answers == products_of(sides)).all()
