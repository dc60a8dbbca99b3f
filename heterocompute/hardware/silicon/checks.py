"""Formats whose modelled cost is supported by circuits or published figures, so that a table may rank them.

Published figures are records of hardware/ledger, of the topic ``formats``. No number of the model was chosen to meet
them.
"""

from __future__ import annotations

from ...base.values import check_choice
from ..ledger.records import published
from .operands import operand

__all__ = ["ranked"]


def ranked(*formats: str, by: str = "energy") -> bool:
    """Tell whether a table may rank these formats by their modelled cost.

    Parameters
    ----------
    *formats : str
    by : {"energy", "area"}, optional
        Published results of formats are energies.

    Returns
    -------
    bool
        True if every format is plain integers or fp32, whose circuits are in the table of the model, or has only
        reproduced figures in ``hw.published("formats")``.

    Raises
    ------
    ValueError
        `by` has another value.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.ranked("int8", "nvfp4"), hw.ranked("log8-8"), hw.ranked("nvfp4", by="area")
    (True, False, False)
    """
    check_choice("ranked", "by", by, ("energy", "area"))
    return all(_plain(name) or (by == "energy" and _met(name)) for name in formats)


def _plain(name: str) -> bool:
    one = operand(name)
    return name == "fp32" or (one.kind == "int" and one.scale == "none" and one.pattern is None)


def _met(name: str) -> bool:
    figures = [one for one in published("formats") if name in one.arguments.values()]
    return bool(figures) and all(one.holds for one in figures)
