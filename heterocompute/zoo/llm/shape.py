"""The shape of a language model: sizes and options, read from GGUF's keys or from config.json, each checked.

Nothing in a file is believed: a size that is absurd is refused before anything of that size is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ...base.texts import near_words, printable, quoted
from ...base.values import shown
from .families import FAMILIES, Family

__all__ = ["Rope", "Shape", "of_config", "of_gguf"]

MAX_LAYERS, MAX_SIZE = 4096, 1 << 30
SCALINGS = ("none", "linear", "llama3", "yarn")


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding.

    Attributes
    ----------
    base : float
    width : int
        Values of a head that are rotated.
    pairs : bool
        Neighbors are rotated; else i and i + width / 2.
    scaling : str
        One of ``none``, ``linear``, ``llama3``, ``yarn``, ``longrope``.
    factor, original, low, high : float
        Of the scaling: how much longer the context is, the context before, and where wave lengths count as long or
        short (`llama3`: low and high frequency factor; `yarn`: beta_slow and beta_fast).
    amplitude : float
        Multiplies cosine and sine (`yarn`, `longrope`).
    factors : tuple of float
        Divide the angle of each pair (`longrope`).
    """

    base: float
    width: int
    pairs: bool = False
    scaling: str = "none"
    factor: float = 1.0
    original: float = 0.0
    low: float = 1.0
    high: float = 4.0
    amplitude: float = 1.0
    factors: tuple[float, ...] = ()

    def frequencies(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the angle per position of each pair, float64 (width / 2,).

        Notes
        -----
        Su et al., "RoFormer", 2021, equation 15; linear: Chen et al., 2023 (arXiv 2306.15595); yarn: Peng et al., 2023
        (arXiv 2309.00071), section 3.2; longrope: Ding et al., 2024 (arXiv 2402.13753); llama3: transformers,
        modeling_rope_utils.py.
        """
        plain = self.base ** (-np.arange(0, self.width, 2, dtype=np.float64) / self.width)
        if self.scaling == "linear":
            return plain / self.factor
        if self.scaling == "llama3":
            turns = self.original * plain / (2 * math.pi)  # in the context before
            smooth = np.clip((turns - self.low) / (self.high - self.low), 0.0, 1.0)
            return (1 - smooth) * plain / self.factor + smooth * plain
        if self.scaling == "yarn":
            log_base = math.log(self.base)
            first, last = (
                self.width * math.log(self.original / (turns * 2 * math.pi)) / (2 * log_base)
                for turns in (self.high, self.low)
            )
            first, last = max(math.floor(first), 0), min(math.ceil(last), self.width - 1)
            ramp = np.clip((np.arange(self.width // 2) - first) / max(last - first, 0.001), 0.0, 1.0)
            return plain / self.factor * ramp + plain * (1 - ramp)
        return plain / np.array(self.factors) if self.factors else plain


@dataclass(frozen=True)
class Shape:
    """Sizes and options of a language model.

    Attributes
    ----------
    family : str
        Key of `FAMILIES`.
    layers, width, heads, kv_heads, head_width, hidden, vocabulary, context : int
    epsilon : float
        Of all norms.
    rope, local_rope : Rope
        Of layers that see all positions, and of those with a sliding window.
    windows : tuple of int or None
        Positions that each layer sees; None: all.
    scale : float
        Multiplies ``q @ k.T``.
    attention_cap, logit_cap : float or None
    experts, experts_used, expert_hidden : int
        0 where there are none.
    long_rope : Rope or None
        Takes the place of `rope` once there are more than ``rope.original`` tokens (`longrope`).
    """

    family: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    hidden: int
    vocabulary: int
    context: int
    epsilon: float
    rope: Rope
    local_rope: Rope
    windows: tuple[int | None, ...]
    scale: float
    attention_cap: float | None = None
    logit_cap: float | None = None
    experts: int = 0
    experts_used: int = 0
    expert_hidden: int = 0
    long_rope: Rope | None = None

    @property
    def options(self) -> Family:
        """The options of the family."""
        return FAMILIES[self.family]


class _Keys:
    """Values of a file by key, each checked for what it is."""

    def __init__(self, path: str, found: Mapping[str, Any]) -> None:
        self.path, self.found = path, found

    def fail(self, what: str) -> NoReturn:
        raise ValueError(f"{printable(self.path)}: {what}")

    def number(self, key: str, default: float | None = None, low: float = 1e-30, high: float = 1e30) -> float:
        """Return a number from low to high; without a default the key must be there."""
        value = self.found.get(key)
        if value is None:
            if default is None:
                self.fail(f"the key {quoted(key)} is missing")
            return default
        try:
            if isinstance(value, (bool, list, dict)):
                raise ValueError
            number = float(value)
        except (ValueError, OverflowError):
            self.fail(f"{key} is {shown(value)}, expected a number")
        if not low <= number <= high:
            self.fail(f"{key} is {shown(value)}, expected a number from {low:g} to {high:g}")
        return number

    def count(self, key: str, default: int | None = None, low: int = 1, high: int = MAX_SIZE) -> int:
        """Return an integer from low to high."""
        number = self.number(key, default, low, high)
        if number != int(number):
            self.fail(f"{key} is {shown(self.found[key])}, expected an integer")
        return int(number)


def _checked(keys: _Keys, shape: Shape) -> Shape:
    """Refuse sizes that no forward pass has."""
    if shape.heads % shape.kv_heads:
        keys.fail(f"{shape.heads} heads share {shape.kv_heads} heads of keys, expected a multiple")
    for rope in (shape.rope, shape.local_rope):
        if rope.width % 2 or not 2 <= rope.width <= shape.head_width:
            keys.fail(
                f"RoPE rotates {rope.width} of {shape.head_width} values, expected an even number of at most these"
            )
    return shape


def _windows(layers: int, period: int, window: int | None) -> tuple[int | None, ...]:
    return tuple(None if period and (i + 1) % period == 0 else window for i in range(layers))


def _family(keys: _Keys, text: Any, names: Mapping[str, str], key: str) -> str:
    if not isinstance(text, str) or text not in names:
        near = near_words(text, names) if isinstance(text, str) else []
        hint = f"; the nearest is {near[0]}" if near else ""
        keys.fail(f"{key} is {shown(text)}, expected one of {', '.join(names)}{hint}")
    return names[text]


def of_gguf(path: str, metadata: Mapping[str, str], vocabulary: int, factors: bool) -> Shape:
    """Return the shape that the keys of a GGUF file describe.

    Parameters
    ----------
    path : str
        For errors.
    metadata : mapping of str to str
    vocabulary : int
        Rows of the embedding.
    factors : bool
        The file has a tensor ``rope_freqs.weight``, so that RoPE's scaling is in there.

    Returns
    -------
    Shape

    Raises
    ------
    ValueError
        A family that is not known, a key that is missing, a value that is absurd.
    """
    keys = _Keys(path, metadata)
    name = _family(keys, metadata.get("general.architecture"), {key: key for key in FAMILIES}, "general.architecture")
    family = FAMILIES[name]
    layers = keys.count(f"{name}.block_count", high=MAX_LAYERS)
    width = keys.count(f"{name}.embedding_length")
    heads = keys.count(f"{name}.attention.head_count", high=1 << 16)
    head_width = keys.count(f"{name}.attention.key_length", max(width // heads, 1), high=1 << 16)
    if keys.count(f"{name}.attention.value_length", head_width) != head_width:
        keys.fail(f"{name}.attention.value_length differs from the length of keys, which is {head_width}")
    rotated = keys.count(f"{name}.rope.dimension_count", head_width, high=1 << 16)
    base = keys.number(f"{name}.rope.freq_base", 10_000.0, 1.0 + 1e-6, 1e12)
    scaling = metadata.get(f"{name}.rope.scaling.type", "none")
    if scaling not in SCALINGS:
        keys.fail(f"{name}.rope.scaling.type is {shown(scaling)}, expected one of {', '.join(SCALINGS)}")
    context = keys.count(f"{name}.context_length")
    factor = keys.number(f"{name}.rope.scaling.factor", 1.0, 1e-3, 1e6)
    original = keys.number(f"{name}.rope.scaling.original_context_length", float(context), 1.0, 2.0**40)
    rope = Rope(base, rotated, family.pairs, "none" if factors else scaling, factor, original)
    if rope.scaling == "yarn":
        amplitude = keys.number(f"{name}.rope.scaling.attn_factor", 1.0) * (1 + 0.1 * math.log(max(factor, 1.0)))
        low, high = (
            keys.number(f"{name}.rope.scaling.yarn_beta_{at}", value) for at, value in (("slow", 1.0), ("fast", 32.0))
        )
        rope = Rope(base, rotated, family.pairs, "yarn", factor, original, low, high, amplitude)
    window = keys.count(f"{name}.attention.sliding_window", 0, low=0) or None
    local = Rope(family.local_base, rotated, family.pairs) if family.local_base else rope
    experts = keys.count(f"{name}.expert_count", 0, low=0, high=1 << 12)
    return _checked(
        keys,
        Shape(
            name, layers, width, heads, keys.count(f"{name}.attention.head_count_kv", heads, high=heads), head_width,
            keys.count(f"{name}.feed_forward_length"), vocabulary, context,
            keys.number(f"{name}.attention.layer_norm_rms_epsilon", None, 0.0, 1.0), rope, local,
            _windows(layers, family.period, window), keys.number(f"{name}.attention.scale", head_width**-0.5),
            keys.number(f"{name}.attn_logit_softcapping", 0.0, 0.0) or family.attention_cap,
            keys.number(f"{name}.final_logit_softcapping", 0.0, 0.0) or family.logit_cap,
            experts, keys.count(f"{name}.expert_used_count", high=experts) if experts else 0,
            keys.count(f"{name}.expert_feed_forward_length", keys.count(f"{name}.feed_forward_length")),
        ),
    )  # fmt: skip


def of_config(path: str, config: Mapping[str, Any], vocabulary: int) -> Shape:
    """Return the shape that config.json of a Hugging Face folder describes.

    Parameters
    ----------
    path : str
        For errors.
    config : mapping
    vocabulary : int
        Rows of the embedding.

    Returns
    -------
    Shape

    Raises
    ------
    ValueError
        As of `of_gguf`.
    """
    inner = config.get("text_config")
    config = inner if isinstance(inner, Mapping) else config
    keys = _Keys(path, config)
    names = {hf: name for name, family in FAMILIES.items() for hf in family.hf}
    name = _family(keys, config.get("model_type"), names, "model_type")
    family = FAMILIES[name]
    layers, width = keys.count("num_hidden_layers", high=MAX_LAYERS), keys.count("hidden_size")
    heads = keys.count("num_attention_heads", high=1 << 16)
    head_width = keys.count("head_dim", max(width // heads, 1), high=1 << 16)
    rotated = int(head_width * keys.number("partial_rotary_factor", 1.0, 0.0, 1.0))
    rope, local, long_rope = _ropes(keys, config, family, rotated)
    window = keys.count("sliding_window", 0, low=0) or None
    if config.get("use_sliding_window", True) is False:
        window = None
    windows = _windows(layers, keys.count("sliding_window_pattern", family.period, low=0), window)
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == layers:
        windows = tuple(window if kind == "sliding_attention" else None for kind in kinds)
    scale = head_width**-0.5
    if "query_pre_attn_scalar" in config:
        scale = keys.number("query_pre_attn_scalar") ** -0.5
    return _checked(
        keys,
        Shape(
            name, layers, width, heads, keys.count("num_key_value_heads", heads, high=heads), head_width,
            keys.count("intermediate_size"), vocabulary, keys.count("max_position_embeddings"),
            keys.number("rms_norm_eps", 1e-6, 0.0, 1.0), rope, local, windows, scale,
            keys.number("attn_logit_softcapping", 0.0, 0.0) or None,
            keys.number("final_logit_softcapping", 0.0, 0.0) or None,
            *_experts(keys, config), long_rope,
        ),
    )  # fmt: skip


def _experts(keys: _Keys, config: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return experts, those used for a token, and their hidden width, of config.json."""
    key = "num_local_experts" if "num_local_experts" in config else "num_experts"
    experts = keys.count(key, 0, low=0, high=1 << 12)
    if not experts:
        return 0, 0, 0
    if config.get("norm_topk_prob", True) is not True:
        keys.fail("norm_topk_prob is not true: shares of experts that do not sum to 1 are not read")
    if config.get("decoder_sparse_step", 1) != 1 or config.get("mlp_only_layers"):
        keys.fail("some layers have no experts (decoder_sparse_step, mlp_only_layers), which is not read")
    used = keys.count("num_experts_per_tok", 2, high=experts)
    return experts, used, keys.count("moe_intermediate_size", keys.count("intermediate_size"))


def _ropes(keys: _Keys, config: Mapping[str, Any], family: Family, rotated: int) -> tuple[Rope, Rope, Rope | None]:
    """Return RoPE of layers that see all, of those with a window, and of long texts."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(given, Mapping):
        keys.fail(f"rope_parameters is {shown(given)}, expected an object")
    if isinstance(given.get("full_attention"), Mapping):
        local_given = given.get("sliding_attention")
        local_given = local_given if isinstance(local_given, Mapping) else {}
        given = given["full_attention"]
    else:
        local_given = {"rope_theta": config.get("rope_local_base_freq", family.local_base)}
    base = keys.number("rope_theta", 10_000.0, 1.0 + 1e-6, 1e12)
    found = _Keys(keys.path, given)
    kind = given.get("rope_type", given.get("type", "default"))
    kind = "none" if kind == "default" else kind
    if kind not in (*SCALINGS, "longrope"):
        keys.fail(f"rope_type is {shown(kind)}, expected one of default, {', '.join(SCALINGS[1:])}, longrope")
    base = found.number("rope_theta", base, 1.0 + 1e-6, 1e12)
    factor = found.number("factor", 1.0, 1e-3, 1e6)
    context = float(keys.count("max_position_embeddings"))
    original = found.number("original_max_position_embeddings", context, 1.0, 2.0**40)
    long_rope = None
    if kind == "longrope":
        rope, long_rope = _long_ropes(keys, found, base, rotated, context)
    elif kind == "llama3":
        low, high = found.number("low_freq_factor", 1.0), found.number("high_freq_factor", 4.0)
        if high <= low:
            keys.fail(f"high_freq_factor is {high:g}, expected more than low_freq_factor, which is {low:g}")
        rope = Rope(base, rotated, False, kind, factor, original, low, high)
    elif kind == "yarn":
        amplitude = found.number("attention_factor", 0.1 * math.log(max(factor, 1.0)) + 1.0)
        low, high = found.number("beta_slow", 1.0), found.number("beta_fast", 32.0)
        rope = Rope(base, rotated, False, kind, factor, original, low, high, amplitude)
    else:
        rope = Rope(base, rotated, False, kind, factor, original)
    local_base = _Keys(keys.path, local_given).number("rope_theta", base, 1.0 + 1e-6, 1e12)
    return rope, Rope(local_base, rotated) if family.local_base else rope, long_rope


def _long_ropes(keys: _Keys, found: _Keys, base: float, rotated: int, context: float) -> tuple[Rope, Rope]:
    """Return RoPE of texts up to the length before, and of longer ones, by factors of each pair."""
    inside = "original_max_position_embeddings" in found.found
    original = (found if inside else keys).number("original_max_position_embeddings", None, 2.0, 2.0**40)
    factor = context / original
    amplitude = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    amplitude = found.number("attention_factor", amplitude)
    ropes = []
    for key in ("short_factor", "long_factor"):
        given = found.found.get(key)
        if (
            not isinstance(given, list)
            or len(given) != rotated // 2
            or not all(type(one) in (int, float) and 1e-6 <= one <= 1e6 for one in given)
        ):
            keys.fail(f"{key} is {shown(given)}, expected {rotated // 2} numbers above 0")
        factors = tuple(float(one) for one in given)
        ropes.append(Rope(base, rotated, False, "longrope", factor, original, amplitude=amplitude, factors=factors))
    return ropes[0], ropes[1]
