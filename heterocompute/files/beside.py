"""What stands beside the weights in a folder of a checkpoint: its configuration, the tokenizer, the licence."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..base.magic import INDEX
from .configuration import CONFIG, configured
from .containers.container import inside

__all__ = ["CONFIG", "OLDER_CONFIGS", "files_beside"]

# Where AutoGPTQ and AutoAWQ said how weights are quantized before it stood there.
OLDER_CONFIGS = ("quantize_config.json", "quant_config.json")
# Weights, of this program or of others: a copy would be another model beside the one that is written.
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".onnx_data", ".gguf", ".npz", ".npy", ".h5",
           ".msgpack", ".tflite", ".ot", INDEX)  # fmt: skip


def files_beside(path: str, config: Mapping[str, Any], is_one: bool = False) -> dict[str, str | bytes]:
    """Return the files that go along with the weights: those of the folder itself that are no weights, nor hidden.

    Parameters
    ----------
    path : str
        A file of the folder.
    config : mapping of str to Any
        New entries of ``config.json``, which is written where there is none. Entries that are None are removed.
    is_one : bool
        The checkpoint is the file alone, so that nothing else of its folder goes along, but for ``config.json``.

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
        if is_one and name != CONFIG:
            continue
        if place and os.path.isfile(place) and not name.startswith(".") and not name.endswith(WEIGHTS):
            found[name] = place
    if None in config.values():  # plain from now on
        found = {name: place for name, place in found.items() if name not in OLDER_CONFIGS}
    is_described = any(value is not None for value in config.values())
    if config and (CONFIG in found or is_described):
        found[CONFIG] = configured(os.path.join(folder, CONFIG) if CONFIG in found else None, config)
    return found
