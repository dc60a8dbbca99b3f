"""The ratios by which systems are compared, each a formula that takes units and refuses to mix them."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.errors import WrongValue, shown
from ...base.values import check_number
from ..chips.chip import Device
from .quantities import Quantity, quantity

__all__ = ["dvfs", "efficiency", "energy_ratio", "precision_ratio", "ratio", "throughput"]

Text = str | Quantity


def throughput(count: float, work: Text, time: Text) -> Quantity:
    """Compute count x work / time, in operations per second.

    Parameters
    ----------
    count : float
        Number of items.
    work : str or Quantity
        Operations per item, such as ``"1000 op"``. Multiply-adds and bytes are accepted too.
    time : str or Quantity
        Time for all items.

    Returns
    -------
    Quantity

    Raises
    ------
    ValueError, TypeError
        A unit has the wrong dimension or is missing, or a number is not positive.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.throughput(1e10, "1000 op", "10 s")
    <Quantity 1e+12 op/s>
    """
    count = check_number("throughput", "count", count)
    amount = quantity(work, name="throughput: work")
    if amount.unit not in ("op", "MAC", "B"):
        raise WrongValue(f"throughput: work is {amount}, expected operations, multiply-adds or bytes")
    return amount * count / _positive(time, "s", "throughput: time")


def ratio(a: Text, b: Text) -> float:
    """Compute a / b of two quantities with the same dimension.

    Parameters
    ----------
    a, b : str or Quantity

    Returns
    -------
    float
        0.5 is half: a change by -50 %, 100 x (ratio - 1).

    Raises
    ------
    ValueError, TypeError
        The dimensions differ, or an argument has no unit.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.ratio("13419 s", "994 s")
    13.5
    """
    top, bottom = quantity(a, name="ratio: a"), quantity(b, name="ratio: b")
    return (top.like(bottom, "ratio") / bottom).value


def precision_ratio(narrow: Text, wide: Text) -> float:
    """Compute the ratio of the rates in two precisions, such as FP32 over FP64.

    Parameters
    ----------
    narrow, wide : str or Quantity
        Operations per second.

    Returns
    -------
    float
        Ratio of the rates: 0.5 is half the rate, not 50 % more.

    Raises
    ------
    ValueError, TypeError
        An argument is not a rate of operations.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.precision_ratio("19.5 TFLOP/s", "9.7 TFLOP/s") > 2, hw.precision_ratio("5 TFLOPS", "10 TFLOPS")
    (True, 0.5)
    """
    return ratio(_positive(narrow, "op/s", "precision_ratio: narrow"), _positive(wide, "op/s", "precision_ratio: wide"))


def efficiency(rate: Text, power: Text) -> Quantity:
    """Compute operations per joule: rate / power. It is a chip's counterpart of a data centre's energy ratio.

    Parameters
    ----------
    rate : str or Quantity
        Operations or multiply-adds per second.
    power : str or Quantity

    Returns
    -------
    Quantity

    Raises
    ------
    ValueError, TypeError
        A unit has the wrong dimension.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.efficiency("1248 TOPS", "400 W")
    <Quantity 3.12e+12 op/J>
    """
    speed = quantity(rate, name="efficiency: rate")
    if speed.unit not in ("op/s", "MAC/s"):
        raise WrongValue(f"efficiency: rate is {speed}, expected operations or multiply-adds a second")
    return speed / _positive(power, "W", "efficiency: power")


def energy_ratio(facility: Text, equipment: Text) -> float:
    """Compute the energy ratio of a data centre (PUE): energy of the facility over energy of its computers.

    Parameters
    ----------
    facility, equipment : str or Quantity
        Both as energies over the same time, or both as powers.

    Returns
    -------
    float
        1 or more.

    Raises
    ------
    ValueError, TypeError
        One argument is a power and the other an energy; an argument is a rate of operations or a chip, which have no
        such ratio (see `efficiency`); or the facility uses less than its equipment.

    Notes
    -----
    ISO/IEC 30134-2.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.energy_ratio("1.2 MW", "1 MW")
    1.2
    """
    found = []
    for name, value in (("facility", facility), ("equipment", equipment)):
        instead = "expected watts or joules of a data centre; a chip has operations a joule, hw.efficiency(rate, power)"
        if isinstance(value, Device):
            raise WrongValue(f"energy_ratio: {name} is the chip {value.name}, {instead}")
        one = quantity(value, name=f"energy_ratio: {name}")
        if one.unit not in ("W", "J"):
            raise WrongValue(f"energy_ratio: {name} is {one}, {instead}")
        found.append(_positive(one, one.unit, f"energy_ratio: {name}"))
    share = ratio(*found)
    if share < 1:
        raise WrongValue(f"energy_ratio: facility is {found[0]}, expected no less than the {found[1]} of its equipment")
    return share


def dvfs(
    power: Text,
    time: Text,
    voltage: tuple[Text, Text],
    frequency: tuple[Text, Text],
    static: Text = "0 W",
) -> dict[str, Quantity]:
    """Compute power, time and energy of a workload at another voltage and clock.

    Dynamic power scales with V^2 f, static power with V (its current is constant), and time with 1 / f.

    Parameters
    ----------
    power : str or Quantity
        Total power at the first voltage and frequency.
    time : str or Quantity
        Time of the workload there.
    voltage, frequency : (str or Quantity, str or Quantity)
        From, to.
    static : str or Quantity, optional
        The part of `power` that does not depend on the clock.

    Returns
    -------
    dict
        ``power``, ``time``, ``energy``, and ``before``: the energy at the first setting.

    Raises
    ------
    ValueError, TypeError
        A unit has the wrong dimension, or the static part is larger than the whole.

    Notes
    -----
    The time applies to compute-bound work. Work that waits for memory with its own clock speeds up less.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> found = hw.dvfs("100 W", "1 s", ("1 V", "0.8 V"), ("1 GHz", "0.8 GHz"))
    >>> found["power"], found["time"], found["energy"]
    (<Quantity 51.2 W>, <Quantity 1.25 s>, <Quantity 64 J>)
    """
    whole, spent = _positive(power, "W", "dvfs: power"), _positive(time, "s", "dvfs: time")
    leaking = quantity(static, "W", "dvfs: static")
    if not 0 <= leaking.value <= whole.value:
        raise WrongValue(f"dvfs: static is {leaking}, expected 0 W to the {whole} of the whole")
    pairs = []
    for name, kind, pair in (("voltage", "V", voltage), ("frequency", "Hz", frequency)):
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise WrongValue(f"dvfs: {name} is {shown(pair)}, expected two, before and after")
        pairs.append(ratio(*(_positive(one, kind, f"dvfs: {name}") for one in reversed(pair))))
    volts, clocks = pairs
    lasts = spent / clocks
    draws = (whole - leaking) * (volts * volts * clocks)
    if leaking.value:
        draws = draws + leaking * volts
    return {"power": draws, "time": lasts, "energy": draws * lasts, "before": whole * spent}


def _positive(value: Text, kind: str, name: str) -> Quantity:
    found = quantity(value, kind, name)
    if not found.value > 0:
        raise WrongValue(f"{name} is {found}, expected more than 0")
    return found
