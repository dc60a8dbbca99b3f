"""Machines that skip zeros: EIE and SCNN, run on the nonzeros of random arrays from a fixed seed (`nonzeros.py`).

EIE (Han et al., ISCA 2016) runs as `hc.encode_eie(...).load_balance(...)` does. SCNN (Parashar et al., ISCA 2017)
counts the steps of the outer-product convolution, the same as `hc.conv2d_outer(..., counts=True)`, but with queues
before the banks of accumulators; a stride s makes s x s phases of a unit-stride convolution.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

from ...base.errors import Unsupported, shown
from ..chips.database import device
from ..network.loops import Loops
from ..silicon.gate_costs import int_add, mux, scaled
from .accelerator import Accelerator
from .energies import DRAM, registers, sram
from .mapped import multiply_add
from .nonzeros import check_phases, conflict_factor, eie_load, scnn_steps
from .report import Layer

__all__: list[str] = []

KIB = 1024
CODES = 16


def eie_cost(machine: Accelerator, loops: Loops, format: str, zeros: Mapping[str, float]) -> Layer:
    """Return the cost of a matrix-vector product on EIE.

    Raises
    ------
    NotImplementedError
        The layer is another one.
    """
    if loops.groups > 1 or (loops.q, loops.r, loops.s) != (1, 1, 1):
        raise Unsupported(
            f"eie multiplies matrices with vectors: layer {shown(loops.name)} is not such a product; "
            "layers= (--layers) selects those that are"
        )
    shares = zeros.get("W", 1.0), zeros.get("I", 1.0)
    found = _eie(loops.k, loops.c, *shares, machine.sizes["depth"], machine.sizes["elements"])
    times = loops.n * loops.p
    energy = {part: pj * times for part, pj in found.energy.items()}
    work = found.work * times
    return replace(found, name=loops.name, macs=loops.macs, cycles=work, work=work, energy=energy)


@functools.lru_cache(maxsize=256)
def _eie(rows: int, columns: int, weights: float, inputs: float, depth: int, elements: int) -> Layer:
    load = eie_load(rows, columns, weights, inputs, depth, elements)
    busy, process = load.busy, "45nm"
    lookups = load.broadcasts * elements
    stored = 8 * load.entries + 32 * elements * (columns + 1) + 32 * CODES  # entries, pointers, the codebook
    active = busy / (load.cycles * elements) if load.cycles else 1.0
    energy = {
        "arithmetic": busy * multiply_add("int16", 40, 1, process),
        # 8 entries per row of 64 bits from 128 KB; two 16-bit pointers for each column from 32 KB; the codebook
        "weights": busy * (8 * sram(128 * KIB, process) + 16 * registers(CODES, 16, process))
        + lookups * 32 * sram(32 * KIB, process),
        "activations": lookups * 16 * 2 * registers(depth, 16, process),
        "accumulators": busy * 16 * 2 * registers(64, 16, process),
    }
    detail = {
        "efficiency": active,
        "stalls": load.stalls,
        "padding": load.padding,
        "bits": stored / (rows * columns),
    }
    return Layer("", rows * columns, load.cycles, load.cycles, 0.0, energy, active, detail=detail)


#: SCNN: cells per side, multipliers per cell, accumulators per cell, bits of a value with its run of zeros.
SIDE, MULTIPLIERS, ACCUMULATORS, STORED = 8, 16, 1024, 20
ON_CHIP = 1.2e6  # bytes of activations, indices included


def scnn_cost(machine: Accelerator, loops: Loops, format: str, zeros: Mapping[str, float]) -> Layer:
    """Return the cost of a convolution on SCNN."""
    check_phases(loops, machine.sizes["side"] * 2)
    shares = {tensor: zeros.get(tensor, 1.0) for tensor in "WIO"}
    counts = _scnn(
        replace(loops, name="", n=1), shares["W"], shares["I"], machine.sizes["side"], machine.sizes["accumulators"]
    )
    process, images = machine.process, loops.n
    products, steps = counts["products"] * images, counts["steps"] * images
    inputs, outputs = shares["I"] * loops.inputs, shares["O"] * loops.outputs
    weights = shares["W"] * loops.weights
    moved = _moved(weights, inputs + outputs, images, STORED)
    energy = {
        "arithmetic": products * multiply_add(format, machine.accumulator_bits, 1, process),
        "weights": steps * 4 * STORED * sram(512, process),
        "activations": (inputs * counts["groups"] + outputs) * STORED * sram(10 * KIB, process),
        "accumulators": products * 2 * 24 * registers(32, 24, process),
        "DRAM": moved * DRAM,
    }
    cycles = counts["cycles"] * images
    if machine.sizes["queue"]:
        cycles *= conflict_factor(MULTIPLIERS, machine.sizes["banks"], machine.sizes["queue"])
    if machine.sizes["crossbar"]:
        energy["movement"] = products * crossbar_pj(machine.sizes["banks"], process)
    whole = max(cycles, _waits(machine, moved))
    plain = _moved(loops.weights, loops.inputs + loops.outputs, images, 16)
    dense = max(dense_cycles(loops), _waits(machine, plain))
    detail = {"dense_cycles": dense, "speedup": dense / whole, "filters_a_group": counts["group"]}
    detail["dense_energy"] = sum(dense_energy(loops).values())
    busy = min(1.0, products / (cycles * machine.sizes["side"] ** 2 * MULTIPLIERS))
    return Layer(loops.name, loops.macs, whole, cycles, moved, energy, busy, detail=detail)


def crossbar_pj(banks: int, process: str) -> float:
    """Return pJ of a product's way to its bank: 24 bits through a tree of 2:1 multiplexers, and two coordinates.

    Examples
    --------
    >>> round(crossbar_pj(32, "16nm"), 4)
    0.0629
    """
    return scaled(mux(24, banks) + int_add(8) * 2, process).energy


def _moved(weights: float, activations: float, images: int, bits: int) -> float:
    """Return the bits read from and written to DRAM."""
    return weights * bits + _spilled(activations * bits, images)


def _spilled(bits: float, images: int) -> float:
    """Return the bits of activations in DRAM: 0 if the activations of an image fit on the chip."""
    return 0 if bits / images / 8 <= ON_CHIP else bits


def _waits(machine: Accelerator, bits: float) -> float:
    return bits / 8 / device("scnn").need("bandwidth") * machine.clock


def dense_cycles(loops: Loops) -> int:
    """Cycles of SCNN's dense rival: the same tiles of the image, a dot product of 16 values a cell and cycle."""
    tile = -(-loops.p // SIDE) * -(-loops.q // SIDE)
    dots = -(-(loops.c // loops.groups) * loops.r * loops.s // MULTIPLIERS)
    return loops.n * tile * loops.k * dots


def dense_energy(loops: Loops, zeros: Mapping[str, float] | None = None) -> dict[str, float]:
    """Energy of SCNN's dense rival in pJ by part, with the same memories and dot products of 16 values.

    Sixteen values of a cell's image rest while all filters pass over them.

    Parameters
    ----------
    zeros : mapping of str to float, optional
        Shares of W, I and O that are not zero: the rival that stops its multipliers where either value is zero, and
        stores activations in DRAM as SCNN does. By default the plain one.
    """
    process, accumulator, values = "16nm", 32, MULTIPLIERS * 16
    k = loops.k // loops.groups
    dots = loops.n * loops.p * loops.q * loops.k * -(-(loops.c // loops.groups) * loops.r * loops.s // MULTIPLIERS)
    busy, weights, bits = 1.0, loops.weights * 16.0, (loops.inputs + loops.outputs) * 16.0
    if zeros is not None:
        busy = zeros["W"] * zeros["I"]
        bits = (zeros["I"] * loops.inputs + zeros["O"] * loops.outputs) * STORED
    return {
        "arithmetic": busy * loops.macs * multiply_add("int16", accumulator, MULTIPLIERS, process),
        "weights": dots * values * sram(512, process),
        "activations": (dots / k * values + loops.outputs * 16) * sram(10 * KIB, process),
        "accumulators": dots * 2 * 24 * registers(32, 24, process),
        "DRAM": (weights + _spilled(bits, loops.n)) * DRAM,
    }


@functools.lru_cache(maxsize=1024)
def _scnn(loops: Loops, weights: float, inputs: float, side: int, sums: int) -> dict[str, float]:
    """Return the counts of one image; a tile too large for four filters at a time is split into four."""
    found = [scnn_steps(loops, weights, inputs, side, 1, sums)]
    if found[0]["group"] < 4:
        found.append(scnn_steps(loops, weights, inputs, side, 2, sums))
    return min(found, key=lambda one: one["cycles"])
