"""Language models as networks, from the sizes in config.json or in a GGUF file's keys.

One block: norm, attention, sum, norm, gated feed-forward part or experts, sum. Rotary positions are not counted.
DeepSeek's attention has two forms. A prompt maps its latents to keys and values. A decoder maps its query to the space
of the cached latents instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...base.errors import shown
from ...families.keys import Keys
from ...families.record import Family
from ...families.sizes import (
    Latent,
    Sizes,
    biases_of_config,
    completed,
    latent_of_config,
    latent_of_keys,
    sizes_of_config,
    sizes_of_keys,
)
from ...families.table import FAMILIES, KINDS, kind_named
from .graph import Builder, Network
from .heads import Experts, HeadNorm, Heads, Sinks
from .layers import AddTable, Context, Embedding, LayerNorm, Linear, Scores
from .plain import Activation, Add, Multiply, Softmax

QKV = ("attn_q", "attn_qkv")
INNER = ("ffn_up", "ffn_gate_up")
POSITIONS = 2048  # number of tokens unless given
UNREAD = ("add_cross_attention",)


@dataclass(frozen=True, kw_only=True)
class Decoder(Sizes):
    """The sizes of a decoder of tokens.

    Attributes
    ----------
    name, kind : str
        Of the network, and its ``model_type`` or architecture.
    options : Family
    tied : bool
        The output layer shares the matrix of the embedding.
    biases : collection of str
        Matrices with a bias, such as ``attn_q``, and ``ffn_exps`` for all of the experts.
    qk_norm, post_norms, gated, shared_gate : bool
    latent : Latent or None
    learned_positions : int
        Rows of a table of positions.
    parallel, output_bias : bool
    token_types : int
        Rows of a table of types of tokens.
    """

    name: str
    kind: str
    options: Family
    tied: bool = False
    biases: Collection[str] = ()
    qk_norm: bool = False
    post_norms: bool = False
    gated: bool = True
    shared_gate: bool = False
    latent: Latent | None = None
    learned_positions: int = 0
    parallel: bool = False
    output_bias: bool = False
    token_types: int = 0

    def network(self, tokens: int = POSITIONS, note: str = "") -> Network:
        """Return the network, whose input is tokens: so many, or the context if that is less."""
        tokens = min(self.context, tokens)
        note = note or f"{self.kind}, {tokens} tokens unless said otherwise; rotary positions not counted"
        found = self._network(tokens, note, False)
        return found if self.latent is None else replace(found, decoder=self._network(tokens, note, True).nodes)

    def _network(self, tokens: int, note: str, cached: bool) -> Network:
        net = Builder(self.name, (tokens,))
        bias, before = self.options.norm_bias, self.options.pre_norms
        sums = self.options.sum_norms
        after = self.post_norms or not (before or sums)
        source = net.add("embeddings.word", Embedding(self.vocabulary, self.width))
        if self.token_types:
            source = net.add("embeddings.type", AddTable(self.token_types, self.width, limits=False), source)
        if self.learned_positions:
            source = net.add("embeddings.position", AddTable(self.learned_positions, self.width))
        if self.options.embedding_norm:
            source = net.add("embeddings.norm", LayerNorm(self.width, bias=bias), source)
        for i in range(self.layers):
            at, start = f"block{i}.", source
            has_norm = before and not (i == 0 and self.options.skips_first_norm)
            norm = net.add(f"{at}norm1", LayerNorm(self.width, bias=bias), source) if has_norm else source
            last = self._attention(net, f"{at}attention", norm, self.windows[i], cached)
            if after:
                last = net.add(f"{at}post_norm1", LayerNorm(self.width, bias=False), last)
            source = net.add(f"{at}add1", Add(), source, last)
            source = net.add(f"{at}norm1", LayerNorm(self.width, bias=bias), source) if sums else source
            if not (self.parallel and self.options.shares_norm):
                start = start if self.parallel else source
                norm = net.add(f"{at}norm2", LayerNorm(self.width, bias=bias), start) if before else start
            if self.experts and i not in self.dense:
                last = self._experts(net, at, norm)
            else:
                last = self._dense(net, at, norm, self.hidden)
            if after:
                last = net.add(f"{at}post_norm2", LayerNorm(self.width, bias=False), last)
            source = net.add(f"{at}add2", Add(), source, last)
            source = net.add(f"{at}norm2", LayerNorm(self.width, bias=bias), source) if sums else source
        if self.options.output_norm:
            net.add("norm", LayerNorm(self.width, bias=bias), source)
        if self.options.is_encoder:
            return net.build(note)
        net.add("output", Linear(self.width, self.vocabulary, bias=self.output_bias, shared=self.tied))
        return net.build(note)

    def _attention(self, net: Builder, at: str, source: str, window: int | None, cached: bool) -> str:
        if self.latent is not None:
            return self._latent_attention(net, at, source, self.latent, cached)
        queries, keys, bias = (
            self.heads * self.head_width,
            self.kv_heads * self.head_width,
            not {*self.biases}.isdisjoint(QKV),
        )
        query = net.add(f"{at}.query", Linear(self.width, queries, bias), source)
        key = net.add(f"{at}.key", Linear(self.width, keys, bias), source)
        if self.qk_norm:
            whole = self.options.qk_norm == "all"
            apart, width = self.options.qk_norm == "apart", self.head_width
            of_query, of_key = (
                LayerNorm(n * width, bias=False) if whole else HeadNorm(n, width, apart)
                for n in (self.heads, self.kv_heads)
            )
            query = net.add(f"{at}.query_norm", of_query, query)
            key = net.add(f"{at}.key_norm", of_key, key)
        value = net.add(f"{at}.value", Linear(self.width, keys, bias), source)
        scores = net.add(f"{at}.scores", Scores(self.heads, self.kv_heads, window=window), query, key)
        if self.options.sinks:
            scores = net.add(f"{at}.sinks", Sinks(self.heads), scores)
        weights = net.add(f"{at}.softmax", Softmax(), scores)
        mixed = net.add(f"{at}.context", Context(self.heads, self.kv_heads, window=window), weights, value)
        return net.add(f"{at}.output", Linear(queries, self.width, "attn_output" in self.biases), mixed)

    def _latent_attention(self, net: Builder, at: str, source: str, part: Latent, cached: bool) -> str:
        heads, bias = self.heads, "attn_output" in self.biases
        start, size = source, self.width
        if part.query:
            start, size = net.add(f"{at}.query_down", Linear(self.width, part.query, bias), source), part.query
            start = net.add(f"{at}.query_norm", LayerNorm(part.query, bias=False), start)
        plain = net.add(f"{at}.query", Linear(size, heads * part.plain, False), start)
        rotary = net.add(f"{at}.query_rotary", Linear(size, heads * part.rotary, False), start)
        latent = net.add(f"{at}.latent", Linear(self.width, part.keys, bias), source)
        latent = net.add(f"{at}.latent_norm", LayerNorm(part.keys, bias=False), latent)
        key = net.add(f"{at}.key_rotary", Linear(self.width, part.rotary, bias), source)
        if cached:
            plain = net.add(f"{at}.query_up", Heads(heads, part.plain, part.keys), plain)
            first = net.add(f"{at}.scores", Scores(heads, 1), plain, latent)
        else:
            keys = net.add(f"{at}.key_up", Linear(part.keys, heads * part.plain, False), latent)
            first = net.add(f"{at}.scores", Scores(heads), plain, keys)
        second = net.add(f"{at}.scores_rotary", Scores(heads, 1), rotary, key)
        both = net.add(f"{at}.scores_add", Add(), first, second)
        weights = net.add(f"{at}.softmax", Softmax(), both)
        if cached:
            mixed = net.add(f"{at}.context", Context(heads, 1), weights, latent)
            value = net.add(f"{at}.value_up", Heads(heads, part.keys, part.value), mixed)
        else:
            values = net.add(f"{at}.value_up", Linear(part.keys, heads * part.value, False), latent)
            value = net.add(f"{at}.context", Context(heads), weights, values)
        return net.add(f"{at}.output", Linear(heads * part.value, self.width, bias), value)

    def _dense(self, net: Builder, at: str, source: str, hidden: int) -> str:
        bias = not {*self.biases}.isdisjoint(INNER)
        if not self.gated:
            net.add(f"{at}fc1", Linear(self.width, hidden, bias), source)
            kind = "relu" if self.options.activation.startswith("relu") else "gelu"
            net.add(f"{at}{kind}", Activation(kind, functional=True))
            return net.add(f"{at}fc2", Linear(hidden, self.width, bias))
        net.add(f"{at}gate", Linear(self.width, hidden, bias), source)
        gate = net.add(f"{at}silu", Activation("silu"))
        up = net.add(f"{at}up", Linear(self.width, hidden, bias), source)
        net.add(f"{at}multiply", Multiply(), gate, up)
        return net.add(f"{at}down", Linear(hidden, self.width, bias))

    def _experts(self, net: Builder, at: str, source: str) -> str:
        hidden, count, bias = self.expert_hidden, (self.experts, self.experts_used), "ffn_exps" in self.biases
        net.add(f"{at}router", Linear(self.width, self.experts, bias), source)
        gate = net.add(f"{at}experts.gate", Experts(self.width, hidden, *count, bias), source)
        gate = net.add(f"{at}experts.silu", Activation("silu"), gate)
        up = net.add(f"{at}experts.up", Experts(self.width, hidden, *count, bias), source)
        inside = net.add(f"{at}experts.multiply", Multiply(), gate, up)
        last = net.add(f"{at}experts.down", Experts(hidden, self.width, *count, bias, joins=True), inside)
        if self.shared_hidden:
            other = self._dense(net, f"{at}shared.", source, self.shared_hidden)
            if self.shared_gate:
                net.add(f"{at}shared.router", Linear(self.width, 1, False), source)
            last = net.add(f"{at}experts.add", Add(), last, other)
        return last


def decoder_of_config(place: str, config: Mapping[str, Any], name: str) -> Decoder:
    """Return the sizes that a config.json describes.

    Parameters
    ----------
    place : str
        For errors.
    name : str
        Of the network.

    Raises
    ------
    ValueError
        The family is unknown, a key is missing, or a value is implausible.
    """
    inner = config.get("text_config")
    if isinstance(inner, Mapping):
        config = {**config, **inner}
    family, kind = kind_named(Keys(place, config), config.get("model_type"), KINDS)
    keys = Keys(place, completed(config, kind), kind.keys)
    for key in UNREAD:
        if config.get(key):
            keys.fail(f"{key} is {shown(config[key])}, which is not read, expected none")
    sizes, latent = sizes_of_config(keys, kind, POSITIONS), latent_of_config(keys, family)
    return Decoder(
        **vars(sizes), name=name, kind=kind.name, options=family, tied=keys.flag("tie_word_embeddings"),
        biases=biases_of_config(keys, kind), post_norms=family.post_norms,
        qk_norm=bool(family.qk_norm) and (not family.qk_norm_flag or keys.flag(family.qk_norm_flag)),
        gated=family.is_gated, shared_gate=kind.experts is not None and kind.experts.is_shared_gated,
        latent=latent, learned_positions=sizes.context + family.position_offset if family.learned_positions else 0,
        parallel=family.parallel == "always" or (family.parallel != "" and keys.flag(family.parallel)),
        output_bias=family.output_bias, token_types=keys.count("type_vocab_size") if family.token_types else 0,
    )  # fmt: skip


def decoder_of_keys(
    place: str,
    found: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    name: str,
    listed: Callable[[str], Any] = lambda key: None,
) -> Decoder:
    """Return the sizes that the keys of a GGUF file describe.

    Parameters
    ----------
    place : str
        For errors.
    found : mapping
        Keys of the file.
    shapes : mapping of str to tuple of int
        Of its tensors.
    name : str
        Of the network.
    listed : callable, optional
        Reads the list of a key, None if the file has none.

    Raises
    ------
    ValueError
        As for `decoder_of_config`, or the file describes no model.
    """
    name_of = str(found.get("general.architecture", "none"))
    family = FAMILIES.get(name_of, Family(name_of, runs=False, period=None))
    keys, table = Keys(place, found), shapes.get("token_embd.weight")
    if table is None or len(table) != 2 or f"{name_of}.block_count" not in found:
        keys.fail(f"describes no language model: its architecture is {shown(name_of)}")
    known = {f"blk.0.{part}.weight" for part in ("attn_q", "attn_qkv", *(("attn_q_a",) if family.is_latent else ()))}
    if ("blk.0.attn_kv_a_mqa.weight" in shapes and not family.is_latent) or not known & {*shapes}:
        keys.fail(f"the attention of the architecture {shown(name_of)} is not read; expected a Hugging Face folder")
    usual = {"feed_forward_length": 0, "context_length": POSITIONS, "expert_used_count": 2}
    sizes = sizes_of_keys(keys, family, table[0], listed, usual)
    latent = latent_of_keys(keys, family, 0.0)
    if latent is not None:  # llama.cpp counts one head of keys, and the width of a latent
        sizes = replace(sizes, kv_heads=sizes.heads, head_width=latent.plain + latent.rotary)
    shared = next((size[0] for tensor, size in shapes.items() if tensor.endswith(".ffn_up_shexp.weight")), 0)
    biases = {"attn_q": "attn_q", "attn_qkv": "attn_q", "attn_output": "attn_output", "ffn_up": "ffn_up",
              "ffn_up_exps": "ffn_exps"}  # fmt: skip
    return Decoder(
        **{**vars(sizes), "shared_hidden": shared}, name=name, kind=name_of, options=family,
        tied="output.weight" not in shapes,
        biases={part for tensor, part in biases.items() if f"blk.0.{tensor}.bias" in shapes},
        qk_norm="blk.0.attn_q_norm.weight" in shapes, post_norms="blk.0.post_ffw_norm.weight" in shapes,
        gated="blk.0.ffn_gate.weight" in shapes or bool(sizes.experts) or bool(family.fused),
        latent=latent, learned_positions=math.prod(shapes.get("position_embd.weight", (0,))[:1]),
    )  # fmt: skip
