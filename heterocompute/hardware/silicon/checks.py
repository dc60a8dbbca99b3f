"""What was published about the cost of a multiply-add, beside the model; a format without a check is not ranked.

Ratios of whole units: Chen et al., "INT v.s. FP: a comprehensive study of fine-grained low-bit quantization formats",
arXiv 2510.25602, hardware cost analysis (one vector a group, energy relative to MXFP8). No number of the model was
chosen to meet them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...base.values import shown
from .mac import mac
from .operands import operand

__all__ = ["MacCheck", "mac_checks", "ranked"]

#: A model that deviates by more is no ground for a ranking.
LIMIT = 0.25

CHEN = "Chen et al., arXiv 2510.25602"


@dataclass(frozen=True)
class MacCheck:
    """One published figure.

    Attributes
    ----------
    formats : tuple of str
        Weights and activations alike.
    what : str
    published, modelled : float
    source : str
    """

    formats: tuple[str, ...]
    what: str
    published: float
    modelled: float
    source: str

    @property
    def deviation(self) -> float:
        """Of the model from what was published, as a share."""
        return self.modelled / self.published - 1

    @property
    def holds(self) -> bool:
        """Whether the model is within 25 %."""
        return abs(self.deviation) <= LIMIT


def mac_checks() -> list[MacCheck]:
    """Return every published figure beside the model's.

    Returns
    -------
    list of MacCheck

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> [(check.what, check.published, round(check.modelled, 2)) for check in hw.mac_checks()]
    [('energy, MXINT8 to MXFP8', 0.63, 0.76), ('energy, NVFP4 to MXFP8', 0.55, 0.53)]
    """
    base, int8, four = (mac(one, one, vector=32).energy_pj for one in ("mxfp8_e4m3", "mxint8", "nvfp4"))
    return [
        MacCheck(("mxint8", "mxfp8_e4m3"), "energy, MXINT8 to MXFP8", 0.63, int8 / base, CHEN),
        MacCheck(("nvfp4", "mxfp8_e4m3"), "energy, NVFP4 to MXFP8", 0.55, four / base, CHEN),
    ]


def ranked(*formats: str, by: str = "energy") -> bool:
    """Whether a table may rank these formats by their modelled cost.

    Parameters
    ----------
    *formats : str
    by : {"energy", "area"}, optional
        What is published above is energy.

    Returns
    -------
    bool
        Of every format: it is one of plain integers or fp32, whose circuits are those of the table that the model is
        made of, or its published figures are all met within 25 %.

    Raises
    ------
    ValueError
        Another `by`.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.ranked("int8", "nvfp4"), hw.ranked("log8-8"), hw.ranked("nvfp4", by="area")
    (True, False, False)
    """
    if not isinstance(by, str) or by not in ("energy", "area"):
        raise ValueError(f"ranked: by is {shown(by)}, wanted 'energy' or 'area'")
    return all(_plain(name) or (by == "energy" and _met(name)) for name in formats)


def _plain(name: str) -> bool:
    one = operand(name)
    return name == "fp32" or (one.kind == "int" and one.scale == "none" and one.pattern is None)


def _met(name: str) -> bool:
    checks = [check for check in mac_checks() if name in check.formats]
    return bool(checks) and all(check.holds for check in checks)
