"""Measured and printed times: how to take them, and whether a device can have reached them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...base.errors import WrongType, WrongValue, shown
from ...base.notebooks.shown import Facts
from ...base.values import as_int, as_list, check_count, check_number
from ..chips.chip import Device, plain_dtype
from ..chips.database import as_devices


@dataclass(frozen=True)
class Measurement(Facts):
    """The result of `measure`.

    Attributes
    ----------
    seconds : float
        The median.
    low, high : float
        Quartiles.
    runs : int
    batch : int
    """

    seconds: float
    low: float
    high: float
    runs: int
    batch: int = 1

    @property
    def rate(self) -> float:
        """Return items per second (frames per second for images); infinite below the clock's resolution."""
        return self.batch / self.seconds if self.seconds else float("inf")

    def __repr__(self) -> str:
        return (
            f"<Measurement: {self.seconds * 1e3:.4g} ms, half of {self.runs} runs between {self.low * 1e3:.4g} and "
            f"{self.high * 1e3:.4g}; {self.rate:.4g} a second>"
        )


def measure(
    call: Callable[[], Any],
    *,
    batch: int = 1,
    warmup: int = 3,
    runs: int = 10,
    seconds: float = 0.2,
    synchronize: Callable[[], Any] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Measurement:
    """Measure a callable after warm-up runs, with the device idle before and after each run, and report the median.

    Parameters
    ----------
    call : callable
        Callable without arguments.
    batch : int, optional
        Items per call.
    warmup : int, optional
        Uncounted first runs, which allocate, compile and fill caches.
    runs : int, optional
        Minimum number of runs.
    seconds : float, optional
        Minimum measuring time, with at most ten times `runs`.
    synchronize : callable, optional
        Waits for the device, such as ``synchronize`` of the library. Without it, a GPU time covers only the launch.
    clock : callable, optional
        Returns seconds.

    Returns
    -------
    Measurement

    Raises
    ------
    TypeError
        An argument is not callable.
    ValueError
        Counts are not positive.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> ticks = iter(range(100))
    >>> found = hw.measure(lambda: None, batch=32, runs=4, seconds=0, clock=lambda: next(ticks))
    >>> found.seconds, found.rate, found.runs
    (1.0, 32.0, 4)
    """
    for name, one in (("call", call), ("synchronize", synchronize or call), ("clock", clock)):
        if not callable(one):
            raise WrongType(f"measure: {name} is {shown(one)}, expected a callable")
    batch = check_count("measure", "batch", batch)
    runs = as_int(runs, "measure: runs", 1, 1_000_000)
    warmup = as_int(warmup, "measure: warmup", 0, 1_000_000)
    seconds = check_number("measure", "seconds", seconds, closed=True)
    wait = synchronize or (lambda: None)
    for _ in range(warmup):
        call()
    found: list[float] = []
    while len(found) < runs or (sum(found) < seconds and len(found) < 10 * runs):
        wait()
        begin = clock()
        call()
        wait()
        found.append(clock() - begin)
    low, median, high = statistics.quantiles(found, n=4, method="inclusive") if len(found) > 1 else found * 3
    return Measurement(median, low, high, len(found), batch)


def possible(
    operations: float,
    traffic: float,
    timings: Mapping[str, float] | Iterable[float],
    devices: Iterable[str | Device],
    dtype: str = "fp32",
) -> list[dict[str, Any]]:
    """Check on which devices printed timings are possible: none may be below a device's roofline.

    Parameters
    ----------
    operations : float
        Operations of the work, two per multiply-add.
    traffic : float
        Least number of bytes read and written.
    timings : mapping of str to float, or iterable of float
        Seconds, optionally by name.
    devices : iterable of str or Device
    dtype : str, optional
        Type of the arithmetic. A device that does not support it computes in its fastest type of as many bits or fewer,
        which the result names.

    Returns
    -------
    list of dict
        One row per timing and device: ``timing``, ``seconds``, ``device``, ``dtype``, ``bound`` (least seconds),
        ``possible``, ``share`` (bound over timing: 1 is a device at its limit, above 1 is impossible).

    Raises
    ------
    ValueError
        The work or times are not positive, or a device has no such rate.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> rows = hw.possible(8.3e9, 1.3e8, {"fast": 1.22e-3}, ["k80", "t4"])
    >>> [(row["device"], row["possible"]) for row in rows]
    [('k80', False), ('t4', True)]
    """
    operations = check_number("possible", "operations", operations)
    traffic = check_number("possible", "traffic", traffic, closed=True)
    chips = as_devices("possible", devices)
    if not isinstance(timings, Mapping):
        listed = [check_number("possible", "timings", one) for one in as_list(timings, "possible: timings", "seconds")]
        timings = {f"{seconds:g} s": seconds for seconds in listed}
    rows = []
    for name, seconds in timings.items():
        check_number("possible", "timings", seconds)
        for one in chips:
            kind = dtype if plain_dtype(dtype) in one.dense_rates else _narrower(one)
            memory = traffic / one.bandwidth if one.bandwidth else 0.0
            bound = max(operations / one.peak(kind), memory)
            rows.append({"timing": name, "seconds": seconds, "device": one.name, "dtype": kind, "bound": bound,
                         "possible": bound <= seconds, "share": bound / seconds})  # fmt: skip
    return rows


def _narrower(one: Device) -> str:
    if not one.dense_rates:
        raise WrongValue(f"possible: no rate of {one.name} is known")
    return max(one.dense_rates, key=lambda kind: one.dense_rates[kind])
