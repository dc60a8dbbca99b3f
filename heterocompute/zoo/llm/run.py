"""The forward pass of all families of language models, over tokens that continue earlier ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
from ...products.layers import gelu, rms_norm, rope, softmax, swiglu
from ...products.layers.attention import KVCache, attention
from ...products.matmul import linear
from .experts import stack_of
from .weights import embedding_rows

if TYPE_CHECKING:
    from .network import LanguageModel

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]
Turns = tuple[FloatArray, FloatArray]  # cosine and sine

CHUNK = 512  # tokens that pass through the layers together
NORMS = "attn_norm attn_q_norm attn_k_norm post_attention_norm ffn_norm post_ffw_norm".split()  # hc_llm_norm
MATRICES = "attn_q attn_k attn_v attn_qkv attn_output ffn_gate ffn_up ffn_gate_up ffn_down".split()  # hc_llm_weight


class RunOptions(NamedTuple):
    """The way a network runs: weights that replace its own, formats of inputs and of the cache, an emulation."""

    weights: Mapping[str, Any] | None = None
    activations: Any = None
    kv_cache: Any = None
    emulate: str | None = None


def _check_names(net: LanguageModel, weights: object) -> None:
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

    def __init__(self, net: LanguageModel, way: RunOptions, batch: int) -> None:
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

    def _empty(self) -> KVCache:
        s = self.shape
        return KVCache(self._kv_cache, s.layers, s.kv_heads, s.head_width, self._batch, s.windows)

    def logits(self, ids: IntArray, last: bool = False) -> FloatArray:
        """Append tokens (batch, n) and return their logits, or those of the last token only."""
        parts = self._appended(ids)
        x = parts[-1][:, -1:] if last else np.concatenate(parts, axis=1)[:, -ids.shape[1] :]
        return self.scores(x)

    def hidden_of(self, tokens: IntArray) -> FloatArray:
        """Append the tokens (n,) of one sequence and return their states (n, width)."""
        return np.concatenate(self._appended(tokens[None]), axis=1)[0, -len(tokens) :]

    def _appended(self, ids: IntArray) -> list[FloatArray]:
        """Append tokens (batch, n) and return states in pieces, the last n of which belong to them."""
        ids = self._renewed(ids)
        return [self.hidden(ids[:, i : i + CHUNK]) for i in range(0, ids.shape[1], CHUNK)]

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
            found = self._linear(x, table, None)
        cap = self.shape.logit_cap
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
        is_plain = self._is_plain() and not is_function(self.cache.format) and not self.cache.is_turned
        at, end = layers.start, layers.stop
        while at < layers.stop:
            if is_plain:
                x, done = self._chunked(range(at, end), x, turns)
                at += done
                end = layers.stop if done else at + 2
            if at < layers.stop:
                x = self._layer(at, x, turns[self.shape.windows[at] is not None])
                at += 1
                end = min(end, layers.stop)
        return x

    def _is_plain(self) -> bool:
        """Tell whether layers have only steps that the C core computes in one call."""
        return not self.shape.experts and self._emulate is None and not tuned()

    def embedded(self, ids: IntArray) -> FloatArray:
        """Return the embeddings of tokens (batch, n) as input of the first layer, (batch, n, width)."""
        x = embedding_rows(self.operand("token_embd.weight"), ids)
        return x * np.float32(math.sqrt(self.shape.width)) if self.shape.options.scaled_embedding else x

    def normed(self, x: FloatArray) -> FloatArray:
        """Return the input of the output matrix, from the result of the last layer."""
        return rms_norm(x, self.operand("output_norm.weight"), self.shape.epsilon)

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

    def _layer(self, i: int, x: FloatArray, turns: Turns) -> FloatArray:
        s, part, options = self.shape, self._tensors(i), self.shape.options
        y = rms_norm(x, part["attn_norm.weight"], s.epsilon)
        y = self._attention(i, part, y, turns)
        x = x + (rms_norm(y, part["post_attention_norm.weight"], s.epsilon) if options.post_norms else y)
        y = rms_norm(x, part["ffn_norm.weight"], s.epsilon)
        y = self._experts(part, y) if s.experts else self._feed_forward(part, y)
        return x + (rms_norm(y, part["post_ffw_norm.weight"], s.epsilon) if options.post_norms else y)

    def _chunked(self, layers: range, x: FloatArray, turns: tuple[Turns, Turns]) -> tuple[FloatArray, int]:
        """Run layers in one call of the C core, which computes the steps of `_layer`: bitwise identical results.

        Return the states, and the number of layers that ran. It ends before a layer with an argument that is not
        plain or not valid: the steps then say what is wrong.
        """
        n, given = x.shape[1], []
        for i in layers:
            held, (k, v) = self.cache.room(i, n)
            cosine, sine = turns[self.shape.windows[i] is not None]
            given.append((*self._arguments(i), cosine, sine, k, v, held))
        x, done = _core.llm_layers(runtime.run(), self._format, x, given)
        for i in layers[:done]:
            self.cache.advance(i, n)
        return x, done

    def _arguments(self, i: int) -> tuple[Any, ...]:
        """Return the C core's arguments for a layer, the same for any token."""
        found = self._whole[i]
        if found is None:
            s, part = self.shape, self._tensors(i)
            numbers = (s.heads, s.kv_heads, s.head_width, s.hidden, s.rope.width // 2, s.rope.pairs,
                     s.options.activation != "silu", s.windows[i] or 0)  # fmt: skip
            found = self._whole[i] = (
                numbers,
                (s.epsilon, s.scale, s.attention_cap or 0.0),
                tuple(part.get(f"{name}.weight") for name in NORMS),
                tuple(part.get(f"{name}.weight") for name in MATRICES),
                tuple(part.get(f"{name}.bias") for name in MATRICES),
            )
        return found

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

    def _linear(self, x: FloatArray, w: object, bias: object) -> FloatArray:
        return linear(x, w, bias, activations=self.activations)

    def _product(self, x: FloatArray, part: dict[str, Any], name: str) -> FloatArray:
        return self._multiplied(x, part[f"{name}.weight"], part.get(f"{name}.bias"))

    def _multiplied(self, x: FloatArray, w: object, bias: object = None) -> FloatArray:
        """Return a matmul of a layer, on emulated hardware if there is one."""
        if self._emulate is not None:
            return emulation.linear(x, w, bias, self.activations, self._emulate)
        return self._linear(x, w, bias)

    def _attention(self, i: int, part: dict[str, Any], x: FloatArray, turns: Turns) -> FloatArray:
        s, (batch, n) = self.shape, x.shape[:2]
        d, kv = s.head_width, s.kv_heads
        if "attn_qkv.weight" in part:
            q, k, v = np.split(self._product(x, part, "attn_qkv"), [s.heads * d, (s.heads + kv) * d], axis=-1)
        else:
            q, k, v = (self._product(x, part, name) for name in ("attn_q", "attn_k", "attn_v"))
        q, k, v = (one.reshape(batch, n, -1, d) for one in (q, k, v))
        if "attn_q_norm.weight" in part:
            q = rms_norm(q, part["attn_q_norm.weight"], s.epsilon)
            k = rms_norm(k, part["attn_k_norm.weight"], s.epsilon)
        pairs = s.rope.pairs
        q, k = rope(q, *turns, pairs), rope(k, *turns, pairs)
        q, k, v = (one.transpose(0, 2, 1, 3) for one in (q, k, v))
        y = self._attended(i, q, k, v)
        return self._product(y.transpose(0, 2, 1, 3).reshape(batch, n, -1), part, "attn_output")

    def _attended(self, i: int, q: FloatArray, k: FloatArray, v: FloatArray) -> FloatArray:
        """Store the keys and values of new tokens, and return attention of the queries, (batch, heads, n, width)."""
        s = self.shape
        keys, values = self.cache.add(i, k, v)
        return attention(q, keys, values, True, s.scale, s.windows[i], s.attention_cap)

    def _gated(self, gate: FloatArray, up: FloatArray) -> FloatArray:
        return swiglu(gate, up) if self.shape.options.activation == "silu" else gelu(gate, up)

    def _feed_forward(self, part: dict[str, Any], x: FloatArray) -> FloatArray:
        if "ffn_gate_up.weight" in part:
            gate, up = np.split(self._product(x, part, "ffn_gate_up"), 2, axis=-1)
        else:
            gate, up = self._product(x, part, "ffn_gate"), self._product(x, part, "ffn_up")
        return self._product(self._gated(gate, up), part, "ffn_down")

    def _experts(self, part: dict[str, Any], x: FloatArray) -> FloatArray:
        """Sum the experts that a router selects for each token, weighted by their shares."""
        s, rows = self.shape, x.reshape(-1, x.shape[-1])
        router = self._product(rows, part, "ffn_gate_inp")
        picked = np.argsort(-router, axis=-1, kind="stable")[:, : s.experts_used]
        if s.shares_sum_to_one:
            shares = softmax(np.take_along_axis(router, picked, axis=-1))
        else:
            shares = np.take_along_axis(softmax(router), picked, axis=-1)
        out = np.zeros_like(rows)
        for expert in range(s.experts):
            token, place = np.nonzero(picked == expert)
            if len(token):
                hidden = self._expert_gated(part, expert, rows[token])
                y = self._multiplied(hidden, part["ffn_down_exps.weight"][expert])
                out[token] += y * shares[token, place][:, None]
        return out.reshape(x.shape)

    def _expert_gated(self, part: dict[str, Any], expert: int, x: FloatArray) -> FloatArray:
        """Return the input of the last matrix of an expert."""
        if "ffn_gate_up_exps.weight" in part:
            gate, up = np.split(self._multiplied(x, part["ffn_gate_up_exps.weight"][expert]), 2, axis=-1)
        else:
            gate, up = (self._multiplied(x, part[f"ffn_{name}_exps.weight"][expert]) for name in ("gate", "up"))
        return self._gated(gate, up)
