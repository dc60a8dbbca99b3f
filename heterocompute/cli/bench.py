"""`heterocompute bench`: measurements of the kernels on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..base.devices import KIND
from ..base.errors import shown
from .options import Options
from .parts import UsageError, add_threads, interruptible, print_json, print_line

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
    add("--kind", "KIND", "with `drawn`: conv, matmul, gradients, layers, codecs, sparse, models, dense; default: all")
    add("--seed", "N", "with `drawn`: seed of the first call; default: 0")
    add("--seconds", "S", "with `drawn`: time for the calls of each kind; default: 60")
    add_threads(added)

    added = command(
        "calibrate",
        run_calibrate,
        "Measure what paths cost on this machine, so that later matmuls and convolutions choose faster ones.",
        "calibrate",
        "calibrate --seconds 10 --json",
    )
    Options(added)("--seconds", "S", "time for the measurements; default: 25")


def run_calibrate(arguments: argparse.Namespace) -> int:
    """Run the command calibrate; return its exit code."""
    from ..bench.calibration import SECONDS, calibrate  # NumPy's linear algebra

    seconds = SECONDS if arguments.seconds is None else _seconds(arguments.seconds, 3600)
    found = interruptible(lambda: calibrate(seconds))
    if arguments.json:
        return print_json(asdict(found))
    worse = (
        "the calls were too few; raise --seconds"
        if found.after < found.before
        else "those of this build choose as well"
    )
    kept = f"kept in {found.path}" if found.path else f"not kept: {worse}"
    print_line(f"{found.processor}: {found.calls} calls timed by every path; costs {kept}")
    print_line(f"time of the chosen path over the fastest: {found.before:.3f} before, {found.after:.3f} after")
    return 0


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
        found["seconds"] = _seconds(given["seconds"], MOST_SECONDS)
    return found


def _seconds(text: str, most: int) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= most:
        raise UsageError(f"--seconds {shown(text[:40])}, expected a number from 0 to {most:,}")
    return seconds
