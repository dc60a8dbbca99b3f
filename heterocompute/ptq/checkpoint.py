"""Rounds a checkpoint for gathered layer inputs, with one tensor in memory at a time."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..arrays.components import entry_of
from ..arrays.dense import as_array
from ..arrays.layout import Entry
from ..arrays.quantized import QuantizedArray
from ..arrays.rotated import RotatedArray
from ..base.errors import WrongType, WrongValue, printable, shown
from ..base.float_env import call_back, counts_subnormals
from ..base.lazy import renamed
from ..base.locations import absolute
from ..base.progress import Progress, reported
from ..base.tensors import Tensors
from ..base.version import __version__
from ..base.workers import Workers, in_workers, is_serial
from ..files.changes import Change, turned_after
from ..files.layouts.refusals import refuse_layout
from ..files.layouts.table import check_layout
from ..files.opening import load, reader_of
from ..files.rewrite import check_paths, check_places, rewrite_in
from ..files.roles import is_turned, roles_of
from ..files.safetensors import save
from ..files.selection import FirstMatch, check_patterns, kept_plain, select, unknown
from ..files.shards import about, state_of
from ..files.work import Work
from ..formats import Format
from ..formats.defining import carried
from ..products.arguments import as_format
from ..zoo.llm.experts import of_each_expert
from .error import layer_axis
from .hessian import Hessian
from .layer import check_options, round_layer, rounded_to
from .options import Options
from .parts import Parts

Array = np.ndarray[Any, Any]

REPORT = ("tokens", "damping", "dead", "before", "after")


@renamed(formats="format")
@counts_subnormals
def quantize_checkpoint(
    in_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    hessians: Mapping[str, Hessian | str | os.PathLike[str]],
    format: Format | str | Mapping[str, Format | str | None] | None = None,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    progress: Progress | bool | None = None,
    resume: bool = True,
    layout: str | None = None,
    workers: Workers = None,
    check: str = "sample",
    method: str = "gptq",
    recipe: str | os.PathLike[str] | Mapping[str, Format | str | None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Round every layer of a checkpoint with calibration inputs, one by one, and resume interrupted runs.

    Results are kept in the folder ``OUT.parts`` until the new file is complete. Results there of the same tensor,
    inputs, format and options are reused. The output bytes do not depend on interruptions.

    Parameters
    ----------
    in_path, out_path : str or os.PathLike
        Two different files; an existing `out_path` is replaced.
    hessians : mapping of str to Hessian or path
        By tensor name, as returned by `calibrate`, or as files of `Hessian.save`, which are read one at a time. A
        tensor without a Hessian is copied.
    format, **options
        As in `quantize`.
    include, exclude : str or iterable of str
        Globs of names. Default: float tensors with two or more dimensions.
    progress : callable or bool, optional
        ``progress(done_bytes, all_bytes, name)``, before each tensor and at the end.
    resume : bool
        Reuse the results of an earlier run. False deletes them.
    layout : str, optional
        Layout of another program, as in `hc.quantize_checkpoint`. Formats that it cannot represent raise an error
        before any rounding.
    workers : int, str or callable, optional
        As in `hc.quantize_checkpoint`, each with one layer at a time. Results are in ``OUT.parts``, which all workers
        must see. The output bytes do not depend on them.
    check : {"sample", "all", "none"}
        As in `hc.quantize_checkpoint`; a layer is not rounded a second time, but its result is read again.
    method : {"gptq", "qronos", "search", "rtn"}
        As in `quantize`. ``"qronos"`` corrects the drift of Hessians with both inputs, as `calibrate` with `rounded`
        returns them.
    recipe : path, or mapping of str to (Format, str or None), optional
        As in `quantize`.

    Returns
    -------
    dict
        As in `hc.quantize_checkpoint`. Rows of rounded tensors also have ``tokens damping dead before after``, as in
        the table of `Rounded`.

    Raises
    ------
    TypeError, ValueError
        As in `gptq` (the message names the tensor). Also if both paths are one file, a pattern matches nothing, or the
        output path is a folder that is not empty.
    OSError
        A file cannot be read or written.

    Notes
    -----
    Memory: the largest tensor, its Hessian, and the working memory of `gptq` for both.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, heterocompute as hc
    >>> folder, rng = tempfile.mkdtemp(), np.random.default_rng(0)
    >>> before, after = os.path.join(folder, "model.safetensors"), os.path.join(folder, "small.safetensors")
    >>> hc.save(before, {"fc.weight": rng.standard_normal((8, 64), dtype=np.float32)})
    >>> h = hc.ptq.Hessian(64)
    >>> h.add(rng.standard_normal((256, 64)))
    >>> hc.ptq.quantize_checkpoint(before, after, {"fc.weight": h}, "int4-g32")["bytes"]
    320
    """
    check_paths(in_path, out_path, layout)
    if layout is not None:
        check_layout(layout)
    if not isinstance(hessians, Mapping):
        raise WrongType(f"quantize_checkpoint: hessians are {shown(hessians)}, expected a mapping of names to them")
    how = check_options(options, "quantize_checkpoint", method)
    work, tell = Work(workers, resume, check=check), reported(progress, "ptq")
    return round_checkpoint(
        in_path, out_path, hessians, rounded_to(format, recipe), include, exclude, tell, Parts(out_path, resume),
        work, how, layout,
    )  # fmt: skip


