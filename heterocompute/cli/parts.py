"""Shared code of the subcommands: usage errors, format strings, output, the progress bar, work that Ctrl-C stops.

Printed text may contain names from untrusted files, and streams may be closed or full. So only `say`, `note`,
`say_words` and `print_table` write to the terminal.
"""

from __future__ import annotations

import argparse
import contextlib
import contextvars
import errno
import functools
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from ..arrays.components import bits_of_long_rows
from ..base.errors import printable, shown
from ..base.runtime import MAX_THREADS
from ..base.texts import counted, one_line, quoted, shortened
from ..base.writer import remove_temporaries
from ..formats import format as parse_format
from ..report import table
from ..report.table import Column, fitting
from .options import REPEATED, Options

Result = TypeVar("Result")


STDOUT = "standard output"
SHORT = 1.25  # a tensor is named if it needs this many times the bits per value of long rows
MORE = ("--json",)  # options that show the columns that a narrow terminal omits


class UsageError(Exception):
    """Wrong arguments: exit code 2."""


def interruptible(work: Callable[[], Result]) -> Result:
    """Run on another thread, so that Ctrl-C reaches the main thread at once; it removes files and ends the process."""
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
        note("interrupted")
        os._exit(130)  # the worker may be in a long call
    if failure:
        raise failure[0]
    return answer[0]


@contextlib.contextmanager
def tidy() -> Iterator[None]:
    """Inside the ``with`` block, a terminated process removes its unfinished files before it ends."""

    def end(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        remove_temporaries()
        os.kill(os.getpid(), number)

    ends = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    watched = [number for number in ends if signal.getsignal(number) is signal.SIG_DFL]  # nohup leaves them ignored
    if threading.current_thread() is not threading.main_thread():
        watched = []
    for number in watched:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in watched:
            signal.signal(number, signal.SIG_DFL)


# Arguments.


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add --include and --exclude."""
    Options(parser).common("--include", "--exclude", **REPEATED)


def add_patterns(parser: argparse.ArgumentParser) -> None:
    """Add --include, --exclude and --recipe."""
    add_selection(parser)
    Options(parser)("--recipe", "FILE", 'TOML: [formats] "glob" = "format" or "skip"; the first match counts')


def add_axis(parser: argparse.ArgumentParser) -> None:
    """Add --axis."""
    Options(parser)("--axis", "A", "reduction axes of all selected tensors, such as -1 or 2,3,1", type=_axes)


def _axes(text: str) -> tuple[int, ...]:
    """Return the axes of an argument such as 2,3,1."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{shown(text[:40])}, expected integers such as -1 or 2,3,1") from None


def add_format(parser: argparse.ArgumentParser, words: str, parse: Callable[[str], Any] = parse_format) -> None:
    """Add --format with one format. --formats is an alias, because some commands accept several formats."""
    one = functools.partial(one_format, parse=parse)
    parser.add_argument("--format", "--formats", dest="format", type=one, metavar="F", help=words)


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Add --threads."""
    parser.add_argument("--threads", type=thread_count, metavar="N", help="threads to use; default: all processors")


def thread_count(text: str) -> int:
    """Return the number of threads of an argument."""
    if not text.isdecimal() or not 0 < int(text[:9]) <= MAX_THREADS:
        raise argparse.ArgumentTypeError(f"{shown(text[:40])}, expected a number from 1 to {MAX_THREADS}")
    return int(text)


def one_format(text: str, parse: Callable[[str], Any] = parse_format) -> Any:
    """Return the format of an argument; `parse` is that of `recipe_of`."""
    if len(texts_of(text)) > 1:
        raise argparse.ArgumentTypeError(f"{shown(text[:64])} are several, expected one format")
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def format_list(text: str) -> list[Any]:
    """Return the formats of a comma-separated argument."""
    plain = ("none", "fp32")
    return [part if part in plain else one_format(part) for part in texts_of(text)]


def texts_of(text: str) -> list[str]:
    """Split at the commas between formats, not at those in a definition, which is JSON.

    Examples
    --------
    >>> from heterocompute.cli.parts import texts_of
    >>> texts_of('int8, {"format": "mine", "definition": {}}')
    ['int8', '{"format": "mine", "definition": {}}']
    """
    parts = [""]
    for piece in text.split(","):
        if parts[-1].count("{") > parts[-1].count("}"):
            parts[-1] += "," + piece
        else:
            parts.append(piece)
    return [part.strip() for part in parts[1:]]


def recipe_of(path: str | None, parse: Callable[[str], Any] = parse_format) -> dict[str, Any] | None:
    """Return the recipe of --recipe; `parse` converts each value, usually to a format."""
    from ..files.recipes import parse_recipe, read_recipe  # 18 ms

    if path is None:
        return None
    texts = read_recipe(path)
    try:
        return parse_recipe(texts, parse)
    except ValueError as error:
        raise UsageError(f"{printable(path)}: {error}") from None


# Output.


def open_streams() -> bool:
    """Give every standard stream that is closed a place, so that no file of ours takes its number, and an encoding.

    In the locale C Python writes UTF-8, which who asks for that locale cannot read.

    Returns
    -------
    bool
        Whether standard output was closed; what is printed then is lost.
    """
    is_closed = sys.stdout is None
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while (place := os.open(os.devnull, os.O_RDWR)) <= 2:  # the lowest free number
            pass
        os.close(place)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if is_closed:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    said = (os.environ.get(name) for name in ("PYTHONIOENCODING", "LC_ALL", "LC_CTYPE", "LANG"))
    encoding = (
        "ascii" if next(filter(None, said), None) in ("C", "POSIX") and not os.environ.get("PYTHONUTF8") else None
    )
    for stream in (sys.stdout, sys.stderr):  # names of tensors must not fail in a narrow encoding
        with contextlib.suppress(AttributeError):
            stream.reconfigure(encoding=encoding or stream.encoding, errors="backslashreplace")  # type: ignore[union-attr]
    return is_closed


def refuse_closed_output() -> NoReturn:
    """Raise OSError if a command without an output file has no standard output either."""
    raise OSError(errno.EBADF, "closed; redirect it to /dev/null to show nothing", STDOUT)


def silence(stream: Any) -> None:
    """Redirect a closed stream to the null device; otherwise flushing it at exit fails again."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def standard_output() -> Iterator[None]:
    """Add the name of standard output to errors of printing, in which the system leaves it out."""
    try:
        yield
    except OSError as error:
        silence(sys.stdout)
        raise OSError(error.errno, error.strerror, STDOUT) from None


