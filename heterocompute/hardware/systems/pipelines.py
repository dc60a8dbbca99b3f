"""The pipeline that feeds a training: storage, decoding by workers, the copy to the device, the step, interruptions.

A worker reads a batch, decodes it, and starts the next if fewer than `prefetch` of its batches are waiting. Batches
reach the device in order. A pinned copy overlaps with the step, one batch ahead; a pageable one precedes it. Without
workers one thread does everything. Every `n` steps a checkpoint or a log stops the steps, not the workers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...base.errors import WrongValue, shown
from ...base.notebooks.shown import Facts
from ...base.values import as_int, check_choice, check_count, check_flag, check_number, is_several
from ...report.chart import Chart
from ...report.files import write_figure, write_text
from ...report.plot import figure_of
from ...report.timeline import timeline
from .events import Clock, Gate, Process, Shelf
from .rehearsal import rehearse

Seconds = float | Sequence[float]
SHOWN_STEPS = 12  # of the picture


@dataclass(frozen=True)
class Feed(Facts):
    """The parameters of `pipeline`, checked."""

    step: tuple[float, ...]
    read: tuple[float, ...]
    decode: tuple[float, ...]
    copy: tuple[float, ...]
    workers: int
    prefetch: int
    storage: int | None
    files: int
    open_seconds: float
    pinned: bool
    staging: float
    metrics: float
    log: tuple[int, float]
    checkpoint: tuple[int, float]
    steps: int

    def at(self, stage: str, batch: int) -> float:
        """Return the seconds of a stage for a batch; listed seconds repeat."""
        check_choice("Feed", "stage", stage, ("step", "read", "decode", "copy"))
        times: tuple[float, ...] = getattr(self, stage)
        return times[as_int(batch, "Feed: batch", 0) % len(times)]

    def reading(self, batch: int) -> float:
        return self.at("read", batch) + self.files * self.open_seconds

    def copying(self, batch: int) -> float:
        return self.at("copy", batch) + (0.0 if self.pinned else self.staging)

    def after(self, batch: int) -> Iterator[tuple[str, float]]:
        """Yield the interruptions after this step."""
        if self.metrics:
            yield "metrics", self.metrics
        for name in ("log", "checkpoint"):
            every, seconds = getattr(self, name)
            if every and seconds and (batch + 1) % every == 0:
                yield name, seconds


@dataclass(frozen=True, repr=False)
class PipelineRun(Facts):
    """The result of `pipeline`.

    Attributes
    ----------
    feed : Feed
        The simulated parameters.
    seconds : float
        Time from the first read to the end of the last step and the work after it.
    step_seconds : float
        Mean time of a step, from the end of the first step to the end of the last.
    utilization : float
        Share of `seconds` in which the device runs a step.
    waiting : float
        Seconds in which the device waits for a batch or its copy.
    causes : list of dict
        ``cause``, ``change``, ``saved`` (seconds of the run that this change alone saves) and ``step_seconds`` with it,
        the largest first. Changes that save nothing are left out.
    events : list of (str, int, float, float, str)
        Lane, batch, begin, end and description of every event of the run.
    """

    feed: Feed
    seconds: float
    step_seconds: float
    utilization: float
    waiting: float
    causes: list[dict[str, Any]] = field(compare=False)
    events: list[tuple[str, int, float, float, str]] = field(compare=False)

    @property
    def stages(self) -> list[dict[str, Any]]:
        """Return the busy seconds of each stage, over all workers: ``stage``, ``seconds``, ``each`` (per batch)."""
        busy: dict[str, float] = {}
        for _, _, begin, end, what in self.events:
            busy[what] = busy.get(what, 0.0) + end - begin
        return [{"stage": what, "seconds": total, "each": total / self.feed.steps} for what, total in busy.items()]

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the events as plain values, for JSON.

        Returns
        -------
        dict
        """
        keys = ("seconds", "step_seconds", "utilization", "waiting", "stages", "causes")
        return {"steps": self.feed.steps, **{key: getattr(self, key) for key in keys}}

    def to_svg(self, path: str | os.PathLike[str] | None = None, steps: int = SHOWN_STEPS) -> str:
        """Draw a timeline of the first steps and return the SVG.

        Parameters
        ----------
        path : str or os.PathLike, optional
            Also write the SVG to this path.
        steps : int, optional

        Returns
        -------
        str
            SVG.
        """
        chart = self._timeline(check_count("pipeline.to_svg", "steps", steps))
        picture = chart.svg(chart.legend())
        if path is not None:
            write_text(path, picture)
        return picture

    def plot(self, path: str | os.PathLike[str] | None = None, steps: int = SHOWN_STEPS) -> Any:
        """Draw the timeline with matplotlib.

        Parameters
        ----------
        path : str or os.PathLike, optional
            Also write the figure to this path, in the format of the suffix.
        steps : int, optional

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            matplotlib is not installed.
        """
        figure = figure_of(self._timeline(check_count("pipeline.plot", "steps", steps)))
        if path is not None:
            write_figure(path, figure)
        return figure

    def _timeline(self, steps: int) -> Chart:
        rows = [
            {
                "lane": lane,
                "begin": begin,
                "end": end,
                "kind": what,
                "name": f"of batch {batch}",
                "faint": batch % 2 == 1,
            }  # fmt: skip
            for lane, batch, begin, end, what in self.events
            if batch < steps
        ]
        title = f"An input pipeline: {self.step_seconds * 1e3:.4g} ms a step, device busy {self.utilization:.0%}"
        return timeline(rows, title)

    def rehearse(self) -> float:
        """Run the pipeline with sleeping threads, and return the measured seconds per step.

        Returns
        -------
        float
            As `step_seconds`. The call takes `seconds`.
        """
        return rehearse(self.feed)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def __repr__(self) -> str:
        head = (
            f"<PipelineRun of {self.feed.steps} steps: {self.seconds:.4g} s, {self.step_seconds * 1e3:.4g} ms a step, "
            f"device busy {self.utilization:.1%}, waiting {self.waiting:.4g} s"
        )
        wide = max((len(row["cause"]) for row in self.causes), default=0)
        rows = [
            f"  {row['cause']:{wide}}  saves {row['saved']:8.4g} s, {row['step_seconds'] * 1e3:.4g} ms a step: "
            f"{row['change']}"
            for row in self.causes
        ]
        return "\n".join([head, *rows]) + ">"


