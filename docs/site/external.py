"""Links from types in docstrings to the pages of Python, NumPy and PyTorch, without a download.

Sphinx reads the names that another project documents from its inventory file, which it downloads. The site is built
offline, so this module writes small inventories of the few names that docstrings use.
"""

from __future__ import annotations

import inspect
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PYTHON = "https://docs.python.org/3/"
NUMPY = "https://numpy.org/doc/stable/"
TORCH = "https://docs.pytorch.org/docs/stable/"
#: Project -> its address, and per name the kind of the object and its page.
PROJECTS = {
    "python": (PYTHON, {
        "None": ("py:data", "library/constants.html#None"),
        "bool": ("py:class", "library/functions.html#bool"),
        "int": ("py:class", "library/functions.html#int"),
        "float": ("py:class", "library/functions.html#float"),
        "str": ("py:class", "library/stdtypes.html#str"),
        "list": ("py:class", "library/stdtypes.html#list"),
        "tuple": ("py:class", "library/stdtypes.html#tuple"),
        "dict": ("py:class", "library/stdtypes.html#dict"),
        "os.PathLike": ("py:class", "library/os.html#os.PathLike"),
        "callable": ("std:term", "glossary.html#term-callable"),
        "iterable": ("std:term", "glossary.html#term-iterable"),
        "sequence": ("std:term", "glossary.html#term-sequence"),
        "mapping": ("std:term", "glossary.html#term-mapping"),
    }),
    "numpy": (NUMPY, {
        "numpy.ndarray": ("py:class", "reference/generated/numpy.ndarray.html#numpy.ndarray"),
        "numpy.dtype": ("py:class", "reference/generated/numpy.dtype.html#numpy.dtype"),
        "array_like": ("std:term", "glossary.html#term-array_like"),
    }),
    "torch": (TORCH, {
        "torch.Tensor": ("py:class", "tensors.html#torch.Tensor"),
        "torch.nn.Module": ("py:class", "generated/torch.nn.Module.html#torch.nn.Module"),
    }),
}  # fmt: skip
#: Words of docstrings by the role and target of their link.
WORDS = {
    "None": ":data:`python:None`",
    **{name: f":class:`python:{name}`" for name in ("bool", "int", "float", "str", "list", "tuple", "dict")},
    **{name: f":term:`python:{name}`" for name in ("callable", "iterable", "sequence", "mapping")},
    "os.PathLike": ":class:`os.PathLike <python:os.PathLike>`",
    "ndarray": ":class:`ndarray <numpy:numpy.ndarray>`",
    "dtype": ":class:`dtype <numpy:numpy.dtype>`",
    "array_like": ":term:`numpy:array_like`",
    "torch.Tensor": ":class:`torch.Tensor <torch:torch.Tensor>`",
    "torch.nn.Module": ":class:`torch.nn.Module <torch:torch.nn.Module>`",
}


def inventories(folder: Path) -> dict[str, tuple[str, str]]:
    """Write an inventory per project into a folder and return Sphinx's intersphinx_mapping."""
    mapping = {}
    for project, (address, names) in PROJECTS.items():
        rows = [f"{name} {kind} 1 {page} -" for name, (kind, page) in names.items()]
        header = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
        header += "# The remainder of this file is compressed using zlib.\n"
        path = folder / f"{project}.inv"
        path.write_bytes(header.encode() + zlib.compress("\n".join([*rows, ""]).encode()))
        mapping[project] = (address, str(path))
    return mapping


def aliases(objects: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Return numpydoc's table of links: words of Python, NumPy and PyTorch, and our public classes by their names.

    A name that two classes share, such as Network, has no link.
    """
    classes = {one for _, one in objects if inspect.isclass(one)}
    names = Counter(one.__name__ for one in classes)
    ours = {
        one.__name__: f":class:`{one.__name__} <{one.__module__}.{one.__qualname__}>`"
        for one in classes
        if names[one.__name__] == 1
    }
    return ours | WORDS
