"""Energy of a bit that is read or written, from published figures; none is fitted to a machine's own result.

SRAM: Horowitz, ISSCC 2014, at 45 nm: 32 bits of 8 KB take 5 pJ; the square root of the size, as the caches of 8 KB to
1 MB of the same source do. Another process: length times voltage squared, as `hw.mac` scales. DRAM: 640 pJ for 32 bits
of the same source, in every process. Wires, clocks, control and leakage are not there.
"""

from __future__ import annotations

import functools

from ..silicon.gate_costs import SRAM_BITS, SRAM_BYTES, SRAM_READ_PJ, Cost, mux, scaled, table_read
from ..silicon.operands import operand

#: pJ a bit; Horowitz, ISSCC 2014.
DRAM = 640 / 32


def sram(size_bytes: float, process: str) -> float:
    """Return pJ for a bit of a memory, or of one of its banks.

    Parameters
    ----------
    size_bytes : float
    process : str

    Returns
    -------
    float

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
    process : str

    Returns
    -------
    float
    """
    return scaled(table_read(entries, bits), process).energy / bits


def latches(entries: int, process: str) -> float:
    """Return pJ for a bit that is read from so many latches beside a multiplier: a multiplexer, nothing for one.

    Parameters
    ----------
    entries : int
    process : str

    Returns
    -------
    float

    Examples
    --------
    >>> latches(1, "16nm")
    0.0
    """
    return scaled(mux(1, entries), process).energy


def operands(format: str) -> tuple[str, str]:
    """Return the formats of weights and activations: ``"int4 x int8"``, or one for both.

    Parameters
    ----------
    format : str

    Returns
    -------
    (str, str)
    """
    weights, _, activations = format.partition(" x ")
    return weights, activations or weights


@functools.cache
def value_bits(format: str, tensor: str = "W") -> int:
    """Bits of a stored value; scales of groups are not among them.

    Parameters
    ----------
    format : str
    tensor : {"W", "I", "O"}

    Returns
    -------
    int

    Examples
    --------
    >>> value_bits("vsq4-g16-s4 x int8", "W"), value_bits("vsq4-g16-s4 x int8", "I"), value_bits("2:4")
    (4, 8, 32)
    """
    return operand(operands(format)[0 if tensor == "W" else 1]).bits