def pipeline(
    step: Seconds,
    read: Seconds = 0.0,
    decode: Seconds = 0.0,
    copy: Seconds = 0.0,
    *,
    workers: int = 0,
    prefetch: int = 2,
    storage: int | None = None,
    files: int = 0,
    open_seconds: float = 0.0,
    pinned: bool = False,
    staging: float = 0.0,
    metrics: float = 0.0,
    log: tuple[int, float] = (0, 0.0),
    checkpoint: tuple[int, float] = (0, 0.0),
    steps: int = 200,
) -> PipelineRun:
    """Simulate a training's input pipeline, and rank the causes of idle device time by the seconds they cost.

    Parameters
    ----------
    step : float or sequence of float
        Seconds of one step on the device. A sequence gives the seconds of each batch and repeats.
    read, decode, copy : float or sequence of float, optional
        Seconds per batch: from storage, in one worker, to the device.
    workers : int, optional
        Processes that read and decode. 0: the training thread does it between steps.
    prefetch : int, optional
        Batches that each worker keeps ready.
    storage : int, optional
        Concurrent reads that storage serves. Default: unlimited.
    files : int, optional
        Files per batch, each opened in `open_seconds`: the cost of small files and remote storage.
    open_seconds : float, optional
    pinned : bool, optional
        Whether batches are in pinned memory, so that the copy overlaps the step.
    staging : float, optional
        Seconds per batch of the additional copy of pageable memory.
    metrics : float, optional
        Seconds after each step for losses and metrics that are fetched to the host.
    log, checkpoint : (int, float), optional
        (interval in steps, seconds). Interval 0: never.
    steps : int, optional

    Returns
    -------
    PipelineRun

    Raises
    ------
    ValueError
        Seconds are negative or not numbers, or counts are not positive.
    TypeError
        Counts are not integers.

    Notes
    -----
    The limits are the sum of the stages (no workers, pageable) and the slowest stage. The slowest stage is the longest
    of storage's share, (read + decode) / workers, copy and step.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> run = hw.systems.pipeline(step=0.1, read=0.05, decode=0.35, copy=0.02, workers=2, pinned=True)
    >>> round(run.step_seconds, 3), round(run.utilization, 2), run.causes[0]["cause"]
    (0.199, 0.5, 'preprocessing')
    """
    feed = Feed(
        _times("step", step), _times("read", read), _times("decode", decode), _times("copy", copy),
        as_int(workers, "pipeline: workers", 0, 4096), as_int(prefetch, "pipeline: prefetch", 1, 1 << 20),
        None if storage is None else as_int(storage, "pipeline: storage", 1, 1 << 20),
        as_int(files, "pipeline: files", 0, 1 << 30), _number("open_seconds", open_seconds),
        check_flag("pipeline", "pinned", pinned),
        _number("staging", staging), _number("metrics", metrics), _every("log", log),
        _every("checkpoint", checkpoint), as_int(steps, "pipeline: steps", 2, 1_000_000),
    )  # fmt: skip
    seconds, step_seconds, events = _run(feed)
    busy = math.fsum(end - begin for _, _, begin, end, what in events if what == "step")
    held = math.fsum(end - begin for lane, _, begin, end, what in events if lane == "device" and what != "step")
    causes: list[dict[str, Any]] = []
    for cause, change, other in _changes(feed):
        total, each, _ = _run(other)
        if seconds - total > 1e-9 * seconds:
            causes.append({"cause": cause, "change": change, "saved": seconds - total, "step_seconds": each})
    causes.sort(key=lambda row: row["saved"], reverse=True)
    return PipelineRun(feed, seconds, step_seconds, busy / seconds if seconds else 1.0,
                       max(0.0, seconds - busy - held), causes, events)  # fmt: skip


