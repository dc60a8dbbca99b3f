"""`heterocompute quantize`: a checkpoint in a number format, one tensor in memory at a time."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from .options import Options
from .parts import UsageError, add_axis, add_format, add_patterns, add_threads
from .rewriting import add_files, add_input_and_output, add_layout, imply_layout, rewrite


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    added = command(
        "quantize",
        run,
        "Quantize a checkpoint, one tensor in memory at a time. The output is safetensors, or the layout of --layout.",
        "quantize model.safetensors small.safetensors --format vsq4-g16-s4 --exclude '*embeddings*'",
        "quantize model.safetensors rounded.safetensors --format int4-g32 --fake",
        "quantize folder-of-parts small-folder --format int4-g32 --workers 2 --consume",
        "quantize model-folder small-folder --format int4-g128-asym-f16 --layout gptq",
        "quantize model-folder small.gguf --format iq2_xs --importance imatrix.gguf",
    )
    add = Options(added, "files.checkpoint:quantize_checkpoint")
    add_input_and_output(add)
    add_format(added, "format of all selected tensors; f32, f16 and bf16 are plain tensors", _one_type)
    add("--fake", None, "write the rounded values as plain tensors instead of codes")
    add_layout(
        add,
        "--layout",
        "layout of another program: %(layouts)s; default: that of OUT's ending, such as .gguf",
        "QUANTIZED_TO",
    )
    add("--no-fallback", None, "with --layout gguf: fail if rows are not whole blocks, instead of another type")
    add(
        "--importance",
        "FILE",
        "with --layout gguf: importance matrix of llama-imatrix, which types such as iq2_xs need",
    )
    add_axis(added)
    add("--requantize")
    add_patterns(added)
    add_files(add)
    add("--consume", None, "delete each file of the folder IN after it has been quantized")
    add_threads(added)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    if arguments.format is None and arguments.recipe is None:
        raise UsageError("--format or --recipe is needed")
    if not arguments.fake:
        imply_layout(arguments)
    from ..files.checkpoint import quantize_checkpoint  # 18 ms

    return rewrite(arguments, "quantized", quantize_checkpoint, _one_type)


def _one_type(text: str) -> Any:
    """Return the format or the plain type of an argument."""
    from ..files.layouts.gguf.searched import parse_searched  # 18 ms

    return parse_searched(text)
