"""Language models as networks, from the sizes in config.json or in a GGUF file's keys.

One block: norm, attention, sum, norm, gated feed-forward part or experts, sum. Rotary positions are not counted.
DeepSeek's attention has two forms. A prompt maps its latents to keys and values. A decoder maps its query to the space
of the cached latents instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...base.texts import near_words, printable
from ...base.values import shown
from .graph import Builder, Network
from .heads import Experts, HeadNorm, Heads, Sinks
from .layers import AddTable, Context, Embedding, LayerNorm, Linear, Scores
from .plain import Activation, Add, Multiply, Softmax
from .windows import windows_of_config, windows_of_keys

__all__ = ["Decoder", "decoder_of_config", "decoder_of_keys"]

POSITIONS = 2048  # number of tokens unless given
MAX_LAYERS, MAX_SIZE = 4096, 1 << 32
CONFIGS = (
    "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3",
    "gemma3_text", "phi3", "smollm3", "deepseek_v2", "deepseek_v3", "gpt_oss", "gpt2", "olmo2", "granite",
)  # fmt: skip
QKV_BIAS = ("qwen2", "qwen2_moe", "gpt_oss", "gpt-oss", "qwen2moe")
QK_NORM = ("qwen3", "qwen3_moe", "gemma3", "gemma3_text", "qwen3moe", "olmo2")
POST_NORMS = ("gemma2", "gemma3", "gemma3_text")
SINKS = ("gpt_oss", "gpt-oss")
MLP_BIAS = ("llama", "smollm3", "granite", "deepseek_v2")  # the families that read mlp_bias
NO_BIAS = ("mistral", "mixtral", "phi3", "qwen2", "qwen2_moe")  # attention_bias has no effect
TIED = ("gemma", "gemma2", "gemma3", "gemma3_text", "gpt2", "smollm3")  # unless config.json says otherwise


@dataclass(frozen=True)
class Latent:
    """DeepSeek's attention: ranks of the latents, and the parts of a head."""

    query: int
    keys: int
    plain: int
    rotary: int
    value: int


