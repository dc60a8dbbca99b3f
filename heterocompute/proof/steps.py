"""The first step in which two networks part, for networks that are lists of steps: of layers, nodes or outputs.

Each step of b is computed from the inputs that the step has in a, as `networks` does for modules of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .difference import Difference

Array = np.ndarray[Any, Any]
# Returns outputs under a hypothesis, the cause that it means, and a note; None if it does not apply.
Test = Callable[[], tuple[Sequence[Any], str, str] | None]


@dataclass
class Step:
    """One step of both networks.

    Attributes
    ----------
    name : str
    wanted : sequence of array
        Outputs in a.
    found : callable
        Returns the outputs of b from the inputs in a.
    bound : float or ndarray
        The largest difference of a float computation.
    drift : float or None
        The difference of both runs, in units of the largest output.
    tests : mapping of str to callable
        Hypotheses in their order.
    again : callable, optional
        Returns the outputs of a from the same inputs, of another run.
    """

    name: str
    wanted: Sequence[Any]
    found: Callable[[], Sequence[Any]]
    bound: Any
    drift: float | None = None
    tests: Mapping[str, Test] = field(default_factory=dict)
    again: Callable[[], Sequence[Any]] | None = None


def diff_steps(steps: Iterable[Step], inputs_at: Any = None) -> Difference:
    """Return the first step beyond its bound, and its cause.

    Parameters
    ----------
    inputs_at : tuple of int or str, optional
        The first index in which the inputs differ, None if they are equal.
    """
    rows: list[dict[str, Any]] = []
    for step in steps:
        found = step.found()
        residual = residual_of(step.wanted, found, step.bound)
        row = {"name": step.name, "status": "equal" if residual <= 1 else "differs", "residual": residual}
        rows.append(row | {"drift": step.drift})
        if residual <= 1:
            continue
        tested: list[tuple[str, float]] = [("nondeterminism", np.inf)]
        for side, first, run in (("a", step.wanted, step.again), ("b", found, step.found)):
            if run is not None and residual_of(first, run(), 0.0) > 0:
                tested, words = [("nondeterminism", 0.0)], [f"{side} has other outputs in a second run"]
                return Difference(False, step.name, "nondeterminism", 0.0, tested, rows, words)
        for name, test in step.tests.items():
            if (answer := test()) is None:
                continue
            outputs, cause, note = answer
            left = residual_of(step.wanted, outputs, step.bound)
            tested.append((name, left))
            if left <= 1:
                return Difference(False, step.name, cause, left, tested, rows, [note] if note else [])
        return Difference(False, step.name, "unexplained", residual, tested, rows)
    if inputs_at is not None:
        return Difference(False, "(whole)", "input", 0.0, [("input", 0.0)], rows, [f"inputs differ at {inputs_at}"])
    drifted = next((row for row in rows if row["drift"]), None)
    if drifted is None:
        return Difference(True, None, None, 0.0, [], rows)
    most = max(row["residual"] for row in rows)
    notes = ["every step agrees within the bound of its sums, so only their order differs"]
    return Difference(False, drifted["name"], "order", most, [("order", 0.0)], rows, notes)


def residual_of(wanted: Sequence[Any], found: Sequence[Any], bound: Any) -> float:
    """Return the largest difference in units of the bound; integers and texts may not differ."""
    if len(wanted) != len(found):
        return float("inf")
    worst = 0.0
    for one, other in zip(wanted, found, strict=True):
        x, y = np.asarray(one), np.asarray(other)
        if x.shape != y.shape:
            return float("inf")
        if not is_float(x) or not is_float(y):
            worst = max(worst, 0.0 if np.array_equal(x, y) else float("inf"))
            continue
        a, b = x.astype(np.float64), y.astype(np.float64)
        with np.errstate(all="ignore"):
            is_same = (a == b) | (np.isnan(a) & np.isnan(b))
            ratio = np.where(is_same, 0.0, np.abs(a - b) / bound)
        worst = max(worst, float(np.nan_to_num(ratio, nan=np.inf, posinf=np.inf).max(initial=0.0)))
    return worst


def is_float(x: Array) -> bool:
    """Tell whether an array has floats, those of ml_dtypes included."""
    return x.dtype.kind == "f" or (x.dtype.kind == "V" and "float" in x.dtype.name)


def drift_of(wanted: Sequence[Any], found: Sequence[Any]) -> float | None:
    """Return the largest difference of outputs in units of the largest output, None for other shapes."""
    if len(wanted) != len(found):
        return None
    far = most = 0.0
    for one, other in zip(wanted, found, strict=True):
        x, y = np.asarray(one), np.asarray(other)
        if x.shape != y.shape or not is_float(x) or not is_float(y):
            far = max(far, 0.0 if np.array_equal(x, y) else 1.0)
            continue
        with np.errstate(all="ignore"):
            a, b = x.astype(np.float64), y.astype(np.float64)
            apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
            far = max(far, float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(initial=0.0)))
            most = max(most, float(np.abs(a[np.isfinite(a)]).max(initial=0.0)))
    return far / most if most else far


def largest_of(outputs: Sequence[Any]) -> float:
    """Return the largest finite magnitude of float outputs."""
    found = 0.0
    for one in outputs:
        x = np.asarray(one)
        if is_float(x):
            values = np.abs(x.astype(np.float64))
            found = max(found, float(values[np.isfinite(values)].max(initial=0.0)))
    return found


def eps_of(outputs: Sequence[Any]) -> float:
    """Return the eps of the coarsest float type of some outputs."""
    import ml_dtypes  # 5 ms

    kinds = [np.asarray(one).dtype for one in outputs if is_float(np.asarray(one))]
    return max((float(ml_dtypes.finfo(kind).eps) for kind in kinds), default=0.0)  # type: ignore[no-untyped-call]


def first_index(first: Sequence[Any], second: Sequence[Any]) -> tuple[int, ...] | str | None:
    """Return the first index in which inputs differ, None if they are equal."""
    if len(first) != len(second):
        return "another number of inputs"
    for one, other in zip(first, second, strict=True):
        x, y = np.asarray(one), np.asarray(other)
        if x.shape != y.shape:
            return "another shape"
        wrong = (x != y) & ~((x != x) & (y != y))
        if wrong.any():
            return tuple(int(i) for i in np.unravel_index(wrong.argmax(), wrong.shape))
    return None
