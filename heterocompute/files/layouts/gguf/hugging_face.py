"""Language models of llama.cpp under the names of Hugging Face: tensors, order of rows, config.json.

    blk.3.attn_q.weight       model.layers.3.self_attn.q_proj.weight, its rows in the order of halves (llama)
    output_norm.weight        model.norm.weight, of gemma less 1
    rope_freqs.weight         rope_scaling of config.json, as rope_factors_long.weight and rope_factors_short.weight
    blk.3.attn_q.bias         attention_bias
    keys llama.block_count    num_hidden_layers, ...

The names of both are those of zoo/llm/weights.py; llama_cpp.py goes the other way. The tokenizer is not converted.
config.json is read again as `zoo.open_llm` reads it, and a model that it does not describe is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ....base.errors import WrongValue
from ....base.texts import quoted
from ....families.kind import Kind
from ....families.known import TEMPERATURE
from ....families.record import HF_NAMES
from ....families.table import ENCODER_GGUF, GGUF
from ....zoo.llm.arranged import is_turned, order_of
from ....zoo.llm.configuration import ACTIVATIONS, of_config
from ....zoo.llm.gguf_tokens import of_gguf as of_gguf_tokens
from ....zoo.llm.shape import Rope, Shape, of_gguf
from ....zoo.llm.weights import as_held, expected, gguf_names, wanted_names
from ...configuration import CONFIG
from ...containers.gguf_files import Gguf
from ..linear import Array
from .agreement import difference
from .joins import Join
from .llama_cpp import paired
from .sizes import FACTORS, LONG, factors_of

EMBEDDING, CORRECTION = "token_embd.weight", ".exp_probs_b."
EXPERTS = ("ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
JOINED = ("router.layer", "input_linear", "output_linear")  # router, gate and up, down
STACKED = ("router", "experts.gate_up_proj", "experts.down_proj")
LOW, HIGH = 1.0, 4.0  # the values of all known llama3 models
LLAMA3 = {"low_freq_factor": LOW, "high_freq_factor": HIGH}
CONTEXTS = (8192, *(1 << n for n in range(4, 20)))  # contexts before the scaling, the most common first
TOKENS = {"bos_token_id": "bos", "pad_token_id": "padding"}


@dataclass(frozen=True)
class Renamed:
    """A language model with the names of Hugging Face.

    Attributes
    ----------
    names : dict of str to str
        Names of Hugging Face -> names in the file.
    rows : dict of str to ndarray
        For some of these tensors: the row of the file for each row.
    minus_one : frozenset of str
        Tensors to which the file adds 1.
    config : dict of str to Any
        Content of config.json.
    experts : dict of str to tuple of str
        Stacks in the file -> a name for each expert.
    joins : dict of str to Join
        Names of Hugging Face -> how the tensor is made of several of the file, or of a turned one.
    """

    names: dict[str, str]
    rows: dict[str, Array]
    minus_one: frozenset[str]
    config: dict[str, Any]
    experts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    joins: dict[str, Join] = field(default_factory=dict)


def renamed(reader: Gguf) -> Renamed:
    """Return a language model under the names of Hugging Face.

    Raises
    ------
    ValueError
        The file is not a language model of a known family, has a tensor without a name in Hugging Face, or computes
        something that no configuration there describes.
    """
    if EMBEDDING not in reader:
        raise WrongValue(f"the tensor {EMBEDDING} is missing")
    divisors = reader.tensor(FACTORS) if FACTORS in reader else None
    long = {name: np.asarray(reader.tensor(name), np.float32).tolist() for name in LONG if name in reader}
    if len(long) == 1:
        raise WrongValue(f"only one of the tensors {' and '.join(LONG)} is there")
    rows = reader.info(EMBEDDING).shape[0]
    encoder = reader.metadata.get("general.architecture") in ENCODER_GGUF
    shape = of_gguf(
        reader.path, reader.metadata, rows, divisors is not None, reader.listed, long, reader.lists, encoder
    )
    if divisors is not None and (shape.rope.scaling != "none" or shape.rope.amplitude != 1):
        raise WrongValue(f"{FACTORS} and the keys of rope.scaling both change RoPE, which has no name there")
    shape = as_held(shape, dict.fromkeys(reader.names))
    roles = gguf_names(dict.fromkeys(reader.names), shape)
    family, kind = shape.options, _kind(shape)
    wanted = wanted_names(shape, family.prefix, family.names.get("output", HF_NAMES["output"]))
    for name in (FACTORS, *LONG):
        roles.pop(name, None)
    sizes = expected(shape, roles)
    listed = _experts(shape, kind, wanted)
    joins = _joins(shape, kind, {role: name for role, name in roles.items() if role in sizes}, wanted)
    if strange := next((name for role, name in roles.items() if role not in wanted or role not in sizes), None):
        raise WrongValue(f"the tensor {quoted(strange)} has no name there")
    for role, size in sizes.items():
        if role not in roles or reader.info(roles[role]).shape != size:
            raise WrongValue(f"the tensor for {role} is missing or has another shape than {size}")
    orders = {}
    heads = {"attn_q": shape.heads, "attn_k": shape.kv_heads} if family.moves_rows else {}
    for role in roles:
        count = heads.get(role.split(".")[2]) if role.startswith("blk.") else None
        if count is not None:
            orders[wanted[role]] = np.argsort(paired(count, shape.head_width))
        if family.interleaved and ".attn_qkv." in role:
            orders[wanted[role]] = np.argsort(order_of(shape))
    minus_one = frozenset(wanted[role] for role in roles if shape.options.plus_one and "norm." in role)
    config = _config(reader, shape, set(roles), divisors)
    declared = of_config(f"{reader.path}, as {CONFIG}", config, rows, encoder)
    declared = replace(declared, routing=replace(declared.routing, interleaved=False))  # `joins` put rows in order
    what = difference(shape, declared, (divisors, None))
    if what is not None:
        raise WrongValue(f"{CONFIG} of {config['model_type']} cannot describe the model: they differ in {what}")
    experts = {roles[role]: names for role, names in listed.items() if role in roles}
    names = {wanted[role]: name for role, name in roles.items() if name not in experts and wanted[role] not in joins}
    return Renamed(names, orders, minus_one, config, experts, joins)


def _joins(shape: Shape, kind: Kind, roles: dict[str, str], wanted: dict[str, str]) -> dict[str, Join]:
    """Return the tensors of a folder that are made of several, or turned, and add the names of their parts."""
    found = dict[str, Join]()
    for role, name in roles.items():
        at, part, end = role.rpartition(".")[0].rpartition(".")[0], *role.split(".")[-2:]
        if is_turned(kind.turned, role, wanted.get(role, "")) and part not in EXPERTS:
            found[wanted[role]] = Join((name,), is_turned=True)
        if part == "attn_k_b":
            other, target = f"{at}.attn_v_b.weight", wanted[f"{at}.attn_kv_b.weight"]
            wanted |= {role: target, other: target}
            found |= {target: Join((name, roles[other]), of_heads=True)} if other in roles else {}
        if kind.experts is None or not kind.experts.is_joined or part not in EXPERTS:
            continue
        block = f"{shape.options.prefix}layers.{at.split('.')[1]}.{kind.experts.block}."
        router, both, down = JOINED if kind.experts.block == "block_sparse_moe" else STACKED
        if part == "ffn_gate_inp":
            wanted[role] = f"{block}{router}.{end}"
            continue
        target = f"{block}{down if part == 'ffn_down_exps' else both}"
        target += {"weight": ".weight" if router.endswith("layer") else "", "bias": "_bias"}[end]
        wanted[role], turned = target, kind.turned == "experts" and end == "weight"
        several = (name,) if part == "ffn_down_exps" else (f"{at}.ffn_gate_exps.{end}", f"{at}.ffn_up_exps.{end}")
        found[target] = Join(several, kind.experts.is_interleaved and len(several) > 1, turned)
    return found


def _experts(shape: Shape, kind: Kind, wanted: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """Return a name for each expert of a stack, by role, and add the names of routers and shared experts."""
    found = dict[str, tuple[str, ...]]()
    experts, prefix = kind.experts, shape.options.prefix
    if experts is None or not shape.experts or experts.is_joined:
        return found
    shared = "shared_expert" if experts.shared == "width" else "shared_experts"
    for i in range(shape.layers):
        role, at = f"blk.{i}.ffn_", f"{prefix}layers.{i}.{experts.block}."
        wanted |= {f"{role}gate_inp.weight": f"{at}gate.weight",
                   f"{role}gate_inp_shexp.weight": f"{at}{shared}_gate.weight",
                   f"blk.{i}.exp_probs_b.bias": f"{at}gate.e_score_correction_bias"}  # fmt: skip
        for part, name in zip(("gate", "up", "down"), experts.parts, strict=True):
            wanted[f"{role}{part}_shexp.weight"] = f"{at}{shared}.{part}_proj.weight"
            several = tuple(f"{at}experts.{j}.{name}.weight" for j in range(shape.experts))
            found[f"{role}{part}_exps.weight"], wanted[f"{role}{part}_exps.weight"] = several, several[0]
    return found


def _kind(shape: Shape) -> Kind:
    """Return the kind that describes the model: the first that has windows, or none, as it does."""
    has = any(one is not None for one in shape.windows)
    every = shape.options.kinds or {**GGUF, **ENCODER_GGUF}[shape.options.architecture].kinds
    kinds = [kind for kind in every if (kind.experts is not None) == bool(shape.experts)] or [*every]
    kinds = [one for one in kinds if one.experts and one.experts.router == shape.routing.function] or kinds
    return next((kind for kind in kinds if (kind.windows is not None) == has), kinds[0])


def _biases(shape: Shape, kind: Kind, roles: set[str]) -> dict[str, bool]:
    """Return the keys of config.json for biases; ValueError for biases that transformers cannot say."""
    held = {role.split(".", 2)[2].removesuffix(".bias") for role in roles
            if role.startswith("blk.") and role.endswith(".bias") and "_norm." not in role and CORRECTION not in role
            and role.split(".")[2] not in EXPERTS}  # fmt: skip
    found, declared = dict[str, bool](), set[str]()
    for key, parts in kind.biases.items():
        if parts == ("ffn_exps",):
            continue
        has = not key or not held.isdisjoint(parts)
        declared |= {*parts} if has else set()
        found |= {key: has} if key else {}
    for i in range(shape.layers):
        for part in sorted(held | declared):
            if (part in declared) != (f"blk.{i}.{part}.bias" in roles):
                state = "lacks" if part in declared else "has"
                raise WrongValue(f"layer {i} {state} a bias of {part}, unlike every layer of {kind.name} there")
    return found


def _config(reader: Gguf, shape: Shape, roles: set[str], divisors: Array | None) -> dict[str, Any]:
    kind = _kind(shape)
    activation = ACTIVATIONS[shape.activation][0]
    name = kind.title or shape.family.capitalize()
    found: dict[str, Any] = {
        "architectures": [name + ("Model" if shape.options.is_encoder else "ForCausalLM")],
        "model_type": kind.name, "hidden_act": activation,
        "hidden_size": shape.width, "intermediate_size": shape.hidden, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_width,
        "rms_norm_eps": _short(shape.epsilon), "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.context,
        "rope_theta": _short(shape.rope.base), "tie_word_embeddings": "output.weight" not in roles,
    }  # fmt: skip
    found |= _biases(shape, kind, roles) | _mixture(shape, kind)
    if (latent := shape.latent) is not None:
        found |= {"q_lora_rank": latent.query or None, "kv_lora_rank": latent.keys, "qk_nope_head_dim": latent.plain,
                  "qk_rope_head_dim": latent.rotary, "v_head_dim": latent.value}  # fmt: skip
    if shape.options.qk_norm_flag:
        found[shape.options.qk_norm_flag] = shape.qk_norm
    values = {
        "embedding": shape.embedding_factor, "residual": shape.residual_factor, "attention": shape.scale,
        "logits": shape.logit_factor, "logits divided": 1 / shape.logit_factor,
    }  # fmt: skip
    found |= {key: _short(values[meaning]) for key, meaning in kind.factors.items()}
    if shape.options.parallel not in ("", "always"):
        found[shape.options.parallel] = shape.parallel
    if shape.token_types:
        found["type_vocab_size"] = shape.token_types
    if shape.options.scaled_embedding:
        found["hidden_activation"] = activation
    if shape.options.is_partial and shape.rope.width != int(shape.options.share * shape.head_width):
        found["partial_rotary_factor"] = _share(shape.rope.width, shape.head_width)
    if shape.options.local_base:
        found["rope_local_base_freq"] = _short(shape.local_rope.base)
    if "query_pre_attn_scalar" in kind.reads:
        scalar = shape.scale**-2
        found["query_pre_attn_scalar"] = round(scalar) if abs(round(scalar) / scalar - 1) < 1e-6 else scalar
        found |= {"attn_logit_softcapping": shape.attention_cap, "final_logit_softcapping": shape.logit_cap}
    found |= _windows(shape, kind)
    found |= {} if kind.stated is None else kind.stated(shape)
    scaling = _scaling(shape, divisors)
    if scaling is not None and shape.options.has_temperature:
        scaling.setdefault(TEMPERATURE, 0.0)  # transformers needs the key
    found |= {} if scaling is None else {"rope_scaling": scaling}
    if scaling is None and "rope_parameters" in kind.defaults:
        found["rope_parameters"] = {"rope_type": "default", "rope_theta": _short(shape.rope.base)}
    if shape.long_rope is not None:
        found["original_max_position_embeddings"] = int(shape.rope.original)
    for key, word in TOKENS.items():
        declared = reader.metadata.get(f"tokenizer.ggml.{word}_token_id")
        found[key] = int(declared) if declared is not None and declared.isdecimal() and len(declared) < 10 else None
    ends = _ends(reader, shape.vocabulary)
    found["eos_token_id"] = ends if len(ends) > 1 else next(iter(ends), None)
    if kind.implied is not None:  # heads of another width are refused, since config.json cannot say them
        del found["head_dim"]
    for usual, names in kind.keys.items():
        if usual in found:
            found[names[0]] = found.pop(usual)
    if found["pad_token_id"] is None:  # the default of a family may be beyond the vocabulary
        found["pad_token_id"] = next(iter(ends), None)
    return found


def _mixture(shape: Shape, kind: Kind) -> dict[str, Any]:
    """Return the keys for experts."""
    experts = kind.experts
    if experts is None or not shape.experts:
        return {}
    found: dict[str, Any] = {experts.key: shape.experts, "num_experts_per_tok": shape.experts_used}
    if experts.hidden != "intermediate_size":
        found[experts.hidden] = shape.expert_hidden
    if experts.shares:
        found[experts.shares] = shape.shares_sum_to_one
    if experts.factor:
        found[experts.factor] = _short(shape.routing.factor)
    if experts.has_groups:
        found |= {"n_group": shape.routing.groups, "topk_group": shape.routing.groups_used}
    if experts.shared == "count":
        found["n_shared_experts"] = shape.shared_hidden // shape.expert_hidden
    elif experts.shared == "width":
        found["shared_expert_intermediate_size"] = shape.shared_hidden
    if experts.dense == "first":
        found["first_k_dense_replace"] = len(shape.dense)
    elif experts.dense == "step":
        found |= {"decoder_sparse_step": 1, "mlp_only_layers": []}
    return found


def _ends(reader: Gguf, vocabulary: int) -> list[int]:
    """Return the tokens that end texts or a turn, the usual one first; none without a vocabulary."""
    tokens = of_gguf_tokens(reader.path, reader.metadata, reader.listed, vocabulary)
    try:
        usual, several = tokens.end, sorted(tokens.ends)
    except ValueError:
        return []
    return [] if usual is None else [usual, *(one for one in several if one != usual)]


def _short(value: float) -> float:
    """Return the shortest number that is the same float32."""
    return float(str(np.float32(value)))


def _share(rotated: int, width: int) -> float:
    """Return the smallest share of a head's width for which transformers rotates exactly this number of values."""
    share = rotated / width
    return share if int(width * share) == rotated else float(np.nextafter(share, 1.0))


