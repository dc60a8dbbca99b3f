"""Draw the pictures of docs/systems.md: python docs/figures/systems.py"""

from __future__ import annotations

from pathlib import Path

from runner import DOCS

from heterocompute import hardware as hw
from heterocompute.report.chart import Chart, Dot
from heterocompute.report.palette import SERIES
from heterocompute.report.scale import linear, logarithmic

WIDTH, HEIGHT = 760, 340


def feeding() -> str:
    """Return a picture of the first steps of an input pipeline with too few workers."""
    run = hw.systems.pipeline(step=0.05, read=0.02, decode=0.13, copy=0.01, workers=2, pinned=True, metrics=0.004)
    return run.to_svg(steps=8) + "\n"


def growth() -> str:
    """Return a plot of the operations of trainings: counted by the package, and published."""
    dots = []
    rows = hw.multi.growth()
    works = [hw.published(name)[0] for name in ("openai-2018/work", "gpt3-2020/work")]
    found = {name: figure["low"] for one in works for name, figure in one.rows.items()}
    for row in rows:
        counted, printed = SERIES[0], SERIES[1]
        dots.append(Dot(row["year"], found[row["name"]], printed, hint="printed", hollow=True, large=True))
        dots.append(Dot(row["year"], row["petaflop_days"], counted, row["name"], row["name"]))
    x = linear([2012.0, 2021.5], 6, 0.02)
    y = logarithmic([row["petaflop_days"] for row in rows])
    title = "Operations of whole trainings: full marks counted from layers and parameters, hollow ones printed"
    chart = Chart(x, y, WIDTH, HEIGHT, "year", "petaflop/s-days", standalone=True, title=title)
    chart.dots, chart.named = dots, range(1, len(dots), 2)
    return chart.svg() + "\n"


def reductions() -> str:
    """Return a plot of the time of summing gradients on 1,024 A100 against their size."""
    pod = hw.multi.fabric("dgx-a100", 1024)
    sizes = [10.0**power for power in range(3, 11)]
    dots = []
    for mark, way in zip(SERIES, ("ring", "tree", "switch"), strict=False):
        for size in sizes:
            seconds = hw.multi.allreduce(size, 1024, pod, algorithm=way)
            dots.append(Dot(size, seconds * 1e3, mark, way if size == sizes[1] else "", way))
    x, y = logarithmic(sizes), logarithmic([dot.y for dot in dots])
    title = "All-reduce among 1,024 A100 in nodes of 8, 0.6 and 2.7 us a step"
    chart = Chart(x, y, WIDTH, HEIGHT, "bytes of each", "ms", standalone=True, title=title)
    chart.dots, chart.named = dots, [i for i, dot in enumerate(dots) if dot.name]
    return chart.svg() + "\n"


def scaling() -> str:
    """Return a plot of the efficiency of training on many devices, for three strategies."""
    dots = []
    rows = hw.multi.scaling("gpt3_175b", "a100-sxm-80gb", hw.multi.fabric("dgx-a100", 1024), batch=64)
    for mark, way in zip(SERIES, ("data", "tensor", "pipeline"), strict=False):
        shown = [row for row in rows if row[way]]
        for row in shown:
            name = way if row is shown[-2] else ""
            dots.append(Dot(row["count"], 100 * row[way]["efficiency"], mark, name, way))
    counts = [row["count"] for row in rows]
    x, y = logarithmic(counts, counts, room=11), linear([0.0, 100.0], 5, 0.03)
    title = "GPT-3 175B on A100 in nodes of 8, 64 sequences: by data (64 each), inside blocks, by layers"
    chart = Chart(x, y, WIDTH, HEIGHT, "devices", "% of the devices", standalone=True, title=title)
    chart.dots, chart.named = dots, [i for i, dot in enumerate(dots) if dot.name]
    return chart.svg() + "\n"


PICTURES = {
    "systems-allreduce.svg": reductions,
    "systems-scaling.svg": scaling,
    "systems-growth.svg": growth,
    "systems-pipeline.svg": feeding,
}


def pictures() -> dict[Path, str]:
    """Return the pictures by file name."""
    return {DOCS / name: draw() for name, draw in PICTURES.items()}


if __name__ == "__main__":
    for path, picture in pictures().items():
        path.write_text(picture, encoding="utf-8")
