"""Makes the suite test the installed package, from any folder.

`python -m pytest` puts the current folder first on sys.path. In a checkout this is the source folder, which has no
extension after `pip install .` and would hide the installed package. So the current folder is removed from the path,
here and in child processes, unless the package is found nowhere else (after only `setup.py build_ext --inplace`).
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import sys
import zlib
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

CHECKOUT = Path(__file__).resolve().parents[1]
PATH = sys.path.copy()

sys.path[:] = [entry for entry in PATH if Path(entry).resolve() != CHECKOUT]
if importlib.util.find_spec("heterocompute") is None:
    sys.path[:] = PATH
else:
    os.environ["PYTHONSAFEPATH"] = "1"

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of hundreds of child processes compiles the package

if "PYTEST_XDIST_WORKER" in os.environ:  # one of several processes: threads of NumPy's BLAS would wait for each other
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

importlib.import_module(
    "heterocompute.base.container"
).Loans.poison = True  # a pointer that outlives its array reads NaN

sys.path.append(str(CHECKOUT / "docs" / "figures"))  # tests run its scripts, which share one module


def pytest_report_header() -> str:
    """Report the package under test."""
    spec = importlib.util.find_spec("heterocompute")
    return f"heterocompute: {spec.origin if spec else 'not installed'}, ISA mask: {isa_mask()}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report it again at the end."""
    terminalreporter.write_line(pytest_report_header())


def import_share(config: pytest.Config) -> None:
    """Import a share of the test files before the others, a different one in each process of pytest-xdist.

    pytest rewrites the asserts of each imported file and stores the result. In a fresh checkout all processes would
    rewrite the same file at the same time.
    """
    process = getattr(config, "workerinput", None)
    if process is None or [Path(arg).resolve() for arg in config.args] != [CHECKOUT / "tests"]:
        return
    first, step = int(process["workerid"].removeprefix("gw")), process["workercount"]
    for path in sorted((CHECKOUT / "tests").glob("*/test_*.py"))[first::step]:
        sys.path.insert(0, str(path.parent))  # as pytest does
        with contextlib.suppress(Exception, pytest.skip.Exception):  # pytest imports the file again and reports this
            importlib.import_module(path.stem)
        sys.path.remove(str(path.parent))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Exclude the collected cases from garbage collection, which takes half the time of collecting them."""
    gc.disable()
    try:
        import_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


SWEEP = int(os.environ.get("HETEROCOMPUTE_SWEEP", "0"))
"""Which cases of a sweep always run: others for other numbers."""


def always(test: str, cases: int, every: int) -> range:
    """Return which cases of a sweep always run: one in `every`, one of few, none of `every=0`.

    They are different ones per test, so that all tests together cover all formats.
    """
    if every == 0:
        return range(0)
    return range((zlib.crc32(test.encode()) + SWEEP) % min(every, cases), cases, every)


def every_of(item: pytest.Function) -> int | None:
    """Return the n of the own mark `sweep(every=n)` of a test."""
    return next((mark.kwargs["every"] for mark in item.own_markers if mark.name == "sweep"), None)


chosen: set[str] = set()
"""Tests of which only the cases were made that run."""


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, object, object]:
    """Make no items of the cases of a sweep that a run leaves out, most of all, unless it names its cases."""
    result = yield
    test, config = metafunc.definition, metafunc.config
    every, calls = every_of(test), metafunc._calls
    if every and calls and config.option.markexpr == "not sweep" and not any("::" in name for name in config.args):
        calls[:] = [calls[index] for index in always(test.nodeid, len(calls), every)]
        chosen.add(test.nodeid)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Remove the mark `sweep(every=n)` from one case in n, so that these cases always run; from none if n is 0.

    HETEROCOMPUTE_SWEEP selects other cases. HETEROCOMPUTE_PART=k/n selects the k-th of n parts of all cases, from 0.
    """
    swept: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sweep"):
            swept[item.nodeid.split("[")[0]].append(item)
    for test, cases in swept.items():
        indices = range(len(cases)) if test in chosen else always(test, len(cases), every_of(cases[0]))
        for item in [cases[index] for index in indices]:
            item.own_markers = [mark for mark in item.own_markers if mark.name != "sweep"]
    part, parts = (int(text) for text in os.environ.get("HETEROCOMPUTE_PART", "0/1").split("/"))
    items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % parts == part]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Send one report of a test that passes from a process of pytest-xdist, not six messages, which cost more than it.

    With --durations and -v all are sent, and all of a test that fails.
    """
    option = item.config.option
    if not hasattr(item.config, "workerinput") or option.durations or option.verbose > 0:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def isa_mask() -> str:
    return os.environ.get("HETEROCOMPUTE_ISA", "all that this machine has")


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the sources, for tests that read them."""
    return CHECKOUT


@pytest.fixture(scope="module")
def only_new_garbage() -> Iterator[None]:
    """Let collections skip the objects that are there now: those of earlier tests take most of a second each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
