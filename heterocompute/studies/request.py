"""The request of a study: formats and methods, activations, emulations and device, checked before any work."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..arrays.filters import layout_axes
from ..base.cached import cached
from ..base.errors import WrongType, WrongValue, shown
from ..base.progress import Progress
from ..base.texts import quoted
from ..base.values import as_list, check_flag
from ..base.workers import Workers
from ..emulate import accepts, parse
from ..files.selection import FirstMatch, escaped
from ..formats import Format, format as parse_format, is_function, is_rotated
from ..products.layers.turned import cache_format
from ..ptq.methods import CALIBRATED, METHODS, takes
from ..report.study import labelled

PLAIN = "fp32"  # the baseline: unchanged arrays
TIMED = 100_000  # values of all tensors from which their times tell formats apart
PLAIN_TEXTS = (PLAIN, "none", "skip")
FormatOrMix = str | Format | Mapping[str, str | Format]


@dataclass(frozen=True)
class Request:
    """The arguments of `heterocompute.study`, as they were given."""

    weights: Any
    formats: Any = None
    evaluate: Callable[..., Any] | None = None
    include: Any = None
    exclude: Any = None
    activations: Any = None
    axis: Any = None
    progress: Progress | bool | None = None
    device: Any = None
    emulate: Any = None
    retrain: Any = None
    seeds: Any = 1
    methods: Any = None
    hessians: Any = None
    per_layer: Any = False
    text: Any = None
    kv_cache: Any = None
    workers: Workers = None
    keep: Any = None  # path of kept results
    timing: Any = None
    machine: Any = None
    network: Any = None  # layers for the machine
    layout: Any = None
    study: str = "study"  # the name of the function in errors

    def entries(self, formats: Sequence[str], methods: list[str | None]) -> list[Entry]:
        """Return the lines of the study: `formats` if none are given, each with each method that supports it."""
        return by_methods(entries_of(formats if self.formats is None else self.formats), methods)


class RunOptions(NamedTuple):
    """A format, and the method that rounds a tensor to it; None: unchanged, or rounded plainly."""

    fmt: Format | None
    method: str | None

    @property
    def slow(self) -> bool:
        return self.method in ("search", *CALIBRATED)

    @property
    def text(self) -> str:
        return text_of(self.fmt) + ("" if self.method is None else f"  {self.method}")

    @property
    def label(self) -> str:
        """The name in pictures."""
        return labelled(text_of(self.fmt), self.method)


@dataclass(frozen=True)
class Entry:
    """One line of `formats`: a text, and the format of each name pattern."""

    text: str
    formats: dict[str, Format | None]
    method: str | None = None

    @cached
    def _first(self) -> FirstMatch[Format | None]:
        return FirstMatch(self.formats)

    def of(self, name: str) -> RunOptions:
        fmt = self._first(name)
        return RunOptions(fmt, None if fmt is None else self.method)


def is_timed(timing: object, values: int, study: str) -> bool:
    """Tell whether matmuls are timed: as asked for, otherwise where they are long enough to tell formats apart."""
    return values >= TIMED if timing is None else check_flag(study, "timing", timing)


def asked_axes(request: Request, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Return the axes that the arguments `axis` and `layout` ask for."""
    if request.layout is None:
        return request.axis
    axis_of = {name: layout_axes(request.study, request.layout, len(shape)) for name, shape in shapes.items() if shape}
    if request.axis is None or isinstance(request.axis, Mapping):
        own = dict(request.axis or {})
        return {**own, **{key: axis for name, axis in axis_of.items() if (key := escaped(name)) not in own}}
    raise WrongValue(f"{request.study}: layout is given with axis {shown(request.axis)}, expected one of them")


def entries_of(formats: FormatOrMix | Sequence[FormatOrMix]) -> list[Entry]:
    if isinstance(formats, (str, Format, Mapping)):
        formats = [formats]
    entries = [Entry(PLAIN, {})]
    for item in as_list(formats, "study: formats", "formats"):
        if isinstance(item, Mapping):
            table = {pattern: _format(value) for pattern, value in item.items()}
            text = " ".join(f"{pattern}={text_of(fmt)}" for pattern, fmt in table.items())
            entries.append(Entry(text or PLAIN, table))
        else:
            fmt = _format(item)
            entries.append(Entry(text_of(fmt), {} if fmt is None else {"*": fmt}))
    unique = {entry.text: entry for entry in reversed(entries)}
    return [entry for entry in entries if unique[entry.text] is entry]


def methods_of(methods: object, hessians: object) -> list[str | None]:
    if methods is None:
        return [None]
    given = [methods] if isinstance(methods, str) else as_list(methods, "study: methods", f"some of {METHODS}")
    for one in given:
        if not isinstance(one, str) or one not in METHODS:
            raise WrongValue(f"study: methods has {shown(one)}, expected some of {', '.join(METHODS)}")
    if not given:
        raise WrongValue(f"study: methods is empty, expected some of {', '.join(METHODS)}")
    needy = [one for one in given if one in CALIBRATED]
    if needy and hessians is None:
        raise WrongValue(
            f"study: methods has {shown(needy[0])}, which needs hessians=, the inputs of the layers: "
            "heterocompute.ptq.calibrate gathers them (on the command line, --inputs)"
        )
    return list(dict.fromkeys(given))


