"""Shared by the commands that rewrite a checkpoint: quantize, prune, dequantize."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..base.errors import printable
from ..base.locations import is_url
from ..base.magic import READABLE, layout_of_ending
from ..base.rereading import CHECKS
from ..base.texts import counted
from ..base.workers import checked_workers
from ..formats import format as parse_format
from ..formats.base import or_words
from ..report.numbers import quantity
from .options import Options, options_of
from .parts import (
    ProgressBar,
    UsageError,
    interruptible,
    note_instead,
    note_lacking,
    note_plain,
    note_short,
    note_skipped,
    note_unloadable,
    print_json,
    print_line,
    recipe_of,
)

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

    def __call__(self, parser: object, namespace: argparse.Namespace, value: object, option: str | None = None) -> None:
        setattr(namespace, self.dest, value)


def add_layout(add: Options, option: str, words: str, table: str = "READ", **more: object) -> None:
    """Add an option for a layout whose names are those of a table of `layouts.table`."""
    add(option, "L", words, action=_LayoutOption, table=table, **more)


def add_input_and_output(add: Options, source: str = CHECKPOINT, wanted: str = "new file, or new folder") -> None:
    """Add IN, OUT and --overwrite."""
    add("input", "IN", source)
    add("output", "OUT", wanted)
    add("--overwrite", None, "replace OUT if it is an existing file")


def imply_layout(arguments: argparse.Namespace) -> None:
    """Choose the layout of a kind of file, such as gguf, by the ending of OUT if no layout is given."""
    if arguments.layout is None:
        arguments.layout = layout_of_ending(arguments.output)


def add_workers(add: Options, words: str) -> None:
    """Add --workers."""
    add(
        "--workers",
        "W",
        f"{words}: a number, dask:tcp://HOST:8786 or ray:ADDRESS; default: 1",
        parse=lambda text: checked_workers(text, "--workers"),
    )


def add_files(add: Options, statement: bool = True) -> None:
    """Add the options for the workers and the output files of a checkpoint."""
    add_workers(add, "who writes the files of a folder")
    add("--shard-size", "S", "maximum size of a file in a folder, such as 4GiB", parse="files.work:size_of")
    add("--no-resume", None, "rebuild the files that an earlier run has finished")
    add("--part", "K/N", "write part K of N alone; heterocompute finish OUT makes the output of all parts", parse=_part)
    add_check(add)
    if statement:
        add_statement(add)


def add_statement(add: Options) -> None:
    """Add --statement."""
    add("--statement", None, "write a statement of the files and the options next to OUT, for heterocompute verify")


@contextmanager
def stated(arguments: argparse.Namespace, recipe: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Write the statement of --statement after the ``with`` block, which writes the output.

    Parameters
    ----------
    arguments : argparse.Namespace
    recipe : mapping of str to Any, optional
        Pattern -> format.
    """
    if not getattr(arguments, "statement", False):
        yield
        return
    from ..files.shards import write_whole  # 18 ms
    from ..proof import statement as statements  # 60 ms

    if is_url(arguments.output):
        raise UsageError("--statement needs an OUT on this machine")
    hashing = statements.Hashing(arguments.input)
    if getattr(arguments, "consume", False):
        hashing.result()
    calibration: dict[str, str] | None = None
    if arguments.command == "ptq":
        is_file = os.path.exists(arguments.inputs)
        calibration = statements.tensor_digests(arguments.inputs) if is_file else {}
    yield
    begun = statements.begin_statement(hashing.result(), arguments.command, vars(arguments), recipe, calibration)
    if getattr(arguments, "part", None) is not None:
        write_whole(arguments.output.rstrip(os.sep) + statements.BEGUN, begun.text())
    else:
        statements.write_statement(begun, arguments.output)


def add_check(add: Options) -> None:
    """Add --check."""
    add(
        "--check",
        None,
        "what of IN is changed a second time and compared with OUT before OUT gets its name: sample (default, one "
        "tensor of each kind and a sixteenth of the bytes), all or none; a difference ends with exit code 1",
        choices=CHECKS,
    )


def _part(text: str) -> str:
    from ..files.work import part_of  # 18 ms

    part_of(text, "--part")
    return text


def print_part(arguments: argparse.Namespace, summary: dict[str, Any]) -> bool:
    """Print that a part is written and how to join all parts; return False if everything is written."""
    if "part" not in summary:
        return False
    output = printable(arguments.output)
    print_line(
        f"{output}.partial: part {summary['part']} written; when all parts are, run: heterocompute finish {output}"
    )
    return True


def rewrite(
    arguments: argparse.Namespace, done: str, work: Callable[..., Any], parse: Callable[[str], Any] = parse_format
) -> int:
    """Rewrite a checkpoint by a function with the options of the command, and print a summary.

    Parameters
    ----------
    done : str
        Participle for the summary, such as ``"pruned"``.
    work : callable
        Its parameters are the input, the output, `progress`, `needed`, and options of the command.
    parse : callable
        Converts each value of a recipe.
    """
    note_unloadable(arguments)
    options = options_of(work, arguments)
    if "recipe" in options:
        options["recipe"] = recipe_of(arguments.recipe, parse)
    with ProgressBar(arguments.command, arguments.input) as progress, stated(arguments, options.get("recipe")):
        options |= {"progress": progress.update, "needed": True}
        summary = interruptible(lambda: work(arguments.input, arguments.output, **options))
    note_skipped(arguments.input, summary["skipped"])
    note_instead(arguments.output, summary)
    if "part" not in summary:
        note_lacking(arguments)
    if done == "quantized":
        note_plain(arguments, summary)
    if done == "quantized" and not getattr(arguments, "layout", None) and not getattr(arguments, "fake", False):
        note_short(arguments.output, summary)
    if arguments.json:
        return print_json(summary)
    if print_part(arguments, summary):
        return 0
    n_changed = sum(row["format"] is not None for row in summary["tensors"])
    before, after = summary["bytes_before"], summary["bytes"]
    print_line(
        f"{arguments.output}: {counted(n_changed, 'tensor')} {done}, {len(summary['tensors']) - n_changed} "
        f"copied, {quantity(before, 'B')} -> {quantity(after, 'B')}" + (f" ({after / before:.1%})" if before else "")
    )
    return 0
