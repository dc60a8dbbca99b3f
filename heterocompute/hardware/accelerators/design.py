"""Parameters of an accelerator of vector units, as MAGNet generates and explores them.

Processing elements have lanes of dot products. Weights, inputs and sums are in SRAMs of each element; a collector is a
few latches between such an SRAM and the lanes, an additional level, so that a word is read once and used several times
(Venkatesan et al., MAGNet, ICCAD 2019). Energies are those of energies.py and `hw.mac`; the paper's own are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from ...base.errors import WrongValue, shown
from ..silicon.gate_costs import PROCESSES, sram_area
from .accelerator import Accelerator, Store
from .energies import DRAM, latches, registers, sram, value_bits
from .mapped import mapped_cost, multiplier

KIB = 1024
#: Bits of a sum.
SUM = 24
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

    def machine(self, name: str, formats: Sequence[str]) -> Accelerator:
        """Return the accelerator.

        Parameters
        ----------
        formats : sequence of str
            Number formats, or pairs of weights and activations such as ``"int4 x int8"``.
        """
        shape = f"{self.elements} elements of {self.lanes} lanes of {self.vector} products"
        return Accelerator(
            name=name,
            title=f"MAGNet, {shape}, dataflow {self.dataflow}",
            source="Venkatesan et al., ICCAD 2019",
            year=2019,
            process=self.process,
            clock=self.clock,
            formats=dict.fromkeys(formats, self.products),
            cost=mapped_cost,
            stores=self._stores,
            accumulator_bits=SUM,
            vector=self.vector,
            notes=(
                f"dataflow {self.dataflow}; sizes and the clock of {self.clock / 1e9:g} GHz are chosen here: "
                "the paper explores ranges",
                f"a collector has {self.entries} entries; DRAM is as fast as is wanted; no scales of groups are stored",
            ),
        )

    def _collector(self, name: str, tensor: str, entries: int, bits: int, over: str, loops: str) -> Store:
        write, read = registers(1, bits, self.process), latches(entries, self.process)
        wide, count = ("O" if tensor == "O" else ""), self.elements * self.lanes
        size = max(1, entries * bits // 8)
        return Store(name, size, write, tensor, count, over, loops, wide, part="collectors", read=read)

    def _stores(self, format: str) -> list[Store]:
        row, process, elements = value_bits(format) * self.vector, self.process, self.elements
        outside = [
            Store("DRAM", None, DRAM, part="DRAM"),
            Store("global buffer", _bytes(self.global_kib), self._bank(self.global_kib, self.global_banks), "IO",
                  over="KPC"),
            Store("input buffers", _bytes(self.input_kib), self._bank(self.input_kib), "I", elements),
            Store("weight buffers", _bytes(self.weight_kib), self._bank(self.weight_kib, self.weight_banks), "W",
                  elements),
        ]  # fmt: skip
        bank = sram(_bytes(self.sum_kib) / self.lanes, process)
        sums = Store("accumulators", _bytes(self.sum_kib), bank, "O", elements, "K", "CRS", "O")
        if self.dataflow == "ws":
            return [*outside, sums, self._collector("weight registers", "W", 1, row, "C", "PQ")]
        if self.dataflow == "ws-los":
            many = self._collector("weight collectors", "W", self.entries, row, "", "PQ")
            return [*outside, sums, many, self._collector("sum registers", "O", 1, SUM, "C", "CRS")]
        many = self._collector("sum collectors", "O", self.entries, SUM, "", "CRS")
        fan = Store("lanes", None, 0.0, "", elements, "K", "")
        return [*outside, fan, many, self._collector("weight registers", "W", 1, row, "C", "PQ")]

    def _bank(self, kib: float, banks: int = 1) -> float:
        return sram(_bytes(kib) / banks, self.process)

    def area(self, format: str) -> float:
        """Return mm^2 of multipliers, adders and all memories; registers, wires and control are not there.

        Examples
        --------
        >>> round(Design().area("int8"), 2)
        1.46
        """
        arithmetic = self.products * multiplier(format, SUM, self.vector, self.process).area_um2
        bits = 8 * _bytes(self.global_kib)
        sums = 0 if self.dataflow == "os-lws" else self.sum_kib  # they move from the collectors to the global buffer
        bits += 8 * self.elements * (_bytes(self.weight_kib) + _bytes(self.input_kib) + _bytes(sums))
        row = value_bits(format) * self.vector
        entries = {"ws": row, "ws-los": self.entries * row + SUM, "os-lws": self.entries * SUM + row}
        bits += self.elements * self.lanes * entries[self.dataflow]
        return (arithmetic + sram_area(bits, self.process)) / 1e6


def _bytes(kib: float) -> int:
    return round(kib * KIB)
