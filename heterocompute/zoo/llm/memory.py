"""Memory of packed weights: every token reads all weights in the same order, so they are stored in this order."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ...arrays.quantized import QuantizedArray

LEAST = 1 << 22  # NumPy requests huge pages from this size on; pages of 4 KiB cost more page table lookups
MOST = 1 << 26  # bytes of a block


class Memory(threading.local):
    """Store the components of packed arrays contiguously, one array after the other.

    Matrices that multiply the same input are adjacent, and the C core multiplies them as one. Each thread has its own
    blocks, because two threads that place weights at the same time could get the same bytes of a block.
    """

    def __init__(self) -> None:
        self._blocks: dict[str, tuple[np.ndarray[Any, Any], int]] = {}  # by component: bytes, used bytes

    def placed(self, array: object) -> Any:
        """Return a packed array whose components are in this memory, except for large ones; other arrays unchanged."""
        if not isinstance(array, QuantizedArray):
            return array
        parts = {name: part if part.nbytes >= LEAST else self._copied(name, part)
                 for name, part in array.components.items()}  # fmt: skip
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
