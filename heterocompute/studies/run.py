"""The loop of `heterocompute.study`: rounding, evaluation and timing per format.

Every selected tensor is quantized with every format (streamed: one tensor of a file in memory at a time), its error
and the time of its product with one row (products/clock.py) are measured; then the caller's `evaluate` judges the set,
format by format. Nothing here knows what the weights belong to.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from ..base.errors import WrongValue
from ..base.float_env import counts_subnormals
from ..base.keeping.digest import digest_of
from ..base.keeping.results import KeptResults
from ..base.modules import is_module
from ..base.progress import Steps
from ..base.values import as_int, check_flag
from ..base.workers import Workers, checked_workers, in_workers, is_serial
from ..emulate.text import accumulator_bits
from ..files.selection import axes_of, check_patterns, select
from ..formats import Format
from ..products.clock import Clock
from ..products.error import error
from ..ptq.methods import CALIBRATED, codes_or_values
from ..report.study import STORED
from .accumulators import KEYS, bits_of, inputs_of
from .callers import MODELLED, RESERVED, evaluator, noted, retrainer, seeded, train_again
from .keeping import KeptTensor, ways_of
from .machined import Columns, machined_by
from .notes import notes_on
from .request import (
    PLAIN,
    Entry,
    Request,
    RunOptions,
    asked_axes,
    chip_asked,
    emulations_of,
    formats_of,
    hessians_of,
    is_timed,
    methods_of,
    modelled_by,
    plan_of,
    text_of,
)
from .result import Study
from .source import Source, module_of, network_of
from .tensor import Measured, Tensor, measured_alone, pooled

NETWORK_FORMATS = (
    "int8 int4 int3 int2 int4-g16 int3-g16 vsq4-g16 vsq4-g16-s4 vsq4-g32-s4 vsq4-g64-s8 "
    "vsq3-g16-s4 vsq3-g64-s8 vsq2-g16-s4 vsq2-g32-s4 vsq2-g64-s8 "
    "bf16 fp8_e4m3fn mxfp8_e4m3 mxfp6_e2m3 mxfp4 nvfp4 nf4-g64 cb4 cb3 cb2 log5-2-g32 log4-1-g16 "
    "int8+2:4 vsq4-g16-s4+2:4 int8+1:4"
).split()
NETWORK_RETRAINED = "cb3 cb2 int8+2:4 vsq4-g16-s4+2:4 int8+1:4".split()  # rows that a network trains by default
NETWORK_ACTIVATIONS = ("int8",)
TENSOR_FORMATS = "int8 int4 int4-g32-f16 vsq4-g16-s4 vsq4-g64-s8 vsq3-g16-s4 mxfp8_e4m3 mxfp4 nvfp4 nf4-g64".split()

Kind = tuple[int, Format | None, str | None]  # index and format of activations, emulation


def run(request: Request) -> Study:
    """Do what `heterocompute.study` describes, for any weights but those of a language model."""
    for name, value in (("text", request.text), ("kv_cache", request.kv_cache)):
        if value is not None:
            raise WrongValue(f"study: {name} is for a language model of heterocompute.zoo.open_llm")
    who = checked_workers(request.workers, "study")
    if is_module(request.weights):
        request = module_of(request)
    network, evaluate, retrain = network_of(request.weights), request.evaluate, request.retrain
    kinds_given, is_open = request.activations, request.formats is None and request.emulate is None
    to_retrain: list[str] | None = None  # None: each that loses something
    if evaluate is None and network.evaluate is not None:
        evaluate = network.evaluate
        if kinds_given is None and (request.formats is None or request.emulate is not None):
            kinds_given = NETWORK_ACTIVATIONS
        if retrain is None and is_open and network.retrain is not None:
            retrain, to_retrain = True, NETWORK_RETRAINED
    train = retrainer(retrain, network.retrain, "study")
    if train is not None and evaluate is None:
        raise WrongValue(
            "study: retrain needs evaluate, or a network: otherwise the effect of training is not measured"
        )
    trainings = seeded(train, as_int(request.seeds, "study: seeds", 1, 10_000), "study")
    keywords = {"activations": kinds_given, "emulate": request.emulate}
    call = evaluator(evaluate, [key for key, value in keywords.items() if value is not None])
    kinds = formats_of(kinds_given, "activations")
    emulations = emulations_of(request.emulate, evaluate)
    if check_flag("study", "per_layer", request.per_layer) and call is None:
        raise WrongValue("study: per_layer needs evaluate, or a network: otherwise the cost of a layer is not measured")
    ways = methods_of(request.methods, request.hessians)
    entries = request.entries(TENSOR_FORMATS if evaluate is None else NETWORK_FORMATS, ways)
    modelled = modelled_by(chip_asked(request.device))
    machined = machined_by(request)
    kept = KeptResults(request.keep, "study")

    with ExitStack() as stack:
        source = Source(network.weights, stack)
        names = select(source.infos, request.include, request.exclude, plain=source.roles.plain)
        if not names:
            raise WrongValue("study: no float tensor with two or more dimensions among the weights")
        for entry in entries:
            check_patterns(names, entry.formats)
        axes = axes_of(names, source.shapes, source.roles, asked_axes(request, source.shapes), "study")
        if isinstance(request.axis, Mapping):
            check_patterns(source.infos, request.axis)
        known = hessians_of(request.hessians, names, not CALIBRATED.keys().isdisjoint(ways))
        lengths = {name: math.prod(source.infos[name][1][a] for a in axes[name]) for name in names}
        plan = plan_of(entries, kinds, emulations, lengths)
        wanted = {name: list(dict.fromkeys(entry.of(name) for entry in entries)) for name in names}
        again = [train and entry.formats and (to_retrain is None or entry.text in to_retrain) for entry in entries]
        total = sum(map(len, wanted.values())) + (sum(map(len, plan)) if call else 0)
        total += sum(
            len(trainings) + len(kinds_of_entry) for kinds_of_entry, twice in zip(plan, again, strict=True) if twice
        )
        total += sum(entry.of(name).fmt is not None for entry in entries for name in names) if request.per_layer else 0
        step = Steps(total, request.progress)

        def rounded(name: str, way: RunOptions) -> Any:
            if (name, way) in packed:
                return packed[name, way]
            assert way.fmt is not None
            found = codes_or_values(source.load(name), way.fmt, axes[name], way.method or "rtn", known.get(name))
            if way.slow:  # measured by an earlier study of the same file of results
                packed[name, way] = found
            return found

        values = sum(math.prod(source.infos[name][1]) for name in names)
        clock = Clock() if is_timed(request.timing, values, "study") and is_serial(who) else None
        digests = {name: digest_of(source.original(name)) for name in source.names} if kept else {}
        tensors, of_file = [], []
        for name in names:
            h = known.get(name)
            about = (name, digests[name], axes[name], h, kinds, clock is not None) if kept else ()
            of_file.append(KeptTensor(kept, about, wanted[name]))
            tensors.append(
                Tensor(name, source.of(name), axes[name], of_file[-1].missing, h, tuple(kinds), call is not None)
            )
        packed: dict[tuple[str, RunOptions], Any] = {}  # slowly rounded arrays that are judged later
        left = [i for i, one in enumerate(of_file) if not one.complete]
        for i, (of_ways, slow, picture) in _answers(who, [tensors[i] for i in left], source, clock, step):
            of_file[left[i]].add(of_ways, picture)
            packed |= {(tensors[left[i]].name, way): one for way, one in slow.items()}
        measured: dict[tuple[str, RunOptions], Measured] = {}
        for name, one in zip(names, of_file, strict=True):
            measured |= {(name, way): found for way, found in one.measured().items()}
        pictures = [one.picture(wanted[name]) for name, one in zip(names, of_file, strict=True)]
        del tensors

        rows: list[dict[str, Any]] = []
        everything = {name: source.original(name) for name in source.names} if call else {}
        kept.belongs_to(digests, evaluate, axes, list(names))
        judge = _Judge(
            names,
            everything,
            rounded,
            trainings,
            call,
            modelled,
            machined,
            step,
            kept,
            known,
            kept.same(trainings),
            len(emulations) > 1,
        )
        for entry, kinds_of_entry, twice in zip(entries, plan, again, strict=True):
            chosen = [measured[name, entry.of(name)] for name in names]
            rows += judge.rows(entry, kinds_of_entry, chosen, bool(twice))
        alone = judge.alone(entries) if request.per_layer else []
        step.finish()

    rows, metrics = _in_order(rows, request.hessians is not None)
    layers = [measured[name, way].row for name in names for way in wanted[name]]
    if any(source.infos[name][0] != "float32" for name in names):
        rows, layers = ([{**row, "format": STORED} if row["format"] == PLAIN else row for row in some]
                        for some in (rows, layers))  # fmt: skip
    shapes = {name: tuple(source.infos[name][1]) for name in names}
    return Study(rows, layers, metrics, pictures, alone, notes_on(shapes, axes, _formats_of(wanted)) + kept.notes)


def _answers(
    who: Workers, tensors: list[Tensor], source: Source, clock: Clock | None, step: Steps
) -> Iterator[tuple[int, Any]]:
    """Yield the index and the measurements of each tensor."""
    if is_serial(who):
        for i, tensor in enumerate(tensors):
            yield i, tensor.measured(source.load(tensor.name), clock, step)
        return
    for i, answer in in_workers(who, measured_alone, tensors, "study"):
        for way in tensors[i].ways:
            step(f"{tensors[i].name}  {way.text}")
        yield i, answer


@dataclass(frozen=True)
class _Judge:
    """Data that all rows share: the original weights, and the functions that round, train and evaluate."""

    names: list[str]
    everything: dict[str, Any]
    rounded: Callable[[str, RunOptions], Any]
    trainings: list[Any]
    call: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]] | None
    modelled: Callable[[list[Any], Any], dict[str, Any]]
    machined: Columns
    step: Steps
    kept: KeptResults
    hessians: Mapping[str, Any]
    training: str  # digest of the functions that train
    emulates: bool

    @functools.cached_property
    def _inputs(self) -> dict[str, Any]:
        return {} if self.call is None else inputs_of(self.call, self.everything, self.names)

    def _bits_of(
        self, entry: Entry, of: Kind, weights: Callable[[], list[dict[str, Any]]], retrained: bool
    ) -> dict[str, int | None]:
        """Return the guaranteed and the needed bits of a row."""
        _, kind, text = of
        if self.call is None:
            return dict.fromkeys(KEYS)
        about = ("bits", *self._about(entry), kind, text, self.training if retrained else None)
        found: dict[str, int | None] = self.kept.get(
            about, lambda: bits_of(text, kind, weights()[0], self.names, lambda: self._inputs)
        )
        return found

    def rows(self, entry: Entry, kinds: list[Kind], chosen: list[Measured], twice: bool) -> Iterator[dict[str, Any]]:
        """Yield the rows of an entry from the measurements of its tensors; `twice`: also after training."""

        @functools.cache
        def replaced() -> dict[str, Any]:
            return self.everything | {
                name: self.rounded(name, way) for name, way in ways_of(entry, self.names) if way.fmt is not None
            }

        for kind in kinds:
            yield self._row(entry, kind, chosen, lambda: [replaced()], None)
        if not twice:
            return

        @functools.cache
        def trained() -> list[dict[str, Any]]:
            found = []
            for training in self.trainings:
                self.step(f"retrain  {entry.text}")
                found.append(train_again(training, self.everything, replaced(), "study"))
            return found

        def lost() -> list[float]:
            return [math.fsum(_noise(self.everything[name], one[name]) for one in trained()) for name in self.names]

        noise = self.kept.get(("noise", *self._about(entry), self.training), lost)
        chosen = [replace(one, noise=total / len(self.trainings)) for one, total in zip(chosen, noise, strict=True)]
        for kind in kinds:
            yield self._row(entry, kind, chosen, trained, True)

    def _about(self, entry: Entry) -> list[object]:
        """Return what determines the rounded weights of an entry."""
        calibrated = any(entry.of(name).method == "gptq" for name in self.names)
        return [ways_of(entry, self.names), self.hessians if calibrated else None]

    def alone(self, entries: list[Entry]) -> list[dict[str, Any]]:
        """Return what the caller's function returns with one tensor rounded at a time, all others unchanged."""
        rows = []
        for entry, name in itertools.product(entries, self.names):
            way, call = entry.of(name), self.call
            if way.fmt is None or call is None:
                continue
            text = text_of(way.fmt)
            self.step(f"evaluate  {text} in {name} alone")

            def judged(name: str = name, way: RunOptions = way, call: Any = call) -> Any:
                changed = {**self.everything, name: self.rounded(name, way)}
                return call(changed, {"activations": None, "emulate": None})

            with noted(f"{text} in {name} alone"):
                h = self.hessians.get(name) if way.method == "gptq" else None
                found = self.kept.get(("alone", name, way, h), judged)
            rows.append({"name": name, "format": text, "method": way.method, **found})
        return rows

    def _row(
        self,
        entry: Entry,
        of: Kind,
        chosen: list[Measured],
        weights: Callable[[], list[dict[str, Any]]],
        retrained: bool | None,
    ) -> dict[str, Any]:
        i, kind, text = of
        names_of_row = {
            "method": entry.method, "activations": None if kind is None else kind.label, "emulate": text,
            "retrained": retrained,
        }  # fmt: skip
        row = {"format": entry.text, **names_of_row, **pooled(chosen, i), "output_db": _output_db(chosen)}
        if text is not None:
            row["seconds"] = None  # the hardware's time is unknown
        if retrained:
            row["output_db"] = None  # the inputs have changed as well
        if self.emulates:
            row["accumulator_bits"] = text and accumulator_bits(text)
            row.update(self._bits_of(entry, of, weights, bool(retrained)))
        row.update(self.modelled([one.matrix for one in chosen], kind))
        row.update(self.machined(entry, self.names, kind))
        if (call := self.call) is not None:
            given = [f"  {key} {value}" for key, value in names_of_row.items() if value is not None]
            self.step(f"evaluate  {entry.text}" + "".join(given))
            options = {"activations": kind, "emulate": text}
            with noted(entry.text + "".join(given)):
                about = ("row", *self._about(entry), kind, text, self.training if retrained else None)
                row.update(self.kept.get(about, lambda: _mean([call(dict(one), options) for one in weights()])))
        return row