def print_line(text: str) -> None:
    """Print lines on standard output."""
    with standard_output():
        print(fitting("\n".join(map(printable, text.split("\n"))), sys.stdout.encoding))


def note(text: str) -> None:
    """Print one line on standard error; errors of printing are ignored."""
    note_lines(one_line(text))


def note_skipped(path: str, skipped: Mapping[str, str]) -> None:
    """Print one line on standard error if tensors of a file cannot be read: their number and some names."""
    if skipped:
        some = ", ".join(f"{quoted(name)} ({what})" for name, what in list(skipped.items())[:3])
        more = ", ..." if len(skipped) > 3 else ""
        note(f"{printable(path)}: {counted(len(skipped), 'tensor')} left out: {some}{more}")


def note_instead(path: str, summary: Mapping[str, Any]) -> None:
    """Print one line on standard error if tensors got another format than requested: their number and some names."""
    instead = summary.get("instead", {})
    if instead:
        became = {row["name"]: row["format"] for row in summary["tensors"]}
        some = ", ".join(f"{quoted(name)} {became[name]}" for name in list(instead)[:3])
        more = ", ..." if len(instead) > 3 else ""
        wanted = " or ".join(sorted(set(instead.values())))
        what = f"{counted(len(instead), 'tensor')} without rows of whole blocks of {wanted}: {some}{more}"
        note(f"{printable(path)}: {what}")


def note_unloadable(arguments: argparse.Namespace) -> None:
    """Print one line on standard error, before anything is written, if no runtime can load the output."""
    name = getattr(arguments, "layout", None)
    if name is None:
        return
    from ..files.layouts.table import LAYOUTS  # 18 ms
    from ..files.opening import reader_of  # 18 ms

    if name not in LAYOUTS or not LAYOUTS[name].has_models:
        return
    with reader_of(arguments.input) as reader:
        model, reason = LAYOUTS[name].model_in(reader)
    note_tensors_alone(arguments.output, reason)
    note_otherwise(arguments.output, () if model is None else model.notes)


def note_otherwise(path: str, notes: Iterable[str]) -> None:
    """Print one line on standard error for each difference between llama.cpp and transformers."""
    for text in notes:
        note(f"{printable(path)}: {text}")


def note_tensors_alone(path: str, reason: str | None) -> None:
    """Print one line on standard error with the reason why no runtime can load a file of tensors."""
    if reason is not None:
        note(f"{printable(path)}: no runtime will load this file, which holds tensors alone: {reason}")


