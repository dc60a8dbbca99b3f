"""The table of paths of a device: choices, reasons, forced paths, and one result of all paths."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import driven
import emulated
import numpy as np
import planned
import pytest
from driven import Lent

import heterocompute as hc
from heterocompute import _heterocompute as core

# Of the steps of 4,000 matmuls and 3,000 convolutions, with blocks and bytes. Other costs may change them: planned.py.
DIGEST = "01480868a531a49f823004bf89db2a67f28c052afc9634e0a6c5f635e9262a15"
CONVOLUTIONS = "dc0473e7a6876df23577a542c93f9955482d8619b39f74c07791dff5bb1c692d"


def recorded() -> list[tuple[planned.Case, str]]:
    """Return the matmuls of choices.csv and the kernels that multiply."""
    with (Path(__file__).parent / "choices.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = []
    for row in rows:
        numbers = {name: int(row[name]) for name in planned.Case._fields[2:]}
        numbers["device_order"] = bool(numbers["device_order"])
        found.append((planned.Case(row["w"], row["activations"] or None, **numbers), row["kernels"]))
    return found


def test_choices_are_those_that_were_recorded() -> None:
    wrong = [(case, kernels) for case, kernels in recorded() if planned.multiplying(planned.steps(case)) != kernels]
    assert not wrong


def test_thousands_of_plans_are_those_that_were_recorded() -> None:
    assert planned.digest(planned.steps(case) for case in planned.cases(1, 4000)) == DIGEST
    assert planned.digest(planned.steps_of(case) for case in planned.convolutions(1, 3000)) == CONVOLUTIONS


def test_every_path_refuses_with_a_reason_or_has_an_estimate() -> None:
    admitted, chosen = set(), set()
    for case, kernels in recorded():
        found = planned.explain(case)
        for one in found.candidates[: found.n]:
            assert one.reason or 0 < one.seconds < 2e6, (case, one.path)
            admitted |= set() if one.reason else {one.id.decode()}
        best = found.candidates[found.chosen]
        chosen.add(best.id.decode())
        assert best.seconds == min(one.seconds for one in found.candidates[: found.n] if not one.reason)
        assert planned.multiplying(planned.steps(case, path=best.path)) == kernels
    assert admitted == chosen  # each path is somewhere the fastest
    assert len(admitted) > 40


def test_a_forced_path_refuses_by_its_name() -> None:
    case = planned.Case("int8", "int8", 100, 64, 128, 80, 0, False, 0, 0)
    assert "hc_gemm_s8_128_folded" in planned.steps(case, path=b"tiles-128")
    assert planned.steps(case, path=b"few") == "path 'few' refuses this matmul: x has more than 64 rows"
    text = "path 'gemm' does not apply to this matmul on a device; available paths: tiles-64, tiles-128"
    assert planned.steps(case, path=b"gemm") == text
    with pytest.raises(ValueError, match="path 'gemm' does not apply"):
        planned.explain(case, path=b"gemm")
    assert planned.explain(case, path=b"tiles-128").chosen == 4


MATMULS = [
    *[("int8", "int8"), ("vsq4-g16-s4", "int8"), ("int8+2:4", "int8"), ("int4-g32-f16", "int8"), ("int8-g64", "int8")],
    *[("int8-g128", "int8"), ("int4-g64-f16", "int8"), ("int8-g32+2:4", "int8"), ("int8+2:4", None), ("int8", None)],
]


@pytest.mark.parametrize(("w_text", "x_text"), MATMULS)
@pytest.mark.sweep(every=3)
def test_all_paths_of_a_matmul_give_the_same_bits(w_text: str, x_text: str | None) -> None:
    rng = np.random.default_rng(0)
    name, _, pattern = w_text.partition("+")
    ran = set()
    for m, n, k in [(6, 40, 256), (70, 33, 256)]:
        x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
        q = hc.quantize(hc.prune(w, pattern) if pattern else w, name)
        activations = hc.format(x_text) if x_text else None
        wanted = hc.linear(x, q, activations=x_text).tobytes()
        for architecture in (80, 90):
            found = planned.explain(planned.Case(w_text, x_text, m, n, k, architecture, 0, False, 0, 0))
            for one in found.candidates[: found.n]:
                if not one.reason:
                    got = emulated.linear(x, q, activations=activations, path=one.path, architecture=architecture)
                    assert got.tobytes() == wanted, (m, architecture, one.path)
                    ran.add((architecture, one.path))
    assert len(ran) >= (2 if x_text is None else 4)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    yield driven.used(monkeypatch)


def values(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("w_text", "activations"), [("vsq4-g16-s4", "int8"), ("int8", None), ("int8", "int8")])
@pytest.mark.sweep(every=2)
def test_every_path_is_explained_and_can_be_forced(w_text: str, activations: str | None, driver: Any) -> None:
    for m in (6, 40):
        x, q = values(m, 128), hc.quantize(values(24, 128), w_text)
        lent, there, wanted = Lent(x), q.to("cuda"), hc.linear(x, q, activations=activations).tobytes()
        found = hc.explain(hc.linear, lent, there, activations=activations)
        best = min((one.predicted_ms, one.path) for one in found.candidates if one.predicted_ms)
        assert found.chosen == best[1]
        for one in found.candidates:
            assert one.reason
            with hc.use(path=one.path):
                if one.predicted_ms:
                    assert hc.explain(hc.linear, lent, there, activations=activations).chosen == one.path
                    assert hc.linear(lent, there, activations=activations).to_numpy().tobytes() == wanted
                elif "costs" not in one.reason:
                    with pytest.raises(ValueError, match="refuses this matmul") as raised:
                        hc.linear(lent, there, activations=activations)
                    assert one.reason in str(raised.value)


def test_paths_of_the_cpu_and_of_a_device_have_different_names(driver: Any) -> None:
    x, q = values(5, 64), hc.quantize(values(7, 64), "int8")
    here, there = core.paths()
    assert len(here) > 5 and len(there) > 40 and not {*here} & {*there}
    with hc.use(path="gemv"), pytest.raises(ValueError, match="'gemv' does not apply to this matmul on a device"):
        hc.linear(Lent(x), q.to("cuda"))
    with hc.use(path="words"), pytest.raises(ValueError, match="path is one of a device; available paths: gemv, "):
        hc.linear(x, q)
