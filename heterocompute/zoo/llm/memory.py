"""Memory of packed weights: a token reads all of them in one order, so they are stored in that order."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ...arrays.quantized import QuantizedArray

__all__ = ["Memory"]

LEAST = 1 << 22  # NumPy asks for huge pages from here on: a page of 4 KiB costs a search in tables
MOST = 1 << 26  # bytes of a block


class Memory(threading.local):
    """Store the components of packed arrays, each behind that of the array before.

    Matrices that multiply the same input lie side by side then, and the C core multiplies them as one. Each thread has
    its own blocks, since two threads that read weights at the same time would get the same bytes of one.
    """

    def __init__(self) -> None:
        self._blocks: dict[str, tuple[np.ndarray[Any, Any], int]] = {}  # by component: bytes, and how many are taken

    def placed(self, array: Any) -> Any:
        """Return a copy of an array in this memory, or the array if it is large or not packed."""
        if not isinstance(array, QuantizedArray) or array.nbytes >= LEAST:
            return array
        parts = {name: self._copied(name, part) for name, part in array.components.items()}
        return QuantizedArray._trusted(parts, array.format, array.shape, array.axis, array.source_dtype)

    def _copied(self, name: str, part: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        block, taken = self._blocks.get(name, (np.empty(0, np.uint8), 0))
        taken += -taken % part.itemsize
        if taken + part.nbytes > block.size:
            block, taken = np.empty(min(max(LEAST, 2 * block.size), MOST), np.uint8), 0
        self._blocks[name] = block, taken + part.nbytes
        found: np.ndarray[Any, Any] = block[taken : taken + part.nbytes].view(part.dtype).reshape(part.shape)
        found[...] = part
        return found
