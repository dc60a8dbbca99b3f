"""`convert`: a model with its layers replaced by packed ones."""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from ...arrays.quantized import QuantizedArray
from ...base import progress as asking
from ...base.errors import WrongType, WrongValue, shown
from ...base.progress import Progress
from ...base.texts import counted, quoted
from ...base.values import Rng, check_flag, seed_from
from ...files.recipes import with_recipe
from ...files.selection import escaped, patterns, unknown
from ...formats import Format, is_rotated
from ...products.arguments import as_format
from ...ptq.network import quantize as rounded_network
from .carrying import copied
from .folding import folded
from .forms import formed_of, packed_of, packed_shape, recipe_of, replaced, unsaved, weight_now
from .judging import Divided
from .learning.codes import learned
from .residual import residual
from .steps import REPORTS, Steps, accepted, biases_of, checked, judged_again, reported, take_parameters, without
from .turned import BLOCK, turned_by_format, turned_online
from .walk import OWN_FORWARD, WITH_RECIPE, Layer, check_matches, check_replaceable, every_layer, layers, matching
from .weights import PackedWeight, restored


def convert(
    model: torch.nn.Module,
    format: Format | str | Mapping[str, Format | str | None] | Any = None,
    *,
    activations: Format | str | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    inplace: bool = False,
    method: str = "rtn",
    inputs: object = None,
    smooth: float | str | None = None,
    rotate: str | None = None,
    clip: str | None = None,
    correct_bias: bool = False,
    steps: int | None = None,
    seed: int | None = None,
    rng: Rng = None,
    shrinkage: float = 0.0,
    accept: Callable[[Any], Any] | None = None,
    at_least: float | None = None,
    evaluations: int | None = None,
    mix: bool = False,
    recipe: str | os.PathLike[str] | Mapping[str, Format | str | None] | None = None,
    progress: Progress | bool | None = None,
    keep: str | os.PathLike[str] | None = None,
    **old: Any,
) -> Any:
    """Replace the layers of a model by layers with packed weights.

    Parameters
    ----------
    model : torch.nn.Module
        On the CPU. Weights computed by pruning or parametrizations are packed with their present values.
    format : Format, str, mapping, Plan or Rounded
        One format, or a recipe: pattern -> format. The first match applies; ``"skip"`` or None leaves a layer
        unchanged, and so does no match. A pattern may also map to the rounded weight itself, a QuantizedArray.
        `heterocompute.ptq.search` and `heterocompute.ptq.quantize` return such weights, which are packed as given.
    activations : Format or str, optional
        Round the inputs of each packed layer to this format.
    include, exclude : str or iterable of str, optional
        Patterns of names of weights or modules, as in `layers`.
    inplace : bool
        Change the model itself. By default the packed layers are put into a copy.
    method : {"rtn", "search", "awq", "gptq", "qronos", "learned"}
        Round to nearest; searched scales; or with inputs `heterocompute.ptq.gptq` or `qronos`. ``"awq"`` moves scales
        of inputs into the weights, as `smooth` does, by the root mean squares of the inputs, and then searches scales.
        ``"learned"`` begins each block of the model with the best of ``"gptq"`` and of ``"qronos"`` with several
        shrinkages on held-out batches, and moves its codes by the gradient of its outputs. It returns the result if the
        model has less error on these batches, otherwise that of ``"gptq"``.
        Except with ``"rtn"``, weights that are not multiplied, such as lookup tables, use searched scales.
    inputs : batches or Calibration, optional
        Batches for `heterocompute.ptq.calibrate`, or its result, of which ``"qronos"``, ``"awq"`` and `smooth` cannot
        use the latter. With inputs, `report` has the output error of each layer; with `accept` only if the method of
        the answer, or another option, reads them.
    smooth : float or "search", optional
        Before rounding, divide the inputs of linear layers by ``max|x|^a / max|w|^(1 - a)`` (SmoothQuant), and multiply
        the weights by it. The division is multiplied into the norm or linear layer before. "search" tries 0.1 to 0.9.
        The identity is always a candidate, by the error of the outputs with weights and activations rounded.
    rotate : {"residual", "online"}, optional
        Rotate by Hadamard matrices before rounding. ``"residual"`` folds a rotation of the residual stream into the
        weights that write and read it. The stream is found by running the first batch. ``"online"`` rotates the inputs
        of linear layers in the call, in blocks of 16 to 256, and their weights alike: `PackedTurnedLinear`. Rotations
        that do not reduce the error of the outputs of the model are left out, with weights and activations rounded to
        nearest, and for ``"online"`` also those that do not reduce the error of the outputs of a layer. With `rotate`,
        `smooth` or ``"awq"``, every fourth batch is held out. The steps are kept if the model has less error on the
        held-out batches than without them.
    clip : "search", optional
        Searched scales also with ``"rtn"``.
    correct_bias : bool
        Add to the biases of linear layers and convolutions the mean output that rounding loses.
    steps, seed : int, optional
        For ``"learned"``: maximum number of steps of each block, 200 by default, and the seed of the order of batches.
    rng : int or numpy.random.Generator, optional
        In place of `seed`: an int is the seed, a generator draws it (SPEC 7).
    shrinkage : float
        For ``"gptq"``, ``"qronos"`` and ``"learned"``: 0 or more, as in `heterocompute.ptq.gptq`. 0.1 rounds better on
        other inputs if there are few.
    accept : callable, optional
        ``accept(model)`` returns a number, the higher the better. `format` is then a ladder: a list of formats, recipes
        or pairs (format, method). The smallest one with a score of `at_least` is packed.
    at_least : float, optional
        The score that is good enough. Required with `accept`.
    evaluations : int, optional
        Maximum number of calls of `accept`.
    mix : bool
        With `accept`, then also try mixtures of the best recipe that fails with the answer, or with float layers, as in
        `heterocompute.ptq.accept`. It does not apply to `smooth`, ``"awq"`` and `correct_bias`.
    recipe : path, or mapping of str to (Format, str or None), optional
        As a mapping in `format`, also as a TOML file of `heterocompute.quantize_checkpoint`. Its patterns come before
        `format`.
    progress : callable or bool, optional
        As in `heterocompute.study`, before each layer that is rounded with inputs and before each learned block.
    keep : path, optional
        With `accept`: file of results, to which scores and times are appended, as in `heterocompute.ptq.accept`.

    Returns
    -------
    torch.nn.Module
        The copy, or the model. If the model itself is one layer, the packed layer. With `accept` a pair: the model,
        which is the unconverted one if no step of the ladder passes, and a `heterocompute.ptq.Gate`.

    Raises
    ------
    TypeError
        The model is not a module, or is not on the CPU.
    ValueError
        A pattern matches nothing, there is no layer to pack, or a format does not fit a weight. Also if no layer can
        take scales of `smooth` or ``"awq"``, or a rotation; the message has the layers and their reasons.

    Notes
    -----
    Xiao et al., "SmoothQuant", ICML 2023 (arXiv 2211.10438), equation 4. Lin et al., "AWQ", MLSys 2024 (arXiv
    2306.00978), section 3.2. Ashkboos et al., "QuaRot", NeurIPS 2024 (arXiv 2404.00456). Scales and rotations are moved
    only if the copy computes the outputs of the model on the first batch. ``"learned"`` makes the choice of AdaRound
    (Nagel et al., ICML 2020, arXiv 2004.10568) for blocks (Li et al., "BRECQ", ICLR 2021, arXiv 2102.05426), by steps
    that are undone if the error does not fall.

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    >>> small = convert(model, {"2": "int8", "*": "int4-g32"}, activations="int8")
    >>> small[0].weight.format, small[2].weight.format
    (Int(bits=4, group=32, symmetric=True, scale='f32'), Int(bits=8, group=None, symmetric=True, scale='f32'))
    """
    seed = seed_from("convert", seed, rng, None)
    tell = asking.reported(progress, "convert")
    found = every_layer(model, "convert")
    check_replaceable(model, "convert")
    if old:
        name = next(iter(old))
        new = "inputs" if name == "calibration" else "an argument of convert"
        raise WrongType(f"convert: there is no argument {name}, expected {new}")
    if recipe is not None:
        if accept is not None or at_least is not None:
            raise WrongValue("convert: recipe is given with accept, expected recipes as steps of the ladder in format")
        format = with_recipe(None if format is None else recipe_of(format, rotated=True), recipe)
    if accept is not None or at_least is not None:
        options = {"include": include, "exclude": exclude, "inplace": inplace, "inputs": inputs, "smooth": smooth}
        options |= {"rotate": rotate, "steps": steps, "seed": seed, "shrinkage": shrinkage}
        options |= {"activations": activations, "clip": clip, "correct_bias": correct_bias, "progress": tell}
        return accepted(convert, model, format, accept, at_least, evaluations, mix, method, options, keep)
    of_ladders = {"evaluations": evaluations is not None, "mix": mix is not False, "keep": keep is not None}
    if any(of_ladders.values()):
        raise WrongValue(f"convert: {max(of_ladders, key=lambda one: of_ladders[one])} is for a ladder with accept=")
    corrects = check_flag("convert", "correct_bias", correct_bias)
    how = checked(method, inputs, smooth, rotate, clip, inplace, corrects, steps, seed, shrinkage)
    table = recipe_of(format, rotated=True)
    if any(map(is_rotated, table.values())):
        if inplace or how.folds is not None or rotate is not None:
            what = "inplace" if inplace else "rotate" if rotate is not None else f"the method or smooth of {how.folds}"
            raise WrongValue(f"convert: {what} is given with a format that rotates (+had), expected one of them")
        model, table = turned_by_format(model, table, include, exclude)
        found = every_layer(model, "convert")
    if activations is not None:
        activations = as_format(activations, "convert: activations")
    settings = activations, include, exclude, how, tell
    if how.folds is None and rotate is None and not how.learns:
        return _packed(model, found, table, inputs, {}, inplace, *settings)
    parts, wide, moved = Divided(inputs), model, dict[str, Any]()
    if how.folds is not None or rotate is not None:
        wide, moved = _stepped(model, table, parts, rotate, clip, *settings)
    small = _packed(wide, every_layer(wide, "convert"), table, parts.chosen, moved, False, *settings)
    if any(row.get("rotated") or row.get("alpha") for row in moved.values()):
        plain = _packed(model, found, table, parts.chosen, without(moved), False, *settings)
        before, after = parts.errors(model, [plain, small])
        if after >= before:
            wide, small, moved = model, plain, without(moved)
    if inplace:
        take_parameters(model, wide)
        return _packed(model, found, table, parts.chosen, moved, True, *settings)
    if how.learns:
        start, small = small, learned(model, wide, small, parts, how.learns, how.seed, tell)
        if small is not start:
            REPORTS[small] = judged_again(REPORTS[start], wide, small, parts.chosen)
    return small


