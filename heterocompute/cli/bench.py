"""`heterocompute bench`: measurements of the kernels on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..base.devices import KIND
from ..base.errors import shown
from .options import Options
from .parts import UsageError, add_threads, interruptible

MOST_DIGITS, MOST_SECONDS = 18, 1_000_000


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    added = command(
        "bench",
        run,
        "Measure the kernels on this machine, relative to OpenBLAS and other installed libraries.",
        "bench gemm gemv --quick",
        "bench conv --threads 1 --markdown",
        "bench drawn --kind matmul --seed 7 --seconds 30 --threads 1",
    )
    add = Options(added)
    add("names", "NAMES", "benchmarks to run; default: all", nargs="*")
    add("--quick", None, "use small sizes and few repetitions")
    add("--check", None, f"with `{KIND}`: first compare every kernel with the CPU")
    add("--markdown", None, "print tables in Markdown, with the rate of every candidate")
    add("--costs", "FOLDER", "folder to which `plan` writes the CSV files of costs")
    add("--kind", "KIND", "with `drawn`: conv, matmul, gradients, layers, codecs, sparse or models; default: all")
    add("--seed", "N", "with `drawn`: seed of the first call; default: 0")
    add("--seconds", "S", "with `drawn`: time for the calls of each kind; default: 60")
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
    drawn = _drawn(arguments, bench.KINDS)
    options = {"json": arguments.json, "quick": arguments.quick, "threads": arguments.threads, "costs": arguments.costs}
    options |= {"check": arguments.check, **drawn}
    return interruptible(lambda: int(bench.main(arguments.names, markdown=arguments.markdown, **options)))


def _drawn(arguments: argparse.Namespace, kinds: Sequence[str]) -> dict[str, Any]:
    """Return the options of drawn calls that were given."""
    given = {name: text for name in ("kind", "seed", "seconds") if (text := getattr(arguments, name)) is not None}
    if given and "drawn" not in arguments.names:
        raise UsageError(f"--{next(iter(given))} is for `heterocompute bench drawn`, expected that benchmark")
    if given.get("kind", kinds[0]) not in kinds:
        raise UsageError(f"--kind {shown(given['kind'][:40])}, expected one of {', '.join(kinds)}")
    found: dict[str, Any] = dict(given)
    if "seed" in given:
        if not given["seed"].isdecimal() or not given["seed"].isascii() or len(given["seed"]) > MOST_DIGITS:
            raise UsageError(f"--seed {shown(given['seed'][:40])}, expected an integer of up to {MOST_DIGITS} digits")
        found["seed"] = int(given["seed"])
    if "seconds" in given:
        try:
            found["seconds"] = float(given["seconds"])
        except ValueError:
            found["seconds"] = -1.0
        if not 0 <= found["seconds"] <= MOST_SECONDS:
            raise UsageError(f"--seconds {shown(given['seconds'][:40])}, expected a number from 0 to {MOST_SECONDS:,}")
    return found
