"""Wires and switches between a memory and the instances below it: energy per bit, bits per cycle.

The instances below a level are a square whose side follows from their area. A word travels the side once (the trunk),
and each receiver adds the distance of two neighbours (the hop):

- ``multicast``: a word that several instances need is sent once, over buses.
- ``mesh``: the same way, and each hop passes a router, which is a register.
- ``crossbar``: each receiver has a way of its own, through a tree of 2:1 multiplexers with an input for each instance.
  Random requests meet at the same port, so a cycle serves ``1 - (1 - 1/n)^n`` of the ports.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...silicon.gate_costs import PROCESSES, mux, scaled
from ..energies import registers

#: pJ per bit and mm at 0.9 V: 310 pJ for 256 bits over 10 mm at 40 nm (Keckler et al., GPUs and the future of parallel
#: computing, IEEE Micro 2011, table 1; from memory). The capacitance of a mm of wire does not shrink with the node.
WIRE_PJ, WIRE_VOLTS = 310 / 256 / 10, 0.9


def wire(process: str) -> float:
    """Return pJ per bit and mm at the usual voltage of a process.

    Examples
    --------
    >>> round(wire("45nm"), 3), round(wire("7nm"), 3)
    (0.121, 0.073)
    """
    return WIRE_PJ * (PROCESSES[process][1] / WIRE_VOLTS) ** 2


def wires(level: Mapping[str, Any], area: float, count: int, process: str) -> dict[str, Any]:
    """Return the fields of a `Store` for the network below it.

    Parameters
    ----------
    level : mapping
        With ``wire_pj``, or with ``network`` and maybe ``network_bits``.
    area : float
        mm^2 of the instances below one instance of the level.
    count : int
        Instances below one.
    process : str
    """
    if "wire_pj" in level:
        return {"wire": float(level["wire_pj"])}
    side, bit = math.sqrt(area), wire(process)
    hop = bit * side / math.sqrt(count)
    found: dict[str, Any] = {"wire": hop, "trunk": bit * side}
    if level["network"] == "mesh":
        found["wire"] += registers(1, 8, process)
    elif level["network"] == "crossbar":
        found = {"wire": bit * side + scaled(mux(1, count), process).energy, "ports": count}
    if "network_bits" in level:
        found["link_bits"] = int(level["network_bits"])
    return found
