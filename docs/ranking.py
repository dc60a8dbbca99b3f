"""Measure every format, draw ranking.svg, fill the tables of ranking.md and of the README: python docs/ranking.py

Needs the extra `plot`. Nothing is kept between runs: what the page shows is what this run found.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from matplotlib import rcParams
from matplotlib.figure import Figure

from heterocompute.bench.formats import measure
from heterocompute.bench.measure import Options
from heterocompute.formats import format as parse_format

FOLDER = Path(__file__).parent
KINDS = (("gaussian", "Gaussian"), ("laplace", "Laplace"), ("digits", "weights of the digits network"))
COLOURS = {
    "int": "#7d8590", "vsq": "#3b82f6", "codebook": "#d9822b", "nf4": "#b0368f", "log": "#1c9a78", "mx": "#6b4fbb",
    "nvfp4": "#d9571c", "float": "#4d7c0f",
}  # fmt: skip
README = (
    ("int8", 'hc.Int(8)', "codes of 2 to 8 bits (16 and 24 for activations), a float32 scale a row"),
    ("int4-g32-f16", 'hc.Int(4, 32, scale="f16")', "a float16 scale for every 32; `-asym`: and a zero point"),
    ("vsq4-g16-s4", 'hc.VSQ(4, 16, scale_bits=4)', "VS-Quant: an integer scale for every 16, a float32 a row"),
    ("vsq4-g16-s4-refit", 'hc.VSQ(4, 16, 4, refit=True)', "codes taken again; `-tensor`: one float32 in all"),
    ("cb4", 'hc.Codebook(4)', "optimal k-means, 1 to 8 bits, a codebook a row; `-tensor`: one in all"),
    ("cb4-g64", 'hc.Codebook(4, 64)', "of values divided by their group's largest; `-d2`: vectors"),
    ("nf4-g64", 'hc.NF4(64)', "the levels of QLoRA; `-dq`: the scales quantized too"),
    ("log8-8", 'hc.Log(8, gamma=8)', "sign and exponent in steps of 1/8 octave, and zero"),
    ("bf16", 'hc.Float("bf16")', "`fp32` `tf32` `bf16` `fp16`, without a scale"),
    ("fp8_e4m3fn-row", 'hc.Float("fp8_e4m3fn", scaled="row")', "`fp8_e5m2` and fp6, fp4; `-tensor`, or no scale"),
    ("mxfp8_e4m3", 'hc.MX("fp8_e4m3")', "OCP Microscaling: a power of two for every 32; `mxint8`"),
    ("mxfp4", 'hc.MX("fp4")', "the same with 4-bit floats; `-ceil` `-rceil` `-even`"),
    ("nvfp4", 'hc.NVFP4()', "4-bit floats, an 8-bit float for every 16, a float32 in all; `-4over6`"),
)  # fmt: skip
BITS, DECIBELS = (0.8, 9.2), (0, 52)
CROWD_BITS, CROWD_DECIBELS = (3.95, 5.05), (15, 23.5)


def bits_of(row: dict[str, Any], kind: str) -> float:
    return float(row["digits_bits"] if kind == "digits" else row["bits"])


def decibels(row: dict[str, Any]) -> str:
    return f"{row['digits_db']:.1f}" if "digits_db" in row else "exact"


def draw(rows: list[dict[str, Any]], theory: list[dict[str, Any]]) -> None:
    """Draw decibels against stored bits, one column for each kind of numbers; below, the crowd at 4 to 5 bits."""
    rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "heterocompute", "font.size": 9})
    figure = Figure(figsize=(12.5, 12), layout="constrained")
    for row_axes, bits, decibel, crowded in zip(
        figure.subplots(2, 3, sharey="row"), (BITS, CROWD_BITS), (DECIBELS, CROWD_DECIBELS), (True, False), strict=True
    ):
        for axes, (kind, words) in zip(row_axes, KINDS, strict=True):
            for name, style in (("Lloyd-Max", "--"), ("rate-distortion", "-")):
                line = [
                    (r["bits"], r[f"{kind}_db"]) for r in theory if r["name"].startswith(name) and f"{kind}_db" in r
                ]
                if line:
                    axes.plot(*zip(*line, strict=True), style, color="#7d8590", linewidth=1, label=name)
            above = -1e9
            for row in sorted(rows, key=lambda row: row.get(f"{kind}_db", 0)):
                x, y = bits_of(row, kind), row.get(f"{kind}_db")
                if y is None or not (bits[0] < x < bits[1] and decibel[0] < y < decibel[1]):
                    continue
                axes.plot(x, y, "o", color=COLOURS[parse_format(row["name"]).family], markersize=4)
                if crowded and CROWD_BITS[0] < x < CROWD_BITS[1] and CROWD_DECIBELS[0] < y < CROWD_DECIBELS[1]:
                    continue
                above = y if crowded else max(y, above + (decibel[1] - decibel[0]) / 45)  # names do not overlap
                place = (x + (bits[1] - bits[0]) / 60, above)
                axes.annotate(row["name"], (x, y), place, fontsize=6, va="center")
            axes.set(xlim=bits, ylim=decibel, title=words, xlabel="stored bits a value, scales included")
            axes.grid(True, color="#8884", linewidth=0.5)
            if crowded and axes.get_legend_handles_labels()[0]:
                axes.legend(loc="lower right", frameon=False)
        row_axes[0].set_ylabel("SQNR, dB")
    figure.savefig(FOLDER / "ranking.svg", metadata={"Date": None})


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown, the least loss against the Gaussian bound at equal bits first."""
    step = 20 * math.log10(2)
    lines = [
        "| format | bits | Gaussian dB | below the bound | Laplace dB | digits: bits | digits dB | encode GB/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: step * row["bits"] - row["gaussian_db"]):
        loss = step * row["bits"] - row["gaussian_db"]
        lines.append(
            f"| `{row['name']}` | {row['bits']:.2f} | {row['gaussian_db']:.1f} | {loss:.1f} | {row['laplace_db']:.1f} "
            f"| {row['digits_bits']:.2f} | {decibels(row)} | {row['rate']:.2f} |"
        )
    return "\n".join(lines)


def readme_table(rows: list[dict[str, Any]]) -> str:
    """Return the README's table: one or two formats of every family."""
    found = {row["name"]: row for row in rows}
    lines = ["| text | constructor | what is stored | bits | digits dB | GB/s |", "|---|---|---|---|---|---|"]
    for text, constructor, words in README:
        row = found[text]
        rate = f"{row['rate']:.{1 if row['rate'] > 1 else 2}f}"
        numbers = f"{row['digits_bits']:.2f} | {decibels(row)} | {rate}"
        lines.append(f"| `{text}` | `{constructor}` | {words} | {numbers} |")
    return "\n".join(lines)


def fill(page: Path, name: str, words: str) -> None:
    """Replace what stands between two marks."""
    begin, end = f"<!-- {name} begin -->\n", f"\n<!-- {name} end -->"
    head, rest = page.read_text().split(begin)
    page.write_text(head + begin + words + end + rest.split(end)[1])


def main() -> None:
    """Measure, draw, write."""
    measured, theory = measure(Options(quick=False, threads=[1], name="formats"))
    draw(measured["rows"], theory["rows"])
    fill(FOLDER / "ranking.md", "table", table(measured["rows"]))
    fill(FOLDER.parent / "README.md", "formats", readme_table(measured["rows"]))


if __name__ == "__main__":
    main()
