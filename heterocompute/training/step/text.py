"""The text that ships with the package: its docstrings, for a small language model of characters."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LENGTH = 200_000  # characters
HELD_OUT = 0.1


@cache
def shipped_text() -> str:
    """Return the docstrings of the modules of the package, file after file, as lower-case ASCII.

    Examples
    --------
    >>> "reduction axes" in shipped_text()
    True
    """
    root, parts = Path(__file__).parents[2], []
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                parts.append(ast.get_docstring(node) or "")
        if sum(map(len, parts)) > LENGTH:
            break
    return "\n".join(part for part in parts if part).lower().encode("ascii", "ignore").decode()[:LENGTH]


def characters(context: int = 64) -> tuple[tuple[Array, Array, Array, Array], int]:
    """Return windows of the shipped text, each with the characters that follow, and the number of characters.

    Parameters
    ----------
    context : int, optional
        Length of a window.

    Returns
    -------
    ((ndarray, ndarray, ndarray, ndarray), int)
        Training inputs and labels, held-out inputs and labels, int64 (windows, context); the size of the alphabet.

    Examples
    --------
    >>> (x, y, _, _), size = characters(16)
    >>> bool((x[:, 1:] == y[:, :-1]).all()), int(x.max()) < size
    (True, True)
    """
    text = np.frombuffer(shipped_text().encode("ascii"), np.uint8)
    alphabet, ids = np.unique(text, return_inverse=True)
    count = (len(ids) - 1) // context
    x, y = (ids[first : first + count * context].reshape(count, context).astype(np.int64) for first in (0, 1))
    first = int(count * (1 - HELD_OUT))
    return (x[:first], y[:first], x[first:], y[first:]), len(alphabet)
