"""Gradients of `conv2d`: for x as convolutions, which run on the same kernels, for w by kernels of their own.

for x   along one axis, u = i + padding: tap r meets pixel i where u - r dilation is a multiple of the stride. Pixels
        with one remainder of u see every (stride / gcd)-th tap, so they are a convolution of dy with stride 1 and
        these taps from the last to the first; nothing is multiplied by the zeros between strides. Planes with a filter
        each and stride 2: csrc/ops/conv/backward/planes.c. Filters of 1 x 1 and few pixels: a matmul.
for w   csrc/ops/conv/backward/filters.c; large filters of 1 x 1 over few pixels are a matmul. If the windows of all
        images are too large, dw[k, c, r, s] is a convolution of x with the images as channels, the filter dy, stride
        and dilation exchanged.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd, prod
from typing import Any, TypeGuard

import numpy as np

from .. import _heterocompute as _core
from ..arrays.array_like import ArrayLike
from ..arrays.base import PackedArray
from ..arrays.dense import as_array, core_view
from ..base import runtime
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import converted, counts_subnormals
from ..base.texts import counted
from ..base.values import check_text
from .arguments import Array, FloatArray, checked_out
from .window import Padding, Window, as_pair, as_window

__all__ = ["conv2d_backward_input", "conv2d_backward_weight"]

MOST_PIXELS, MOST_TAPS = 1 << 18, 1 << 12  # 16 MiB of pixels and 512 KiB of sums per thread
# Pixels of all images whose gradient is a matmul of filters of 1 x 1 with this many values, and of fewer; measured with
# AVX2 on Zen 4
MOST_ROWS, FEWEST_VALUES, FEW_ROWS = 128, 1 << 15, 32
# Filters of 1 x 1 of a group with at least so many values, whose gradient for w is a matmul over so few pixels of all
# images; measured with AVX2 and AVX-512 on Zen 4
LARGE, FEW_PIXELS = 1 << 16, 1 << 10
MOST_PATCHES = 1 << 20  # pixels of patches, 4 MiB
FEWEST_TAPS, FEWEST_FILTERS = 8, 256  # whose patches are copied one by one; measured with AVX2 on Zen 4
FLOAT32 = np.dtype(np.float32)
MOST_SIDE = 7  # of filters of one channel with stride 2


@counts_subnormals
def conv2d_backward_input(
    dy: ArrayLike,
    w: ArrayLike,
    size: int | tuple[int, int],
    stride: int | tuple[int, int] = 1,
    padding: Padding = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    layout: str = "NCHW",
    out: Any = None,
) -> FloatArray:
    """Compute the gradient for x from the gradient for the result of `conv2d`.

    Parameters
    ----------
    dy : array_like, shape (N, K, P, Q), or (N, P, Q, K) with ``layout="NHWC"``
    w : array_like, shape (K, C / groups, R, S)
    size : int or pair
        Height and width of x, because several sizes may give the same P and Q.
    stride, padding, dilation, groups, layout
        As in the forward `conv2d`.
    out : ndarray, optional
        As in `matmul`.

    Returns
    -------
    ndarray of float32, shape (N, C, H, W), or (N, H, W, C)
        dx[n, c, i, j], the sum of dy[n, k, p, q] w[k, c, r, s] over all windows with this pixel: r and s descending,
        then k ascending, one fused multiply-add each. Results are bitwise identical for every instruction set and
        number of threads.

    Raises
    ------
    ValueError
        The shapes do not match, or `conv2d` does not support the arguments.
    TypeError
        An operand is not a float array, or is packed; the gradient refers to the multiplied values.

    Notes
    -----
    The definition is `heterocompute.reference.loops.conv2d_backward_input`.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> dy, w = np.ones((1, 1, 2, 2), np.float32), np.float32([[[[1, 2], [3, 4]]]])
    >>> hc.conv2d_backward_input(dy, w, size=3)[0, 0]
    array([[ 1.,  3.,  2.],
           [ 4., 10.,  6.],
           [ 3.,  7.,  4.]], dtype=float32)
    """
    name = "conv2d_backward_input"
    key: tuple[Any, ...] | None = None
    if _is_plain(dy) and _is_plain(w):
        key = (name, dy.shape, w.shape, repr((size, stride, padding, dilation, groups, layout)))
        if (seen := _SEEN.get(key)) is not None:  # one look-up: another thread may clear them
            final, window = seen
            result = checked_out(out, final, name, (dy, w))
            _spread(dy if layout == "NCHW" else dy.transpose(0, 3, 1, 2), w, window, layout, result)
            return result if out is None else out
    gradient, filters = _dense(dy, f"{name}: dy"), _dense(w, f"{name}: w")
    if filters.ndim != 4:
        raise WrongValue(f"{name}: w has shape {filters.shape}, expected (K, C / groups, R, S)")
    k, depth, *kernel = filters.shape
    height, width = _size(size, f"{name}: size")
    window = as_window(name, (height, width), kernel, stride, padding, dilation, groups, k)
    nchw = _checked_gradient(gradient, k, window, layout, name)
    channels = depth * window.groups
    final = (len(nchw), channels, height, width) if layout == "NCHW" else (len(nchw), height, width, channels)
    result = checked_out(out, final, name, (gradient, filters))
    _remember(key, final, window)
    _spread(nchw, filters, window, layout, result)
    return result if out is None else out


def _spread(nchw: Array, filters: Array, window: Window, layout: str, result: FloatArray) -> None:
    """Compute the gradient for x from checked arrays, in the way that takes the least time."""
    k, depth, *kernel = filters.shape
    dx = result if layout == "NCHW" else result.transpose(0, 3, 1, 2)
    height, width = dx.shape[2:]
    if result.flags.c_contiguous and _is_matmul(window, len(nchw), filters.size, layout):
        _times_filters(nchw, filters[:, :, 0, 0], dx)
        return
    if result.flags.c_contiguous and layout == "NCHW" and _is_of_planes(window, depth, k):
        taken, weights = (np.require(converted(one, np.float32), requirements=["C", "A"]) for one in (nchw, filters))
        _core.conv2d_gradient_planes(
            runtime.run(), taken, weights, window.stride, window.before, window.dilation, window.groups, dx
        )
        return
    if _is_of_patches(window, k, (height, width)):
        _spread_patches(nchw, filters, window.stride, dx)
        return
    turned = _turned(filters, window.groups)
    single = converted(nchw, np.float32)
    last = single if single.strides[3] == single.itemsize else _channels_last(single)
    if window.stride == (1, 1):
        sizes = zip(kernel, window.dilation, window.before, strict=True)
        above, left = ((taps - 1) * far - pad for taps, far, pad in sizes)
        seen = last if min(above, left) >= 0 else last[:, :, max(0, -above) :, max(0, -left) :]
        ahead = (max(above, 0), max(left, 0))
        _convolve(seen, turned[:, :, ::-1, ::-1], (1, 1), ahead, window.dilation, window.groups, dx)
        return
    for rows in _phases(window, 0, height):
        for columns in _phases(window, 1, width):
            target = dx[:, :, rows.pixels, columns.pixels]
            if rows.taps is None or columns.taps is None:
                target[...] = 0
                continue
            taps = turned[:, :, rows.taps, columns.taps]
            seen = last[:, :, rows.skip :, columns.skip :]
            before, steps = (rows.before, columns.before), (rows.dilation, columns.dilation)
            _convolve(seen, taps, (1, 1), before, steps, window.groups, target)


@counts_subnormals
def conv2d_backward_weight(
    dy: ArrayLike,
    x: ArrayLike,
    size: int | tuple[int, int],
    stride: int | tuple[int, int] = 1,
    padding: Padding = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    layout: str = "NCHW",
    out: Any = None,
) -> FloatArray:
    """Compute the gradient for the filters from the gradient for the result of `conv2d`.

    Parameters
    ----------
    dy : array_like, shape (N, K, P, Q), or (N, P, Q, K) with ``layout="NHWC"``
    x : array_like, shape (N, C, H, W), or (N, H, W, C)
    size : int or pair
        R and S of the filters.
    stride, padding, dilation, groups, layout
        As in the forward `conv2d`; `layout` applies to dy and x.
    out : ndarray, optional
        As in `matmul`.

    Returns
    -------
    ndarray of float32, shape (K, C / groups, R, S)
        dw[k, c, r, s], the sum of dy[n, k, p, q] x[n, c, ...] over p, q, n ascending, one fused multiply-add each.
        Results are bitwise identical for every instruction set and number of threads. The gradient for a bias is dy
        summed over n, p, q.

    Raises
    ------
    ValueError
        The shapes do not match, or `conv2d` does not support the arguments.
    TypeError
        An operand is not a float array, or is packed.

    Notes
    -----
    The definition is `heterocompute.reference.loops.conv2d_backward_weight`. Memory: about 1 MiB per thread, up to
    16 MiB more for one window of many images; for larger windows, and for large filters of 1 x 1, one more copy of dy
    and of x.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> x = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    >>> hc.conv2d_backward_weight(np.ones((1, 1, 2, 2), np.float32), x, size=2)[0, 0]
    array([[ 8., 12.],
           [20., 24.]], dtype=float32)
    """
    name = "conv2d_backward_weight"
    key: tuple[Any, ...] | None = None
    if _is_plain(dy) and _is_plain(x):
        key = (name, dy.shape, x.shape, repr((size, stride, padding, dilation, groups, layout)))
        if (seen := _SEEN.get(key)) is not None:
            shape, (steps, before, apart, parts) = seen
            dw = checked_out(out, shape, name, (dy, x))
            nchw, images = (dy, x) if layout == "NCHW" else (dy.transpose(0, 3, 1, 2), x.transpose(0, 3, 1, 2))
            _core.conv2d_gradient(runtime.run(), nchw, images, steps, before, apart, parts, dw)
            return dw if out is None else out
    gradient, images = _dense(dy, f"{name}: dy"), _dense(x, f"{name}: x")
    _check_layout(layout, name)
    if images.ndim != 4:
        raise WrongValue(f"{name}: x has shape {images.shape}, expected four dimensions, {' '.join(layout)}")
    if layout == "NHWC":
        images = images.transpose(0, 3, 1, 2)
    kernel = _size(size, f"{name}: size")
    n, channels, *pixels = images.shape
    window = as_window(name, pixels, kernel, stride, padding, dilation, groups, channels)
    k = gradient.shape[1 if layout == "NCHW" else 3] if gradient.ndim == 4 else 0
    nchw = _checked_gradient(gradient, k, window, layout, name)
    if len(nchw) != n or k % window.groups:
        wanted = f"expected {counted(n, 'image')} and a multiple of groups {window.groups}"
        raise WrongValue(f"{name}: dy has {counted(len(nchw), 'image')} and {k} filters, {wanted}")
    parts, each, depth = window.groups, k // window.groups, channels // window.groups
    dw = checked_out(out, (k, depth, *kernel), name, (gradient, images))
    if _is_of_matrices(window, n, each * depth):
        (down, wide), (p, q) = window.stride, window.answer
        _matrices(nchw, images[:, :, : (p - 1) * down + 1 : down, : (q - 1) * wide + 1 : wide], dw)
        return dw if out is None else out
    if _fits(window, n):
        where = (window.stride, window.before, window.dilation, parts)
        _remember(key, dw.shape, where)
        _core.conv2d_gradient(runtime.run(), _aligned(nchw), _aligned(images), *where, dw)
        return dw if out is None else out
    across = _images_last(images)  # (C, N, H, W), with contiguous images
    weights = _images_last(nchw)
    for g in range(parts):
        channel, filter = slice(g * depth, (g + 1) * depth), slice(g * each, (g + 1) * each)
        target = dw[filter].transpose(1, 0, 2, 3)
        _convolve(across[channel], weights[filter], window.dilation, window.before, window.stride, 1, target)
    return dw if out is None else out


_SEEN: dict[tuple[Any, ...], tuple[Any, Any]] = {}  # arguments that were checked before, for arrays of these shapes


def _is_plain(value: object) -> TypeGuard[FloatArray]:
    """Tell whether the core reads an array as it is: nothing but its shape has to be checked."""
    return type(value) is np.ndarray and value.dtype is FLOAT32 and value.flags.aligned


def _remember(key: tuple[Any, ...] | None, shape: tuple[int, ...], where: Any) -> None:
    """Keep what follows from the arguments, so that another call with such arrays takes microseconds."""
    if len(_SEEN) >= 1024:
        _SEEN.clear()
    if key is not None:
        _SEEN[key] = shape, where


def _is_matmul(window: Window, images: int, values: int, layout: str) -> bool:
    """Return whether the gradient for x of filters of 1 x 1 takes less time as a matmul of gradients and filters."""
    pixels = prod(window.answer)
    plain = window.kernel == window.stride == (1, 1) and window.before == window.after == (0, 0) and window.groups == 1
    adjacent = layout == "NHWC" or pixels == 1
    rows = images * pixels
    return plain and adjacent and rows <= (MOST_ROWS if values >= FEWEST_VALUES else FEW_ROWS)


def _is_of_matrices(window: Window, images: int, values: int) -> bool:
    """Return whether the gradient for w of filters of 1 x 1 takes less time as a matmul over pixels and images."""
    plain = window.kernel == (1, 1) and window.before == window.after == (0, 0)
    return plain and values >= LARGE and 0 < images * prod(window.answer) <= FEW_PIXELS


def _is_of_planes(window: Window, depth: int, filters: int) -> bool:
    """Return whether each plane of pixels has one filter, and the core a kernel for such windows."""
    alone = depth == 1 and filters == window.groups
    return alone and window.stride == (2, 2) and window.dilation == (1, 1) and max(window.kernel) <= MOST_SIDE


def _is_of_patches(window: Window, filters: int, pixels: tuple[int, int]) -> bool:
    """Return whether each pixel is in at most one window, and a matmul takes less time than convolutions.

    Pixels behind the last window are sums of zeros times filters, which a matmul would leave out.
    """
    plain = window.dilation == (1, 1) and window.before == window.after == (0, 0) and window.groups == 1
    apart = all(taps <= step for taps, step in zip(window.kernel, window.stride, strict=True))
    apart = apart and all(n <= p * step for n, p, step in zip(pixels, window.answer, window.stride, strict=True))
    taps = prod(window.kernel)
    return plain and apart and taps > 1 and (taps >= FEWEST_TAPS or filters >= FEWEST_FILTERS)


def _spread_patches(gradient: Array, filters: Array, stride: tuple[int, int], to: FloatArray) -> None:
    """Compute `to` (N, C, H, W) from gradients (N, K, P, Q), some rows at a time: a chain over k for each pixel."""
    k, channels, r, s = filters.shape
    across = gradient.shape[3]
    (down_step, step), adjacent = stride, stride[1] == s
    if stride != (r, s) or to.shape[2:] != (gradient.shape[2] * r, across * s):
        to[...] = 0
    if gradient.size == 0:
        to[...] = 0
        return
    single, values = converted(gradient, np.float32), _aligned(filters).reshape(k, channels * r * s)
    at_once = max(1, MOST_PATCHES // max(across * values.shape[1], 1))
    for image, target in zip(single, to, strict=True):
        for first in range(0, gradient.shape[2], at_once):
            some = image[:, first : first + at_once]
            rows = some.reshape(k, prod(some.shape[1:]))
            patches = np.empty((rows.shape[1], values.shape[1]), np.float32)
            _own_matmul(rows.T, values, patches)
            spread = patches.reshape(some.shape[1], across, channels, r, s).transpose(2, 0, 3, 1, 4)
            for row in range(some.shape[1]):
                for tap in range(r):
                    line = target[:, (first + row) * down_step + tap]
                    if adjacent:
                        line[:, : across * s].reshape(channels, across, s)[...] = spread[:, row, tap]
                        continue
                    for i in range(s):
                        line[:, i : i + (across - 1) * step + 1 : step] = spread[:, row, tap, :, i]


def _turned(filters: Array, groups: int) -> Array:
    """Return (K, C / groups, R, S) as (C, K / groups, R, S): channels of one convolution are filters of the other."""
    if groups == 1:  # as they lie, which the core reads
        return _aligned(filters).transpose(1, 0, 2, 3)
    k, depth, *kernel = filters.shape
    turned = filters.reshape(groups, k // groups, depth, *kernel).transpose(0, 2, 3, 4, 1)
    return np.ascontiguousarray(turned.reshape(groups * depth, *kernel, k // groups)).transpose(0, 3, 1, 2)


def _times_filters(gradient: Array, filters: Array, to: FloatArray) -> None:
    """Compute `to` (N, C, H, W), with adjacent channels, from (N, K, H, W) and filters (K, C): chains over k."""
    (n, k, height, width), channels = gradient.shape, to.shape[1]
    rows = converted(gradient, np.float32).transpose(0, 2, 3, 1).reshape(n * height * width, k)
    target = to.transpose(0, 2, 3, 1).reshape(n * height * width, channels)
    _own_matmul(rows, converted(filters, np.float32), target)


def _own_matmul(a: Array, b: Array, to: FloatArray) -> None:
    """Compute a @ b in the order of this package's own kernels."""
    settings = runtime.run()
    _core.matmul((*settings[:3], runtime.OWN, *settings[4:]), a, b, None, None, to)


