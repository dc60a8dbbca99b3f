"""Quantize, measure and multiply: names, defaults and docstrings. The work is in the C core.

Every array argument may be an ndarray or anything with ``__dlpack__`` (on the CPU) or ``__array__``: float16,
bfloat16, float32 or float64, any strides, no copy. Answers are float32 ndarrays.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, inf, isfinite, log10, nan, prod, sqrt
from typing import Any

import numpy as np

from . import _heterocompute as _core
from . import runtime
from .arrays import Prepacked, QuantizedArray, as_array, core_format, core_view, normalize_axes
from .formats import Format
from .formats import format as parse_format

__all__ = ["Error", "conv2d", "error", "fake_quantize", "linear", "matmul", "prepack", "quantize"]

Array = np.ndarray[Any, Any]
FloatArray = np.ndarray[Any, np.dtype[np.float32]]

ALGORITHMS = ("im2col",)
LATER_ALGORITHMS = ("implicit", "direct", "winograd2", "winograd4", "winograd6", "fft")


def _as_format(fmt: Any, name: str) -> Format:
    if isinstance(fmt, Format):
        return fmt
    if isinstance(fmt, str):
        return parse_format(fmt)
    raise TypeError(f"{name}: wanted a format or its text, got {type(fmt).__name__}")


def _core_clip(clip: Any, name: str) -> tuple[int, float] | None:
    """Return None, or (kind, value) as csrc/hc.h numbers them."""
    if clip is None:
        return None
    if isinstance(clip, str):
        if clip == "octav":
            return 3, 0.0
        kind, _, text = clip.partition(":")
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if kind != "percentile" or not 0.0 <= value <= 100.0:
            raise ValueError(f"{name}: clip is {clip!r}, wanted 'octav' or 'percentile:p' with p from 0 to 100")
        return 2, value
    if isinstance(clip, (bool, np.bool_)) or not isinstance(clip, (int, float, np.floating, np.integer)):
        raise TypeError(f"{name}: clip is {clip!r}, wanted None, a number or a text")
    if not 0.0 < clip <= 1.0:
        raise ValueError(f"{name}: clip is {clip!r}, wanted a fraction above 0 and at most 1")
    return 1, float(clip)


def _new_packed(fmt: Format, shape: tuple[int, ...], axes: tuple[int, ...]) -> dict[str, Array]:
    layout = _core.layout(core_format(fmt), shape, axes)
    return {name: np.empty(size, dtype) for name, (dtype, size, _) in layout.items()}


def quantize(w: Any, fmt: Format | str, axis: int | tuple[int, ...] = -1, clip: Any = None) -> QuantizedArray:
    """Quantize an array: round its values to a number format and pack the codes.

    Parameters
    ----------
    w : array_like
        float16, bfloat16, float32 or float64, any shape with at least one dimension, any strides.
    fmt : Format or str
        For example ``"int8"``, ``"int4-g32-f16"`` or ``hc.VSQ(bits=4, group=16)``.
    axis : int or tuple of int
        The reduction axes: those that a product sums over. One row is one index of the other axes; groups run along
        the last axis named and never cross to the next index of the others. A convolution weight (K, C, R, S) takes
        ``axis=(2, 3, 1)``.
    clip : None, float, "octav" or "percentile:p"
        None scales by the largest magnitude; a fraction in (0, 1] of it; the p-th percentile of the magnitudes; or
        the threshold of least squared error (Sakr et al., "Optimal Clipping and Magnitude-aware Differentiation
        for Improved Quantization-aware Training", ICML 2022).

    Returns
    -------
    QuantizedArray

    Raises
    ------
    TypeError
        w holds no floats, or is a QuantizedArray.
    ValueError
        w holds a NaN or an infinity (the sentence has the index of the first), an unknown format or axis.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> q = hc.quantize(np.linspace(-1, 1, 32, dtype=np.float32), "vsq4-g16-s4")
    >>> q.nbytes, q.bits_per_value
    (21, 5.25)
    """
    fmt = _as_format(fmt, "quantize: fmt")
    x = as_array(w, "quantize: w")
    axes = normalize_axes(axis, x.ndim, "quantize")
    components = _new_packed(fmt, x.shape, axes)
    packed = (core_format(fmt), x.shape, axes, components)
    _core.quantize(runtime.run(), core_view(x), _core_clip(clip, "quantize"), packed)
    return QuantizedArray(components, fmt, x.shape, axes, x.dtype.name)


@contextmanager
def _caller_index(value: Array, name: str) -> Iterator[None]:
    """Let the sentence on a NaN or an infinity name the caller's argument and the index there."""
    try:
        yield
    except ValueError as error:
        if " at index " not in str(error):
            raise
        beyond = ""
        illegal = ~np.isfinite(value)
        if not illegal.any():
            beyond = ", beyond float32's largest"
            with np.errstate(over="ignore"):
                illegal = ~np.isfinite(value.astype(np.float32))
        index = tuple(int(i) for i in np.unravel_index(illegal.argmax(), value.shape))
        raise ValueError(f"{name} has {float(value[index])} at index {index}{beyond}") from None


def _checked_out(out: Any, shape: tuple[int, ...], name: str, inputs: tuple[Any, ...]) -> FloatArray:
    """Return the plain array that `out` is, after its checks, or a new one."""
    if out is None:
        return np.empty(shape, np.float32)
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{name}: out is {type(out).__name__}, wanted a float32 array")
    plain: FloatArray = np.asarray(out)
    if plain.dtype != np.float32:
        raise TypeError(f"{name}: out is {plain.dtype}, wanted a float32 array")
    if plain.shape != shape:
        raise ValueError(f"{name}: out has shape {plain.shape}, wanted {shape}")
    if not plain.flags.writeable:
        raise ValueError(f"{name}: out is read-only")
    if not plain.flags.aligned or not plain.dtype.isnative:
        raise ValueError(f"{name}: out is not an aligned array in native byte order")
    if not _distinct(plain):
        raise ValueError(f"{name}: elements of out share memory with each other")
    for value in inputs:
        parts = value.components.values() if isinstance(value, QuantizedArray) else (value,)
        if any(_overlap(plain, part) for part in parts if isinstance(part, np.ndarray)):
            raise ValueError(f"{name}: out shares memory with an input")
    return plain


def _distinct(array: Array) -> bool:
    """Tell whether no two elements can lie at one address: strides, sorted, step over each other."""
    dims = sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1)
    reach = array.itemsize
    for stride, n in dims:
        if stride < reach:
            return not array.size
        reach += stride * (n - 1)
    return True


