"""Measure log numbers in a language model, and draw docs/formats/log-llm.svg and the tables of docs/formats/log-llm.md.

    python docs/figures/log_llm.py --model SmolLM2-135M-Instruct.Q4_1.gguf    measures what the file lacks
    python docs/figures/log_llm.py                                            draws the measurements

The measurements are docs/measurements/log-llm.csv: perplexity, KL divergence and agreement with the stored network,
with weights, activations or both in one format. Activations have the groups of the weights. All need
about 6 minutes of one processor (AMD EPYC with AVX2).
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from runner import DOCS, Axes, fill, options, table, text

import heterocompute as hc
from heterocompute import hardware as hw
from heterocompute.report.chart import outline, picture
from heterocompute.report.palette import SERIES

FILE = DOCS / "measurements" / "log-llm.csv"
PAGE = DOCS / "formats" / "log-llm.md"
HEADS = ("text", "format", "side", "conversion", "perplexity", "kl", "agreement")
TOKENS = {"help": 256, "licence": 128}
EMULATED = 48  # tokens, because emulation is slow
BATCH = 4  # formats per pass, which share the reference
GAMMAS = {4: (1, 2, 4), 5: (2, 4), 6: (4, 8), 7: (8, 16), 8: (8, 16, 32)}
BEST = {4: 2, 5: 4, 6: 4, 7: 8, 8: 16}
LOGS = [f"log{bits}-{gamma}-g32" for bits, gammas in GAMMAS.items() for gamma in gammas]
GROUPED = [f"log{bits}-{gamma}-g{group}" for bits, gamma in BEST.items() for group in (8, 128)]
OTHERS = {
    4: ("int4-g32", "mxfp4", "vsq4-g16-s4"),
    6: ("int6-g32", "mxfp6_e2m3", "vsq6-g16-s6"),
    8: ("int8-g32", "int8", "fp8_e4m3fn-row", "mxfp8_e4m3", "vsq8-g16-s8"),
}
CHECKED = ("int4-g32", "mxfp4", "vsq4-g16-s4", "int8-g32", "mxfp8_e4m3", "log4-2-g32", "log6-4-g32", "log8-16-g32")
CONVERTED = {"log8-16-g32": ("exact", "hybrid:2", "hybrid:1", "mitchell"), "log4-2-g32": ("exact", "mitchell")}
SIDES = {"w": "weights", "a": "activations", "wa": "both"}
PROCESS = "5nm"
ENERGY = "fJ per multiply-add, 5 nm"
MARKS = dict(zip(("log", "int", "mxfp", "vsq", "fp8"), SERIES, strict=False))
WIDTH, HEIGHT = 800, 380
CENTERED = 'text-anchor="middle"'
Label = tuple[str, str, str, str]
Row = dict[str, float]


def texts() -> dict[str, str]:
    """Return the texts by name: Python's help texts, and its licence."""
    licence = Path(os.__file__).with_name("LICENSE.txt").read_text(encoding="utf-8")
    return {"help": "\n".join(topics[key] for key in sorted(topics)), "licence": licence}


def wanted() -> Iterator[tuple[str, list[str], tuple[str, ...]]]:
    """Yield text, formats and conversions: all formats on the first text, and some on the second."""
    formats = [*LOGS, *(fmt for some in OTHERS.values() for fmt in some), *GROUPED]
    for name, some in (("help", formats), ("licence", CHECKED)):
        yield from ((name, [*some[i : i + BATCH]], ()) for i in range(0, len(some), BATCH))
    yield from (("help", [fmt], conversions) for fmt, conversions in CONVERTED.items())


def measure(model: Path, part: str) -> None:
    """Append the missing measurements to the file: all, or those of a text, or of conversions."""
    net = hc.zoo.open_llm(model)
    given = {name: net.tokenizer.encode(one)[: TOKENS[name]] for name, one in texts().items()}
    known = {(row["text"], row["format"], bool(row["conversion"])) for row in rows()}
    if not FILE.exists():
        FILE.write_text(f"{','.join(HEADS)}\n", encoding="utf-8")
    for name, formats, conversions in wanted():
        formats = [fmt for fmt in formats if (name, fmt, bool(conversions)) not in known]
        if not formats or part not in ("all", "conversions" if conversions else name):
            continue
        packed = {fmt: net.quantized(fmt) for fmt in formats}
        if conversions:
            labels = [(fmt, "wa", one) for fmt in formats for one in ("none", *conversions)]
        else:
            labels = [("stored", "", ""), *((fmt, side, "") for fmt in formats for side in SIDES)]
        ways = [way(packed, *label) for label in labels]
        found = net.judged(given[name][: EMULATED if conversions else None], ways, compare=True)
        with FILE.open("a", encoding="utf-8", newline="") as file:
            for label, row in zip(labels, found, strict=True):
                csv.writer(file, lineterminator="\n").writerow(
                    [name, *label, *(f"{row[key]:.5g}" for key in HEADS[4:])]
                )
        print(name, *formats, flush=True)


def way(packed: dict[str, Any], fmt: str, side: str, conversion: str) -> tuple[Any, ...]:
    """Return weights, activations, cache and emulation of a measurement."""
    emulation = None if conversion in ("", "none") else "int24-sat" + f"+{conversion}" * (conversion != "exact")
    return packed[fmt] if "w" in side else None, fmt if "a" in side else None, None, emulation


