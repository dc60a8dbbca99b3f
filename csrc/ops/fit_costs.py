"""Make product/costs.def and conv/costs.def, the costs of counts of work, from the CSV files in docs/measurements.

    python csrc/ops/fit_costs.py

`heterocompute bench plan --costs docs/measurements` writes `product-<processor>.csv.gz` and `conv-<processor>.csv.gz`.
A row is a path of a matmul, or an algorithm of a convolution, forced once: its counts, the nanoseconds of its fastest
call, how much slower it is than the fastest path, the median call over the fastest one, and the number of calls. The
costs of a path in a class of instruction sets are non-negative least squares of estimate / time - 1, each row over the
root of that ratio, so that half and twice the time count alike. A path that is much slower than the fastest counts for
less, unless its estimate would make the plan take it.

Processors without a file use carried costs. Those of matmuls are a fit to the measurements of all processors. Those of
convolutions, and of instruction sets without measurements, are in `product-carried.csv.gz` and `conv-carried.csv.gz`.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import runpy
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Kind(NamedTuple):
    """A kind of costs: its name, the counts of hc_work or hc_conv_work, and C's numbers of paths or algorithms.

    `pooled` is true if processors without a file use a fit to the measurements of all others.
    """

    name: str
    counts: tuple[str, ...]
    prefix: str
    pooled: bool


HERE = Path(__file__).resolve().parent
MEASUREMENTS = HERE.parents[1] / "docs" / "measurements"
FIT = runpy.run_path(str(HERE.parents[1] / "heterocompute/bench/calibration/fit.py"))
DEVICES = HERE.parent / "cuda" / "costs"
PRODUCTS = Kind(
    "product",
    ("codes", "decoded", "unpacked", "limbs", "spread", "products", "wide", "groups", "values"),
    "HC_PATH_",
    True,
)
CONVOLUTIONS = Kind("conv", ("products", "values", "filters", "kept", "images", "windows"), "HC_ALGORITHM_", False)
CLASSES = {  # best first
    "amx": "HC_ISA_AMX",
    "avx512vbmi": "HC_ISA_AVX512VNNI | HC_ISA_AVX512VBMI",
    "avx512vnni": "HC_ISA_AVX512VNNI",
    "avx512": "HC_ISA_AVX512",
    "avxvnni": "HC_ISA_AVXVNNI",
    "avx2": "HC_ISA_AVX2",
    "dotprod": "HC_ISA_DOTPROD",
    "neon": "HC_ISA_NEON",
    "scalar": "0",
}
LIKE = {"avx512vnni": "avx512vbmi"}  # classes whose kernels differ little, if only the second one was measured
nonnegative = FIT["nonnegative"]
VENDORS = {"amd": "HC_AMD", "intel": "HC_INTEL", "arm": "HC_ARM_CORE"}


def fit(rows: list[dict[str, str]], names: tuple[str, ...]) -> tuple[np.ndarray, str]:
    """Return nanoseconds of a call and of each count, and a remark on how well they fit."""
    counts = np.array([[1.0, *(float(row[name]) for name in names)] for row in rows])
    ns, slower = (np.array([float(row[name]) for row in rows]) for name in ("ns", "to_fastest"))
    costs, ratios = FIT["fit"](counts, ns, slower)
    low, high = np.quantile(ratios, (0.1, 0.9))
    return costs, f"/* {len(rows)} points, estimate / time {low:.2f} to {high:.2f} */"


def files_of(kind: Kind, folder: Path = MEASUREMENTS) -> dict[str, Path]:
    """Return the CSV files of a kind by processor, "carried" last."""
    found = {path.name.removesuffix(".csv.gz").partition("-")[2]: path for path in folder.glob(f"{kind.name}-*.csv.gz")}
    return {name: found[name] for name in sorted(found, key=lambda name: (name == "carried", name))}


def measured(paths: Iterable[Path], counts: tuple[str, ...]) -> dict[tuple[str, str], tuple[np.ndarray, str]]:
    """Return the costs that fit the measurements of files by class and path."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for path in paths:
        with gzip.open(path, "rt", newline="") as file:
            for row in csv.DictReader(file):
                groups.setdefault((row["isa"], row["path"]), []).append(row)
    return {key: fit(group, counts) for key, group in groups.items()}


def read(path: Path, counts: tuple[str, ...]) -> dict[tuple[str, str], tuple[np.ndarray, str]]:
    """Return the costs of a file by class and path."""
    if not path.name.endswith("-carried.csv.gz"):
        return measured([path], counts)
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    return {(row["isa"], row["path"]): (np.array([float(row[name]) for name in ("call", *counts)]), "") for row in rows}


def costs_of(kind: Kind, folder: Path) -> dict[str, dict[tuple[str, str], tuple[np.ndarray, str]]]:
    """Return the costs by processor, class and path, "carried" last."""
    files = files_of(kind, folder)
    costs = {name: read(path, kind.counts) for name, path in files.items()}
    if kind.pooled:
        pool = measured((path for name, path in files.items() if name != "carried"), kind.counts)
        for isa, like in LIKE.items():
            if all(of != isa for of, _ in pool):
                remark = f"/* as {like} */"
                pool |= {(isa, name): (found, remark) for (of, name), (found, _) in pool.items() if of == like}
        costs["carried"] = costs.get("carried", {}) | pool
    return costs


def processor(chip: str) -> str:
    """Return the number of a processor in C."""
    if chip == "carried":
        return "0"
    vendor, *numbers = chip.split("-")
    return f"HC_PROCESSOR({VENDORS[vendor]}, {', '.join([*numbers, '0'][:2])})"


def make(kind: Kind, folder: Path = MEASUREMENTS) -> str:
    """Return the text of costs.def."""
    lines = [
        "/* Made by csrc/ops/fit_costs.py from docs/measurements: do not edit. A remark has the number of measurements",
        " * and the 10 % and 90 % quantiles of estimate / time. */",
    ]
    costs = costs_of(kind, folder)
    for (isa, needs), (chip, of_chip) in itertools.product(CLASSES.items(), costs.items()):
        lines_of = []
        for (of, name), (found, remark) in of_chip.items():
            call, *counts = [f"{float(f'{value:.3g}'):g}" for value in found]
            if of == isa:
                lines_of.append(f"     [{kind.prefix}{name}] = {{{call}, {{{', '.join(counts)}}}}}, {remark}".rstrip())
        if lines_of:
            lines += [f"/* {chip}: {isa} */", f"{{.processor = {processor(chip)},", f" .needs = {needs},"]
            lines += [" .of = {", *lines_of, " }},"]
    return "\n".join(lines) + "\n"


def make_devices() -> str:
    """Return the text of costs.def of devices: costs of paths by architecture, for a range of rows of x."""
    with open(DEVICES / "carried.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    lines = ["/* Made by csrc/ops/fit_costs.py from the CSV files in this folder: do not edit. */"]
    for architecture, group in itertools.groupby(rows, key=lambda row: row["architecture"]):
        lines += [f"{{.architecture = {architecture},", " .of = {"]
        for row in group:
            most = row["most"] or "INT64_MAX"
            counts = ", ".join(row[name] for name in ("rounds", "bytes", "codes"))
            lines.append(
                f"     [HC_CUDA_PATH_{row['path']}] = {{{row['least']}, {most}, {row['call']}, {{{counts}}}}},"
            )
        lines.append(" }},")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for each in (PRODUCTS, CONVOLUTIONS):
        (HERE / each.name / "costs.def").write_text(make(each))
    (DEVICES / "costs.def").write_text(make_devices())
