"""An input pipeline run with real threads that sleep, as a check of the simulation."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .pipelines import Feed


class _Slots:
    """Slots for batches by number; `get` waits until the batch is there."""

    def __init__(self, steps: int) -> None:
        self._available = [threading.Event() for _ in range(steps)]

    def put(self, batch: int) -> None:
        self._available[batch].set()

    def get(self, batch: int) -> None:
        self._available[batch].wait()


def rehearse(feed: Feed) -> float:
    """Run a pipeline with threads, and return the measured seconds a step.

    Returns
    -------
    float
        From the end of the first step to the end of the last, over the steps between.
    """
    ready, on_device = _Slots(feed.steps), _Slots(feed.steps)
    storage = threading.Semaphore(feed.storage) if feed.storage else contextlib.nullcontext()
    room = [threading.Semaphore(feed.prefetch) for _ in range(feed.workers)]
    ahead = threading.Semaphore(1)
    ends: list[float] = []

    def fetch(batch: int) -> None:
        with storage:
            time.sleep(feed.reading(batch))
        time.sleep(feed.at("decode", batch))

    def work(worker: int) -> None:
        for batch in range(worker, feed.steps, feed.workers):
            room[worker].acquire()
            fetch(batch)
            ready.put(batch)

    def send() -> None:
        for batch in range(feed.steps):
            ahead.acquire()
            ready.get(batch)
            room[batch % feed.workers].release()
            time.sleep(feed.copying(batch))
            on_device.put(batch)

    overlaps = feed.pinned and feed.workers > 0
    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in range(feed.workers)]
    threads += [threading.Thread(target=send, daemon=True)] * overlaps
    for thread in threads:
        thread.start()
    for batch in range(feed.steps):
        if overlaps:
            on_device.get(batch)
            ahead.release()
        else:
            if feed.workers:
                ready.get(batch)
                room[batch % feed.workers].release()
            else:
                fetch(batch)
            time.sleep(feed.copying(batch))
        time.sleep(feed.at("step", batch))
        for _, seconds in feed.after(batch):
            time.sleep(seconds)
        ends.append(time.perf_counter())
    for thread in threads:
        thread.join()
    return (ends[-1] - ends[0]) / (feed.steps - 1)
