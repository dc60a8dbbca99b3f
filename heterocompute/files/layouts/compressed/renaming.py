"""Names of layers that stay right when a loader moves the parts of a model.

transformers 5 loads `language_model.model.layers.0` of LLaVA, and `model.layers.0` of Qwen2-VL, as
`model.language_model.layers.0`, and `language_model.lm_head` as `lm_head`. It compares the targets of a configuration
with the new names, so that a target with the old name would leave its layer without codes and scales.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

MOVED = re.compile(r"((?:model\.|language_model\.|text_model\.)+)(.+)")
TOWER = re.compile(r"(^|\.)(language_model|text_model)\.")
BEFORE = r"(model\.|language_model\.|text_model\.)*"


def has_moved_parts(names: Iterable[str]) -> bool:
    """Return whether a model has a language model next to other parts, whose names loaders change.

    Examples
    --------
    >>> has_moved_parts(["model.layers.0.mlp.up_proj", "lm_head"])
    False
    >>> has_moved_parts(["visual.blocks.0.mlp.fc1", "model.layers.0.mlp.up_proj"])
    True
    """
    names = list(names)
    inside = any(map(MOVED.match, names))
    return any(map(TOWER.search, names)) or (inside and any(re.match(r"(visual|vision|audio)\w*\.", n) for n in names))


def targets_of(formats: Mapping[str, Any], plain: Iterable[str]) -> dict[str, Any]:
    """Return the target of each layer that a configuration names: its format.

    Parameters
    ----------
    formats : mapping of str to format
        Of quantized layers.
    plain : iterable of str
        The other layers.

    Returns
    -------
    dict
        Names of layers. In a model with moved parts, expressions of old and new names, one for the same layer of all
        blocks if it has one format.

    Examples
    --------
    >>> names = [f"language_model.model.layers.{i}.mlp.up_proj" for i in range(2)]
    >>> list(targets_of(dict.fromkeys(names, "int8"), ["language_model.lm_head"]))
    ['re:(model\\\\.|language_model\\\\.|text_model\\\\.)*layers\\\\.\\\\d+\\\\.mlp\\\\.up_proj$']
    """
    every: dict[str, Any] = {**dict.fromkeys(plain), **formats}
    if not has_moved_parts(every):
        return dict(formats)
    of_kind: dict[str, set[Any]] = {}
    for name, fmt in every.items():
        of_kind.setdefault(_kind(name), set()).add(fmt)
    found: dict[str, Any] = {}
    for name, fmt in formats.items():
        moved = MOVED.fullmatch(name)
        if len(of_kind[_kind(name)]) == 1:
            found["re:" + _kind(name)] = fmt
        elif moved:
            found[f"re:{BEFORE}{re.escape(moved[2])}$"] = fmt
        else:
            found[f"re:{BEFORE}{re.escape(name)}$"] = fmt
    return found


def _kind(name: str) -> str:
    """Return the expression of a layer in all blocks."""
    moved = MOVED.fullmatch(name)
    return BEFORE + re.sub(r"(?<=\\\.)\d+(?=\\\.)", r"\\d+", re.escape(moved[2] if moved else name)) + "$"
