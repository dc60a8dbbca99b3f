"""Compile the C core and link each C file of this folder with it: build.sh calls this script.

The environment has CC, CFLAGS and LIB_FUZZING_ENGINE. Flags of instruction sets are those of setup.py.
"""

from __future__ import annotations

import os
import platform
import runpy
import shlex
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FLAGS = ["-std=c11", "-D_DEFAULT_SOURCE", "-ffp-contract=off", "-fno-math-errno", "-pthread", "-Icsrc"]


def main(out: Path) -> None:
    """Compile what is not compiled yet, and link the targets."""
    with mock.patch("setuptools.setup"):
        build = runpy.run_path(str(ROOT / "setup.py"))
    command = [*shlex.split(os.environ["CC"]), *shlex.split(os.environ["CFLAGS"]), *FLAGS]
    core = [path for path in sorted((ROOT / "csrc").rglob("*.c")) if "python" not in path.relative_to(ROOT).parts]
    jobs = [(path, flags) for path in core for flags in build["flags_of"](str(path), platform.machine())]
    objects = out / "objects"
    objects.mkdir(parents=True, exist_ok=True)

    def compiled(job: tuple[Path, list[str]]) -> str:
        path, flags = job
        target = objects / f"{path.stem}-{zlib.crc32(repr((str(path), command, flags)).encode()):08x}.o"
        if not target.exists() or target.stat().st_mtime < path.stat().st_mtime:
            subprocess.run([*command, *flags, "-c", str(path), "-o", str(target)], check=True, cwd=ROOT)
        return str(target)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        linked = list(pool.map(compiled, jobs))
    for target in sorted(HERE.glob("*.c")):
        engine = shlex.split(os.environ["LIB_FUZZING_ENGINE"])
        made = [*command, *engine, str(target), *linked, "-lm", "-ldl", "-o", str(out / target.stem)]
        subprocess.run(made, check=True, cwd=ROOT)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
