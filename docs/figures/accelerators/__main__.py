"""Fill the tables and draw the pictures of docs/accelerators.md: what was published beside what the model gives.

    python docs/figures/accelerators

`within` is the deviation that is allowed, as a share of what was published, or in its unit where `absolute`. A row that
misses it says why, and is marked as not reproduced.
"""

from __future__ import annotations

from pathlib import Path

from dense_rows import dense, peaks, streams, tpu
from eyeriss_rows import row_stationary
from pictures import pictures
from row import Row, machines, report
from sparse_rows import eie_statements, scnn_statements
from tpu_rows import applications
from vector_rows import tensor_cores, vectors
from zero_rows import matrices, zeros_skipped

from heterocompute.report.numbers import four_digits

PAGE = Path(__file__).resolve().parents[2] / "accelerators.md"
SECTIONS = (
    peaks, dense, tpu, applications, streams, row_stationary, zeros_skipped, eie_statements, scnn_statements, vectors,
    tensor_cores,
)  # fmt: skip


def rows() -> list[Row]:
    """Return all rows."""
    return [row for section in SECTIONS for row in section()]


def line(row: Row) -> str:
    """Return a row of the table."""
    low_high = row.published if isinstance(row.published, tuple) else (row.published,)
    deviation = f"{row.deviation:+.3f}" if row.absolute else f"{100 * row.deviation:+.3g} %"
    if not row.deviation:
        deviation = "0"
    said = row.what if row.holds else f"{row.what} **(not reproduced: {row.missed})**"
    published = " to ".join(map(four_digits, low_high)).replace("to inf", "or more")
    return f"| {row.machine} | {said} | {published} | {four_digits(row.modelled())} | {deviation} | {row.source} |"


def table() -> str:
    """Return the table as Markdown."""
    head = ["| machine | what | published | modelled | deviation | source |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *(line(row) for row in rows())])


def costs() -> str:
    """Return the costs of ResNet-50 as Markdown."""
    lines = [
        "| machine | format | ms | mJ with DRAM | mJ on chip | arithmetic of it | of the peak | DRAM MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in machines.names():
        machine = machines.accelerator(name)
        for format in machine.formats:
            try:
                found = report(name, "resnet50", 1, format)
            except NotImplementedError:
                continue
            on_chip = found.energy - found.energy_parts["DRAM"]
            times = (found.seconds * 1e3, found.energy * 1e3, on_chip * 1e3)
            cells = [name, format, *map(four_digits, times), f"{found.arithmetic_share:.0%}"]
            cells += [f"{found.utilisation:.1%}", four_digits(found.dram_bytes / 1e6)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def queues() -> str:
    """Return EIE's load balance against the depth of its queues as Markdown."""
    lines = ["| depth of the queues | frames/s | busy PEs: fc6 | fc7 | fc8 |", "|---|---|---|---|---|"]
    for depth in (1, 2, 4, 8, 16, 32):
        found = matrices(depth)
        busy = " | ".join(f"{layer.detail['efficiency']:.0%}" for layer in found.layers)
        lines.append(f"| {depth} | {four_digits(1 / found.seconds)} | {busy} |")
    return "\n".join(lines)


def filled(page: str) -> str:
    """Return the page with today's tables."""
    for name, words in (("published", table()), ("resnet50", costs()), ("queues", queues())):
        begin, end = f"<!-- {name} begin -->\n", f"\n<!-- {name} end -->"
        head, rest = page.split(begin)
        page = head + begin + words + end + rest.split(end)[1]
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for name, drawn in pictures().items():
        (PAGE.parent / name).write_text(drawn, encoding="utf-8")
