"""Energies of memories and instructions beside the laws that the model has for them."""

from __future__ import annotations

from collections.abc import Iterator

from example import Example

from heterocompute import hardware as hw
from heterocompute.hardware.accelerators.energies import DRAM, sram

HOROWITZ = "Horowitz, Computing's energy problem, ISSCC 2014"
DALLY = "Dally, lectures on hardware for deep learning"
KEYNOTE = "Dally, keynote at MICRO 2019"
KIB = 1024


def memories() -> Iterator[Example]:
    """Energy of memories at 45 nm, by the square root of the size from 8 KB and 32 bits."""
    for kib, printed in ((32, 20), (1024, 100)):
        what = f"cache of {kib:,} KB, 64 bits, pJ"
        yield Example(what, printed, lambda k=kib: 64 * sram(k * KIB, "45nm"), 0.15, HOROWITZ)
    yield Example("DRAM, 64 bits, pJ", (1300, 2600), lambda: 64 * DRAM, 0.02, HOROWITZ)
    yield Example(
        "a word of 32 bits from a last cache of 1 MB, pJ",
        50,
        lambda: 32 * sram(KIB * KIB, "45nm"),
        0.15,
        KEYNOTE + "; its size is not said there",
    )


def instructions() -> Iterator[Example]:
    """Energy of a GPU's instructions, from `hw.mac` at 45 nm."""
    yield Example(
        "hdp4a, four products of fp16 added one by one, pJ", 6, lambda: arithmetic("fp16", 16, 1, 4), 1e-9, DALLY
    )
    yield Example(
        "hmma, 64 products of fp16 added one by one in fp32, pJ", 110, lambda: arithmetic("fp16", 32, 1, 64), 0.2, DALLY
    )
    yield Example(
        "hmma, 64 products of fp16, aligned and added by fours, pJ", 110, lambda: arithmetic("fp16", 32, 4, 64), 0.2,
        DALLY,
        missed="products are aligned and added as integers, which is cheaper than the source's float additions",
    )  # fmt: skip
    yield Example(
        "imma, 512 products of int8, added by eights, pJ", 160, lambda: arithmetic("int8", 32, 8, 512), 0.2, DALLY
    )


def arithmetic(format: str, accumulator: int, lanes: int, products: int) -> float:
    """Return pJ of so many multiply-adds."""
    return products * hw.mac(format, format, accumulator, lanes).energy_pj


FAMILIES = (memories, instructions)
