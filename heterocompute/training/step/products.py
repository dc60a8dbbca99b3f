"""The matmuls of a linear layer and of a convolution in the formats of a recipe, as functions of NumPy arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...arrays.array_like import ArrayLike
from ...arrays.dense import as_array
from ...base.errors import WrongValue
from ...base.float_env import counts_subnormals
from ...base.lazy import renamed
from ...base.values import Rng, as_int, seed_from
from .layer import LayerState
from .named import as_recipe
from .recipe import Recipe
from .sums import multiplied

__all__ = ["LinearStep", "linear_step"]


def __dir__() -> list[str]:
    return __all__


Array = np.ndarray[Any, Any]


class LinearStep(NamedTuple):
    """The three results of a training step of a linear layer, float32.

    Attributes
    ----------
    y, dx, dw : ndarray
        ``x w^T``, ``g w`` and ``g^T x``.
    """

    y: Array
    dx: Array
    dw: Array


@counts_subnormals
@renamed(g="dy")
def linear_step(
    x: ArrayLike, w: ArrayLike, dy: ArrayLike, recipe: Recipe | str, seed: int | None = None, *, rng: Rng = None
) -> LinearStep:
    """Compute the three matmuls of a linear layer in the formats of a recipe.

    Parameters
    ----------
    x, w, dy : array_like
        Inputs (rows, inputs), weights (outputs, inputs), and gradient of the outputs (rows, outputs).
    recipe : Recipe or str
        With `Delayed` the scales are 1, as in the first step.
    seed : int, optional
        Replaces the seed of the recipe.
    rng : int or numpy.random.Generator, optional
        In place of `seed`: an int is the seed, a generator draws it (SPEC 7).

    Returns
    -------
    LinearStep
        ``y``, ``dx`` and ``dw``.

    Raises
    ------
    TypeError, ValueError
        The recipe is unknown, shapes do not match, or a group does not divide a row.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> x, w, dy = np.float32([[1, 300]]), np.float32([[1, 1]]), np.float32([[2]])
    >>> hc.training.linear_step(x, w, dy, "fp8-current").dw
    array([[  2.0089285, 600.       ]], dtype=float32)
    """
    chosen = as_recipe(recipe, "linear_step: recipe")
    seed = seed_from("linear_step", seed, rng, None)
    if seed is not None:
        chosen = replace(chosen, seed=as_int(seed, "linear_step: seed", 0, 2**64 - 1))
    values, weights, slopes = (np.asarray(as_array(one, f"linear_step: {name}"), np.float32)
                               for name, one in (("x", x), ("w", w), ("dy", dy)))  # fmt: skip
    if not values.ndim == weights.ndim == slopes.ndim == 2 or values.shape[1] != weights.shape[1] or slopes.shape != (
        len(values), len(weights)
    ):  # fmt: skip
        raise WrongValue(
            f"linear_step: x has shape {values.shape}, w {weights.shape} and dy {slopes.shape}, expected (rows, "
            "inputs), (outputs, inputs) and (rows, outputs)"
        )
    state = LayerState(chosen, "", 0)
    state.check(weights.shape[1], weights.shape[0], "linear_step")
    state.begin()
    y, kept = forward(state, values, weights)
    return LinearStep(y, *backward(state, slopes, kept))


def forward(state: LayerState, x: Array, w: Array) -> tuple[Array, tuple[Any, Any, Any]]:
    """Return ``x w^T`` and what `backward` reads."""
    operands = state.forward(x, w)
    return multiplied(
        state, operands[0], operands[1].swapaxes(-1, -2), "activations", "weights"
    ), state.kept_for_backward(x, w, operands)


def backward(state: LayerState, g: Array, kept: tuple[Any, Any, Any], wants_input: bool = True) -> tuple[Array, Array]:
    """Return ``dx`` and ``dw``; without `wants_input`, dx is empty."""
    x, w, scales = kept
    state.begin_backward(scales)
    dx, rounded_g = np.empty(0, np.float32), None
    if wants_input:
        rounded_g, rounded_w = state.input_gradient(g, w)
        dx = multiplied(state, rounded_g, rounded_w, "gradients", "weights")
    last_g, last_x = state.weight_gradient(g, x, rounded_g)
    dw = multiplied(state, last_g.swapaxes(-1, -2), last_x, "wgrad_gradients", "wgrad_activations")
    return dx, state.result(dw)


def patches(x: Array, size: int, stride: int) -> Array:
    """Return the patches of a convolution with padding `size` // 2 as rows (n, height, width, channels * size^2)."""
    edge = size // 2
    padded = np.pad(x, ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))[:, :, ::stride, ::stride]
    return np.ascontiguousarray(windows.transpose(0, 2, 3, 1, 4, 5)).reshape(*_rows(windows), -1)


def unpatched(rows: Array, shape: tuple[int, ...], size: int, stride: int) -> Array:
    """Return the sum of patches at their positions in x: the transpose of `patches`."""
    edge, (n, channels, height, width) = size // 2, shape
    parts = rows.reshape(*rows.shape[:3], channels, size, size)
    found = np.zeros((n, channels, height + 2 * edge, width + 2 * edge), np.float32)
    down, across = rows.shape[1] * stride, rows.shape[2] * stride
    for r in range(size):
        for s in range(size):
            found[:, :, r : r + down : stride, s : s + across : stride] += parts[..., r, s].transpose(0, 3, 1, 2)
    return found[:, :, edge : edge + height, edge : edge + width]


def _rows(windows: Array) -> tuple[int, int, int]:
    return windows.shape[0], windows.shape[2], windows.shape[3]
