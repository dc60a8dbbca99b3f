"""Sliding windows of a language model's layers, from config.json or the keys of a GGUF file.

A layer with a window of W sees W positions: that of the token and W - 1 before it. Each family states its windows in
its own way: src/transformers/models/*/configuration_*.py, and llama.cpp's src/llama-model.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...base.errors import WrongValue, shown

__all__ = ["windows_of_config", "windows_of_keys"]

Windows = tuple[int | None, ...]

WINDOW = {"mistral": 4096, "gemma2": 4096, "gemma3": 4096, "gemma3_text": 4096, "gpt_oss": 128}  # if the file has none
PERIOD = {  # every n-th layer sees all positions; 0: every layer has the same window
    "mistral": 0, "mixtral": 0, "phi3": 0, "qwen3_moe": 0, "gemma2": 2, "gemma3": 6, "gemma3_text": 6, "gpt_oss": 2,
    "gpt-oss": 2, "llama": 0,
}  # fmt: skip
SWITCHED = ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3")  # a window only with use_sliding_window
LATE = ("qwen2", "qwen2_moe", "qwen3")  # the first max_window_layers layers see all positions
SLIDING, FULL = "sliding_attention", "full_attention"

Count = Callable[..., int]


def windows_of_config(family: str, config: Mapping[str, Any], count: Count, layers: int) -> Windows:
    """Return the window of each layer from config.json, None for a layer that sees all positions.

    Parameters
    ----------
    family : str
        ``model_type``.
    config : mapping
    count : callable
        Reads a checked integer: (key, default, low).
    layers : int

    Returns
    -------
    tuple of int or None
    """
    window = count("sliding_window", 0 if "sliding_window" in config else WINDOW.get(family, 0), 0) or None
    known = family in SWITCHED or (family in PERIOD and family != "llama")
    if not known or window is None or (family in SWITCHED and not config.get("use_sliding_window")):
        return (None,) * layers
    kinds = config.get("layer_types")
    if kinds is not None and PERIOD.get(family) != 0:
        known = isinstance(kinds, list) and all(isinstance(one, str) and one in (SLIDING, FULL) for one in kinds)
        if not known or len(kinds) != layers:
            raise WrongValue(f"layer_types is {shown(kinds)}, expected {SLIDING} or {FULL} for each of {layers} layers")
        return tuple(window if kind == SLIDING else None for kind in kinds)
    if family == "smollm3":  # windows are in the layers without rotary positions
        rotary, step = config.get("no_rope_layers"), count("no_rope_layer_interval", 4)
        flags = (
            rotary if isinstance(rotary, list) and len(rotary) == layers else [(i + 1) % step for i in range(layers)]
        )
        return tuple(None if flag else window for flag in flags)
    if family in LATE:
        first = count("max_window_layers", 28, 0)
        return tuple(window if i >= first else None for i in range(layers))
    return _periodic(layers, count("sliding_window_pattern", PERIOD[family], 0), window)


def windows_of_keys(family: str, flags: Any, count: Count, layers: int) -> Windows:
    """Return the window of each layer from the keys of a GGUF file, None for a layer that sees all positions.

    Parameters
    ----------
    family : str
        Architecture of the file.
    flags : sequence or None
        The list that says which layers have a window, if the file has one.
    count : callable
        Reads a checked integer: (key, default, low).
    layers : int

    Returns
    -------
    tuple of int or None
    """
    window = count("attention.sliding_window", WINDOW["gemma2"] if family == "gemma2" else 0, 0) or None
    if flags is not None and len(flags) >= layers:
        return tuple(window if flag else None for flag in flags[:layers])
    if family not in PERIOD:
        return (None,) * layers
    return _periodic(layers, count("attention.sliding_window_pattern", PERIOD[family], 0), window)


def _periodic(layers: int, period: int, window: int | None) -> Windows:
    return tuple(None if period and not (i + 1) % period else window for i in range(layers))
