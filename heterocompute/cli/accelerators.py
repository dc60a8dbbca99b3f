"""`heterocompute accelerators`: the energy and time of a network on the accelerators of the literature."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any

from ..base.errors import shown
from ..report.numbers import four_digits
from ..report.table import Column
from .hardware import add_input, batch_of, network_of, show
from .options import Options
from .parts import UsageError, interruptible, print_json


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    found = command(
        "accelerators",
        _run,
        "Model the cost of a network on the accelerators of the literature, in each of their number formats: time, "
        "energy by part, DRAM. Without MODEL, list the accelerators. With MACHINE, print one row per layer.",
        "accelerators resnet50",
        "accelerators alexnet_original eyeriss --batch 4",
        "accelerators alexnet_original eie --layers fc6,fc7,fc8",
        "accelerators resnet18 mine.toml",
    )
    add = Options(found)
    add.common("model", nargs="?")
    add("machine", "MACHINE", "one accelerator, or the TOML file of a machine, with one row per layer", nargs="?")
    add("--format", "F", "only this number format, such as int8")
    add_input(found)
    add("--layers", "L,L,...", "with MACHINE: only these layers, such as fc6,fc7")
    add("--voltage", "V", "supply voltage in volts; default: that of the process", type=float)
    add("--dram", "KIND", "hbm2, gddr6, lpddr5, ... or pJ per bit; default: the machine's")
    add.common("--html")


def _run(arguments: argparse.Namespace) -> int:
    from .. import hardware as hw  # 60 ms

    room = hw.accelerators
    if arguments.model is None:
        for option in ("format", "shape", "context", "layers", "voltage", "dram"):
            if getattr(arguments, option) is not None:
                name = "input" if option == "shape" else option
                raise UsageError(f"--{name} needs MODEL: without one the machines are listed")
        if arguments.batch != 1:
            raise UsageError("--batch needs MODEL: without one the machines are listed")
        return _list(arguments, [room.accelerator(name) for name in room.names()])
    network = network_of(arguments)
    batch = batch_of(arguments)
    conditions = {"voltage": arguments.voltage, "dram": _dram(arguments.dram)}
    if arguments.machine is not None:
        if arguments.machine.endswith(".toml"):
            own = hw.Machine.read(arguments.machine)
            machine = own.accelerator
            conditions["voltage"] = own.voltage if arguments.voltage is None else arguments.voltage
        else:
            machine = room.accelerator(arguments.machine)
        layers = None if arguments.layers is None else arguments.layers.split(",")
        report = functools.partial(machine.report, network, arguments.format, batch, layers=layers, **conditions)
        return _one(arguments, interruptible(report))
    if arguments.layers is not None:
        raise UsageError("--layers needs MACHINE: all machines run the whole network")
    return _all(arguments, [room.accelerator(name) for name in room.names()], network, batch, conditions)


def _dram(text: str | None) -> str | float | None:
    try:
        return text if text is None else float(text)
    except ValueError:
        return text


def _list(arguments: argparse.Namespace, machines: list[Any]) -> int:
    rows = [
        {
            "name": one.name,
            "title": one.title,
            "year": one.year,
            "process": one.process,
            "peaks": {format: one.peak(format) for format in one.formats},
            "source": one.source,
            "notes": list(one.notes),
        }
        for one in machines
    ]
    if arguments.json:
        return print_json({"accelerators": rows})
    columns = [
        Column("name", "machine"),
        Column("title", "what it is", leaves=2, left=True),
        Column("year", "year"),
        Column("process", "process", leaves=1, left=True),
        Column("peaks", "peak, 10^12 operations/s", _peaks, left=True),
    ]
    return show(arguments, "Accelerators", [f"{len(rows)} machines"], columns, rows)


def _peaks(found: dict[str, float]) -> str:
    return ", ".join(f"{rate / 1e12:.4g} {format}" for format, rate in found.items())


def _one(arguments: argparse.Namespace, found: Any) -> int:
    record = found.to_dict()
    if arguments.json:
        return print_json(record)
    columns = [
        Column("name", "layer"),
        Column("macs", "10^6 macs", lambda value: four_digits(value / 1e6), leaves=3),
        Column("seconds", "us", lambda value: four_digits(value * 1e6)),
        Column("utilisation", "of the peak", "{:.1%}".format),
        Column("dram_bytes", "DRAM kB", lambda value: four_digits(value / 1e3), leaves=2),
        Column("energy", "uJ", lambda value: four_digits(value * 1e6)),
    ]
    rows = [dict(row) for row in record["layers"]]
    for part in (part for part, joules in record["energy_parts"].items() if joules):
        columns.append(Column(part, f"{part} %", "{:.0%}".format, leaves=1))
        for row in rows:
            row[part] = row["energy_parts"][part] / (row["energy"] or 1)
    return show(arguments, f"{found.network} on {found.accelerator}", [found.summary(), *found.notes], columns, rows)


def _all(
    arguments: argparse.Namespace, machines: list[Any], network: Any, batch: int, conditions: dict[str, Any]
) -> int:
    rows, refused = [], []
    for machine in machines:
        formats = [one for one in machine.formats if arguments.format in (None, one)]
        try:
            for format in formats:
                report = functools.partial(machine.report, network, format, batch, **conditions)
                rows.append(interruptible(report).to_dict())
        except NotImplementedError as error:
            refused.append({"accelerator": machine.name, "reason": str(error)})
    if not rows and not refused:
        raise UsageError(f"--format is {shown(arguments.format)}, no machine computes in it")
    if arguments.json:
        return print_json({"network": network.name, "batch": batch, "reports": rows, "refused": refused})
    columns = [
        Column("accelerator", "machine"),
        Column("format", "format"),
        Column("seconds", "ms", lambda value: four_digits(value * 1e3)),
        Column("energy", "mJ", lambda value: four_digits(value * 1e3)),
        Column("on_chip", "on chip mJ", lambda value: four_digits(value * 1e3), leaves=4),
        Column("arithmetic_share", "arithmetic", "{:.0%}".format, leaves=3),
        Column("utilisation", "of the peak", "{:.1%}".format),
        Column("dram_bytes", "DRAM MB", lambda value: four_digits(value / 1e6), leaves=2),
        Column("bound", "bound by", leaves=1, left=True),
    ]
    for row in rows:
        row["on_chip"] = row["energy"] - row["energy_parts"]["DRAM"]
    summary = [
        f"{network.name}, batch {batch}: time and energy of the whole batch; energy includes DRAM, arithmetic is the "
        "share of the energy on chip; `heterocompute reproduce` says how far such models are from what was published"
    ]
    summary += [row["reason"] for row in refused]
    drawn = ""
    if arguments.html:
        from ..report.drawings import Point, scatter  # 20 ms

        points = [
            Point(row["seconds"], row["energy"], f"{row['accelerator']} {row['format']}", row["format"]) for row in rows
        ]
        drawn = scatter(points, "seconds", "joules, DRAM included", f"Energy and time of {network.name} by machine")
    return show(arguments, f"{network.name} on accelerators", summary, columns, rows, drawn=drawn)
