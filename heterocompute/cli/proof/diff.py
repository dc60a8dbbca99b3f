"""`heterocompute diff`: where two checkpoints differ, and by how much."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

from ...base.errors import printable
from ...base.texts import counted
from ...report.table import Column
from ..options import Options
from ..parts import ProgressBar, interruptible, note, print_json, print_line, print_table
from .verify import SHOWN, comparing


def _number(value: float | None, pattern: str) -> str:
    return "-" if value is None or not math.isfinite(value) else format(value, pattern)


COLUMNS = (
    Column("name", "tensor"),
    Column("status", "status", left=True),
    Column("a", "a", lambda text: text or "-", left=True),
    Column("b", "b", lambda text: text or "-", left=True),
    Column("values", "values", lambda share: _number(share, ".2%")),
    Column("ulp", "ulp", lambda count: _number(count, "d"), leaves=2),
    Column("sqnr_db", "SQNR (dB)", lambda ratio: _number(ratio, ".1f")),
    Column("codes", "codes", lambda share: _number(share, ".2%"), leaves=1),
    Column("kl_bits", "KL (bits)", lambda bits: _number(bits, ".3g"), leaves=3),
    Column("index", "first index", lambda index: "-" if index is None else str(tuple(index)), leaves=4, left=True),
)


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    added = command(
        "diff",
        run,
        "Compare two checkpoints tensor by tensor, also in different layouts. The largest difference is first. Exit "
        "codes: 0 equal values, 1 different, 2 not compared.",
        "diff a.safetensors b.safetensors",
        "diff model-Q4_0.gguf model-folder --html differences.html",
    )
    add = Options(added, "proof.diff:diff")
    add("file", "FILE", "a checkpoint, A")
    add("other", "FILE", "another checkpoint, B")
    add("--layout-a", "L", "layout of A; default: read from the file")
    add("--layout-b", "L", "layout of B; default: read from the file")
    add.common("--csv")
    add("--html", "PATH", "also write one page with the table")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from ...proof.diff import diff  # 60 ms

    def work() -> Any:
        with ProgressBar("diff", arguments.file) as progress:
            return interruptible(
                lambda: diff(
                    arguments.file, arguments.other, layout_a=arguments.layout_a, layout_b=arguments.layout_b,
                    progress=progress.update,
                )
            )  # fmt: skip

    found = comparing("diff", work)
    if found is None:
        return 2
    if arguments.csv:
        found.to_csv(arguments.csv)
    if arguments.html:
        found.to_html(arguments.html)
    if arguments.json:
        print_json(found.to_dict())
        return int(not found.equal)
    rows = [row for row in found.rows if row["status"] != "equal"]
    if rows:
        print_table(COLUMNS, rows[:SHOWN])
        if len(rows) > SHOWN:
            print_line(f"and {counted(len(rows) - SHOWN, 'tensor')} more, which --csv and --json list")
    for text in found.notes:
        note(text)
    names = f"{printable(arguments.file)} and {printable(arguments.other)}"
    wrong = sum(row["status"] not in ("equal", "layout") for row in found.rows)
    verdict = "equal values" if found.equal else f"{counted(wrong, 'tensor')} of {len(found.rows)} differ"
    print_line(f"{names}: {verdict}")
    return int(not found.equal)