def _changes(feed: Feed) -> Iterator[tuple[str, str, Feed]]:
    """Yield each cause of a waiting device, and the pipeline without it."""
    mean = {stage: math.fsum(getattr(feed, stage)) / len(getattr(feed, stage)) for stage in ("step", "read", "decode")}
    load = mean["read"] + feed.files * feed.open_seconds + mean["decode"]
    held = max(mean["step"] + feed.metrics, 1e-12)
    needed = max(1, min(4096, math.ceil(load / held)))
    yield "storage", "reading takes no time: storage nearby, a faster one", replace(feed, read=(0.0,))
    if feed.files:
        yield "small files", "nothing is opened: samples packed into large files", replace(feed, open_seconds=0.0)
    yield "preprocessing", "decoding takes no time: done before, or on the device", replace(feed, decode=(0.0,))
    if feed.workers < needed:
        yield "workers", f"workers={needed} instead of {feed.workers}", replace(feed, workers=needed)
    if feed.workers:
        deep = replace(feed, prefetch=8 * feed.prefetch)
        yield "prefetch", f"prefetch={deep.prefetch} instead of {feed.prefetch}", deep
    if not feed.pinned and feed.workers:
        yield "pageable memory", "pinned=True: the copy runs beside the step", replace(feed, pinned=True)
    yield "copy", "copying takes no time: fewer bytes, a faster link", replace(feed, copy=(0.0,), staging=0.0)
    yield "metrics", "losses and metrics stay on the device", replace(feed, metrics=0.0)
    if feed.log[0]:
        rare = max(100, feed.log[0])
        yield "log", f"log every {rare} steps instead of {feed.log[0]}", replace(feed, log=(rare, feed.log[1]))
    if feed.checkpoint[0]:
        yield "checkpoint", "checkpoints written beside the training", replace(feed, checkpoint=(0, 0.0))


def _run(feed: Feed) -> tuple[float, float, list[tuple[str, int, float, float, str]]]:
    clock = Clock()
    ready, on_device = Shelf(clock), Shelf(clock)  # decoded batches; batches on the device
    storage = None if feed.storage is None else Gate(clock, feed.storage)
    room = [Gate(clock, feed.prefetch) for _ in range(feed.workers)]
    ahead = Gate(clock, 1)  # one batch in addition to the one in use
    events: list[tuple[str, int, float, float, str]] = []
    ends: list[float] = []

    def spend(lane: str, batch: int, seconds: float, what: str) -> Iterator[float]:
        if seconds:
            begin = clock.now
            yield seconds
            events.append((lane, batch, begin, clock.now, what))

    def fetch(lane: str, batch: int) -> Process:
        if storage is not None:
            yield storage.take()
        yield from spend(lane, batch, feed.reading(batch), "read")
        if storage is not None:
            storage.give()
        yield from spend(lane, batch, feed.at("decode", batch), "decode")

    def work(worker: int) -> Process:
        for batch in range(worker, feed.steps, feed.workers):
            yield room[worker].take()
            yield from fetch(f"worker {worker}", batch)
            ready.put(batch)

    def send() -> Process:
        for batch in range(feed.steps):
            yield ahead.take()
            yield ready.get(batch)
            room[batch % feed.workers].give()
            yield from spend("copy", batch, feed.copying(batch), "copy")
            on_device.put(batch)

    def train() -> Process:
        overlaps = feed.pinned and feed.workers > 0
        for batch in range(feed.steps):
            if overlaps:
                yield on_device.get(batch)
                ahead.give()
            else:
                if feed.workers:
                    yield ready.get(batch)
                    room[batch % feed.workers].give()
                else:
                    yield from fetch("main", batch)
                yield from spend("copy", batch, feed.copying(batch), "copy")
            yield from spend("device", batch, feed.at("step", batch), "step")
            for what, seconds in feed.after(batch):
                yield from spend("device", batch, seconds, what)
            ends.append(clock.now)

    for worker in range(feed.workers):
        clock.start(work(worker))
    if feed.pinned and feed.workers:
        clock.start(send())
    clock.start(train())
    clock.run()
    return clock.now, (ends[-1] - ends[0]) / (feed.steps - 1), events


def _times(name: str, value: Seconds) -> tuple[float, ...]:
    listed = list(value) if is_several(value) else [value]
    if not listed:
        raise WrongValue(f"pipeline: {name} is empty, expected seconds")
    return tuple(_number(name, one) for one in listed)


def _number(name: str, value: object) -> float:
    return check_number("pipeline", name, value, high=1e9, closed=True)


def _every(name: str, value: object) -> tuple[int, float]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise WrongValue(f"pipeline: {name} is {shown(value)}, expected (every so many steps, seconds)")
    return as_int(value[0], f"pipeline: {name}", 0), _number(name, value[1])
