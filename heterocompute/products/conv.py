"""Convolution: `conv2d`, its arguments and defaults. The work is in the C core."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from .. import _heterocompute as _core
from ..arrays.array_like import ArrayLike
from ..arrays.components import core_format
from ..arrays.prepacked import Prepacked, PrepackedFilters
from ..arrays.quantized import QuantizedArray
from ..arrays.rotated import RotatedArray
from ..arrays.sparse import SparseArray
from ..base import runtime
from ..base.devices import A_DEVICE, NAME
from ..base.errors import TO_CPU, Refused, Unsupported, WrongType, WrongValue, refusals, shown
from ..base.float_env import converted, counts_subnormals
from ..base.runtime import plain_run
from ..base.values import check_text
from ..formats import Format
from .arguments import FloatArray, core_operand, tell, turned
from .given.rotated import rotated_images
from .matmul import _along, as_activations, core_formats
from .place import HERE, Here, place_of
from .quantize import quantize
from .tuned import choice, product_key
from .window import Padding, Window, as_window, check_channels

__all__ = ["conv2d"]

ERRORS = {name: error for name, _, error in _core.conv_algorithms()}  # approximate, relative to one sum over r, s, c
ALGORITHMS = tuple(ERRORS)
DIRECT = frozenset((np.ndarray, QuantizedArray, SparseArray))  # filters of which the core has a view


def conv2d(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    stride: int | tuple[int, int] = 1,
    padding: Padding = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    activations: Format | str | None = None,
    algorithm: str = "auto",
    layout: str = "NCHW",
    out: Any = None,
    relu: bool = False,
    accuracy: str = "default",
) -> FloatArray:
    """Convolve images with filters and return the feature maps (cross-correlation, as in neural networks).

    Parameters
    ----------
    x : array_like, shape (N, C, H, W), or (N, H, W, C) with ``layout="NHWC"``
    w : array_like or QuantizedArray, shape (K, C / groups, R, S)
        Quantize with ``axis=(2, 3, 1)``: one row per filter, groups along the channels. Filters from `prepack` are
        packed once instead of at each call.
    bias : array_like, shape (K,), optional
        Added after the convolution.
    stride, dilation : int or pair
    padding : int, pair, two pairs, "same" or "valid"
        (vertical, horizontal), or ((top, bottom), (left, right)). "same" gives one window per stride; an odd pixel of
        padding is added at the bottom and right. Padding is 0 and does not count for x's largest magnitude.
    groups : int
        Number of independent convolutions that the channels of x and the filters are split into.
    activations : Format or str, optional
        Quantize x on the fly: one row per image, groups along the channels within one convolution group.
    algorithm : {"auto", "direct", "depthwise", "planes", "implicit", "im2col", "winograd2", "winograd4", ...}
        "auto" selects the algorithm with the least estimated time. See Notes.
    layout : {"NCHW", "NHWC"}
        Layout of x and of the result.
    out : ndarray, optional
        As in `matmul`.
    relu : bool
        Set negative values to +0 as the last step. NaN stays NaN.
    accuracy : {"default", "strict"}
        Algorithms that "auto" may select, tuned or not. "default" allows "winograd4", with about 13 times the error of
        one sum over r, s, c, and "fft", with about 3 times for small filters. It excludes "winograd6". "strict"
        excludes every algorithm with a larger error than one sum. Packed filters are always strict.

    Returns
    -------
    ndarray of float32, shape (N, K, P, Q), or (N, P, Q, K)
        Sums run over r, s, c ascending, except in Winograd algorithms and "fft". There a NaN or infinity reaches all
        results of a tile. Results are bitwise identical for every instruction set and number of threads, except the
        sign of a NaN.

    Raises
    ------
    ValueError
        The shapes do not match, a padding is negative, a stride or dilation is 0, a dilation is larger than the padded
        image, the algorithm does not apply to these filters, w is quantized or pruned along another axis, or a filter
        has 2^31 values or more.
    TypeError
        An operand is not a float array, or an argument has the wrong type.

    Notes
    -----
    Algorithms:

    - "direct" reads the windows in place.
    - "implicit" is a GEMM whose rows are the windows of x, gathered panel by panel.
    - "im2col" stores the windows first, 16 MiB at a time. It serves as a comparison.
    - "depthwise" applies to groups of 1, 2, 4 or 8 channels and as many filters.
    - "planes" reads the planes of an NCHW image in place or in bands. It applies to floats.
    - "winograd2", "winograd4" and "winograd6" are F(2 x 2), F(4 x 4) and F(6 x 6, 3 x 3). 1 x 3 and 3 x 1 filters use
      them in one dimension. 3 x 3, 5 x 5 and 7 x 7 filters with stride 2 use tiles of as many pixels per image phase.
    - "fft" multiplies Fourier transforms of tiles. It suits large filters, which may reach over at most 64 pixels.

    "direct", "depthwise", "planes", "implicit" and "im2col" give bitwise identical results. With `activations`,
    "im2col" does not apply, "planes" applies to 8-bit integers, and "direct" to these and to all formats that are
    summed as floats. "depthwise" applies to all of them and to formats with one scale per tap. "winograd2" and
    "winograd4" sum 8-bit integers exactly, for 3 x 3 filters with stride 1.

    On float operands, the Winograd algorithms and "fft" round differently. Mean error against float64, relative to
    "direct":

    ============================== ========= ========= =========
    filters                        winograd2 winograd4 winograd6
    ============================== ========= ========= =========
    3 x 3, 1 channel                 2         9        20
    3 x 3, 64 channels               0.7       3         7
    3 x 3, stride 2, 1 channel       2         9        27
    3 x 3, stride 2, 64 channels     1.2       5        14
    ============================== ========= ========= =========

    For "fft" it is 2.7 and 0.6 for 3 x 3, 1.5 and 0.3 for 7 x 7, with 1 and 64 channels.

    For float operands the shapes alone decide between one chain per output, "winograd2", "winograd4" and "fft", never
    "winograd6". The layout decides between the algorithms with one chain. With `activations` the estimate also depends
    on the processor; all algorithms then give bitwise identical results.

    Working memory: under 64 MiB. "direct" uses less than 1 MiB per thread and 12 MiB of packed weights, or 40 MiB for
    integers. Winograd uses 2 MiB per thread, more above 512 channels, and 20 MiB of transformed filters and tiles.
    "fft" uses 48 MiB for transformed filters and tiles, and some MiB per thread. If they are larger, add a copy of the
    rows of x under one row of results, and for `activations` the codes of one image, or its rounded values for float
    sums. Only "im2col" stores windows.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> x = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    >>> hc.conv2d(x, np.ones((1, 1, 2, 2), np.float32))[0, 0]
    array([[ 8., 12.],
           [20., 24.]], dtype=float32)
    """
    if type(x) is np.ndarray and type(w) in DIRECT and (run := plain_run()) is not None:
        fmt = None
        known = type(activations) is str or isinstance(activations, Format)
        if activations is None or (known and (fmt := core_formats.get(activations)) is not None):
            answer = _core.direct_conv2d(
                run, x, w, bias, stride, padding, dilation, groups, fmt, algorithm, layout, out, relu, accuracy
            )
            if answer is not None:
                return answer
    return _conv2d(x, w, bias, stride, padding, dilation, groups, activations, algorithm, layout, out, relu, accuracy)


@counts_subnormals
def _conv2d(
    x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any, activations: Any, algorithm: Any,
    layout: Any, out: Any, relu: Any, accuracy: Any,
) -> FloatArray:  # fmt: skip
    """Compute `conv2d` for arguments of every kind."""
    if isinstance(w, RotatedArray):
        x, w = rotated_images(x, w, groups, layout)
    call = prepared(
        "conv2d", x, w, bias, stride, padding, dilation, groups, activations, algorithm, layout, out, relu, accuracy
    )
    if call.place is not HERE:
        if call.result.size:
            with call.place.refusals("conv2d", "conv2d: x", call.image, activations):
                _core.conv2d(*call.core)
        placed: FloatArray = call.place.answer(call.result, x, out)
        return placed
    if hasattr(w, "_hear"):
        nchw, window = call.image if layout == "NCHW" else call.image.transpose(0, 3, 1, 2), call.window
        tell(w, 1, nchw, (window.stride, window.before, window.dilation, window.groups, window.answer))
    way = choice(convolution_key(call)) if algorithm == "auto" and runtime.tuned() else None
    ready = w._filters if isinstance(w, Prepacked if call.core[8] else PrepackedFilters) else None
    with refusals(x=("conv2d: x", call.image)), _first_refused(call.image, activations):
        if way not in ALGORITHMS or not _convolved(call, way, ready):
            _core.conv2d(*(*call.core, ready))
    return call.result if out is None else out


class Call(NamedTuple):
    """A convolution with checked arguments.

    Attributes
    ----------
    image : ndarray
        x as the caller passed it.
    result : ndarray
        The array that conv2d returns.
    core : tuple
        Arguments of the core's functions.
    """

    image: Any
    filters: Any
    result: FloatArray
    window: Window
    core: tuple[Any, ...]
    place: Here

    def arguments_for(self, algorithm: str) -> tuple[Any, ...]:
        """Return the arguments of the core with a named algorithm in place of its own choice."""
        return (*self.core[:-3], algorithm, *self.core[-2:])


def convolution_key(call: Call) -> str:
    """Return the key under which `tune` keeps the times of a convolution."""
    nchw, window, activations, strict = call.core[1], call.window, call.core[8], call.core[11]
    where = (window.stride, window.before, window.dilation, window.groups, window.answer)
    return product_key("conv2d", nchw, call.filters, activations, *where, f"strict {strict}")


def _convolved(call: Call, way: str, ready: object) -> bool:
    """Use the path that was tuned; return False if these values do not allow it."""
    core = call.arguments_for(way)
    try:
        _core.conv2d(*(*core, ready))
    except ValueError:
        return False
    return True


@contextmanager
def _first_refused(image: Any, activations: object) -> Iterator[None]:
    """Report the first refused value in C order of x as the caller gave it, whatever view the core read."""
    try:
        yield
    except Refused as error:
        if error.index is None:
            raise
        if np.isfinite(error.value):
            with np.errstate(over="ignore"):
                refused = np.isinf(converted(image, np.float32))
        else:
            refused = np.zeros(image.shape, np.bool_)
            for value in (np.nan, np.inf, -np.inf):
                if not _is_legal(value, activations):
                    refused |= np.isnan(image) if value != value else image == value
        index = tuple(int(i) for i in np.unravel_index(refused.argmax(), image.shape))
        raise Refused(error.argument, index, float(image[index]), error.text) from None


def _is_legal(value: float, fmt: Any) -> bool:
    try:
        quantize(np.array([value], np.float32), fmt)
    except ValueError:
        return False
    return True


def prepared(
    caller: str,
    x: Any,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    stride: object = 1,
    padding: object = 0,
    dilation: object = 1,
    groups: object = 1,
    activations: object = None,
    algorithm: object = "auto",
    layout: Any = "NCHW",
    out: object = None,
    relu: object = False,
    accuracy: object = "default",
) -> Call:
    """Check the arguments of `conv2d` and make the answer's array; `caller` is the function that errors name."""
    place = place_of(caller, x, w, x=x, w=w, bias=bias, out=out)
    if place is not HERE:
        _check_device(caller, w, algorithm)
    image = place.images(x, f"{caller}: x")
    filters = place.operand(w, f"{caller}: w")
    _check_words(caller, layout, relu, accuracy)
    if image.ndim != 4:
        raise WrongValue(f"{caller}: x has shape {image.shape}, expected four dimensions, {' '.join(layout)}")
    if filters.ndim != 4:
        raise WrongValue(f"{caller}: w has shape {filters.shape}, expected four dimensions, (K, C / groups, R, S)")
    nchw = image if layout == "NCHW" else turned(image, (0, 3, 1, 2))
    window = as_window(caller, nchw.shape[2:], filters.shape[2:], stride, padding, dilation, groups, nchw.shape[1])
    if place is HERE:
        _check_algorithm(caller, algorithm, window)
    else:
        check_channels(caller, window, nchw.shape[1], filters.shape)
    fmt = None if activations is None else as_activations(activations, f"{caller}: activations")
    shape = (nchw.shape[0], filters.shape[0], *window.answer)
    bias_array = place.bias(bias, filters.shape[0], caller)
    inputs = (image, filters) if bias_array is None else (image, filters, bias_array)
    final = shape if layout == "NCHW" else (shape[0], shape[2], shape[3], shape[1])
    result = place.target(out, final, caller, inputs, at_line=True)
    target = result if layout == "NCHW" else turned(result, (0, 3, 1, 2))
    filters = _along(filters, (2, 3, 1))
    where = (window.stride, window.before, window.dilation, window.groups)
    name = None if algorithm == "auto" else algorithm
    core_fmt = core_format(fmt) if fmt else None
    memory = place.memory
    added = None if bias_array is None else memory.view(bias_array)
    operands = (memory.run(), memory.view(nchw), core_operand(filters), added)
    core = (*operands, *where, core_fmt, memory.view(target), name, accuracy == "strict", bool(relu))
    return Call(image, filters, result, window, core, place)


