"""The matmuls of attention in the formats of a recipe: scores ``q k^T`` and context ``p v``, with their gradients.

    s  = Q(q) Q(k)^T / sqrt(d)     along the features of a head
    p  = softmax(s)                float32, as `heterocompute.layers.softmax`
    o  = Q(p) Q(v)                 along the keys
    dp = Q(dy) Q(v)^T              along the features
    dv = Q(p)^T Q(dy)              along the queries
    dq = Q(ds) Q(k)                along the keys
    dk = Q(ds)^T Q(q)              along the queries

Each is a linear layer whose weights are the keys, or the transposed values: `LayerState` rounds the operands.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...arrays.dense import as_array
from ...base.errors import WrongValue, shown
from ...base.float_env import counts_subnormals
from ...base.lazy import renamed
from ...base.values import Rng, check_flag, seed_from
from ...products.layers.transformer import softmax
from .layer import NUMPY, Arrays, LayerState
from .named import as_recipe
from .products import backward, forward
from .recipe import FP32, Recipe

__all__ = ["AttentionStep", "attention_step"]


def __dir__() -> list[str]:
    return __all__


Array = np.ndarray[Any, Any]
SCORES = {"activations": "queries", "weights": "keys"}
CONTEXT = {"activations": "probabilities", "weights": "values"}
INDEX = 2**33  # seeds of attention: behind those of layers and of the optimizer


class AttentionState:
    """The state of one attention between steps.

    Parameters
    ----------
    recipe : Recipe
    name : str
        Name of the attention. Seeds depend on it.
    arrays : Arrays, optional

    Attributes
    ----------
    scores, context : LayerState
        The matmuls ``q k^T`` and ``p v``.
    """

    def __init__(self, recipe: Recipe, name: str, arrays: Arrays = NUMPY) -> None:
        self.name, self.recipe = name, recipe
        index = INDEX + 2 * zlib.crc32(name.encode())
        self.scores = LayerState(recipe, name, index, arrays, True, SCORES)
        self.context = LayerState(recipe, name, index + 1, arrays, True, CONTEXT)

    @property
    def is_plain(self) -> bool:
        """Tell whether the matmuls are those of float32."""
        return self.recipe.sums is None and all(fmt == FP32 for fmt in self.scores.formats.values())

    @property
    def states(self) -> tuple[LayerState, LayerState]:
        """Return the states of both matmuls."""
        return self.scores, self.context

    def check(self, queries: int, keys: int, features: int) -> None:
        """Refuse groups that do not divide the rows of the operands, unless the recipe pads.

        Raises
        ------
        ValueError
        """
        if self.recipe.pad:
            return
        for key in ("activations", "gradients"):
            fmt = self.scores.formats[key]
            group = getattr(fmt, "group", None)
            for what, size in {"features": features, "keys": keys, "queries": queries}.items():
                if group is not None and size % group:
                    raise WrongValue(
                        f"attention: {shown(self.name)} has {size} {what}, expected a multiple of {group}, the group "
                        f"of {key} in {fmt}: set pad=True, or attention='bf16'"
                    )

    def state(self) -> dict[str, Any]:
        """Return what `restore` reads."""
        return {"scores": self.scores.state(), "context": self.context.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a result of `state`."""
        self.scores.restore(state["scores"])
        self.context.restore(state["context"])


class AttentionStep(NamedTuple):
    """The results of a training step of attention, float32.

    Attributes
    ----------
    y, dq, dk, dv : ndarray
        The output, and the gradients of queries, keys and values.
    """

    y: Array
    dq: Array
    dk: Array
    dv: Array


@counts_subnormals
@renamed(g="dy")
def attention_step(
    q: object,
    k: object,
    v: object,
    dy: object,
    recipe: Recipe | str,
    causal: bool = False,
    seed: int | None = None,
    *,
    rng: Rng = None,
) -> AttentionStep:
    """Compute attention and its gradients in the formats of a recipe.

    Parameters
    ----------
    q, k, v, dy : array_like
        Queries (..., queries, d), keys (..., keys, d), values (..., keys, e), and gradient of the output
        (..., queries, e), with the same leading dimensions.
    recipe : Recipe or str
        `Recipe.attention`, or the formats of activations and gradients. With `Delayed` the scales are 1.
    causal : bool, optional
        A query sees the keys up to its own index.
    seed : int, optional
        Replaces the seed of the recipe.
    rng : int or numpy.random.Generator, optional
        In place of `seed`: an int is the seed, a generator draws it (SPEC 7).

    Returns
    -------
    AttentionStep
        ``y``, ``dq``, ``dk`` and ``dv``.

    Raises
    ------
    TypeError, ValueError
        The recipe is unknown, shapes do not match, or a group does not divide a row.

    Notes
    -----
    Each of the six matmuls rounds both operands along the axis that it sums. Softmax and the factor 1 / sqrt(d) are
    float32.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> q = k = v = dy = np.eye(2, dtype=np.float32)
    >>> hc.training.attention_step(q, k, v, dy, "bf16").y
    array([[0.66796875, 0.33007812],
           [0.33007812, 0.66796875]], dtype=float32)
    """
    chosen = as_recipe(recipe, "attention_step: recipe")
    check_flag("attention_step", "causal", causal)
    seed = seed_from("attention_step", seed, rng, None)
    if seed is not None:
        chosen = replace(chosen, seed=seed)
    arrays = [np.asarray(as_array(one, f"attention_step: {name}"), np.float32)
              for name, one in (("q", q), ("k", k), ("v", v), ("dy", dy))]  # fmt: skip
    shapes = [one.shape for one in arrays]
    is_fine = all(len(shape) >= 2 for shape in shapes) and len({shape[:-2] for shape in shapes}) == 1
    if not is_fine or shapes[0][-1] != shapes[1][-1] or shapes[1][-2] != shapes[2][-2] or (
        shapes[3][-2:] != (shapes[0][-2], shapes[2][-1])
    ):  # fmt: skip
        raise WrongValue(
            f"attention_step: shapes of q, k, v and dy are {', '.join(map(str, shapes))}, expected (..., queries, d), "
            "(..., keys, d), (..., keys, e) and (..., queries, e)"
        )
    return attended(AttentionState(chosen, ""), causal, *arrays)


def attention_forward(
    state: AttentionState, causal: bool, q: Array, k: Array, v: Array
) -> tuple[Array, tuple[Array, Any, Any]]:
    """Begin a step, and return attention and what its gradients read: the probabilities, and the kept operands."""
    state.check(q.shape[-2], k.shape[-2], q.shape[-1])
    for one in state.states:
        one.begin()
    s, kept_scores = forward(state.scores, q, k)
    s *= _factor(q)
    if causal:
        s[..., ~np.tril(np.ones(s.shape[-2:], bool))] = -math.inf
    p = softmax(s)
    y, kept_context = forward(state.context, p, v.swapaxes(-1, -2))
    return y, (p, kept_scores, kept_context)


def attended(state: AttentionState, causal: bool, q: Array, k: Array, v: Array, g: Array) -> AttentionStep:
    """Return the results of `attention_step` for float32 arrays of matching shapes."""
    y, (p, kept_scores, kept_context) = attention_forward(state, causal, q, k, v)
    dp, dv = backward(state.context, g, kept_context)
    ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True)) * _factor(q)
    dq, dk = backward(state.scores, ds, kept_scores)
    return AttentionStep(y, dq, dk, np.ascontiguousarray(dv.swapaxes(-1, -2)))


def _factor(q: Array) -> np.float32:
    return np.float32(1 / math.sqrt(max(q.shape[-1], 1)))
