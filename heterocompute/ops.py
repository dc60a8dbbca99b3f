"""Quantize, measure and multiply: names, defaults and docstrings. The work is in the C core.

Every array argument may be an ndarray or anything with ``__dlpack__`` (on the CPU) or ``__array__``: float16,
bfloat16, float32 or float64, any strides, no copy. Answers are float32 ndarrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, log10, nan, sqrt
from typing import Any

import numpy as np

from . import _heterocompute as _core
from . import runtime
from .arguments import (
    Array,
    FloatArray,
    as_bias,
    as_format,
    as_matrix,
    as_operand,
    caller_index,
    checked_out,
    core_clip,
    core_operand,
    is_compressed,
    product_shape,
    with_text,
)
from .arrays import QuantizedArray, core_format
from .float_env import add_to, counts_subnormals
from .formats import Format, Sparse
from .inputs import as_array, core_view, normalize_axes, shown
from .sparse import SparseArray, choose

__all__ = ["Error", "error", "fake_quantize", "linear", "matmul", "quantize"]


def _new_packed(fmt: Format, shape: tuple[int, ...], axes: tuple[int, ...]) -> dict[str, Array]:
    layout = _core.layout(core_format(fmt), shape, axes)
    return {name: np.empty(size, dtype) for name, (dtype, size, _) in layout.items()}


def quantize(
    w: Any, fmt: Format | str, axis: int | tuple[int, ...] = -1, clip: Any = None, importance: Any = None
) -> QuantizedArray:
    """Quantize an array: round its values to a number format and pack the codes.

    Parameters
    ----------
    w : array_like or SparseArray
        float16, bfloat16, float32 or float64, any shape with at least one dimension, any strides. Of a SparseArray
        the kept values are quantized, along its own axis: groups run over them alone. They are float32; a format with
        a pattern, such as ``"int8+2:4"``, rounds what it keeps of a float64 array itself, once.
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
    importance : array_like, optional
        For codebooks: the weight of each value's squared error, such as the Fisher information; w's shape, finite,
        none negative. All 0 counts as all 1.

    Returns
    -------
    QuantizedArray
        A SparseArray for a pattern alone, such as ``"2:4"``.

    Raises
    ------
    TypeError
        w holds no floats, or is a QuantizedArray.
    ValueError
        w holds a NaN or an infinity (the sentence has the index of the first), an unknown format or axis, importance
        of another shape, or for a format that learns no codebook.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> q = hc.quantize(np.linspace(-1, 1, 32, dtype=np.float32), "vsq4-g16-s4")
    >>> q.nbytes, q.bits_per_value
    (21, 5.25)
    """
    fmt = as_format(fmt, "quantize: fmt")
    if importance is not None and (isinstance(fmt, Sparse) or isinstance(w, SparseArray)):
        raise ValueError(f"quantize: importance is for all values of w, {fmt} keeps some of them")
    if isinstance(w, SparseArray):
        return _quantize_kept(w, fmt, axis, clip)
    x = as_array(w, "quantize: w")
    axes = normalize_axes(axis, x.ndim, "quantize")
    if isinstance(fmt, Sparse) and fmt.is_plain:
        _refuse_clip(clip, fmt)
        with caller_index(x, "quantize: w"):
            return _pruned(x, fmt, axes)
    components = _new_packed(fmt, x.shape, axes)
    packed = (core_format(fmt), x.shape, axes, components)
    weights = None if importance is None else core_view(as_array(importance, "quantize: importance"))
    try:
        _core.quantize(runtime.run(), core_view(x), core_clip(clip, "quantize"), packed, weights)
    except ValueError as error:
        raise with_text(error, fmt) from None
    return QuantizedArray._trusted(components, fmt, x.shape, axes, x.dtype.name)


def _pruned(x: Array, fmt: Sparse, axes: tuple[int, ...]) -> SparseArray:
    try:
        return choose(x, None, fmt.n, fmt.m, axes, x.dtype.name)
    except ValueError as error:
        raise ValueError(f"{error} at index ") from None  # which one, caller_index says


def _refuse_clip(clip: Any, fmt: Sparse) -> None:
    if clip is not None:
        raise ValueError(f"quantize: clip is {shown(clip)}, but {fmt} has no scale")


def _quantize_kept(s: SparseArray, fmt: Format, axis: Any, clip: Any) -> QuantizedArray:
    """Quantize the kept values of an array, run by run; the positions are shared."""
    if not isinstance(fmt, Sparse):
        fmt = Sparse(fmt, s.n, s.m)
    if (fmt.n, fmt.m) != (s.n, s.m):
        raise ValueError(f"quantize: fmt is {fmt}, but w keeps {s.n} of every {s.m}")
    if not (type(axis) is int and axis == -1) and normalize_axes(axis, s.ndim, "quantize") != s.axis:
        raise ValueError(f"quantize: axis is {shown(axis)}, but w is pruned along axis {s.axis}")
    if fmt.is_plain:
        _refuse_clip(clip, fmt)
        return s
    values = s.components["values"]
    kept = fmt.stored_length(s.shape[s.axis[-1]])
    runs = values.reshape(len(values), values.shape[1] // max(kept, 1), kept)
    try:
        q = quantize(runs, fmt.base, axis=(1, 2), clip=clip)
    except ValueError:
        if np.isfinite(values).all():
            raise
        with caller_index(s.to_dense(), "quantize: w"):  # its place is that among all values
            raise
    parts = {**q.components, "metadata": s.components["metadata"]}
    return QuantizedArray._trusted(parts, fmt, s.shape, s.axis, s.source_dtype)


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
    fmt = as_format(fmt, "fake_quantize: fmt")
    x = as_array(w, "fake_quantize: w")
    axes = normalize_axes(axis, x.ndim, "fake_quantize")
    clipped = core_clip(clip, "fake_quantize")
    result = checked_out(out, x.shape, "fake_quantize", () if out is w else (x,))
    try:
        _core.fake_quantize(runtime.run(), core_view(x), core_format(fmt), axes, clipped, result)
    except ValueError as error:
        raise with_text(error, fmt) from None
    return result if out is None else out


@dataclass(frozen=True)
class Error:
    """How far an array is from the original.

    Attributes
    ----------
    sqnr_db : float
        ``10 log10(sum w^2 / sum (w - q)^2)``; infinity where the two are equal, NaN where either holds a NaN, or an
        infinity that the other does not hold.
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


