"""A language model as a network from its file: a Hugging Face folder, safetensors with config.json, or GGUF."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ...base.errors import WrongValue, printable
from ...base.json_text import json_object
from .graph import Network
from .language import decoder_of_config, decoder_of_keys

CONFIG, GGUF = "config.json", ".gguf"
MAX_CONFIG = 16 << 20


def read_language_model(path: str) -> Network:
    """Return the network that a file or folder describes; no weights are read.

    Parameters
    ----------
    path : str
        A folder with ``config.json``, a file in such a folder, or a GGUF file.

    Raises
    ------
    ValueError
        Sizes are missing, implausible, or of an unknown family.
    OSError
        The file cannot be read.
    """
    if path.endswith(GGUF):
        from ...files.containers.gguf_files import Gguf  # files stand above the networks
        from ...files.opening import reader_of  # files stand above the networks

        name = os.path.basename(path).removesuffix(GGUF)
        with reader_of(path) as reader:
            shapes = {name: reader.info(name).shape for name in reader.names}
            listed: Callable[[str], Any] = reader.listed if isinstance(reader, Gguf) else dict[str, Any]().get
            return decoder_of_keys(path, reader.metadata, shapes, name, listed).network()
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    if not os.path.isdir(path):
        os.stat(path)  # a missing file is an OSError
    place = os.path.join(folder, CONFIG)
    if not os.path.exists(place):
        raise WrongValue(f"{printable(path)}: has no {CONFIG} next to the weights, by which a network is known")
    found = json_object(place, MAX_CONFIG)
    return decoder_of_config(place, found, os.path.basename(os.path.abspath(folder))).network()
