"""Rounds a checkpoint for its layer inputs, with one layer in memory at a time; an interrupted run can continue.

Results are stored in OUT.parts, see `parts`, until OUT is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ..arrays.components import entry_of
from ..arrays.dense import as_array
from ..base.errors import WrongValue, printable, shown
from ..base.float_env import counts_subnormals
from ..base.json_text import strict_json
from ..base.progress import Progress, reported
from ..base.regular import check_regular
from ..base.tensors import Tensors
from ..base.texts import read_small
from ..base.version import __version__
from ..base.workers import Workers
from ..files.containers.numpy_files import Npz
from ..files.layouts.refusals import refuse_layout
from ..files.layouts.table import check_layout
from ..files.opening import load, reader_of
from ..files.rewrite import check_paths, check_places, refuse_replacing
from ..files.roles import roles_of
from ..files.safetensors import contents, entries, read_array
from ..files.selection import FirstMatch, check_patterns, kept_plain, nothing_to_do, select, unknown
from ..files.shards import located, state_of, write_whole
from ..files.staging import Staging
from ..files.work import Work
from ..formats import Format
from ..formats.defining import carried
from ..products.arguments import as_format
from ..zoo.llm.experts import of_each_expert
from .checkpoint import Known, Rounding, layer_of, round_checkpoint
from .hessian import Hessian
from .layer import check_options
from .network import Rounded
from .options import Options as How
from .parts import Parts
from .recorder import Kept, Maker, Paired, Recorder, plain_sums

Array = np.ndarray[Any, Any]
Formats = Mapping[str, Format | str | None]
RUN_BYTES = 1 << 30  # bytes of the Hessians that one run of the network gathers, unless a single one is larger
MAX_HEARD = 1 << 26
WANTED = "expected an .npz file of arrays (inputs, features) by the names of tensors"


@counts_subnormals
def quantize_streamed(
    in_path: str,
    out_path: str,
    formats: Formats,
    inputs: str | Callable[[Any], Any],
    sequential: bool = False,
    include: str | Iterable[str] = (),
    exclude: str | Iterable[str] = (),
    progress: Progress | bool | None = None,
    resume: bool = True,
    known_as: str = "",
    layout: str | None = None,
    workers: Workers = None,
    check: str = "sample",
    method: str = "gptq",
    shrinkage: float = 0.0,
) -> Rounded:
    """Round every layer of a checkpoint under its inputs.

    Parameters
    ----------
    inputs : path or callable
        An .npz file of arrays (inputs, features) by the names of tensors; or a function of the weights, a mapping that
        reads each of them when it is asked for. It is called once for as many layers as have Hessians of 1 GiB.
    sequential : bool
        One call for each layer, those before it rounded.
    include, exclude, progress
        As of `quantize_checkpoint`.
    resume : bool
        Take what an earlier run has left.
    known_as : str
        What names the function in later runs; by default its module and qualified name, which closures share.
    layout : str, optional
        As of `quantize_checkpoint`; what has no place in it is refused before the function is called.
    workers : int, str or callable, optional
        As of `quantize_checkpoint`: who rounds the layers. This thread alone calls the function.
    check : {"sample", "all", "none"}
        As of `quantize_checkpoint`.
    method : {"gptq", "qronos", "search", "rtn"}
        Rounding method. ``"qronos"`` calls the function twice for each layer, as of `quantize`, and holds the inputs of
        one layer of the unrounded network.
    shrinkage : float
        Share of the mean of the diagonal that is added to the diagonal of the Hessians of gptq and qronos, as 0.1.

    Returns
    -------
    Rounded
        Without weights.

    Notes
    -----
    Memory: the largest tensor, its Hessian and what `gptq` needs of them (H + 2 W + 64 MiB); of an .npz file also the
    largest array of inputs and 64 MiB; of a function what it holds, and Hessians of 1 GiB or the largest.
    """
    check_paths(in_path, out_path, layout)
    if layout is not None:
        check_layout(layout)
    how = check_options({"shrinkage": shrinkage} if shrinkage else {}, "ptq", method)
    if not callable(inputs) and (sequential or method == "qronos"):
        why = "sequential" if sequential else "method 'qronos'"
        raise WrongValue(
            f"ptq: {why} runs the network after each layer, expected module:function, not a file of inputs"
        )
    parts, work = Parts(out_path, resume), Work(workers, resume, check=check)
    if os.path.isdir(out_path):
        Staging(out_path).refuse_taken(resume)
    parsed = {key: None if fmt is None else as_format(fmt, "ptq: format") for key, fmt in formats.items()}
    with reader_of(in_path) as reader:
        with about(reader):
            refuse_layout(reader)
        refuse_replacing(located(reader), out_path)
        held = dict(contents(reader, entries(reader)[0]))
        plain = {name: reader.info(name) for name, entry in held.items() if entry is None}
        parsed = of_each_expert(parsed, plain)
        with about(reader):
            check_patterns(plain, parsed)
        match = FirstMatch(parsed)
        shapes = {name: (info.dtype, info.shape) for name, info in plain.items() if 0 not in info.shape}
        with about(reader):
            roles = roles_of(reader)
            selected = select(shapes, include, exclude, plain=roles.plain)
            if not selected:
                raise WrongValue(nothing_to_do(plain, reader.skipped))
            keeps = () if layout is None else check_layout(layout).keeps
            kept = kept_plain(keeps, selected, include, parsed)
            wanted = {name: fmt for name in selected if (fmt := match(name)) is not None and name not in kept}
            chosen = list(wanted)
            if layout is not None and callable(inputs):
                _refuse_hopeless(layout, reader, wanted)
        hessians: Mapping[str, Any]
        tell = reported(progress, "ptq")
        if callable(inputs):
            gatherer = _Gatherer(reader, held, inputs, parts, known_as)
            gatherer.check_twins(wanted)
            if sequential or method == "qronos":
                axes = gatherer.in_turn(wanted, how, tell)
            else:
                axes = gatherer.in_groups(chosen, tell)
            hessians = _RecordedFiles({name: gatherer.path(name) for name in axes}, axes)
        else:
            hessians = Inputs(inputs, plain, roles.axes)
    summary = round_checkpoint(in_path, out_path, hessians, parsed, include, exclude, tell, parts, work, how, layout)
    rows = [row for row in summary["tensors"] if "after" in row]
    keys = ("name", "format", "tokens", "damping", "dead", "before", "after")
    return Rounded({}, [{key: row[key] for key in keys} for row in rows], [n for n in chosen if n not in hessians])


def _refuse_hopeless(layout: str, reader: Tensors, formats: Mapping[str, Format]) -> None:
    """Raise ValueError if the layout can store none of the weights, each reduced along its usual axes."""
    problem: ValueError | None = None
    roles = roles_of(reader)
    for name, fmt in formats.items():
        info = reader.info(name)
        if len(info.shape) not in (2, 4):
            continue
        axes = layer_of(name, info.shape, roles.axes.get(name))
        try:
            check_places(layout, {name: entry_of(fmt, info.shape, axes, info.dtype)})
            return
        except ValueError as error:
            problem = problem or error
    if problem is not None:
        raise problem


@contextlib.contextmanager
def about(reader: Tensors) -> Iterator[None]:
    """Prefix a message about tensors with the file."""
    try:
        yield
    except ValueError as error:
        raise WrongValue(f"{printable(reader.path)}: {error}") from None


class _RecordedFiles(dict[str, str], Known):
    """The files of Hessians by the names of tensors; `axes`: the reduction axes of each tensor."""

    def __init__(self, paths: Mapping[str, str], axes: dict[str, tuple[int, ...]]) -> None:
        super().__init__(paths)
        self.axes = axes

    def identity(self, name: str) -> Any:
        """Return the key of the file, which is the same if the file is computed again."""
        return os.path.basename(self[name])


class Inputs(Known):
    """The Hessians of the inputs in an .npz file, each computed on access.

    Weights are matrices. `axes` has those that are not reduced along their last axis.
    """

    def __init__(self, path: str, plain: Mapping[str, Any], axes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        check_regular(path)
        if not os.path.exists(path):
            raise WrongValue(f"--inputs {shown(path)}: is not a file, {WANTED}, or module:function")
        self._path, where = os.path.abspath(path), printable(path)  # workers may have other working directories
        with self._opened() as reader:
            for name, what in reader.skipped.items():
                raise WrongValue(f"{where}: array {shown(printable(name))} is {what}, expected floats")
            if not reader.names:
                raise WrongValue(f"{where}: holds nothing, {WANTED}")
            for name in reader.names:
                if name not in plain:
                    raise WrongValue(f"{where}: has {unknown(name, plain)}")
                info, shape = reader.info(name), plain[name].shape
                (along,) = (axes or {}).get(name, (1,)) if len(shape) == 2 else (1,)
                fits = len(shape) == 2 and info.shape[-1:] == shape[along : along + 1] and 0 not in info.shape
                if not info.dtype.startswith(("float", "bfloat", "int", "uint")) or not fits:
                    raise WrongValue(
                        f"{where}: array {shown(printable(name))} is {info.dtype} {info.shape}, expected floats "
                        f"(inputs, features) for a tensor of {shape}"
                    )
            self._names = list(reader.names)

    def identity(self, name: str) -> Any:
        """Return the state of the file."""
        return state_of(self._path), name

    def _opened(self) -> Tensors:
        reader = reader_of(self._path)
        if not isinstance(reader, Npz):
            reader.close()
            raise WrongValue(f"{printable(self._path)}: is not an .npz file, {WANTED}")
        return reader

    def __getitem__(self, name: str) -> Hessian:
        if name not in self._names:
            raise KeyError(name)
        with self._opened() as reader:
            x = reader.tensor(name).astype(np.float32, copy=False)
        h = Hessian(x.shape[-1])
        try:
            h.add(x)
        except ValueError as problem:
            raise WrongValue(f"calibrate: {shown(name)}: {problem}") from None
        return h

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _Gatherer(Mapping[str, Any]):
    """The weights that the function receives, each read on access; some of them record their inputs."""

    def __init__(
        self, reader: Tensors, held: Mapping[str, Any], call: Callable[[Any], Any], parts: Parts, known_as: str
    ) -> None:
        self._reader, self._held, self._call, self._parts = reader, held, call, parts
        files = dict.fromkeys([*located(reader).files.values(), *located(reader).others])
        module = getattr(sys.modules.get(getattr(call, "__module__", "")), "__file__", None)
        name = known_as or f"{getattr(call, '__module__', '')}:{getattr(call, '__qualname__', '')}"
        states = [(os.path.basename(file), *state_of(file)) for file in [*files, *([module] if module else [])]]
        self._key = repr((__version__, name, states))
        first: dict[Any, str] = {}
        self._twins = {name: first.setdefault(reader.same(name), name) for name, entry in held.items() if entry is None}
        self._recorders: dict[str, Recorder] = {}
        self._rounded: dict[str, str] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self._rounded:
            return load(self._rounded[name])["array"]
        entry = self._held[name]
        if entry is not None:
            return read_array(self._reader, name, entry)
        value = self._reader.tensor(name)
        twin = self._recorders.get(self._twins[name])
        return value if twin is None else Recorder.of(as_array(value, f"calibrate: {name}"), name, twin)

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def path(self, name: str) -> str:
        """Return the file of a tensor's Hessian."""
        return self._file("hessian", self._twins[name], "safetensors")

    def _file(self, what: str, names: object, suffix: str) -> str:
        digest = hashlib.blake2b(repr((what, self._key, names)).encode("utf-8", "surrogatepass"), digest_size=16)
        return self._parts.path(digest.hexdigest(), suffix)

    def _gather(self, names: list[str], in_pairs: bool = False) -> dict[str, tuple[int, ...]]:
        """Run the network with recording weights; return the axes of the weights that were multiplied.

        `in_pairs`: run the unrounded network first, and keep the inputs, which the Hessians then hold as well.
        """
        done = self._file("heard", names, "json")
        if (known := self._finished(done, names)) is not None:
            return known
        kept: dict[tuple[int, ...], Kept] = {}

        def pair(axes: tuple[int, ...], k: int, groups: int) -> Paired:
            return Paired(Hessian(k, groups), kept.get(axes, Kept()).parts)

        if in_pairs:
            rounded, self._rounded = self._rounded, {}
            self._record(names, lambda axes, k, groups: kept.setdefault(axes, Kept()))
            self._rounded = rounded
        self._record(names, pair if in_pairs else plain_sums)
        found = {}
        for name, twin in self._recorders.items():
            try:
                recorded = twin.recorded
            except ValueError as problem:
                raise WrongValue(f"calibrate: {shown(name)} {problem}") from None
            if recorded is not None:
                hessian = recorded[1].hessian if in_pairs else recorded[1]
                self._parts.write(self.path(name), hessian.save)
                found[name] = recorded[0]
        self._recorders = {}
        answer = {name: found[self._twins[name]] for name in names if self._twins[name] in found}
        text = json.dumps(answer, ensure_ascii=False)
        self._parts.write(done, lambda place: write_whole(place, text))
        return answer

    def _record(self, names: list[str], make: Maker) -> None:
        """Run the network once, with weights that record their inputs."""
        self._recorders = {self._twins[name]: Recorder.of(np.empty(0), name, None, make) for name in names}
        self._call(self)

    def _finished(self, done: str, names: list[str]) -> dict[str, tuple[int, ...]] | None:
        """Return the Hessians that an earlier run stored, None if it ended before it stored them."""
        if not self._parts.has(done):
            return None
        try:
            found = strict_json(read_small(done, MAX_HEARD))
            answer = {name: tuple(found[name]) for name in names if name in found}
            fine = (
                isinstance(found, dict)
                and len(answer) == len(found)
                and all(
                    type(axis) is int and 0 <= axis < len(self._reader.info(name).shape)
                    for name, axes in answer.items()
                    for axis in axes
                )
            )
        except (KeyError, TypeError, ValueError):
            fine = False
        if not fine:
            raise WrongValue(f"{printable(done)}: is not what an earlier run has left: delete it")
        return answer if all(self._parts.has(self.path(name)) for name in answer) else None

    def in_groups(self, names: list[str], progress: Progress | None) -> dict[str, tuple[int, ...]]:
        """Record the inputs of all weights; each run of the network gathers Hessians of up to `RUN_BYTES` bytes."""
        groups: list[list[str]] = [[]]
        size, roles = 0, roles_of(self._reader)
        for name in names:
            shape = self._reader.info(name).shape
            usual = (1, 2, 3) if len(shape) == 4 else (len(shape) - 1,)
            own = 8 * math.prod(shape[axis] for axis in roles.axes.get(name, usual)) ** 2
            if groups[-1] and size + own > RUN_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(name)
            size += own
        found: dict[str, tuple[int, ...]] = {}
        for i, group in enumerate(groups):
            if progress:
                progress(0, 1, f"run {i + 1} of {len(groups)} of the network")
            found |= self._gather(group)
        return found

    def in_turn(self, formats: Mapping[str, Any], how: How, progress: Progress | None) -> dict[str, tuple[int, ...]]:
        """Record the inputs of one weight after the other, with the previous weights rounded."""
        self._key = repr((self._key, how, [(name, carried(fmt)) for name, fmt in formats.items()]))
        found: dict[str, tuple[int, ...]] = {}
        for i, (name, fmt) in enumerate(formats.items()):
            if progress:
                progress(0, 1, f"run {i + 1} of {len(formats)} of the network: {name}")
            first, in_pairs = self._twins[name], how.method == "qronos" and bool(self._rounded)
            recorded = {name: found[first]} if first in found else self._gather([name], in_pairs)
            if name not in recorded:
                continue
            found |= recorded
            info = self._reader.info(name)
            entry = entry_of(fmt, info.shape, layer_of(name, info.shape, recorded[name]), info.dtype)
            rounding = Rounding(name, {name: self.path(name)}, fmt, entry, how, self._parts)
            self._rounded[name] = rounding.part(self._reader.tensor(name))[0]
        return found

    def check_twins(self, formats: Mapping[str, Any]) -> None:
        """Raise ValueError for two formats of one array."""
        for name, fmt in formats.items():
            if formats.get(self._twins[name], fmt) != fmt:
                raise WrongValue(
                    f"ptq: {shown(self._twins[name])} and {shown(name)} are one array, expected one format for both"
                )
