"""What the subcommands share: usage errors, texts of formats, output as JSON, the bar, work that Ctrl-C stops."""

from __future__ import annotations

import argparse
import contextvars
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from .formats import Format
from .formats import format as parse_format
from .safetensors_file import printable, remove_temporaries

Result = TypeVar("Result")


class UsageError(Exception):
    """Wrong arguments: exit code 2."""


def one_line(message: str) -> str:
    """Return a message without its line ends and control characters."""
    return " ".join(printable(line.strip()) for line in message.splitlines() if line.strip())


def interruptible(work: Callable[[], Result]) -> Result:
    """Run on another thread: the main thread sees Ctrl-C at once and ends the process, files cleaned up."""
    answer: list[Result] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            answer.append(work())
        except BaseException as error:
            failure.append(error)

    worker = threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True)
    try:
        worker.start()
        while worker.is_alive():
            worker.join(0.2)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        ProgressBar.stop_all()
        remove_temporaries()
        print("interrupted", file=sys.stderr, flush=True)
        os._exit(130)  # the worker may be in a call that takes long
    if failure:
        raise failure[0]
    return answer[0]


# Arguments.


def add_patterns(parser: argparse.ArgumentParser) -> None:
    """Add --include, --exclude and --recipe."""
    parser.add_argument(
        "--include", action="append", default=[], metavar="PATTERN", help="only tensors that fit; repeatable"
    )
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="PATTERN", help="leave these tensors out; repeatable"
    )
    parser.add_argument(
        "--recipe", metavar="FILE", help='TOML: [formats] "glob" = "format" or "skip", the first match wins'
    )


def one_format(text: str) -> Format:
    """Return the format of an argument."""
    try:
        return parse_format(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def format_list(text: str) -> list[Any]:
    """Return the formats of an argument with commas."""
    plain = ("none", "fp32")
    parts = [part.strip() for part in text.split(",")]
    return [part if part in plain else one_format(part) for part in parts]


def recipe_of(path: str | None, parse: Callable[[str], Any] = parse_format) -> dict[str, Any] | None:
    """Return what --recipe says; `parse` turns a text into a format, or what else may stand there."""
    from .recipes import parse_recipe, read_recipe

    if path is None:
        return None
    texts = read_recipe(path)
    try:
        return parse_recipe(texts, parse)
    except ValueError as error:
        raise UsageError(f"{printable(path)}: {error}") from None


# Output.


def print_json(found: Any) -> int:
    """Print one object, and return the exit code."""
    print(json.dumps(plain_json(found), allow_nan=False))
    return 0


def plain_json(value: Any) -> Any:
    """Return the value with null for NaN and infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def console() -> Any:
    """Return what tables are printed on."""
    from rich.console import Console

    # Without a terminal nobody needs lines to be folded.
    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 10_000)


class ProgressBar:
    """A bar on a terminal; elsewhere a plain line now and then. Everything on stderr."""

    _active: list[ProgressBar] = []

    def __init__(self, verb: str, path: str) -> None:
        self._title = f"{verb} {printable(os.path.basename(path))}"
        self._bar: Any = None
        self._last = -math.inf

    def __enter__(self) -> ProgressBar:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[tensor]}", markup=False),
                console=Console(file=sys.stderr),
                transient=True,
            )
            self._task = self._bar.add_task(self._title, total=1, tensor="")
            self._bar.start()
        self._active.append(self)
        return self

    def update(self, done: int, total: int, name: str) -> None:
        name = printable(name)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=max(total, 1), tensor=name)
        elif time.monotonic() - self._last > 1 or done >= total:
            self._last = time.monotonic()
            print(f"{self._title}: {done / total if total else 1:4.0%} {name}".rstrip(), file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._active.remove(self)

    @classmethod
    def stop_all(cls) -> None:
        for progress in list(cls._active):
            progress.__exit__()
