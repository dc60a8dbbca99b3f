"""The kernels under NVIDIA's compute sanitizer, in separate processes: memory errors and races in shared memory."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from ...base.devices import KIND
from ..measure import CheckFailed, Options, Row, Table

TOOLS = ("memcheck", "racecheck")
SECONDS = 150  # of a tool
FAULT = 86  # the exit status of a tool that found a fault


def find_sanitizer() -> str | None:
    """Return the path of the compute sanitizer: from PATH, a toolkit, or NVIDIA's packages."""
    folders = [
        f"/usr/local/{KIND}/bin/compute-sanitizer",
        sysconfig.get_path("purelib") + "/nvidia/cu13/bin/compute-sanitizer",
    ]
    return shutil.which("compute-sanitizer") or next((place for place in folders if Path(place).exists()), None)


def sanitized(options: Options) -> Table:
    """Run the quick check under each tool; CheckFailed shows the report of a tool."""
    command = [sys.executable, "-m", "heterocompute", "bench", KIND, "--check", "--quick", "--json"]
    rows: list[Row] = []
    sanitizer = find_sanitizer()
    for tool in TOOLS:
        if sanitizer is None:
            rows.append({"name": tool, "result": "not run: there is no compute-sanitizer"})
            continue
        options.report_progress(f"runs compute-sanitizer, {tool}, up to {SECONDS} s")
        start = [sanitizer, "--tool", tool, "--target-processes", "all", "--error-exitcode", str(FAULT)]
        try:
            done = subprocess.run([*start, *command], capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            rows.append({"name": tool, "result": f"not finished in {SECONDS} s"})
            continue
        if done.returncode:
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("=========")]
            raise CheckFailed(f"compute-sanitizer --tool {tool} ends with {done.returncode}: " + "; ".join(lines[:6]))
        rows.append({"name": tool, "result": "no error"})
    return {"title": "quick check under compute-sanitizer", "threads": 1, "rows": rows}
