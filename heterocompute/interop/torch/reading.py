"""Modules of `interop.torch`, and modules of PyTorch that read a weight without calling its module.

    MultiheadAttention.forward        out_proj.weight           LinearCrossEntropyLoss.forward    linear.weight

While such a module runs, it sees a `Reading` in place of a QuantLinear: its `weight` is the rounded one. The fast path
of TransformerEncoderLayer would read linear1.weight and linear2.weight directly, but PyTorch does not use it if a
module has a hook, and each QuantLinear has one.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import torch

from ...base.errors import WrongType, WrongValue
from ...base.lazy import renamed
from ...formats import Format, is_function
from ...formats.defining import carried
from ...products.arguments import as_format, core_clip
from ...products.quantize import quantize
from ...training.latent import keep
from .carrying import carry, is_of_torch, own_function

_LOCK = threading.Lock()
_NAMES = {"MultiheadAttention": "out_proj", "LinearCrossEntropyLoss": "linear"}


def maker_of(module: Any, name: str) -> tuple[Any, Any]:
    """Return the key and hook that make a weight before each forward pass; (None, None) if there are none.

    Parameters
    ----------
    module : torch.nn.Module
    name : str
        Of the weight: that of `torch.nn.utils.prune`, `weight_norm` and `spectral_norm`, which are such hooks.
    """
    for key, hook in module._forward_pre_hooks.items():
        made = getattr(hook, "_tensor_name" if hasattr(hook, "apply_mask") else "name", None)
        if made == name and (hasattr(hook, "apply_mask") or hasattr(hook, "compute_weight")):
            return key, hook
    return None, None


def now(module: Any, name: str) -> Any:
    """Return a module's weight as the next forward pass has it.

    Parameters
    ----------
    module : torch.nn.Module

    Returns
    -------
    torch.Tensor
        Of a hook that makes it, made again; else the attribute, whatever it is.
    """
    hook = maker_of(module, name)[1]
    if hook is None:
        return getattr(module, name, None)
    if hasattr(hook, "apply_mask"):
        return hook.apply_mask(module)
    steps = {"do_power_iteration": False} if hasattr(hook, "n_power_iterations") else {}
    return hook.compute_weight(module, **steps)


def unpruned(module: Any, name: str) -> Any:
    """Make the weight before pruning a parameter again, the same tensor, and return the mask; None where there is none.

    Parameters
    ----------
    module : torch.nn.Module
    name : str
        Of a weight that `torch.nn.utils.prune` has pruned.

    Returns
    -------
    torch.Tensor or None
    """
    key, hook = maker_of(module, name)
    if hook is None:
        return None
    del module._forward_pre_hooks[key]
    module.__dict__.pop(name, None)
    module.register_parameter(name, module._parameters.pop(f"{name}_orig"))
    return module._buffers.pop(f"{name}_mask")


class Reading:
    """A QuantLinear for code that reads its weight: the weight is rounded, everything else is the module's."""

    def __init__(self, source: Any) -> None:
        self.source = source

    @property
    def weight(self) -> Any:
        return self.source.rounded(now(self.source, "weight"))

    @property
    def bias(self) -> Any:
        return now(self.source, "bias")

    def __call__(self, *inputs: Any) -> Any:
        return self.source(*inputs)

    def __getattr__(self, name: str) -> Any:
        if name == "source":  # of a copy that is being constructed
            raise AttributeError(name)
        return getattr(self.source, name)


def _begin(module: Any, *_: Any) -> None:
    """Give a running module a Reading of its QuantLinear: a forward pre-hook; threads may run it at the same time."""
    if torch.compiler.is_compiling():
        _show(module)
        return
    with _LOCK:
        _show(module)


def _end(module: Any, *_: Any) -> None:
    """Undo `_begin`: a forward hook."""
    if torch.compiler.is_compiling():
        _hide(module)
        return
    with _LOCK:
        _hide(module)


def _show(module: Any) -> None:
    name = module._shows
    if hasattr(module._modules.get(name), "rounded"):
        module.__dict__["_n_shown"] = module.__dict__.get("_n_shown", 0) + 1
        module.__dict__[name] = Reading(module._modules[name])


def _hide(module: Any) -> None:
    left = module.__dict__.get("_n_shown", 0) - 1
    if left <= 0:
        module.__dict__.pop(module._shows, None)
    module.__dict__["_n_shown"] = max(left, 0)


def is_called(*_: Any) -> None:
    """Do nothing: a hook whose presence makes PyTorch call a module instead of reading its weight."""


def _packed(weight: Any, fmt: str, axis: Any, clip: Any, mask: Any) -> Any:
    q = quantize(weight.detach(), fmt, axis, clip)
    if mask is not None and q.dequantize()[mask.cpu().numpy() == 0].any():
        raise WrongValue(f"packed: {fmt} rounds a pruned 0 to another value, expected a format with a 0")
    return q


