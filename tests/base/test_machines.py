"""A study with narrower instruction sets, on one core, without POSIX functions, from odd paths: the same bits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from common import isas

import heterocompute

JOB = "import sys; from heterocompute.cli import main; sys.exit(main())"
STUDY = [
    "study",
    "--formats",
    "vsq4-g16-s4,mxfp4,int4-g32-f16",
    "--activations",
    "int8",
    "--json",
    "--html",
    "größe 1.html",
]


def study(folder: Path, before: str = "", **environment: str) -> object:
    """Run a study in a folder, after some Python code, and return its result without times."""
    own = ("HETEROCOMPUTE_", "OPENBLAS_")  # such as a core that another processor does not have
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    # The results of a BLAS depend on the processor.
    settings = {"HETEROCOMPUTE_BLAS": "own", "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    command = [sys.executable, "-c", before + JOB, *STUDY]
    done = subprocess.run(command, cwd=folder, env={**inherited, **settings}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "</html>" in (folder / STUDY[-1]).read_text(encoding="utf-8")
    return without_times(json.loads(done.stdout))


def without_times(found: object) -> object:
    """Remove the entries that differ between runs."""
    if isinstance(found, dict):
        return {key: without_times(value) for key, value in found.items() if "second" not in key and key != "machine"}
    return [without_times(value) for value in found] if isinstance(found, list) else found


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> object:
    return study(tmp_path_factory.mktemp("usual"))


@pytest.mark.parametrize("isa", sorted({"scalar", "avx2", "avx512", "neon", "dotprod"} & set(isas())))
@pytest.mark.sweep(every=3)
def test_an_instruction_set_changes_no_bit(isa: str, usual: object, tmp_path: Path) -> None:
    assert study(tmp_path, HETEROCOMPUTE_ISA=isa) == usual


def test_one_core_changes_no_bit(usual: object, tmp_path: Path) -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system has no affinity")
    one = min(os.sched_getaffinity(0))
    assert study(tmp_path, before=f"import os; os.sched_setaffinity(0, [{one}]); ") == usual


def test_a_system_without_posix_is_fine(usual: object, tmp_path: Path) -> None:
    without = """if True:
        import os, pathlib, signal, subprocess, sys, tempfile
        import ml_dtypes, numpy, rich.console, scipy_openblas32  # which ask for what their build found
        for name in ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "posix", "syslog", "curses"):
            sys.modules[name] = None
        missing = ["sched_getaffinity", "sched_setaffinity", "sysconf", "fork", "getuid", "geteuid", "getloadavg"]
        missing += ["O_CLOEXEC", "O_NONBLOCK", "O_NOFOLLOW", "O_DIRECTORY", "posix_fallocate", "pread", "uname"]
        for name in missing:
            if hasattr(os, name):
                delattr(os, name)
        for name in ("SIGHUP", "SIGUSR1", "SIGALRM", "SIGPIPE", "pthread_sigmask", "setitimer"):
            if hasattr(signal, name):
                delattr(signal, name)
        import heterocompute
        packed = heterocompute.quantize(numpy.ones((4, 32), "float32"), "int8")
        for _ in range(2):  # the second time over a file
            heterocompute.save("packed.safetensors", {"w": packed})
        assert (heterocompute.load("packed.safetensors")["w"].dequantize() == 1).all()
"""
    assert study(tmp_path, before=without) == usual


def test_a_home_that_cannot_be_written_is_fine(usual: object, tmp_path: Path) -> None:
    nowhere = tmp_path / "a file"
    nowhere.write_text("")
    assert study(tmp_path, HOME=str(nowhere), XDG_CACHE_HOME=str(nowhere), MPLCONFIGDIR=str(nowhere)) == usual


@pytest.mark.sweep(every=0)
def test_a_path_with_spaces_and_other_letters_is_fine(usual: object, tmp_path: Path) -> None:
    folder = tmp_path / "mein Ördner 数"
    shutil.copytree(Path(heterocompute.__file__).parent, folder / "heterocompute")
    home = folder / "zu Häuse"
    home.mkdir()
    assert study(folder, PYTHONPATH=os.pathsep.join([str(folder), *filter(None, sys.path)]), HOME=str(home)) == usual
