"""Shared code of the scripts in this folder: options, tables in pages, times, axes and pictures."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heterocompute.report.palette import GREY, Mark

DOCS = Path(__file__).resolve().parents[1]
GRID = f'stroke="{GREY}" stroke-opacity="0.25"'


def options(head: str | None) -> argparse.ArgumentParser:
    """Return a parser whose description is the first line of a script's docstring."""
    return argparse.ArgumentParser(description=(head or "").split("\n")[0])


def measured(*names: str) -> bytes:
    """Run benchmarks with the BLAS kernels for this machine, and return their JSON."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    command = [sys.executable, "-m", "heterocompute", "bench", *names, "--json"]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout


def interleaved(
    calls: Mapping[str, Callable[[], Any]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Return the seconds of each call. Every round runs all calls once, so that other load affects all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            begun = clock()
            call()
            seconds[name].append(clock() - begun)
    return seconds


# Pages.


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]])


def filled(text: str, name: str, words: str, ends: tuple[str, str] = ("begin", "end")) -> str:
    """Return a page's text with new text between two marks."""
    begin, end = (f"<!-- {name} {one} -->" for one in ends)
    head, rest = text.split(f"{begin}\n")
    return f"{head}{begin}\n{words}\n{end}{rest.split(f'{chr(10)}{end}')[1]}"


def fill(page: Path, name: str, words: str, ends: tuple[str, str] = ("begin", "end")) -> None:
    """Replace the text between two marks of a page."""
    page.write_text(filled(page.read_text(encoding="utf-8"), name, words, ends), encoding="utf-8")


# Pictures as SVG.


def text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" {more}>{words}</text>'


@dataclass(frozen=True)
class Axes:
    """A frame of linear axes: pixels of its edges, and the values there."""

    left: float
    right: float
    top: float
    bottom: float
    x: tuple[float, float]
    y: tuple[float, float]

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return the position of a point in the picture."""
        (x_low, x_high), (y_low, y_high) = self.x, self.y
        across = self.left + (x - x_low) / (x_high - x_low) * (self.right - self.left)
        up = self.bottom - (y - y_low) / (y_high - y_low) * (self.bottom - self.top)
        return round(across, 1), round(up, 1)

    def ticks(self, ys: Mapping[float, str], xs: Mapping[float, str]) -> list[str]:
        """Return grid lines with labels on the left, and labels below."""
        lines = []
        for value, words in ys.items():
            x, y = self.place(self.x[0], value)
            lines.append(f'<line x1="{x}" y1="{y}" x2="{self.right}" y2="{y}" {GRID}/>')
            lines.append(text(x - 8, y + 4, words, 'text-anchor="end"'))
        for value, words in xs.items():
            x, y = self.place(value, self.y[0])
            lines.append(text(x, y + 20, words, 'text-anchor="middle"'))
        return lines


# Pictures of matplotlib.


def figure(width: float, height: float) -> Any:
    """Return a figure in the style of all pictures, which are legible on light and dark pages."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    parts = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "heterocompute", "font.size": 11.5})
    rcParams.update(dict.fromkeys(parts, GREY))
    return Figure(figsize=(width, height), layout="constrained")


def curve(axes: Any, points: Iterable[tuple[float, float]], mark: Mark, label: str) -> None:
    """Draw a line with its marks."""
    shape = [*mark.corners, mark.corners[0]] if mark.corners else "o"
    x, y = zip(*points, strict=True)
    axes.plot(x, y, color=mark.color, marker=shape, markersize=5, linewidth=1.5, label=label)


def plain_axes(axes: Any) -> None:
    """Write the numbers of logarithmic axes without exponents, and draw the grid."""
    from matplotlib.ticker import FuncFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(True, color="#8884", linewidth=0.5)


def save(drawn: Any, path: Path) -> None:
    """Write a figure; the same figure gives the same bytes."""
    drawn.savefig(path, metadata={"Date": None}, transparent=True)
