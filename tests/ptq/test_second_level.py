"""The second level of VS-Quant's scales is refitted after the columns and sweeps, by three errors of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import isas

import heterocompute as hc
from heterocompute.ptq.levels import refit_second
from heterocompute.reference import ptq as definition

FORMATS = ("vsq2-g16-s4", "vsq3-g16-s4", "vsq4-g8-s6", "vsq4u-g16-s4-tensor", "vsq3-g16-s4+2:4")


def problem(seed: int) -> tuple[Any, hc.ptq.Hessian]:
    rng = np.random.default_rng(seed)
    h = hc.ptq.Hessian(64)
    h.add(rng.standard_normal((256, 64)) @ (rng.standard_normal((64, 64)) * np.exp(rng.standard_normal(64))))
    w = rng.standard_normal((12, 64), dtype=np.float32)
    return w, h


def errors(w: Any, q: Any, h: hc.ptq.Hessian) -> Any:
    lost = w.astype(np.float64) - q.dequantize().astype(np.float64)
    return ((lost @ h.matrix) * lost).sum(axis=1)


@pytest.mark.parametrize("method", ["gptq", "qronos"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_no_other_second_level_is_better(fmt: str, method: str) -> None:
    w, h = problem(1)
    w = np.abs(w) if "u" in fmt.split("-")[0] else w
    q, kept = (getattr(hc.ptq, method)(w, h, fmt, refit=refit) for refit in (True, False))
    assert float(errors(w, q, h).sum()) < float(errors(w, kept, h).sum())
    own = errors(w, q, h)
    own = own if q.components["coarse"].ndim else own.sum()[None]
    for share in np.linspace(0.95, 1.05, 41):
        moved = q._remade(
            {**q.components, "coarse": np.asarray(q.components["coarse"] * np.float32(share))}, q.shape, q.axis
        )
        other = errors(w, moved, h)
        other = other if q.components["coarse"].ndim else other.sum()[None]
        assert (own <= other * (1 + 1e-6)).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_second_level_is_that_of_the_definition(seed: int) -> None:
    w, h = problem(seed)
    q = hc.quantize(w, "vsq3-g16-s4")

    def losses(one: Any) -> Any:
        return errors(w, one, h)

    found, old = refit_second(q, losses), q.components["coarse"]
    trials = [old * (1 + sign * np.float32(0.01)) for sign in (1, -1)]
    tables = [losses(q._remade({**q.components, "coarse": one}, q.shape, q.axis)) for one in (old, *trials)]
    moved = 0
    for row in range(len(w)):
        pairs = [(float(level[row]), float(lost[row])) for level, lost in zip(trials, tables[1:], strict=True)]
        wanted = definition.second_level(float(old[row]), float(tables[0][row]), pairs)
        assert found.components["coarse"][row] in (np.float32(wanted), old[row])
        moved += found.components["coarse"][row] == np.float32(wanted) != old[row]
    assert moved > len(w) // 2 and (losses(found) <= tables[0]).all()
    assert found.components["codes"].tobytes() == q.components["codes"].tobytes()


@pytest.mark.parametrize("isa", isas("ptq_"))
def test_bytes_are_the_same_everywhere(isa: str) -> None:
    w, h = problem(5)
    wanted = hc.ptq.gptq(w, h, "vsq3-g16-s4")
    for threads in (1, 2):
        with hc.use(isa=isa, threads=threads):
            assert hc.ptq.gptq(w, h, "vsq3-g16-s4") == wanted


def test_zeros_and_other_formats_stay() -> None:
    w, h = problem(2)
    q = hc.ptq.gptq(np.zeros_like(w), h, "vsq3-g16-s4")
    assert not q.dequantize().any()
    plain = hc.quantize(w, "int4-g16")
    assert refit_second(plain, lambda one: errors(w, one, h)) is plain
