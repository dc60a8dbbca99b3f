"""Count the instructions of whole matmuls on ARM with qemu's translator. Nothing is timed.

python tests/c/plugin/executed.py RUNNER [--emulator qemu-aarch64]

RUNNER is the static program that `tests/c/build.py RUNNER --cc aarch64-linux-gnu-gcc --machine aarch64 -static` makes.
The count of one matmul of 512 x 512 matrices is the count of two matmuls minus that of one, which excludes the start of
the process and the prepacking of weights.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Emulated processor -> its instructions for products of bytes.
CPUS = {"max": "smmla", "neoverse-n1": "sdot", "cortex-a53": "NEON"}
KINDS = ("float32", "int8")
MULTIPLY_ADDS = 512**3


def main() -> None:
    """Print a table: processor, kind of matmul, executed instructions, multiply-adds per instruction."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runner")
    parser.add_argument("--emulator", default="qemu-aarch64")
    options = parser.parse_args()
    print("| processor | product | instructions | multiply-adds per instruction |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        plugin = f"{folder}/count.so"
        source = str(HERE / "count_instructions.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", source, "-o", plugin], check=True)
        for cpu, has in CPUS.items():
            for kind in KINDS:
                one, two = (executed(options.emulator, plugin, options.runner, cpu, kind, n) for n in (1, 2))
                count = two - one
                print(f"| `{cpu}` ({has}) | {kind} | {count / 1e6:.2f} million | {MULTIPLY_ADDS / count:.1f} |")


def executed(emulator: str, plugin: str, runner: str, cpu: str, kind: str, times: int) -> int:
    """Return the instructions of a run that computes the matmul several times."""
    command = [emulator, "-cpu", cpu, "-plugin", plugin, "-d", "plugin", runner, "cube", kind, str(times)]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"executed (\d+)", done.stderr)
    if done.returncode or not found:
        sys.exit(f"executed.py: {' '.join(command)} failed: {done.stdout}{done.stderr}")
    return int(found[1])


if __name__ == "__main__":
    main()
