"""`heterocompute vectors`: golden vectors of a format for RTL and firmware."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ...base.errors import printable
from ...base.texts import counted
from ...formats import format as parse_format
from ...report.table import Column
from ..options import Options
from ..parts import UsageError, interruptible, print_json, print_line, print_table

COLUMNS = (
    Column("kind", "table"),
    Column("rows", "rows"),
    Column("columns", "columns: bits x words", lambda columns: ", ".join(
        f"{name} {one['bits']}x{one['count']}" for name, one in columns.items()), left=True),
)  # fmt: skip


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    added = command(
        "vectors",
        run,
        "Write golden vectors of a number format for tests of RTL and firmware: codes, casts, scales, dot products, "
        "stochastic rounding, N:M rows. Each table is JSON, hexadecimal text, a C header and $readmemh files. Equal "
        "options give equal bytes.",
        "vectors fp8_e4m3fn e4m3-vectors",
        "vectors int8 int8-vectors --kinds dots --length 64 --accumulators int24-sat,int16-wrap",
    )
    add = Options(added, "proof.vectors:vectors")
    add("format", "FORMAT", "number format, such as mxfp4")
    add("output", "OUT", "new folder")
    add("--seed", "SEED", type=int)
    add("--kinds", "KINDS", "tables: codes,casts,scales,dots,stochastic,nm; default: all that the format has")
    add("--count", "N", type=int)
    add("--length", "K", type=int)
    add("--accumulators", "A", "emulations such as int24-sat,hmma-h100; default: those that multiply the elements",
        default=None)  # fmt: skip
    add("--pattern", "N:M")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from ...proof.vectors import vectors  # 60 ms

    try:
        fmt = parse_format(arguments.format)
    except ValueError as error:
        raise UsageError(str(error)) from None
    listed = {key: getattr(arguments, key).split(",") for key in ("kinds", "accumulators") if getattr(arguments, key)}
    manifest = interruptible(
        lambda: vectors(
            fmt, arguments.output, arguments.seed, count=arguments.count, length=arguments.length,
            pattern=arguments.pattern, **listed,
        )
    )  # fmt: skip
    if arguments.json:
        return print_json(manifest)
    print_table(COLUMNS, [{"kind": kind, **one} for kind, one in manifest["kinds"].items()])
    files = sum(len(one["files"]) for one in manifest["kinds"].values())
    print_line(f"{printable(arguments.output)}: {counted(files, 'file')} and manifest.json")
    return 0
