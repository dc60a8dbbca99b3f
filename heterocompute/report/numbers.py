"""Numbers in the style of the pages: three digits and a prefix before the unit, shares in percent."""

from __future__ import annotations

import math

PREFIXES = {-15: "f", -12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}


def quantity(value: float | None, unit: str = "") -> str:
    """Return three digits, with a prefix of a thousand before the unit; a dash for None.

    Examples
    --------
    >>> quantity(49352.5e-12, "J"), quantity(0.0999996, "s"), quantity(4e9), quantity(None)
    ('49.4 nJ', '100 ms', '4 G', '–')
    """
    if value is None:
        return "–"
    if value == 0:
        return f"0 {unit}".strip()
    power = min(max(3 * math.floor(math.log10(abs(value)) / 3), -15), 15)
    if abs(value) / 10.0**power >= 999.5 and power < 15:
        power += 3
    return f"{value / 10.0**power:.3g} {PREFIXES[power]}{unit}".strip()


def percent(share: float | None) -> str:
    """Return a share with one decimal.

    Examples
    --------
    >>> percent(0.0119), percent(1.0), percent(2e-5)
    ('1.2 %', '100.0 %', '<0.1 %')
    """
    if share is None:
        return "–"
    return "<0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def four_digits(value: float) -> str:
    """Return four digits for a column with one unit: commas, and no power of ten for larger numbers.

    Examples
    --------
    >>> four_digits(15243.7), four_digits(0.58982), four_digits(1234)
    ('15,240', '0.5898', '1,234')
    """
    return f"{float(f'{value:.4g}'):,.15g}"
