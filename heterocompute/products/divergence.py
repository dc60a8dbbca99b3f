"""The distance between the outputs of a changed network and those of the original: `kl_divergence`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.array_like import ArrayLike
from ..arrays.dense import as_array
from ..base.errors import WrongValue
from ..base.float_env import counts_subnormals

__all__ = ["kl_divergence"]

_BLOCK = 1 << 18  # values at a time, or one row if it is longer


@counts_subnormals
def kl_divergence(logits: ArrayLike, changed: ArrayLike) -> float:
    """Compute the KL divergence between the predictions of a network and of a changed network.

    Parameters
    ----------
    logits : array_like
        Shape (..., classes), from the original network. A softmax over the last axis gives probabilities.
    changed : array_like
        Same shape, from the network with quantized or pruned weights.

    Returns
    -------
    float
        Mean over all axes except the last of ``sum(p (log p - log q))``, in nats and float64. p and q are the softmax
        of `logits` and `changed`. 0 if nothing changed; NaN if a logit is not finite.

    Raises
    ------
    ValueError
        The shapes differ, or the arrays are empty.

    Notes
    -----
    Kullback and Leibler, "On Information and Sufficiency", Annals of Mathematical Statistics 22, 1951. Accuracy counts
    changed predictions. This divergence measures changes of all predictions, so it separates formats of equal accuracy.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> logits = np.float32([[2, 0, 0], [0, 1, 3]])
    >>> hc.kl_divergence(logits, logits)
    0.0
    >>> round(hc.kl_divergence(logits, np.float32([[1, 0, 0], [0, 1, 3]])), 4)
    0.0494
    """
    p, q = as_array(logits, "kl_divergence: logits"), as_array(changed, "kl_divergence: changed")
    if p.shape != q.shape:
        raise WrongValue(f"kl_divergence: logits has shape {p.shape} and changed has shape {q.shape}")
    if p.ndim == 0 or p.size == 0:
        raise WrongValue(f"kl_divergence: logits has shape {p.shape}, expected some rows of some classes")
    rows = np.empty(p.size // p.shape[-1])
    done = 0
    for some_p, some_q in _blocks(p, q):
        if not (np.isfinite(some_p).all() and np.isfinite(some_q).all()):
            return float("nan")
        with np.errstate(over="ignore", invalid="ignore"):  # float64 logits may differ by more than its range
            log_p, log_q = _log_softmax(some_p), _log_softmax(some_q)
            shares = np.exp(log_p)
            lost = np.where(shares > 0, shares * (log_p - log_q), 0.0).sum(axis=-1)
        rows[done : done + lost.size] = lost.reshape(-1)
        done += lost.size
    return float(np.maximum(rows, 0.0, out=rows).mean())  # rounding errors can make it negative


def _blocks(p: NDArray[Any], q: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield some rows of both at a time, in C order."""
    if p.ndim == 1:
        yield p[None], q[None]
    elif p.ndim > 2 and p[0].size > _BLOCK:
        for one_p, one_q in zip(p, q, strict=True):
            yield from _blocks(one_p, one_q)
    else:
        step = max(_BLOCK // p[0].size, 1)
        for first in range(0, len(p), step):
            yield p[first : first + step], q[first : first + step]


def _log_softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64, order="C")
    shifted -= shifted.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