@counts_subnormals
def error(w: Any, q: Any) -> Error:
    """Compare an array with its quantized form.

    Parameters
    ----------
    w : array_like
        The original.
    q : QuantizedArray, EIEArray or array_like
        Of the same shape.

    Returns
    -------
    Error
        Sums are float64 in a fixed order, the same on every machine. Where both hold the same infinity,
        nothing is lost: such values count as 0 in all sums.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> w = np.random.default_rng(0).standard_normal((64, 64), dtype=np.float32)
    >>> round(hc.error(w, hc.quantize(w, "int8")).sqnr_db)
    44
    """
    x = as_array(w, "error: w")
    stored = q.to_dense() if is_compressed(q) and hasattr(q, "to_dense") else q  # an EIEArray
    y = q.dequantize() if isinstance(q, QuantizedArray) else as_array(stored, "error: q")
    if x.shape != y.shape:
        raise ValueError(f"error: w has shape {x.shape} and q has shape {y.shape}")
    xx, ee, xy, yy, max_abs = _core.compare(runtime.run(), core_view(x), core_view(y))
    bits = getattr(q, "bits_per_value", 8.0 * y.itemsize)
    norm = sqrt(xx) * sqrt(yy)
    if not isfinite(ee):  # a NaN or an infinity on either side, or beyond float64
        return Error(nan, ee, ee if np.isnan(ee) else max_abs, nan, bits)
    sqnr = inf if ee == 0 else 10 * (log10(xx) - log10(ee)) if xx > 0 else -inf
    cosine = xy / norm if norm > 0 else float(ee == 0)
    return Error(sqnr, ee / max(x.size, 1), max_abs, cosine, bits)


def _multiply(a: Any, b: Any, activations: Format | None, bias: Array | None, out: FloatArray) -> None:
    """Fill `out` (two dimensions or more) with a @ b + bias."""
    dense = not isinstance(a, QuantizedArray) and not isinstance(b, QuantizedArray)
    if dense and runtime.use_blas() and _blas_product(a, b, out):
        if bias is not None:
            add_to(out, bias)
        return
    fmt = core_format(activations) if activations else None
    _core.matmul(runtime.run(), core_operand(a), core_operand(b), fmt, bias, out)


def _suits_blas(a: Array, b: Array, out: FloatArray) -> bool:
    return bool(out.size and a.shape[-1] and a.dtype == np.float32 and b.dtype == np.float32)


def _blas_product(a: Array, b: Array, out: FloatArray) -> bool:
    """Hand a dense float32 product to the BLAS, matrix by matrix; False where it cannot take types or sizes."""
    if not _suits_blas(a, b, out):
        return False
    threads = runtime.get_num_threads()
    if b.ndim == 2 and a.ndim > 2 and a.flags.c_contiguous and out.flags.c_contiguous:
        a, out = a.reshape(-1, a.shape[-1]), out.reshape(-1, b.shape[-1])
    lead = out.shape[:-2]
    a = np.broadcast_to(a, (*lead, *a.shape[-2:]))
    b = np.broadcast_to(b, (*lead, *b.shape[-2:]))
    for index in np.ndindex(lead):
        left, right, target = a[index], b[index], out[index]
        if _core.blas_sgemm(threads, left, right, target):
            continue
        # Strides that a BLAS does not take: a copy of one matrix at a time.
        whole = np.empty(target.shape, np.float32)
        if not _core.blas_sgemm(threads, np.ascontiguousarray(left), np.ascontiguousarray(right), whole):
            return False
        target[...] = whole
    return True


def _along(operand: Any, axis: tuple[int, ...]) -> Any:
    """Return a quantized operand in rows along its reduction axes, where its format has no axis of its own."""
    return operand._along(axis) if isinstance(operand, QuantizedArray) and operand.axis != axis else operand