def _stepped(
    model: Any,
    table: Mapping[str, Any],
    batches: Divided,
    rotate: str | None,
    clip: str | None,
    activations: Format | None,
    include: Any,
    exclude: Any,
    how: Steps,
    progress: Progress | None,
) -> tuple[Any, dict[str, Any]]:
    """Return a copy of a model with moved scales and rotations, and the rows of its report."""
    of_format = matching({pattern: (fmt,) for pattern, fmt in table.items()})
    moved: dict[str, Any] = {}

    def sides() -> tuple[Any, Any, Any, Divided]:
        some = [one for one in layers(model, include, exclude) if not one.problem]
        return model, some, lambda one: (of_format(one) or (None,))[0], batches

    def nearest(one: Any) -> Any:
        return convert(one, table, activations=activations, include=include, exclude=exclude, clip=clip)

    if rotate == "residual":
        turns = residual(model, batches, nearest)
        model, moved = turns.model, turns.rows
    if how.folds is not None:
        wide = folded(*sides(), how.folds, how.alpha, activations, how.clip)
        model, moved = wide.model, {name: moved.get(name, {}) | row for name, row in wide.rows.items()}
    if rotate == "online":
        turns = turned_online(*sides(), activations, how.clip, nearest)
        model, moved = turns.model, {name: moved.get(name, {}) | row for name, row in turns.rows.items()}
    return model, moved


