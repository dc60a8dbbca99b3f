"""`heterocompute convert-model`: the smallest recipe of a ladder that is good enough."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from ...base.errors import printable, shown
from ...base.texts import is_same_file
from ...report.numbers import quantity
from ...report.table import Column
from ..options import Options
from ..parts import (
    ProgressBar,
    UsageError,
    add_selection,
    add_threads,
    interruptible,
    note,
    one_format,
    print_json,
    print_line,
    print_table,
)
from ..rewriting import add_input_and_output
from ..study import held_in
from .ptq import function_of

COLUMNS = (
    Column("recipe", "recipe", left=True),
    Column("bytes", "size", lambda value: quantity(value, unit="B")),
    Column("ms", "ms", lambda value: "" if value is None else f"{value:.3g}", leaves=2),
    Column("score", "score", lambda value: "" if value is None else f"{value:.6g}"),
    Column("passed", "passed", lambda value: {None: "", True: "yes", False: "no"}[value]),
)


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = command(
        "convert-model",
        run,
        "Write the smallest rounding of a checkpoint that is good enough. A function of yours scores the weights. The "
        "formats are searched by bisection. If none is good enough, nothing is written and the exit code is 1. The "
        "whole model is held in memory.",
        "convert-model model.safetensors small.safetensors --ladder int3-g32,int4-g32,int8 --evaluate my_model:score "
        "--at-least 0.99",
        "convert-model model.safetensors small.safetensors --ladder int3-g32/qronos,int4-g32/gptq,int8/rtn --evaluate "
        "my_model:score --at-least 0.99 --inputs my_model:run --mix --html gate.html",
    )
    add = Options(parser, "ptq.gate:accept")
    add_input_and_output(add, "checkpoint: safetensors, .npz, ...", "new file")
    add("--ladder", "A,B", "formats, each perhaps with its method: int4-g32/qronos", type=_steps)
    add("--evaluate", "M:F", "module:function, called with the weights; returns a score, the higher the better")
    add("--at-least", "S", type=float)
    add("--inputs", "M:F", "module:function that runs the network with the weights")
    add("--method", None, "method of steps without one; default: gptq with --inputs, else rtn",
        choices=("gptq", "qronos", "search", "rtn"))  # fmt: skip
    add("--evaluations", "N", "maximum number of evaluations", type=int)
    add("--shrinkage", "S", type=float)
    add("--mix", None, "then also try mixtures of the best recipe that fails with the answer")
    add("--keep", "PATH", "file of results: scores are added to it, and those in it are not computed again, so an "
        "interrupted command continues")  # fmt: skip
    add("--save", "PATH", "also write the result as JSON, for hc.ptq.Gate.load",
        parse="report.results.saved:saved_path")  # fmt: skip
    add_selection(parser)
    add_threads(parser)
    add.common("--csv")
    add("--html", "PATH", "also write one page with the scores against bytes and milliseconds")


def run(arguments: argparse.Namespace) -> int:
    """Run the command.

    Returns
    -------
    int
        1 if no recipe is good enough.
    """
    for name in ("ladder", "evaluate", "at_least"):
        if getattr(arguments, name) is None:
            raise UsageError(f"--{name.replace('_', '-')} is needed")
    if is_same_file(arguments.input, arguments.output):
        raise UsageError(f"{printable(arguments.output)}: is the input itself")
    from ...files.safetensors import save  # 18 ms
    from ...ptq.gate import accept  # 40 ms

    def work() -> Any:
        weights = held_in(arguments.input)
        if not isinstance(weights, dict):
            raise ValueError(f"{printable(arguments.input)}: holds one array, expected a checkpoint")
        run = None if arguments.inputs is None else function_of(arguments.inputs, "--inputs")
        return accept(
            weights, arguments.ladder, function_of(arguments.evaluate, "--evaluate"), arguments.at_least, run,
            arguments.method, arguments.evaluations, arguments.include or None, arguments.exclude or None,
            arguments.mix, 0.0 if arguments.shrinkage is None else arguments.shrinkage,
            progress.update, arguments.keep,
        )  # fmt: skip

    with ProgressBar("convert-model", arguments.input) as progress:
        weights, gate = interruptible(work)
    if arguments.save:
        gate.save(arguments.save)
    if gate.passed:
        save(arguments.output, weights)
    if arguments.csv:
        gate.to_csv(arguments.csv)
    if arguments.html:
        gate.to_html(arguments.html, title=f"The smallest {printable(os.path.basename(arguments.input))}")
    if arguments.json:
        found = {"output": arguments.output if gate.passed else None, "recipe": gate.recipe, "score": gate.score}
        print_json(found | {"layers": gate.layers, "recipes": gate.table, "reason": gate.reason})
    else:
        print_table(COLUMNS, gate.table, more=("--json", "--csv"))
    if not gate.passed:
        note(f"heterocompute convert-model: {gate.reason}")
    elif not arguments.json:
        print_line(f"{printable(arguments.output)}: {gate.reason}")
    return 0 if gate.passed else 1


def _steps(text: str) -> list[Any]:
    """Return the steps of a ladder: formats, or pairs of a format and its method."""
    found: list[Any] = []
    for part in text.split(","):
        name, _, method = part.strip().partition("/")
        if not name:
            raise argparse.ArgumentTypeError(f"{shown(text[:64])} has an empty step, expected int4-g32,int8")
        fmt = one_format(name)
        found.append((fmt, method) if method else fmt)
    return found
