"""Winograd's convolution: exact matrices, the definition's bits, and errors within the bound and as measured."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from common import bad_argument, check_forms, isas, reals, same_bits

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.base import runtime
from heterocompute.reference.transforms import winograd

SIZES = [2, 4, 6]
TAPS = [(3, 3), (1, 3), (3, 1)]
# n, c, h, w, filters, padding, groups
CASES = [
    (2, 3, 9, 7, 5, 1, 1),
    (1, 17, 5, 6, 33, ((0, 2), (1, 0)), 1),
    (1, 16, 3, 4, 1, 0, 1),
    (3, 1, 1, 2, 15, 2, 1),
    (1, 8, 10, 13, 6, 1, 2),
    (1, 64, 4, 4, 16, 1, 1),
    (1, 2, 3, 3, 130, 1, 1),  # enough panels that each task transforms its own
]


# Stride 2; sizes of filters, without F(1, 4), which saves nothing.
STRIDED = [
    (2, 3, 19, 16, 5, ((1, 0), (0, 2)), 1),
    (1, 17, 9, 10, 33, 1, 1),
    (1, 16, 3, 4, 1, 3, 1),
    (3, 1, 12, 13, 15, 0, 1),  # a row that no window sees
    (1, 8, 10, 13, 6, ((0, 2), (3, 1)), 2),
    (1, 64, 8, 8, 16, 1, 1),
    (1, 2, 7, 7, 130, 2, 1),
]
SIDES = [(m, side) for m in SIZES for side in (3, 5, 7) if (m, side) != (2, 7)]


@pytest.mark.parametrize(("n", "r"), [(n, r) for n in (4, 6, 8) for r in (2, 3, 4)])
def test_the_matrices_are_exact(n: int, r: int) -> None:
    """Both sides of the identity are linear in d and g, so it holds if it holds for unit vectors."""
    m = n - r + 1
    a_t, g, b_t = winograd.matrices(m, r)
    assert b_t == winograd.matrices(n - 2)[2]
    for pixel, tap in itertools.product(range(n), range(r)):
        product = [b_t[j][pixel] * g[j][tap] for j in range(n)]
        answer = [sum((a * x for a, x in zip(row, product, strict=True)), Fraction(0)) for row in a_t]
        assert answer == [Fraction(int(i + tap == pixel)) for i in range(m)]


def test_the_matrices_are_those_of_the_paper() -> None:
    """Lavin and Gray, section 4.1, and their F(4 x 4, 3 x 3), section 4.2."""
    third, sixth = Fraction(1, 4), Fraction(1, 6)
    assert winograd.matrices(2)[2] == [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, -1, 0, 1]]
    assert winograd.matrices(4)[1][:3] == [[third, 0, 0], [-sixth] * 3, [-sixth, sixth, -sixth]]
    assert winograd.matrices(4)[0][3] == [0, 1, -1, 8, -8, 1]


@cache
def defined(m: int, taps: Any, case: Any, stride: int) -> tuple[Any, ...]:
    n, c, h, w, k, padding, groups = case
    x, filters, bias = reals((n, c, h, w), 1), reals((k, c // groups, *taps), 2), reals((k,), 3)
    return x, filters, bias, winograd.conv2d(x, filters, m, padding, groups, stride)


def cases(m: int) -> list[tuple[Any, ...]]:
    """Return size of filters, case and stride."""
    strided = [(side, side) for of, side in SIDES if of == m]
    return [(*pair, 1) for pair in itertools.product(TAPS, CASES)] + [
        (*pair, 2) for pair in itertools.product(strided, STRIDED)
    ]


@pytest.mark.parametrize("isa", isas("direct", "winograd"))
@pytest.mark.parametrize("m", SIZES)
@pytest.mark.sweep(every=12)
def test_the_bits_are_those_of_the_definition(m: int, isa: str) -> None:
    for taps, case, stride in cases(m):
        padding, groups = case[5:]
        x, filters, bias, plain = defined(m, taps, case, stride)
        last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        for image, threads in ((x, 1), (last, 2)):
            with hc.use(isa=isa, threads=threads):
                arguments: Any = {"padding": padding, "groups": groups, "stride": stride, "algorithm": f"winograd{m}"}
                check_forms(image, filters, bias, plain, arguments, (taps, case, stride))
                assert same_bits(hc.conv2d(image, hc.prepack(filters), **arguments), plain)


def exact(x: Any, w: Any, stride: int = 1) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), w.shape[2:], axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride]
    return np.tensordot(windows, w.astype(np.float64), ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("m", SIZES)
def test_the_error_is_within_the_bound(m: int) -> None:
    for taps, c in itertools.product(TAPS, (1, 3, 16, 64)):
        x, filters = reals((1, c, 15, 12), c), reals((7, c, *taps), c + 1)
        error = np.abs(hc.conv2d(x, filters, algorithm=f"winograd{m}") - exact(x, filters))
        assert (error <= winograd.bound(x, filters, m)).all()
    for (of, side), c in itertools.product(SIDES, (1, 3, 16, 64)):
        x, filters = reals((1, c, 22, 17), c), reals((7, c, side, side), c + 1)
        if of == m:
            error = np.abs(hc.conv2d(x, filters, stride=2, algorithm=f"winograd{m}") - exact(x, filters, 2))
            assert (error <= winograd.bound(x, filters, m, stride=2)).all()


@pytest.mark.parametrize(("channels", "most"), [(1, (2.5, 11, 31)), (64, (1.5, 6, 17))])
def test_the_mean_errors_with_stride_2_are_those_that_are_stated(channels: int, most: tuple[float, ...]) -> None:
    """Errors relative to `direct`, largest for 3 x 3 filters: 2.1, 9.3 and 27, and 1.2, 5 and 14."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (4, channels, 66, 66)).astype(np.float32)
    for m, side in SIDES:
        filters = rng.uniform(-1, 1, (8, channels, side, side)).astype(np.float32)
        wanted = exact(x, filters, 2)
        of_direct, found = (np.abs(hc.conv2d(x, filters, stride=2, algorithm=name) - wanted).mean()
                            for name in ("direct", f"winograd{m}"))  # fmt: skip
        assert found <= most[SIZES.index(m)] * of_direct, (m, side)


