"""Hooks, own attributes and other contents of a layer that another layer replaces, and functions of an instance."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ...base.errors import WrongValue
from ...base.texts import quoted, sentence

#: Methods that compute a layer's output: a class or an instance that has its own does not compute what PyTorch does.
FUNCTIONS = ("forward", "__call__", "_call_impl", "_conv_forward")
# Hooks of pruning, weight_norm, spectral_norm and QuantLinear, which are about the replaced weight.
_OF_WEIGHTS = ("torch.nn.utils.", f"{__name__.rpartition('.')[0]}.reading")
_PLAIN = {  # as they were when this package was imported
    (base, name): getattr(base, name)
    for base in (
        *(torch.nn.Linear, torch.nn.Embedding, torch.nn.EmbeddingBag, torch.nn.MultiheadAttention),
        *(getattr(torch.nn, f"{kind}{n}d") for kind in ("Conv", "ConvTranspose") for n in (1, 2, 3)),
    )
    for name in FUNCTIONS
    if hasattr(base, name)
}


def is_of_torch(module: object, base: object) -> bool:
    """Tell whether the class of a module computes what a class of PyTorch computes."""
    kind = type(module)
    return all(getattr(kind, name) is plain for (one, name), plain in _PLAIN.items() if one is base)


def own_function(module: object) -> str:
    """Return the name of a method of `FUNCTIONS` that was replaced on the instance; empty if there is none."""
    return next((name for name in FUNCTIONS if name in vars(module) and not _is_restored(module, name)), "")


def _is_restored(module: object, name: str) -> bool:
    """Tell whether an instance holds the method of its class, as accelerate leaves it when it removes a hook."""
    held = vars(module)[name]
    return (
        isinstance(held, types.MethodType) and held.__self__ is module and held.__func__ is getattr(type(module), name)
    )


def carry(old: Any, new: Any, made: frozenset[str] = frozenset(("weight", "bias"))) -> Any:
    """Give a layer the mode of the layer that it replaces, and all that was attached to that layer.

    Parameters
    ----------
    old, new : torch.nn.Module
    made : frozenset of str
        Parameters that `new` has its own form of: they stay, and hooks that compute them are left out.

    Returns
    -------
    torch.nn.Module
        `new`, with hooks, attributes, buffers, parameters and modules of `old` that it does not have.
    """
    new.train(old.training)
    hidden = {name for name in made if name not in old._parameters and name in (*vars(old), *_parametrized(old))}
    hooks = {name for name in vars(old) if "_hooks" in name}
    for name in sorted(hooks):
        mine, theirs = getattr(new, name), getattr(old, name)
        for key, hook in theirs.items():
            if key in mine or (made and _computes_weights(hook)):
                continue
            bound = getattr(hook, "with_module", False) and hook.module() is old
            mine[key] = type(hook)(hook.hook, new) if bound else hook
    if new._is_full_backward_hook is None:
        new._is_full_backward_hook = old._is_full_backward_hook
    for name in ("_parameters", "_buffers", "_modules"):
        mine, theirs = getattr(new, name), getattr(old, name)
        for key, value in theirs.items():
            of_weight = any(key.startswith(f"{one}_") for one in hidden) or key == "parametrizations"
            if key in made or (made and of_weight) or any(key in getattr(new, one) for one in _CONTENTS):
                continue
            mine[key] = value
            if name == "_buffers" and key in old._non_persistent_buffers_set:
                new._non_persistent_buffers_set.add(key)
    for key, value in vars(old).items():
        if key not in vars(new) and key not in made and not hasattr(type(new), key):
            new.__dict__[key] = value
    return new


_CONTENTS = ("_parameters", "_buffers", "_modules")


def _parametrized(module: object) -> tuple[str, ...]:
    return tuple(getattr(module, "parametrizations", ()))


def _computes_weights(hook: object) -> bool:
    """Return True if a hook computes a weight or stores its state."""
    if hasattr(hook, "apply_mask") or hasattr(hook, "compute_weight"):
        return True
    bare = getattr(hook, "hook", hook)
    return any(str(one).startswith(_OF_WEIGHTS) for one in (getattr(bare, "__module__", ""), type(bare).__module__))


def copied(model: Any, memo: dict[int, Any], replaced: Iterable[Any], name: str, how: str = "inplace=True") -> Any:
    """Return a deep copy of a model whose layers will be replaced.

    Parameters
    ----------
    model : torch.nn.Module
    memo : dict of int to object
        As of `copy.deepcopy`.
    replaced : iterable of torch.nn.Module
        Modules of the model that will be replaced in the copy.
    name : str
        Of the calling function, for errors.
    how : str
        What to do instead of copying.

    Returns
    -------
    torch.nn.Module

    Raises
    ------
    ValueError
        PyTorch cannot copy the model, or ``forward`` of an instance was replaced by a function that the copy would
        share and that calls one of the replaced modules of the original.
    """
    chosen = {id(one) for one in replaced}
    for path, module in model.named_modules():
        function = own_function(module)
        if not function or not module._modules:  # a layer that is left as it is
            continue
        if any(id(one) in chosen for shared in _shared(vars(module)[function]) for one in shared.modules()):
            place = f"of {quoted(path)}" if path else "of the model"
            raise WrongValue(
                f"{name}: {function} {place} was replaced by a function that refers to modules of the model, so that "
                f"a copy would compute with the original layers, expected {how}"
            )
    try:
        return copy.deepcopy(model, memo)
    except (RuntimeError, TypeError, NotImplementedError) as problem:
        raise WrongValue(f"{name}: the model cannot be copied ({sentence(problem)}), expected {how}") from problem


def _shared(function: object) -> Iterator[Any]:
    """Return the modules that a function refers to and that `copy.deepcopy` does not copy with it."""
    seen: set[int] = set()
    todo = [(function, True)]  # with whether deepcopy copies it
    while todo:
        one, is_copied = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, torch.nn.Module):
            if not is_copied:
                yield one
        elif isinstance(one, types.MethodType):
            todo += [(one.__self__, is_copied), (one.__func__, False)]
        elif isinstance(one, functools.partial):
            todo += [(part, is_copied) for part in (one.func, *one.args, *one.keywords.values())]
        elif isinstance(one, types.FunctionType):
            code = one.__code__
            inside = [one.__globals__[key] for key in code.co_names if key in one.__globals__]
            for cell in one.__closure__ or ():
                if cell != types.CellType():  # an empty cell has no contents
                    inside.append(cell.cell_contents)
            inside += [*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]
            todo += [(part, False) for part in inside]
        elif isinstance(one, (list, tuple)):
            todo += [(part, is_copied) for part in one]
        elif isinstance(one, dict) and len(one) < 1024:
            todo += [(part, is_copied) for part in one.values()]
