"""Groq's tensor streaming processor, one or many chips: weights are in on-chip SRAM, without DRAM.

A chip has four planes of 320 x 320 multipliers. A block of 320 x 320 weights is laid into a plane, then the rows of the
activations stream past it. Many chips share each layer's blocks evenly, and after each layer every chip gets all of its
outputs over the links.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..chips.database import device
from ..network.loops import Loops
from .accelerator import Accelerator
from .energies import sram, value_bits
from .mapped import multiply_add
from .report import Layer

__all__: list[str] = []

KIB = 1024
PROCESS = "14nm"
SIDE = 320
#: B/s into a chip: 16 links of 4 lanes of 30 Gb/s (Abts et al., ISCA 2020: 3.84 Tb/s, both directions).
LINK = 16 * 4 * 30e9 / 8
#: Maximum seconds from any chip to any other in a system of up to 10,440 (Abts et al., ISCA 2022, abstract).
LATENCY = 3e-6


def streamed_cost(machine: Accelerator, loops: Loops, format: str, _: Mapping[str, float]) -> Layer:
    """Return the cost of a layer whose weights stay in the SRAM of all chips."""
    groups, bits = loops.groups, value_bits(format)
    deep, wide = loops.c // groups * loops.r * loops.s, loops.k // groups
    down, across = -(-deep // SIDE), -(-wide // SIDE)
    rows = loops.n * loops.p * loops.q
    lanes = machine.formats[format]
    streamed = groups * down * across * rows * SIDE * SIDE / lanes
    laid = loops.weights * bits / 8 / machine.chips / device("groq-tsp").need("bandwidth") * machine.clock
    work = max(streamed, laid)
    exchange = 0.0
    if machine.chips > 1:
        exchange = (LATENCY + loops.outputs * bits / 8 / LINK) * machine.clock
    bank = sram(128 * KIB, PROCESS)
    energy = {
        "arithmetic": loops.macs * multiply_add(format, machine.accumulator_bits, SIDE, PROCESS),
        "weights": loops.weights * bits * bank,
        # one row for each adjacent block; the sums of vertically adjacent blocks are added on the way out
        "activations": (groups * deep * across * rows + loops.outputs) * bits * bank,
    }
    detail = {"exchange_seconds": exchange / machine.clock}
    return Layer(loops.name, loops.macs, work + exchange, work, 0.0, energy, loops.macs / (work * lanes), detail=detail)