def unrounded_in(module: Any, name: str, fmt: Format) -> Any:
    """Return the values that a parametrization rounds, and its clip; None if there is none.

    Parameters
    ----------
    module : torch.nn.Module
    name : str
        Of the weight.
    fmt : Format
        That of the rounding; None is the answer for others.

    Returns
    -------
    (torch.Tensor, object) or None
    """
    steps = getattr(module, "parametrizations", {})
    last: Any = steps[name][-1] if name in steps else None
    if not hasattr(last, "fmt") or fmt != as_format(last.fmt, "packed: fmt", functions=True):
        return None
    return _before_last(steps[name]).detach(), last.clip


def _before_last(parametrizations: Any) -> Any:
    """Return the values that the last parametrization of a weight rounds."""
    steps = list(parametrizations)
    single = hasattr(parametrizations, "original")
    value = (
        [parametrizations.original]
        if single
        else [getattr(parametrizations, f"original{i}") for i in range(parametrizations.ntensors)]
    )
    for step in steps[:-1]:
        value = [step(*value)]
    last = steps[-1]
    return value[0] if last.mask is None else value[0] * last.mask


def _last_rounding(parametrizations: Any) -> Any:
    """Return the QuantizedArray of the last rounding of a weight."""
    last = parametrizations[-1]
    return _packed(_before_last(parametrizations), last.fmt, last.axis, last.clip, last.mask)


def trained_in(module: Any, name: str, fmt: Format | None = None) -> Any:
    """Return the QuantizedArray to which a module rounds its weight in each forward pass, or None.

    Parameters
    ----------
    module : torch.nn.Module
    name : str
        Of the weight.
    fmt : Format, optional
        None is also the answer for a weight that is rounded to another format, or by a function of values.

    Returns
    -------
    QuantizedArray or None
    """
    steps = getattr(module, "parametrizations", {})
    last: Any = (
        module if name == "weight" and hasattr(module, "rounded") else steps[name][-1] if name in steps else None
    )
    if not hasattr(last, "fmt"):
        return None
    rounds = as_format(last.fmt, "packed: fmt", functions=fmt is not None)
    if fmt not in (None, rounds) or is_function(rounds) or getattr(last, "groups", 1) != 1:
        return None  # a weight whose groups have scales of their own has no packed array of its own shape
    return module.packed() if last is module else _last_rounding(steps[name])


def computed_with(module: Any) -> dict[str, Any]:
    """Return the result of `interop.torch.packed`."""
    found: dict[str, Any] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        if "parametrizations" in path.split("."):
            continue
        made = {name: now(part, name) for name in ("weight", "bias") if maker_of(part, name)[0] is not None}
        hidden = [f"{name}_" for name in made]
        plain = {
            **part._parameters,
            **{n: b for n, b in part._buffers.items() if n not in part._non_persistent_buffers_set},
        }
        rounding = ["weight"] if hasattr(part, "rounded") else []
        for name in (*getattr(part, "parametrizations", {}), *rounding):
            packed = trained_in(part, name)
            made[name] = getattr(part, name) if packed is None else packed
        for name, value in {**plain, **made}.items():
            if value is not None and not any(name.startswith(one) for one in hidden):
                found[f"{path}.{name}" if path else name] = value.detach() if hasattr(value, "detach") else value
    return found


