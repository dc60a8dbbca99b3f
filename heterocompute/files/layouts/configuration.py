"""The files beside the weights, and their metadata, that state how another program quantized them.

metadata        quantization_config
config.json     quantization_config, compression_config, quantization; or an object in it that has one (text_config)
other files     OLDER_CONFIGS of AutoGPTQ and AutoAWQ, which are read; PROGRAM_FILES of other programs
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...arrays.layout import KEY as PACKED
from ...base.json_text import strict_json
from ...base.places import exists
from ...base.tensors import Tensors
from ...base.texts import read_small
from ...base.values import shown
from ..beside import CONFIG, OLDER_CONFIGS, PROGRAM_FILES

__all__ = ["KEY", "config_in", "config_of", "method_of", "plain_names", "said_by"]

KEY = "quantization_config"
OTHER_KEYS = ("compression_config", "quantization")
MAX_CONFIG = 1 << 24


def config_of(reader: Tensors, key: str = KEY) -> Mapping[str, Any]:
    """Return the quantization_config of a file: of its metadata, of config.json, or of what older programs wrote.

    `key` is the name that a program gives it in config.json.

    Raises
    ------
    FileNotFoundError, KeyError
        There is no such configuration.
    TypeError
        The entry is not an object.
    ValueError, OSError
        It cannot be read.
    """
    config = strict_json(reader.metadata[KEY]) if KEY in reader.metadata else _beside(reader.path, key)
    if not isinstance(config, Mapping):
        raise TypeError(f"{KEY} is not an object")
    return config


def config_in(reader: Tensors) -> Mapping[str, Any]:
    """Return the quantization_config of a file, empty if there is none or it cannot be read."""
    try:
        return config_of(reader)
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def method_of(config: Mapping[str, Any]) -> str | None:
    """Return the program that a configuration names."""
    said = config.get("quant_method")
    return said if isinstance(said, str) else None


def said_by(reader: Tensors, config: Mapping[str, Any]) -> str | None:
    """Return the program that quantized a file, by its name for messages; None if only the tensors could tell."""
    method = method_of(config)
    if method is not None:
        packing = config.get("packing_format")
        return shown(method) + (f" (packing_format {shown(packing)})" if packing is not None else "")
    folder = os.path.dirname(reader.path)
    found = next((name for name in PROGRAM_FILES if exists(os.path.join(folder, name))), None)
    if found is not None:
        return f"{PROGRAM_FILES[found]} ({found})"
    if config:
        return f"a {KEY} without quant_method"
    return f"the {said} of {CONFIG}" if (said := _said_otherwise(folder)) else None


def plain_names(reader: Tensors) -> list[str]:
    """Return the names of a file's tensors that are not components of this package's packed arrays."""
    try:
        packed = strict_json(reader.metadata[PACKED])["tensors"] if PACKED in reader.metadata else {}
    except (ValueError, KeyError, TypeError):
        packed = {}
    return [name for name in reader.names if name.rpartition(".")[0] not in packed]


def _beside(path: str, key: str) -> Any:
    """Return the quantization_config of config.json in a file's folder, or that of older programs there."""
    folder = os.path.dirname(path)
    try:
        said = _json(folder, CONFIG)
        inner = (one for one in [said, *said.values()] if isinstance(one, Mapping) and one.get(key) is not None)
        return next(inner)[key]
    except (FileNotFoundError, StopIteration, AttributeError):
        for name in OLDER_CONFIGS:
            if exists(os.path.join(folder, name)):
                return _json(folder, name)
        raise FileNotFoundError(path) from None


def _json(folder: str, name: str) -> Any:
    return strict_json(read_small(os.path.join(folder, name), MAX_CONFIG))


def _said_otherwise(folder: str) -> str | None:
    """Return the key of config.json with another name that shows a quantization."""
    try:
        said = _json(folder, CONFIG)
    except (OSError, ValueError):
        return None
    return next((key for key in OTHER_KEYS if isinstance(said, Mapping) and said.get(key)), None)
