"""Sizes of a language model, read from config.json or from the keys of a GGUF file with checks.

Networks (zoo) and counts (hardware) read them here. The content of a file is not trusted: absurd sizes are refused
before anything of that size is allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..base.errors import shown
from .keys import Keys
from .kind import Experts, Kind
from .record import LOGIT_CAPS, Family

MAX_LAYERS = 4096
MAX_HEADS, MAX_EXPERTS = 1 << 16, 1 << 12
OFF = ("sliding_window", "q_lora_rank", *LOGIT_CAPS)  # null is a value of these
KINDS = {"full_attention": False, "sliding_attention": True}
COUNTS_OF_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")  # of one value
# Keys of other families, or of code outside of transformers, that say which layers have experts.
UNREAD = ("moe_layer_freq", "interleave_moe_layer_step", "moe_layer_interval", "moe_layer_start_index", "moe_layers",
          "expert_layer_period", "moe_every_n_layers")  # fmt: skip

Windows = tuple[int | None, ...]


@dataclass(frozen=True)
class Latent:
    """DeepSeek's attention: ranks of the latents, 0 without one of queries, and the parts of a head.

    `epsilon` is that of the norms of latents, which is 1e-6 in transformers whatever config.json says.
    """

    query: int
    keys: int
    plain: int
    rotary: int
    value: int
    epsilon: float = 1e-6


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a language model.

    Attributes
    ----------
    layers, width, heads, kv_heads, head_width, hidden, vocabulary, context : int
    windows : tuple of int or None
        Positions that each layer sees; None: all.
    experts, experts_used, expert_hidden, shared_hidden : int
        0 without experts; `shared_hidden` is the width of those that every token uses.
    dense : tuple of int
        Layers without experts in a model with experts.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    hidden: int
    vocabulary: int
    context: int
    windows: Windows
    experts: int = 0
    experts_used: int = 0
    expert_hidden: int = 0
    shared_hidden: int = 0
    dense: tuple[int, ...] = ()


def completed(config: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """Return a configuration under the usual keys, with the default of each missing key.

    null means missing, except where it is a value.
    """
    found = {key: value for key, value in config.items() if value is not None or key in OFF}
    for usual, names in kind.keys.items():
        if own := next((name for name in names if name in found), None):
            found[usual] = found[own]
    found = {**kind.defaults, **found}
    implied = {} if kind.implied is None else kind.implied(found)
    return {**found, **{key: value for key, value in implied.items() if value is not None}}


def sizes_of_config(keys: Keys, kind: Kind, context: int | None = None) -> Sizes:
    """Return the sizes that config.json describes.

    Parameters
    ----------
    keys : Keys
        `completed`.
    context : int, optional
        Where the file has none.

    Raises
    ------
    ValueError
        A key is missing, a value is absurd.
    """
    layers, width = keys.count("num_hidden_layers", high=MAX_LAYERS), keys.count("hidden_size")
    heads, hidden = keys.count("num_attention_heads", high=MAX_HEADS), _hidden(keys, kind)
    return Sizes(
        layers=layers, width=width, heads=heads, kv_heads=keys.count("num_key_value_heads", heads, high=heads),
        head_width=keys.count("head_dim", max(width // heads, 1), high=MAX_HEADS), hidden=hidden,
        vocabulary=keys.count("vocab_size"), context=keys.count("max_position_embeddings", context),
        windows=_windows_of_config(keys, kind, layers),
        **({} if kind.experts is None else _experts(keys, kind, kind.experts, layers)),
    )  # fmt: skip


def _hidden(keys: Keys, kind: Kind) -> int:
    return keys.count("intermediate_size", kind.hidden * keys.count("hidden_size") or None)


def latent_of_config(keys: Keys, family: Family) -> Latent | None:
    """Return the sizes of attention over latents; None in other families."""
    if not family.is_latent:
        return None
    return Latent(
        keys.count("q_lora_rank", 0, 0), keys.count("kv_lora_rank"), keys.count("qk_nope_head_dim"),
        keys.count("qk_rope_head_dim"), keys.count("v_head_dim"),
    )  # fmt: skip


def latent_of_keys(keys: Keys, family: Family, epsilon: float) -> Latent | None:
    """Return the sizes of attention over latents of a GGUF file; None in other families."""
    if not family.is_latent:
        return None
    at = f"{family.architecture}.attention"
    whole, value = (keys.count(f"{at}.{key}_mla", keys.count(f"{at}.{key}")) for key in ("key_length", "value_length"))
    rotary = keys.count(f"{family.architecture}.rope.dimension_count", high=whole - 1)
    return Latent(keys.count(f"{at}.q_lora_rank", 0, low=0), keys.count(f"{at}.kv_lora_rank"), whole - rotary, rotary,
                  value, epsilon)  # fmt: skip


def biases_of_config(keys: Keys, kind: Kind) -> frozenset[str]:
    """Return the matrices of a layer that have a bias."""
    return frozenset(part for flag, parts in kind.biases.items() if not flag or keys.flag(flag) for part in parts)


def _experts(keys: Keys, kind: Kind, experts: Experts, layers: int) -> dict[str, Any]:
    given = {key: keys.count(key, high=MAX_EXPERTS, low=0) for key in COUNTS_OF_EXPERTS if key in keys}
    if len(set(given.values())) > 1:
        values = " and ".join(map(str, given.values()))
        keys.fail(f"{' and '.join(given)} are {values}, expected one number of experts")
    count = next(iter(given.values()), experts.count)
    if not count:
        return {}
    hidden = keys.count(experts.hidden, _hidden(keys, kind))
    shared = keys.count("n_shared_experts", 0, low=0) * hidden if experts.shared == "count" else 0
    if experts.shared == "width":
        shared = keys.count("shared_expert_intermediate_size", 0, low=0)
    return {
        "experts": count, "experts_used": keys.count("num_experts_per_tok", high=count), "expert_hidden": hidden,
        "shared_hidden": shared, "dense": _dense(keys, kind, experts, layers),
    }  # fmt: skip


def _dense(keys: Keys, kind: Kind, experts: Experts, layers: int) -> tuple[int, ...]:
    """Return the layers with one dense feed-forward part in a model with experts."""
    if strange := next((key for key in UNREAD if keys.found.get(key) not in (None, 1)), None):
        keys.fail(f"{strange} is {shown(keys.found[strange])}, which layers of {kind.name} do not read")
    if experts.dense == "first":
        return tuple(range(min(keys.count("first_k_dense_replace", 0, low=0), layers)))
    if not experts.dense:
        return ()
    step, listed = keys.count("decoder_sparse_step", 1), keys.found.get("mlp_only_layers") or []
    if not isinstance(listed, list) or not all(type(one) is int for one in listed):
        keys.fail(f"mlp_only_layers is {shown(listed)}, expected a list of layers, such as [0, 2]")
    return tuple(i for i in range(layers) if i in listed or (i + 1) % step)


def _windows_of_config(keys: Keys, kind: Kind, layers: int) -> Windows:
    """Return the window of each layer; the rule of transformers depends on the kind."""
    rule = kind.windows
    if rule is None:
        return (None,) * layers
    is_on = not rule.is_switched or keys.flag("use_sliding_window")
    window = keys.count("sliding_window") if is_on and "sliding_window" in keys else None
    listed = keys.found.get("layer_types") if rule.is_listed else None
    if rule.every:
        usual = ["full_attention" if window is None else "sliding_attention"] * layers
        if listed is not None and listed != usual:  # AutoModel opens another family then
            keys.fail(f"layer_types is {shown(listed)}, expected {layers} times {usual[0]} in the family {kind.name}")
        return (window,) * layers
    if listed is not None:
        if (
            not isinstance(listed, list)
            or len(listed) != layers
            or any(not isinstance(one, str) or one not in KINDS for one in listed)
        ):
            keys.fail(f"layer_types is {shown(listed)}, expected {layers} times {' or '.join(KINDS)}")
        has = [KINDS[one] for one in listed]
    elif rule.is_early:
        has = [window is not None and i % 2 == 0 and i < keys.count("max_window_layers", low=0) for i in range(layers)]
    elif rule.is_late or rule.by_rope:
        has = [window is not None and late for late in _late(keys, rule.by_rope, layers)]
    else:
        has = _periodic(layers, keys.count(rule.period_key) if rule.period_key else rule.period)
    if window is None and any(has):
        keys.fail("sliding_window is null, expected a number: some layers have a window")
    return tuple(window if one else None for one in has)


def unrotated_of_config(keys: Keys, family: Family, windows: Windows) -> tuple[int, ...]:
    """Return the layers without rotary positions."""
    if family.learned_positions or has_alibi(keys, family):
        return tuple(range(len(windows)))
    if family.unrotated == "listed":
        return tuple(i for i, one in enumerate(_late(keys, True, len(windows))) if one)
    if family.unrotated == "global" or (family.unrotated == "beside windows" and "sliding_window" in keys):
        return tuple(i for i, window in enumerate(windows) if window is None)
    return ()


def has_alibi(keys: Keys, family: Family) -> bool:
    """Tell whether scores have a bias by the distance."""
    return family.alibi == "always" or (family.alibi != "" and keys.flag(family.alibi))


def _late(keys: Keys, by_rope: bool, layers: int) -> list[bool]:
    """Return which layers have a window, if there is one: the last, or those without rotary positions."""
    if not by_rope:
        first = keys.count("max_window_layers", low=0)
        return [i >= first for i in range(layers)]
    rotary, step = keys.found.get("no_rope_layers"), keys.count("no_rope_layer_interval")
    if isinstance(rotary, list) and len(rotary) == layers:
        return [not one for one in rotary]
    return [(i + 1) % step == 0 for i in range(layers)]


def _periodic(layers: int, period: int, begins: bool = False) -> list[bool]:
    """Tell for each layer whether it has a window: the last of `period` layers has none, or the first if `begins`."""
    return [not period or (i + (not begins)) % period != 0 for i in range(layers)]


def sizes_of_keys(
    keys: Keys, family: Family, vocabulary: int, listed: Callable[[str], Any], usual: Mapping[str, int] | None = None
) -> Sizes:
    """Return the sizes that the keys of a GGUF file describe.

    Parameters
    ----------
    vocabulary : int
        Rows of the embedding.
    listed : callable
        Returns the list of a key, or None.
    usual : mapping of str to int, optional
        Values of required keys that may be missing.

    Raises
    ------
    ValueError
        A key is missing, a value is absurd.
    """
    usual = usual or {}

    def count(key: str, default: int | None = None, **limits: int) -> int:
        return keys.count(f"{family.architecture}.{key}", usual.get(key, default), **limits)

    _refuse_lists(keys, family.architecture, listed)
    layers, width = count("block_count", high=MAX_LAYERS), count("embedding_length")
    heads = count("attention.head_count", high=MAX_HEADS)
    experts = count("expert_count", 0, low=0, high=MAX_EXPERTS)
    hidden = count("feed_forward_length", low=0 if experts else 1)
    mixture = family.mixture if experts else None
    expert_hidden = count("expert_feed_forward_length", hidden or 1)
    shared = 0
    if mixture is not None and mixture.shared == "count":
        shared = count("expert_shared_count", low=0) * expert_hidden
    elif mixture is not None and mixture.shared == "width":
        shared = count("expert_shared_feed_forward_length", hidden or 1)
    return Sizes(
        layers=layers, width=width, heads=heads, kv_heads=count("attention.head_count_kv", heads, high=heads),
        head_width=count("attention.key_length", max(width // heads, 1), high=MAX_HEADS), hidden=hidden,
        vocabulary=vocabulary, context=count("context_length"),
        windows=_windows_of_keys(keys, family, layers, listed), experts=experts,
        experts_used=count("expert_used_count", high=experts) if experts else 0,
        expert_hidden=expert_hidden, shared_hidden=shared,
        dense=tuple(range(min(count("leading_dense_block_count", 0, low=0), layers))),
    )  # fmt: skip


def _refuse_lists(keys: Keys, name: str, listed: Callable[[str], Any]) -> None:
    lists: Iterable[str] = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
    for key in (f"{name}.{key}" for key in lists):
        if key not in keys and listed(key) is not None:
            keys.fail(f"{key} is a list, expected one number: layers of different sizes are not supported")


def _windows_of_keys(keys: Keys, family: Family, layers: int, listed: Callable[[str], Any]) -> Windows:
    """Return the window of each layer: every `period`-th sees all positions, or the file has a flag per layer."""
    window = keys.count(f"{family.architecture}.attention.sliding_window", family.window, low=0) or None
    if family.windowed_layers not in (0, layers):
        window = None
    if window is not None and family.is_two_sided:
        window = window // 2 + 1
    key = f"{family.architecture}.attention.sliding_window_pattern"
    flags = listed(key)
    if flags is None:
        if family.period is None:
            return (None,) * layers
        flags = _periodic(layers, keys.count(key, family.period, low=0), family.begins_global)
    if len(flags) < layers:
        keys.fail(f"{key} has {len(flags)} values, expected one per layer, which are {layers}")
    return tuple(window if flag else None for flag in flags[:layers])
