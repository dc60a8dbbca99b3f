"""Analyse the inner loops of the ARM matmuls with the models of LLVM's machine code analyser. Nothing runs.

python tests/c/count.py [--cc aarch64-linux-gnu-gcc] [--mca llvm-mca-22] [--check]

Each kernel is compiled with the flags of its suffix. The script picks the innermost loop with the most multiply-adds.
llvm-mca gives the cycles of that loop, with all data in the first-level cache. The peak is the same multiply-adds
alone, in independent chains. --check ends with an error if a loop is below its bound.
"""

from __future__ import annotations

import argparse
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
CPUS = ("neoverse-n1", "neoverse-v1", "neoverse-v2")
WORTH = {"fmla": 4, "sdot": 16, "smmla": 32}  # multiply-adds of an instruction
# Kernel -> its instruction; least share of the peak on V1 and V2; most instructions per multiply-add.
KERNELS = {
    "gemm_f32_neon": ("fmla", 0.95, 1.25),
    "gemm_flat_neon": ("fmla", 0.65, 1.85),  # nothing is packed: sums pass through memory
    "gemm_s8_dotprod": ("sdot", 0.95, 1.25),
    "gemm_s8_i8mm": ("smmla", 0.85, 1.72),
    "gemm_s8_scaled_dotprod": ("sdot", 0.95, 1.25),
    "gemm_s8_scaled_i8mm": ("smmla", 0.85, 1.72),
    "gemv_integers_dotprod": ("sdot", 0.57, 2.45),  # codes are transposed for 8 rows of x
    "gemv_values_neon": ("fmla", 0.24, 4.7),  # a value takes three more instructions and a second fmla
}
ITERATIONS = 200


def main() -> None:
    """Print a table of the loops; with --check, fail if one is below its bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cc", default="aarch64-linux-gnu-gcc")
    parser.add_argument("--mca", default="llvm-mca-22")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    for program in (options.cc, options.mca):
        if not shutil.which(program):
            sys.exit(f"count.py: {program} is missing; install it (Debian: gcc-aarch64-linux-gnu, llvm-22)")
    header = ["kernel", "instruction", "in the loop", "instructions for one", *CPUS]
    print("| " + " | ".join(header) + " |\n" + "|---" * len(header) + "|")
    below = []
    for kernel, (kind, least, most) in KERNELS.items():
        loop = inner_loop(disassemble(options.cc, kernel), kind)
        found = [line for line in loop if line.split()[0] == kind]
        ratio = len(loop) / len(found)
        worth = WORTH[kind]
        row = [kernel, f"`{kind}`", str(len(found)), f"{ratio:.2f}"]
        below += [f"{kernel}: {ratio:.2f} instructions for one {kind}, expected {most}"] if ratio > most else []
        for cpu in CPUS:
            if not knows(options.mca, cpu, kind):
                row.append("-")
                continue
            cycles, peak = cycles_of(options.mca, cpu, loop), cycles_of(options.mca, cpu, alone(kind, len(found)))
            share = peak / cycles
            row.append(f"{worth * len(found) / cycles:.1f} ({share:.2f})")
            if cpu != CPUS[0] and share < least:
                below.append(f"{kernel} on {cpu}: {share:.2f} of the peak, expected {least}")
        print("| " + " | ".join(row) + " |")
    if options.check and below:
        sys.exit("\n".join(below))


def knows(mca: str, cpu: str, kind: str) -> bool:
    """Return whether a model has the instruction: a Neoverse N1 has no smmla."""
    return analyse(mca, cpu, alone(kind, 1)).returncode == 0


def disassemble(cc: str, kernel: str) -> list[str]:
    """Return the instructions of a kernel, each with its address, as objdump prints them."""
    with mock.patch("setuptools.setup"):
        build = runpy.run_path(str(ROOT / "setup.py"))
    (source,) = (ROOT / "csrc/kernels").rglob(f"{kernel}.c")
    with tempfile.TemporaryDirectory() as folder:
        (flags,) = build["flags_of"](str(source), "aarch64")
        target = f"{folder}/kernel.o"
        subprocess.run([cc, *build["FLAGS"], *flags, "-Icsrc", "-c", str(source), "-o", target], cwd=ROOT, check=True)
        command = [cc.replace("gcc", "objdump"), "-d", "--no-show-raw-insn", target]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line for line in text.splitlines() if re.match(r"\s+[0-9a-f]+:\t", line)]


def inner_loop(lines: list[str], kind: str) -> list[str]:
    """Return the instructions of the innermost loop with the most of a kind, without addresses."""
    parts = [line.strip().split("\t", 1) for line in lines]
    addresses = [int(address.rstrip(":"), 16) for address, _ in parts]
    code = [re.sub(r"\s*//.*", "", text).replace("\t", " ").strip() for _, text in parts]
    loops: list[tuple[int, int]] = []
    for last, text in enumerate(code):
        target = re.match(r"(?:b\.?\w*|cbn?z|tbn?z) (?:.*, )?([0-9a-f]+) <", text)
        if target and int(target[1], 16) <= addresses[last] and int(target[1], 16) in addresses:
            loops.append((addresses.index(int(target[1], 16)), last))
    inner = [(a, b) for a, b in loops if not any((a, b) != (c, d) and a <= c and d <= b for c, d in loops)]
    a, b = max(inner, key=lambda loop: sum(text.split()[0] == kind for text in code[loop[0] : loop[1] + 1]))
    return [re.sub(r"[0-9a-f]+ <.*", "loop", text) for text in code[a : b + 1]]


def alone(kind: str, count: int) -> list[str]:
    """Return a number of multiply-adds in independent chains."""
    types = ("4s", "4s", "4s") if kind == "fmla" else ("4s", "16b", "16b")
    return [f"{kind} v{i % 28}.{types[0]}, v30.{types[1]}, v31.{types[2]}" for i in range(count)]


def analyse(mca: str, cpu: str, code: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the analyser on a loop."""
    command = [mca, "-mtriple=aarch64", f"-mcpu={cpu}", f"-iterations={ITERATIONS}", "-instruction-info=0"]
    text = "loop:\n" + "\n".join(code) + "\n"
    return subprocess.run([*command, "-resource-pressure=0"], input=text, capture_output=True, text=True)


def cycles_of(mca: str, cpu: str, code: list[str]) -> float:
    """Return the cycles per iteration of a loop in the model."""
    done = analyse(mca, cpu, code)
    cycles = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    if done.returncode or not cycles:
        sys.exit(f"{mca}: {done.stderr.strip()[:400]}")
    return int(cycles[1]) / ITERATIONS


if __name__ == "__main__":
    main()
