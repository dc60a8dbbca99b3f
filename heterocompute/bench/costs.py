"""The measurements of `bench plan` as a CSV file. ``csrc/ops/product/costs/fit.py`` makes estimates of them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from .. import _heterocompute as _core

COUNTS = ("codes", "decoded", "unpacked", "limbs", "spread", "products", "wide", "groups", "values")  # of hc_work
COLUMNS = ("isa", "path", *COUNTS, "ns", "to_fastest", "spread_of_ns", "calls")


def write_costs(costs: list[list[Any]], folder: Path) -> None:
    """Write rows of `COLUMNS` to the processor's CSV file, in place of those of the same instruction sets."""
    path = folder / f"{_core.cpu_processor()}.csv"
    others = path.read_text().splitlines(keepends=True)[1:] if path.exists() else []
    with open(path, "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for isa, name, *counts, ns, slower, spread, calls in costs:
            numbers = (f"{count:.6g}" for count in counts)
            rows.writerow([isa, name, *numbers, ns, f"{slower:.2f}", f"{spread:.2f}", calls])
        measured = {isa for isa, *_ in costs}
        file.writelines(line for line in others if line.partition(",")[0] not in measured)
