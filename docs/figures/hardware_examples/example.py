"""A number from another source, the call that computes it with the model, and the allowed deviation."""

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
        The number that the model is compared with: published, or computed in another way; or a range.
    modelled : callable or None
        Calls the package; None if the statement is too vague for a model.
    within : float
        Allowed relative deviation, from the printed digits or the rounding of the source; 0 requires equality.
    source : str
        The publication; in the other tables, the other computation.
    missed : str
        The reason if the number is not reproduced.
    """

    what: str
    other: Callable[[], float] | float | tuple[float, float]
    modelled: Callable[[], float] | None
    within: float
    source: str
    missed: str = ""

    @property
    def expected(self) -> float:
        """The other number; for a range, the value nearest to the model's."""
        if isinstance(self.other, tuple):
            if self.modelled is None:
                return self.other[0]
            return min(max(self.modelled(), self.other[0]), self.other[1])
        return self.other() if callable(self.other) else self.other

    @property
    def deviation(self) -> float:
        """Deviation of the model, relative to the other number."""
        return self.modelled() / self.expected - 1 if self.modelled else math.nan

    @property
    def holds(self) -> bool:
        """Whether the deviation is allowed."""
        if self.modelled is None:
            return False
        return self.modelled() == self.expected if self.within == 0 else abs(self.deviation) <= self.within
