"""The first layer in which two language models of `heterocompute.zoo.open_llm` part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..base.errors import WrongValue
from ..zoo.llm.inputs import text_ids_of
from .difference import Difference
from .steps import Step, diff_steps, drift_of, eps_of, first_index, largest_of

COMPOSITE = 8.0  # sums of sums: as for a module with several layers
EPS = float(np.finfo(np.float32).eps)


def diff_language(a: Any, b: Any, inputs: Any, inputs_b: Any = None) -> Difference:
    """Compare two language models layer by layer, for a text or tokens (n,)."""
    first, second = (text_ids_of(net, text, "diff: inputs") for net, text in
                     ((a, inputs), (b, inputs if inputs_b is None else inputs_b)))  # fmt: skip
    if (a.shape.layers, a.shape.width) != (b.shape.layers, b.shape.width):
        sizes = " and ".join(f"{net.shape.layers} layers of width {net.shape.width}" for net in (a, b))
        raise WrongValue(f"diff: a and b have {sizes}, expected networks of one size")
    return diff_steps(_steps(a, b, first[None], second[None]), first_index([first], [second]))


def _steps(a: Any, b: Any, ids: Any, ids_b: Any) -> Iterator[Step]:
    run_a, run_b, real = a.run(), b.run(), b.run()
    k = max(max(role.shape) for role in a.weights.values() if len(role.shape) == 2)
    x, y = run_a.embedded(ids), real.embedded(ids_b)
    yield Step("embedding", [x], lambda: [run_b.embedded(ids)], EPS * largest_of([x]), drift_of([x], [y]),
               _tests(a, b, ["token_embd.weight", "position_embd.weight"], lambda run: run.embedded(ids)),
               lambda: [a.run().embedded(ids)])  # fmt: skip
    for i in range(a.shape.layers):
        into = x
        x, y = run_a.layer(i, into), real.layer(i, y)
        roles = [role for _, role in b.layer_roles[i]]

        def found(run: Any, i: int = i, into: Any = into) -> Any:
            return run.layer(i, into)

        bound = COMPOSITE * 2 * (k + 1) * eps_of([x]) * largest_of([x])
        yield Step(f"layer {i}", [x], partial(_listed, found, b), bound, drift_of([x], [y]),
                   _tests(a, b, roles, found), partial(_listed, found, a))  # fmt: skip
    last = x
    x, y = run_a.scores(run_a.normed(last)), real.scores(real.normed(y))
    bound = COMPOSITE * 2 * (k + 1) * EPS * largest_of([x])
    output = ["output.weight", "output.bias", "output_norm.weight", "output_norm.bias", "token_embd.weight"]
    yield Step("output", [x], lambda: [run_b.scores(run_b.normed(last))], bound, drift_of([x], [y]),
               _tests(a, b, output, lambda run: run.scores(run.normed(last))),
               lambda: _listed(lambda run: run.scores(run.normed(last)), a))  # fmt: skip


def _listed(compute: Callable[[Any], Any], net: Any) -> list[Any]:
    return [compute(net.run())]


def _tests(a: Any, b: Any, roles: list[str], compute: Callable[[Any], Any]) -> Mapping[str, Any]:
    """Return the hypotheses of a step, which `compute` computes by a run."""

    def weights() -> Any:
        changed, kinds = {}, []
        for role in roles:
            name, other = a._roles.get(role), b._roles.get(role)
            if name is None or other is None:
                continue
            own, given = a.weights[name], b.weights[other]
            if _kind(own) != _kind(given) or not np.array_equal(_values(own), _values(given)):
                changed[other] = own
                kinds.append((other, _kind(own) != _kind(given)))
        if not changed:
            return None
        cause = "format" if all(is_other for _, is_other in kinds) else "weights"
        words = ", ".join(name for name, _ in kinds[:4])
        note = f"{words} of b {'are stored in another format' if cause == 'format' else 'have other values'}"
        return [compute(b.run(changed))], cause, note

    def position() -> Any:
        keys = ("rope", "local_rope", "long_rope", "unrotated", "alibi")
        return _with_shape(a, b, keys, "position", compute)

    def operation() -> Any:
        keys = tuple(key for key in vars(a.shape) if key not in ("family",))
        return _with_shape(a, b, keys, "operation", compute)

    return {"weights": weights, "position": position, "operation": operation}


def _with_shape(a: Any, b: Any, keys: tuple[str, ...], cause: str, compute: Callable[[Any], Any]) -> Any:
    """Give b some options of a."""
    other = [key for key in keys if getattr(a.shape, key) != getattr(b.shape, key)]
    if not other:
        return None
    shape = replace(b.shape, **{key: getattr(a.shape, key) for key in other})
    made = type(b)(b.path, b.weights, shape, b._roles, b.tokenizer, b._plus_one, b._factors)
    return [compute(made.run())], cause, f"b has other values of {', '.join(other)}"


def _kind(array: Any) -> str:
    return str(array.format) if hasattr(array, "format") else str(getattr(array, "dtype", type(array).__name__))


def _values(array: Any) -> Any:
    return array.dequantize() if hasattr(array, "dequantize") else np.asarray(array)
