"""Measure log numbers in a language model, and draw docs/formats/log-llm.svg and the tables of docs/formats/log-llm.md.

    python docs/figures/log_llm.py --model SmolLM2-135M-Instruct.Q4_1.gguf    measures what the file lacks
    python docs/figures/log_llm.py                                            draws the measurements

The measurements are docs/measurements/log-llm.csv: perplexity and KL divergence of weights, of activations and of both
in one format, on two texts: Python's help texts, and Python's licence. Activations have the same groups as weights.
"""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from runner import DOCS, Axes, fill, options, table, text

import heterocompute as hc
from heterocompute import hardware as hw
from heterocompute.report.chart import outline, picture
from heterocompute.report.palette import SERIES

FILE = DOCS / "measurements" / "log-llm.csv"
PAGE = DOCS / "formats" / "log-llm.md"
HEADS = ("bed", "format", "side", "conversion", "bits", "perplexity", "kl", "agreement")
CHARACTERS = {"help": 900, "licence": 900}
EMULATED = 400  # characters, because emulation is slow
GAMMAS = {4: (1, 2, 4), 5: (2, 4), 6: (4, 8), 7: (8, 16), 8: (8, 16, 32)}
BEST = {4: 2, 5: 4, 6: 8, 7: 8, 8: 16}
OTHERS = {4: ("int4-g32", "mxfp4", "vsq4-g16-s4"), 6: ("int6-g32", "mxfp6_e2m3"),
          8: ("int8-g32", "int8", "fp8_e4m3fn-row", "mxfp8_e4m3", "vsq8-g16-s8")}  # fmt: skip
CONVERTED = ("log8-8-g32", "log4-2-g32")
CONVERSIONS = ("exact", "hybrid:1", "mitchell")
SHARING = 64  # products that share a conversion, as in LNS-Madam


def texts_of(bed: str) -> str:
    """Return the text of a bed."""
    if bed == "licence":
        path = Path(os.__file__).with_name("LICENSE.txt")
        return path.read_text(encoding="utf-8")[: CHARACTERS[bed]]
    return "\n".join(topics[key] for key in sorted(topics))[: CHARACTERS["help"]]


def wanted() -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the measurements: bed, format and conversions, the most important first."""
    logs = [f"log{bits}-{gamma}-g32" for bits, gammas in GAMMAS.items() for gamma in gammas]
    others = [fmt for some in OTHERS.values() for fmt in some]
    best = [f"log{bits}-{gamma}-g32" for bits, gamma in BEST.items()]
    found: list[tuple[str, str, tuple[str, ...]]] = [("help", fmt, ()) for fmt in (*best, *others)]
    found += [("help", fmt, CONVERSIONS) for fmt in CONVERTED]
    found += [("help", f"log{bits}-{gamma}-g{group}", ()) for bits, gamma in BEST.items() for group in (8, 128)]
    found += [("help", fmt, ()) for fmt in logs if fmt not in best]
    return found + [
        ("licence", fmt, ()) for fmt in (*best, "int4-g32", "mxfp4", "vsq4-g16-s4", "int8-g32", "mxfp8_e4m3")
    ]


def emulation(conversion: str) -> str:
    return "int24-sat" if conversion == "exact" else f"int24-sat+{conversion}"


def measure(model: Path) -> None:
    """Append the missing measurements to the file."""
    net = hc.zoo.open_llm(model)
    known = {(row["bed"], row["format"], bool(row["conversion"])) for row in rows()}
    if not FILE.exists():
        FILE.write_text(",".join(HEADS) + "\n", encoding="utf-8")
    for bed, fmt, conversions in wanted():
        if (bed, fmt, bool(conversions)) in known:
            continue
        given = texts_of(bed)[: EMULATED if conversions else None]
        emulate = [emulation(one) for one in conversions] or None
        kinds = [fmt] if conversions else [None, fmt]
        found = hc.study(net, [fmt], text=given, activations=kinds, emulate=emulate, timing=False).table
        with FILE.open("a", encoding="utf-8", newline="") as file:
            for row in found:
                side = f"{'w' * (row['format'] != 'stored')}{'a' * (row['activations'] is not None)}"
                if conversions and side != "wa":
                    continue
                conversion = row.get("emulate") or ("none" if conversions else "")
                conversion = conversion if conversion in ("", "none") else conversion.partition("+")[2] or "exact"
                numbers = (f"{row[key]:.5g}" for key in HEADS[4:])
                csv.writer(file, lineterminator="\n").writerow([bed, fmt, side or "stored", conversion, *numbers])
        print(bed, fmt, *conversions, flush=True)


def rows() -> list[dict[str, Any]]:
    """Return the measurements as stored."""
    if not FILE.exists():
        return []
    with FILE.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def main() -> None:
    """Measure or draw."""
    parser = options(__doc__)
    parser.add_argument("--model", type=Path, help="file of SmolLM2-135M-Instruct")
    arguments = parser.parse_args()
    if arguments.model is not None:
        measure(arguments.model)


if __name__ == "__main__":
    main()
