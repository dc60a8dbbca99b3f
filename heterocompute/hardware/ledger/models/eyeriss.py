"""Eyeriss, and row stationary compared with other dataflows on equal area."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from ...accelerators.catalogue import eyeriss
from ...accelerators.report import AcceleratorReport
from ...accelerators.row_stationary import GLB, dataflow_machine

__all__ = ["active", "arithmetic_share", "buffer_mb", "dataflow", "dram_mb", "dram_words", "frames", "gated_share",
           "macs_a_joule", "macs_a_second", "pixel_words", "power"]  # fmt: skip

#: Images per batch in the measurements of the chip.
BATCHES = {"alexnet_original": 4, "vgg16": 3}


def conv_only(found: AcceleratorReport) -> AcceleratorReport:
    """Return a report without its fully connected layers."""
    return replace(found, layers=[layer for layer in found.layers if not layer.name.startswith("fc")])


@cache
def measured(network: str) -> AcceleratorReport:
    """Return the convolutions of a network on the chip."""
    return conv_only(eyeriss().report(network, batch=BATCHES[network]))


@cache
def on_equal_area(kind: str) -> AcceleratorReport:
    """Return AlexNet on one of the machines of equal area, batch 16."""
    return dataflow_machine(kind).report("alexnet_original", batch=16, zeros={})


def dram_words(network: str) -> float:
    """Return the words of DRAM for each multiply-add."""
    found = measured(network)
    return found.dram_bytes / 2 / found.macs


def dram_mb(network: str) -> float:
    """Return the MB of DRAM of a batch."""
    return measured(network).dram_bytes / 1e6


def pixel_words() -> float:
    """Return the words of DRAM for each pixel of AlexNet's images."""
    return measured("alexnet_original").dram_bytes / 2 / (4 * 227**2)


def buffer_mb(network: str) -> float:
    """Return the MB read from and written to the global buffer."""
    unit = (eyeriss().mac_pj or 0.0) / 16
    pj = sum(pj for one in measured(network).layers for name, pj in one.stores.items() if name.startswith("GLB"))
    return pj / (GLB * unit) / 8e6


def active(network: str) -> float:
    """Return the share of the PEs that work."""
    return measured(network).active


def frames(network: str) -> float:
    """Return frames/s."""
    return BATCHES[network] / measured(network).seconds


def macs_a_second(network: str) -> float:
    """Return 10^9 multiply-adds/s."""
    return measured(network).macs / measured(network).seconds / 1e9


def power(network: str) -> float:
    """Return mW without DRAM."""
    found = measured(network)
    return 1e3 * (found.energy - found.energy_parts["DRAM"]) / found.seconds


def macs_a_joule(network: str) -> float:
    """Return 10^9 multiply-adds per joule on chip."""
    found = measured(network)
    return found.macs / (found.energy - found.energy_parts["DRAM"]) / 1e9


def arithmetic_share(network: str) -> float:
    """Return the share of the on-chip energy in multiply-adds."""
    return measured(network).arithmetic_share


def gated_share(network: str) -> float:
    """Return the share of a PE's energy that is saved when an input is zero."""
    dense = conv_only(eyeriss().report(network, batch=BATCHES[network], zeros={}))
    return 1 - _element(measured(network)) / _element(dense)


def _element(found: AcceleratorReport) -> float:
    """Return the energy in pJ of the multipliers and their pads."""
    pads = sum(pj for one in found.layers for name, pj in one.stores.items() if name.startswith("pads"))
    return pads + 1e12 * found.energy_parts["arithmetic"]


def dataflow(row: str, layers: str) -> float:
    """Return the energy of a dataflow over row stationary's, with DRAM: convolutions or fully connected layers."""
    return _energy(row, layers) / _energy("rs", layers)


def _energy(kind: str, layers: str) -> float:
    return sum(one.picojoules for one in on_equal_area(kind).layers if one.name.startswith(layers))
