"""Build the runner for systems without a test machine, with the clang of zig (`pip install ziglang`).

python tests/c/cross.py FOLDER TARGET ...     aarch64-macos, x86_64-macos, x86_64-windows-gnu; with +portable behind it
                                              without the files of instruction sets, compiled and not linked

Warnings are errors, nothing is optimized, and nothing is run: x86_64-windows-gnu.exe can be, by hand, under wine.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

MACHINES = {"aarch64-macos": "aarch64", "x86_64-macos": "x86_64", "x86_64-windows-gnu": "x86_64"}
# zig reads -march as the name of a processor, of which the last counts, and -mavx2 without popcnt.
# Zig turns sanitizers on where nothing is optimized.
FLAGS = {"aarch64": "-mcpu=generic+dotprod+i8mm", "x86_64": "-mcpu=x86_64+popcnt"}


def main() -> None:
    """Compile for each target, and link."""
    folder, *targets = sys.argv[1:]
    for asked in targets:
        target, _, portable = asked.partition("+")
        out = Path(folder, f"{target}.exe" if "windows" in target else target)
        command = [sys.executable, str(Path(__file__).with_name("build.py")), str(out), "--machine", MACHINES[target]]
        command += ["--cc", shlex.join([sys.executable, "-m", "ziglang", "cc", "-target", target])]
        command += [f"--{portable}"] * bool(portable)
        command += [FLAGS[MACHINES[target]], "-fno-sanitize=undefined", "-O0", "-Werror"]
        if subprocess.run(command).returncode:
            sys.exit(f"failed: the core for {asked}")
        print(f"{asked}: compiled{'' if portable else ' and linked'}, not run")


if __name__ == "__main__":
    main()
