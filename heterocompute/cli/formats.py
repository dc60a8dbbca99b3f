"""`heterocompute formats`: every family with its names and its components."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.errors import shown
from ..formats import Format, Sparse, format as parse_format, formats, has_pattern, unrotated
from ..products.quantize import quantize
from ..report.table import Column
from .parts import UsageError, print_json, print_line, print_table, print_words

TEN = ("int8", "int4-g32-f16", "vsq4-g16-s4", "bf16", "fp8_e4m3fn-row", "mxfp4", "nvfp4", "nf4-g64", "cb4", "int8+2:4")
GRAMMAR = (
    "A format is a name with its bits, and suffixes in this order: -gN one scale per N values, -sN scales of N bits "
    "(vsq), -asym zero points, -f16 or -bf16 the type of scales, -row or -tensor one scale for a row or the array, "
    "+N:M pruned to N of every M. Any other element and scale is a sentence, such as e3m4-g32-e8m0: "
    "docs/formats/own.md."
)
ROWS, LENGTH = 64, 4096  # of the array in which bits are counted
PATTERNS = {"pattern": "N of every M values, alone or with a format of the kept ones: 1 <= N <= M <= 32"}


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    text = "List the number formats: format strings by family, stored bits per value and what they are used for."
    parser = command("formats", run, text, "formats", "formats vsq", "formats e3m4-g32-e8m0")
    words = "only this family, such as vsq, or a format string such as e3m4-g32-e8m0"
    parser.add_argument("family", metavar="FAMILY", nargs="?", help=words)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    families = {**formats(), **PATTERNS}
    examples = {cls.family: cls.examples for cls in Format.families()} | {"pattern": Sparse.examples}
    if arguments.family is not None:
        family = arguments.family
        if family not in families:
            family, fmt = _asked(family, families)
            examples[family] = (str(fmt),)
        families = {family: families[family]}
    rows = [_row(family, text) for family in families for text in examples[family]]
    if arguments.json:
        return print_json({"families": families, "formats": rows})
    if arguments.family is None:
        return _overview(families)
    columns = [
        Column("text", "text"),
        Column("bits", "bits", "{:.3f}".format),
        Column("stored", "of which", _parts, leaves=1, left=True),
    ]
    for family, words in families.items():
        print_words(f"{family}: {words}")
        print_table(columns, [row for row in rows if row["family"] == family])
        print_line("")
    print_words(
        f"Stored bits per value of {ROWS} rows of {LENGTH}. Other bits, groups and suffixes go as well, in this order; "
        "definitions: docs/formats.md."
    )
    return 0


def _asked(text: str, families: dict[str, str]) -> tuple[str, Format]:
    """Return the family and the format of a format string."""
    try:
        fmt = parse_format(text)
    except ValueError:
        raise UsageError(
            f"there is no family {shown(text)}, expected one of {', '.join(families)}, or a format string"
        ) from None
    return "pattern" if has_pattern(fmt) else unrotated(fmt).family, fmt


def _overview(families: dict[str, str]) -> int:
    """Print ten formats, the grammar, and a line for each family."""
    of_text = {text: cls.family for cls in Format.families() for text in cls.examples}
    columns = [
        Column("text", "text"),
        Column("bits", "bits", "{:.3f}".format),
        Column("stored", "of which", _parts, leaves=1, left=True),
    ]
    print_table(columns, [_row(of_text.get(text, ""), text) for text in TEN])
    print_line("")
    print_words(GRAMMAR)
    print_line("")
    print_table(
        [Column("family", "family"), Column("words", "what it is", leaves=1, left=True)],
        [{"family": family, "words": words} for family, words in families.items()],
    )
    print_words(
        f"Stored bits per value of {ROWS} rows of {LENGTH}. `heterocompute formats FAMILY` lists the strings of a "
        "family, --json all; definitions: docs/formats.md."
    )
    return 0


def _row(family: str, text: str) -> dict[str, Any]:
    q = quantize(np.zeros((ROWS, LENGTH), np.float32), text)
    parts = {name: part.nbytes * 8 / q.size for name, part in q.components.items()}
    return {"family": family, "text": text, "bits": q.bits_per_value, "stored": parts}


def _parts(stored: dict[str, float]) -> str:
    return ", ".join(f"{name} {bits:.3g}" for name, bits in stored.items())
