"""The command ``heterocompute``."""

from .command import UsageError, main

__all__ = ["UsageError", "main"]
