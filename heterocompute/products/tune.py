"""Choosing by measurement: `tune` times every possible path of a call, and keeps the fastest for this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ..base import runtime
from ..base.devices import A_DEVICE
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import call_back
from ..base.progress import Progress, reported
from ..base.runtime import use
from ..base.values import as_real
from . import tuned
from .conv import conv2d
from .explain import Explained, Explanation, bound, explained_call
from .matmul import linear, matmul

__all__ = ["tune"]

FEWEST_ROUNDS = 3
FUNCTIONS: dict[str, Callable[..., Any]] = {"matmul": matmul, "linear": linear, "conv2d": conv2d}


def tune(
    function: object,
    *arguments: object,
    seconds: float = 0.5,
    progress: Progress | bool | None = None,
    **options: object,
) -> Explanation:
    """Time every available path of a matmul or convolution on this machine, and keep the fastest.

    Parameters
    ----------
    function : callable
        `matmul`, `linear` or `conv2d` of this package.
    *arguments, **options
        Arguments of a typical call. Shapes, formats, layouts and the settings of `use` matter; the values hardly do.
    seconds : float
        Approximate measuring time. Each path runs at least three times.
    progress : callable or bool, optional
        Called as ``progress(done, total, text)`` before each round over the paths, in hundredths of the time, and at
        the end. True: a bar of tqdm. False: nothing. Default: a bar in notebooks.

    Returns
    -------
    Explanation
        The result of `explain` for the call, with measured times. `chosen` is the fastest path.

    Raises
    ------
    ValueError, TypeError
        As raised by the function itself. Also if a path is forced, if there is nothing to multiply, or for a compressed
        matrix, which has one path.

    Notes
    -----
    Results apply only under ``hc.use(tuned=True)`` or with ``HETEROCOMPUTE_TUNED=1``. Calls of the same kind then use
    the fastest path. All paths of a matmul with a packed operand give bitwise identical results. Dense matmuls may use
    OpenBLAS, and convolution algorithms may sum in another order. ``accuracy="strict"`` excludes algorithms with a
    larger error than one sum.

    Paths run interleaved, and the least time counts: processor time with one thread, otherwise wall time. Times are
    stored in ``tuning.json`` in the user's cache folder, per processor and version. ``HETEROCOMPUTE_CACHE`` sets the
    folder. Concurrent writes of several processes are merged.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> x, q = np.ones((16, 64), np.float32), hc.quantize(np.ones((32, 64), np.float32), "int8")
    >>> found = hc.tune(hc.linear, x, q, activations="int8", seconds=0.01)  # doctest: +SKIP
    >>> with hc.use(tuned=True):
    ...     y = hc.linear(x, q, activations="int8")
    """
    budget = as_real(seconds, "tune: seconds", "a number of seconds")
    if not 0 <= budget <= 3600:
        raise WrongValue(f"tune: seconds is {shown(seconds)}, expected 0 to 3600")
    if not callable(function):
        raise WrongType(f"tune: the function is {shown(function)}, expected matmul, linear or conv2d")
    if runtime.run()[2]:
        raise WrongValue("tune: a path is forced by use(path=...), there is nothing to choose")
    with use(tuned=False):
        found = explained_call("tune", function, *arguments, **options)
        if found.is_device_input:
            raise WrongValue(f"tune: the call runs on {A_DEVICE}, expected the CPU")
        if not found.key:
            raise WrongValue("tune: there is nothing to choose: a compressed matrix has one way")
        if found.explanation.chosen == "nothing":
            raise WrongValue("tune: there is nothing to multiply")
        call = bound("tune", FUNCTIONS[found.function], arguments, options)
        ms = _measured(found.function, call, _ways(found), budget, reported(progress, "tune", 100))
    tuned.keep(found.key, min(ms, key=ms.__getitem__), ms)
    with use(tuned=True):
        return explained_call("tune", function, *arguments, **options).explanation


def _ways(found: Explained) -> list[str]:
    """Return the candidates that can run: those with an estimate, those of a BLAS only if it supports the operands."""
    explained = found.explanation
    ways = [one.path for one in explained.candidates if one.predicted_ms is not None or one.path == explained.chosen]
    if runtime.forced_route() == runtime.OWN:  # by default too: a BLAS has other bits
        ways = [way for way in ways if way != tuned.BLAS]
    if found.blas and not runtime.forced_route() and tuned.BLAS not in ways:
        ways.append(tuned.BLAS)
    return ways


def _measured(
    name: str, call: dict[str, Any], ways: list[str], budget: float, tell: Progress | None
) -> dict[str, float]:
    """Return the shortest time in milliseconds of each path that supports these operands."""
    function = FUNCTIONS[name]
    call = {**call, "out": np.empty_like(function(**call))}
    clock = time.process_time if runtime.get_num_threads() == 1 else time.perf_counter

    def seconds(way: str) -> float:
        within, options = _by(name, way)
        with within:
            begin = clock()
            function(**{**call, **options})
            return clock() - begin

    taken: dict[str, float] = {}
    for way in ways:
        try:
            seconds(way)  # the first call finds cold caches
            taken[way] = seconds(way)
        except ValueError:  # refused for these values
            continue
    begin, rounds = time.perf_counter(), 1
    while rounds < FEWEST_ROUNDS or time.perf_counter() - begin < budget:
        if tell is not None:
            part = (time.perf_counter() - begin) / budget if budget else 1.0
            call_back(tell, min(int(100 * part), 99), 100, f"round {rounds}")
        for way in taken:
            taken[way] = min(taken[way], seconds(way))
        rounds += 1
    if tell is not None:
        call_back(tell, 100, 100, "done")
    return {way: max(least, 1e-9) * 1e3 for way, least in taken.items()}


def _by(name: str, way: str) -> tuple[AbstractContextManager[None], dict[str, str]]:
    """Return the context and the keyword arguments that make a call take one path."""
    if name == "conv2d":
        return nullcontext(), {"algorithm": way}
    return use(blas="openblas") if way == tuned.BLAS else use(path=way), {}
