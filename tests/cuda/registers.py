"""Print the table of docs/cuda.md: the compiler's figures for the CUDA kernels.

    python tests/cuda/registers.py [--arch sm_90a] [source.cu ...]

Registers and spills are those of ``ptxas -v``, instructions those of ``cuobjdump -sass``. The exit status is 1 if a
kernel spills, or a matmul or a convolution uses local memory.
"""

from __future__ import annotations

import argparse
import re
import runpy
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NATIVE = {"products": r"\b(?:IMMA|IGMMA|HMMA)\.", "copies": r"\bLDGSTS\.", "local": r"\b(?:LDL|STL)\b"}
MAIN = re.compile(r"hc_(gemm|sgemm|conv|order)_?")  # kernels that keep all values in registers


def flags() -> list[str]:
    """Return the flags that the build gives to nvcc."""
    return list(runpy.run_path(str(ROOT / "cuda/fatbins.py"))["FLAGS"])


def compile_one(source: Path, arch: str, folder: Path) -> tuple[str, str]:
    """Return the output of ptxas and the disassembly."""
    cubin = folder / f"{source.stem}.cubin"
    command = ["nvcc", *flags(), "-Werror", "all-warnings", f"-arch={arch}", "-Xptxas", "-v", "-cubin", str(source)]
    done = subprocess.run([*command, "-o", str(cubin)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    said = subprocess.run(["cuobjdump", "-sass", str(cubin)], capture_output=True, text=True, check=True)
    return done.stderr, said.stdout


def rows_of(said: str, disassembly: str) -> dict[str, dict[str, int]]:
    """Return numbers by kernel."""
    rows: dict[str, dict[str, int]] = {}
    functions = re.split(r"Function properties for ", said)[1:]
    for text in functions:
        name = text.split()[0]
        used = re.search(r"Used (\d+) registers", text)
        spilled = [int(n) for n in re.findall(r"(\d+) bytes spill", text)]
        rows[name] = {"registers": int(used[1]) if used else 0, "spills": sum(spilled)}
    for text in re.split(r"Function : ", disassembly)[1:]:
        row = rows.setdefault(text.split()[0], {})
        row.update({name: len(re.findall(pattern, text)) for name, pattern in NATIVE.items()})
    return rows


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("sources", nargs="*", type=Path)
    options = parser.parse_args()
    sources = options.sources or sorted((ROOT / "csrc/cuda").rglob("*.cu"))
    if options.arch != "sm_90a":
        sources = [source for source in sources if not source.stem.endswith("_90a")]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda source: compile_one(source, options.arch, Path(folder)), sources))
    rows: dict[str, dict[str, int]] = {}
    for said, disassembly in made:
        rows |= rows_of(said, disassembly)
    columns = ["registers", "spills", *NATIVE]
    print("| kernel | registers | bytes of spills | matrix instructions | asynchronous copies | local memory |")
    print("|---|---|---|---|---|---|")
    for name, row in sorted(rows.items()):
        print(f"| `{name}` | {' | '.join(str(row.get(column, 0)) for column in columns)} |")
    worst = [name for name, row in rows.items() if row.get("spills") or (MAIN.match(name) and row.get("local"))]
    if worst:
        print(f"spills or local memory: {', '.join(sorted(worst))}", file=sys.stderr)
    return bool(worst)


if __name__ == "__main__":
    sys.exit(main())
