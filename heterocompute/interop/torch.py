"""PyTorch: rounding with a gradient, products with packed weights, as operators that autograd and torch.compile know.

`fake_quantize` has the gradient of `heterocompute.training.fake_quantize`. Tensors are those of the CPU, not copied.
Importing this module imports torch where it is installed: an operator must be known before anything is compiled.
"""

from __future__ import annotations

import weakref
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.dense import as_array, normalize_axes
from ..arrays.quantized import QuantizedArray
from ..base.values import shown
from ..formats import Format
from ..products.arguments import as_format
from ..products.matmul import linear as product, matmul
from ..products.quantize import quantize
from ..training.passing import note_of, passed, rounded
from ..training.stochastic import as_seed

__all__ = ["QuantLinear", "fake_quantize", "linear", "parametrize"]

MISSING = "interop.torch needs torch: pip install torch"


def fake_quantize(
    t: Any,
    fmt: Format | str,
    axis: int | tuple[int, ...] = -1,
    clip: Any = None,
    rounding: str = "nearest",
    seed: int = 0,
) -> Any:
    """Round a tensor to a format; its gradient goes straight through where the value is in range.

    Parameters
    ----------
    t : torch.Tensor
        float32, float64, float16 or bfloat16, on the CPU; of a GPU pass ``.cpu()``.
    fmt, axis, clip, rounding, seed
        As in `heterocompute.training.fake_quantize`, which states the gradient of each format.

    Returns
    -------
    torch.Tensor
        Of t's dtype; in 16 bits the values are rounded once more.

    Raises
    ------
    ImportError
        torch is not installed.
    TypeError, ValueError
        As `heterocompute.quantize`; a tensor on another device.

    Examples
    --------
    >>> from heterocompute.interop import torch as ht
    >>> ht.fake_quantize(torch.ones(2, requires_grad=True), "int4").detach()  # doctest: +SKIP
    tensor([1., 1.])
    """
    _require()
    _check_tensor(t, "fake_quantize: t")
    if rounding not in ("nearest", "stochastic"):
        raise ValueError(f"fake_quantize: rounding is {shown(rounding)}, wanted 'nearest' or 'stochastic'")
    axes = [axis] if isinstance(axis, int) else list(axis)
    text = fmt if isinstance(fmt, str) else str(fmt)
    number = as_seed(seed)
    signed = number - 2**64 if number >= 2**63 else number  # an operator's integers are signed
    return OPS.fake_quantize(t, text, axes, _clip_text(clip), rounding, signed)[0]


def linear(x: Any, q: QuantizedArray, bias: Any = None, dtype: Any = None) -> Any:
    """Multiply by a packed weight, x @ q.T + bias; the gradient reaches x and bias, the weight is frozen.

    Parameters
    ----------
    x : torch.Tensor
        (..., in), floats, on the CPU.
    q : QuantizedArray
        (out, in), quantized along in.
    bias : torch.Tensor, optional
        (out,).
    dtype : torch.dtype, optional
        Of the answer; None is that of x. The product is float32 and rounded once.

    Returns
    -------
    torch.Tensor
        (..., out).

    Raises
    ------
    ImportError, TypeError, ValueError
        As `fake_quantize` and `heterocompute.linear`.
    """
    _require()
    _check_tensor(x, "linear: x")
    if dtype is not None and not getattr(dtype, "is_floating_point", False):
        raise TypeError(f"linear: dtype is {shown(dtype)}, wanted a torch.dtype of floats")
    y = OPS.linear(x, OPS.number_of(q))
    if bias is not None:
        _check_tensor(bias, "linear: bias")
        if tuple(bias.shape) != tuple(y.shape[-1:]):
            raise ValueError(f"linear: bias has shape {tuple(bias.shape)}, wanted {tuple(y.shape[-1:])}")
        y = y + bias
    return y.to(x.dtype if dtype is None else dtype)


def parametrize(
    module: Any, fmt: Format | str, name: str = "weight", axis: int | tuple[int, ...] | None = None, clip: Any = None
) -> Any:
    """Round a module's weight wherever it is used; what is trained is the weight before rounding.

    Parameters
    ----------
    module : torch.nn.Module
        ``torch.nn.utils.parametrize.remove_parametrizations(module, name)`` leaves the rounded values.
    fmt : Format or str
    name : str
        Of the parameter.
    axis : int or tuple of int, optional
        None is what the module sums along: of convolutions the taps and the channels of the input, (2, 3, 1) of a
        `Conv2d`, (2, 3, 0) of a `ConvTranspose2d`; of other modules the last one, or (2, 3, 1) of 4 dimensions.
    clip
        As in `heterocompute.quantize`.

    Returns
    -------
    torch.nn.Module
        The module itself.

    Raises
    ------
    ImportError, TypeError, ValueError
        As `fake_quantize`, for the weight as it is.
    """
    _require()
    weight = getattr(module, name, None)
    if not isinstance(weight, OPS.Parameter):
        raise TypeError(f"parametrize: {name} of the module is {shown(weight)}, wanted the name of a parameter")
    axes = normalize_axes(_summed(module, weight.ndim) if axis is None else axis, weight.ndim, "parametrize")
    fake_quantize(weight.detach(), fmt, axes, clip)  # what is wrong is said here, not inside of torch
    OPS.register(module, name, OPS.Rounding(str(as_format(fmt, "parametrize: fmt")), axes, clip))
    return module


