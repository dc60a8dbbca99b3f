"""`convert`: a model with its layers replaced by packed ones."""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import torch

from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongType, WrongValue, shown
from ...base.texts import quoted
from ...files.selection import escaped, patterns, unknown
from ...formats import Format
from ...formats.base import or_words
from ...products.arguments import as_format
from ...ptq.methods import METHODS
from ...ptq.network import quantize as rounded_network
from . import modules
from .attention import PackedMultiheadAttention
from .carrying import carry, copied
from .forms import formed_of, packed_of, packed_shape, recipe_of, weight_now
from .modules import Packed
from .walk import Layer, check_matches, check_replaceable, every_layer, matching
from .weights import PackedWeight, restored


def convert(
    model: torch.nn.Module,
    format: Format | str | Mapping[str, Format | str | None] | Any,
    *,
    activations: Format | str | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    inplace: bool = False,
    method: str = "rtn",
    calibration: object = None,
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
    method : {"rtn", "search", "gptq"}
        Round to nearest; searched scales; or `heterocompute.ptq.gptq` with calibration inputs. With ``"gptq"``, weights
        that are not multiplied, such as lookup tables, use searched scales.
    calibration : batches or Calibration, optional
        Required by ``"gptq"``: batches for `heterocompute.ptq.calibrate`, or its result.

    Returns
    -------
    torch.nn.Module
        The copy, or the model. If the model itself is one layer, the packed layer.

    Raises
    ------
    TypeError
        The model is not a module, or is not on the CPU.
    ValueError
        A pattern matches nothing, there is no layer to pack, or a format does not fit a weight.

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    >>> small = convert(model, {"2": "int8", "*": "int4-g32"}, activations="int8")
    >>> small[0].weight.format, small[2].weight.format
    (Int(bits=4, group=32, symmetric=True, scale='f32'), Int(bits=8, group=None, symmetric=True, scale='f32'))
    """
    found = every_layer(model, "convert")
    check_replaceable(model, "convert")
    if method not in METHODS:
        raise WrongValue(f"convert: method is {shown(method)}, expected {or_words(METHODS)}")
    if method == "gptq" and calibration is None:
        raise WrongValue("convert: calibration is missing, expected the batches that method='gptq' rounds under")
    if method != "gptq" and calibration is not None:
        raise WrongValue(f"convert: calibration is for method='gptq', not for {shown(method)}")
    recipe = recipe_of(format)
    if method == "gptq":
        wanted_formats: Any = recipe
        heard = rounded_network(model, calibration, wanted_formats, include=include, exclude=exclude, held=False)
        unknown_use = {escaped(layer.name) for layer in found if layer.problem}  # such as routers of experts
        packable = {name: q for name, q in recipe_of(heard).items() if name not in unknown_use}
        recipe = {**packable, **recipe}
    wanted, unwanted = patterns(include), patterns(exclude)
    check_matches(model, found, (*wanted, *unwanted, *(recipe if list(recipe) != ["*"] else ())), "convert")
    if activations is not None:
        activations = as_format(activations, "convert: activations")
    included, excluded = (matching(dict.fromkeys(some, True)) for some in (wanted, unwanted))
    of_layer = matching({pattern: (fmt,) for pattern, fmt in recipe.items()})
    chosen = []
    for layer in found:
        fmt = (of_layer(layer) or (None,))[0]
        if fmt is None or layer.packed is not None or excluded(layer):
            continue
        if layer.problem:
            if isinstance(fmt, QuantizedArray):
                raise WrongValue(f"convert: {quoted(layer.name)} is rounded, but cannot be packed: {layer.problem}")
            continue
        if wanted and not included(layer):
            continue
        chosen.append((layer, fmt))
    if not chosen:
        raise WrongValue(f"convert: no layer is left to pack: {_why_none(found)}")
    weights = packed_weights(chosen, activations, method)
    picked = [layer for layer, _ in chosen]
    if not inplace:
        model = _copy(model, picked, "convert")
    return unsaved(replaced(model, picked, weights))


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
        if "format" in parts and identity not in same:
            q, activations = restored(parts, layer.name)
            wanted = packed_shape(layer)
            if tuple(q.shape) != wanted:
                raise WrongValue(f"load_packed: {layer.name} has shape {tuple(q.shape)}, expected {wanted}")
            same[identity] = PackedWeight(q, activations)
        if identity in same:
            chosen.append(layer)
            weights.append(same[identity])
            full.update({f"{layer.name}.{part}": value for part, value in same[identity].state_dict().items()})
    if inplace:
        _check_state(model, chosen, weights, full, strict)
    else:
        model = _copy(model, chosen, "load_packed")
    model = unsaved(replaced(model, chosen, weights))
    model.load_state_dict(full, strict, assign=any(one.is_meta for one in model.parameters()))
    return model


def _check_state(
    model: Any, chosen: list[Layer], weights: list[PackedWeight], state: Mapping[str, Any], strict: bool
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
        replaced(trial, chosen, weights).load_state_dict(state, strict)


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
    """Return a copy of a model without copying the weights that are replaced."""
    memo: dict[int, Any] = {}
    for layer in chosen:
        parameter = layer.module._parameters.get(layer.attribute)
        if parameter is not None:
            memo[id(parameter)] = parameter
    for module in model.modules():  # results of hooks: PyTorch cannot copy such a tensor
        for value in module.__dict__.values():
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach()
    return copied(model, memo, (layer.module for layer in chosen), name)


BUILDERS: dict[str, Any] = {
    "linear": modules.PackedLinear,
    "embedding": modules.PackedEmbedding,
    "embedding_bag": modules.PackedEmbeddingBag,
    **{f"conv{n}d": getattr(modules, f"PackedConv{n}d") for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": getattr(modules, f"PackedConvTranspose{n}d") for n in (1, 2, 3)},
}


def replaced(model: Any, chosen: list[Layer], weights: list[PackedWeight]) -> Any:
    """Put packed layers into a model; return the model."""
    made: dict[int, Any] = {}
    for layer, weight in zip(chosen, weights, strict=True):
        old = model.get_submodule(layer.path)
        if layer.kind not in BUILDERS:  # the module stays, and its weight is replaced
            old._parameters.pop(layer.attribute, None)
            setattr(old, layer.attribute, weight)
            if layer.kind == "experts":
                _use_own_forward(old)
            continue
        if isinstance(old, Packed):  # the same module at a second place of the model
            continue
        new = made.get(id(old))
        if new is None:
            new = made[id(old)] = carry(old, BUILDERS[layer.kind].from_module(old, weight))
        if not layer.path:
            return new
        parent, _, name = layer.path.rpartition(".")
        setattr(model.get_submodule(parent), name, new)
    for module in model.modules():
        if type(module).forward is torch.nn.MultiheadAttention.forward:
            if any(isinstance(one, (Packed, PackedWeight)) for one in module._modules.values()):
                module.__class__ = PackedMultiheadAttention
    return model


class _Unsaved:
    """A conversion of weights that transformers undoes in `save_pretrained`, before it writes them."""

    def reverse_transform(self) -> NoReturn:
        raise WrongValue(
            "save_pretrained: the model was packed by convert, and its folder would not say so: expected "
            "torch.save(model.state_dict(), file) and load_packed, or a model of from_pretrained with HeteroConfig"
        )


def unsaved(model: Any) -> Any:
    """Let the models of transformers in a model refuse to be saved as models of floats; return the model."""
    for module in model.modules():
        if hasattr(type(module), "save_pretrained") and hasattr(module, "config"):
            module._weight_conversions = [_Unsaved()]
    return model


def _use_own_forward(experts: object) -> None:
    """Make experts of transformers multiply matrix by matrix: their other methods need all matrices in one tensor."""
    if hasattr(experts, "config"):
        experts.config = copy.copy(experts.config)
        experts.config._experts_implementation = "eager"
