"""The shape of a language model: sizes and options, read from the keys of a GGUF file with checks.

The content of a file is not trusted: absurd sizes are refused before anything of that size is allocated.
configuration.py reads the config.json of a Hugging Face folder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from ...base.texts import near_words, printable, quoted
from ...base.values import shown
from .families import FAMILIES, Family

__all__ = [
    "MAX_LAYERS",
    "SCALINGS",
    "Keys",
    "Rope",
    "Shape",
    "checked",
    "family_of",
    "long_ropes",
    "of_gguf",
    "periodic",
]

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
            turns = self.original * plain / (2 * math.pi)  # rotations within the original context
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
        Epsilon of all norms.
    rope, local_rope : Rope
        For layers that see all positions, and for layers with a sliding window.
    windows : tuple of int or None
        Positions that each layer sees; None: all.
    scale : float
        Multiplies ``q @ k.T``.
    attention_cap, logit_cap : float or None
    experts, experts_used, expert_hidden : int
        0 without experts.
    long_rope : Rope or None
        Replaces `rope` for more than ``rope.original`` tokens (`longrope`).
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


class Keys:
    """Values of a file by key, each with a check of its type."""

    def __init__(self, path: str, found: Mapping[str, Any]) -> None:
        self.path, self.found = path, found

    def fail(self, what: str) -> NoReturn:
        raise ValueError(f"{printable(self.path)}: {what}")

    def number(self, key: str, default: float | None = None, low: float = 1e-30, high: float = 1e30) -> float:
        """Return a number from low to high; without a default the key must exist."""
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
            self.fail(f"{key} is {shown(value)}, expected a number from {low:.7g} to {high:.7g}")
        return number

    def count(self, key: str, default: int | None = None, low: int = 1, high: int = MAX_SIZE) -> int:
        """Return an integer from low to high."""
        number = self.number(key, default, low, high)
        if number != int(number):
            self.fail(f"{key} is {shown(self.found[key])}, expected an integer")
        return int(number)


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


def periodic(layers: int, period: int, window: int | None) -> tuple[int | None, ...]:
    return tuple(None if period and (i + 1) % period == 0 else window for i in range(layers))


def family_of(keys: Keys, text: Any, names: Mapping[str, str], key: str) -> str:
    if not isinstance(text, str) or text not in names:
        near = near_words(text, names) if isinstance(text, str) else []
        hint = f"; the nearest is {near[0]}" if near else ""
        keys.fail(f"{key} is {shown(text)}, expected one of {', '.join(names)}{hint}")
    return names[text]


def long_ropes(
    keys: Keys, plain: Rope, factors: Mapping[str, Any], context: float, original: float, amplitude: float | None = None
) -> tuple[Rope, Rope]:
    """Return RoPE of texts up to the length before, and of longer ones, by the divisors of each pair.

    Parameters
    ----------
    keys : Keys
        For errors.
    plain : Rope
        Without scaling.
    factors : mapping of str to sequence of float
        Divisors for short and for long texts, by their names in the file.
    context, original : float
        Tokens of the context, and of the context before it was made longer.
    amplitude : float, optional
        Of the file.

    Returns
    -------
    tuple of Rope
    """
    factor = context / original
    if amplitude is None:
        amplitude = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
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
) -> Shape:
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
    listed : callable, optional
        Returns the list of a key, or None.
    divisors : mapping of str to list of float, optional
        The tensors ``rope_factors_short.weight`` and ``rope_factors_long.weight``, if the file has them.

    Returns
    -------
    Shape

    Raises
    ------
    ValueError
        A family that is not known, a key that is missing, a value that is absurd.
    """
    keys = Keys(path, metadata)
    name = family_of(keys, metadata.get("general.architecture"), {key: key for key in FAMILIES}, "general.architecture")
    family = FAMILIES[name]
    for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        if f"{name}.{key}" not in metadata and listed(f"{name}.{key}") is not None:
            keys.fail(f"{name}.{key} is a list, expected one number: layers of different sizes are not supported")
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
    long_rope = None
    if divisors:
        scaled = f"{name}.rope.scaling"
        before = keys.number(f"{scaled}.original_context_length", None, 2.0, 2.0**40)
        said = keys.number(f"{scaled}.attn_factor") if f"{scaled}.attn_factor" in metadata else None
        rope, long_rope = long_ropes(keys, Rope(base, rotated, family.pairs), divisors, context, before, said)
    window = keys.count(f"{name}.attention.sliding_window", family.window, low=0) or None
    windows = _windows(keys, f"{name}.attention.sliding_window_pattern", layers, family.period, window, listed)
    local = Rope(family.local_base, rotated, family.pairs) if family.local_base else rope
    experts = keys.count(f"{name}.expert_count", 0, low=0, high=1 << 12)
    return checked(
        keys,
        Shape(
            name, layers, width, heads, keys.count(f"{name}.attention.head_count_kv", heads, high=heads), head_width,
            keys.count(f"{name}.feed_forward_length"), vocabulary, context,
            keys.number(f"{name}.attention.layer_norm_rms_epsilon", None, 0.0, 1.0), rope, local,
            windows, keys.number(f"{name}.attention.scale", _scale(family, layers, width // heads, head_width)),
            keys.number(f"{name}.attn_logit_softcapping", 0.0, 0.0) or family.attention_cap,
            keys.number(f"{name}.final_logit_softcapping", 0.0, 0.0) or family.logit_cap,
            experts, keys.count(f"{name}.expert_used_count", high=experts) if experts else 0,
            keys.count(f"{name}.expert_feed_forward_length", keys.count(f"{name}.feed_forward_length")), long_rope,
        ),
    )  # fmt: skip


def _scale(family: Family, layers: int, share: int, head_width: int) -> float:
    """Return the factor of ``q @ k.T``. Files of Gemma lack it; llama.cpp knows the largest model by its layers."""
    return float((share if layers == family.largest else head_width) ** -0.5)


def _windows(
    keys: Keys, key: str, layers: int, period: int, window: int | None, listed: Callable[[str], Any]
) -> tuple[int | None, ...]:
    """Return the window of each layer: every `period`-th sees all positions, or the file has a flag per layer."""
    flags = listed(key)
    if flags is None:
        return periodic(layers, keys.count(key, period, low=0), window)
    if len(flags) < layers:
        keys.fail(f"{key} has {len(flags)} values, expected one per layer, which are {layers}")
    return tuple(window if flag else None for flag in flags[:layers])
