"""The page and the picture of a search for the best mix of formats, from what `Plan.to_dict` returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from .numbers import quantity
from .page import legend, page as whole_page, section, table, tiles
from .palette import FAMILIES, family
from .plot import draw, new_figure
from .study import Judge
from .study_page import chart_of, figures, keys_of

Row = dict[str, Any]

METRIC = "predicted loss"
MIX, OTHERS = "this mix", "another mix"
NAMELESS = " "  # the family "mixed", without a name next to its dot
MAX_BARS = 60
HEADS = ("tensor", "format", "method", "bits", "bytes", "relative error", "alpha", "loss", "share of the loss")


def rows_of(found: Mapping[str, Any]) -> tuple[list[Row], list[int]]:
    """Return points as rows of a study: formats in all tensors, this mix, and mixes for other budgets."""
    points = [(one["format"], one["bits"], one["predicted"]) for one in found["uniform"]]
    points.append((MIX, found["bits"], found["predicted"]))
    points += [(NAMELESS, one["bits"], one["predicted"]) for one in found["pareto"]]
    rows = [{"format": fmt, "activations": None, "bits": bits, METRIC: lost} for fmt, bits, lost in points]
    # The front has the best mixes of some budgets. This mix, or a format in all tensors, may be as good as they are.
    front: list[int] = []
    for i in sorted(range(len(points)), key=lambda i: (points[i][1], points[i][2])):
        if not front or points[i][2] < points[front[-1]][2]:
            front.append(i)
    return rows, front


def page(title: str, found: Mapping[str, Any], words: str, stored: object = None) -> str:
    """Return the whole page.

    Parameters
    ----------
    found : mapping
        As `Plan.to_dict` returns it.
    words : str
        What was found, in a sentence.
    stored : object, optional
        The result itself, for programs.
    """
    rows, front = rows_of(found)
    judge = Judge(METRIC, False, front)
    whole = found["predicted"] or 1.0
    lines = [
        [
            (row["name"], row["name"]), (row["format"], row["format"]), (row["method"], row["method"]),
            (f"{row['bits']:.2f}", row["bits"]), (quantity(row["bytes"], "B"), row["bytes"]),
            *((f"{row[key]:.3g}", row[key]) for key in ("error", "alpha", "loss")),
            (f"{row['loss'] / whole:.1%}", row["loss"]),
        ]
        for row in found["rows"]
    ]  # fmt: skip
    counts = Counter(row["format"] for row in found["rows"])
    proof = "a proven optimum" if found["gap"] == 0 else f"at most {found['gap']:.3g} above the optimum"
    figure = [(f"{found['bits']:.3f}", "stored bits per value")]
    figure.append((f"{found['predicted']:.4g}", f"predicted loss: {proof}"))
    if found["measured"] is not None:
        figure.append((f"{found['measured']:.4g}", "measured"))
    figure += [(f"{amount:.5g}", f"{kind}, of {found['budget'][kind]:.5g}") for kind, amount in found["spent"].items()]
    figure.append((", ".join(f"{n} x {fmt}" for fmt, n in counts.items()), "formats and their tensors"))
    body = tiles(figure) + section(
        "What a bit buys",
        "Predicted loss against the bits that are really stored: formats in all tensors, this mix, and the best mixes "
        "for other budgets along the dashed line.",
        f'<div class="controls">{legend(keys_of(rows))}</div>{figures(rows, judge, False)}',
    )
    body += section("Every tensor", words, table(HEADS, lines, texts=(0, 1, 2)))
    hints = [f"{row['format'].strip() or OTHERS}: {row['bits']:.2f} bits, {METRIC} {row[METRIC]:.3g}" for row in rows]
    script = 'document.querySelectorAll("[data-i]").forEach((dot) => tip(dot, data[Number(dot.dataset.i)]));'
    return whole_page(title, body, hints, script, stored=stored)


def figure(found: Mapping[str, Any]) -> Any:
    """Draw predicted loss against bits, and the bits of each tensor.

    Parameters
    ----------
    found : mapping
        As `Plan.to_dict` returns it.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    rows, front = rows_of(found)
    bars = found["rows"][:MAX_BARS]
    drawn = new_figure(13, min(max(4.8, 1.2 + 0.2 * len(bars)), 12))
    left, right = drawn.subplots(1, 2, width_ratios=(3, 2))
    draw(left, drawn, chart_of(rows, Judge(METRIC, False, front), 700, 400), "What a bit buys", "below")
    names = [row["name"] for row in bars]
    colors = [FAMILIES[family(row["format"])].color for row in bars]
    right.barh(range(len(bars)), [row["bits"] for row in bars], color=colors)
    for i, row in enumerate(bars):
        right.text(row["bits"], i, f" {row['format']}", va="center", fontsize=7.5, parse_math=False)
    right.set_yticks(range(len(bars)), names, fontsize=8, parse_math=False)
    right.invert_yaxis()
    right.margins(x=0.35)
    right.set_xlabel("stored bits per value")
    right.spines[["top", "right"]].set_visible(False)
    right.set_title("Which tensor gets what", loc="left", fontsize=11, fontweight="bold")
    return drawn
