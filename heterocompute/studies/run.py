"""How `heterocompute.study` works.

Every selected tensor is quantized with every format (streamed: one tensor of a file in memory at a time), its error
and the time of its product with one row (products/clock.py) are measured; then the caller's `evaluate` judges the set,
format by format. Nothing here knows what the weights belong to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.components import component_layout
from ..arrays.dense import as_single, refuse_infinite
from ..arrays.quantized import QuantizedArray
from ..base.float_env import counts_subnormals
from ..base.modules import is_module
from ..base.progress import Progress, Steps
from ..base.values import as_int, check_flag
from ..base.workers import Workers, checked_workers, in_workers, is_alone
from ..files.selection import axis_of, check_patterns, select
from ..formats import Format
from ..products.clock import Clock
from ..products.error import error
from ..products.quantize import quantize
from ..ptq.error import error as output_error
from ..ptq.methods import by_method
from ..report.study import labelled
from .alone import count_alone, judge_alone
from .asked import (
    Way,
    activations_of,
    by_methods,
    chip_asked,
    emulations_of,
    entries_of,
    hessians_of,
    methods_of,
    modelled_by,
    plan_of,
    text_of,
)
from .callers import MODELLED, RESERVED, evaluator, finite, noted, retrainer, seeded, train_again
from .result import Study
from .short import notes_on
from .source import Source, loaded, module_of, named, network_of

NETWORK_FORMATS = (
    "int8 int4 int3 int2 int4-g16 int3-g16 vsq4-g16 vsq4-g16-s4 vsq4-g32-s4 vsq4-g64-s8 "
    "vsq3-g16-s4 vsq3-g64-s8 vsq2-g16-s4 vsq2-g32-s4 vsq2-g64-s8 "
    "bf16 fp8_e4m3fn mxfp8_e4m3 mxfp6_e2m3 mxfp4 nvfp4 nf4-g64 cb4 cb3 cb2 log5-2-g32 log4-1-g16 "
    "int8+2:4 vsq4-g16-s4+2:4 int8+1:4"
).split()
NETWORK_RETRAINED = "cb3 cb2 int8+2:4 vsq4-g16-s4+2:4 int8+1:4".split()  # rows that a network trains by default
NETWORK_ACTIVATIONS = ("int8",)
TENSOR_FORMATS = "int8 int4 int4-g32-f16 vsq4-g16-s4 vsq4-g64-s8 vsq3-g16-s4 mxfp8_e4m3 mxfp4 nvfp4 nf4-g64".split()
HISTOGRAM_BINS = 81
HISTOGRAM_VALUES = 1 << 17  # enough for a picture, whatever the tensor's size


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
    retrain: Any = None,
    seeds: Any = 1,
    methods: Any = None,
    hessians: Any = None,
    per_layer: Any = False,
    workers: Workers = None,
) -> Study:
    """Do what `heterocompute.study` describes."""
    who = checked_workers(workers, "study")
    if is_module(weights):
        weights, evaluate = module_of(weights, evaluate, include, exclude, axis, emulate, retrain)
        include = exclude = None
    network = network_of(weights)
    weights = network.weights
    to_retrain: list[str] | None = None  # None: each that loses something
    if evaluate is None and network.evaluate is not None:
        evaluate = network.evaluate
        if activations is None and (formats is None or emulate is not None):
            activations = NETWORK_ACTIVATIONS
        if retrain is None and formats is None and emulate is None and network.retrain is not None:
            retrain, to_retrain = True, NETWORK_RETRAINED
    train = retrainer(retrain, network.retrain, "study")
    if train is not None and evaluate is None:
        raise ValueError(
            "study: retrain needs evaluate, or a network: otherwise the effect of training is not measured"
        )
    trainings = seeded(train, as_int(seeds, "study: seeds", 1, 10_000), "study")
    asked = {"activations": activations, "emulate": emulate}
    call = evaluator(evaluate, [key for key, value in asked.items() if value is not None])
    kinds = activations_of(activations)
    emulations = emulations_of(emulate, evaluate)
    if formats is None:
        formats = TENSOR_FORMATS if evaluate is None else NETWORK_FORMATS
    if check_flag("study", "per_layer", per_layer) and call is None:
        raise ValueError("study: per_layer needs evaluate, or a network: otherwise the cost of a layer is not measured")
    ways = methods_of(methods, hessians)
    entries = by_methods(entries_of(formats), ways)
    modelled = modelled_by(chip_asked(device))

    with ExitStack() as stack:
        source = Source(weights, stack)
        names = select(source.infos, include, exclude)
        if not names:
            raise ValueError("study: no float tensor with two or more dimensions among the weights")
        for entry in entries:
            check_patterns(names, entry.formats)
        axes = {name: axis_of(name, source.infos[name][1], axis, source.axes.get(name)) for name in names}
        if isinstance(axis, Mapping):
            check_patterns(source.infos, axis)
        known = hessians_of(hessians, names, "gptq" in ways)
        lengths = {name: math.prod(source.infos[name][1][a] for a in axes[name]) for name in names}
        plan = plan_of(entries, kinds, emulations, lengths)
        wanted = {name: list(dict.fromkeys(entry.of(name) for entry in entries)) for name in names}
        again = [train and entry.formats and (to_retrain is None or entry.text in to_retrain) for entry in entries]
        total = sum(map(len, wanted.values())) + (sum(map(len, plan)) if call else 0)
        total += sum(
            len(trainings) + len(kinds_of_entry) for kinds_of_entry, twice in zip(plan, again, strict=True) if twice
        )
        total += count_alone(entries, names) if per_layer else 0
        step = Steps(total, progress)

        def rounded(name: str, way: Way) -> Any:
            if way.slow:
                return packed[name, way]
            assert way.fmt is not None
            return quantize(source.load(name), way.fmt, axis=axes[name])

        asked_of = partial(_Tensor, kinds=tuple(kinds), keeps=call is not None)
        tensors = [asked_of(name, source.of(name), axes[name], tuple(wanted[name]), known.get(name)) for name in names]
        found: list[Any] = []
        if is_alone(who):
            clock = Clock()
            for tensor in tensors:
                found.append(tensor.measured(source.load(tensor.name), clock, step))
            del clock
        else:
            found = [None] * len(tensors)
            for i, answer in in_workers(who, measured_alone, tensors, "study"):
                found[i] = answer
                for way in tensors[i].ways:
                    step(f"{tensors[i].name}  {way.text}")
        measured: dict[tuple[str, Way], _Measured] = {}
        packed: dict[tuple[str, Way], QuantizedArray] = {}  # what took long to round, and is judged later
        pictures = []
        for name, (of_ways, slow, picture) in zip(names, found, strict=True):
            measured |= {(name, way): one for way, one in of_ways.items()}
            packed |= {(name, way): one for way, one in slow.items()}
            pictures.append(picture)
        del found, tensors

        rows = []
        everything = {name: source.original(name) for name in source.names} if call else {}
        for entry, kinds_of_entry, twice in zip(entries, plan, again, strict=True):
            chosen = [measured[name, entry.of(name)] for name in names]
            replaced = dict(everything)
            if call:
                for name in names:
                    way = entry.of(name)
                    if way.fmt is not None:
                        replaced[name] = rounded(name, way)
            judged = [replaced]
            for retrained in (None, True) if twice else (None,):
                if retrained:
                    judged = []
                    for training in trainings:
                        step(f"retrain  {entry.text}")
                        judged.append(train_again(training, everything, replaced, "study"))
                    noise = [math.fsum(_noise(everything[name], one[name]) for one in judged) for name in names]
                    chosen = [replace(one, noise=lost / len(judged)) for one, lost in zip(chosen, noise, strict=True)]
                for i, kind, text in kinds_of_entry:
                    names_of_row = {
                        "method": entry.method, "activations": None if kind is None else str(kind),
                        "emulate": text, "retrained": retrained,
                    }  # fmt: skip
                    row = {"format": entry.text, **names_of_row, **_pooled(chosen, i)}
                    if text is not None:
                        row["seconds"] = None  # there is no time of that hardware
                    if retrained:
                        row["output_db"] = None  # the inputs are others too
                    row.update(modelled([one.matrix for one in chosen], kind))
                    if call:
                        given = [f"  {key} {value}" for key, value in names_of_row.items() if value is not None]
                        step(f"evaluate  {entry.text}" + "".join(given))
                        options = {"activations": kind, "emulate": text}
                        with noted(entry.text + "".join(given)):
                            row.update(_mean([call(dict(one), options) for one in judged]))
                    rows.append(row)
        alone = judge_alone(entries, names, everything, rounded, call, step) if call and per_layer else []
        step.finish()

    added = [key for key in MODELLED if rows and key in rows[0]]
    metrics = list(dict.fromkeys(key for row in rows for key in row if key not in (*RESERVED, "output_db", *MODELLED)))
    rows = [
        {
            **{key: row[key] for key in RESERVED[:-1]},
            **({} if hessians is None else {"output_db": row["output_db"]}),
            **{key: row.get(key) for key in metrics},
            "seconds": row["seconds"],
            **{key: row[key] for key in added},
        }
        for row in rows
    ]
    layers = [measured[name, way].row for name in names for way in wanted[name]]
    shapes = {name: tuple(source.infos[name][1]) for name in names}
    return Study(rows, layers, metrics, pictures, alone, notes_on(shapes, axes, _formats_of(wanted)))


def _formats_of(wanted: Mapping[str, Iterable[Way]]) -> dict[str, list[Format]]:
    return {name: [way.fmt for way in ways if way.fmt is not None] for name, ways in wanted.items()}


@dataclass(frozen=True)
class _Measured:
    """One tensor in one format; `seconds` has one value for each kind of activations."""

    row: dict[str, Any]
    size: int
    signal: float
    noise: float
    seconds: list[float | None]
    matrix: tuple[int, int, int, Format | None]  # rows, reduction, stored bytes, format
    judged: bool  # there is a Hessian


@dataclass(frozen=True)
class _Tensor:
    """One tensor and what is measured of it: work that any process can do.

    `source`: the array, or the path and the layout of its checkpoint. `keeps`: whether to return what took long to
    round.
    """

    name: str
    source: Any
    axis: tuple[int, ...]
    ways: tuple[Way, ...]
    hessian: Any
    kinds: tuple[Format | None, ...]
    keeps: bool

    def measured(
        self, w: NDArray[Any], clock: Clock | None, step: Callable[[str], None]
    ) -> tuple[dict[Way, _Measured], dict[Way, QuantizedArray], dict[str, Any]]:
        """Return what was measured of each way, what took long to round, and the picture."""
        found, packed = {}, {}
        with named(self.name):
            subject = _Subject(self.name, w, self.axis, clock, self.hessian)
            for way in self.ways:
                step(f"{self.name}  {way.text}")
                found[way], q = subject.measure(way, list(self.kinds))
                if self.keeps and q is not None and way.slow:
                    packed[way] = q
            return found, packed, subject.picture()


@counts_subnormals
def measured_alone(tensor: _Tensor) -> Any:
    """Measure one tensor where others are measured at the same time: without times, which would be theirs too."""
    w = loaded(tensor.source, tensor.name)
    return tensor.measured(w, None, lambda text: None)


class _Subject:
    """One tensor as the matrix (rows, reduction) of its product."""

    @counts_subnormals
    def __init__(self, name: str, w: NDArray[Any], axis: tuple[int, ...], clock: Clock | None, h: Any = None) -> None:
        self.name, self.w, self.axis, self.clock, self.h = name, w, axis, clock, h
        self.times: dict[Format | None, list[float | None]] = {}
        refuse_infinite(w, "w")
        single = as_single(w, "w")
        others = [i for i in range(w.ndim) if i not in axis]
        self.rows = math.prod(w.shape[i] for i in others)
        self.columns = math.prod(w.shape[i] for i in axis)
        matrix = w.transpose(*others, *axis).reshape(self.rows, self.columns)
        self.signal = _sum_of_squares(matrix)
        self.matrix: NDArray[np.float32] = np.ascontiguousarray(
            single.transpose(*others, *axis).reshape(self.rows, self.columns)
        )
        self.shown = 0
        if w.size:
            self.x = np.random.default_rng(0).standard_normal((1, self.columns), dtype=np.float32)
            # the row of middling size stands for all in pictures
            largest = np.maximum(self.matrix.max(axis=1), -self.matrix.min(axis=1))
            self.shown = int(np.argsort(largest, kind="stable")[self.rows // 2])
        self.by_row = others == [0]
        self.levels: dict[str, list[float]] = {}

    @counts_subnormals
    def measure(self, way: Way, kinds: list[Format | None]) -> tuple[_Measured, QuantizedArray | None]:
        w, fmt, q = self.w, way.fmt, None
        operand: Any = self.matrix
        stored, sqnr_db, noise, output_db = w.nbytes, None, 0.0, None
        if fmt is not None and not w.size:  # however many empty rows there are
            layout = component_layout(fmt, w.shape, self.axis).values()
            stored = sum(dtype.itemsize * math.prod(shape) for dtype, shape in layout)
        elif fmt is not None:
            q = by_method(w, fmt, self.axis, way.method or "rtn", self.h)
            lost = error(w, q)
            stored, sqnr_db, noise = q.nbytes, finite(lost.sqnr_db), lost.mse * w.size
            operand = self._as_matrix(q)
            source, shown = q if self.by_row else operand, slice(self.shown, self.shown + 1)
            shared = not source.format.splits_into_rows
            row = source.dequantize()[shown] if shared else source[shown].dequantize()
            self.levels[labelled(str(fmt), way.method)] = np.unique(row).tolist()
            if self.h is not None:
                output_db = finite(output_error(w, q, self.h, self.axis).output_db)
        if fmt not in self.times:  # the same for every method
            times: list[float | None] = [None] * len(kinds)
            self.times[fmt] = [*self.clock.seconds(self.x, operand, kinds)] if w.size and self.clock else times
        seconds = self.times[fmt]
        row = {
            "name": self.name,
            "shape": list(w.shape),
            "format": text_of(fmt),
            "method": way.method,
            "bits": _bits(stored, w.size),
            "bytes": stored,
            "sqnr_db": sqnr_db,
            **({} if self.h is None else {"output_db": output_db}),
            "seconds": seconds[0],
        }
        matrix = (self.rows, self.columns, stored, fmt)
        return _Measured(row, w.size, self.signal, noise, seconds, matrix, self.h is not None), q

    def _as_matrix(self, q: QuantizedArray) -> QuantizedArray:
        """The same codes as a matrix; quantized again where a group would go on into the next window position."""
        shape = (self.rows, self.columns)
        if component_layout(q.format, shape, (1,)) == component_layout(q.format, q.shape, q.axis):
            return QuantizedArray(q.components, q.format, shape, (1,))
        return quantize(self.matrix, q.format, axis=1)

    @counts_subnormals
    def picture(self) -> dict[str, Any]:
        """Histogram of the values, and the levels that one row takes in each format."""
        values = self.matrix.reshape(-1)
        values = values[:: max(1, values.size // HISTOGRAM_VALUES)].astype(np.float64)  # so that bins have room
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


@counts_subnormals
def _pooled(chosen: list[_Measured], i: int) -> dict[str, Any]:
    stored = sum(one.row["bytes"] for one in chosen)
    signal, noise = math.fsum(one.signal for one in chosen), math.fsum(one.noise for one in chosen)
    times = [one.seconds[i] for one in chosen]
    known = [seconds for seconds in times if seconds is not None]
    outputs = [0.0 if (db := one.row["output_db"]) is None else 10 ** (-db / 10) for one in chosen if one.judged]
    lost = math.fsum(outputs) / max(len(outputs), 1)
    return {
        "bits": _bits(stored, sum(one.size for one in chosen)),
        "bytes": stored,
        "sqnr_db": finite(10 * math.log10(signal / noise)) if signal and noise else None,
        "output_db": -10 * math.log10(lost) if lost else None,
        "seconds": math.fsum(known) if known else None,
    }


def _mean(found: list[dict[str, float | None]]) -> dict[str, float | None]:
    """Return what evaluate returned, of several trainings the mean, the lowest and the highest."""
    if len(found) == 1:
        return found[0]
    row: dict[str, float | None] = {}
    for key in dict.fromkeys(key for one in found for key in one):
        values = [value for one in found if (value := one.get(key)) is not None]
        whole = len(values) == len(found)
        row[key] = math.fsum(values) / len(values) if whole else None
        row[f"{key}_lowest"], row[f"{key}_highest"] = (min(values), max(values)) if whole else (None, None)
    return row


@counts_subnormals
def _noise(w: Any, changed: Any) -> float:
    mse: float = error(w, changed).mse
    return mse * float(changed.size)


def _sum_of_squares(matrix: NDArray[Any]) -> float:
    if not matrix.size:  # of any number of rows
        return 0.0
    block = max(1, (1 << 20) // matrix.shape[1])
    parts = (matrix[i : i + block].astype(np.float64) for i in range(0, len(matrix), block))
    return math.fsum(float(np.square(part, out=part).sum()) for part in parts)


def _bits(stored: int, size: int) -> float | None:
    return 8 * stored / size if size else None
