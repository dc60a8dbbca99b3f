"""The RoPE of a language model, read from config.json: the keys of transformers of version 4 and of version 5.

    version 4    rope_theta, rope_scaling {type, factor, ...}, rope_local_base_freq
    version 5    rope_parameters {rope_type, rope_theta, ...}; of Gemma 3 one for each kind of layer

transformers, src/transformers/modeling_rope_utils.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...base.errors import shown
from ...families.keys import Keys
from ...families.kind import Kind
from ...families.known import ROPE_TYPES, TEMPERATURE, check_rope
from ...families.record import Family
from .shape import Rope, long_ropes

LAYERS = ("full_attention", "sliding_attention")


def ropes_of(
    keys: Keys, config: Mapping[str, Any], family: Family, kind: Kind, head_width: int
) -> tuple[Rope, Rope, Rope | None]:
    """Return the RoPE of layers that see all positions, of layers with a window, and of long texts.

    Parameters
    ----------
    keys : Keys
        Of `config`, for errors.
    kind : Kind

    Raises
    ------
    ValueError
        A parameter is invalid, or does not apply to the type.
    """
    scaling, given = (_object(keys, config, name) for name in ("rope_scaling", "rope_parameters"))
    usual = kind.base or family.base
    if not kind.has_local_rope:
        name = "rope_scaling" if scaling else "rope_parameters"
        outer = {key: config.get(key) for key in ("rope_theta", "partial_rotary_factor")}
        found = {"rope_theta": usual, **_set(outer), **_set(scaling or given)}
        rope, long_rope = _rope(keys, found, family, head_width, name)
        return rope, rope, long_rope
    if strange := next((key for key in given if key not in LAYERS), None):
        keys.fail(f"rope_parameters has {shown(strange)}, expected {' and '.join(LAYERS)} in the family {kind.name}")
    whole, local = (_object(keys, given, one) for one in LAYERS)
    outer = {"rope_theta": config.get("rope_theta", usual)}
    rope, long_rope = _rope(keys, {**outer, **_set(whole), **_set(scaling)}, family, head_width, LAYERS[0], nested=True)
    outer = {"rope_theta": config.get("rope_local_base_freq", family.local_base or outer["rope_theta"])}
    windowed, more = _rope(keys, {**outer, **_set(local)}, family, head_width, LAYERS[1], nested=True)
    if more is not None:
        keys.fail("rope_type is longrope in sliding_attention, which is not read")
    return rope, windowed, long_rope


def scores_factor(keys: Keys, config: Mapping[str, Any]) -> float:
    """Return the factor of scores in attention over latents, by ``mscale_all_dim`` of a scaled RoPE."""
    given = _object(keys, config, "rope_scaling") or _object(keys, config, "rope_parameters")
    if given.get("rope_type", given.get("type", "default")) == "default" or not given.get("mscale_all_dim"):
        return 1.0
    found = Keys(keys.path, given)
    factor, weight = found.number("factor", 1.0, 1e-3, 1e6), found.number("mscale_all_dim", 0.0, 0.0)
    return float((0.1 * weight * math.log(factor) + 1.0) ** 2) if factor > 1 else 1.0


def temperature_of(keys: Keys, config: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return beta and length of the factor of queries that grows with positions."""
    given = _object(keys, config, "rope_parameters") or _object(keys, config, "rope_scaling")
    if given.get(TEMPERATURE) is None:
        return None
    found = Keys(keys.path, given)
    if not (beta := found.number(TEMPERATURE, None, 0.0, 1e6)):
        return None
    return beta, found.number("original_max_position_embeddings", None, 1.0, 2.0**40)


def _object(keys: Keys, found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    given = found.get(name)
    if given is not None and not isinstance(given, Mapping):
        keys.fail(f"{name} is {shown(given)}, expected an object")
    return given or {}


def _set(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not null, and truncate, for which null means false."""
    return {key: value for key, value in found.items() if value is not None or key == "truncate"}


def _rope(
    keys: Keys, given: Mapping[str, Any], family: Family, head_width: int, name: str, nested: bool = False
) -> tuple[Rope, Rope | None]:
    """Return the RoPE that an object of config.json describes, and the RoPE of long texts."""
    found = Keys(keys.path, given)
    scaling = given.get("rope_type", given.get("type", "default"))
    types = family.rope_types or dict(zip(ROPE_TYPES, ROPE_TYPES, strict=True))
    if scaling not in types:
        keys.fail(f"rope_type is {shown(scaling)}, expected one of {', '.join(dict.fromkeys(types.values()))}")
    scaling = types[scaling]
    check_rope(keys, given, scaling, name, family.rope_keys)
    share = found.number("partial_rotary_factor", family.share, 0.0, 1.0)
    if share < 1 and not family.is_partial:
        keys.fail(f"partial_rotary_factor is {share:g}, expected 1 in the family {family.name}")
    base = found.number("rope_theta", None, 1.0 + 1e-6, 1e12)
    plain = Rope(base, int(head_width * share), family.rotates_neighbors)
    context = float(keys.count("max_position_embeddings"))
    place = keys if not nested and "original_max_position_embeddings" in keys else found
    original = place.number("original_max_position_embeddings", context, 1.0, 2.0**40)
    if scaling == "longrope":
        divisors = {key: given.get(key) for key in ("short_factor", "long_factor")}
        factor = found.number("factor", context / original, 1e-3, 1e6)
        amplitude = found.number("attention_factor", long_amplitude(factor, original))
        return long_ropes(keys, plain, divisors, factor, original, amplitude)
    if scaling == "default":
        return plain, None
    if scaling == "dynamic":  # the base grows with texts beyond the context, which are refused
        found.number("factor")
        return plain, None
    usual = context / original if scaling == "yarn" else None
    scaled = replace(plain, scaling=scaling, factor=found.number("factor", usual, 1e-3, 1e6))
    if scaling == "linear":
        return scaled, None
    scaled = replace(scaled, original=original)
    if scaling == "llama3":
        low, high = found.number("low_freq_factor"), found.number("high_freq_factor")
        if high <= low:
            keys.fail(f"high_freq_factor is {high:g}, expected more than low_freq_factor, which is {low:g}")
        return replace(scaled, low=low, high=high), None
    low, high = found.number("beta_slow", 1.0), found.number("beta_fast", 32.0)
    amplitude = found.number("attention_factor", _amplitude(found, scaled.factor))
    scaled = replace(scaled, low=low, high=high, amplitude=amplitude, whole=bool(given.get("truncate", True)))
    first, last = scaled.ramp()
    if last < first:
        keys.fail(f"beta_slow {low:g} and beta_fast {high:g} of {original:g} positions leave no ramp between them")
    return scaled, None


def long_amplitude(factor: float, original: float) -> float:
    """Return the default factor of cosine and sine in longrope."""
    return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0


def _amplitude(found: Keys, factor: float) -> float:
    """Return the default factor of cosine and sine in yarn."""
    weights = [found.number(key, 0.0, 0.0) for key in ("mscale", "mscale_all_dim")]
    parts = [0.1 * weight * math.log(max(factor, 1.0)) + 1.0 for weight in (weights if all(weights) else (1.0, 0.0))]
    return parts[0] / parts[1]
