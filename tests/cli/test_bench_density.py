"""The benchmark of time against density: its rows and their summary."""

from __future__ import annotations

import numpy as np
import pytest

from heterocompute.bench import density
from heterocompute.bench.measure import Options


def rows(*points: tuple[float, float]) -> list[dict[str, object]]:
    return [{"family": "CSR", "density": at, "to_dense": ratio} for at, ratio in points]


def test_break_even_is_interpolated_in_logarithms() -> None:
    (found,) = density.break_evens(rows((0.4, 0.5), (0.1, 2.0), (0.01, 9.0)))
    assert found == {"name": "CSR", "lowest": 0.01, "to_dense": 9.0, "break_even": pytest.approx(0.2)}


def test_what_is_never_or_always_faster() -> None:
    assert "break_even" not in density.break_evens(rows((0.1, 0.9), (0.5, 0.2)))[0]
    assert density.break_evens(rows((0.1, 3.0), (0.5, 1.2)))[0]["break_even"] == 0.5


def test_the_last_crossing_counts() -> None:
    (found,) = density.break_evens(rows((0.1, 0.5), (0.2, 2.0), (0.8, 0.5)))
    assert found["break_even"] == pytest.approx(0.4)


def test_every_storage_is_measured_at_every_density() -> None:
    tables = density.measure(Options(quick=True, threads=[1]))
    assert [table["shape"][0] for table in tables] == [1, 1, 16, 16]
    for times, evens in zip(tables[::2], tables[1::2], strict=True):
        for family in ("CSR", "EIE"):
            assert {row["density"] for row in times["rows"] if row["family"] == family} == set(density.DENSITIES)
        patterns = [row["density"] for row in times["rows"] if row["family"] == "N:M"]
        assert patterns == [1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4]
        assert {"N:M", "CSR", "EIE"} <= {row["name"] for row in evens["rows"]}


def test_the_rows_of_the_benchmark_are_those_of_the_matrix() -> None:
    w = np.float32([[0, 2, 0], [0, 0, 0], [3, 0, 4]])
    found = density.Csr.of(w)
    assert found.indptr.tolist() == [0, 1, 1, 3] and found.indices.tolist() == [1, 0, 2]
    assert found.data.tolist() == [2, 3, 4] and found.nnz == 3 and found.shape == (3, 3)
