"""PyTorch's operators of `interop.torch`, and the functions that torch.func and derivatives of derivatives go through.

    fake_quantize (t) -> (y, note)          dL/dt = pass_gradient (dL/dy, note), which is linear: so is its derivative
    linear (x, q) -> x q^T                  dL/dx = linear_backward (dL/dy, q) = dL/dy q, whose derivative is linear

torch.compile keeps the operators whole. It traces no function with a derivative forward, and torch.func takes no
derivative of an operator, so that there are both; what a note says is a constant to either.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..arrays.dense import as_array, normalize_axes
from ..arrays.quantized import QuantizedArray
from ..base.values import shown
from ..products.arguments import as_format
from ..products.matmul import linear as product, matmul
from ..training.passing import note_of, passed, rounded

__all__ = ["Held", "axes_text", "defined", "functions"]


class Held:
    """Packed arrays by number, as long as their components live.

    A number is by chance: in an exported graph that another process loads it means nothing, not another array.
    """

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._known: dict[int, tuple[dict[str, weakref.ref[Any]], Any]] = {}

    def keep(self, q: Any) -> int:
        if not isinstance(q, QuantizedArray):
            raise TypeError(f"linear: q is {shown(q)}, wanted a QuantizedArray of hc.quantize")
        rest = q.format, q.shape, q.axis, q.source_dtype
        key = tuple(id(part) for part in q.components.values()), rest
        if key not in self._numbers:
            number = self._numbers[key] = int.from_bytes(os.urandom(8), "little") >> 1

            def forget(_: Any) -> None:
                self._numbers.pop(key, None)
                self._known.pop(number, None)

            self._known[number] = {name: weakref.ref(part, forget) for name, part in q.components.items()}, rest
        return self._numbers[key]

    def __getitem__(self, number: int) -> QuantizedArray:
        if number not in self._known:
            raise RuntimeError("linear: the packed weight of this graph is not in this process, or is gone: an "
                               "exported graph needs values, q.dequantize()")  # fmt: skip
        parts, rest = self._known[number]
        components: dict[str, Any] = {name: part() for name, part in parts.items()}
        return QuantizedArray._trusted(components, *rest)


def defined(torch: Any, held: Held) -> SimpleNamespace:
    """Define the operators, once in a process.

    Parameters
    ----------
    torch : module
    held : Held
        What the numbers of `linear` mean.

    Returns
    -------
    SimpleNamespace
        The operators, and what `functions` needs of them.
    """

    def array(t: Any) -> Any:
        if t.device.type != "cpu":
            raise TypeError(f"interop.torch: the tensor is on {t.device}, wanted one of the CPU: pass .cpu() of it")
        return as_array(t.detach(), "interop.torch: the tensor")

    def operator(name: str, schema: str, forward: Any, fake: Any) -> Any:
        made = torch.library.custom_op(f"heterocompute::{name}", forward, mutates_args=(), schema=schema)
        made.register_fake(fake)
        return made

    def round_forward(t: Any, fmt: str, axis: str, clip: str, rounding: str, seed: int) -> tuple[Any, Any]:
        parsed, x = as_format(fmt, "fake_quantize: fmt"), array(t)
        y, note = rounded(x, parsed, normalize_axes(_axes(axis), x.ndim, "fake_quantize"), _clip_of(clip), rounding,
                          seed % 2**64)  # fmt: skip
        return torch.from_numpy(y).to(t.dtype), torch.from_numpy(np.empty(0, np.uint8) if note is None else note)

    def round_fake(t: Any, fmt: str, axis: str, clip: str, rounding: str, seed: int) -> tuple[Any, Any]:
        shape = tuple(int(n) for n in t.shape)
        axes = normalize_axes(_axes(axis), len(shape), "fake_quantize")
        note = note_of(as_format(fmt, "fake_quantize: fmt"), _clip_of(clip), shape, axes)
        kind, size = (np.uint8, (0,)) if note is None else note
        of_note = t.new_empty(size, dtype=torch.uint8 if kind is np.uint8 else torch.float32)
        return torch.empty_like(t, memory_format=torch.contiguous_format), of_note

    def pass_forward(g: Any, note: Any, fmt: str, axis: str) -> Any:
        axes = normalize_axes(_axes(axis), g.ndim, "fake_quantize")
        found = passed(array(g).astype(np.float32, copy=False), note.numpy(), as_format(fmt, "fmt"), axes)
        return torch.from_numpy(found).to(g.dtype)

    def pass_fake(g: Any, note: Any, fmt: str, axis: str) -> Any:
        return torch.empty_like(g, memory_format=torch.contiguous_format)

    def times(x: Any, q: int) -> Any:
        return torch.from_numpy(product(array(x), held[q]))

    def times_fake(x: Any, q: int) -> Any:
        return x.new_empty((*x.shape[:-1], held[q].shape[0]), dtype=torch.float32)

    def back(g: Any, q: int) -> Any:
        return torch.from_numpy(matmul(array(g), held[q].dequantize()))

    def back_fake(g: Any, q: int) -> Any:
        return g.new_empty((*g.shape[:-1], held[q].shape[1]), dtype=torch.float32)

    round_schema = "(Tensor t, str fmt, str axis, str clip, str rounding, int seed) -> (Tensor, Tensor)"
    pass_schema = "(Tensor g, Tensor note, str fmt, str axis) -> Tensor"
    made = SimpleNamespace(
        fake_quantize=operator("fake_quantize", round_schema, round_forward, round_fake),
        pass_gradient=operator("pass_gradient", pass_schema, pass_forward, pass_fake),
        linear=operator("linear", "(Tensor x, int q) -> Tensor", times, times_fake),
        linear_backward=operator("linear_backward", "(Tensor g, int q) -> Tensor", back, back_fake),
        held=held,
    )
    for name, rule in _rules(made).items():
        getattr(made, name).register_autograd(rule.backward, setup_context=rule.keep)
    _register_batches(torch, made)
    return made


def functions(torch: Any, operators: SimpleNamespace) -> SimpleNamespace:
    """Return the operators as functions that can be derived forward, backward and again, inside of torch.func too.

    Parameters
    ----------
    torch : module
    operators : SimpleNamespace
        Of `defined`.

    Returns
    -------
    SimpleNamespace
        The functions, and `never_compile`, which keeps the compiler, once it is imported, from what they call.
    """

    def function(name: str, rule: SimpleNamespace) -> Any:
        operator = getattr(operators, name)
        methods = {
            "generate_vmap_rule": True,
            "forward": staticmethod(lambda *inputs: operator(*inputs)),
            "setup_context": staticmethod(rule.keep),
            "backward": staticmethod(rule.backward),
            "jvp": staticmethod(rule.forward),
        }
        made: Any = type(name, (torch.autograd.Function,), methods)
        classes.append(made)
        return made.apply

    def never_compile() -> None:
        while classes:
            one = classes.pop()
            for method in ("forward", "setup_context", "backward", "jvp"):
                setattr(one, method, staticmethod(torch.compiler.disable(getattr(one, method))))

    classes: list[Any] = []
    found = SimpleNamespace(held=operators.held, never_compile=never_compile)
    for name, rule in _rules(found).items():
        setattr(found, name, function(name, rule))
    return found


def _rules(call: SimpleNamespace) -> dict[str, SimpleNamespace]:
    """Return the derivatives of each operator, which are made of `call`: operators again, or functions."""

    def pass_on(g: Any, note: Any, ctx: Any) -> Any:
        everything = note.dim() == 1 and note.shape[0] == 0
        return g if g is None or everything else call.pass_gradient(g, note, ctx.fmt, ctx.axis)

    def keep_note(ctx: Any, note: Any, fmt: str, axis: str) -> None:
        ctx.fmt, ctx.axis = fmt, axis
        ctx.save_for_backward(note)
        ctx.save_for_forward(note)
        ctx.set_materialize_grads(False)  # else the note, as large as t, gets a gradient of zeros

    def round_keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        keep_note(ctx, output[1], inputs[1], inputs[2])

    def round_backward(ctx: Any, g: Any, _: Any) -> tuple[Any, ...]:
        return pass_on(g, ctx.saved_tensors[0], ctx), None, None, None, None, None

    def round_along(ctx: Any, tangent: Any, *_: Any) -> tuple[Any, None]:
        return pass_on(tangent, ctx.saved_tensors[0], ctx), None

    def pass_keep(ctx: Any, inputs: Any, output: Any) -> None:
        keep_note(ctx, *inputs[1:])

    def pass_backward(ctx: Any, g: Any) -> tuple[Any, ...]:
        return pass_on(g, ctx.saved_tensors[0], ctx), None, None, None

    def pass_along(ctx: Any, tangent: Any, *_: Any) -> Any:
        return pass_on(tangent, ctx.saved_tensors[0], ctx)

    def times_keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.dtype, ctx.q, ctx.alive = inputs[0].dtype, inputs[1], call.held[inputs[1]]

    def times_backward(ctx: Any, g: Any) -> tuple[Any, None]:
        return call.linear_backward(g, ctx.q).to(ctx.dtype), None

    def back_backward(ctx: Any, g: Any) -> tuple[Any, None]:
        return call.linear(g, ctx.q).to(ctx.dtype), None

    return {
        "fake_quantize": SimpleNamespace(keep=round_keep, backward=round_backward, forward=round_along),
        "pass_gradient": SimpleNamespace(keep=pass_keep, backward=pass_backward, forward=pass_along),
        "linear": SimpleNamespace(
            keep=times_keep, backward=times_backward, forward=lambda ctx, along, _: call.linear(along, ctx.q)
        ),
        "linear_backward": SimpleNamespace(
            keep=times_keep, backward=back_backward, forward=lambda ctx, along, _: call.linear_backward(along, ctx.q)
        ),
    }


def _register_batches(torch: Any, made: SimpleNamespace) -> None:
    """Say what vmap makes of operators: each is rounded for itself, products take all at once."""

    def apart(value: Any, dim: int | None, count: int) -> Any:
        return [value] * count if dim is None else value.unbind(dim)

    def round_each(info: Any, dims: Any, t: Any, *more: Any) -> tuple[Any, tuple[int, int]]:
        found = [made.fake_quantize(one, *more) for one in apart(t, dims[0], info.batch_size)]
        return tuple(torch.stack(parts) for parts in zip(*found, strict=True)), (0, 0)

    def pass_each(info: Any, dims: Any, g: Any, note: Any, *more: Any) -> tuple[Any, int]:
        pairs = zip(apart(g, dims[0], info.batch_size), apart(note, dims[1], info.batch_size), strict=True)
        return torch.stack([made.pass_gradient(*pair, *more) for pair in pairs]), 0

    made.fake_quantize.register_vmap(round_each)
    made.pass_gradient.register_vmap(pass_each)
    for operator in (made.linear, made.linear_backward):
        operator.register_vmap(lambda _, dims, x, q, operator=operator: (operator(x.movedim(dims[0], 0), q), 0))


def axes_text(axes: Iterable[int]) -> str:
    """Return axes as operators take them: a list would be many arguments to torch.func."""
    return " ".join(map(str, axes))


def _axes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


def _clip_of(text: str) -> Any:
    try:
        return float(text) if text else None
    except ValueError:
        return text
