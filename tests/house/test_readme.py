"""Every block of README.md runs when pasted into a shell in a clone. `.ci/run` also follows its installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from common import HANG
from readme import script

from heterocompute import _heterocompute


@pytest.fixture
def clone(checkout: Path, tmp_path: Path) -> Path:
    """Return a clone as after `pip install -e .`: the sources with the built core, and the commands on the path."""
    copy, commands = tmp_path / "clone", tmp_path / "bin"
    shutil.copytree(checkout / "heterocompute", copy / "heterocompute", ignore=shutil.ignore_patterns("*.so"))
    core = Path(_heterocompute.__file__)
    shutil.copy(core, copy / "heterocompute" / core.name)
    commands.mkdir()
    for name, options in (("python", ""), ("heterocompute", "-m heterocompute ")):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} {options}"$@"\n')
        (commands / name).chmod(0o755)
    return copy


@pytest.mark.sweep(every=0)
def test_the_readme_runs_from_top_to_bottom_in_a_clone(clone: Path) -> None:
    environment = {**os.environ, "PATH": f"{clone.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONSAFEPATH", None)  # as a user has it: the clone is found first
    where = "python -c 'import heterocompute; print(heterocompute.__file__)'\n"
    command = ["bash", "-euo", "pipefail", "-c", where + script(installed=True)]
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.splitlines()[0]).is_relative_to(clone)
    for made in ("model.safetensors", "small.safetensors", "sparse.safetensors", "report.html"):
        assert (clone / made).stat().st_size > 1000


def test_the_first_block_activates_what_the_others_need() -> None:
    line = script(installed=False).splitlines()[0]
    assert line == "python3 -m venv .venv && . .venv/bin/activate && pip install -e . && heterocompute study"
