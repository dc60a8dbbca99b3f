"""The kinds of files that hold arrays, recognized by their first bytes: the name and the reader of each.

`files/opening.py` has the reader of each name; help, errors and the names that a safetensors file must not have are
made from this list.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NamedTuple

from .errors import WrongValue, printable

FIRST_BYTES = 512  # enough for the name of the first member of a zip archive, and for the first key of a JSON index
MAX_HEADER = 100_000_000  # bytes of JSON, as the reference implementation of safetensors allows
INDEX = ".index.json"
_INDEX_NAME = re.compile(r"\.index(?:\.[A-Za-z0-9_-]{1,64})?\.json")  # model.safetensors.index.fp16.json
_LEGACY_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # the pickle of the magic number

_OURS = "heterocompute.open_checkpoint reads it"


class Kind(NamedTuple):
    """A kind of file.

    Attributes
    ----------
    name : str
        The name of its reader in `files/opening.py`; empty if there is none.
    words : str
        Its name in errors.
    how : str
        The function that reads it, or what to do instead.
    fits : callable
        Whether a file is of this kind, from its first bytes and its name.
    brief : str
        Its name in the help of commands.
    endings : dict of str to str
        Endings of such files, and the layout of `save` that writes one.
    """

    name: str
    words: str
    how: str
    fits: Callable[[bytes, str], bool]
    brief: str = ""
    endings: dict[str, str] = {}


def _begins(magic: bytes) -> Callable[[bytes, str], bool]:
    return lambda first, path: first.startswith(magic)


def _member(first: bytes) -> bytes:
    """Return the name of the first member of a zip archive, or "" if it has none or is not one."""
    return first[30 : 30 + int.from_bytes(first[26:28], "little")] if first.startswith(b"PK\x03\x04") else b""


def _is_of_torch(first: bytes, path: str) -> bool:
    name = _member(first)
    ends = (b"/data.pkl", b"/.format_version", b"/byteorder", b"/version")
    return name.endswith(ends) or name.startswith(b"archive/") or b"/data" in name


def _is_text(first: bytes) -> bool:
    """Tell whether a file begins with at least one line of text, which no file of arrays does."""
    start = first[:-4].decode("utf-8", "replace") if len(first) == FIRST_BYTES else first.decode("utf-8", "replace")
    return bool(start) and "\ufffd" not in start and all(sign.isprintable() or sign in "\t\n\r\f" for sign in start)


def _is_index(first: bytes) -> bool:
    return first.lstrip()[:1] == b"{" and (b'"weight_map"' in first or b'"total_size"' in first)


# The first matching entry is the kind of a file.
KINDS = (
    Kind("safetensors", "safetensors", _OURS, lambda first, path: first[8:9] == b"{"
         and int.from_bytes(first[:8], "little") <= MAX_HEADER, "safetensors"),
    Kind("folder", "a checkpoint in parts", _OURS, lambda first, path: names_index(path)
         and first.lstrip()[:1] == b"{", "a folder"),
    Kind("npz", "an archive of NumPy (.npz)", _OURS, lambda first, path: _member(first).endswith(b".npy")
         or first.startswith(b"PK\x05\x06"), ".npz", {".npz": ""}),
    Kind("npy", "one array of NumPy (.npy)", _OURS, _begins(b"\x93NUMPY"), ".npy", {".npy": ""}),
    Kind("torch", "an archive of torch.save (.pt, .pth, .bin)", _OURS, _is_of_torch, ".pt", {".pt": "", ".pth": ""}),
    Kind("legacy torch", "a file of torch.save (.pt, .pth, .bin)", _OURS, _begins(_LEGACY_TORCH)),
    Kind("onnx", "an ONNX model or another protobuf", f"{_OURS}; the commands study, count and roofline take .onnx",
         _begins(b"\x08"), ".onnx", {".onnx": "onnx"}),
    Kind("gguf", "GGUF, as llama.cpp has it", _OURS, _begins(b"GGUF"), ".gguf", {".gguf": "gguf"}),
    Kind("onnx", "an ONNX model", _OURS, lambda first, path: path.endswith(".onnx")),
    Kind("", "a pickle, but not of torch.save", "save its arrays with numpy.savez or safetensors", _begins(b"\x80")),
    Kind("", "HDF5, as Keras writes (.h5)", "h5py reads it; pass its arrays", _begins(b"\x89HDF\r\n\x1a\n")),
    Kind("", "a pointer of Git LFS", "git lfs pull brings the file itself", _begins(b"version https://git-lfs")),
    Kind("", "a zip archive", "unpack it, or read it with what wrote it", _begins(b"PK\x03\x04")),
    Kind("", "the index of a checkpoint in parts", "call it model.safetensors.index.json, or pass its folder",
         lambda first, path: _is_index(first)),
    Kind("", "JSON text", "pass the file of the weights", lambda first, path: first.lstrip()[:1] == b"{"),
    Kind("", "a TFLite model", "its interpreter reads the weights", lambda first, path: first[4:8] == b"TFL3"),
    Kind("", "a text file", "pass the file of the weights", lambda first, path: _is_text(first)),
)  # fmt: skip

READABLE = ", ".join(kind.brief for kind in KINDS if kind.brief)  # for the help of commands


def names_index(path: str) -> bool:
    """Tell whether a file has the name of a checkpoint's index, also of a variant.

    Examples
    --------
    >>> names_index("model.safetensors.index.json"), names_index("model.safetensors.index.fp16.json")
    (True, True)
    """
    at = path.rfind(".index")
    return at >= 0 and _INDEX_NAME.fullmatch(path, at) is not None


def kind_of(first: bytes, path: str = "") -> Kind | None:
    """Return the kind of a file from its first bytes, or None if they do not show it.

    Parameters
    ----------
    first : bytes
        Up to `FIRST_BYTES` of it.
    path : str
        Its name, which tells an index and an ONNX model.

    Examples
    --------
    >>> kind_of(b"GGUF" + bytes(20)).brief
    '.gguf'
    """
    return next((kind for kind in KINDS if kind.fits(first, path)), None)


def layout_of_ending(path: str) -> str | None:
    """Return the layout of `save` that writes files with the ending of a name, None if no ending says it.

    Examples
    --------
    >>> layout_of_ending("model.gguf"), layout_of_ending("model.safetensors")
    ('gguf', None)
    """
    ending = os.path.splitext(path)[1].lower()
    return next((kind.endings[ending] or None for kind in KINDS if ending in kind.endings), None)


def refuse_other_name(path: str) -> None:
    """Raise ValueError where a safetensors file would be written under the name of another kind of file.

    Examples
    --------
    >>> refuse_other_name("model.gguf")
    Traceback (most recent call last):
    ...
    heterocompute.base.errors.WrongValue: model.gguf: what is written is a safetensors file, expected a name \
without .gguf or the layout gguf
    """
    ending = os.path.splitext(path)[1].lower()
    for kind in KINDS:
        if ending in kind.endings:
            layout = f" or the layout {kind.endings[ending]}" * bool(kind.endings[ending])
            wanted = f"a name without {ending}{layout}"
            raise WrongValue(f"{printable(path)}: what is written is a safetensors file, expected {wanted}")


def what_it_is(first: bytes) -> str | None:
    """Return the kind of a file that is not safetensors, and its reader; None if the first bytes are unknown.

    Parameters
    ----------
    first : bytes
        Up to `FIRST_BYTES` of it.

    Examples
    --------
    >>> what_it_is(b"GGUF" + bytes(20))
    'is GGUF, as llama.cpp has it: heterocompute.open_checkpoint reads it'
    """
    kind = kind_of(first)
    return None if kind is None else f"is {kind.words}: {kind.how}"
