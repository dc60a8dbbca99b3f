"""Attention whose two matmuls use the formats of a recipe: `scaled_dot_product_attention` and `MultiheadAttention`.

A `TorchFunctionMode` replaces calls of `scaled_dot_product_attention` while a model of `train_in` runs. Hooks of its
modules enter the mode, also when gradient checkpointing repeats one of them. The innermost module names the attention.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ....base.errors import WrongValue, shown
from ....training.step.attention import AttentionState
from ....training.step.layer import LayerState
from ....training.step.recipe import Recipe
from .layers import ARRAYS, CALLED, Product, RecipeLayer, check_input

SAVED = "recipe_attention"  # key of the states in `state_dict` of the model


def attend(
    state: AttentionState,
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Any, Any]:
    """Return attention and its weights, as `scaled_dot_product_attention` computes them, in the formats of a recipe."""
    for one in (q, k, v):
        check_input(state.name, one)
    if enable_gqa:
        k, v = (one.repeat_interleave(q.size(-3) // one.size(-3), -3) for one in (k, v))
    lead = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    q, k, v = (one.expand(*lead, *one.shape[-2:]) for one in (q, k, v))
    state.check(q.shape[-2], k.shape[-2], q.shape[-1])
    s = Product.apply(q, k, state.scores) * (1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else scale)
    if is_causal:
        if attn_mask is not None:
            raise WrongValue(f"attention: {shown(state.name)} has attn_mask and is_causal, expected one of them")
        attn_mask = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril()
    if attn_mask is not None:
        s = s.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else s + attn_mask
    p = torch.ops.aten._safe_softmax(s, -1)
    if dropout_p:
        p = functional.dropout(p, dropout_p)
    return Product.apply(p, v.mT, state.context), p


class _Running(threading.local):
    """The modules that run in this thread, the innermost last.

    Of each: its calls, path, number of attentions so far, whether it trains, whether it began with gradients, and the
    hooks of saved tensors at its beginning.
    """

    def __init__(self) -> None:
        self.stack: list[list[Any]] = []


RUNNING = _Running()


def _attended(*args: Any, **options: Any) -> Any:
    """Run `scaled_dot_product_attention` of the innermost module, in code that torch.compile does not trace."""
    if not RUNNING.stack:
        return functional.scaled_dot_product_attention(*args, **options)
    top = RUNNING.stack[-1]
    calls, path, count, is_training, had_gradients = top[:5]
    top[2] += 1
    name = f"{path}.attention".lstrip(".") + (f"{count + 1}" if count else "")
    state = calls.state(name)
    if state.is_plain:
        return functional.scaled_dot_product_attention(*args, **options)
    if _is_repeated_function(top[5]) or (had_gradients and is_training and not torch.is_grad_enabled()):
        raise WrongValue(
            f"attention: {shown(name)} is inside of a checkpointed function, whose repetition has no module, expected "
            "checkpoint of a module that calls it, or a recipe with attention='fp32'"
        )
    for one in state.states:
        one.training = is_training
    names = ("query", "key", "value")
    given = dict(zip(names, args, strict=False))
    q, k, v = (given[one] if one in given else options.pop(one) for one in names)
    return attend(state, q, k, v, *args[3:], **options)[0]


def _hooks() -> Any:
    """Return the hooks of saved tensors, which gradient checkpointing sets."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


def _is_repeated_function(before: Any) -> bool:
    """Tell whether gradient checkpointing began inside of the running module, which it will then not call again."""
    now = _hooks()
    return now is not None and now != before and now[0].__qualname__.startswith("_checkpoint_hook.")


