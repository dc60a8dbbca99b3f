"""The gradients of conv2d: bitwise those of seven nested loops, the slopes of conv2d, and those of torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import isas, reals, same_bits

import heterocompute as hc
from heterocompute.products import backward
from heterocompute.products.window import as_window
from heterocompute.reference import loops

# n, c, h, w, k, r, s, stride, padding, dilation, groups
CASES = [
    (2, 3, 5, 6, 4, 3, 3, 1, 1, 1, 1),
    (1, 4, 7, 5, 6, 3, 2, 2, ((0, 2), (1, 0)), 1, 2),
    (2, 3, 6, 6, 3, 3, 3, (2, 3), "same", 1, 3),  # stride larger than some taps
    (2, 1, 8, 9, 2, 3, 2, (3, 2), 1, (2, 4), 1),  # dilation and stride with and without a common divisor
    (1, 2, 4, 5, 3, 1, 1, 3, 0, 1, 1),  # pixels that no window sees
    (2, 2, 2, 3, 1, 5, 4, 1, 2, 1, 1),  # images smaller than the filter
    (1, 2, 3, 3, 2, 2, 2, 4, 3, 1, 1),  # windows on padding alone
    (2, 2, 14, 13, 33, 3, 3, 1, 1, 1, 1),  # two chunks of filters, two bands of rows
    (3, 18, 5, 5, 18, 3, 3, 2, 1, 1, 18),  # two chunks of channels, several images, stride
    (2, 6, 4, 5, 16, 3, 2, 1, 1, (1, 2), 2),  # groups of many filters
    (1, 12, 4, 4, 18, 2, 3, 1, 1, 1, 6),  # groups of few filters, in part of a chunk
    (17, 2, 2, 2, 3, 2, 2, 1, 0, 1, 1),  # more images than are transposed at once
    (3, 5, 3, 4, 6, 1, 1, 1, 0, 1, 1),
    (2, 1, 2, 90, 1, 1, 3, 1, 0, 1, 1),  # bands of columns
    (26, 2, 1, 122, 2, 1, 3, 1, 0, 1, 2),
    (2, 5, 9, 40, 5, 5, 3, 2, 2, 1, 5),  # planes with one filter each
    (1, 3, 6, 17, 3, 2, 7, 2, ((3, 0), (9, 1)), 1, 3),  # more padding than the filter has taps
    (3, 20, 1, 1, 17, 1, 1, 1, 0, 1, 1),  # a matmul of one pixel per image
    (1, 20, 3, 5, 17, 1, 1, 1, 0, 1, 1),  # a plane of few channels
    (1, 2, 1, 3, 300, 1, 1, 1, 0, 1, 1),  # filters that are read in place for fewer channels
    (1, 3, 4, 5, 35, 3, 3, 1, 1, 1, 1),  # filters beside each other, in parts of panels
    (2, 3, 13, 14, 7, 4, 5, (4, 5), 0, 1, 1),  # patches, and pixels behind them
    (1, 2, 7, 9, 260, 1, 2, (2, 3), 0, 1, 1),  # patches, and pixels between them
    (2, 16, 4, 5, 16, 3, 3, 1, 1, 1, 2),  # groups of half a chunk
    (1, 3, 5, 4, 48, 2, 3, 1, 1, 1, 1),
    (2, 3, 9, 21, 40, 1, 1, 1, 0, 1, 1),  # bands of pixels, in place or with adjacent channels
    (1, 3, 9, 8, 20, 1, 1, 2, 0, 1, 1),
    (1, 2, 3, 4, 600, 1, 1, 1, 0, 1, 1),  # a last chunk that has filters of the one before
    (1, 150, 5, 4, 150, 3, 3, 1, 1, 1, 150),
    (2, 12, 6, 5, 40, 1, 1, 1, 0, 1, 2),
    (1, 150, 2, 1, 512, 1, 1, 1, 0, 1, 1),  # parts of channels
    (1, 4, 32, 32, 9, 1, 1, 1, 0, 1, 1),  # planes that share lines of a cache
]


def made(case: Any) -> tuple[Any, ...]:
    n, c, h, w, k, r, s, stride, padding, dilation, groups = case
    window = as_window("test", (h, w), (r, s), stride, padding, dilation, groups, c)
    x, filters, dy = reals((n, c, h, w), 1), reals((k, c // groups, r, s), 2), reals((n, k, *window.answer), 3)
    return x, filters, dy, (stride, padding, dilation, groups), (window.stride, window.before, window.dilation, groups)


def test_matmuls_of_pixels_have_the_bits_of_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    dy, w = reals((3, 2, 3, 17), 1), reals((17, 20, 1, 1), 2)
    for some in (dy, dy[:, :1, :1]):
        found = []
        for most in (128, -1):
            monkeypatch.setattr(backward, "FEWEST_VALUES", 0)
            monkeypatch.setattr(backward, "MOST_ROWS", most)
            found.append(hc.conv2d_backward_input(some, w, some.shape[1:3], layout="NHWC"))
        assert same_bits(*found)


@pytest.mark.sweep(every=16)
@pytest.mark.parametrize("isa", isas("gemm_f32"))
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_those_of_the_seven_loops(case: Any, isa: str) -> None:
    x, w, dy, options, where = made(case)
    dx, dw = loops.conv2d_backward_input(dy, w, x.shape, *where), loops.conv2d_backward_weight(dy, x, w.shape, *where)
    x_last, dy_last = (np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in (x, dy))
    for threads in (1, 2):
        with hc.use(isa=isa, threads=threads):
            assert same_bits(hc.conv2d_backward_input(dy, w, x.shape[2:], *options), dx)
            assert same_bits(hc.conv2d_backward_weight(dy, x, w.shape[2:], *options), dw)
            last = hc.conv2d_backward_input(dy_last, w, x.shape[2:], *options, layout="NHWC")
            assert same_bits(np.ascontiguousarray(last.transpose(0, 3, 1, 2)), dx)
            out = np.empty((*dw.shape, 2), np.float32)[..., 1]
            found = hc.conv2d_backward_weight(dy_last, x_last, w.shape[2:], *options, layout="NHWC", out=out)
            assert found is out and same_bits(np.ascontiguousarray(out), dw)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_are_slopes_of_the_convolution(case: Any) -> None:
    """conv2d is linear in x and in w, so that finite differences of any step are its slope, up to rounding."""
    x, w, dy, options, _ = made(case)
    rng = np.random.default_rng(4)
    dx = hc.conv2d_backward_input(dy, w, x.shape[2:], *options).astype(np.float64)
    dw = hc.conv2d_backward_weight(dy, x, w.shape[2:], *options).astype(np.float64)

    def loss(x: Any, w: Any) -> tuple[float, float]:
        """Return sum(dy * conv2d(x, w)), and a bound of its rounding."""
        y, size = hc.conv2d(x, w, None, *options), hc.conv2d(np.abs(x), np.abs(w), None, *options)
        exact = dy.astype(np.float64)
        return float((exact * y).sum()), float((np.abs(exact) * size).sum()) * (w[0].size + 2) * 2.0**-23

    for step_x, step_w in ((1.0, 0.0), (0.0, 1.0)):
        to_x, to_w = (rng.integers(-8, 9, a.shape).astype(np.float32) for a in (x, w))
        upper, lower = (loss(x + sign * step_x * to_x, w + sign * step_w * to_w) for sign in (1, -1))
        slope = step_x * (dx * to_x).sum() + step_w * (dw * to_w).sum()
        assert abs((upper[0] - lower[0]) / 2 - slope) <= upper[1] + lower[1]


@pytest.mark.parametrize("case", [case for case in CASES if case[8] in (0, 1, 2)], ids=str)
def test_gradients_are_those_of_torch(case: Any) -> None:
    torch = pytest.importorskip("torch")
    x, w, dy, (stride, padding, dilation, groups), where = made(case)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    left, right, up = (torch.from_numpy(a.astype(np.float64)) for a in (x, w, dy))
    dx, dw = (
        torch.nn.grad.conv2d_input(x.shape, right, up, **options),
        torch.nn.grad.conv2d_weight(left, w.shape, up, **options),
    )
    size = np.abs(dy), np.abs(w), np.abs(x)
    most = (
        loops.conv2d_backward_input(size[0], size[1], x.shape, *where),
        loops.conv2d_backward_weight(size[0], size[2], w.shape, *where),
    )
    terms = max(dy.size, w.size) + 1
    found = hc.conv2d_backward_input(dy, w, x.shape[2:], **options)
    assert (np.abs(found - dx.numpy()) <= terms * 2.0**-23 * most[0]).all()
    found = hc.conv2d_backward_weight(dy, x, w.shape[2:], **options)
    assert (np.abs(found - dw.numpy()) <= terms * 2.0**-23 * most[1]).all()


def test_empty_sizes_and_other_floats() -> None:
    assert hc.conv2d_backward_input(reals((0, 2, 3, 3)), reals((2, 3, 3, 3)), 5).shape == (0, 3, 5, 5)
    nothing = hc.conv2d_backward_weight(reals((0, 2, 3, 3)), reals((0, 3, 5, 5)), 3)
    assert nothing.shape == (2, 3, 3, 3) and not nothing.any()
    assert not hc.conv2d_backward_input(np.zeros((1, 2, 0, 0), np.float32), reals((2, 3, 3, 3)), 2).any()
    dy, w = reals((1, 2, 3, 3), 1, np.float16), reals((2, 3, 3, 3), 2)
    assert same_bits(
        hc.conv2d_backward_input(dy.astype(np.float64), w.astype(np.float64), 5),
        hc.conv2d_backward_input(dy.astype(np.float32), w, 5),
    )


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (
            lambda dy, w, x: hc.conv2d_backward_input(dy, w, 6),
            ValueError,
            r"dy has shape .* as NCHW, expected 4 .* 4 x 4",
        ),
        (lambda dy, w, x: hc.conv2d_backward_input(dy, w, 5, layout="NHWC"), ValueError, "as NHWC, expected 4 filters"),
        (
            lambda dy, w, x: hc.conv2d_backward_input(dy[0], w, 5),
            ValueError,
            "dy has shape .* expected four dimensions",
        ),
        (lambda dy, w, x: hc.conv2d_backward_input(dy, w[0], 5), ValueError, r"w has shape \(3, 3, 3\), expected \(K"),
        (lambda dy, w, x: hc.conv2d_backward_input(dy, w, 5, groups=3), ValueError, "groups is 3, expected a divisor"),
        (lambda dy, w, x: hc.conv2d_backward_input(dy, w, -5), ValueError, "size is -5, expected 0 or more"),
        (lambda dy, w, x: hc.conv2d_backward_input(dy, w, "5"), TypeError, "size is '5', expected an int or a pair"),
        (lambda dy, w, x: hc.conv2d_backward_input(dy, hc.quantize(w, "int8"), 5), TypeError, "w is packed"),
        (lambda dy, w, x: hc.conv2d_backward_input(dy, w, 5, out=x.astype("d")), TypeError, "out is float64"),
        (lambda dy, w, x: hc.conv2d_backward_weight(dy, x, 2), ValueError, "expected 4 filters and 4 x 4 windows"),
        (lambda dy, w, x: hc.conv2d_backward_weight(dy, x[:1], 3), ValueError, "dy has 2 images .* expected 1 image "),
        (lambda dy, w, x: hc.conv2d_backward_weight(dy, x, 3, stride=0), ValueError, "stride is 0"),
        (lambda dy, w, x: hc.conv2d_backward_weight(dy.astype(int), x, 3), TypeError, "dy .* astype"),
        (lambda dy, w, x: hc.conv2d_backward_weight(dy, x, 3, layout="CHW"), ValueError, "layout is 'CHW'"),
        (lambda dy, w, x: hc.conv2d_backward_weight(dy, x[0], 3), ValueError, "x has shape .* N C H W"),
    ],
)
def test_wrong_arguments_are_sentences(call: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call(reals((2, 4, 3, 3), 1), reals((4, 3, 3, 3), 2), reals((2, 3, 5, 5), 3))


def test_a_stride_beyond_the_image_is_no_work() -> None:
    dy, w = np.full((1, 1, 1, 1), 2, np.float32), np.float32([[[[1, 2], [3, 4]]]])
    dx = hc.conv2d_backward_input(dy, w, size=3, stride=2**30, padding=1)  # stepping through strides would take hours
    assert dx[0, 0].tolist() == [[8, 0, 0], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("after", [(0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.sweep(every=6)
def test_padding_behind_alone_is_that_of_the_loops(kernel: int, after: tuple[int, int]) -> None:
    rng = np.random.default_rng(kernel)
    size = [3 * n - one for n, one in zip((2, 3), after, strict=True)] if kernel == 3 else [5, 6]
    padding = tuple((0, one) for one in after)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((2, 8, *size), (16, 8, kernel, kernel)))
    y = hc.conv2d(x, w, None, kernel, padding)
    dy = rng.standard_normal(y.shape, np.float32)
    where = (kernel, kernel), (0, 0)
    wanted = loops.conv2d_backward_input(dy, w, x.shape, *where), loops.conv2d_backward_weight(dy, x, w.shape, *where)
    assert same_bits(hc.conv2d_backward_input(dy, w, x.shape[2:], kernel, padding), wanted[0])
    assert same_bits(hc.conv2d_backward_weight(dy, x, w.shape[2:], kernel, padding), wanted[1])


@pytest.mark.parametrize("rows", [9, 10, 11])
@pytest.mark.sweep(every=3)
def test_pixels_behind_the_last_window_are_zeros_times_filters(rows: int) -> None:
    dy, w = np.ones((1, 64, 3, 3), np.float32), np.ones((64, 8, 3, 3), np.float32)
    w[0, 0, 0, 0] = np.inf
    wanted = loops.conv2d_backward_input(dy, w, (1, 8, rows, rows), (3, 3))
    assert same_bits(hc.conv2d_backward_input(dy, w, (rows, rows), 3), wanted)


@pytest.mark.parametrize("images", [0, 1])
def test_planes_of_any_memory_are_computed(images: int) -> None:
    dy, w = reals((images, 3, 4, 5), 1), reals((3, 1, 3, 3), 2)
    wanted = hc.conv2d_backward_input(dy, w, (8, 10), 2, 1, groups=3)
    assert wanted.shape == (images, 3, 8, 10)
    odd = np.zeros(dy.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(dy.shape)
    odd[...] = dy
    for other in (odd, np.asfortranarray(dy)):
        assert same_bits(hc.conv2d_backward_input(other, w, (8, 10), 2, 1, groups=3), wanted)


def test_remembered_arguments_may_be_forgotten_during_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    from heterocompute.products import backward

    class Cleared(dict[Any, Any]):
        def __contains__(self, key: object) -> bool:  # another thread clears them after the question
            found = super().__contains__(key)
            self.clear()
            return found

    monkeypatch.setattr(backward, "_SEEN", Cleared())
    dy, w, x = reals((2, 4, 3, 3), 1), reals((4, 3, 3, 3), 2), reals((2, 3, 5, 5), 3)
    for _ in range(2):
        assert hc.conv2d_backward_input(dy, w, 5).shape == x.shape
        assert hc.conv2d_backward_weight(dy, x, 3).shape == w.shape
