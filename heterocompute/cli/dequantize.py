"""`heterocompute dequantize`: the packed tensors of a checkpoint as plain ones."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from .options import Options
from .parts import add_threads
from .rewriting import IN_LAYOUT, add_files, add_input_and_output, add_layout, rewrite


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    added = command(
        "dequantize",
        run,
        "Convert the packed tensors of a checkpoint to plain tensors, which any framework can load.",
        "dequantize small.safetensors plain.safetensors --dtype bf16",
        "dequantize gptq-model plain-model --layout gptq --dtype bf16",
    )
    add = Options(added, "files.checkpoint:dequantize_checkpoint")
    add_input_and_output(add)
    words = "fp32, fp16, bf16 or fp64; default: the dtype before packing"
    add("--dtype", "DTYPE", words, parse="files.plain:plain_dtype")
    add_layout(add, "--layout", f"{IN_LAYOUT}; default: read from its configuration")
    add_files(add, statement=False)
    add_threads(added)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from ..files.checkpoint import dequantize_checkpoint  # 18 ms

    return rewrite(arguments, "dequantized", dequantize_checkpoint)
