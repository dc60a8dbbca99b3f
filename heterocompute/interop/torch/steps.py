"""The steps of `convert` around the packing of layers: checks, biases, the search of a ladder, the report."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any
from weakref import WeakKeyDictionary

from ...arrays.components import stored_bytes
from ...base.errors import WrongType, WrongValue, shown
from ...base.keeping.results import KeptResults
from ...base.values import as_int, as_real, check_flag
from ...files.selection import escaped
from ...formats import is_rotated
from ...formats.base import or_words
from ...ptq.adjust import correct_bias
from ...ptq.calibration import Calibration
from ...ptq.error import error as output_error
from ...ptq.gate import Exchange, Gate, best_failing, blended, climb, ladder_of, milliseconds, relative_error, scored
from ...ptq.methods import CALIBRATED
from ...ptq.network import Rounded, calibrate
from ..models.batches import ONCE, Batches, evaluating
from .forms import form_axis, formed, packed_shape, recipe_of, weight_now
from .learning.codes import KINDS, STEPS
from .walk import Layer, every_layer, layers, matching
from .weights import PackedWeight

UNCALIBRATED = ("rtn", "search")
METHODS = (*UNCALIBRATED, "awq", *CALIBRATED, "learned")
ROTATIONS = ("residual", "online")
# Of layers that no step has looked at, in the columns of moved scales and of rotations.
OTHERS = {"alpha": None, "left": "it is no linear layer", "rotated": 0, "kept": "it is no linear layer"}
WORSE = "the model has less error without it"
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
REPORTS: WeakKeyDictionary[Any, Rounded] = WeakKeyDictionary()


def report(model: Any) -> Rounded:
    """Return the report of a model that `convert` rounded with inputs.

    Parameters
    ----------
    model : torch.nn.Module
        The result of `convert` itself, not a copy of it.

    Returns
    -------
    heterocompute.ptq.Rounded
        Its table has one row per layer: ``name format tokens damping dead before after``, the SQNR of the outputs in
        dB, of round-to-nearest and of the result. With `smooth` or ``"awq"`` also ``alpha``, the exponent of the scales
        that were moved (0: the identity was best), or ``left``, the reason why the layer takes none. before and after
        are then of the model with moved scales. With `rotate` also ``rotated``, the block of inputs, or ``kept``, the
        reason why the layer is not rotated. With `correct_bias` also ``bias``.

    Raises
    ------
    ValueError
        The model was not converted with inputs, or is the answer of a ladder whose method does not read inputs.

    Examples
    --------
    >>> import torch
    >>> from heterocompute.interop import torch as ht
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 8))
    >>> small = ht.convert(model, "int4-g32", method="gptq", inputs=torch.randn(256, 64))
    >>> [row["after"] > row["before"] for row in ht.report(small).table]
    [True]
    """
    if model not in REPORTS:
        raise WrongValue(
            "report: model was not converted with inputs=, expected the result of such a convert; with accept=, a "
            "format whose method reads inputs"
        )
    return REPORTS[model]


@dataclass(frozen=True)
class Steps:
    """Checked steps of a conversion."""

    rounding: str
    folds: str | None
    alpha: Any
    clip: str | None
    corrects: bool
    learns: int = 0  # steps
    seed: int = 0
    shrinkage: float = 0.0


def checked(
    method: Any,
    inputs: Any,
    smooth: Any,
    rotate: Any,
    clip: Any,
    inplace: Any,
    corrects: bool,
    steps: Any = None,
    seed: Any = None,
    shrinkage: Any = 0.0,
) -> Steps:
    if method not in METHODS:
        raise WrongValue(f"convert: method is {shown(method)}, expected {or_words(METHODS)}")
    if clip not in (None, "search"):
        raise WrongValue(f"convert: clip is {shown(clip)}, expected None or 'search'")
    if method == "awq" and smooth is not None:
        raise WrongValue("convert: smooth and method='awq' both move scales of inputs, expected one of them")
    if rotate not in (None, *ROTATIONS):
        raise WrongValue(f"convert: rotate is {shown(rotate)}, expected None or {or_words(ROTATIONS)}")
    if rotate is not None and inplace:
        raise WrongValue("convert: rotate replaces layers of a copy, expected inplace=False")
    if method != "learned" and (steps is not None or seed is not None):
        name = "seed" if steps is None else "steps"
        raise WrongValue(f"convert: {name} is for method='learned', method is {shown(method)}")
    if method == "learned" and inplace:
        raise WrongValue("convert: method='learned' compares two copies, expected inplace=False")
    share = as_real(shrinkage, "convert: shrinkage", "a number")
    if not 0 <= share < inf:
        raise WrongValue(f"convert: shrinkage is {shown(shrinkage)}, expected a finite number, 0 or more")
    if share and method not in (*CALIBRATED, "learned"):
        raise WrongValue(f"convert: shrinkage is for {or_words((*CALIBRATED, 'learned'))}, method is {shown(method)}")
    runs_model = method in ("awq", "qronos", "learned") or smooth is not None or rotate is not None
    needs = "smooth" if smooth is not None else None
    needs = f"method={shown(method)}" if method in ("awq", "learned", *CALIBRATED) else needs
    needs = "rotate" if needs is None and rotate is not None else needs
    needs = "correct_bias" if needs is None and corrects else needs
    if needs is not None and inputs is None:
        raise WrongValue(f"convert: inputs is missing, expected the batches for {needs}")
    if isinstance(inputs, Calibration) and runs_model:
        raise WrongValue(f"convert: inputs is what calibrate returned, but {needs} runs the model: pass the batches")
    if corrects and isinstance(inputs, Iterator):
        raise WrongValue(f"convert: inputs {ONCE}")
    rounding = "search" if method == "awq" or (method == "rtn" and clip == "search") else method
    rounding = "gptq" if method == "learned" else rounding
    chance = as_int(0 if seed is None else seed, "convert: seed", 0, 2**64 - 1)
    count = as_int(STEPS if steps is None else steps, "convert: steps", 0) if method == "learned" else 0
    folds = "awq" if method == "awq" else "smooth" if smooth is not None else None
    return Steps(rounding, folds, "search" if method == "awq" else smooth, clip if clip else
                "search" if method == "awq" else None, corrects, count, chance, share)  # fmt: skip


def take_parameters(model: Any, small: Any) -> None:
    """Replace the parameters of a model by those of its copy with moved scales."""
    for old, new in zip(model.modules(), small.modules(), strict=True):
        old._parameters.update(new._parameters)


def without(moved: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the rows of a report if a model without any step has less error on the held-out batches."""
    found: dict[str, dict[str, Any]] = {}
    for name, row in moved.items():
        plain = dict(row)
        if row.get("alpha"):
            plain |= {"alpha": 0.0, "left": WORSE}
        if row.get("rotated"):
            plain |= {"rotated": 0, "kept": WORSE}
        found[name] = plain
    return found


