"""Measurements of a machine that are kept for later processes: small JSON files in the user's cache folder.

``HETEROCOMPUTE_CACHE`` names the folder. A file is replaced by renaming, so that a reader sees the old or the new one;
writers that merge take turns with a lock beside the file. If the folder cannot be written, nothing is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from .texts import read_small
from .version import __version__

Array = np.ndarray[Any, Any]

MAX_BYTES = 1 << 22
_state: dict[str, str | None] = {"date": None}  # of the costs in use
COSTS = ("product", "conv")  # kinds of costs: of paths of matmuls, of algorithms of convolutions
COUNTS = 2  # which products and values the costs are for: raised where an estimate counts other ones
LOCK_SECONDS = 2.0  # afterwards without the lock: a measurement that another process adds at that moment may be lost


def cache_path(name: str) -> Path:
    """Return the path of a file in the cache folder."""
    if chosen := os.environ.get("HETEROCOMPUTE_CACHE"):
        return Path(chosen).expanduser() / name
    folder = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(folder) if os.path.isabs(folder) else Path.home() / ".cache"
    return base / "heterocompute" / name


def read_cache(path: Path) -> dict[str, Any]:
    """Return the content of a file, {} if it does not exist or is not ours."""
    try:
        found = json.loads(read_small(path, MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_cache(path: Path, content: dict[str, Any]) -> None:
    """Replace a file by renaming; nothing happens where the folder cannot be written."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()


def merge_cache(path: Path, merge: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Replace a file by the result of a function of its present content.

    Parameters
    ----------
    merge : callable
        Gets what `read_cache` returns.
    """
    with _turn(path):
        write_cache(path, merge(read_cache(path)))


@contextlib.contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Hold a lock next to a file, if the system has such locks and no other process holds it for long."""
    try:
        import fcntl  # not on Windows

        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (ImportError, OSError):
        yield
        return
    try:
        end = time.monotonic() + LOCK_SECONDS
        while time.monotonic() < end:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(0.005)
        yield
    finally:
        os.close(lock)


def cpu_model() -> str:
    """Return the name of the processor from the system."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def l3_bytes() -> int:
    """Return the size of the largest cache of the first processor; 32 MiB if it is unknown."""
    largest = 0
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            text = path.read_text().strip()
            scale = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
            largest = max(largest, int(text.rstrip("KM")) * scale)
    return largest or 32 << 20


def costs_file() -> Path:
    """Return the path of the costs that `calibrate` keeps for this processor."""
    return cache_path(f"costs-{_core.cpu_processor()}.json")


def costs_of_build(mask: int) -> dict[str, dict[str, Array]]:
    """Restore and return the costs of this build for runs with these instruction sets, by kind and name."""
    _state["date"] = None
    for kind in COSTS:
        _core.keep_costs(kind == "conv", mask, np.empty(0))
    return {kind: {name: np.array(of) for name, of in _core.costs(kind == "conv", mask)} for kind in COSTS}


def keep_costs(mask: int, costs: dict[str, dict[str, Array]]) -> Path:
    """Replace the file of costs."""
    numbers = {
        kind: {name: [float(f"{cost:.4g}") for cost in of] for name, of in costs[kind].items()} for kind in COSTS
    }
    stamp = time.strftime("%Y-%m-%d")
    about = {"version": __version__, "counts": COUNTS, "isa": mask, "measured": stamp}
    write_cache(costs_file(), {**about, **numbers})
    return costs_file()


def measured_costs() -> str | None:
    """Return the date of the costs in use, None if they are those of this build."""
    return _state["date"]


def use_costs() -> str | None:
    """Use the costs that were kept for this processor, version and counts; return their date, None without them."""
    try:
        _state["date"] = _used(costs_file())
    except (OSError, RuntimeError):  # there is no home folder
        _state["date"] = None
    return _state["date"]


def _used(path: Path) -> str | None:
    found = read_cache(path)
    mask, stamp = found.get("isa"), found.get("measured")
    if (
        (found.get("version"), found.get("counts")) != (__version__, COUNTS)
        or type(mask) is not int
        or not 0 <= mask < 1 << 32
        or type(stamp) is not str
    ):
        return None
    kept = {kind: _costs_of(found.get(kind), kind, mask) for kind in COSTS}
    known = {kind: of_kind for kind, of_kind in kept.items() if of_kind is not None}
    if len(known) < len(kept):
        return None
    for kind, of_kind in known.items():
        _core.keep_costs(kind == "conv", mask, of_kind)
    return stamp


def _costs_of(found: object, kind: str, mask: int) -> Array | None:
    """Return the costs of all names, in their order; None unless each has as many numbers, none of them negative."""
    rows = []
    for name, of_build in _core.costs(kind == "conv", mask):
        row = found.get(name) if isinstance(found, dict) else None
        if not isinstance(row, list) or len(row) != len(of_build):
            return None
        if not all(type(cost) in (int, float) and 0 <= cost < 1e9 for cost in row):
            return None
        rows += row
    return np.array(rows, np.float64)
