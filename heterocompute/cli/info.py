"""`heterocompute info`: the properties of this machine and of this build."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..base.magic import KINDS
from ..base.runtime import show_config
from ..report.table import width_of
from .parts import print_json, print_line


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    command(
        "info", run, "Show the instruction sets, BLAS, threads, build, and the file types that can be read.", "info"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    found = {**(show_config(mode="dicts") or {}), "files": [kind.brief for kind in KINDS if kind.brief]}
    if arguments.json:
        return print_json(found)
    width = width_of(sys.stdout)
    for name, value in found.items():
        if name == "kernels" and isinstance(value, list):  # some 400 names
            counts = Counter(kernel.rpartition("_")[2] for kernel in value)
            value = [f"{count} {isa}," for isa, count in counts.most_common()] + ["listed by --json"]
        words = ", ".join(value) if name == "files" else " ".join(value) if isinstance(value, list) else value
        options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
        print_line("\n".join(textwrap.wrap(f"{name:10s} {words}", width, subsequent_indent=" " * 11, **options)))
    return 0
