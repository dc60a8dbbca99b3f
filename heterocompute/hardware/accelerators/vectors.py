"""Machines of vector units with collectors: Simba's chiplets, and MAGNet's processing element with its dataflows.

A processing element has lanes of dot products. Weights, inputs and sums are in its own SRAMs; a collector is a few
latches between such an SRAM and the lanes, so that a word is read from the SRAM once and used several times (Venkatesan
et al., MAGNet, ICCAD 2019). Energies are those of energies.py and `hw.mac`; the papers' own are not used.
"""

from __future__ import annotations

from ...base.values import check_choice
from .accelerator import Accelerator, Store
from .design import DATAFLOWS, Design
from .energies import DRAM, registers, sram
from .mapped import mapped_cost

__all__: list[str] = []

KIB = 1024
PROCESS = "16nm"
#: Bits of a sum.
SUM = 24


def simba() -> Accelerator:
    """Return Simba: 36 chiplets of 16 processing elements, each of 8 lanes of 8 products.

    Returns
    -------
    Accelerator

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.simba().peak("int8")  # operations/s
    127770624000000.0
    """

    def stores(_: str) -> list[Store]:
        row, lanes = registers(1, 64, PROCESS), 4608
        return [
            Store("DRAM", None, DRAM, over="PKC", part="DRAM"),
            Store("global buffers", 64 * KIB, sram(64 * KIB, PROCESS), "IO", 36, over="KCP"),
            Store("weight buffers", 32 * KIB, sram(4 * KIB, PROCESS), "W", 576),
            Store("input buffers", 8 * KIB, sram(8 * KIB, PROCESS), "I", 576),
            Store("accumulators", 3 * KIB, sram(3 * KIB // 8, PROCESS), "O", 576, "K", "CRS", "O"),
            Store("weight registers", 8, row, "W", lanes, "C", "PQ", part="collectors", read=0.0),
        ]

    return Accelerator(
        name="simba",
        title="Simba, 36 chiplets of 16 elements of 64 products",
        source="Shao et al., MICRO 2019; Zimmer et al., VLSI 2019",
        year=2019,
        process=PROCESS,
        clock=1.733e9,
        formats={"int8": 36864},
        cost=mapped_cost,
        stores=stores,
        accumulator_bits=SUM,
        vector=8,
        notes=(
            "DRAM and the links between chiplets are as fast as is wanted, and the links cost no energy",
            "buffers are 32 KB of weights in 8 banks, 8 KB of inputs, 3 KB of sums an element, 64 KB a chiplet",
        ),
    )


def magnet(dataflow: str = "os-lws", process: str = PROCESS) -> Accelerator:
    """Return MAGNet's accelerator: 16 processing elements of 16 lanes of 16 products.

    Parameters
    ----------
    dataflow : {"ws", "ws-los", "os-lws"}
    process : str, optional
        A process of `hw.mac`.

    Returns
    -------
    Accelerator

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.magnet("ws").peak("int8")  # operations/s
    8192000000000.0
    """
    check_choice("magnet", "dataflow", dataflow, DATAFLOWS)
    return Design(dataflow=dataflow, process=process).machine("magnet", ("int8", "int4", "vsq4-g16-s4"))