class _Replacing(TorchFunctionMode):
    """Replaces calls of `scaled_dot_product_attention`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.scaled_dot_product_attention:
            return CALLED["attended"](*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


MODE = _Replacing()
CALLED["attended"] = _attended


class Calls:
    """The attentions of a model outside of its layers, by name: states, hooks and what `state_dict` keeps.

    Parameters
    ----------
    recipe : Recipe
    """

    name = ""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.step = recipe, 0
        self.by_name: dict[str, AttentionState] = {}
        self._watcher: Any = None

    @property
    def states(self) -> list[LayerState]:
        """Return the states of the matmuls."""
        return [state for one in self.by_name.values() for state in one.states]

    @property
    def watcher(self) -> Any:
        """Return the watcher of all states, also of those to come."""
        return self._watcher

    @watcher.setter
    def watcher(self, value: Any) -> None:
        self._watcher = value
        for state in self.states:
            state.watcher = value

    def state(self, name: str) -> AttentionState:
        """Return the state of an attention."""
        found = self.by_name.get(name)
        if found is None:
            found = self.by_name[name] = AttentionState(self.recipe, name, ARRAYS)
            for state in found.states:
                state.step, state.watcher = self.step, self._watcher
        return found

    def begin(self) -> None:
        """Begin a training step."""
        self.step += 1
        for state in self.states:
            state.begin()

    def attach(self, model: Any, callers: dict[str, Any]) -> None:
        """Enter the mode while the modules run, and keep states in `state_dict` of the model."""
        model.recipe_calls = self
        for path, module in callers.items():
            caller = _Caller(self, path)
            module.register_forward_pre_hook(caller.enter, prepend=True)
            module.register_forward_hook(caller.leave, always_call=True)
        model.register_state_dict_post_hook(self)
        model.register_load_state_dict_pre_hook(self._load)

    def __call__(self, _: Any, state_dict: Any, prefix: str, __: Any) -> None:
        """Add the states to `state_dict`: a hook of the model, which PyTorch marks with an attribute."""
        kept = {name: one.state() for name, one in self.by_name.items() if not one.is_plain}
        if kept:
            state_dict[prefix + SAVED] = {"step": self.step, "attentions": kept}

    def _load(self, _: Any, state_dict: Any, prefix: str, *__: Any) -> None:
        saved = state_dict.pop(prefix + SAVED, None)
        if saved is not None:
            parts = saved.get("attentions") if isinstance(saved, Mapping) else None
            if not isinstance(parts, Mapping) or type(saved.get("step")) is not int:
                raise WrongValue(
                    f"load_state_dict: {prefix + SAVED} is {shown(saved)}, expected the state of attentions"
                )
            self.step = saved["step"]
            for name, one in parts.items():
                self.state(name).restore(one)


class _Caller:
    """The hooks of one module."""

    def __init__(self, calls: Calls, path: str) -> None:
        self.calls, self.path = calls, path

    def enter(self, module: Any, _: Any) -> None:
        """Begin the forward pass of the module."""
        CALLED["enter"](self, module.training)

    def leave(self, *_: Any) -> None:
        """End it, also after an error."""
        CALLED["leave"](self)


def _enter(caller: _Caller, is_training: bool) -> None:
    if not RUNNING.stack:
        MODE.__enter__()
    RUNNING.stack.append([caller.calls, caller.path, 0, is_training, torch.is_grad_enabled(), _hooks()])


def _leave(caller: _Caller) -> None:
    stack = RUNNING.stack
    if stack and stack[-1][:2] == [caller.calls, caller.path]:
        stack.pop()
        if not stack:
            MODE.__exit__(None, None, None)


CALLED |= {"enter": _enter, "leave": _leave}


class RecipeAttention(torch.nn.MultiheadAttention):
    """A `torch.nn.MultiheadAttention` in the formats of a recipe. `train_in` makes it.

    Attributes
    ----------
    recipe_states : dict of str to LayerState
        The projections of the inputs: ``in_proj``, or ``q_proj``, ``k_proj`` and ``v_proj``.
    recipe_attention : AttentionState
    """

    recipe_states: dict[str, LayerState]
    recipe_attention: AttentionState

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Any:
        """Return the output, and the attention weights if they are needed."""
        if is_causal and attn_mask is None:
            raise WrongValue(f"attention: {shown(self.recipe_attention.name)} is_causal, expected its attn_mask too")
        y, p = CALLED["attention"](self, query, key, value, key_padding_mask, attn_mask)
        y = self.out_proj(y)
        if query.dim() == 2:
            y, p = y.squeeze(0), p.squeeze(0)
        elif not self.batch_first:
            y = y.transpose(0, 1)
        if not need_weights:
            return y, None
        return y, p.mean(dim=-3) if average_attn_weights else p

    def get_extra_state(self) -> dict[str, Any]:
        """Return the states of the projections and of the attention."""
        return {"attention": self.recipe_attention.state(),
                "projections": {name: one.state() for name, one in self.recipe_states.items()}}  # fmt: skip

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from a result of `get_extra_state`."""
        self.recipe_attention.restore(state["attention"])
        for name, one in self.recipe_states.items():
            one.restore(state["projections"][name])

    def attended(self, query: Any, key: Any, value: Any, key_padding_mask: Any, attn_mask: Any) -> tuple[Any, Any]:
        """Return the result before the output projection, batch first, and the weights of each head."""
        for state in (*self.recipe_states.values(), *self.recipe_attention.states):
            state.training = self.training
        is_self = key is query and value is query
        inputs = [query, key, value]
        if query.dim() == 2:
            inputs = [one.unsqueeze(0) for one in inputs]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            inputs = [one.transpose(0, 1) for one in inputs]
        q, k, v = self._projected(inputs, is_self)
        rows, heads = len(q), self.num_heads
        if self.bias_k is not None:
            k, v = (torch.cat([one, bias.expand(rows, 1, -1)], 1) for one, bias in ((k, self.bias_k), (v, self.bias_v)))
        q, k, v = (one.reshape(rows, one.shape[1], heads, -1).transpose(1, 2) for one in (q, k, v))
        if self.add_zero_attn:
            k, v = (functional.pad(one, (0, 0, 0, 1)) for one in (k, v))
        mask = self._mask(attn_mask, key_padding_mask, q, k)
        y, p = attend(self.recipe_attention, q, k, v, mask, self.dropout if self.training else 0.0)
        return y.transpose(1, 2).reshape(rows, q.shape[2], -1), p

    def _projected(self, inputs: list[Any], is_self: bool) -> list[Any]:
        biases: Any = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        if self.in_proj_weight is None:
            weights = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
            return [_projection(*one) for one in zip(inputs, weights, biases, self.recipe_states.values(), strict=True)]
        state = self.recipe_states["in_proj"]
        if is_self:
            return list(_projection(inputs[0], self.in_proj_weight, self.in_proj_bias, state).chunk(3, -1))
        parts = self.in_proj_weight.chunk(3)
        return [_projection(x, w, b, state) for x, w, b in zip(inputs, parts, biases, strict=True)]

    def _mask(self, attn_mask: Any, key_padding_mask: Any, q: Any, k: Any) -> Any:
        """Return the sum of both masks as floats, for every head, or None."""
        added = k.shape[2] - (key_padding_mask if key_padding_mask is not None else attn_mask).shape[-1] if (
            key_padding_mask is not None or attn_mask is not None
        ) else 0  # fmt: skip
        total = None
        for mask in (attn_mask, key_padding_mask):
            if mask is None:
                continue
            if mask.dtype == torch.bool:
                mask = torch.zeros(mask.shape, device=mask.device).masked_fill(mask, -math.inf)
            mask = functional.pad(mask, (0, added))
            if mask is not None and mask.dim() == 3:
                mask = mask.reshape(len(q), self.num_heads, *mask.shape[1:])
            elif total is not None or attn_mask is None:
                mask = mask[:, None, None]
            total = mask if total is None else total + mask
        return total


