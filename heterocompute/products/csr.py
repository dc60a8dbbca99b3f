"""Products with compressed matrices: CSR and CSC of ``scipy.sparse``, and EIE's storage.

SciPy is never imported here: any object with the attributes of its matrices is accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.dense import FLOATS, core_view
from ..arrays.eie import EIEArray
from ..arrays.quantized import QuantizedArray
from ..base import runtime
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import counts_subnormals
from ..base.texts import counted
from .arguments import Array, FloatArray, as_bias, as_format, as_operand, checked_out, core_operand, is_compressed
from .quantize import rounded

_FLOAT32 = np.dtype(np.float32)

Rows = tuple[int, Array, Array, Array]  # columns, starts, indices, values of compressed rows


def shape_of(value: Any, name: str) -> tuple[int, int]:
    """Return the shape of a compressed matrix.

    Parameters
    ----------
    value : scipy.sparse array or matrix, or EIEArray
    name : str
        What the sentence of an error calls it.

    Returns
    -------
    (int, int)

    Raises
    ------
    ValueError
        The shape is not two sizes.
    """
    shape = value.shape if isinstance(value.shape, (tuple, list)) else (value.shape,)
    if len(shape) != 2 or not all(isinstance(size, (int, np.integer)) and size >= 0 for size in shape):
        raise WrongValue(f"{name} is a sparse array of shape {shown(value.shape)}, expected two dimensions")
    return int(shape[0]), int(shape[1])


@counts_subnormals
def multiply(dense: Any, w: object, transposed: bool, out: FloatArray, name: str) -> None:
    """Fill `out` with the sums over k of ``dense[..., k] * w[j, k]``.

    Parameters
    ----------
    dense : ndarray or QuantizedArray
        Reduced over its last axis, or a QuantizedArray whose rows run over k.
    w : scipy.sparse array or matrix, or EIEArray
        Rows over k; with `transposed`, columns over k.
    out : ndarray of float32, (..., rows of w)
        Any strides.
    name : str
        What the sentence of an error calls w.

    Raises
    ------
    TypeError
        The layout is neither CSR nor CSC, values are not floats, or an EIEArray is transposed.
    ValueError
        Starts or indices are invalid.
    """
    run = runtime.run()
    if isinstance(w, EIEArray):
        if transposed != (w.axis == (0,)):
            raise WrongType(
                f"{name} is an EIEArray that is stored along axis {w.axis}, its reduction axis is {1 - w.axis[0]}: "
                "hc.linear(x, e), hc.matmul(e, b), hc.matmul(x, e.T), or its to_dense()"
            )
        parts = w._packed()
        if not isinstance(dense, QuantizedArray):
            if _is_plain(dense) and _is_plain(out):
                many = prod(dense.shape[:-1])
                rows_of = (parts[1], *w._stored_rows())
                _core.eie_multiply(run, parts, rows_of, dense.reshape(many, parts[1]), out.reshape(many, parts[0]))
                return
            with np.errstate(over="ignore"):  # values beyond float32 become infinite, as in any product
                vectors = np.require(dense, np.float32, ["C", "A"]).reshape(prod(dense.shape[:-1]), parts[1])
            answer = np.empty((len(vectors), parts[0]), np.float32)
            _core.eie_multiply(run, parts, (parts[1], *w._stored_rows()), vectors, answer)
            out[...] = answer.reshape(out.shape)
            return
        rows: Rows = (parts[1], *w._stored_rows())
    else:
        rows = _compressed_rows(w, transposed, name)
    operand = core_operand(dense) if isinstance(dense, QuantizedArray) else core_view(dense)
    if not _core.csr_matmul(run, operand, rows, out):
        by_column = _core.csr_transpose(rows)
        _core.csr_matmul(run, operand, (rows[0], *_core.csr_transpose((len(rows[1]) - 1, *by_column))), out)


def _is_plain(array: Any) -> bool:
    """Tell whether an array is what the C core reads: float32 in C order."""
    flags = array.flags
    return array.dtype is _FLOAT32 and bool(flags.c_contiguous) and bool(flags.aligned)


def quick_csr(x: Any, w: Any, out: Any) -> FloatArray | None:
    """Return ``linear(x, w)`` for float32 in C order and a matrix of SciPy in CSR; None if there is more to check."""
    return None if runtime.backend_device() is not None else _core.csr_linear(runtime.run(), x, w, out)


def quick_linear(x: Any, w: Any, out: Any) -> FloatArray | None:
    """Return ``linear(x, w)`` for float32 in C order and an EIEArray in rows; None if there is more to check."""
    if type(x) is not np.ndarray or not 0 < x.ndim < 3 or not _is_plain(x) or not isinstance(w, EIEArray):
        return None
    if w.axis != (1,) or x.shape[-1] != w.shape[1]:
        return None
    result = checked_out(out, (*x.shape[:-1], w.shape[0]), "linear", (x, *w.components.values()))
    multiply(x, w, False, result, "linear: w")
    return result if out is None else out


def _compressed_rows(w: Any, transposed: bool, name: str) -> Rows:
    layout = getattr(w, "format", type(w).__name__)
    if layout not in ("csr", "csc"):
        raise WrongType(
            f"{name} is a sparse matrix of layout {shown(layout)}, expected 'csr' or 'csc': call its tocsr()"
        )
    rows, columns = shape_of(w, name)
    major, minor = (rows, columns) if layout == "csr" else (columns, rows)
    starts = _integers(w.indptr, np.int64, 2**62, f"{name}: indptr")
    indices = _integers(w.indices, np.int32, minor, f"{name}: indices")
    if starts.shape != (major + 1,):
        raise WrongValue(f"{name}: indptr has shape {starts.shape}, expected ({major + 1},)")
    data = np.asarray(w.data)
    plain = _is_plain(data)
    if not plain and data.dtype.name not in FLOATS:
        raise WrongType(f"{name} holds {data.dtype}, expected {', '.join(FLOATS)}; convert with astype first")
    if data.shape != indices.shape:
        raise WrongValue(f"{name}: data has shape {data.shape} and indices {indices.shape}")
    if not plain:
        with np.errstate(over="ignore"):
            data = np.require(data, np.float32, ["C", "A"])
    found: Rows = (minor, starts, indices, data)
    return (major, *_core.csr_transpose(found)) if (layout == "csc") != transposed else found


def _integers(array: object, dtype: Any, limit: int, name: str) -> Array:
    found = np.asarray(array)
    if found.ndim == 1 and found.dtype == dtype and found.flags.c_contiguous and found.flags.aligned:
        return found
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise WrongType(
            f"{name} is an array of {found.dtype} with {counted(found.ndim, 'dimension')}, expected integers in one"
        )
    if found.size and found.dtype.itemsize >= np.dtype(dtype).itemsize and found.dtype != dtype:
        low, high = int(found.min()), int(found.max())  # before the cast would wrap
        if low < 0 or high >= limit:
            raise WrongValue(f"{name} has {low if low < 0 else high}, expected 0 to {limit - 1}")
    return found.astype(dtype, "C")


@counts_subnormals
def compressed_product(
    a: object,
    b: object,
    bias: object,
    activations: object,
    out: Any,
    name: str,
    multiply: Callable[[Any, Any, bool, FloatArray, str], None] = multiply,
) -> FloatArray:
    """Multiply two operands of which one is compressed.

    Parameters
    ----------
    a, b, bias, activations, out
        As of `heterocompute.matmul`, or as x and w of `heterocompute.linear`.
    name : {"matmul", "linear", "explain"}
    multiply : callable
        What is called at last, `multiply` above.
    """
    linear = name == "linear"
    names = (f"{name}: x", f"{name}: w") if linear else (f"{name}: a", f"{name}: b")
    if is_compressed(a) and is_compressed(b):
        raise WrongType(f"{name}: both operands are compressed, expected one that is dense or quantized")
    left = is_compressed(a)
    w, w_name, x_name = (a, names[0], names[1]) if left else (b, names[1], names[0])
    given = dense = as_operand(b if left else a, x_name)
    shape = shape_of(w, w_name)
    if dense.ndim == 0:
        raise WrongValue(f"{x_name} has no dimensions")
    if left and linear and dense.ndim != 2:
        raise WrongValue(f"linear: w has shape {dense.shape}, expected (out_features, in_features)")
    # The reduction axis of each operand, and the other axis of w.
    axis = max(dense.ndim - 2, 0) if left and not linear else dense.ndim - 1
    k, n = (shape[0], shape[1]) if not left and not linear else (shape[1], shape[0])
    if dense.shape[axis] != k:
        raise WrongValue(f"{x_name} has {counted(dense.shape[axis], 'value')} along axis {axis} but {w_name} has {k}")
    if isinstance(dense, QuantizedArray) and dense.axis != (axis,):
        dense = dense._along((axis,))
        if dense.axis != (axis,):
            raise WrongValue(f"{x_name} is quantized along axis {dense.axis}, its reduction axis is {axis}")
    bias_array = as_bias(bias, dense.shape[0] if left else n, name) if linear else None
    dense = _rounded(dense, activations, axis, x_name)
    lead = dense.shape[:axis] + dense.shape[axis + 1 :]
    if linear and left:
        final: tuple[int, ...] = (n, *lead)
    else:
        final = (*lead[:-1], n, *lead[-1:]) if left else (*lead, n)
    if prod(final) > 2**60:
        raise WrongValue(f"{name}: a result of shape {final} overflows the size of an array")
    foreign = (getattr(w, part, None) for part in ("data", "indices", "indptr"))
    stored = tuple(w.components.values() if isinstance(w, EIEArray) else foreign)
    inputs = (given, dense, *stored) if bias_array is None else (given, dense, bias_array, *stored)
    result = checked_out(out, final, name, inputs)
    rows_last = np.moveaxis(result, len(final) - 1 - min(len(lead), 1), -1) if left else result
    if not isinstance(dense, QuantizedArray):
        dense = np.moveaxis(dense, axis, -1)
    multiply(dense, w, not left and not linear, rows_last, w_name)
    if bias_array is not None:
        result += bias_array
    return result if out is None else out


def _rounded(dense: Any, activations: object, axis: int, name: str) -> Any:
    """Return the dense operand rounded to `activations`."""
    if activations is None:
        return dense
    if isinstance(dense, QuantizedArray):
        raise WrongValue(f"{name} is quantized, but activations applies to a dense operand")
    fmt = as_format(activations, f"{name.partition(':')[0]}: activations")
    return rounded(dense, fmt, (axis,), name)