def _checked_product(
    a: Any,
    b: Any,
    activations: Any,
    bias: Array | None,
    out: Any,
    name: str,
    inputs: tuple[Any, ...],
    multiply: Callable[[Any, Any, Format | None, Array | None, FloatArray], None] | None = None,
) -> FloatArray:
    left_name = f"{name}: {'x' if name == 'linear' else 'a'}"
    for value, label in ((a, left_name), (b, f"{name}: b")):
        if value.ndim == 0:
            raise ValueError(f"{label} has no dimensions")
    a, b = _along(a, (a.ndim - 1,)), _along(b, (max(b.ndim - 2, 0),))
    if isinstance(a, QuantizedArray) and a.axis != (a.ndim - 1,):
        raise ValueError(f"{left_name} is quantized along axis {a.axis}, its reduction axis is {a.ndim - 1}")
    if isinstance(b, QuantizedArray) and b.axis != (max(b.ndim - 2, 0),):
        raise ValueError(f"{name}: b is quantized along axis {b.axis}, its reduction axis is {max(b.ndim - 2, 0)}")
    left, right = as_matrix(a, column=False), as_matrix(b, column=True)
    full = product_shape(left, right, name)
    shape = full[: len(full) - 2] + (full[-2:-1] if a.ndim > 1 else ()) + (full[-1:] if b.ndim > 1 else ())
    result = checked_out(out, shape, name, inputs)
    target = result
    if b.ndim == 1:
        target = target[..., None]
    if a.ndim == 1:
        target = target[..., None, :]
    dense, label = (b, f"{name}: b") if isinstance(a, QuantizedArray) else (a, left_name)
    with caller_index(dense, label):
        (multiply or _multiply)(left, right, activations, bias, target)
    return result if out is None else out


def matmul(a: Any, b: Any, activations: Format | str | None = None, out: Any = None) -> FloatArray:
    """Multiply two arrays, either of which may be quantized: ``a @ b``.

    Parameters
    ----------
    a, b : array_like, QuantizedArray, EIEArray, or scipy.sparse array or matrix in CSR or CSC
        Shapes as in `numpy.matmul`, leading dimensions broadcast. A quantized one is quantized along its reduction
        axis: the last of a, the last but one of b. One may be a sparse matrix, and a may be an EIEArray.
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
    if is_compressed(a) or is_compressed(b):
        from .csr import compressed_product

        return compressed_product(a, b, None, activations, out, "matmul")
    left, right = as_operand(a, "matmul: a"), as_operand(b, "matmul: b")
    fmt = None if activations is None else as_format(activations, "matmul: activations")
    if fmt is not None:
        quantized = isinstance(left, QuantizedArray) + isinstance(right, QuantizedArray)
        if quantized != 1:
            which = "both operands are quantized" if quantized else "neither operand is quantized"
            raise ValueError(f"matmul: activations needs one dense and one quantized operand; {which}")
    return _checked_product(left, right, fmt, None, out, "matmul", (left, right))


def linear(x: Any, w: Any, bias: Any = None, activations: Format | str | None = None, out: Any = None) -> FloatArray:
    """Apply a linear layer: ``x @ w.T + bias``.

    Parameters
    ----------
    x : array_like or QuantizedArray, shape (..., in_features)
    w : array_like, QuantizedArray, EIEArray or scipy.sparse matrix, shape (out_features, in_features)
    bias : array_like, shape (out_features,), optional
        Added last.
    activations : Format or str, optional
        Quantize x on the fly. Where w is dense, sparse or an EIEArray, x is rounded to the format and the product of
        floats is taken.
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
    if is_compressed(x) or is_compressed(w):
        from .csr import compressed_product

        return compressed_product(x, w, bias, activations, out, "linear")
    left, weights = as_operand(x, "linear: x"), as_operand(w, "linear: w")
    if weights.ndim != 2:
        raise ValueError(f"linear: w has shape {weights.shape}, wanted (out_features, in_features)")
    if left.ndim and left.shape[-1] != weights.shape[1]:
        raise ValueError(f"linear: x has {left.shape[-1]} features but w has {weights.shape[1]} columns")
    weights = _along(weights, (1,))
    if isinstance(weights, QuantizedArray) and weights.axis != (1,):
        raise ValueError(f"linear: w is quantized along axis {weights.axis}, its reduction axis is 1")
    if left.ndim == 0:
        raise ValueError("linear: x has no dimensions")
    fmt = None if activations is None else as_format(activations, "linear: activations")
    if fmt is not None and isinstance(left, QuantizedArray):
        raise ValueError("linear: activations is for a dense x, this one is quantized")
    bias_array = as_bias(bias, weights.shape[0], "linear")
    inputs = (left, weights) if bias_array is None else (left, weights, bias_array)
    if fmt is not None and not isinstance(weights, QuantizedArray):
        with caller_index(left, "linear: x"):
            left, fmt = fake_quantize(left, fmt), None
    return _checked_product(left, weights.T, fmt, bias_array, out, "linear", inputs)
