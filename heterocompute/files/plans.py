"""Finds the target of each weight of a conversion, and verifies that it has the same values there: `plans_of`.

A weight is converted, and its tensors are read back. If they have other values, the next target is tried. A weight
without a target is rounded to the format of `lossy`, or refused with the reason.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..base.container import numpy_dtype
from ..base.float_env import call_back, counts_subnormals
from ..base.locations import absolute
from ..base.progress import Progress
from ..base.tensors import Info
from ..base.texts import file_name, quoted
from ..base.workers import Workers, in_workers, is_serial
from ..formats import Format
from .foreign import Weights, weights_reader
from .layouts.layout import LAYOUTS
from .layouts.table import WHOLE
from .layouts.targets import (
    OURS,
    Target,
    converted,
    entry_in,
    experts_of,
    has_one_format,
    nearest,
    refusal_of,
    rounded,
    targets_of,
    why_not,
    written,
)
from .layouts.weight import Weight, differs, of_values, sqnr_of
from .plain import plain_of
from .shards import about

__all__ = ["CLOSED", "COPIED", "LOSSY", "REFUSED", "Plan", "plans_of"]

GROUPS = 64  # tasks of workers; each opens the checkpoint, which takes time
# The embedding of a language model. Loaders of other layouts than QUANTIZED_TABLES expect plain values.
TABLE, QUANTIZED_TABLES = "embed_tokens.weight", ("mlx",)
EQUAL, CLOSED, LOSSY, COPIED, REFUSED = "equal", "closed form", "lossy", "copied", "not representable"


@dataclass(frozen=True)
class Plan:
    """The result of one weight: a target, or a dtype of plain values. `is_lossy`: the weight is rounded to it."""

    status: str
    target: Target | str | None = None
    is_lossy: bool = False
    why: str = ""
    nearest: str = ""
    sqnr_db: float | None = None
    stored: Any = None
    nbytes: int = 0
    is_ordered: bool = False


def plans_of(
    reader: Weights,
    in_path: str | os.PathLike[str],
    layout: str,
    rounding: Format | str | None,
    progress: Progress | None,
    workers: Workers,
) -> dict[str, Plan]:
    """Return the plan of each weight of a checkpoint. Afterwards `reader` has the shapes of all weights."""
    if is_serial(workers) or (has_one_format(layout) and not isinstance(rounding, Format)):
        return _planned(reader, layout, rounding, progress)
    return _planned_by(workers, in_path, reader, layout, rounding, progress)


def _planned(reader: Weights, layout: str, rounding: Format | str | None, progress: Progress | None) -> dict[str, Plan]:
    """Return the plan of each weight, without workers."""
    names = [name for name in reader.names if name in reader.weights]
    common: list[Target] | None = None
    plans: dict[str, Plan] = {}
    for i, name in enumerate(names):
        if progress:
            call_back(progress, i, len(names), name)
        with about(reader, name):
            table = _as_plain(layout, name, reader)
            if table is not None:
                plans[name] = table
                continue
            options = targets_of(layout, name, reader.weight(name))
            if not has_one_format(layout):
                plans[name] = _plan(layout, name, reader, options, rounding)
            elif rounding is not None and not isinstance(rounding, str):
                plans[name] = _plan(layout, name, reader, [one for one in options if one == rounding], rounding)
            elif not options:
                plans[name] = _plan(layout, name, reader, [], rounding)
            else:
                common = options if common is None else [one for one in common if one in options]
    if progress:
        call_back(progress, len(names), len(names), "")
    left = [name for name in names if name not in plans]
    if left:
        plans |= _in_common(reader, layout, left, common or [], rounding)
    return plans


def _as_plain(layout: str, name: str, reader: Weights) -> Plan | None:
    """Return the plan of a weight that becomes plain values exactly, None for other weights.

    These are codes of a plain type, and the embedding of a model whose names change: loaders expect plain values there.
    """
    weight, dtype = reader.weight(name), None
    if reader.config and name.endswith(TABLE) and layout not in QUANTIZED_TABLES:
        dtype = "float32"
    elif layout != OURS and (found := plain_of(weight.said)) is not None:
        dtype = found.dtype
    if dtype is None:
        return None
    nbytes = numpy_dtype(dtype).itemsize * math.prod(weight.shape)
    return Plan(CLOSED, dtype, stored=(dtype, weight.model_shape), nbytes=nbytes)


@dataclass(frozen=True)
class _Some:
    """Weights of a checkpoint whose plans do not depend on each other: work that any process can do."""

    path: str
    source: str
    layout: str
    rounding: Format | str | None
    names: tuple[str, ...]


@counts_subnormals
def _plans_of_some(some: _Some) -> list[tuple[str, Plan, Info, str]]:
    """Return the plans of some weights, and the data that the reader has about each of them."""
    with weights_reader(some.path, some.source, renames=some.layout in LAYOUTS) as reader:
        found = []
        for name in some.names:
            with about(reader, name):
                options = targets_of(some.layout, name, reader.weight(name))
                if has_one_format(some.layout):
                    options = [one for one in options if one == some.rounding]
                plan = _as_plain(some.layout, name, reader)
                plan = plan or _plan(some.layout, name, reader, options, some.rounding)
                found.append((name, plan, reader.info(name), reader.said(name)))
    return found


def _planned_by(
    workers: Workers,
    in_path: str | os.PathLike[str],
    reader: Weights,
    layout: str,
    rounding: Format | str | None,
    progress: Progress | None,
) -> dict[str, Plan]:
    """Return the plan of each weight, with workers."""
    names = [name for name in reader.names if name in reader.weights]
    step = -(-len(names) // GROUPS)
    path = absolute(file_name(in_path))
    groups = [tuple(names[i : i + step]) for i in range(0, len(names), step)]
    tasks = [_Some(path, reader.layout, layout, rounding, group) for group in groups]
    plans: dict[str, Plan] = {}
    for _, found in in_workers(workers, _plans_of_some, tasks, "convert_checkpoint"):
        for name, plan, info, said in found:
            plans[name] = plan
            reader.know(name, info, said)
        if progress:
            call_back(progress, len(plans), len(names), "")
    return {name: plans[name] for name in names}


def _in_common(
    reader: Weights, layout: str, names: list[str], options: list[Target], rounding: Format | str | None
) -> dict[str, Plan]:
    """Return the plans of weights that must have one format: the first option that all of them support."""
    best: dict[str, Plan] = {}
    for option in options:
        plans: dict[str, Plan] = {}
        for name in names:
            with about(reader, name):
                plans[name] = _plan(layout, name, reader, [option], rounding)
            if plans[name].status in (REFUSED, LOSSY):
                break
        else:
            return plans
        best = plans if len(plans) > len(best) else best
    for name in names:
        if name not in best:
            with about(reader, name):
                best[name] = _plan(layout, name, reader, targets_of(layout, name, reader.weight(name)), rounding)
    wanted = next((plan.target for plan in best.values() if plan.status in (EQUAL, CLOSED)), None)
    for name, plan in best.items():
        if plan.status in (EQUAL, CLOSED) and plan.target != wanted:
            why = f"{layout} has one format of all weights in a file, and others are {wanted}"
            best[name] = replace(plan, status=REFUSED, why=why, nearest=str(wanted))
    return best


def _plan(layout: str, name: str, reader: Weights, options: list[Target], rounding: Format | str | None) -> Plan:
    """Return the plan of a weight: the first option whose tensors decode to its values, otherwise rounding."""
    reasons = []
    for option in options:
        try:
            return _proven(layout, name, reader, option)
        except ValueError as error:
            reasons.append(str(error).removeprefix("save: ").removeprefix(f"tensor {quoted(name)}: "))
    weight = reader.weight(name)
    why, near = why_not(layout, name, weight, reasons), nearest(layout, name, weight)
    if rounding is None:
        return Plan(REFUSED, why=why, nearest="" if near is None else str(near), nbytes=0)
    if isinstance(rounding, str):
        values = weight.values(numpy_dtype(rounding))
        after = of_values(values.swapaxes(-1, -2) if weight.turned else values, rounding, values.nbytes)
        plan = Plan(LOSSY, rounding, True, why, sqnr_db=sqnr_of(weight, after), stored=(rounding, weight.model_shape))
        return replace(plan, nbytes=values.nbytes)
    no_place = refusal_of(layout, name, weight.shape, rounding)
    if no_place is not None:
        return Plan(REFUSED, why=no_place, nearest="" if near is None else str(near))
    made = rounded(layout, weight, rounding)
    plan = Plan(LOSSY, rounding, True, why, sqnr_db=sqnr_of(weight, made))
    weight.release()
    return _planned_as(layout, name, made, plan)


def _proven(layout: str, name: str, reader: Weights, option: Target) -> Plan:
    """Return the plan that converts a weight to an option; ValueError if a program would read other values.

    At most two of these are in memory at a time: the weight, the converted weight, the tensors that are written, and
    the weight that is read back. So the last is compared by a digest of its values.
    """
    weight = reader.weight(name)
    status = EQUAL if str(option) == weight.said else CLOSED
    made = converted(layout, weight, option)
    digest = weight.digest().digest()
    if made.array is not weight.array and made.digest().digest() != digest:
        _refuse_different([(weight, made)])
    weight.release()
    if layout not in LAYOUTS:
        return _planned_as(layout, name, made, Plan(status, option))
    tensors, is_ordered = written(layout, name, made), made.order is not None
    made.release()
    found: Any = None
    for one in tensors.read_back():
        found = one.digest(found)
    if found.digest() != digest:
        weight = reader.weight(name)
        ours = [one for _, one in experts_of(layout, name, converted(layout, weight, option))]
        _refuse_different(zip(ours, tensors.read_back(), strict=True))
    return _with_parts(Plan(status, option), tensors.parts, is_ordered)


def _refuse_different(pairs: Iterable[tuple[Weight, Weight]]) -> None:
    """Raise ValueError that names the first value in which two weights differ."""
    for before, after in pairs:
        where = differs(before, after)
        if where is not None:
            row, column = where
            first, second = (float(one.rows(row, row + 1)[0, column]) for one in (before, after))
            raise ValueError(f"the value {first:.9g} in row {row}, column {column} would be {second:.9g}")


def _planned_as(layout: str, name: str, made: Weight, plan: Plan) -> Plan:
    """Return a plan completed with what is stored."""
    if layout == OURS:
        entry, array = entry_in(made)
        return replace(plan, stored=entry, nbytes=array.nbytes)
    if layout in WHOLE:
        return replace(plan, stored=(), nbytes=made.nbytes)
    tensors, is_ordered = written(layout, name, made), made.order is not None
    return _with_parts(plan, tensors.parts, is_ordered)


def _with_parts(plan: Plan, parts: Mapping[str, Any], is_ordered: bool) -> Plan:
    """Return a plan completed with the stored tensors."""
    stored = {key: (part.dtype.name, part.shape) for key, part in parts.items()}
    return replace(plan, stored=stored, nbytes=sum(part.nbytes for part in parts.values()), is_ordered=is_ordered)
