"""The cost of a network on an accelerator: one row per layer, sums, text and plain values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import printable
from ...base.notebooks.shown import Shown
from ...report.numbers import four_digits
from ...report.page import rows_html

#: Where energy goes.
PARTS = (
    "arithmetic", "conversion", "weights", "activations", "accumulators", "collectors", "movement", "instructions",
    "clock", "control", "leakage", "DRAM",
)  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """The time and energy of one layer.

    Attributes
    ----------
    name : str
    macs : int
        Multiply-adds of the dense layer.
    cycles : float
        The larger of `work` and the cycles that DRAM needs.
    work : float
        Cycles of the multipliers, without waiting for DRAM.
    dram_bits : float
        Bits read and written.
    energy : dict of str to float
        pJ by part, of `PARTS`.
    active : float
        Share of the multipliers in use while they run.
    stores : dict of str to float
        pJ by memory and tensor, such as ``"GLB I"``.
    detail : dict
        Further results of the machine's own model.
    inside : float
        Cycles that memories and networks on chip need.
    """

    name: str
    macs: int
    cycles: float
    work: float
    dram_bits: float
    energy: dict[str, float]
    active: float
    stores: dict[str, float] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)
    inside: float = 0.0

    @property
    def picojoules(self) -> float:
        """Return the sum of all parts."""
        return math.fsum(self.energy.values())


@dataclass(frozen=True, repr=False)
class AcceleratorReport(Shown):
    """The time and energy of an inference on an accelerator.

    Attributes
    ----------
    accelerator, network, format : str
    batch : int
    clock : float
        Hz.
    multiply_adds : int
        Maximum per cycle.
    layers : list of Layer
    notes : tuple of str
        Assumptions and omissions of the model.
    waits : str
        Resource that the multipliers wait for: DRAM, or the links between chips.
    voltage : float or None
        V.
    """

    accelerator: str
    network: str
    format: str
    batch: int
    clock: float
    multiply_adds: int
    layers: Sequence[Layer] = field(compare=False)
    notes: tuple[str, ...] = ()
    waits: str = "DRAM"
    voltage: float | None = None

    @property
    def seconds(self) -> float:
        """Return the time of the whole batch, layer after layer."""
        return math.fsum(layer.cycles for layer in self.layers) / self.clock

    @property
    def energy_parts(self) -> dict[str, float]:
        """Return J by part.

        Parts: arithmetic, conversion (of compute in memory), weights, activations, accumulators, collectors, movement,
        instructions, clock, control, leakage, DRAM.
        """
        return {part: math.fsum(layer.energy.get(part, 0.0) for layer in self.layers) * 1e-12 for part in PARTS}

    @property
    def energy(self) -> float:
        """Return J of the whole batch."""
        return math.fsum(self.energy_parts.values())

    @property
    def arithmetic_share(self) -> float:
        """Return the share of the energy on chip, without DRAM, in multiply-adds."""
        parts = self.energy_parts
        on_chip = self.energy - parts["DRAM"]
        return parts["arithmetic"] / on_chip if on_chip else 0.0

    @property
    def macs(self) -> int:
        """Return the multiply-adds of the dense network, whole batch."""
        return sum(layer.macs for layer in self.layers)

    @property
    def dram_bytes(self) -> float:
        """Return the bytes read from and written to DRAM."""
        return math.fsum(layer.dram_bits for layer in self.layers) / 8

    @property
    def utilisation(self) -> float:
        """Return the dense multiply-adds over the peak's in the same time; skipped zeros may raise it above 1."""
        return self.macs / (self.seconds * self.clock * self.multiply_adds)

    @property
    def active(self) -> float:
        """Return the share of the multipliers in use while they run, weighted by time."""
        total = math.fsum(layer.work for layer in self.layers)
        return math.fsum(layer.active * layer.work for layer in self.layers) / total if total else 0.0

    @property
    def bound(self) -> str:
        """Return the bound with most of the time: ``"multipliers"``, ``"DRAM"`` or ``"links"``."""
        waited = math.fsum(layer.cycles for layer in self.layers if layer.cycles > layer.work)
        return self.waits if 2 * waited > self.seconds * self.clock else "multipliers"

    @property
    def watts(self) -> float:
        """Return energy over time, including DRAM."""
        return self.energy / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON: seconds, joules, bytes.

        Returns
        -------
        dict
        """
        keys = ("accelerator", "network", "format", "batch", "seconds", "energy", "energy_parts", "arithmetic_share",
                "utilisation", "active", "dram_bytes", "macs", "bound", "watts", "voltage")  # fmt: skip
        return {
            **{key: getattr(self, key) for key in keys},
            "notes": list(self.notes),
            "layers": [self._row(layer) for layer in self.layers],
        }

    def _row(self, layer: Layer) -> dict[str, Any]:
        seconds = layer.cycles / self.clock
        return {
            "name": layer.name,
            "macs": layer.macs,
            "cycles": layer.cycles,
            "seconds": seconds,
            "utilisation": layer.macs / (layer.cycles * self.multiply_adds),
            "active": layer.active,
            "dram_bytes": layer.dram_bits / 8,
            "energy": layer.picojoules * 1e-12,
            "energy_parts": {part: layer.energy.get(part, 0.0) * 1e-12 for part in PARTS},
            "stores": {name: pj * 1e-12 for name, pj in layer.stores.items()},
            **layer.detail,
        }

    def __str__(self) -> str:
        parts = [part for part, joules in self.energy_parts.items() if joules]
        rows: list[tuple[str, ...]] = [("layer", "10^6 macs", "us", "used", "DRAM kB", "uJ", *parts)]
        for row in self.to_dict()["layers"]:
            total = row["energy"] or 1.0
            shares = [f"{row['energy_parts'][part] / total:.0%}" for part in parts]
            rows.append((
                printable(row["name"]),
                four_digits(row["macs"] / 1e6),
                four_digits(row["seconds"] * 1e6),
                f"{row['utilisation']:.0%}",
                four_digits(row["dram_bytes"] / 1e3),
                four_digits(row["energy"] * 1e6),
                *shares,
            ))  # fmt: skip
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = []
        for row in rows:
            cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
            lines.append("  ".join([row[0].ljust(widths[0]), *cells[1:]]).rstrip())
        return "\n".join([*lines, self.summary()])

    def summary(self) -> str:
        """Return a sentence with time, energy and its parts, utilisation and DRAM traffic.

        Returns
        -------
        str
        """
        parts = self.energy_parts
        shares = ", ".join(f"{part} {joules / self.energy:.0%}" for part, joules in parts.items() if joules)
        return (
            f"{printable(self.network)} on {self.accelerator}, {self.format}, batch {self.batch}: "
            f"{self.seconds * 1e3:.4g} ms, {self.energy * 1e3:.4g} mJ ({shares}), {self.utilisation:.1%} of the peak, "
            f"{self.dram_bytes / 1e6:.4g} MB of DRAM, bound by {self.bound}"
        )

    def _repr_html_(self) -> str:
        return rows_html(self.to_dict()["layers"], self.summary())

    def __repr__(self) -> str:
        return f"<AcceleratorReport: {self.summary()}>"
