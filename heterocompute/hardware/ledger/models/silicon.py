"""Energy of arithmetic, memories and instructions."""

from __future__ import annotations

from ...accelerators.energies import DRAM, sram
from ...silicon.gate_costs import Cost, scaled
from ...silicon.mac import mac

__all__ = ["arithmetic_pj", "dram_pj", "log_saving", "mac_ratio", "node_energy", "selection", "sram_pj"]


def mac_ratio(format: str, other: str) -> float:
    """Return the energy of a multiply-add of vectors of 32, relative to another format."""
    return mac(format, format, vector=32).energy_pj / mac(other, other, vector=32).energy_pj


def node_energy(old: str, new: str) -> float:
    """Return the energy of a circuit in a newer process over that in an older one."""
    return scaled(Cost(1.0), new).energy / scaled(Cost(1.0), old).energy


def selection(row: str) -> float:
    """Return the share of a 2:4 lane's energy in its multiplexers, or the area that they add to a dense lane."""
    one, dense = mac("int8+2:4", "int8"), mac("int8", "int8")
    return one.area_um2 / dense.area_um2 - 1 if row == "area" else one.energy["selection"] / one.energy_pj


def log_saving(row: str, format: str, sharing: int) -> float:
    """Return the energy that log numbers save over a format, if this many products share a conversion."""
    return 1 - mac(format, format, log_sharing=sharing).energy_pj / mac(row, row).energy_pj


def arithmetic_pj(format: str, accumulator: int, lanes: int, products: int) -> float:
    """Return pJ of this many multiply-adds at 45 nm."""
    return products * mac(format, format, accumulator, lanes).energy_pj


def sram_pj(kib: int, bits: int) -> float:
    """Return pJ of a word of an SRAM at 45 nm."""
    return bits * sram(kib * 1024, "45nm")


def dram_pj(bits: int) -> float:
    """Return pJ of a word of DRAM."""
    return bits * DRAM
