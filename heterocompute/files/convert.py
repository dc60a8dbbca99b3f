"""Whole checkpoints from one layout to another, without rounding: `convert_checkpoint`.

Each weight is read twice. The first time it is converted, its tensors are read back, and the values of both are
compared; what is not the same is refused before anything is written. The second time it is converted and written.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..arrays.quantized import QuantizedArray
from ..base.container import numpy_dtype
from ..base.float_env import call_back, counts_subnormals
from ..base.places import absolute
from ..base.tensors import Info
from ..base.texts import counted, file_name, printable, quoted
from ..base.values import shown
from ..base.workers import Workers, in_workers, is_alone
from ..formats import Format, format as parse_format
from .changes import Change
from .foreign import Weights, weights_reader
from .gguf import save_gguf
from .layouts.gguf.llama_cpp import Model, model_in
from .layouts.layout import LAYOUTS
from .layouts.table import WHOLE, export
from .layouts.targets import (
    OURS,
    TARGETS,
    Target,
    config_in,
    converted,
    entry_in,
    experts_of,
    has_one_format,
    nearest,
    parts_of,
    refusal_of,
    rounded,
    targets_of,
    why_not,
    written,
)
from .layouts.weight import Weight, differs, of_rows, of_values, sqnr_of
from .rewrite import Progress, Work, check_paths, rewrite
from .selection import escaped
from .shards import about

__all__ = ["NotRepresentable", "convert_checkpoint"]

PLAIN = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
GROUPS = 64  # of weights that workers compare: opening a checkpoint takes time
PLAIN_GGUF = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int16": "i16", "int32": "i32",
              "int64": "i64"}  # fmt: skip
# The embedding of a language model, of which loaders other than these want plain values.
TABLE, QUANTIZED_TABLES = "embed_tokens.weight", ("mlx",)
EQUAL, CLOSED, LOSSY, COPIED, REFUSED = "equal", "closed form", "lossy", "copied", "not representable"


class NotRepresentable(ValueError):
    """Some weights have no place in the layout; `summary` is that of `convert_checkpoint`, and nothing is written."""

    def __init__(self, text: str, summary: dict[str, Any]) -> None:
        super().__init__(text)
        self.summary = summary


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


@counts_subnormals
def convert_checkpoint(
    in_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    layout: str,
    lossy: str | Format | None = None,
    source: str | None = None,
    progress: Progress | None = None,
    workers: Workers = None,
    resume: bool = True,
    shard_size: int | str | None = "5GB",
    dry_run: bool = False,
    part: str | None = None,
) -> dict[str, Any]:
    """Convert a quantized checkpoint to the layout of another program, with exactly equal values.

    Each weight is read twice. The first pass converts it, reads it back and compares. The second pass writes it.

    Parameters
    ----------
    in_path, out_path : str or os.PathLike
        As in `quantize_checkpoint`: safetensors in the layout of another program or of this package, a folder of them,
        or GGUF. Other files of the folder are copied. ``config.json`` gets the entries that the new layout requires.
    layout : str
        ``"heterocompute"``, or a layout of `save`.
    lossy : Format or str, optional
        Format to round weights to that the layout cannot represent. ``"f32"``, ``"f16"`` and ``"bf16"`` store plain
        values. By default such weights raise an error, and nothing is written.
    source : str, optional
        Layout of `in_path`. By default it is detected from the configuration or the tensor names.
    progress, workers, resume, shard_size, part
        As in `quantize_checkpoint`. Each part compares all weights. ONNX is built in memory, GGUF one tensor at a time.
    dry_run : bool
        Compare all weights without writing.

    Returns
    -------
    dict
        ``{"input", "output", "source", "layout", "bytes_before", "bytes", "written", "tensors", "skipped"}``. Each of
        `tensors` has `name`, `shape`, `from`, `to`, `status`, `bytes_before`, `bytes`, `sqnr_db`, `why` and `nearest`.
        `status` is one of:

        - ``"equal"``: the same format.
        - ``"closed form"``: another format with equal values, as shown by decoding both (0 and -0 are equal).
        - ``"lossy"``: rounded, with its `sqnr_db`.
        - ``"copied"``: a plain tensor.
        - ``"not representable"``: with `why` and the `nearest` format.

    Raises
    ------
    NotRepresentable
        Weights cannot be represented in the layout, and `lossy` is not given. It is a ValueError. Its ``summary`` is
        the dict that is returned otherwise.
    ValueError
        There is no quantized weight, the layout is unknown, or as in `quantize_checkpoint`.
    OSError
        A file cannot be read or written.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, heterocompute as hc
    >>> folder = tempfile.mkdtemp()
    >>> before, after = os.path.join(folder, "gptq.safetensors"), os.path.join(folder, "awq.safetensors")
    >>> q = hc.quantize(np.eye(32, 64, dtype=np.float32), "int4-g32-f16")
    >>> hc.save(before, {"fc.weight": q}, layout="gptq")
    >>> [row] = hc.convert_checkpoint(before, after, "awq")["tensors"]
    >>> row["from"], row["to"], row["status"]
    ('int4-g32-f16', 'int4-g32-f16', 'equal')
    """
    if layout not in TARGETS:
        raise ValueError(f"convert_checkpoint: layout is {shown(layout)}, expected one of {', '.join(TARGETS)}")
    check_paths(in_path, out_path, None if layout == OURS else layout)
    rounding, work = _rounding(lossy), Work(workers, resume, shard_size, part=part, caller="convert_checkpoint")
    if layout in WHOLE and part is not None:
        raise ValueError(f"convert_checkpoint: {layout} is one file, and part is for several")
    renames = layout in LAYOUTS
    with weights_reader(in_path, source, renames=renames) as reader:
        if not reader.weights:
            raise ValueError(f"{printable(reader.path)}: no weight is quantized in a layout that is read: to quantize "
                             "them use quantize_checkpoint")  # fmt: skip
        if is_alone(work.workers) or (has_one_format(layout) and not isinstance(rounding, Format)):
            plans = _planned(reader, layout, rounding, progress)
        else:
            plans = _planned_by(work.workers, in_path, reader, layout, rounding, progress)
        rows = [_row(reader, name, plans.get(name), layout) for name in reader.names]
        infos, found, skipped, named = reader.infos, reader.layout, dict(reader.skipped), reader.config
    summary: dict[str, Any] = {
        "input": os.fspath(in_path),
        "output": os.fspath(out_path),
        "source": found,
        "layout": layout,
        "bytes_before": sum(row["bytes_before"] for row in rows),
        "bytes": sum(row["bytes"] for row in rows),
        "written": False,
        "tensors": rows,
        "skipped": skipped,
    }
    refused = [row for row in rows if row["status"] == REFUSED]
    if refused and not dry_run:
        first = refused[0]
        near = f"; lossy={shown(first['nearest'])} rounds such weights" if first["nearest"] else ""
        many = f"{counted(len(refused), 'tensor')} not representable in {layout}"
        such = f"such as {quoted(first['name'])} ({first['from']}): {first['why']}"
        raise NotRepresentable(f"{printable(os.fspath(in_path))}: {many}, {such}{near}", summary)
    if dry_run:
        return summary
    opened = partial(weights_reader, layout=found, infos=infos, renames=renames)
    if layout in WHOLE:
        with opened(in_path) as reader:
            _write_whole(reader, out_path, layout, plans)
    else:
        changes = {name: _change(layout, name, plan) for name, plan in plans.items()}
        described = partial(_config, layout, plans, named)
        done = rewrite(in_path, out_path, lambda *_: changes, progress, work, described, source=opened, instead=True)
        summary |= {"part": done["part"]} if part is not None else {}
    return summary | {"written": True}


def _rounding(lossy: Any) -> Format | str | None:
    if isinstance(lossy, str) and (lossy in PLAIN or lossy in PLAIN.values()):
        return PLAIN.get(lossy, lossy)
    return parse_format(lossy) if isinstance(lossy, str) else lossy


def _planned(reader: Weights, layout: str, rounding: Format | str | None, progress: Progress | None) -> dict[str, Plan]:
    """Return what becomes of each weight; `reader` knows their shapes then."""
    names = [name for name in reader.names if name in reader.weights]
    common: list[Target] | None = None
    plans: dict[str, Plan] = {}
    for i, name in enumerate(names):
        if progress:
            call_back(progress, i, len(names), name)
        with about(reader, name):
            table = _plain_table(layout, name, reader)
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


def _plain_table(layout: str, name: str, reader: Weights) -> Plan | None:
    """Return the plan of the embedding of a model whose names change: plain values where loaders expect them."""
    if not reader.config or not name.endswith(TABLE) or layout in QUANTIZED_TABLES:
        return None
    shape = reader.weight(name).shape
    return Plan(CLOSED, "float32", stored=("float32", shape), nbytes=4 * math.prod(shape))


@dataclass(frozen=True)
class _Some:
    """Weights of a checkpoint, each of which becomes what it becomes alone: work that any process can do."""

    path: str
    source: str
    layout: str
    rounding: Format | str | None
    names: tuple[str, ...]


@counts_subnormals
def plans_of(some: _Some) -> list[tuple[str, Plan, Info, str]]:
    """Return the plans of some weights, and what the reader knows of each then."""
    with weights_reader(some.path, some.source, renames=some.layout in LAYOUTS) as reader:
        found = []
        for name in some.names:
            with about(reader, name):
                options = targets_of(some.layout, name, reader.weight(name))
                if has_one_format(some.layout):
                    options = [one for one in options if one == some.rounding]
                plan = _plain_table(some.layout, name, reader)
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
    """As `_planned`, by workers."""
    names = [name for name in reader.names if name in reader.weights]
    step = -(-len(names) // GROUPS)
    path = absolute(file_name(in_path))
    groups = [tuple(names[i : i + step]) for i in range(0, len(names), step)]
    tasks = [_Some(path, reader.layout, layout, rounding, group) for group in groups]
    plans: dict[str, Plan] = {}
    for _, found in in_workers(workers, plans_of, tasks, "convert_checkpoint"):
        for name, plan, info, said in found:
            plans[name] = plan
            reader.know(name, info, said)
        if progress:
            call_back(progress, len(plans), len(names), "")
    return {name: plans[name] for name in names}


def _in_common(
    reader: Weights, layout: str, names: list[str], options: list[Target], rounding: Format | str | None
) -> dict[str, Plan]:
    """Return the plans of weights that must have one format: the first option that all of them have."""
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
    """Return what becomes of a weight: the first option whose tensors decode to its values, else rounding."""
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
        after = of_values(values, rounding, values.nbytes)
        plan = Plan(LOSSY, rounding, True, why, sqnr_db=sqnr_of(weight, after), stored=(rounding, weight.shape))
        return replace(plan, nbytes=values.nbytes)
    no_place = refusal_of(layout, name, weight.shape, rounding)
    if no_place is not None:
        return Plan(REFUSED, why=no_place, nearest="" if near is None else str(near))
    made = rounded(weight, rounding)
    plan = Plan(LOSSY, rounding, True, why, sqnr_db=sqnr_of(weight, made))
    weight.release()
    return _planned_as(layout, name, made, plan)


def _proven(layout: str, name: str, reader: Weights, option: Target) -> Plan:
    """Return the plan to make a weight an option; ValueError where a program would find other values.

    At most two of these are in memory at a time: the weight, what it is converted to, the tensors that are written, and
    what is read from them. So the last is compared by a digest of the values.
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
    """Raise ValueError with the first value of a weight that another one does not have."""
    for before, after in pairs:
        where = differs(before, after)
        if where is not None:
            row, column = where
            first, second = (float(one.rows(row, row + 1)[0, column]) for one in (before, after))
            raise ValueError(f"the value {first:.9g} in row {row}, column {column} would be {second:.9g}")


