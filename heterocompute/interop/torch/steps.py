"""The steps of `convert` around the packing of layers: checks, biases, the search of a ladder, the report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from ...arrays.components import stored_bytes
from ...base.errors import WrongType, WrongValue, shown
from ...base.values import as_int, as_real
from ...formats.base import or_words
from ...ptq.adjust import correct_bias
from ...ptq.calibration import Calibration
from ...ptq.gate import Gate, climb, ladder_of, scored
from ...ptq.methods import CALIBRATED
from ...ptq.network import Rounded, calibrate
from .forms import form_axis, formed, packed_shape, recipe_of, weight_now
from .walk import Layer, layers, matching
from .weights import PackedWeight

METHODS = ("rtn", "search", "awq", *CALIBRATED)
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
        are then of the model with moved scales. With `correct_bias` also ``bias``.

    Raises
    ------
    ValueError
        The model was not converted with inputs.

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
        raise WrongValue("report: model was not converted with inputs=, expected the result of such a convert")
    return REPORTS[model]


@dataclass(frozen=True)
class Steps:
    """Checked steps of a conversion."""

    rounding: str
    folds: str | None
    alpha: Any
    clip: str | None
    corrects: bool


def checked(method: Any, inputs: Any, smooth: Any, clip: Any, corrects: bool) -> Steps:
    if method not in METHODS:
        raise WrongValue(f"convert: method is {shown(method)}, expected {or_words(METHODS)}")
    if clip not in (None, "search"):
        raise WrongValue(f"convert: clip is {shown(clip)}, expected None or 'search'")
    if method == "awq" and smooth is not None:
        raise WrongValue("convert: smooth and method='awq' both move scales of inputs, expected one of them")
    needs = f"method={shown(method)}" if method in ("awq", *CALIBRATED) else "smooth" if smooth is not None else None
    needs = "correct_bias" if needs is None and corrects else needs
    if needs is not None and inputs is None:
        raise WrongValue(f"convert: inputs is missing, expected the batches for {needs}")
    if isinstance(inputs, Calibration) and (method in ("awq", "qronos") or smooth is not None):
        raise WrongValue(f"convert: inputs is what calibrate returned, but {needs} runs the model: pass the batches")
    rounding = "search" if method == "awq" or (method == "rtn" and clip == "search") else method
    folds = "awq" if method == "awq" else "smooth" if smooth is not None else None
    return Steps(rounding, folds, "search" if method == "awq" else smooth, clip if clip else
                "search" if method == "awq" else None, corrects)  # fmt: skip


def take_parameters(model: Any, small: Any) -> None:
    """Replace the parameters of a model by those of its copy with moved scales."""
    for old, new in zip(model.modules(), small.modules(), strict=True):
        old._parameters.update(new._parameters)


def same_layer(model: Any, layer: Layer) -> Layer:
    return dataclasses.replace(layer, module=model.get_submodule(layer.path))


def biases_of(model: Any, picked: list[Layer], weights: list[PackedWeight], inputs: Any) -> dict[str, Any]:
    """Return the corrected bias of each layer that has one and whose inputs were recorded, by path."""
    hessians = inputs if isinstance(inputs, Calibration) else calibrate(model, inputs, held=False)
    found = {}
    for layer, weight in zip(picked, weights, strict=True):
        bias, h = layer.module._parameters.get("bias"), hessians.get(layer.name)
        if bias is not None and h is not None and (layer.kind == "linear" or layer.kind in CONVOLUTIONS):
            w = formed(layer, weight_now(layer)).numpy()
            found[layer.path] = correct_bias(w, weight.array(), h, bias.detach().float().numpy())
    return found


def reported(heard: Rounded, moved: Mapping[str, Any], biases: Mapping[str, Any]) -> Rounded:
    table = []
    for row in heard.table:
        more = dict(moved.get(row["name"], {"alpha": None, "left": "it is no linear layer"})) if moved else {}
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
    method: str,
    options: dict[str, Any],
) -> tuple[Any, Gate]:
    """Return the smallest conversion of a ladder that is good enough."""
    if not callable(accept):
        raise WrongType(f"convert: accept is {shown(accept)}, expected a function of the model")
    if at_least is None:
        raise WrongValue("convert: at_least is missing, expected the score that is good enough")
    if options["inplace"]:
        raise WrongValue("convert: inplace is for one format, not for a ladder with accept=")
    wanted = as_real(at_least, "convert: at_least", "a number")
    most = None if evaluations is None else as_int(evaluations, "convert: evaluations", 1)
    steps = ladder_of(ladder, method, "convert", METHODS)
    best: dict[int, Any] = {}

    def judged(i: int) -> float:
        small = convert(model, steps[i].formats, method=steps[i].method, **options)
        score = scored(accept, small, "convert")
        if score >= wanted:  # only the smallest is kept
            best.clear()
            best[i] = small
        return score

    sizes = [bytes_of(model, step.formats, options["include"], options["exclude"]) for step in steps]
    chosen, gate = climb(steps, sizes, judged, wanted, most)
    return (model if chosen is None else best[chosen]), gate


def bytes_of(model: Any, formats: Any, include: Any, exclude: Any) -> int:
    """Return the bytes of the parameters of a model whose layers have formats; tied weights count once."""
    of_layer = matching({pattern: (fmt,) for pattern, fmt in recipe_of(formats).items()})
    total: int = sum(one.numel() * one.element_size() for one in model.parameters())
    done = set()
    for layer in layers(model, include, exclude):
        fmt, parameter = (of_layer(layer) or (None,))[0], layer.module._parameters.get(layer.attribute)
        if fmt is None or layer.problem or parameter is None or id(parameter) in done:
            continue
        done.add(id(parameter))
        total += stored_bytes(fmt, packed_shape(layer), form_axis(layer)) - parameter.numel() * parameter.element_size()
    return total
