"""Energy per bit read or written, from published figures; none is fitted to a machine's own result.

SRAM: Horowitz, ISSCC 2014, at 45 nm: 32 bits from 8 KB cost 5 pJ. Energy grows with the square root of the size, like
the caches of 8 KB to 1 MB in the same source. Other processes: scaled by length times voltage squared, as in `hw.mac`.
DRAM: 640 pJ for 32 bits (same source), in every process. Wires, clocks, control and leakage are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from ...base.errors import WrongValue, shown
from ...base.values import check_number
from ..silicon.gate_costs import SRAM_BITS, SRAM_BYTES, SRAM_READ_PJ, Cost, mux, scaled, table_read
from ..silicon.operands import operand

#: pJ per bit; Horowitz, ISSCC 2014.
DRAM = 640 / 32
#: pJ per bit by kind. GDDR5 and HBM2: O'Connor et al., Fine-grained DRAM, MICRO 2017. GDDR6, GDDR6X and HBM2E: Micron's
#: comparison of its ultra-bandwidth solutions (power of the device). LPDDR, DDR3 and LPDDR4: the table of Accelergy
#: (Malladi et al., ISCA 2012; Chatterjee et al., HPCA 2017; public data). LPDDR5: Samsung's announcement of July 2018
#: has up to 30 % less power than LPDDR4X; taken of the figure for LPDDR4. Kinds without a source are absent.
DRAMS: Mapping[str, float] = {
    "horowitz": DRAM,
    "ddr3": 70.0,
    "lpddr": 40.0,
    "gddr5": 14.0,
    "lpddr4": 8.0,
    "gddr6": 7.5,
    "gddr6x": 7.25,
    "hbm2e": 6.0,
    "lpddr5": 5.6,
    "hbm2": 3.9,
}


def dram_bit(function: str, kind: str | float) -> float:
    """Return pJ of a bit of DRAM.

    Parameters
    ----------
    function : str
        What asks.
    kind : str or float
        One of `DRAMS`, or pJ a bit.

    Raises
    ------
    ValueError
        The kind is unknown, or a number is not positive.
    """
    if isinstance(kind, str):
        if kind.lower() not in DRAMS:
            raise WrongValue(f"{function}: dram is {shown(kind)}, expected pJ a bit or one of {', '.join(DRAMS)}")
        return DRAMS[kind.lower()]
    return check_number(function, "dram", kind)


def sram(size_bytes: float, process: str) -> float:
    """Return pJ for a bit of a memory, or of one of its banks.

    Examples
    --------
    >>> round(32 * sram(8192, "45nm"), 9)
    5.0
    """
    whole = SRAM_READ_PJ / SRAM_BITS * (size_bytes / SRAM_BYTES) ** 0.5
    return scaled(Cost(whole), process).energy


def registers(entries: int, bits: int, process: str) -> float:
    """Return pJ for a bit of a few registers, by the same law.

    Parameters
    ----------
    entries, bits : int
        How many there are, and of how many bits.
    """
    return scaled(table_read(entries, bits), process).energy / bits


def latches(entries: int, process: str) -> float:
    """Return pJ per bit read from a number of latches at a multiplier: the cost of a multiplexer, 0 for one latch.

    Examples
    --------
    >>> latches(1, "16nm")
    0.0
    """
    return scaled(mux(1, entries), process).energy


def operands(format: str) -> tuple[str, str]:
    """Return the formats of weights and activations: ``"int4 x int8"``, or one for both.

    Returns
    -------
    (str, str)
    """
    weights, _, activations = format.partition(" x ")
    return weights, activations or weights


@functools.cache
def value_bits(format: str, tensor: str = "W") -> int:
    """Bits of a stored value, with its place among M where N of M are stored; scales of groups are not among them.

    Parameters
    ----------
    tensor : {"W", "I", "O"}

    Examples
    --------
    >>> value_bits("vsq4-g16-s4 x int8", "W"), value_bits("vsq4-g16-s4 x int8", "I"), value_bits("int8+2:4")
    (4, 8, 10)
    """
    one = operand(operands(format)[0 if tensor == "W" else 1])
    return one.bits + (0 if one.pattern is None else (one.pattern[1] - 1).bit_length())
