"""Measure matmuls, fill the tables of benchmarks.md, draw docs/figures/products.svg: python docs/figures/products.py

Runs `heterocompute bench gemv gemm --json`. With FIGURES.json, the output of an earlier run, it measures nothing. Needs
the extra `plot`, and an idle machine for measurements.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from matplotlib.ticker import NullLocator
from runner import DOCS, curve, figure, measured, plain_axes, save

from heterocompute.report.palette import FAMILIES

PICTURE, FIGURES = DOCS / "figures" / "products.svg", Path("products.json")
TITLE = "Integer products of 1 to 128 rows"
CURVES = {
    "int8": FAMILIES["int"],
    "vsq4-g16-s4": FAMILIES["vsq"],
    "OpenBLAS sgemm": FAMILIES["plain"],
    "best int8 peer": FAMILIES["nf4"],
}

Row = dict[str, Any]


def rows_of(path: Path) -> list[Row]:
    """Return the points of one thread."""
    tables = json.loads(path.read_text())["benchmarks"]["gemm"]["tables"]
    found = (table for table in tables if table["title"] == TITLE and table["threads"] == 1)
    return [row for row in next(found, {"rows": []})["rows"] if "shape" in row]


def draw(rows: list[Row]) -> None:
    """Draw the time of a matmul against its rows, with one panel per shape of the weights."""
    shapes = list(dict.fromkeys(tuple(row["shape"][1:]) for row in rows))
    drawn = figure(10.5, 6.4)
    fields = drawn.subplots(2, -(-len(shapes) // 2), sharex=True, squeeze=False).flat
    for axes, shape in zip(fields, shapes, strict=False):
        for name, mark in CURVES.items():
            line = [
                (row["shape"][0], row["seconds"] * 1e3)
                for row in rows
                if (*row["shape"][1:], row["of"]) == (*shape, name)
            ]
            if line:
                curve(axes, line, mark, name)
        axes.set(xscale="log", yscale="log", title=f"{shape[0]} x {shape[1]}")
        axes.set_xticks(sorted({row["shape"][0] for row in rows}))
        axes.xaxis.set_minor_locator(NullLocator())
        plain_axes(axes)
    for axes in list(drawn.axes)[len(shapes) :]:
        axes.set_axis_off()
    drawn.supxlabel("rows of x")
    drawn.supylabel("milliseconds, one thread")
    handles, labels = drawn.axes[0].get_legend_handles_labels()
    drawn.axes[-1].legend(handles, labels, loc="center", frameon=False, fontsize=11)
    save(drawn, PICTURE)


def main() -> None:
    """Measure unless a file is given, fill the tables, and draw."""
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    path = Path(sys.argv[1]) if len(sys.argv) == 2 else FIGURES
    if path is FIGURES:
        path.write_bytes(measured("gemv", "gemm"))
    rows = rows_of(path)
    if not rows:
        sys.exit(f"products.py: {path} has no table {TITLE!r} of one thread")
    subprocess.run([sys.executable, Path(__file__).with_name("benchmarks.py"), path], check=True)
    draw(rows)


if __name__ == "__main__":
    main()