@dataclass(frozen=True)
class Decoder:
    """The sizes of a decoder of tokens.

    Attributes
    ----------
    name, family : str
    layers, width, heads, kv_heads, head_width, hidden, tokens, positions : int
    tied : bool
        The output layer shares the matrix of the embedding.
    qkv_bias, output_bias, qk_norm, post_norms, gated, shared_gate : bool
    experts, used, expert_hidden, shared_hidden : int
        0 without experts.
    dense : tuple of int
        Layers without experts in a model with experts.
    dense_bias : bool
        Dense feed-forward parts have a bias.
    latent_bias : bool
        Linear layers to and from the width of `latent` have a bias.
    expert_bias : bool
    latent : Latent or None
    learned_positions : int
        Rows of a table of positions.
    windows : tuple of int or None
        Positions that each layer sees, None if all. Empty: all layers see all.
    """

    name: str
    family: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    hidden: int
    tokens: int
    positions: int
    tied: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    gated: bool = True
    experts: int = 0
    used: int = 0
    expert_hidden: int = 0
    shared_hidden: int = 0
    shared_gate: bool = False
    dense: tuple[int, ...] = ()
    dense_bias: bool = False
    latent_bias: bool = False
    expert_bias: bool = False
    latent: Latent | None = None
    learned_positions: int = 0
    windows: tuple[int | None, ...] = ()

    def network(self) -> Network:
        """Return the network, whose input is tokens."""
        found = self._network(False)
        return found if self.latent is None else replace(found, decoder=self._network(True).nodes)

    def _network(self, cached: bool) -> Network:
        net = Builder(self.name, (min(self.positions, POSITIONS),))
        bias = self.family == "gpt2"  # bias of norms
        source = net.add("embeddings.word", Embedding(self.tokens, self.width))
        if self.learned_positions:
            source = net.add("embeddings.position", AddTable(self.learned_positions, self.width))
        for i in range(self.layers):
            at = f"block{i}."
            before = self.family != "olmo2"  # its norms are only after the parts
            norm = net.add(f"{at}norm1", LayerNorm(self.width, bias=bias), source) if before else source
            last = self._attention(net, f"{at}attention", norm, self.windows[i] if self.windows else None, cached)
            if self.post_norms or not before:
                last = net.add(f"{at}post_norm1", LayerNorm(self.width, bias=False), last)
            source = net.add(f"{at}add1", Add(), source, last)
            norm = net.add(f"{at}norm2", LayerNorm(self.width, bias=bias), source) if before else source
            if self.experts and i not in self.dense:
                last = self._experts(net, at, norm)
            else:
                last = self._dense(net, at, norm, self.hidden)
            if self.post_norms or not before:
                last = net.add(f"{at}post_norm2", LayerNorm(self.width, bias=False), last)
            source = net.add(f"{at}add2", Add(), source, last)
        net.add("norm", LayerNorm(self.width, bias=bias), source)
        net.add("output", Linear(self.width, self.tokens, bias=False, shared=self.tied))
        return net.build(
            f"{self.family}, {net.input_shape[0]} tokens unless said otherwise; rotary positions not counted"
        )

    def _attention(self, net: Builder, at: str, source: str, window: int | None, cached: bool) -> str:
        if self.latent is not None:
            return self._latent_attention(net, at, source, self.latent, cached)
        queries, keys = self.heads * self.head_width, self.kv_heads * self.head_width
        query = net.add(f"{at}.query", Linear(self.width, queries, self.qkv_bias), source)
        key = net.add(f"{at}.key", Linear(self.width, keys, self.qkv_bias), source)
        if self.qk_norm:
            whole = self.family == "olmo2"  # all heads together
            of_query = LayerNorm(queries, bias=False) if whole else HeadNorm(self.heads, self.head_width)
            of_key = LayerNorm(keys, bias=False) if whole else HeadNorm(self.kv_heads, self.head_width)
            query = net.add(f"{at}.query_norm", of_query, query)
            key = net.add(f"{at}.key_norm", of_key, key)
        value = net.add(f"{at}.value", Linear(self.width, keys, self.qkv_bias), source)
        scores = net.add(f"{at}.scores", Scores(self.heads, self.kv_heads, window=window), query, key)
        if self.family in SINKS:
            scores = net.add(f"{at}.sinks", Sinks(self.heads), scores)
        weights = net.add(f"{at}.softmax", Softmax(), scores)
        mixed = net.add(f"{at}.context", Context(self.heads, self.kv_heads, window=window), weights, value)
        return net.add(f"{at}.output", Linear(queries, self.width, self.output_bias), mixed)

    def _latent_attention(self, net: Builder, at: str, source: str, part: Latent, cached: bool) -> str:
        heads = self.heads
        start, size = source, self.width
        if part.query:
            start, size = (
                net.add(f"{at}.query_down", Linear(self.width, part.query, self.latent_bias), source),
                part.query,
            )
            start = net.add(f"{at}.query_norm", LayerNorm(part.query, bias=False), start)
        plain = net.add(f"{at}.query", Linear(size, heads * part.plain, False), start)
        rotary = net.add(f"{at}.query_rotary", Linear(size, heads * part.rotary, False), start)
        latent = net.add(f"{at}.latent", Linear(self.width, part.keys, self.latent_bias), source)
        latent = net.add(f"{at}.latent_norm", LayerNorm(part.keys, bias=False), latent)
        key = net.add(f"{at}.key_rotary", Linear(self.width, part.rotary, self.latent_bias), source)
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
        return net.add(f"{at}.output", Linear(heads * part.value, self.width, self.latent_bias), value)

    def _dense(self, net: Builder, at: str, source: str, hidden: int) -> str:
        bias = self.dense_bias
        if not self.gated:
            net.add(f"{at}fc1", Linear(self.width, hidden, bias), source)
            net.add(f"{at}gelu", Activation("gelu", functional=True))
            return net.add(f"{at}fc2", Linear(hidden, self.width, bias))
        net.add(f"{at}gate", Linear(self.width, hidden, bias), source)
        gate = net.add(f"{at}silu", Activation("silu"))
        up = net.add(f"{at}up", Linear(self.width, hidden, bias), source)
        net.add(f"{at}multiply", Multiply(), gate, up)
        return net.add(f"{at}down", Linear(hidden, self.width, bias))

    def _experts(self, net: Builder, at: str, source: str) -> str:
        hidden, count = self.expert_hidden, (self.experts, self.used)
        net.add(f"{at}router", Linear(self.width, self.experts, self.expert_bias), source)
        gate = net.add(f"{at}experts.gate", Experts(self.width, hidden, *count, self.expert_bias), source)
        gate = net.add(f"{at}experts.silu", Activation("silu"), gate)
        up = net.add(f"{at}experts.up", Experts(self.width, hidden, *count, self.expert_bias), source)
        inside = net.add(f"{at}experts.multiply", Multiply(), gate, up)
        last = net.add(f"{at}experts.down", Experts(hidden, self.width, *count, self.expert_bias, joins=True), inside)
        if self.shared_hidden:
            other = self._dense(net, f"{at}shared.", source, self.shared_hidden)
            if self.shared_gate:
                net.add(f"{at}shared.router", Linear(self.width, 1, False), source)
            last = net.add(f"{at}experts.add", Add(), last, other)
        return last


