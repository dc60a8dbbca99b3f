"""Tables for people, from the plain dicts that a benchmark returns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..report.table import Column, print_table, print_words

Report = dict[str, Any]


def _numbers(unit: str, values: list[float]) -> str:
    """Write numbers of the parts of a row, in the order of its name."""
    return " / ".join(f"{value:.2f}" if value < 10 else f"{value:.0f}" for value in values) + unit


HEADINGS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "compared": ("compared with", str),
    "speedups": ("speedup", partial(_numbers, " x")),
    "of_limits": ("share of the limit", partial(_numbers, "")),
    "limit": ("limit", str),
    "cases": ("cases", str),
    "shares": ("below 1.0 / .8 / .5", lambda values: " / ".join(f"{value:.0%}" for value in values)),
    "geomean": ("geomean", lambda value: f"{value:.2f}"),
    "bits": ("bits", lambda value: f"{value:.2f}"),
    "gaussian_db": ("Gaussian dB", lambda value: f"{value:.1f}"),
    "laplace_db": ("Laplace dB", lambda value: f"{value:.1f}"),
    "digits_bits": ("digits: bits", lambda value: f"{value:.2f}"),
    "digits_db": ("digits dB", lambda value: f"{value:.1f}"),
    "chosen": ("chosen", str),
    "fastest": ("fastest", str),
    "slower": ("time to fastest", lambda value: f"{value:.2f}"),
    "worst": ("worst", lambda value: f"{value:.2f}"),
    "intensity": ("operations a byte", lambda value: f"{value:.3g}"),
    "to_peer": ("to best peer", lambda value: f"{value:.2f} x"),
    "estimate": ("estimate to time", lambda value: f"{value:.2f}"),
    "density": ("density", lambda value: f"{value:.3g}"),
    "seconds": ("ms", lambda value: f"{value * 1e3:.3g}"),
    "rate": ("rate", lambda value: f"{value:.3g}"),
    "unit": ("unit", str),
    "ns_each": ("ns a value", lambda value: f"{value:.3g}"),
    "isa": ("kernel", str),
    "of_limit": ("of the limit", lambda value: f"{value:.2f}"),
    "to_torch": ("to torch float32", lambda value: f"{value:.2f} x"),
    "cosine": ("cosine", lambda value: f"{value:.4f}"),
    "in_packed": ("in packed layers", lambda value: f"{value:.0%}"),
    "to_sgemm": ("to sgemm", lambda value: f"{value:.2f} x"),
    "to_dense": ("to dense", lambda value: f"{value:.2f} x"),
    "to_direct": ("to direct", lambda value: f"{value:.2f} x"),
    "lowest": ("at density", lambda value: f"{value:.3g}"),
    "break_even": ("break-even", lambda value: f"{value:.3g}"),
    "to_sgemv": ("to sgemv", lambda value: f"{value:.2f} x"),
    "to_int8_peer": ("to best int8 peer", lambda value: f"{value:.2f} x"),
    "to_4_bit_peer": ("to best 4-bit peer", lambda value: f"{value:.2f} x"),
    "to_definition": ("to definition", lambda value: f"{value:.3g} x"),
    "to_numpy": ("to NumPy", lambda value: f"{value:.3g} x"),
    "to_ml_dtypes": ("to ml_dtypes fp8, fp4", lambda value: f"{value:.3g} x"),
    "to_llama_cpp": ("to llama.cpp", lambda value: f"{value:.2f} x"),
    "to_float32": ("to float32", lambda value: f"{value:.2f} x"),
    "to_sklearn": ("to scikit-learn", lambda value: f"{value:.3g} x"),
    "excess": ("excess", lambda value: f"{value:.2g}"),
    "to_first": ("to fewest threads", lambda value: f"{value:.2f} x"),
    "growth": ("growth", lambda value: f"{value:.2f}"),
    "bound": ("bound", str),
    "result": ("result", str),
    "ratio": ("ratio", lambda value: f"{value:.2f}"),
    "goal": ("goal of the ratio", str),
    "of_numpy": ("of numpy's", lambda value: f"{value:.2f} x"),
}


# Columns that stay on a narrow terminal. Of the others the kernel is removed first, then the last column.
STAY = ("compared", "speedups", "bits", "chosen", "fastest", "slower", "seconds", "rate", "unit")


def show(report: Report) -> None:
    """Print a report's tables."""
    found = report["machine"]
    print_words(f"{found['cpu']}, {found['processors']} processors, {' '.join(found['isa'])}")
    for part in report["tables"]:
        threads = f"{part['threads']} thread{'s'[: part['threads'] > 1]}"
        shown = [key for key in HEADINGS if any(key in row for row in part["rows"])]
        columns = [Column("name", "")]
        for key in shown:
            title, write = HEADINGS[key]
            leaves = 0 if key in STAY else len(HEADINGS) if key == "isa" else 1 + shown.index(key)
            columns.append(Column(key, title, partial(_cell, write), leaves))
        rows = [{key: row.get(key) for key in ("name", *shown)} for row in part["rows"]]
        print_table(columns, rows, title=f"{part['title']}, {threads}", more=("--json",))
        print()


def markdown(report: Report) -> str:
    """Return a report's tables in Markdown, with the rate of every candidate of a row that has several.

    Parameters
    ----------
    report : dict
        Its machine, if it is there, stands above.
    """
    parts = []
    if "machine" in report:
        found = report["machine"]
        versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
        machine = f"{found['cpu']}, {found['processors']} processors, {' '.join(found['isa'])}"
        parts.append(f"{machine}; {found['blas']}; {versions}")
    for table in report["tables"]:
        rows = table["rows"]
        keys = [key for key in HEADINGS if any(row.get(key) is not None for row in rows)]
        rates = list(dict.fromkeys(name for row in rows for name in row.get("candidates", {})))
        lines = [["", *(HEADINGS[key][0] for key in keys), *rates], ["---"] * (1 + len(keys) + len(rates))]
        for row in rows:
            cells = [_cell(HEADINGS[key][1], row.get(key)) for key in keys]
            cells += [_cell(lambda rate: f"{rate:.3g}", row.get("candidates", {}).get(name)) for name in rates]
            lines.append([str(row["name"]), *cells])
        parts.append(f"**{table['title']}, {table['threads']} thread{'s'[: table['threads'] > 1]}**")
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(parts)


def _cell(write: Callable[[Any], str], value: object) -> str:
    return "" if value is None else write(value)