def _summed(module: Any, n_dims: int) -> int | tuple[int, ...]:
    """Return the axes of a weight that a module sums along."""
    if isinstance(module, OPS.Convolution) and n_dims > 2:
        return (*range(2, n_dims), 0 if module.transposed else 1)
    return (2, 3, 1) if n_dims == 4 else -1


class _Held:
    """Packed arrays by number, as long as their components live."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._known: dict[int, tuple[dict[str, weakref.ref[Any]], Any]] = {}
        self._next = count()

    def keep(self, q: Any) -> int:
        if not isinstance(q, QuantizedArray):
            raise TypeError(f"linear: q is {shown(q)}, wanted a QuantizedArray of hc.quantize")
        rest = q.format, q.shape, q.axis, q.source_dtype
        key = tuple(id(part) for part in q.components.values()), rest
        if key not in self._numbers:
            number = self._numbers[key] = next(self._next)

            def forget(_: Any) -> None:
                self._numbers.pop(key, None)
                self._known.pop(number, None)

            self._known[number] = {name: weakref.ref(part, forget) for name, part in q.components.items()}, rest
        return self._numbers[key]

    def __getitem__(self, number: int) -> QuantizedArray:
        parts, rest = self._known[number]
        components: dict[str, Any] = {name: part() for name, part in parts.items()}
        return QuantizedArray._trusted(components, *rest)


class _Operators:
    """What is made with torch: operators and modules."""

    def __init__(self) -> None:
        import torch  # optional
        from torch.nn.utils.parametrize import register_parametrization  # optional

        self.register = register_parametrization
        self.Tensor, self.Parameter = torch.Tensor, torch.nn.Parameter
        self.Convolution = torch.nn.modules.conv._ConvNd
        held = _Held()

        def number_of(q: Any) -> int:
            """Return the number by which operators know an array."""
            return held.keep(q)

        # What torch.compiler.assume_constant_result does, which imports the compiler: seconds.
        number_of._dynamo_marked_constant = True  # type: ignore[attr-defined]
        self.number_of = number_of
        self._define(torch, held)

        class Rounding(torch.nn.Module):
            """A parametrization: fake_quantize."""

            def __init__(self, fmt: str, axis: tuple[int, ...], clip: Any) -> None:
                super().__init__()
                self.fmt, self.axis, self.clip = fmt, axis, clip

            def forward(self, weight: Any) -> Any:
                return fake_quantize(weight, self.fmt, self.axis, self.clip)

            def extra_repr(self) -> str:
                return self.fmt

        class QuantLinear(torch.nn.Linear):
            """torch.nn.Linear with a weight that is rounded in every forward pass: for training.

            The product is PyTorch's, of the rounded values; `linear` multiplies by what `packed` returns.

            Parameters
            ----------
            in_features, out_features, bias, device, dtype
                As of `torch.nn.Linear`.
            fmt : Format or str
                Along the inputs; ``clip`` as in `heterocompute.quantize`.
            """

            def __init__(
                self, in_features: int, out_features: int, fmt: Any, bias: bool = True, clip: Any = None, **more: Any
            ) -> None:
                super().__init__(in_features, out_features, bias, **more)
                self.fmt, self.clip = str(as_format(fmt, "QuantLinear: fmt")), clip

            @classmethod
            def from_linear(cls, layer: Any, fmt: Any, clip: Any = None) -> Any:
                """Take over the parameters of a `torch.nn.Linear`: the same tensors."""
                if not isinstance(layer, torch.nn.Linear):
                    raise TypeError(f"QuantLinear: layer is of type {type(layer).__name__}, wanted a torch.nn.Linear")
                with torch.device("meta"):
                    made = cls(layer.in_features, layer.out_features, fmt, layer.bias is not None, clip)
                made.weight, made.bias = layer.weight, layer.bias
                return made.train(layer.training)

            def forward(self, x: Any) -> Any:
                weight = fake_quantize(self.weight, self.fmt, -1, self.clip)
                return torch.nn.functional.linear(x, weight.to(x.dtype), self.bias)

            def packed(self) -> Any:
                """Return the weight as a QuantizedArray: the values that forward computes with."""
                return quantize(self.weight.detach(), self.fmt, clip=self.clip)

            def extra_repr(self) -> str:
                return f"{super().extra_repr()}, fmt={self.fmt}"

        QuantLinear.__qualname__ = "QuantLinear"  # where a pickle finds it
        self.Rounding, self.QuantLinear = Rounding, QuantLinear

    def _define(self, torch: Any, held: Any) -> None:
        def array(t: Any) -> Any:
            if t.device.type != "cpu":
                raise TypeError(f"interop.torch: the tensor is on {t.device}, wanted one of the CPU: pass .cpu() of it")
            return as_array(t.detach(), "interop.torch: the tensor")

        def operator(name: str, schema: str, forward: Any, fake: Any) -> Any:
            made = torch.library.custom_op(f"heterocompute::{name}", forward, mutates_args=(), schema=schema)
            made.register_fake(fake)
            return made

        def round_forward(t: Any, fmt: str, axis: list[int], clip: str, rounding: str, seed: int) -> tuple[Any, Any]:
            parsed, x = as_format(fmt, "fake_quantize: fmt"), array(t)
            y, note = rounded(x, parsed, normalize_axes(axis, x.ndim, "fake_quantize"), _clip_of(clip), rounding,
                              seed % 2**64)  # fmt: skip
            return torch.from_numpy(y).to(t.dtype), torch.from_numpy(np.empty(0, np.uint8) if note is None else note)

        def round_fake(t: Any, fmt: str, axis: list[int], clip: str, rounding: str, seed: int) -> tuple[Any, Any]:
            shape = tuple(int(n) for n in t.shape)
            axes = normalize_axes(axis, len(shape), "fake_quantize")
            note = note_of(as_format(fmt, "fake_quantize: fmt"), _clip_of(clip), shape, axes)
            kind, size = (np.uint8, (0,)) if note is None else note
            of_note = t.new_empty(size, dtype=torch.uint8 if kind is np.uint8 else torch.float32)
            return torch.empty_like(t, memory_format=torch.contiguous_format), of_note

        def pass_forward(g: Any, note: Any, fmt: str, axis: list[int]) -> Any:
            axes = normalize_axes(axis, g.ndim, "fake_quantize")
            found = passed(array(g).astype(np.float32, copy=False), note.numpy(), as_format(fmt, "fmt"), axes)
            return torch.from_numpy(found).to(g.dtype)

        def pass_fake(g: Any, note: Any, fmt: str, axis: list[int]) -> Any:
            return torch.empty_like(g, memory_format=torch.contiguous_format)

        pass_back = operator(
            "pass_gradient", "(Tensor g, Tensor note, str fmt, int[] axis) -> Tensor", pass_forward, pass_fake
        )

        def round_keep(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.fmt, ctx.axis = inputs[1], inputs[2]
            ctx.save_for_backward(output[1])
            ctx.mark_non_differentiable(output[1])
            ctx.set_materialize_grads(False)  # else the note, as large as t, gets a gradient of zeros

        def round_backward(ctx: Any, g: Any, _: Any) -> tuple[Any, ...]:
            if g is None:
                return None, None, None, None, None, None
            (note,) = ctx.saved_tensors
            through = g if note.dim() == 1 and note.shape[0] == 0 else pass_back(g, note, ctx.fmt, ctx.axis)
            return through, None, None, None, None, None

        schema = "(Tensor t, str fmt, int[] axis, str clip, str rounding, int seed) -> (Tensor, Tensor)"
        self.fake_quantize = operator("fake_quantize", schema, round_forward, round_fake)
        self.fake_quantize.register_autograd(round_backward, setup_context=round_keep)

        def times(x: Any, q: int) -> Any:
            return torch.from_numpy(product(array(x), held[q]))

        def times_fake(x: Any, q: int) -> Any:
            return x.new_empty((*x.shape[:-1], held[q].shape[0]), dtype=torch.float32)

        def back(g: Any, q: int) -> Any:
            return torch.from_numpy(matmul(array(g), held[q].dequantize()))

        def back_fake(g: Any, q: int) -> Any:
            return g.new_empty((*g.shape[:-1], held[q].shape[1]), dtype=torch.float32)

        times_back = operator("linear_backward", "(Tensor g, int q) -> Tensor", back, back_fake)

        def times_keep(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.dtype, ctx.q, ctx.alive = inputs[0].dtype, inputs[1], held[inputs[1]]

        def times_backward(ctx: Any, g: Any) -> tuple[Any, None]:
            return times_back(g, ctx.q).to(ctx.dtype), None

        self.linear = operator("linear", "(Tensor x, int q) -> Tensor", times, times_fake)
        self.linear.register_autograd(times_backward, setup_context=times_keep)


def _clip_text(clip: Any) -> str:
    """Return a clip as an operator takes it; what it may be is checked behind."""
    return "" if clip is None else clip if isinstance(clip, str) else repr(float(clip))


def _clip_of(text: str) -> Any:
    try:
        return float(text) if text else None
    except ValueError:
        return text


def _check_tensor(value: Any, name: str) -> None:
    if not isinstance(value, OPS.Tensor):
        raise TypeError(f"{name} is {shown(value)}, wanted a torch.Tensor")


def _require() -> None:
    if OPS is None:
        raise ImportError(MISSING)


def _operators() -> Any:
    try:
        return _Operators()
    except ImportError:
        return None


OPS = _operators()
if TYPE_CHECKING:
    QuantLinear: Any
elif OPS is not None:
    QuantLinear = OPS.QuantLinear
else:

    def QuantLinear(*_: Any, **__: Any) -> Any:  # noqa: N802 (a class where torch is)
        """Say that torch is missing."""
        _require()
