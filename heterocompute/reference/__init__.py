"""The executable definition of every format and product in plain NumPy, for reading and for tests.

A family of formats is one module of `formats`, found by its name; `formats` states its functions. `product` and
`convolution` hold the products with their stated order of rounding, `emulation` those of given hardware. Clarity comes
before speed; the C core gives the same bits.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from .arithmetic import Array, checked_values, decoded, fma
from .layout import Geometry, Terms, from_groups, from_rows, geometry, to_groups, to_rows

__all__ = [
    "Geometry",
    "Terms",
    "codes",
    "component_layout",
    "dequantize",
    "fma",
    "geometry",
    "integer_terms",
    "quantize",
    "terms",
    "terms_above",
]


def __dir__() -> list[str]:
    return __all__


def quantize(x: Any, fmt: Any, axis: Any = -1, clip: Any = None, importance: Any = None) -> dict[str, Array]:
    """Quantize an array.

    Parameters
    ----------
    x : array_like
        float16, bfloat16, float32 or float64, at least one dimension.
    fmt : Format
    axis : int or tuple of int
        The reduction axes; groups run along the last one named.
    clip : None, float in (0, 1], "octav" or "percentile:p"
    importance : array_like, optional
        Weights of the squared errors of a learned codebook, of the shape of x.

    Returns
    -------
    dict of str to ndarray
        The components, as `component_layout` says.

    Raises
    ------
    TypeError
        The dtype is not a float.
    ValueError
        There is a NaN or an infinity (the message has the index of the first), or the axis or clip is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> import heterocompute as hc
    >>> from heterocompute import reference
    >>> quantized = reference.quantize(np.float32([[1, -7, 3.5, 0]]), hc.format("int4"))
    >>> quantized["scales"], quantized["codes"]
    (array([[1.]], dtype=float32), array([[145,   4]], dtype=uint8))
    """
    definition = _definition(fmt)
    legal = getattr(definition, "legal", None)
    values = checked_values(np.asarray(x), "quantize: w", legal and (lambda x: legal(fmt, x)))
    sizes = _sizes(fmt, values.shape, axis)
    groups = to_groups(to_rows(values, axis), sizes)
    more = () if importance is None else (to_groups(to_rows(np.asarray(importance, np.float64), axis), sizes),)
    components: dict[str, Array] = definition.encode(fmt, sizes, groups, clip, *more)
    return components


def dequantize(
    components: dict[str, Array], fmt: Any, shape: tuple[int, ...], axis: Any, dtype: Any = np.float32
) -> Array:
    """Return the values of a quantized array: float32(scale * code), the product of integers formed first.

    Parameters
    ----------
    components : dict of str to ndarray
    fmt : Format
    shape : tuple of int
    axis : int or tuple of int
    dtype : float32 or float64
        float64 gives the unrounded product.

    Returns
    -------
    ndarray of this shape and dtype
    """
    exact = from_rows(exact_rows(components, fmt, shape, axis), shape, axis)
    values = decoded(exact) if np.dtype(dtype) == np.float32 else exact.astype(dtype)
    definition = _definition(fmt)
    drops = getattr(definition, "no_minus_zero", lambda _: getattr(definition, "NO_MINUS_ZERO", False))(fmt)
    return values + values.dtype.type(0) if drops else values


def exact_rows(components: dict[str, Array], fmt: Any, shape: tuple[int, ...], axis: Any) -> Array:
    """Return the unrounded values, one row of the format after the other.

    Parameters
    ----------
    components, fmt, shape, axis : as in `dequantize`

    Returns
    -------
    ndarray of float64, (rows, columns)
    """
    sizes = _sizes(fmt, shape, axis)
    factors = terms(components, fmt, shape, axis)
    exact = factors.codes
    if factors.group_scale is not None:
        exact = exact * factors.group_scale.astype(_widest(factors.group_scale))[..., None]
    if factors.row_scale is not None:
        exact = exact * factors.row_scale.astype(np.float64)[:, None, None]
    return from_groups(exact, sizes)


def codes(components: dict[str, Array], fmt: Any, shape: tuple[int, ...], axis: Any) -> Array:
    """Return the stored codes, padding included.

    Parameters
    ----------
    components, fmt, shape, axis : as in `dequantize`

    Returns
    -------
    ndarray of int64, (rows, groups, group)
    """
    found: Array = _definition(fmt).stored_codes(fmt, _sizes(fmt, shape, axis), components)
    return found


def terms(components: dict[str, Array], fmt: Any, shape: tuple[int, ...], axis: Any) -> Terms:
    """Return the factors of the values: signed codes, group scales and row scales.

    Parameters
    ----------
    components, fmt, shape, axis : as in `dequantize`

    Returns
    -------
    Terms
    """
    found: Terms = _definition(fmt).terms(fmt, _sizes(fmt, shape, axis), components)
    return found


def integer_terms(components: dict[str, Array], fmt: Any, shape: tuple[int, ...], axis: Any) -> Terms | None:
    """Return integer codes and the scales that belong to them.

    Parameters
    ----------
    components, fmt, shape, axis : as in `dequantize`

    Returns
    -------
    Terms or None
        None where the format has no integers. Small floats of few bits are integers times a power of two, which
        their scales take in: those of e2m1 are halves.
    """
    found = terms(components, fmt, shape, axis)
    steps = getattr(_definition(fmt), "fraction_steps", lambda fmt: 1)(fmt)
    is_whole = getattr(_definition(fmt), "is_whole", lambda fmt: False)(fmt)  # integers with a -0, given as floats
    if steps > 1 or is_whole:
        codes, scale, row_scale = np.rint(found.codes * steps).astype(np.int64), found.group_scale, found.row_scale
        if scale is not None and scale.dtype.kind == "f":
            return Terms(codes, scale / np.float32(steps), row_scale)
        assert row_scale is not None
        return Terms(codes, scale, row_scale / np.float32(steps))
    return found if found.codes.dtype.kind == "i" else None


def terms_above(
    components: dict[str, Array], fmt: Any, shape: tuple[int, ...], axis: Any
) -> tuple[Terms, Array] | None:
    """Return integer codes and their scales where each group has a float32 minimum besides, and the minima.

    Parameters
    ----------
    components, fmt, shape, axis : as in `dequantize`

    Returns
    -------
    (Terms, ndarray of float32, (rows, groups)), or None
        value = group_scale * code + minimum; None where the format has no minima.
    """
    define = getattr(_definition(fmt), "terms_above", None)
    found: tuple[Terms, Array] | None = define and define(fmt, _sizes(fmt, shape, axis), components)
    return found


def component_layout(fmt: Any, shape: tuple[int, ...], axis: Any) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Return dtype and shape of each component of such an array.

    Parameters
    ----------
    fmt, shape, axis : as in `dequantize`

    Returns
    -------
    dict of str to (dtype, tuple of int)
    """
    found = _definition(fmt).layout(fmt, _sizes(fmt, shape, axis))
    return {name: (np.dtype(dtype), size) for name, (dtype, size) in found.items()}


def _sizes(fmt: Any, shape: tuple[int, ...], axis: Any) -> Geometry:
    return geometry(fmt.group, shape, axis, fmt.unit)


def _definition(fmt: Any) -> Any:
    return import_module(f".formats.{fmt.family}", __package__)


def _widest(scale: Array) -> Any:
    return np.int64 if scale.dtype.kind == "i" else np.float64
