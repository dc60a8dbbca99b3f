"""Machines for dense layers whose mapping is searched: NVDLA, TPU v1, DianNao."""

from __future__ import annotations

from ...base.values import check_flag
from .accelerator import Accelerator, Store
from .energies import DRAM, registers, sram, value_bits
from .mapped import mapped_cost

__all__: list[str] = []

KIB, MIB = 1024, 1 << 20


def nvdla(winograd: bool = False, compressed: bool = False) -> Accelerator:
    """Return NVDLA nv_full: 64 channels x 32 filters per cycle in 8 bits, x 16 in 16 bits.

    Parameters
    ----------
    winograd : bool, optional
        Run 3 x 3 filters of stride 1 as F(2 x 2, 3 x 3) where that is faster: 2.25 times fewer multiplications, 16
        weights instead of nine.
    compressed : bool, optional
        Store weights without zeros in DRAM and in the buffer, with a mask of one bit per value.

    Returns
    -------
    Accelerator

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.nvdla().peak("int8")  # operations/s
    4096000000000.0
    """
    for name, value in (("winograd", winograd), ("compressed", compressed)):
        check_flag("nvdla", name, value)
    process, masked = "16nm", "W" if compressed else ""

    def stores(format: str) -> list[Store]:
        cells = 32 if format == "int8" else 16
        return [
            Store("DRAM", None, DRAM, bandwidth=20e9, part="DRAM", masked=masked),
            Store("CBUF", 512 * KIB, sram(32 * KIB, process), "WI", masked=masked),  # 16 banks
            Store("CACC", cells * 32 * 4, sram(cells * 32 * 4, process), "O", over="K", loops="CRS", wide="O"),
            Store("cells", 64 * value_bits(format) // 8, registers(64, 8, process), "W", cells, "C", "PQ", read=0),
        ]

    return Accelerator(
        name="nvdla",
        title="NVDLA nv_full, 2048 8-bit multiply-adds",
        source="NVDLA README and hardware manual (nvdla.org)",
        year=2017,
        process=process,
        clock=1e9,
        formats={"int8": 2048, "int16": 1024, "fp16": 1024},
        cost=mapped_cost,
        stores=stores,
        accumulator_bits=32,
        vector=64,
        notes=(
            "weights of 64 channels rest in each of 32 cells (16 in 16 bits) for a stripe of up to 32 pixels",
            "a zero weight or input stops its multiplier; `zeros` of the report says how many there are",
            "Winograd's transforms for 3 x 3 filters of stride 1" if winograd else "no Winograd",
            "weights without zeros, with a mask of a bit each" if compressed else "no compression",
            "no image mode: a first layer of 3 channels uses 3 of 64 lanes",
        ),
        gated="WI",
        winograd=winograd,
    )


def tpu_v1() -> Accelerator:
    """Return Google's first TPU: 256 x 256 cells, weights stationary, activations on chip.

    Returns
    -------
    Accelerator

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.tpu_v1().peak("int8")  # operations/s
    91750400000000.0
    """
    process = "28nm"

    def stores(_: str) -> list[Store]:
        return [
            Store("DRAM", None, DRAM, bandwidth=34e9, part="DRAM"),
            Store("unified buffer", 24 * MIB, sram(24 * MIB, process), "IO"),
            Store("weight FIFO", 256 * KIB, sram(64 * KIB, process), "W", loops=""),
            Store("accumulators", 4 * MIB, sram(16 * KIB, process), "O", over="K", loops="CRS", wide="O"),
            Store("columns", None, 0.0, "", 256, "CRS", ""),
            Store("cells", 1, registers(1, 8, process), "W", 65536, loops="NPQ", read=0),
        ]

    return Accelerator(
        name="tpu_v1",
        title="Google TPU v1, 256 x 256 cells at 700 MHz",
        source="Jouppi et al., ISCA 2017",
        year=2015,
        process=process,
        clock=0.7e9,
        formats={"int8": 65536},
        cost=mapped_cost,
        stores=stores,
        resident="unified buffer",
        notes=(
            "inputs and outputs of a layer stay in the unified buffer if both fit its 24 MiB; weights come from DRAM",
            "weights of the next pass are loaded while this one runs; host, PCIe and the non-linear unit cost nothing",
        ),
        watts=40.0,
    )


def diannao() -> Accelerator:
    """Return DianNao: 16 x 16 multipliers, three buffers, nothing stationary in the cells.

    Returns
    -------
    Accelerator

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.accelerators.diannao().peak("int16")  # operations/s
    486080000000.0
    """
    process = "65nm"

    def stores(_: str) -> list[Store]:
        return [
            Store("DRAM", None, DRAM, bandwidth=250e9, part="DRAM"),
            Store("NBin", 2 * KIB, sram(2 * KIB, process), "I"),
            Store("SB", 32 * KIB, sram(2 * KIB, process), "W"),  # 16 banks, one per row of weights
            Store("NBout", 2 * KIB, sram(2 * KIB, process), "O", over="K"),
            Store("neurons", None, 0.0, "", 16, "C", ""),
        ]

    return Accelerator(
        name="diannao",
        title="DianNao, 16 neurons x 16 synapses of 16 bits",
        source="Chen et al., ASPLOS 2014",
        year=2014,
        process=process,
        clock=0.98e9,
        formats={"int16": 256},
        cost=mapped_cost,
        stores=stores,
        accumulator_bits=40,
        vector=16,
        operations=496,
        watts=0.485,
        notes=("no loop in time below the buffers; DRAM of 250 GB/s, as the paper assumes",),
    )
