"""The command line: parse, call one function, show what it returned.

Exit codes: 0, 1 (failed), 2 (usage), 130 (interrupted). Errors are one line on stderr. Long work runs on a second
thread, so that Ctrl-C is seen at once, also inside a long call of the core.
"""

from __future__ import annotations

import argparse
import contextlib
import contextvars
import errno
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from . import cli_hardware, cli_map
from .formats import Format
from .formats import format as parse_format
from .safetensors_file import printable, remove_temporaries

Columns = Sequence[tuple[str, str, Callable[[Any], str]]]  # key of a row, heading, how a value is written
Result = TypeVar("Result")


class UsageError(Exception):
    """Wrong arguments: exit code 2."""


class _Parser(argparse.ArgumentParser):
    def __init__(self, *args: Any, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        options.setdefault("allow_abbrev", False)
        super().__init__(*args, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {_one_line(message)} (see --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; by default those of the process.

    Returns
    -------
    int
        0, 1 (failed), 2 (usage), 130 (interrupted); where argparse finds the fault, or shows help, it raises
        SystemExit with 2 or 0. An interrupt during long work ends the whole process with 130.

    Examples
    --------
    >>> main(["quantize", "model.safetensors", "model.safetensors", "--format", "int8"])
    2
    """
    for stream in (sys.stdout, sys.stderr):  # a tensor's name must not fail on a narrow encoding
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    parser = _parser()
    arguments = parser.parse_args(argv)
    command = f"heterocompute {arguments.command}"
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except UsageError as error:
        print(f"{command}: {_one_line(str(error))} (see --help)", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has seen enough
        with contextlib.suppress(OSError, ValueError):  # or the exit would flush into it once more
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        place = f"{printable(os.fsdecode(error.filename))}: " if error.filename else ""
        print(f"{command}: {place}{error.strerror or error}", file=sys.stderr)
    except (ValueError, TypeError, RuntimeError, NotImplementedError, MemoryError, ImportError) as error:
        print(f"{command}: {_one_line(str(error)) or type(error).__name__}", file=sys.stderr)
    return 1


def _one_line(message: str) -> str:
    return " ".join(printable(line.strip()) for line in message.splitlines() if line.strip())


def _interruptible(work: Callable[[], Result]) -> Result:
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
        _Progress.stop_all()
        remove_temporaries()
        print("interrupted", file=sys.stderr, flush=True)
        os._exit(130)  # the worker may be in a call that takes long
    if failure:
        raise failure[0]
    return answer[0]


# What each subcommand does.


def _study(arguments: argparse.Namespace) -> int:
    from .checkpoint import is_same_file

    model = arguments.model
    for path in filter(None, (arguments.csv, arguments.html)):
        _check_output(path, model)
    if arguments.csv and arguments.html and is_same_file(arguments.csv, arguments.html):
        raise UsageError("--csv and --html name one file")
    formats: list[Any] | None = arguments.formats
    if arguments.recipe is not None:
        formats = [*(formats or []), _recipe(arguments.recipe)]
    with _Progress("study", model or "digits") as progress:

        def work() -> Any:
            from .study import study

            if model is None:
                from .zoo import digits
            return study(
                digits() if model is None else model,
                formats,
                include=arguments.include or None,
                exclude=arguments.exclude or None,
                activations=arguments.activations,
                progress=progress.update,
                device=arguments.device,
                emulate=arguments.emulate,
            )

        try:
            result = _interruptible(work)
        except ValueError as error:
            place = f"{printable(model)}: " if model else ""
            raise ValueError(str(error) if str(error).startswith(place) else f"{place}{error}") from None
    if arguments.csv:
        result.to_csv(arguments.csv)
    if arguments.html:
        result.to_html(arguments.html, title=f"Number formats of {os.path.basename(model) if model else 'digits'}")
    if arguments.json:
        return _print_json(result.to_dict())
    result.show(_console())
    return 0


def _check_output(path: str, model: str | None) -> None:
    """Find out before the work that its result could not be written."""
    from .checkpoint import is_same_file

    if model is not None and is_same_file(path, model):
        raise UsageError(f"{path} is the model itself")
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _quantize(arguments: argparse.Namespace) -> int:
    if arguments.format is None and arguments.recipe is None:
        raise UsageError("--format or --recipe is needed")
    return _rewrite(arguments, "quantize", arguments.format)


def _prune(arguments: argparse.Namespace) -> int:
    if arguments.pattern is None and arguments.recipe is None:
        raise UsageError("--pattern or --recipe is needed")
    return _rewrite(arguments, "prune", arguments.pattern)


def _rewrite(arguments: argparse.Namespace, verb: str, fmt: Format | None) -> int:
    from .checkpoint import is_same_file, quantize_checkpoint

    if is_same_file(arguments.input, arguments.output):
        raise UsageError(f"OUT is IN: {arguments.output}")
    recipe = _recipe(arguments.recipe)
    with _Progress(verb, arguments.input) as progress:
        summary = _interruptible(
            lambda: quantize_checkpoint(
                arguments.input,
                arguments.output,
                fmt,
                include=arguments.include,
                exclude=arguments.exclude,
                recipe=recipe,
                progress=progress.update,
            )
        )
    if arguments.json:
        return _print_json(summary)
    n_changed = sum(row["format"] is not None for row in summary["tensors"])
    before, after = summary["bytes_before"], summary["bytes"]
    print(
        f"{printable(arguments.output)}: {n_changed} tensors {verb}d, {len(summary['tensors']) - n_changed} "
        f"copied, {_bytes(before)} -> {_bytes(after)}" + (f" ({after / before:.1%})" if before else "")
    )
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    from .checkpoint import inspect

    with _Progress("inspect", arguments.file) as progress:
        rows = _interruptible(lambda: inspect(arguments.file, progress=progress.update))
    if arguments.json:
        return _print_json({"tensors": rows})
    columns: Columns = [
        ("name", "tensor", str),
        ("dtype", "dtype", str),
        ("shape", "shape", lambda shape: " x ".join(map(str, shape)) or "()"),
        ("format", "format", lambda text: text or "-"),
        ("bytes", "bytes", "{:,}".format),
        ("min", "min", _number),
        ("max", "max", _number),
        ("nan", "NaN", str),
    ]
    _print_table(columns, rows)
    print(f"{len(rows)} tensors, {_bytes(sum(row['bytes'] for row in rows))}")
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from . import bench

    unknown = [name for name in arguments.names if name not in bench.NAMES]
    if unknown:
        raise UsageError(f"unknown benchmark {unknown[0]!r}, there are {', '.join(bench.NAMES)}")
    options = {"json": arguments.json, "quick": arguments.quick, "threads": arguments.threads}
    return _interruptible(lambda: int(bench.main(arguments.names, **options)))


def _info(arguments: argparse.Namespace) -> int:
    from .runtime import show_config

    if arguments.json:
        return _print_json(show_config(mode="dicts"))
    show_config()
    return 0


# Arguments.


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="heterocompute",
        description="Number formats for neural networks: study them, quantize checkpoints, look inside.",
        epilog="example:\n  heterocompute study model.safetensors --formats int8,vsq4-g16-s4",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str, *examples: str) -> _Parser:
        lines = "".join(f"\n  heterocompute {example}" for example in examples)
        added: _Parser = commands.add_parser(name, help=text, description=text, epilog=f"example:{lines}")
        added.set_defaults(run=run)
        added.add_argument("--json", action="store_true", help="print one JSON object on stdout, nothing else")
        return added

    study = command(
        "study",
        _study,
        "Compare number formats on the tensors of a model: bits, error, time and, where it can be measured, accuracy.",
        "study",
        "study model.safetensors --formats int8,int4-g32-f16,vsq4-g16-s4 --html report.html",
    )
    study.add_argument("model", metavar="MODEL", nargs="?", help="safetensors file; default: the network shipped here")
    study.add_argument("--formats", type=_format_list, metavar="A,B", help="formats to compare; fp32 is added")
    study.add_argument(
        "--activations", type=_format_list, metavar="A,B", help="formats of the other operand; 'none' is added"
    )
    _add_patterns(study)
    study.add_argument("--device", metavar="D", help="add modelled time and energy on a chip, or 'mac': in silicon")
    study.add_argument(
        "--emulate", type=_emulation_list, metavar="A,B", help="accumulators or instructions, and what they cost"
    )
    study.add_argument("--csv", metavar="PATH", help="also write the table as CSV")
    study.add_argument("--html", metavar="PATH", help="also write one page with table, figures and histograms")

    quantize = command(
        "quantize",
        _quantize,
        "Quantize a safetensors checkpoint, one tensor in memory at a time.",
        "quantize model.safetensors small.safetensors --format vsq4-g16-s4 --exclude '*embeddings*'",
    )
    quantize.add_argument("input", metavar="IN", help="safetensors file")
    quantize.add_argument("output", metavar="OUT", help="file to write; an existing one is replaced")
    quantize.add_argument("--format", type=_one_format, metavar="F", help="format of every selected tensor")
    _add_patterns(quantize)

    prune = command(
        "prune",
        _prune,
        "Prune a safetensors checkpoint to N:M, one tensor in memory at a time.",
        "prune model.safetensors sparse.safetensors --pattern 2:4 --exclude '*embeddings*'",
    )
    prune.add_argument("input", metavar="IN", help="safetensors file")
    prune.add_argument("output", metavar="OUT", help="file to write; an existing one is replaced")
    prune.add_argument("--pattern", type=_one_pattern, metavar="N:M", help="pattern of every selected tensor")
    _add_patterns(prune)

    inspect = command(
        "inspect",
        _inspect,
        "List the tensors of a safetensors file: formats, bytes, ranges, NaN.",
        "inspect model.safetensors",
    )
    inspect.add_argument("file", metavar="FILE", help="safetensors file")

    bench = command(
        "bench",
        _bench,
        "Measure the kernels on this machine against OpenBLAS and the peers that are installed.",
        "bench gemm gemv --quick",
    )
    bench.add_argument("names", metavar="NAMES", nargs="*", help="benchmarks to run; all by default")
    bench.add_argument("--quick", action="store_true", help="small sizes and few repetitions")
    bench.add_argument("--threads", type=_positive, metavar="N", help="threads of every candidate")

    cli_hardware.add_commands(command)
    cli_map.register(command)
    command("info", _info, "Show instruction sets, BLAS, threads and build.", "info")
    return parser


def _add_patterns(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--include", action="append", default=[], metavar="PATTERN", help="only tensors that fit; repeatable"
    )
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="PATTERN", help="leave these tensors out; repeatable"
    )
    parser.add_argument(
        "--recipe", metavar="FILE", help='TOML: [formats] "glob" = "format" or "skip", the first match wins'
    )


def _one_format(text: str) -> Format:
    try:
        return parse_format(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _one_pattern(text: str) -> Format:
    from .formats import Sparse

    fmt = _one_format(text)
    if not isinstance(fmt, Sparse) or not fmt.is_plain:
        raise argparse.ArgumentTypeError(f"{text!r} is no pattern, wanted N:M such as 2:4")
    return fmt


def _format_list(text: str) -> list[Any]:
    plain = ("none", "fp32")
    parts = [part.strip() for part in text.split(",")]
    return [part if part in plain else _one_format(part) for part in parts]


def _emulation_list(text: str) -> list[str | None]:
    from .emulate import parse

    texts = [None if part.strip() == "none" else part.strip() for part in text.split(",")]
    try:
        for part in texts:
            if part is not None:
                parse(part)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return texts


def _positive(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**16:
        raise argparse.ArgumentTypeError(f"{text!r}, wanted a positive number")
    return int(text)


def _recipe(path: str | None) -> dict[str, Format | None] | None:
    from .checkpoint import parse_recipe, read_recipe

    if path is None:
        return None
    texts = read_recipe(path)
    try:
        return parse_recipe(texts)
    except ValueError as error:
        raise UsageError(f"{printable(path)}: {error}") from None


# Output.


def _print_json(found: Any) -> int:
    print(json.dumps(_plain(found), allow_nan=False))
    return 0


def _plain(value: Any) -> Any:
    """Return the value with null for NaN and infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_table(columns: Columns, rows: Iterable[dict[str, Any]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for place, (_, heading, _) in enumerate(columns):
        table.add_column(heading, justify="right" if place else "left", overflow="fold")
    for row in rows:  # Text: a name is no markup
        table.add_row(*(Text(printable(write(row[key]))) for key, _, write in columns))
    _console().print(table)


def _console() -> Any:
    from rich.console import Console

    # Without a terminal nobody needs lines to be folded.
    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 10_000)


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.4g} {unit}"
        size /= 1000
    return f"{size:.4g} TB"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


class _Progress:
    """A bar on a terminal; elsewhere a plain line now and then. Everything on stderr."""

    _active: list[_Progress] = []

    def __init__(self, verb: str, path: str) -> None:
        self._title = f"{verb} {printable(os.path.basename(path))}"
        self._bar: Any = None
        self._last = -math.inf

    def __enter__(self) -> _Progress:
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
