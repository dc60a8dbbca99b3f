"""The time of a product whose weights come from memory.

A product that is timed repeatedly finds its weights in a cache, where float32 is read as quickly as 4 bits. So each
round first reads enough other memory to clear the caches, then multiplies by copies of the weights, each of them once:
the code stays warm, the weights are cold.
"""

from __future__ import annotations

import time
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import runtime
from ..base.cache_files import l3_bytes
from ..base.cached import cached
from ..formats import Format
from .matmul import linear

COPIES = 12  # multiplied in one turn; the first few warm up the code and are not counted
LARGEST = 256 << 20  # bytes read in a turn, for caches larger than half of that


class Clock:
    """Times products with cold weights, in one thread.

    Parameters
    ----------
    beyond : int, optional
        Bytes to read so that a cache forgets the weights. Default: twice the last cache, at most 256 MiB.
    """

    def __init__(self, beyond: int | None = None) -> None:
        self.beyond = min(2 * l3_bytes(), LARGEST) if beyond is None else beyond

    @cached
    def _memory(self) -> NDArray[np.float32]:
        return np.ones(self.beyond // 4, np.float32)

    def copies(self, w: Any) -> list[Any]:
        """Return copies of the weights, together no larger than the memory read in a round; one if they are larger."""
        return [w, *(deepcopy(w) for _ in range(min(self.beyond // max(w.nbytes, 1), COPIES) - 1))]

    def seconds(self, x: NDArray[np.float32], w: object, kinds: list[Format | None]) -> list[float]:
        """Return the shortest time of ``linear(x, w)`` for each kind of activations."""
        copies = self.copies(w)
        with runtime.use(threads=1):  # with other programs running, threads would wait for each other
            return [self._seconds(x, copies, kind) for kind in kinds]

    def _seconds(self, x: NDArray[np.float32], copies: list[Any], kind: Format | None) -> float:
        times: list[float] = []
        while not _settled(times):
            self._memory.max()
            turn = []
            for w in copies:
                begin = time.perf_counter()
                linear(x, w, activations=kind)
                turn.append(time.perf_counter() - begin)
            times += turn[1:] or turn
        return min(times)  # other programs can only increase the time


def _settled(times: list[float]) -> bool:
    """Tell whether the shortest time is probably that of an otherwise idle machine."""
    if len(times) < 8:
        return False
    shortest = sorted(times)[:3]  # three times that agree; with other programs running few do
    return shortest[2] < 1.15 * shortest[0] or len(times) >= 25 or sum(times) > 0.3
