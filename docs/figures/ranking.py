"""Measure every format, draw docs/ranking.svg, fill tables of ranking.md and README: python docs/figures/ranking.py

`python docs/figures/ranking.py --draw` measures nothing: it draws the table of ranking.md.
"""

from __future__ import annotations

import math
import re
import sys
from typing import Any

from runner import DOCS, fill, table

from heterocompute.bench.formats import limits, measure
from heterocompute.bench.measure import Options
from heterocompute.formats import format as parse_format
from heterocompute.report.chart import Chart, Dot, outline, picture, text
from heterocompute.report.palette import FAMILIES, GREY
from heterocompute.report.scale import linear

KINDS = (("gaussian", "Gaussian numbers"), ("laplace", "Laplace numbers"), ("digits", "weights of the digits network"))
README = (
    ("int8", 'hc.Int(8)', "codes of 2 to 8 bits (16 and 24 for activations), a float32 scale per row"),
    ("int4-g32-f16", 'hc.Int(4, 32, scale="f16")', "a float16 scale for every 32; `-asym`: and a zero point"),
    ("vsq4-g16-s4", 'hc.VSQ(4, 16, scale_bits=4)', "VS-Quant: an integer scale for every 16, a float32 per row"),
    ("vsq4-g16-s4-refit", 'hc.VSQ(4, 16, 4, refit=True)', "codes of the rounded scale; `-tensor`: one float32 in all"),
    ("cb4", 'hc.Codebook(4)', "optimal k-means, 1 to 8 bits, a codebook per row; `-tensor`: one per tensor"),
    ("cb4-g64", 'hc.Codebook(4, 64)', "k-means of values over their group's largest; `-d2`: of pairs"),
    ("nf4-g64", 'hc.NF4(64)', "the levels of QLoRA; `-dq`: the scales quantized too"),
    ("log8-8", 'hc.Log(8, gamma=8)', "sign and exponent in steps of 1/8 octave, and zero"),
    ("bf16", 'hc.Float("bf16")', "`fp32` `tf32` `bf16` `fp16`, without a scale"),
    ("fp8_e4m3fn-row", 'hc.Float("fp8_e4m3fn", scaled="row")', "`fp8_e5m2` and fp6, fp4; `-tensor`, or no scale"),
    ("mxfp8_e4m3", 'hc.MX("fp8_e4m3")', "OCP Microscaling: a power of two for every 32; `mxint8`"),
    ("mxfp4", 'hc.MX("fp4")', "the same with 4-bit floats; `-ceil` `-rceil` `-even`"),
    ("nvfp4", 'hc.NVFP4()', "4-bit floats, an 8-bit float for every 16, a float32 in all; `-4over6`"),
    ("q4_0", 'hc.GGML("q4_0")', "llama.cpp's blocks of 32; `iq4_nl`; of 256 with scales inside: `q2_k` to `q6_k`"),
)  # fmt: skip
STEP = 20 * math.log10(2)  # dB per bit
SIZE, ROW, TOP = 14, 400, 84  # of letters, of a row of panels, of the legend
# Left edge, width, range of stored bits, range of dB: all formats, and those of 4 to 5 bits.
PANELS = ((0, 440, (0.8, 9.2), (-16.5, 0.5)), (440, 520, (3.93, 4.87), (-9.0, -2.6)))
WIDTH = 960


def mark_of(name: str) -> str:
    family = parse_format(name).family
    return family if family in FAMILIES else "other"


def bits_of(row: dict[str, Any], kind: str) -> float:
    return float(row["digits_bits"] if kind == "digits" else row["bits"])


def decibels(row: dict[str, Any]) -> str:
    return f"{row['digits_db']:.1f}" if "digits_db" in row else "exact"


def crowded(x: float, y: float) -> bool:
    """Tell whether the right panel shows the point."""
    _, _, across, up = PANELS[1]
    return across[0] < x < across[1] and up[0] < y < up[1]


def panel(rows: list[dict[str, Any]], theory: list[dict[str, Any]], kind: str, words: str, which: int) -> list[str]:
    """Return one panel: SQNR minus 6.02 dB per bit, so that formats of all sizes are comparable."""
    _, width, across, up = PANELS[which]
    points = [(bits_of(row, kind), row.get(f"{kind}_db"), row["name"]) for row in rows]
    points = [(x, y - STEP * x, name) for x, y, name in points if y is not None]
    points = [one for one in points if across[0] < one[0] < across[1] and up[0] < one[1] < up[1]]
    x_scale, y_scale = (linear(ends, pad=0, count=count) for ends, count in ((across, 7), (up, 7)))
    title = f"{words}, dB" if which == 0 else "those of 4 to 5 bits"
    chart = Chart(x_scale, y_scale, width, ROW, "stored bits per value", title, size=SIZE, standalone=True)
    under: list[str] = []
    rails = []
    for name, dash in (("Lloyd-Max", ' stroke-dasharray="5 4"'), ("rate-distortion", "")):
        line = [(r["bits"], r[f"{kind}_db"]) for r in theory if r["name"].startswith(name) and f"{kind}_db" in r]
        line = [(x, y - STEP * x) for x, y in line]
        if which == 1:  # the visible part of the lines between whole bits
            line = between(line, across)
        corners = [chart.at(x, y) for x, y in line if up[0] <= y <= up[1] + 0.5]
        if corners:
            path = " ".join(f"{x},{y}" for x, y in corners)
            under.append(f'<polyline points="{path}" fill="none" stroke="{GREY}" stroke-width="1.5"{dash}/>')
            rails += [(*a, *b) for a, b in zip(corners, corners[1:], strict=False)]
    dots = [Dot(x, y, FAMILIES[mark_of(name)], name, name, hint=name) for x, y, name in points]
    order = sorted(range(len(dots)), key=lambda i: -dots[i].y)
    named = [i for i in order if which == 1 or not crowded(dots[i].x, dots[i].y)]
    chart.dots, chart.named = dots, named
    return chart.inside(under, rails)


