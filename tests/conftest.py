"""Makes the suite test the installed package, whatever folder it starts in.

`python -m pytest` puts the current folder first on sys.path. In a checkout that is the source folder, which has no
extension after `pip install .` and would hide the package in the environment. So the current folder leaves the path,
here and in child processes, unless the package is found nowhere else (after `setup.py build_ext --inplace` alone).
"""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
import zlib
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
PATH = sys.path.copy()

sys.path[:] = [entry for entry in PATH if Path(entry).resolve() != CHECKOUT]
if importlib.util.find_spec("heterocompute") is None:
    sys.path[:] = PATH
else:
    os.environ["PYTHONSAFEPATH"] = "1"

if "PYTEST_XDIST_WORKER" in os.environ:  # one of several processes: threads of NumPy's BLAS would wait for each other
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

sys.path.append(str(CHECKOUT / "docs" / "figures"))  # tests run scripts of it, which share one module


def pytest_report_header() -> str:
    """Say which package is under test."""
    spec = importlib.util.find_spec("heterocompute")
    return f"heterocompute: {spec.origin if spec else 'not installed'}, ISA mask: {isa_mask()}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it at the end too, where it is read."""
    terminalreporter.write_line(pytest_report_header())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage among what tests make, never among the cases, which takes half the time of collecting them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `sweep(every=n)` take the mark from one case in n, which then always run; from none if n is 0.

    HETEROCOMPUTE_SWEEP shifts which. HETEROCOMPUTE_PART=k/n takes the k-th of n parts of all cases, from 0.
    """
    swept: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sweep"):
            swept[item.nodeid.split("[")[0]].append(item)
    shift = int(os.environ.get("HETEROCOMPUTE_SWEEP", "0"))  # other cases in another run
    for test, cases in swept.items():
        every = next(mark.kwargs["every"] for mark in cases[0].own_markers if mark.name == "sweep")
        if every == 0:
            continue
        # not the same case of all tests, so that together they take all formats; of few cases one
        for item in cases[(zlib.crc32(test.encode()) + shift) % min(every, len(cases)) :: every]:
            item.own_markers = [mark for mark in item.own_markers if mark.name != "sweep"]
    part, parts = (int(text) for text in os.environ.get("HETEROCOMPUTE_PART", "0/1").split("/"))
    items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % parts == part]


def isa_mask() -> str:
    return os.environ.get("HETEROCOMPUTE_ISA", "all that this machine has")


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the sources, for tests that read them."""
    return CHECKOUT
