"""`heterocompute.study` of a language model on a text: formats of weights, of activations and of the KV cache.

For each format, all matrices are quantized. The text runs once through the stored network, and once through every
combination of activations and KV cache. Memory holds the network and one format of it. All combinations of a format
share the logits of the stored network. For `gptq` the text runs layer by layer, and memory holds the Hessians of one
layer. For `qronos` it runs through the stored and through the rounded network.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from ..arrays.components import stored_bytes
from ..arrays.quantized import QuantizedArray
from ..base.errors import WrongValue
from ..base.keeping.digest import digest_of
from ..base.keeping.results import KeptResults
from ..base.progress import Steps
from ..base.texts import counted
from ..base.workers import checked_workers, is_serial
from ..emulate.text import accumulator_bits
from ..files.selection import check_patterns, escaped, select
from ..formats import Format, is_function, unrotated
from ..products.clock import Clock
from ..products.error import error
from ..ptq.methods import CALIBRATED, codes_or_values
from ..ptq.network import calibrate
from ..ptq.rotate import NORM_OF
from ..report.study import STORED
from ..zoo.llm.inputs import text_ids_of
from .accumulators import FEW as INPUTS, bits_of, inputs_of
from .callers import finite
from .chip import decoding
from .keeping import ways_of
from .notes import notes_on
from .request import (
    PLAIN,
    Entry,
    Request,
    RunOptions,
    caches_of,
    chip_asked,
    emulations_of,
    formats_of,
    is_timed,
    methods_of,
    modelled_by,
    plan_of,
    text_of,
)
from .result import Study
from .source import named
from .tensor import Measured, layer_row, pooled

FORMATS = "q8_0 int8 int4-g32 int4-g32-f16 vsq4-g16-s4 mxfp4 nvfp4 vsq3-g16-s4".split()
FEW = 1000  # with fewer tokens, perplexities of formats differ by chance
CALIBRATION = 2048  # most tokens for the calibration of `gptq` and `qronos`; they are not evaluated


def is_language_model(weights: object) -> bool:
    """Tell whether a value is a language model: it has `weights` and `tokenizer`, and evaluates formats on a text."""
    return all(hasattr(weights, name) for name in ("weights", "tokenizer", "judged", "matrices"))


def study_text(request: Request) -> Study:
    """Do the work of `heterocompute.study` for a language model."""
    net, emulate = request.weights, request.emulate
    for name in ("evaluate", "axis", "retrain", "hessians", "machine", "network", "layout"):
        if getattr(request, name) is not None:
            raise WrongValue(f"study: {name} does not apply to a language model, which text judges")
    if not is_serial(checked_workers(request.workers, "study")):
        raise WrongValue("study: workers does not apply to a language model, which is evaluated in one process")
    if request.text is None:
        raise WrongValue("study: text is None, expected the text that judges the language model")
    kinds, caches = formats_of(request.activations, "activations"), caches_of(request.kv_cache)
    entries = request.entries(FORMATS, methods_of(request.methods, {}))
    chip = chip_asked(request.device)
    modelled = modelled_by(chip)
    names = names_of(net, request.include, request.exclude)
    for entry in entries:
        check_patterns(names, entry.formats)
    ids = calibration = text_ids_of(net, request.text, "study: text")
    every = {entry.of(name).method for entry in entries for name in names}
    calibrated = sorted(method for method in every if method in CALIBRATED)
    is_calibrated = bool(calibrated)
    if is_calibrated:
        calibration, ids = _divided(ids)
    emulations = emulations_of(emulate, net.judged)
    lengths = {name: net.weights[name].shape[-1] for name in names} if emulate is not None else {}
    plan = plan_of([_whole(entry, net, lengths) for entry in entries], kinds, emulations, lengths)
    each = len(names) + bool(request.per_layer)  # steps of an entry that quantizes
    step = Steps(sum(each * bool(entry.formats) + 1 for entry in entries), request.progress)
    values = sum(math.prod(net.weights[name].shape) for name in names)
    clock = _Times(is_timed(request.timing, values, "study"))
    rows, layers, per_layer = [], [], []
    states: dict[int, Any] = {}  # states of the stored network
    few = lru_cache(1)(lambda: _first_inputs(net, ids, names))
    kept = KeptResults(request.keep, "study")
    if kept:
        digests = [(name, digest_of(net.weights[name])) for name in net.weights]
        kept.belongs_to(digests, net.shape, net.roles, ids, calibration, names, platform.node())
    for entry, allowed in zip(entries, plan, strict=True):
        ways = [(i, kind, cache, text) for i, kind, text in allowed for cache in caches]
        made: dict[str, Any] = {}

        def work(entry: Entry = entry, ways: list[Any] = ways, made: dict[str, Any] = made) -> dict[str, Any]:
            of = _rounded(net, entry, names, _Hessians(net, names, calibration, made), clock, kinds, step, made)
            step(f"judge  {entry.text if entry.formats else STORED}")
            numbers = net.judged(ids, [(made, *way[1:]) for way in ways], compare=True, states=states)
            each = []
            if request.per_layer and made:
                step(f"judge  {entry.text} in each matrix alone")
                each = net.judged(ids, [({name: q},) for name, q in made.items()], compare=True, states=states)
            columns = [
                {} if chip in (None, "mac")
                else decoding(net, chip, made, kind, cache, _cache_bits(net, cache))
                for _, kind, cache, _ in ways
            ]  # fmt: skip
            return {
                "found": [one.to_plain() for one in of],
                "numbers": [_finite(one) for one in numbers],
                "alone": {name: _finite(one) for name, one in zip(made, each, strict=False)},
                "columns": columns,
                "bits": [bits_of(text, kind, {**net.weights, **made}, names, few) for _, kind, _, text in ways],
            }

        result = kept.get((ways_of(entry, names), ways, kinds, bool(request.per_layer), chip, clock.measures), work)
        found = [_again(net, entry, one) for one in result["found"]]
        layers += [one.row for one in found if one.row["format"] != PLAIN]
        for (i, kind, cache, emulated), numbers, columns, bits in zip(
            ways, result["numbers"], result["columns"], result["bits"], strict=True
        ):
            rows.append(
                {
                    "format": entry.text if entry.formats else STORED,
                    "method": entry.method,
                    "activations": None if kind is None else str(kind),
                    "kv_cache": None if cache is None else cache.label,
                    "emulate": emulated,
                    "retrained": None,
                    **pooled(found, i),
                    **({} if emulated is None else {"seconds": None}),  # times of emulated hardware are unknown
                    **numbers,
                    "kv_bits": _cache_bits(net, cache),
                    **({} if emulate is None else {"accumulator_bits": emulated and accumulator_bits(emulated)}),
                    **({} if emulate is None else bits),
                    **modelled([one.matrix for one in found], kind),
                    **columns,
                }
            )
        for name, numbers in result["alone"].items():
            way = entry.of(name)
            per_layer.append({"name": name, "format": text_of(way.fmt), "method": way.method, **numbers})
    step.finish()
    for row in rows:
        row["seconds"] = row.pop("seconds")  # moves the column to the end of those that every study has
    shapes = {name: tuple(net.weights[name].shape) for name in names}
    wanted = {name: [way.fmt for entry in entries if (way := entry.of(name)).fmt is not None] for name in names}
    notes = notes_on(shapes, {name: (len(shape) - 1,) for name, shape in shapes.items()}, wanted)
    if len(ids) < FEW:
        notes.append(f"the text has only {counted(len(ids), 'token')}: another text may rank formats otherwise")
    if is_calibrated:
        which = " and ".join(f"{method} is" for method in calibrated)
        notes.append(f"{which} calibrated with the first {len(calibration)} tokens, which are not evaluated")
    return Study(rows, layers, ["perplexity", "kl", "agreement"], [], per_layer, notes=notes + kept.notes)


def _first_inputs(net: Any, ids: Any, names: list[str]) -> dict[str, Any]:
    """Return the inputs of each matrix for the first tokens, from a run with matrices in float32."""
    held = {name: np.asarray(net.weights[name], np.float32) for name in names}
    return inputs_of(lambda weights, _: net.logits(ids[:INPUTS], weights=weights), held, names)


def _rounded(
    net: Any,
    entry: Entry,
    names: list[str],
    hessians: _Hessians,
    clock: _Times,
    kinds: list[Format | None],
    step: Steps,
    made: dict[str, Any],
) -> list[Measured]:
    """Round the matrices of an entry into `made`, and return the measurements of all matrices."""
    found = []
    for name in _by_layer(net, names):
        stored = net.weights[name]
        way = entry.of(name)
        if way.fmt is None:
            found.append(_measured(name, way, stored, stored, clock.of(stored, kinds)))
            continue
        step(f"{name}  {way.text}")
        with named(name):
            w = np.asarray(stored, np.float32)
            made[name] = codes_or_values(w, way.fmt, (w.ndim - 1,), way.method or "rtn", hessians.of(name, way.method))
            found.append(_measured(name, way, w, made[name], clock.of(made[name], kinds, way.fmt)))
    return found


def _again(net: Any, entry: Entry, found: dict[str, Any]) -> Measured:
    """Return measurements as they were kept."""
    name = found["row"]["name"]
    return Measured.from_plain(found, entry.of(name), getattr(net.weights[name], "format", None))


def _cache_bits(net: Any, cache: Any) -> float:
    """Return the bits of a cached value, of a format that may end in +had."""
    return bits_of_cache(unrotated(cache), net.shape.cached[1])


def _finite(numbers: Mapping[str, float]) -> dict[str, float | None]:
    return {key: finite(value) for key, value in numbers.items()}


def _divided(ids: Any) -> tuple[Any, Any]:
    """Return the tokens for calibration and for evaluation: weights fitted to a text would predict it too well."""
    count = min(CALIBRATION, len(ids) // 2)
    if count < 2:
        raise WrongValue(
            f"study: text has {counted(len(ids), 'token')}, expected at least 4 with gptq and qronos, which are "
            "calibrated with the first half"
        )
    return ids[:count], ids[count:]


def _whole(entry: Entry, net: Any, lengths: Mapping[str, int]) -> Entry:
    """Return an entry completed with the formats of the tensors that it does not change, which emulations multiply."""
    stored = {name: getattr(net.weights[name], "format", None) for name in lengths if entry.of(name).fmt is None}
    return replace(entry, formats={**{escaped(name): fmt for name, fmt in stored.items()}, **entry.formats})


def names_of(net: Any, include: Any, exclude: Any) -> list[str]:
    """Return the matrices that are quantized: those of the layers, unless `include` names others."""
    infos = {name: ("float32", tuple(net.weights[name].shape)) for name in net.matrices}
    tables = set(net.tables) if include is None else set()
    names = select({name: info for name, info in infos.items() if name not in tables}, include, exclude)
    if not names:
        raise WrongValue("study: include and exclude leave no matrix of the language model")
    return names


def bits_of_cache(fmt: Format | None, width: int) -> float:
    """Return the stored bits per value of keys and values, which are quantized along the width of each head."""
    if fmt is None:
        return 32.0
    rows = 1024  # many rows, so that components that all rows share are negligible
    return 8 * stored_bytes(fmt, (rows, width), (1,)) / (rows * width)


def hessians_by_layer(net: Any, names: Iterable[str], ids: Any) -> Iterator[dict[str, Any]]:
    """Yield the Hessians of matrices for the beginning of a text, layer by layer, and finally of the output.

    Memory: the states of the text, and the float32 weights and Hessians of one layer.
    """
    tokens = [some for some, _ in net.windows(ids[:CALIBRATION], stride=None)]
    wanted, listed = set(names), net.roles
    states = [net.run().embedded(some[None]) for some in tokens]
    for i in range(net.shape.layers):
        own = [listed[role] for _, role in net.layer_roles[i] if listed.get(role) in wanted]
        given, states = states, []

        def layer(weights: Any, i: int = i, given: list[Any] = given, states: list[Any] = states) -> None:
            states.extend(net.run(weights).layer(i, x) for x in given)

        yield _heard(net, own, layer)
    own = [name for name in net.tables if name in wanted]

    def output(weights: Any) -> None:
        for x in states:
            run = net.run(weights)
            run.scores(run.normed(x))

    yield _heard(net, own, output)


def paired_by_layer(net: Any, names: Iterable[str], ids: Any, made: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the Hessians of matrices with the inputs of the stored network and of the one that is rounded so far.

    Matrices with the same inputs come together. `made` gets each rounded matrix before the next Hessians are computed.
    Memory: the states of the text in both networks, and for one layer the weights, the inputs of the matrices that come
    together, and three matrices for each.
    """
    tokens = [some for some, _ in net.windows(ids[:CALIBRATION], stride=None)]
    wanted, listed = set(names), net.roles
    states = [[net.run().embedded(some[None]) for some in tokens]] * 2  # of the stored network, of the rounded one
    for i in range(net.shape.layers):
        together: dict[str, list[str]] = {}
        for _, role in net.layer_roles[i]:
            if listed.get(role) in wanted:
                part = role.removesuffix(".weight").rpartition(".")[2]
                together.setdefault(NORM_OF.get(part, part), []).append(listed[role])
        for some in together.values():
            turns = iter(states)

            def layer(weights: Any, i: int = i, turns: Iterator[Any] = turns) -> None:
                for x in next(turns):
                    net.run(weights).layer(i, x)

            yield _heard(net, some, layer, made)
        own = {listed[role]: made[listed[role]] for _, role in net.layer_roles[i] if listed.get(role) in made}
        states = [[net.run(way).layer(i, x) for x in given] for way, given in zip((None, own), states, strict=True)]
    turns = iter(states)

    def output(weights: Any) -> None:
        for x in next(turns):
            run = net.run(weights)
            run.scores(run.normed(x))

    tables = [name for name in net.tables if name in wanted]
    if tables:
        yield _heard(net, tables, output, made)


