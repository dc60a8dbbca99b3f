"""Recipes: which tensor of a checkpoint gets which format or pattern, as a TOML file or as texts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.errors import WrongType, WrongValue, printable, shown
from ..base.texts import quoted
from ..base.toml_text import read_toml
from ..formats import Format, format as parse_format, has_pattern
from ..pruning.prune import prune
from .selection import literal

SKIP = "skip"
MAX_RECIPE = 8 << 20  # bytes: 100,000 names
MAX_GLOBS = 10_000  # each is matched with each tensor


@dataclass(frozen=True)
class Zeros:
    """A pattern of `heterocompute.prune` for a tensor that stays an array of floats, with zeros in it."""

    pattern: str

    def __str__(self) -> str:
        return self.pattern


def read_recipe(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a recipe: a TOML file with one table, ``[formats]``, of ``"glob" = "format"`` or ``"skip"``.

    Returns
    -------
    dict of str to str
        In the order of the file; the texts are not parsed yet.

    Raises
    ------
    ValueError
        The file is not TOML, has other content, is not a regular file, or is larger than 8 MiB.
    OSError
        The file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "recipe.toml")
    >>> with open(path, "w") as file:
    ...     _ = file.write('[formats]\\n"*.embeddings.*" = "skip"\\n"*" = "vsq4-g16-s4"\\n')
    >>> read_recipe(path)
    {'*.embeddings.*': 'skip', '*': 'vsq4-g16-s4'}
    """
    parsed, name = read_toml(path, MAX_RECIPE), printable(os.fsdecode(path))
    table = parsed.get("formats")
    if set(parsed) != {"formats"} or not isinstance(table, dict):
        got = f"formats = {shown(table)}" if set(parsed) == {"formats"} else shown(sorted(parsed))
        raise WrongValue(f"{name}: a recipe is one table [formats], got {got}")
    if sum(literal(pattern) is None for pattern in table) > MAX_GLOBS:
        raise WrongValue(f"{name}: more than {MAX_GLOBS} patterns with wildcards")
    for pattern, text in table.items():
        if not isinstance(text, str):
            raise WrongValue(f"{name}: {quoted(pattern)} is {shown(text)}, expected a format's text or 'skip'")
    return table


def parse_recipe(
    recipe: Mapping[str, Any], parse: Callable[[str], Any] = parse_format, also: tuple[type, ...] = ()
) -> dict[str, Any]:
    """Turn the texts of a recipe into formats; ``skip`` becomes None.

    Parameters
    ----------
    parse : callable
        What makes a format of a text.
    also : tuple of type
        Other values that stay as they are.

    Raises
    ------
    TypeError
        A value is neither a text nor a format.
    ValueError
        If a text is not a format.

    Examples
    --------
    >>> parse_recipe({"*.bias": "skip", "*": "int8"})["*.bias"] is None
    True
    """
    for pattern, fmt in recipe.items():
        if not (fmt is None or isinstance(fmt, (str, Format, Zeros, *also))):
            raise WrongType(f"recipe: {quoted(pattern)} is {shown(fmt)}, expected a format, its text or 'skip'")
    return {
        pattern: None if fmt is None or fmt == SKIP else parse(fmt) if isinstance(fmt, str) else fmt
        for pattern, fmt in recipe.items()
    }


def with_recipe(format: object, recipe: object) -> Any:
    """Return a format, or the mapping of a recipe followed by the format for all other tensors.

    Parameters
    ----------
    format : Format, str, mapping or None
    recipe : mapping, path of a TOML file, or None

    Examples
    --------
    >>> with_recipe("int8", {"*.bias": "skip"})
    {'*.bias': None, '*': 'int8'}
    """
    if recipe is None:
        return format
    first = parse_recipe(recipe if isinstance(recipe, Mapping) else read_recipe(recipe))  # type: ignore[arg-type]
    rest = {} if format is None else format if isinstance(format, Mapping) else {"*": format}
    return {**first, **{pattern: fmt for pattern, fmt in rest.items() if pattern not in first}}


def parse_pattern_text(text: str, formats: bool = True) -> Format | Zeros:
    """Convert the text of a pattern into the argument of `prune_checkpoint`.

    Parameters
    ----------
    text : str
        As in `heterocompute.prune`.
    formats : bool
        Accept a format with a pattern, such as ``"int8+2:4"``, too.

    Raises
    ------
    ValueError
        The text is not a pattern, nor a format with a pattern if `formats` is set.

    Examples
    --------
    >>> str(parse_pattern_text("2:4")), parse_pattern_text("global:50%")
    ('2:4', Zeros(pattern='global:50%'))
    """
    if formats and "+" in text:
        found = parse_format(text)
        if has_pattern(found):
            return found
    prune(np.zeros((1, 1), np.float32), text)  # refuses an invalid pattern
    return Zeros(text) if text.endswith("%") else parse_format(text)
