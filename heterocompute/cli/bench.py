"""`heterocompute bench`: measurements of the kernels on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ..base.devices import KIND
from ..base.values import shown
from .parts import UsageError, add_threads, interruptible

__all__ = ["register"]


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    added = command(
        "bench",
        run,
        "Measure the kernels on this machine, relative to OpenBLAS and other installed libraries.",
        "bench gemm gemv --quick",
        "bench conv --threads 1 --markdown",
    )
    added.add_argument("names", metavar="NAMES", nargs="*", help="benchmarks to run; default: all")
    added.add_argument("--quick", action="store_true", help="use small sizes and few repetitions")
    added.add_argument("--check", action="store_true", help=f"with `{KIND}`: first compare every kernel with the CPU")
    added.add_argument(
        "--markdown", action="store_true", help="print tables in Markdown, with the rate of every candidate"
    )
    added.add_argument("--costs", metavar="FOLDER", help="folder to which `plan` writes the CSV files of costs")
    add_threads(added)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from .. import bench  # 8 ms

    unknown = [name for name in arguments.names if name not in bench.NAMES]
    if unknown:
        raise UsageError(f"unknown benchmark {shown(unknown[0])}, there are {', '.join(bench.NAMES)}")
    if arguments.json and arguments.markdown:
        raise UsageError("--json and --markdown are two ways to print the same, expected one of them")
    if arguments.costs is not None and not Path(arguments.costs).is_dir():
        raise UsageError(f"--costs {shown(arguments.costs)} is not a folder")
    if arguments.check and arguments.names != [KIND]:
        raise UsageError(f"--check is for `heterocompute bench {KIND}`, expected that one benchmark")
    options = {"json": arguments.json, "quick": arguments.quick, "threads": arguments.threads, "costs": arguments.costs}
    options["check"] = arguments.check
    return interruptible(lambda: int(bench.main(arguments.names, markdown=arguments.markdown, **options)))
