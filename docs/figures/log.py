"""Draw docs/formats/log.svg: python docs/figures/log.py

SQNR of the built-in network's weights against gamma, for codes of 4 to 8 bits, with uniform integers of the same bits
as dashes. More steps per octave make each value finer and the range smaller. If the range becomes too small, small
weights become zero and the curve falls.
"""

from __future__ import annotations

from runner import DOCS, Axes, text

import heterocompute as hc
from heterocompute.report.chart import outline, picture
from heterocompute.report.palette import SERIES

GAMMAS = (1, 2, 4, 8, 16, 32)
MARKS = dict(zip((4, 5, 6, 8), SERIES, strict=False))
WIDTH, HEIGHT = 760, 340
AXES = Axes(64, WIDTH - 130, 44, HEIGHT - 52, x=(0, len(GAMMAS) - 1), y=(0, 50.0))


def main() -> None:
    """Measure and draw."""
    texts = [f"log{bits}-{gamma}" for bits in MARKS for gamma in GAMMAS] + [f"int{bits}" for bits in MARKS]
    found = {row["format"]: row["sqnr_db"] for row in hc.study(hc.zoo.digits().weights, texts).table}
    lines = [
        text(AXES.left - 44, 22, "SQNR of the digits network's weights, dB", 'font-weight="600"'),
        text((AXES.right + AXES.left) / 2, HEIGHT - 10, "gamma: steps an octave", 'text-anchor="middle"'),
        text(AXES.right + 12, 22, "dashes: integers"),
    ]
    decibels = {decibel: f"{decibel}" for decibel in range(0, 51, 10)}
    lines += AXES.ticks(decibels, {step: f"{gamma}" for step, gamma in enumerate(GAMMAS)})
    for bits, mark in MARKS.items():
        colour = mark.color
        points = [AXES.place(i, max(found[f"log{bits}-{gamma}"], 0)) for i, gamma in enumerate(GAMMAS)]
        path = " ".join(f"{x},{y}" for x, y in points)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        lines += [f'<path d="{outline(mark, x, y, 4.5)}" fill="{colour}"/>' for x, y in points]
        (left, y), (right, _) = AXES.place(0, found[f"int{bits}"]), AXES.place(len(GAMMAS) - 1, 0)
        lines.append(
            f'<line x1="{left}" y1="{y}" x2="{right}" y2="{y}" stroke="{colour}" stroke-width="1.5" '
            'stroke-dasharray="3 5"/>'
        )
        lines.append(text(right + 12, y + 4, f"{bits} bits", 'font-weight="600"'))
    title = "SQNR of log numbers against gamma, by bits"
    (DOCS / "formats" / "log.svg").write_text(picture(WIDTH, HEIGHT, title, lines))


if __name__ == "__main__":
    main()
