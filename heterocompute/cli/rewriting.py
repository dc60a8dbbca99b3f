"""What the commands share that write a checkpoint again: quantize, prune, dequantize."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ..base.magic import READABLE
from ..base.texts import counted
from ..report.numbers import quantity
from .parts import (
    ProgressBar,
    interruptible,
    note_instead,
    note_lacking,
    note_short,
    note_skipped,
    note_unloadable,
    print_json,
    say,
)

__all__ = ["CHECKPOINT", "IN_LAYOUT", "add_input_and_output", "rewrite", "summarize"]

CHECKPOINT = f"checkpoint: {READABLE}"
IN_LAYOUT = (
    "layout of the input: compressed-tensors, gptq, awq, bitsandbytes, fp8, modelopt, gpt-oss, mlx, bitnet or hqq"
)


def add_input_and_output(parser: argparse.ArgumentParser) -> None:
    """Add IN and OUT."""
    parser.add_argument("input", metavar="IN", help=CHECKPOINT)
    parser.add_argument("output", metavar="OUT", help="file to write (an existing file is replaced) or new folder")


def rewrite(arguments: argparse.Namespace, done: str, work: Callable[..., Any], change: Any, recipe: Any) -> int:
    """Write a checkpoint again with a change of the tensors that the arguments select, and say what came of it."""
    patterns = {"include": arguments.include, "exclude": arguments.exclude, "recipe": recipe, "needed": True}
    return summarize(arguments, done, lambda *paths, progress: work(*paths, change, progress=progress, **patterns))


def summarize(arguments: argparse.Namespace, done: str, work: Callable[..., Any]) -> int:
    """Run what writes a checkpoint again, and say what came of it."""
    note_unloadable(arguments)
    with ProgressBar(arguments.command, arguments.input) as progress:
        summary = interruptible(lambda: work(arguments.input, arguments.output, progress=progress.update))
    note_skipped(arguments.input, summary["skipped"])
    note_instead(arguments.output, summary)
    note_lacking(arguments)
    if done == "quantized" and not arguments.layout and not arguments.fake:
        note_short(arguments.output, summary)
    if arguments.json:
        return print_json(summary)
    n_changed = sum(row["format"] is not None for row in summary["tensors"])
    before, after = summary["bytes_before"], summary["bytes"]
    say(
        f"{arguments.output}: {counted(n_changed, 'tensor')} {done}, {len(summary['tensors']) - n_changed} "
        f"copied, {quantity(before, 'B')} -> {quantity(after, 'B')}" + (f" ({after / before:.1%})" if before else "")
    )
    return 0
