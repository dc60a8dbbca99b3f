"""The command ``heterocompute``."""

from .command import UsageError, main

__all__ = ["UsageError", "main"]


def __dir__() -> list[str]:
    return __all__
