"""Build the runner of this folder: the C core without Python, for this machine or another.

python tests/c/build.py OUT [--cc "CC [FLAGS ...]"] [--machine x86_64|aarch64] [--portable] [--static]
                        [MORE FLAGS ...]

With --portable, only the files that do not belong to one instruction set are compiled, and nothing is linked.

Sources have the same paths as in `setup.py`: with the flags of Python's extensions after CC, ccache shares objects.
"""

from __future__ import annotations

import argparse
import os
import platform
import runpy
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# The core's allocator is renamed, so that allocations.c replaces it.
HOOKED = [f"-Dhc_{name}_aligned=system_{name}_aligned" for name in ("alloc", "free")]


def main() -> None:
    """Compile each source with the flags of setup.py for its suffix, and link."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--cc", default=os.environ.get("CC", "cc"))
    parser.add_argument("--machine", default=platform.machine())
    parser.add_argument("--portable", action="store_true")
    parser.add_argument("--static", action="store_true")
    options, more_flags = parser.parse_known_args()

    with mock.patch("setuptools.setup"):
        build = runpy.run_path(str(ROOT / "setup.py"))
    sources = [path for path in sorted((ROOT / "csrc").rglob("*.c")) if "python" not in path.relative_to(ROOT).parts]
    sources += sorted(HERE.glob("*.c")) + sorted((HERE / "kernels").glob("*.c"))
    if options.portable:
        sources = [path for path in sources if not (build["isa_suffix"](path) or path.stem.endswith("_simd"))]
    cc = shlex.split(options.cc)
    jobs = [(path, flags) for path in sources for flags in build["flags_of"](path, options.machine)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:

        def compile_one(number: int) -> str:
            target, (source, flags) = f"{folder}/{number}.o", jobs[number]
            flags = [*build["FLAGS"], *flags, *more_flags, *(HOOKED if source.parent.name == "platform" else [])]
            run([*cc, *flags, "-MMD", "-Icsrc", "-Itests/c", "-c", str(source.relative_to(ROOT)), "-o", target])
            return target

        objects = list(pool.map(compile_one, range(len(jobs))))
        if not options.portable:
            static = ["-static"] if options.static else []
            run([*cc, *more_flags, *static, *build["LINK_FLAGS"], *objects, "-lm", "-o", os.path.abspath(options.out)])


def run(command: list[str]) -> None:
    """Run a compiler; it prints its errors itself."""
    if subprocess.run(command, cwd=ROOT).returncode:
        sys.exit(f"failed: {' '.join(command)}")


if __name__ == "__main__":
    main()
