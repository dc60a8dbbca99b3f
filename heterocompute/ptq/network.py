"""Whole networks: `calibrate` gathers the inputs of each layer, `quantize` rounds every layer for its inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from math import inf
from typing import Any

import numpy as np

from ..arrays.base import PackedArray
from ..arrays.dense import as_array
from ..arrays.foreign import as_exported, exports_dlpack, refuse_elsewhere
from ..arrays.quantized import QuantizedArray
from ..arrays.rotated import RotatedArray
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import call_back, counts_subnormals
from ..base.keeping.results import KeptResults
from ..base.lazy import renamed
from ..base.modules import is_module
from ..base.progress import Progress, Steps
from ..base.values import check_flag, check_number
from ..base.version import __version__
from ..files.opening import check_weights
from ..files.selection import FirstMatch, check_patterns, select
from ..formats import Format
from ..products.arguments import as_format
from .calibration import Calibration
from .error import layer_error
from .hessian import Hessian
from .layer import check_options, round_layer, rounded_to
from .options import Options
from .recorder import Kept, Maker, Paired, Recorder, plain_sums
from .results.weighed import Rounded, kept_codes

__all__ = ["Calibration", "Rounded", "calibrate", "quantize"]

Array = np.ndarray[Any, Any]
Evaluate = Callable[..., Any]
MEMORY = 1 << 30  # bytes of Hessians at a time


def _network(weights: Any, evaluate: Evaluate | None, name: str) -> tuple[dict[str, Any], Evaluate]:
    if evaluate is None and hasattr(weights, "weights"):
        evaluate = weights.evaluate
    found = getattr(weights, "weights", weights)
    if not isinstance(found, Mapping):
        raise WrongType(f"{name}: weights are {shown(weights)}, expected a mapping of names to arrays, or a network")
    if not callable(evaluate):
        raise WrongType(f"{name}: inputs is {shown(evaluate)}, expected a function of the weights")
    check_weights(found, name)
    return dict(found), partial(call_back, evaluate)


def chosen_arrays(
    arrays: Mapping[str, Any], include: Any, exclude: Any, name: str, left: Collection[str] = ()
) -> dict[str, Array]:
    """Return the arrays to round as ndarrays, checked once for all that follows.

    Parameters
    ----------
    include, exclude : str or iterable of str, optional
        As in `heterocompute.files.selection.select`.
    name : str
        Name of the caller, for errors.
    left : collection of str, optional
        Names of tensors that are no matrices.
    """
    plain = {}
    for key, value in arrays.items():
        if not isinstance(value, PackedArray):
            words = f"{name}: weights[{shown(key)}]"
            refuse_elsewhere(value, words)
            lent = exports_dlpack(value) and not isinstance(value, np.ndarray)
            plain[key] = as_exported(value, words) if lent else np.asarray(value)
    infos = {key: (value.dtype.name, value.shape) for key, value in plain.items()}
    chosen = select(infos, include, exclude, plain=left)
    return {key: as_array(plain[key], f"{name}: {key}") for key in chosen}


def tied(arrays: Mapping[str, Any]) -> dict[str, str]:
    """Return, for each name, the first name of an array with the same memory."""
    first: dict[Any, str] = {}
    found = {}
    for name, value in arrays.items():
        key: Any = id(value)
        if isinstance(value, np.ndarray):
            key = (value.__array_interface__["data"][0], value.shape, value.strides, value.dtype.str)
        found[name] = first.setdefault(key if value is not None else name, name)
    return found


@renamed(evaluate="inputs")
@counts_subnormals
def calibrate(
    weights: Any,
    inputs: Any = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    held: Any = None,
    rounded: Mapping[str, Any] | None = None,
    progress: Progress | bool | None = None,
) -> Calibration:
    """Collect the Hessian of every layer in one run of the network.

    Parameters
    ----------
    weights : mapping of str to array_like, network with `weights` and `evaluate`, or torch.nn.Module
    inputs : callable, or the batches of a module
        Runs the network on the calibration inputs. It is called once as ``inputs(weights)``. The weights record the
        inputs that `hc.linear`, `hc.matmul`, `hc.conv2d`, ``@`` and `numpy.matmul` multiply them with. The return value
        is ignored. A module needs batches instead: a DataLoader, a list of tensors, tuples or dicts, one tensor, one
        dict, or a function without arguments that returns batches. One batch is in memory at a time. Tokens that an
        ``attention_mask`` marks as padding are left out.
    include, exclude : str or iterable of str, optional
        Globs of names. Default: float arrays with two or more dimensions.
    held : batches, optional
        For a module: held-out batches (`Calibration.held`). Default: every fourth batch. False: none.
    rounded : mapping of str to QuantizedArray or array, optional
        Rounded weights by name. The Hessians then have the inputs of the network with these weights and, as `cross` and
        `unrounded`, those of the unrounded network, which runs first. Its inputs are kept: those of all selected
        weights in one run, for a module in one batch. `qronos` and `gptq` correct for the difference.
    progress : callable or bool, optional
        As in `heterocompute.study`, with one step per batch of a module, otherwise one per run of the network.

    Returns
    -------
    Calibration
        A dict of name to `Hessian`, without weights that were never multiplied.

    Raises
    ------
    TypeError
        weights or inputs has the wrong type.
    ValueError
        The inputs of a layer hold a NaN or an infinity, or a weight is multiplied along two of its axes.

    Notes
    -----
    A convolution with several groups has one matrix per group. Names of the same array, such as an embedding that is
    also the output's weight, share one Hessian.

    Examples
    --------
    >>> import heterocompute as hc
    >>> net = hc.zoo.digits()
    >>> hs = hc.ptq.calibrate(net.weights, lambda weights: net.forward(weights, net.train_x[:8]))
    >>> {name: h.k for name, h in hs.items()}
    {'conv1.weight': 9, 'conv2.weight': 288, 'conv3.weight': 576, 'fc1.weight': 256, 'fc2.weight': 64}
    """
    if is_module(weights):
        from ..interop.models.calibration import calibrated  # optional: torch

        return calibrated(weights, inputs, include, exclude, held, rounded=rounded, progress=progress)
    if held is not None:
        raise WrongValue("calibrate: held is for a torch.nn.Module and its batches; pass what calibrate returns of "
                         "other inputs to quantize(held=)")  # fmt: skip
    step = Steps(1 if rounded is None else 2, progress, "calibrate")
    found, run = _network(weights, inputs, "calibrate")
    selected = chosen_arrays(found, include, exclude, "calibrate")

    def call(arrays: Mapping[str, Any]) -> None:
        step("a run of the network")
        run(arrays)

    if rounded is None:
        answer = _recorded_hessians(found, call, selected, tied(found))
        step.finish()
        return answer
    if not isinstance(rounded, Mapping) or (others := {*rounded} - {*found}):
        given = shown(rounded) if not isinstance(rounded, Mapping) else f"a mapping with {shown(min(others))}"
        raise WrongValue(f"calibrate: rounded is {given}, expected rounded weights by the names of weights")
    answer = _paired_hessians(found, rounded, call, selected, tied(found))
    step.finish()
    return answer


def _paired_hessians(
    arrays: Mapping[str, Any],
    rounded: Mapping[str, Any],
    call: Evaluate,
    selected: Mapping[str, Array],
    twins: Mapping[str, str],
) -> Calibration:
    """Run the unrounded and then the rounded network, and record the inputs of both; those of the first are kept."""
    kept: dict[str, dict[tuple[int, ...], Kept]] = {twins[name]: {} for name in selected}

    def keeping(name: str) -> Maker:
        return lambda axes, k, groups: kept[twins[name]].setdefault(axes, Kept())

    def pairing(name: str) -> Maker:
        def made(axes: tuple[int, ...], k: int, groups: int) -> Paired:
            return Paired(Hessian(k, groups), kept[twins[name]].get(axes, Kept()).parts)

        return made

    _recorded(arrays, call, selected, twins, keeping)
    values = {name: rounded[name] for name in selected if name in rounded and rounded[name] is not selected[name]}
    values = {name: one._values() if isinstance(one, PackedArray) else one for name, one in values.items()}
    small = {name: as_array(values.get(name, one), f"calibrate: {name}") for name, one in selected.items()}
    return _recorded_hessians({**arrays, **rounded}, call, small, twins, pairing)


def _recorded_hessians(
    arrays: Mapping[str, Any],
    call: Evaluate,
    selected: Mapping[str, Array],
    twins: Mapping[str, str],
    make: Callable[[str], Maker] = lambda name: plain_sums,
) -> Calibration:
    """Run a network once while some of its weights record their inputs."""
    recorders = _recorded(arrays, call, selected, twins, make)
    answer = Calibration()
    answer.axes = {}
    for name, recorder in recorders.items():
        try:
            recorded = recorder.recorded
        except ValueError as problem:
            raise WrongValue(f"calibrate: {shown(name)} {problem}") from None
        if recorded is not None:
            answer.axes[name], sums = recorded
            answer[name] = sums.hessian if isinstance(sums, Paired) else sums
    return answer


def _recorded(
    arrays: Mapping[str, Any],
    call: Evaluate,
    selected: Mapping[str, Array],
    twins: Mapping[str, str],
    make: Callable[[str], Maker],
) -> dict[str, Recorder]:
    recorders: dict[str, Recorder] = {}
    for name, array in selected.items():
        recorders[name] = Recorder.of(array, name, recorders.get(twins[name]), make(name))
    call({**arrays, **recorders})
    return recorders


@renamed(evaluate="inputs", formats="format")
@counts_subnormals
def quantize(
    weights: Any,
    inputs: Any = None,
    format: Format | str | Mapping[str, Format | str | None] | None = None,
    sequential: bool = False,
    held: Any = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    progress: Progress | bool | None = None,
    method: str = "gptq",
    memory: int = MEMORY,
    recipe: str | os.PathLike[str] | Mapping[str, Format | str | None] | None = None,
    keep: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Rounded:
    """Round every layer of a network with calibration inputs.

    Parameters
    ----------
    weights, inputs, include, exclude
        As in `calibrate`. For a module, the second argument may also be the result of `calibrate`.
    format : Format, str or mapping of str to these
        One format, or pattern -> format or None; the first match applies. Weights without a match are unchanged.
        Default without a recipe: ``"int4-g32"``.
    sequential : bool
        Calibrate each layer after rounding the layers before it, with one run of the network per layer; for a module
        with one run of the layer's block, where blocks follow each other.
    held : mapping of str to Hessian, optional
        Result of `calibrate` on held-out inputs, for the report. For a module also batches. Default for a module: every
        fourth of its batches.
    progress : callable or bool, optional
        As in `heterocompute.study`. Called as ``progress(done, total, text)`` before each tensor, and once at the end.
    method : {"gptq", "qronos", "search", "rtn"}
        ``"qronos"`` calibrates each layer after rounding the layers before it, with its inputs in both networks:
        `sequential` is always True, and the unrounded network runs once per layer, too. Memory: the inputs of one layer
        in one run, for a module in one batch. ``"search"`` and ``"rtn"`` round each weight without inputs, see
        `heterocompute.study`. The report is the same.
    memory : int
        For a module: bytes of Hessians at a time. The model runs over the batches once for as many layers as fit. Also
        the bytes of the inputs of one block that `sequential` keeps; if they do not fit, it runs the whole model.
    recipe : path, or mapping of str to (Format, str or None), optional
        Pattern -> format, ``"skip"`` or None, also as a TOML file of `heterocompute.quantize_checkpoint`. Its patterns
        come before `format`.
    keep : path, optional
        File of results, as in `heterocompute.study`: the codes of each tensor are appended as soon as they are known,
        and not computed again for the same weights and inputs.
    **options
        `order`, `scales`, `damping`, `sweeps`, `refit` and `shrinkage` of `gptq` or `qronos`; `accumulator`,
        `activations` and `tile` of `gptq`.

    Notes
    -----
    Names of the same array share one format. The array is rounded once, with the inputs of all its names.

    Returns
    -------
    Rounded
        ``print(answer)`` shows its table.

    Raises
    ------
    TypeError, ValueError
        As in `calibrate` and `gptq`; the message names the weight. Also if an option is unknown, or one array has
        several formats.

    Examples
    --------
    >>> import heterocompute as hc
    >>> net = hc.zoo.digits()
    >>> run = lambda weights: net.forward(weights, net.train_x[:8])
    >>> found = hc.ptq.quantize(net.weights, run, {"fc*": "int3-g16"})
    >>> sorted(row["name"] for row in found.table)
    ['fc1.weight', 'fc2.weight']
    >>> all(row["after"] > row["before"] for row in found.table)
    True
    """
    how = check_options(options, "quantize", method)
    format = rounded_to(format, recipe)
    sequential = check_flag("quantize", "sequential", sequential) or method == "qronos"
    memory = int(check_number("quantize", "memory", memory))
    round_ = partial(_round, how=how, kept=KeptResults(keep, "quantize"))
    if is_module(weights):
        from ..interop.models.rounding import rounded  # optional: torch

        of_weights = partial(round_layers, round_=round_, progress=progress)
        found: Rounded = rounded(
            weights, inputs, format, of_weights, sequential, held, include, exclude, memory, method == "qronos"
        )
        return found
    arrays, call = _network(weights, inputs, "quantize")
    layers, twins = chosen_arrays(arrays, include, exclude, "quantize"), tied(arrays)
    groups = [_recorded_hessians(arrays, call, layers, twins)]
    if held is not None and not isinstance(held, Mapping):
        raise WrongType(f"quantize: held is {shown(held)}, expected what calibrate returns")

    def again(rounded: Mapping[str, Any], names: list[str]) -> Calibration:
        some = {name: layers[name] for name in names}
        if method == "qronos":
            return _paired_hessians({**arrays, **layers}, rounded, call, some, twins)
        return _recorded_hessians(rounded, call, some, twins)

    match = _formats_of(format, arrays)
    return round_layers(
        {**arrays, **layers}, list(layers), groups, held, again if sequential else None, match, round_, progress
    )


def round_layers(
    arrays: Mapping[str, Any],
    names: list[str],
    groups: Iterable[Calibration],
    held: Mapping[str, Hessian] | None,
    again: Callable[..., Calibration] | None,
    match: Callable[[str], Format | None],
    round_: Callable[..., Any],
    progress: Progress | bool | None,
) -> Rounded:
    """Round the weights whose inputs were recorded, some at a time.

    Parameters
    ----------
    arrays : mapping of str to array
        All weights.
    names : list of str
        Those to round: float arrays that were checked, or quantized ones.
    groups : iterable of Calibration
        Their Hessians.
    held : mapping of str to Hessian, optional
        To judge by; else `Calibration.held` of each group.
    again : callable, optional
        ``again(weights, names=names)`` calibrates with what is rounded so far.
    match : callable
        From a name to its format, None where it stays as it is.
    round_ : callable
        Rounds one weight.
    progress : callable, optional
        As in `quantize`.
    """
    answer, twins, recorded = dict(arrays), tied(arrays), set[str]()
    table: list[dict[str, Any]] = []
    last: tuple[Hessian, Hessian] | None = None  # of unrounded inputs, and of those with rounded layers before
    step = Steps(sum(match(name) is not None for name in names), progress, "quantize")
    for hessians in groups:
        recorded.update(hessians)
        judges = hessians.held if held is None else held
        chosen = {name: fmt for name in hessians if (fmt := match(name)) is not None}
        for name, fmt in chosen.items():
            if chosen.get(twins[name], fmt) != fmt:
                raise WrongValue(
                    f"quantize: {shown(twins[name])} and {shown(name)} are one array, expected one format for both"
                )
        for name, fmt in chosen.items():
            step(f"{name}  {fmt}")
            if (
                isinstance(answer[twins[name]], (QuantizedArray, RotatedArray))
                and twins[name] in chosen
                and twins[name] != name
            ):
                answer[name] = answer[twins[name]]
                continue
            h, axis = hessians[name], hessians.axes[name]
            if again is not None and table:
                if last is None or not last[0].equals(hessians[name]):
                    h = again(answer, names=[one for one in chosen if twins[one] == twins[name]])[name]
                    last = hessians[name], h
                else:  # the same inputs as those of the weight before
                    h = last[1]
            try:
                answer[name], report = round_(name, arrays[name], fmt, axis, h, (judges or {}).get(name))
            except ValueError as problem:
                raise WrongValue(f"quantize: {shown(name)}: {problem}") from None
            table.append({"name": name, "format": str(fmt), **report})
    step.finish()
    return Rounded(answer, table, [name for name in names if name not in recorded and match(name) is not None])


def _round(
    name: str,
    value: Any,
    fmt: Format,
    axis: tuple[int, ...],
    h: Hessian,
    judge: Hessian | None,
    how: Options,
    kept: KeptResults,
) -> tuple[Any, dict[str, Any]]:
    """Round one weight, and return a report. A weight that was trained in the format is unchanged."""
    held = ("held_before", "held_after") if judge is not None else ()
    if isinstance(value, (QuantizedArray, RotatedArray)) and (value.format, value.axis) == (fmt, axis):
        lost = dict.fromkeys(("before", "after", *held), inf)
        return value, {"tokens": h.tokens, "damping": 0.0, "dead": 0, **lost}
    w = value.dequantize() if isinstance(value, (QuantizedArray, RotatedArray)) else value

    def computed() -> tuple[Any, dict[str, Any]]:
        q, plain, report = round_layer(w, h, fmt, axis, how)
        for key, one in zip(held, (plain, q), strict=False):
            report[key] = layer_error(w, one, judge).output_db
        return q, report

    inputs = [None if one is None else one.facts() for one in (h, judge)] if kept else []
    return kept_codes(kept, fmt, (__version__, w, fmt, axis, how, *inputs), computed)


def _formats_of(formats: Any, names: Iterable[str]) -> FirstMatch[Format | None]:
    """Return the format of each name; ValueError for an entry that matches no tensor."""
    texts = formats if isinstance(formats, Mapping) else {"*": as_format(formats, "quantize: format", rotated=True)}
    check_patterns(names, texts)
    return FirstMatch(
        {
            pattern: None if fmt is None else as_format(fmt, "quantize: format", rotated=True)
            for pattern, fmt in texts.items()
        }
    )
