"""The words of the field, from glossary.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

__all__ = ["glossary"]


@cache
def glossary() -> dict[str, str]:
    """Return a glossary of words and abbreviations, with one line each.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.glossary()["MAC"]
    'multiply-add, counted once'
    """
    found = tomllib.loads(Path(__file__).with_name("glossary.toml").read_text(encoding="utf-8"))
    return {word: str(text) for word, text in found.items()}
