"""`heterocompute finish`: joins the parts of a checkpoint that several runs have written."""

from __future__ import annotations

import argparse
import os
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
    added.add_argument(
        "--statement", action="store_true", help="write the statement that the runs with --part --statement began"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from ..files.finish import finish_checkpoint  # 18 ms

    begun = None
    if arguments.statement:
        from ..proof import statement as statements  # 60 ms

        place = arguments.output.rstrip(os.sep) + statements.BEGUN
        if not os.path.exists(place):
            raise ValueError(
                f"{printable(place)}: does not exist: expected that the parts were written with --statement"
            )
        begun = statements.read_statement(place, begun=True)
    summary = interruptible(lambda: finish_checkpoint(arguments.output))
    if begun is not None:
        statements.write_statement(begun, arguments.output)
        os.unlink(place)
    if arguments.json:
        return print_json(summary)
    files, parts = counted(len(summary["files"]), "file"), counted(summary["parts"], "part")
    print_line(f"{printable(arguments.output)}: {files} of {parts}, {quantity(summary['bytes'], 'B')}")
    return 0