def _heard(net: Any, names: list[str], call: Callable[[Any], None], rounded: Any = None) -> dict[str, Any]:
    """Run a part of the network while some matrices record their inputs; None for those that were not multiplied."""
    if not names:
        call(None)
        return {}
    held = {name: np.asarray(net.weights[name], np.float32) for name in names}
    if rounded is None:
        found = calibrate(held, call)
    else:  # the matrices of this layer that are rounded are weights of the network, too
        inside = {name: np.asarray(net.weights[name], np.float32) for name in rounded if name in _siblings(net, names)}
        some = list(map(escaped, names))
        found = calibrate({**inside, **held}, call, include=some, rounded={name: rounded[name] for name in inside})
    return {name: found.get(name) for name in names}


def _siblings(net: Any, names: list[str]) -> set[str]:
    """Return the matrices of the layers that have one of these."""
    found = [{net.roles.get(role) for _, role in roles} for roles in net.layer_roles]
    return {name for own in found if own & {*names} for name in own if name is not None}


class _Hessians:
    """The Hessians of the matrices in the order of the layers, those of one layer at a time."""

    def __init__(self, net: Any, names: list[str], ids: Any, made: Mapping[str, Any]) -> None:
        self._layers = {"gptq": hessians_by_layer(net, names, ids), "qronos": paired_by_layer(net, names, ids, made)}
        self._held = dict[str, Any]()

    def of(self, name: str, method: str | None) -> Any:
        """Return the Hessian of a matrix if the method needs one. Calls must follow the order of the matrices."""
        if method not in self._layers:
            return None
        while name not in self._held:
            self._held = next(self._layers[method])
        return self._held[name]


