"""An encoder from its folder: `open_encoder`."""

from __future__ import annotations

import os

from ...base.errors import WrongValue, printable
from ...base.json_text import json_object
from ...base.texts import file_name
from ...families.table import ENCODER_KINDS
from ..llm.opening import MAX_CONFIG, folder_parts
from .network import Encoder
from .pooling import declared_in


def is_encoder(path: str) -> bool:
    """Tell whether a path is a folder whose config.json names a family of encoders."""
    place = os.path.join(path, "config.json")
    return os.path.isfile(place) and json_object(place, MAX_CONFIG).get("model_type") in ENCODER_KINDS


def open_encoder(path: str | os.PathLike[str]) -> Encoder:
    """Open an encoder of texts and return it with its tokenizer.

    Parameters
    ----------
    path : str or os.PathLike
        A Hugging Face folder with safetensors, config.json and tokenizer.json, in any layout that
        `heterocompute.load` reads. The families are BERT, RoBERTa, XLM-RoBERTa, ModernBERT and Nomic BERT. The pooling
        is that of modules.json (sentence-transformers); without this file it is the mean of all tokens.

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
        raise WrongValue(f"{printable(place)}: is not a folder; expected one with config.json and safetensors")
    pooling, normalizes = declared_in(place)
    found = folder_parts(place, encoder=True)
    return Encoder(place, found.weights, found.shape, found.roles, found.tokens, pooling, normalizes)
