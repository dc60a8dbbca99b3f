"""Fill the tables and draw the pictures of docs/accelerators.md: python docs/figures/accelerators"""

from __future__ import annotations

from pathlib import Path

from pictures import pictures

from heterocompute import hardware as hw
from heterocompute.hardware.ledger.models.layers import report
from heterocompute.hardware.ledger.models.sparse import matrices
from heterocompute.report.numbers import four_digits

PAGE = Path(__file__).resolve().parents[2] / "accelerators.md"


def costs() -> str:
    """Return the costs of ResNet-50 as Markdown."""
    lines = [
        "| machine | format | ms | mJ with DRAM | mJ on chip | arithmetic of it | of the peak | DRAM MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in hw.accelerators.names():
        for format in hw.accelerators.accelerator(name).formats:
            try:
                found = report(name, "resnet50", format)
            except NotImplementedError:
                continue
            on_chip = found.energy - found.energy_parts["DRAM"]
            times = (found.seconds * 1e3, found.energy * 1e3, on_chip * 1e3)
            cells = [name, format, *map(four_digits, times), f"{found.arithmetic_share:.0%}"]
            cells += [f"{found.utilisation:.1%}", four_digits(found.dram_bytes / 1e6)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def queues() -> str:
    """Return EIE's load balance for several depths of its queues as Markdown."""
    lines = ["| depth of the queues | frames/s | busy PEs: fc6 | fc7 | fc8 |", "|---|---|---|---|---|"]
    for depth in (1, 2, 4, 8, 16, 32):
        found = matrices(depth)
        busy = " | ".join(f"{layer.detail['efficiency']:.0%}" for layer in found.layers)
        lines.append(f"| {depth} | {four_digits(1 / found.seconds)} | {busy} |")
    return "\n".join(lines)


def filled(page: str) -> str:
    """Return the page with new tables."""
    for name, words in (("resnet50", costs()), ("queues", queues())):
        begin, end = f"<!-- {name} begin -->\n", f"\n<!-- {name} end -->"
        head, rest = page.split(begin)
        page = head + begin + words + end + rest.split(end)[1]
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for name, drawn in pictures().items():
        (PAGE.parent / name).write_text(drawn, encoding="utf-8")
