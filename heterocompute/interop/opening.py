"""`heterocompute.open`: one function for every kind of network and checkpoint in a file."""

from __future__ import annotations

import os
import warnings
from typing import Any

from ..base.errors import WrongValue
from ..base.locations import is_url
from ..base.magic import FIRST_BYTES, kind_of
from ..base.regular import open_regular
from ..base.texts import file_name
from ..files.opening import Checkpoint, open_checkpoint
from ..zoo.encoders.network import Encoder
from ..zoo.encoders.opening import is_encoder, open_encoder
from ..zoo.llm.network import LanguageModel
from ..zoo.llm.opening import open_llm
from .onnx_run import OnnxNetwork

__all__ = ["open"]

CONFIG = "config.json"


def open(
    path: str | os.PathLike[str], layout: str | None = None, *, x: Any = None, labels: Any = None
) -> LanguageModel | Encoder | OnnxNetwork | Checkpoint:
    """Open a network or a checkpoint of any kind that this package reads.

    Parameters
    ----------
    path : str or os.PathLike
        The content decides:

        - GGUF, or a folder with config.json: a language model, as `heterocompute.zoo.open_llm` returns it, or an
          encoder of texts, as `heterocompute.zoo.open_encoder`. Other models in such files are opened as checkpoints,
          with a warning.
        - ONNX: an `OnnxNetwork` of `heterocompute.interop.onnx_run`, which also `heterocompute.run_onnx` runs.
        - All other kinds: a `Checkpoint`, as `open_checkpoint` returns it.
    layout : str, optional
        Layout of another program, as in `open_checkpoint`. The result is then a checkpoint.
    x, labels : ndarray, optional
        For ONNX: examples, and the class of each.

    Returns
    -------
    LanguageModel, Encoder, OnnxNetwork or Checkpoint
        `heterocompute.study` accepts each of them. All have the weights by name: a checkpoint is a mapping, the others
        have the attribute ``weights``.

    Warns
    -----
    UserWarning
        A file of a language model whose network is not read here; the warning has the reason.

    Raises
    ------
    ValueError
        The kind of file is not supported, a file is truncated or inconsistent, or `x` or `labels` is given for
        another kind of file than ONNX.
    OSError
        The file cannot be read.
    ImportError
        A required package is not installed.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, heterocompute as hc
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> np.savez(path, w=np.eye(2))
    >>> with hc.open(path) as weights:
    ...     print(list(weights))
    ['w']
    """
    place = file_name(path)
    kind = "" if layout is not None or is_url(place) else _kind(place)
    if kind == "onnx":
        return OnnxNetwork(place, x, labels)
    if x is not None or labels is not None:
        name = "x" if x is not None else "labels"
        raise WrongValue(f"open: {name} does not apply to this file, expected an ONNX model")
    if kind != "network":
        return open_checkpoint(place, layout)
    try:
        return open_encoder(place) if is_encoder(place) else open_llm(place)
    except ValueError as error:
        found = open_checkpoint(place)
        warnings.warn(f"open: opened as a checkpoint, not as a network: {error}", stacklevel=2)
        return found


def _kind(place: str) -> str:
    """Return ``"onnx"``, ``"network"`` or an empty text."""
    if "\0" in place or os.path.isdir(place):
        return "network" if os.path.isfile(os.path.join(place, CONFIG)) else ""
    with open_regular(place) as file:
        found = kind_of(file.read(FIRST_BYTES), place)
    return {"onnx": "onnx", "gguf": "network"}.get("" if found is None else found.name, "")
