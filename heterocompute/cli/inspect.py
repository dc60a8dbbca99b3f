"""`heterocompute inspect`: the tensors of a checkpoint."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ..base.texts import counted
from ..report.numbers import quantity
from ..report.table import Column
from .options import Options
from .parts import (
    ProgressBar,
    add_threads,
    interruptible,
    note_skipped,
    print_json,
    print_line,
    print_table,
    print_words,
)
from .rewriting import CHECKPOINT, IN_LAYOUT, add_layout


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    added = command(
        "inspect",
        run,
        "List the tensors of a checkpoint: formats, bytes, ranges, NaN.",
        "inspect model.safetensors",
    )
    add = Options(added, "files.checkpoint:inspect")
    add("file", "FILE", CHECKPOINT)
    add_layout(add, "--layout", IN_LAYOUT)
    add_threads(added)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from ..files.checkpoint import inspect  # 18 ms
    from ..files.layouts.table import layout_said  # 18 ms
    from ..files.opening import reader_of  # 18 ms

    with ProgressBar("inspect", arguments.file) as progress:
        rows = interruptible(lambda: inspect(arguments.file, progress.update, arguments.layout))
    with reader_of(arguments.file) as reader:
        said = layout_said(reader) if arguments.layout is None else None
    note_skipped(arguments.file, reader.skipped)
    if arguments.json:
        return print_json({"tensors": rows})
    columns = [
        Column("name", "tensor"),
        Column("dtype", "dtype", leaves=3, left=True),
        Column("shape", "shape", lambda shape: " x ".join(map(str, shape)) or "()"),
        Column("format", "format", lambda text: text or "-", left=True),
        Column("bytes", "bytes", "{:,}".format, leaves=2),
        Column("min", "min", _number, leaves=4),
        Column("max", "max", _number, leaves=4),
        Column("nan", "NaN", leaves=1),
    ]
    print_table(columns, rows)
    for text, definition in {row["format"]: row["definition"] for row in rows if "definition" in row}.items():
        if "name" in definition or isinstance(definition["element"], dict):  # other texts say it themselves
            print_words(f"{text}: {_parts(definition)}")
    print_line(f"{counted(len(rows), 'tensor')}, {quantity(sum(row['bytes'] for row in rows), 'B')}")
    if said is not None:
        print_words(f"These tensors stand for weights in the layout {said}: --layout {said} lists them")
    return 0


def _parts(definition: dict[str, Any]) -> str:
    element, *others = [(key, value) for key, value in definition.items() if key != "name"]
    if isinstance(element[1], dict):
        levels = element[1]["levels"]
        element = ("element", f"{len(levels)} levels from {levels[0]:.5g} to {levels[-1]:.5g}")
    return ", ".join(f"{key} {value}" for key, value in (element, *others))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