def _planned_as(layout: str, name: str, made: Weight, plan: Plan) -> Plan:
    """Return a plan with what is stored."""
    if layout == OURS:
        entry, array = entry_in(made)
        return replace(plan, stored=entry, nbytes=array.nbytes)
    if layout in WHOLE:
        return replace(plan, stored=(), nbytes=made.nbytes)
    tensors, is_ordered = written(layout, name, made), made.order is not None
    return _with_parts(plan, tensors.parts, is_ordered)


def _with_parts(plan: Plan, parts: Mapping[str, Any], is_ordered: bool) -> Plan:
    """Return a plan with the tensors that are stored."""
    stored = {key: (part.dtype.name, part.shape) for key, part in parts.items()}
    return replace(plan, stored=stored, nbytes=sum(part.nbytes for part in parts.values()), is_ordered=is_ordered)


@dataclass(frozen=True)
class _Made:
    """The tensors written for a weight: plain data, which can be sent to another process."""

    layout: str
    name: str
    target: Target | str
    is_lossy: bool

    def weight(self, weight: Weight) -> Weight:
        if self.is_lossy:
            assert not isinstance(self.target, (str, tuple))
            return rounded(weight, self.target)
        assert not isinstance(self.target, str)
        return converted(self.layout, weight, self.target)

    def __call__(self, weight: Weight) -> Any:
        if isinstance(self.target, str):
            return weight.values(numpy_dtype(self.target))
        made = self.weight(weight)
        weight.release()  # before there are three
        return entry_in(made)[1] if self.layout == OURS else parts_of(self.layout, self.name, made)


