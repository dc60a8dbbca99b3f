"""Build the runner for systems that no test machine has, by the clang of zig (`pip install ziglang`).

python tests/c/cross.py FOLDER [TARGET ...]

Nothing that comes out is run, except by hand: x86_64-windows-gnu.exe under wine.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

MACHINES = {"aarch64-macos": "aarch64", "x86_64-macos": "x86_64", "x86_64-windows-gnu": "x86_64"}
FLAGS = {"aarch64": [], "x86_64": ["-mcpu=x86_64+popcnt"]}  # other clangs take -mavx2 for popcnt too


def main() -> None:
    """Compile and link for each target, without optimization and with warnings as errors."""
    folder, *targets = sys.argv[1:]
    for target in targets or MACHINES:
        out = Path(folder, f"{target}.exe" if "windows" in target else target)
        command = [sys.executable, str(Path(__file__).with_name("build.py")), str(out), "--machine", MACHINES[target]]
        compiler = [sys.executable, "-m", "ziglang", "cc", "-target", target, *FLAGS[MACHINES[target]]]
        command += ["--cc", shlex.join(compiler), "-O0", "-Werror"]
        if subprocess.run(command).returncode:
            sys.exit(f"failed: the core for {target}")
        print(f"{target}: compiled and linked, {out.stat().st_size >> 10} KiB, not run")


if __name__ == "__main__":
    main()