def defined_modules(round_: Any, rounded_already: Any) -> SimpleNamespace:
    """Define the modules, once in a process.

    Parameters
    ----------
    round_ : callable
        `fake_quantize`.
    rounded_already : callable
        Tells whether a parametrization of a module's weight rounds it.

    Returns
    -------
    SimpleNamespace
        `Rounding`, `QuantLinear`.
    """

    class Rounding(torch.nn.Module):
        """A parametrization: fake_quantize, applied to the values that a mask keeps if there is one."""

        groups = 1  # of a transposed convolution: its inputs, the first axis, are split

        def __init__(self, fmt: str, axis: tuple[int, ...], clip: Any, mask: Any = None, groups: int = 1) -> None:
            super().__init__()
            self.fmt, self.axis, self.clip, self.groups = fmt, axis, clip, groups
            self.register_buffer("mask", mask)

        def forward(self, weight: Any) -> Any:
            if self.mask is None:
                return self._rounded(weight)
            return self._rounded(weight * self.mask) * self.mask

        def _rounded(self, weight: Any) -> Any:
            if self.groups == 1:
                return round_(weight, self.fmt, self.axis, self.clip)
            parts = weight.unflatten(0, (self.groups, -1))
            return round_(parts, self.fmt, tuple(axis + 1 for axis in self.axis), self.clip).flatten(0, 1)

        def extra_repr(self) -> str:
            return str(as_format(self.fmt, "fmt", functions=True))

    class QuantLinear(torch.nn.Linear):
        """torch.nn.Linear for training, with a weight that is rounded in every forward pass.

        The matmul is PyTorch's, with the rounded values, in the dtype of x. After training, `linear` multiplies by the
        result of `packed`. `weight` is the unrounded weight. `torch.nn.MultiheadAttention` and the layers of
        `torch.nn.Transformer` read weights without calling their modules; they get the rounded weight.

        Parameters
        ----------
        in_features, out_features, bias, device, dtype
            As in `torch.nn.Linear`.
        format : Format or str
            Format along the inputs; ``clip`` as in `heterocompute.quantize`.
        """

        @renamed(fmt="format")
        def __init__(
            self,
            in_features: int,
            out_features: int,
            format: Format | str,
            bias: bool = True,
            clip: Any = None,
            **more: Any,
        ) -> None:
            super().__init__(in_features, out_features, bias, **more)
            self.fmt, self.clip = carried(as_format(format, "QuantLinear: format", functions=True)), clip
            if clip != "search":
                core_clip(clip, "QuantLinear")
            self.register_forward_pre_hook(is_called)
            keep(self, "weight", self.fmt)

        def __setstate__(self, state: Any) -> None:
            super().__setstate__(state)
            if is_called not in self._forward_pre_hooks.values():  # a pickle of an earlier version
                self.register_forward_pre_hook(is_called)
            keep(self, "weight", self.fmt)

        @classmethod
        @renamed(fmt="format")
        def from_linear(cls, layer: Any, format: Format | str, clip: Any = None) -> Any:
            """Take over the parameters of a `torch.nn.Linear`: the same tensors.

            A weight made by `torch.nn.utils.prune`, `weight_norm`, `spectral_norm` or parametrizations
            keeps them: it is rounded afterwards, and pruned values stay 0.
            """
            if not isinstance(layer, torch.nn.Linear):
                raise WrongType(f"QuantLinear: layer is of type {type(layer).__name__}, expected a torch.nn.Linear")
            if isinstance(layer, torch.jit.ScriptModule):
                raise WrongType("QuantLinear: layer is made by torch.jit, expected the torch.nn.Linear it was made of")
            if own_function(layer):
                raise WrongType(
                    f"QuantLinear: {own_function(layer)} of the layer was replaced, as hooks of accelerate do, "
                    "expected a torch.nn.Linear without it"
                )
            if not (isinstance(layer, QuantLinear) or is_of_torch(layer, torch.nn.Linear)):
                raise WrongType(
                    f"QuantLinear: layer is of type {type(layer).__name__}, whose forward pass is its own, expected a "
                    "torch.nn.Linear"
                )
            if any(torch.nn.parameter.is_lazy(one) for one in layer._parameters.values()):
                raise WrongValue("QuantLinear: layer has no weight yet, expected one after its first forward pass")
            if rounded_already(layer, "weight"):
                raise WrongValue("QuantLinear: weight of the layer is rounded already, expected one that is not")
            with torch.device("meta"):
                made = cls(layer.in_features, layer.out_features, format, clip=clip)
            made._parameters.clear()
            made._parameters.update(layer._parameters)
            for name in ("weight", "bias"):
                if maker_of(layer, name)[1] is not None:
                    made.__dict__[name] = now(layer, name).detach()
            for name, parametrizations in getattr(layer, "parametrizations", {}).items():
                made.register_parameter(name, torch.nn.Parameter(torch.empty(0, device="meta")))
                torch.nn.utils.parametrize.register_parametrization(made, name, torch.nn.Identity())
                made.parametrizations[name] = parametrizations
            return carry(layer, made, frozenset())

        def rounded(self, weight: Any) -> Any:
            """Return a weight rounded, 0 where it is pruned."""
            y, mask = round_(weight, self.fmt, -1, self.clip), self._buffers.get("weight_mask")
            return y if mask is None else y * mask

        def forward(self, x: Any) -> Any:
            bias = None if self.bias is None else self.bias.to(x.dtype)
            return torch.nn.functional.linear(x, self.rounded(self.weight).to(x.dtype), bias)

        def packed(self) -> Any:
            """Return the weight as a QuantizedArray: the values that forward computes with.

            Raises
            ------
            ValueError
                The format has no 0 for a pruned value.
            """
            return _packed(now(self, "weight"), self.fmt, -1, self.clip, self._buffers.get("weight_mask"))

        def extra_repr(self) -> str:
            return f"{super().extra_repr()}, format={as_format(self.fmt, 'format', functions=True)}"

    def meet(parent: Any, name: str, module: Any) -> None:
        """Give a module that reads a QuantLinear's weight a Reading in its place; PyTorch reports each registration."""
        if not isinstance(module, QuantLinear):
            return
        if any(
            name == _NAMES.get(kind.__name__) and kind.__module__.startswith("torch.") for kind in type(parent).mro()
        ):
            if "_shows" not in parent.__dict__:
                parent.__dict__["_shows"] = name
                parent.register_forward_pre_hook(_begin)
                parent.register_forward_hook(_end, always_call=True)

    torch.nn.modules.module.register_module_module_registration_hook(meet)
    QuantLinear.__qualname__ = "QuantLinear"  # so that a pickle finds it
    return SimpleNamespace(Rounding=Rounding, QuantLinear=QuantLinear)
