"""The machine of a measurement: processor, caches, instruction sets, settings, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..base import runtime
from ..base.cache_files import cpu_model, l3_bytes

PACKAGES = ("heterocompute", "numpy", "scipy-openblas32", "ml_dtypes", "torch", "onnxruntime")
VARIABLES = ("HETEROCOMPUTE_", "OPENBLAS_", "OMP_", "MKL_")


def machine() -> dict[str, Any]:
    """Return a description of machine, build and environment."""
    config = runtime.config()
    return {
        "cpu": cpu_model(),
        "processors": os.cpu_count(),
        "l3_bytes": l3_bytes(),
        "isa": config["isa_used"],
        "blas": config["blas"],
        "compiler": config["compiler"],
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)},
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def beyond_cache_bytes() -> int:
    """Return the bytes to walk through so that no data stay in a cache: 8 times the last cache, less if it is huge."""
    cache = l3_bytes()
    return min(8 * cache, max(2 * cache, 640 << 20))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the checkout that contains this package, if it is one of heterocompute."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
