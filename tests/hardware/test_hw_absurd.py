"""Absurd arguments of every public callable of `hardware`: a finite result, or an error message of the package."""

from __future__ import annotations

import dataclasses
import inspect
import math
import random
import re
import types
import warnings
import zlib
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from fuzz_calls import CALLS, PLAIN, RESULTS

from heterocompute import hardware as hw

ABSURD: list[Any] = [
    math.nan, math.inf, -math.inf, 1e308, -1e308, 1e-320, 2**63, 10**400, -(10**400), -1, 0, True, "x", None, 1.5, 0.5,
    2**31, np.float64("nan"), np.float32("inf"), np.int64(2), np.float32(1.5), np.float16(2), np.array(3),
    Fraction(1, 3), Decimal("nan"), [], (), {}, object(), 1j, b"x", set(), "\x1b[31m", float,
]  # fmt: skip
LONG: list[Any] = ["x" * 50_000, (1,) * 20_000, b"x" * 50_000, {"x" * 50_000: 1}, ["x" * 50_000]]
# Messages of Python and NumPy about unchecked values.
FOREIGN = re.compile(
    "0-d array|object is not|truth value|only integer scalar|unhashable|setting an array|expected str, bytes|"
    "object has no|not supported between|unsupported operand|to unpack|index out of|null byte|null character"
)
# A host that is faster than the device: the documented answer is infinite.
INFINITE = {"offload_break_even"}


def places(value: Any) -> Iterator[Callable[[Any], Any]]:
    """Yield functions that replace this value, or a value inside of it."""
    yield lambda other: other
    if isinstance(value, (tuple, list)):
        for i in range(len(value)):
            yield lambda other, i=i: type(value)([*value[:i], other, *value[i + 1 :]])
    if isinstance(value, dict):
        for key, inner in value.items():
            for place in places(inner):
                yield lambda other, key=key, place=place: {**value, key: place(other)}


def infinite(value: Any, depth: int = 0) -> bool:
    """Tell whether a result contains NaN or infinity."""
    if isinstance(value, (float, np.floating)):
        return not math.isfinite(value)
    if depth > 6 or isinstance(value, (str, bytes, type)):
        return False
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fc" and not bool(np.isfinite(value).all())
    if isinstance(value, dict):
        return any(infinite(one, depth + 1) for one in value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(infinite(one, depth + 1) for one in value)
    if dataclasses.is_dataclass(value):
        return any(infinite(getattr(value, field.name), depth + 1) for field in dataclasses.fields(value))
    return False


def wrong(name: str, arguments: dict[str, Any]) -> str | None:
    """Call, and return a description of the fault in the result or the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            answer = CALLS[name].function(**arguments)
        except (ValueError, TypeError, OSError, NotImplementedError) as error:
            said = str(error)
            if not said or len(said) > 300 or "\n" in said:
                return f"{type(error).__name__} of {len(said)} characters: {said[:200]}"
            return f"a sentence of Python's: {said}" if FOREIGN.search(said) else None
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:200]}"
    return f"an answer that is not finite: {answer!r:.200}" if infinite(answer) and name not in INFINITE else None


def offenders(name: str, share: float) -> list[str]:
    rng = random.Random(zlib.crc32(name.encode()))
    given, found = CALLS[name].arguments, []
    for argument, value in given.items():
        for i, place in enumerate(places(value)):
            values = ABSURD + (LONG if i == 0 else [])
            for other in rng.sample(values, math.ceil(share * len(values))):
                if what := wrong(name, {**given, argument: place(other)}):
                    found.append(f"{name}, {argument} = {place(other)!r:.60}: {what}")
    return found


@pytest.mark.parametrize("name", CALLS)
def test_a_valid_call_is_one(name: str) -> None:
    try:
        assert not infinite(CALLS[name].function(**CALLS[name].arguments))
    except FileNotFoundError:
        assert "never" in str(CALLS[name].arguments) or name == "write_yaml"


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.sweep(every=4)
def test_some_absurd_arguments_of(name: str) -> None:
    assert offenders(name, 0.2) == []


@pytest.mark.sweep(every=0)
@pytest.mark.parametrize("name", CALLS)
def test_all_absurd_arguments_of(name: str) -> None:
    assert offenders(name, 1.0) == []


def public() -> Iterator[tuple[str, Any]]:
    """Yield the names of everything public that can be called, methods too."""
    for name in hw.__all__:
        one = getattr(hw, name)
        if not isinstance(one, types.ModuleType):
            yield name, one
            continue
        own = [key for key, value in vars(one).items()
               if getattr(value, "__module__", "").startswith(hw.__name__) and not key.startswith("_")]  # fmt: skip
        prefix = "" if name in {"layers", "mapper", "results", "systems"} else f"{name}."
        yield from ((prefix + key, getattr(one, key)) for key in getattr(one, "__all__", own))


def test_every_public_callable_is_among_them() -> None:
    asked = {name.split(",")[0].split(" ")[0] for name in CALLS}
    for name, one in public():
        if not callable(one) or name in RESULTS | PLAIN:
            continue
        assert name in asked, name
    for _, one in public():
        title = getattr(one, "__name__", "")
        if not inspect.isclass(one) or title in PLAIN | {name.split(".")[-1] for name in RESULTS}:
            continue
        for name, method in vars(one).items():
            function = getattr(method, "__func__", method)
            if name.startswith("_") or not inspect.isfunction(function) or f"{title}.{name}" in LEFT:
                continue
            takes = set(inspect.signature(function).parameters) - {"self", "cls", "path"}
            assert not takes or f"{title}.{name}" in asked, f"{title}.{name}"


# The builder of a graph accepts other objects; `stores` is a function; a page needs a path.
LEFT = {"Attention.add_to", "Builder.build", "Accelerator.stores"}