def _packed(
    model: Any,
    found: list[Layer],
    table: Mapping[str, Any],
    inputs: Any,
    moved: Mapping[str, Any],
    inplace: bool,
    activations: Format | None,
    include: Any,
    exclude: Any,
    how: Steps,
    progress: Progress | None,
) -> Any:
    """Round and pack the layers of a model whose scales and rotations are final."""
    heard: Any = None
    if inputs is not None:
        wanted_formats: Any = table
        more: dict[str, Any] = {"shrinkage": how.shrinkage} if how.shrinkage else {}
        heard = rounded_network(
            model,
            inputs,
            wanted_formats,
            include=include,
            exclude=exclude,
            held=False,
            method=how.rounding,
            progress=progress or False,
            **more,
        )
        unknown_use = {escaped(layer.name) for layer in found if layer.problem}  # such as routers of experts
        packable = {name: q for name, q in recipe_of(heard).items() if name not in unknown_use}
        table = {**packable, **table}
    wanted, unwanted = patterns(include), patterns(exclude)
    check_matches(model, found, (*wanted, *unwanted, *(table if list(table) != ["*"] else ())), "convert")
    included, excluded = (matching(dict.fromkeys(some, True)) for some in (wanted, unwanted))
    of_layer = matching({pattern: (fmt,) for pattern, fmt in table.items()})
    chosen, left = [], list[Layer]()
    for layer in found:
        fmt = (of_layer(layer) or (None,))[0]
        if fmt is None or layer.packed is not None or excluded(layer):
            continue
        if layer.problem:
            if isinstance(fmt, QuantizedArray):
                raise WrongValue(f"convert: {quoted(layer.name)} is rounded, but cannot be packed: {layer.problem}")
            if layer.problem == WITH_RECIPE and (included(layer) or not wanted):
                raise WrongValue(f"convert: {quoted(layer.name)}: {layer.problem}")
            if layer.problem.endswith(OWN_FORWARD) and (included(layer) or not wanted):
                left.append(layer)
            continue
        if wanted and not included(layer):
            continue
        chosen.append((layer, fmt))
    if not chosen:
        raise WrongValue(f"convert: no layer is left to pack: {_why_none(found)}")
    if left:
        warnings.warn(
            f"convert: {counted(len(left), 'layer')} left in floats, the first is {quoted(left[0].name)}: "
            f"{left[0].problem}. exclude= names them if this is meant",
            stacklevel=2,
        )
    weights = packed_weights(chosen, activations, how.rounding)
    picked = [layer for layer, _ in chosen]
    biases = biases_of(model, picked, weights, inputs) if how.corrects else {}
    if not inplace:
        model = _copy(model, picked, "convert")
    small = unsaved(replaced(model, picked, weights))
    for path, bias in biases.items():
        module = small.get_submodule(path)
        module.bias = torch.nn.Parameter(torch.from_numpy(bias).to(module.bias.dtype), module.bias.requires_grad)
    if heard is not None:
        REPORTS[small] = reported(heard, moved, biases)
    return small