# Entries that the files of Gemma 3 leave out: src/transformers/models/gemma3/configuration_gemma3.py.
GEMMA3 = {
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
    "vocab_size": 262208, "tie_word_embeddings": True,
}  # fmt: skip


# As in configuration_*.py of the families, for entries that a file leaves out.
DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3": GEMMA3, "gemma3_text": GEMMA3,
    "mixtral": {"num_experts_per_tok": 2},
    "qwen2_moe": {"num_experts_per_tok": 4, "moe_intermediate_size": 1408,
                  "shared_expert_intermediate_size": 5632},
    "qwen3_moe": {"num_experts_per_tok": 8, "moe_intermediate_size": 768, "num_key_value_heads": 4},
    "deepseek_v3": {"num_experts_per_tok": 8, "moe_intermediate_size": 2048,
                    "n_shared_experts": 1, "first_k_dense_replace": 3},
    "gpt_oss": {"num_experts_per_tok": 4, "head_dim": 64},
}  # fmt: skip
COUNTS_OF_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
MOST_EXPERTS = {"mixtral": 8, "qwen2_moe": 60, "qwen3_moe": 128, "deepseek_v2": 64, "deepseek_v3": 256, "gpt_oss": 128}
# The key for the width of an expert, where a family has experts.
WIDTHS = {
    "mixtral": "intermediate_size", "gpt_oss": "intermediate_size", "qwen2_moe": "moe_intermediate_size",
    "qwen3_moe": "moe_intermediate_size", "deepseek_v2": "moe_intermediate_size",
    "deepseek_v3": "moe_intermediate_size",
}  # fmt: skip
# Keys of other families, or of code outside of transformers, that say which layers have experts.
UNREAD = ("add_cross_attention",)
UNREAD_EXPERTS = ("moe_layer_freq", "interleave_moe_layer_step", "moe_layer_interval", "moe_layer_start_index",
                  "moe_layers", "expert_layer_period", "moe_every_n_layers")  # fmt: skip


class _Keys:
    """Values by key, each with its type checked; of a nested object, if that has the sizes."""

    def __init__(self, place: str, found: Mapping[str, Any]) -> None:
        self.place, self.found = place, found

    def count(self, key: str, default: int | None = None, low: int = 1, high: int = MAX_SIZE) -> int:
        value = self.found.get(key)
        if value is None:
            if default is None:
                raise ValueError(f"{printable(self.place)}: the key {shown(key)} is missing")
            return default
        if isinstance(value, str) and value.isdecimal() and len(value) < 16:  # as the keys of a GGUF file are listed
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(
                f"{printable(self.place)}: {key} is {shown(value)}, expected an integer from {low} to {high}"
            )
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.found.get(key)
        return default if value is None else bool(value)


