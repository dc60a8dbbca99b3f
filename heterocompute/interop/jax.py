"""JAX: rounding with a gradient and products with packed weights, inside of jit, grad and vmap; pytrees as weights.

The host computes, in a primitive of JAX that has derivatives of any order (`jax_host`), with the gradient of
`heterocompute.training.fake_quantize`. `named` and `rebuilt` convert between a pytree of parameters and weights by
name, the form for studies, searches and rounding. JAX is imported when a function is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arrays.base import PackedArray
from ..arrays.dense import as_array, normalize_axes
from ..arrays.quantized import QuantizedArray
from ..base.errors import WrongType, WrongValue, shown
from ..base.lazy import renamed
from ..base.texts import quoted
from ..base.values import Rng, check_text, seed_from
from ..files.selection import unknown
from ..formats import Format
from ..products.arguments import as_format
from ..products.matmul import linear as product, matmul
from ..training.passing import note_of, passed, rounded
from .jax_host import Call, imported, on_the_host, words_of
from .jax_recipes import attention_in as attention_in, linear_in as linear_in

__all__ = ["attention_in", "fake_quantize", "linear", "linear_in", "named", "rebuilt"]


def __dir__() -> list[str]:
    return __all__


@renamed(fmt="format")
def fake_quantize(
    x: Any,
    format: Format | str,
    axis: int | tuple[int, ...] = -1,
    clip: Any = None,
    rounding: str = "nearest",
    seed: object = 0,
    rng: Rng = None,
) -> Any:
    """Round an array to a format; its gradient goes straight through where the value is in range.

    Parameters
    ----------
    x : jax.Array
        float32, float64, float16 or bfloat16.
    format, axis, clip, rounding
        As in `heterocompute.training.fake_quantize`, which states the gradient of each format.
    seed : int or jax.Array
        From 0 to 2^64 - 1; an array of one integer, such as a step that is traced, counts as uint32.
    rng : int or numpy.random.Generator, optional
        In place of `seed`: an int is the seed, a generator draws it (SPEC 7).

    Returns
    -------
    jax.Array
        Of x's dtype; in 16 bits the values are rounded once more.

    Raises
    ------
    ImportError
        JAX is not installed.
    TypeError, ValueError
        As for `heterocompute.quantize`; errors that depend on values become JAX's callback errors.

    Examples
    --------
    >>> from heterocompute.interop import jax as hj
    >>> jax.grad(lambda w: hj.fake_quantize(w, "int4").sum())(jnp.ones(2))  # doctest: +SKIP
    Array([1., 1.], dtype=float32)
    """
    jax, jnp = imported("fake_quantize")
    if check_text("fake_quantize", "rounding", rounding) not in ("nearest", "stochastic"):
        raise WrongValue(f"fake_quantize: rounding is {shown(rounding)}, expected 'nearest' or 'stochastic'")
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise WrongType(f"fake_quantize: x has dtype {x.dtype}, expected floats")
    parsed = as_format(format, "fake_quantize: format", functions=True)
    axes = normalize_axes(axis, x.ndim, "fake_quantize")
    noted = note_of(parsed, clip, x.shape, axes)
    is_factor = noted is not None and noted[0] is np.float32
    kind = np.dtype(np.float32 if is_factor else bool)

    def on_host(values: object, words: Any) -> tuple[Any, ...]:
        number = sum(int(word) << (32 * i) for i, word in enumerate(words))
        y, note = rounded(as_array(values, "fake_quantize: x"), parsed, axes, clip, rounding, number)
        if noted is None:
            return (y,)
        return y, passed(np.ones(y.shape, np.float32), note, parsed, axes).astype(kind)

    shapes = [(x.shape, np.dtype(np.float32))] + ([] if noted is None else [(x.shape, kind)])
    call = Call("fake_quantize", on_host, lambda *_: shapes)

    def forward(t: Any, words: object) -> tuple[Any, ...]:
        y, *factor = on_the_host(call, t, words)
        return y.astype(t.dtype), *factor

    def along(primals: Any, tangents: Any) -> tuple[Any, Any]:
        out, g = rounding_of(*primals), tangents[0]
        if noted is None:
            return out, (g,)
        factor = out[1]  # constant: its own derivative is 0
        through = (g.astype(np.float32) * factor).astype(g.dtype) if is_factor else jnp.where(factor, g, 0)
        nothing = jnp.zeros_like(factor) if is_factor else np.zeros(x.shape, jax.dtypes.float0)
        return out, (through, nothing)

    rounding_of = jax.custom_jvp(forward)
    rounding_of.defjvp(along)
    return rounding_of(x, words_of(seed_from("fake_quantize", seed, rng), jnp, "fake_quantize"))[0]


def linear(x: Any, q: QuantizedArray, bias: object = None, dtype: Any = None) -> Any:
    """Multiply by a packed weight, x @ q.T + bias; the gradient reaches x and bias, the weight is frozen.

    Parameters
    ----------
    x : jax.Array
        (..., in), floats.
    q : QuantizedArray
        (out, in), quantized along in.
    bias : jax.Array, optional
        (out,).
    dtype : dtype, optional
        Of the answer; None is that of x. The product is float32 and rounded once.

    Returns
    -------
    jax.Array
        (..., out).

    Raises
    ------
    ImportError, TypeError, ValueError
        As `fake_quantize` and `heterocompute.linear`.
    """
    _, jnp = imported("linear")
    if not isinstance(q, QuantizedArray) or q.ndim != 2:
        raise WrongType(f"linear: q is {shown(q)}, expected a QuantizedArray (out, in) of hc.quantize")
    x = jnp.asarray(x)
    if x.ndim == 0 or x.shape[-1] != q.shape[1]:
        raise WrongValue(f"linear: x has shape {x.shape} and q {q.shape}, expected (..., {q.shape[1]})")

    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise WrongType(f"linear: x has dtype {x.dtype}, expected floats")
    y = on_the_host(_times(q), x.astype(np.float32))[0]  # so that the gradient has the dtype of x
    if bias is not None:
        y = y + bias
    return y.astype(x.dtype if dtype is None else dtype)


def _times(q: QuantizedArray) -> Call:
    """Return the product with a packed weight, whose transpose is that with the decoded weight."""

    def of(columns: int) -> Any:
        return lambda t: [((*t.shape[:-1], columns), np.dtype(np.float32))]

    forward = Call("linear", lambda v: (product(v, q),), of(q.shape[0]), joins=True)
    back = Call("linear", lambda v: (matmul(v, q.dequantize()),), of(q.shape[1]), joins=True)
    forward.transposed, back.transposed = back, forward
    return forward


def named(params: object) -> dict[str, Any]:
    """Return the arrays of a pytree by name: a mapping that `heterocompute.study` and `ptq.search` accept.

    Parameters
    ----------
    params : pytree
        Of arrays, such as the parameters of Flax, Equinox or Haiku.

    Returns
    -------
    dict of str to jax.Array
        The keys of an array joined by dots, such as ``params.Dense_0.kernel``. Leaves that are no arrays are left out.

    Raises
    ------
    ImportError
        JAX is not installed.
    ValueError
        Two arrays have the same name.

    Examples
    --------
    >>> from heterocompute.interop import jax as hj
    >>> list(hj.named({"dense": {"kernel": np.ones((4, 2)), "bias": np.ones(2)}}))  # doctest: +SKIP
    ['dense.bias', 'dense.kernel']
    """
    found: dict[str, Any] = {}
    for name, leaf in _leaves(params, "named")[0]:
        if name in found:
            raise WrongValue(f"named: params has two arrays with the name {quoted(name)}, expected one")
        if name:
            found[name] = leaf
    return found


def rebuilt(params: object, weights: Mapping[str, Any]) -> Any:
    """Return a pytree with other values of some of its arrays.

    Parameters
    ----------
    params : pytree
    weights : mapping of str to array_like or QuantizedArray
        By the names of `named`. Packed weights are decoded. Arrays that are not named stay as they are.

    Returns
    -------
    pytree
        Of jax.Array, with the dtypes of `params`.

    Raises
    ------
    ImportError
        JAX is not installed.
    TypeError
        The weights are not a mapping.
    ValueError
        `params` does not have a name, or has another shape for it.

    Examples
    --------
    >>> import heterocompute as hc
    >>> from heterocompute.interop import jax as hj
    >>> params = {"kernel": np.ones((4, 2), np.float32)}
    >>> hj.rebuilt(params, {"kernel": hc.quantize(params["kernel"], "int8", axis=0)})  # doctest: +SKIP
    {'kernel': Array([[1., 1.], ...], dtype=float32)}
    """
    jax, jnp = imported("rebuilt")
    if not isinstance(weights, Mapping):
        raise WrongType(f"rebuilt: weights is {shown(weights)}, expected a mapping of names to arrays")
    leaves, tree = _leaves(params, "rebuilt")
    known = {name for name, _ in leaves if name}
    for name in weights:
        if name not in known:
            raise WrongValue(f"rebuilt: weights has {unknown(str(name), sorted(known), 'array of params')}")
    results = []
    for name, leaf in leaves:
        value = weights.get(name, leaf) if name else leaf
        if value is not leaf:
            value = jnp.asarray(value._values() if isinstance(value, PackedArray) else value).astype(leaf.dtype)
            if value.shape != leaf.shape:
                raise WrongValue(f"rebuilt: {quoted(name)} has shape {value.shape}, expected {leaf.shape}")
        results.append(value)
    return jax.tree_util.tree_unflatten(tree, results)


def _leaves(params: object, name: str) -> tuple[list[tuple[str, Any]], Any]:
    """Return the leaves of a pytree with their names (empty for leaves that are not arrays), and its structure."""
    leaves, tree = imported(name)[0].tree_util.tree_flatten_with_path(params)
    found = []
    for path, leaf in leaves:
        keys = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path]
        array = hasattr(leaf, "shape") and hasattr(leaf, "dtype")
        found.append(((".".join(keys) or "params") if array else "", leaf))
    return found, tree