def load_packed(
    model: torch.nn.Module, state: Mapping[str, torch.Tensor], *, strict: bool = True, inplace: bool = False
) -> Any:
    """Load the ``state_dict()`` of a converted model into an unconverted model.

    Parameters
    ----------
    model : torch.nn.Module
        The architecture, with any values. Parameters may be on the meta device.
    state : mapping of str to torch.Tensor
        State of a converted model, from ``torch.load(file, weights_only=True)`` or
        ``safetensors.torch.load_file(file)``.
    strict, inplace : bool
        As in `torch.nn.Module.load_state_dict` and `convert`. Tensors that a safetensors file leaves out for tied
        layers are copied from the layer that they are tied to.

    Returns
    -------
    torch.nn.Module

    Raises
    ------
    TypeError
        The model is not a module, or the state is not a mapping.
    ValueError
        The state holds no packed weight, or one for a missing layer or of another shape.
    RuntimeError
        Other tensors do not match, as in `torch.nn.Module.load_state_dict`.

    Notes
    -----
    Layers that are tied in the model and have different weights in the state are tied no longer.

    Examples
    --------
    >>> net = lambda: torch.nn.Sequential(torch.nn.Linear(64, 8))
    >>> state = convert(net(), "int4-g32").state_dict()
    >>> load_packed(net(), state)[0].weight
    PackedWeight(int4-g32, shape=(8, 64), 320 bytes)
    """
    found = every_layer(model, "load_packed")
    check_replaceable(model, "load_packed")
    if not isinstance(state, Mapping):
        raise WrongType(f"load_packed: state is {shown(state)}, expected a dict of tensors, as of torch.load")
    for key in state:
        if not isinstance(key, str):
            raise WrongType(f"load_packed: state has the key {shown(key)}, expected names")
    names = {key.removesuffix(".format") for key in state if key.endswith(".format")}
    if not names:
        raise WrongValue("load_packed: state has no packed weight, expected the state_dict() of a converted model")
    known = {layer.name: layer for layer in found}
    for name in names:
        if name not in known:
            raise WrongValue(f"load_packed: state has the packed weight {unknown(name, known, 'weight of the model')}")
    parts_of: dict[str, dict[str, torch.Tensor]] = defaultdict(dict)
    for key, part in state.items():
        name, _, end = key.rpartition(".")
        parts_of[name][end] = part
    same: dict[tuple[Any, ...], PackedWeight] = {}
    full = dict(state)
    chosen, weights = [], []
    for layer in sorted(found, key=lambda layer: layer.name not in names):  # layers without names in the file come last
        if layer.packed is not None or layer.name in state:  # floats: a tied layer that has no packed form
            continue
        parts, identity = parts_of.get(layer.name, {}), _identity(layer)
        weight = same.get(identity)
        if "format" in parts:
            q, activations = restored(parts, layer.name)
            wanted = packed_shape(layer)
            if tuple(q.shape) != wanted:
                raise WrongValue(f"load_packed: {layer.name} has shape {tuple(q.shape)}, expected {wanted}")
            own = PackedWeight(q, activations)
            if weight is None or weight.activations != own.activations or weight.array() != q:
                weight = own
            same.setdefault(identity, weight)
        if weight is not None:
            chosen.append(layer)
            weights.append(weight)
            full.update({f"{layer.name}.{part}": value for part, value in weight.state_dict().items()})
    blocks = {
        layer.path: int(state[key])
        for layer in chosen
        if layer.kind == "linear" and (key := f"{layer.path}.{BLOCK}".removeprefix(".")) in state
    }
    if inplace:
        _check_state(model, chosen, weights, full, strict, blocks)
    else:
        model = _copy(model, chosen, "load_packed")
    _untie(model, found, full)
    model = unsaved(replaced(model, chosen, weights, blocks))
    model.load_state_dict(full, strict, assign=any(one.is_meta for one in model.parameters()))
    return model