def decoder_of_config(place: str, config: Mapping[str, Any], name: str) -> Decoder:
    """Return the sizes that a config.json describes.

    Parameters
    ----------
    place : str
        For errors.
    config : mapping
    name : str
        Of the network.

    Returns
    -------
    Decoder

    Raises
    ------
    ValueError
        The family is unknown, a key is missing, or a value is implausible.
    """
    inner = config.get("text_config")
    if isinstance(inner, Mapping):
        config = {**config, **inner}
    family = config.get("model_type")
    if family not in CONFIGS:
        near = near_words(family, CONFIGS) if isinstance(family, str) else []
        hint = f"; the nearest is {near[0]}" if near else ""
        raise ValueError(
            f"{printable(place)}: model_type is {shown(family)}, expected one of {', '.join(CONFIGS)}{hint}"
        )
    config = {**DEFAULTS.get(family, {}), **config}
    keys = _Keys(place, config)
    for key in UNREAD:
        if config.get(key):
            raise ValueError(f"{printable(place)}: {key} is {shown(config[key])}, which is not read, expected none")
    if family == "gpt2":
        return _gpt2(keys, name)
    width, heads = keys.count("hidden_size"), keys.count("num_attention_heads", high=1 << 16)
    of_hidden = WIDTHS.get(str(family), "")
    experts = _count_of_experts(keys, str(family)) if of_hidden else 0
    hidden = keys.count("intermediate_size")
    latent = None
    if family in ("deepseek_v2", "deepseek_v3"):
        latent = Latent(
            keys.count("q_lora_rank", 0, 0), keys.count("kv_lora_rank"), keys.count("qk_nope_head_dim"),
            keys.count("qk_rope_head_dim"), keys.count("v_head_dim"),
        )  # fmt: skip
    inside = keys.count(of_hidden, hidden) if of_hidden else hidden
    shared = 0
    if family in ("deepseek_v2", "deepseek_v3"):
        shared = keys.count("n_shared_experts", 0, 0) * inside
    elif family == "qwen2_moe":
        shared = keys.count("shared_expert_intermediate_size", 0, 0)
    bias = family not in NO_BIAS and keys.flag("attention_bias", family in QKV_BIAS)
    of_qkv = family == "qwen2" or keys.flag("qkv_bias", True) if family in ("qwen2", "qwen2_moe") else bias
    layers = keys.count("num_hidden_layers", high=MAX_LAYERS)
    return Decoder(
        name, str(family), layers, width, heads,
        keys.count("num_key_value_heads", heads, high=heads), keys.count("head_dim", max(width // heads, 1)), hidden,
        keys.count("vocab_size"), keys.count("max_position_embeddings", POSITIONS),
        tied=keys.flag("tie_word_embeddings", family in TIED), qkv_bias=of_qkv,
        output_bias=bias, qk_norm=family in QK_NORM,
        post_norms=family in POST_NORMS, experts=experts, used=keys.count("num_experts_per_tok", 2) if experts else 0,
        expert_hidden=inside, shared_hidden=shared if experts else 0, shared_gate=family == "qwen2_moe",
        dense=_without_experts(keys, str(family), layers) if experts else (), expert_bias=family == "gpt_oss",
        latent=latent, latent_bias=bias, dense_bias=family in MLP_BIAS and keys.flag("mlp_bias", False),
        windows=windows_of_config(family, config, keys.count, layers),
    )  # fmt: skip


def _count_of_experts(keys: _Keys, family: str) -> int:
    """Return the number of experts; in transformers each family's key also has the names of other families."""
    given = {one: keys.count(one, 0, 0) for one in COUNTS_OF_EXPERTS if one in keys.found}
    if len(set(given.values())) > 1:
        raise ValueError(f"{printable(keys.place)}: {' and '.join(given)} are {shown(list(given.values()))}, expected "
                         "one number of experts")  # fmt: skip
    return next(iter(given.values()), MOST_EXPERTS.get(family, 0))


def _without_experts(keys: _Keys, family: str, layers: int) -> tuple[int, ...]:
    """Return the layers with one dense feed-forward part in a model with experts."""
    for key in UNREAD_EXPERTS:
        if keys.found.get(key) not in (None, 1):
            raise ValueError(
                f"{printable(keys.place)}: {key} is {shown(keys.found[key])}, which layers of {family} do not read"
            )
    if family in ("deepseek_v2", "deepseek_v3"):
        return tuple(range(min(keys.count("first_k_dense_replace", 0, 0), layers)))
    if family not in ("qwen2_moe", "qwen3_moe"):
        return ()
    step, listed = keys.count("decoder_sparse_step", 1), keys.found.get("mlp_only_layers") or []
    if not isinstance(listed, list) or not all(type(one) is int for one in listed):
        raise ValueError(
            f"{printable(keys.place)}: mlp_only_layers is {shown(listed)}, expected a list of layers, such as [0, 2]"
        )
    return tuple(i for i in range(layers) if i in listed or (i + 1) % step)


def _gpt2(keys: _Keys, name: str) -> Decoder:
    width, heads = keys.count("n_embd"), keys.count("n_head", high=1 << 16)
    positions = keys.count("n_positions", keys.count("n_ctx", 1024))
    return Decoder(
        name, "gpt2", keys.count("n_layer", high=MAX_LAYERS), width, heads, heads, max(width // heads, 1),
        keys.count("n_inner", 4 * width), keys.count("vocab_size"), positions,
        tied=keys.flag("tie_word_embeddings", True), qkv_bias=True, output_bias=True,
        dense_bias=True, gated=False, learned_positions=positions,
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
    family = found.get("general.architecture", "none")
    table = shapes.get("token_embd.weight")
    if table is None or len(table) != 2 or f"{family}.block_count" not in found:
        raise ValueError(f"{printable(place)}: describes no language model: its architecture is {shown(family)}")
    if "blk.0.attn_kv_a_mqa.weight" in shapes or not ({"blk.0.attn_q.weight", "blk.0.attn_qkv.weight"} & {*shapes}):
        raise ValueError(f"{printable(place)}: the attention of the architecture {shown(family)} is not read; "
                         "expected a Hugging Face folder")  # fmt: skip
    keys = _Keys(place, {key.removeprefix(f"{family}."): value for key, value in found.items()})
    width, heads = keys.count("embedding_length"), keys.count("attention.head_count", high=1 << 16)
    experts = keys.count("expert_count", 0, 0)
    hidden = keys.count("feed_forward_length", 0, 0)
    layers = keys.count("block_count", high=MAX_LAYERS)
    flags = listed(f"{family}.attention.sliding_window_pattern")
    shared = next((shapes[n][0] for n in ("blk.0.ffn_up_shexp.weight", "blk.1.ffn_up_shexp.weight") if n in shapes), 0)
    return Decoder(
        name, str(family), layers, width, heads,
        keys.count("attention.head_count_kv", heads, high=heads),
        keys.count("attention.key_length", max(width // heads, 1)), hidden, table[0],
        keys.count("context_length", POSITIONS), tied="output.weight" not in shapes,
        qkv_bias="blk.0.attn_q.bias" in shapes or "blk.0.attn_qkv.bias" in shapes,
        output_bias="blk.0.attn_output.bias" in shapes, qk_norm="blk.0.attn_q_norm.weight" in shapes,
        post_norms="blk.0.post_ffw_norm.weight" in shapes,
        gated="blk.0.ffn_gate.weight" in shapes or bool(experts) or family == "phi3",
        experts=experts, used=keys.count("expert_used_count", 2) if experts else 0,
        expert_hidden=keys.count("expert_feed_forward_length", hidden or 1), shared_hidden=shared,
        dense=tuple(range(min(keys.count("leading_dense_block_count", 0, 0), layers))),
        dense_bias="blk.0.ffn_up.bias" in shapes, expert_bias="blk.0.ffn_up_exps.bias" in shapes,
        learned_positions=math.prod(shapes.get("position_embd.weight", (0,))[:1]),
        windows=windows_of_keys(str(family), flags, keys.count, layers),
    )  # fmt: skip
