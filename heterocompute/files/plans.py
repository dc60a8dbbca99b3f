"""Finds the target of each weight of a conversion, and verifies that it has the same values there: `Conversion`.

A weight is converted, and its tensors are read back. If they have other values, the next target is tried. A weight
without a target is rounded to the format of `lossy`, or refused with the reason.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..base.container import numpy_dtype
from ..base.errors import WrongValue
from ..base.float_env import call_back, counts_subnormals
from ..base.locations import absolute
from ..base.progress import Progress
from ..base.tensors import Info
from ..base.texts import file_name, quoted
from ..base.workers import Workers, in_workers, is_serial
from ..formats import Format
from .foreign import Weights, weights_reader
from .layouts.layout import Layout, Target
from .layouts.targets import (
    converted,
    experts_of,
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

GROUPS = 64  # tasks of workers; each opens the checkpoint, which takes time
TABLE = "embed_tokens.weight"  # the embedding of a language model
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


Read = Callable[[], Weight]  # the weight again, after it was released


@dataclass(frozen=True)
class Conversion:
    """The layout of a conversion, and the format or dtype to which weights are rounded that it cannot represent."""

    layout: Layout
    rounding: Format | str | None

    def plans(
        self, reader: Weights, in_path: str | os.PathLike[str], progress: Progress | None, workers: Workers
    ) -> dict[str, Plan]:
        """Return the plan of each weight of a checkpoint. Afterwards `reader` has the shapes of all weights."""
        if is_serial(workers) or (not self.layout.has_several and not isinstance(self.rounding, Format)):
            return self._alone(reader, progress)
        names = [name for name in reader.names if name in reader.weights]
        step = -(-len(names) // GROUPS)
        path = absolute(file_name(in_path))
        groups = [tuple(names[i : i + step]) for i in range(0, len(names), step)]
        tasks = [_Some(path, reader.layout, self, group) for group in groups]
        plans: dict[str, Plan] = {}
        for _, found in in_workers(workers, _plans_of_some, tasks, "convert_checkpoint"):
            for name, plan, info, declared in found:
                plans[name] = plan
                reader.know(name, info, declared)
            if progress:
                call_back(progress, len(plans), len(names), "")
        return {name: plans[name] for name in names}

    def _alone(self, reader: Weights, progress: Progress | None) -> dict[str, Plan]:
        """Return the plan of each weight, without workers."""
        names = [name for name in reader.names if name in reader.weights]
        common: list[Target] | None = None
        plans: dict[str, Plan] = {}
        for i, name in enumerate(names):
            if progress:
                call_back(progress, i, len(names), name)
            with about(reader, name):
                found = self.of_one(reader, name)
            if isinstance(found, Plan):
                plans[name] = found
            else:
                common = found if common is None else [one for one in common if one in found]
        if progress:
            call_back(progress, len(names), len(names), "")
        left = [name for name in names if name not in plans]
        return plans | (self._in_common(reader, left, common or []) if left else {})

    def of_one(self, reader: Weights, name: str) -> Plan | list[Target]:
        """Return the plan of a weight, or its possible targets if the layout has one format for all weights."""
        read, layout = partial(reader.weight, name), self.layout
        plain = self._as_plain(name, read(), is_renamed=bool(reader.config))
        if plain is not None:
            return plain
        options = targets_of(layout, name, read())
        if not layout.has_several and isinstance(self.rounding, Format):
            options = [one for one in options if one == self.rounding]
        elif not layout.has_several and options:
            return options
        return self._plan(name, read, options)

    def _as_plain(self, name: str, weight: Weight, is_renamed: bool) -> Plan | None:
        """Return the plan of a weight that becomes plain values exactly, None for other weights.

        These are codes of a plain type, and the embedding of a model whose names change: loaders expect plain values
        there.
        """
        dtype = None
        if is_renamed and name.endswith(TABLE) and "embedding" in self.layout.keeps:
            dtype = "float32"
        elif not self.layout.is_own and (found := plain_of(weight.declared)) is not None:
            dtype = found.dtype
        if dtype is None:
            return None
        nbytes = numpy_dtype(dtype).itemsize * math.prod(weight.shape)
        return Plan(CLOSED, dtype, stored=(dtype, weight.model_shape), nbytes=nbytes)

    def _in_common(self, reader: Weights, names: list[str], options: list[Target]) -> dict[str, Plan]:
        """Return the plans of weights that must have one format: the first option that all of them support."""
        best: dict[str, Plan] = {}
        for option in options:
            plans: dict[str, Plan] = {}
            for name in names:
                with about(reader, name):
                    plans[name] = self._plan(name, partial(reader.weight, name), [option])
                if plans[name].status in (REFUSED, LOSSY):
                    break
            else:
                return plans
            best = plans if len(plans) > len(best) else best
        for name in names:
            if name not in best:
                read = partial(reader.weight, name)
                with about(reader, name):
                    best[name] = self._plan(name, read, targets_of(self.layout, name, read()))
        wanted = next((plan.target for plan in best.values() if plan.status in (EQUAL, CLOSED)), None)
        for name, plan in best.items():
            if plan.status in (EQUAL, CLOSED) and plan.target != wanted:
                why = f"{self.layout.name} has one format of all weights in a file, and others are {wanted}"
                best[name] = replace(plan, status=REFUSED, why=why, nearest=str(wanted))
        return best

    def _plan(self, name: str, read: Read, options: list[Target]) -> Plan:
        """Return the plan of a weight: the first option whose tensors decode to its values, otherwise rounding."""
        layout, rounding, reasons = self.layout, self.rounding, []
        for option in options:
            try:
                return self._proven(name, read, option)
            except ValueError as error:
                reasons.append(str(error).removeprefix("save: ").removeprefix(f"tensor {quoted(name)}: "))
        weight = read()
        why, near = why_not(layout, name, weight, reasons), nearest(layout, name, weight)
        if rounding is None:
            return Plan(REFUSED, why=why, nearest="" if near is None else str(near), nbytes=0)
        if isinstance(rounding, str):
            values = weight.values(numpy_dtype(rounding))
            after = of_values(values.swapaxes(-1, -2) if weight.turned else values, rounding, values.nbytes)
            stored = rounding, weight.model_shape
            return Plan(LOSSY, rounding, True, why, "", sqnr_of(weight, after), stored, values.nbytes)
        no_place = refusal_of(layout, name, weight.shape, rounding)
        if no_place is not None:
            return Plan(REFUSED, why=no_place, nearest="" if near is None else str(near))
        made = rounded(layout, weight, rounding)
        plan = Plan(LOSSY, rounding, True, why, sqnr_db=sqnr_of(weight, made))
        weight.release()
        return self._stored(name, made, plan)

    def _proven(self, name: str, read: Read, option: Target) -> Plan:
        """Return the plan that converts a weight to an option; ValueError if a program would read other values.

        At most two of these are in memory at a time: the weight, the converted weight, the tensors that are written,
        and the weight that is read back. So the last is compared by a digest of its values.
        """
        weight, layout = read(), self.layout
        status = EQUAL if str(option) == weight.declared else CLOSED
        made = converted(layout, weight, option)
        digest = weight.digest().digest()
        if made.array is not weight.array and made.digest().digest() != digest:
            _refuse_different([(weight, made)])
        weight.release()
        if not layout.has_tensors:
            return self._stored(name, made, Plan(status, option))
        tensors, is_ordered = written(layout, name, made), made.order is not None
        made.release()
        found: Any = None
        for one in tensors.read_back():
            found = one.digest(found)
        if found.digest() != digest:
            weight = read()
            ours = [one for _, one in experts_of(layout, name, converted(layout, weight, option))]
            _refuse_different(zip(ours, tensors.read_back(), strict=True))
        return _with_parts(Plan(status, option), tensors.parts, is_ordered)

    def _stored(self, name: str, made: Weight, plan: Plan) -> Plan:
        """Return a plan completed with what is stored."""
        if self.layout.is_own:
            return replace(plan, stored=made.entry, nbytes=made.nbytes)
        if self.layout.is_file:
            return replace(plan, stored=(), nbytes=made.nbytes)
        tensors, is_ordered = written(self.layout, name, made), made.order is not None
        return _with_parts(plan, tensors.parts, is_ordered)


@dataclass(frozen=True)
class _Some:
    """Weights of a checkpoint whose plans do not depend on each other: work that any process can do."""

    path: str
    source: str
    conversion: Conversion
    names: tuple[str, ...]


@counts_subnormals
def _plans_of_some(some: _Some) -> list[tuple[str, Plan, Info, str]]:
    """Return the plans of some weights, and the data that the reader has about each of them."""
    with weights_reader(some.path, some.source, renames=some.conversion.layout.has_tensors) as reader:
        found = []
        for name in some.names:
            with about(reader, name):
                plan = some.conversion.of_one(reader, name)
                assert isinstance(plan, Plan)
                found.append((name, plan, reader.info(name), reader.declared(name)))
    return found


def _refuse_different(pairs: Iterable[tuple[Weight, Weight]]) -> None:
    """Raise ValueError that names the first value in which two weights differ."""
    for before, after in pairs:
        where = differs(before, after)
        if where is not None:
            row, column = where
            first, second = (float(one.rows(row, row + 1)[0, column]) for one in (before, after))
            raise WrongValue(f"the value {first:.9g} in row {row}, column {column} would be {second:.9g}")


def _with_parts(plan: Plan, parts: Mapping[str, Any], is_ordered: bool) -> Plan:
    """Return a plan completed with the stored tensors."""
    stored = {key: (part.dtype.name, part.shape) for key, part in parts.items()}
    return replace(plan, stored=stored, nbytes=sum(part.nbytes for part in parts.values()), is_ordered=is_ordered)