def _untie(model: Any, found: list[Layer], state: Mapping[str, Any]) -> None:
    """Give layers that are tied in a model, and have different floats in a state, parameters of their own."""
    first: dict[tuple[Any, ...], torch.Tensor] = {}
    for layer in found:
        floats, parameter = state.get(layer.name), layer.module._parameters.get(layer.attribute)
        if parameter is None or not isinstance(floats, torch.Tensor):
            continue
        other = first.setdefault(_identity(layer), floats)
        if other is not floats and other.shape == floats.shape and not torch.equal(other, floats):
            own = torch.nn.Parameter(torch.empty_like(parameter), parameter.requires_grad)
            model.get_submodule(layer.path)._parameters[layer.attribute] = own


def _check_state(
    model: Any,
    chosen: list[Layer],
    weights: list[PackedWeight],
    state: Mapping[str, Any],
    strict: bool,
    blocks: Mapping[str, int],
) -> None:
    """Raise errors of loading a state before the model changes, by loading into a copy without weights."""
    memo: dict[int, Any] = {}
    packed = {id(layer.module._parameters.get(layer.attribute)) for layer in chosen}
    for one in (*model.parameters(), *model.buffers()):
        made = torch.empty_like(one, device="meta" if id(one) in packed else None)
        memo[id(one)] = torch.nn.Parameter(made, one.requires_grad) if isinstance(one, torch.nn.Parameter) else made
    try:
        trial = copied(model, memo, (), "load_packed")
    except ValueError:  # it cannot be copied
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the second time warns as well
        replaced(trial, chosen, weights, blocks).load_state_dict(state, strict)


