"""The derivatives of the operators of `operators`, and their vmap."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch


def rules_of(call: SimpleNamespace, frozen: Callable[[Any], Any]) -> dict[str, SimpleNamespace]:
    """Return the derivatives of each operator. `call` has the operators or functions that they use.

    `frozen` returns the gradient of a packed weight: none, in the form that operators or functions expect.
    """

    def pass_on(g: torch.Tensor | None, note: torch.Tensor, ctx: Any) -> Any:
        everything = note.dim() == 1 and note.shape[0] == 0
        return g if g is None or everything else call.pass_gradient(g, note, ctx.fmt, ctx.axis)

    def keep_note(ctx: Any, note: torch.Tensor, fmt: str, axis: str) -> None:
        ctx.fmt, ctx.axis = fmt, axis
        ctx.save_for_backward(note)
        ctx.save_for_forward(note)
        ctx.set_materialize_grads(False)  # otherwise the note, as large as t, gets a gradient of zeros

    def round_keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        keep_note(ctx, output[1], inputs[1], inputs[2])

    def round_backward(ctx: Any, g: torch.Tensor, _: object) -> tuple[Any, ...]:
        return pass_on(g, ctx.saved_tensors[0], ctx), None, None, None, None, None

    def round_along(ctx: Any, tangent: torch.Tensor, *_: object) -> tuple[Any, None]:
        return pass_on(tangent, ctx.saved_tensors[0], ctx), None

    def pass_keep(ctx: Any, inputs: Any, output: object) -> None:
        keep_note(ctx, *inputs[1:])

    def pass_backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        return pass_on(g, ctx.saved_tensors[0], ctx), None, None, None

    def pass_along(ctx: Any, tangent: torch.Tensor, *_: object) -> Any:
        return pass_on(tangent, ctx.saved_tensors[0], ctx)

    def times_keep(ctx: Any, inputs: Any, output: object) -> None:
        ctx.dtype, ctx.q, ctx.text = inputs[0].dtype, inputs[1], inputs[2]

    def times_backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        return call.linear_backward(g, ctx.q, ctx.text).to(ctx.dtype), frozen(ctx.q), None, None

    def times_along(ctx: Any, along: torch.Tensor, *_: object) -> Any:
        return call.linear(along, ctx.q, ctx.text, "")

    def back_backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        return call.linear(g, ctx.q, ctx.text, "").to(ctx.dtype), frozen(ctx.q), None

    def back_along(ctx: Any, along: torch.Tensor, *_: object) -> Any:
        return call.linear_backward(along, ctx.q, ctx.text)

    def conv_keep(ctx: Any, inputs: Any, output: object) -> None:
        times_keep(ctx, inputs, output)
        ctx.window, ctx.size = inputs[3], tuple(inputs[0].shape[2:])

    def conv_backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        found = call.conv2d_backward(g, ctx.q, ctx.text, ctx.window, *ctx.size).to(ctx.dtype)
        return found, frozen(ctx.q), None, None, None

    def conv_along(ctx: Any, along: torch.Tensor, *_: object) -> Any:
        return call.conv2d(along, ctx.q, ctx.text, ctx.window, "")

    def conv_back_keep(ctx: Any, inputs: Any, output: object) -> None:
        times_keep(ctx, inputs, output)
        ctx.window, ctx.size = inputs[3], tuple(inputs[4:])

    def conv_back_backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        found = call.conv2d(g, ctx.q, ctx.text, ctx.window, "").to(ctx.dtype)
        return found, frozen(ctx.q), None, None, None, None

    def conv_back_along(ctx: Any, along: torch.Tensor, *_: object) -> Any:
        return call.conv2d_backward(along, ctx.q, ctx.text, ctx.window, *ctx.size)

    def rule(keep: object, backward: object, forward: object) -> SimpleNamespace:
        return SimpleNamespace(keep=keep, backward=backward, forward=forward)

    return {
        "fake_quantize": rule(round_keep, round_backward, round_along),
        "pass_gradient": rule(pass_keep, pass_backward, pass_along),
        "linear": rule(times_keep, times_backward, times_along),
        "linear_backward": rule(times_keep, back_backward, back_along),
        "conv2d": rule(conv_keep, conv_backward, conv_along),
        "conv2d_backward": rule(conv_back_keep, conv_back_backward, conv_back_along),
    }


def register_batches(made: SimpleNamespace) -> None:
    """Register vmap for the operators: rounding runs per item, matmuls run once for all items."""

    def apart(value: Any, dim: int | None, count: int) -> Any:
        return [value] * count if dim is None else value.unbind(dim)

    def round_each(info: Any, dims: Any, t: torch.Tensor, *more: Any) -> tuple[Any, tuple[int, int]]:
        found = [made.fake_quantize(one, *more) for one in apart(t, dims[0], info.batch_size)]
        return tuple(torch.stack(parts) for parts in zip(*found, strict=True)), (0, 0)

    def pass_each(info: Any, dims: Any, g: torch.Tensor, note: torch.Tensor, *more: object) -> tuple[Any, int]:
        pairs = zip(apart(g, dims[0], info.batch_size), apart(note, dims[1], info.batch_size), strict=True)
        return torch.stack([made.pass_gradient(*pair, *more) for pair in pairs]), 0

    made.fake_quantize.register_vmap(round_each)
    made.pass_gradient.register_vmap(pass_each)
    for operator in (made.linear, made.linear_backward, made.rows):
        operator.register_vmap(lambda _, dims, x, *more, operator=operator: (operator(x.movedim(dims[0], 0), *more), 0))

    def images_per_chunk(info: Any, dims: Any, x: torch.Tensor, *more: Any, operator: Any) -> tuple[Any, int]:
        x = x.movedim(dims[0], 0)
        y = operator(x.flatten(0, 1), *more)
        return y.unflatten(0, (info.batch_size, x.shape[1])), 0

    for operator in (made.conv2d, made.conv2d_backward):
        operator.register_vmap(lambda *args, operator=operator: images_per_chunk(*args, operator=operator))