def _by_layer(net: Any, names: list[str]) -> list[str]:
    """Return names with those of the tables at the end, because the network multiplies by them last."""
    tables = set(net.tables)
    return [name for name in names if name not in tables] + [name for name in names if name in tables]


class _Times:
    """Times of matmuls with one row; tensors with the same shape and format take the same time."""

    def __init__(self, measures: bool) -> None:
        self._clock = Clock() if measures else None
        self.measures = measures
        self._known: dict[tuple[tuple[int, ...], str], list[float | None]] = {}

    def of(self, w: Any, kinds: list[Format | None], fmt: Format | None = None) -> list[float | None]:
        matrix = w if w.ndim == 2 else w[0] if w.ndim == 3 and len(w) else None
        if self._clock is None or matrix is None or not matrix.size or is_function(fmt):
            return [None] * len(kinds)
        key = (tuple(w.shape), str(getattr(w, "format", "fp32")))
        if key not in self._known:
            x = np.random.default_rng(0).standard_normal((1, matrix.shape[1]), dtype=np.float32)
            self._known[key] = [one * (len(w) if w.ndim == 3 else 1) for one in self._clock.seconds(x, matrix, kinds)]
        return self._known[key]


def _measured(name: str, way: RunOptions, w: Any, q: Any, seconds: list[float | None]) -> Measured:
    """Return the measurements of one tensor in one format; `w` itself if there is none."""
    shape, own, sqnr_db, signal, noise = tuple(w.shape), way.fmt, None, 0.0, 0.0
    if way.fmt is not None:
        lost = error(w, q)
        sqnr_db, noise = finite(lost.sqnr_db), lost.mse * math.prod(shape)
        signal = float(np.square(w, dtype=np.float64).sum())
    elif isinstance(q, QuantizedArray):
        own = q.format
    stored = way.fmt.stored_bytes(math.prod(shape)) if is_function(way.fmt) else q.nbytes
    row = layer_row(name, shape, way, stored, {"sqnr_db": sqnr_db, "seconds": seconds[0]})
    matrix = (math.prod(shape[:-1]), shape[-1], stored, own)
    return Measured(row, math.prod(shape), signal, noise, seconds, matrix, judged=False)
