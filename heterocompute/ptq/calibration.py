"""The result of calibration: a Hessian for each weight."""

from __future__ import annotations

from ..base.notebooks.shown import Shown, facts_html
from ..base.texts import counted
from .hessian import Hessian


class Calibration(Shown, dict[str, Hessian]):
    """Map each weight's name to its Hessian, in the order of the weights.

    Attributes
    ----------
    axes : dict of str to tuple of int
        Reduction axes of each weight.
    held : Calibration or None
        The Hessians of held-out batches, which `heterocompute.ptq.quantize` uses for its report.
    """

    axes: dict[str, tuple[int, ...]]
    held: Calibration | None = None

    def __repr__(self) -> str:
        return f"<Calibration: {counted(len(self), 'Hessian')} of {sum(one.tokens for one in self.values()):,} tokens>"

    def _repr_html_(self) -> str:
        return facts_html(self)
