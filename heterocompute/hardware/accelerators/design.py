"""Parameters of an accelerator of vector units, as MAGNet generates and explores them.

Processing elements have lanes of dot products. Weights, inputs and sums are in SRAMs of each element; a collector is a
few latches between such an SRAM and the lanes, an additional level, so that a word is read once and used several times
(Venkatesan et al., MAGNet, ICCAD 2019). Energies are those of energies.py and `hw.mac`; the paper's own are not used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from ...base.errors import WrongValue, shown
from ..silicon.gate_costs import PROCESSES
from .machines.machine import Machine

#: Stationary tensors: weights in the lanes; weights, and locally sums; sums, and locally weights.
DATAFLOWS = ("ws", "ws-los", "os-lws")


@dataclass(frozen=True)
class Design:
    """One point of the space.

    Attributes
    ----------
    elements : int
        Processing elements.
    lanes : int
        Dot products per element.
    vector : int
        Products per lane.
    weight_kib, input_kib, sum_kib, global_kib : float
        Buffers: of each element for weights, inputs and sums, and one for all elements.
    weight_banks, global_banks : int
        Banks of a buffer; an access costs the energy of one.
    entries : int
        Entries of a collector; with ``dataflow="ws"`` the only ones are the weights in the lanes.
    dataflow : {"ws", "ws-los", "os-lws"}
    process : str
        A process of `hw.mac`.
    clock : float
        Hz.
    """

    elements: int = 16
    lanes: int = 16
    vector: int = 16
    weight_kib: float = 64
    input_kib: float = 16
    sum_kib: float = 6
    global_kib: float = 256
    weight_banks: int = 16
    global_banks: int = 4
    entries: int = 16
    dataflow: str = "os-lws"
    process: str = "16nm"
    clock: float = 1e9

    def __post_init__(self) -> None:
        if not isinstance(self.dataflow, str) or self.dataflow not in DATAFLOWS:
            raise WrongValue(f"design: dataflow is {shown(self.dataflow)}, expected one of {', '.join(DATAFLOWS)}")
        if not isinstance(self.process, str) or self.process not in PROCESSES:
            raise WrongValue(f"design: process is {shown(self.process)}, expected one of {', '.join(PROCESSES)}")
        for one in fields(self):
            value = getattr(self, one.name)
            if one.type == "str":
                continue
            whole = one.type == "int"
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not 0 < value < 1e15:
                kind = "integer" if whole else "number"
                raise WrongValue(f"design: {one.name} is {shown(value)}, expected a positive {kind}")

    @property
    def products(self) -> int:
        """Return the multiply-adds per cycle."""
        return self.elements * self.lanes * self.vector

    def machine(self, name: str, formats: Sequence[str]) -> Machine:
        """Return the machine.

        Parameters
        ----------
        formats : sequence of str
            Number formats, or pairs of weights and activations such as ``"int4 x int8"``.
        """
        own = ("process", "clock")
        sizes = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in own}
        found = Machine.named("magnet", process=self.process, **sizes)
        return found.set({"name": name, "clock": self.clock, "formats": {format: {} for format in formats}})

    def area(self, format: str) -> float:
        """Return mm^2 of multipliers, adders and all memories; registers, wires and control are not there.

        Examples
        --------
        >>> round(Design().area("int8"), 2)
        1.46
        """
        return math.fsum(self.machine("design", (format,)).area.values())
