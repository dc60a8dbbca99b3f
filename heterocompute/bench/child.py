"""The process that runs one benchmark: NAME [OPTIONS] THREADS..., one JSON object on standard output.

The options are --quick, --check, --kind=KIND, --seed=N and --seconds=S.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from importlib import import_module

from .machine import machine
from .measure import CheckFailed, Options

MODULES = {"import": "imports", "gemm-avx2": "gemm", "summary-avx2": "summary"}


def main() -> None:
    """Run the functions named on the command line of this process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    name, *rest = sys.argv[1:]
    threads = [int(text) for text in rest if not text.startswith("-")]
    given = dict(text.split("=") for text in rest if "=" in text)
    options = Options(
        "--quick" in rest,
        threads,
        name,
        check="--check" in rest,
        kind=given.get("--kind", ""),
        seed=int(given.get("--seed", 0)),
        seconds=float(given.get("--seconds", Options.seconds)),
    )
    results = os.dup(1)
    os.dup2(2, 1)  # output of other libraries is redirected to stderr
    try:
        tables = import_module(f".{MODULES.get(name, name)}", __package__).measure(options)
    except CheckFailed as failure:
        sys.exit(f"heterocompute bench: {name}: {failure}")
    report = {"benchmark": name, "machine": machine(), "quick": options.quick, "tables": tables}
    with open(results, "w") as out:
        json.dump(report, out, allow_nan=False)


def _end_with_parent() -> None:
    os.read(0, 1)  # not sys.stdin, whose lock this thread would hold when the process ends
    os._exit(130)
