"""Arrays of floats as callers pass them, without a copy: NumPy arrays, and objects that share memory by DLPack."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import converted, counts_subnormals
from ..base.texts import counted
from .base import PackedArray
from .foreign import as_foreign

Array = np.ndarray[Any, Any]
FloatArray = np.ndarray[Any, np.dtype[np.float32]]

FLOATS = ("float16", "bfloat16", "float32", "float64")
SMALL_FLOATS = ("float8_", "float6_", "float4_")  # of ml_dtypes; every one is exact in float32

MAX_DIMS = 32  # limit of the core; NumPy has 64
_BLOCK = 1 << 20  # values checked at a time
# names of types are slow to build
_NATIVE = frozenset(np.dtype(name) for name in ("float16", "float32", "float64"))


def as_float_dtype(dtype: Any, name: str) -> np.dtype[Any]:
    """Return the dtype of floats that a caller asks for; None is float32, as in a signature's default."""
    try:
        found = np.dtype(np.float32 if dtype is None else dtype)
    except (TypeError, ValueError, SyntaxError):
        raise WrongType(f"{name}: dtype is {shown(dtype)}, expected {', '.join(FLOATS)}") from None
    if found.kind not in "fV" or found.name not in FLOATS:
        raise WrongType(f"{name}: dtype is {shown(found)}, expected {', '.join(FLOATS)}")
    return found


def normalize_axes(axis: object, ndim: int, name: str) -> tuple[int, ...]:
    """Return an axis or a tuple of axes as a tuple of distinct non-negative ints."""
    if ndim == 0:
        raise WrongValue(f"{name}: an array without dimensions has no axis to quantize along")
    if type(axis) is int and -ndim <= axis < ndim:
        return (axis % ndim,)
    given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    try:
        if any(isinstance(a, (bool, np.bool_)) for a in given):
            raise TypeError
        axes = tuple(operator.index(a) for a in given)
    except TypeError:
        raise WrongType(f"{name}: axis is {shown(axis)}, expected an int or a tuple of ints") from None
    for a in axes:
        if not -ndim <= a < ndim:
            raise WrongValue(f"{name}: axis {shown(a)} is out of range for an array with {counted(ndim, 'dimension')}")
    found = tuple(a % ndim for a in axes)
    if not found or len(set(found)) != len(found):
        raise WrongValue(f"{name}: axis is {shown(axis)}, expected one or more different axes")
    return found


def as_any(value: object, name: str, wanted: str = "an array of floats") -> np.ndarray[Any, Any]:
    """Return an array-like of any dtype as an ndarray; TypeError names the type of anything else."""
    if isinstance(value, np.ndarray):
        if type(value) is not np.ndarray and np.any(getattr(value, "mask", False)):
            raise WrongType(f"{name} is a masked array with masked values; call filled() to replace them first")
        found = np.asarray(value)  # only the memory of a subclass: its methods may do anything
    elif isinstance(value, PackedArray):
        return value._as_floats(name)
    else:
        found = as_foreign(value, name, wanted)
    if found.dtype.fields is not None:  # whose text may be long, and may be nested too deep for Python
        raise WrongType(f"{name} has a structured dtype, expected {wanted}: pass one of its fields")
    return found


def as_array(value: object, name: str) -> np.ndarray[Any, Any]:
    """Return any array of floats as an ndarray, without a copy if the memory allows it; float8 and smaller as float32.

    Raises
    ------
    TypeError
        The value is not an array, or its values are integers, bool, complex or objects.
    ValueError
        The array has more dimensions than the core supports.
    """
    if type(value) is np.ndarray and value.dtype in _NATIVE and value.flags.aligned and value.ndim <= MAX_DIMS:
        return value
    array = as_any(value, name)
    check_dimensions(array, name)
    if array.dtype.name.startswith(SMALL_FLOATS):
        return converted(array, np.float32)
    if array.dtype.name not in FLOATS:
        raise WrongType(f"{name} has dtype {array.dtype}, expected {', '.join(FLOATS)}; convert with astype first")
    if not array.dtype.isnative or not array.flags.aligned:
        array = array.astype(array.dtype.newbyteorder("="), copy=True)
    return array


def check_dimensions(array: Any, name: str) -> None:
    """Raise ValueError for an array with more dimensions than the core supports."""
    if array.ndim > MAX_DIMS:
        raise WrongValue(f"{name} has {array.ndim} dimensions, at most {MAX_DIMS} are possible")


def refuse_infinite(array: np.ndarray[Any, Any], name: str) -> None:
    """Raise ValueError with the index of the first NaN or infinity."""
    _refuse_first(array, np.isfinite, True, name)


def refuse_nan(array: np.ndarray[Any, Any], name: str) -> None:
    """Raise ValueError with the index of the first NaN."""
    _refuse_first(array, np.isnan, False, name)


def _refuse_first(array: np.ndarray[Any, Any], test: Callable[[Array], Any], wanted: bool, name: str) -> None:
    index = _first_other(array, test, wanted)
    if index is not None:
        raise WrongValue(f"{name} has {float(array[index])} at index {index}")


def _first_other(array: Array, test: Callable[[Array], Any], wanted: bool) -> tuple[int, ...] | None:
    """Search some indices of axis 0 at a time: a mask of all would take a quarter of the array's memory."""
    if not array.size:  # of however many indices
        return None
    if array.ndim > 1 and array.size > _BLOCK * len(array):
        found = ((i, _first_other(part, test, wanted)) for i, part in enumerate(array))
        return next(((i, *index) for i, index in found if index is not None), None)
    step = max(_BLOCK * len(array) // array.size, 1) if array.ndim else 1
    for first in range(0, len(array) if array.ndim else 1, step):
        part = array[first : first + step] if array.ndim else array
        right = test(part) == wanted
        if not right.all():
            index = tuple(int(i) for i in np.unravel_index(np.argmin(right), part.shape))
            return (first + index[0], *index[1:]) if array.ndim else ()
    return None


def core_view(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array in the C core's form: bfloat16 as its bits."""
    return array.view(np.uint16) if array.dtype not in _NATIVE and array.dtype.name == "bfloat16" else array


@counts_subnormals
def as_single(value: Array, name: str) -> FloatArray:
    """Return an array as float32; ValueError if a finite value becomes infinite."""
    if value.dtype != np.float64:
        return value.astype(np.float32, copy=False)
    with np.errstate(over="ignore"):
        single: FloatArray = value.astype(np.float32)
    beyond = np.isinf(single) & np.isfinite(value)
    if beyond.any():
        index = tuple(int(i) for i in np.unravel_index(beyond.argmax(), value.shape))
        raise WrongValue(f"{name} has {float(value[index])} at index {index}, beyond float32's largest")
    return single
