"""The other files in a checkpoint's folder: its configuration, the tokenizer, the licence."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from ..base.locations import is_file, is_folder, is_url, names_in
from ..base.magic import INDEX
from .configuration import CONFIG, configured
from .containers.container import inside

__all__ = ["CONFIG", "OLDER_CONFIGS", "PROGRAM_FILES", "STATEMENT", "STATEMENTS", "files_beside"]

STATEMENTS = ".intoto.json"  # ends the names of statements about files of their own folder: a copy would be false
STATEMENT = "statement" + STATEMENTS
# Files in which AutoGPTQ and AutoAWQ stored the quantization before config.json had it.
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
# Files of weights, of this program or of others: a copy would be a second model next to the written one.
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".onnx_data", ".gguf", ".npz", ".npy", ".h5",
           ".msgpack", ".tflite", ".ot", INDEX)  # fmt: skip

# Folders of a checkpoint that are no checkpoints: modules of sentence-transformers after the network, chat templates.
PARTS = re.compile(r"[1-9][0-9]*_\w+|additional_chat_templates")


def files_beside(
    path: str, config: Mapping[str, Any], instead: bool = False, is_one: bool = False
) -> dict[str, str | bytes]:
    """Return the files that go along with the weights: no weights and no hidden files, and the folders of `PARTS`.

    Parameters
    ----------
    path : str
        A file of the folder.
    config : mapping of str to Any
        New entries of ``config.json``, which is written where there is none. Entries that are None are removed. A
        key ``NAME.json`` is a file of its own.
    instead : bool
        Whether that replaces what the folder says of its quantization, in ``config.json`` and in files of programs.
    is_one : bool
        The checkpoint is the file alone, so that nothing else of its folder goes along, except ``config.json``.

    Returns
    -------
    dict of str to str or bytes
        Name, perhaps ``FOLDER/NAME`` -> the file to copy, or what to write.

    Raises
    ------
    ValueError
        ``config.json`` is not a JSON object, or has one of the new entries already.
    """
    is_link = is_url(path) or os.path.islink(path)
    folder = (os.path.dirname(path) or os.curdir) if is_link else os.path.dirname(os.path.realpath(path))
    found: dict[str, str | bytes] = {}
    for name in names_in(folder):
        place = inside(folder, name)
        if (is_one and name != CONFIG) or name.endswith(STATEMENTS):
            continue
        if place and is_file(place) and not name.startswith(".") and not name.endswith(WEIGHTS):
            found[name] = place
        elif place and PARTS.fullmatch(name) and is_folder(place) and not is_one:
            paths = {f"{name}/{one}": inside(folder, f"{name}/{one}") for one in names_in(place) if one[:1] != "."}
            found |= {one: path for one, path in paths.items() if path and is_file(path)}
    if None in config.values() or instead:  # plain from now on, or described in another way
        found = {name: place for name, place in found.items() if name not in OLDER_CONFIGS}
    if instead:
        found = {name: place for name, place in found.items() if name not in PROGRAM_FILES}
    for name in [key for key in config if key.endswith(".json")]:
        found[name] = (json.dumps(config[name], indent=2, ensure_ascii=False) + "\n").encode()
    config = {key: value for key, value in config.items() if not key.endswith(".json")}
    is_described = any(value is not None for value in config.values())
    if config and (CONFIG in found or is_described):
        place = os.path.join(folder, CONFIG) if CONFIG in found else None
        found[CONFIG] = configured(place, config, instead)
    return found
