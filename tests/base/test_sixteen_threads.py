"""Sixteen Python threads that share arrays, the pool and the caches of calls get the results of one thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from common import reals

import heterocompute as hc

THREADS, ROUNDS = 16, 6


def in_threads(work: Callable[[int], Any]) -> list[Any]:
    """Run a function on sixteen threads that start together; return the result of each."""
    together, answers, failures = threading.Barrier(THREADS), [None] * THREADS, []
    before = sys.getswitchinterval()

    def body(number: int) -> None:
        try:
            together.wait()
            answers[number] = work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(THREADS)]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    if failures:
        raise failures[0]
    return answers


def same(answers: list[Any], expected: np.ndarray) -> bool:
    return all(answer.tobytes() == expected.tobytes() for answer in answers)


def test_threads_meet_at_an_array_that_no_call_has_seen() -> None:
    x, w = reals((5, 128), 1), reals((24, 128), 2)
    expected = hc.linear(x, hc.quantize(w, "vsq4-g16-s4"), activations="int8")
    for _ in range(ROUNDS):
        q = hc.quantize(w, "vsq4-g16-s4")
        assert same(in_threads(lambda number, q=q: hc.linear(x, q, activations="int8")), expected)


def test_threads_quantize_multiply_and_convolve_at_once() -> None:
    x, w = reals((9, 192), 3), reals((40, 192), 4)
    image, filters = reals((1, 8, 10, 10), 5), reals((12, 8, 3, 3), 6)
    packed = hc.quantize(filters, "int8", axis=(2, 3, 1))
    calls: list[Callable[[], np.ndarray]] = [
        lambda: hc.quantize(w, "int4-g32").dequantize(),
        lambda: hc.linear(x, hc.quantize(w, "mxfp4")),
        lambda: hc.conv2d(image, packed, padding=1, activations="int8"),
        lambda: hc.fake_quantize(x, "nf4-g64"),
    ]
    expected = [call() for call in calls]

    def work(number: int) -> bool:
        with hc.use(threads=1 + number % 3):
            order = [(number + i) % len(calls) for i in range(ROUNDS * len(calls))]
            return all(calls[which]().tobytes() == expected[which].tobytes() for which in order)

    assert all(in_threads(work))


def test_settings_of_a_thread_are_its_own() -> None:
    def work(number: int) -> bool:
        with hc.use(threads=1 + number):
            return all(hc.get_num_threads() == 1 + number for _ in range(200))

    assert all(in_threads(work))


def test_threads_make_and_drop_arrays_while_others_multiply() -> None:
    """The cached view of an array never refers to freed memory."""
    x, w = reals((3, 64), 7), reals((8, 64), 8)
    q = hc.quantize(w, "int8")
    expected = hc.linear(x, q)

    def work(number: int) -> bool:
        mine = hc.quantize(w, "int8") if number % 2 else q
        right = True
        for _ in range(ROUNDS * 10):
            right &= hc.linear(x, mine).tobytes() == expected.tobytes()
            mine = hc.quantize(w, "int8") if number % 2 else q
        return right

    assert all(in_threads(work))
