"""`config.json` of an output folder: the entries that a loader of quantized weights reads, and the missing ones."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ..base.errors import WrongValue, printable
from ..base.json_text import json_object
from ..base.locations import exists, is_folder
from ..families.sizes import OFF

CONFIG = "config.json"
MODEL = "model_type"  # with which a loader chooses the architecture
# Keys of config.json, and of an object in it such as text_config, that describe how weights are quantized.
SAID_KEYS = ("quantization_config", "compression_config", "quantization")
TOKENIZERS = ("tokenizer.json", "tokenizer.model")
MAX_CONFIG = 16 << 20


def configured(place: str | None, more: Mapping[str, Any], instead: bool = False) -> bytes:
    """Return the text of a ``config.json`` with more entries.

    Parameters
    ----------
    place : str or None
        The ``config.json`` to extend. None: there is none yet.
    more : mapping of str to Any
        New entries, such as ``quantization_config``. An entry that is None is removed, unless null is a value of it.
    instead : bool
        Whether they replace what the file says of a quantization.

    Raises
    ------
    ValueError
        The file is not a JSON object, or has one of the entries already.
    """
    declared: dict[str, Any] = {}
    if place is not None:
        declared = json_object(place, MAX_CONFIG)
        if instead:
            declared = _without(declared)
        if both := declared.keys() & {key for key, value in more.items() if value is not None}:
            raise WrongValue(f"{printable(place)}: has a {min(both)} already: the checkpoint is quantized")
    told = {**declared, **more}
    told = {key: value for key, value in told.items() if key not in more or key in OFF or value is not None}
    return (json.dumps(told, indent=2, ensure_ascii=False) + "\n").encode()


def _without(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without its entries about quantization."""
    kept = {key: value for key, value in declared.items() if key not in SAID_KEYS}
    return {key: _without(value) if isinstance(value, Mapping) else value for key, value in kept.items()}


def lacking(out_path: str, is_language_model: bool = False) -> str | None:
    """Return what a loader of another program still lacks to load an output, as a sentence; None if nothing.

    Parameters
    ----------
    out_path : str
        A file or folder in the layout of another program, such as ``"compressed-tensors"``.
    is_language_model : bool
        Whether it needs a tokenizer.
    """
    if not is_folder(out_path):
        return (
            f"loaders read the quantization from {CONFIG}, which is not written next to a single file: "
            "give OUT the name of a folder"
        )
    place = os.path.join(out_path, CONFIG)
    try:
        declared = json_object(place, MAX_CONFIG)
    except (OSError, ValueError):
        return f"loaders need {CONFIG}, which is missing"
    if not declared.get(MODEL):
        return (
            f"{CONFIG} has no {MODEL}, by which loaders choose the architecture: "
            f"add the entries of the {CONFIG} of the original model"
        )
    if is_language_model and not any(exists(os.path.join(out_path, name)) for name in TOKENIZERS):
        return f"loaders need the tokenizer, which is not converted: copy {TOKENIZERS[0]} of the original model"
    return None
