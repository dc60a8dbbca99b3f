"""A checked machine file as an `Accelerator`: stores with their energies, wires, areas."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...chips.database import device
from ...silicon.gate_costs import Cost, int_add, scaled, sram_area
from ..accelerator import ALL, Accelerator, Store
from ..energies import DRAMS, latches, registers, sram, value_bits
from ..inmemory import ComputeInMemory, adc_energy
from ..mapped import mapped_cost, multiplier, multiply_add
from ..sparse import eie_cost, scnn_cost
from ..streams import streamed_cost
from .checking import Plan, filled
from .keys import TENSORS, is_dram, is_fan, size_of
from .networks import wires

COSTS = {"eie": eie_cost, "scnn": scnn_cost, "streams": streamed_cost}
WAITS = {"streams": "links", "eie": "DRAM", "scnn": "DRAM"}


def accelerator_of(plans: Mapping[str, Plan]) -> Accelerator:
    """Return the accelerator of a machine whose formats have a plan each."""
    plan = next(iter(plans.values()))
    file, mac = plan.file, plan.mac
    model = file.get("model")
    stores = {name: _stores(one) for name, one in plans.items()}
    chip = None if "device" not in file else device(file["device"])
    shape = f"{plan.multipliers:,} multipliers at {file['clock'] / 1e9:.4g} GHz, {file['process']}"
    own = mac.get("pj")
    if own is None and "adder" in mac:
        own = multiply_add(plan.format, int(mac["adder"]), plan.tree, file["process"])
    gates = "".join(TENSORS[one] for one in mac.get("gates", ("weights", "inputs")))
    zeros = mac.get("zeros", "none")
    overhead = file["overhead"]
    instruction = 0.0
    if "instruction_pj" in mac:
        instruction = scaled(Cost(mac["instruction_pj"]), file["process"]).energy / mac["instruction_macs"]
    notes = file["notes"]
    if file.get("winograd") is not None:
        notes = (*notes, "Winograd's transforms for 3 x 3 filters of stride 1" if file["winograd"] else "no Winograd")
    if model is None and "source" not in file:
        missing = [key for key in ("clock", "control", "leakage") if key not in overhead]
        wired = any(one.wire or one.trunk for one in next(iter(stores.values())))
        names = [{"clock": "clock tree"}.get(key, key) for key in missing] + ([] if wired else ["wires"])
        notes = (*notes, *([f"no energy is given for {', '.join(names)}"] if names else []))
    return Accelerator(
        name=file["name"],
        title=filled(file["title"], file["sizes"], None if chip is None else chip.title) if "title" in file else shape,
        source=file.get("source", "a file of its own"),
        year=file.get("year", (chip.year or 0) if chip is not None else None),
        process=file["process"],
        clock=file["clock"],
        formats={name: one.multipliers for name, one in plans.items()},
        cost=mapped_cost if model is None else COSTS[model],
        stores=lambda format: stores[format],
        sizes=file["sizes"],
        accumulator_bits=plan.sums,
        vector=plan.tree,
        resident=file.get("resident", ""),
        operations=None if "operations" not in mac else round(mac["operations"]),
        watts=file.get("watts"),
        mac_pj=None if own is None else float(own),
        gated=gates if zeros == "gate" and model is None else "",
        cim=_cim(plan) if mac.get("kind") == "cim" else None,
        skipped=gates if zeros == "skip" and model is None else "",
        instruction_pj=instruction,
        winograd=bool(file.get("winograd", False)),
        holds=file.get("holds"),
        chips=file.get("chips", 1),
        waits=WAITS[model] if model else "DRAM" if "source" in file else "memory",
        clock_tree=overhead.get("clock", 0.0),
        control=overhead.get("control", 0.0),
        leakage=overhead.get("leakage", 0.0),
        notes=notes,
    )


def _cim(plan: Plan) -> ComputeInMemory:
    mac = plan.mac
    weights, inputs = value_bits(plan.format, "W"), value_bits(plan.format, "I")
    return ComputeInMemory(
        lanes=plan.lanes,
        steps=-(-inputs // int(mac.get("input_bits", inputs))),
        slices=-(-weights // int(mac.get("cell_bits", weights))),
        adc_pj=float(mac.get("adc_pj", adc_energy(int(mac["adc_bits"])))),
        cell_pj=float(mac["cell_pj"]),
        digital_pj=scaled(int_add(plan.sums), plan.file["process"]).energy,
    )


def _stores(plan: Plan) -> tuple[Store, ...]:
    stores: list[Store] = []
    units = 1
    areas = area_of(plan)
    for place, one in enumerate(plan.levels):
        if not is_fan(one):
            stores.append(_memory(plan, one, units))
        for count, dims in zip(one.get("count", ()), one.get("spread", ()), strict=True):
            _fan_out(stores, one["name"] if is_fan(one) else f"{one['name']} {dims}", units, dims)
            units *= count
        if "network" in one or "wire_pj" in one:
            below = sum(areas.get(each["name"], 0.0) for each in plan.levels[place + 1 :]) + areas["mac"]
            count = math.prod(one["count"])
            stores[-1] = replace(stores[-1], **wires(one, below * count / units, count, plan.file["process"]))
    if plan.lanes > 1 and stores:
        _fan_out(stores, "lanes", units, str(plan.mac.get("spread", "C")))
    return tuple(stores)


def _memory(plan: Plan, one: Mapping[str, Any], units: int) -> Store:
    size, kind, process = size_of(one), str(one.get("kind", "")), plan.file["process"]
    read = one.get("read_pj")
    if kind in DRAMS:
        pj = DRAMS[kind]
    elif kind == "latches":
        pj = registers(1, one["width"], process)
        read = latches(one["entries"], process) if read is None else read
    else:
        total = sum(size.values()) if isinstance(size, dict) else size or 0
        pj = sram(total / one.get("banks", 1), process)
    rate = one.get("bandwidth")
    if rate is None and "width" in one and kind != "latches":
        rate = one["width"] / 8 * one.get("banks", 1) * plan.file["clock"]
    part = "DRAM" if is_dram(one) else "collectors" if kind == "latches" else ""
    return Store(
        one["name"],
        size,
        float(one.get("pj", pj)),
        "".join(TENSORS[tensor] for tensor in one.get("keeps", TENSORS)),
        units,
        loops=one.get("loops", ALL),
        wide="O" if one.get("sums", not is_dram(one)) else "",
        bandwidth=None if rate is None else float(rate),
        part=part,
        coded=one.get("coded", 0.0),
        read=None if read is None else float(read),
        masked="".join(TENSORS[tensor] for tensor in one.get("masked", ())),
        idle="".join(TENSORS[tensor] for tensor in one.get("idle", ())),
    )


def _fan_out(stores: list[Store], name: str, units: int, dims: str) -> None:
    """Let loops spread below the last store; a store that already spreads gets a store without tensors below it."""
    if stores[-1].over:
        known = {store.name for store in stores}
        while name in known:
            name += f" {dims}"
        stores.append(Store(name, None, 0.0, "", units, loops=""))
    stores[-1] = replace(stores[-1], over=dims)


def area_of(plan: Plan) -> dict[str, float]:
    """Return mm^2 of each memory and of the multipliers."""
    found: dict[str, float] = {}
    units, process = 1, plan.file["process"]
    for one in plan.levels:
        if not is_fan(one) and not is_dram(one):
            size = size_of(one)
            total = sum(size.values()) if isinstance(size, dict) else size or 0
            bits = one["entries"] * one["width"] if "entries" in one else 8 * total
            found[one["name"]] = units * float(one.get("mm2", sram_area(bits, process) / 1e6))
        units *= math.prod(one.get("count", ()))
    adder = int(plan.mac.get("adder", plan.sums))
    lane = multiplier(plan.format, adder, plan.tree, process).area_um2 / 1e6
    found["mac"] = plan.multipliers * float(plan.mac.get("mm2", lane))
    return found
