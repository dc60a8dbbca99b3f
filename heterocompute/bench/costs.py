"""The measurements of `bench plan` as a CSV file. ``csrc/ops/product/costs/fit.py`` makes estimates of them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from .. import _heterocompute as _core

COUNTS = ("codes", "decoded", "unpacked", "limbs", "spread", "products", "wide", "groups", "values")  # of hc_work
COLUMNS = ("isa", "path", *COUNTS, "ns", "to_fastest", "spread_of_ns", "calls")


def write_costs(costs: list[list[Any]], folder: Path) -> None:
    """Write rows of `COLUMNS` to a CSV file named after the processor."""
    with open(folder / f"{_core.cpu_processor()}.csv", "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for isa, name, *counts, ns, slower, spread, calls in costs:
            numbers = (f"{count:.6g}" for count in counts)
            rows.writerow([isa, name, *numbers, ns, f"{slower:.2f}", f"{spread:.2f}", calls])
