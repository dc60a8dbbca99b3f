"""The tests pass with ignored signals, as in `pytest &` in a script or under nohup, which children inherit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from common import HANG

TESTS = Path(__file__).resolve().parents[1]
CHOSEN = [
    "cli/test_command_process.py::test_importing_the_package_leaves_signals_alone",
    "cli/test_command_process.py::test_interrupt_during_the_import_is_no_traceback[module]",
    "mapper/test_map_search.py::test_an_interrupt_returns_the_best_so_far",
]


@pytest.mark.sweep(every=0)
def test_tests_that_send_signals_pass_in_the_background() -> None:
    script = """trap '' INT HUP; exec "$0" -m pytest -q -p no:cacheprovider "$@" """
    command = ["sh", "-c", script, sys.executable, *(str(TESTS / one) for one in CHOSEN)]
    every = {key: value for key, value in os.environ.items() if not key.startswith("HETEROCOMPUTE_")}  # of no part
    done = subprocess.run(command, cwd=TESTS.parent, env=every, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("one", CHOSEN)
def test_what_runs_in_the_background_is_there(one: str) -> None:
    path, name = one.split("::")
    assert f"def {name.partition('[')[0]}(" in (TESTS / path).read_text()


def test_children_that_get_signals_do_not_ignore_them() -> None:
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text()
        if re.search(r"\bprocess\.send_signal|\bstarted\.send_signal", text):
            assert "preexec_fn=default_signals" in text, f"{path}: a child may have inherited that signals are ignored"