@pytest.mark.parametrize(("channels", "errors"), [(1, (8.2e-8, 3.9e-7, 8.8e-7)), (64, (1.7e-6, 7.8e-6, 1.7e-5))])
def test_the_mean_errors_are_those_that_were_measured(channels: int, errors: tuple[float, ...]) -> None:
    """U(-1, 1), relative to float64, as measured in another implementation: within 20 %."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (4, channels, 38, 38)).astype(np.float32)
    filters = rng.uniform(-1, 1, (8, channels, 3, 3)).astype(np.float32)
    wanted = exact(x, filters)
    for m, error in zip(SIZES, errors, strict=True):
        found = np.abs(hc.conv2d(x, filters, algorithm=f"winograd{m}") - wanted).mean()
        assert 0.8 * error <= found <= 1.2 * error, m


NAMES = [name for name, _, _ in core.conv_algorithms()]
ONE_CHAIN = {"direct", "planes"}  # which of them depends on the layout, their bits do not


def explained(x: Any, filters: Any, strict: bool = False, stride: int = 1) -> tuple[str, dict[str, Any]]:
    before = (filters.shape[2] // 2,) * 2
    answer = ((size + 2 * before[0] - filters.shape[2]) // stride + 1 for size in x.shape[2:])
    out = np.empty((x.shape[0], filters.shape[0], *answer), np.float32)
    where = ((stride, stride), before, (1, 1))
    chosen, found, _ = core.explain_conv2d(runtime.run(), x, filters, None, *where, 1, None, out, None, strict)
    return NAMES[chosen], dict(zip(NAMES, found, strict=True))


def shape(n: int, c: int, size: int, k: int, side: int = 3) -> tuple[Any, Any]:
    image = np.broadcast_to(np.zeros((1, c, size, size), np.float32), (n, c, size, size))
    return image, np.zeros((k, c, side, side), np.float32)


def test_auto_admits_winograd4_where_it_pays_and_looks_at_shapes_alone() -> None:
    for isa in isas("direct"):
        with hc.use(isa=isa):
            assert explained(*shape(1, 64, 56, 64))[0] == "winograd4"
            assert explained(*shape(1, 64, 56, 64), strict=True)[0] in ONE_CHAIN
            assert explained(*shape(1, 512, 7, 512))[0] in ONE_CHAIN  # transformed filters are not worth it for 4 tiles
            assert explained(*shape(1, 3, 56, 64))[0] in ONE_CHAIN
            assert explained(*shape(1, 3, 224, 64, 7), stride=2)[0] == "winograd4"
            assert explained(*shape(1, 64, 56, 64, 5), stride=2)[0] == "winograd4"
            assert explained(*shape(1, 128, 56, 128), stride=2)[0] == "winograd2"
            assert explained(*shape(8, 128, 56, 128), stride=2)[0] == "winograd4"
            assert explained(*shape(1, 512, 14, 512), stride=2)[0] in ONE_CHAIN
            assert explained(*shape(1, 3, 224, 32), stride=2)[0] in ONE_CHAIN
    x, filters = reals((1, 64, 24, 24), 1), hc.quantize(reals((64, 64, 3, 3), 2), "int8", axis=(2, 3, 1))
    assert same_bits(hc.conv2d(x, filters), hc.conv2d(x, filters, algorithm="direct"))


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_working_memory_does_not_grow_with_the_batch(threads: int) -> None:
    for m, (c, size, k) in itertools.product(SIZES, ((64, 56, 64), (512, 14, 512))):
        with hc.use(threads=threads):  # a smaller batch has no work for each thread
            few, many = (explained(*shape(n, c, size, k))[1][f"winograd{m}"][5] for n in (16 * threads, 512))
        assert few == many <= (16 << 20) + threads * (7 << 20)
    for m, (c, size, k, side) in itertools.product(SIZES[1:], ((64, 56, 64, 5), (3, 300, 64, 7), (512, 14, 512, 3))):
        with hc.use(threads=threads):
            few, many = (
                explained(*shape(n, c, size, k, side), stride=2)[1][f"winograd{m}"][5] for n in (16 * threads, 512)
            )
        place = 4 * (m + 2) ** 2  # of the phases of one channel, and of one filter there
        own = place * 4 * c * (14 + 32) + (2 << 20)  # 14 tiles and a panel
        assert few == many <= (16 << 20) + threads * own


@pytest.mark.parametrize("m", [4, 6])
@pytest.mark.sweep(every=0)
def test_bands_of_phases_change_nothing(m: int) -> None:
    """Images of few channels, larger than a band or several per band, with values in any order."""
    for shape_of in ((1, 3, 400, 301), (5, 2, 121, 90), (2, 15, 133, 70)):
        x, filters = reals(shape_of, 1), reals((6, shape_of[1], 7, 7), 2)
        where: Any = {"padding": ((3, 2), (1, 4)), "stride": 2, "algorithm": f"winograd{m}"}
        for threads in (1, 2):
            with hc.use(threads=threads):
                found = hc.conv2d(x, filters, **where)
                for i in range(shape_of[0]):
                    assert same_bits(found[i], winograd.conv2d(x[i : i + 1], filters, m, where["padding"], 1, 2)[0])
                for other in (x.astype(np.float64), np.asfortranarray(x), np.repeat(x, 2, 3)[..., ::2]):
                    assert same_bits(hc.conv2d(other, filters, **where), found)


@pytest.mark.sweep(every=0)
def test_tiles_that_are_kept_for_all_filters_change_nothing() -> None:
    """More than 4 MiB of tiles, and larger filters; with only 16 filters, a few tiles are multiplied at a time."""
    x, filters = reals((1, 256, 44, 44), 1), reals((192, 256, 3, 3), 2)
    few = hc.conv2d(x, filters[:16], padding=1, algorithm="winograd4")
    for threads in (1, 2):
        with hc.use(threads=threads):
            for weights in (filters, hc.prepack(filters)):
                found = hc.conv2d(x, weights, padding=1, algorithm="winograd4")
                assert same_bits(found[:, :16], few)
    assert explained(x, filters)[1]["winograd4"][5] <= (16 << 20) + hc.get_num_threads() * (7 << 20)


def test_other_filters_are_refused() -> None:
    x = np.zeros((1, 2, 8, 8), np.float32)
    filters = np.zeros((1, 2, 3, 3), np.float32)
    for taps, stride in (((5, 5), 1), ((1, 1), 1), ((1, 5), 1), ((2, 3), 1), ((3, 5), 2), ((1, 3), 2), ((3, 3), 3)):
        with bad_argument(ValueError, "winograd2", "value"):
            hc.conv2d(x, np.zeros((1, 2, *taps), np.float32), stride=stride, algorithm="winograd2")
    with bad_argument(ValueError, "algorithm", "unsupported"):
        hc.conv2d(x, np.zeros((1, 2, 7, 7), np.float32), stride=2, algorithm="winograd2")
    line = hc.quantize(np.zeros((1, 2, 1, 3), np.float32), "int8", axis=(2, 3, 1))
    with bad_argument(ValueError, "algorithm", "unsupported"):
        hc.conv2d(x, line, activations="int8", algorithm="winograd2")
    with bad_argument(ValueError, "algorithm", "unsupported"):
        hc.conv2d(x, hc.quantize(filters, "int8", axis=(2, 3, 1)), stride=2, activations="int8", algorithm="winograd4")
    with bad_argument(ValueError, "algorithm", "unsupported"):
        hc.conv2d(x, filters, activations="int8", algorithm="winograd4")
    q = hc.quantize(filters, "int8", axis=(2, 3, 1))
    for where, why in (
        ({"activations": "int8", "algorithm": "winograd6"}, "it multiplies floats, and x is to be quantized"),
        ({"activations": "int16", "algorithm": "winograd2"}, "filters and x have no integers of 8 bits"),
        ({"activations": "int8", "algorithm": "winograd4", "padding": ((0, 0), (0, 2 * 10**6))}, "a row of windows"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"refuses this convolution: {why}"):
            hc.conv2d(x, q, **where)
    deep, deep_filters = np.ones((1, 14800, 3, 3), np.float32), np.ones((1, 14800, 3, 3), np.float32)
    wide = hc.quantize(deep_filters, "int8", axis=(2, 3, 1))
    with bad_argument(ValueError, "algorithm", "unsupported"):
        hc.conv2d(deep, wide, activations="int8", algorithm="winograd4")
    assert hc.conv2d(deep, wide, activations="int8")[0, 0, 0, 0] == 9 * 14800
    x[0, 1, 7, 3] = np.inf
    with bad_argument(ValueError, "x", "value", r"at index \(0, 1, 7, 3\)"):
        hc.conv2d(x, q, activations="int8", algorithm="winograd4")
    x[0, 1, 7, 3] = 0
    assert hc.conv2d(x[:0], filters, algorithm="winograd6").shape == (0, 1, 6, 6)


def test_multiples_of_the_filters_matrix_are_whole() -> None:
    for m, s in ((2, 2), (4, 24)):
        a_t, g, b_t, f = winograd.integers(m)
        exact = winograd.matrices(m)
        assert [list(map(int, row)) for row in (a_t, b_t)[0]] == exact[0] and b_t.tolist() == exact[2]
        assert [[Fraction(int(scale * value), s) for value in row] for scale, row in zip(f, g, strict=True)] == exact[1]
        assert 128 * np.abs(b_t).sum(1).max() ** 2 < 2**15 and 128 * np.abs(g).sum(1).max() ** 2 < 2**15


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize("channels", [5, 226, 227, 600])
def test_sums_of_integers_are_exact_modulo_what_32_bits_hold(m: int, channels: int) -> None:
    """Values of the largest magnitude, of one sign, and random: two images, five filters, the last with one code."""
    rng = np.random.default_rng(channels)
    x = rng.integers(-128, 128, (2, channels, 5, 7))
    w = rng.integers(-128, 128, (5, channels, 3, 3))
    x[1], w[3], w[4] = -128, -128, 127
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 0))), (3, 3), axis=(2, 3))
    wanted = np.einsum("ncpqrs,kcrs->nkpq", windows, w)
    assert (winograd.conv2d_integers(x, w, m, ((1, 1), (1, 0))) == wanted).all()


# as CASES; channels of one, two and three blocks
INTEGER_CASES = [*CASES, (1, 227, 6, 5, 3, 1, 1), (2, 1200, 4, 5, 18, 0, 2), (1, 453, 3, 3, 70, 1, 1)]


@pytest.mark.parametrize("isa", isas("direct", "winograd"))
@pytest.mark.parametrize("case", INTEGER_CASES, ids=str)
@pytest.mark.sweep(every=3)
def test_integers_have_the_bits_of_the_direct_sum(case: Any, isa: str) -> None:
    n, c, h, w, k, padding, groups = case
    x, filters, bias = reals((n, c, h, w), 1), reals((k, c // groups, 3, 3), 2), reals((k,), 3)
    filters[0] = -np.abs(filters).max()  # the largest sum
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    for text, activations in itertools.product(("int8", "vsq4-g16-s4"), ("int8", "vsq4-g16-s4", "int5")):
        q = hc.quantize(filters, text, axis=(2, 3, 1))
        arguments: Any = {"padding": padding, "groups": groups, "activations": activations}
        wanted = hc.conv2d(x, q, bias, **arguments, relu=True, algorithm="implicit")
        for m, threads in ((2, 1), (4, 2)):
            with hc.use(isa=isa, threads=threads):
                for weights in (q, hc.prepack(q)):
                    found = hc.conv2d(x, weights, bias, **arguments, relu=True, algorithm=f"winograd{m}")
                    assert same_bits(found, wanted), (m, text, activations)
                plain = hc.conv2d(last, q, **arguments, layout="NHWC", algorithm=f"winograd{m}")
            again = hc.conv2d(last, q, **arguments, layout="NHWC", algorithm="implicit")
            assert same_bits(plain, again), (m, text, activations)


@pytest.mark.sweep(every=0)
def test_bands_of_codes_change_nothing() -> None:
    """Images with more codes than a band, and several images per band, each with its own scale."""
    for shape_of, groups in (((1, 24, 230, 97), 1), ((9, 24, 40, 33), 2)):
        x = reals(shape_of, 1) * np.arange(1, 1 + shape_of[0], dtype=np.float32)[:, None, None, None]
        q = hc.quantize(reals((24, 24 // groups, 3, 3), 2), "int8", axis=(2, 3, 1))
        where: Any = {"padding": ((1, 0), (2, 1)), "groups": groups, "activations": "int8"}
        wanted = hc.conv2d(x, q, **where, algorithm="direct")
        for m, threads in itertools.product((2, 4), (1, 2)):
            with hc.use(threads=threads):
                assert same_bits(hc.conv2d(x, q, **where, algorithm=f"winograd{m}"), wanted)


@pytest.mark.sweep(every=0)
def test_groups_of_tiles_that_meet_filters_together_change_nothing() -> None:
    """Panels of integers that exceed L2, and a last group of one tile."""
    x = reals((1, 512, 20, 20), 1)
    q = hc.quantize(reals((128, 512, 3, 3), 2), "int8", axis=(2, 3, 1))
    where: Any = {"padding": 1, "activations": "int8"}
    wanted = hc.conv2d(x, q, **where, algorithm="direct")
    for threads in (1, 2):
        with hc.use(threads=threads):
            for weights in (q, hc.prepack(q)):
                assert same_bits(hc.conv2d(x, weights, **where, algorithm="winograd4"), wanted)


def test_auto_takes_winograds_integers_where_nothing_multiplies_bytes() -> None:
    """Their results are those of the direct sum, so auto may choose them by the machine, also if strict."""
    x, filters = reals((1, 64, 28, 28), 1), reals((64, 64, 3, 3), 2)
    q = hc.quantize(filters, "int8", axis=(2, 3, 1))
    for isa in ("scalar", "avx2"):
        with hc.use(isa=isa) if isa in isas("direct") else hc.use(isa="scalar"):
            for accuracy in ("default", "strict"):
                found = hc.explain(hc.conv2d, x, q, padding=1, activations="int8", accuracy=accuracy)
                assert found.chosen == "winograd4"
            assert hc.explain(hc.conv2d, x, q, padding=1).chosen == "direct"  # the decoded values of packed filters
            few = hc.quantize(filters[:, :3], "int8", axis=(2, 3, 1))
            assert hc.explain(hc.conv2d, x[:, :3], few, activations="int8").chosen in ("direct", "planes")


@pytest.mark.skipif("avx2" not in isas("direct"), reason="what was measured is AVX2")
def test_auto_counts_what_reading_transformed_filters_takes() -> None:
    """For 4 tiles of 512 channels `winograd4` reads 19 MB of filters, `winograd2` 8 MB, and is faster by a third."""
    q = hc.quantize(np.ones((512, 512, 3, 3), np.float32), "int8", axis=(2, 3, 1))
    where: Any = {"padding": 1, "activations": "int8"}
    with hc.use(isa="avx2"):
        ready = hc.prepack(q)
        for images, wanted in ((1, "winograd2"), (8, "winograd4")):
            assert hc.explain(hc.conv2d, np.ones((images, 512, 7, 7), np.float32), ready, **where).chosen == wanted
