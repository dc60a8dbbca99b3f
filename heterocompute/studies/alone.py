"""The effect of each layer: each tensor rounded alone, all others unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .asked import Entry, text_of
from .callers import noted

__all__ = ["count_alone", "judge_alone"]


def count_alone(entries: Sequence[Entry], names: Sequence[str]) -> int:
    """Return how many evaluations `judge_alone` needs."""
    return sum(entry.of(name).fmt is not None for entry in entries for name in names)


def judge_alone(
    entries: Sequence[Entry],
    names: Sequence[str],
    everything: Mapping[str, Any],
    rounded: Callable[[str, Any], Any],
    call: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]],
    step: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Evaluate with one tensor rounded at a time.

    Parameters
    ----------
    entries : sequence of Entry
    names : sequence of str
        Of the tensors.
    everything : mapping of str to array
        All weights as they came.
    rounded : callable
        ``rounded(name, way)`` returns a tensor in a format.
    call : callable
        The caller's function, as `studies.callers.evaluator` wraps it.
    step : callable
        Told before each evaluation.

    Returns
    -------
    list of dict
        ``name``, ``format``, ``method`` and what the function returned.
    """
    rows = []
    for entry in entries:
        for name in names:
            way = entry.of(name)
            if way.fmt is None:
                continue
            text = text_of(way.fmt)
            step(f"evaluate  {text} in {name} alone")
            with noted(f"{text} in {name} alone"):
                found = call({**everything, name: rounded(name, way)}, {"activations": None, "emulate": None})
            rows.append({"name": name, "format": text, "method": way.method, **found})
    return rows
