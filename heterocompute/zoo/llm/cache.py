"""The keys and values of all tokens so far, of each layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...products.arguments import as_format
from ...products.quantize import fake_quantize
from .shape import Shape

__all__ = ["Cache"]

FloatArray = np.ndarray[Any, np.dtype[np.float32]]


class Cache:
    """Keys and values of a batch.

    Attributes
    ----------
    length : int
        Tokens before those that are added now.
    """

    def __init__(self, shape: Shape, batch: int, fmt: Any) -> None:
        self.shape, self.batch = shape, batch
        self.format = None if fmt is None else as_format(fmt, "kv_cache")
        self.length = 0
        self._held: list[list[FloatArray]] = [[] for _ in range(shape.layers)]

    def add(self, layer: int, *parts: FloatArray) -> list[FloatArray]:
        held = self._held[layer]
        if self.format is not None:
            parts = tuple(fake_quantize(np.ascontiguousarray(p), self.format) for p in parts)
        new = parts if not held else [np.concatenate([a, b], axis=2) for a, b in zip(held, parts)]
        self._held[layer] = list(new)
        if layer == self.shape.layers - 1:
            self.length += parts[0].shape[2]
        return self._held[layer]
