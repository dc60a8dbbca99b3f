"""The weights of a model: their names, the modules that hold them, and whether they can be packed.

Only this module distinguishes kinds of modules. Patterns are those of the commands: ``*``, ``?``, ``[abc]``; they match
the name of a weight (``encoder.0.weight``) or of its module (``encoder.0``).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch.nn.utils.parametrize import is_parametrized

from ...base.errors import WrongType, WrongValue, shown
from ...base.texts import quoted
from ...files.selection import FirstMatch, literal, patterns, unknown
from ...products.quantize import quantize
from .carrying import is_of_torch, own_function
from .reading import maker_of
from .weights import PackedWeight

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Layer:
    """A weight of a model, and whether it can be packed.

    Attributes
    ----------
    name : str
        Name of the weight in the model, ``encoder.0.weight``: the parameter before pruning or parametrizations.
    path : str
        Path of the module, ``encoder.0``; empty if the model itself is the layer.
    attribute : str
        Name of the weight in the module.
    module : torch.nn.Module
        The module that holds the weight.
    kind : str
        ``linear``, ``conv2d``, ``conv_transpose2d``, ``embedding``, ``embedding_bag``, ``embedding_own`` (a table
        whose class stays), ``conv2d_own`` and ``linear_own`` (a subclass whose forward pass stays, since it uses the
        weight as its class does), ``attention`` (a projection), ``experts`` (stacked matrices), or the class name of an
        unknown module.
    shape : tuple of int
        Shape of the weight.
    axis : tuple of int
        Axes that the module sums along.
    problem : str
        Why the weight cannot be packed; empty if it can.
    packed : PackedWeight or None
        The weight, if it is already packed.
    """

    name: str
    path: str
    attribute: str
    module: Any = field(repr=False)
    kind: str
    shape: tuple[int, ...]
    axis: tuple[int, ...] = ()
    problem: str = ""
    packed: PackedWeight | None = field(default=None, repr=False)


def layers(
    model: torch.nn.Module,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
) -> list[Layer]:
    """Return the weights of a model in its order, each with the reason if it cannot be packed.

    Parameters
    ----------
    model : torch.nn.Module
    include : str or iterable of str, optional
        Patterns of names of weights or modules. Only matching weights are returned.
    exclude : str or iterable of str, optional
        Matching weights are left out. `exclude` overrides `include`.

    Returns
    -------
    list of Layer
        Float parameters with two dimensions or more, and packed weights. A module that is used twice is returned twice.

    Raises
    ------
    TypeError
        The model is not a module.
    ValueError
        A pattern matches nothing in the model.

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.LSTM(8, 8))
    >>> [(layer.name, layer.kind) for layer in layers(model, exclude="*_hh_*")]
    [('0.weight', 'linear'), ('1.weight_ih_l0', 'LSTM')]
    """
    found = every_layer(model, "layers")
    wanted, unwanted = patterns(include), patterns(exclude)
    check_matches(model, found, (*wanted, *unwanted), "layers")
    included, excluded = (matching(dict.fromkeys(some, True)) for some in (wanted, unwanted))
    return [layer for layer in found if not excluded(layer) and (not wanted or included(layer))]


def matching(table: Mapping[str, Value]) -> Any:
    """Return a function from a layer to the value of the first pattern that matches it, or None."""
    first = FirstMatch({pattern: (index, value) for index, (pattern, value) in enumerate(table.items())})

    def of_layer(layer: Layer) -> Value | None:
        hits = [hit for hit in (first(layer.name), first(layer.path)) if hit is not None]
        return min(hits, key=lambda hit: hit[0])[1] if hits else None

    return of_layer


def check_matches(model: Any, found: list[Layer], wanted: Iterable[str], name: str) -> None:
    """Raise ValueError for a pattern that matches neither a parameter nor a module of a model."""
    names = [layer.name for layer in found] + [layer.path for layer in found]
    names += [path for path, _ in model.named_modules()]
    names += [path for path, _ in model.named_parameters(remove_duplicate=False)]
    known = dict.fromkeys(name for name in names if name)
    for pattern in wanted:
        exact, fits = literal(pattern), FirstMatch({pattern: True})
        if pattern in known or (exact in known if exact is not None else any(map(fits, known))):
            continue
        raise WrongValue(f"{name}: pattern {unknown(pattern, known, 'weight or module here')}")


def every_layer(model: object, name: str) -> list[Layer]:
    """Return all weights of a model; `name` is the calling function, for errors."""
    if not isinstance(model, torch.nn.Module):
        raise WrongType(f"{name}: model is {shown(model)}, expected a torch.nn.Module")
    _check_kinds(model, name)
    found = []
    read: dict[str, str] = {}
    taken: set[str] = set()  # paths whose weights were listed with their parent
    for path, module in model.named_modules(remove_duplicate=False):
        if any(path == one or path.startswith(f"{one}.") for one in taken):
            continue
        for layer in _of_module(path, module):
            if path in read:
                problem = f"{read[path]} reads the weight and does not call the layer"
                layer = replace(layer, problem=layer.problem or problem)
            found.append(layer)
            if layer.packed is not None:
                taken.add(layer.name)
        name_read = READ_BY.get(type(module).__name__)
        if name_read is not None:
            read[f"{path}.{name_read}" if path else name_read] = type(module).__name__
        if is_parametrized(module):
            taken.add(f"{path}.parametrizations" if path else "parametrizations")
    return found


WRAPPERS = ("FullyShardedDataParallel", "FSDPModule")  # their weights are parts of weights


def _check_kinds(model: Any, name: str) -> None:
    """Refuse modules without a Python forward pass, or with sharded parameters."""
    for path, module in model.named_modules():
        place, kind = f"{quoted(path)} of model" if path else "model", type(module)
        if isinstance(module, torch.jit.ScriptModule):
            raise WrongType(
                f"{name}: {place} is a {kind.__name__} of torch.jit, which has no layers to read or replace, expected "
                "the torch.nn.Module that it was made of"
            )
        wrapper = next((base.__name__ for base in kind.__mro__ if base.__name__ in WRAPPERS), None)
        if wrapper is not None:
            raise WrongType(f"{name}: {place} is a {wrapper}, whose weights are sharded, expected a model before it")


def check_replaceable(model: Any, name: str) -> None:
    """Refuse wrappers that run a model which they hold twice: its layers cannot be replaced inside of them."""
    for path, module in model.named_modules():
        place = f"{quoted(path)} of model" if path else "model"
        if hasattr(module, "_torchdynamo_orig_callable"):
            raise WrongType(
                f"{name}: {place} is compiled by torch.compile, expected the module before it: {name} its _orig_mod, "
                "then compile the result"
            )
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            raise WrongType(f"{name}: {place} is a DistributedDataParallel, expected its module")


def _of_module(path: str, module: Any) -> Iterator[Layer]:
    def named(attribute: str) -> str:
        return f"{path}.{attribute}" if path else attribute

    for attribute, weight in module._modules.items():
        if isinstance(weight, PackedWeight):
            kind = getattr(module, "kind", OWN_TABLE if isinstance(module, torch.nn.Embedding) else "experts")
            kind = next((f"{one}{OWN}" for base, one in STAYING.items() if type(module) is not base
                         and isinstance(module, base) and not hasattr(module, "kind")), kind)  # fmt: skip
            kind = "attention" if attribute in PROJECTIONS else kind
            yield Layer(named(attribute), path, attribute, module, kind, tuple(weight.shape), weight.axis, "", weight)
    for attribute in _weights_of(module):
        shape = tuple(getattr(module, attribute).shape)
        kind, axis, problem = _kind_of(module, attribute, shape)
        yield Layer(named(attribute), path, attribute, module, kind, shape, axis, problem)


def _weights_of(module: Any) -> list[str]:
    """Return the names of a module's own weights, as the module reads them."""
    hooks = module._forward_pre_hooks.values()
    made = {getattr(hook, "_tensor_name" if hasattr(hook, "apply_mask") else "name", None) for hook in hooks}
    made = {name for name in made if name is not None and maker_of(module, name)[0] is not None}
    names = [name for name in module._parameters if not any(name.startswith(f"{one}_") for one in made)]
    found = []
    for name in (*names, *made, *getattr(module, "parametrizations", {})):
        weight = getattr(module, name, None)
        if weight is not None and torch.nn.parameter.is_lazy(weight):
            title = type(module).__name__
            raise WrongValue(f"{title} has no {name} yet, expected a model after its first forward pass")
        if isinstance(weight, torch.Tensor) and weight.is_floating_point() and weight.ndim >= 2:
            found.append(name)
    return found


