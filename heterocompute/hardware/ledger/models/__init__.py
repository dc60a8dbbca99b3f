"""Functions that compute a published figure, under the names that the records use: ``eyeriss.frames``."""

from __future__ import annotations

from collections.abc import Callable

from . import chips, counts, eyeriss, layers, machines, mapping, silicon, sparse, systems, training, vectors

__all__ = ["MODELS"]

MODELS: dict[str, Callable[..., float]] = {
    f"{module.__name__.rpartition('.')[2]}.{name}": getattr(module, name)
    for module in (chips, counts, eyeriss, layers, machines, mapping, silicon, sparse, systems, training, vectors)
    for name in module.__all__
}
