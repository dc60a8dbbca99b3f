"""Kernels on a device: with ``--check`` every kernel against the CPU, bit for bit, then times.

--check      conformance, then the times, then the compute sanitizer: at most BUDGET_SECONDS
"""

from __future__ import annotations

import time

from ...base.devices import devices
from ..measure import CheckFailed, Options, Table
from .conformance import conformance
from .sanitizer import sanitized
from .timings import codecs, matmuls, rows_of_x, vectors

BUDGET_SECONDS = 600  # of --check: a device may be available for ten minutes
SANITIZER_SECONDS = 310  # maximum time of the sanitizer


def measure(options: Options) -> list[Table]:
    """Check and time the first device; no table if there is none, CheckFailed if a check was requested."""
    begin = time.monotonic()
    try:
        device = devices()[0]
    except (NotImplementedError, RuntimeError) as problem:
        if options.check:
            raise CheckFailed(str(problem)) from None
        options.report_progress(str(problem))
        return []
    options.report_progress(f"{device.name}, sm_{device.major}{device.minor}")
    tables = [conformance(options)] if options.check else []
    tables += [vectors(options), matmuls(options), rows_of_x(options), codecs(options)]
    if options.check and not options.quick:
        left = BUDGET_SECONDS - (time.monotonic() - begin)
        if left >= SANITIZER_SECONDS:
            tables.append(sanitized(options))
        else:
            options.report_progress(f"the sanitizer is left out: {left:.0f} s are left of {BUDGET_SECONDS}")
    for table in tables:
        table["title"] += f"; {device.name}"
    return tables
