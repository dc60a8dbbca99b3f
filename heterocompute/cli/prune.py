"""`heterocompute prune`: a checkpoint with fewer nonzeros, one tensor in memory at a time."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from .options import Options
from .parts import UsageError, add_axis, add_patterns, add_threads
from .rewriting import add_files, add_input_and_output, rewrite


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    added = command(
        "prune",
        run,
        "Prune a checkpoint, one tensor in memory at a time. N:M tensors are stored packed. P% (of each row), "
        "global:P% (of each tensor, not of the file) and block:RxC:P% (of the blocks of a tensor) give plain "
        "tensors with zeros.",
        "prune model.safetensors sparse.safetensors --pattern 2:4 --exclude '*embeddings*'",
        "prune model.safetensors zeros.safetensors --pattern block:16x1:50%",
    )
    add = Options(added, "files.checkpoint:prune_checkpoint")
    add_input_and_output(add)
    words = "pattern of all selected tensors: 2:4, 50%%, global:50%%, block:16x1:50%%, ..."
    add("--pattern", "PATTERN", words, parse=_one_pattern)
    add_axis(added)
    add_patterns(added)
    add_files(add)
    add_threads(added)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    if arguments.pattern is None and arguments.recipe is None:
        raise UsageError("--pattern or --recipe is needed")
    from ..files.checkpoint import prune_checkpoint  # 18 ms
    from ..files.recipes import parse_pattern_text  # 18 ms

    return rewrite(arguments, "pruned", prune_checkpoint, parse_pattern_text)


def _one_pattern(text: str) -> Any:
    from ..files.recipes import parse_pattern_text  # 18 ms

    return parse_pattern_text(text, formats=False)
