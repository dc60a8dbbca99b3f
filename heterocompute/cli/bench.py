"""`heterocompute bench`: the kernels on this machine, measured."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ..base.values import shown
from .parts import UsageError, add_threads, interruptible

__all__ = ["register"]


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    added = command(
        "bench",
        run,
        "Measure the kernels on this machine against OpenBLAS and the peers that are installed.",
        "bench gemm gemv --quick",
        "bench conv --threads 1 --markdown",
    )
    added.add_argument("names", metavar="NAMES", nargs="*", help="benchmarks to run; all by default")
    added.add_argument("--quick", action="store_true", help="small sizes and few repetitions")
    added.add_argument("--check", action="store_true", help="`cuda`: compare every kernel with the CPU first")
    added.add_argument("--markdown", action="store_true", help="tables in Markdown, with every candidate's rate")
    added.add_argument("--costs", metavar="FOLDER", help="folder for the CSV files of costs that `plan` writes")
    add_threads(added)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from .. import bench  # 8 ms

    unknown = [name for name in arguments.names if name not in bench.NAMES]
    if unknown:
        raise UsageError(f"unknown benchmark {shown(unknown[0])}, there are {', '.join(bench.NAMES)}")
    if arguments.json and arguments.markdown:
        raise UsageError("--json and --markdown are two ways to print the same, wanted one of them")
    if arguments.costs is not None and not Path(arguments.costs).is_dir():
        raise UsageError(f"--costs {shown(arguments.costs)} is not a folder")
    if arguments.check and arguments.names != ["cuda"]:
        raise UsageError("--check is for `heterocompute bench cuda`, expected that one benchmark")
    options = {"json": arguments.json, "quick": arguments.quick, "threads": arguments.threads, "costs": arguments.costs}
    options["check"] = arguments.check
    return interruptible(lambda: int(bench.main(arguments.names, markdown=arguments.markdown, **options)))