def biases_of(model: Any, picked: list[Layer], weights: list[PackedWeight], inputs: Any) -> dict[str, Any]:
    """Return the corrected bias of each layer that has one and whose inputs were recorded, by path."""
    hessians = inputs if isinstance(inputs, Calibration) else calibrate(model, inputs, held=False)
    found = {}
    for layer, weight in zip(picked, weights, strict=True):
        bias, h = layer.module._parameters.get("bias"), hessians.get(layer.name)
        if bias is not None and h is not None and (layer.kind == "linear" or layer.kind in CONVOLUTIONS):
            floats = formed(layer, weight_now(layer))
            w = (floats if floats.dtype.itemsize > 2 else floats.float()).numpy()  # NumPy has no bfloat16
            found[layer.path] = correct_bias(w, weight.array(), h, bias.detach().float().numpy())
    return found


def judged_again(heard: Rounded, wide: Any, small: Any, inputs: Any) -> Rounded:
    """Return a report with the errors of weights whose codes have changed."""
    hessians = calibrate(wide, inputs, held=False)
    floats = {layer.name: layer for layer in every_layer(wide, "convert") if layer.packed is None}
    packed = {layer.name: layer.packed for layer in every_layer(small, "convert") if layer.packed is not None}
    table = []
    for row in heard.table:
        name = row["name"]
        if name in hessians and name in floats and name in packed and floats[name].kind in KINDS:
            w = formed(floats[name], weight_now(floats[name])).float().numpy()
            row = {**row, "after": output_error(w, packed[name].array(), hessians[name]).output_db}
        table.append(row)
    return dataclasses.replace(heard, table=table)


