"""The layers of transformers between products: norms, rotary positions, gated activations, softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays.dense import as_array
from ...base.float_env import converted, counts_subnormals
from ...base.values import as_real, shown
from ..arguments import FloatArray

__all__ = ["gelu", "layer_norm", "rms_norm", "rope", "softmax", "swiglu"]


@counts_subnormals
def rms_norm(x: Any, weight: Any = None, epsilon: float = 1e-6) -> FloatArray:
    xs = _floats(x, "rms_norm: x")
    w = None if weight is None else _floats(weight, "rms_norm: weight")
    scale = np.sqrt(np.mean(xs * xs, axis=-1, keepdims=True) + np.float32(epsilon))
    return xs / scale if w is None else xs / scale * w


@counts_subnormals
def layer_norm(x: Any, weight: Any = None, bias: Any = None, epsilon: float = 1e-5) -> FloatArray:
    xs = _floats(x, "layer_norm: x")
    xs = xs - xs.mean(axis=-1, keepdims=True)
    xs = xs / np.sqrt(np.mean(xs * xs, axis=-1, keepdims=True) + np.float32(epsilon))
    if weight is not None:
        xs = xs * _floats(weight, "layer_norm: weight")
    return xs if bias is None else xs + _floats(bias, "layer_norm: bias")


@counts_subnormals
def rope(x: Any, cosine: Any, sine: Any, pairs: bool = False) -> FloatArray:
    xs, cos, sin = _floats(x, "rope: x"), _floats(cosine, "rope: cosine"), _floats(sine, "rope: sine")
    half = cos.shape[-1]
    out = xs.copy()
    if pairs:
        a, b = xs[..., 0 : 2 * half : 2], xs[..., 1 : 2 * half : 2]
        out[..., 0 : 2 * half : 2], out[..., 1 : 2 * half : 2] = a * cos - b * sin, a * sin + b * cos
    else:
        a, b = xs[..., :half], xs[..., half : 2 * half]
        out[..., :half], out[..., half : 2 * half] = a * cos - b * sin, a * sin + b * cos
    return out


@counts_subnormals
def softmax(x: Any) -> FloatArray:
    xs = _floats(x, "softmax: x")
    e = np.exp(xs - xs.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@counts_subnormals
def swiglu(gate: Any, up: Any) -> FloatArray:
    g, u = _floats(gate, "swiglu: gate"), _floats(up, "swiglu: up")
    with np.errstate(over="ignore"):
        return g / (1 + np.exp(-g)) * u


@counts_subnormals
def gelu(x: Any, up: Any = None) -> FloatArray:
    xs = _floats(x, "gelu: x")
    y = np.float32(0.5) * xs * (1 + np.tanh(np.float32(0.7978845608) * (xs + np.float32(0.044715) * xs * xs * xs)))
    return y if up is None else y * _floats(up, "gelu: up")


def _floats(x: Any, name: str) -> FloatArray:
    return converted(as_array(x, name), np.float32)
