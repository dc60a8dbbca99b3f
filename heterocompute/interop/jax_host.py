"""A primitive of JAX that the host computes: `pure_callback` with derivatives and batches; jax.export is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from ..base.errors import Unsupported, WrongType
from ..training.stochastic import as_seed


class Call:
    """A function of arrays that the host computes.

    Parameters
    ----------
    name : str
        Of the function of `interop.jax`, for errors.
    compute : callable
        Takes and returns ndarrays: a sequence of results.
    shapes : callable
        Takes the inputs, which have a shape and a dtype, and returns shape and dtype of each result.
    joins : bool, optional
        The function computes each row by itself, so that a batch is one more leading axis. Default: one call per item.

    Attributes
    ----------
    transposed : Call or None
        For a linear function of one input, the transpose. It is the derivative's.
    """

    def __init__(
        self,
        name: str,
        compute: Callable[..., Sequence[Any]],
        shapes: Callable[..., list[tuple[tuple[int, ...], Any]]],
        joins: bool = False,
    ) -> None:
        self.name, self.compute, self.shapes, self.joins = name, compute, shapes, joins
        self.transposed: Call | None = None


def on_the_host(call: Call, *inputs: object) -> list[Any]:
    """Return the results of a call, inside or outside of JAX's transformations."""
    return list(_primitive().bind(*inputs, call=call))


@cache
def _primitive() -> Any:
    """Define the primitive, once in a process."""
    jax: Any = import_module("jax")
    import_module("jax.extend")
    ad, batching, mlir = (import_module(f"jax.interpreters.{one}") for one in ("ad", "batching", "mlir"))
    host: Any = jax.extend.core.Primitive("heterocompute")
    host.multiple_results = True

    def computed(call: Call, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(call.compute(*(np.asarray(one) for one in values)))

    def now(*inputs: object, call: Call) -> list[Any]:
        results = zip(computed(call, inputs), call.shapes(*inputs), strict=True)
        return [jax.numpy.asarray(one, dtype) for one, (_, dtype) in results]

    def abstract(*inputs: Any, call: Call) -> list[Any]:
        x = inputs[0]
        varying = getattr(x, "vma", None) or getattr(getattr(x, "manual_axis_type", None), "varying", None)
        if varying:  # inside of shard_map, along its axes
            return [
                x.update(shape=shape, dtype=np.dtype(dtype), weak_type=False) for shape, dtype in call.shapes(*inputs)
            ]
        return [jax.core.ShapedArray(shape, dtype) for shape, dtype in call.shapes(*inputs)]

    def lowered(*inputs: object, call: Call) -> Any:
        wanted = [jax.ShapeDtypeStruct(*one) for one in call.shapes(*inputs)]
        return jax.pure_callback(lambda *values: computed(call, values), wanted, *inputs, vmap_method="sequential")

    in_graphs = mlir.lower_fun(lowered, multiple_results=True)

    def lowering(ctx: Any, *inputs: object, call: Call) -> Any:
        if getattr(getattr(ctx.module_context, "lowering_parameters", None), "for_export", False):
            raise Unsupported(
                f"{call.name}: the host computes it, so that jax.export cannot store it, expected the rounded values: "
                "export a function of interop.jax.rebuilt(params, weights)"
            )
        return in_graphs(ctx, *inputs, call=call)

    def along(primals: Any, tangents: Any, *, call: Call) -> tuple[Any, Any]:
        out = host.bind(*primals, call=call)
        return out, host.bind(*map(ad.instantiate_zeros, tangents), call=call)

    def back(cotangents: Any, *_: object, call: Call) -> Any:
        return host.bind(*map(ad.instantiate_zeros, cotangents), call=call.transposed)

    def several(inputs: Any, dims: Any, *, call: Call) -> tuple[Any, list[int]]:
        moved = [one if dim is None else jax.numpy.moveaxis(one, dim, 0) for one, dim in zip(inputs, dims, strict=True)]
        if call.joins:
            found = host.bind(*moved, call=call)
        else:
            mapped = [i for i, dim in enumerate(dims) if dim is not None]

            def one(items: Any) -> Any:
                given = {**dict(enumerate(moved)), **dict(zip(mapped, items, strict=True))}
                return host.bind(*(given[i] for i in range(len(moved))), call=call)

            found = jax.lax.map(one, [moved[i] for i in mapped])
        return found, [0] * len(found)

    host.def_impl(now)
    host.def_abstract_eval(abstract)
    mlir.register_lowering(host, lowering)
    ad.primitive_jvps[host] = along
    ad.primitive_transposes[host] = back
    batching.primitive_batchers[host] = several
    return host


def imported(name: str) -> tuple[Any, Any]:
    """Return jax and jax.numpy, for a function of `interop.jax`."""
    try:
        import jax  # optional
        import jax.numpy as jnp  # optional
    except ImportError:
        raise ImportError(f"interop.jax: {name} needs jax: pip install jax") from None
    return jax, jnp


def words_of(seed: Any, jnp: Any, name: str) -> Any:
    """Return a seed as two uint32, the low one first."""
    if hasattr(seed, "astype") and not isinstance(seed, np.generic):
        if seed.ndim != 0 or not jnp.issubdtype(seed.dtype, jnp.integer):
            raise WrongType(f"{name}: seed has dtype {seed.dtype} and shape {seed.shape}, expected one integer")
        return jnp.stack([seed.astype(np.uint32), jnp.zeros((), np.uint32)])
    number = as_seed(seed)
    return np.array([number & 0xFFFFFFFF, number >> 32], np.uint32)
