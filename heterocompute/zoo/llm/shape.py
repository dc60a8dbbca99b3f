"""The shape of a language model: sizes and options, read from the keys of a GGUF file with checks.

The content of a file is not trusted: absurd sizes are refused before anything of that size is allocated.
configuration.py reads the config.json of a Hugging Face folder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...base.errors import shown
from ...families.keys import Keys
from ...families.known import check_gguf
from ...families.record import FACTOR_KEYS, LOGIT_CAPS, Family
from ...families.sizes import Latent, Sizes, latent_of_keys, sizes_of_keys
from ...families.table import FAMILIES, family_of

SCALINGS = ("none", "linear", "yarn", "longrope")  # of GGUF
TYPES = "tokenizer.ggml.token_type_count"
SOFTMAX, SIGMOID = 1, 2  # expert_gating_func of GGUF
UNROTATED = 4  # every so many layers of SmolLM 3 have no RoPE in llama.cpp
YARN = {"yarn_attn_factor": 1.0, "yarn_beta_slow": 1.0, "yarn_beta_fast": 32.0}  # the keys are of other architectures


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding.

    Attributes
    ----------
    base : float
    width : int
        Values of a head that are rotated.
    pairs : bool
        Neighbors are rotated; otherwise i and i + width / 2.
    scaling : str
        One of ``none``, ``linear``, ``llama3``, ``yarn``, ``longrope``.
    factor, original, low, high : float
        Parameters of the scaling: factor of the context, original context, and the limits of long and short wave
        lengths (`llama3`: low and high frequency factor; `yarn`: beta_slow and beta_fast).
    amplitude : float
        Multiplies cosine and sine (`yarn`, `longrope`).
    factors : tuple of float
        Divide the angle of each pair (`longrope`).
    whole : bool
        The limits of `yarn` are rounded to whole pairs.
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
    whole: bool = True

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
            turns = self.original * plain / (2 * math.pi)  # rotations within the original context
            smooth = np.clip((turns - self.low) / (self.high - self.low), 0.0, 1.0)
            return (1 - smooth) * plain / self.factor + smooth * plain
        if self.scaling == "yarn":
            first, last = self.ramp()
            pairs = np.arange(self.width // 2, dtype=np.float64)
            ramp = np.clip((pairs - first) / max(last - first, 0.001), 0.0, 1.0)
            slowed: np.ndarray[Any, np.dtype[np.float64]] = plain / self.factor * ramp + plain * (1 - ramp)
            return slowed
        return plain / np.array(self.factors) if self.factors else plain

    def ramp(self) -> tuple[float, float]:
        """Return the first pair that `yarn` slows down, and the first that it slows down in full."""
        first, last = (
            self.width * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(self.base))
            for turns in (self.high, self.low)
        )
        if self.whole:
            first, last = math.floor(first), math.ceil(last)
        return max(first, 0), min(last, self.width - 1)


@dataclass(frozen=True)
class Routing:
    """The choice of experts.

    Attributes
    ----------
    function : {"softmax", "sigmoid", "mixer"}
    groups, groups_used : int
        Experts of the best groups are used only; 1: there is one group.
    sums_two : bool
        The score of a group is the sum of its two largest scores; otherwise the largest.
    factor : float
        Multiplies all shares.
    is_corrected : bool
        A bias per expert changes which experts are used.
    noise : float
        Of `mixer`: experts with a score further below the best than twice this part of it have no share.
    interleaved : bool
        Rows of gate and up alternate.
    clamp : tuple of float or None
        alpha and limit: the activation is that of gpt-oss.
    """

    function: str = "softmax"
    groups: int = 1
    groups_used: int = 1
    sums_two: bool = False
    factor: float = 1.0
    is_corrected: bool = False
    noise: float = 0.0
    interleaved: bool = False
    clamp: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Shape(Sizes):
    """Sizes and options of a language model.

    Attributes
    ----------
    family : str
        Key of `FAMILIES`.
    epsilon : float
        Epsilon of all norms.
    rope, local_rope : Rope
        For layers that see all positions, and for layers with a sliding window.
    scale : float
        Multiplies ``q @ k.T``.
    attention_cap, logit_cap : float or None
    shares_sum_to_one : bool
        The shares of the used experts are a softmax over these; otherwise over all experts.
    routing : Routing
        How experts are chosen.
    qk_norm : bool
        Queries and keys are normalized, if the family does so.
    latent : Latent or None
        Sizes of attention over latents.
    long_rope : Rope or None
        Replaces `rope` for more than ``rope.original`` tokens (`longrope`).
    activation : str
        Of the feed-forward part, a name of `Family.activation`.
    parallel : bool
        Attention and the feed-forward part of a layer read the same input.
    unrotated : tuple of int
        Layers without RoPE.
    alibi : bool
        Scores have a bias by the distance.
    token_types : int
        Rows of a table of types of tokens.
    embedding_factor, residual_factor, logit_factor : float
        Multiply the embeddings, what each part of a layer adds, and the logits.
    temperature : tuple of float or None
        beta and length: queries at position p are multiplied by ``1 + beta log(1 + floor(p / length))``.
    biases : frozenset of str or None
        Matrices of a layer that have a bias, such as ``attn_q``; None: those whose bias is in the file.
    """

    family: str
    epsilon: float
    rope: Rope
    local_rope: Rope
    scale: float
    attention_cap: float | None = None
    logit_cap: float | None = None
    long_rope: Rope | None = None
    activation: str = "silu"
    parallel: bool = False
    unrotated: tuple[int, ...] = ()
    alibi: bool = False
    token_types: int = 0
    embedding_factor: float = 1.0
    residual_factor: float = 1.0
    logit_factor: float = 1.0
    temperature: tuple[float, float] | None = None
    biases: frozenset[str] | None = None
    shares_sum_to_one: bool = True
    routing: Routing = Routing()
    qk_norm: bool = True
    latent: Latent | None = None

    @property
    def cached(self) -> tuple[int, int]:
        """Heads of a token in the cache, and values of each, of keys and again of values."""
        if self.latent is None:
            return self.kv_heads, self.head_width
        return 1, -(-(self.latent.keys + self.latent.rotary) // 2)  # each has one half of a latent

    @property
    def attended(self) -> int:
        """Multiplications of attention per cached token."""
        if self.latent is None:
            return 2 * self.heads * self.head_width
        return self.heads * (2 * self.latent.keys + self.latent.rotary)

    @property
    def options(self) -> Family:
        """The record of the family."""
        return FAMILIES[self.family]


def checked(keys: Keys, shape: Shape) -> Shape:
    """Raise ValueError for sizes that no forward pass supports."""
    if shape.heads % shape.kv_heads:
        keys.fail(f"{shape.heads} heads share {shape.kv_heads} heads of keys, expected a multiple")
    for rope in (shape.rope, shape.local_rope):
        if rope.width % 2 or not 2 <= rope.width <= shape.head_width:
            keys.fail(
                f"RoPE rotates {rope.width} of {shape.head_width} values, expected an even number of at most these"
            )
    return shape


def long_ropes(
    keys: Keys, plain: Rope, factors: Mapping[str, Any], factor: float, original: float, amplitude: float
) -> tuple[Rope, Rope]:
    """Return RoPE of texts up to the original context, and of longer texts, by the divisors of each pair.

    Parameters
    ----------
    keys : Keys
        For errors.
    plain : Rope
        Without scaling.
    factors : mapping of str to sequence of float
        Divisors for short and for long texts, by their names in the file.
    factor, original, amplitude : float
        Attributes of the results.
    """
    ropes = []
    for name, given in factors.items():
        if (
            not isinstance(given, (list, tuple))
            or len(given) != plain.width // 2
            or not all(type(one) in (int, float) and 1e-6 <= one <= 1e6 for one in given)
        ):
            keys.fail(f"{name} is {shown(given)}, expected {plain.width // 2} numbers above 0")
        divisors = tuple(float(one) for one in given)
        ropes.append(
            replace(plain, scaling="longrope", factor=factor, original=original, amplitude=amplitude, factors=divisors)
        )
    return ropes[0], ropes[1]


def of_gguf(
    path: str,
    metadata: Mapping[str, str],
    vocabulary: int,
    factors: bool,
    listed: Callable[[str], Any] = lambda key: None,
    divisors: Mapping[str, Any] | None = None,
    lists: Iterable[str] = (),
    encoder: bool = False,
) -> Shape:
    """Return the shape that the keys of a GGUF file describe.

    Parameters
    ----------
    path : str
        For errors.
    vocabulary : int
        Rows of the embedding.
    factors : bool
        The file has a tensor ``rope_freqs.weight``. Its divisors apply together with the scaling of the keys.
    listed : callable, optional
        Returns the list of a key, or None.
    divisors : mapping of str to list of float, optional
        The tensors ``rope_factors_short.weight`` and ``rope_factors_long.weight``, if the file has them.
    lists : iterable of str, optional
        The keys with lists.
    encoder : bool
        The file holds an encoder.

    Raises
    ------
    ValueError
        A family that is not known, a key that is missing, a value that is absurd.
    """
    keys = Keys(path, metadata)
    family = family_of(keys, metadata.get("general.architecture"), encoder)
    name = family.architecture
    check_gguf(keys, {**metadata, **dict.fromkeys(lists)}, name, family.gguf_keys)
    sizes = sizes_of_keys(keys, family, vocabulary, listed)
    if family.is_encoder and keys.found.get(f"{name}.attention.causal") not in (False, "False", "0"):
        keys.fail(f"{name}.attention.causal is not false, with which llama.cpp hides later tokens")
    epsilon = keys.number(f"{name}.{family.epsilon}", None, 0.0, 1.0)
    latent = latent_of_keys(keys, family, epsilon)
    if latent is not None:  # llama.cpp counts one head of keys, and the width of a latent
        sizes = replace(sizes, kv_heads=sizes.heads, head_width=latent.rotary)
    elif keys.count(f"{name}.attention.value_length", sizes.head_width) != sizes.head_width:
        keys.fail(f"{name}.attention.value_length differs from the length of keys, which is {sizes.head_width}")
    rope, local, long_rope = _ropes(keys, family, sizes, divisors)
    # Files of Gemma lack the factor of q @ k.T; llama.cpp knows the largest model by its layers.
    share = sizes.width // sizes.heads if sizes.layers == family.largest else sizes.head_width
    scale = float(share**-0.5)
    times = _factors(keys, family)
    if latent is not None:
        scale = _scale_of_latents(keys, family, latent, rope)
    elif "attention" in family.factors:
        scale = times.get("attention") or scale
    elif abs(keys.number(f"{name}.attention.scale", scale, 0.0) / scale - 1) > 1e-5:
        keys.fail(f"{name}.attention.scale is {metadata[f'{name}.attention.scale']}, expected {scale:.7g}")
    cap, logit_cap = (_cap(keys, family, key) for key in LOGIT_CAPS)
    return checked(
        keys,
        Shape(
            **vars(sizes), family=family.name, activation=family.activation,
            epsilon=epsilon, latent=latent, temperature=_temperature(keys, family, sizes.context),
            embedding_factor=times.get("embedding", sizes.width**0.5 if family.scaled_embedding else 1.0),
            residual_factor=times.get("residual", 1.0),
            logit_factor=times.get("logits", 1 / times.get("logits divided", 1.0)),
            parallel=_is_parallel(keys, family), unrotated=_unrotated(family, sizes), alibi=family.alibi == "always",
            token_types=keys.count(TYPES) if family.token_types else 0, **_experts(keys, family, sizes),
            rope=rope, local_rope=local, scale=scale, attention_cap=cap, logit_cap=logit_cap, long_rope=long_rope,
        ),
    )  # fmt: skip


def _temperature(keys: Keys, family: Family, context: int) -> tuple[float, float] | None:
    if not family.has_temperature:
        return None
    beta = keys.number(f"{family.architecture}.attention.temperature_scale", 0.0, 0.0, 1e6)
    length = keys.number(f"{family.architecture}.rope.scaling.original_context_length", float(context), 1.0, 2.0**40)
    return (beta, length) if beta else None


def _scale_of_latents(keys: Keys, family: Family, latent: Latent, rope: Rope) -> float:
    """Return the factor of scores that llama.cpp computes, which the factor of the context changes in every scaling."""
    whole, wide = _weight(keys, family), max(rope.factor, 1.0)
    extra = rope.amplitude * (1.0 if rope.scaling == "yarn" else 1 + 0.1 * math.log(wide))
    return float((extra * (1 + 0.1 * whole * math.log(wide))) ** 2 * (latent.plain + latent.rotary) ** -0.5)


def _weight(keys: Keys, family: Family) -> float:
    """Return mscale_all_dim."""
    if not family.log_multiplier:
        return 0.0
    return keys.number(f"{family.architecture}.rope.scaling.yarn_log_multiplier", 0.0, 0.0, 1e3) / family.log_multiplier


def _factors(keys: Keys, family: Family) -> dict[str, float]:
    """Return the factors of a GGUF file by meaning; 0 means that there is none."""
    found = {one: keys.number(f"{family.architecture}.{FACTOR_KEYS[one]}", 0.0, 0.0) for one in family.factors}
    return {one: value for one, value in found.items() if value}


def _is_parallel(keys: Keys, family: Family) -> bool:
    if family.parallel in ("", "always") or family.is_parallel:
        return family.parallel != ""
    key = f"{family.architecture}.{family.parallel}"
    return _flag(keys, key)


def _flag(keys: Keys, key: str) -> bool:
    """Return a flag of a GGUF file; False if it is missing."""
    value = keys.found.get(key)
    if value not in (None, True, False, "True", "False", "1", "0"):
        keys.fail(f"{key} is {shown(value)}, expected a bool")
    return value in (True, "True", "1")


def _experts(keys: Keys, family: Family, sizes: Sizes) -> dict[str, Any]:
    """Return how experts are chosen, by the keys of a GGUF file."""
    rule, name = family.mixture, family.architecture
    if not sizes.experts:
        return {}
    if rule is None:
        keys.fail(f"{name}.expert_count is {sizes.experts}, expected none in the architecture {name}")
    sums = rule.sums == "always"
    if rule.sums == "key":
        sums = _flag(keys, f"{name}.expert_weights_norm")
    router, factor = rule.router, keys.number(f"{name}.expert_weights_scale", 0.0, 0.0) if rule.is_scaled else 0.0
    if router != "softmax":
        usual = SOFTMAX if router == "key" else SIGMOID
        function = keys.count(f"{name}.expert_gating_func", 0, low=0) or usual
        if function not in (usual, SIGMOID):
            keys.fail(f"{name}.expert_gating_func is {function}, expected {SIGMOID}")
        router = "sigmoid" if function == SIGMOID else "softmax"
    groups = keys.count(f"{name}.expert_group_count", 0, low=0) or 1 if rule.has_groups else 1
    used = keys.count(f"{name}.expert_group_used_count", groups, high=groups) if groups > 1 else 1
    if groups > 1 and (sizes.experts % groups or sizes.experts < 2 * groups):
        keys.fail(f"{name}.expert_group_count is {groups}, expected a divisor of {sizes.experts} experts")
    if sizes.experts_used > sizes.experts // groups * used:
        keys.fail(f"{name}.expert_group_used_count is {used}, whose experts are fewer than {sizes.experts_used}")
    return {
        "shares_sum_to_one": sums,
        "routing": Routing(router, groups, used, groups > 1, factor or 1.0, rule.is_corrected and router == "sigmoid",
                           clamp=rule.clamp),
    }  # fmt: skip


def _unrotated(family: Family, sizes: Sizes) -> tuple[int, ...]:
    """Return the layers without RoPE, as llama.cpp counts them."""
    if family.learned_positions or family.alibi == "always":
        return tuple(range(sizes.layers))
    if family.unrotated == "listed":
        return tuple(i for i in range(sizes.layers) if (i + 1) % UNROTATED == 0)
    if family.unrotated == "global" or (family.unrotated == "beside windows" and any(sizes.windows)):
        return tuple(i for i, window in enumerate(sizes.windows) if window is None)
    return ()


def _ropes(
    keys: Keys, family: Family, sizes: Sizes, divisors: Mapping[str, Any] | None
) -> tuple[Rope, Rope, Rope | None]:
    """Return the RoPE of layers that see all positions, of layers with a window, and of long texts.

    As in llama.cpp, src/llama-model.cpp and src/llama-context.cpp: without a type the scaling is linear, `longrope`
    divides positions by the factor as well, and the attention factor applies to every type.
    """
    name, context = family.architecture, sizes.context
    at = f"{name}.rope"
    rotated = keys.count(f"{at}.dimension_count", sizes.head_width, high=1 << 16)
    base = keys.number(f"{at}.freq_base", 10_000.0, 1.0 + 1e-6, 1e12)
    local_base = keys.number(f"{at}.freq_base_swa", family.local_base or base, 1.0 + 1e-6, 1e12)
    if family.has_windows != "read" and local_base != base:
        keys.fail(f"{at}.freq_base_swa is {local_base:g}, expected {base:g} in the architecture {name}")
    kind = keys.found.get(f"{at}.scaling.type", "linear")
    if kind not in SCALINGS:
        keys.fail(f"{at}.scaling.type is {shown(kind)}, expected one of {', '.join(SCALINGS)}")
    old = keys.number(f"{at}.scale_linear", 1.0, 0.0, 1e6)
    factor = keys.number(f"{at}.scaling.factor", old, 0.0, 1e6)
    factor = factor if factor and kind != "none" else 1.0
    if factor < 1e-3:
        keys.fail(f"{at}.scaling.factor is {factor:g}, expected 0 or a number from 0.001 to 1e+06")
    original = keys.number(f"{at}.scaling.original_context_length", float(context), 1.0, 2.0**40)
    declared = keys.number(f"{at}.scaling.attn_factor", 1.0)
    mixed = keys.number(f"{at}.scaling.yarn_ext_factor", -1.0, -1e30)
    if mixed >= 0 and mixed != (kind == "yarn"):
        keys.fail(f"{at}.scaling.yarn_ext_factor is {mixed:g}, expected {int(kind == 'yarn')} with this type")
    limits = {key: keys.number(f"{at}.scaling.{key}", usual) for key, usual in YARN.items()}
    for key, usual in YARN.items():
        found = limits[key]
        if found != usual and not (family.has_limits and "beta" in key):
            keys.fail(f"{at}.scaling.{key} is {found:g}, which llama.cpp does not read here; expected {usual:g}")
    if kind == "yarn":
        amplitude = declared * usual_amplitude(factor, _weight(keys, family), family.is_latent)
        low, high = limits["yarn_beta_slow"], limits["yarn_beta_fast"]
        rope = Rope(base, rotated, family.pairs, "yarn", factor, original, low, high, amplitude)
        if rope.ramp()[1] < rope.ramp()[0]:
            keys.fail(f"{at}.scaling.yarn_beta_slow {low:g} and yarn_beta_fast {high:g} leave no ramp between them")
    else:
        kind = "linear" if factor != 1 else "none"
        rope = Rope(base, rotated, family.pairs, kind, factor, original, amplitude=declared)
    if divisors:
        if rope.scaling == "yarn":
            keys.fail(f"{at}.scaling.type is 'yarn', expected longrope with the tensors {' and '.join(divisors)}")
        stretched = {key: [one * factor for one in row] for key, row in divisors.items()}
        plain = Rope(base, rotated, family.pairs)
        short, long = long_ropes(keys, plain, stretched, context / original, original, declared)
        return short, short, long
    if family.local_base is not None:  # llama.cpp scales positions of Gemma 3 in global layers alone
        return rope, Rope(local_base, rotated, family.pairs, amplitude=declared), None
    if family.has_local_rope:
        return rope, Rope(base, rotated, family.pairs), None
    return rope, replace(rope, base=local_base), None


def usual_amplitude(factor: float, whole: float, is_latent: bool) -> float:
    """Return the factor of cosine and sine that llama.cpp computes for yarn; `whole` is mscale_all_dim."""
    plain, scaled = (1 + 0.1 * weight * math.log(max(factor, 1.0)) for weight in (1.0, whole))
    return plain if not whole else 1.0 if is_latent else plain / scaled


def _cap(keys: Keys, family: Family, key: str) -> float | None:
    """Return a cap of Gemma; llama.cpp reads none in other architectures."""
    usual = family.caps.get(key)
    found = keys.number(f"{family.architecture}.{key}", usual or 0.0, 0.0)
    if found and key not in family.caps:
        keys.fail(
            f"{family.architecture}.{key} is {found:g}, which llama.cpp does not apply in the architecture "
            f"{family.architecture}; expected 0"
        )
    if not found and usual:
        keys.fail(f"{family.architecture}.{key} is 0, by which llama.cpp divides; expected more")
    return found or None