def _change(layout: str, name: str, plan: Plan) -> Change:
    assert plan.target is not None
    return Change(str(plan.target), plan.stored, _Made(layout, name, plan.target, plan.is_lossy))


def _config(
    layout: str, plans: Mapping[str, Plan], named: Mapping[str, Any], changes: Mapping[str, Change], plain: list[str]
) -> dict[str, Any]:
    """Return what goes into config.json, `named` first; weights that became plain values count as such."""
    formats = {name: plan.target for name, plan in plans.items() if not isinstance(plan.target, str)}
    values = [name for name, plan in plans.items() if isinstance(plan.target, str)]
    is_ordered = any(plan.is_ordered for plan in plans.values())
    found: dict[str, Any] = config_in(layout, formats, sorted([*plain, *values]), is_ordered)  # type: ignore[arg-type]
    return {**named, **found}


def _row(reader: Weights, name: str, plan: Plan | None, layout: str) -> dict[str, Any]:
    info = reader.info(name)
    row: dict[str, Any] = {
        "name": name,
        "shape": list(info.shape),
        "from": reader.said(name),
        "to": info.dtype,
        "status": COPIED,
    }
    row |= {"bytes_before": reader.stored_bytes(name), "bytes": info.nbytes, "sqnr_db": None, "why": "", "nearest": ""}
    if plan is None:
        if layout == "gguf" and (info.dtype not in PLAIN_GGUF or len(info.shape) > 4):
            row |= {"status": REFUSED, "why": f"gguf has no place for {info.dtype} of {len(info.shape)} dimensions"}
        return row
    decibels = None if plan.sqnr_db is None or not math.isfinite(plan.sqnr_db) else plan.sqnr_db
    target = None if plan.target is None else str(plan.target)
    exact = plan.status == LOSSY and plan.sqnr_db == math.inf
    return row | {"to": target, "status": CLOSED if exact else plan.status, "bytes": plan.nbytes, "sqnr_db": decibels,
                  "why": plan.why, "nearest": plan.nearest}  # fmt: skip


