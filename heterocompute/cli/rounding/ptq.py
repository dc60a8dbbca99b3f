"""`heterocompute ptq`: a checkpoint rounded for the inputs of its layers."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from ...base.errors import printable, shown
from ...base.texts import counted, is_same_file, one_line
from ...report.table import Column
from ..options import Options, options_of
from ..parts import (
    ProgressBar,
    UsageError,
    add_format,
    add_patterns,
    add_threads,
    interruptible,
    note_lacking,
    note_unloadable,
    print_json,
    print_line,
    print_table,
    recipe_of,
)
from ..rewriting import add_check, add_input_and_output, add_statement, add_workers, stated

COLUMNS = (
    Column("name", "tensor"),
    Column("format", "format", left=True),
    Column("tokens", "inputs", leaves=2),
    Column("damping", "damping", "{:g}".format, leaves=3),
    Column("dead", "dead", leaves=4),
    Column("before", "output dB, nearest", "{:.2f}".format),
    Column("after", "output dB", "{:.2f}".format),
)


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    ptq = command(
        "ptq",
        run,
        "Quantize a checkpoint with calibration, so that the outputs of its layers change least. Calibration data are "
        "inputs of the layers, or a function that runs the network. One layer is in memory at a time. An interrupted "
        "run resumes.",
        "ptq model.safetensors small.safetensors --format int4-g32 --inputs inputs.npz",
        "ptq model.safetensors small.safetensors --format int4-g32 --inputs my_model:run",
        "ptq model.safetensors small.safetensors --format int3-g32 --method qronos --inputs my_model:run",
        "ptq model-folder gptq-folder --format int4-g128-f16 --layout gptq --inputs my_model:run",
    )
    add = Options(ptq, "ptq.streaming:quantize_streamed")
    add_input_and_output(add)
    add_format(ptq, "format of all selected tensors")
    add("--inputs", "C", "x.npz with an array (inputs, features) per tensor name; or module:function, called with "
        "the weights")  # fmt: skip
    add("--no-resume", None, "recompute the layers that an earlier run has finished")
    add("--sequential", None, "calibrate each layer with the preceding layers already rounded")
    add("--method", None, "rounding method", choices=("gptq", "qronos", "search", "rtn"))
    add("--shrinkage", "S", type=float)
    add("--layout", "L", "layout of another program: compressed-tensors, gptq, awq, ...")
    add_patterns(ptq)
    add_workers(add, "who rounds the layers")
    add_check(add)
    add_statement(add)
    add_threads(ptq)
    add.common("--csv")
    add("--html", "PATH", "also write one page with the table and a plot")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    if arguments.format is None and arguments.recipe is None:
        raise UsageError("--format or --recipe is needed")
    if arguments.inputs is None:
        raise UsageError("--inputs is needed: x.npz or module:function")
    if is_same_file(arguments.input, arguments.output):
        raise UsageError(f"{printable(arguments.output)}: is the input itself")
    from ...ptq.streaming import quantize_streamed  # 40 ms

    formats: dict[str, Any] = recipe_of(arguments.recipe) or {}
    if arguments.format is not None:
        formats = {**formats, "*": formats.get("*", arguments.format)}
    text = arguments.inputs
    options = options_of(quantize_streamed, arguments) | {"formats": formats, "known_as": text}

    def work() -> Any:
        if names_function(text):
            options["inputs"] = function_of(text, "--inputs")
        return quantize_streamed(arguments.input, arguments.output, progress=progress.update, **options)

    note_unloadable(arguments)
    with ProgressBar("ptq", arguments.input) as progress, stated(arguments, formats):
        found = interruptible(work)
    if arguments.csv:
        found.to_csv(arguments.csv)
    if arguments.html:
        found.to_html(arguments.html, title=f"Rounding of {printable(os.path.basename(arguments.input))}")
    note_lacking(arguments)
    if arguments.json:
        return print_json({"output": arguments.output, "tensors": found.table, "left": found.left})
    print_table(COLUMNS, found.table)
    if found.left:
        print_line(f"left as they are, since nothing was multiplied with them: {', '.join(map(printable, found.left))}")
    print_line(f"{printable(arguments.output)}: {counted(len(found.table), 'tensor')} quantized")
    return 0


def names_function(text: str) -> bool:
    """Tell whether a text is ``module:function`` and not a file."""
    return ":" in text and not os.path.exists(text)


def function_of(text: str, option: str) -> Callable[[Any], Any]:
    """Return a function of the user's that runs the network.

    Parameters
    ----------
    text : str
        ``module:function``.
    option : str
        What named it.

    Returns
    -------
    callable
        It gets the weights.
    """
    if not names_function(text):
        raise ValueError(f"{option} {printable(text)}: expected module:function")
    module, _, function = text.partition(":")
    sys.path.insert(0, os.getcwd())  # for an installed command sys.path[0] is its own folder
    try:
        found = getattr(importlib.import_module(module), function)
        if not callable(found):
            raise ValueError(f"{function} is {shown(found)}, expected a function")
        return found  # type: ignore[no-any-return]
    except (ImportError, AttributeError, ValueError) as problem:
        raise ValueError(f"{option} {printable(text)}: {one_line(str(problem))}") from None
    finally:
        sys.path.pop(0)