def between(line: list[tuple[float, float]], ends: tuple[float, float]) -> list[tuple[float, float]]:
    """Return the part of a line between two positions."""

    def at(x: float) -> float:
        (a, b), (c, d) = next(pair for pair in zip(line, line[1:], strict=False) if pair[0][0] <= x <= pair[1][0])
        return b + (d - b) * (x - a) / (c - a)

    inner = [point for point in line if ends[0] < point[0] < ends[1]]
    return [(ends[0], at(ends[0])), *inner, (ends[1], at(ends[1]))] if line else []


def draw(rows: list[dict[str, Any]], theory: list[dict[str, Any]]) -> None:
    """Draw one row of panels per kind of numbers below a legend of the families."""
    height = TOP + ROW * len(KINDS)
    lines = [
        text(4, 20, "SQNR less 6.02 dB for each stored bit: higher is better at equal bits", weight=600),
    ]
    families = [name for name in FAMILIES if any(mark_of(row["name"]) == name for row in rows)]
    x = 12.0
    for name in families:
        mark = FAMILIES[name]
        lines.append(f'<path d="{outline(mark, x, 43, 5)}" fill="{mark.color}"/>')
        lines.append(text(x + 12, 48, mark.words))
        x += 44 + 8.6 * len(mark.words)
    for x, words, dash in (
        (4.0, "what no code surpasses (rate-distortion)", ""),
        (340.0, "what no scalar code surpasses without entropy coding (Lloyd-Max)", ' stroke-dasharray="5 4"'),
    ):
        lines.append(f'<path d="M{x} 67h26" stroke="{GREY}" stroke-width="1.5"{dash}/>')
        lines.append(text(x + 34, 72, words))
    for i, (kind, words) in enumerate(KINDS):
        for which, (left, *_) in enumerate(PANELS):
            parts = panel(rows, theory, kind, words, which)
            lines += [f'<g transform="translate({left} {TOP + i * ROW})">', *parts, "</g>"]
    drawn = picture(WIDTH, height, "SQNR against stored bits per value, by format", lines, SIZE)
    (DOCS / "ranking.svg").write_text(drawn, encoding="utf-8")


def ranked(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown, sorted by the loss against the Gaussian bound at equal bits."""
    heads = [
        "format",
        "bits",
        "Gaussian dB",
        "below the bound",
        "Laplace dB",
        "digits: bits",
        "digits dB",
        "encode GB/s",
    ]
    lines = []
    for row in sorted(rows, key=lambda row: STEP * row["bits"] - row["gaussian_db"]):
        loss = STEP * row["bits"] - row["gaussian_db"]
        numbers = [f"{row['bits']:.2f}", f"{row['gaussian_db']:.1f}", f"{loss:.1f}", f"{row['laplace_db']:.1f}"]
        lines.append([f"`{row['name']}`", *numbers, f"{row['digits_bits']:.2f}", decibels(row), f"{row['rate']:.2f}"])
    return table(heads, lines)


def stored() -> list[dict[str, Any]]:
    """Return the rows of the table that the page has."""
    keys = ("bits", "gaussian_db", "below", "laplace_db", "digits_bits", "digits_db", "rate")
    found = []
    for line in re.findall(r"^\| `(.*) \|$", (DOCS / "ranking.md").read_text(encoding="utf-8"), re.MULTILINE):
        name, *cells = line.replace("`", "").split(" | ")
        numbers = {key: float(cell) for key, cell in zip(keys, cells, strict=True) if cell != "exact"}
        found.append({"name": name, **numbers})
    return found


def readme_table(rows: list[dict[str, Any]]) -> str:
    """Return the README's table: one or two formats of every family."""
    found = {row["name"]: row for row in rows}
    lines = []
    for text_of, constructor, words in README:
        row = found[text_of]
        rate = f"{row['rate']:.{1 if row['rate'] > 1 else 2}f}"
        lines.append([f"`{text_of}`", f"`{constructor}`", words, f"{row['digits_bits']:.2f}", decibels(row), rate])
    return table(["format string", "constructor", "components", "bits", "digits dB", "GB/s"], lines)


def main() -> None:
    """Measure, draw, write."""
    if sys.argv[1:] == ["--draw"]:
        draw(stored(), limits()["rows"])
        return
    measured, theory = measure(Options(quick=False, threads=[1], name="formats"))
    fill(DOCS / "ranking.md", "table", ranked(measured["rows"]))
    fill(DOCS.parent / "README.md", "formats", readme_table(measured["rows"]))
    draw(stored(), theory["rows"])  # drawn from the digits of the table, so that --draw gives the same picture


if __name__ == "__main__":
    main()