Kind = tuple[str, tuple[int, ...], str]  # kind, axes, problem
KNOWN = {  # the forward pass of a class -> kind of its weights
    torch.nn.Linear: "linear",
    torch.nn.Embedding: "embedding",
    torch.nn.EmbeddingBag: "embedding_bag",
    torch.nn.MultiheadAttention: "attention",
    **{getattr(torch.nn, f"Conv{n}d"): f"conv{n}d" for n in (1, 2, 3)},
    **{getattr(torch.nn, f"ConvTranspose{n}d"): f"conv_transpose{n}d" for n in (1, 2, 3)},
}
STAYING = {torch.nn.Linear: "linear", torch.nn.Conv2d: "conv2d"}
_TRIED: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()  # results of `uses_weight_as`
OWN = "_own"  # ends the kinds of subclasses whose forward pass stays
READ_BY = {"LinearCrossEntropyLoss": "linear"}  # modules that read the weight of a child and do not call the child
# Tables of transformers whose class changes indices or rows around the look-up (Gemma, BART, OPT): the module stays.
OWN_TABLE, OWN_TABLES = "embedding_own", ("ScaledWordEmbedding", "LearnedPositionalEmbedding")
SPELLED_OUT = ("FalconLinear", "TurnedLinear")  # of transformers and of `turned`: their own forward pass is known
OWN_FORWARD = "has a forward pass of its own"
WITH_RECIPE = "it has a recipe of train_in, expected the model of without_recipe(model)"
PROJECTIONS = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


