"""Workers: processes or threads that run independent tasks.

One definition for every call that has `workers=`: a number, the address of a cluster, or any function like `map`.
Results do not depend on it. Tasks carry numbers, so that answers may arrive in any order.
"""

from __future__ import annotations

import contextvars
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

from .errors import WrongType, WrongValue, printable, shown
from .texts import counted
from .values import as_int

Function = Callable[[Any], Any]
Map = Callable[[Function, Sequence[Any]], Iterable[Any] | None]
Workers = int | str | Callable[..., Any] | None

MAX_WORKERS = 1024
SERVE = "from heterocompute.base.workers import serve; serve()"
CONNECT_SECONDS = 30
WANTED = "expected a number of workers, 'dask:ADDRESS', 'ray:ADDRESS' or a function like map"
LIKE = "expected a function like map, which calls the function with each item and returns the results"


def checked_workers(workers: Workers, function: str) -> int | str | Map:
    """Return workers in a form that `in_workers` accepts.

    Parameters
    ----------
    workers : int, str, callable or None
        None is one worker, this thread. A text is a number, ``"dask:tcp://host:8786"`` or ``"ray:ADDRESS"``.
    function : str
        Name of the caller, for errors.

    Raises
    ------
    TypeError
        It has another type.
    ValueError
        The number is below 1 or above 1024, or the text is not an address.

    Examples
    --------
    >>> checked_workers(None, "quantize"), checked_workers("4", "quantize"), checked_workers("ray:auto", "quantize")
    (1, 4, 'ray:auto')
    """
    if workers is None:
        return 1
    if callable(workers):
        return workers
    if isinstance(workers, str):
        kind, _, address = workers.partition(":")
        if kind in CLUSTERS and address:
            return workers
        if not (workers.isascii() and workers.isdecimal() and len(workers) < 9):
            raise WrongValue(f"{function}: workers is {shown(workers)}, {WANTED}")
        workers = int(workers)
    try:
        return as_int(workers, f"{function}: workers", 1, MAX_WORKERS)
    except TypeError:
        raise WrongType(f"{function}: workers is {shown(workers)}, {WANTED}") from None


def is_serial(workers: Workers) -> bool:
    """Return True if checked workers are only this thread."""
    return workers == 1


def in_workers(
    workers: Workers, function: Function, tasks: Sequence[Any], name: str, processes: bool = False
) -> Iterator[tuple[int, Any]]:
    """Yield the number of each task with the result of the function, in the order in which they are done.

    Parameters
    ----------
    workers : int, str or callable
        As `checked_workers` returns it.
    function : callable
        Other processes find it by its name.
    tasks : sequence
        They can be pickled where the workers are processes.
    name : str
        Name of the caller, for errors.
    processes : bool
        Whether a number means processes: for work of Python itself, which threads do one at a time.

    Raises
    ------
    ValueError
        A function like `map` did not return the result of every task.
    ImportError
        Dask or Ray is not installed.
    OSError
        A cluster does not answer.
    RuntimeError
        A process ended before its work.

    Examples
    --------
    >>> sorted(in_workers(2, abs, [-3, -1], "example"))
    [(0, 3), (1, 1)]
    """
    numbered = list(enumerate(tasks))
    if workers == 1 or not numbered:
        yield from ((i, function(task)) for i, task in numbered)
        return
    found: Map
    if callable(workers):
        found = workers
    elif isinstance(workers, str):
        kind, _, address = workers.partition(":")
        found = CLUSTERS[kind](address, name)
    else:
        count = min(int(workers or 1), len(numbered))
        found = partial(_in_processes, count, name) if processes else partial(_in_threads, count)
    missing = set(range(len(numbered)))
    answers = found(_Numbered(function), numbered)
    for answer in answers if isinstance(answers, Iterable) else ():
        try:
            i, result = answer
            missing.discard(i)
        except (TypeError, ValueError):
            raise WrongValue(f"{name}: workers returned {shown(answer)}, which is not a result of its function, {LIKE}"
                             ) from None  # fmt: skip
        yield i, result
    if missing:
        raise WrongValue(f"{name}: workers has not returned the results of {len(missing)} of "
                         f"{counted(len(numbered), 'task')}, {LIKE}")  # fmt: skip


def in_order(
    workers: Workers,
    function: Function,
    tasks: Sequence[Any],
    name: str,
    progress: Callable[[int, int], None] | None = None,
    processes: bool = False,
) -> list[Any]:
    """Return ``[function(task) for task in tasks]``.

    Parameters
    ----------
    workers, function, tasks, name, processes
        As in `in_workers`.
    progress : callable, optional
        Called as ``tell(done, total)`` after each task.

    Examples
    --------
    >>> in_order(3, abs, [-3, -1, 2], "example")
    [3, 1, 2]
    """
    results: list[Any] = [None] * len(tasks)
    for done, (i, result) in enumerate(in_workers(workers, function, tasks, name, processes)):
        results[i] = result
        if progress is not None:
            progress(done + 1, len(tasks))
    return results


