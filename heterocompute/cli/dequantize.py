"""`heterocompute dequantize`: the packed tensors of a checkpoint as plain ones."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable

from .parts import add_threads
from .rewriting import IN_LAYOUT, add_files, add_input_and_output, add_layout, options_of_files, summarize

__all__ = ["register"]


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    added = command(
        "dequantize",
        run,
        "Convert the packed tensors of a checkpoint to plain tensors, which any framework can load.",
        "dequantize small.safetensors plain.safetensors --dtype bf16",
        "dequantize gptq-model plain-model --layout gptq --dtype bf16",
    )
    add_input_and_output(added)
    added.add_argument(
        "--dtype",
        type=_one_dtype,
        metavar="DTYPE",
        help="fp32, fp16, bf16 or fp64; default: the dtype before packing",
    )
    add_layout(added, "--layout", f"{IN_LAYOUT}; default: read from its configuration")
    add_files(added)
    add_threads(added)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from ..files.checkpoint import dequantize_checkpoint  # 18 ms

    return summarize(
        arguments,
        "dequantized",
        functools.partial(
            dequantize_checkpoint,
            dtype=arguments.dtype,
            layout=arguments.layout,
            needed=True,
            **options_of_files(arguments),
        ),
    )


def _one_dtype(text: str) -> str:
    from ..files.plain import plain_dtype  # 18 ms

    try:
        return plain_dtype(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
