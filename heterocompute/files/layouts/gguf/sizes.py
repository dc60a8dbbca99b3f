"""Keys and tensors of a GGUF file that describe the sizes and options of a language model.

    hidden_size, num_hidden_layers, ...    llama.embedding_length, llama.block_count, ...
    layer_types                            attention.sliding_window_pattern: a period, or a flag per layer
    rope_type linear, yarn                 rope.scaling.type, .factor, .original_context_length, .attn_factor
    rope_type llama3                       rope_freqs.weight, the divisors of the frequencies
    rope_type longrope                     rope_factors_short.weight, rope_factors_long.weight, rope.scaling.attn_factor

The keys are read again as `zoo.open_llm` reads them, and a model that they do not describe is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....base.errors import WrongValue
from ....families.record import FACTOR_KEYS, LOGIT_CAPS
from ....zoo.llm.shape import SIGMOID, SOFTMAX, TYPES, Rope, Shape, of_gguf, usual_amplitude
from ..linear import Array
from .agreement import difference

NORMED = 64  # layers of command-r from which on llama.cpp has norms of queries and keys
FACTORS = "rope_freqs.weight"
LONG = ("rope_factors_short.weight", "rope_factors_long.weight")
MAX_PERIOD = 64
OF_EXPERTS = ("ffn_gate_inp", "ffn_gate_inp_shexp", "exp_probs_b")
ALL_FRACTIONS = "gpt-oss"  # all its models have limits between pairs, which their users expect llama.cpp to round
YARN = (1.0, 32.0)  # beta_slow and beta_fast of llama.cpp, which reads no others


@dataclass(frozen=True)
class Described:
    """Keys and tensors that describe a model.

    Attributes
    ----------
    keys : dict of str to Any
    tensors : dict of str to ndarray
    notes : tuple of str
        What llama.cpp computes otherwise than transformers, each a sentence.
    """

    keys: dict[str, Any]
    tensors: dict[str, Array]
    notes: tuple[str, ...]


def described(shape: Shape, roles: Mapping[str, str]) -> Described:
    """Return the description of a model for llama.cpp.

    Parameters
    ----------
    shape : Shape
        As config.json describes it.
    roles : mapping of str to str
        Of its tensors.

    Raises
    ------
    ValueError
        llama.cpp cannot represent the model, or would compute something else.
    """
    refusal = _refusal(shape, roles)
    if refusal is not None:
        raise WrongValue(refusal)
    notes: list[str] = []
    shape = _as_computed(shape, notes)
    found = _sizes(shape, notes) | _rope(shape, shape.rope, shape.long_rope, notes)
    if shape.options.local_base is not None and "rope.scaling.attn_factor" in found and any(shape.windows):
        raise WrongValue("llama.cpp multiplies the layers with a window by attention_factor, too")
    keys = {f"{shape.options.architecture}.{key}": value for key, value in found.items()}
    keys |= {TYPES: shape.token_types} if shape.token_types else {}
    tensors = _tensors(shape)
    _check(shape, {"general.architecture": shape.options.architecture} | keys, tensors)
    return Described(keys | {"general.quantization_version": 2}, tensors, tuple(notes))


def _as_computed(shape: Shape, notes: list[str]) -> Shape:
    """Return the model that llama.cpp computes where no key says otherwise, and note the differences."""
    if shape.activation == "gelu_erf":
        notes.append(
            f"llama.cpp computes the tanh form of gelu in {shape.options.architecture}, transformers the exact form"
        )
    if shape.options.skips_padding:
        notes.append("llama.cpp counts a padding token within a text as a position, transformers does not")
    shape = replace(shape, routing=replace(shape.routing, interleaved=False))
    if shape.rope.whole:
        return shape
    if shape.family != ALL_FRACTIONS:
        raise WrongValue("llama.cpp rounds the limits of yarn to whole pairs, this model does not")
    notes.append("llama.cpp rounds the limits of yarn to whole pairs, transformers does not in this model")
    return replace(shape, rope=replace(shape.rope, whole=True), local_rope=replace(shape.local_rope, whole=True))


def factors_of(rope: Rope) -> Array:
    """Return the divisors of RoPE's frequencies in llama.cpp."""
    plain = rope.base ** (-np.arange(0, rope.width, 2, dtype=np.float64) / rope.width)
    return (plain / rope.frequencies()).astype(np.float32)


