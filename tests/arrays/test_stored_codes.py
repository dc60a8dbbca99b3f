"""Packed codes in the core: moved, checked, in blocks of ggml; compared bitwise with plain NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.arrays.bits import AWQ, HIGH_FIRST, ROWS, TURNED, WORD_COLUMNS, moved, pack, unpack
from heterocompute.base import runtime
from heterocompute.files.layouts.gguf.blocks import array_of, blocks_name, bytes_of
from heterocompute.reference import layout
from heterocompute.reference.formats.ggml import storage as reference

SIZES = [(0, 5), (3, 0), (1, 1), (2, 7), (17, 8), (5, 33), (16, 64), (33, 129), (3, 1025), (70, 72)]
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def random_codes(rows: int, columns: int, bits: int) -> Any:
    return np.random.default_rng(rows * 4099 + columns * 9 + bits).integers(0, 1 << bits, (rows, columns), np.uint8)


def words_of(codes: Any, bits: int) -> Any:
    packed = layout.pack(codes, bits)
    padded = np.zeros((len(packed), -(-packed.shape[1] // 4) * 4), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.int32)


def in_awq_order(codes: Any) -> Any:
    return codes.reshape(len(codes), -1, 8)[:, :, ORDER].reshape(codes.shape)


@pytest.mark.parametrize("bits", range(1, 9))
def test_codes_are_packed_as_the_reference_says(bits: int) -> None:
    for (rows, columns), threads in itertools.product(SIZES, (1, 2)):
        codes = random_codes(rows, columns, bits)
        with hc.use(threads=threads):
            packed = pack(codes, bits)
            back = unpack(packed, bits, columns)
        assert packed.tobytes() == layout.pack(codes, bits).tobytes()
        assert back.dtype == np.uint8
        assert np.array_equal(back, codes)


@pytest.mark.parametrize("bits", range(1, 8))
def test_bits_above_a_code_are_left_out(bits: int) -> None:
    codes = np.arange(256, dtype=np.uint8).reshape(2, 128)
    assert pack(codes, bits).tobytes() == layout.pack(codes & ((1 << bits) - 1), bits).tobytes()


def places(codes: Any, bits: int) -> list[tuple[int, Any]]:
    """Return the storage of a matrix in memory, and its bytes computed by NumPy."""
    found = [(ROWS, words_of(codes, bits)), (ROWS, layout.pack(codes, bits)), (TURNED, words_of(codes.T, bits))]
    found.append((WORD_COLUMNS, np.ascontiguousarray(words_of(codes, bits).T)))
    if bits == 4:
        pairs = layout.pack(codes, 4)
        found.append((HIGH_FIRST, pairs << np.uint8(4) | pairs >> np.uint8(4)))
        if len(codes) % 8 == 0:
            found.append((AWQ, words_of(in_awq_order(codes.T), 4)))
    return found


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("flipped", [False, True])
def test_codes_move_from_place_to_place(bits: int, flipped: bool) -> None:
    flip = 1 << (bits - 1) if flipped else 0
    for rows, columns in SIZES:
        codes = random_codes(rows, columns, bits)
        for (kind, given), (other, wanted) in itertools.product(places(codes, bits), places(codes ^ flip, bits)):
            if max(kind, other) >= TURNED and ROWS not in (kind, other):
                continue
            target = np.full_like(wanted, 85)
            got = moved((given, bits, kind), (target, bits, other), (rows, columns), flip)
            assert got.tobytes() == wanted.tobytes(), (rows, columns, kind, other)


@pytest.mark.parametrize("bits", range(1, 9))
def test_codes_become_bytes_wherever_they_are(bits: int) -> None:
    for rows, columns in SIZES:
        codes = random_codes(rows, columns, bits)
        for kind, given in places(codes, bits):
            single = moved((given, bits, kind), (np.empty_like(codes), 8, ROWS), (rows, columns))
            assert np.array_equal(single, codes)
            if kind < TURNED or bits == 8:
                continue
            back = moved((codes, 8, ROWS), (np.full_like(given, 85), bits, kind), (rows, columns))
            assert back.tobytes() == given.tobytes()


def test_places_that_do_not_hold_the_codes_are_refused() -> None:
    codes, run = np.zeros((2, 4), np.uint8), runtime.run()
    with pytest.raises(ValueError, match="does not hold"):
        core.move_codes(run, 2, 9, 0, (codes, 4, ROWS), (np.empty((2, 9), np.uint8), 8, ROWS))
    with pytest.raises(ValueError, match="does not hold"):
        core.move_codes(run, 4, 2, 0, (codes, 4, AWQ), (np.empty((4, 2), np.uint8), 8, ROWS))
    with pytest.raises(ValueError, match="does not hold"):
        core.move_codes(run, 2, 4, 0, (codes, 9, ROWS), (np.empty((2, 4), np.uint8), 8, ROWS))
    with pytest.raises(ValueError, match="one side is turned, expected rows on the other"):
        core.move_codes(run, 4, 2, 0, (codes, 8, TURNED), (codes.copy(), 8, TURNED))
    with pytest.raises(ValueError, match="contiguous array of two dimensions"):
        core.move_codes(run, 2, 2, 0, (codes[:, ::2], 8, ROWS), (np.empty((2, 2), np.uint8), 8, ROWS))


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 32])
def test_an_unused_code_is_found_anywhere(bits: int) -> None:
    rng = np.random.default_rng(bits)
    unused = 1 << (bits - 1)
    for count in (1, 7, 8, 15, 16, 17, 40, 131):
        codes = rng.integers(0, unused, (20, count), np.int64)
        for place in {0, count // 2, count - 1}:
            held = codes.copy()
            held[17, place] = unused
            for array, found in ((codes, 0), (held, 1)):
                packed = layout.pack(array, bits)
                assert core.code_fault(runtime.run(), packed, bits, 1, count, count, unused, -1, None, 1) == found


@pytest.mark.parametrize("bits", [2, 4, 5, 8])
def test_padding_is_looked_at_run_by_run(bits: int) -> None:
    runs, length, padded, groups = 3, 10, 16, 2
    points = random_codes(5, runs * groups, bits)
    codes = random_codes(5, runs * padded, bits).reshape(5, runs, padded)
    for zero_points in (None, points):
        right = codes.copy()
        right[:, :, length:] = 0 if zero_points is None else points.reshape(5, runs, groups)[:, :, -1:]
        wrong = right.copy()
        wrong[4, 1, padded - 1] ^= 1
        stored = None if zero_points is None else layout.pack(points, bits)
        for array, found in ((right, 0), (wrong, 2)):
            packed = layout.pack(array.reshape(5, -1), bits)
            fault = core.code_fault(runtime.run(), packed, bits, runs, length, padded, -1, 0, stored, groups)
            assert fault == found


@pytest.mark.parametrize("name", list(reference.BLOCKS))
def test_blocks_of_ggml_are_as_the_reference_says(name: str) -> None:
    fmt = hc.format(name)
    assert blocks_name(fmt) == name
    count = reference.BLOCKS[name].block
    size = core.blocks_bytes(name, count)
    for rows, blocks, threads in ((1, 1, 1), (3, 5, 2), (40, 2, 2)):
        data = np.random.default_rng(rows).integers(0, 256, (rows, blocks * size), np.uint8)
        wanted = reference.parts_of(name, data, blocks)
        coarse = {"coarse": np.ones((), np.float32)} if name == "nvfp4" else {}
        with hc.use(threads=threads):
            q = array_of(fmt, data, (rows, blocks * count), coarse)
            back = bytes_of(q)
        assert all(q.components[key].tobytes() == part.tobytes() for key, part in wanted.items())
        assert back.tobytes() == reference.blocks_of(name, q.components, rows, blocks).tobytes()
        if name not in ("mxfp4", "nvfp4", "tq1_0"):  # whose -0 becomes 0, and whose bytes beyond 3^5 others
            assert back.tobytes() == data.tobytes()


def test_blocks_of_integers_are_those_of_ggml() -> None:
    w = np.random.default_rng(0).standard_normal((6, 96), dtype=np.float32)
    for text, name in (("int4-g32-f16", "q4_0"), ("int8-g32-f16", "q8_0")):
        q = hc.quantize(w, text)
        assert bytes_of(q).tobytes() == reference.blocks_of(name, q.components, 6, 3).tobytes()


def test_blocks_of_other_components_are_refused() -> None:
    q = hc.quantize(np.ones((2, 64), np.float32), "int4-g16")
    data = np.empty((2, 36), np.uint8)
    with bad_argument(ValueError, None, "value", "not those of rows of whole blocks of q4_0"):
        core.blocks(runtime.run(), "q4_0", q._packed(), data, False)
    with pytest.raises(ValueError, match="of q9_9"):
        core.blocks(runtime.run(), "q9_9", q._packed(), data, False)
