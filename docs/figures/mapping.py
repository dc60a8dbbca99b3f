"""Draw docs/mapping.svg and print the numbers of mapping.md: python docs/figures/mapping.py"""

from __future__ import annotations

import time

from runner import DOCS

from heterocompute import _heterocompute as core
from heterocompute.hardware import mapper
from heterocompute.hardware.mapper import dataflow, model
from heterocompute.hardware.mapper.nest import nest
from heterocompute.report.chart import picture
from heterocompute.report.palette import GREY, SERIES


def eyeriss(words: int = 54 * 1024) -> mapper.Arch:
    """Return an array like that of Eyeriss with the relative energies of ISCA 2016: one 16-bit multiply-add is 1."""
    return mapper.Arch(
        [
            mapper.Level("DRAM", read=200.0, write=200.0, update=200.0),
            mapper.Level("GLB", words=words, read=6.0, write=6.0, update=6.0),
            mapper.Level("RF", words={"W": 224, "I": 12, "O": 24}, instances=168, read=1.0, write=1.0, update=1.0),
        ],
        mac=1.0,
    )


SIZES = (512, 2048, 8192, 32768, 131072, 524288)
CONV3 = mapper.Problem.conv2d(c=256, k=384, p=13, q=13, r=3, s=3)


def speed() -> None:
    """Print the mappings that a thread evaluates per second of its processor time."""
    laid = nest(CONV3, eyeriss(), mapper.Mapping({"DRAM": list(CONV3.dims.items())}))
    found = model.Model(laid, dataflow.space(CONV3, eyeriss(), laid.keeps), "energy")
    walk = core.map_walk(found.ints, found.reals, found.first_choice(), 1, 10**9)
    start = time.process_time()
    taken, valid, _, _ = core.map_walk_on(walk, 2_000_000)
    spent = time.process_time() - start
    tried, fit = (count / spent / 1e6 for count in (taken, valid))
    print(f"walk: {tried:.1f} million mappings tried a second, {fit:.1f} million of them fit")


def main() -> None:
    """Print the tables and draw the figure."""
    speed()
    bars = []
    for words in SIZES:
        stats = mapper.search(CONV3, eyeriss(words), "energy", budget=1_000_000).stats
        parts = [stats.mac_energy, *(stats.level_energy(level) for level in ("RF", "GLB", "DRAM"))]
        bars.append((f"{words:,}", [part / stats.computes for part in parts]))
        print(f"| {words:,} | " + " | ".join(f"{part:.2f}" for part in bars[-1][1]) + f" | {sum(bars[-1][1]):.2f} |")
    draw(bars)


PARTS = ("arithmetic", "register files", "global buffer", "DRAM")


def draw(bars: list[tuple[str, list[float]]]) -> None:
    """Draw one stacked bar per size, in colours that are legible on light and dark pages."""
    colours = dict(zip(PARTS, (GREY, *(mark.color for mark in SERIES)), strict=False))
    left, top, row, scale = 76, 56, 30, 26
    height = top + row * len(bars) + 34
    lines = [
        '<text x="0" y="16" font-weight="600">AlexNet conv3: best mapping found, by words of the global buffer</text>',
    ]
    for i, (name, colour) in enumerate(colours.items()):
        lines.append(f'<rect x="{left + 140 * i}" y="28" width="11" height="11" rx="2" fill="{colour}"/>')
        lines.append(f'<text x="{left + 17 + 140 * i}" y="38">{name}</text>')
    for i, (name, shares) in enumerate(bars):
        x, y = float(left), top + row * i
        lines.append(f'<text x="{left - 10}" y="{y + 15}" text-anchor="end">{name}</text>')
        for share, colour in zip(shares, colours.values(), strict=True):
            lines.append(f'<rect x="{x:.1f}" y="{y}" width="{share * scale:.1f}" height="20" fill="{colour}"/>')
            x += share * scale
        lines.append(f'<text x="{x + 8:.1f}" y="{y + 15}">{sum(shares):.2f}</text>')
    lines.append(f'<text x="{left}" y="{height - 10}">energy for each multiply-add, in multiply-adds</text>')
    title = "Energy of AlexNet's third convolution against the size of the global buffer"
    (DOCS / "mapping.svg").write_text(picture(760, height, title, lines))


if __name__ == "__main__":
    main()
