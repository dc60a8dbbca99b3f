"""Calls drawn at random from the layers of known networks, next to other libraries and every path of our own.

A seed draws a call: its sizes, layout, dtype, strides, format and activations. ``--seed N`` begins with the call of
seed N; the seeds of the next calls follow from N. Each call is verified, then timed in turns. The table shows the share
of the calls that are slower than the fastest other library, and the slowest of them. ``calls`` of a table has all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from ...base.runtime import use
from ..measure import KINDS, Options, Row, Table
from ..peers import installed
from .call import Call, Draw, timed, torch_threads
from .codecs import draw_codec
from .convolutions import draw_conv, draw_gradients
from .dense import draw_dense
from .layers import draw_layer
from .models import draw_model
from .products import draw_matmul
from .sparse import draw_sparse

DRAWS: dict[str, Callable[[Draw, int], Call | None]] = {
    "conv": draw_conv,
    "matmul": draw_matmul,
    "gradients": draw_gradients,
    "layers": draw_layer,
    "codecs": draw_codec,
    "sparse": draw_sparse,
    "models": draw_model,
    "dense": draw_dense,
}
SHARES = (1.0, 0.8, 0.5)
SHORT_MS, SHORT_GAP_MS = 0.02, 0.003  # of short calls the difference counts, not the ratio
WORST = 20
QUICK_CALLS = 4
MOST_REFUSED = 1000  # draws in a row that are too large


def measure(options: Options) -> list[Table]:
    """Draw, verify and time calls of each kind with each number of threads."""
    tables = []
    for threads in options.threads:
        for kind in (options.kind,) if options.kind else KINDS:
            with use(threads=threads), torch_threads(installed("torch"), threads):
                table = _table(kind, threads, options)
            tables += [table] if table["rows"] else []
    return tables


def draws(kind: str, options: Options, threads: int) -> Iterator[tuple[int, Call]]:
    """Yield seeds and their calls, without an end."""
    number, seeds = KINDS.index(kind), np.random.default_rng(options.seed)
    seed, refused = options.seed, 0
    while refused < MOST_REFUSED:
        draw = Draw(number, seed, options.quick)
        call = None
        while call is None and refused < MOST_REFUSED:
            call = DRAWS[kind](draw, threads)
            refused = 0 if call is not None else refused + 1
        if call is not None:
            yield seed, call
        seed = int(seeds.integers(1 << 31))


def _table(kind: str, threads: int, options: Options) -> Table:
    end, calls = time.perf_counter() + options.seconds, []
    for seed, call in draws(kind, options, threads):
        options.report_progress(f"{kind}, seed {seed}: {call.text}")
        calls.append(timed(call, kind, seed, threads, options))
        if time.perf_counter() >= end or (options.quick and len(calls) == QUICK_CALLS):
            break
    title = f"Drawn {kind}, seed {options.seed}"
    return {"title": title, "threads": threads, "rows": [*summary(calls), *_worst(calls)], "calls": calls}


def summary(calls: list[Row]) -> list[Row]:
    """Return rows on the calls that another library computes too: long ones, those of each group, short ones."""
    compared = [call for call in calls if call["ratio"] is not None]
    long = [call for call in compared if max(call["ms"], call["peer_ms"]) >= SHORT_MS]
    short = [call for call in compared if max(call["ms"], call["peer_ms"]) < SHORT_MS]
    groups = sorted({call["group"] for call in long})
    rows = [_shares("all of 20 us and more", long)] if long else []
    if len(groups) > 1:
        rows += [_shares(group, [call for call in long if call["group"] == group]) for group in groups]
    ready = [
        call | {"ratio": call["prepacked_ratio"], "ms": call["prepacked_ms"], "fastest_ms": None}
        for call in long
        if call.get("prepacked_ratio") is not None
    ]
    if ready:
        rows.append(_shares("the integers, prepacked", ready))
    if short:
        late = sum(call["ms"] > call["peer_ms"] + SHORT_GAP_MS for call in short)
        rows.append({**_shares("shorter ones", short), "limit": f"{late} more than 3 us slower"})
    if len(compared) < len(calls):
        seconds = float(np.median([call["ms"] for call in calls])) * 1e-3
        rows.append({"name": "without another library", "cases": len(calls) - len(compared), "seconds": seconds})
    return rows


def _shares(name: str, calls: list[Row]) -> Row:
    ratios = np.array([call["ratio"] for call in calls])
    slower = [call["ms"] / call["fastest_ms"] for call in calls if call["fastest_ms"] is not None]
    row: Row = {
        "name": name,
        "cases": len(calls),
        "shares": [float((ratios < share).mean()) for share in SHARES],
        "geomean": float(np.exp(np.log(ratios).mean())),
    }
    return row | ({"slower": float(np.mean(slower))} if slower else {})


def _worst(calls: list[Row]) -> list[Row]:
    """Return rows on the calls with the lowest ratios."""
    compared = sorted((call for call in calls if call["ratio"] is not None), key=lambda call: float(call["ratio"]))
    rows = []
    for call in compared[:WORST]:
        row = {"name": f"{call['seed']}: {call['call']}", "ratio": call["ratio"], "seconds": call["ms"] * 1e-3}
        row |= {"compared": call["peer"], "chosen": call["path"], "fastest": call["fastest_path"]}
        if call["fastest_ms"] is not None:
            row["slower"] = call["ms"] / call["fastest_ms"]
        if call["estimate_ms"] is not None:
            row["estimate"] = call["estimate_ms"] / call["ms"]
        rows.append({key: value for key, value in row.items() if value is not None})
    return rows
