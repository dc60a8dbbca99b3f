"""Measurement of times: results are compared first, then a warm-up, then rounds that run every candidate once.

A ratio is the median over the rounds of the ratio inside a round, so a disturbance of the machine affects both sides. A
turn repeats a short candidate until it lasts `sample` seconds. With one thread the clock is the processor time of this
process, which excludes other processes; with more it is wall-clock time, and each turn begins with a pause.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Row = dict[str, Any]
Table = dict[str, Any]

ROUNDS, FEWEST_ROUNDS = 11, 5
SAMPLE_SECONDS = 0.02
SETTLE_SECONDS, WAKE_SECONDS = 0.05, 0.01  # workers of the last candidate fall asleep, those of the next wake up
TABLE_SECONDS = 30.0  # a slower benchmark has fewer rounds
MAX_REPEATS = 10_000
KINDS = ("conv", "matmul", "gradients", "layers", "codecs", "sparse", "models", "dense")  # of drawn calls


class CheckFailed(Exception):
    """A candidate gave a wrong result."""


@dataclass(frozen=True)
class Options:
    """Options from the command line."""

    quick: bool
    threads: list[int]
    name: str = ""
    check: bool = False
    kind: str = ""  # one of `KINDS`; "" is all
    seed: int = 0
    seconds: float = 60.0

    def report_progress(self, what: str) -> None:
        """Print the current step for the user."""
        print(f"{self.name}: {what}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Candidate:
    """Something to time.

    Attributes
    ----------
    name : str
    run : callable
        One repetition.
    work : float
        Work of one repetition, in the candidate's unit: operations or bytes.
    unit : str
        Of the rate, ``"GFLOP/s"``, ``"GOP/s"``, ``"GB/s"``: 1e9 of `work` a second.
    check : callable
        Raises `CheckFailed` if the result is wrong.
    details : dict
        More columns of the candidate's row.
    workers : str
        Whose threads run it; those of the last candidate are left to fall asleep before others wake up. "" are its own.
    """

    name: str
    run: Callable[[], object]
    work: float
    unit: str
    check: Callable[[], None] = lambda: None
    details: Row = field(default_factory=dict)
    workers: str = ""


class Times:
    """Seconds of one repetition of each candidate in each round."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        options: Options,
        threads: int,
        sample: float = SAMPLE_SECONDS,
        table: float = TABLE_SECONDS,
    ) -> None:
        self._threads, self._quick = threads, options.quick
        self._clock = time.process_time if threads == 1 else time.perf_counter
        self._last = ""  # whose threads ran
        self.candidates = {candidate.name: candidate for candidate in candidates}
        repeats: dict[str, int] = {}
        round_seconds = 0.0
        for candidate in candidates:
            candidate.run()
            candidate.check()
            begin = time.perf_counter()
            seconds = self._timed(candidate, 1)
            pauses = time.perf_counter() - begin - seconds if threads > 1 else 0.0
            wanted = 1 if options.quick else int(sample / max(seconds, 1e-9))
            repeats[candidate.name] = min(max(wanted, 1), MAX_REPEATS)
            round_seconds += repeats[candidate.name] * seconds + pauses
        rounds = min(max(int(table / max(round_seconds, 1e-9)), FEWEST_ROUNDS), ROUNDS)
        self.seconds: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            for turn in range(1 if options.quick else rounds):
                first = turn % len(candidates)
                for candidate in [*candidates[first:], *candidates[:first]]:
                    count = repeats[candidate.name]
                    self.seconds[candidate.name].append(self._timed(candidate, count) / count)
        finally:
            if was_enabled:
                gc.enable()

    def _timed(self, candidate: Candidate, count: int) -> float:
        run, workers = candidate.run, candidate.workers or candidate.name
        if self._threads > 1 and not self._quick:
            if workers != self._last:
                time.sleep(SETTLE_SECONDS)
            self._last = workers
            woken = time.perf_counter() + WAKE_SECONDS
            while time.perf_counter() < woken:
                run()
        if count > 1 and not self._quick:
            run()  # a short run then finds its own data in the caches, not those of the last candidate
        begin = self._clock()
        for _ in range(count):
            run()
        return max(self._clock() - begin, 1e-9)

    def median(self, name: str) -> float:
        """Return the median seconds of one repetition."""
        return float(np.median(self.seconds[name]))

    def rate(self, name: str) -> float:
        """Return the median of work a second."""
        return self.candidates[name].work / self.median(name)

    def speedup(self, name: str, base: str | None) -> float | None:
        """Return how many times faster a repetition is than one of `base`; None without a base."""
        if base is None or base not in self.seconds:
            return None
        return float(np.median(np.divide(self.seconds[base], self.seconds[name])))

    def fraction(self, name: str, base: str | None) -> float | None:
        """Return the ratio of the two rates, work a second."""
        ratio = self.speedup(name, base)
        if ratio is None or base is None:
            return None
        return ratio * self.candidates[name].work / self.candidates[base].work

    def best(self, names: Sequence[str]) -> str | None:
        """Return the name with the highest rate; None if no name was timed."""
        timed = [name for name in names if name in self.seconds]
        return max(timed, key=self.rate) if timed else None

    def row(self, name: str, **ratios: float | None) -> Row:
        """Return a candidate's row: its median time and rate, and these ratios if they are known."""
        candidate = self.candidates[name]
        row = {"name": name, "seconds": self.median(name), "rate": self.rate(name) / 1e9, "unit": candidate.unit}
        return {**row, **{key: value for key, value in ratios.items() if value is not None}, **candidate.details}


def expect_equal(name: str, found: Array, wanted: Array) -> None:
    """Raise unless two arrays hold the same bits."""
    if found.shape != wanted.shape or found.tobytes() != wanted.astype(found.dtype, copy=False).tobytes():
        raise CheckFailed(f"{name}: the result differs from the definition")


def expect_close(name: str, found: Array, wanted: Array, relative: float) -> None:
    """Raise if the norm of the difference exceeds this part of the norm of the expected values."""
    difference = np.linalg.norm(found.astype(np.float64) - wanted) / np.linalg.norm(wanted)
    if not difference <= relative:
        raise CheckFailed(
            f"{name}: the result is off by {difference:.3g} of its norm, at most {relative:.3g} was wanted"
        )
