"""From the states of tokens to the embedding of a text, and the files that say how.

modules.json and 1_Pooling/config.json are those of sentence-transformers. Without them the mean of all tokens counts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...base.errors import WrongValue, printable, shown
from ...base.json_text import strict_json
from ...base.texts import read_small

FloatArray = np.ndarray[Any, np.dtype[np.float32]]

# Kinds in the order of their parts in an embedding, and the keys of 1_Pooling/config.json.
KEYS = {"cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens", "mean": "pooling_mode_mean_tokens",
        "mean_sqrt": "pooling_mode_mean_sqrt_len_tokens", "weighted_mean": "pooling_mode_weightedmean_tokens",
        "last": "pooling_mode_lasttoken"}  # fmt: skip
MODES = {"lasttoken": "last", "weightedmean": "weighted_mean", "mean_sqrt_len_tokens": "mean_sqrt"}
MAX_JSON = 1 << 20


def pooled(x: FloatArray, kinds: Sequence[str], normalize: bool) -> FloatArray:
    """Return the embedding of a text with states (n, width), (parts * width,)."""
    at = np.arange(1, len(x) + 1, dtype=np.float32)[:, None]
    parts = []
    for kind in kinds:
        if kind == "cls":
            parts.append(x[0])
        elif kind == "last":
            parts.append(x[-1])
        elif kind == "max":
            parts.append(x.max(axis=0))
        elif kind == "weighted_mean":
            parts.append((x * at).sum(axis=0) / at.sum())
        else:
            parts.append(x.sum(axis=0) / np.float32(len(x) if kind == "mean" else len(x) ** 0.5))
    found = np.concatenate(parts).astype(np.float32)
    length = np.sqrt(np.square(found, dtype=np.float64).sum())
    return found if not normalize else (found / max(length, 1e-12)).astype(np.float32)


def kinds_of(given: object, name: str) -> tuple[str, ...]:
    """Return the kinds of pooling of an argument, checked."""
    kinds = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, (list, tuple)) else ()
    wrong = next((kind for kind in kinds if kind not in KEYS), None)
    if not kinds or wrong is not None:
        raise WrongValue(f"{name} is {shown(given if wrong is None else wrong)}, expected one of {', '.join(KEYS)}")
    return kinds


def declared_in(folder: str) -> tuple[tuple[str, ...], bool]:
    """Return the kinds of pooling of a folder, and whether embeddings have length 1.

    Raises
    ------
    ValueError
        modules.json names a module that is not supported.
    """
    place = os.path.join(folder, "modules.json")
    if not os.path.exists(place):
        return ("mean",), False
    modules = _json(place)
    if not isinstance(modules, list) or not all(isinstance(one, Mapping) for one in modules):
        raise WrongValue(f"{printable(place)}: is {shown(modules)}, expected a list of modules")
    kinds: tuple[str, ...] = ("mean",)
    normalizes = False
    for module in modules:
        kind, path = str(module.get("type")).rpartition(".")[2], str(module.get("path"))
        if kind == "Pooling":
            kinds = _pooling(os.path.join(folder, path, "config.json"))
        elif kind == "Normalize":
            normalizes = True
        elif kind != "Transformer":
            raise WrongValue(
                f"{printable(place)}: has a module {shown(kind)}, expected Transformer, Pooling, Normalize"
            )
    return kinds, normalizes


def _json(place: str) -> Any:
    try:
        return strict_json(read_small(place, MAX_JSON))
    except ValueError as error:
        raise WrongValue(f"{printable(place)}: {printable(str(error))}") from None


def _pooling(place: str) -> tuple[str, ...]:
    config = _json(place)
    if not isinstance(config, Mapping):
        raise WrongValue(f"{printable(place)}: is {shown(config)}, expected an object")
    if isinstance(mode := config.get("pooling_mode"), str):
        return kinds_of(MODES.get(mode, mode), f"{printable(place)}: pooling_mode")
    kinds = tuple(kind for kind, key in KEYS.items() if config.get(key) is True)
    if not kinds:
        raise WrongValue(f"{printable(place)}: no pooling_mode is true, expected one of {', '.join(KEYS.values())}")
    return kinds