@dataclass(frozen=True)
class _Numbered:
    """A function of numbered tasks; each answer carries its task's number."""

    function: Function

    def __call__(self, task: tuple[int, Any]) -> tuple[int, Any]:
        return task[0], self.function(task[1])


def _in_threads(count: int, function: Function, tasks: Sequence[Any]) -> Iterator[Any]:
    """Call a function in threads of this process, each with the caller's settings."""
    pool = ThreadPoolExecutor(count)
    try:
        futures = [pool.submit(contextvars.copy_context().run, function, task) for task in tasks]
        yield from (future.result() for future in as_completed(futures))
    finally:
        pool.shutdown(cancel_futures=True)


def _in_processes(count: int, name: str, function: Function, tasks: Sequence[Any]) -> Iterator[Any]:
    """Call a function in processes.

    They are neither forked (a child would inherit the locks of this process' threads) nor spawned by multiprocessing
    (which runs the caller's script again, and cannot do so for a notebook): each is a new interpreter that answers over
    pipes.
    """
    idle: SimpleQueue[subprocess.Popen[bytes] | None] = SimpleQueue()
    children: list[subprocess.Popen[bytes]] = []
    for _ in range(count):
        idle.put(None)

    def run_in_child(task: object) -> Any:
        question = pickle.dumps((function, task))
        child = idle.get()
        try:
            if child is None:
                child = _started()
                children.append(child)
            assert child.stdin is not None and child.stdout is not None
            child.stdin.write(question)
            child.stdin.flush()
            fine, answer = pickle.load(child.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            assert child is not None
            raise RuntimeError(f"{name}: a worker process ended with exit code {child.wait()}") from None
        finally:
            idle.put(child)
        if not fine:
            raise answer
        return answer

    try:
        yield from _in_threads(count, run_in_child, tasks)
    finally:
        for child in children:
            child.kill()
            child.communicate()


def _started() -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", SERVE], stdin=pipe, stdout=pipe, env=environment)


def serve() -> None:
    """Answer tasks from standard input on standard output until the input ends, or nobody reads the answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the caller ends this one
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr
    while True:
        try:
            function, task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer = _answer(function, task)
        try:
            answers.write(answer)
            answers.flush()
        except BrokenPipeError:  # the caller was interrupted
            os._exit(1)  # an ordinary end would write what is left once more


def _answer(function: Function, task: object) -> bytes:
    """Return the pickle of True with a result, or of False with the exception."""
    try:
        return pickle.dumps((True, function(task)))
    except Exception as error:
        try:
            return pickle.dumps((False, error))
        except Exception:  # an exception that holds objects that cannot be sent
            return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def _dask(address: str, name: str) -> Map:
    """Return the map of the Dask cluster whose scheduler has this address."""
    try:
        from distributed import Client, as_completed as completed  # optional
    except ImportError:
        raise ImportError(f"{name}: workers='dask:...' needs Dask: pip install 'heterocompute[dask]'") from None

    def mapped(function: Function, tasks: Sequence[Any]) -> Iterator[Any]:
        try:
            client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise _unreachable(name, "dask", address, error) from None
        with client:
            futures = client.map(function, tasks, pure=False)
            try:
                for _, answer in completed(futures, loop=client.loop, with_results=True):
                    yield answer
            finally:
                client.cancel(futures)

    return mapped


def _ray(address: str, name: str) -> Map:
    """Return the map of the Ray cluster with this address, such as ``auto``."""
    try:
        import ray  # optional
    except ImportError:
        raise ImportError(f"{name}: workers='ray:...' needs Ray: pip install 'heterocompute[ray]'") from None

    def mapped(function: Function, tasks: Sequence[Any]) -> Iterator[Any]:
        is_ours = not ray.is_initialized()  # otherwise the caller is connected already
        try:
            if is_ours:
                ray.init(address=address, log_to_driver=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise _unreachable(name, "ray", address, error) from None
        left: list[Any] = []
        try:
            remote = ray.remote(_called)
            left = [remote.remote(function, task) for task in tasks]
            while left:
                done, left = ray.wait(left)
                try:
                    yield from ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause if isinstance(error.cause, Exception) else error from None
        finally:
            for one in left:
                ray.cancel(one)
            if is_ours:
                ray.shutdown()

    return mapped


def _called(function: Function, task: object) -> Any:
    return function(task)


def _unreachable(name: str, kind: str, address: str, error: Exception) -> OSError:
    message = printable(" ".join(str(error).split()))[:200]
    return OSError(f"{name}: workers is {shown(f'{kind}:{address}')}, which does not answer: {message}")


CLUSTERS: dict[str, Callable[[str, str], Map]] = {"dask": _dask, "ray": _ray}
