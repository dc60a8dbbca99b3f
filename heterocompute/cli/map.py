"""`heterocompute map`: evaluates a mapping, or searches one."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..base.errors import printable, shown
from ..report.table import can_steer
from .options import Options
from .parts import UsageError, interruptible, note, print_json, print_line, print_table, print_words, thread_count

if TYPE_CHECKING:
    from ..hardware.mapper import Arch, Found, Mapping, Problem, Stats

OBJECTIVES = ("edp", "energy", "delay")
DATAFLOWS = ("ws", "os", "is", "rs", "nlr", "ws-los", "os-lws")

EXAMPLE = """\
# A convolution along one axis with 32 filters, on three levels. Energies are those that Accelergy's estimators gave
# for Timeloop's exercise 03 (40 nm): pJ a vector access. Loops are written from the outermost to the innermost.
[problem]
output = "O"
dims = {K = 32, P = 16, R = 3}
tensors = {W = [{K = 1}, {R = 1}], I = [{P = 1, R = 1}], O = [{K = 1}, {P = 1}]}

[arch]
mac = 0.845

[[arch.levels]]
name = "DRAM"
block = 32
read = 2048.0
write = 2048.0
update = 2048.0

[[arch.levels]]
name = "GlobalBuffer"
words = 262144
block = 8
read = 43.353054
write = 30.878292
update = 30.878292
leak = 0.007972

[[arch.levels]]
name = "RF"
words = 64
read = 0.42564
write = 0.42564
update = 0.42564
leak = 0.000861

