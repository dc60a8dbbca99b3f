"""Formats of the literature: definitions of at most ten lines, the tables of their sources, and the page's numbers."""

from __future__ import annotations

import inspect
import runpy
from itertools import product
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from common import reals, same_bits

import heterocompute as hc
from heterocompute import reference
from heterocompute.formats import Own
from heterocompute.formats.elements.quantiles import NF4

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "figures" / "literature"))
ENTRIES = {entry.name: entry for entry in SCRIPT["ENTRIES"]}
FORMATS = [(entry, fmt) for entry in ENTRIES.values() for fmt in entry.made()]
PAGE = SCRIPT["PAGE"].read_text(encoding="utf-8")
each_format = pytest.mark.parametrize("at", range(len(FORMATS)), ids=[str(fmt) for _, fmt in FORMATS])


def levels(name: str) -> list[float]:
    (fmt,) = ENTRIES[name].made()
    assert isinstance(fmt, Own)
    table = fmt.element.table()
    return [float(one) for one in table.levels[table.ranked]]


def both_signs(magnitudes: Any) -> list[float]:
    return sorted({sign * float(one) for one in magnitudes for sign in (-1, 1)})


def test_there_are_thirty_with_a_source_and_a_sentence() -> None:
    assert len(ENTRIES) >= 30 and len(ENTRIES) == len(SCRIPT["ENTRIES"])
    for entry in ENTRIES.values():
        assert entry.sources and entry.says.endswith(".") and len(entry.says) < 110, entry.name
        if callable(entry.formats):
            assert len(inspect.getsource(entry.formats).splitlines()) <= 10, entry.name


def test_the_page_and_its_picture_are_todays() -> None:
    numbers = SCRIPT["stored"](PAGE)
    assert len(numbers) == len(FORMATS)
    assert SCRIPT["page_with"](PAGE, numbers) == PAGE, "run python docs/figures/literature"
    assert SCRIPT["PICTURE"].read_text(encoding="utf-8") == SCRIPT["drawn"](numbers), (
        "run python docs/figures/literature"
    )


@each_format
@pytest.mark.sweep(every=5)
def test_the_page_has_the_measured_numbers(at: int) -> None:
    bits, *decibels = SCRIPT["stored"](PAGE)[at]
    for x, shown in zip(SCRIPT["synthetic"](), decibels, strict=False):
        q = hc.quantize(x, FORMATS[at][1])
        assert f"{q.bits_per_value:.2f}" == bits
        assert f"{hc.error(x, q).sqnr_db:.1f}" == shown


@each_format
@pytest.mark.sweep(every=4)
def test_a_format_of_the_literature_is_a_format_as_any_other(at: int, tmp_path: Path) -> None:
    fmt, x = FORMATS[at][1], reals((6, 200), at)
    q = hc.quantize(x, fmt)
    for name, part in reference.quantize(x, fmt).items():
        assert q.components[name].tobytes() == np.asarray(part).tobytes(), name
    hc.save(tmp_path / "a.safetensors", {"w": q})
    assert hc.load(tmp_path / "a.safetensors")["w"] == q
    y = reals((3, 200), at + 1)
    np.testing.assert_allclose(hc.matmul(y, q.T), y @ q.dequantize().T, rtol=1e-4, atol=1e-4)
    assert hc.study({"w": x}, [fmt]).table[-1]["format"] == str(fmt)


