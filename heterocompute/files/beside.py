"""What stands beside the weights in a folder of a checkpoint: its configuration, the tokenizer, the licence."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ..base.json_text import strict_json
from ..base.magic import INDEX
from ..base.texts import printable, read_small
from .containers.container import inside

__all__ = ["CONFIG", "OLDER_CONFIGS", "PROGRAM_FILES", "files_beside"]

CONFIG = "config.json"
# Where AutoGPTQ and AutoAWQ said how weights are quantized before it stood there.
OLDER_CONFIGS = ("quantize_config.json", "quant_config.json")
# A file that a program writes next to quantized weights -> the program.
PROGRAM_FILES = {
    "hf_quant_config.json": "ModelOpt",
    "quanto_qmap.json": "quanto",
    "quantization_map.json": "quanto",
    "qmodel.json": "HQQ",
    "smash_config.json": "Pruna",
    "quant_strategy.json": "EXL",
    "quant_log.csv": "GPTQModel",
}
# Keys of config.json, and of an object in it such as text_config, that say how weights are quantized.
SAID_KEYS = ("quantization_config", "compression_config", "quantization")
MAX_CONFIG = 16 << 20
# Weights, of this program or of others: a copy would be another model beside the one that is written.
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".onnx_data", ".gguf", ".npz", ".npy", ".h5",
           ".msgpack", ".tflite", ".ot", INDEX)  # fmt: skip


def files_beside(path: str, config: Mapping[str, Any], instead: bool = False) -> dict[str, str | bytes]:
    """Return the files that go along with the weights: those of the folder itself that are no weights, nor hidden.

    Parameters
    ----------
    path : str
        A file of the folder.
    config : mapping of str to Any
        What is new in ``config.json``, where there is one; what is None does not go along. A key ``NAME.json`` is
        a file of its own.
    instead : bool
        Whether that replaces what the folder says of its quantization, in ``config.json`` and in files of programs.

    Returns
    -------
    dict of str to str or bytes
        Name -> the file to copy, or what to write.

    Raises
    ------
    ValueError
        ``config.json`` is no JSON object, or says such a thing already.
    """
    folder = os.path.dirname(os.path.realpath(path)) if not os.path.islink(path) else os.path.dirname(path)
    found: dict[str, str | bytes] = {}
    for name in sorted(os.listdir(folder)):
        place = inside(folder, name)
        if place and os.path.isfile(place) and not name.startswith(".") and not name.endswith(WEIGHTS):
            found[name] = place
    if None in config.values() or instead:  # plain from now on, or said in another way
        found = {name: place for name, place in found.items() if name not in OLDER_CONFIGS}
    if instead:
        found = {name: place for name, place in found.items() if name not in PROGRAM_FILES}
    for name in [key for key in config if key.endswith(".json")]:
        found[name] = (json.dumps(config[name], indent=2, ensure_ascii=False) + "\n").encode()
    config = {key: value for key, value in config.items() if not key.endswith(".json")}
    if config and CONFIG in found:
        place = os.path.join(folder, CONFIG)
        try:
            said = strict_json(read_small(place, MAX_CONFIG))
        except ValueError as error:
            raise ValueError(f"{printable(place)}: no JSON: {printable(str(error))}") from None
        if not isinstance(said, dict):
            raise ValueError(f"{printable(place)}: no JSON object")
        if instead:
            said = _without(said)
        if both := said.keys() & {key for key, value in config.items() if value is not None}:
            raise ValueError(f"{printable(place)}: has a {min(both)} already: the checkpoint is quantized")
        told = {key: value for key, value in {**said, **config}.items() if key not in config or value is not None}
        found[CONFIG] = (json.dumps(told, indent=2, ensure_ascii=False) + "\n").encode()
    return found


def _without(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without what it says of a quantization."""
    kept = {key: value for key, value in said.items() if key not in SAID_KEYS}
    return {key: _without(value) if isinstance(value, Mapping) else value for key, value in kept.items()}