def note_lacking(arguments: argparse.Namespace, is_language_model: bool = False, why: str | None = None) -> None:
    """Print one line on standard error if the program of --layout needs more files than were written, and `why`."""
    from ..files.configuration import lacking  # 18 ms
    from ..files.layouts.table import tensor_layout  # 18 ms

    if tensor_layout(getattr(arguments, "layout", None)) is not None and arguments.command != "dequantize":
        missing = lacking(arguments.output, is_language_model)
        if missing is not None:
            note(f"{printable(arguments.output)}: {missing}" + ("" if why is None else f" ({why})"))


def note_plain(arguments: argparse.Namespace, summary: Mapping[str, Any]) -> None:
    """Print one line on standard error for the tensors that a layout's loaders expect plain: copied, or not."""
    from ..files.layouts.table import tensor_layout  # 18 ms
    from ..files.plain import plain_of  # 18 ms
    from ..files.roles import parts_of  # 18 ms

    layout, output = tensor_layout(getattr(arguments, "layout", None)), printable(arguments.output)
    if layout is None:
        return
    kept = summary.get("kept", {})
    if kept:
        some = ", ".join(f"{quoted(name)} ({part})" for name, part in list(kept.items())[:3])
        more = ", ..." if len(kept) > 3 else ""
        note(f"{output}: {counted(len(kept), 'tensor')} plain, as loaders of {layout.name} expect: {some}{more}; "
             "--include quantizes them")  # fmt: skip
    packed = [row["name"] for row in summary["tensors"] if row["format"] and plain_of(row["format"]) is None]
    names = [row["name"] for row in summary["tensors"]]
    for name, part in parts_of(names, layout.keeps).items():
        if name in packed:
            note(f"{output}: {quoted(name)} is quantized, but loaders of {layout.name} expect a plain {part}")
            return


def note_short(path: str, summary: Mapping[str, Any]) -> None:
    """Print one line on standard error if short rows or groups need many bits per value: number and some names."""
    found = []
    for row in summary["tensors"]:
        try:
            usual = bits_of_long_rows(parse_format(row["format"]))
        except (TypeError, ValueError):  # copied, or a type of another program
            continue
        values = math.prod(row["shape"])
        bits = 8 * row["bytes"] / values if values else 0
        if bits > SHORT * usual:
            found.append(f"{quoted(row['name'])} {bits:.1f} instead of {usual:.1f} ({row['format']})")
    if found:
        more = ", ..." if len(found) > 3 else ""
        what = f"{counted(len(found), 'tensor')} of many bits per value, because rows or groups are short"
        note(f"{printable(path)}: {what}: {', '.join(found[:3])}{more}")


def note_lines(text: str) -> None:
    """Print several lines on standard error."""
    try:
        print(fitting(text, sys.stderr.encoding), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        silence(sys.stderr)


def print_table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], more: Sequence[str] = MORE) -> None:
    """Print a table, formatted by `report.table`."""
    with standard_output():
        table.print_table(columns, rows, more=more)


def print_words(text: str) -> None:
    """Print a sentence, wrapped at the width of the terminal."""
    with standard_output():
        table.print_words(text)


def print_json(found: object) -> int:
    """Print one object, and return the exit code."""
    print_line(json.dumps(plain_json(found), allow_nan=False))
    return 0


def plain_json(value: object) -> Any:
    """Return the value with null for NaN and infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class ProgressBar:
    """A progress bar on a terminal, otherwise an occasional plain line; always on stderr."""

    _active: list[ProgressBar] = []

    def __init__(self, verb: str, path: str) -> None:
        self._title = f"{verb} {printable(shortened(os.path.basename(path)))}"
        self._bar: Any = None
        self._room = 0  # width for a tensor's name next to the bar
        self._last = -math.inf

    def __enter__(self) -> ProgressBar:
        if table.can_steer(sys.stderr):
            from rich.cells import cell_len  # 30 ms
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn  # 30 ms

            width = table.width_of(sys.stderr)
            title = shortened(self._title, max(12, width // 2))
            self._room = max(0, width - cell_len(title) - width // 4 - 17)
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=min(40, width // 4)),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[tensor]}", markup=False),
                console=table.rich_console(sys.stderr),
                transient=True,
            )
            self._task = self._bar.add_task(title, total=1, tensor="")
            self._bar.start()
        self._active.append(self)
        return self

    def update(self, done: int, total: int, name: str) -> None:
        name = printable(shortened(name))
        if self._bar is not None:
            name = shortened(name, self._room) if self._room >= 8 else ""
            self._bar.update(self._task, completed=done, total=max(total, 1), tensor=name)
        elif time.monotonic() - self._last > 1 or done >= total:
            self._last = time.monotonic()
            note(f"{self._title}: {done / total if total else 1:4.0%} {name}")

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._active.remove(self)

    @classmethod
    def stop_all(cls) -> None:
        for progress in list(cls._active):
            progress.__exit__()
