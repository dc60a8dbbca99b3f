"""An encoder from its folder: `open_encoder`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...base.errors import WrongValue, printable, shown
from ...base.json_text import json_object
from ...base.texts import file_name
from ...families.table import ENCODER_GGUF, ENCODER_KINDS
from ..llm.opening import MAX_CONFIG, folder_parts, gguf_parts
from .network import Encoder
from .pooling import declared_in

POOLING = {"0": "mean", "1": "mean", "2": "cls", "3": "last"}  # of llama.cpp: none, mean, cls, last


def is_encoder(path: str) -> bool:
    """Tell whether a path is a folder or a GGUF file of a family of encoders."""
    if os.path.isfile(path):
        return path.endswith(".gguf") and _architecture(path) in ENCODER_GGUF
    place = os.path.join(path, "config.json")
    return os.path.isfile(place) and str(json_object(place, MAX_CONFIG).get("model_type")) in ENCODER_KINDS


def _architecture(path: str) -> str | None:
    from ...files.opening import reader_of  # files stand above the networks

    with reader_of(path) as reader:
        return reader.metadata.get("general.architecture")


def open_encoder(path: str | os.PathLike[str]) -> Encoder:
    """Open an encoder of texts and return it with its tokenizer.

    Parameters
    ----------
    path : str or os.PathLike
        A Hugging Face folder with safetensors, config.json and tokenizer.json, in any layout that
        `heterocompute.load` reads, or a GGUF file of BERT or Nomic BERT. The families are BERT, RoBERTa, XLM-RoBERTa,
        ModernBERT and Nomic BERT. The pooling is that of modules.json (sentence-transformers), or of the key
        ``pooling_type``; without these it is the mean of all tokens.

    Returns
    -------
    Encoder
        Weights are packed as stored, each read on first access.

    Raises
    ------
    ValueError
        The family is not supported, or the folder lacks a tensor or is inconsistent.
    OSError
        A file cannot be read.

    Examples
    --------
    >>> net = hc.zoo.open_encoder("all-MiniLM-L6-v2")  # doctest: +SKIP
    >>> net.embed(["a cat", "a dog"]).shape  # doctest: +SKIP
    (2, 384)
    """
    place = file_name(path)
    if "\0" in place or not os.path.isdir(place):
        (weights, shape, roles, tokens), _, metadata = gguf_parts(place, encoder=True)
        return Encoder(place, weights, shape, roles, tokens, _pooling(place, metadata, shape.options.architecture))
    pooling, normalizes = declared_in(place)
    found = folder_parts(place, encoder=True)
    return Encoder(place, found.weights, found.shape, found.roles, found.tokens, pooling, normalizes)


def _pooling(path: str, metadata: Mapping[str, str], family: str) -> tuple[str, ...]:
    """Return the pooling that a key of a GGUF file names."""
    number = metadata.get(f"{family}.pooling_type", "0")
    if number not in POOLING:
        known = ", ".join(POOLING)
        raise WrongValue(f"{printable(path)}: {family}.pooling_type is {shown(number)}, expected one of {known}")
    return (POOLING[number],)
