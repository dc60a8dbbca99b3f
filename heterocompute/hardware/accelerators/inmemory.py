"""Arrays that multiply in memory: cells add on a bit line, and an analog-to-digital converter reads the sum.

A multiply-add of w and a bits takes ``ceil(w / cell_bits)`` cells and ``ceil(a / input_bits)`` steps. Each step of the
`lanes` cells on a bit line ends with one conversion. Digital shifts and adds join the results.
"""

from __future__ import annotations

from dataclasses import dataclass

#: pJ of a conversion step: 4.4 fJ, the best figure of Walden among published converters from 2008 to 2011 (van Elzakker
#: et al., ISSCC 2008, 65 nm, 10 bits). It is a lower limit for fast converters; another converter has ``adc_pj``.
STEP_PJ = 0.0044


@dataclass(frozen=True)
class ComputeInMemory:
    """The analog part of an array.

    Attributes
    ----------
    lanes : int
        Cells of a bit line that add.
    steps : int
        Steps per multiply-add, for inputs of more bits than the array takes at a time.
    slices : int
        Cells per weight.
    adc_pj : float
        Energy of a conversion.
    cell_pj : float
        Energy of a cell in a step.
    digital_pj : float
        Energy of joining the results of a conversion.
    """

    lanes: int
    steps: int
    slices: int
    adc_pj: float
    cell_pj: float
    digital_pj: float

    @property
    def conversion(self) -> float:
        """Return pJ of conversions per multiply-add."""
        return self.steps * self.slices * self.adc_pj / self.lanes

    @property
    def arithmetic(self) -> float:
        """Return pJ of cells, shifts and adds per multiply-add."""
        return self.steps * self.slices * (self.cell_pj + self.digital_pj / self.lanes)


def adc_energy(bits: int) -> float:
    """Return pJ of a conversion: it doubles with each bit.

    Examples
    --------
    >>> round(adc_energy(4), 4), round(adc_energy(8), 4)
    (0.0704, 1.1264)
    """
    return float(STEP_PJ * 2**bits)
