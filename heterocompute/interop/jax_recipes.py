"""JAX: linear layers and attention in the formats of a recipe, with their gradients, as functions of arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..base.errors import WrongType, WrongValue
from ..base.values import Rng, check_flag, check_text, seed_from
from ..training.step.attention import AttentionState, attended, attention_forward
from ..training.step.layer import LayerState
from ..training.step.named import as_recipe
from ..training.step.products import backward, forward
from ..training.step.recipe import Delayed, Recipe
from .jax_host import Call, imported, on_the_host, words_of

F32 = np.dtype(np.float32)


def linear_in(x: Any, w: Any, recipe: Recipe | str, seed: object = 0, layer: str = "", rng: Rng = None) -> Any:
    """Compute x w^T in the formats of a recipe; so are both matmuls of its gradient.

    Parameters
    ----------
    x : jax.Array
        (..., inputs), float32.
    w : jax.Array
        (outputs, inputs), float32.
    recipe : Recipe or str
        Formats of the operands, of the weight gradient, and sums. Scales depend on these arrays alone: `Delayed` is
        refused.
    seed : int or jax.Array
        Replaces the seed of the recipe. Pass another one in each step and layer.
    layer : str, optional
        Name of the layer, which `Recipe.keep` is matched with.

    Returns
    -------
    jax.Array
        (..., outputs), float32.

    Raises
    ------
    ImportError
        JAX is not installed.
    TypeError, ValueError
        As for `heterocompute.training.linear_step`, whose values these are.

    Examples
    --------
    >>> from heterocompute.interop import jax as hj
    >>> y, back = jax.vjp(lambda x, w: hj.linear_in(x, w, "mxfp8"), x, w)  # doctest: +SKIP
    """
    _, jnp = imported("linear_in")
    chosen = _checked(recipe, "linear_in")
    x, w = _floats("linear_in", x=x, w=w)
    check_text("linear_in", "layer", layer)
    if w.ndim != 2 or x.ndim < 1 or x.shape[-1] != w.shape[1]:
        raise WrongValue(f"linear_in: x has shape {x.shape} and w {w.shape}, expected (..., in) and (out, in)")
    LayerState(chosen, layer, 0).check(*w.shape[::-1])

    def state(number: int) -> LayerState:
        found = LayerState(replace(chosen, seed=number), layer, 0)
        found.begin()
        return found

    def product(number: int, rows: Any, weights: Any) -> tuple[Any, ...]:
        return (forward(state(number), rows, weights)[0],)

    def gradients(number: int, rows: Any, weights: Any, g: Any) -> tuple[Any, ...]:
        one = state(number)
        return backward(one, g, one.kept_for_backward(rows, weights, one.forward(rows, weights)))

    shape = (int(np.prod(x.shape[:-1])), w.shape[0])
    function = _differentiable("linear_in", product, gradients, shape)
    return function(
        words_of(seed_from("linear_in", seed, rng), jnp, "linear_in"), x.reshape(-1, x.shape[-1]), w
    ).reshape(*x.shape[:-1], len(w))


def attention_in(
    q: Any,
    k: Any,
    v: Any,
    recipe: Recipe | str,
    causal: bool = False,
    seed: object = 0,
    layer: str = "",
    rng: Rng = None,
) -> Any:
    """Compute attention in the formats of a recipe; so are the four matmuls of its gradient.

    Parameters
    ----------
    q, k, v : jax.Array
        Queries (..., queries, d), keys (..., keys, d) and values (..., keys, e), float32, with the same leading
        dimensions.
    recipe : Recipe or str
        `Delayed` is refused.
    causal : bool, optional
        A query sees the keys up to its own index.
    seed : int or jax.Array
        Replaces the seed of the recipe.
    layer : str, optional
        Name of the attention, which `Recipe.keep` is matched with.

    Returns
    -------
    jax.Array
        (..., queries, e), float32.

    Raises
    ------
    ImportError
        JAX is not installed.
    TypeError, ValueError
        As for `heterocompute.training.attention_step`, whose values these are.

    Examples
    --------
    >>> from heterocompute.interop import jax as hj
    >>> y = hj.attention_in(q, k, v, "bf16", causal=True)  # doctest: +SKIP
    """
    _, jnp = imported("attention_in")
    chosen = _checked(recipe, "attention_in")
    check_flag("attention_in", "causal", causal)
    check_text("attention_in", "layer", layer)
    q, k, v = _floats("attention_in", q=q, k=k, v=v)
    shapes = q.shape, k.shape, v.shape
    if min(map(len, shapes)) < 2 or len({one[:-2] for one in shapes}) > 1 or q.shape[-1] != k.shape[-1] or (
        k.shape[-2] != v.shape[-2]
    ):  # fmt: skip
        raise WrongValue(
            f"attention_in: shapes of q, k and v are {', '.join(map(str, shapes))}, expected (..., queries, d), "
            "(..., keys, d) and (..., keys, e)"
        )
    AttentionState(chosen, layer).check(q.shape[-2], k.shape[-2], q.shape[-1])

    def state(number: int) -> AttentionState:
        return AttentionState(replace(chosen, seed=number), layer)

    def output(number: int, *arrays: Any) -> tuple[Any, ...]:
        return (attention_forward(state(number), causal, *arrays)[0],)

    def gradients(number: int, *arrays: Any) -> tuple[Any, ...]:
        return attended(state(number), causal, *arrays)[1:]

    function = _differentiable("attention_in", output, gradients, (*q.shape[:-1], v.shape[-1]))
    return function(words_of(seed_from("attention_in", seed, rng), jnp, "attention_in"), q, k, v)


def _differentiable(name: str, value: Callable[..., Any], gradients: Callable[..., Any], shape: tuple[int, ...]) -> Any:
    """Return a function of the words of a seed and of arrays, whose value and gradients the host computes."""
    jax, _ = imported(name)

    def on_host(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
        def called(*given: Any) -> tuple[Any, ...]:
            *arrays, words = given
            return tuple(function(sum(int(word) << (32 * i) for i, word in enumerate(words)), *arrays))

        return called

    there = Call(name, on_host(value), lambda *_: [(shape, F32)])
    back = Call(name, on_host(gradients), lambda *given: [(one.shape, F32) for one in given[:-2]])

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def function(words: Any, *arrays: Any) -> Any:
        return on_the_host(there, *arrays, words)[0]

    def kept(words: Any, *arrays: Any) -> tuple[Any, Any]:
        return function(words, *arrays), (words, arrays)

    def returned(saved: Any, g: Any) -> tuple[Any, ...]:
        words, arrays = saved
        nothing = np.zeros(np.shape(words), jax.dtypes.float0)
        return nothing, *on_the_host(back, *arrays, g, words)

    function.defvjp(kept, returned)
    return function


def _checked(recipe: object, name: str) -> Recipe:
    found = as_recipe(recipe, f"{name}: recipe")
    if isinstance(found.scaling, Delayed):
        raise WrongValue(
            f"{name}: recipe has Delayed scaling, which depends on earlier steps, expected Current: "
            "dataclasses.replace(recipe, scaling=heterocompute.training.Current())"
        )
    return found


def _floats(name: str, **arrays: Any) -> list[Any]:
    """Return arrays of JAX that are float32."""
    _, jnp = imported(name)
    found = []
    for key, value in arrays.items():
        one = jnp.asarray(value)
        if one.dtype != jnp.float32:
            raise WrongType(f"{name}: {key} has dtype {one.dtype}, expected float32")
        found.append(one)
    return found
