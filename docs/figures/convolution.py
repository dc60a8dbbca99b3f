"""Write docs/conv-roofline.svg and the tables of convolutions in docs/benchmarks.md: python docs/figures/convolution.py

Without an argument the script runs `heterocompute bench conv --json`; with the output file of a run it draws that run.
The picture shows one thread and one image. A table without new results is unchanged.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from runner import DOCS, measured

from heterocompute.bench.show import markdown
from heterocompute.report.roofline import roofline_svg

PICTURE, PAGE = DOCS / "conv-roofline.svg", DOCS / "benchmarks.md"
WIDTH, HEIGHT = 760, 420
PRODUCTS = "Products and limits"
# Algorithms in the page's tables; --markdown prints all. im2col computes the same as implicit and is never faster.
LEFT_OUT = ("seconds", "rate", "unit", "intensity", "of_limit", "im2col")


def roof(report: dict[str, Any]) -> dict[str, Any]:
    """Return the data for `roofline_svg`: a convolution reuses its operands, a GEMV does not."""
    products = next(table for table in report["tables"] if table["title"] == PRODUCTS and table["threads"] == 1)
    limits = {row["name"]: row["rate"] * 1e9 for row in products["rows"]}
    peak, bandwidth = limits["float32 FMA"], max(rate for name, rate in limits.items() if name.startswith("read"))
    of_layers = [table for table in report["tables"] if (table.get("batch"), table["threads"]) == (1, 1)]
    rows = [row for table in (*of_layers, products) for row in table["rows"]]
    layers = [
        {
            "name": row["name"],
            "intensity": row["intensity"],
            "operations": row["operations"],
            "seconds": row["seconds"],
            "bound": "memory" if row["intensity"] < peak / bandwidth else "compute",
        }
        for row in rows
        if "intensity" in row
    ]
    return {"layers": layers, "peak": peak, "bandwidth": bandwidth, "dtype": "float32"}


def tables(report: dict[str, Any]) -> list[str]:
    """Return the tables of layers in Markdown: rates in GFLOP/s, of integers in GOP/s."""
    shown = []
    for table in report["tables"]:
        if "batch" in table or table["title"].startswith("Break-even"):
            rows = [_kept(row) for row in table["rows"]]
            rows = [{**row, "candidates": _kept(row["candidates"])} if "candidates" in row else row for row in rows]
            shown.append(markdown({"tables": [{**table, "rows": rows}]}))
    return shown


def _kept(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in LEFT_OUT}


def main() -> None:
    """Measure or read, draw, and write the page."""
    found = json.loads(Path(sys.argv[1]).read_text() if sys.argv[1:] else measured("conv"))
    report = found["benchmarks"]["conv"]
    title = f"Convolutions in float32, one thread of an {report['machine']['cpu']}"
    PICTURE.write_text(roofline_svg(roof(report), WIDTH, HEIGHT, title), encoding="utf-8")
    words = PAGE.read_text(encoding="utf-8")
    for table in tables(report):
        title = table.partition("\n")[0]
        old = re.search(re.escape(title) + r"\n\n(?:\|.*\n)+", words)
        if old is None:
            raise SystemExit(f"{PAGE} has no table {title}")
        words = words.replace(old[0], f"{table}\n")
    PAGE.write_text(words, encoding="utf-8")


if __name__ == "__main__":
    main()
