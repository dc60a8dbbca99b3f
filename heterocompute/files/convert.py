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

from ..base.container import numpy_dtype
from ..base.errors import WrongValue, printable, shown
from ..base.float_env import counts_subnormals
from ..base.progress import Progress, reported
from ..base.texts import counted, quoted
from ..base.values import check_flag
from ..base.workers import Workers
from ..base.writer import replacing
from ..formats import Format, format as parse_format
from .changes import Change
from .foreign import Weights, weights_reader
from .layouts import scaled
from .layouts.configuration import KEY
from .layouts.layout import Layout, Target
from .layouts.table import LAYOUTS, expected_of
from .layouts.targets import TARGETS, converted, names_of, parts_of, refusal_of, rounded
from .layouts.weight import Weight
from .plain import Plain, parse_type
from .plans import CLOSED, COPIED, LOSSY, REFUSED, Conversion, Plan
from .rewrite import check_paths, rewrite
from .shards import about
from .work import Work


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
    progress: Progress | bool | None = None,
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
        `tokenizer` is the reason why a folder made of a GGUF file has no tokenizer; otherwise it is written.

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
    target = TARGETS[layout]
    check_paths(in_path, out_path, None if target.is_own else layout)
    rounding, dry_run = _rounding(lossy), check_flag("convert_checkpoint", "dry_run", dry_run)
    caller = "convert_checkpoint"
    work = Work(workers, resume, shard_size, part=part, check=check, caller=caller, progress=progress)
    if target.is_file and part is not None:
        raise WrongValue(f"convert_checkpoint: {layout} is one file, and part is for several")
    with weights_reader(in_path, source, renames=target.has_tensors) as reader:
        if not reader.weights:
            raise WrongValue(f"{printable(reader.path)}: no weight is quantized in a layout that is read: to quantize "
                             "them use quantize_checkpoint")  # fmt: skip
        plans = Conversion(target, rounding).plans(reader, in_path, reported(progress, caller), work.workers)
        rows = [_row(reader, name, plans.get(name), target) for name in reader.names]
        infos, found, skipped, named = reader.infos, reader.layout, dict(reader.skipped), reader.config
        why_not_renamed = reader.why_not_renamed
        companions, lacking = reader.companions() if not target.is_file and not dry_run else ({}, None)
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
    if found in LAYOUTS and LAYOUTS[found].has_models and not target.is_file:
        summary["unloadable"] = why_not_renamed
    refused = [row for row in rows if row["status"] == REFUSED]
    if refused and not dry_run:
        first = refused[0]
        nearest = _nearest_of(target, refused)
        near = f"; lossy={shown(nearest)} rounds such weights" if nearest else ""
        many = f"{counted(len(refused), 'tensor')} not representable in {layout}"
        such = f"such as {quoted(first['name'])} ({first['from']}): {first['why']}"
        raise NotRepresentable(f"{printable(os.fspath(in_path))}: {many}, {such}{near}", summary, nearest)
    if dry_run:
        return summary
    opened = partial(weights_reader, layout=found, infos=infos, renames=target.has_tensors)
    if target.is_file:
        with opened(in_path) as reader:
            dtypes = {name: plans[name].target if name in plans else reader.info(name).dtype for name in reader.names}
            summary |= target.write_mapping(out_path, _Lazy(reader, target, plans), reader, dtypes, check)
    else:
        changes = {name: _change(target, name, plan) for name, plan in plans.items()}
        described = partial(_config, target, plans, {name: info.shape for name, info in infos.items()}, named)
        done = rewrite(in_path, out_path, lambda *_: changes, work, described, source=opened, instead=True)
        summary |= {"part": done["part"]} if part is not None else {}
        if os.path.isdir(out_path):
            for name, text in companions.items():
                with (
                    replacing(os.path.join(out_path, name)) as temporary,
                    open(temporary, "w", encoding="utf-8") as file,
                ):
                    file.write(text)
    if lacking is not None:
        summary["tokenizer"] = lacking
    return summary | {"written": True}


def _nearest_of(layout: Layout, refused: list[dict[str, Any]]) -> str:
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

    layout: Layout
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
        return made.packed() if self.layout.is_own else parts_of(self.layout, self.name, made)


def _change(layout: Layout, name: str, plan: Plan) -> Change:
    assert plan.target is not None
    return Change(str(plan.target), plan.stored, _Made(layout, name, plan.target, plan.is_lossy))


def _config(
    layout: Layout,
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
    if not layout.has_tensors or not formats:
        return {**named, KEY: None}
    return {**named, **layout.described(formats, sorted([*plain, *values]), is_ordered)}


def _row(reader: Weights, name: str, plan: Plan | None, layout: Layout) -> dict[str, Any]:
    info = reader.info(name)
    row: dict[str, Any] = {
        "name": name,
        "shape": list(info.shape),
        "from": reader.declared(name),
        "to": info.dtype,
        "status": COPIED,
    }
    row |= {"bytes_before": reader.stored_bytes(name), "bytes": info.nbytes, "sqnr_db": None, "why": "", "nearest": ""}
    if plan is None:
        why = layout.why_not_plain(info.dtype, info.shape)
        return row | ({"status": REFUSED, "why": why} if why else {})
    decibels = None if plan.sqnr_db is None or not math.isfinite(plan.sqnr_db) else plan.sqnr_db
    target = None if plan.target is None else str(plan.target)
    exact = plan.status == LOSSY and plan.sqnr_db == math.inf
    return row | {"to": target, "status": CLOSED if exact else plan.status, "bytes": plan.nbytes, "sqnr_db": decibels,
                  "why": plan.why, "nearest": plan.nearest}  # fmt: skip


class _Lazy(Mapping[str, Any]):
    """The arrays of a checkpoint as they are written, each made on access."""

    def __init__(self, reader: Weights, layout: Layout, plans: Mapping[str, Plan]) -> None:
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
            made = replace(change.weight(weight), turned=False).packed()  # such files have (out, in) alone
            weight.release()
            return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._reader.names)

    def __len__(self) -> int:
        return len(self._reader.names)
