"""Whole checkpoints from one layout to another, without rounding: `convert_checkpoint`.

Each weight is read twice. The first time it is converted, its tensors are read back, and the values of both are
compared; a difference is refused before anything is written. The second time it is converted and written.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..arrays.quantized import QuantizedArray
from ..base.container import numpy_dtype
from ..base.errors import WrongValue, printable, shown
from ..base.float_env import counts_subnormals
from ..base.progress import Progress
from ..base.texts import counted, quoted
from ..base.values import check_flag
from ..base.workers import Workers
from ..formats import Format, format as parse_format
from .changes import Change
from .foreign import Weights, weights_reader
from .gguf import save_gguf
from .layouts import scaled
from .layouts.gguf.llama_cpp import Model, model_in
from .layouts.layout import LAYOUTS
from .layouts.table import WHOLE, expected_of, export
from .layouts.targets import (
    OURS,
    TARGETS,
    Target,
    config_in,
    converted,
    entry_in,
    names_of,
    parts_of,
    refusal_of,
    rounded,
)
from .layouts.weight import Weight, of_rows
from .plain import Plain, parse_type
from .plans import CLOSED, COPIED, LOSSY, REFUSED, Plan, plans_of
from .rewrite import check_paths, rewrite
from .selection import escaped
from .shards import about
from .work import Work

__all__ = ["NotRepresentable", "convert_checkpoint"]

PLAIN_GGUF = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int16": "i16", "int32": "i32",
              "int64": "i64"}  # fmt: skip


class NotRepresentable(WrongValue):
    """The layout cannot represent some weights, and nothing is written.

    `summary` is that of `convert_checkpoint`. `nearest` is a format to which all of these weights can be rounded, or
    "".
    """

    def __init__(self, text: str, summary: dict[str, Any], nearest: str = "") -> None:
        super().__init__(text)
        self.summary, self.nearest = summary, nearest


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
    check: str = "sample",
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
        tensors. By default such weights raise an error, and nothing is written.
    source : str, optional
        Layout of `in_path`. By default it is detected from the configuration or the tensor names.
    progress, workers, resume, shard_size, part
        As in `quantize_checkpoint`. Each part compares all weights. ONNX is built in memory, GGUF one tensor at a time.
    dry_run : bool
        Compare all weights without writing.
    check
        As in `quantize_checkpoint`.

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

        With ``layout="gguf"``, and for a language model in GGUF, there is also `unloadable`: why no runtime loads the
        result, or None. With ``layout="gguf"`` there is `notes`: what llama.cpp computes otherwise than transformers.

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
        raise WrongValue(
            f"convert_checkpoint: layout is {shown(layout)}, expected one of {expected_of(layout, TARGETS)}"
        )
    check_paths(in_path, out_path, None if layout == OURS else layout)
    rounding, dry_run = _rounding(lossy), check_flag("convert_checkpoint", "dry_run", dry_run)
    work = Work(workers, resume, shard_size, part=part, check=check, caller="convert_checkpoint")
    if layout in WHOLE and part is not None:
        raise WrongValue(f"convert_checkpoint: {layout} is one file, and part is for several")
    renames = layout in LAYOUTS
    with weights_reader(in_path, source, renames=renames) as reader:
        if not reader.weights:
            raise WrongValue(f"{printable(reader.path)}: no weight is quantized in a layout that is read: to quantize "
                             "them use quantize_checkpoint")  # fmt: skip
        plans = plans_of(reader, in_path, layout, rounding, progress, work.workers)
        rows = [_row(reader, name, plans.get(name), layout) for name in reader.names]
        infos, found, skipped, named = reader.infos, reader.layout, dict(reader.skipped), reader.config
        why_not_renamed = reader.why_not_renamed
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
    summary |= {} if found != "gguf" or layout in WHOLE else {"unloadable": why_not_renamed}
    refused = [row for row in rows if row["status"] == REFUSED]
    if refused and not dry_run:
        first = refused[0]
        nearest = _nearest_of(layout, refused)
        near = f"; lossy={shown(nearest)} rounds such weights" if nearest else ""
        many = f"{counted(len(refused), 'tensor')} not representable in {layout}"
        such = f"such as {quoted(first['name'])} ({first['from']}): {first['why']}"
        raise NotRepresentable(f"{printable(os.fspath(in_path))}: {many}, {such}{near}", summary, nearest)
    if dry_run:
        return summary
    opened = partial(weights_reader, layout=found, infos=infos, renames=renames)
    if layout in WHOLE:
        with opened(in_path) as reader:
            summary |= _write_whole(reader, out_path, layout, plans, check)
    else:
        changes = {name: _change(layout, name, plan) for name, plan in plans.items()}
        described = partial(_config, layout, plans, {name: info.shape for name, info in infos.items()}, named)
        done = rewrite(in_path, out_path, lambda *_: changes, progress, work, described, source=opened, instead=True)
        summary |= {"part": done["part"]} if part is not None else {}
    return summary | {"written": True}


def _nearest_of(layout: str, refused: list[dict[str, Any]]) -> str:
    """Return the commonest nearest format with which the layout can represent all weights; "" if there is none."""
    for text, _ in Counter(row["nearest"] for row in refused if row["nearest"]).most_common():
        fmt = parse_format(text)
        if all(refusal_of(layout, row["name"], tuple(row["shape"]), fmt) is None for row in refused):
            return str(fmt)
    return ""


def _rounding(lossy: Any) -> Format | str | None:
    found = None if lossy is None else parse_type(lossy)
    return found.dtype if isinstance(found, Plain) else found


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
            return rounded(self.layout, weight, self.target)
        assert not isinstance(self.target, str)
        return converted(self.layout, weight, self.target)

    def __call__(self, weight: Weight) -> Any:
        if isinstance(self.target, str):
            return weight.values(numpy_dtype(self.target))
        made = self.weight(weight)
        weight.release()  # otherwise there would be three copies
        return entry_in(made)[1] if self.layout == OURS else parts_of(self.layout, self.name, made)


def _change(layout: str, name: str, plan: Plan) -> Change:
    assert plan.target is not None
    return Change(str(plan.target), plan.stored, _Made(layout, name, plan.target, plan.is_lossy))


def _config(
    layout: str,
    plans: Mapping[str, Plan],
    shapes: Mapping[str, tuple[int, ...]],
    named: Mapping[str, Any],
    changes: Mapping[str, Change],
    plain: list[str],
) -> dict[str, Any]:
    """Return the entries for config.json, `named` first; weights that became plain values count as plain.

    Formats have the names of the weights as they are written: those of the experts of a stack, if it is split.
    """
    formats = {
        own: plan.target
        for name, plan in plans.items()
        if not isinstance(plan.target, str)
        for own in names_of(layout, name, shapes[name], isinstance(plan.target, scaled.Blocks))
    }
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
    """The arrays of a checkpoint as they are written, each made on access."""

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
            made = entry_in(replace(change.weight(weight), turned=False))[1]  # such files have (out, in) alone
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


def _write_whole(reader: Weights, out_path: Any, layout: str, plans: Mapping[str, Plan], check: str) -> dict[str, Any]:
    """Write one file; return its entries for the summary."""
    arrays = _Lazy(reader, layout, plans)
    if layout != "gguf":
        export(out_path, dict(arrays), layout, check)
        return {}
    model, why_not_loaded = _model_in(reader)
    types: dict[str, Any] = {}
    for name in reader.names:
        plan = plans.get(name)
        dtype = reader.info(name).dtype if plan is None else plan.target
        own = name if model is None else model.names.get(name, name)
        is_stored = model is None or len(reader.info(name).shape) > 1
        if is_stored and isinstance(dtype, str) and dtype in ("float16", "bfloat16"):
            types[escaped(own)] = PLAIN_GGUF[dtype]
    if model is None:
        save_gguf(out_path, arrays, reader.keys, types=types, check=check)
    else:
        keys = {"general.architecture": model.architecture, **model.keys}
        save_gguf(out_path, _Named(arrays, model), keys, types=types, check=check)
    return {"unloadable": why_not_loaded, "notes": [] if model is None else list(model.notes)}


def _model_in(reader: Weights) -> tuple[Model | None, str | None]:
    """Return the language model of a folder of Hugging Face, or why llama.cpp would not load it.

    Both are None if the keys of a GGUF file are kept.
    """
    if reader.keys:
        return None, None
    try:
        return model_in(reader), None
    except ValueError as error:
        return None, str(error)
