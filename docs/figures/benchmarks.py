"""Fill the tables of benchmarks.md from what `heterocompute bench` measured: python docs/figures/benchmarks.py FILES

The files are outputs of `heterocompute bench --json`. Several files with different benchmarks or threads are combined.
Only the text between `<!-- NAME -->` and `<!-- / -->` is replaced; a table without new results is unchanged.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner import DOCS

PAGE = DOCS / "benchmarks.md"
SGEMM, SGEMV = "OpenBLAS sgemm", "OpenBLAS sgemv"
BIG, SMALL, TINY = "Products 512 x 4096 x 4096", "Products 64 x 4096 x 4096", "Products 512 x 768 x 768"
AVX2 = "Products 512 x 4096 x 4096, AVX2 alone, OpenBLAS with its Haswell kernels"
VECTOR, CACHED = "1 vector times 14336 x 4096, beyond L3", "1 vector times 2048 x 2048, in L3"
POINTS = "Integer products of 1 to 128 rows"
QUANTIZE, BY_SIZE = "Quantize 4096 x 4096 float32", "Quantize vsq4-g16-s4 by size"
SPARSE, SPARSE_VECTOR, PRUNE = "Product 2048 x 2048 x 2048", "Product 1 x 2048 x 2048", "Prune 2048 x 2048"
FEW, FEW_CACHED = (
    "One vector times 14336 x 4096, beyond L3",
    "One vector times 2048 x 2048, in L3",
)
VSQ, INT4 = "vsq4-g16-s4", "int4-g32-f16"

Row = dict[str, Any]
Rows = dict[str, Row]  # by name


class Target(NamedTuple):
    """One row of the table of targets; without `work` it continues the row above."""

    work: str
    wanted: str
    table: str
    row: str
    key: str
    least: float


TARGETS = (
    Target("dense float32 product", "of OpenBLAS", BIG, "float32 dense", "to_sgemm", 0.97),
    Target("dense float32 product, own kernels", "of OpenBLAS", BIG, "float32 dense, own kernels", "to_sgemm", 0.9),
    *(
        target
        for name in (f"{VSQ} x int8", f"{VSQ} x {VSQ}")
        for target in (
            Target(f"`{name}`", "x sgemm", BIG, name, "to_sgemm", 3.5),
            Target("", "of the int8 limit", BIG, name, "of_limit", 0.75),
            Target("", "x the best int8 peer", BIG, name, "to_int8_peer", 1.1),
            Target("", "x every 4-bit peer", BIG, name, "to_4_bit_peer", 4),
        )
    ),
    Target(f"`{VSQ} x int8`, prepacked", "x the best int8 peer", BIG, f"{VSQ} prepacked x int8", "to_int8_peer", 1.1),
    Target(f"`{VSQ} x int8` with AVX2 alone", "x sgemm (Haswell)", AVX2, f"{VSQ} x int8", "to_sgemm", 1),
    *(
        Target(f"weight-only, `{name} x float32`", "x sgemm", BIG, f"{name} x float32", "to_sgemm", 0.9)
        for name in (VSQ, INT4, "nf4-g64", "mxfp4", "nvfp4")
    ),
    Target(f"`{VSQ} x int24`", "x sgemm", BIG, f"{VSQ} x int24", "to_sgemm", 1.3),
    Target(f"one vector, `{VSQ} x int8`", "of the memory limit", VECTOR, f"{VSQ} x int8", "of_limit", 0.8),
    Target("", "x sgemv", VECTOR, f"{VSQ} x int8", "to_sgemv", 6),
    Target(f"one vector, `{INT4} x int8`", "of the memory limit", VECTOR, f"{INT4} x int8", "of_limit", 0.8),
    Target("", "x onnxruntime MatMulNBits", VECTOR, f"{INT4} x int8", "to_4_bit_peer", 1.1),
    Target("", "the same in the cache", CACHED, f"{INT4} x int8", "to_4_bit_peer", 1.1),
    *(
        Target(f"one vector, `{name} x float32`", "of the memory limit", VECTOR, f"{name} x float32", "of_limit", 0.7)
        for name in (VSQ, INT4, "nf4-g64", "mxfp4", "nvfp4")
    ),
    *(
        target
        for name in (VSQ, "vsq4-g16", INT4, "mxfp4", "nvfp4")
        for target in (
            Target(f"quantize to `{name}`", "of the memory limit", QUANTIZE, f"quantize {name}", "of_limit", 0.6),
            Target("", "x NumPy", QUANTIZE, f"quantize {name}", "to_numpy", 20),
        )
    ),
    *(
        Target(f"quantize to `{name}`", "x ml_dtypes", QUANTIZE, f"quantize {name}", "to_ml_dtypes", 10)
        for name in ("fp8_e4m3fn", "fp4_e2m1")
    ),
    *(
        Target(f"`{name}` float32 product, 2048^3", "x sgemm", SPARSE, name, "to_sgemm", least)
        for name, least in (("2:4", 1.4), ("1:4", 2.3), ("1:8", 4))
    ),
    Target("`int8+2:4 x int8`, 2048^3", "x the dense int8 product", SPARSE, "int8+2:4 x int8", "to_int8", 1.2),
    *(
        Target(f"one vector, `{VSQ}+2:4 x {x}`", "x the dense one", FEW, f"{VSQ}+2:4 x {x}", "to_dense", 1.3)
        for x in ("int8", "float32")
    ),
    Target("prune to `2:4`", "of the memory limit", PRUNE, "prune 2:4", "of_limit", 0.5),
)


class Figures:
    """The rows of all files, by table and threads."""

    def __init__(self, files: Sequence[str]) -> None:
        self.tables: dict[tuple[str, int], Rows] = {}
        self.machine: dict[str, Any] = {}
        for file in files:
            for report in json.loads(Path(file).read_text())["benchmarks"].values():
                self.machine = report["machine"]
                if report["quick"]:
                    raise SystemExit(f"benchmarks.py: {file} was measured with --quick: its times mean nothing")
                for table in report["tables"]:
                    self.tables[table["title"], table["threads"]] = {row["name"]: row for row in table["rows"]}
        for (title, _), rows in self.tables.items():
            if title == SPARSE and "int8+2:4 x int8" in rows:
                rows["int8+2:4 x int8"]["to_int8"] = rows["int8 x int8"]["seconds"] / rows["int8+2:4 x int8"]["seconds"]

    def rows(self, title: str, threads: int = 1) -> Rows:
        return self.tables.get((title, threads), {})

    def value(self, title: str, row: str, key: str, threads: int = 1) -> float | None:
        return self.rows(title, threads).get(row, {}).get(key)


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows] if rows else []
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def digits(value: float | None, scale: float = 1.0, unit: str = "") -> str:
    return "" if value is None else f"{value * scale:.3g}{unit}"


def ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def targets(figures: Figures) -> str:
    rows = []
    for target in TARGETS:
        found = [figures.value(target.table, target.row, target.key, threads) for threads in (1, 2)]
        if found[0] is None:
            continue
        words = "met" if min(value for value in found if value is not None) >= target.least else "missed"
        wanted = f">= {target.least:g} {target.wanted}"
        rows.append([target.work, wanted, *map(ratio, found), words])
    slow = figures.value("Import", "import heterocompute", "of_numpy")
    if slow is not None:
        found_words = "met" if slow <= 1.3 else "missed"
        rows.append(["`import heterocompute`", "<= 1.3 x `import numpy`", ratio(slow), "", found_words])
    return markdown(["work", "target", "one thread", "two threads", ""], rows)


def limits(figures: Figures) -> str:
    one, two = (
        next((rows for (title, n), rows in figures.tables.items() if title.startswith("Limits") and n == threads), {})
        for threads in (1, 2)
    )
    rows = []
    for name, row in one.items():
        isa = f" ({row['isa']})" if "isa" in row else ""
        both = [digits(found.get(name, {}).get("rate"), 1, f" {row['unit']}") for found in (one, two)]
        rows.append([name + isa, *both])
    return markdown(["limit", "one thread", "two threads"], rows)


RATIOS = {
    "to_sgemm": "to sgemm", "to_sgemv": "to sgemv", "of_limit": "of the limit", "to_int8_peer": "to best int8 peer",
    "to_4_bit_peer": "to best 4-bit peer", "to_definition": "to the definition", "to_numpy": "to NumPy",
    "to_ml_dtypes": "to ml_dtypes fp8, fp4", "of_numpy": "of numpy", "to_dense": "to the dense line",
    "growth": "growth",
}  # fmt: skip


def measured(figures: Figures, title: str, milliseconds: float = 1e3, unit: str = "ms") -> str:
    """Make the table of one benchmark: time, rate and ratios with one thread, time and speedup with two."""
    one, two = figures.rows(title), figures.rows(title, 2)
    keys = [key for key in RATIOS if any(key in row for row in one.values())]
    rows = []
    for name, row in one.items():
        cells = [name, digits(row["seconds"], milliseconds), digits(row.get("rate"), 1, f" {row.get('unit', '')}")]
        cells += [ratio(row[key]) if row.get(key, 0) >= 0.01 else "" for key in keys]
        if two:
            faster = row["seconds"] / two[name]["seconds"] if name in two else None
            cells += [digits(two.get(name, {}).get("seconds"), milliseconds), ratio(faster)]
        rows.append(cells)
    heads = ["", unit, "rate", *(RATIOS[key] for key in keys)]
    return markdown([*heads, f"two threads: {unit}", "faster"] if two else heads, rows)


def shapes(figures: Figures) -> str:
    small, tiny = figures.rows(SMALL), figures.rows(TINY)
    rows = []
    for name in small:
        if "to_sgemm" in small[name] and name in tiny:
            cells = [name]
            for row in (small[name], tiny[name]):
                cells += [digits(row["seconds"], 1e3), ratio(row["to_sgemm"]), ratio(row.get("of_limit"))]
            rows.append(cells)
    return markdown(
        ["weights x activations", "64 x 4096 x 4096: ms", "to sgemm", "of the int8 limit"]
        + ["512 x 768 x 768: ms", "to sgemm", "of the int8 limit"],
        rows,
    )


def batches(figures: Figures) -> str:
    found = [figures.rows(VECTOR.replace("1 vector", f"{n} vector{'s'[: n > 1]}")) for n in (1, 2, 4, 8)]
    rows = []
    for name in found[0]:
        if name.startswith("read"):
            continue
        same = [rows_n.get(name) or rows_n.get(name.replace(SGEMV, SGEMM), {}) for rows_n in found]
        rows.append([name] + [digits(row["seconds"] / row["copies"], 1e3) if row else "" for row in same])
    return markdown(["ms a matrix", "1 vector", "2", "4", "8"], rows)


def points(figures: Figures) -> str:
    """Make the table of small batches: milliseconds by rows, and the ratios to the best other library."""
    one = figures.rows(POINTS)
    by_work: dict[tuple[int, int, str], Rows] = {}
    for row in one.values():
        if "shape" in row:
            m, n, k = row["shape"]
            by_work.setdefault((n, k, row["of"]), {})[str(m)] = row
    counts = list(dict.fromkeys(str(row["shape"][0]) for row in one.values() if "shape" in row))
    rows = []
    for (n, k, of), found in by_work.items():
        cells = [
            digits(row["seconds"], 1e3) + (f" ({ratio(row['to_int8_peer'])})" if "to_int8_peer" in row else "")
            for row in (found[count] for count in counts)
        ]
        rows.append([f"{n} x {k}", of, *cells])
    rows += [[name, "", *[""] * len(counts)] for name in one if name.startswith("all: ")]
    return markdown(["weights", "", *(f"{count} row{'s'[: count != '1']}" for count in counts)], rows)


def by_size(figures: Figures) -> str:
    one, two = figures.rows(BY_SIZE), figures.rows(BY_SIZE, 2)
    rows = []
    for name, row in one.items():
        other = two.get(name.replace("1 thread", "2 threads"), {})
        rows.append([name.split()[0], digits(row["ns_each"]), digits(other.get("ns_each"))])
    return markdown(["values", "ns a value, one thread", "two threads"], rows)


def machine(figures: Figures) -> str:
    found = figures.machine
    versions = {name: version for name, version in found["versions"].items() if name != "heterocompute"}
    cache = found["l3_bytes"] >> 20
    rows = [
        ["processor", f"{found['cpu']}, {found['processors']} processors, L3 {cache} MiB"],
        ["instruction sets", " ".join(found["isa"])],
        ["OpenBLAS", found["blas"]],
        ["compiler", found["compiler"]],
        ["Python", found["python"]],
        ["packages", ", ".join(f"{name} {version}" for name, version in versions.items())],
        ["measured", found["date"]],
    ]
    return markdown(["", ""], rows)


def main(files: Sequence[str]) -> None:
    if not files:
        raise SystemExit(__doc__)
    figures = Figures(files)
    parts = {
        "machine": machine(figures), "targets": targets(figures), "limits": limits(figures),
        "gemm": measured(figures, BIG), "shapes": shapes(figures), "avx2": measured(figures, AVX2),
        "gemv": measured(figures, VECTOR), "batches": batches(figures), "cached": measured(figures, CACHED, 1e6, "us"),
        "quantize": measured(figures, QUANTIZE), "sizes": by_size(figures), "sparse": measured(figures, SPARSE),
        "sparse-vector": measured(figures, SPARSE_VECTOR), "few": measured(figures, FEW),
        "few-cached": measured(figures, FEW_CACHED, 1e6, "us"), "prune": measured(figures, PRUNE),
        "points": points(figures), "import": measured(figures, "Import"), "headers": measured(figures, "Headers"),
    }  # fmt: skip
    text = PAGE.read_text()
    for name, table in parts.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- / -->)", re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"benchmarks.py: benchmarks.md has no place for the table {name!r}")
        if table:
            text = pattern.sub(lambda place, table=table: f"{place[1]}\n{table}\n\n{place[2]}", text)  # type: ignore[misc]
    PAGE.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