def _refusal(shape: Shape, roles: Mapping[str, str]) -> str | None:
    """Return why the architecture cannot hold a model, as a sentence; None if it can."""
    family, name = shape.options, shape.options.architecture
    if family.no_gguf:
        return f"the family {family.name} is not written: {family.no_gguf}"
    if shape.activation != family.activation:
        return f"the architecture {name} has the activation {family.activation}, and this model {shape.activation}"
    if family.windowed_layers not in (0, shape.layers) and any(shape.windows):
        return f"llama.cpp computes windows of {name} with {family.windowed_layers} layers only"
    if shape.experts and family.mixture is None:
        return f"the architecture {name} is not written with experts"
    if family.is_parallel and not shape.parallel:
        return f"the parts of a layer of the architecture {name} read the same input, and those of this model do not"
    if shape.alibi and family.alibi != "always":
        return f"the architecture {name} has no biases by the distance"
    for role in roles:
        part, end = role.split(".")[-2:]
        if part.endswith("_shexp") and end == "bias":
            return f"the architecture {name} has no tensor {role}"
        if shape.experts and (part.endswith(("_exps", "_shexp")) or part in OF_EXPERTS or part == "attn_sinks"):
            continue
        has_norm = family.norm_bias and part in family.parts and part.endswith("_norm")
        is_known = role.startswith("blk.") and part in (family.biases if end == "bias" else family.parts)
        is_known = is_known or (
            end == "bias" and (has_norm or role in ("output.bias", "output_norm.bias", "token_embd_norm.bias"))
        )
        if not is_known and (role.startswith("blk.") or end == "bias"):
            return f"the architecture {name} has no tensor {role}"
    if family.needs_output and "output.weight" not in roles:
        return f"the architecture {name} needs an output of its own, and this model has that of the embedding"
    parts = [part for part in family.biases if family.needs_biases and f"blk.0.{part}.weight" in roles]
    if missing := next((part for part in parts if f"blk.0.{part}.bias" not in roles), None):
        return f"the architecture {name} needs a bias of {missing}, which this model does not have"
    if "output.weight" in roles and not family.has_output:
        return f"the output of the architecture {name} is the embedding, and this model has another one"
    if family.is_square and shape.heads * shape.head_width != shape.width:
        what = f"{shape.heads} heads of {shape.head_width} values have another width than the model, {shape.width}"
        return f"{what}, which the architecture {name} does not have"
    if family.qk_norm == "apart" and shape.qk_norm != (shape.layers >= NORMED):
        has = "norms" if shape.qk_norm else "no norms"
        return f"{has} of queries with {shape.layers} layers: the architecture {name} has them from {NORMED} layers on"
    if family.is_ungrouped and shape.heads != shape.kv_heads:
        return f"{shape.heads} heads share {shape.kv_heads} heads of keys, which the architecture {name} does not have"
    for key, cap in zip(LOGIT_CAPS, (shape.attention_cap, shape.logit_cap), strict=True):
        if cap is not None and key not in family.caps:
            return f"the architecture {name} has no {key}"
    if shape.latent is not None and not shape.rope.pairs:
        return f"the architecture {name} rotates neighbors, and this model does not (rope_interleave)"
    if shape.latent is not None and shape.experts and not shape.shared_hidden:
        return f"the architecture {name} needs shared experts, which this model does not have"
    if shape.temperature is not None and not family.has_temperature:
        return f"the architecture {name} has no factor of queries by positions"
    if shape.rope.scaling == "llama3" and not family.has_divisors:
        return f"the architecture {name} has no divisors of RoPE's frequencies, which llama3 needs"
    if shape.long_rope is not None and not family.has_long:
        return f"the architecture {name} has no factors of longrope"
    return None


