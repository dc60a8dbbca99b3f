"""The tensor cores of a GPU generation: small arrays in every processor, with operands from registers.

A processor (SM) has shared memory, registers for sums, and tensor cores that multiply small tiles. The overhead of an
instruction is Dally's 30 pJ for each HMMA of 128 operations at 45 nm (see `hw.overhead`); the number of operations that
share it is that of the generation's tensor-core tile.
"""

from __future__ import annotations

from ...base.values import check_choice
from ..chips.database import device
from ..silicon.gate_costs import Cost, scaled
from .accelerator import Accelerator, Store
from .energies import DRAMS, sram
from .mapped import mapped_cost

__all__: list[str] = []

KIB, MIB = 1024, 1 << 20
OVERHEAD_PJ = 30.0  # per instruction: fetch, decode, operands; 45 nm

#: Multiply-adds relative to fp16. With 2:4 weights a lane computes half of the products.
SPARSE = {"fp16": 1, "int8": 2, "fp16+2:4 x fp16": 1, "int8+2:4 x int8": 2}
#: chip, process, GHz, SMs, tensor cores of one, tile (filters, pixels, channels), L2 MiB, shared KiB, DRAM, formats and
#: rates
GENERATIONS = {
    "volta": ("v100-sxm2", "12nm", 1.53, 80, 8, (4, 4, 4), 6, 96, "hbm2", {"fp16": 1}),
    "turing": ("t4", "12nm", 1.59, 40, 8, (4, 4, 4), 4, 64, "gddr6", {"fp16": 1, "int8": 2}),
    "ampere": ("a100-sxm-80gb", "7nm", 1.41, 108, 4, (8, 4, 8), 40, 164, "hbm2e", SPARSE),
    "hopper": ("h100-sxm", "5nm", 1.83, 132, 4, (8, 4, 16), 50, 228, "hbm2e", SPARSE),
}


def tensor_core(generation: str = "volta") -> Accelerator:
    """Return the tensor cores of a generation, with the memories of its largest chip, of Turing's T4.

    Parameters
    ----------
    generation : {"volta", "turing", "ampere", "hopper"}

    Returns
    -------
    Accelerator

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.tensor_core("ampere").peak("fp16")  # operations/s
    311869440000000.0
    """
    check_choice("tensor_core", "generation", generation, GENERATIONS)
    chip, process, ghz, sms, cores, (filters, pixels, channels), l2, shared, dram, rates = GENERATIONS[generation]
    one = filters * pixels * channels
    bandwidth = device(chip).need("bandwidth")

    def stores(_: str) -> list[Store]:
        depth = sms * cores
        return [
            Store("DRAM", None, DRAMS[dram], bandwidth=bandwidth, part="DRAM"),
            Store("L2", l2 * MIB, sram(64 * KIB, process), over="PKNQ"),
            Store("shared memory", shared * KIB, sram(4 * KIB, process), "WI", sms, "KPQ"),
            Store("registers", 64 * KIB * 4 // cores, sram(4 * KIB, process), "O", depth, "K", "NCRSPQ", "O"),
            Store("rows", None, 0.0, "", depth * filters, "PQ", ""),
            Store("columns", None, 0.0, "", depth * filters * pixels, "C", ""),  # twice the channels with 8 bits
        ]

    return Accelerator(
        name=f"tensor_core_{generation}",
        title=f"{device(chip).title}: tensor cores of {filters} x {pixels} x {channels}",
        source="NVIDIA's white papers, see hw.device; Dally, lectures on hardware for deep learning",
        year=device(chip).year or 0,
        process=process,
        clock=ghz * 1e9,
        formats={format: sms * cores * one * rate for format, rate in rates.items()},
        cost=mapped_cost,
        stores=stores,
        accumulator_bits=32,
        vector=channels,
        instruction_pj=scaled(Cost(OVERHEAD_PJ), process).energy / one,
        notes=(
            "L2 and shared memory are read by banks of 64 and 4 KiB; operands of a tensor core are shared by its tile",
            f"DRAM takes {DRAMS[dram]:g} pJ a bit, as {dram.upper()} does"
            + ("; for HBM3 no source was found" if generation == "hopper" else ""),
            *(
                ("with 2:4 weights a lane has two of four products, and multiplexers choose their inputs",)
                if "int8+2:4 x int8" in rates
                else ()
            ),
            f"an instruction costs {OVERHEAD_PJ:g} pJ at 45 nm beside its arithmetic and does one tile",
        ),
    )
