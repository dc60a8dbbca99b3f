"""Energy (pJ) and area (um^2) of adders, multipliers, tables and shifters at 45 nm and 0.9 V.

Source: M. Horowitz, "Computing's energy problem (and what we can do about it)", ISSCC 2014. Its rows are met exactly;
between and beyond them curves go through the rows of the same circuit, and no other number is fitted:
integer adders are linear in bits (between rows; through zero below 8), integer multipliers a power of the product of
their widths, floating-point circuits a power of the significand's bits (11 for fp16, 24 for fp32).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...base.errors import WrongValue, shown
from ...base.values import check_choice

# bits or significand bits -> (pJ, um^2)
INT_ADD = {8: (0.03, 36.0), 16: (0.05, 67.0), 32: (0.1, 137.0)}
INT_MULTIPLY = {8: (0.2, 282.0), 32: (3.1, 3495.0)}
FLOAT_ADD = {11: (0.4, 1360.0), 24: (0.9, 4184.0)}
FLOAT_MULTIPLY = {11: (1.1, 1640.0), 24: (3.7, 7700.0)}
SRAM_BITS, SRAM_BYTES, SRAM_READ_PJ = 32, 8192, 5.0

# Relative to one bit of an adder: MUX2_X1 1.862 um2, FA_X1 4.256 um2 of the Nangate 45 nm Open Cell Library
# (Nangate45_stdcell.lef of OpenROAD: 1.33 x 1.4 and 3.04 x 1.4).
MUX_SHARE = 1.33 / 3.04
SRAM_CELL_UM2 = 0.346

#: um^2 of a six-transistor cell by node: Intel 45 and 14 nm; TSMC 65, 28, 16 (and 12), 7 and 5 nm (IEDM papers; all but
#: that of 5 nm from memory).
SRAM_CELLS = {
    "65nm": 0.525, "45nm": 0.346, "28nm": 0.127, "16nm": 0.07, "14nm": 0.0588, "12nm": 0.07, "7nm": 0.027, "5nm": 0.021,
}  # fmt: skip
#: Share of cells in an array's area: TSMC's N3E has 31.8 Mib/mm^2 with cells of 0.021 um^2, which alone would be 45.4
#: (WikiChip, IEDM 2022).
ARRAY_EFFICIENCY = 31.8 / 45.4

ASSUMPTIONS = (
    "a 2:1 multiplexer costs 0.4375 of an adder's bit, as its cell's area does in the Nangate 45 nm library (the table "
    "has no row for it)",
    "a table read costs the 8 KiB SRAM row times its width times the square root of its size, as caches of 8 and 32 "
    "KiB do in the same source; its area is one 0.346 um^2 cell a bit (Intel, 45 nm, not confirmed), without periphery",
    "no registers, wires, clock or control",
)

# nominal node -> (nm, V): energy scales with length times voltage squared, area with length squared.
PROCESSES = {
    "65nm": (65, 1.0),
    "45nm": (45, 0.9),
    "28nm": (28, 0.9),
    "16nm": (16, 0.8),
    "14nm": (14, 0.8),
    "12nm": (12, 0.8),
    "7nm": (7, 0.7),
    "5nm": (5, 0.7),
}


@dataclass(frozen=True)
class Cost:
    """Energy of one operation in pJ, and area in um^2."""

    energy: float = 0.0
    area: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.energy + other.energy, self.area + other.area)

    def __mul__(self, factor: float) -> Cost:
        return Cost(self.energy * factor, self.area * factor)


def int_add(bits: float) -> Cost:
    """Return the cost of an integer adder.

    Examples
    --------
    >>> int_add(8), round(int_add(24).energy, 3)
    (Cost(energy=0.03, area=36.0), 0.075)
    """
    rows = sorted(INT_ADD.items())
    if bits <= rows[0][0]:
        return Cost(*rows[0][1]) * (bits / rows[0][0])
    below = max((row for row in rows[:-1] if row[0] <= bits), key=lambda row: row[0])
    above = rows[rows.index(below) + 1]
    share = (bits - below[0]) / (above[0] - below[0])
    return Cost(*(a + (b - a) * share for a, b in zip(below[1], above[1], strict=True)))


def int_multiply(a_bits: float, b_bits: float) -> Cost:
    """Return the cost of an integer multiplier of two widths.

    Examples
    --------
    >>> int_multiply(8, 8)
    Cost(energy=0.2, area=282.0)
    """
    return _power(INT_MULTIPLY, math.sqrt(a_bits * b_bits))


def float_add(significand: float) -> Cost:
    """Return the cost of a floating-point adder; 11 significand bits are fp16, 24 are fp32."""
    return _power(FLOAT_ADD, significand)


def float_multiply(significand: float) -> Cost:
    """Return the cost of a floating-point multiplier."""
    return _power(FLOAT_MULTIPLY, significand)


def table_read(entries: int, bits: int) -> Cost:
    """Return the cost of reading a small table, one copy for each reader."""
    size_bytes = entries * bits / 8
    energy = SRAM_READ_PJ * bits / SRAM_BITS * math.sqrt(size_bytes / SRAM_BYTES)
    return Cost(energy, SRAM_CELL_UM2 * entries * bits)


def sram_area(bits: float, process: str) -> float:
    """Return um^2 of an SRAM: cells of the node, and the periphery of a large array.

    Raises
    ------
    ValueError
        An unknown process.

    Examples
    --------
    >>> round(sram_area(8 * 2**20, "5nm") / 1e6, 3)
    0.251
    """
    check_choice("sram_area", "process", process, SRAM_CELLS)
    return bits * SRAM_CELLS[process] / ARRAY_EFFICIENCY


def mux(bits: float, inputs: int) -> Cost:
    """Return the cost of choosing one of several values: a tree of 2:1 multiplexers. A shifter is one with as many
    inputs as distances, of which only log2 stages are passed.
    """
    stages = math.ceil(math.log2(inputs)) if inputs > 1 else 0
    return int_add(bits) * (MUX_SHARE * stages)


def scaled(cost: Cost, process: str, voltage: float | None = None) -> Cost:
    """Return a cost in another process: energy times length and voltage squared, area times length squared.

    Parameters
    ----------
    process : str
        ``"65nm"``, ``"45nm"``, ``"28nm"``, ``"16nm"``, ``"14nm"``, ``"12nm"``, ``"7nm"``, ``"5nm"``. Below
        22 nm the name is no length of anything, so this is an estimate for comparisons, no measurement.
    voltage : float, optional
        Volts. Default: 1.0 at 65 nm, 0.9 down to 28 nm, 0.8 at 16 and 12, 0.7 below.

    Raises
    ------
    ValueError
        The process is unknown, or the voltage is not positive.
    """
    check_choice("mac", "process", process, PROCESSES)
    length, nominal = PROCESSES[process]
    volts = nominal if voltage is None else voltage
    if isinstance(volts, bool) or not isinstance(volts, (int, float)) or not 0 < volts < 10:
        raise WrongValue(f"mac: voltage is {shown(voltage)}, expected volts above 0")
    ratio = length / 45
    return Cost(cost.energy * ratio * (volts / 0.9) ** 2, cost.area * ratio**2)


def _power(rows: dict[int, tuple[float, float]], place: float) -> Cost:
    """The power law through the two rows of a circuit."""
    (low, first), (high, last) = sorted(rows.items())
    span = math.log(high / low)
    return Cost(*(a * (place / low) ** (math.log(b / a) / span) for a, b in zip(first, last, strict=True)))