def _windows(shape: Shape, kind: Kind) -> dict[str, Any]:
    """Return the keys for layers with a window."""
    window = min((one for one in shape.windows if one is not None), default=None)
    if kind.windows is not None and kind.windows.every:
        return {"sliding_window": window}
    if kind.windows is None or (window is None and kind.windows.is_switched):
        return {}
    kinds = ["full_attention" if one is None else "sliding_attention" for one in shape.windows]
    if shape.options.is_two_sided:
        return {"layer_types": kinds} | ({} if window is None else {"local_attention": 2 * (window - 1)})
    is_default = window is None and shape.options.unrotated != "beside windows"
    found: dict[str, Any] = {} if is_default else {"sliding_window": window}
    if kind.windows.is_switched:
        found["use_sliding_window"] = True
    return found | {"layer_types": kinds}


def _scaling(shape: Shape, divisors: Array | None) -> dict[str, Any] | None:
    """Return rope_scaling; for llama3 the file has only the divisors."""
    rope = shape.rope
    if shape.long_rope is not None:
        short, long = ([_short(one) for one in one_of.factors] for one_of in (rope, shape.long_rope))
        return {"rope_type": "longrope", "short_factor": short, "long_factor": long,
                "factor": rope.factor, "attention_factor": rope.amplitude}  # fmt: skip
    if divisors is not None:
        plain = rope.base ** (-np.arange(0, rope.width, 2, dtype=np.float64) / rope.width)
        if divisors.shape != plain.shape or not (np.isfinite(divisors) & (divisors > 0)).all():
            raise WrongValue(f"the tensor {FACTORS} does not hold {len(plain)} numbers above 0")
        return _divided(shape, plain / rope.frequencies() * divisors.astype(np.float64))
    if rope.scaling == "none":
        return None
    found: dict[str, Any] = {"rope_type": rope.scaling, "factor": _short(rope.factor)}
    if rope.scaling == "yarn":
        found |= {"original_max_position_embeddings": int(rope.original), "beta_slow": rope.low, "beta_fast": rope.high,
                  "attention_factor": rope.amplitude}  # fmt: skip
        if (latent := shape.latent) is not None and rope.factor > 1:
            extra = (shape.scale * (latent.plain + latent.rotary) ** 0.5) ** 0.5
            found["mscale"] = found["mscale_all_dim"] = _short((extra - 1) / (0.1 * math.log(rope.factor)))
        if shape.temperature is not None:
            found[TEMPERATURE] = _short(shape.temperature[0])
    return found


