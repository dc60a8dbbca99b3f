"""The second implementation of the definitions agrees on some cases here (on new ones in CI), and can disagree."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracle import arrays, convolve, exact, floats, integers, multiply, products, rows, run, tables

import heterocompute as hc


def test_the_package_agrees_with_the_oracle(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--seed", "1", "--cases", "60"]) == 0, capsys.readouterr().out


def half_up(q: Any, low: int, high: int) -> Any:
    return np.clip(np.floor(q + 0.5), low, high)


def not_fused(a: Any, b: Any, c: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.float32(a) * np.float32(b) + np.float32(c)


def upper_level(values: Any, levels: Any) -> Any:
    return np.searchsorted((levels[:-1] + levels[1:]) / 2, values, side="right")


def floor_always(absmax: float, rule: str, emax: int, fraction_bits: int, largest: Fraction) -> int:
    return min(max(floats.floor_log2(Fraction(absmax)) - emax, -127), 127)


def columns_first(shape: Any, window: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    where, size = windows(shape, window, stride, padding, dilation)
    return where.reshape(-1, *window, shape[2]).swapaxes(1, 2).reshape(where.shape), size


windows = convolve.windows
octav = rows.octav
WRONG: list[tuple[Any, str | None, Any, str, Callable[..., Any]]] = [
    (arrays, "int3-g8-asym", integers, "nearest", half_up),
    (arrays, "vsq4-g16-s4", integers, "quotient", lambda x, s: (np.float32(x) / np.float32(s)).astype(np.float64)),
    (arrays, "mxfp4-even", floats, "shared_exponent", floor_always),
    (arrays, "nf4-g64", tables, "nearest_level", upper_level),
    (arrays, "log8-8", tables, "root_of_half", lambda e, gamma: float(np.float32(exact.root_of_half(e, gamma)))),
    (arrays, "int4", rows, "octav", lambda magnitudes, bits: octav(magnitudes, bits + 1)),
    (multiply, None, products, "fma32", not_fused),
    (convolve, None, convolve, "windows", columns_first),
]


@pytest.mark.parametrize("kind, text, module, name, wrong", WRONG, ids=[name for _, _, _, name, _ in WRONG])
def test_a_wrong_definition_is_noticed(
    monkeypatch: pytest.MonkeyPatch, kind: Any, text: str | None, module: Any, name: str, wrong: Callable[..., Any]
) -> None:
    monkeypatch.setattr(module, name, wrong)
    masks, wanted = run.isas(), {"fmt": hc.format(text)} if text else {}
    cases = (kind.draw(np.random.default_rng([7, number]), masks, **wanted) for number in range(200))
    assert any(run.difference(kind, case) for case in cases)


def test_a_difference_is_made_small_and_can_be_seen_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(integers, "nearest", half_up)
    assert run.main(["--seed", "3", "--cases", "500"]) == 1
    said = capsys.readouterr().out
    assert "made smaller:" in said and re.search(r"  x: \w+\(", said) and "Mismatch: " in said
    again = re.search(r"again: python tests/oracle/run.py (.*)", said)
    assert again and run.main(again[1].split()) == 1
    assert capsys.readouterr().out.partition("\n")[2] == said.partition("\n")[2]
    monkeypatch.undo()
    assert run.main(again[1].split()) == 0


def test_the_oracles_arithmetic() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(400) * 2.0 ** rng.integers(-100, 60, 400) for _ in range(3))
    a, b, c = (np.float32(v) for v in (a, b, c))
    c[::2] = -np.float32(a * b)[::2] * np.float32(1 + 2.0**-20)
    for got, x, y, z in zip(exact.fma32(a, b, c), a, b, c, strict=True):
        wanted = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        error = abs(Fraction(float(got)) - wanted)
        for beside in (np.nextafter(got, np.float32(np.inf)), np.nextafter(got, np.float32(-np.inf))):
            assert error <= abs(Fraction(float(beside)) - wanted)
    assert exact.root_of_half(1, 2) == 0.5**0.5 and exact.root_of_half(130, 1) == 2.0**-130
    packed = exact.pack(np.array([[1, -1, 3]]), 3)
    assert packed.tolist() == [[0b11111001, 0]]
