"""How `heterocompute.study` works.

Every selected tensor is quantized with every format (streamed: one tensor of a file in memory at a time), its error
and the time of its product with one row are measured; then the caller's `evaluate` judges the whole set, format by
format. Nothing here knows what the weights belong to.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import ops
from .arrays import QuantizedArray, as_array, component_layout
from .formats import Format
from .formats import format as parse_format
from .safetensors_file import Reader
from .safetensors_io import contents, entries, read_array
from .selection import axis_of, check_patterns, first_match, select
from .study_result import Study

PLAIN = "fp32"  # the baseline: the arrays as they came
PLAIN_TEXTS = (PLAIN, "none", "skip")
NETWORK_FORMATS = (
    "int8 int4 int3 int2 int4-g16 int3-g16 vsq4-g16 vsq4-g16-s4 vsq4-g32-s4 vsq4-g64-s8 "
    "vsq3-g16-s4 vsq3-g64-s8 vsq2-g16-s4 vsq2-g32-s4 vsq2-g64-s8 "
    "bf16 fp8_e4m3fn mxfp8_e4m3 mxfp6_e2m3 mxfp4 nvfp4 nf4-g64 cb4 cb3 cb2 log5-2-g32 log4-1-g16"
).split()
NETWORK_ACTIVATIONS = ("int8",)
TENSOR_FORMATS = "int8 int4 int4-g32-f16 vsq4-g16-s4 vsq4-g64-s8 vsq3-g16-s4 mxfp8_e4m3 mxfp4 nvfp4 nf4-g64".split()
HISTOGRAM_BINS = 81
HISTOGRAM_VALUES = 1 << 17  # enough for a picture, whatever the tensor's size
RESERVED = ("format", "activations", "emulate", "bits", "bytes", "sqnr_db", "seconds")
MODELLED = ("device_us", "device_uj", "mac_pj", "mac_um2")  # columns that `device` adds

Entry = str | Format | Mapping[str, str | Format]
Progress = Callable[[int, int, str], None]


def run(
    weights: Any,
    formats: Any,
    evaluate: Callable[..., Any] | None,
    include: str | Iterable[str] | None,
    exclude: str | Iterable[str] | None,
    activations: Any,
    axis: Any,
    progress: Progress | None,
    device: Any = None,
    emulate: Any = None,
) -> Study:
    """Do what `heterocompute.study` describes."""
    network = _network_of(weights) if evaluate is None else None
    if network is not None:
        weights, evaluate = network
        if activations is None and (formats is None or emulate is not None):
            activations = NETWORK_ACTIVATIONS
    elif not isinstance(weights, Mapping) and isinstance(getattr(weights, "weights", None), Mapping):
        weights = weights.weights
    kinds = _activations(activations)
    emulations = _emulations(emulate, evaluate)
    asked = {"activations": activations, "emulate": emulate}
    call = _evaluator(evaluate, [key for key, value in asked.items() if value is not None])
    if formats is None:
        formats = TENSOR_FORMATS if evaluate is None else NETWORK_FORMATS
    entries = _entries(formats)
    modelled = _modelled(device)

    with ExitStack() as stack:
        source = _Source(weights, stack)
        names = select(source.infos, include, exclude)
        if not names:
            raise ValueError("study: no float tensor with two or more dimensions among the weights")
        for entry in entries:
            check_patterns(names, entry.formats)
        axes = {name: axis_of(name, len(source.infos[name][1]), axis) for name in names}
        if isinstance(axis, Mapping):
            check_patterns(source.infos, axis)
        lengths = {name: math.prod(source.infos[name][1][a] for a in axes[name]) for name in names}
        plan = _plan(entries, kinds, emulations, lengths)
        wanted = {name: list(dict.fromkeys(entry.of(name) for entry in entries)) for name in names}
        total = sum(map(len, wanted.values())) + (sum(map(len, plan)) if call else 0)
        step = _Steps(total, progress)

        measured: dict[tuple[str, Format | None], _Measured] = {}
        pictures = []
        for name in names:
            w = source.load(name)
            with _named(name):
                subject = _Subject(name, w, axes[name])
                for fmt in wanted[name]:
                    step(f"{name}  {_text(fmt)}")
                    measured[name, fmt] = subject.measure(fmt, kinds)
                pictures.append(subject.picture())
            del w, subject  # before the next tensor is read

        rows = []
        everything = {name: source.load(name, original=True) for name in source.names} if call else {}
        for entry, kinds_of_entry in zip(entries, plan, strict=True):
            chosen = [measured[name, entry.of(name)] for name in names]
            replaced = dict(everything)
            if call:
                for name in names:
                    fmt = entry.of(name)
                    if fmt is not None:
                        replaced[name] = ops.quantize(source.load(name), fmt, axis=axes[name])
            for i, kind, text in kinds_of_entry:
                names_of_row = {"activations": None if kind is None else str(kind), "emulate": text}
                row = {"format": entry.text, **names_of_row, **_pooled(chosen, i)}
                if text is not None:
                    row["seconds"] = None  # nobody has timed that hardware
                row.update(modelled([one.matrix for one in chosen], kind))
                if call:
                    given = [f"  {key} {value}" for key, value in names_of_row.items() if value is not None]
                    step(f"evaluate  {entry.text}" + "".join(given))
                    row.update(call(dict(replaced), {"activations": kind, "emulate": text}))
                rows.append(row)
        step.finish()

    added = [key for key in MODELLED if rows and key in rows[0]]
    metrics = list(dict.fromkeys(key for row in rows for key in row if key not in (*RESERVED, *MODELLED)))
    rows = [
        {
            **{key: row[key] for key in RESERVED[:-1]},
            **{key: row.get(key) for key in metrics},
            "seconds": row["seconds"],
            **{key: row[key] for key in added},
        }
        for row in rows
    ]
    layers = [measured[name, fmt].row for name in names for fmt in wanted[name]]
    return Study(rows, layers, metrics, pictures)


class _Source:
    """Names, dtypes and shapes of the weights, and one tensor at a time."""

    def __init__(self, weights: Any, stack: ExitStack) -> None:
        self.infos: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._reader: Reader | None = None
        self._arrays: Mapping[str, Any] = {}
        if isinstance(weights, (str, os.PathLike)):
            self._reader = stack.enter_context(Reader(weights))
            self._packed, _ = entries(self._reader)
            self.names = []
            for name, entry in contents(self._reader, self._packed):
                self.names.append(name)
                if entry is None:  # what is quantized already stays beside the rest
                    info = self._reader.info(name)
                    self.infos[name] = (info.dtype, tuple(info.shape))
            return
        self._arrays = weights if isinstance(weights, Mapping) else {"array": weights}
        self.names = list(self._arrays)
        for name, value in self._arrays.items():
            if not isinstance(name, str):
                raise TypeError(f"study: the names of weights are str, got {name!r} of type {type(name).__name__}")
            try:
                array = as_array(value, f"weights[{name!r}]")
            except TypeError:
                if self._arrays is weights:
                    continue  # what cannot be quantized stays beside the rest
                raise
            self.infos[name] = (array.dtype.name, array.shape)

    def load(self, name: str, original: bool = False) -> Any:
        if self._reader is not None:
            entry = self._packed.get(name)
            return self._reader.tensor(name) if entry is None else read_array(self._reader, name, entry)
        return self._arrays[name] if original else as_array(self._arrays[name], name)


@dataclass(frozen=True)
class _Measured:
    """One tensor in one format; `seconds` has one value for each kind of activations."""

    row: dict[str, Any]
    size: int
    signal: float
    noise: float
    seconds: list[float | None]
    matrix: tuple[int, int, int, Format | None]  # rows, reduction, stored bytes, format


class _Subject:
    """One tensor as the matrix (rows, reduction) of its product."""

    def __init__(self, name: str, w: NDArray[Any], axis: tuple[int, ...]) -> None:
        self.name, self.w, self.axis = name, w, axis
        kept = [i for i in range(w.ndim) if i not in axis]
        self.rows = math.prod(w.shape[i] for i in kept)
        self.columns = math.prod(w.shape[i] for i in axis)
        matrix = w.transpose(*kept, *axis).reshape(self.rows, self.columns)
        self.signal = _sum_of_squares(matrix)
        self.matrix: NDArray[np.float32] = np.ascontiguousarray(matrix, dtype=np.float32)
        self.x = np.random.default_rng(0).standard_normal((1, self.columns), dtype=np.float32)
        self.shown = 0
        if w.size:  # the row of middling size stands for all in pictures
            largest = np.maximum(self.matrix.max(axis=1), -self.matrix.min(axis=1))
            self.shown = int(np.argsort(largest, kind="stable")[self.rows // 2])
        self.by_row = kept == [0]
        self.levels: dict[str, list[float]] = {}

    def measure(self, fmt: Format | None, kinds: list[Format | None]) -> _Measured:
        w = self.w
        operand: Any = self.matrix
        stored, sqnr_db, noise = w.nbytes, None, 0.0
        if fmt is not None:
            q = ops.quantize(w, fmt, axis=self.axis)
            error = ops.error(w, q)
            stored, sqnr_db, noise = q.nbytes, _finite(error.sqnr_db), error.mse * w.size
            operand = self._as_matrix(q)
            if w.size:
                source, shown = q if self.by_row else operand, slice(self.shown, self.shown + 1)
                shared = "mean" in source.components  # rows that have no meaning alone
                row = source.dequantize()[shown] if shared else source[shown].dequantize()
                self.levels[str(fmt)] = np.unique(row).tolist()
        seconds = [self._seconds(operand, kind) for kind in kinds]
        row = {
            "name": self.name,
            "shape": list(w.shape),
            "format": _text(fmt),
            "bits": _bits(stored, w.size),
            "bytes": stored,
            "sqnr_db": sqnr_db,
            "seconds": seconds[0],
        }
        return _Measured(row, w.size, self.signal, noise, seconds, (self.rows, self.columns, stored, fmt))

    def _as_matrix(self, q: QuantizedArray) -> QuantizedArray:
        """The same codes as a matrix; quantized again where a group would cross from one window place to the next."""
        shape = (self.rows, self.columns)
        if component_layout(q.format, shape, (1,)) == component_layout(q.format, q.shape, q.axis):
            return QuantizedArray(q.components, q.format, shape, (1,))
        return ops.quantize(self.matrix, q.format, axis=1)

    def _seconds(self, operand: Any, kind: Format | None) -> float | None:
        if not self.w.size:
            return None
        ops.linear(self.x, operand, activations=kind)
        times: list[float] = []
        while len(times) < 3 or (sum(times) < 1e-3 and len(times) < 15):
            begin = time.perf_counter()
            ops.linear(self.x, operand, activations=kind)
            times.append(time.perf_counter() - begin)
        return sorted(times)[len(times) // 2]

    def picture(self) -> dict[str, Any]:
        """Histogram of the values, and the levels that one row takes in each format."""
        values = self.matrix.reshape(-1)
        values = values[:: max(1, values.size // HISTOGRAM_VALUES)]
        reach = 0.0
        if values.size:  # wide enough for the row and nearly all values, not for a far outlier
            row = self.matrix[self.shown]
            reach = max(float(np.abs(row).max(initial=0.0)) * 1.05, float(np.percentile(np.abs(values), 99.5)))
        reach = reach or 1.0
        counts, _ = np.histogram(values, bins=HISTOGRAM_BINS, range=(-reach, reach))
        return {
            "name": self.name,
            "range": reach,
            "counts": counts.tolist(),
            "outside": 1 - int(counts.sum()) / values.size if values.size else 0.0,
            "row": self.shown,
            "levels": self.levels,
        }


@dataclass(frozen=True)
class _Entry:
    """One line of `formats`: a text, and the format of each name pattern."""

    text: str
    formats: dict[str, Format | None]

    def of(self, name: str) -> Format | None:
        return first_match(name, self.formats, None)


def _entries(formats: Entry | Sequence[Entry]) -> list[_Entry]:
    if isinstance(formats, (str, Format, Mapping)):
        formats = [formats]
    entries = [_Entry(PLAIN, {})]
    for item in formats:
        if isinstance(item, Mapping):
            table = {pattern: _format(value) for pattern, value in item.items()}
            text = " ".join(f"{pattern}={_text(fmt)}" for pattern, fmt in table.items())
            entries.append(_Entry(text or PLAIN, table))
        else:
            fmt = _format(item)
            entries.append(_Entry(_text(fmt), {} if fmt is None else {"*": fmt}))
    unique = {entry.text: entry for entry in reversed(entries)}
    return [entry for entry in entries if unique[entry.text] is entry]


def _format(item: Any) -> Format | None:
    return None if item is None or item in PLAIN_TEXTS else parse_format(item)


def _text(fmt: Format | None) -> str:
    return PLAIN if fmt is None else str(fmt)


def _activations(activations: Any) -> list[Format | None]:
    if activations is None:
        return [None]
    items = [activations] if isinstance(activations, (str, Format)) else list(activations)
    return list(dict.fromkeys([None, *map(_format, items)]))


def _emulations(emulate: Any, evaluate: Any) -> list[str | None]:
    if emulate is None:
        return [None]
    from .emulate import parse

    texts = [text for text in ([emulate] if isinstance(emulate, str) else emulate) if text not in (None, "none")]
    for text in texts:
        parse(text)
    if evaluate is None:
        raise ValueError("study: emulate needs evaluate, or a network: there is nothing else that an accumulator costs")
    return list(dict.fromkeys([None, *texts]))


def _plan(
    entries: list[_Entry], kinds: list[Format | None], emulations: list[str | None], lengths: dict[str, int]
) -> list[list[tuple[int, Format | None, str | None]]]:
    """Return for each entry its rows: the place of the activations, they, the emulation where it takes all tensors."""
    from .emulate import accepts

    @functools.cache
    def fits(text: str, kind: Format | None, fmt: Format | None, length: int) -> bool:
        return accepts(text, kind, fmt, length)

    plan = [
        [
            (i, kind, text)
            for i, kind in enumerate(kinds)
            for text in emulations
            if text is None or all(fits(text, kind, entry.of(name), length) for name, length in lengths.items())
        ]
        for entry in entries
    ]
    found = {text for rows in plan for _, _, text in rows}
    for text in emulations:
        if text not in found:
            raise ValueError(f"study: emulate {text!r} multiplies none of these formats and activations")
    return plan


def _network_of(weights: Any) -> tuple[Mapping[str, Any], Callable[..., Any]] | None:
    found, evaluate = getattr(weights, "weights", None), getattr(weights, "evaluate", None)
    if isinstance(weights, Mapping) or not isinstance(found, Mapping) or not callable(evaluate):
        return None
    return found, evaluate


def _evaluator(
    evaluate: Callable[..., Any] | None, keys: list[str]
) -> Callable[[dict[str, Any], dict[str, Any]], dict[str, float | None]] | None:
    """Wrap the caller's function: check its keywords now, and its answers later."""
    if evaluate is None:
        return None
    if not callable(evaluate):
        raise TypeError(f"study: evaluate is of type {type(evaluate).__name__}, wanted a function of the weights")
    try:
        signature = inspect.signature(evaluate)
    except ValueError:  # some functions written in C have none
        signature = None
    if signature is not None:
        try:
            signature.bind({}, **dict.fromkeys(keys))
        except TypeError as error:
            wanted = f"evaluate({', '.join(['weights', *(f'{key}=...' for key in keys)])})"
            raise TypeError(f"study: evaluate cannot be called as {wanted}: {error}") from None

    def call(weights: dict[str, Any], options: dict[str, Any]) -> dict[str, float | None]:
        answer = evaluate(weights, **{key: options[key] for key in keys})
        found = answer if isinstance(answer, Mapping) else {"metric": answer}
        numbers: dict[str, float | None] = {}
        for key, value in found.items():
            if not isinstance(key, str) or key in (*RESERVED, *MODELLED):
                taken = ", ".join((*RESERVED, *MODELLED))
                raise ValueError(f"study: evaluate named a number {key!r}; wanted a str other than {taken}")
            try:
                numbers[key] = _finite(float(value))
            except (TypeError, ValueError):
                kind_of = type(value).__name__
                raise TypeError(f"study: evaluate returned a {kind_of} for {key!r}, wanted a number") from None
        return numbers

    return call


