"""`heterocompute reproduce`: published figures next to the model's, and tables of papers for your network."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..base.texts import counted
from ..report.numbers import four_digits
from ..report.table import Column
from .options import Options
from .parts import ProgressBar, UsageError, interruptible, print_json, print_table, print_words


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    found = command(
        "reproduce",
        _run,
        "Compute published results with the model: which ones it reproduces, which it misses, by how much and why. "
        "With --model, compute the table of a paper for your network.",
        "reproduce",
        "reproduce eyeriss --html eyeriss.html",
        "reproduce off",
        "reproduce vs-quant --model digits",
        "reproduce vs-quant --model model.onnx --data x.npy --labels y.npy",
    )
    add = Options(found)
    add("name", "NAME", "source, machine, subject, status (such as off) or result", nargs="?")
    add("--model", "MODEL", "network of hc.zoo (digits, adder) or ONNX file")
    add("--data", "NPY", "inputs of an ONNX MODEL")
    add("--labels", "NPY", "class of each input of --data")
    add("--keep", "PATH", "file of results: they are added to it, and those in it are not computed again, so an "
        "interrupted command continues")  # fmt: skip
    add("--save", "PATH", "also write the rows as JSON, which load of the class of the result reads",
        parse="report.results.saved:saved_path")  # fmt: skip
    add("--html", "PATH", "also write an HTML page with a plot")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.model is not None:
        return _paper(arguments)
    for option in ("data", "labels"):
        if getattr(arguments, option) is not None:
            raise UsageError(f"--{option} needs --model: published figures have networks of their own")
    from .. import hardware as hw  # 60 ms
    from ..hardware.ledger.figure import STATUSES, headline  # loaded by hw.published

    figures = interruptible(lambda: hw.published(arguments.name))
    with ProgressBar("reproduce", arguments.name or "published figures") as progress:
        found = interruptible(lambda: figures.reproduce(progress.update, arguments.keep))
    if arguments.save:
        found.save(arguments.save)
    records = found.records()
    counts = Counter(dict.fromkeys(STATUSES, 0))
    counts.update(record["status"] for record in records)
    if arguments.json:
        return print_json({"counts": counts, "figures": records})
    if arguments.html:
        heading = f"Published figures: {arguments.name}" if arguments.name else "Published figures"
        found.to_html(arguments.html, title=heading)
    columns = [
        Column("name", "figure"),
        Column("printed", "published", left=True),
        Column("modelled", "here", left=True),
        Column("verdict", "status", left=True),
    ]
    print_table(columns, [row for record in records for row in _rows(record)])
    for record in records:
        verdict, _, why = record["verdict"].partition(": ")
        if why:
            print_words(f"{record['name']}, {verdict}: {why}")
    said = ", ".join(f"{number} {status}" for status, number in counts.items() if number)
    print_words(f"{counted(len(records), 'figure')}: {said}. {headline(counts)}")
    return 0


def _rows(record: dict[str, Any]) -> list[dict[str, str]]:
    """Return a line for each value of a figure; the first one has the status, without its reason."""
    rows = record["figures"]
    verdict = record["verdict"].partition(": ")[0]
    return [
        {
            "name": record["name"] + f" {row['row']}" * (len(rows) > 1),
            "printed": row["printed"],
            "modelled": _number(row["modelled"]),
            "verdict": "" if i else verdict,
        }
        for i, row in enumerate(rows)
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1e5 and value == round(value) else four_digits(value)


def _paper(arguments: argparse.Namespace) -> int:
    from ..studies.papers import PAPERS, cell, reproduce_paper  # 40 ms

    if arguments.name not in PAPERS:
        raise UsageError(f"--model needs NAME to be one of {', '.join(PAPERS)}")
    with ProgressBar("reproduce", arguments.name) as progress:
        found = interruptible(
            lambda: reproduce_paper(
                arguments.name,
                arguments.model,
                arguments.data,
                arguments.labels,
                progress=progress.update,
                keep=arguments.keep,
            )  # fmt: skip
        )
    if arguments.save:
        found.save(arguments.save)
    if arguments.json:
        return print_json(found.to_dict())
    if arguments.html:
        found.to_html(arguments.html)
    columns = [Column(key, title, cell, left=key in found.texts) for key, title in found.columns.items()]
    print_table(columns, found.table)
    print_words(found.summary)
    return 0
