"""`heterocompute explore`: many accelerators for the same networks, and those that are not dominated."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ..base.errors import printable, shown
from ..base.json_text import strict_json
from ..base.regular import open_regular
from ..report.numbers import four_digits
from ..report.table import Column
from .hardware import batch_of, show
from .options import REPEATED, Options
from .parts import UsageError, interruptible, note, print_json
from .rewriting import add_workers


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    found = command(
        "explore",
        _run,
        "Evaluate many accelerators of vector units on networks: sizes, dataflows, number formats. Show the "
        "Pareto-optimal ones in energy, area, time, or in the results of a study.",
        "explore resnet50 --set lanes=8,16 --set dataflow=ws,os-lws --workers 2",
        "explore digits --set format=int8,vsq4-g16-s4 --study study.json --objective energy,-accuracy",
        "explore resnet18 --base mine.toml --set buffer.kib=64,128,256 --objective energy,area",
    )
    add = Options(found, "hardware:explore")
    add("models", "MODEL", "built-in networks (resnet50, ...) or ONNX files", nargs="+")
    add("--set", "NAME=V,V,...", "values to try for elements, lanes, vector, weight_kib, input_kib, sum_kib, "
        "global_kib, entries, dataflow, process, format (also 'int4 x int8'), ...; default: 72 points", dest="space",
        **REPEATED)  # fmt: skip
    add("--base", "MACHINE", "a machine of your own (a TOML file) or a published one, whose keys --set changes")
    add("--objective", "COLUMNS", "columns to minimize, the first most of all; -NAME maximizes")
    add(
        "--study",
        "FILE",
        "output of heterocompute study --json or --save, whose results are joined by format",
        dest="study_file",
    )
    add.common("--batch")
    add("--budget", "N", "maximum number of points, drawn at random")
    add("--seed", "N", "random seed; the same seed draws the same points")
    add_workers(add, "processes that evaluate points")
    add("--keep", "PATH", "file of evaluated points: points are added to it, and those in it are not evaluated again, "
        "so an interrupted command continues")  # fmt: skip
    add("--save", "PATH", "also write the result as JSON, for hw.results.Exploration.load",
        parse="report.results.saved:saved_path")  # fmt: skip
    add("--all", None, "show every point, not only the Pareto-optimal ones")
    add("--csv", "PATH", "also write every point as CSV")
    add("--plot", "PATH", "also write the plot")
    add.common("--html")


def _run(arguments: argparse.Namespace) -> int:
    from .. import hardware as hw  # 60 ms

    if arguments.plot and "," not in arguments.objective:
        raise UsageError(f"--plot draws two columns, --objective has one: {arguments.objective}")
    space: dict[str, list[Any]] = {}
    for text in arguments.space:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise UsageError(f"--set is {shown(text)}, expected NAME=VALUE,VALUE such as lanes=8,16")
        space.setdefault(name.strip(), []).extend(_value(one) for one in values.split(","))
    found = interruptible(
        lambda: hw.explore(
            space or None if arguments.base is None else None,
            arguments.models,
            [name.strip() for name in arguments.objective.split(",")],
            base=arguments.base,
            set=None if arguments.base is None else space,
            study=None if arguments.study_file is None else _study(arguments.study_file),
            batch=batch_of(arguments),
            budget=arguments.budget,
            seed=arguments.seed,
            workers=arguments.workers,
            keep=arguments.keep,
        )
    )
    if arguments.save:
        found.save(arguments.save)
    if arguments.csv:
        found.to_csv(arguments.csv)
    if arguments.plot:
        found.plot(arguments.plot)
    if arguments.json:
        return print_json(found.to_dict())
    for row in found.refused[:3]:
        note(f"left out: {row['reason']}")
    front = set(found.to_dict()["pareto"])
    rows = [dict(row) for i, row in enumerate(found.table) if arguments.all or i in front]
    columns = [Column(key, key, str, left=isinstance(found.table[0][key], str)) for key in found.varied]
    columns += [
        Column("energy", "on chip mJ", _times(1e3)),
        Column("area", "mm^2", four_digits),
        Column("seconds", "ms", _times(1e3)),
        Column("operations_joule", "10^12 op/J", _times(1e-12), leaves=3),
        Column("arithmetic_share", "arithmetic", "{:.0%}".format, leaves=4),
        Column("dram_energy", "DRAM mJ", _times(1e3), leaves=2),
    ]
    columns += [Column(key, key, _number, leaves=1) for key in found.metrics]
    what = "point" if len(rows) == 1 else "points"
    what += "" if arguments.all else " that no other beats"
    summary = [
        f"{', '.join(found.networks)}: {len(rows)} {what} in {', '.join(found.objective)}, of {len(found.table)}; "
        "models: energy without clocks, control and leakage, area of gates and memory cells alone"
    ]
    drawn = ""
    if arguments.html:
        from ..report.drawings import Point, scatter  # 20 ms
        from ..report.hardware import TITLES  # 20 ms

        axes = [name.removeprefix("-") for name in found.objective]
        x, y = (axes if len(axes) > 1 else [axes[0], "area" if axes[0] != "area" else "energy"])[:2]
        points = [
            Point(row[x], row[y], " ".join(str(row[key]) for key in found.varied), str(row.get("format", "")))
            for row in rows
            if row[x] is not None and row[y] is not None
        ]
        titles = [TITLES.get(name, name) for name in (x, y)]
        drawn = scatter(points, titles[0], titles[1], f"{titles[0]} and {titles[1]} of the points")
    return show(arguments, "Accelerators explored", summary, columns, rows, drawn=drawn)


def _value(text: str) -> Any:
    text = text.strip()
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _study(path: str) -> dict[str, Any]:
    with open_regular(path) as file:
        try:
            found = strict_json(file.read())
        except ValueError as error:
            raise ValueError(
                f"{path}: is not JSON ({printable(str(error))}), expected what heterocompute study --json printed"
            ) from None
    rows = None if not isinstance(found, dict) else found.get("table" if "heterocompute" in found else "rows")
    if not isinstance(rows, list):
        raise ValueError(f"{path}: has no rows, expected what heterocompute study --json printed")
    return {"rows": rows}


def _times(factor: float) -> Callable[[float], str]:
    return lambda value: four_digits(value * factor)


def _number(value: object) -> str:
    return "-" if value is None else f"{value:.4g}"
