"""The record of a family of language models: its configurations, its layers, its tensors, and its GGUF files.

    Family    one architecture of llama.cpp: the order of a block, norms, attention, and the keys of GGUF
    Kind      one ``model_type`` of config.json, in kind.py

`Family` with its defaults is the block of Llama. A family states what differs. The networks (zoo), their counts
(hardware) and their files (GGUF and back, axes of weights) read these records and know no family by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .kind import Kind, Mixture

QKV = ("attn_q", "attn_k", "attn_v")
ATTENTION = (*QKV, "attn_output")
LATENTS = ("attn_q_a", "attn_q_b", "attn_kv_a_mqa", "attn_kv_b")
LATENT_KEYS = ("q_lora_rank", "kv_lora_rank", "key_length_mla", "value_length_mla")
MLP = ("ffn_gate", "ffn_up", "ffn_down")
LOGIT_CAPS = ("attn_logit_softcapping", "final_logit_softcapping")  # the same in config.json and GGUF

# Meaning of a factor -> its key in GGUF.
FACTOR_KEYS = {
    "embedding": "embedding_scale",
    "residual": "residual_scale",
    "attention": "attention.scale",
    "logits": "logit_scale",
    "logits divided": "logit_scale",
}
# Role, which is the name in GGUF -> name in a Hugging Face checkpoint: of the model, and of each layer.
HF_NAMES = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head", "layers": "layers"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_gate_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
}
POST_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


@dataclass(frozen=True)
class Family:
    """One architecture: its block, its tensors, and its keys in GGUF.

    Attributes
    ----------
    name : str
    alias : str
        The value of ``general.architecture``, if it is not the name.
    marks : mapping of str to str
        Tensors of a GGUF file -> name of the family that the file then is.
    kinds : tuple of Kind
        The first describes a file of this architecture in Hugging Face, unless only another one has windows.
    runs : bool
        `zoo.open_llm` computes it; otherwise its operations are counted only.
    pairs : bool
        GGUF rotates neighbors (2 i, 2 i + 1); otherwise i and i + width / 2, as in Hugging Face.
    activation : {"silu", "gelu", "gelu_erf", "relu", "relu2"}
        gelu has the tanh form, gelu_erf is the exact one, relu2 the square of relu.
    is_gated : bool
        The feed-forward part multiplies by a gate.
    scaled_embedding : bool
        Embeddings are multiplied by sqrt(width).
    learned_positions : bool
        A table of positions is added to the embeddings; there is no RoPE.
    position_offset : int
        Rows of that table before the first position.
    embedding_norm : bool
        A norm follows the embeddings.
    is_encoder : bool
        Tokens see all tokens of a text, and there are no logits: `zoo.open_encoder` opens it.
    token_types : bool
        A table of types of tokens is added to the embeddings.
    skips_padding : bool
        Positions do not count the padding token, whose number is `position_offset` - 1.
    sum_norms : bool
        Norms follow the sums of states and of what a part of a layer adds.
    skips_first_norm : bool
        The first layer has no norm before attention.
    output_norm : bool
        A norm follows the last layer.
    alibi : str
        Scores have a bias by the distance, and there is no RoPE: ``always``, or the flag of config.json; "": never.
    scales_alibi : bool
        These biases are bfloat16, and are multiplied by the factor of scores.
    output_bias : bool
        The output may have a bias.
    plus_one : bool
        Hugging Face stores weights of norms minus 1.
    centered, norm_bias, pre_norms, post_norms : bool
        Norms are layer norms; have a bias; a norm comes before attention and before the feed-forward part; after each
        of them.
    parallel : str
        Attention and feed-forward part read the same input: ``always``, or the flag of config.json; "": never.
    shares_norm : bool
        They then have one norm.
    qk_norm : {"", "head", "all", "apart"}
        Queries and keys are normalized: per head, all heads together, or each head by weights of its own.
    rotates_neighbors : bool
        Hugging Face rotates neighbors, too, so that no row is moved.
    unrotated : {"", "listed", "global", "beside windows"}
        Layers without RoPE: those of ``no_rope_layers`` or ``no_rope_layer_interval``; those that see all positions; or
        these if ``sliding_window`` is a number.
    interleaved : bool
        Rows of ``attn_qkv`` are queries, keys and values of one head of keys after the other in Hugging Face.
    qk_norm_flag : str
        The flag of config.json that they are normalized; "": always.
    sinks : bool
        Each head has a further score.
    is_latent : bool
        Keys and values come from latents (DeepSeek).
    fused : tuple of str
        Matrices that are one in Hugging Face: ``attn_qkv`` of queries, keys and values, ``ffn_gate_up``.
    prefix : str
        Beginning of the names in a Hugging Face checkpoint.
    names, layer : mapping of str to str
        Names in a Hugging Face checkpoint that differ from `HF_NAMES`, and from `LAYER`.
    gguf : mapping of str to str
        Roles whose tensors have another name in GGUF.
    period : int or None
        GGUF without a pattern: every `period`-th layer sees all positions, 0: none does; None: no layer has a window.
    is_two_sided : bool
        The key of a window counts the tokens on both sides of a token; otherwise on one side, the token included.
    begins_global : bool
        The first of `period` layers sees all positions, otherwise the last.
    window : int
        Default size of the window in a GGUF file; 0: all positions.
    local_base : float or None
        RoPE's base in the layers with a sliding window.
    caps : mapping of str to float or None
        Which of `LOGIT_CAPS` llama.cpp reads, with the default.
    largest : int
        Number of layers of the model whose scores are scaled by ``(width / heads) ** -0.5`` instead of the head width.
    base : float
        RoPE's base where config.json has none.
    share : float
        Rotated part of a head where config.json has no ``partial_rotary_factor``.
    is_partial : bool
        RoPE may rotate a part of a head (``partial_rotary_factor``).
    rope_types : mapping of str to str
        Values of ``rope_type`` -> their meaning; empty: every known type.
    rope_keys : tuple of str
        Further keys of RoPE's parameters.
    biases : tuple of str
        Those that may have a bias in llama.cpp.
    has_output, needs_output : bool
        The output may be another matrix than the embedding in llama.cpp; it must be one.
    needs_biases : bool
        All of `biases` must be there in llama.cpp.
    mixture : Mixture or None
        Experts in llama.cpp; None: it has none, or they are not described yet.
    is_parallel : bool
        llama.cpp has no flag of `parallel`: both parts always read the same input.
    no_gguf : str
        The reason why GGUF files of the architecture are neither read nor written; "": they are.
    factors : tuple of str
        Meanings of factors that llama.cpp reads (`FACTOR_KEYS`).
    windowed_layers : int
        The only number of layers with which llama.cpp computes windows; 0: any.
    log_multiplier : float
        ``mscale_all_dim`` of yarn is ``yarn_log_multiplier`` divided by this; 0: llama.cpp does not read it.
    has_limits : bool
        llama.cpp reads ``yarn_beta_slow`` and ``yarn_beta_fast``.
    has_temperature : bool
        llama.cpp reads ``attention.temperature_scale``, by which queries grow with positions.
    has_divisors, has_long : bool
        llama.cpp reads ``rope_freqs.weight``; ``rope_factors_short.weight`` and ``rope_factors_long.weight``.
    is_square : bool
        All heads together have the width of the model in llama.cpp.
    is_ungrouped : bool
        Each head has a head of keys of its own in llama.cpp.
    has_windows : {"", "key", "read"}
        llama.cpp knows no window; the file has its key, but llama.cpp does not compute it; or computes it.
    has_scales : bool
        llama.cpp multiplies the feed-forward part by the scales of NVFP4.
    """

    name: str
    kinds: tuple[Kind, ...] = ()
    alias: str = ""
    marks: Mapping[str, str] = field(default_factory=dict)
    runs: bool = True
    pairs: bool = False
    activation: Literal["silu", "gelu", "gelu_erf", "relu", "relu2"] = "silu"
    is_gated: bool = True
    scaled_embedding: bool = False
    learned_positions: bool = False
    position_offset: int = 0
    embedding_norm: bool = False
    is_encoder: bool = False
    token_types: bool = False
    skips_padding: bool = False
    sum_norms: bool = False
    skips_first_norm: bool = False
    output_norm: bool = True
    alibi: str = ""
    scales_alibi: bool = False
    output_bias: bool = False
    plus_one: bool = False
    centered: bool = False
    norm_bias: bool = False
    pre_norms: bool = True
    post_norms: bool = False
    qk_norm: Literal["", "head", "all", "apart"] = ""
    qk_norm_flag: str = ""
    parallel: str = ""
    shares_norm: bool = False
    rotates_neighbors: bool = False
    unrotated: Literal["", "listed", "global", "beside windows"] = ""
    interleaved: bool = False
    sinks: bool = False
    is_latent: bool = False
    fused: tuple[str, ...] = ()
    prefix: str = "model."
    names: Mapping[str, str] = field(default_factory=dict)
    layer: Mapping[str, str] = field(default_factory=dict)
    gguf: Mapping[str, str] = field(default_factory=dict)
    period: int | None = 0
    is_two_sided: bool = False
    begins_global: bool = False
    window: int = 0
    local_base: float | None = None
    caps: Mapping[str, float | None] = field(default_factory=dict)
    largest: int = 0
    base: float = 10_000.0
    share: float = 1.0
    is_partial: bool = False
    rope_types: Mapping[str, str] = field(default_factory=dict)
    rope_keys: tuple[str, ...] = ()
    biases: tuple[str, ...] = QKV
    has_output: bool = True
    needs_output: bool = False
    needs_biases: bool = False
    mixture: Mixture | None = None
    is_parallel: bool = False
    no_gguf: str = ""
    factors: tuple[str, ...] = ()
    windowed_layers: int = 0
    log_multiplier: float = 0.0
    has_limits: bool = False
    has_temperature: bool = False
    has_divisors: bool = False
    has_long: bool = False
    is_square: bool = False
    is_ungrouped: bool = False
    has_windows: Literal["", "key", "read"] = ""
    has_scales: bool = False

    @property
    def architecture(self) -> str:
        """Return the value of ``general.architecture``."""
        return self.alias or self.name

    @property
    def parts(self) -> frozenset[str]:
        """Return the tensors of a layer, by role."""
        inner = ("ffn_gate", "ffn_up") if self.is_gated else ("ffn_up",)
        inner = ("ffn_gate_up",) if "ffn_gate_up" in self.fused else inner
        matrices = (*(("attn_qkv",) if "attn_qkv" in self.fused else QKV), *inner)
        matrices = (*matrices, *(LATENTS if self.is_latent else ()))
        return frozenset({"attn_output", "ffn_down", *matrices, *self.norms(False)})

    def norms(self, parallel: bool) -> tuple[str, ...]:
        """Return the norms of a layer, by role; `parallel`: its parts read the same input."""
        before = ("attn_norm", *(() if parallel and self.shares_norm else ("ffn_norm",))) if self.pre_norms else ()
        after = [*(("post_attention_norm", "post_ffw_norm") if self.post_norms else ())]
        latent = ("attn_q_a_norm", "attn_kv_a_norm") if self.is_latent else ()
        after += ["attn_output_norm", "layer_output_norm"] if self.sum_norms else []
        return (*before, *after, *latent, *(("attn_q_norm", "attn_k_norm") if self.qk_norm else ()))

    @property
    def has_local_rope(self) -> bool:
        """Tell whether some layers with a window have other parameters of RoPE."""
        return any(kind.has_local_rope for kind in self.kinds)

    @property
    def moves_rows(self) -> bool:
        """Tell whether rows of queries and keys have another order in GGUF."""
        return self.pairs and not self.rotates_neighbors

    @property
    def epsilon(self) -> str:
        """Return the key of the epsilon of norms in GGUF."""
        return "attention.layer_norm_epsilon" if self.centered else "attention.layer_norm_rms_epsilon"

    @property
    def gguf_keys(self) -> set[str]:
        """Return the keys of GGUF that are read, beyond those of every family."""
        flags = set() if self.is_parallel else {self.parallel} - {"", "always"}
        mixed = set() if self.mixture is None else self.mixture.keys
        causal = {"attention.causal"} if self.is_encoder else set()
        more = {f"attention.{key}" for key in LATENT_KEYS} if self.is_latent else set[str]()
        more |= {"rope.scaling.yarn_log_multiplier"} if self.log_multiplier else set()
        more |= {"attention.temperature_scale"} if self.has_temperature else set()
        return {self.epsilon, *(FACTOR_KEYS[one] for one in self.factors), *flags, *mixed, *causal, *more}

    @property
    def table(self) -> str:
        """Return the end of the name of the embedding in a Hugging Face checkpoint."""
        return f"{self.names.get('token_embd', HF_NAMES['token_embd'])}.weight"

    @property
    def always_biased(self) -> bool:
        """Tell whether some matrices always have a bias."""
        return any("" in kind.biases for kind in self.kinds)