def _check(shape: Shape, keys: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
    """Raise ValueError if the keys describe another model."""
    texts = {key: str(float(np.float32(value)) if isinstance(value, float) else value) for key, value in keys.items()
             if not isinstance(value, list)}  # fmt: skip
    long = {name: tensors[name].tolist() for name in LONG if name in tensors}
    lists = {key: value for key, value in keys.items() if isinstance(value, list)}
    declared = of_gguf("the keys of GGUF", texts, shape.vocabulary, FACTORS in tensors, lists.get, long,
                       encoder=shape.options.is_encoder)  # fmt: skip
    if shape.options.qk_norm_flag:  # by the tensors
        declared = replace(declared, qk_norm=shape.qk_norm)
    what = difference(shape, declared, (None, tensors.get(FACTORS)))
    if what is not None:
        raise WrongValue(f"config.json and the keys of the architecture {shape.options.architecture} differ in {what}")


def _sizes(shape: Shape, notes: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "context_length": shape.context, "embedding_length": shape.width, "block_count": shape.layers,
        "feed_forward_length": shape.hidden, "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads, "attention.key_length": shape.head_width,
        "attention.value_length": shape.head_width, shape.options.epsilon: shape.epsilon,
        "vocab_size": shape.vocabulary,
    }  # fmt: skip
    for key, cap in zip(LOGIT_CAPS, (shape.attention_cap, shape.logit_cap), strict=True):
        found |= {} if cap is None else {key: cap}
    values = {
        "embedding": shape.embedding_factor, "residual": shape.residual_factor, "attention": shape.scale,
        "logits": shape.logit_factor, "logits divided": 1 / shape.logit_factor,
    }  # fmt: skip
    found |= {FACTOR_KEYS[one]: values[one] for one in shape.options.factors}
    if shape.options.parallel not in ("", "always") and not shape.options.is_parallel:
        found[shape.options.parallel] = shape.parallel
    if shape.options.is_encoder:
        found["attention.causal"] = False
    if shape.temperature is not None:
        found["attention.temperature_scale"] = shape.temperature[0]
    if (latent := shape.latent) is not None:
        found |= {"attention.head_count_kv": 1, "attention.key_length": latent.keys + latent.rotary,
                  "attention.value_length": latent.keys, "attention.kv_lora_rank": latent.keys,
                  "attention.q_lora_rank": latent.query, "attention.key_length_mla": latent.plain + latent.rotary,
                  "attention.value_length_mla": latent.value}  # fmt: skip
    return found | _experts(shape) | _windows(shape, notes)


def _experts(shape: Shape) -> dict[str, Any]:
    """Return the keys for experts."""
    rule = shape.options.mixture
    if rule is None or not shape.experts:
        return {}
    found: dict[str, Any] = {"expert_count": shape.experts, "expert_used_count": shape.experts_used}
    if rule.has_width:
        found["expert_feed_forward_length"] = shape.expert_hidden
    if rule.shared == "count":
        found["expert_shared_count"] = shape.shared_hidden // shape.expert_hidden
    elif rule.shared == "width":
        found["expert_shared_feed_forward_length"] = shape.shared_hidden
    if rule.has_dense:
        found["leading_dense_block_count"] = len(shape.dense)
    if rule.is_scaled:
        found["expert_weights_scale"] = shape.routing.factor
    if rule.sums == "key":
        found["expert_weights_norm"] = shape.shares_sum_to_one
    if rule.has_groups and shape.routing.groups > 1:
        found |= {"expert_group_count": shape.routing.groups, "expert_group_used_count": shape.routing.groups_used}
    if rule.router != "softmax":
        found["expert_gating_func"] = SIGMOID if shape.routing.function == "sigmoid" else SOFTMAX
    return found


def _windows(shape: Shape, notes: list[str]) -> dict[str, Any]:
    """Return the keys for layers with a window; where llama.cpp has none, the context is as short as the window."""
    window = min((one for one in shape.windows if one is not None), default=None)
    if window is None:
        return {}
    if shape.options.has_windows == "read":
        both = shape.options.is_two_sided
        found: dict[str, Any] = {"attention.sliding_window": 2 * (window - 1) if both else window}
        if shape.options.local_base is not None:
            found["rope.freq_base_swa"] = shape.local_rope.base
        pattern = _pattern(shape)
        return found if pattern == shape.options.period else {**found, "attention.sliding_window_pattern": pattern}
    if window >= shape.context:
        return {}
    if shape.options.has_windows:
        notes.append(
            f"llama.cpp reads no sliding window in {shape.options.architecture}, and differs after {window} tokens"
        )
        return {"attention.sliding_window": window}
    notes.append(
        f"the context is {window} instead of {shape.context} tokens, because llama.cpp has no sliding window in "
        f"{shape.options.architecture}"
    )
    return {"context_length": window}


def _pattern(shape: Shape) -> int | list[bool]:
    """Return the number of layers after which one sees all positions, or whether each layer has a window."""
    kinds = [one is not None for one in shape.windows]
    periods: list[int] = [shape.options.period or 0, 0, *range(2, MAX_PERIOD)]
    for period in periods:
        first = 0 if shape.options.begins_global else 1
        if kinds == [not period or (i + first) % period != 0 for i in range(shape.layers)]:
            return period
    if shape.options.begins_global:
        raise WrongValue(f"llama.cpp reads no list of layers with a window in {shape.options.architecture}")
    return kinds


def _weight(shape: Shape) -> float:
    """Return mscale_all_dim of yarn: of latents the factor of scores tells it, of others that of cosine and sine."""
    family, rope, latent = shape.options, shape.rope, shape.latent
    if not family.log_multiplier or rope.factor <= 1:
        return 0.0
    if latent is None:
        return 1.0 if abs(rope.amplitude - 1) < 1e-7 else 0.0
    extra = math.sqrt(shape.scale * math.sqrt(latent.plain + latent.rotary))
    return 0.0 if abs(extra - 1) < 1e-7 else float((extra - 1) / (0.1 * math.log(rope.factor)))


def _rope(shape: Shape, rope: Rope, long_rope: Rope | None, notes: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"rope.dimension_count": rope.width, "rope.freq_base": rope.base}
    if rope.scaling in ("linear", "yarn"):
        found |= {"rope.scaling.type": rope.scaling, "rope.scaling.factor": rope.factor}
    if rope.scaling == "yarn":
        if (rope.low, rope.high) != YARN and not shape.options.has_limits:
            raise WrongValue(f"llama.cpp does not read beta_slow {rope.low:g} and beta_fast {rope.high:g} of yarn")
        if (rope.low, rope.high) != YARN:
            found |= {"rope.scaling.yarn_beta_slow": rope.low, "rope.scaling.yarn_beta_fast": rope.high}
        found["rope.scaling.original_context_length"] = _integer(rope.original)
        if weight := _weight(shape):
            found["rope.scaling.yarn_log_multiplier"] = weight * shape.options.log_multiplier
        usual = usual_amplitude(rope.factor, weight, shape.latent is not None)
        if abs(rope.amplitude / usual - 1) > 1e-7:
            found["rope.scaling.attn_factor"] = rope.amplitude / usual
    if long_rope is not None:
        found["rope.scaling.original_context_length"] = _integer(rope.original)
        found["rope.scaling.attn_factor"] = rope.amplitude
        notes.append(
            f"llama.cpp uses the long factors of longrope if its context is more than {rope.original:g} tokens, "
            f"transformers only for texts that are longer"
        )
    return found


def _integer(original: float) -> int:
    if original != int(original):
        raise WrongValue(f"original_max_position_embeddings is {original:g}, expected an integer")
    return int(original)


def _tensors(shape: Shape) -> dict[str, Array]:
    if shape.rope.scaling == "llama3":
        return {FACTORS: factors_of(shape.rope)}
    if shape.long_rope is not None:
        ropes = (shape.rope, shape.long_rope)
        return {name: np.array(rope.factors, np.float32) for name, rope in zip(LONG, ropes, strict=True)}
    return {}