def _kind_of(module: object, attribute: str, shape: tuple[int, ...]) -> Kind:
    """Return kind, axes and problem of a weight."""
    title = type(module).__name__
    for base, kind in KNOWN.items():
        if isinstance(module, base) and attribute in (PROJECTIONS if kind == "attention" else ("weight",)):
            if kind == "embedding" and title.endswith(OWN_TABLES):
                kind, base = OWN_TABLE, type(module)
            if kind != OWN_TABLE and title not in SPELLED_OUT and not hasattr(module, "rounded"):
                if "recipe_state" in vars(module) or "recipe_states" in vars(module):
                    return kind, (), WITH_RECIPE
                if not is_of_torch(module, base):
                    if base not in STAYING or _own(module) or not uses_weight_as(module, base):
                        return title, (), f"{title} {OWN_FORWARD}"
                    return f"{kind}{OWN}", _of_kind(kind, module, shape)[1], _unreadable(getattr(module, attribute))
            problem = _own(module) or _unreadable(getattr(module, attribute))
            if problem:
                return kind, (), problem
            return _of_kind(kind, module, shape)
    if title == "Conv1D" and attribute == "weight" and hasattr(module, "nf") and len(shape) == 2:
        return "linear", (0,), _own(module) or _unreadable(getattr(module, attribute))
    if getattr(module, "is_transposed", None) is False and attribute.endswith("_proj") and len(shape) == 3:
        return "experts", (2,), _own(module) or _unreadable(getattr(module, attribute))
    if isinstance(module, torch.nn.RNNBase):
        return title, (), f"{title} multiplies by float weights alone"
    return title, (), f"how {title} uses {attribute} is not known"


def uses_weight_as(module: Any, base: Any) -> bool:
    """Tell whether a subclass multiplies its weight as its class does, and does nothing else with it.

    A copy runs on random inputs with its weight and with the same weight packed. A packed weight raises an error for
    any use except a product, so a forward pass that pads first, or scales its result, is the same with it.
    """
    if module in _TRIED:
        return _TRIED[module]
    if is_parametrized(module) or module.weight.device.type != "cpu":
        return False
    sizes: tuple[int, ...] = ()
    if base is not torch.nn.Linear:
        reach = [d * (k - 1) + s for d, k, s in zip(module.dilation, module.kernel_size, module.stride, strict=True)]
        sizes = (module.in_channels, *(one + 7 for one in reach))
    else:
        sizes = (3, module.in_features)
    try:
        trial = copy.deepcopy(module).float()
        state = torch.Generator().manual_seed(0)
        x = torch.randn((2, *sizes), generator=state)
        with torch.no_grad(), torch.random.fork_rng([]):
            wanted = [trial(one) for one in (x, 3 * x + 1)]
            w = trial.weight.detach().numpy()
            del trial._parameters["weight"]
            trial.weight = PackedWeight(quantize(w, "fp32", (*range(2, w.ndim), 1)))
            found = [trial(one) for one in (x, 3 * x + 1)]
            trial.weight = PackedWeight(quantize(2 * w, "fp32", (*range(2, w.ndim), 1)))
            is_read = not torch.equal(trial(x), found[0])
        _TRIED[module] = is_read and all(
            y.shape == z.shape
            and y.numel() > 0
            and bool(torch.allclose(y, z, rtol=1e-4, atol=1e-5 * float(y.abs().max())))
            for y, z in zip(wanted, found, strict=True)
        )
    except Exception:  # of whatever the class does with such inputs, or with a weight that is packed
        _TRIED[module] = False
    return _TRIED[module]


def _own(module: object) -> str:
    """Return the reason why a layer differs from its class, or None."""
    name = own_function(module)
    return f"{name} of this layer was replaced, as hooks of accelerate do: undo it before" if name else ""


def _unreadable(weight: Any) -> str:
    """Return why a weight cannot be read as an array, if it cannot."""
    if weight.layout != torch.strided or weight.is_nested:
        return f"the weight is {weight.layout}, expected a dense one"
    if weight.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        return f"the weight has dtype {weight.dtype}, expected float16, bfloat16, float32 or float64"
    inside = weight.data if isinstance(weight, torch.nn.Parameter) else weight
    if type(inside) is not torch.Tensor and type(inside).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"the weight is a {type(inside).__name__}, expected a torch.Tensor"
    return ""


def _of_kind(kind: str, module: Any, shape: tuple[int, ...]) -> Kind:
    """Return the axes of a weight of a known kind, and the reason not to pack it, if any."""
    problem = ""
    if kind.startswith("embedding") and module.max_norm is not None:
        problem = "max_norm changes the rows as they are looked up"
    if kind == "embedding_bag" and module.scale_grad_by_freq:
        problem = "scale_grad_by_freq is for a table that is trained"
    if kind.startswith("conv"):
        return kind, (*range(2, len(shape)), 0 if module.transposed else 1), problem
    return kind, (1,), problem
