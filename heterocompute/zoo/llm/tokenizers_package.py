"""The package `tokenizers`: imported when texts are first needed, and its exceptions as sentences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...base.errors import WrongValue, printable
from ...base.texts import shortened
from .tokens import MISSING


def package() -> Any:
    """Return the package."""
    try:
        import tokenizers  # optional
    except ImportError:
        raise ImportError(MISSING) from None
    return tokenizers


@contextmanager
def refusals(path: str, action: str) -> Iterator[None]:
    """Turn what the package raises into a ValueError with the file's name.

    The package raises Exception itself, and PanicException, which is a BaseException, where its own code fails.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, ImportError):
        raise
    except BaseException as error:
        declared = shortened(" ".join(str(error).split()), 160)
        raise WrongValue(
            f"{printable(path)}: the package tokenizers does not {action} ({printable(declared)})"
        ) from None