def _overlap(a: Array, b: Array) -> bool:
    try:
        return bool(np.shares_memory(a, b, max_work=10_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def fake_quantize(
    w: Any, fmt: Format | str, axis: int | tuple[int, ...] = -1, clip: Any = None, out: Any = None
) -> FloatArray:
    """Round an array to a number format and return the values: quantize and dequantize in one pass.

    Parameters
    ----------
    w, fmt, axis, clip
        As in `quantize`.
    out : ndarray, optional
        float32 of w's shape; may be `w` itself, else it must share no memory with it.

    Returns
    -------
    ndarray of float32

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.fake_quantize(np.float32([0.0, 0.4, 0.7, -1.0]), "int2")
    array([ 0.,  0.,  1., -1.], dtype=float32)
    """
    fmt = _as_format(fmt, "fake_quantize: fmt")
    x = as_array(w, "fake_quantize: w")
    axes = normalize_axes(axis, x.ndim, "fake_quantize")
    clipped = _core_clip(clip, "fake_quantize")
    result = _checked_out(out, x.shape, "fake_quantize", () if out is w else (x,))
    _core.fake_quantize(runtime.run(), core_view(x), core_format(fmt), axes, clipped, result)
    return result if out is None else out


@dataclass(frozen=True)
class Error:
    """How far an array is from the original.

    Attributes
    ----------
    sqnr_db : float
        ``10 log10(sum w^2 / sum (w - q)^2)``; infinity where the two are equal, NaN where either holds a NaN or an
        infinity.
    mse : float
        Mean squared error.
    max_abs : float
        Largest magnitude of the difference.
    cosine : float
        Cosine of the angle between the two; 1 where either is all zero and they are equal, else 0 there.
    bits_per_value : float
        Stored bits a value of the second.
    """

    sqnr_db: float
    mse: float
    max_abs: float
    cosine: float
    bits_per_value: float


def error(w: Any, q: Any) -> Error:
    """Compare an array with its quantized form.

    Parameters
    ----------
    w : array_like
        The original.
    q : QuantizedArray or array_like
        Of the same shape.

    Returns
    -------
    Error
        Sums are float64 in a fixed order, the same on every machine.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> w = np.random.default_rng(0).standard_normal((64, 64), dtype=np.float32)
    >>> round(hc.error(w, hc.quantize(w, "int8")).sqnr_db)
    44
    """
    x = as_array(w, "error: w")
    y = q.dequantize() if isinstance(q, QuantizedArray) else as_array(q, "error: q")
    if x.shape != y.shape:
        raise ValueError(f"error: w has shape {x.shape} and q has shape {y.shape}")
    xx, ee, xy, yy, max_abs = _core.compare(runtime.run(), core_view(x), core_view(y))
    bits = q.bits_per_value if isinstance(q, QuantizedArray) else 8.0 * y.itemsize
    norm = sqrt(xx) * sqrt(yy)
    if not isfinite(ee):  # a NaN or an infinity on either side, or beyond float64
        return Error(nan, ee, ee if np.isnan(ee) else max_abs, nan, bits)
    sqnr = inf if ee == 0 else 10 * (log10(xx) - log10(ee)) if xx > 0 else -inf
    cosine = xy / norm if norm > 0 else float(ee == 0)
    return Error(sqnr, ee / max(x.size, 1), max_abs, cosine, bits)


def _operand(value: Any, name: str) -> Any:
    return value if isinstance(value, QuantizedArray) else as_array(value, name)


def _core_operand(value: Any) -> Any:
    return value._packed() if isinstance(value, QuantizedArray) else core_view(value)


def _as_matrix(value: Any, column: bool) -> Any:
    """Give a vector its second axis, as a row or a column; its reduction axis keeps its place."""
    if value.ndim != 1:
        return value
    if not isinstance(value, QuantizedArray):
        return value[:, None] if column else value[None, :]
    shape = (value.shape[0], 1) if column else (1, value.shape[0])
    return QuantizedArray(value.components, value.format, shape, (0,) if column else (1,), value.source_dtype)


def _product_shape(a: Any, b: Any, name: str) -> tuple[int, ...]:
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"{name}: b has {b.shape[-2]} rows but a has {a.shape[-1]} columns")
    try:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(
            f"{name}: leading dimensions {a.shape[:-2]} of a and {b.shape[:-2]} of b do not broadcast"
        ) from None
    shape = (*lead, a.shape[-2], b.shape[-1])
    if prod(shape) > 2**60:
        raise ValueError(f"{name}: an answer of shape {shape} overflows the size of an array")
    return shape


def _multiply(a: Any, b: Any, activations: Format | None, bias: Array | None, out: FloatArray) -> None:
    """Fill `out` (two dimensions or more) with a @ b + bias."""
    dense = not isinstance(a, QuantizedArray) and not isinstance(b, QuantizedArray)
    if dense and runtime.use_blas() and _blas_product(a, b, out):
        if bias is not None:
            out += bias
        return
    fmt = core_format(activations) if activations else None
    _core.matmul(runtime.run(), _core_operand(a), _core_operand(b), fmt, bias, out)


def _blas_product(a: Array, b: Array, out: FloatArray) -> bool:
    """Hand a dense product to the BLAS, matrix by matrix; False where it cannot take the sizes."""
    if not out.size or not a.shape[-1]:
        return False
    threads = runtime.get_num_threads()
    a32, b32 = a.astype(np.float32, copy=False), b.astype(np.float32, copy=False)
    if b.ndim == 2 and a.ndim > 2 and a32.flags.c_contiguous and out.flags.c_contiguous:
        a32, out = a32.reshape(-1, a.shape[-1]), out.reshape(-1, b.shape[-1])
    lead = out.shape[:-2]
    a32 = np.broadcast_to(a32, (*lead, *a32.shape[-2:]))
    b32 = np.broadcast_to(b32, (*lead, *b32.shape[-2:]))
    for index in np.ndindex(lead):
        left, right, target = a32[index], b32[index], out[index]
        if _core.blas_sgemm(threads, left, right, target):
            continue
        # Strides that a BLAS does not take: a copy of one matrix at a time.
        whole = np.empty(target.shape, np.float32)
        if not _core.blas_sgemm(threads, np.ascontiguousarray(left), np.ascontiguousarray(right), whole):
            return False
        target[...] = whole
    return True


def _checked_product(
    a: Any, b: Any, activations: Any, bias: Array | None, out: Any, name: str, inputs: tuple[Any, ...]
) -> FloatArray:
    left_name = f"{name}: {'x' if name == 'linear' else 'a'}"
    for value, label in ((a, left_name), (b, f"{name}: b")):
        if value.ndim == 0:
            raise ValueError(f"{label} has no dimensions")
    if isinstance(a, QuantizedArray) and a.axis != (a.ndim - 1,):
        raise ValueError(f"{left_name} is quantized along axis {a.axis}, its reduction axis is {a.ndim - 1}")
    if isinstance(b, QuantizedArray) and b.axis != (max(b.ndim - 2, 0),):
        raise ValueError(f"{name}: b is quantized along axis {b.axis}, its reduction axis is {max(b.ndim - 2, 0)}")
    left, right = _as_matrix(a, column=False), _as_matrix(b, column=True)
    full = _product_shape(left, right, name)
    shape = full[: len(full) - 2] + (full[-2:-1] if a.ndim > 1 else ()) + (full[-1:] if b.ndim > 1 else ())
    result = _checked_out(out, shape, name, inputs)
    target = result
    if b.ndim == 1:
        target = target[..., None]
    if a.ndim == 1:
        target = target[..., None, :]
    dense, label = (b, f"{name}: b") if isinstance(a, QuantizedArray) else (a, left_name)
    with _caller_index(dense, label):
        _multiply(left, right, activations, bias, target)
    return result if out is None else out


def matmul(a: Any, b: Any, activations: Format | str | None = None, out: Any = None) -> FloatArray:
    """Multiply two arrays, either of which may be quantized: ``a @ b``.

    Parameters
    ----------
    a, b : array_like or QuantizedArray
        Shapes as in `numpy.matmul`, leading dimensions broadcast. A quantized one is quantized along its reduction
        axis: the last of a, the last but one of b.
    activations : Format or str, optional
        Quantize the dense operand on the fly, row by row along the reduction axis, and multiply integers.
    out : ndarray, optional
        float32 of the answer's shape, sharing no memory with an input.

    Returns
    -------
    ndarray of float32
        Two integer operands give the exact integer sum, scaled once. The bits are the same for every instruction
        set and number of threads, except where both operands are dense: that product is OpenBLAS's (``hc.use(blas=
        "own")`` keeps it here). Working memory: under 64 MiB beside the answer.

    Raises
    ------
    ValueError
        Shapes that do not fit, a quantized axis that is not the reduction axis, `activations` without a dense operand
        beside a quantized one.

    Notes
    -----
    The integer product is equation 5 of Dai et al., "VS-Quant", MLSys 2021 (arXiv 2102.04503).

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> x = np.ones((2, 32), np.float32)
    >>> q = hc.quantize(np.ones((3, 32), np.float32), "vsq4-g16-s4")
    >>> hc.matmul(x, q.T, activations="int8")
    array([[32., 32., 32.],
           [32., 32., 32.]], dtype=float32)
    """
    left, right = _operand(a, "matmul: a"), _operand(b, "matmul: b")
    fmt = None if activations is None else _as_format(activations, "matmul: activations")
    if fmt is not None:
        quantized = isinstance(left, QuantizedArray) + isinstance(right, QuantizedArray)
        if quantized != 1:
            which = "both operands are quantized" if quantized else "neither operand is quantized"
            raise ValueError(f"matmul: activations needs one dense and one quantized operand; {which}")
    return _checked_product(left, right, fmt, None, out, "matmul", (left, right))


def _as_bias(bias: Any, n: int, name: str) -> Array | None:
    if bias is None:
        return None
    array = as_array(bias, f"{name}: bias")
    if array.shape != (n,):
        raise ValueError(f"{name}: bias has shape {array.shape}, wanted ({n},)")
    return array.astype(np.float32, copy=False)


def linear(x: Any, w: Any, bias: Any = None, activations: Format | str | None = None, out: Any = None) -> FloatArray:
    """Apply a linear layer: ``x @ w.T + bias``.

    Parameters
    ----------
    x : array_like or QuantizedArray, shape (..., in_features)
    w : array_like or QuantizedArray, shape (out_features, in_features)
    bias : array_like, shape (out_features,), optional
        Added last.
    activations : Format or str, optional
        Quantize x on the fly. Where w is dense, x is rounded to the format and the dense product is taken.
    out : ndarray, optional
        As in `matmul`.

    Returns
    -------
    ndarray of float32, shape (..., out_features)

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.linear(np.float32([1, 2]), np.float32([[1, 1], [0, 1]]), bias=np.float32([0, 10]))
    array([ 3., 12.], dtype=float32)
    """
    left, weights = _operand(x, "linear: x"), _operand(w, "linear: w")
    if weights.ndim != 2:
        raise ValueError(f"linear: w has shape {weights.shape}, wanted (out_features, in_features)")
    if left.ndim and left.shape[-1] != weights.shape[1]:
        raise ValueError(f"linear: x has {left.shape[-1]} features but w has {weights.shape[1]} columns")
    if isinstance(weights, QuantizedArray) and weights.axis != (1,):
        raise ValueError(f"linear: w is quantized along axis {weights.axis}, its reduction axis is 1")
    if left.ndim == 0:
        raise ValueError("linear: x has no dimensions")
    fmt = None if activations is None else _as_format(activations, "linear: activations")
    if fmt is not None and isinstance(left, QuantizedArray):
        raise ValueError("linear: activations is for a dense x, this one is quantized")
    bias_array = _as_bias(bias, weights.shape[0], "linear")
    inputs = (left, weights) if bias_array is None else (left, weights, bias_array)
    if fmt is not None and not isinstance(weights, QuantizedArray):
        with _caller_index(left, "linear: x"):
            left, fmt = fake_quantize(left, fmt), None
    return _checked_product(left, weights.T, fmt, bias_array, out, "linear", inputs)


def prepack(w: QuantizedArray) -> Prepacked:
    """Prepare quantized weights for many products with quantized activations.

    A product of many rows unpacks the weights each time; here that is done once, for the instruction sets of this
    context. Products with up to 8 vectors, and those without `activations`, read the components as ever.

    Parameters
    ----------
    w : QuantizedArray

    Returns
    -------
    Prepacked
        Taken wherever w is, with the same bits. Memory: about a byte a value, beside w.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> q = hc.quantize(np.eye(32, 64, dtype=np.float32), "vsq4-g16-s4")
    >>> x = np.ones((9, 64), np.float32)
    >>> y = hc.linear(x, hc.prepack(q), activations="int8")
    >>> bool((y == hc.linear(x, q, activations="int8")).all())
    True
    """
    if not isinstance(w, QuantizedArray):
        raise TypeError(f"prepack: w is a {type(w).__name__}, wanted a QuantizedArray")
    source = w.source if isinstance(w, Prepacked) else w
    return Prepacked(source, _core.prepack(runtime.run(), source._packed()))


def _pair(value: Any, name: str) -> tuple[int, int]:
    try:
        pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
        if len(pair) != 2 or any(isinstance(v, bool) for v in pair):
            raise TypeError
        return int(pair[0].__index__()), int(pair[1].__index__())
    except (TypeError, AttributeError):
        raise TypeError(f"conv2d: {name} is {value!r}, wanted an int or a pair of ints") from None


def _group_count(groups: Any, channels: int) -> int:
    try:
        if isinstance(groups, bool):
            raise TypeError
        count = operator.index(groups)
    except TypeError:
        raise TypeError(f"conv2d: groups is {groups!r}, wanted an int") from None
    if count < 1 or channels % count:
        raise ValueError(f"conv2d: groups is {count}, wanted a divisor of the {channels} channels of x")
    return count


def _window(size: int, kernel: int, stride: int, dilation: int, padding: int | str) -> tuple[int, int]:
    """Return (padding before, size of the answer) along one axis."""
    reach = dilation * (kernel - 1) + 1
    if padding == "same":
        answer = ceil(size / stride)
        return max((answer - 1) * stride + reach - size, 0) // 2, answer
    before = 0 if padding == "valid" else int(padding)
    return before, max((size + 2 * before - reach) // stride + 1, 0)


def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] | str = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    activations: Format | str | None = None,
    algorithm: str = "auto",
    layout: str = "NCHW",
    out: Any = None,
) -> FloatArray:
    """Convolve images with filters (cross-correlation, as every network library means it).

    Parameters
    ----------
    x : array_like, shape (N, C, H, W), or (N, H, W, C) with ``layout="NHWC"``
    w : array_like or QuantizedArray, shape (K, C / groups, R, S)
        Quantized with ``axis=(2, 3, 1)``: one row a filter, groups along the channels.
    bias : array_like, shape (K,), optional
        Added last.
    stride, dilation : int or pair
    padding : int, pair, "same" or "valid"
        Padding has the value 0 and is no part of x's largest magnitude.
    groups : int
        Channels of x, and filters, are split into so many independent convolutions.
    activations : Format or str, optional
        Quantize x on the fly: one row an image, groups along the channels inside one convolution group.
    algorithm : {"auto", "im2col"}
    layout : {"NCHW", "NHWC"}
        Of x and of the answer.
    out : ndarray, optional
        As in `matmul`.

    Returns
    -------
    ndarray of float32, shape (N, K, P, Q), or (N, P, Q, K)
        Sums run over r, s, c ascending; the bits are the same for every instruction set and number of threads.
        Windows are gathered while they are multiplied: working memory stays under 64 MiB, and for `activations` the
        codes of one image where those are more.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> x = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    >>> hc.conv2d(x, np.ones((1, 1, 2, 2), np.float32))[0, 0]
    array([[ 8., 12.],
           [20., 24.]], dtype=float32)
    """
    image = as_array(x, "conv2d: x")
    filters = _operand(w, "conv2d: w")
    if algorithm in LATER_ALGORITHMS:
        raise NotImplementedError(f"conv2d: there is no algorithm {algorithm!r} yet, only {', '.join(ALGORITHMS)}")
    if algorithm != "auto" and algorithm not in ALGORITHMS:
        raise ValueError(f"conv2d: algorithm is {algorithm!r}, wanted 'auto' or one of {', '.join(ALGORITHMS)}")
    if layout not in ("NCHW", "NHWC"):
        raise ValueError(f"conv2d: layout is {layout!r}, wanted 'NCHW' or 'NHWC'")
    if image.ndim != 4 or filters.ndim != 4:
        wrong = f"x has shape {image.shape}" if image.ndim != 4 else f"w has shape {filters.shape}"
        raise ValueError(f"conv2d: {wrong}, wanted four dimensions")
    if isinstance(padding, str) and padding not in ("same", "valid"):
        raise ValueError(f"conv2d: padding is {padding!r}, wanted an int, a pair, 'same' or 'valid'")
    nchw = image if layout == "NCHW" else image.transpose(0, 3, 1, 2)
    strides, dilations = _pair(stride, "stride"), _pair(dilation, "dilation")
    paddings = (padding, padding) if isinstance(padding, str) else _pair(padding, "padding")
    if min(strides) < 1 or min(dilations) < 1 or any(isinstance(p, int) and p < 0 for p in paddings):
        raise ValueError(f"conv2d: stride {stride}, dilation {dilation}, padding {padding}: wanted 1, 1, 0 or more")
    if max(*strides, *dilations, *(p for p in paddings if isinstance(p, int))) > 2**30:
        raise ValueError(f"conv2d: stride {stride}, dilation {dilation}, padding {padding}: wanted at most 2^30")
    split = _group_count(groups, nchw.shape[1])
    fmt = None if activations is None else _as_format(activations, "conv2d: activations")
    before, answer = zip(
        *(_window(nchw.shape[2 + i], filters.shape[2 + i], strides[i], dilations[i], paddings[i]) for i in (0, 1)),
        strict=True,
    )
    shape = (nchw.shape[0], filters.shape[0], *answer)
    bias_array = _as_bias(bias, filters.shape[0], "conv2d")
    inputs = (image, filters) if bias_array is None else (image, filters, bias_array)
    final = shape if layout == "NCHW" else (shape[0], shape[2], shape[3], shape[1])
    result = _checked_out(out, final, "conv2d", inputs)
    target = result if layout == "NCHW" else result.transpose(0, 3, 1, 2)
    run, operand = runtime.run(), _core_operand(filters)
    with _caller_index(image, "conv2d: x"):
        if fmt is not None and not isinstance(filters, QuantizedArray):
            nchw, fmt = _round_image(nchw, fmt, split), None
        core_fmt = core_format(fmt) if fmt else None
        _core.conv2d(run, core_view(nchw), operand, bias_array, strides, before, dilations, split, core_fmt, target)
    return result if out is None else out


def _round_image(nchw: Array, fmt: Format, groups: int) -> FloatArray:
    """Round x as `activations` would quantize it: (N, G, C / G, H, W) along (1, 3, 4, 2)."""
    n, c, h, w = nchw.shape
    split = nchw.reshape(n, groups, c // groups, h, w)
    return fake_quantize(split, fmt, axis=(1, 3, 4, 2)).reshape(n, c, h, w)