def _why_none(found: list[Layer]) -> str:
    reasons = [f"{quoted(layer.name)}: {layer.problem or 'packed already'}" for layer in found]
    reasons = [one for layer, one in zip(found, reasons, strict=True) if layer.problem or layer.packed is not None]
    return reasons[0] if reasons else ("the patterns leave out all" if found else "the model has no weights")


def packed_weights(
    chosen: list[tuple[Layer, Format | QuantizedArray]], activations: Format | None, method: str = "rtn"
) -> list[PackedWeight]:
    """Return the packed weight of each layer; tied layers with one format have the same."""
    known: dict[Any, PackedWeight] = {}
    found = []
    for layer, fmt in chosen:
        way = id(fmt) if isinstance(fmt, QuantizedArray) else fmt
        key = (*_identity(layer), way, layer.axis, layer.kind.startswith("conv_t"))
        if key not in known:
            try:
                if isinstance(fmt, QuantizedArray):
                    q = formed_of(layer, fmt)
                else:
                    q = packed_of(layer, weight_now(layer), fmt, method)
            except ValueError as problem:
                raise WrongValue(f"convert: {quoted(layer.name)}: {problem}") from None
            known[key] = PackedWeight(q, activations)
        found.append(known[key])
    return found


def _identity(layer: Layer) -> tuple[Any, ...]:
    """Return a key that is equal for tied layers: from the parameter, or from the module that computes the weight."""
    parameter = layer.module._parameters.get(layer.attribute)
    return (id(layer.module), layer.attribute) if parameter is None else (id(parameter),)


def _copy(model: Any, chosen: list[Layer], name: str) -> Any:
    """Return a copy of a model without copying the weights that are replaced, unless another layer is tied to them."""
    memo: dict[int, Any] = {}
    own = {(id(layer.module), layer.attribute) for layer in chosen}
    kept = {id(parameter) for module in model.modules() for attribute, parameter in module._parameters.items()
            if (id(module), attribute) not in own}  # fmt: skip
    for layer in chosen:
        parameter = layer.module._parameters.get(layer.attribute)
        if parameter is not None and id(parameter) not in kept:
            memo[id(parameter)] = parameter
    for module in model.modules():  # results of hooks: PyTorch cannot copy such a tensor
        for value in module.__dict__.values():
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach()
    return copied(model, memo, (layer.module for layer in chosen), name)
