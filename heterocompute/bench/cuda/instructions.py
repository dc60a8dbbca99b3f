"""Definitions in NumPy of the special instructions of the kernels of devices, and their comparison with the device.

The kernel ``check.cu`` runs every instruction once. Lane ``i`` of a warp reads ``words[:, i]`` and writes
``answers[:, i]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.device import DeviceArray
from ...base.devices import check
from ..measure import CheckFailed, Options

Array = np.ndarray[Any, Any]

WORDS, ANSWERS = 17, 56  # per lane
DENSE_ROWS, SPARSE_ROWS = (128, 256, 64), (64, 128, 192)  # right operands of a warpgroup
SIDES, PRODUCTS = 64 + max(DENSE_ROWS), 64 * sum(DENSE_ROWS + SPARSE_ROWS)  # rows of 128 bytes; products
PARTS = {
    "mma of signed bytes": slice(0, 4),
    "mma of unsigned bytes": slice(4, 8),
    "mma of signed times unsigned bytes": slice(8, 12),
    "mma of unsigned times signed bytes": slice(12, 16),
    "sparse mma": slice(16, 20),
    "ldmatrix": slice(20, 24),
    "shuffle": slice(24, 29),
    "asynchronous copy": slice(29, 33),
    "asynchronous copy or zeros": slice(33, 37),
    "load of 16 bytes": slice(37, 41),
    "atomic maximum and or": slice(41, 43),
    "float32 without contraction, rounded correctly, with subnormals": slice(43, 48),
    "float64 to float32": slice(48, 49),
    "mma of bfloat16": slice(49, 53),
    "permutation of bytes": slice(53, 54),
    "and, xor": slice(54, 55),
    "float16 to float32": slice(55, 56),
}
LANES = np.arange(32)
SMALL = np.float32(2.0**-120)


def random_words(rng: np.random.Generator) -> Array:
    """Return words (17, 32) whose sums stay in 32 bits and whose positions are valid."""
    words = rng.integers(0, 2**32, (WORDS, 32), np.uint32)
    words[:4] = rng.integers(-(2**20), 2**20, (4, 32)).astype(np.int32).view(np.uint32)
    words[12] = _positions(rng, (32,))
    return words


def _positions(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return words with two ascending positions for each of 8 blocks of a 2:4 pattern."""
    pairs = np.array([0x4, 0x8, 0xC, 0x9, 0xD, 0xE], np.uint32)[rng.integers(0, 6, (8, *shape))]
    shifts = 4 * np.arange(8, dtype=np.uint32).reshape(8, *[1] * len(shape))
    words_of: Array = (pairs << shifts).sum(0, dtype=np.uint32)
    return words_of


def _bytes(registers: Array, dtype: object) -> Array:
    """Return the bytes (registers, lanes, 4) of words (registers, lanes), the lowest first."""
    words_of: Array = np.ascontiguousarray(registers).view(np.uint8).reshape(*registers.shape, 4).view(dtype)
    return words_of.astype(np.int64)


