"""Convolution by the Fourier transform: the definition's bits, and errors within the bound and as measured."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np
import pytest
from common import bad_argument, check_forms, isas, reals, same_bits

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.base import runtime
from heterocompute.reference import convolution, loops
from heterocompute.reference.transforms import fft

# n, c, h, w, filters, r, s, stride, padding, dilation, groups
CASES = [
    (2, 3, 9, 8, 17, 3, 3, (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    (1, 3, 15, 17, 16, 7, 7, (2, 2), ((3, 3), (3, 3)), (1, 1), 1),
    (1, 16, 3, 5, 33, 3, 3, (1, 1), ((2, 0), (0, 3)), (1, 1), 1),
    (2, 17, 6, 7, 15, 1, 1, (1, 1), ((0, 0), (0, 0)), (1, 1), 1),
    (1, 64, 5, 5, 3, 5, 5, (3, 3), ((4, 4), (4, 4)), (2, 2), 1),
    (1, 15, 7, 9, 1, 2, 4, (4, 5), ((0, 1), (0, 0)), (1, 1), 1),
    (2, 6, 5, 4, 9, 3, 2, (1, 1), ((1, 1), (1, 1)), (1, 2), 3),
    (1, 8, 6, 6, 8, 3, 3, (2, 2), ((1, 1), (1, 1)), (1, 1), 8),
    (1, 1, 4, 4, 64, 1, 7, (1, 1), ((0, 0), (3, 3)), (1, 1), 1),
    (2, 4, 2, 2, 5, 11, 11, (1, 1), ((5, 5), (5, 5)), (1, 1), 1),  # images smaller than the filter
    (1, 2, 3, 4, 130, 3, 3, (1, 1), ((1, 1), (1, 1)), (1, 1), 1),  # panels enough that each is met where it is packed
    (1, 2, 70, 65, 3, 31, 31, (1, 1), ((15, 15), (15, 15)), (1, 1), 1),
    (1, 3, 60, 90, 5, 5, 5, (3, 3), ((2, 2), (2, 2)), (3, 3), 1),
    (1, 2, 9, 9, 3, 3, 3, (70, 70), ((40, 40), (40, 40)), (1, 1), 1),  # windows that see only padding
]


@cache
def defined(case: Any) -> tuple[Any, ...]:
    n, c, h, w, k, r, s, stride, padding, dilation, groups = case
    x, filters, bias = reals((n, c, h, w), 1), reals((k, c // groups, r, s), 2), reals((k,), 3)
    return x, filters, bias, fft.conv2d(x, filters, stride, padding, dilation, groups)


@pytest.mark.sweep(every=12)
@pytest.mark.parametrize("isa", isas("direct", "fft"))
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_bits_are_those_of_the_definition(case: Any, isa: str) -> None:
    x, filters, bias, plain = defined(case)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    names: Any = dict(zip(("stride", "padding", "dilation", "groups"), case[7:], strict=True))
    for image, threads in ((x, 1), (last, 2)):
        with hc.use(isa=isa, threads=threads):
            check_forms(image, filters, bias, plain, {**names, "algorithm": "fft"})


def exact(x: Any, w: Any) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), w.shape[2:], axis=(2, 3))
    return np.einsum("ncpqrs,kcrs->nkpq", windows, w.astype(np.float64), optimize=True)


@pytest.mark.parametrize("r", [1, 2, 3, 5, 7, 11])
def test_the_error_is_within_the_bound(r: int) -> None:
    for c, k in itertools.product((1, 3, 15, 16, 17, 64), (1, 3, 15, 16, 17, 64)):
        x, filters = reals((1, c, 15, 13), c), reals((k, c, r, r), c + 1)
        error = np.abs(hc.conv2d(x, filters, algorithm="fft") - exact(x, filters))
        assert (error <= fft.bound(x, filters)).all(), (c, k)


def test_the_seven_loops_are_within_the_bounds_of_both() -> None:
    x, filters = reals((2, 3, 6, 5), 1), reals((4, 3, 5, 3), 2)
    around, one = ((2, 1), (0, 3)), (1, 1)
    size = loops.answer_size((6, 5), (5, 3), one, (2, 0), (1, 3), one)
    chain = loops.conv2d(x, filters, one, (2, 0), (1, 3), one)
    assert chain.shape == (2, 4, *size)
    terms = 45
    magnitudes = convolution.conv2d(np.abs(x), np.abs(filters), padding=around)
    bound = fft.bound(x, filters, one, around) + 2 * (terms + 1) * 2.0**-24 * magnitudes
    assert (np.abs(hc.conv2d(x, filters, padding=around, algorithm="fft") - chain) <= bound).all()


@pytest.mark.parametrize(
    ("r", "errors"), [(3, (1.05e-7, 1.56e-6)), (5, (2.22e-7, 2.82e-6)), (7, (3.00e-7, 3.75e-6)), (11, (5.9e-7, 6.2e-6))]
)
def test_the_mean_errors_are_those_that_were_measured(r: int, errors: tuple[float, float]) -> None:
    """U(-1, 1), relative to float64, 1 and 64 channels: within 20 %."""
    rng = np.random.default_rng(0)
    for channels, error in zip((1, 64), errors, strict=True):
        x = rng.uniform(-1, 1, (2, channels, 35 + r, 35 + r)).astype(np.float32)
        filters = rng.uniform(-1, 1, (8, channels, r, r)).astype(np.float32)
        found = np.abs(hc.conv2d(x, filters, algorithm="fft") - exact(x, filters)).mean()
        assert 0.8 * error <= found <= 1.2 * error, channels


def test_the_transform_is_that_of_the_equation() -> None:
    for n in (1, 2, *fft.SIZES):
        re, im = reals((n, 3), 1), reals((n, 3), 2)
        found_re, found_im = fft.transform(re, im)
        turns = np.exp(-2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)
        wanted = turns @ (re + 1j * im)
        roundings = 5 * -(-(n.bit_length() - 1) // 2)
        assert np.linalg.norm(found_re + 1j * found_im - wanted) <= roundings * 2.0**-24 * np.linalg.norm(wanted)


NAMES = [name for name, _, _ in core.conv_algorithms()]
ONE_CHAIN = {"direct", "planes"}  # which of them depends on the layout, their bits do not


def explained(n: int, c: int, size: int, k: int, r: int, strict: bool = False) -> tuple[str, dict[str, Any]]:
    image = np.broadcast_to(np.zeros((1, c, size, size), np.float32), (n, c, size, size))
    out, pair = np.empty((n, k, size, size), np.float32), ((1, 1), (r // 2, r // 2), (1, 1))
    filters = np.zeros((k, c, r, r), np.float32)
    chosen, found, _ = core.explain_conv2d(runtime.run(), image, filters, None, *pair, 1, None, out, None, strict)
    return NAMES[chosen], dict(zip(NAMES, found, strict=True))


def test_auto_takes_it_for_large_filters_and_looks_at_shapes_alone() -> None:
    for isa in isas("direct"):
        with hc.use(isa=isa):
            for r in (5, 7, 11):
                assert explained(1, 64, 56, 64, r)[0] == "fft"
                assert explained(1, 64, 56, 64, r, strict=True)[0] in ONE_CHAIN
            assert explained(1, 64, 56, 64, 3)[0] == "winograd4"
            assert explained(1, 3, 56, 64, 5)[0] in ONE_CHAIN
            assert explained(1, 64, 7, 64, 5)[0] in ONE_CHAIN  # transformed filters are not worth it for one tile


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_working_memory_does_not_grow_with_the_batch(threads: int) -> None:
    for c, size, k, r in ((64, 56, 64, 7), (256, 14, 256, 5), (16, 80, 16, 31)):
        with hc.use(threads=threads):  # a smaller batch has no work for each thread
            few, many = (explained(n, c, size, k, r)[1]["fft"][5] for n in (16 * threads, 512))
        panel = 3 * fft.stored_values(64, 64) * (c + 1) * 32 * 4
        own = 24 << 20 if r == 31 else 0  # tiles of large filters need more memory per thread than their panel
        assert few == many <= (48 << 20) + panel + threads * max(panel, own)


def test_what_does_not_fit_is_refused() -> None:
    x = np.zeros((1, 2, 90, 90), np.float32)
    with bad_argument(ValueError, "algorithm", "unsupported"):
        hc.conv2d(x, np.zeros((1, 2, 65, 3), np.float32), algorithm="fft")
    with bad_argument(ValueError, "algorithm", "unsupported"):
        hc.conv2d(x, np.zeros((1, 2, 3, 3), np.float32), dilation=32, algorithm="fft")
    with bad_argument(ValueError, "algorithm", "unsupported"):
        hc.conv2d(x, np.zeros((1, 2, 3, 3), np.float32), activations="int8", algorithm="fft")
    with bad_argument(ValueError, "algorithm", "unsupported"):
        hc.conv2d(np.zeros((1, 200, 40, 40), np.float32), np.zeros((1, 200, 35, 35), np.float32), algorithm="fft")
    assert hc.conv2d(x[:0], np.zeros((3, 2, 5, 5), np.float32), algorithm="fft").shape == (0, 3, 86, 86)
    assert hc.conv2d(x, np.zeros((3, 2, 64, 64), np.float32), algorithm="fft").shape == (1, 3, 27, 27)


def test_filters_of_other_types_and_packed_ones() -> None:
    x, filters = reals((2, 6, 17, 15), 1), reals((9, 6, 5, 5), 2)
    x16, w16 = x.astype(np.float16), filters.astype(np.float16)
    wanted = hc.conv2d(x16.astype(np.float32), w16.astype(np.float32), algorithm="fft")
    assert same_bits(hc.conv2d(x16, w16, algorithm="fft"), wanted)
    q = hc.quantize(filters, "vsq4-g16-s4", axis=(2, 3, 1))
    assert same_bits(hc.conv2d(x, q, algorithm="fft"), hc.conv2d(x, q.dequantize(), algorithm="fft"))
    assert same_bits(hc.conv2d(x, hc.prepack(filters), algorithm="fft"), hc.conv2d(x, filters, algorithm="fft"))


def test_bands_and_threads_change_nothing() -> None:
    """Images with more bytes than a thread copies at once, one at a time and several."""
    filters = reals((5, 24, 5, 5), 2)
    for shape in ((1, 24, 130, 97), (9, 24, 40, 33)):
        x = reals(shape, 1)
        found = []
        for threads, image in itertools.product((1, 2), (x, np.ascontiguousarray(x.transpose(0, 2, 3, 1)))):
            with hc.use(threads=threads):
                image = image if image is x else image.transpose(0, 3, 1, 2)
                found.append(hc.conv2d(image, filters, padding=2, stride=(1, 2), algorithm="fft"))
        assert all(same_bits(one, found[0]) for one in found)