class _Lazy(Mapping[str, Any]):
    """The arrays of a checkpoint as they are written, each made when it is asked for."""

    def __init__(self, reader: Weights, layout: str, plans: Mapping[str, Plan]) -> None:
        self._reader, self._layout, self._plans = reader, layout, plans

    def __getitem__(self, name: str) -> Any:
        plan = self._plans.get(name)
        if plan is None:
            return self._reader.tensor(name)
        change = _change(self._layout, name, plan).make
        assert isinstance(change, _Made)
        with about(self._reader, name):
            weight = self._reader.weight(name)
            if isinstance(plan.target, str):
                return change(weight)
            made = entry_in(change.weight(weight))[1]
            weight.release()
            return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._reader.names)

    def __len__(self) -> int:
        return len(self._reader.names)


class _Named(Mapping[str, Any]):
    """The arrays of a language model under the names, and in the order of rows, of llama.cpp."""

    def __init__(self, arrays: Mapping[str, Any], model: Model) -> None:
        self._arrays, self._model = arrays, model
        self._names = {own: name for name, own in model.names.items()}

    def __getitem__(self, own: str) -> Any:
        if own not in self._names:
            return self._model.more[own]
        array, rows = self._arrays[self._names[own]], self._model.rows.get(own)
        if isinstance(array, QuantizedArray):
            return array if rows is None else of_rows(array, rows)
        values = np.asarray(array)
        if values.ndim == 1:
            values = np.asarray(values, np.float32)  # llama.cpp has no others
        values = values if rows is None else values[rows]
        return values + np.float32(1) if own in self._model.plus_one else values

    def __iter__(self) -> Iterator[str]:
        return iter([*self._names, *self._model.more])

    def __len__(self) -> int:
        return len(self._names) + len(self._model.more)


def _write_whole(reader: Weights, out_path: Any, layout: str, plans: Mapping[str, Plan]) -> None:
    arrays = _Lazy(reader, layout, plans)
    if layout != "gguf":
        export(out_path, dict(arrays), layout)
        return
    model = _model_in(reader)
    types: dict[str, Any] = {}
    for name in reader.names:
        plan = plans.get(name)
        dtype = reader.info(name).dtype if plan is None else plan.target
        own = name if model is None else model.names.get(name, name)
        is_stored = model is None or len(reader.info(name).shape) > 1
        if is_stored and isinstance(dtype, str) and dtype in ("float16", "bfloat16"):
            types[escaped(own)] = PLAIN_GGUF[dtype]
    if model is None:
        save_gguf(out_path, arrays, reader.keys, types=types)
    else:
        keys = {"general.architecture": model.architecture, **model.keys}
        save_gguf(out_path, _Named(arrays, model), keys, types=types)


def _model_in(reader: Weights) -> Model | None:
    """Return the language model of a folder of Hugging Face, None where llama.cpp would not load it."""
    if reader.keys:
        return None
    try:
        return model_in(reader)
    except ValueError:
        return None
