"""A clock with processes that wait for time, for permits and for items: discrete-event simulation in one page.

A process is a generator that yields what it waits for: a number of seconds, ``gate.take()`` or ``shelf.get(key)``.
``gate.give()`` and ``shelf.put(key)`` need no time and wake a waiting process, the longest-waiting first.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator, Hashable
from typing import Any

Process = Generator["float | Callable[[Process], bool]", None, None]


class Clock:
    """Runs processes in order of time; at equal times, in the order in which they were woken."""

    def __init__(self) -> None:
        self.now = 0.0
        self._agenda: list[tuple[float, int, Process]] = []
        self._count = 0

    def start(self, process: Process, after: float = 0.0) -> None:
        """Schedule a process to continue `after` seconds from now."""
        self._count += 1
        heapq.heappush(self._agenda, (self.now + after, self._count, process))

    def run(self) -> None:
        """Run until all remaining processes wait for each other."""
        while self._agenda:
            self.now, _, process = heapq.heappop(self._agenda)
            for wanted in process:
                if not callable(wanted):
                    self.start(process, wanted)
                    break
                if not wanted(process):
                    break


class Gate:
    """A number of permits; a process that finds none waits."""

    def __init__(self, clock: Clock, permits: int) -> None:
        self._clock, self._free = clock, permits
        self._waiting: deque[Process] = deque()

    def take(self) -> Callable[[Process], bool]:
        """Return the value that a process yields to get a permit."""

        def ask(process: Process) -> bool:
            if self._free:
                self._free -= 1
                return True
            self._waiting.append(process)
            return False

        return ask

    def give(self) -> None:
        """Give a permit back."""
        if self._waiting:
            self._clock.start(self._waiting.popleft())
        else:
            self._free += 1


class Shelf:
    """Items by key, each put once and fetched once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._available: set[Hashable] = set()
        self._waiting: dict[Hashable, Process] = {}

    def put(self, key: Hashable) -> None:
        """Put an item."""
        if key in self._waiting:
            self._clock.start(self._waiting.pop(key))
        else:
            self._available.add(key)

    def get(self, key: Hashable) -> Callable[[Process], bool]:
        """Return the value that a process yields to fetch an item."""

        def ask(process: Process) -> bool:
            if key in self._available:
                self._available.remove(key)
                return True
            self._waiting[key] = process
            return False

        return ask


def simulate(*processes: Callable[[Clock], Any]) -> Clock:
    """Run processes that need a clock to be made, and return it when all have stopped.

    Parameters
    ----------
    *processes : callable
        Each takes the clock and returns a process.

    Examples
    --------
    >>> def twice(clock):
    ...     yield 1.5
    ...     yield 2.0
    >>> simulate(twice).now
    3.5
    """
    clock = Clock()
    for process in processes:
        clock.start(process(clock))
    clock.run()
    return clock