def _projection(x: Any, w: Any, bias: Any, state: LayerState) -> Any:
    check_input(state.name, x)
    y = Product.apply(x.reshape(-1, x.shape[-1]), w, state).reshape(*x.shape[:-1], -1)
    return y if bias is None else y + bias


CALLED["attention"] = RecipeAttention.attended


def attention_states(module: Any, path: str, index: int, recipe: Recipe) -> dict[str, LayerState]:
    """Return the checked states of the projections of a `MultiheadAttention`, which stays as it is."""
    parts = ("in_proj",) if module.in_proj_weight is not None else ("q_proj", "k_proj", "v_proj")
    states = {}
    for offset, part in enumerate(parts):
        name = f"{path}.{part}".lstrip(".")
        state = states[part] = LayerState(recipe, name, index + offset, ARRAYS)
        state.check(*getattr(module, f"{part}_weight").shape[::-1])
    return states


def attention_in(module: Any, path: str, states: dict[str, LayerState], recipe: Recipe) -> None:
    """Change the class of a `MultiheadAttention`."""
    module.__class__ = RecipeAttention
    module.recipe_states = states
    module.recipe_attention = AttentionState(recipe, f"{path}.attention".lstrip("."), ARRAYS)


def states_of_module(module: Any) -> list[LayerState]:
    """Return the states of one module: of a layer, an attention, or the attentions that a model calls."""
    if isinstance(module, RecipeLayer):
        return [module.recipe_state]
    if isinstance(module, RecipeAttention):
        return [*module.recipe_states.values(), *module.recipe_attention.states]
    return []
