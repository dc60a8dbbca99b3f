"""`heterocompute convert`: a quantized checkpoint in the layout of another program, with the same values."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ..base.errors import shown
from ..base.texts import counted
from ..report.numbers import quantity
from ..report.table import Column
from .options import Options, options_of
from .parts import (
    ProgressBar,
    UsageError,
    add_threads,
    interruptible,
    note,
    note_lacking,
    note_otherwise,
    note_skipped,
    note_tensors_alone,
    print_json,
    print_line,
    print_table,
)
from .rewriting import IN_LAYOUT, add_files, add_input_and_output, add_layout, imply_layout, print_part, stated


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    added = command(
        "convert",
        run,
        "Convert a quantized checkpoint to the layout of another program, with exactly equal values. Both checkpoints "
        "are decoded and compared. Without --lossy, nothing is written if a weight is not representable.",
        "convert gptq-model awq-model --layout awq",
        "convert model.gguf model --layout compressed-tensors --lossy int4-g32-asym-f16",
    )
    add = Options(added, "files.convert:convert_checkpoint")
    add_input_and_output(add)
    add_layout(
        add,
        "--layout",
        "layout of OUT (needed if its ending names none): heterocompute, %(layouts)s",
        "WRITTEN",
    )
    add_layout(add, "--from", f"{IN_LAYOUT}; default: read from IN", dest="source")
    add("--lossy", "F", "format to round the weights to that are not representable, such as int4-g32-asym-f16; f32, "
        "f16 and bf16 are plain tensors")  # fmt: skip
    add("--dry-run")
    add_files(add)
    add_threads(added)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    imply_layout(arguments)
    if arguments.layout is None:
        raise UsageError(
            f"the ending of {arguments.output} names no layout: expected --layout L, such as compressed-tensors for a "
            "folder that transformers loads, or an OUT that ends in .gguf or .onnx"
        )
    from ..files.convert import NotRepresentable, convert_checkpoint  # 18 ms

    options = options_of(convert_checkpoint, arguments)
    message = ""
    with ProgressBar(arguments.command, arguments.input) as progress:
        try:
            with nullcontext() if arguments.dry_run else stated(arguments):
                summary = interruptible(
                    lambda: convert_checkpoint(arguments.input, arguments.output, progress=progress.update, **options)
                )
        except NotRepresentable as error:
            summary = error.summary
            message = str(error).replace(f"lossy={shown(error.nearest)}", f"--lossy {error.nearest}")
    refused = any(row["status"] == "not representable" for row in summary["tensors"])
    note_skipped(arguments.input, summary["skipped"])
    if summary["written"] and "part" not in summary:
        note_lacking(arguments, "unloadable" in summary, summary.get("tokenizer"))
        note_tensors_alone(arguments.output, summary.get("unloadable"))
        note_otherwise(arguments.output, summary.get("notes", ()))
    if arguments.json:
        print_json(summary)
    else:
        _show(arguments, summary)
    if message:
        note(f"heterocompute convert: {message}")
    return int(refused)


def _show(arguments: argparse.Namespace, summary: dict[str, Any]) -> None:
    rows = [row for row in summary["tensors"] if row["status"] != "copied"]
    columns = [
        Column("name", "tensor"),
        Column("shape", "shape", lambda shape: " x ".join(map(str, shape)) or "()", leaves=2),
        Column("from", "from", left=True),
        Column("to", "to", lambda text: text or "-", left=True),
        Column("status", "values", left=True),
    ]
    if any(row["sqnr_db"] is not None for row in rows):
        columns.append(Column("sqnr_db", "SQNR (dB)", lambda x: "-" if x is None else f"{x:.1f}"))
    if any(row["why"] for row in rows):
        columns += [
            Column("why", "why", lambda text: text or "-", leaves=1, left=True),
            Column("nearest", "nearest", lambda text: text or "-", leaves=3, left=True),
        ]
    print_table(columns, rows)
    counts = {status: 0 for status in ("equal", "closed form", "lossy", "not representable", "copied")}
    for row in summary["tensors"]:
        counts[row["status"]] += 1
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    if not summary["written"]:
        print_line(f"{counted(len(summary['tensors']), 'tensor')}: {said}; nothing is written")
        return
    if print_part(arguments, summary):
        return
    before, after = summary["bytes_before"], summary["bytes"]
    sizes = f"{quantity(before, 'B')} -> {quantity(after, 'B')}"
    print_line(f"{arguments.output}: {counted(len(summary['tensors']), 'tensor')}: {said}, {sizes}")
