"""`heterocompute bench`: measurements of the kernels on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ..base.devices import KIND
from ..base.errors import shown
from .options import Options
from .parts import UsageError, add_threads, interruptible


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    added = command(
        "bench",
        run,
        "Measure the kernels on this machine, relative to OpenBLAS and other installed libraries.",
        "bench gemm gemv --quick",
        "bench conv --threads 1 --markdown",
    )
    add = Options(added)
    add("names", "NAMES", "benchmarks to run; default: all", nargs="*")
    add("--quick", None, "use small sizes and few repetitions")
    add("--check", None, f"with `{KIND}`: first compare every kernel with the CPU")
    add("--markdown", None, "print tables in Markdown, with the rate of every candidate")
    add("--costs", "FOLDER", "folder to which `plan` writes the CSV files of costs")
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
