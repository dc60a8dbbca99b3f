"""The experts of a layer: a router selects some of them for each token, and their sum is weighted by shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....products.layers import softmax
from ..shape import Routing, Shape

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]
Multiplied = Callable[..., FloatArray]  # (x, weight, bias=None)
Gated = Callable[[FloatArray, FloatArray], FloatArray]
Summed = Callable[[Mapping[str, Any], FloatArray, IntArray, FloatArray], Any]  # (part, x, picked, shares)

LEAST = np.float32(1e-20)  # added to the sum of shares


def mixed(
    shape: Shape,
    part: Mapping[str, Any],
    x: FloatArray,
    multiplied: Multiplied,
    gated: Gated,
    summed: Summed | None = None,
) -> FloatArray:
    """Return the sum of the experts that the router selects for each token, and of those that every token uses.

    Parameters
    ----------
    part : mapping of str to Any
        Tensors of the layer by role.
    multiplied, gated : callable
        The matmul and the gate of the network.
    summed : callable, optional
        Returns the sum of the selected experts, or None if this function computes it.
    """
    rows = x.reshape(-1, x.shape[-1])
    router = multiplied(rows, part["ffn_gate_inp.weight"], part.get("ffn_gate_inp.bias"))
    picked, shares = routed(shape, router, part.get("exp_probs_b.bias"))
    out: FloatArray | None = None if summed is None else summed(part, rows, picked, shares)
    if out is None:
        out = np.zeros_like(rows)
        for expert in np.unique(picked).tolist():
            token, place = np.nonzero(picked == expert)
            y = _expert(shape, part, expert, rows[token], multiplied, gated)
            out[token] += y * shares[token, place][:, None]
    if shape.shared_hidden:

        def product(x: FloatArray, name: str) -> FloatArray:
            return multiplied(x, part[f"ffn_{name}_shexp.weight"], part.get(f"ffn_{name}_shexp.bias"))

        y = product(gated(product(rows, "gate"), product(rows, "up")), "down")
        scale = part.get("ffn_gate_inp_shexp.weight")
        out += y if scale is None else y * sigmoid(multiplied(rows, scale))
    return out.reshape(x.shape)


def _expert(
    shape: Shape, part: Mapping[str, Any], expert: int, x: FloatArray, multiplied: Multiplied, gated: Gated
) -> FloatArray:
    def product(x: FloatArray, name: str) -> FloatArray:
        bias = part.get(f"ffn_{name}_exps.bias")
        return multiplied(x, part[f"ffn_{name}_exps.weight"][expert], None if bias is None else bias[expert])

    if "ffn_gate_up_exps.weight" in part:
        both = product(x, "gate_up")
        halves = np.split(both, 2, axis=-1) if not shape.routing.interleaved else (both[:, ::2], both[:, 1::2])
        gate, up = (np.ascontiguousarray(half) for half in halves)
    else:
        gate, up = product(x, "gate"), product(x, "up")
    inner = gated(gate, up) if shape.routing.clamp is None else _clamped(gate, up, shape.routing.clamp)
    return product(inner, "down")


def _clamped(gate: FloatArray, up: FloatArray, clamp: tuple[float, float]) -> FloatArray:
    """Return the activation of gpt-oss: gate sigmoid(alpha gate) (up + 1), of values within a limit."""
    alpha, limit = (np.float32(one) for one in clamp)
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    found: FloatArray = (up + np.float32(1)) * (gate * sigmoid(alpha * gate))
    return found


def sigmoid(x: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-x)), as the softmax of x and 0."""
    return softmax(np.stack([x, np.zeros_like(x)], axis=-1))[..., 0]


def routed(shape: Shape, router: FloatArray, correction: FloatArray | None = None) -> tuple[IntArray, FloatArray]:
    """Return the experts of each token, and their shares.

    Parameters
    ----------
    router : ndarray of float32, shape (tokens, experts)
    correction : ndarray of float32, shape (experts,), optional
        Added to the scores by which experts are chosen.

    Notes
    -----
    Groups: DeepSeek-AI, 2024 (arXiv 2405.04434), section 2.1.4, and 2024 (arXiv 2412.19437), section 2.1.2.
    """
    rule = shape.routing
    if rule.function == "mixer":
        return _best_two(router, rule.noise)
    if rule.function == "softmax" and rule.groups == 1 and correction is None and shape.shares_sum_to_one:
        picked = _largest(router, shape.experts_used)
        return picked, _scaled(softmax(_picked(router, picked)), rule)
    scores = softmax(router) if rule.function == "softmax" else sigmoid(router)
    choice = scores if correction is None else scores + correction
    if rule.groups > 1:
        choice = _of_best_groups(choice, rule)
    picked = _largest(choice, shape.experts_used)
    shares = _picked(scores, picked)
    if shape.shares_sum_to_one:
        total = shares[:, :1]
        for i in range(1, shares.shape[1]):  # one after the other, in any version of NumPy
            total = total + shares[:, i : i + 1]
        shares = shares / (total + LEAST)
    return picked, _scaled(shares, rule)


def _picked(scores: FloatArray, picked: IntArray) -> FloatArray:
    """Return the scores of some experts of each token."""
    found: FloatArray = scores[np.arange(len(scores))[:, None], picked]
    return found


def _scaled(shares: FloatArray, rule: Routing) -> FloatArray:
    return shares if rule.factor == 1 else shares * np.float32(rule.factor)


def _largest(scores: FloatArray, count: int) -> IntArray:
    return np.argsort(-scores, axis=-1, kind="stable")[:, :count]


def _of_best_groups(choice: FloatArray, rule: Routing) -> FloatArray:
    """Return scores that are minus infinity outside of the best groups.

    The score of a group is its largest one, or the sum of the two largest.
    """
    grouped = choice.reshape(len(choice), rule.groups, -1)
    best = -np.sort(-grouped, axis=-1)
    score = best[..., 0] + best[..., 1] if rule.sums_two else best[..., 0]
    is_used = np.zeros(score.shape, bool)
    np.put_along_axis(is_used, _largest(score, rule.groups_used), True, axis=-1)
    return np.where(is_used[..., None], grouped, np.float32(-np.inf)).reshape(choice.shape)


def _best_two(router: FloatArray, noise: float) -> tuple[IntArray, FloatArray]:
    """Return the two best experts, each with its share among those that are near it.

    Liu et al., "GRIN: GRadient-INformed MoE", 2024 (arXiv 2409.12136), as Phi-3.5-MoE evaluates it.
    """
    rest, picked, shares = router, list[IntArray](), list[FloatArray]()
    for _ in range(2):
        best = rest.argmax(axis=-1, keepdims=True)
        most = np.take_along_axis(rest, best, axis=-1)
        is_far = (most - router) / np.maximum(np.abs(router), most) > np.float32(2 * noise)
        near = np.where(is_far, np.float32(-np.inf), rest)
        picked.append(best)
        shares.append(np.take_along_axis(softmax(near), best, axis=-1))
        rest = rest.copy()
        np.put_along_axis(rest, best, np.float32(-np.inf), axis=-1)
    return np.concatenate(picked, axis=-1), np.concatenate(shares, axis=-1)
