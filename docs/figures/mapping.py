"""Draw docs/mapping.svg and print the tables of mapping.md: python docs/figures/mapping.py

Every number is computed here and now. The published ones stand beside their source.
"""

from __future__ import annotations

import time

from runner import DOCS

from heterocompute import _heterocompute as core, hardware as hw
from heterocompute.hardware.mapper import dataflow, model
from heterocompute.hardware.mapper.nest import nest
from heterocompute.report.chart import picture
from heterocompute.report.palette import GREY, SERIES

RF = {"words": 64, "read": 0.42564, "write": 0.42564, "update": 0.42564, "leak": 0.000861}
SRAM = {"words": 262144, "block": 8, "read": 43.353054, "write": 30.878292, "update": 30.878292, "leak": 0.007972}
DRAM = {"block": 32, "read": 2048.0, "write": 2048.0, "update": 2048.0}
ONE = hw.Problem({"P": 16, "R": 3}, {"W": [{"R": 1}], "I": [{"P": 1, "R": 1}], "O": [{"P": 1}]}, "O")
MANY = hw.Problem(
    {"K": 32, "P": 16, "R": 3}, {"W": [{"K": 1}, {"R": 1}], "I": [{"P": 1, "R": 1}], "O": [{"K": 1}, {"P": 1}]}, "O"
)


def eyeriss(words: int = 54 * 1024) -> hw.Arch:
    """An array like Eyeriss' with the relative energies of ISCA 2016: one 16-bit multiply-add is 1."""
    return hw.Arch(
        [
            hw.Level("DRAM", read=200.0, write=200.0, update=200.0),
            hw.Level("GLB", words=words, read=6.0, write=6.0, update=6.0),
            hw.Level("RF", words={"W": 224, "I": 12, "O": 24}, instances=168, read=1.0, write=1.0, update=1.0),
        ],
        mac=1.0,
    )


SIZES = (512, 2048, 8192, 32768, 131072, 524288)
CONV3 = hw.Problem.conv2d(c=256, k=384, p=13, q=13, r=3, s=3)


def examples() -> None:
    """Print the worked examples."""
    two = hw.Arch([hw.Level("MM", **SRAM), hw.Level("Buf", **RF)], mac=0.845)
    three = hw.Arch([hw.Level("DRAM", **DRAM), hw.Level("GB", **SRAM), hw.Level("RF", **RF)], mac=0.845)
    cases = [
        ("00 one level", ONE, hw.Arch([hw.Level("Buf", **RF)], mac=0.845), {"Buf": [("P", 16), ("R", 3)]}, 2406.541),
        ("01 weight stationary", ONE, two, {"MM": [("R", 3)], "Buf": [("P", 16)]}, 7500.0805),
        ("01 output stationary", ONE, two, {"MM": [("P", 16)], "Buf": [("R", 3)]}, 7500.0805),
        ("02 output stationary", MANY, two, {"MM": [("K", 32), ("P", 16)], "Buf": [("R", 3)]}, 6258.1961),
        ("03 no bypass", MANY, three, {"GB": [("K", 16), ("P", 16)], "RF": [("K", 2), ("R", 3)]}, 32130.5139),
    ]
    for name, problem, arch, temporal, published in cases:
        found = hw.evaluate(problem, arch, hw.Mapping(temporal)).energy_per_compute * 1000
        print(f"| Timeloop {name} | {published} fJ | {found:.4f} fJ | {found / published - 1:+.1e} |")
    for kind, published in (("ws", 11_199), ("os", 10_175)):
        found = hw.systolic.gemm(256, 128, 256, dataflow=kind).last_cycle
        print(f"| SCALE-Sim 32 x 32, 256 x 128 x 256, {kind} | {published} | {found} | {found / published - 1:+.1e} |")


def zeros() -> None:
    """Print the cycles that skipping leaves."""
    dot = {"A": [{"K": 1}], "B": [{"K": 1}], "Z": []}
    product = {"A": [{"M": 1}, {"K": 1}], "B": [{"K": 1}, {"N": 1}], "Z": [{"M": 1}, {"N": 1}]}
    conv = {"A": [{"M": 1}, {"S": 1}], "B": [{"S": 1, "Q": 1}], "Z": [{"M": 1}, {"Q": 1}]}
    one, both = {"B": {"A"}, "Z": {"A"}}, {"A": {"B"}, "B": {"A"}, "Z": {"A", "B"}}
    cases = [
        ("dot product of 16, density 0.25", {"K": 16}, dot, {"A": 0.25}, one, 1, 4),
        ("8 x 8 x 8, densities 0.25 and 0.5", {"M": 8, "K": 8, "N": 8}, product, {"A": 0.25, "B": 0.5}, both, 1, 64),
        ("convolution 9 x 3, density 0.43", {"Q": 9, "S": 3, "M": 1}, conv, {"A": 0.43}, one, 1, 12),
        ("and 16 filters, density 0.4333", {"Q": 9, "S": 3, "M": 16}, conv, {"A": 0.4333}, one, 1, 188),
        ("and 4 of them side by side", {"Q": 9, "S": 3, "M": 16}, conv, {"A": 0.4333}, one, 4, 47),
    ]
    for name, dims, tensors, densities, skip, spread, published in cases:
        packed = dict.fromkeys(densities, 0)
        problem = hw.Problem(dims, tensors, "Z", densities=densities)
        arch = hw.Arch([hw.Level("DRAM", compress=packed), hw.Level("B", compress=packed, skip=skip, instances=spread)])
        loops = [(dim, bound // (spread if dim == "M" else 1)) for dim, bound in dims.items()]
        spatial = {"DRAM": [("M", spread)]} if spread > 1 else {}
        found = hw.evaluate(problem, arch, hw.Mapping({"B": loops}, spatial)).cycles
        print(f"| Sparseloop, {name} | {published} | {found} | {found / published - 1:+.1e} |")


def speed() -> None:
    """Print how many mappings a thread counts in a second of its own time."""
    laid = nest(CONV3, eyeriss(), hw.Mapping({"DRAM": list(CONV3.dims.items())}))
    found = model.Model(laid, dataflow.space(CONV3, eyeriss(), laid.keeps), "energy")
    walk = core.map_walk(found.ints, found.reals, found.first_choice(), 1, 10**9)
    start = time.process_time()
    taken, valid, _, _ = core.map_walk_on(walk, 2_000_000)
    spent = time.process_time() - start
    tried, fit = (count / spent / 1e6 for count in (taken, valid))
    print(f"walk: {tried:.1f} million mappings tried a second, {fit:.1f} million of them fit")


def main() -> None:
    """Print the tables and draw the figure."""
    examples()
    zeros()
    speed()
    bars = []
    for words in SIZES:
        stats = hw.search(CONV3, eyeriss(words), "energy", budget=1_000_000).stats
        parts = [stats.mac_energy, *(stats.level_energy(level) for level in ("RF", "GLB", "DRAM"))]
        bars.append((f"{words:,}", [part / stats.computes for part in parts]))
        print(f"| {words:,} | " + " | ".join(f"{part:.2f}" for part in bars[-1][1]) + f" | {sum(bars[-1][1]):.2f} |")
    draw(bars)


PARTS = ("arithmetic", "register files", "global buffer", "DRAM")


def draw(bars: list[tuple[str, list[float]]]) -> None:
    """Draw one stacked bar a size; middle greys and hues read on light and dark pages."""
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