def round_checkpoint(
    in_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    hessians: Mapping[str, Any],
    formats: Format | str | Mapping[str, Format | str | None],
    include: str | Iterable[str],
    exclude: str | Iterable[str],
    progress: Progress | None,
    parts: Parts,
    work: Work,
    how: Options,
    layout: str | None = None,
) -> dict[str, Any]:
    """Round the tensors for `quantize_checkpoint`, with checked arguments; reuse parts that an earlier run wrote."""
    texts = formats if isinstance(formats, Mapping) else {"*": formats}
    parsed = {
        pattern: None if fmt is None else as_format(fmt, "quantize_checkpoint: format", rotated=True)
        for pattern, fmt in texts.items()
    }
    axes_of = getattr(hessians, "axes", {})
    target = None if layout is None else check_layout(layout)
    found: dict[str, dict[str, float]] = {}
    roundings: dict[str, Change] = {}

    def choose(reader: Tensors, held: Mapping[str, Entry | None]) -> dict[str, Change]:
        refuse_layout(reader)
        plain = {name: reader.info(name) for name, entry in held.items() if entry is None}
        recipe = of_each_expert(parsed, plain)
        check_patterns(plain, recipe)
        match = FirstMatch(recipe)
        if missing := [name for name in hessians if name not in held]:
            raise WrongValue(f"hessians has {unknown(missing[0], held)}")
        changes: dict[str, Change] = {}
        entries: dict[str, Any] = {}
        roles, infos = roles_of(reader), {n: (i.dtype, i.shape) for n, i in plain.items()}
        selected = select(infos, include, exclude, plain=roles.plain)
        kept = {} if target is None else kept_plain(target.keeps, selected, include, recipe)
        for name in selected:
            fmt, info = match(name), plain[name]
            if fmt is None or name in kept or name not in hessians or 0 in info.shape:
                continue
            axes = layer_of(name, info.shape, axes_of.get(name, roles.axes.get(name)))
            entry = entries[name] = entry_of(fmt, info.shape, axes, info.dtype)
            change = Change(str(fmt), entry, Rounding(name, hessians, fmt, entry, how, parts, found))
            changes[name] = roundings[name] = change
            if target is not None and target.turns and axes == roles.axes.get(name) and is_turned(axes, info.shape):
                changes[name] = turned_after(change)
                entries[name] = changes[name].stored
        check_places(layout, entries)
        if not is_serial(work.workers):  # each layer is a task; the code below finds their results
            layers = [Layer(absolute(reader.path), name, roundings[name].make) for name in changes]
            rounded = in_workers(work.workers, round_one, layers, "ptq")
            for done, (i, _) in enumerate(rounded):
                if progress:
                    call_back(progress, done, len(layers), layers[i].name)
        return changes

    def tidy() -> None:
        for name in roundings.keys() - found.keys():  # in files that an earlier run finished
            with reader_of(in_path) as reader:
                roundings[name].make(reader.tensor(name))
        parts.remove()

    writing = replace(work, workers=None, progress=progress, finished=tidy)  # it reads the results of the layers
    summary = rewrite_in(layout, in_path, out_path, choose, writing)
    for row in summary["tensors"]:
        row |= found.get(row["name"], {})
    return summary


