"""Time of ``import heterocompute`` over the time of ``import numpy``, in new processes, interleaved.

A first import fills a separate folder with the bytecode of both, so that compilation is not measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import numpy as np

from .measure import CheckFailed, Options, Row, Table

ROUNDS = 31
MODULES = ("numpy", "heterocompute")
CODE = "import time; begin = time.perf_counter(); import {}; print(time.perf_counter() - begin)"


def measure(options: Options) -> list[Table]:
    """Measure both imports, interleaved; return the median of the ratios."""
    seconds: dict[str, list[float]] = {name: [] for name in MODULES}
    options.report_progress("fresh processes")
    with tempfile.TemporaryDirectory() as folder:
        for name in MODULES:
            _seconds(name, folder)
        for _ in range(1 if options.quick else ROUNDS):
            for name in MODULES:
                seconds[name].append(_seconds(name, folder))
    rows: list[Row] = []
    for name in MODULES:
        ratio = float(np.median(np.divide(seconds[name], seconds["numpy"])))
        rows.append({"name": f"import {name}", "seconds": float(np.median(seconds[name])), "of_numpy": ratio})
    return [{"title": "Import", "threads": 1, "rows": rows}]


def _seconds(module: str, folder: str) -> float:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-P", "-c", CODE.format(module)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise CheckFailed(f"import {module} failed: {done.stderr.strip()[-200:]}")
    return float(done.stdout)
