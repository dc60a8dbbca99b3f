"""Rounding with a gradient, as an operator that autograd and torch.compile know: weights in training.

`fake_quantize` has the gradient of `heterocompute.training.fake_quantize`. Tensors are not copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.parametrize import is_parametrized, register_parametrization

from ...arrays.dense import normalize_axes
from ...arrays.quantized import QuantizedArray
from ...base.devices import is_far
from ...base.errors import Unsupported, WrongType, WrongValue, shown
from ...base.lazy import renamed
from ...base.values import Rng, check_text, seed_from
from ...formats import Format
from ...formats.defining import carried
from ...products.arguments import as_format, core_clip
from ...training.latent import keep
from ...training.stochastic import as_seed
from .device import nearest
from .operators import axes_text, defined, described, functions, is_unobserved, parts_of
from .reading import computed_with, defined_modules, maker_of, now, unpruned

NESTED = (
    "interop.torch: derivatives of torch.func inside of torch.compile, expected them outside of it, or no "
    "fullgraph=True"
)


@renamed(fmt="format")
def fake_quantize(
    t: Any,
    format: Format | str,
    axis: int | tuple[int, ...] = -1,
    clip: object = None,
    rounding: str = "nearest",
    seed: int = 0,
    *,
    rng: Rng = None,
) -> Any:
    """Round a tensor to a format, with a straight-through gradient for values in range.

    Parameters
    ----------
    t : torch.Tensor
        float32, float64, float16 or bfloat16, on the CPU or on a device. A device has no ``clip="search"``,
        and no patterns for float64. A NaN or an infinity that the format lacks makes the values NaN
        that share its scale.
    format, axis, clip, rounding, seed, rng
        As in `heterocompute.training.fake_quantize`, which states the gradient of each format.

    Returns
    -------
    torch.Tensor
        Dtype of t. 16-bit dtypes round the values once more.

    Raises
    ------
    TypeError, ValueError
        As in `heterocompute.quantize`. Also for a tensor on another device.

    Examples
    --------
    >>> from heterocompute.interop import torch as ht
    >>> ht.fake_quantize(torch.ones(2, requires_grad=True), "int4").detach()  # doctest: +SKIP
    tensor([1., 1.])
    """
    check_tensor(t, "fake_quantize: t")
    if check_text("fake_quantize", "rounding", rounding) not in ("nearest", "stochastic"):
        raise WrongValue(f"fake_quantize: rounding is {shown(rounding)}, expected 'nearest' or 'stochastic'")
    numbers = normalize_axes(axis, t.ndim, "fake_quantize")
    number = as_seed(seed_from("fake_quantize", seed, rng))
    is_free = bool(is_far(t) and is_unobserved(t))
    if is_free and rounding == "nearest" and clip is None:
        bare = t.detach().resolve_neg() if t.requires_grad or t.is_neg() else t
        return nearest(bare, as_format(format, "fake_quantize: format"), numbers)
    text = carried(as_format(format, "fake_quantize: format", functions=True))
    signed = number - 2**64 if number >= 2**63 else number  # an operator's integers are signed
    given = t, text, axes_text(numbers), _clip_text(clip, "fake_quantize"), rounding, signed
    if is_free:
        return OPS.raw["fake_quantize"](*given)[0]
    return (OPS.fake_quantize if OPS.is_traced() else OPS.eager.fake_quantize)(*given)[0]


@renamed(fmt="format")
def parametrize(
    module: Any,
    format: Format | str,
    name: str = "weight",
    axis: int | tuple[int, ...] | None = None,
    clip: object = None,
) -> Any:
    """Round a module's weight at each use, while the unrounded weight is trained.

    Parameters
    ----------
    module : torch.nn.Module
        ``torch.nn.utils.parametrize.remove_parametrizations(module, name)`` leaves the rounded values.
    format : Format or str
    name : str
        Name of the parameter. It may have parametrizations, such as `weight_norm`, or be pruned by
        `torch.nn.utils.prune`; rounding comes after them. Values removed by a mask stay 0, and the mask becomes a part
        of the parametrization.
    axis : int or tuple of int, optional
        Default: the axes that the module sums along. For convolutions these are the taps and the input channels,
        (2, 3, 1) of a `Conv2d`, (2, 3, 0) of a `ConvTranspose2d`, whose groups are rounded one by one. For other
        modules it is the last axis, or (2, 3, 1) for 4 dimensions.
    clip
        As in `heterocompute.quantize`.

    Returns
    -------
    torch.nn.Module
        The module itself.

    Raises
    ------
    TypeError, ValueError
        As in `fake_quantize`, for the present weight.
    """
    if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_torchdynamo_orig_callable"):
        made = "torch.jit" if isinstance(module, torch.jit.ScriptModule) else "torch.compile"
        raise WrongType(f"parametrize: module is made by {made}, expected the torch.nn.Module that it was made of")
    if OPS.rounds(module, name):
        raise WrongValue(f"parametrize: {name} of the module is rounded already, expected one that is not")
    hook = maker_of(module, name)[1] if isinstance(module, OPS.Module) else None
    if hook is not None and not hasattr(hook, "apply_mask"):
        raise WrongValue(
            f"parametrize: {name} of the module is made by {type(hook).__name__} before each forward pass, expected a "
            "parameter, or one of torch.nn.utils.parametrizations"
        )
    weight: Any = now(module, name) if hook is not None else getattr(module, name, None)
    several = isinstance(module, OPS.Module) and OPS.is_parametrized(module, name)
    if hook is None and not several and not isinstance(weight, OPS.Parameter):
        raise WrongType(f"parametrize: {name} of the module is {shown(weight)}, expected the name of a parameter")
    axes = normalize_axes(_summed(module, weight.ndim) if axis is None else axis, weight.ndim, "parametrize")
    is_grouped = axis is None and isinstance(module, OPS.Convolution) and module.transposed
    groups = module.groups if is_grouped else 1
    text = carried(as_format(format, "parametrize: format", functions=True))
    rounding = OPS.Rounding(text, axes, clip, groups=groups)
    rounding(weight.detach())  # invalid arguments raise an error here, not inside of torch
    rounding.mask = unpruned(module, name)
    OPS.register(module, name, rounding)
    keep(module.parametrizations[name], "original", text)
    return module


def packed(module: object) -> dict[str, Any]:
    """Return the rounded weights of a network after training with rounding, to save or to round further.

    Parameters
    ----------
    module : torch.nn.Module

    Returns
    -------
    dict of str to QuantizedArray or torch.Tensor
        A QuantizedArray for each weight that `QuantLinear` or `parametrize` rounds, tensors for the rest of the state.
        Names are those of the network without rounding and without `torch.nn.utils.prune`.

    Raises
    ------
    TypeError
        As in `fake_quantize`, or module is not a module.
    ValueError
        A format rounds the 0 of a pruned value to another value.

    Examples
    --------
    >>> from heterocompute.interop import torch as ht
    >>> model = torch.nn.Sequential(ht.QuantLinear(64, 8, "int4-g32"))  # doctest: +SKIP
    >>> {name: type(value).__name__ for name, value in ht.packed(model).items()}  # doctest: +SKIP
    {'0.weight': 'QuantizedArray', '0.bias': 'Tensor'}
    """
    if not isinstance(module, OPS.Module):
        raise WrongType(f"packed: module is {shown(module)}, expected a torch.nn.Module")
    return computed_with(module)


def _summed(module: object, n_dims: int) -> int | tuple[int, ...]:
    """Return the axes of a weight that a module sums along."""
    if isinstance(module, OPS.Convolution) and n_dims > 2:
        return (*range(2, n_dims), 0 if module.transposed else 1)
    return (2, 3, 1) if n_dims == 4 else -1


class _Operators:
    """Operators and modules, which need torch."""

    def __init__(self) -> None:
        self.register = register_parametrization
        self.Tensor, self.Parameter, self.Module = torch.Tensor, torch.nn.Parameter, torch.nn.Module
        self.strided, self.dtypes = torch.strided, (torch.float16, torch.bfloat16, torch.float32, torch.float64)
        self.is_parametrized = is_parametrized
        self.Convolution = torch.nn.modules.conv._ConvNd

        def constant_of(q: object) -> tuple[list[Any], str]:
            """Return a packed weight as the argument of operators: a constant of a graph."""
            if not isinstance(q, QuantizedArray):
                raise WrongType(f"linear: q is {shown(q)}, expected a QuantizedArray of hc.quantize")
            return list(parts_of(q).values()), described(q)

        def is_derived() -> bool:
            """Tell whether torch.func takes a derivative, which compiled operators would lose."""
            stack = getattr(torch._C._functorch, "get_interpreter_stack", lambda: None)() or ()
            derived = any(one.key() != torch._C._functorch.TransformType.Vmap for one in stack)
            if derived:
                self.eager.never_compile()
            return derived

        # The effect of torch.compiler.assume_constant_result, without importing the compiler, which takes seconds.
        constant_of._dynamo_marked_constant = is_derived._dynamo_marked_constant = True  # type: ignore[attr-defined]

        def is_traced() -> bool:
            """Tell whether torch.compile needs an operator; after NotImplementedError it runs uncompiled code."""
            if torch.compiler.is_compiling() and is_derived():
                raise Unsupported(NESTED)
            return bool(torch.compiler.is_compiling())

        self.constant_of, self.is_traced = constant_of, is_traced
        made = defined()
        self.fake_quantize, self.linear, self.conv2d = made.fake_quantize, made.linear, made.conv2d
        self.rows, self.raw = made.rows, made.raw
        self.eager = functions(made)

        modules = defined_modules(fake_quantize, self.rounds)
        self.Rounding, self.QuantLinear = modules.Rounding, modules.QuantLinear
        self.QuantLinear.__module__ = __name__.rpartition(".")[0]  # so that a pickle finds it

    def rounds(self, module: object, name: str) -> bool:
        """Tell whether the weight of a module is rounded already."""
        if not isinstance(module, self.Module):
            return False
        if isinstance(module, self.QuantLinear) and name == "weight":
            return True
        several: Any = module.parametrizations if self.is_parametrized(module, name) else {name: ()}
        return any(isinstance(one, self.Rounding) for one in several[name])


def _clip_text(clip: Any, name: str) -> str:
    """Return a clip as the argument of an operator."""
    if clip is None or isinstance(clip, float):
        return "" if clip is None else repr(clip)  # its range is checked later
    if clip == "search" or clip == "octav":
        return str(clip)
    core_clip(clip, name)
    return clip if isinstance(clip, str) else repr(float(clip))


def check_tensor(value: object, name: str) -> None:
    if not isinstance(value, OPS.Tensor):
        raise WrongType(f"{name} is {shown(value)}, expected a torch.Tensor")
    if value.is_nested or value.layout != OPS.strided:
        raise WrongType(f"{name} is nested, sparse or of another layout, expected a dense torch.Tensor")
    if value.dtype not in OPS.dtypes:
        wanted = "float16, bfloat16, float32 or float64: pass .float() of it"
        raise WrongType(f"{name} has dtype {value.dtype}, expected {wanted}")


OPS = _Operators()
if TYPE_CHECKING:
    QuantLinear: Any
else:
    QuantLinear = OPS.QuantLinear
