"""Tensors, or a language model, written to a GGUF file: `save_gguf`; gguf.py writes the tensors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ....arrays.layout import as_path
from ....formats import Format
from ...containers.gguf_files import Gguf
from ...gguf import save_tensors
from ...opening import open_checkpoint, reader_of
from .layout import Named
from .llama_cpp import model_in, model_of_gguf

SMALL = ("*norm.*", "*ffn_gate_inp*", "*attn_sinks*", "*token_types*", "*position_embd*")  # of models, float32


def save_gguf(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Any] | str | os.PathLike[str],
    metadata: Mapping[str, Any] | None = None,
    types: Mapping[str, str | Format] | None = None,
    importance: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    check: str = "sample",
) -> dict[str, str]:
    """Write weights to a GGUF file, quantized to ggml types.

    Parameters
    ----------
    path : str or os.PathLike
        Replaced by renaming if it exists. The file gets this name when it is complete.
    tensors : mapping of str to ndarray or QuantizedArray, or str or os.PathLike
        Float arrays with at most 4 dimensions, the last being the reduction axis. Names have at most 63 bytes. A
        checkpoint of `open_checkpoint` is such a mapping. Arrays that are quantized to a ggml type along the last axis,
        and signed integers such as positions, are written unchanged. A 0-D array is stored as one dimension of 1 value.
        Or a language model: a folder of Hugging Face, or a GGUF file. Its tensors and keys get the names of llama.cpp,
        by which `types` and `importance` name them. Routers and other small tensors then stay float32.
    metadata : mapping of str to str, bool, int, float, NumPy number, or a list of one of these, optional
        Keys such as ``"general.name"``. The default of ``"general.architecture"`` is ``"none"``. Python numbers get the
        types that llama.cpp expects: float32 for floats, uint32 for integers from 0, int32 for negative integers and
        lists, int64 for larger integers. NumPy numbers keep their own types, such as ``np.float64``.
    types : mapping of str to Format or str, optional
        Name globs, of which the first match applies, and a type: a `GGML` format, ``"mxfp4"``, ``"nvfp4"``,
        ``"iq1_s"``, ``"iq1_m"``, ``"iq2_xxs"``, ``"iq2_xs"``, ``"iq2_s"``, ``"iq3_xxs"``, ``"iq3_s"``, ``"f16"``,
        ``"bf16"`` or ``"f32"``. The float32 scale of ``"nvfp4"`` becomes a separate tensor, ``fc.scale`` for
        ``fc.weight``. Default: ``{"*": "q4_k"}``. Tensors without a match stay float32.
    importance : mapping of str to array_like, or str or os.PathLike, optional
        Per tensor, the weights of the squared errors of its columns: shape (columns,), finite, not negative. Or the
        importance matrix of `llama-imatrix`, GGUF or ``.dat``. Its tensors that are not in `tensors` have no effect.
        Types without a search ignore them.
    check : {"sample", "all", "none"}
        What is rounded a second time and compared with the written file before the file takes its name: at least one
        tensor of each type and a sixteenth of the bytes, everything, or nothing.

    Returns
    -------
    dict of str to str
        The written type of each tensor. Vectors stay float32, as llama.cpp requires. Rows that are not whole blocks of
        256 get a type with blocks of 32, as in llama.cpp (q4_k: q5_0). Rows that are not whole blocks of 32 get
        float16.

    Raises
    ------
    ImportError
        The package gguf is not installed.
    TypeError
        An array holds neither floats nor signed integers, or a key or type has the wrong type.
    ValueError
        A tensor to quantize holds NaN or infinity, a name is too long, a type is unknown, GGUF cannot represent a
        format, or importance has another length. The written file has other bytes than the tensors, and is deleted.

    Notes
    -----
    Peak memory is the largest tensor as float32, its components and its blocks. See ggml, docs/gguf.md.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, heterocompute as hc
    >>> path = os.path.join(tempfile.mkdtemp(), "model.gguf")
    >>> w = np.linspace(-1, 1, 1024, dtype=np.float32).reshape(4, 256)
    >>> hc.save_gguf(path, {"fc.weight": w, "fc.bias": w[:, 0]})
    {'fc.weight': 'q4_k', 'fc.bias': 'f32'}
    """
    if not isinstance(tensors, str | os.PathLike):
        return save_tensors(path, tensors, metadata, types, importance, check)
    place = as_path(tensors, "save_gguf")
    with reader_of(place) as reader, open_checkpoint(place) as opened:
        model = model_of_gguf(reader) if isinstance(reader, Gguf) else model_in(reader)
        arrays: Mapping[str, Any] = opened if isinstance(reader, Gguf) else Named(opened, model)
        keys = {"general.architecture": model.architecture, **model.keys, **(metadata or {})}
        wanted = {**dict.fromkeys(SMALL, "f32"), **({"*": "q4_k"} if types is None else types)}
        return save_tensors(path, arrays, keys, wanted, importance, check)
