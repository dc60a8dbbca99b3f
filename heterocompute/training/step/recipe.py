"""Number formats of a training step as data: one format per kind of tensor, the rule of its scale, and its rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ...base.errors import WrongType, WrongValue, shown
from ...base.notebooks.shown import Facts
from ...base.values import as_int, as_real, check_choice
from ...files.selection import FirstMatch
from ...formats import Format, format as parse_format, has_pattern, is_function, is_own, is_rotated
from ..stochastic import levels_of

__all__ = ["Current", "Delayed", "DynamicScale", "Recipe"]


def __dir__() -> list[str]:
    return __all__


OPERANDS = ("weights", "activations", "gradients")
TENSORS = (*OPERANDS, "weight_gradients", "master", "all_reduce")
STATES = ("exp_avg", "exp_avg_sq", "momentum_buffer")
SUMS = ("a100", "ada", "b200", "h100", "v100")
FP32 = parse_format("fp32")


@dataclass(frozen=True)
class Current:
    """Scale of a tensor from its own largest magnitude, for formats with one scale per tensor.

    Without a `scaling`, a format computes its scale by its own rule. This class adds a margin, or powers of two.

    Attributes
    ----------
    margin : int
        The scale is 2^margin times larger than necessary.
    power_of_two : bool
        Round the scale up to a power of two.

    Examples
    --------
    >>> import heterocompute as hc
    >>> hc.training.Current(power_of_two=True)
    Current(margin=0, power_of_two=True)
    """

    margin: int = 0
    power_of_two: bool = False

    def __post_init__(self) -> None:
        as_int(self.margin, "Current: margin", -64, 64)
        _check_bool(self.power_of_two, "Current: power_of_two")


@dataclass(frozen=True)
class Delayed:
    """Scale of a tensor from its largest magnitudes in earlier steps, for formats with one scale per tensor.

    Attributes
    ----------
    history : int
        Number of steps whose largest magnitudes are kept.
    margin : int
        The scale is 2^margin times larger than necessary.
    amax : {"max", "most_recent"}
        Which of them determines the scale.
    power_of_two : bool
        Round the scale up to a power of two.

    Notes
    -----
    The scale is 1 until a magnitude above 0 is known. Larger values than expected saturate.

    Examples
    --------
    >>> import heterocompute as hc
    >>> hc.training.Delayed(history=16).amax
    'max'
    """

    history: int = 1024
    margin: int = 0
    amax: str = "max"
    power_of_two: bool = False

    def __post_init__(self) -> None:
        as_int(self.history, "Delayed: history", 1)
        as_int(self.margin, "Delayed: margin", -64, 64)
        check_choice("Delayed", "amax", self.amax, ("max", "most_recent"))
        _check_bool(self.power_of_two, "Delayed: power_of_two")


@dataclass(frozen=True)
class DynamicScale:
    """Loss scale that follows overflows: it falls after one, and grows after a number of steps without one.

    Attributes
    ----------
    initial : float
    growth : float
        Factor after `interval` steps without an overflow.
    backoff : float
        Factor after a step with an infinity or a NaN in a gradient. Such a step changes no weight.
    interval : int

    Examples
    --------
    >>> import heterocompute as hc
    >>> hc.training.DynamicScale().initial
    65536.0
    """

    initial: float = 65536.0
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000

    def __post_init__(self) -> None:
        for name, least, most in (("initial", 0.0, math.inf), ("growth", 1.0, math.inf), ("backoff", 0.0, 1.0)):
            value = as_real(getattr(self, name), f"DynamicScale: {name}", "a number")
            if not least < value < most:
                raise WrongValue(f"DynamicScale: {name} is {shown(value)}, expected above {least:g} and below {most:g}")
        as_int(self.interval, "DynamicScale: interval", 1)


@dataclass(frozen=True, repr=False)
class Recipe(Facts):
    """Formats and scales of every tensor of a training step.

    Each linear layer has three matmuls: ``y = x w^T``, ``dx = g w`` and ``dw = g^T x``. Each rounds both operands along
    the axis that it sums. Results are float32. The two matmuls of attention, ``q k^T`` and ``p v``, have gradients of
    the same form.

    Parameters
    ----------
    weights, activations, gradients : Format or str, optional
        Formats of w, x and g. Default: ``"fp32"``.
    weight_gradients : Format or str, optional
        Format of dw.
    master : Format or str, optional
        Format of the weights that the optimizer changes.
    optimizer : mapping of str to Format or str, optional
        Formats of the states of the optimizer between steps: ``exp_avg``, ``exp_avg_sq``, ``momentum_buffer``. A state
        is rounded as one row.
    optimizer_size : int, optional
        States with fewer values than this stay float32.
    all_reduce : Format or str, optional
        Format of the gradient that a worker contributes to the sum over all workers.
    scaling : Current or Delayed, optional
        Rule of the scales of floats with one scale per tensor, such as ``"e4m3fn-tensor"``. Default: the rule of the
        format. Other formats always use their own.
    loss_scale : float, "dynamic" or DynamicScale, optional
        Factor of the loss. Gradients are divided by it before the optimizer reads them.
    rounding : mapping of str to str, optional
        ``"stochastic"`` or ``"nearest"`` for ``weights``, ``activations``, ``gradients``, ``weight_gradients``,
        ``master`` or ``all_reduce``. Default: nearest.
    keep : mapping of str to Format, str or None, optional
        Patterns of the names of layers, or of modules around them. The first match sets one format for the three
        operands; None is float32.
    attention : Format or str, optional
        One format of all operands of attention's matmuls. Default: the formats of activations and gradients.
    weight_matmul : Format or str, optional
        Format of both operands of ``dw = g^T x``. Default: the formats of gradients and activations.
    requantize : tuple of str, optional
        ``weights`` or ``activations`` whose second rounding reads the rounded values. Default: it reads the original.
    hadamard : int, optional
        Size, a power of two. ``dw = g^T x`` multiplies blocks of rows of both operands by one random Hadamard matrix
        before it rounds them.
    sums : {"h100", "a100", "ada", "b200", "v100"}, optional
        Tensor core whose sums are emulated. Default: float32 sums.
    pad : bool, optional
        Allow rows that are not a multiple of the group. Their last group is shorter.
    update : {"optimizer", "madam"}, optional
        ``"madam"``: the recipe is stated for the multiplicative optimizer `Madam`.
    seed : int, optional
        Seed of stochastic rounding and of the Hadamard matrix.
    name, source : str, optional
        Name and publication.

    Raises
    ------
    TypeError, ValueError
        A format is unknown, cannot hold the tensor, or does not fit the scaling.

    Examples
    --------
    >>> import heterocompute as hc
    >>> r = hc.training.Recipe(weights="e4m3fn-tensor", activations="e4m3fn-tensor", gradients="e5m2-tensor",
    ...                        scaling=hc.training.Delayed(history=16))
    >>> str(r.gradients), r.scaling.history
    ('e5m2-tensor', 16)
    >>> hc.training.Recipe(weights="int8", master="bf16")
    Recipe(weights='int8', master='bf16')
    """

    weights: Any = "fp32"
    activations: Any = "fp32"
    gradients: Any = "fp32"
    weight_gradients: Any = "fp32"
    master: Any = "fp32"
    optimizer: Mapping[str, Any] = field(default_factory=dict)
    optimizer_size: int = 0
    all_reduce: Any = "fp32"
    scaling: Current | Delayed | None = None
    loss_scale: Any = None
    rounding: Mapping[str, str] = field(default_factory=dict)
    keep: Mapping[str, Any] = field(default_factory=dict)
    attention: Any = None
    weight_matmul: Any = None
    requantize: tuple[str, ...] = ()
    hadamard: int | None = None
    sums: str | None = None
    pad: bool = False
    update: str = "optimizer"
    seed: int = 0
    name: str = ""
    source: str = ""

    def __repr__(self) -> str:
        """Return the fields that are not those of float32, formats as their strings."""

        def text(one: object) -> object:
            if isinstance(one, Mapping):
                return {key: text(inner) for key, inner in one.items()}
            return str(one) if isinstance(one, Format) else one

        defaults = {one.name: one.default for one in fields(self)}
        own = {name: text(one) for name, one in vars(self).items() if name in defaults}
        own = {name: one for name, one in own.items() if one not in (defaults[name], {}, ())}
        return f"Recipe({', '.join(f'{name}={one!r}' for name, one in own.items())})"

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        for name in TENSORS:
            put(name, signed_format(getattr(self, name), f"Recipe: {name}"))
        for name in ("attention", "weight_matmul"):
            if getattr(self, name) is not None:
                put(name, signed_format(getattr(self, name), f"Recipe: {name}"))
        put("optimizer", self._states())
        put("rounding", self._roundings())
        keep = _mapping(self.keep, "keep")
        put("keep", {key: FP32 if fmt is None else signed_format(fmt, f"Recipe: keep[{shown(key)}]")
                     for key, fmt in keep.items()})  # fmt: skip
        self._check_scaling()
        put("loss_scale", _loss_scale(self.loss_scale))
        put("requantize", tuple(self.requantize))
        for name in self.requantize:
            check_choice("Recipe", "requantize", name, ("weights", "activations"))
        if self.hadamard is not None:
            size = as_int(self.hadamard, "Recipe: hadamard", 2)
            if size & (size - 1):
                raise WrongValue(f"Recipe: hadamard is {shown(size)}, expected a power of two")
        if self.sums is not None:
            check_choice("Recipe", "sums", self.sums, SUMS)
        as_int(self.optimizer_size, "Recipe: optimizer_size", 0)
        _check_bool(self.pad, "Recipe: pad")
        check_choice("Recipe", "update", self.update, ("optimizer", "madam"))
        as_int(self.seed, "Recipe: seed", 0, 2**64 - 1)

    def formats_of(self, layer: str) -> dict[str, Format]:
        """Return the formats of the operands of a layer.

        Parameters
        ----------
        layer : str
            Name of the layer, which `keep` is matched with.

        Returns
        -------
        dict of str to Format
            ``weights``, ``activations``, ``gradients``, and both operands of the weight gradient's matmul:
            ``wgrad_activations``, ``wgrad_gradients``.

        Examples
        --------
        >>> import heterocompute as hc
        >>> recipe = hc.training.Recipe(weights="int8", keep={"head*": "bf16"})
        >>> str(recipe.formats_of("head")["weights"]), str(recipe.formats_of("body")["weights"])
        ('bf16', 'int8')
        """
        fmt = self.kept(layer)
        chosen = {name: fmt or getattr(self, name) for name in OPERANDS}
        last = fmt or self.weight_matmul
        return {**chosen, "wgrad_activations": last or chosen["activations"],
                "wgrad_gradients": last or chosen["gradients"]}  # fmt: skip

    def attention_formats(self, layer: str) -> dict[str, Format]:
        """Return the formats of the operands of a matmul of attention; the second operand counts as weights.

        Parameters
        ----------
        layer : str
            Name of the attention, which `keep` is matched with.

        Returns
        -------
        dict of str to Format
            As of `formats_of`.

        Examples
        --------
        >>> import heterocompute as hc
        >>> recipe = hc.training.recipe("mxfp8")
        >>> str(recipe.attention_formats("block0.attention")["weights"])
        'bf16'
        """
        fmt = self.kept(layer) or self.attention
        values, slopes = fmt or self.activations, fmt or self.gradients
        return {"weights": values, "activations": values, "gradients": slopes, "wgrad_activations": values,
                "wgrad_gradients": slopes}  # fmt: skip

    def state_format(self, state: str, size: int) -> Format | None:
        """Return the format of a state of the optimizer with a number of values, or None for float32."""
        return self.optimizer.get(state) if size >= self.optimizer_size else None

    def kept(self, layer: str) -> Format | None:
        """Return the format that `keep` sets for a layer, or None."""
        found: Format | None = FirstMatch(self.keep)(layer) if self.keep else None
        return found

    def _states(self) -> dict[str, Format]:
        found = {}
        for name, fmt in _mapping(self.optimizer, "optimizer").items():
            check_choice("Recipe", "optimizer", name, STATES)
            where = f"Recipe: optimizer[{shown(name)}]"
            found[name] = as_plain_format(fmt, where) if name == "exp_avg_sq" else signed_format(fmt, where)
        return found

    def _roundings(self) -> dict[str, str]:
        found = _mapping(self.rounding, "rounding")
        for name, how in found.items():
            check_choice("Recipe", "rounding", name, TENSORS)
            check_choice("Recipe", f"rounding[{shown(name)}]", how, ("nearest", "stochastic"))
            fmt = getattr(self, name)
            if how == "stochastic":
                if is_function(fmt):
                    raise WrongValue(f"Recipe: {name} is {fmt}, a function, expected a format with known levels")
                levels_of(fmt)
        return found

    def _check_scaling(self) -> None:
        if self.scaling is None:
            return
        if not isinstance(self.scaling, (Current, Delayed)):
            raise WrongType(f"Recipe: scaling is {shown(self.scaling)}, expected Current, Delayed or None")
        used = (*(getattr(self, name) for name in OPERANDS), self.weight_matmul or FP32, self.attention or FP32)
        if not any(unscaled(fmt) for fmt in used):
            raise WrongValue(
                f"Recipe: scaling is {type(self.scaling).__name__}, but weights, activations and gradients are "
                f"{used[0]}, {used[1]} and {used[2]}, expected a float with one scale per tensor, as 'e4m3fn-tensor'"
            )


def as_plain_format(fmt: object, name: str) -> Format:
    """Return a format that a training step can round to: without a pattern."""
    if not isinstance(fmt, (str, Format)):
        raise WrongType(f"{name} is {shown(fmt)}, expected a format")
    found = parse_format(fmt)
    if has_pattern(found):
        raise WrongValue(f"{name} is {found}, expected a format without a pattern")
    if is_rotated(found):
        raise found.refusal(name)
    return found


def signed_format(fmt: object, name: str) -> Format:
    """Return a format that can hold negative values.

    Examples
    --------
    >>> str(signed_format("int8", "weights"))
    'int8'
    """
    found = as_plain_format(fmt, name)
    if is_function(found):
        return found
    has_signs = not found.form.levels or any(level < 0 for level in found.form.levels)
    if found.form.is_unsigned or not has_signs or (is_own(found) and not found.element.signed):
        raise WrongValue(f"{name} is {found}, which has no negative values, expected a signed format")
    return found


def unscaled(fmt: Format) -> Format | None:
    """Return the format without its scale, if it is a float with one scale per tensor; otherwise None.

    Examples
    --------
    >>> import heterocompute as hc
    >>> str(unscaled(hc.format("fp8_e4m3fn-tensor"))), unscaled(hc.format("int8"))
    ('fp8_e4m3fn', None)
    """
    text = str(fmt)
    if is_function(fmt) or fmt.form.codes != "float" or not text.endswith("-tensor"):
        return None
    found = parse_format(text.removesuffix("-tensor"))
    return None if found.form.has_scales else found


def _loss_scale(value: object) -> float | DynamicScale | None:
    if value is None or isinstance(value, DynamicScale):
        return value
    if isinstance(value, str):
        check_choice("Recipe", "loss_scale", value, ("dynamic",))
        return DynamicScale()
    number = as_real(value, "Recipe: loss_scale", "a number, 'dynamic' or DynamicScale")
    if not 0 < number < math.inf:
        raise WrongValue(f"Recipe: loss_scale is {shown(value)}, expected a finite number above 0")
    return number


def _mapping(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise WrongType(f"Recipe: {name} is {shown(value)}, expected a mapping")
    return dict(value)


def _check_bool(value: object, name: str) -> None:
    if not isinstance(value, bool):
        raise WrongType(f"{name} is {shown(value)}, expected True or False")