# Without a mapping, the best one is looked for.
[mapping]
GlobalBuffer = {temporal = [["K", 16], ["P", 16]]}
RF = {temporal = [["K", 2], ["R", 3]]}
"""


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = command(
        "map",
        run,
        "Evaluate a mapping of loops onto levels of storage, or search for the best mapping.",
        "map --example > conv.toml",
        "map conv.toml --html conv.html",
        "map machine.toml --gemm 256,128,256 --objective energy",
        "map mine.toml --network resnet18",
    )
    add = Options(parser, "hardware.mapper:search")
    add("files", "FILE", "TOML or YAML with problem, arch, mapping, also in the layout of Timeloop v4; several files "
        "are merged", nargs="*")  # fmt: skip
    add("--example", None, "print an example file")
    add("--gemm", "M,N,K", "problem: inputs (M, K) times weights (K, N)", type=_numbers(3, 3), alone="shape")
    add("--conv", "C,K,P,Q,R,S[,STRIDE]", "problem: channels, filters, output size, filter size", type=_numbers(6, 7),
        alone="shape")  # fmt: skip
    add("--network", "NETWORK", "map every layer of a network; FILE is then a machine for networks, or the name of a "
        "published one", alone="shape")  # fmt: skip
    add("--batch", "N", "with --network: samples", type=_positive)
    add("--search", None, "search for a mapping even if the files contain one")
    add("--objective", None, "quantity to minimize", choices=OBJECTIVES)
    add("--budget", "N", "mappings to try, again for each dataflow if all do not fit; default: 100000, with --network "
        "36000", type=_positive, default=None)  # fmt: skip
    add("--seed", "N", "random seed; the same seed gives the same mapping", type=_whole)
    add("--threads", "N", "threads to use; default: all processors", type=thread_count)
    add("--dataflow", None, choices=DATAFLOWS)
    add("--toml --yaml", "PATH", "also write problem, machine and mapping: TOML if PATH ends in .toml, else YAML",
        dest="yaml")  # fmt: skip
    add("--html", "PATH", "also write an HTML page with sliders")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from ..hardware.mapper import evaluate, mapping_page, search, write_yaml  # 60 ms
    from ..hardware.mapper.accesses import COLUMNS  # 60 ms
    from ..report.files import write_text  # 5 ms

    if arguments.example:
        if arguments.json:
            raise UsageError("--json does not apply with --example, which prints TOML")
        print_line(EXAMPLE.rstrip())
        return 0
    if not arguments.files:
        raise UsageError("no FILE that holds a machine; 'heterocompute map --example' prints one")
    if arguments.network is not None:
        return _network(arguments)
    if arguments.batch is not None:
        raise UsageError("--batch needs --network")
    problem, arch, mapping = _inputs(arguments)
    result = None
    if mapping is None or arguments.search or arguments.dataflow:
        if not can_steer(sys.stderr):  # on terminals, search shows a progress bar
            note("heterocompute map: searching")
        result = search(
            problem,
            arch,
            arguments.objective,
            **({} if arguments.budget is None else {"budget": arguments.budget}),
            seed=arguments.seed,
            threads=arguments.threads,
            dataflow=arguments.dataflow,
        )
        mapping = result.mapping
    stats = result.stats if result else evaluate(problem, arch, mapping)
    if arguments.yaml:
        write_yaml(arguments.yaml, problem, arch, mapping)
    if arguments.html:
        title = f"Mapping of {printable(os.path.basename(arguments.files[0]))}"
        write_text(arguments.html, mapping_page(problem, arch, mapping, title))
    if arguments.json:
        print_json(_plain(problem, arch, mapping, stats, result))
    else:
        print_line(f"{mapping}\n")
        print_table(COLUMNS, stats.to_dict()["accesses"])
        print_words(stats.summary)
        if result:
            print_words(_words(result))
    if result is not None and result.interrupted:
        note("interrupted")
        return 130
    return 0


def _network(arguments: argparse.Namespace) -> int:
    """Map every layer of a network."""
    from .. import hardware as hw  # 60 ms

    for name in ("search", "dataflow", "threads", "yaml", "html"):
        if getattr(arguments, name):
            option = {"yaml": "toml"}.get(name, name)
            raise UsageError(f"--{option} does not apply with --network, which maps every layer")
    if len(arguments.files) != 1:
        raise UsageError(f"--network needs one FILE, the machine: got {len(arguments.files)}")
    options = {"batch": arguments.batch or 1, "seed": arguments.seed}
    if arguments.budget is not None:
        options["budget"] = arguments.budget
    found = interruptible(lambda: hw.search(arguments.network, arguments.files[0], arguments.objective, **options))
    if arguments.json:
        return print_json(found.to_dict())
    print_line(str(found))
    return 0


def _inputs(arguments: argparse.Namespace) -> tuple[Problem, Arch, Mapping | None]:
    """Return the problem, the machine and the mapping of the files and options; None if the mapping is searched."""
    from ..hardware.mapper import read_yaml  # 60 ms

    found = read_yaml(*arguments.files)
    problem = _problem(arguments) or found.problem
    if problem is None:
        raise UsageError("the files hold no problem; add one, or --gemm or --conv")
    if found.arch is None:
        raise UsageError("the files hold no machine (arch, or architecture)")
    for left in found.notes:
        note(f"heterocompute map: {left}")
    return problem, found.arch, found.mapping if problem is found.problem else None


def _words(result: Found) -> str:
    if result.interrupted:
        return f"the best of {result.evaluated:,} mappings until the interrupt"
    if result.exhaustive:
        return f"the best of all {result.evaluated:,} mappings that fit, of orders that can be the best"
    return f"the best of {result.evaluated:,} mappings that were tried"


def _plain(problem: Problem, arch: Arch, mapping: Mapping, stats: Stats, result: Found | None) -> dict[str, Any]:
    loops = {
        "temporal": {level: [list(loop) for loop in found] for level, found in mapping.temporal.items()},
        "spatial": {level: [list(loop) for loop in found] for level, found in mapping.spatial.items()},
    }
    searched = None
    if result is not None:
        whole = asdict(result)
        searched = {key: whole[key] for key in ("evaluated", "exhaustive", "interrupted", "dataflow")}
    dims = {"dims": problem.dims, "output": problem.output}
    return {"problem": dims, "levels": arch.names, "mapping": loops, "stats": stats.to_dict(), "search": searched}


def _problem(arguments: argparse.Namespace) -> Problem | None:
    from ..hardware.mapper import Problem  # 60 ms

    if arguments.gemm:
        return Problem.gemm(*arguments.gemm)
    if arguments.conv:
        c, k, p, q, r, s, *stride = arguments.conv
        return Problem.conv2d(c, k, p, q, r, s, stride=stride[0] if stride else 1)
    return None


def _positive(text: str) -> int:
    number = _whole(text)
    if number == 0:
        raise argparse.ArgumentTypeError("0, expected a positive number")
    return number


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise argparse.ArgumentTypeError(f"{shown(text)}, expected a whole number")
    return int(text)


def _numbers(least: int, most: int) -> Callable[[str], list[int]]:
    def parse(text: str) -> list[int]:
        parts = [_positive(part.strip()) for part in text.split(",")]
        if not least <= len(parts) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise argparse.ArgumentTypeError(f"{shown(text)}, expected {wanted} numbers")
        return parts

    return parse