def by_methods(entries: list[Entry], methods: list[str | None]) -> list[Entry]:
    """Return each entry with each method that supports all of its formats; the baseline has no method."""
    found = []
    for entry in entries:
        formats = {fmt for fmt in entry.formats.values() if fmt is not None}
        if not formats:
            found.append(entry)
            continue
        found += [
            replace(entry, method=method)
            for method in methods
            if method is None or all(takes(method, fmt) for fmt in formats)
        ]
    for method in methods:
        if method is not None and not any(entry.method == method for entry in found):
            raise WrongValue(f"study: the method {shown(method)} rounds to none of these formats")
    return found


def hessians_of(hessians: object, names: list[str], needed: bool) -> dict[str, Any]:
    """Return the Hessian of each studied tensor that has one; if they are needed, all must have one."""
    if hessians is None:
        return {}
    if not isinstance(hessians, Mapping):
        raise WrongType(f"study: hessians is {shown(hessians)}, expected a mapping of names, as of ptq.calibrate")
    missing = [name for name in names if name not in hessians]
    if missing and needed:
        more = f" and {len(missing) - 1} more" * (len(missing) > 1)
        raise WrongValue(
            f"study: hessians has none of tensor {quoted(missing[0])}{more}, which 'gptq' and 'qronos' need: "
            "include= and exclude= choose the tensors"
        )
    return {name: hessians[name] for name in names if name in hessians}


def _format(item: Any) -> Format | None:
    return None if item is None or (isinstance(item, str) and item in PLAIN_TEXTS) else parse_format(item)


def text_of(fmt: Format | None) -> str:
    return PLAIN if fmt is None else fmt.label


def caches_of(formats: object) -> list[Format | None]:
    """Return the formats of a KV cache, None (float32) first."""
    found = (
        None if isinstance(one, str) and one in PLAIN_TEXTS else cache_format(one, "study: kv_cache")
        for one in _items(formats, "kv_cache")
    )
    return list(dict.fromkeys([None, *found]))


def _items(formats: object, name: str) -> list[Any]:
    if formats is None or isinstance(formats, (str, Format)):
        return [formats]
    return list(as_list(formats, f"study: {name}", "formats"))


def formats_of(formats: object, name: str) -> list[Format | None]:
    """Return the formats of activations, None (float32) first."""
    found = list(dict.fromkeys([None, *map(_format, _items(formats, name))]))
    for one in found:
        if name == "activations" and (is_function(one) or is_rotated(one)):
            raise one.refusal("study: activations")
    return found


def emulations_of(emulate: object, evaluate: object) -> list[str | None]:
    if emulate is None:
        return [None]
    given = [emulate] if isinstance(emulate, str) else as_list(emulate, "study: emulate", "texts of emulations")
    texts = [text for text in given if not (text is None or (isinstance(text, str) and text == "none"))]
    for text in texts:
        if not isinstance(text, str):
            raise WrongType(f"emulate: {shown(text)} is of type {type(text).__name__}, expected a str")
        parse(text)
    if evaluate is None:
        raise WrongValue(
            "study: emulate needs evaluate, or a network: otherwise the effect of an accumulator is not measured"
        )
    return list(dict.fromkeys([None, *texts]))


def plan_of(
    entries: list[Entry], kinds: list[Format | None], emulations: list[str | None], lengths: dict[str, int]
) -> list[list[tuple[int, Format | None, str | None]]]:
    """Return for each entry its rows: index of the activations, activations, emulation if it supports all tensors."""

    @functools.cache
    def fits(text: str, kind: Format | None, fmt: Format | None, length: int) -> bool:
        return accepts(text, kind, fmt, length)

    plan = [
        [
            (i, kind, text)
            for i, kind in enumerate(kinds)
            for text in emulations
            if text is None or all(fits(text, kind, entry.of(name).fmt, length) for name, length in lengths.items())
        ]
        for entry in entries
    ]
    found = {text for rows in plan for _, _, text in rows}
    for text in emulations:
        if text not in found:
            raise WrongValue(f"study: emulate {shown(text)} multiplies none of these formats and activations")
    return plan


def chip_asked(device: object) -> Any:
    """Return the device of a study, checked before any work; None or ``"mac"`` unchanged."""
    if device is None:
        return None
    from .. import hardware  # 60 ms

    if not isinstance(device, (str, hardware.Device)):
        raise WrongType(f"study: device is {shown(device)}, expected the name of a device, a Device or 'mac'")
    chip = device if isinstance(device, str) and device == "mac" else hardware.device(device)
    if not isinstance(chip, str):
        chip.need("bandwidth")
    return chip


def modelled_by(chip: Any) -> Callable[[list[Any], Format | None], dict[str, Any]]:
    """Return a function that computes the columns of a device, as `chip_asked` returns it."""
    if chip is None:
        return lambda matrices, kind: {}
    from ..hardware.cost.pairing import format_columns  # 60 ms

    return lambda matrices, kind: format_columns(chip, matrices, kind)
