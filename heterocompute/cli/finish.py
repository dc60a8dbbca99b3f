"""`heterocompute finish`: joins the parts of a checkpoint that several runs have written."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ..base.errors import printable
from ..base.texts import counted
from ..report.numbers import quantity
from .parts import interruptible, print_json, print_line


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    added = command(
        "finish",
        run,
        "Finish a checkpoint that several runs have written with --part. Checksums are compared, the index is written, "
        "and the folder gets its name.",
        "finish small-folder",
    )
    added.add_argument("output", metavar="OUT", help="output of the runs with --part")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from ..files.finish import finish_checkpoint  # 18 ms

    summary = interruptible(lambda: finish_checkpoint(arguments.output))
    if arguments.json:
        return print_json(summary)
    files, parts = counted(len(summary["files"]), "file"), counted(summary["parts"], "part")
    print_line(f"{printable(arguments.output)}: {files} of {parts}, {quantity(summary['bytes'], 'B')}")
    return 0