def reported(heard: Rounded, moved: Mapping[str, Any], biases: Mapping[str, Any]) -> Rounded:
    table = []
    for row in heard.table:
        kinds = {key for found in moved.values() for key in found}
        more = {key: OTHERS[key] for key in OTHERS if key in kinds} | moved.get(row["name"], {})
        path = row["name"].rpartition(".")[0]
        table.append({**row, **more, **({"bias": path in biases} if biases else {})})
    return dataclasses.replace(heard, table=table)


def accepted(
    convert: Callable[..., Any],
    model: Any,
    ladder: Any,
    accept: Any,
    at_least: Any,
    evaluations: Any,
    mix: Any,
    method: str,
    options: dict[str, Any],
    keep: str | os.PathLike[str] | None,
) -> tuple[Any, Gate]:
    """Return the smallest conversion of a ladder that is good enough; scores that a file keeps are not computed."""
    if not callable(accept):
        raise WrongType(f"convert: accept is {shown(accept)}, expected a function of the model")
    if at_least is None:
        raise WrongValue("convert: at_least is missing, expected the score that is good enough")
    if options["inplace"]:
        raise WrongValue("convert: inplace is for one format, not for a ladder with accept=")
    wanted = as_real(at_least, "convert: at_least", "a number")
    learning = {name: options.pop(name) for name in ("steps", "seed")}
    shrunk = {"shrinkage": options.pop("shrinkage")}
    most = None if evaluations is None else as_int(evaluations, "convert: evaluations", 1)
    steps = ladder_of(ladder, method, "convert", METHODS)
    if not any(one.method == "learned" for one in steps):
        checked("rtn", None, None, None, None, False, False, **learning)
    if shrunk["shrinkage"] and not any(one.method in (*CALIBRATED, "learned") for one in steps):
        checked("rtn", None, None, None, None, False, False, **shrunk)
    mixes = check_flag("convert", "mix", mix)
    moves = any(options[key] is not None for key in ("smooth", "rotate")) or any(one.method == "awq" for one in steps)
    moves = moves or any(
        map(is_rotated, (fmt for one in steps for fmt in recipe_of(one.formats, rotated=True).values()))
    )
    if mixes and (moves or options["correct_bias"]):
        why = (
            "smooth, method='awq', rotate and +had change what passes between"
            if moves
            else "correct_bias changes biases of"
        )
        raise WrongValue(f"convert: mix puts layers of two models together, and {why} layers; expected one of them")
    # Inputs of methods without calibration are only reported, except in mixtures: their Hessians take time.
    reads = mixes or options["correct_bias"] or any(options[key] is not None for key in ("smooth", "rotate"))
    best: dict[int, Any] = {}
    failed: dict[int, Any] = {}  # for mix the one with the best score
    times: dict[int, float] = {}
    run = runner(options["inputs"])
    kept = KeptResults(keep, "convert")
    settings = {name: value for name, value in options.items() if name != "progress"}
    kept.belongs_to(model, accept, settings, learning, shrunk)

    def made(i: int) -> Any:
        more = learning if steps[i].method == "learned" else {}
        more = more | shrunk if steps[i].method in (*CALIBRATED, "learned") else more
        if steps[i].method in UNCALIBRATED and not reads:
            more = more | {"inputs": None}
        return convert(model, steps[i].formats, method=steps[i].method, **{**options, **more})

    def result_of(small: Any) -> tuple[float, float | None]:
        return scored(accept, small, "convert"), None if run is None else milliseconds(lambda: run(small))

    def judged(i: int) -> float:
        found: list[Any] = []

        def result() -> tuple[float, float | None]:
            found.append(made(i))
            return result_of(found[0])

        score, ms = kept.get(("step", steps[i]), result)
        if ms is not None:
            times[i] = ms
        if score >= wanted:  # only the smallest is held
            best.clear()
        if found and (score >= wanted or mixes):
            (best if score >= wanted else failed)[i] = found[0]
        return float(score)

    sizes = [bytes_of(model, step.formats, options["include"], options["exclude"]) for step in steps]
    chosen, gate = climb(steps, sizes, judged, wanted, most, times)
    answer = model if chosen is None else best[chosen] if chosen in best else made(chosen)
    if not mixes or (row := best_failing(gate)) is None:
        return answer, gate
    at = sorted(range(len(steps)), key=lambda i: (sizes[i], i))[row]
    firsts = _firsts(model)
    worse = failed[at] if at in failed else made(at)
    wide, narrow = (_packed(one, model, firsts) for one in (answer, worse))
    exchanges = [
        Exchange(name, (wide[name][0].nbytes if name in wide else _bytes(model, name)) - q.nbytes, error,
                 wide[name][1] if name in wide else 0.0)
        for name, (q, error) in narrow.items() if firsts[name] == name
    ]  # fmt: skip
    mixed: dict[int, Any] = {}

    def mixture(names: Sequence[str]) -> Any:
        some = {**wide, **{name: q for name, q in narrow.items() if firsts[name] in names}}
        recipe = {escaped(name): q for name, (q, _) in some.items()}
        return convert(model, recipe, activations=options["activations"])

    def judged_mix(names: Sequence[str]) -> tuple[float, float | None]:
        def result() -> tuple[float, float | None]:
            small = mixture(names)
            score, ms = result_of(small)
            if score >= wanted:
                mixed[len(names)] = small
            return score, ms

        about = "mix", steps[at], None if chosen is None else steps[chosen], list(names)
        score, ms = kept.get(about, result)
        return score, ms

    size = bytes_of(model, {"*": None}, None, None) if chosen is None else sizes[chosen]
    names, gate = blended(gate, steps[at].text, size, exchanges, judged_mix, wanted, most)
    if not names:
        return answer, gate
    return mixed[len(names)] if len(names) in mixed else mixture(names), gate


