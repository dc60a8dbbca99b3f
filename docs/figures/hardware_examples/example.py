"""A figure from somewhere else, how the model computes it, and how far the two may be apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """One row.

    Attributes
    ----------
    what : str
    other : callable, float or (float, float)
        The figure that the model is held against: published, or computed in another way; or a range of them.
    modelled : callable or None
        Calls the package; None where the statement does not say what it is held against, so that there is no model.
    within : float
        Relative deviation that is allowed: what the printed digits or the source's own rounding allow; 0 is equality.
    source : str
        Who published it; in the other tables, the other way.
    missed : str
        Of a figure that is not reproduced: why.
    """

    what: str
    other: Callable[[], float] | float | tuple[float, float]
    modelled: Callable[[], float] | None
    within: float
    source: str
    missed: str = ""

    @property
    def expected(self) -> float:
        """The other figure; of a range the nearest to the model's."""
        if isinstance(self.other, tuple):
            if self.modelled is None:
                return self.other[0]
            return min(max(self.modelled(), self.other[0]), self.other[1])
        return self.other() if callable(self.other) else self.other

    @property
    def deviation(self) -> float:
        """Of the model, relative to the other figure."""
        return self.modelled() / self.expected - 1 if self.modelled else math.nan

    @property
    def holds(self) -> bool:
        """Whether the deviation is allowed."""
        if self.modelled is None:
            return False
        return self.modelled() == self.expected if self.within == 0 else abs(self.deviation) <= self.within
