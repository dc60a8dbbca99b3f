"""Logs of nvidia-smi: the mean of each meter by GPU.

Two kinds are read: ``nvidia-smi --query-gpu=timestamp,index,utilization.gpu,... --format=csv -l 1``, whose first line
names columns and units unless ``noheader`` is given, and ``nvidia-smi dmon``, which names them in lines that begin
with ``#``.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from ...base.errors import WrongValue, printable, shown
from ...base.texts import read_small
from ...base.values import check_text

MAX_BYTES = 1 << 28
#: Name of a column, without its unit -> name in the result, and the factor to the base unit.
COLUMNS = {
    "utilization.gpu": ("busy", 1.0),
    "utilization.memory": ("memory_busy", 1.0),
    "memory.used": ("memory", float(1 << 20)),
    "memory.total": ("memory_total", float(1 << 20)),
    "power.draw": ("watts", 1.0),
    "power.draw.instant": ("watts", 1.0),
    "power.draw.average": ("watts", 1.0),
    "clocks.sm": ("clock", 1e6),
    "clocks.current.sm": ("clock", 1e6),
    "temperature.gpu": ("celsius", 1.0),
    "sm": ("busy", 1.0),
    "mem": ("memory_busy", 1.0),
    "pwr": ("watts", 1.0),
    "gtemp": ("celsius", 1.0),
    "pclk": ("clock", 1e6),
    "fb": ("memory", float(1 << 20)),
}
GPU = ("index", "gpu", "uuid", "pci.bus_id", "name")
MISSING = ("", "-", "[n/a]", "n/a", "[not supported]", "[unknown error]")
MOST = ("memory", "memory_total")  # columns of which the maximum is returned

Sample = dict[str, Any]


def read_smi(path: str | os.PathLike[str], columns: str | None = None) -> list[dict[str, Any]]:
    """Summarize a log of nvidia-smi for each GPU.

    Parameters
    ----------
    path : str or os.PathLike
        Output of ``--query-gpu=... --format=csv`` (also with ``nounits`` and ``noheader``), or of ``dmon``.
    columns : str, optional
        Names of the columns of a log without a header line: the argument of ``--query-gpu``.

    Returns
    -------
    list of dict
        One row per GPU: ``gpu``, ``samples``; means of ``busy`` (percent of the time in which a kernel ran),
        ``memory_busy`` (percent), ``watts``, ``clock`` (Hz), ``celsius``; the largest ``memory`` and ``memory_total``
        (bytes); ``seconds`` between the first sample and the last, and ``joules`` in that time. Columns that are not in
        the log are absent.

    Raises
    ------
    ValueError
        The file is not a log of nvidia-smi, has no sample, or a value is not a number; its columns have no names, or
        have names in the file and in `columns`.
    OSError
        The file cannot be read.

    Notes
    -----
    ``busy`` is the meter that `utilization` calls nvml. It does not show how many multiprocessors work.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> with open("smi.csv", "w") as file:
    ...     lines = ["index, utilization.gpu [%], power.draw [W]", "0, 90 %, 300.00 W", "0, 100 %, 310.00 W"]
    ...     _ = file.write(chr(10).join(lines))
    >>> hw.systems.read_smi("smi.csv")
    [{'gpu': '0', 'samples': 2, 'busy': 95.0, 'watts': 305.0}]
    >>> with open("bare.csv", "w") as file:  # --format=csv,noheader
    ...     _ = file.write("0, 90 %")
    >>> hw.systems.read_smi("bare.csv", "index,utilization.gpu")
    [{'gpu': '0', 'samples': 1, 'busy': 90.0}]
    """
    text, name = read_small(path, MAX_BYTES), printable(os.fsdecode(path))
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise WrongValue(f"read_smi: {name} is empty, expected a log of nvidia-smi")
    is_dmon = lines[0].lstrip().startswith("#")
    samples = list(_dmon(lines, name) if is_dmon and columns is None else _query(lines, name, columns))
    if not samples:
        raise WrongValue(f"read_smi: {name} has names of columns and no sample")
    by_gpu: dict[str, list[Sample]] = {}
    for sample in samples:
        by_gpu.setdefault(sample["gpu"], []).append(sample)
    return [_summary(gpu, found) for gpu, found in by_gpu.items()]


def _heads(row: Iterable[str]) -> list[str]:
    return [head.split("[")[0].strip().lower() for head in row]


def _query(lines: list[str], name: str, columns: str | None) -> Iterator[Sample]:
    rows = csv.reader(lines, skipinitialspace=True)
    known = "utilization.gpu, memory.used, power.draw"
    if columns is None:
        heads, first = _heads(next(rows)), 2
        if not any(head in COLUMNS for head in heads):
            raise WrongValue(
                f"read_smi: {name} has no line of names with columns such as {known}; columns= names those of a log "
                "without a header"
            )
    else:
        heads, first = _heads(check_text("read_smi", "columns", columns).split(",")), 1
        if not any(head in COLUMNS for head in heads):
            raise WrongValue(f"read_smi: columns is {shown(columns)}, expected names such as {known}")
        if any(head in (*COLUMNS, *GPU) for head in _heads(next(csv.reader(lines[:1])))):
            raise WrongValue(f"read_smi: columns is {shown(columns)}, but {name} begins with names of its own")
    yield from (_sample(heads, row, i, name) for i, row in enumerate(rows, first))


def _dmon(lines: list[str], name: str) -> Iterator[Sample]:
    heads: list[str] = []
    for i, line in enumerate(lines, 1):
        words = line.lstrip("# ").split()
        if line.lstrip().startswith("#"):
            if words and words[0].lower() in (*GPU, "date", "time"):
                heads = [word.lower() for word in words]
            continue
        if not any(head in COLUMNS for head in heads):
            raise WrongValue(f"read_smi: line {i} of {name} is before the names of columns, expected '# gpu pwr ...'")
        yield _sample(heads, words, i, name)


def _sample(heads: list[str], cells: list[str], line: int, name: str) -> Sample:
    if len(cells) != len(heads):
        raise WrongValue(f"read_smi: line {line} of {name} has {len(cells)} values, expected {len(heads)}")
    found: Sample = {"gpu": "0"}
    given = dict(zip(heads, (cell.strip() for cell in cells), strict=True))
    for key in reversed(GPU):
        if key in given:
            found["gpu"] = given[key]
    for head, cell in given.items():
        if head == "timestamp":
            found["time"] = _time(cell)
        if head not in COLUMNS or cell.lower() in MISSING:
            continue
        key, factor = COLUMNS[head]
        try:
            found[key] = float(cell.split()[0]) * factor
        except ValueError:
            raise WrongValue(f"read_smi: {head} in line {line} of {name} is {shown(cell)}, expected a number") from None
    return found


def _time(text: str) -> float | None:
    for form in ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S"):
        try:
            return (datetime.strptime(text, form) - datetime(1970, 1, 1)).total_seconds()
        except ValueError:
            continue
    return None


def _summary(gpu: str, samples: list[Sample]) -> dict[str, Any]:
    found: dict[str, Any] = {"gpu": gpu, "samples": len(samples)}
    for key, _ in COLUMNS.values():
        values = [sample[key] for sample in samples if key in sample]
        if values and key not in found:
            found[key] = max(values) if key in MOST else sum(values) / len(values)
    timed = [sample for sample in samples if sample.get("time") is not None]
    if len(timed) > 1:
        found["seconds"] = timed[-1]["time"] - timed[0]["time"]
        steps = [(a, b) for a, b in zip(timed, timed[1:], strict=False) if "watts" in a and "watts" in b]
        if steps:
            found["joules"] = sum((b["time"] - a["time"]) * (a["watts"] + b["watts"]) / 2 for a, b in steps)
    return found
