"""Makes the suite test the installed package, whatever folder it starts in.

`python -m pytest` puts the current folder first on sys.path. In a checkout that is the source folder, which has no
extension after `pip install .` and would hide the package in the environment. So the current folder leaves the path,
here and in child processes, unless the package is found nowhere else (after `setup.py build_ext --inplace` alone).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
PATH = sys.path.copy()

sys.path[:] = [entry for entry in PATH if Path(entry).resolve() != CHECKOUT]
if importlib.util.find_spec("heterocompute") is None:
    sys.path[:] = PATH
else:
    os.environ["PYTHONSAFEPATH"] = "1"


def pytest_report_header() -> str:
    """Say which package is under test."""
    spec = importlib.util.find_spec("heterocompute")
    return f"heterocompute: {spec.origin if spec else 'not installed'}, ISA mask: {isa_mask()}"


def isa_mask() -> str:
    return os.environ.get("HETEROCOMPUTE_ISA", "all that this machine has")


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the sources, for tests that read them."""
    return CHECKOUT
