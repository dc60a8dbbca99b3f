"""Public names of a package whose modules are imported on first use, so that importing the package stays fast."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from .errors import shown

__all__ = ["public_names"]


def public_names(
    package: str, table: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Parameters
    ----------
    package : str
        Its name.
    table : mapping of str to str
        Module below the package -> its public names, blanks between. An empty text: the module itself is public.

    Returns
    -------
    (callable, callable, list of str)
    """
    homes = {name: (module, name) for module, names in table.items() for name in names.split()}
    homes |= {module.rpartition(".")[2]: (module, "") for module, names in table.items() if not names}

    def open_name(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {shown(package)} has no attribute {shown(name)}")
        module, attribute = homes[name]
        found = import_module(f"{package}.{module}")
        value = getattr(found, attribute) if attribute else found
        setattr(sys.modules[package], name, value)  # looked up once
        return value

    public = sorted(homes)
    return open_name, lambda: public, public