def _fits(window: Window, images: int) -> bool:
    """Return whether the core has memory for one window of all images, and for the taps of a channel."""
    rows, columns = ((taps - 1) * far + 1 for taps, far in zip(window.kernel, window.dilation, strict=True))
    return rows * columns * images <= MOST_PIXELS and prod(window.kernel) <= MOST_TAPS


def _aligned(values: Array) -> FloatArray:
    """Return an array as float32 whose values and strides are multiples of 4 bytes."""
    single: FloatArray = converted(values, np.float32)
    if single.flags.carray:
        return single
    return single if single.flags.aligned and not any(step % 4 for step in single.strides) else single.copy()


def _matrices(gradient: Array, images: Array, to: FloatArray) -> None:
    """Multiply gradients and images as matrices over (p, q, n), one chain of fused multiply-adds each."""
    filters, depth = to.shape[:2]
    for g in range(images.shape[1] // max(depth, 1)):
        each = filters * depth // images.shape[1]
        dy, x = gradient[:, g * each : (g + 1) * each], images[:, g * depth : (g + 1) * depth]
        left, right = _over_pixels(dy), _over_pixels(x)
        _own_matmul(left, right.T, to[g * each : (g + 1) * each, :, 0, 0])


def _over_pixels(nchw: Array) -> Array:
    """Return (N, C, H, W) as a matrix (C, (h, w, n)), without a copy for one image with contiguous planes or pixels."""
    single = converted(nchw, np.float32)
    if len(single) == 1 and single.strides[2] == single.shape[3] * single.strides[3]:
        pixels: Array = single[0]
    elif single.strides[1] == single.itemsize:
        return np.ascontiguousarray(single.transpose(2, 3, 0, 1)).reshape(-1, single.shape[1]).T
    else:
        pixels = _images_last(single).transpose(0, 2, 3, 1)
    return pixels.reshape(len(pixels), prod(pixels.shape[1:]))


def _convolve(
    x: Array, w: Array, stride: tuple[int, int], before: tuple[int, int], dilation: tuple[int, int], groups: int,
    target: FloatArray,
) -> None:  # fmt: skip
    """Compute all windows of `target`; pixels outside x are 0."""
    run = runtime.run()
    strict = True  # one chain of fused multiply-adds, for every algorithm
    _core.conv2d(run, core_view(x), core_view(w), None, stride, before, dilation, groups, None, target, None, strict)


class _Phase:
    """The pixels of one axis with one remainder, and the convolution along that axis that gives them."""

    def __init__(self, window: Window, axis: int, size: int, remainder: int) -> None:
        stride, dilation, before = window.stride[axis], window.dilation[axis], window.before[axis]
        taps, common = window.kernel[axis], gcd(stride, dilation)
        first = -((remainder - before) // stride)  # in u = remainder + stride t, the smallest t that is on the image
        self.pixels = slice(remainder + stride * first - before, size, stride)
        step = stride // common
        start = next((r for r in range(min(step, taps)) if (r * dilation - remainder) % stride == 0), None)
        self.taps: slice | None = None
        if start is None:
            return
        count = -(-(taps - start) // step)
        last = start + (count - 1) * step
        self.taps = slice(last, None if start == 0 else start - 1, -step)
        self.dilation = dilation // common
        ahead = (last * dilation - remainder) // stride - first
        self.before, self.skip = max(ahead, 0), max(-ahead, 0)


@lru_cache(maxsize=1024)
def _phases(window: Window, axis: int, size: int) -> list[_Phase]:
    stride, before = window.stride[axis], window.before[axis]
    remainders = {(i + before) % stride for i in range(min(size, stride))}
    return [_Phase(window, axis, size, remainder) for remainder in sorted(remainders)]


def _dense(value: object, name: str) -> Array:
    if isinstance(value, PackedArray):
        raise WrongType(f"{name} is packed, expected the values that were multiplied: call dequantize()")
    return as_array(value, name)


def _size(value: object, name: str) -> tuple[int, int]:
    pair = as_pair(value, name)
    if min(pair) < 0:
        raise WrongValue(f"{name} is {shown(value)}, expected 0 or more")
    return pair


def _check_layout(layout: object, name: str) -> None:
    if check_text(name, "layout", layout) not in ("NCHW", "NHWC"):
        raise WrongValue(f"{name}: layout is {shown(layout)}, expected 'NCHW' or 'NHWC'")


def _checked_gradient(dy: Array, filters: int, window: Window, layout: Any, name: str) -> Array:
    """Return dy as (N, K, P, Q)."""
    _check_layout(layout, name)
    if dy.ndim != 4:
        raise WrongValue(f"{name}: dy has shape {dy.shape}, expected four dimensions, {' '.join(layout)}")
    nchw = dy if layout == "NCHW" else dy.transpose(0, 3, 1, 2)
    if nchw.shape[1:] != (filters, *window.answer):
        wanted = f"{filters} filters and {shown(window.answer[0])} x {shown(window.answer[1])} windows"
        raise WrongValue(f"{name}: dy has shape {dy.shape} as {layout}, expected {wanted}")
    return nchw


def _channels_last(nchw: Array) -> Array:
    return np.ascontiguousarray(converted(nchw, np.float32).transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def _images_last(nchw: Array) -> Array:
    """Return (N, C, H, W) as (C, N, H, W), whose second axis is contiguous."""
    single = converted(nchw, np.float32)
    n, channels, height, width = single.shape
    last = np.empty((channels, height, width, n), np.float32)
    for i in range(n):  # faster than a transposition, whose inner loop is over the images
        last[..., i] = single[i]
    return last.transpose(0, 3, 1, 2)
