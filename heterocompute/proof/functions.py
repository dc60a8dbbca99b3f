"""The first output in which two functions part, for networks whose layers are not known.

The inputs of an output are unknown, so the outputs of both runs are compared, in order. The bound is that of one sum as
long as the longest dimension of the inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..base.errors import WrongValue, shown
from .difference import Difference
from .steps import Step, Test, diff_steps, drift_of, eps_of, first_index, is_float, largest_of, residual_of

COMPOSITE = 8.0
Array = np.ndarray[Any, Any]
NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def diff_functions(a: Callable[..., Any], b: Callable[..., Any], inputs: Any, inputs_b: Any = None) -> Difference:
    """Compare two functions by their outputs: an array, several in a tuple or list, or by name in a mapping."""
    given = [_arguments(one) for one in (inputs, inputs if inputs_b is None else inputs_b)]
    at = first_index(*([*args, *named.values()] for args, named in given))
    first, again, second = (_outputs(f(*given[i][0], **given[i][1])) for f, i in ((a, 0), (a, 0), (b, 1)))
    for name, output in first.items():
        if name in again and first_index([output], [again[name]]) is not None:
            rows = [{"name": name, "status": "differs", "residual": None, "drift": drift_of([output], [again[name]])}]
            words = ["a has other outputs in a second run"]
            return Difference(False, name, "nondeterminism", 0.0, [("nondeterminism", 0.0)], rows, words)
    if at is not None:
        rows = [{"name": name, "status": "differs", "residual": None, "drift": drift_of([one], [second[name]])}
                for name, one in first.items() if name in second]  # fmt: skip
        return Difference(False, "(whole)", "input", 0.0, [("input", 0.0)], rows, [f"inputs differ at {at}"])
    size = max(
        (max(np.shape(one), default=1) for one in [*given[0][0], *given[0][1].values(), *first.values()]), default=1
    )
    steps = []
    for name, output in first.items():
        bound = COMPOSITE * 2 * (size + 1) * eps_of([output]) * largest_of([output])
        other = second.get(name)
        drift = None if other is None else drift_of([output], [other])
        tests = _tests(output, other, COMPOSITE * 2 * (size + 1))
        steps.append(Step(name, [output], _found(b, given[1], second, name), bound, drift, tests))
    more: dict[str, Test] = {"operation": lambda: ([], "operation", "a has no such output")}
    steps += [Step(name, [], _found(b, given[1], second, name), 0.0, None, more)
              for name in second if name not in first]  # fmt: skip
    return diff_steps(steps)


def _found(b: Callable[..., Any], given: Any, second: dict[str, Any], name: str) -> Callable[[], list[Any]]:
    """Return a function that gives an output of b: of the run that was made, then of another one."""
    calls: list[str] = []

    def found() -> list[Any]:
        outputs = second if not calls else _outputs(b(*given[0], **given[1]))
        calls.append(name)
        return [outputs[name]] if name in outputs else []

    return found


def _tests(output: Array, other: Any, factor: float) -> Mapping[str, Any]:
    def layout() -> Any:
        if (
            other is None
            or other.size != output.size
            or not np.array_equal(np.sort(other, None), np.sort(output, None))
        ):
            return None
        return [output], "layout", "b has the values of a in another order"

    def format_of() -> Any:
        if other is None or other.shape != output.shape or not is_float(output):
            return None
        import ml_dtypes  # 5 ms

        for name in NARROW:
            kind = np.dtype(getattr(ml_dtypes, name, np.float16))
            with np.errstate(all="ignore"):
                rounded = output.astype(kind).astype(np.float64)
                if np.array_equal(rounded, other.astype(np.float64), equal_nan=True):
                    return [output], "format", f"b has the values of a rounded to {name}"
        limit = factor * eps_of([other]) * largest_of([output])
        if eps_of([other]) > eps_of([output]) and residual_of([output], [other], limit) <= 1:
            return [output], "format", f"b is computed in {other.dtype}"
        return None

    return {"layout": layout, "format": format_of}


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def _outputs(found: Any) -> dict[str, Array]:
    """Return outputs by name."""
    if isinstance(found, Mapping):
        pairs = [(str(name), one) for name, one in found.items()]
    elif isinstance(found, (tuple, list)):
        pairs = [(str(i), one) for i, one in enumerate(found)]
    else:
        pairs = [("(whole)", found)]
    return {name: _array(one) for name, one in pairs}


def _array(value: Any) -> Array:
    value = value.detach().cpu() if hasattr(value, "detach") else value
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        value = value.float()
    try:
        return np.asarray(value)
    except ValueError:
        raise WrongValue(f"diff: an output is {shown(value)}, expected an array") from None
