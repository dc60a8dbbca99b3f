"""The host build finds the faults that a device would hide: host/device.h."""

from __future__ import annotations

import ctypes

import emulated
import numpy as np
import pytest

SOURCES = [emulated.HOST.with_name("faults.cu"), emulated.HOST]
THREADS = 64


def launch(kernel: str, threads: int = THREADS, shared: int = 1024, order: int = 0) -> tuple[str, np.ndarray]:
    """Return the error and the output."""
    library = emulated.load("faults", SOURCES)
    memory = np.arange(1, 4 * THREADS + 5, dtype=np.float32)
    first = -memory.ctypes.data % 16 // 4  # a thread copies 16 bytes
    given, out = memory[first : first + 4 * THREADS], np.zeros(THREADS, np.float32)
    params = (ctypes.c_void_p * 2)(out.ctypes.data, given.ctypes.data)
    grid, block = (ctypes.c_uint32 * 3)(1, 1, 1), (ctypes.c_uint32 * 3)(threads, 1, 1)
    fault = library.hc_cuda_host_launch(kernel.encode(), grid, block, shared, params, 16, order)
    return (fault or b"").decode(), out - given[0]


@pytest.mark.parametrize(
    ("kernel", "threads", "shared", "sentence"),
    [
        ("barrier_of_some", 64, 0, "40 threads wait at a barrier, 0 at a collective of their warp, and 24 have ended"),
        ("writes_beyond", 64, 64, "writes beyond its 64 bytes of shared memory"),
        ("never_waits", 32, 512, "ends with copies that nothing waited for"),
        ("lanes_part", 32, 0, "0 threads wait at a barrier, 16 at a collective of their warp, and 16 have ended"),
        ("lanes_disagree", 32, 0, "arrives at shuffle while its warp is at mma"),
        ("adds_beyond_32_bits", 32, 0, "adds products beyond 32 bits"),
        ("places_descend", 32, 0, "names the places 1 and 0 of a block of four, expected ascending ones"),
        (
            "places_of_a_warpgroup_descend",
            128,
            24576,
            "names the places 1 and 0 of a block of four, expected ascending ones",
        ),
        ("shared_memory_without_fence", 128, 24576, "multiplies shared memory that no fence followed"),
        ("registers_without_fence", 128, 24576, "multiplies before a fence of its registers"),
        ("products_without_wait", 128, 24576, "ends with products that nothing waited for"),
        ("other_operands", 128, 24576, "multiplies other operands than thread 0 of its warpgroup"),
        ("other_layout", 128, 24576, "multiplies by a descriptor of another layout"),
        ("products_without_commit", 128, 24576, "ends with products that nothing waited for"),
        ("operands_that_change", 128, 24576, "changes operands of products that run"),
        ("right_operands_that_change", 128, 24576, "changes operands of products that run"),
        ("shared_memory_without_barrier", 128, 24576, "multiplies shared memory that no barrier followed"),
        ("loads_without_barrier", 64, 1024, "overwrites what another warp read since the last barrier"),
        ("loads_without_wait", 64, 1024, "reads where a copy has yet to arrive"),
        ("stores_without_barrier", 64, 1024, "reads what was written since the last barrier"),
        ("stores_where_a_copy_comes", 64, 1024, "writes where a copy has yet to arrive"),
        ("two_threads_store", 64, 1024, "overwrites what another thread wrote since the last barrier"),
        ("is_sound", 65, 0, "1 blocks of 65 threads, expected at least 1, at most 64 threads"),
        ("absent", 32, 0, "there is no kernel absent"),
    ],
)
def test_a_fault_is_a_sentence(kernel: str, threads: int, shared: int, sentence: str) -> None:
    assert launch(kernel, threads, shared)[0].endswith(sentence)
    for order in (1, 2):  # the first of two threads may be another
        assert launch(kernel, threads, shared, order)[0]


def test_a_copy_arrives_at_its_wait() -> None:
    fault, out = launch("reads_before_the_wait", 32)
    assert not fault and (out[:32] < -1e6).all()


def test_a_race_shows_in_the_order_of_threads() -> None:
    found = [launch("races", order=order) for order in (0, 1)]
    assert found[0][1][0] != found[1][1][0]


@pytest.mark.parametrize("order", range(5))
def test_a_sound_kernel_gives_the_same_in_every_order(order: int) -> None:
    fault, out = launch("is_sound", order=order)
    assert not fault and (out == np.arange(THREADS)[::-1]).all()
