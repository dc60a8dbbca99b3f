"""The functions that a caller passes to a study to evaluate and train weights; arguments and results are checked."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..arrays.quantized import QuantizedArray
from ..arrays.rotated import RotatedArray
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import call_back

RESERVED = ("format", "method", "activations", "emulate", "retrained", "bits", "bytes", "sqnr_db", "seconds")
# columns that `emulate`, `device` and `machine` add
MODELLED = (
    "accumulator_bits", "guaranteed_bits", "needed_bits", "device_us", "device_uj", "mac_pj", "mac_um2", "machine_us",
    "machine_uj", "tokens_per_s", "kv_bytes",
)  # fmt: skip


def retrainer(retrain: object, own: Callable[..., Any] | None, study: str) -> Callable[..., Any] | None:
    """Return the function that trains: the caller's, or for True the network's own."""
    if retrain is None or retrain is False:
        return None
    found = own if retrain is True else retrain
    if callable(found) and not isinstance(found, bool):
        return found
    if retrain is True:
        raise WrongValue(
            f"{study}: retrain needs a network with a method retrain(weights, changed), or such a function"
        )
    raise WrongType(f"{study}: retrain is of type {type(retrain).__name__}, expected a function, True or False")


def seeded(train: Callable[..., Any] | None, seeds: int, study: str) -> list[Callable[..., Any]]:
    """Return the training functions for each format: the one given, or one for each seed."""
    if seeds == 1:
        return [] if train is None else [train]
    if train is None:
        raise WrongValue(f"{study}: seeds is {seeds}, but nothing is trained; give retrain as well")
    try:
        inspect.signature(train).bind({}, {}, seed=0)
    except ValueError:  # some functions written in C have no signature
        pass
    except TypeError as error:
        raise WrongType(f"{study}: retrain cannot be called as retrain(weights, changed, seed=...): {error}") from None
    return [functools.partial(train, seed=seed) for seed in range(seeds)]


def _check_retrained(found: object, changed: Mapping[str, Any], study: str) -> dict[str, Any]:
    """Refuse weights that training changed in kind: each must have the format, shape and axis that it had."""
    if not isinstance(found, Mapping) or set(found) != set(changed):
        kind = f"the names {sorted(found)[:9]}" if isinstance(found, Mapping) else f"a {type(found).__name__}"
        raise WrongValue(f"{study}: retrain returned {kind}, expected a mapping with the names of the weights")
    for name, before in changed.items():
        after = found[name]
        if isinstance(before, (QuantizedArray, RotatedArray)):
            wanted, kinds = (before.format, before.shape, before.axis), (QuantizedArray, RotatedArray)
            if not isinstance(after, kinds) or (after.format, after.shape, after.axis) != wanted:
                kind = str(after.format) if isinstance(after, kinds) else type(after).__name__
                raise WrongValue(
                    f"{study}: retrain returned {kind} for {shown(name)}, expected {before.format} of shape "
                    f"{before.shape}"
                )
        elif getattr(after, "shape", None) != getattr(before, "shape", None):
            raise WrongValue(f"{study}: retrain changed the shape of {shown(name)}")
    return dict(found)


def train_again(
    train: Callable[..., Any], weights: Mapping[str, Any], changed: Mapping[str, Any], study: str
) -> dict[str, Any]:
    """Call the caller's training function; weights that it must not change are passed as read-only views."""
    views = {name: _read_only(value) for name, value in weights.items()}
    given = {name: views[name] if value is weights[name] else value for name, value in changed.items()}
    found = _check_retrained(call_back(train, dict(views), given), changed, study)
    return {name: weights[name] if value is views[name] else value for name, value in found.items()}


def _read_only(value: object) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def evaluator(
    evaluate: Callable[..., Any] | None,
    keys: list[str],
    study: str = "study",
    reserved: Sequence[str] = (*RESERVED, "output_db", *MODELLED),
) -> Callable[[dict[str, Any], dict[str, Any]], dict[str, float | None]] | None:
    """Wrap the caller's function: check its keywords now, and its answers later."""
    if evaluate is None:
        return None
    if not callable(evaluate):
        raise WrongType(f"{study}: evaluate is of type {type(evaluate).__name__}, expected a function of the weights")
    try:
        signature = inspect.signature(evaluate)
    except ValueError:  # some functions written in C have none
        signature = None
    if signature is not None:
        try:
            signature.bind({}, **dict.fromkeys(keys))
        except TypeError as error:
            wanted = f"evaluate({', '.join(['weights', *(f'{key}=...' for key in keys)])})"
            raise WrongType(f"{study}: evaluate cannot be called as {wanted}: {error}") from None

    name = _name_of(evaluate, reserved)

    def call(weights: dict[str, Any], options: dict[str, Any]) -> dict[str, float | None]:
        answer = call_back(evaluate, weights, **{key: options[key] for key in keys})
        found = answer if isinstance(answer, Mapping) else {name: answer}
        numbers: dict[str, float | None] = {}
        for key, value in found.items():
            if not isinstance(key, str) or key in reserved:
                taken = ", ".join(reserved)
                raise WrongValue(f"{study}: evaluate named a number {shown(key)}; expected a str other than {taken}")
            try:
                numbers[key] = finite(float(value))
            except (TypeError, ValueError):
                kind_of = type(value).__name__
                raise WrongType(f"{study}: evaluate returned a {kind_of} for {shown(key)}, expected a number") from None
        return numbers

    return call


def _name_of(evaluate: object, reserved: Sequence[str]) -> str:
    """Return the column of a function that returns one number: its name, or that of its class; else ``evaluate``.

    Examples
    --------
    >>> def acc(weights): ...
    >>> class TopFive:
    ...     def __call__(self, weights): ...
    >>> [_name_of(one, ["bits"]) for one in (acc, functools.partial(acc, 1), TopFive(), lambda weights: 0)]
    ['acc', 'acc', 'top_five', 'evaluate']
    """
    while isinstance(evaluate, functools.partial):
        evaluate = evaluate.func
    name = getattr(evaluate, "__name__", None)
    if name is None:  # an object that can be called
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(evaluate).__name__).lower()
    name = str(name).strip("_")
    tells = name.isidentifier() and name not in (*reserved, "judge", "metric", "f", "fn", "call", "function")
    return name if tells else "evaluate"


@contextmanager
def noted(given: str) -> Iterator[None]:
    """Add a note to an error of the caller's function that names its arguments."""
    try:
        yield
    except Exception as error:
        error.add_note(f"study: evaluate was given {given}")
        raise


def finite(value: float) -> float | None:
    """Return None for NaN and infinity, which JSON lacks."""
    return float(value) if math.isfinite(value) else None
