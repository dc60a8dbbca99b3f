"""Rounding to number formats: `quantize` and `fake_quantize`. The work is in the C core.

Every array argument may be an ndarray or anything with ``__dlpack__`` (on the CPU) or ``__array__``: float16,
bfloat16, float32 or float64, any strides, no copy.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.array_like import ArrayLike
from ..arrays.components import core_format, layout_of
from ..arrays.dense import as_array, core_view, normalize_axes, refuse_infinite
from ..arrays.filters import layout_axes, outputs_first
from ..arrays.quantized import QuantizedArray
from ..arrays.rotated import RotatedArray, rotate
from ..arrays.sparse import SparseArray, choose
from ..base import runtime
from ..base.errors import Refused, WrongType, WrongValue, refusals, shown
from ..base.float_env import converted, counts_subnormals
from ..base.lazy import renamed
from ..formats import Format, Rotated, Sparse, has_pattern, is_function, is_rotated
from .arguments import Array, FloatArray, as_format, checked_out, core_clip
from .device import fake_quantize_on_device, quantize_on_device, runs_on_device
from .given.codebook import by_codebook, checked_codebook
from .given.functions import rounded_by
from .nearest import Layout, nearest, nearest_as
from .scale_search import rounded_best

__all__ = ["fake_quantize", "quantize"]

_FLOAT32 = np.dtype(np.float32)
NO_CLIP = core_clip(None, "fake_quantize")
MOST_SEEN = 1024
_SEEN: dict[tuple[Any, ...], Layout] = {}  # layouts of arguments that were checked before: format's text, axis, shape


@renamed(fmt="format")
@counts_subnormals
def quantize(
    w: ArrayLike,
    format: Format | str,
    axis: int | tuple[int, ...] = -1,
    clip: object = None,
    importance: ArrayLike | None = None,
    *,
    codebook: ArrayLike | None = None,
    layout: str | None = None,
) -> QuantizedArray:
    """Quantize an array to a number format and pack its codes.

    Parameters
    ----------
    w : array_like or SparseArray
        float16, bfloat16, float32 or float64, with at least one dimension and any strides. A SparseArray holds
        float32 values. Its nonzeros are quantized along its own axis, and groups run over the nonzeros only. A format
        with a pattern, such as ``"int8+2:4"``, rounds the nonzeros of a float64 array once.
    format : Format or str
        For example ``"int8"``, ``"int4-g32-f16"`` or ``hc.VSQ(bits=4, group=16)``.
    axis : int or tuple of int
        The reduction axes, which a matmul sums over. A row is one index of the remaining axes. Groups run along the
        last axis named and never cross an index of the remaining axes. For a convolution weight (K, C, R, S) use
        ``axis=(2, 3, 1)``.
    clip : None, float, "octav", "percentile:p" or "search"
        How the scale is chosen.

        - None: from the largest magnitude.
        - float: from this fraction, in (0, 1], of the largest magnitude.
        - ``"percentile:p"``: from the p-th percentile of the magnitudes.
        - ``"search"``: the best of 36 scales per group, rounded as stored, by the squared error of decoded values.
        - ``"octav"``: the threshold with the least squared error if rounding errors are evenly distributed (Sakr et
          al., "Optimal Clipping and Magnitude-aware Differentiation for Improved Quantization-aware Training", ICML
          2022).
    importance : array_like, optional
        Weight of each value's squared error, such as the Fisher information, for learned codebooks and searched
        `GGML` types. Same shape as w, finite, not negative. For codebooks all zeros count as all ones.
    codebook : array_like, optional
        For `Codebook` with ``dim=1``: the 2^bits numbers to round to, in place of learned ones. One table, or one for
        each row. Ascending; the last number may repeat. Ties go to the lower number.
    layout : {"OIHW", "HWIO"}, optional
        Layout of a filter or matrix w, in place of `axis`. ``"HWIO"``: outputs on the last axis, as in Keras and Flax.
        The result has the outputs first, as `conv2d` and `linear` expect: a filter (R, S, C, K) becomes (K, C, R, S)
        with axis (2, 3, 1), a matrix (in, out) becomes (out, in) with axis 1.

    Returns
    -------
    QuantizedArray
        A SparseArray if the format is only a pattern, such as ``"2:4"``. A RotatedArray if it ends with ``+had``: w is
        rotated along the last axis named, in float32, and then quantized with the other arguments.

    Raises
    ------
    TypeError
        w is not a float array, or is a QuantizedArray.
    ValueError
        - w holds a NaN or an infinity; the message names the index of the first.
        - The format or axis is unknown.
        - importance has another shape, is combined with ``clip="search"``, or the format neither learns a codebook
          nor searches a scale.
        - codebook has another shape or does not ascend, or is combined with clip or importance.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> q = hc.quantize(np.linspace(-1, 1, 32, dtype=np.float32), "vsq4-g16-s4")
    >>> q.nbytes, q.bits_per_value
    (21, 5.25)
    """
    key = None
    if (
        (clip is None and importance is None and codebook is None and layout is None)
        and type(w) is np.ndarray
        and type(format) is str
        and type(axis) is int
    ):
        if w.dtype is _FLOAT32 and w.flags.aligned:
            key = format, axis, w.shape
            q = _again(w, key)
            if q is not None:
                return q
    if layout is not None:
        w, axis, importance = _outputs_first(w, axis, importance, layout)
    if codebook is not None and (clip is not None or importance is not None):
        other = "importance" if clip is None else "clip"
        raise WrongValue(f"quantize: codebook is given with {other}, which would change a learned codebook")
    if runs_on_device(w):
        if codebook is not None:
            raise WrongType("quantize: codebook is given with w on a device, expected w of the CPU")
        answer: QuantizedArray = quantize_on_device(w, format, axis, clip, importance)
        return answer
    format = as_format(format, "quantize: format", rotated=True)
    if is_rotated(format):
        turned: QuantizedArray = _rotated(w, format, axis, clip, importance, codebook)
        return turned
    if importance is not None and (has_pattern(format) or isinstance(w, SparseArray)):
        raise WrongValue(f"quantize: importance is for all values of w, {format} keeps some of them")
    searches = isinstance(clip, str) and clip == "search"
    if importance is not None and searches:
        raise WrongValue("quantize: importance does not weigh clip='search'; ptq.gptq weighs errors by the inputs")
    s: SparseArray | None = None
    if isinstance(w, SparseArray):
        s, format = w, _format_of(w, format, axis)
    else:
        x = as_array(w, "quantize: w")
        axes = normalize_axes(axis, x.ndim, "quantize")
    is_plain = has_pattern(format) and format.is_plain
    if is_plain and clip is not None:
        raise WrongValue(f"quantize: clip is {shown(clip)}, but {format} has no scale")
    if s is None and has_pattern(format) and (is_plain or searches or codebook is not None):
        s = choose(x, None, format.n, format.m, axes, "quantize")
    if s is not None and is_plain:
        return s
    given = None if importance is None else as_array(importance, "quantize: importance")
    part, stored, along = (x, format, axes) if s is None else _segments(s, format)
    whole = x if s is None else s.to_dense  # errors name its indices
    named = {"w": ("quantize: w", whole), "importance": ("quantize: importance", given)}
    if codebook is not None:
        refuse_infinite(converted(whole() if callable(whole) else whole, np.float32), "quantize: w")
        rows = prod(n for a, n in enumerate(part.shape) if a not in along)
        levels = checked_codebook(codebook, stored, rows)
        q = by_codebook(part, stored, along, levels)
        return q if s is None else _as_nonzeros(q, s, format)
    with refusals(**named, format=(f"quantize: {stored}", None)):
        q = nearest(part, stored, along, None if searches else core_clip(clip, "quantize"), given)
        if searches and part.size:
            q = rounded_best(q, part)
    if key is not None and s is None and not runs_on_device(w):
        _remember(key, q)
    return q if s is None else _as_nonzeros(q, s, format)


def _rotated(w: Any, fmt: Rotated, axis: Any, clip: object, importance: object, codebook: Any) -> Any:
    """Return `quantize` for a rotated format."""
    if importance is not None or isinstance(w, SparseArray):
        what = "importance is for values" if importance is not None else "w is pruned"
        raise WrongValue(f"quantize: {what}, but {fmt} rotates w before it rounds")
    x = as_array(w, "quantize: w")
    axes = normalize_axes(axis, x.ndim, "quantize")
    refuse_infinite(x, "quantize: w")
    values = rotate(x, axes[-1], fmt, "quantize: w")
    if not np.isfinite(values).all():
        raise WrongValue(f"quantize: w has values that {fmt} rotates beyond float32's largest")
    q = quantize(values, fmt.base, axes, clip, codebook=codebook)
    return RotatedArray(QuantizedArray._trusted(q.components, q.format, q.shape, q.axis, x.dtype.name), fmt)


def _outputs_first(w: object, axis: object, importance: object, layout: object) -> tuple[Array, Any, Any]:
    """Return the arguments of `quantize` for an array in a layout as those for outputs first."""
    if not (type(axis) is int and axis == -1):
        raise WrongValue(f"quantize: layout is given with axis {shown(axis)}, expected one of them")
    if runs_on_device(w) or isinstance(w, SparseArray):
        raise WrongType(f"quantize: layout is given with w of type {type(w).__name__}, expected an array of the CPU")
    x = as_array(w, "quantize: w")
    if not 2 <= x.ndim <= 5:
        raise WrongValue(f"quantize: layout is for 2 to 5 dimensions, w has shape {x.shape}")
    along = layout_axes("quantize", layout, x.ndim)
    if layout == "OIHW":
        return x, along, importance
    turn = outputs_first(x.ndim)
    given = None if importance is None else as_array(importance, "quantize: importance")
    if given is not None and given.shape == x.shape:  # another shape is refused with the rest
        given = given.transpose(turn)
    return x.transpose(turn), layout_axes("quantize", "OIHW", x.ndim), given


def _remember(key: tuple[str, int, tuple[int, ...]], q: QuantizedArray) -> None:
    """Keep what follows from the arguments, so that another array of this shape takes microseconds."""
    if len(_SEEN) >= MOST_SEEN:
        _SEEN.clear()
    _SEEN[key] = Layout(q.format, q.axis, {name: (part.shape, part.dtype) for name, part in q.components.items()})


def _again(w: FloatArray, key: tuple[str, int, tuple[int, ...]]) -> QuantizedArray | None:
    """Round a plain array whose arguments were checked before; None if they were not, or if a value is refused."""
    seen = _SEEN.get(key)
    if seen is None or seen.format is not as_format(key[0], "quantize: format") or runtime.backend_device() is not None:
        return None
    try:
        return nearest_as(w, seen)
    except Refused:
        return None


def _format_of(s: SparseArray, fmt: Format, axis: object) -> Format:
    """Return the format of a SparseArray's nonzeros with the array's own pattern, which `fmt` may name too."""
    if not has_pattern(fmt):
        fmt = Sparse(fmt, s.n, s.m)
    if (fmt.n, fmt.m) != (s.n, s.m):
        raise WrongValue(f"quantize: format is {fmt}, but w keeps {s.n} of every {s.m}")
    if not (type(axis) is int and axis == -1) and normalize_axes(axis, s.ndim, "quantize") != s.axis:
        raise WrongValue(f"quantize: axis is {shown(axis)}, but w is pruned along axis {s.axis}")
    return fmt


def _segments(s: SparseArray, fmt: Format) -> tuple[Array, Format, tuple[int, ...]]:
    """Return the nonzeros of an array, one row for each segment of its rows; groups run along these segments only."""
    assert has_pattern(fmt)
    values, count = s.components["values"], fmt.stored_length(s.shape[s.axis[-1]])
    segments = values.reshape(len(values), values.shape[1] // max(count, 1), count)
    return segments, fmt.base, (1, 2)


def _as_nonzeros(q: QuantizedArray, s: SparseArray, fmt: Format) -> QuantizedArray:
    """Return rounded segments as an array like their source, which shares its indices."""
    parts = {**q.components, "metadata": s.components["metadata"]}
    return QuantizedArray._trusted(parts, fmt, s.shape, s.axis, s.source_dtype)


@renamed(fmt="format")
@counts_subnormals
def fake_quantize(
    w: ArrayLike, format: Format | str, axis: int | tuple[int, ...] = -1, clip: object = None, out: Any = None
) -> FloatArray:
    """Round an array to a number format and return the values (quantize and dequantize in one pass).

    Parameters
    ----------
    w, format, axis, clip
        As in `quantize`.
    out : ndarray or tensor of PyTorch, optional
        float32 of w's shape. It may be `w` itself; otherwise it must share no memory with w.

    Returns
    -------
    ndarray of float32

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.fake_quantize(np.float32([0.0, 0.4, 0.7, -1.0]), "int2")
    array([ 0.,  0.,  1., -1.], dtype=float32)
    """
    if runs_on_device(w):
        answer: FloatArray = fake_quantize_on_device(w, format, axis, clip, out)
        return answer
    format = as_format(format, "fake_quantize: format", functions=True, rotated=True)
    x = as_array(w, "fake_quantize: w")
    axes = normalize_axes(axis, x.ndim, "fake_quantize")
    result = checked_out(out, x.shape, "fake_quantize", (x,), in_place=True)
    if is_function(format):
        if clip is not None:
            raise WrongValue(
                f"fake_quantize: clip is {shown(clip)}, but {format} is a function of values, without scales"
            )
        result[...] = rounded_by(format, x, axes, "fake_quantize: w")
        return result if out is None else out
    if is_rotated(format) or (isinstance(clip, str) and clip == "search"):
        result[...] = quantize(x, format, axes, clip).dequantize()
        return result if out is None else out
    with refusals(w=("fake_quantize: w", x), format=(f"fake_quantize: {format}", None)):
        _core.fake_quantize(
            runtime.run(), core_view(x), core_format(format), axes, core_clip(clip, "fake_quantize"), result
        )
    return result if out is None else out


@counts_subnormals
def fake_quantize_array(x: FloatArray, fmt: Format, axis: int | tuple[int, ...]) -> FloatArray:
    """Return `fake_quantize` of a float array of NumPy, with less work outside of the core for small arrays."""
    if (
        type(axis) is not int
        or is_function(fmt)
        or is_rotated(fmt)
        or not x.ndim
        or runtime.backend_device() is not None
    ):
        return fake_quantize(x, fmt, axis)
    result: FloatArray = np.empty(x.shape, np.float32)
    try:
        _core.fake_quantize(runtime.run(), core_view(x), core_format(fmt), (axis % x.ndim,), NO_CLIP, result)
    except Refused:
        return fake_quantize(x, fmt, axis)  # whose refusal names the argument
    return result


def rounded(x: Array, fmt: Format, axes: tuple[int, ...], name: str) -> FloatArray:
    """Return the dense operand of a matmul rounded to `activations`; `name` is its name in errors."""
    if runtime.one_order() and not all(per_row for _, _, per_row in layout_of(fmt, (1, 1), (1,)).values()):
        raise WrongValue(
            f"{name.partition(':')[0]}: activations is a format with a scale or codebook for the whole array, expected "
            "one for each row under hc.use(order='one')"
        )
    result: FloatArray = np.empty(x.shape, np.float32)
    with refusals(w=(name, x)):
        _core.fake_quantize(runtime.run(), core_view(x), core_format(fmt), axes, core_clip(None, name), result)
    return result
