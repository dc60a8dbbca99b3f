"""A drawn call: ours, the other libraries and every path, verified and timed in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ..conv import sound
from ..measure import Candidate, CheckFailed, Options, Row, Times

Array = np.ndarray[Any, Any]
T = TypeVar("T")
Calls = dict[str, tuple[Callable[[], Any], Callable[[], None]]]  # of other libraries, and the checks of their results

OURS, READY = "ours", "prepacked"
SAMPLE_SECONDS, CALL_SECONDS = 0.004, 0.5  # of a turn, and of all turns of a call
FAR = 2.0  # a path that is so much slower than the call itself is not timed in turns
FLOAT_ERROR = 1e-4  # of a result of floats, relative to its norm; Winograd's largest tiles lose four digits


@dataclass
class Call:
    """A call with random operands.

    Attributes
    ----------
    group : str
        Calls of one group share a row of the table.
    text : str
        The call in words.
    run : callable
    check : callable
        Raises `CheckFailed` if the result of `run` is wrong.
    peers : dict of str to (callable, callable)
        A call of another library, and a function that raises `CheckFailed` if its result is wrong.
    paths : dict of str to callable
        The same call by each path that applies.
    loose : frozenset of str
        Paths whose order of sums is another one, so that their bits may differ.
    chosen : str or None
        The path that `run` uses.
    estimates : dict of str to float
        Seconds that the plan expects of a path.
    result : callable
        The result of the call or path that ran last.
    ready : callable or None
        The same call with prepacked weights, where the other libraries have prepacked theirs.
    """

    group: str
    text: str
    run: Callable[[], Any]
    check: Callable[[], None] = lambda: None
    peers: Calls = field(default_factory=dict)
    paths: dict[str, Callable[[], Any]] = field(default_factory=dict)
    loose: frozenset[str] = frozenset()
    chosen: str | None = None
    estimates: Mapping[str, float] = field(default_factory=dict)
    result: Callable[[], Array] | None = None
    ready: Callable[[], Any] | None = None


class Draw:
    """The random choices of one call. Equal seeds give equal calls."""

    def __init__(self, kind: int, seed: int, quick: bool) -> None:
        self.rng, self.quick = np.random.default_rng([kind, seed]), quick

    def pick(self, values: Sequence[T]) -> T:
        """Return one of the values."""
        return values[int(self.rng.integers(len(values)))]

    def chance(self, share: float) -> bool:
        """Return True in this share of the calls."""
        return bool(self.rng.random() < share)

    def size(self, size: int) -> int:
        """Return a size, reduced for a quick run, and in a quarter of the calls another one near it."""
        if self.quick:
            size = min(size, 24)
        return max(1, size + int(self.rng.integers(-7, 8))) if self.chance(0.25) else size

    def normal(self, *shape: int) -> Array:
        """Return random float32 values."""
        return self.rng.standard_normal(shape, dtype=np.float32)

    def floats(self, *shape: int) -> tuple[Array, str]:
        """Return values of some dtype and strides, and a text for them: mostly float32 in C order."""
        kind = self.pick(("", "", "", "", "", "", "", "float16", "view", "view"))
        if kind == "float16":
            return self.normal(*shape).astype(np.float16), " float16"
        if kind == "view":
            return self.normal(*shape[:-1], shape[-1] + 16)[..., 8:-8], " view"
        return self.normal(*shape), ""


def sizes_text(shape: Sequence[int]) -> str:
    """Return a shape as text."""
    return " x ".join(map(str, shape))


def close(name: str, call: Callable[[], Any], wanted: Array, error: float = FLOAT_ERROR) -> Callable[[], None]:
    """Return a function that compares a call's result with values in float64."""

    def check() -> None:
        found = np.asarray(call())
        if found.shape != wanted.shape:
            raise CheckFailed(f"{name}: the shape is {found.shape}, {wanted.shape} was wanted")
        difference, size = np.linalg.norm(found.astype(np.float64) - wanted), np.linalg.norm(wanted)
        if not difference <= error * size:
            raise CheckFailed(f"{name}: the result is off by {difference:.3g}, its norm is {size:.3g}")

    return check


def timed(call: Call, kind: str, seed: int, threads: int, options: Options) -> Row:
    """Verify a call, time it, and return its row."""
    candidates = [Candidate(OURS, call.run, 1.0, "calls/s", call.check, workers=OURS)]
    if call.ready:
        candidates.append(Candidate(READY, call.ready, 1.0, "calls/s", partial(_same, call), workers=OURS))
    others = [
        Candidate(name, run, 1.0, "calls/s", check, workers=name.split()[0])
        for name, (run, check) in call.peers.items()
    ]
    others = sound(others, call.text, options)
    forced = [Candidate(f"path {name}", run, 1.0, "calls/s", workers=OURS) for name, run in _near(call)]
    times = Times([*candidates, *forced, *others], options, threads, SAMPLE_SECONDS, CALL_SECONDS)
    peer, fastest = times.best([one.name for one in others]), times.best([one.name for one in forced])
    estimate = call.estimates.get(call.chosen or "")
    return {
        "kind": kind,
        "group": call.group,
        "call": call.text,
        "seed": seed,
        "ms": times.median(OURS) * 1e3,
        "peer": peer,
        "peer_ms": times.median(peer) * 1e3 if peer else None,
        "ratio": times.speedup(OURS, peer),
        "path": call.chosen,
        "estimate_ms": estimate * 1e3 if estimate else None,
        "fastest_path": fastest.removeprefix("path ") if fastest else None,
        "fastest_ms": times.median(fastest) * 1e3 if fastest else None,
        "prepacked_ms": times.median(READY) * 1e3 if call.ready else None,
        "prepacked_ratio": times.speedup(READY, peer) if call.ready else None,
        "peers": {one.name: times.median(one.name) * 1e3 for one in others},
    }


def _same(call: Call) -> None:
    """Raise `CheckFailed` if prepacked weights give other bits."""
    assert call.ready is not None and call.result is not None
    call.run()
    wanted = call.result().tobytes()
    call.ready()
    if call.result().tobytes() != wanted:
        raise CheckFailed(f"{call.text}: prepacked weights give other bits")


def _near(call: Call) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Verify the paths, and yield those that are not far slower than the call."""
    if not call.paths or call.result is None:
        return
    seconds: dict[str, float] = {}
    call.run()
    wanted = None if call.chosen in call.loose else call.result().tobytes()
    for name, run in call.paths.items():
        run()
        if name not in call.loose:
            wanted = call.result().tobytes() if wanted is None else wanted
            if call.result().tobytes() != wanted:
                raise CheckFailed(f"{call.text}: path {name} gives other bits")
        begin = time.process_time()
        run()
        seconds[name] = time.process_time() - begin
    limit = FAR * seconds.get(call.chosen or "", min(seconds.values())) + 1e-5
    yield from ((name, run) for name, run in call.paths.items() if seconds[name] <= limit)


@contextmanager
def torch_threads(torch: Any, threads: int) -> Iterator[None]:
    """Inside the ``with`` block, torch has this number of threads and keeps nothing for gradients."""
    if torch is None:
        yield
        return
    torch.set_num_threads(threads)
    with torch.inference_mode():
        yield