def _modelled(device: Any) -> Callable[[list[Any], Format | None], dict[str, Any]]:
    """Return what computes the columns of a device; its name is checked before any work."""
    if device is None:
        return lambda matrices, kind: {}
    from . import hardware
    from .hardware.pairing import format_columns

    chip = device if device == "mac" else hardware.device(device)
    if chip != "mac":
        chip.need("bandwidth")
    return lambda matrices, kind: format_columns(chip, matrices, kind)


class _Steps:
    def __init__(self, total: int, progress: Progress | None) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def __call__(self, text: str) -> None:
        if self.progress is not None:
            self.progress(self.done, self.total, text)
        self.done += 1

    def finish(self) -> None:
        if self.progress is not None:
            self.progress(self.total, self.total, "done")


class _named:
    """Put the tensor's name before the message of an error."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (ValueError, TypeError)):
            raise (TypeError if isinstance(error, TypeError) else ValueError)(
                f"tensor {self.name!r}: {error}"
            ) from error


def _pooled(chosen: list[_Measured], i: int) -> dict[str, Any]:
    stored = sum(one.row["bytes"] for one in chosen)
    signal, noise = math.fsum(one.signal for one in chosen), math.fsum(one.noise for one in chosen)
    times = [one.seconds[i] for one in chosen]
    known = [seconds for seconds in times if seconds is not None]
    return {
        "bits": _bits(stored, sum(one.size for one in chosen)),
        "bytes": stored,
        "sqnr_db": _finite(10 * math.log10(signal / noise)) if signal and noise else None,
        "seconds": math.fsum(known) if known else None,
    }


def _sum_of_squares(matrix: NDArray[Any]) -> float:
    block = max(1, (1 << 20) // max(1, matrix.shape[1]))
    parts = (matrix[i : i + block].astype(np.float64) for i in range(0, len(matrix), block))
    return math.fsum(float(np.square(part, out=part).sum()) for part in parts)


def _bits(stored: int, size: int) -> float | None:
    return 8 * stored / size if size else None


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
