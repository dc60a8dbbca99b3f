"""`heterocompute completion`: scripts with which a shell completes commands, options and files. Needs the extra."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from .options import Parser
from .parts import print_line

SHELLS = ("bash", "zsh")
FILES = ("FILE", "IN", "OUT", "MODEL", "PATH")  # metavars of arguments that name files


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    text = "Print a script for the shell that completes commands, options and files."
    added = command("completion", run, text, "completion bash")
    added.add_argument("shell", choices=SHELLS, metavar="SHELL", help=" or ".join(SHELLS))


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    try:
        import shtab  # optional
    except ImportError:
        raise ImportError("completion needs shtab: pip install 'heterocompute[completion]'") from None
    for action in _actions(arguments.whole):
        if action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print_line(shtab.complete(arguments.whole, shell=arguments.shell).rstrip())
    return 0


def _actions(parser: Parser) -> Iterator[argparse.Action]:
    parser.fill()
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in dict.fromkeys(action.choices.values()):
                yield from _actions(inner)
