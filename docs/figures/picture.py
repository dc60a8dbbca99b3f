"""Draw accuracy.svg, the picture of the README: python docs/figures/picture.py

Accuracy of the built-in network against the bits of its weights, measured with `hc.study`. The colours are those of all
pictures and are legible on light and dark pages.
"""

from __future__ import annotations

from runner import DOCS, Axes, text

import heterocompute as hc
from heterocompute.report.chart import outline, picture
from heterocompute.report.palette import FAMILIES

CURVES = [
    ("int{}", "integers, one scale a row", "int", False, (2, 3, 4, 5)),
    ("int{}-g16-f16", "integers, a float16 scale for every 16", "int", True, (2, 3, 4)),
    ("vsq{}-g16-s4", "VS-Quant, a 4-bit scale for every 16", "vsq", False, (2, 3, 4)),
]
WIDTH, HEIGHT = 760, 320
AXES = Axes(64, WIDTH - 24, 44, HEIGHT - 52, x=(2.0, 5.2), y=(0.2, 1.0))


def main() -> None:
    """Measure and draw."""
    texts = [pattern.format(bits) for pattern, _, _, _, codes in CURVES for bits in codes]
    found = {row["format"]: row for row in hc.study(hc.zoo.digits(), texts).table}
    lines = [
        text(AXES.left - 44, 22, "Top-1 accuracy on 599 held-out digits", 'font-weight="600"'),
        text(
            AXES.right,
            HEIGHT - 12,
            "stored bits per value, scales included (points: codes of 2 to 5 bits)",
            'text-anchor="end"',
        ),
    ]
    percents = {percent / 100: f"{percent} %" for percent in (25, 50, 75, 100)}
    lines += AXES.ticks(percents, {bits: f"{bits}" for bits in (2, 3, 4, 5)})
    for i, (pattern, words, family, hollow, codes) in enumerate(CURVES):
        mark = FAMILIES[family]
        look = f'fill="none" stroke="{mark.color}" stroke-width="2.5"' + ' stroke-dasharray="6 4"' * hollow
        full = f'fill="none" stroke="{mark.color}" stroke-width="2"' if hollow else f'fill="{mark.color}"'

        rows = [found[pattern.format(bits)] for bits in codes]
        points = [AXES.place(row["bits"], row["accuracy"]) for row in rows]
        path = " ".join(f"{x},{y}" for x, y in points)
        lines.append(f'<polyline points="{path}" {look}/>')
        lines += [f'<path d="{outline(mark, x, y, 5)}" {full}/>' for x, y in points]
        (x, y), share = points[0], f"{100 * rows[0]['accuracy']:.0f} %"
        lines.append(text(x + 12, y + (16 if i else 5), share, 'font-weight="600"'))
        x, y = AXES.place(3.3, 0.66 - 0.075 * i)
        lines.append(f'<path d="M{x} {y - 4}h30" {look}/>')
        lines.append(f'<path d="{outline(mark, x + 15, y - 4, 5)}" {full}/>')
        lines.append(text(x + 38, y, words))
    title = "Accuracy of a digits network against stored bits per value"
    (DOCS / "accuracy.svg").write_text(picture(WIDTH, HEIGHT, title, lines))


if __name__ == "__main__":
    main()