def _left(registers: Array, dtype: object = np.int8) -> Array:
    """Return the 16 x 32 left operand.

    Register r of a lane is row lane / 4 + 8 (r % 2), from column 4 (lane % 4) + 16 (r / 2) on.
    """
    values, matrix = _bytes(registers, dtype), np.empty((16, 32), np.int64)
    for r in range(4):
        for i in range(4):
            matrix[LANES // 4 + r % 2 * 8, LANES % 4 * 4 + i + r // 2 * 16] = values[r, :, i]
    return matrix


def _right(registers: Array, dtype: object = np.int8) -> Array:
    """Return the right operand: register r of a lane is column lane / 4, from row 4 (lane % 4) + 16 r on."""
    values, matrix = _bytes(registers, dtype), np.empty((16 * len(registers), 8), np.int64)
    for r in range(len(registers)):
        for i in range(4):
            matrix[LANES % 4 * 4 + i + r * 16, LANES // 4] = values[r, :, i]
    return matrix


def _sums(c: Array, product: Array) -> Array:
    """Return the accumulators: register r of a lane is row lane / 4 + 8 (r / 2), column 2 (lane % 4) + r % 2."""
    rows, columns = np.arange(4)[:, None] // 2 * 8 + LANES // 4, np.arange(4)[:, None] % 2 + LANES % 4 * 2
    words_of: Array = (c.view(np.int32) + product[rows, columns]).astype(np.int32)
    return words_of.view(np.uint32)


def expand(nonzeros: Array, positions: Array) -> Array:
    """Return the 16 x 64 left operand, expanded from its 16 x 32 nonzeros.

    A lane has the positions of one row, for 32 columns from 32 (lane / 2 % 2) on.
    """
    whole = np.zeros((16, 64), np.int64)
    for lane in range(32):
        row, half = lane // 4 + lane % 2 * 8, lane // 2 % 2
        for block in range(8):
            two = int(positions[lane]) >> 4 * block & 15
            for i in range(2):
                whole[row, half * 32 + block * 4 + (two >> 2 * i & 3)] = nonzeros[row, half * 16 + block * 2 + i]
    return whole


def answers_of(words: Array) -> Array:
    """Return the results of the instructions for the words, (56, 32)."""
    c, a, b, moved = words[:4], words[4:8], words[8:12], words[13:17]
    answers = np.empty((ANSWERS, 32), np.uint32)
    kinds = [(np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8), (np.uint8, np.int8)]
    for i, (of_a, of_b) in enumerate(kinds):
        answers[4 * i : 4 * i + 4] = _sums(c, _left(a, of_a) @ _right(b[:2], of_b))
    answers[16:20] = _sums(c, expand(_left(a), words[12]) @ _right(b))
    rows = np.ascontiguousarray(moved.T)  # lane i names row i % 8 of matrix i / 8
    answers[20:24] = rows.reshape(4, 8, 4)[:, LANES // 4, LANES % 4]
    answers[24:29] = [words[4][LANES ^ 1 << i] for i in range(5)]
    copied = np.ascontiguousarray(words).reshape(-1)[13 * 32 :].reshape(32, 4).T
    answers[29:33] = answers[37:41] = copied
    answers[33:37] = np.where(LANES % 2 == 0, copied, 0)
    answers[41:43] = 0
    answers[41, 0], answers[42, 0] = words[4].max(), np.bitwise_or.reduce(words[4])
    x, y, z = (np.ascontiguousarray(words[4 + i]).view(np.float32) for i in range(3))
    with np.errstate(all="ignore"):
        found = [x * y + z, _fused(x, y, z), x / y, np.sqrt(np.abs(x)), x * y * SMALL]
        found.append((x.astype(np.float64) * y.astype(np.float64)).astype(np.float32))
    for i, values in enumerate(found):
        answers[43 + i] = np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))
    left, right = np.empty((16, 16), np.int64), np.empty((16, 8), np.int64)
    for r in range(4):
        for i in range(2):
            left[LANES // 4 + r % 2 * 8, LANES % 4 * 2 + i + r // 2 * 8] = _bytes(a, np.int8)[r, :, 2 * i]
            if r < 2:
                right[LANES % 4 * 2 + i + r * 8, LANES // 4] = _bytes(b, np.int8)[r, :, 2 * i]
    answers[49:53] = _sums(c, left @ right).view(np.int32).astype(np.float32).view(np.uint32)
    eight, positions = np.concatenate([_bytes(a[:1], np.uint8)[0], _bytes(b[:1], np.uint8)[0]], 1), words[12]
    chosen = [eight[LANES, positions >> 4 * i & 7] << 8 * i for i in range(4)]
    answers[53] = np.bitwise_or.reduce(chosen).astype(np.uint32)
    answers[54] = a[0] & b[0] ^ c[0]
    halves = c[0].astype(np.uint16).view(np.float16).astype(np.float32)
    answers[55] = np.where(np.isnan(halves), np.uint32(0x7FC00000), halves.view(np.uint32))
    return answers


def random_sides(rng: np.random.Generator) -> Array:
    """Return words: 64 and 256 rows of 128 bytes, and the positions of 64 rows of a 2:4 pattern, 4 words each."""
    sides = rng.integers(0, 2**32, SIDES * 32, np.uint32)
    return np.concatenate([sides, _positions(rng, (4 * 64,))])


def products_of(words: Array) -> Array:
    """Return the products of 64 rows with DENSE_ROWS, and those of 64 rows of a 2:4 pattern with SPARSE_ROWS.

    The nonzeros of the pattern are the first halves of the 64 rows.
    """
    sides = words[: SIDES * 32].view(np.int8).reshape(SIDES, 128).astype(np.int32)
    shifts = np.arange(0, 32, 2, dtype=np.uint32)
    positions = (words[SIDES * 32 :, None] >> shifts & 3).reshape(64, 64)
    whole = np.zeros((64, 128), np.int32)
    np.put_along_axis(whole, np.arange(64)[None, :] // 2 * 4 + positions, sides[:64, :64], 1)
    pairs = [(sides[:64], rows) for rows in DENSE_ROWS] + [(whole, rows) for rows in SPARSE_ROWS]
    return np.concatenate([(left @ sides[64 : 64 + rows].T).ravel() for left, rows in pairs])


def _fused(x: Array, y: Array, z: Array) -> Array:
    """Return x y + z, rounded once."""
    found = np.empty(32, np.float32)
    for i, (a, b, c) in enumerate(zip(x, y, z, strict=True)):
        if np.isfinite([a, b, c]).all():
            found[i] = _rounded(float(a), float(b), float(c))
        else:
            found[i] = a * b + c
    return found


def _rounded(a: float, b: float, c: float) -> np.float32:
    """Round a b + c of floats once. The product is exact in float64; the error of the sum corrects the rounding."""
    product = a * b
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    bits = int(np.float64(total).view(np.int64))
    if error != 0 and bits % 2 == 0:  # round to odd, so that the second rounding is correct
        bits += 1 if (error > 0) == (total > 0) else -1
    return np.float32(np.int64(bits).view(np.float64))


def check_instructions(options: Options, rounds: int = 8) -> dict[str, int]:
    """Compare each instruction with NumPy; return the number of comparisons. CheckFailed names the first difference."""
    rng, counts = np.random.default_rng(0), dict[str, int]()
    for number in range(1 if options.quick else rounds):
        options.report_progress(f"checks instructions, round {number + 1}")
        words = random_words(rng)
        given, found = DeviceArray.from_numpy(words), DeviceArray.from_numpy(np.zeros((ANSWERS, 32), np.uint32))
        check(0, given.address, found.address, False)
        answers, wanted = found.to_numpy(), answers_of(words)
        for name, part in PARTS.items():
            if (answers[part] != wanted[part]).any():
                raise CheckFailed(f"{name}: the device gives another result than its definition")
            counts[name] = counts.get(name, 0) + 1
        sides = random_sides(rng)
        on_device, products = DeviceArray.from_numpy(sides), DeviceArray.from_numpy(np.zeros(PRODUCTS, np.int32))
        try:
            check(0, on_device.address, products.address, True)
        except NotImplementedError:  # the device has no such instructions
            continue
        if (products.to_numpy() != products_of(sides)).any():
            raise CheckFailed("wgmma: the device gives another result than its definition")
        counts["wgmma"] = counts.get("wgmma", 0) + 1
    return counts
