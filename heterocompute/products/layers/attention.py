"""Attention, and the keys and values that it keeps."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.float_env import counts_subnormals
from ..arguments import FloatArray

__all__ = ["attention"]


@counts_subnormals
def attention(
    q: Any, k: Any, v: Any, causal: bool = True, scale: float | None = None, window: int | None = None,
    cap: float | None = None,
) -> FloatArray:
    n, m, d = q.shape[-2], k.shape[-2], q.shape[-1]
    group = q.shape[-3] // k.shape[-3]
    s = np.float32(d**-0.5 if scale is None else scale)
    qs = q.reshape(*q.shape[:-3], k.shape[-3], group * n, d)
    scores = (qs * s) @ np.swapaxes(k, -1, -2)
    scores = scores.reshape(*q.shape[:-3], k.shape[-3], group, n, m)
    if cap:
        scores = np.float32(cap) * np.tanh(scores / np.float32(cap))
    at, to = np.arange(m - n, m)[:, None], np.arange(m)[None]
    hidden = (to > at) if causal else np.zeros((n, m), bool)
    if window:
        hidden = hidden | (to <= at - window)
    scores = np.where(hidden, np.float32(-np.inf), scores)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    e /= e.sum(axis=-1, keepdims=True)
    e = e.reshape(*q.shape[:-3], k.shape[-3], group * n, m)
    return (e @ v).reshape(q.shape)
