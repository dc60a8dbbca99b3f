"""This machine as a `Device`: the rates of its loops, measured once and kept in the user's cache.

The loops are those of `heterocompute bench limits` (csrc/kernels/peak/peak.h): multiply-adds and int8 dot products on
registers, and a sum over memory. They are limits, like those of data sheets, not the rates of products.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ... import _heterocompute as _core
from ...base.cache_files import cache_path, cpu_model, l3_bytes, read_cache, write_cache
from ...base.errors import WrongValue, shown
from ...base.texts import counted
from ...base.values import check_flag
from .chip import Device

__all__ = ["host"]

VERSION = 1
STEPS = 1 << 21  # about 7 ms per run on a core of 3 GHz
ROUNDS = 5
MAX_READ_BYTES = 512 << 20


def host(refresh: bool = False, threads: int | None = None) -> Device:
    """Return this machine as a device, measured now or from the cache.

    Parameters
    ----------
    refresh : bool, optional
        Measure again, about a second of work on every core.
    threads : int, optional
        Threads that run the loops. Default: every processor available to this process.

    Returns
    -------
    Device
        ``fp32`` and ``int8`` rates in operations/s, read bandwidth in B/s, memory in bytes. There is no ``tdp``.

    Raises
    ------
    ValueError
        `threads` is not positive.

    Notes
    -----
    Results are stored in ``$XDG_CACHE_HOME/heterocompute`` or ``~/.cache/heterocompute``, in one file that is written
    atomically. Another processor, instruction set or number of threads causes another measurement.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.host().peak("fp32") > 1e9  # doctest: +SKIP
    True
    """
    refresh = check_flag("host", "refresh", refresh)
    threads = _core.processors() if threads is None else threads
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise WrongValue(f"host: threads is {shown(threads)}, expected a positive integer")
    key = {"version": VERSION, "cpu": cpu_model(), "isa": _core.cpu_isa(), "threads": threads}
    path = cache_file()
    found = None if refresh else _read(path, key)
    if found is None:
        found = _measure(threads)
        write_cache(path, {"key": key, "figures": found})
    return Device(
        "host",
        peak={"fp32": found["fp32"], "int8": found["int8"]},
        bandwidth=found["bandwidth"],
        memory=found["memory"],
        on_chip=found["on_chip"],
        kind="host",
        title=f"this machine: {key['cpu']}, {counted(threads, 'thread')}",
        source={"*": "measured on this machine by the loops of heterocompute bench limits", "memory": "the system"},
    )


def cache_file() -> Path:
    """Return where the measurement is kept."""
    return cache_path("host.json")


def _measure(threads: int) -> dict[str, Any]:
    run = (_core.cpu_isa(), threads)
    cache = l3_bytes()
    memory = np.ones(min(max(4 * cache, 64 << 20), MAX_READ_BYTES) // 4, np.float32)
    return {
        "fp32": _best_rate(lambda: _core.limit(run, "fma", STEPS)[0]),
        "int8": _best_rate(lambda: _core.limit(run, "dot", STEPS)[0]),
        "bandwidth": max(_best_rate(partial(_bytes_read, run, kind, memory)) for kind in ("read", "read-ahead")),
        "memory": _memory_bytes(),
        "on_chip": cache,
    }


def _bytes_read(run: tuple[int, int], kind: str, memory: Any) -> float:
    _core.limit(run, kind, memory)
    return float(memory.nbytes)


def _best_rate(work: Callable[[], float]) -> float:
    """Return work/s of the best round: other processes can only slow a round, so the best one shows the limit."""
    best = 0.0
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        done = work()
        best = max(best, done / (time.perf_counter() - begin))
    return best


def _read(path: Path, key: dict[str, Any]) -> dict[str, Any] | None:
    stored = read_cache(path)
    try:
        figures: dict[str, Any] = stored["figures"]
        if stored["key"] != key:
            return None
        for name in ("fp32", "int8", "bandwidth"):
            if not float(figures[name]) > 0:
                return None
        for name in ("memory", "on_chip"):
            if figures[name] is not None and not float(figures[name]) > 0:
                return None
        return figures
    except (ValueError, KeyError, TypeError, OverflowError):  # none yet, or not ours
        return None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
