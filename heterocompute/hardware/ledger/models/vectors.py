"""Machines of vector units: Simba, and MAGNet also with VS-Quant."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...accelerators.catalogue import magnet, simba, tensor_core
from ...accelerators.design import Design
from ...accelerators.exploring import explore
from ...accelerators.report import AcceleratorReport
from ...network.layers import Linear

__all__ = ["density_mm2", "magnet_over_ws", "magnet_part", "magnet_share", "pattern_gain", "simba_ms", "simba_rate",
           "tops_a_watt", "femtojoules", "vsq_area", "vsq_energy"]  # fmt: skip


@cache
def on_magnet(
    dataflow: str, format: str = "int8", process: str = "16nm", voltage: float | None = None, network: str = "resnet50"
) -> AcceleratorReport:
    """Return a network on MAGNet."""
    return magnet(dataflow, process).report(network, format, voltage=voltage)


@cache
def on_simba(voltage: float | None = None) -> AcceleratorReport:
    """Return ResNet-50 on Simba."""
    return simba().report("resnet50", voltage=voltage)


def on_chip(found: AcceleratorReport) -> float:
    """Return fJ of an operation, half a multiply-add, without DRAM."""
    return (found.energy - found.energy_parts["DRAM"]) / found.macs / 2 * 1e15


def femtojoules(machine: str, voltage: float | None = None, format: str = "int8", unit: float = 1.0) -> float:
    """Return fJ of an operation on ResNet-50."""
    found = on_simba(voltage) if machine == "simba" else on_magnet("os-lws", format, voltage=voltage)
    return on_chip(found) / unit


def tops_a_watt(
    machine: str = "magnet",
    format: str = "int8",
    process: str = "16nm",
    voltage: float | None = None,
    network: str = "resnet50",
) -> float:
    """Return 10^12 operations/s per watt on chip."""
    if machine == "simba":
        return 1e3 / on_chip(on_simba(voltage))
    return 1e3 / on_chip(on_magnet("os-lws", format, process, voltage, network))


def simba_ms() -> float:
    """Return ms of ResNet-50."""
    return 1e3 * on_simba().seconds


def simba_rate() -> float:
    """Return images/s of ResNet-50, one at a time."""
    return 1 / on_simba().seconds


def magnet_over_ws(row: str) -> float:
    """Return the energy of a dataflow over weight stationary's."""
    return on_chip(on_magnet(row)) / on_chip(on_magnet("ws"))


def magnet_share(dataflow: str, format: str = "int8") -> float:
    """Return the share of the on-chip energy in multiply-adds."""
    return on_magnet(dataflow, format).arithmetic_share


def magnet_part(part: str) -> float:
    """Return the share of MAGNet's on-chip energy in one part, on ResNet-50 with the dataflow os-lws."""
    found = on_magnet("os-lws")
    return found.energy_parts[part] / (found.energy - found.energy_parts["DRAM"])


@cache
def _design(format: str, fields: tuple[tuple[str, Any], ...] = ()) -> dict[str, Any]:
    space = {name: [value] for name, value in fields} | {"format": [format]}
    return explore({"dataflow": ["os-lws"], **space}, "resnet50").table[0]


def pattern_gain(layer: str, batch: int) -> float:
    """Return the speedup of 2:4 int8 weights over dense ones, on an A100's tensor cores."""
    machine = tensor_core("ampere")
    model: Any = [Linear(4096, 4096, bias=False)] if layer == "product" else layer
    shape = (4096,) if layer == "product" else None
    dense, sparse = (
        machine.report(model, format, batch, input_shape=shape).seconds for format in ("int8", "int8+2:4 x int8")
    )
    return dense / sparse


SIMBA = {"elements": 16, "lanes": 8, "vector": 8, "weight_kib": 32, "input_kib": 8, "sum_kib": 3, "global_kib": 64,
         "dataflow": "ws", "clock": 1.733e9}  # fmt: skip


def density_mm2(machine: str) -> float:
    """Return 10^12 operations/s per mm^2 of one chip."""
    fields = tuple(SIMBA.items()) if machine == "simba" else ()
    return float(_design("int8", fields)["operations_mm2"]) / 1e12


def _same_values(format: str) -> tuple[tuple[str, Any], ...]:
    """Return buffers that hold as many values of a format as the usual ones hold int8 values."""
    weights, _, activations = format.partition(" x ")
    plain = Design()
    wide = {"weight_kib": weights, "input_kib": activations or weights, "global_kib": activations or weights}
    return tuple((name, getattr(plain, name) / (2 if "4" in text.split("-")[0] else 1)) for name, text in wide.items())


def vsq_energy(format: str, same_values: bool = True) -> float:
    """Return the on-chip energy that a format saves over int8: with buffers of as many values, or of as many bytes."""
    fields = _same_values(format) if same_values else ()
    return 1 - float(_design(format, fields)["energy"] / _design("int8")["energy"])


def vsq_area(format: str, same_values: bool = True) -> float:
    """Return the area that a format saves over int8: with buffers of as many values, or of as many bytes."""
    fields = _same_values(format) if same_values else ()
    return 1 - float(_design(format, fields)["area"] / _design("int8")["area"])
