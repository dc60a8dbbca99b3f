"""Write docs/hardware-examples.md, checks of the hardware model: python docs/figures/hardware_examples

Two tables, one module each: derived.py (independent derivations), consistency.py (results of the package that must
agree). Every row calls the package, can fail, and has a limit. published.py has published results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import consistency
import derived
from example import Example

PAGE = Path(__file__).resolve().parents[2] / "hardware-examples.md"
Family = Callable[[], Iterator[Example]]
TABLES: dict[str, tuple[str, str, tuple[Family, ...]]] = {
    "Derived in two independent ways": ("derived", "derived from", derived.FAMILIES),
    "Internal consistency": ("expected", "expected from", consistency.FAMILIES),
}


def examples() -> list[Example]:
    """Return the rows of all tables."""
    return [example for _, _, families in TABLES.values() for family in families for example in family()]


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1e5 and value == round(value) else f"{value:.6g}"


def share(value: float) -> str:
    return f"{100 * value:.2g} %" if value >= 1e-6 else "rounding" if value else "equal"


def page() -> str:
    """Return the page."""
    lines = [
        "# Worked examples of the model side",
        "",
        "These tables check the hardware model without published sources. The first table compares the model with an",
        "independent derivation. The second table compares results of the package that must agree. For a comparison",
        "with papers and data sheets see [published results](published.md).",
        "",
        "`python docs/figures/hardware_examples` generates this page. `test_hw_published.py` checks the page and",
        "every row.",
    ]
    for title, (other, source, families) in TABLES.items():
        lines += ["", f"## {title}"]
        for family in families:
            head = f"| what | {other} | modelled | deviation | limit | {source} |"
            lines += ["", f"### {(family.__doc__ or '').rstrip('.')}", "", head, "|---|---|---|---|---|---|"]
            for one in family():
                percent = 100 * one.deviation
                deviation = "0" if abs(percent) < 1e-9 else f"{percent:+.2g} %"
                cells = [number(one.modelled()), deviation, share(one.within)] if one.modelled else ["-"] * 3
                printed = " to ".join(map(number, one.other)) if isinstance(one.other, tuple) else number(one.expected)
                what = f"{one.what} **(not reproduced: {one.missed})**" if one.missed else one.what
                lines.append(f"| {' | '.join([what, printed, *cells, one.source])} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
