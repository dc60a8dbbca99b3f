"""Values of a file by key, each with a check of its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from ..base.errors import WrongValue, printable, shown
from ..base.texts import quoted

MAX_SIZE = 1 << 30


class Keys:
    """Values of a file by key, each with a check of its type.

    Parameters
    ----------
    path : str
        For errors.
    found : mapping of str to Any
    names : mapping of str to tuple of str, optional
        Names of some keys in the file, for errors.
    """

    def __init__(self, path: str, found: Mapping[str, Any], names: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self.path, self.found, self._names = path, found, names or {}

    def called(self, key: str) -> str:
        """Return the name of a key in the file."""
        return self._names.get(key, (key,))[0]

    def fail(self, what: str) -> NoReturn:
        raise WrongValue(f"{printable(self.path)}: {what}")

    def __contains__(self, key: str) -> bool:
        return self.found.get(key) is not None

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a boolean."""
        value = self.found.get(key)
        if value is not None and not isinstance(value, bool):
            self.fail(f"{self.called(key)} is {shown(value)}, expected true or false")
        return default if value is None else value

    def number(self, key: str, default: float | None = None, low: float = 1e-30, high: float = 1e30) -> float:
        """Return a number from low to high; without a default the key must exist."""
        value = self.found.get(key)
        if value is None:
            if default is None:
                self.fail(f"the key {quoted(self.called(key))} is missing")
            return default
        try:
            if isinstance(value, (bool, list, dict)):
                raise ValueError
            number = float(value)
        except (ValueError, OverflowError):
            self.fail(f"{self.called(key)} is {shown(value)}, expected a number")
        if not low <= number <= high:
            self.fail(f"{self.called(key)} is {shown(value)}, expected a number from {low:.7g} to {high:.7g}")
        return number

    def count(self, key: str, default: int | None = None, low: int = 1, high: int = MAX_SIZE) -> int:
        """Return an integer from low to high."""
        number = self.number(key, default, low, high)
        if number != int(number):
            self.fail(f"{self.called(key)} is {shown(self.found[key])}, expected an integer")
        return int(number)