class Known(Mapping[str, Any]):
    """Hessians, or their paths, with a known identity of their data."""

    def identity(self, name: str) -> Any:
        """Return the identity of a Hessian without computing it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Layer:
    """One tensor of a checkpoint and its rounding: work that any process can do."""

    path: str
    name: str
    rounding: Any


@counts_subnormals
def round_one(layer: Layer) -> None:
    """Round one layer, and store the result among the parts."""
    with reader_of(layer.path) as reader, about(reader, layer.name):
        layer.rounding.part(reader.tensor(layer.name))


def layer_of(name: str, shape: tuple[int, ...], axes: Any) -> tuple[int, ...]:
    """Return the reduction axes of a layer's weight: the given axes, or the usual ones."""
    found = layer_axis(len(shape), axes, f"quantize_checkpoint: {shown(name)}")
    return tuple(axis % len(shape) for axis in (found if isinstance(found, tuple) else (found,)))


@dataclass(eq=False, repr=False)
class Rounding:
    """Rounds a tensor for its Hessian, which is read or computed on demand, or finds the result of an earlier run."""

    name: str
    hessians: Mapping[str, Any]
    format: Format
    entry: Entry
    how: Options
    parts: Parts
    found: dict[str, dict[str, float]] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return its identity, by which files of an earlier run are reused."""
        return f"Rounding({(self.name, carried(self.format), self.how, self._identity)!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Return the data that another process needs, with only this tensor's Hessian."""
        hessians = self.hessians
        if not isinstance(hessians, Known):
            given = hessians[self.name]
            hessians = {self.name: given if isinstance(given, Hessian) else os.path.abspath(os.fsdecode(given))}
        return {**self.__dict__, "hessians": hessians, "found": {}}

    @functools.cached_property
    def _identity(self) -> Any:
        """Return the identity of the Hessian without computing it."""
        if isinstance(self.hessians, Known):
            return self.hessians.identity(self.name)
        given = self.hessians[self.name]
        return _digest_of(given) if isinstance(given, Hessian) else state_of(os.fsdecode(given))

    def __call__(self, w: Array) -> Any:
        _, q, report = self.part(w)
        self.found[self.name] = dict(zip(REPORT, map(float, report), strict=True))
        self.found[self.name] |= {key: int(self.found[self.name][key]) for key in ("tokens", "dead")}
        return q

    def part(self, w: Array) -> tuple[str, QuantizedArray, Array]:
        """Return the file of the rounded tensor, the tensor and the report."""
        q: Any
        report: Any
        given, fmt, axes = self.hessians[self.name], self.format, self.entry.axis
        h = given if isinstance(given, Hessian) else Hessian.load(given)
        path = self.parts.path(_key(self.name, w, h, fmt, axes, self.how))
        if self.parts.has(path):
            held = load(path)
            held = held if isinstance(held, dict) else {}
            report, q = held.get("report"), held.get("array")
            if not _is_part(report, q, self.entry):
                raise WrongValue(f"{printable(path)}: is not what an earlier run has left: delete it")
        else:
            done = round_layer(as_array(w, f"{self.how.method}: w"), h, fmt, axes, self.how)
            q, report = done.q, np.array([done.report[key] for key in REPORT], np.float64)
            self.parts.write(path, lambda place: save(place, {"array": q, "report": report}))
        return path, q, report


def _is_part(report: Any, q: Any, entry: Entry) -> bool:
    """Tell whether the content of a file is a result for such a tensor."""
    if not isinstance(q, (QuantizedArray, RotatedArray)) or not isinstance(report, np.ndarray):
        return False
    alike = (q.format, q.shape, q.axis) == (entry.format, entry.shape, entry.axis)
    return alike and report.shape == (len(REPORT),) and report.dtype == np.float64


def _key(name: str, w: Array, h: Hessian, fmt: Format, axes: tuple[int, ...], how: Options) -> str:
    """Return a key of all data that determine a result."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((__version__, name, carried(fmt), axes, w.shape, w.dtype.name, how)).encode())
    cross = () if h.cross is None else (h.cross,)
    for array in (w, h.full(), *cross):
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _digest_of(h: Hessian) -> str:
    digest = hashlib.blake2b(repr((h.k, h.groups, h.tokens)).encode(), digest_size=16)
    for array in (h.full(), *(() if h.cross is None else (h.cross,))):
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
