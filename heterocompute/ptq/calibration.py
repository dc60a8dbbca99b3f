"""What calibration gathers: a Hessian for each weight."""

from __future__ import annotations

from .hessian import Hessian

__all__ = ["Calibration"]


class Calibration(dict[str, Hessian]):
    """The Hessian of each weight by its name, in the order of the weights.

    Attributes
    ----------
    axes : dict of str to tuple of int
        The axes that each weight is summed along.
    held : Calibration or None
        The same of held-out batches, by which `heterocompute.ptq.quantize` judges.
    """

    axes: dict[str, tuple[int, ...]]
    held: Calibration | None = None
