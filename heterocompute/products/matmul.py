"""Matrix products: `matmul` and `linear`, their arguments and defaults. The work is in the C core.

Every array argument may be an ndarray or anything with ``__dlpack__`` (on the CPU) or ``__array__``: float16,
bfloat16, float32 or float64, any strides, no copy. Answers are float32 ndarrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.array_like import ArrayLike
from ..arrays.components import core_format
from ..arrays.eie import EIEArray
from ..arrays.prepacked import Prepacked
from ..arrays.quantized import QuantizedArray
from ..arrays.rotated import RotatedArray
from ..arrays.sparse import SparseArray
from ..base import runtime
from ..base.errors import WrongValue
from ..base.float_env import counts_subnormals
from ..base.runtime import Run, plain_run
from ..base.texts import counted
from ..formats import Format
from .arguments import Array, FloatArray, as_format, as_matrix, core_operand, is_compressed, tell, with_axis
from .csr import compressed_product, quick_csr, quick_linear
from .given.rotated import alike
from .place import HERE, Here, device_product, place_of
from .quantize import rounded
from .tuned import BLAS, choice, listeners as tuned_changes, operand_text, path_number, product_key

__all__ = ["linear", "matmul"]


_ndarray, _direct = np.ndarray, _core.direct  # found sooner
_core.direct_types(QuantizedArray, SparseArray, Prepacked)
core_formats: dict[Any, tuple[Any, ...]] = {}  # core formats of activations that were checked earlier


def _chunked(
    is_linear: bool, a: object, b: object, bias: object, activations: object, out: object
) -> FloatArray | None:
    """Return the answer if all arguments are plain and valid, else None: the longer path then reports the error."""
    fmt = None
    if activations is not None:
        if type(activations) is not str and not isinstance(activations, Format):
            return None
        fmt = core_formats.get(activations)
        if fmt is None:
            return None
    if (run := plain_run()) is not None and type(a) is _ndarray:
        return _direct(run, is_linear, a, b, bias, fmt, out)
    if runtime.backend_device() is not None:
        return None
    if type(a) is not _ndarray and (on_device := device_product(a, b, bias, fmt, out, is_linear)) is not None:
        return on_device  # type: ignore[no-any-return]
    run = runtime.run()
    if runtime.tuned() and (kept := _kept_way(run, is_linear, a, b, activations)) is not None:
        answer = _direct(kept, is_linear, a, b, bias, fmt, out)
        if answer is not None:
            return answer  # otherwise the path does not apply to these values, for example to infinities
    return _direct(run, is_linear, a, b, bias, fmt, out)


KINDS_OF_CORE = {np.ndarray, QuantizedArray, SparseArray, Prepacked, RotatedArray, EIEArray}
PACKED = (QuantizedArray, SparseArray, Prepacked)
MOST_KNOWN = 4096
_known: dict[tuple[Any, ...], Run | None] = {}  # tuned paths of known calls
tuned_changes.append(_known.clear)


def _kept_way(run: Run, is_linear: bool, a: Any, b: Any, activations: object) -> Run | None:
    """Return the run with the path that was tuned for a call, or None if none was.

    A call whose operands are like those of an earlier one takes less than 1 us here.
    """
    x = (a.shape, a.strides, a.dtype.char) if type(a) is np.ndarray else operand_text(a) if type(a) in PACKED else ""
    w = (b.shape, b.strides, b.dtype.char) if type(b) is np.ndarray else operand_text(b) if type(b) in PACKED else ""
    key = (x, w, activations, run, is_linear)
    try:
        return _known[key]
    except KeyError:
        pass
    if not x or not w or not a.ndim or not b.ndim or (is_linear and b.ndim != 2):
        return None
    left, right = as_matrix(a, column=False), as_matrix(b.T if is_linear else b, column=True)
    fmt = None if activations is None else as_format(activations, "activations")
    found = _tuned_run(run, left, right, fmt)
    if len(_known) < MOST_KNOWN:
        _known[key] = found
    return found


def _tuned_run(run: Run, a: object, b: object, activations: Format | None) -> Run | None:
    """Return the run with the path that was tuned for a product; a BLAS that `use` names takes precedence."""
    dense = not isinstance(a, QuantizedArray) and not isinstance(b, QuantizedArray)
    mask, threads, _, route, one_order = run
    if dense and route:
        return None
    way = choice(product_key("matmul", a, b, activations))
    if dense and way == BLAS:
        return mask, threads, 0, runtime.OPENBLAS, one_order
    path = 0 if way is None else path_number(way)
    return (mask, threads, path, runtime.OWN, one_order) if path else None


def as_activations(activations: object, name: str) -> Format | None:
    """Return the format of activations; the next call with it finds it in `core_formats`."""
    if activations is None:
        return None
    fmt = as_format(activations, name)
    if len(core_formats) < 256:
        core_formats[activations] = core_format(fmt)
    return fmt


def _multiply(
    a: object, b: object, activations: Format | None, bias: Array | None, out: FloatArray, place: Here = HERE
) -> None:
    """Fill `out` (two dimensions or more) with a @ b + bias."""
    run = place.memory.run()
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and run[3] != runtime.OWN:
        runtime.open_blas()
    fmt = core_format(activations) if activations else None
    left, right = core_operand(a), core_operand(b)
    added = None if bias is None else place.memory.view(bias)
    to = place.memory.view(out)
    tuned = _tuned_run(run, a, b, activations) if place is HERE and runtime.tuned() else None
    if tuned is not None:
        try:
            _core.matmul(tuned, left, right, fmt, added, to)
            return
        except ValueError:  # the path does not apply to this x, for example to infinities
            pass
    _core.matmul(run, left, right, fmt, added, to)


def _along(operand: object, axis: tuple[int, ...]) -> Any:
    """Return a quantized operand in rows along its reduction axes, if its format has no axis of its own."""
    return operand._along(axis) if isinstance(operand, QuantizedArray) and operand.axis != axis else operand


def _checked_product(
    a: Any,
    b: Any,
    activations: Any,
    bias: Array | None,
    out: object,
    name: str,
    inputs: tuple[Any, ...],
    given: object = None,
    place: Here = HERE,
    multiply: Callable[[Any, Any, Format | None, Array | None, FloatArray, Here], None] = _multiply,
) -> FloatArray:
    left_name = f"{name}: {'x' if name == 'linear' else 'a'}"
    for value, label in ((a, left_name), (b, f"{name}: b")):
        if value.ndim == 0:
            raise WrongValue(f"{label} has no dimensions")
    a, b = _along(a, (a.ndim - 1,)), _along(b, (max(b.ndim - 2, 0),))
    if isinstance(a, QuantizedArray) and a.axis != (a.ndim - 1,):
        raise WrongValue(f"{left_name} is quantized along axis {a.axis}, its reduction axis is {a.ndim - 1}")
    if isinstance(b, QuantizedArray) and b.axis != (max(b.ndim - 2, 0),):
        turned = "; expected b.T, as in x @ b.T" if b.ndim == 2 and a.shape[-1:] == b.shape[1:] else ""
        wrong = f"b is quantized along axis {b.axis}, its reduction axis is {max(b.ndim - 2, 0)}"
        raise WrongValue(f"{name}: {wrong}{turned}")
    left, right = as_matrix(a, column=False), as_matrix(b, column=True)
    full = _core.matmul_shape(name, left.shape, right.shape)
    shape = full[: len(full) - 2] + (full[-2:-1] if a.ndim > 1 else ()) + (full[-1:] if b.ndim > 1 else ())
    result = place.target(out, shape, name, inputs)
    target = result
    if b.ndim == 1:
        target = with_axis(target, target.ndim)
    if a.ndim == 1:
        target = with_axis(target, target.ndim - 1)
    dense, label = (b, f"{name}: b") if isinstance(a, QuantizedArray) else (a, left_name)
    if place is HERE or result.size:
        with place.refusals(name, label, dense, activations):
            multiply(left, right, activations, bias, target, place)
    answer: FloatArray = place.answer(result, given, out)
    return answer


def matmul(a: ArrayLike, b: ArrayLike, activations: Format | str | None = None, out: object = None) -> FloatArray:
    """Multiply two arrays, quantized or not, and return ``a @ b``.

    Parameters
    ----------
    a, b : array_like, QuantizedArray, RotatedArray, EIEArray, or scipy.sparse array or matrix in CSR or CSC
        Shapes as in `numpy.matmul`; leading dimensions broadcast. A QuantizedArray must be quantized along its
        reduction axis: the last axis of a, the second to last of b. One operand may be a sparse matrix. a may be an
        EIEArray.
    activations : Format or str, optional
        Quantize the dense operand on the fly, per row along the reduction axis, and multiply in integers. If the other
        operand is rotated, the dense operand is rotated before.
    out : ndarray, optional
        float32 array of the result's shape that shares no memory with an input.

    Returns
    -------
    ndarray of float32
        Two integer operands give the exact integer sum, scaled once. Results are bitwise identical for every
        instruction set and number of threads, unless ``hc.use(blas=...)`` sends dense operands to another library.
        Working memory: under 64 MiB in addition to the result.

    Raises
    ------
    ValueError
        The shapes do not match, a quantized axis is not the reduction axis, or `activations` is given without one
        dense and one quantized operand.

    Notes
    -----
    Integer matmuls compute equation 5 of Dai et al., "VS-Quant", MLSys 2021 (arXiv 2102.04503).

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> x = np.ones((2, 32), np.float32)
    >>> q = hc.quantize(np.ones((3, 32), np.float32), "vsq4-g16-s4")
    >>> hc.matmul(x, q.T, activations="int8")
    array([[32., 32., 32.],
           [32., 32., 32.]], dtype=float32)
    """
    if activations is None and type(a) is _ndarray and (run := plain_run()) is not None:
        answer = _direct(run, False, a, b, None, None, out)
    else:
        answer = _chunked(False, a, b, None, activations, out)
    return _matmul(a, b, activations, out) if answer is None else answer


@counts_subnormals
def _matmul(a: object, b: object, activations: Any, out: object) -> FloatArray:
    """Compute `matmul` for arguments of every kind."""
    if isinstance(a, RotatedArray) or isinstance(b, RotatedArray):
        return matmul(*alike("matmul", a, b, ("a", "b")), activations, out)
    place = place_of("matmul", a, b, a=a, b=b, out=out)
    if place is HERE and (is_compressed(a) or is_compressed(b)):
        return compressed_product(a, b, None, activations, out, "matmul")
    left, right = place.operand(a, "matmul: a"), place.operand(b, "matmul: b")
    fmt = as_activations(activations, "matmul: activations")
    if fmt is not None:
        quantized = isinstance(left, QuantizedArray) + isinstance(right, QuantizedArray)
        if quantized != 1:
            which = "both operands are quantized" if quantized else "neither operand is quantized"
            raise WrongValue(f"matmul: activations needs one dense and one quantized operand; {which}")
    answer = _checked_product(left, right, fmt, None, out, "matmul", (left, right), a, place)
    if place is HERE:
        transposed = np.moveaxis(right, -2, -1) if isinstance(right, np.ndarray) and right.ndim > 1 else right
        tell(b, max(right.ndim - 2, 0), left)
        tell(a, left.ndim - 1, transposed)
    return answer


def linear(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    activations: Format | str | None = None,
    out: object = None,
) -> FloatArray:
    """Apply a linear layer and return ``x @ w.T + bias``.

    Parameters
    ----------
    x : array_like or QuantizedArray, shape (..., in_features)
    w : array_like, QuantizedArray, RotatedArray, EIEArray or scipy.sparse matrix, shape (out_features, in_features)
    bias : array_like, shape (out_features,), optional
        Added after the matmul.
    activations : Format or str, optional
        Quantize x on the fly. If w is dense, sparse or an EIEArray, x is rounded to the format and multiplied in
        float.
    out : ndarray, optional
        As in `matmul`.

    Returns
    -------
    ndarray of float32, shape (..., out_features)

    Raises
    ------
    ValueError
        The shapes do not match; w is quantized along axis 0; `activations` is given for a quantized x; x holds a NaN or
        an infinity for which `activations` has no code; the format or `out` is invalid.
    TypeError
        A dtype or type is invalid, such as an `out` that is not float32.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.linear(np.float32([1, 2]), np.float32([[1, 1], [0, 1]]), bias=np.float32([0, 10]))
    array([ 3., 12.], dtype=float32)
    """
    if activations is None and type(x) is _ndarray and (run := plain_run()) is not None:
        answer = _direct(run, True, x, w, bias, None, out)
    else:
        answer = _chunked(True, x, w, bias, activations, out)
    if answer is None and bias is None and activations is None and type(w) not in KINDS_OF_CORE:
        answer = quick_csr(x, w, out)
    return _linear(x, w, bias, activations, out) if answer is None else answer


def _is_here(x: object, w: object, out: object) -> bool:
    """Return whether all operands of a compressed product are arrays of NumPy, and no device is selected."""
    stored = isinstance(w, EIEArray) or (hasattr(w, "nnz") and type(getattr(w, "data", None)) is np.ndarray)
    here = stored and type(x) is np.ndarray and (out is None or type(out) is np.ndarray)
    return here and runtime.backend_device() is None


@counts_subnormals
def _linear(x: object, w: object, bias: Any, activations: Any, out: object) -> FloatArray:
    """Compute `linear` for arguments of every kind."""
    if isinstance(w, RotatedArray) and w.ndim == 2:
        left, stored = alike("linear", x, w.T, ("x", "w"))
        return linear(left, stored.T, bias, activations, out)
    if bias is None and activations is None and _is_here(x, w, out):
        quick = quick_linear(x, w, out)
        if quick is not None:
            return quick
    place = place_of("linear", x, w, x=x, w=w, bias=bias, out=out)
    if place is HERE and (is_compressed(x) or is_compressed(w)):
        return compressed_product(x, w, bias, activations, out, "linear")
    left, weights = place.operand(x, "linear: x"), place.operand(w, "linear: w")
    if weights.ndim != 2:
        raise WrongValue(f"linear: w has shape {weights.shape}, expected (out_features, in_features)")
    if left.ndim and left.shape[-1] != weights.shape[1]:
        raise WrongValue(
            f"linear: x has {counted(left.shape[-1], 'feature')} but w has {counted(weights.shape[1], 'column')}"
        )
    weights = _along(weights, (1,))
    if isinstance(weights, QuantizedArray) and weights.axis != (1,):
        raise WrongValue(f"linear: w is quantized along axis {weights.axis}, its reduction axis is 1")
    if left.ndim == 0:
        raise WrongValue("linear: x has no dimensions")
    fmt = as_activations(activations, "linear: activations")
    if fmt is not None and isinstance(left, QuantizedArray):
        raise WrongValue("linear: activations applies to a dense x, but x is quantized")
    bias_array = place.bias(bias, weights.shape[0], "linear")
    inputs = (left, weights) if bias_array is None else (left, weights, bias_array)
    if fmt is not None and not isinstance(weights, QuantizedArray) and place is HERE:
        left, fmt = rounded(left, fmt, (left.ndim - 1,), "linear: x"), None
    if place is HERE:
        tell(w, 1, left)
    return _checked_product(left, weights.T, fmt, bias_array, out, "linear", inputs, x, place)
