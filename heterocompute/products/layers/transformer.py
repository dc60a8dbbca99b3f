"""The layers of transformers between products: norms, rotary positions, gated activations, softmax. The work is in C.

Float32 in the orders of docs/errors-and-exactness.md: the same bits on every instruction set and number of threads.
`heterocompute/reference/layers.py` is the definition.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import _heterocompute as _core
from ...arrays.array_like import ArrayLike
from ...arrays.components import core_format
from ...arrays.dense import as_array
from ...arrays.device import DeviceArray
from ...base import runtime
from ...base.devices import A_DEVICE
from ...base.errors import Unsupported, WrongType, WrongValue, shown
from ...base.float_env import converted, counts_subnormals
from ...base.values import as_real, check_flag
from ..arguments import Array, FloatArray, as_format
from .device import TOGETHER, device_floats, device_layer, in_library_of_first

HALF = as_format("fp16", "layers")
MANY = 4096  # values from which on a call of the core is faster than NumPy
RMS_NORM, NORM, SOFTMAX, SILU, GELU, ROPE, GELU_ERF, RELU, RELU2 = range(9)  # hc_layer_kind
GATES = {"silu": SILU, "gelu": GELU, "gelu_erf": GELU_ERF, "relu": RELU, "relu2": RELU2}


@counts_subnormals
@in_library_of_first
def rms_norm(x: ArrayLike, weight: ArrayLike | None = None, epsilon: float = 1e-6) -> FloatArray:
    """Normalize each row: divide it by its root mean square.

    Parameters
    ----------
    x : array_like, shape (..., n)
    weight : array_like, shape (n,), optional
        Multiplies each value.
    epsilon : float
        Added to the mean square.

    Returns
    -------
    ndarray of float32, shape of x
        ``x / sqrt(mean(x x) + epsilon) * weight``.

    Raises
    ------
    ValueError
        The shapes do not match, or epsilon is negative.

    Notes
    -----
    Zhang and Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019 (arXiv 1910.07467), equation 4.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.layers.rms_norm(np.float32([[3, 4], [0, 5]]), epsilon=0.0)
    array([[0.84852815, 1.1313709 ],
           [0.        , 1.4142137 ]], dtype=float32)
    """
    xs = _floats(x, "rms_norm: x")
    return _layer("rms_norm", RMS_NORM, xs, _vector(weight, xs, "rms_norm: weight"), None, epsilon)


@counts_subnormals
@in_library_of_first
def layer_norm(
    x: ArrayLike, weight: ArrayLike | None = None, bias: ArrayLike | None = None, epsilon: float = 1e-5
) -> FloatArray:
    """Normalize each row: subtract its mean and divide by its standard deviation.

    Parameters
    ----------
    x : array_like, shape (..., n)
    weight, bias : array_like, shape (n,), optional
        weight multiplies each value; then bias is added.
    epsilon : float
        Added to the variance.

    Returns
    -------
    ndarray of float32, shape of x

    Raises
    ------
    ValueError
        The shapes do not match, or epsilon is negative.

    Notes
    -----
    Ba, Kiros and Hinton, "Layer Normalization", 2016 (arXiv 1607.06450), equation 4.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.layers.layer_norm(np.float32([1, 3]), bias=np.float32([0, 10]), epsilon=0.0)
    array([-1., 11.], dtype=float32)
    """
    xs = _floats(x, "layer_norm: x")
    w, b = _vector(weight, xs, "layer_norm: weight"), _vector(bias, xs, "layer_norm: bias")
    return _layer("layer_norm", NORM, xs, w, b, epsilon)


@counts_subnormals
@in_library_of_first
def rope(x: ArrayLike, cosine: ArrayLike, sine: ArrayLike, pairs: bool = False) -> FloatArray:
    """Rotate pairs of values by the angles of their positions.

    Parameters
    ----------
    x : array_like, shape (..., width)
        Queries or keys.
    cosine, sine : array_like, shape (..., half)
        Of the angles; broadcast over the leading axes of x. Values from index 2 half on are not rotated.
    pairs : bool
        Rotate the pairs (2 i, 2 i + 1), as Meta's LLaMA does. False: the pairs (i, i + half), as GPT-NeoX does.

    Returns
    -------
    ndarray of float32, shape of x

    Raises
    ------
    ValueError
        The shapes do not match.

    Notes
    -----
    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021 (arXiv 2104.09864), equation 34.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> angles = np.float32([[0.0], [np.pi / 2]])  # of two positions
    >>> hc.layers.rope(np.float32([[1, 2], [1, 2]]), np.cos(angles), np.sin(angles)).round(3)
    array([[ 1.,  2.],
           [-2.,  1.]], dtype=float32)
    """
    xs, cos, sin = _floats(x, "rope: x"), _floats(cosine, "rope: cosine"), _floats(sine, "rope: sine")
    turned = check_flag("rope", "pairs", pairs)
    if not xs.ndim or not cos.ndim or cos.shape != sin.shape or 2 * cos.shape[-1] > xs.shape[-1]:
        raise WrongValue(
            f"rope: cosine has shape {cos.shape} and sine {sin.shape}, expected one shape (..., half) with half of at "
            f"most {xs.shape[-1] // 2 if xs.ndim else 0}"
        )
    half, lead = cos.shape[-1], xs.shape[:-1]
    if cos.ndim == 3 and cos.shape[1] == 1 and lead[-2:-1] == cos.shape[:1]:  # (tokens, 1, half): of all heads
        repeat, turns = lead[-1], cos.shape[0]
    elif cos.ndim == 2 and lead[-1:] == cos.shape[:1]:
        repeat, turns = 1, cos.shape[0]
    elif isinstance(cos, DeviceArray) or isinstance(sin, DeviceArray):
        raise Unsupported(
            f"rope: cosine has shape {cos.shape}, expected (tokens, half) or (tokens, 1, half) on {A_DEVICE}"
        )
    else:
        try:
            cos, sin = (np.ascontiguousarray(np.broadcast_to(part, (*lead, half))) for part in (cos, sin))
        except ValueError:
            raise WrongValue(f"rope: cosine has shape {cos.shape}, which does not fit x of shape {xs.shape}") from None
        repeat, turns = 1, math.prod(lead)
    return _layer("rope", ROPE, xs, cos, sin, 0.0, (half, max(repeat, 1), max(turns, 1), turned))


@counts_subnormals
@in_library_of_first
def softmax(x: ArrayLike) -> FloatArray:
    """Return ``exp(x) / sum(exp(x))`` along the last axis, computed from ``x - max(x)``.

    Parameters
    ----------
    x : array_like, shape (..., n)

    Returns
    -------
    ndarray of float32, shape of x
        NaN in a row that holds NaN or plus infinity, or only minus infinity.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.layers.softmax(np.float32([0, 0, -np.inf]))
    array([0.5, 0.5, 0. ], dtype=float32)
    """
    return _layer("softmax", SOFTMAX, _floats(x, "softmax: x"))


@counts_subnormals
@in_library_of_first
def swiglu(gate: ArrayLike, up: ArrayLike) -> FloatArray:
    """Return ``gate sigmoid(gate) up``.

    Parameters
    ----------
    gate, up : array_like of the same shape

    Returns
    -------
    ndarray of float32

    Raises
    ------
    ValueError
        The shapes differ.

    Notes
    -----
    Shazeer, "GLU Variants Improve Transformer", 2020 (arXiv 2002.05202), equation 6.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.layers.swiglu(np.float32([0, 20]), np.float32([3, 3]))
    array([ 0., 60.], dtype=float32)
    """
    xs = _floats(gate, "swiglu: gate")
    return _layer("swiglu", SILU, xs, _same(up, xs, "swiglu: up"))


@counts_subnormals
@in_library_of_first
def gelu(x: ArrayLike, up: ArrayLike | None = None) -> FloatArray:
    """Return ``x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``, times `up`.

    Parameters
    ----------
    x : array_like
    up : array_like, optional
        Same shape as x.

    Returns
    -------
    ndarray of float32, shape of x

    Raises
    ------
    ValueError
        The shapes differ.

    Notes
    -----
    Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016 (arXiv 1606.08415), section 2: the tanh form. It is
    computed as the equal expression ``x sigmoid(1.5957691 (x + 0.044715 x^3))``.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.layers.gelu(np.float32([-20, 0, 20]))
    array([-0.,  0., 20.], dtype=float32)
    """
    xs = _floats(x, "gelu: x")
    return _layer("gelu", GELU, xs, None if up is None else _same(up, xs, "gelu: up"))


def activated(name: str, x: FloatArray, up: FloatArray | None = None) -> FloatArray:
    """Return the activation of a network, a key of `GATES`, times `up`; on the CPU."""
    return _layer(name, GATES[name], as_floats(x, name), None if up is None else as_floats(up, name))


def as_floats(x: object, name: str) -> FloatArray:
    """Return an array as contiguous float32: itself if it is one."""
    if type(x) is np.ndarray and x.dtype == np.float32 and x.flags.c_contiguous and x.flags.aligned:
        return x
    given = as_array(x, name)
    if given.dtype == np.float16 and given.size >= MANY and given.flags.c_contiguous:
        return _from_halves(given)
    found: FloatArray = converted(given, np.float32)
    return np.ascontiguousarray(found) if found.ndim else found  # ascontiguousarray would give a scalar an axis


def _from_halves(x: Array) -> FloatArray:
    """Return contiguous float16 as float32, a tenth of the time of `numpy.ndarray.astype`."""
    out = np.empty(x.shape, np.float32)
    rows = x.reshape(-1, x.shape[-1])
    packed: Any = (core_format(HALF), rows.shape, (1,), {"codes": rows.view(np.uint8)})
    _core.dequantize(runtime.run(), packed, out.reshape(rows.shape))
    return out


def _floats(x: Any, name: str) -> Any:
    """Return an array as contiguous float32, on the device that it is on."""
    on_device = device_floats(x, name)
    return as_floats(x, name) if on_device is None else on_device


def _vector(value: object, xs: FloatArray, name: str) -> FloatArray | None:
    if value is None:
        return None
    found: FloatArray = _floats(value, name)
    if not xs.ndim or found.shape != xs.shape[-1:]:
        raise WrongValue(f"{name} has shape {found.shape}, expected {xs.shape[-1:]}")
    return found


def _same(value: object, xs: FloatArray, name: str) -> FloatArray:
    found: FloatArray = _floats(value, name)
    if found.shape != xs.shape:
        raise WrongValue(f"{name} has shape {found.shape}, expected {xs.shape}")
    return found


def _layer(
    name: str,
    kind: int,
    xs: FloatArray,
    weight: Any = None,
    bias: Any = None,
    epsilon: object = 0.0,
    rotation: tuple[int, int, int, bool] = (0, 1, 1, False),
) -> FloatArray:
    """Run a layer of the core; `rotation`: half of a head, repeats, turns and whether pairs are neighbors, of rope."""
    added = epsilon if type(epsilon) is float else as_real(epsilon, f"{name}: epsilon", "a number")
    if not 0.0 <= added < math.inf:
        raise WrongValue(f"{name}: epsilon is {shown(epsilon)}, expected 0 or more")
    if not xs.ndim:
        if kind in GATES.values():
            return _layer(name, kind, xs.reshape(1), None if weight is None else weight.reshape(1)).reshape(())
        raise WrongValue(f"{name}: x has no dimensions, expected (..., n)")
    if isinstance(xs, DeviceArray):
        return device_layer(name, kind, xs, weight, bias, (added, *rotation))
    if isinstance(weight, DeviceArray) or isinstance(bias, DeviceArray):
        raise WrongType(f"{name}: x is on the CPU and another argument on a device, {TOGETHER}")
    out = np.empty(xs.shape, np.float32)
    n = xs.shape[-1]
    if out.size:
        _core.layer(runtime.run(), kind, xs.size // n, n, xs, weight, bias, out, added, *rotation)
    return out
