"""Costs of the plan's counts of work on the machine at hand: measured once, kept, and used from then on.

Paths of matmuls and algorithms of convolutions are timed on a sample of calls, drawn by a fixed seed. `fit` then makes
costs of the times. Costs choose among paths that give the same bits, so results never change.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ... import _heterocompute as _core
from ...base import runtime
from ...base.cache_files import COSTS, costs_file, costs_of_build, keep_costs, use_costs
from ...base.errors import WrongValue, shown
from ...base.float_env import call_back
from ...base.notebooks.shown import Facts
from ...base.progress import Progress, reported
from ...base.runtime import use
from ...base.values import as_real
from ...products import tuned
from ...products.arguments import core_operand
from ...products.conv import prepared
from ...products.quantize import quantize
from .fit import fit

__all__ = ["MeasuredCosts", "calibrate"]

Array = np.ndarray[Any, Any]
Found = list[tuple[str, Any, float, Callable[..., Any], Any]]  # of a path: its name, counts, estimate, call, arguments

Point = tuple[str, Array, float, float]  # of a path: its name, counts with 1 for the call, ns, its estimate in ns

SECONDS = 25.0
WEIGHTS = (
    "int8", "int4", "int4-g32-f16", "vsq4-g16-s4", "vsq6-g16-s6", "vsq8-g64-s8", "nf4-g64", "mxfp4", "fp8_e4m3fn-row",
    "log8-8", "int8+2:4", "vsq4-g16-s4+2:4", "2:4", "3:4", "4:8", "1:8",
)  # fmt: skip
SHAPES, ROWS, ACTIVATIONS = ((64, 64), (256, 512), (1024, 1024)), (1, 2, 4, 8, 16, 64), (None, "int8", "int24")
LAYERS = (  # channels, size of the images, filters, their size, stride, groups
    (16, 16, 16, 3, 1, 1), (64, 14, 64, 3, 1, 1), (64, 28, 64, 3, 1, 1), (128, 28, 128, 3, 2, 1),
    (256, 7, 256, 3, 1, 1), (64, 28, 64, 1, 1, 1), (256, 14, 64, 1, 1, 1), (64, 28, 256, 1, 1, 1),
    (512, 7, 512, 1, 1, 1), (32, 28, 32, 3, 1, 32), (144, 14, 144, 3, 1, 144), (96, 28, 96, 3, 2, 96),
    (96, 14, 96, 5, 1, 96), (64, 14, 64, 3, 1, 4),
)  # fmt: skip
FILTERS, IMAGES, LAYOUTS = ("int8", "int8", "vsq4-g16-s4", "int4-g32-f16"), (1, 4), ("NCHW", "NHWC")
LEAST = {"product": 40, "conv": 12}  # calls: fewer tell too little
SHARE = 0.65  # of the time, for matmuls
TURNS, TURN_SECONDS = 3, 0.0005
FAR = 3.0  # a path that is so much slower than the fastest is timed once


@dataclass(frozen=True)
class MeasuredCosts(Facts):
    """The results of `calibrate`.

    Attributes
    ----------
    processor : str
        The processor, such as ``"amd-25-17"``.
    path : str or None
        The file of the costs; None if they are not kept: there were too few calls, they choose no better than those of
        this build, or the folder cannot be written.
    calls : int
        The matmuls and convolutions that were timed, by every path.
    before, after : float
        The time of the chosen paths divided by that of the fastest ones, the mean over these calls: with the costs of
        this build, and with those of this machine. A call is judged by costs that are fitted to the other half of the
        calls. Matmuls or convolutions that are not better with them keep the costs of this build.
    """

    processor: str
    path: str | None
    calls: int
    before: float
    after: float


def calibrate(seconds: float = SECONDS, progress: Progress | bool | None = None) -> MeasuredCosts:
    """Measure the costs of matmul paths and convolution algorithms on this machine, and use them from now on.

    Parameters
    ----------
    seconds : float, default 25
        Time for the measurements.
    progress : callable or bool, optional
        Called as ``progress(done, total, text)`` before each measured call, in hundredths of the time, and at the end.
        True: a bar of tqdm. False: nothing. Default: a bar in notebooks.

    Returns
    -------
    MeasuredCosts

    Raises
    ------
    ValueError
        seconds is not 0 to 3600, or a path is forced by `use`.

    Notes
    -----
    The plan of a call multiplies counts of work by costs and takes the path with the least sum. The costs of a build
    are those of the machines in ``docs/measurements``. `calibrate` replaces them by costs of this machine, for the
    instruction sets of this call. One thread is measured, in processor time. Paths that the sample does not reach have
    the costs of the build, scaled.

    Costs choose only among paths and algorithms with bitwise identical results. The choice among convolutions of floats
    with different bits depends on shapes alone, on every machine. A choice of `tune` has precedence under
    ``use(tuned=True)``.

    The costs are one file, ``costs-<processor>.json``, in the user's cache folder. Later processes read it when they
    import heterocompute. Another version of heterocompute ignores it. ``HETEROCOMPUTE_CACHE`` sets the folder. Deleting
    the file restores the costs of the build.

    Examples
    --------
    >>> import heterocompute as hc
    >>> found = hc.calibrate()  # doctest: +SKIP
    >>> found.after <= found.before  # doctest: +SKIP
    True
    """
    budget = as_real(seconds, "calibrate: seconds", "a number of seconds")
    if not 0 <= budget <= 3600:
        raise WrongValue(f"calibrate: seconds is {shown(seconds)}, expected 0 to 3600")
    if runtime.run()[2]:
        raise WrongValue("calibrate: a path is forced by use(path=...), there is nothing to choose")
    tell = reported(progress, "calibrate", 100)
    mask, start = runtime.run()[0], time.perf_counter()

    def step(text: str) -> None:
        if tell is not None:
            part = (time.perf_counter() - start) / budget if budget else 1.0
            call_back(tell, min(int(100 * part), 99), 100, text)

    build = costs_of_build(mask)
    with use(threads=1, tuned=False):
        points = {
            "product": _points(_products(mask), start + SHARE * budget, lambda: step("matmul")),
            "conv": _points(_convolutions(), start + budget, lambda: step("convolution")),
        }
    ratios = {kind: _ratios(points[kind], build[kind], build[kind]) for kind in COSTS}
    before, costs, better = float(np.mean(sum(ratios.values(), []))), dict(build), False
    for kind in COSTS:
        held = _held_out(points[kind], build[kind])
        if len(points[kind]) >= LEAST[kind] and np.mean(held) < np.mean(ratios[kind]):
            costs[kind], ratios[kind], better = _fitted(points[kind], build[kind]), held, True
    after = float(np.mean(sum(ratios.values(), [])))
    if better:
        keep_costs(mask, costs)
    path = str(costs_file()) if use_costs() is not None and better else None
    for listener in tuned.listeners:
        listener()
    if tell is not None:
        call_back(tell, 100, 100, "done")
    calls = sum(map(len, points.values()))
    return MeasuredCosts(_core.cpu_processor(), path, calls, before, after)


def _products(mask: int) -> Iterator[Callable[[], Found]]:
    """Yield calls in a fixed order of chance, without an end."""
    cases = [*itertools.product(WEIGHTS, SHAPES, ACTIVATIONS, ROWS)]
    names = _core.paths()[0]

    def draw(text: str, shape: tuple[int, int], activations: str | None, m: int) -> Found:
        rng = np.random.default_rng(0)
        w = core_operand(quantize(rng.standard_normal(shape, dtype=np.float32), text).T)
        x = rng.standard_normal((m, shape[1]), dtype=np.float32)
        operand = core_operand(quantize(x, activations)) if activations else x
        out = np.empty((m, shape[0]), np.float32)
        _, _, (_, found, _) = _core.explain((mask, 1), operand, w, None, out)
        calls: Found = []
        for name, _, reason, seconds, number, work in found:
            if reason is None:
                run = (mask, 1, 1 + names.index(name))
                calls.append((number, work, seconds, _core.matmul, (run, operand, w, None, None, out)))
        return calls

    return _endless(cases, draw)


def _convolutions() -> Iterator[Callable[[], Found]]:
    cases = [*itertools.product(LAYERS, FILTERS, IMAGES, LAYOUTS)]

    def draw(layer: tuple[int, ...], text: str, images: int, layout: str) -> Found:
        c, size, k, r, stride, groups = layer
        rng = np.random.default_rng(0)
        w = quantize(rng.standard_normal((k, c // groups, r, r), dtype=np.float32), text, axis=(2, 3, 1))
        shape = (images, c, size, size) if layout == "NCHW" else (images, size, size, c)
        x = rng.standard_normal(shape, dtype=np.float32)
        call = prepared("calibrate", x, w, None, stride, r // 2, 1, groups, "int8", layout=layout)
        calls: Found = []
        for name, _, reason, seconds, work, _, _, number in _core.explain_conv2d(*call.core)[1]:
            if reason is None:
                calls.append((number, work, seconds, _core.conv2d, call.arguments_for(name)))
        return calls

    return _endless(cases, draw)


def _endless(cases: list[Any], draw: Callable[..., Found]) -> Iterator[Callable[[], Found]]:
    rng = np.random.default_rng(0)
    while True:
        for i in rng.permutation(len(cases)):
            yield partial(draw, *cases[i])


def _points(draws: Iterator[Callable[[], Found]], end: float, step: Callable[[], None]) -> list[list[Point]]:
    """Time every path of the calls until `end`."""
    points: list[list[Point]] = []
    for draw in draws:
        if time.perf_counter() >= end and points:
            return points
        step()
        found = draw()
        times = _times(found)
        points.append(
            [
                (name, np.array([1.0, *work]), ns, seconds * 1e9)
                for (name, work, seconds, *_), ns in zip(found, times, strict=True)
            ]
        )
    return points


def _times(found: Found) -> list[float]:
    least = [float("inf")] * len(found)
    for *_, call, arguments in found:
        call(*arguments)
    for turn in range(TURNS):
        for i, (*_, call, arguments) in enumerate(found):
            if turn and least[i] > FAR * min(least):
                continue
            begin, count = time.process_time_ns(), 0
            while count == 0 or time.process_time_ns() - begin < TURN_SECONDS * 1e9:
                call(*arguments)
                count += 1
            least[i] = min(least[i], max(time.process_time_ns() - begin, 1) / count)
    return least


def _fitted(points: list[list[Point]], build: dict[str, Array]) -> dict[str, Array]:
    """Return the costs of each path: of its measurements, and of the build where they decide nothing."""
    rows: dict[str, list[tuple[Array, float, float, float]]] = {}
    for call in points:
        fastest = min(ns for _, _, ns, _ in call)
        for name, counts, ns, estimate in call:
            rows.setdefault(name, []).append((counts, ns, ns / fastest, estimate))
    ratios = {name: float(np.median([ns / estimate for _, ns, _, estimate in of])) for name, of in rows.items()}
    scale = float(np.median(list(ratios.values()))) if ratios else 1.0
    costs = {}
    for name, known in build.items():
        of = rows.get(name, [])
        known = known * ratios.get(name, scale)
        if not of or known[0] == 0:
            costs[name] = known
            continue
        counts, times, slower, estimates = (np.array(part) for part in zip(*of, strict=True))
        rest = np.clip(estimates - counts @ build[name], 0, 0.9 * times)  # what the estimate adds to the counts
        costs[name] = fit(counts, times - rest, slower, known)[0]
    return costs


def _held_out(points: list[list[Point]], build: dict[str, Array]) -> list[float]:
    """Return the ratios of `_ratios` of each half of the calls, by costs that are fitted to the other half."""
    halves = points[::2], points[1::2]
    return [ratio for half, other in (halves, halves[::-1]) for ratio in _ratios(half, _fitted(other, build), build)]


def _ratios(points: list[list[Point]], costs: dict[str, Array], build: dict[str, Array]) -> list[float]:
    """Return the time of the path with the least estimate over that of the fastest path, of each call."""
    ratios = []
    for call in points:
        rests = (estimate - float(counts @ build[name]) for name, counts, _, estimate in call)
        estimates = [float(c @ costs[name]) + r for (name, c, *_), r in zip(call, rests, strict=True)]
        times = [ns for _, _, ns, _ in call]
        ratios.append(times[int(np.argmin(estimates))] / min(times))
    return ratios
