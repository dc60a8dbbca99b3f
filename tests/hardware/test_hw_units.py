"""Numbers with units: parsing, refused mixtures of units, and ratios."""

from __future__ import annotations

from typing import Any

import pytest

from heterocompute import hardware as hw


@pytest.mark.parametrize(
    "text, value, unit",
    [
        ("300 W", 300, "W"), ("1.41 GHz", 1.41e9, "Hz"), ("312 TFLOP/s", 312e12, "op/s"),
        ("312 TFLOPS", 312e12, "op/s"),
        ("8 GFLOPs", 8e9, "op"), ("83.1 GMACS/W", 83.1e9, "MAC/J"), ("0.82V", 0.82, "V"), ("1 kWh", 3.6e6, "J"),
        ("2 min", 120, "s"), ("16 GiB", 2**34, "B"), ("8 bit", 1, "B"), ("63 GB/s", 63e9, "B/s"), ("1e-3 s", 1e-3, "s"),
        ("110 pJ/op", 110e-12, "op^-1 J"), ("3.12 TOPS/W", 3.12e12, "op/J"), ("2", 2, ""), ("-1 s", -1, "s"),
    ],
)  # fmt: skip
def test_texts_are_read(text: str, value: float, unit: str) -> None:
    found = hw.quantity(text)
    assert found.value == pytest.approx(value, rel=1e-15) and found.unit == unit
    assert hw.quantity(found) is found


@pytest.mark.parametrize(
    "call, kind, message",
    [
        (lambda: hw.quantity(300), TypeError, "quantity is 300, expected a text with a unit"),
        (lambda: hw.quantity("300 watts"), ValueError, "'watts' is not a unit"),
        (lambda: hw.quantity("many W"), ValueError, "expected a number and a unit"),
        (lambda: hw.quantity("1e999 W"), ValueError, "expected a finite number"),
        (lambda: hw.quantity("5 kday"), ValueError, "'kday' is not a unit"),
        (lambda: hw.quantity("1 W//s"), ValueError, "'' is not a unit"),
        (lambda: hw.quantity("5 W", "J"), ValueError, "is 5 W .*, expected a number of J"),
        (lambda: hw.quantity("5 W") + hw.quantity("5 J"), ValueError, "5 W> and <Quantity 5 J> are not of one"),
        (lambda: hw.quantity("5 W") < hw.quantity("5 J"), ValueError, "not of one kind"),
        (lambda: hw.quantity("5 W") / hw.quantity("0 s"), ValueError, "quotient"),
        (lambda: hw.quantity("1e12 MAC") / hw.quantity("1 TFLOP/s"), ValueError, "quotient: .*multiply-add is two"),
        (lambda: hw.quantity("1 MAC") * hw.quantity("1 op/J"), ValueError, "product: .*multiply-add is two"),
        (lambda: hw.quantity("1 op/MAC"), ValueError, "multiply-add is two operations"),
        (lambda: hw.ratio("1 GMAC/s", "1 GFLOP/s"), ValueError, "a multiply-add is two operations"),
        (lambda: hw.ratio("8 GFLOPs", "8 GFLOPS"), ValueError, "not of one kind"),  # a count and a rate
        (lambda: hw.ratio("300 W", "300 J"), ValueError, "not of one kind"),
        (lambda: hw.ratio("300 W", "0 W"), ValueError, "quotient"),
        (lambda: hw.throughput(10, "5 s", "1 s"), ValueError, "work is 5 s, expected operations"),
        (lambda: hw.throughput(10, "5 op", "1 J"), ValueError, "time is 1 J .*, expected a number of s"),
        (lambda: hw.throughput(0, "5 op", "1 s"), ValueError, "count is 0"),
        (lambda: hw.throughput(1, "5 op", "0 s"), ValueError, "time is 0 s, expected more than 0"),
        (lambda: hw.precision_ratio("5 W", "5 W"), ValueError, "narrow is 5 W .*, expected a number of op/s"),
        (lambda: hw.efficiency("300 W", "300 W"), ValueError, "rate is 300 W"),
        (lambda: hw.energy_ratio("1 MW", "1 MWh"), ValueError, "not of one kind"),
        (lambda: hw.energy_ratio("1 MW", "1.2 MW"), ValueError, "expected no less than"),
        (lambda: hw.energy_ratio("312 TFLOPS", "400 W"), ValueError, "a chip has operations a joule"),
        (lambda: hw.energy_ratio("1 MW", hw.device("t4")), ValueError, "is the chip t4"),
        (lambda: hw.dvfs("1 W", "1 s", ("1 V", "1 W"), ("1 Hz", "1 Hz")), ValueError, "voltage is 1 W"),
        (lambda: hw.dvfs("1 W", "1 s", ("1 V", "1 V"), ("1 Hz", "1 Hz"), "2 W"), ValueError, "static is 2 W"),
    ],
)  # fmt: skip
def test_units_are_not_mixed(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_units_multiply_and_divide() -> None:
    watt, second = hw.quantity("5 W"), hw.quantity("2 s")
    assert str(watt * second) == "10 J" and str(2 * watt) == "10 W" and str(watt / 2) == "2.5 W"
    assert str(watt - hw.quantity("1 W")) == "4 W" and hw.quantity("1 W") < watt
    assert (watt / watt).value == 1 and (watt / watt).unit == ""


def test_the_documents_examples() -> None:
    """10^10 items of 10^3 operations take ten seconds at 10^12 per second; 100 x 10^9 items would take a hundred."""
    assert hw.throughput(1e10, "1e3 op", "10 s").value == 1e12
    assert hw.throughput(100e9, "1e3 op", "100 s").value == 1e12
    assert str(hw.quantity("1e13 op") / hw.quantity("1e12 op/s")) == "10 s"
    half = hw.precision_ratio("5 TFLOPS", "10 TFLOPS")
    assert half == 0.5 and 100 * (half - 1) == -50  # printed as + 50 %
    assert hw.ratio("13419 s", "994 s") == 13.5  # printed as 12
    assert hw.energy_ratio("1.5 MW", "1 MW") == 1.5 == hw.energy_ratio("36 MWh", "24 MWh")
    v100 = hw.device("v100-sxm2")
    assert hw.precision_ratio(f"{v100.peak('fp32')} op/s", f"{v100.peak('fp64')} op/s") == pytest.approx(
        2.01, abs=0.005
    )
    assert str(hw.efficiency("1248 TOPS", "400 W")) == "3.12e+12 op/J"
    # three times as fast at 40 % less power: a fifth of the energy for the same work
    before, after = hw.quantity("100 W") * hw.quantity("3 s"), hw.quantity("60 W") * hw.quantity("1 s")
    assert hw.ratio(after, before) == pytest.approx(0.2)


def test_voltage_and_clock() -> None:
    slow = hw.dvfs("100 W", "1 s", ("1 V", "0.7 V"), ("2 GHz", "1 GHz"))
    assert (slow["power"].value, slow["time"].value) == pytest.approx((100 * 0.49 / 2, 2.0))
    assert slow["energy"].value == pytest.approx(49) and slow["before"].value == 100  # V^2, whatever the clock
    leaky = hw.dvfs("100 W", "1 s", ("1 V", "1 V"), ("2 GHz", "1 GHz"), static="40 W")
    assert leaky["power"].value == pytest.approx(40 + 30) and leaky["energy"].value == pytest.approx(140)
    same = hw.dvfs("100 W", "1 s", ("1 V", "1 V"), ("2 GHz", "2 GHz"), "100 W")
    assert same["power"].value == 100 and same["energy"].unit == "J"
