"""Timeloop's exercises, SCALE-Sim's cycles and Sparseloop's zeros, through the mapper and the systolic formulas."""

from __future__ import annotations

from typing import Any

from ... import systolic
from ...mapper.accesses import evaluate
from ...mapper.arch import Arch, Level
from ...mapper.mapping import Mapping
from ...mapper.problem import Problem

__all__ = ["sparseloop_cycles", "systolic_cycle", "systolic_nm_cycle", "timeloop_fj"]

MAC = 0.845
RF: dict[str, Any] = {"words": 64, "read": 0.42564, "write": 0.42564, "update": 0.42564, "leak": 0.000861}
SRAM: dict[str, Any] = {
    "words": 262144, "block": 8, "read": 43.353054, "write": 30.878292, "update": 30.878292, "leak": 0.007972,
}  # fmt: skip
DRAM: dict[str, Any] = {"block": 32, "read": 2048.0, "write": 2048.0, "update": 2048.0}
ONE = ({"P": 16, "R": 3}, {"W": [{"R": 1}], "I": [{"P": 1, "R": 1}], "O": [{"P": 1}]})
MANY = (
    {"K": 32, "P": 16, "R": 3},
    {"W": [{"K": 1}, {"R": 1}], "I": [{"P": 1, "R": 1}], "O": [{"K": 1}, {"P": 1}]},
)
#: Problem, levels from the outermost in, temporal loops.
EXERCISES: dict[str, tuple[Any, tuple[str, ...], dict[str, Any]]] = {
    "00, one level": (ONE, ("Buf",), {"Buf": [("P", 16), ("R", 3)]}),
    "01, weight stationary": (ONE, ("MM", "Buf"), {"MM": [("R", 3)], "Buf": [("P", 16)]}),
    "01, output stationary": (ONE, ("MM", "Buf"), {"MM": [("P", 16)], "Buf": [("R", 3)]}),
    "02, 32 filters": (MANY, ("MM", "Buf"), {"MM": [("K", 32), ("P", 16)], "Buf": [("R", 3)]}),
    "03, three levels": (MANY, ("DRAM", "MM", "Buf"), {"MM": [("K", 16), ("P", 16)], "Buf": [("K", 2), ("R", 3)]}),
}
LEVELS = {"Buf": RF, "MM": SRAM, "DRAM": DRAM}

DOT = {"A": [{"K": 1}], "B": [{"K": 1}], "Z": []}
PRODUCT = {"A": [{"M": 1}, {"K": 1}], "B": [{"K": 1}, {"N": 1}], "Z": [{"M": 1}, {"N": 1}]}
CONV = {"A": [{"M": 1}, {"S": 1}], "B": [{"S": 1, "Q": 1}], "Z": [{"M": 1}, {"Q": 1}]}
LEFT, BOTH = {"B": {"A"}, "Z": {"A"}}, {"A": {"B"}, "B": {"A"}, "Z": {"A", "B"}}
#: Loops, tensors, shares of nonzeros, skipped accesses and the zeros that cause them, parallel filters.
SKIPPING: dict[str, tuple[dict[str, int], Any, dict[str, float], Any, int]] = {
    "dot product of 16, density 0.25": ({"K": 16}, DOT, {"A": 0.25}, LEFT, 1),
    "8 x 8 x 8, densities 0.25 and 0.5": ({"M": 8, "K": 8, "N": 8}, PRODUCT, {"A": 0.25, "B": 0.5}, BOTH, 1),
    "convolution 9 x 3, density 0.43": ({"Q": 9, "S": 3, "M": 1}, CONV, {"A": 0.43}, LEFT, 1),
    "and 16 filters, density 0.4333": ({"Q": 9, "S": 3, "M": 16}, CONV, {"A": 0.4333}, LEFT, 1),
    "and 4 of them side by side": ({"Q": 9, "S": 3, "M": 16}, CONV, {"A": 0.4333}, LEFT, 4),
}


def timeloop_fj(row: str) -> float:
    """Return fJ of a multiply-add in one of Timeloop's exercises."""
    (dims, tensors), names, temporal = EXERCISES[row]
    arch = Arch([Level(name, **LEVELS[name]) for name in names], mac=MAC)
    return 1000 * evaluate(Problem(dims, tensors, "O"), arch, Mapping(temporal)).energy_per_compute


def systolic_cycle(row: str) -> float:
    """Return the index of the last cycle of a 256 x 256 by 256 x 128 product on 32 x 32 cells, by dataflow."""
    return systolic.gemm(256, 128, 256, dataflow=row).last_cycle


def systolic_nm_cycle(row: str) -> float:
    """Return the index of the last cycle with stationary weights of a pattern N:M, packed along K."""
    pattern, cells, *dims = row.split()
    kept, of = map(int, pattern.split(":"))
    m, n, k = (int(one[1:]) for one in dims)
    side = int(cells.partition("x")[0])
    return systolic.gemm(m, n, k * kept // of, rows=side, columns=side, dataflow="ws").last_cycle


def sparseloop_cycles(row: str) -> float:
    """Return the cycles that remain with skipping."""
    dims, tensors, densities, skip, spread = SKIPPING[row]
    packed: dict[str, Any] = dict.fromkeys(densities, 0)
    levels = [Level("DRAM", compress=packed), Level("B", compress=packed, skip=skip, instances=spread)]
    loops: Any = {"B": [(dim, bound // (spread if dim == "M" else 1)) for dim, bound in dims.items()]}
    spatial: Any = {"DRAM": [("M", spread)]} if spread > 1 else {}
    shares: Any = densities
    return evaluate(Problem(dims, tensors, "Z", shares), Arch(levels), Mapping(loops, spatial)).cycles
