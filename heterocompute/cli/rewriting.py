"""Shared by the commands that rewrite a checkpoint: quantize, prune, dequantize."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ..base.errors import printable
from ..base.magic import READABLE
from ..base.rereading import CHECKS
from ..base.texts import counted
from ..base.workers import checked_workers
from ..formats.base import or_words
from ..report.numbers import quantity
from .parts import (
    ProgressBar,
    interruptible,
    note_instead,
    note_lacking,
    note_short,
    note_skipped,
    note_tables,
    note_unloadable,
    print_json,
    say,
)

__all__ = [
    "CHECKPOINT",
    "IN_LAYOUT",
    "add_check",
    "add_files",
    "add_input_and_output",
    "add_layout",
    "add_workers",
    "options_of_files",
    "rewrite",
    "summarize",
]

CHECKPOINT = f"checkpoint: {READABLE}"
IN_LAYOUT = "layout of the input: %(layouts)s"


class _Names:
    """The names of layouts in a help text; their table is imported when the help is shown."""

    def __init__(self, table: str) -> None:
        self._table = table

    def __str__(self) -> str:
        from ..files.layouts import table  # 18 ms

        return or_words(getattr(table, self._table))


class _LayoutOption(argparse.Action):
    """An option for a layout, with their names as ``%(layouts)s`` of its help."""

    def __init__(self, *names: Any, table: str, **options: Any) -> None:
        super().__init__(*names, **options)
        self.layouts = _Names(table)

    def __call__(self, parser: Any, namespace: argparse.Namespace, value: Any, option: str | None = None) -> None:
        setattr(namespace, self.dest, value)


def add_layout(parser: argparse.ArgumentParser, option: str, words: str, table: str = "READ", **more: Any) -> None:
    """Add an option for a layout whose names are those of a table of `layouts.table`."""
    parser.add_argument(option, action=_LayoutOption, table=table, metavar="L", help=words, **more)


def add_input_and_output(parser: argparse.ArgumentParser) -> None:
    """Add IN and OUT."""
    parser.add_argument("input", metavar="IN", help=CHECKPOINT)
    parser.add_argument("output", metavar="OUT", help="file to write (an existing file is replaced) or new folder")


def add_workers(parser: argparse.ArgumentParser, words: str) -> None:
    """Add --workers."""
    parser.add_argument(
        "--workers",
        type=_one_workers,
        metavar="W",
        help=f"{words}: a number, dask:tcp://HOST:8786 or ray:ADDRESS; default: 1",
    )


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add the options for the workers and the output files of a checkpoint."""
    add_workers(parser, "who writes the files of a folder")
    parser.add_argument(
        "--shard-size",
        default="5GB",
        type=_one_size,
        metavar="S",
        help="maximum size of a file in a folder: 5GB (default), 4GiB, ...",
    )
    parser.add_argument(
        "--no-resume", dest="resume", action="store_false", help="rebuild the files that an earlier run has finished"
    )
    parser.add_argument(
        "--part",
        type=_one_part,
        metavar="K/N",
        help="write part K of N alone; heterocompute finish OUT makes the output of all parts",
    )
    add_check(parser)


def options_of_files(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the options of `add_files`."""
    return {key: getattr(arguments, key) for key in ("workers", "resume", "shard_size", "part", "check")}


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add --check."""
    parser.add_argument(
        "--check",
        choices=CHECKS,
        default="sample",
        help="what of IN is changed a second time and compared with OUT before OUT gets its name: sample (default, one "
        "tensor of each kind and a sixteenth of the bytes), all or none; a difference ends with exit code 1",
    )


def _one_workers(text: str) -> Any:
    try:
        return checked_workers(text, "--workers")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("--workers: ")) from None


def _one_part(text: str) -> str:
    from ..files.work import part_of  # 18 ms

    try:
        part_of(text, "--part")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("--part: ")) from None
    return text


def say_part(arguments: argparse.Namespace, summary: dict[str, Any]) -> bool:
    """Print that a part is written and how to join all parts; return False if everything is written."""
    if "part" not in summary:
        return False
    output = printable(arguments.output)
    say(f"{output}.partial: part {summary['part']} written; when all parts are, run: heterocompute finish {output}")
    return True


def _one_size(text: str) -> int:
    """Return the bytes of an argument such as 5GB."""
    from ..files.work import size_of  # 18 ms

    try:
        return size_of(text) or 0
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def rewrite(arguments: argparse.Namespace, done: str, work: Callable[..., Any], change: Any, recipe: Any) -> int:
    """Rewrite a checkpoint with the selected tensors changed, and print a summary."""
    patterns = {"include": arguments.include, "exclude": arguments.exclude, "recipe": recipe, "needed": True}
    return summarize(arguments, done, lambda *paths, progress: work(*paths, change, progress=progress, **patterns))


def summarize(arguments: argparse.Namespace, done: str, work: Callable[..., Any]) -> int:
    """Run a function that rewrites a checkpoint, and print its summary."""
    note_unloadable(arguments)
    with ProgressBar(arguments.command, arguments.input) as progress:
        summary = interruptible(lambda: work(arguments.input, arguments.output, progress=progress.update))
    note_skipped(arguments.input, summary["skipped"])
    note_instead(arguments.output, summary)
    if "part" not in summary:
        note_lacking(arguments)
    if done == "quantized":
        note_tables(arguments, summary)
    if done == "quantized" and not getattr(arguments, "layout", None) and not getattr(arguments, "fake", False):
        note_short(arguments.output, summary)
    if arguments.json:
        return print_json(summary)
    if say_part(arguments, summary):
        return 0
    n_changed = sum(row["format"] is not None for row in summary["tensors"])
    before, after = summary["bytes_before"], summary["bytes"]
    say(
        f"{arguments.output}: {counted(n_changed, 'tensor')} {done}, {len(summary['tensors']) - n_changed} "
        f"copied, {quantity(before, 'B')} -> {quantity(after, 'B')}" + (f" ({after / before:.1%})" if before else "")
    )
    return 0
