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

from .texts import read_small

MAX_BYTES = 1 << 22
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
