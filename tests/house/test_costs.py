"""The stored costs of paths are those that the script computes from the measurements."""

from __future__ import annotations

import csv
import gzip
import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from heterocompute import _heterocompute as core
from heterocompute.bench import plan

SCRIPT = Path(__file__).parents[2] / "csrc" / "ops" / "fit_costs.py"


@pytest.fixture(scope="module")
def fit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fit_costs", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_costs_are_those_of_the_measurements(fit: ModuleType) -> None:
    for kind in (fit.PRODUCTS, fit.CONVOLUTIONS):
        assert (SCRIPT.parent / kind.name / "costs.def").read_text() == fit.make(kind), "run csrc/ops/fit_costs.py"
    assert (fit.DEVICES / "costs.def").read_text() == fit.make_devices(), "run csrc/ops/fit_costs.py"


def test_counts_have_the_same_names_everywhere(fit: ModuleType) -> None:
    assert {kind.name: kind.counts for kind in (fit.PRODUCTS, fit.CONVOLUTIONS)} == plan.COUNTS
    for kind in (fit.PRODUCTS, fit.CONVOLUTIONS):
        for processor, path in fit.files_of(kind).items():
            with gzip.open(path, "rt", newline="") as file:
                header = tuple(next(csv.reader(file)))
            columns = ("isa", "path", "call", *kind.counts) if processor == "carried" else plan.columns(kind.name)
            assert header == columns, path.name


def test_every_class_of_costs_is_one_of_the_benchmark(fit: ModuleType) -> None:
    assert set(plan.CLASSES) | {"scalar"} == set(fit.CLASSES)
    for kind in (fit.PRODUCTS, fit.CONVOLUTIONS):
        assert {isa for isa, _ in fit.read(fit.files_of(kind)["carried"], kind.counts)} <= set(fit.CLASSES)


def test_nonnegative_least_squares_are_those_of_scipy(fit: ModuleType) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(0)
    for _ in range(20):
        a = rng.standard_normal((30, 6)) * 10.0 ** rng.integers(-5, 6, 6)
        b = a @ rng.uniform(-1, 1, 6) + rng.standard_normal(30)
        assert np.allclose(fit.nonnegative(a, b), optimize.nnls(a, b)[0], rtol=1e-6, atol=1e-12)


def test_a_measured_file_becomes_a_class_of_its_processor(fit: ModuleType, tmp_path: Path) -> None:
    counts = [[float(i == j) for j in range(9)] for i in range(10)]
    ns = [100 + 10 * i for i in range(9)] + [100]
    rows = [["avx2", "CHAIN_gemm_chain", *each, time, 1.0, 1.1, 5] for each, time in zip(counts, ns, strict=True)]
    for some in (rows, [["neon", *row[1:]] for row in rows], rows):
        plan.write_costs({"product": some}, tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.name == f"product-{core.cpu_processor()}.csv.gz"
    assert len(gzip.decompress(path.read_bytes()).splitlines()) == 1 + 2 * len(rows)
    path.rename(path.with_name("product-intel-6-207.csv.gz"))
    text = fit.make(fit.PRODUCTS, tmp_path)
    assert "HC_PROCESSOR(HC_INTEL, 6, 207)" in text and "HC_ISA_AVX2," in text
    assert "[HC_PATH_CHAIN_gemm_chain] = {100, {0, 10, 20, 30, 40, 50, 60, 70, 80}}, /* 10 points" in text
