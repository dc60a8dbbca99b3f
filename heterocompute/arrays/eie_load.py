"""The load of EIE's processing elements, cycle by cycle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.float_env import counts_subnormals
from ..base.notebooks.shown import Facts

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class EIELoad(Facts):
    """A cycle-accurate simulation of EIE's processing elements for one vector.

    Attributes
    ----------
    cycles : int
        Cycles from the first activation until the last element finishes.
    broadcasts : int
        Number of nonzero activations. All elements receive them, at most one per cycle.
    stalls : int
        Cycles in which an activation waited because the queue of an element was full.
    busy : ndarray of int64, (elements,)
        Cycles in which each element multiplied, including padding entries.
    padding : int
        Number of padding entries over all elements.
    """

    cycles: int
    broadcasts: int
    stalls: int
    busy: Array
    padding: int

    @property
    @counts_subnormals
    def efficiency(self) -> float:
        """Return the load-balance efficiency: busy cycles as a fraction of all cycles of all elements; 1 if none."""
        return float(self.busy.sum() / (self.cycles * len(self.busy))) if self.cycles else 1.0

    @property
    @counts_subnormals
    def useful(self) -> float:
        """Return the fraction of the busy cycles that is not padding; 1 if none."""
        busy = int(self.busy.sum())
        return 1 - self.padding / busy if busy else 1.0
