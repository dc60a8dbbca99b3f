"""The forward pass of all families of language models, over tokens that continue earlier ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import _heterocompute as _core, emulate as emulation
from ...arrays.components import core_format
from ...base import runtime
from ...base.errors import WrongType, WrongValue, printable, shown
from ...base.runtime import tuned, use
from ...base.texts import near_words, quoted
from ...formats import is_function
from ...products.arguments import as_format
from ...products.layers import layer_norm, rms_norm, rope
from ...products.layers.attention import KVCache, attention
from ...products.layers.transformer import GATES, activated
from ...products.matmul import linear
from .experts import stack_of
from .parts.distances import biases_of
from .parts.latents import arguments_of, attended
from .parts.mixture import mixed
from .weights import embedding_rows

if TYPE_CHECKING:
    from .model import Model

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]
Turns = tuple[FloatArray, FloatArray]  # cosine and sine

CHUNK = 512  # tokens that pass through the layers together
NORMS = "attn_norm attn_q_norm attn_k_norm post_attention_norm ffn_norm post_ffw_norm".split()  # hc_llm_norm
NORMS += ["attn_output_norm", "layer_output_norm"]
HEAD_NORMS = {"": 0, "head": 0, "all": 1, "apart": 2}  # hc_llm_head_norm
MATRICES = "attn_q attn_k attn_v attn_qkv attn_output ffn_gate ffn_up ffn_gate_up ffn_down".split()  # hc_llm_weight
ROUTES = ("softmax", "sigmoid", "mixer")  # hc_expert_route
STACKS = [f"ffn_{name}_exps" for name in ("gate", "up", "gate_up", "down")]  # of hc_experts


class RunOptions(NamedTuple):
    """The way a network runs: weights that replace its own, formats of inputs and of the cache, an emulation."""

    weights: Mapping[str, Any] | None = None
    activations: Any = None
    kv_cache: Any = None
    emulate: str | None = None


def _check_names(net: Model, weights: object) -> None:
    """Refuse weights that replace no tensor."""
    if not isinstance(weights, Mapping):
        raise WrongType(f"weights is {shown(weights)}, expected a mapping of tensors' names to arrays")
    unknown = next((name for name in weights if name not in net.weights), None)
    if unknown is not None:
        stack = stack_of(str(unknown))
        if stack in net.weights:
            raise WrongValue(f"weights has {shown(unknown)}, expected the stack of all experts, {quoted(str(stack))}")
        near = "".join(f"; the nearest is {quoted(one)}" for one in near_words(str(unknown), net.matrices)[:1])
        raise WrongValue(f"weights has {shown(unknown)}, which is not a tensor of {printable(net.path)}{near}")


class Run:
    """One pass over sequences of a batch, with the keys and values of all tokens so far."""

    both_sides = False  # tokens see those after them, and nothing is kept

    def __init__(self, net: Model, way: RunOptions, batch: int) -> None:
        if way.weights is not None:
            _check_names(net, way.weights)
        self.net, self.shape, self.activations = net, net.shape, way.activations
        self._weights, self._emulate = way.weights, way.emulate
        self._taken: dict[str, Any] = {}
        self._parts: list[dict[str, Any]] = [{} for _ in range(net.shape.layers)]
        self._whole: list[tuple[Any, ...] | None] = [None] * net.shape.layers  # arguments of whole layers
        self._format = None if way.activations is None else core_format(as_format(way.activations, "activations"))
        self._kv_cache, self._batch = way.kv_cache, batch
        self.cache = self._empty()
        self._ids = np.empty((batch, 0), np.int64)  # of a network whose RoPE depends on the length
        self._is_long = False
        self.maps: dict[int, tuple[FloatArray, FloatArray]] = {}  # of latents, by layer
        self._bias: FloatArray = np.empty((self.shape.heads, 0), np.float32)

    def _empty(self) -> KVCache:
        return KVCache(self._kv_cache, self.shape.layers, *self.shape.cached, self._batch, self.shape.windows)

    def kept(self, i: int, latents: FloatArray) -> FloatArray:
        """Store the latents (batch, n, width) of new tokens, and return those of all tokens, (batch, tokens, width)."""
        half, width = self.cache.width, latents.shape[-1]
        padded = np.pad(latents, ((0, 0), (0, 0), (0, 2 * half - width)))[:, None]
        parts = self.cache.add(i, padded[..., :half], padded[..., half:])
        values = [np.asarray(one.dequantize() if hasattr(one, "dequantize") else one, np.float32) for one in parts]
        found: FloatArray = np.concatenate(values, axis=-1)[:, 0, :, :width]
        return np.ascontiguousarray(found)

    def logits(self, ids: IntArray, last: bool = False) -> FloatArray:
        """Append tokens (batch, n) and return their logits, or those of the last token only."""
        parts = self._appended(ids)
        if not last:
            return self.scores(np.concatenate([*parts], axis=1)[:, -ids.shape[1] :])
        return self.scores(deque(parts, maxlen=1)[0][:, -1:])  # the others are not kept

    def hidden_of(self, tokens: IntArray) -> FloatArray:
        """Append the tokens (n,) of one sequence and return their states (n, width)."""
        return np.concatenate([*self._appended(tokens[None])], axis=1)[0, -len(tokens) :]

    def _appended(self, ids: IntArray) -> Iterator[FloatArray]:
        """Append tokens (batch, n) and yield states in pieces, the last n of which belong to them."""
        ids = self._renewed(ids)
        for i in range(0, ids.shape[1], CHUNK):
            yield self.hidden(ids[:, i : i + CHUNK])

    def _renewed(self, ids: IntArray) -> IntArray:
        """Return the tokens to run: all tokens again where the sequence grows beyond the original context.

        `longrope` rotates all positions of a long sequence by other angles. The keys of the short one are dropped then,
        as transformers does in Phi-3.
        """
        if self.shape.long_rope is None:
            return ids
        self._ids = np.concatenate([self._ids, ids], axis=1)
        if self._is_long or self._ids.shape[1] <= self.shape.rope.original:
            return ids
        self._is_long = True
        if self.cache.length:
            self.cache = self._empty()
        return self._ids

    def scores(self, x: FloatArray) -> FloatArray:
        """Return the logits of hidden states."""
        table = self.operand("output.weight")
        table = self.operand("token_embd.weight") if table is None else table
        with use(blas="own"):  # a BLAS has another order of sums with other numbers of threads
            found = self._linear(x, table, self.operand("output.bias"))
        factor, cap = self.shape.logit_factor, self.shape.logit_cap
        found = found if factor == 1 else found * np.float32(factor)
        return found if cap is None else np.float32(cap) * np.tanh(found / np.float32(cap))

    def operand(self, role: str) -> Any:
        """Return the operand of a role; None if the network has none."""
        try:
            return self._taken[role]
        except KeyError:
            found = self._taken[role] = self.net.taken(role, self._weights)
            return found

    def hidden(self, ids: IntArray) -> FloatArray:
        """Append tokens (batch, n) and return their states after the last norm, (batch, n, width)."""
        with use(blas="own"):  # a BLAS has another order of sums with other numbers of threads
            return self._layers(ids)

    def _layers(self, ids: IntArray) -> FloatArray:
        return self.normed(self._through(range(self.shape.layers), self.embedded(ids)))

    def _through(self, layers: range, x: FloatArray) -> FloatArray:
        """Run consecutive layers: as many as possible in one call of the C core, the rest step by step."""
        turns = self._turns(x.shape[1])
        is_plain = self._is_plain() and not is_function(self.cache.format)
        at, end = layers.start, layers.stop
        while at < layers.stop:
            if is_plain:
                stop = next((i + 1 for i in range(at, end) if self._mixes_apart(i)), end)
                x, done = self._chunked(range(at, stop), x, turns)
                at += done
                if done and self._mixes_apart(at - 1):
                    x = self._fed(at - 1, self._tensors(at - 1), x, x)
                    end = layers.stop
                    continue
                end = layers.stop if done else at + 2
            if at < layers.stop:
                x = self._layer(at, x, self._turn(at, turns))
                at += 1
                end = min(end, layers.stop)
        return x

    def _is_plain(self) -> bool:
        """Tell whether layers have only steps that the C core computes in one call."""
        return self._emulate is None and not tuned()

    def _has_experts(self, i: int) -> bool:
        return self.shape.experts > 0 and i not in self.shape.dense

    def _mixes_apart(self, i: int) -> bool:
        """Tell whether a layer has experts that the C core does not compute in the call of the layer."""
        return self._has_experts(i) and (self.shape.parallel or runtime.one_order())

    def embedded(self, ids: IntArray) -> FloatArray:
        """Return the embeddings of tokens (batch, n) as input of the first layer, (batch, n, width)."""
        factor = self.shape.embedding_factor
        x = embedding_rows(self.operand("token_embd.weight"), ids)
        x = x if factor == 1 else x * np.float32(factor)
        if self.shape.options.embedding_norm:
            x = self._norm(x, self.operand("token_embd_norm.weight"), self.operand("token_embd_norm.bias"))
        if not self.shape.options.learned_positions:
            return x
        at = self._positions(ids.shape[1]).astype(np.int64) + self.shape.options.position_offset
        return x + embedding_rows(self.operand("position_embd.weight"), at)

    def normed(self, x: FloatArray) -> FloatArray:
        """Return the input of the output matrix, from the result of the last layer."""
        return self._norm(x, self.operand("output_norm.weight"), self.operand("output_norm.bias"))

    def _norm(self, x: FloatArray, weight: Any, bias: Any) -> FloatArray:
        if self.shape.options.centered:
            return layer_norm(x, weight, bias, self.shape.epsilon)
        return rms_norm(x, weight, self.shape.epsilon)

    def _normed(self, x: FloatArray, part: dict[str, Any], name: str) -> FloatArray:
        """Return states after a norm, unchanged if the layer has none of this name."""
        weight = part.get(f"{name}.weight")
        return x if weight is None else self._norm(x, weight, part.get(f"{name}.bias"))

    def _normed_heads(self, x: FloatArray, part: dict[str, Any], name: str) -> FloatArray:
        """Return queries or keys after their norm; each head has weights of its own if `qk_norm` is "apart"."""
        weight = part.get(f"{name}.weight")
        if weight is None or self.shape.options.qk_norm != "apart":
            return self._normed(x, part, name)
        bias = part.get(f"{name}.bias")
        biases = bias if bias is not None else [None] * x.shape[2]
        heads = [self._norm(np.ascontiguousarray(x[:, :, i]), weight[i], biases[i]) for i in range(x.shape[2])]
        return np.stack(heads, 2)

    def layer(self, i: int, x: FloatArray) -> FloatArray:
        """Run one layer alone over states (batch, n, width) of the first n tokens."""
        self._is_long = self.shape.long_rope is not None and x.shape[1] > self.shape.rope.original
        with use(blas="own"):
            return self._through(range(i, i + 1), x)

    def _tensors(self, i: int) -> dict[str, Any]:
        """Return the tensors of a layer, by their roles in it."""
        part = self._parts[i]
        if not part:
            part.update({name: self.net.taken(role, self._weights) for name, role in self.net.layer_roles[i]})
        return part

    def _layer(self, i: int, x: FloatArray, turns: Turns | None) -> FloatArray:
        part = self._tensors(i)
        y = self._attention(i, part, self._normed(x, part, "attn_norm"), turns)
        z = self._normed(self._added(x, y, part, "post_attention_norm"), part, "attn_output_norm")
        return self._fed(i, part, x, z)

    def _fed(self, i: int, part: dict[str, Any], x: FloatArray, z: FloatArray) -> FloatArray:
        """Return the states after a layer, from its input x and from z, which attention was added to."""
        s = self.shape
        name = "attn_norm" if s.parallel and s.options.shares_norm else "ffn_norm"
        y = self._normed(x if s.parallel else z, part, name)
        y = self._mixed(part, y) if self._has_experts(i) else self._feed_forward(part, y)
        return self._normed(self._added(z, y, part, "post_ffw_norm"), part, "layer_output_norm")

    def _added(self, x: FloatArray, y: FloatArray, part: dict[str, Any], post: str) -> FloatArray:
        """Return x plus a part of a layer, after its norm and times its factor."""
        y, factor = self._normed(y, part, post), self.shape.residual_factor
        return x + (y if factor == 1 else np.float32(factor) * y)

    def _chunked(self, layers: range, x: FloatArray, turns: tuple[Turns, Turns]) -> tuple[FloatArray, int]:
        """Run layers in one call of the C core, which computes the steps of `_layer`: bitwise identical results.

        A layer whose experts are chosen apart, which must be the last, runs up to its feed-forward part.
        Return the states, and the number of layers that ran. It ends before a layer with an argument that is not
        plain or not valid: the steps then say what is wrong.
        """
        n, given = x.shape[1], []
        for i in layers:
            held, (k, v) = (0, (None, None)) if self.both_sides else self.cache.room(i, n)
            cosine, sine = self._turn(i, turns) or (None, None)
            given.append((*self._arguments(i), self._key_bias(held + n), cosine, sine, self._q_factor(n), k, v, held))
        x, done = _core.llm_layers(runtime.run(), self._format, x, given)
        for i in () if self.both_sides else layers[:done]:
            self.cache.advance(i, n)
        return x, done

    def _arguments(self, i: int) -> tuple[Any, ...]:
        """Return the C core's arguments for a layer, the same for any token."""
        found = self._whole[i]
        if found is None:
            s, part, options = self.shape, self._tensors(i), self.shape.options
            replaced = MATRICES[:4] if s.latent is not None else []
            numbers = (s.heads, *s.cached, s.hidden, s.rope.width // 2, s.rope.pairs,
                     GATES[s.activation], options.centered, s.parallel, HEAD_NORMS[options.qk_norm],
                     s.windows[i] or 0, self.cache.block, self.both_sides)  # fmt: skip
            found = self._whole[i] = (
                numbers,
                (s.epsilon, s.scale, s.attention_cap or 0.0, s.residual_factor),
                tuple(part.get(f"{name}.weight") for name in NORMS),
                tuple(part.get(f"{name}.bias") for name in NORMS),
                tuple(part.get(f"{name}.weight") if name not in replaced else None for name in MATRICES),
                tuple(part.get(f"{name}.bias") for name in MATRICES),
                part.get("attn_sinks.weight"),
                self._experts(part) if self._has_experts(i) and not self._mixes_apart(i) else None,
                arguments_of(self, i, part),
            )
        return found

    def _experts(self, part: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the C core's arguments for the experts of a layer and their router."""
        s, rule = self.shape, self.shape.routing
        numbers = (
            s.experts, s.expert_hidden, s.experts_used, GATES[s.activation], rule.interleaved, s.shares_sum_to_one,
            ROUTES.index(rule.function), rule.groups, rule.groups_used, rule.sums_two,
        )  # fmt: skip
        shared = None
        if s.shared_hidden:
            names = [f"ffn_{name}_shexp" for name in ("gate", "up", "down")]
            matrices = (*(part[f"{name}.weight"] for name in names), part.get("ffn_gate_inp_shexp.weight"))
            shared = s.shared_hidden, matrices, tuple(part.get(f"{name}.bias") for name in names)
        return (
            numbers, (*(rule.clamp or (0.0, 0.0)), rule.factor, rule.noise), part["ffn_gate_inp.weight"],
            part.get("ffn_gate_inp.bias"), part.get("exp_probs_b.bias"), *stacks_in(part), shared,
        )  # fmt: skip

    def _positions(self, n: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the positions of the next n tokens."""
        return np.arange(self.cache.length, self.cache.length + n, dtype=np.float64)

    def _turns(self, n: int) -> tuple[Turns, Turns]:
        """Return cosine and sine (n, 1, width / 2) of the next n positions, for global and for windowed layers."""
        at = self._positions(n)[:, None]
        found = {}
        for rotation, frequencies in self.net.frequencies.items():
            angles = at * frequencies
            parts = (rotation.amplitude * turn(angles) for turn in (np.cos, np.sin))
            cosine, sine = (part.astype(np.float32)[:, None] for part in parts)  # of all heads
            found[rotation] = cosine, sine
        s = self.shape
        whole = s.long_rope if s.long_rope is not None and self._is_long else s.rope
        return found[whole], found[whole if s.local_rope == s.rope else s.local_rope]

    def _turn(self, i: int, turns: tuple[Turns, Turns]) -> Turns | None:
        """Return cosine and sine of a layer, None if it rotates nothing."""
        return None if i in self.shape.unrotated else turns[self.shape.windows[i] is not None]

    def _q_factor(self, n: int) -> FloatArray | None:
        """Return what multiplies the queries of the next n tokens, (n,)."""
        if self.shape.temperature is None:
            return None
        beta, length = self.shape.temperature
        return (1 + beta * np.log1p(np.floor(self._positions(n) / length))).astype(np.float32)

    def _linear(self, x: FloatArray, w: Any, bias: Any) -> FloatArray:
        return linear(x, w, bias, activations=self.activations)

    def product(self, x: FloatArray, part: dict[str, Any], name: str) -> FloatArray:
        return self._multiplied(x, part[f"{name}.weight"], part.get(f"{name}.bias"))

    def _multiplied(self, x: FloatArray, w: Any, bias: Any = None) -> FloatArray:
        """Return a matmul of a layer, on emulated hardware if there is one."""
        if self._emulate is not None:
            return emulation.linear(x, w, bias, self.activations, self._emulate)
        return self._linear(x, w, bias)

    def _attention(self, i: int, part: dict[str, Any], x: FloatArray, turns: Turns | None) -> FloatArray:
        s, (batch, n) = self.shape, x.shape[:2]
        d, kv = s.head_width, s.kv_heads
        if s.latent is not None and turns is not None:
            return self.product(attended(self, i, part, x, turns), part, "attn_output")
        if "attn_qkv.weight" in part:
            q, k, v = np.split(self.product(x, part, "attn_qkv"), [s.heads * d, (s.heads + kv) * d], axis=-1)
        else:
            q, k, v = (self.product(x, part, name) for name in ("attn_q", "attn_k", "attn_v"))
        split = (batch, n, -1, d)
        if s.options.qk_norm != "all":
            q, k = q.reshape(split), k.reshape(split)
        q, k = self._normed_heads(q, part, "attn_q_norm"), self._normed_heads(k, part, "attn_k_norm")
        q, k, v = (one.reshape(split) for one in (q, k, v))
        if turns is not None:
            q, k = rope(q, *turns, s.rope.pairs), rope(k, *turns, s.rope.pairs)
        factor = self._q_factor(n)
        q = q if factor is None else q * factor[:, None, None]
        q, k, v = (one.transpose(0, 2, 1, 3) for one in (q, k, v))
        y = self._attended(i, q, k, v)
        return self.product(y.transpose(0, 2, 1, 3).reshape(batch, n, -1), part, "attn_output")

    def _attended(self, i: int, q: FloatArray, k: FloatArray, v: FloatArray) -> FloatArray:
        """Store the keys and values of new tokens, and return attention of the queries, (batch, heads, n, width)."""
        s = self.shape
        keys, values = self.cache.add(i, k, v)
        sinks, bias = self._tensors(i).get("attn_sinks.weight"), self._key_bias(keys.shape[2])
        bias = None if bias is None else bias[:, : keys.shape[2]]
        return attention(q, keys, values, True, s.scale, s.windows[i], s.attention_cap, sinks, bias)

    def _key_bias(self, tokens: int) -> FloatArray | None:
        """Return what joins the scores of at least so many keys, (heads, tokens or more), None without ALiBi."""
        if self.shape.alibi and self._bias.shape[1] < tokens:
            self._bias = biases_of(self.shape, 1 << max(tokens - 1, 63).bit_length())
        return self._bias if self.shape.alibi else None

    def _gated(self, gate: FloatArray, up: FloatArray | None = None) -> FloatArray:
        return activated(self.shape.activation, gate, up)

    def _feed_forward(self, part: dict[str, Any], x: FloatArray) -> FloatArray:
        if "ffn_gate_up.weight" in part:
            gate, up = np.split(self.product(x, part, "ffn_gate_up"), 2, axis=-1)
        elif not self.shape.options.is_gated:
            gate, up = self.product(x, part, "ffn_up"), None
        else:
            gate, up = self.product(x, part, "ffn_gate"), self.product(x, part, "ffn_up")
        return self.product(self._gated(gate, up), part, "ffn_down")

    def _mixed(self, part: dict[str, Any], x: FloatArray) -> FloatArray:
        summed = None if self._emulate is not None or tuned() else self._summed
        return mixed(self.shape, part, x, self._multiplied, self._gated, summed)

    def _summed(self, part: Mapping[str, Any], x: FloatArray, picked: IntArray, shares: FloatArray) -> Any:
        """Return the sum of experts by one call of the C core, None if an argument is not plain or not valid."""
        s = self.shape
        return _core.llm_experts(
            runtime.run(), self._format, x, np.ascontiguousarray(picked), np.ascontiguousarray(shares),
            (s.experts, s.expert_hidden, GATES[s.activation], s.routing.interleaved), s.routing.clamp or (0.0, 0.0),
            *stacks_in(part),
        )  # fmt: skip


def stacks_in(part: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the stacks of the experts of a layer, and their biases."""
    return tuple(part.get(f"{name}.weight") for name in STACKS), tuple(part.get(f"{name}.bias") for name in STACKS)