def _check_device(caller: str, w: object, algorithm: object) -> None:
    """Refuse filters and algorithms without kernels for a device."""
    if not isinstance(w, QuantizedArray):
        raise Unsupported(
            f"{caller}: w is not quantized, expected quantized filters: {NAME} kernels have no dense convolution; "
            "quantize w along (2, 3, 1), or use torch"
        )
    if w.ndim != 4 or w.axis != (2, 3, 1):
        raise WrongValue(f"{caller}: w has shape {w.shape} and axis {w.axis}, expected four dimensions and (2, 3, 1)")
    if algorithm not in ("auto", "direct"):
        raise Unsupported(
            f"{caller}: algorithm is {shown(algorithm)}, expected 'auto' or 'direct' on {A_DEVICE}: {TO_CPU}"
        )


def _check_words(caller: str, layout: object, relu: object, accuracy: object) -> None:
    if check_text(caller, "layout", layout) not in ("NCHW", "NHWC"):
        raise WrongValue(f"{caller}: layout is {shown(layout)}, expected 'NCHW' or 'NHWC'")
    if not isinstance(relu, (bool, np.bool_)):
        raise WrongType(f"{caller}: relu is {shown(relu)}, expected a bool")
    if check_text(caller, "accuracy", accuracy) not in ("default", "strict"):
        raise WrongValue(f"{caller}: accuracy is {shown(accuracy)}, expected 'default' or 'strict'")


def _check_algorithm(caller: str, algorithm: Any, window: Window) -> None:
    if check_text(caller, "algorithm", algorithm) not in ("auto", *ALGORITHMS):
        wanted = f"'auto' or one of {', '.join(ALGORITHMS)}"
        raise WrongValue(f"{caller}: algorithm is {shown(algorithm)}, expected {wanted}")
    suited = {(1, 1): ((3, 3), (1, 3), (3, 1)), (2, 2): ((3, 3), (5, 5), (7, 7))}
    if algorithm.startswith("winograd") and (
        window.kernel not in suited.get(window.stride, ()) or window.dilation != (1, 1)
    ):
        (r, s), (down, across) = window.kernel, window.stride
        raise WrongValue(
            f"{caller}: {algorithm} is for filters of 3 x 3, 1 x 3 and 3 x 1 with stride 1, and of 3 x 3, 5 x 5 and "
            f"7 x 7 with stride 2, without dilation; w has {r} x {s}, stride {(down, across)}, "
            f"dilation {window.dilation}"
        )
