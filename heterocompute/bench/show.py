"""Tables for people, from the plain dicts that a benchmark returns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Report = dict[str, Any]

HEADINGS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "bits": ("bits", lambda value: f"{value:.2f}"),
    "gaussian_db": ("Gaussian dB", lambda value: f"{value:.1f}"),
    "laplace_db": ("Laplace dB", lambda value: f"{value:.1f}"),
    "digits_bits": ("digits: bits", lambda value: f"{value:.2f}"),
    "digits_db": ("digits dB", lambda value: f"{value:.1f}"),
    "chosen": ("chosen", str),
    "fastest": ("fastest", str),
    "slower": ("time to fastest", lambda value: f"{value:.2f}"),
    "estimate": ("estimate to time", lambda value: f"{value:.2f}"),
    "density": ("density", lambda value: f"{value:.3g}"),
    "seconds": ("ms", lambda value: f"{value * 1e3:.3g}"),
    "rate": ("rate", lambda value: f"{value:.3g}"),
    "unit": ("unit", str),
    "ns_each": ("ns a value", lambda value: f"{value:.3g}"),
    "isa": ("kernel", str),
    "of_limit": ("of the limit", lambda value: f"{value:.2f}"),
    "to_sgemm": ("to sgemm", lambda value: f"{value:.2f} x"),
    "to_dense": ("to dense", lambda value: f"{value:.2f} x"),
    "lowest": ("at density", lambda value: f"{value:.3g}"),
    "break_even": ("break-even", lambda value: f"{value:.3g}"),
    "to_sgemv": ("to sgemv", lambda value: f"{value:.2f} x"),
    "to_int8_peer": ("to best int8 peer", lambda value: f"{value:.2f} x"),
    "to_4_bit_peer": ("to best 4-bit peer", lambda value: f"{value:.2f} x"),
    "to_definition": ("to definition", lambda value: f"{value:.3g} x"),
    "to_numpy": ("to NumPy", lambda value: f"{value:.3g} x"),
    "to_ml_dtypes": ("to ml_dtypes fp8, fp4", lambda value: f"{value:.3g} x"),
    "to_sklearn": ("to scikit-learn", lambda value: f"{value:.3g} x"),
    "excess": ("excess", lambda value: f"{value:.2g}"),
    "to_first": ("to fewest threads", lambda value: f"{value:.2f} x"),
    "growth": ("growth", lambda value: f"{value:.2f}"),
    "of_numpy": ("of numpy's", lambda value: f"{value:.2f} x"),
}


def show(report: Report) -> None:
    """Print a report's tables."""
    from rich import box  # 30 ms
    from rich.console import Console  # 30 ms
    from rich.table import Table  # 30 ms
    from rich.text import Text  # 30 ms

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160)
    found = report["machine"]
    console.print(Text(f"{found['cpu']}, {found['processors']} processors, {' '.join(found['isa'])}"))
    for part in report["tables"]:
        threads = f"{part['threads']} thread{'s'[: part['threads'] > 1]}"
        table = Table(title=Text(f"{part['title']}, {threads}"), box=box.SIMPLE_HEAD, title_justify="left")
        keys = [key for key in HEADINGS if any(key in row for row in part["rows"])]
        table.add_column("")
        for key in keys:
            table.add_column(HEADINGS[key][0], justify="right")
        for row in part["rows"]:
            cells = [HEADINGS[key][1](row[key]) if key in row else "" for key in keys]
            table.add_row(Text(row["name"]), *cells)
        console.print(table)