def runner(inputs: Any) -> Callable[[Any], Any] | None:
    """Return the function that runs a model on the first batch; None without batches, or if they can be read once."""
    if inputs is None or isinstance(inputs, Calibration) or hasattr(inputs, "__next__"):
        return None
    source = Batches(inputs, "convert: inputs")
    first = next(iter(source))

    def run(model: Any) -> Any:
        with evaluating(model):
            return source.run(model, first, 0)

    return run


def _firsts(model: Any) -> dict[str, str]:
    """Return for each weight the first name of its parameter."""
    first: dict[int, str] = {}
    found = {}
    for layer in every_layer(model, "convert"):
        parameter = layer.module._parameters.get(layer.attribute)
        key = id(layer.module) if parameter is None else id(parameter)
        found[layer.name] = layer.name if parameter is None else first.setdefault(key, layer.name)
    return found


def _bytes(model: Any, name: str) -> int:
    path, _, attribute = name.rpartition(".")
    parameter = model.get_submodule(path)._parameters.get(attribute)
    return 0 if parameter is None else parameter.numel() * parameter.element_size()


def _packed(small: Any, model: Any, firsts: Mapping[str, str]) -> dict[str, tuple[Any, float]]:
    """Return the packed weights of a conversion of a model, each with its relative error: of the outputs, if known."""
    known = {row["name"]: 10 ** (-row["after"] / 10) for row in REPORTS[small].table} if small in REPORTS else {}
    floats = {layer.name: layer for layer in every_layer(model, "convert") if layer.packed is None}
    found = {}
    for layer in every_layer(small, "convert"):
        if layer.packed is None or layer.name not in floats:
            continue
        q, name = layer.packed.array(), firsts[layer.name]
        if name not in known:
            known[name] = relative_error(formed(floats[layer.name], weight_now(floats[layer.name])).numpy(), q)
        found[layer.name] = q, known[name]
    return found


def bytes_of(model: Any, formats: Any, include: Any, exclude: Any) -> int:
    """Return the bytes of the parameters of a model whose layers have formats; tied weights count once."""
    of_layer = matching({pattern: (fmt,) for pattern, fmt in recipe_of(formats, rotated=True).items()})
    total: int = sum(one.numel() * one.element_size() for one in model.parameters())
    done = set()
    for layer in layers(model, include, exclude):
        fmt, parameter = (of_layer(layer) or (None,))[0], layer.module._parameters.get(layer.attribute)
        if fmt is None or layer.problem or parameter is None or id(parameter) in done:
            continue
        done.add(id(parameter))
        total += stored_bytes(fmt, packed_shape(layer), form_axis(layer)) - parameter.numel() * parameter.element_size()
    return total
