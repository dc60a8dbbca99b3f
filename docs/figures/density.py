"""Draw docs/density.svg and fill the table of compressed.md: python docs/figures/density.py FIGURES.json

The file is that of `heterocompute bench density --threads 1 --json`. Needs the extra `plot`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from runner import DOCS, curve, figure, fill, plain_axes, save, table

from heterocompute.report.palette import FAMILIES, GREY, SERIES

PICTURE, PAGE = DOCS / "density.svg", DOCS / "compressed.md"
MARKS = dict(zip(("N:M", "CSR", "EIE", "EIE, 0.35 of x", "CSR, SciPy"), (*SERIES[:4], FAMILIES["plain"]), strict=True))
OWN, SHOWN = "dense, own", 0.1  # the density whose times are in the table

Table = dict[str, Any]


def tables_of(path: Path, title: str) -> list[Table]:
    """Return the tables of one thread with titles that begin so, in the order of the number of vectors."""
    report = json.loads(path.read_text())["benchmarks"]["density"]
    found = [table for table in report["tables"] if table["threads"] == 1 and table["title"].startswith(title)]
    return sorted(found, key=lambda table: table["shape"][0])


def vectors(table: Table) -> str:
    count = table["shape"][0]
    return f"{count} vector{'s'[: count > 1]}"


def draw(times: list[Table], evens: list[Table]) -> None:
    """Draw the time relative to the dense matmul against density, with one column per number of vectors."""
    drawn = figure(10.5, 4.8)
    for axes, of, even in zip(drawn.subplots(1, len(times), sharey=True), times, evens, strict=True):
        axes.axhline(1, color=GREY, linewidth=1.2)
        own = next(row for row in of["rows"] if row["name"] == OWN)
        axes.axhline(1 / own["to_dense"], color=GREY, linewidth=1, linestyle="--", label=OWN)
        for family, mark in MARKS.items():
            line = sorted((row["density"], 1 / row["to_dense"]) for row in of["rows"] if row["family"] == family)
            if line:
                curve(axes, line, mark, family)
            for row in even["rows"]:
                if row["name"] == family and row.get("break_even", 1) < 1:
                    ring = {"markersize": 11, "fillstyle": "none", "markeredgewidth": 1.5}
                    axes.plot(row["break_even"], 1, "o", color=mark.color, **ring)
        axes.set(xscale="log", yscale="log", xlabel="density", title=f"{vectors(of)} x {of['shape'][1]} x 2048")
        plain_axes(axes)
    drawn.axes[0].set_ylabel("time / time of OpenBLAS, dense")
    drawn.axes[0].legend(loc="lower right", frameon=False, fontsize=11)
    save(drawn, PICTURE)


def words(times: list[Table], evens: list[Table]) -> str:
    """Return the break-even densities, and the milliseconds at one density, as Markdown."""
    heads = [f"{vectors(of)}: {what}" for of in times for what in ("break-even", f"ms at {SHOWN}")]
    lines = []
    for family in ("dense, OpenBLAS", OWN, *MARKS):
        cells = []
        for of, even in zip(times, evens, strict=True):
            rows = {row["density"]: row for row in of["rows"] if row["family"] == family}
            found: dict[str, Any] = next((row for row in even["rows"] if row["name"] == family), {})
            beyond = found.get("break_even") == max(rows, default=None)  # faster at all measured densities
            even_at = f"{'≥ ' * beyond}{found['break_even']:.2f}" if "break_even" in found else "none"
            cells.append(even_at if found else "")
            at = rows.get(SHOWN) or (rows.get(1.0) if family.startswith("dense") else None)
            cells.append(f"{at['seconds'] * 1e3:.3g}" if at else "")
        if any(cells):
            lines.append([family, *cells])
    return table(["product", *heads], lines)


def main() -> None:
    """Read, draw, write."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    path = Path(sys.argv[1])
    times, evens = tables_of(path, "Density"), tables_of(path, "Break-even")
    draw(times, evens)
    fill(PAGE, "break-even", words(times, evens))


if __name__ == "__main__":
    main()
