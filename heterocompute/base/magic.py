"""What a file is that is no safetensors file, by its first bytes, and what reads it."""

from __future__ import annotations

import os

from .texts import printable

__all__ = ["FIRST_BYTES", "refuse_other_name", "what_it_is"]

# Names of files of other kinds, and what writes such a file.
_OTHER_NAMES = {
    ".gguf": " or the layout gguf",
    ".onnx": " or the layout onnx",
    ".pt": "",
    ".pth": "",
    ".npz": "",
    ".npy": "",
}

FIRST_BYTES = 512  # enough for the name of the first member of a zip archive, and for the first key of a JSON index

_OURS = "heterocompute.open_checkpoint reads it"
# First bytes -> what the file is, and what reads it.
_KINDS = {
    b"\x80": ("a pickle, but not of torch.save", "save its arrays with numpy.savez or safetensors"),
    b"\x93NUMPY": ("one array of NumPy (.npy)", _OURS),
    b"\x89HDF\r\n\x1a\n": ("HDF5, as Keras writes (.h5)", "h5py reads it; pass its arrays"),
    b"GGUF": ("GGUF, as llama.cpp has it", _OURS),
    b"\x08": ("an ONNX model or another protobuf", f"{_OURS}; the commands study, count and roofline take .onnx"),
    b"version https://git-lfs": ("a pointer of Git LFS", "git lfs pull brings the file itself"),
}  # fmt: skip


def refuse_other_name(path: str) -> None:
    """Raise ValueError where a safetensors file would be written under the name of another kind of file.

    Parameters
    ----------
    path : str

    Examples
    --------
    >>> refuse_other_name("model.gguf")
    Traceback (most recent call last):
    ...
    ValueError: model.gguf: what is written is a safetensors file, wanted a name without .gguf or the layout gguf
    """
    kind = os.path.splitext(path)[1].lower()
    if kind in _OTHER_NAMES:
        wanted = f"a name without {kind}{_OTHER_NAMES[kind]}"
        raise ValueError(f"{printable(path)}: what is written is a safetensors file, wanted {wanted}")


def what_it_is(first: bytes) -> str | None:
    """Return what a file is and what reads it, or None where its first bytes do not tell.

    Parameters
    ----------
    first : bytes
        Up to `FIRST_BYTES` of it.

    Examples
    --------
    >>> what_it_is(b"GGUF" + bytes(20))
    'is GGUF, as llama.cpp has it: heterocompute.open_checkpoint reads it'
    """
    for magic, (kind, reader) in _KINDS.items():
        if first.startswith(magic):
            return f"is {kind}: {reader}"
    if first.startswith(b"PK\x03\x04"):
        name = first[30 : 30 + int.from_bytes(first[26:28], "little")]
        if name.endswith(b".npy"):
            return f"is an archive of NumPy (.npz): {_OURS}"
        if name.endswith(b"/data.pkl") or name.startswith(b"archive/"):
            return f"is an archive of torch.save (.pt, .pth, .bin): {_OURS}"
        return "is a zip archive: unpack it, or read it with what wrote it"
    if first.lstrip()[:1] == b"{":
        if b'"weight_map"' in first or b'"total_size"' in first:
            return "is the index of a checkpoint in parts: call it model.safetensors.index.json, or pass its folder"
        return "is JSON text: pass the file of the weights"
    if first[4:8] == b"TFL3":
        return "is a TFLite model: its interpreter reads the weights"
    return None