def test_tables_of_levels_are_those_of_their_sources() -> None:
    # arXiv 2306.06965, the code of blocks of 64, as bitsandbytes has it
    af4 = [-1, -0.69441008, -0.51243739, -0.3736951, -0.25607552, -0.14982478, -0.04934812, 0, 0.04273164, 0.12934483,
           0.21961274, 0.31675666, 0.42563882, 0.55496234, 0.72424863, 1]  # fmt: skip
    np.testing.assert_allclose(levels("AF4"), af4, atol=6e-6)
    # arXiv 2311.12023: even steps of probability, with the outermost of NF4
    delta, normal = (1 / 30 + 1 / 32) / 2, NormalDist()
    below = [normal.inv_cdf(p) for p in np.linspace(delta, 0.5, 4)]
    above = [normal.inv_cdf(p) for p in np.linspace(0.5, 1 - delta, 5)]
    np.testing.assert_allclose(levels("NF3"), np.array([*below[:-1], *above]) / above[-1], atol=1e-7)
    assert set(np.float32(levels("NF3")[3:]).round(6)) <= set(np.float32(NF4).round(6))  # every second of NF4
    # arXiv 1909.13144, equation 4, with n = 2 and k = 2
    sums = [a + b for a, b in product((0, 1, 2**-2, 2**-4), (0, 2**-1, 2**-3, 2**-5))]
    np.testing.assert_allclose(levels("APoT"), np.array(both_signs(sums)) / 1.5, atol=1e-7)
    assert levels("powers of two") == both_signs([0, *(2.0**-e for e in range(7))])


def test_flint_is_what_its_decoder_says() -> None:
    def flint(code: int, bits: int) -> int:
        """Return the integer of arXiv 2208.14286, section IV: an integer if the first bit is 0."""
        text = f"{code:0{bits}b}"
        if text[0] == "0":
            return code
        zeros = len(text[1:]) - len(text[1:].lstrip("0"))
        if zeros == bits - 1:
            return 1 << (2 * bits - 2)
        fraction = text[2 + zeros :]
        return ((1 << len(fraction)) + int(fraction or "0", 2)) << (bits - 1 + zeros - len(fraction))

    unsigned = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32, 64]  # the paper's table of 4 bits
    assert sorted(flint(code, 4) for code in range(16)) == unsigned
    assert levels("flint (ANT)") == both_signs(flint(code, 3) for code in range(8))


def test_dynamic_trees_are_what_their_bits_say() -> None:
    def number(code: int) -> float:
        """Return the number of arXiv 1511.04561: leading zeros, a 1, and the middle of a step of the fraction."""
        zeros = 7 - code.bit_length()
        steps = 1 << (6 - zeros)
        return float(10.0**-zeros * (0.1 + 0.9 * (code - steps + 0.5) / steps))

    wanted = sorted([*both_signs(number(code) for code in range(1, 128)), 0, 1])
    np.testing.assert_allclose(levels("dynamic tree"), wanted, rtol=1e-6)


def test_sentences_of_the_page_say_what_is_measured() -> None:
    x = reals((128, 256), 7)
    values = {text: hc.quantize(x, text).dequantize() for text in (
        "int4-g32-e8m0", "int4f2-g32-e8m0", "e4m3fnuz-row", "e4m3b11fnuz-row", "int4-g32-e8m0-rceil", "mxfp4",
        "e2m1-g32-e4m3fn", "e2m1-g32-ue5m3", "posit8.1-row", "posit8.1@4096-row", "e4m3fn-b128x128",
    )}  # fmt: skip
    assert same_bits(values["int4-g32-e8m0"], values["int4f2-g32-e8m0"])
    assert same_bits(values["e4m3fnuz-row"], values["e4m3b11fnuz-row"])
    turned = hc.quantize(np.ascontiguousarray(x.T), "e4m3fn-b128x128").dequantize()
    assert same_bits(values["e4m3fn-b128x128"], np.ascontiguousarray(turned.T))
    noise = {text: float(np.square(x - y).sum()) for text, y in values.items()}
    assert noise["e2m1-g32-e4m3fn"] < 0.85 * noise["mxfp4"] and noise["posit8.1-row"] < noise["posit8.1@4096-row"] / 100
    largest = np.abs(x).reshape(128, 8, 32).max(axis=2)
    kept = np.abs(values["int4-g32-e8m0-rceil"]).reshape(128, 8, 32).max(axis=2)
    steps = hc.quantize(x, "int4-g32-e8m0-rceil").scales_expanded().reshape(128, 8, 32)[..., 0]
    assert (np.abs(kept - largest) <= steps / 2).all()  # no value saturates
