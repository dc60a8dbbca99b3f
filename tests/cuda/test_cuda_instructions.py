"""The host's function of each CUDA instruction does what NumPy's definition says."""

from __future__ import annotations

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