def rows() -> list[dict[str, Any]]:
    """Return the measurements as stored."""
    if not FILE.exists():
        return []
    with FILE.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def drawn(found: Mapping[Label, Row]) -> str:
    """Return the picture: KL divergence with both sides rounded, against bits and energy of a multiply-add."""
    shown = [fmt for fmt in (*LOGS, *GROUPED, *(fmt for some in OTHERS.values() for fmt in some))]
    shown = [fmt for fmt in shown if ("help", fmt, "wa", "") in found]
    energies = {fmt: energy(fmt) for fmt in shown}
    lines = [text(WIDTH / 2, 22, "KL divergence from the stored network, both sides rounded", CENTERED)]
    panels = (((4, 12), (4, 6, 8, 10, 12), bits_of, "bits per value, with scales"),
              ((0, 120), (0, 30, 60, 90, 120), energies.__getitem__, ENERGY))  # fmt: skip
    for left, (limits, ticks, place, words) in zip((64, 424), panels, strict=True):
        axes = Axes(left, left + 290, 44, HEIGHT - 60, x=limits, y=(-2.6, 1))
        lines += axes.ticks({i: f"{10.0**i:g}" for i in range(-2, 2)}, {x: f"{x}" for x in ticks})
        lines.append(text(left + 145, HEIGHT - 14, words, CENTERED))
        for fmt in shown:
            mark = MARKS[family(fmt)]
            x, y = axes.place(place(fmt), math.log10(found["help", fmt, "wa", ""]["kl"]))
            lines.append(f'<path d="{outline(mark, x, y, 4.5)}" fill="{mark.color}"><title>{fmt}</title></path>')
    for i, (name, mark) in enumerate(MARKS.items()):
        lines.append(f'<path d="{outline(mark, WIDTH - 64, 60 + 24 * i, 4.5)}" fill="{mark.color}"/>')
        lines.append(text(WIDTH - 52, 64 + 24 * i, name))
    return picture(WIDTH, HEIGHT, "KL divergence of SmolLM2 against bits and energy of log numbers and others", lines)


def family(fmt: str) -> str:
    """Return the family of a format in the legend."""
    return next(name for name in MARKS if fmt.startswith(name))


def bits_of(fmt: str) -> float:
    """Return the bits per value of a row of 576 values, the width of the network."""
    return 8 * hc.quantize(np.ones((64, 576), np.float32), fmt).nbytes / (64 * 576)


def energy(fmt: str) -> float:
    """Return the fJ of a multiply-add of two values of a format."""
    return 1000 * hw.mac(fmt, fmt, process=PROCESS).energy_pj


def converting(fmt: str, conversion: str) -> float:
    """Return the fJ of a conversion to a linear number: a table of 2^n entries and a shift."""
    head, gamma, group = fmt.split("-")
    entries = {"exact": int(gamma), "mitchell": 1}.get(conversion) or 2 ** int(conversion.removeprefix("hybrid:"))
    one = f"{head}-{entries}-{group}"
    return 1000 * hw.mac(one, one, process=PROCESS).energy["log to linear"]


def fill_page(found: Mapping[Label, Row]) -> None:
    """Write the tables of the page."""
    stored = {name: found[name, "stored", "", ""]["perplexity"] for name in texts()}
    lines = []
    for bits in (4, 5, 6, 7, 8):
        some = [*(f for f in LOGS if f.startswith(f"log{bits}")), *OTHERS.get(bits, ())]
        for fmt in some:
            sides = [found["help", fmt, side, ""] for side in SIDES]
            cells = [f"{row['perplexity']:.2f}" for row in sides]
            both = sides[-1]
            lines.append((f"`{fmt}`", f"{bits_of(fmt):.2f}", *cells, f"{both['kl']:.4f}",
                          f"{both['perplexity'] / stored['help'] - 1:+.1%}".replace("%", " %"),
                          f"{energy(fmt):.1f}"))  # fmt: skip
    heads = ("format", "bits", "weights", "activations", "both", "KL, both", "change, both", "fJ")
    fill(PAGE, "formats", table(heads, lines))
    lines = []
    for bits, gamma in BEST.items():
        cells = [f"`log{bits}-{gamma}`"]
        for group in (8, 32, 128):
            row = found.get(("help", f"log{bits}-{gamma}-g{group}", "wa", ""))
            cells.append("" if row is None else f"{row['perplexity']:.2f}, {row['kl']:.4f}")
        lines.append(cells)
    fill(PAGE, "groups", table(("format", "groups of 8", "32", "128"), lines))
    lines = []
    for fmt, conversions in CONVERTED.items():
        for one in ("none", *conversions):
            row = found["help", fmt, "wa", one]
            cost = "" if one == "none" else f"{converting(fmt, one):.1f}"
            lines.append((f"`{fmt}`", one, f"{row['perplexity']:.2f}", f"{row['kl']:.4f}", cost))
    fill(PAGE, "conversions", table(("format", "conversion", "perplexity", "KL", "fJ of the conversion"), lines))
    lines = []
    for fmt in CHECKED:
        sides = [found["licence", fmt, side, ""] for side in SIDES]
        lines.append((f"`{fmt}`", *(f"{row['perplexity']:.2f}" for row in sides), f"{sides[-1]['kl']:.4f}"))
    fill(PAGE, "licence", table(("format", "weights", "activations", "both", "KL, both"), lines))
    (DOCS / "formats" / "log-llm.svg").write_text(drawn(found), encoding="utf-8")


def main() -> None:
    """Measure or draw."""
    parser = options(__doc__)
    parser.add_argument("--model", type=Path, help="file of SmolLM2-135M-Instruct")
    parser.add_argument("--part", default="all", help="help, licence or conversions: processes that run in parallel")
    arguments = parser.parse_args()
    if arguments.model is not None:
        measure(arguments.model, arguments.part)
        return
    fill_page({(row["text"], row["format"], row["side"], row["conversion"]): numbers(row) for row in rows()})


def numbers(row: Mapping[str, str]) -> Row:
    """Return the numbers of a measurement."""
    return {key: float(row[key]) for key in HEADS[4:]}


if __name__ == "__main__":
    main()