def _divided(shape: Shape, divisors: Array) -> dict[str, Any]:
    """Return the scaling that divides frequencies: `llama3` if it has these divisors, else `longrope`.

    The original context of `llama3` follows from a divisor between 1 and the factor. Without such a divisor, all
    contexts that fit have the same divisors.
    """
    rope, factor = shape.rope, float(np.round(divisors.max(initial=1.0), 3))
    plain = rope.base ** (-np.arange(0, rope.width, 2, dtype=np.float64) / rope.width)
    contexts = list(CONTEXTS)
    between = (divisors > 1.001) & (divisors < factor * 0.999)
    if between.any():
        smooth = (1 / divisors[between] - 1 / factor) / (1 - 1 / factor)
        contexts = [round(float(np.median((smooth * (HIGH - LOW) + LOW) * 2 * np.pi / plain[between])))]
    for original in contexts if rope.amplitude == 1 else ():
        one = Rope(rope.base, rope.width, scaling="llama3", factor=factor, original=original, low=LOW, high=HIGH)
        if np.allclose(divisors, factors_of(one), rtol=1e-6, atol=0):
            return {"rope_type": "llama3", "factor": factor, **LLAMA3, "original_max_position_embeddings": original}
    found = [_short(one) for one in divisors]
    return {"rope_type": "longrope", "short_factor": found, "long_factor": found, "factor": 1.0,
            "attention_factor": rope.amplitude, "original_max_position_embeddings": shape.context}  # fmt: skip
