"""Public names of a package whose modules are imported on first use, and errors of old names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

from .errors import WrongType, shown

__all__ = ["public_names", "renamed"]

P = ParamSpec("P")
R = TypeVar("R")


def public_names(
    package: str,
    table: Mapping[str, str],
    *,
    module: str = "",
    renamed: Mapping[str, str] | None = None,
    namespaces: Sequence[str] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Parameters
    ----------
    package : str
        Its name.
    table : mapping of str to str
        Module below the package -> its public names, blanks between. An empty text: the module itself is public.
    module : str
        The module that has these names, if it is a namespace of the package and not the package.
    renamed : mapping of str to str, optional
        Old name -> its new name. The error for the old name states the new one.
    namespaces : sequence of str
        Public modules of the package. The error for a name that one of them has states its path.

    Returns
    -------
    (callable, callable, list of str)
    """
    owner = module or package
    homes = {name: (room, name) for room, names in table.items() for name in names.split()}
    homes |= {room.rpartition(".")[2]: (room, "") for room, names in table.items() if not names}

    def new_name(name: str) -> str:
        """Return the current name of an old one, or an empty text."""
        if renamed and name in renamed:
            return renamed[name]
        return next((f"{one}.{name}" for one in namespaces if name in import_module(f"{package}.{one}").__all__), "")

    def open_name(name: str) -> Any:
        if name not in homes:
            current = "" if name.startswith("__") else new_name(name)
            use = f", use {owner}.{current}" if current else ""
            raise AttributeError(f"module {shown(owner)} has no attribute {shown(name)}{use}")
        room, attribute = homes[name]
        found = import_module(f"{package}.{room}")
        value = getattr(found, attribute) if attribute else found
        setattr(sys.modules[owner], name, value)  # looked up once
        return value

    public = sorted(homes)
    return open_name, lambda: public, public


def renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of a function whose arguments had other names: an old name is an error with the new one.

    Parameters
    ----------
    **names : str
        Old name -> new name.

    Examples
    --------
    >>> @renamed(fmt="format")
    ... def bits(format):
    ...     return 4
    >>> bits(fmt="int4")
    Traceback (most recent call last):
    heterocompute.base.errors.WrongType: bits: fmt is an old name, expected format=
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except TypeError:
                old = next((name for name in names if name in kwargs), None)
                if old is None:
                    raise
            raise WrongType(f"{function.__name__}: {old} is an old name, expected {names[old]}=")

        return call

    return decorate