def _in_order(rows: list[dict[str, Any]], known: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """Return rows with their columns in order, and the columns that `evaluate` returned; `known`: by Hessians."""
    added = [key for key in MODELLED if rows and key in rows[0]]
    metrics = list(dict.fromkeys(key for row in rows for key in row if key not in (*RESERVED, "output_db", *MODELLED)))
    ordered = [
        {
            **{key: row[key] for key in RESERVED[:-1]},
            **({"output_db": row["output_db"]} if known else {}),
            **{key: row.get(key) for key in metrics},
            "seconds": row["seconds"],
            **{key: row[key] for key in added},
        }
        for row in rows
    ]
    return ordered, metrics


def _formats_of(wanted: Mapping[str, Iterable[RunOptions]]) -> dict[str, list[Format]]:
    return {name: [way.fmt for way in ways if way.fmt is not None] for name, ways in wanted.items()}


@counts_subnormals
def _output_db(chosen: list[Measured]) -> float | None:
    """Return the mean relative error of layers' outputs, in dB."""
    outputs = [0.0 if (db := one.row["output_db"]) is None else 10 ** (-db / 10) for one in chosen if one.judged]
    lost = math.fsum(outputs) / max(len(outputs), 1)
    return -10 * math.log10(lost) if lost else None


def _mean(found: list[dict[str, float | None]]) -> dict[str, float | None]:
    """Return the numbers of evaluate; for several trainings, the mean, the lowest and the highest."""
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
def _noise(w: object, changed: Any) -> float:
    mse: float = error(w, changed).mse
    return mse * float(changed.size)
