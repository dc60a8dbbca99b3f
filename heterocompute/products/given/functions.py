"""Rounding by a function of values: rows and groups as the formats with codes have them, and the answer checked."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...arrays.dense import refuse_infinite
from ...base.errors import WrongType, WrongValue, shown
from ...base.float_env import call_back, converted
from ...formats import Function

Array = np.ndarray[Any, Any]
FloatArray = np.ndarray[Any, np.dtype[np.float32]]


def rounded_by(fmt: Function, x: Array, axes: tuple[int, ...], name: str) -> FloatArray:
    """Return the values of an array after the function of a format.

    Parameters
    ----------
    x : ndarray
        Of floats.
    axes : tuple of int
        The reduction axes, as of `quantize`.
    name : str
        The function and the argument in errors, such as ``"fake_quantize: w"``.

    Raises
    ------
    ValueError
        x has a NaN or an infinity, or what the function returned has, or another shape.
    TypeError
        The function returned no array of floats.
    """
    refuse_infinite(x, name)
    others = [a for a in range(x.ndim) if a not in axes]
    turned = converted(x, np.float32).transpose(*others, *axes)
    rows, length = prod(x.shape[a] for a in others), x.shape[axes[-1]]
    runs = prod(x.shape[a] for a in axes[:-1])
    group, run = (runs * length, runs * length) if fmt.group is None else (fmt.group, length)
    groups = -(-run // group) if group else 0
    padded = np.zeros((rows, runs * length // run if run else 0, groups * group), np.float32)
    padded[..., :run] = turned.reshape(padded.shape[0], padded.shape[1], run)
    given = padded.reshape(rows, padded.shape[1] * groups, group)
    answer = call_back(fmt.round, given) if given.size else given
    values = _checked(answer, given.shape, f"{name.partition(':')[0]}: what the function of {fmt} returned")
    found = values.reshape(padded.shape)[..., :run].reshape(turned.shape)
    return np.ascontiguousarray(found.transpose(np.argsort([*others, *axes])))


def _checked(answer: object, shape: tuple[int, ...], what: str) -> FloatArray:
    if not isinstance(answer, np.ndarray) or answer.dtype.kind not in "fiu":
        kind = getattr(answer, "dtype", type(answer).__name__)
        raise WrongType(f"{what} is {shown(kind)}, expected an array of floats")
    if answer.shape != shape:
        raise WrongValue(f"{what} has shape {answer.shape}, expected {shape}")
    with np.errstate(over="ignore"):
        values = converted(answer, np.float32)
    refuse_infinite(values, what)
    return values
