"""Eyeriss, and the dataflows with which its authors compared it on equal area.

Energies of an access are the ratios that the paper states, in units of one 16-bit multiply-add: register file 1, a word
between PEs 2, global buffer 6, DRAM 200 (Chen et al., ISCA 2016). The chip is that of JSSC 2017: 12 x 14 PEs, a row of
a filter and of the input in each; weights go from DRAM past the global buffer, which holds inputs and sums.
"""

from __future__ import annotations

from .accelerator import Accelerator, Store
from .mapped import mapped_cost, multiply_add

__all__: list[str] = []

KIB = 1024
PROCESS = "65nm"
BITS = 16
RF, WIRE, GLB, DRAM = 1.0, 2.0, 6.0, 200.0
#: Area of a byte of a register file relative to a byte of the global buffer: the chip's register files, 168 x 520 B,
#: have 2.5 times the area of its 108 KB (Chen et al., JSSC 2017).
PAD_AREA = 2.5 * 108 * KIB / (168 * 520)


def _unit() -> float:
    """Return pJ per bit for an access that costs as much as a multiply-add."""
    return multiply_add("int16", 24, 1, PROCESS) / BITS


#: Loops over rows, over columns, the tensor in a PE, the loops inside a PE, those outside. A stationary tensor stays
#: until it is used up or complete (section IV of the paper). A PE of row stationary processes whole rows, and
#: interleaves those of several images, filters and channels. Weight stationary adds the R x S PEs of one channel; the
#: buffer adds over channels.
DATAFLOWS = {
    "rs": ("RPCK", "PK", "WIO", "SCKNQ", "NKCPQ"),
    "ws": ("RK", "SK", "W", "NPQ", "NKCPQRS"),
    "os-a": ("P", "Q", "O", "CRS", "NKCPQRS"),
    "os-b": ("K", "QP", "O", "CRS", "NKCPQRS"),
    "os-c": ("K", "K", "O", "CRS", "NKCPQRS"),
    "nlr": ("C", "K", "", "", "NKCPQRS"),
}


def dataflow_machine(kind: str) -> Accelerator:
    """Return one of the machines of the ISCA comparison: 256 PEs, the area of 512 B of pads and of buffer a PE.

    Row stationary has 512 B in a PE, shared by weights, inputs and sums as a layer requires. The others keep one word,
    and the area saved becomes global buffer. Each weight and input of a multiply-add costs one access to a register
    file, even if no pad keeps it: the last term of the paper's ``a EC(DRAM) + ab EC(buffer) + abc EC(array) + abcd
    EC(RF)``, whose product abcd is the number of uses of a value.

    Parameters
    ----------
    kind : {"rs", "ws", "os-a", "os-b", "os-c", "nlr"}
    """
    rows, columns, keeps, loops, outside = DATAFLOWS[kind]
    unit = _unit()
    pes = 256
    area = pes * 512 * (PAD_AREA + 1)
    pad = 512 if kind == "rs" else 2 * len(keeps)
    buffer = int(area - pes * pad * PAD_AREA)
    pads = pad if kind == "rs" else dict.fromkeys(keeps, 2)

    def stores(_: str) -> list[Store]:
        found = [
            Store("DRAM", None, DRAM * unit, loops=outside, part="DRAM"),
            Store("GLB", buffer, GLB * unit, over=columns, loops=outside, wire=WIRE * unit),
            Store("columns", None, 0.0, "", 16, rows, ""),
        ]
        return [*found, Store("pads", pads, RF * unit, keeps, pes, loops=loops)] if keeps else found

    return Accelerator(
        name=f"eyeriss-{kind}",
        title=f"256 PEs, dataflow {kind}, equal area",
        source="Chen et al., ISCA 2016",
        year=2016,
        process=PROCESS,
        clock=0.2e9,
        formats={"int16": pes},
        cost=mapped_cost,
        stores=stores,
        accumulator_bits=16,
        mac_pj=unit * BITS,
        still=keeps if len(keeps) == 1 else "",
        operand_pj=RF * unit,
    )
