"""The benchmarks: kernels against the machine's limits, OpenBLAS, and the peers that are installed.

Each runs in its own process, with settings that keep OpenBLAS's idle workers from spinning for long on processors of
the others. `measure` defines how times are taken; `summary`, `limits`, `gemm`, `gemv`, `quantize`, `formats`,
`kmeans`, `headers`, `conv`, `models`, `drawn`, `llm`, `imports` and the one of devices define what is timed.
"""

from __future__ import annotations

import json as json_text
import operator
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..base import runtime
from ..base.devices import KIND
from .measure import KINDS, Options
from .plan import write_costs
from .show import markdown as markdown_of, show
from .summary import joined

__all__ = ["KINDS", "NAMES", "main"]


def __dir__() -> list[str]:
    return __all__


NAMES = (
    "summary",
    "limits",
    "gemm",
    "gemv",
    "quantize",
    "sparse",
    "density",
    "outer",
    "conv",
    "formats",
    "kmeans",
    "headers",
    "plan",
    "models",
    "drawn",
    "llm",
    "import",
    KIND,
)

SETTINGS = {"OPENBLAS_THREAD_TIMEOUT": "4"}  # otherwise its idle workers spin for longer than measure.SETTLE_SECONDS
AVX2_SETTINGS = {"HETEROCOMPUTE_ISA": "avx2", "OPENBLAS_CORETYPE": "Haswell"}
#: Benchmarks that also run with AVX2 alone, and how both lists of tables are joined.
NARROW: dict[str, Callable[[list[Any], list[Any]], list[Any]]] = {"gemm": operator.add, "summary": joined}


def main(
    names: list[str],
    *,
    json: bool,
    quick: bool,
    threads: int | None,
    markdown: bool = False,
    costs: str | None = None,
    check: bool = False,
    kind: str | None = None,
    seed: int = 0,
    seconds: float = Options.seconds,
) -> int:
    """Run benchmarks and print their results.

    Parameters
    ----------
    names : list of str
        Some of `NAMES`; none stands for all.
    json : bool
        Print one JSON object and nothing else; otherwise tables.
    quick : bool
        Tiny sizes, measured once: shows that everything runs, not how fast.
    threads : int or None
        Threads of every candidate; None measures with one and with all processors.
    markdown : bool
        Print tables in Markdown instead, with the rate of every candidate of a row that has several.
    costs : str, optional
        A folder: ``plan`` writes its measurements to ``product-<processor>.csv.gz`` and ``conv-<processor>.csv.gz``.
    check : bool
        The benchmark of devices compares every kernel with the CPU first, and fails without a device.
    kind : str, optional
        ``drawn`` draws only this kind of calls, one of `KINDS`.
    seed : int
        Of the first call of ``drawn``.
    seconds : float
        ``drawn`` draws calls of each kind, with each number of threads, for so long.

    Returns
    -------
    int
        0, or 1 if a benchmark failed.
    """
    counts = [threads] if threads else sorted({1, runtime.get_num_threads()})
    found: dict[str, Any] = {}
    for name in names or NAMES:
        drawn = [f"--kind={kind or ''}", f"--seed={seed}", f"--seconds={seconds}"] if name == "drawn" else []
        # NumPy's own BLAS reads its number of threads when it is loaded.
        settings = {"OPENBLAS_NUM_THREADS": str(counts[0])} if name == "drawn" and len(counts) == 1 else {}
        report = _run(name, quick, counts, settings, ["--check"] * check + drawn)
        if report is not None and name in NARROW and _can_be_avx2():
            narrow = _run(f"{name}-avx2", quick, counts, AVX2_SETTINGS)
            report = narrow and {**report, "tables": NARROW[name](report["tables"], narrow["tables"])}
        if report is None:
            return 1
        measured = {kind: rows for table in report["tables"] for kind, rows in table.pop("costs", {}).items()}
        if costs is not None and name == "plan":
            write_costs(measured, Path(costs))
        found[name] = report
        if markdown:
            print(markdown_of(report), end="\n\n", flush=True)
        elif not json:
            show(report)
    if json:
        print(json_text.dumps({"benchmarks": found}, allow_nan=False))
    return 0


def _can_be_avx2() -> bool:
    used = runtime.config()["isa_used"]
    return "avx2" in used and used[-1] != "avx2"


def _run(
    name: str,
    quick: bool,
    threads: list[int],
    settings: dict[str, str],
    more: Sequence[str] = (),
) -> dict[str, Any] | None:
    """Run one benchmark in a child, which ends when its standard input closes, at the latest with this process."""
    package = Path(__file__).resolve().parents[1]
    environment = {**os.environ, **SETTINGS, **settings}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(package.parent), os.environ.get("PYTHONPATH")]))
    code = f"from {__name__}.child import main; main()"
    command = [sys.executable, "-P", "-c", code, name, *["--quick"] * quick, *more, *map(str, threads)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        output = child.stdout.read()  # not communicate(), which would close standard input
        child.wait()
    if child.returncode:
        if child.returncode < 0:
            print(f"heterocompute bench: {name}: ended by signal {-child.returncode}", file=sys.stderr)
        return None
    report: dict[str, Any] = json_text.loads(output)
    return report
