"""The command line: parse, call one function, show what it returned.

Exit codes: 0, 1 (failed), 2 (usage), 130 (interrupted). Errors are one line on stderr, those of usage below the usage
of the subcommand. Long work runs on a second thread, so that Ctrl-C is seen at once, also in a long call of the core.
"""

from __future__ import annotations

import argparse
import errno
import functools
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from .. import __version__
from ..base.interrupt import over, seen
from ..base.regular import check_regular
from ..base.runtime import show_config, use
from ..base.texts import counted, is_same_file, near_words, printable, sentence, shortened
from ..base.values import shown
from ..report.numbers import quantity
from ..report.table import Column, width_of
from . import (
    accelerators as cli_accelerators,
    completion as cli_completion,
    explore as cli_explore,
    formats as cli_formats,
    hardware as cli_hardware,
    map as cli_map,
    ptq as cli_ptq,
    search as cli_search,
    study as cli_study,
)
from .parts import (
    ProgressBar,
    UsageError,
    add_format,
    add_patterns,
    add_threads,
    interruptible,
    note,
    note_instead,
    note_lines,
    note_skipped,
    open_streams,
    print_json,
    print_table,
    recipe_of,
    refuse_closed_output,
    say,
    say_words,
    standard_output,
    thread_count,
    tidy,
)

__all__ = ["UsageError", "main"]

# What names a file to write, and one to read, in any command.
WRITTEN = {
    "csv": "--csv",
    "html": "--html",
    "plot": "--plot",
    "yaml": "--toml or --yaml",
    "output": "OUT",
    "save": "--save",
}
READ = {"input": "IN", "model": "MODEL", "file": "FILE", "files": "FILE", "recipe": "--recipe"}
READ |= {"calibration": "--calibration", "data": "--data", "labels": "--labels"}
# any other file in a folder that is read is part of the checkpoint: weights, configuration, tokenizer
REPORTS = (".csv", ".html", ".png", ".svg", ".pdf", ".toml", ".yaml")
IN_LAYOUT = "the program that has quantized it: compressed-tensors, gptq, awq or bitsandbytes"
FOLDERS = ("quantize", "prune", "dequantize", "ptq")  # whose OUT may be a folder
READ |= {"device_file": "--device-file", "study_file": "--study", "models": "MODEL"}


class _Help(argparse.HelpFormatter):
    """Breaks the lines of a description, and leaves those of the examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("example:") else super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    def __init__(self, *args: Any, **options: Any) -> None:
        options.setdefault("formatter_class", _Help)
        options.setdefault("allow_abbrev", False)
        super().__init__(*args, **options)

    def print_help(self, file: Any = None) -> None:
        say(self.format_help().rstrip())
        with standard_output():
            sys.stdout.flush()

    def error(self, message: str) -> NoReturn:
        if "invalid choice" in message or "unrecognized" in message:  # argparse quotes a word whole
            message = re.sub(r"[^\s']{81,}", lambda word: shortened(word[0], 80), message)
        self.show_error(message)
        sys.exit(2)

    def show_error(self, message: str) -> None:
        """Print the usage of this command, and below it in one line what was wrong."""
        note_lines(self.format_usage().rstrip())
        note(f"{self.prog}: {message} (see {self.prog} --help)")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and let the parser that meets an unknown option refuse it: of a subcommand, not the whole one."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [option for option in self._option_string_actions if option.startswith("--")]
            near = [near_words(word.partition("=")[0], options) for word in unknown if word.startswith("--")][:1]
            nearest = "".join(f"; the nearest is {option}" for words in near for option in words)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{nearest}")
        return found, unknown


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
    try:
        with seen(), tidy():
            return _run(argv)
    except KeyboardInterrupt:
        note("interrupted")
        return 130
    finally:
        over()


def _run(argv: Sequence[str] | None) -> int:
    command, arguments = "heterocompute", argparse.Namespace()
    given = sys.argv[1:] if argv is None else list(argv)
    try:
        is_closed = open_streams()
        parser = _parser()
        if not given:
            note_lines(f"{parser.format_help()}\nheterocompute: no COMMAND")
            return 2
        try:
            parser.parse_args(given, arguments)
        except SystemExit as end:
            if is_closed and not end.code:  # nobody sees the help
                refuse_closed_output()
            raise
        if is_closed and (getattr(arguments, "json", False) or not any(vars(arguments).get(key) for key in WRITTEN)):
            refuse_closed_output()
        command = f"heterocompute {arguments.command}"
        _check_files(arguments)
        with use(threads=getattr(arguments, "threads", None)):
            code: int = arguments.run(arguments)
        with standard_output():
            sys.stdout.flush()
        return code
    except UsageError as error:
        arguments.parser.show_error(str(error))
        return 2
    except BrokenPipeError:  # the reader of a pipe has seen enough
        pass
    except OSError as error:
        prefix = f"{printable(os.fsdecode(error.filename))}: " if error.filename else ""
        note(f"{command}: {prefix}{error.strerror or error}")
    except MemoryError as error:
        note(f"{command}: {_with_file(arguments, sentence(error))}")
    except (ValueError, TypeError, ArithmeticError, RuntimeError, NotImplementedError, ImportError) as error:
        note(f"{command}: {_without(command.split()[-1], given, sentence(error))}")
    return 1


def _without(name: str, given: Sequence[str], text: str) -> str:
    """Leave out the command's name before a sentence, unless it may be that of a file which was given."""
    return text if given.count(name) > 1 else text.removeprefix(f"{name}: ")


def _with_file(arguments: argparse.Namespace, text: str) -> str:
    """Put the file that a command reads before a sentence that does not begin with it."""
    given = (getattr(arguments, key, None) for key in ("input", "file", "model"))
    path = next((one for one in given if isinstance(one, str)), None)
    return text if path is None or text.startswith(printable(path)) else f"{path}: {text}"


def _check_files(arguments: argparse.Namespace) -> None:
    """Find out before any work that a result could not be written, or would replace what is read."""
    given = {key: path for key, path in vars(arguments).items() if key in {**READ, **WRITTEN} and path is not None}
    files = [(key, path) for key, paths in given.items() for path in (paths if isinstance(paths, list) else [paths])]
    for key, path in files:
        if isinstance(path, str) and (not path or "\0" in path):
            raise UsageError(f"{({**WRITTEN, **READ})[key]} is {shown(path)}, wanted the path of a file")
    for key, path in files:
        if key not in WRITTEN:
            continue
        if path == "-":  # it would be a file of that name
            name = WRITTEN[key]
            raise UsageError(f"{name} is '-', wanted the path of a file; --json prints on standard output")
        for other_key, other in files:
            if other_key != key and is_same_file(path, other):
                raise UsageError(f"{WRITTEN[key]} is {({**WRITTEN, **READ})[other_key]}: {printable(path)}")
            if other_key in READ and _is_part_of(path, other):
                raise UsageError(f"{WRITTEN[key]} is a file of {READ[other_key]}, which it would replace: "
                                 f"{printable(path)}")  # fmt: skip
        _check_output(path, folder=key == "output" and arguments.command in FOLDERS)


def _is_part_of(path: str, folder: Any) -> bool:
    """Tell whether a file to write is there, in a folder that is read, and no report of an earlier run."""
    if not (isinstance(folder, str) and os.path.isdir(folder) and os.path.isfile(path)) or path.endswith(REPORTS):
        return False
    return is_same_file(os.path.dirname(os.path.realpath(path)), folder)


def _check_output(path: str, folder: bool) -> None:
    if os.path.isdir(path):
        if folder:
            return  # where it is empty
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    check_regular(path)
    above = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(above):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if not os.access(above, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


# What each subcommand does.


def _quantize(arguments: argparse.Namespace) -> int:
    if arguments.format is None and arguments.recipe is None:
        raise UsageError("--format or --recipe is needed")
    from ..files.checkpoint import quantize_checkpoint  # 18 ms

    options = ("fake", "workers", "resume", "shard_size", "consume", "layout")
    rewrite = functools.partial(quantize_checkpoint, **{key: getattr(arguments, key) for key in options})
    return _rewrite(arguments, "quantized", rewrite, arguments.format, recipe_of(arguments.recipe))


def _prune(arguments: argparse.Namespace) -> int:
    if arguments.pattern is None and arguments.recipe is None:
        raise UsageError("--pattern or --recipe is needed")
    from ..files.checkpoint import prune_checkpoint  # 18 ms
    from ..files.recipes import parse_pattern_text  # 18 ms

    recipe = recipe_of(arguments.recipe, parse_pattern_text)
    return _rewrite(arguments, "pruned", prune_checkpoint, arguments.pattern, recipe)


def _rewrite(arguments: argparse.Namespace, done: str, rewrite: Callable[..., Any], change: Any, recipe: Any) -> int:
    patterns = {"include": arguments.include, "exclude": arguments.exclude, "recipe": recipe, "needed": True}
    return _summarize(arguments, done, lambda *paths, progress: rewrite(*paths, change, progress=progress, **patterns))


def _dequantize(arguments: argparse.Namespace) -> int:
    from ..files.checkpoint import dequantize_checkpoint  # 18 ms

    return _summarize(
        arguments,
        "dequantized",
        functools.partial(dequantize_checkpoint, dtype=arguments.dtype, layout=arguments.layout, needed=True),
    )


def _summarize(arguments: argparse.Namespace, done: str, rewrite: Callable[..., Any]) -> int:
    with ProgressBar(arguments.command, arguments.input) as progress:
        summary = interruptible(lambda: rewrite(arguments.input, arguments.output, progress=progress.update))
    note_skipped(arguments.input, summary["skipped"])
    note_instead(arguments.output, summary)
    if arguments.json:
        return print_json(summary)
    n_changed = sum(row["format"] is not None for row in summary["tensors"])
    before, after = summary["bytes_before"], summary["bytes"]
    say(
        f"{arguments.output}: {counted(n_changed, 'tensor')} {done}, {len(summary['tensors']) - n_changed} "
        f"copied, {quantity(before, 'B')} -> {quantity(after, 'B')}" + (f" ({after / before:.1%})" if before else "")
    )
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    from ..files.checkpoint import inspect  # 18 ms
    from ..files.layouts.table import layout_said  # 18 ms
    from ..files.opening import reader_of  # 18 ms

    with ProgressBar("inspect", arguments.file) as progress:
        rows = interruptible(lambda: inspect(arguments.file, progress.update, arguments.layout))
    with reader_of(arguments.file) as reader:
        said = layout_said(reader) if arguments.layout is None else None
    note_skipped(arguments.file, reader.skipped)
    if arguments.json:
        return print_json({"tensors": rows})
    columns = [
        Column("name", "tensor"),
        Column("dtype", "dtype", leaves=3, left=True),
        Column("shape", "shape", lambda shape: " x ".join(map(str, shape)) or "()"),
        Column("format", "format", lambda text: text or "-", left=True),
        Column("bytes", "bytes", "{:,}".format, leaves=2),
        Column("min", "min", _number, leaves=4),
        Column("max", "max", _number, leaves=4),
        Column("nan", "NaN", leaves=1),
    ]
    print_table(columns, rows)
    say(f"{counted(len(rows), 'tensor')}, {quantity(sum(row['bytes'] for row in rows), 'B')}")
    if said is not None:
        say_words(f"These tensors stand for weights in the layout {said}: --layout {said} lists them")
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from .. import bench  # 8 ms

    unknown = [name for name in arguments.names if name not in bench.NAMES]
    if unknown:
        raise UsageError(f"unknown benchmark {shown(unknown[0])}, there are {', '.join(bench.NAMES)}")
    if arguments.json and arguments.markdown:
        raise UsageError("--json and --markdown are two ways to print the same, wanted one of them")
    if arguments.costs is not None and not Path(arguments.costs).is_dir():
        raise UsageError(f"--costs {shown(arguments.costs)} is not a folder")
    options = {"json": arguments.json, "quick": arguments.quick, "threads": arguments.threads, "costs": arguments.costs}
    return interruptible(lambda: int(bench.main(arguments.names, markdown=arguments.markdown, **options)))


def _info(arguments: argparse.Namespace) -> int:
    if arguments.json:
        return print_json(show_config(mode="dicts"))
    width = width_of(sys.stdout)
    for name, value in (show_config(mode="dicts") or {}).items():
        words = " ".join(value) if isinstance(value, list) else value
        options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
        say("\n".join(textwrap.wrap(f"{name:10s} {words}", width, subsequent_indent=" " * 11, **options)))
    return 0


# Arguments.


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="heterocompute",
        description="Number formats for neural networks: study them, quantize checkpoints, look inside.",
        epilog="example:\n  heterocompute study model.safetensors --formats int8,vsq4-g16-s4",
    )
    parser.add_argument("--version", action="version", version=f"heterocompute {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str, *examples: str) -> _Parser:
        lines = "".join(f"\n  heterocompute {example}" for example in examples)
        brief = text.replace("%", "%%")  # of these three texts the first alone is a template
        added: _Parser = commands.add_parser(name, help=brief, description=text, epilog=f"example:{lines}")
        added.set_defaults(run=run, parser=added)
        added.add_argument("--json", action="store_true", help="print one JSON object on stdout, nothing else")
        return added

    cli_study.register(command)
    cli_formats.register(command)

    quantize = command(
        "quantize",
        _quantize,
        "Quantize a checkpoint, one tensor in memory at a time. What is written is safetensors.",
        "quantize model.safetensors small.safetensors --format vsq4-g16-s4 --exclude '*embeddings*'",
        "quantize model.safetensors rounded.safetensors --format int4-g32 --fake",
        "quantize folder-of-parts small-folder --format int4-g32 --workers 2 --consume",
        "quantize model-folder small-folder --format int4-g128-asym-f16 --layout gptq --exclude '*embed*'",
    )
    quantize.add_argument("input", metavar="IN", help="checkpoint: safetensors, a folder, .npz, .pt, .onnx, .gguf")
    quantize.add_argument("output", metavar="OUT", help="file to write, an existing one is replaced; or new folder")
    add_format(quantize, "format of every selected tensor")
    quantize.add_argument("--fake", action="store_true", help="write rounded values as plain tensors, not codes")
    quantize.add_argument("--layout", metavar="L", help="that of another program: compressed-tensors, gptq, awq, ...")
    add_patterns(quantize)
    quantize.add_argument(
        "--workers", type=thread_count, metavar="N", help="files that are written at once; default: 1"
    )
    quantize.add_argument(
        "--shard-size", default="5GB", type=_one_size, metavar="S", help="largest file of a folder: 5GB, 4GiB, ..."
    )
    quantize.add_argument("--consume", action="store_true", help="delete each file of the folder IN when it is done")
    quantize.add_argument(
        "--no-resume", dest="resume", action="store_false", help="make anew what an earlier run has finished"
    )
    add_threads(quantize)

    cli_ptq.register(command)
    cli_search.register(command)

    prune = command(
        "prune",
        _prune,
        "Prune a checkpoint, one tensor in memory at a time. N:M is stored packed; after P% of each row, "
        "global:P% of each tensor (not of the file) and block:RxC:P% of its blocks the tensors are as before, with "
        "zeros in them.",
        "prune model.safetensors sparse.safetensors --pattern 2:4 --exclude '*embeddings*'",
        "prune model.safetensors zeros.safetensors --pattern block:16x1:50%",
    )
    prune.add_argument("input", metavar="IN", help="checkpoint: safetensors, a folder, .npz, .pt, .onnx, .gguf")
    prune.add_argument("output", metavar="OUT", help="file to write, an existing one is replaced; or new folder")
    prune.add_argument(
        "--pattern", type=_one_pattern, metavar="PATTERN", help="of every selected tensor: 2:4, 50%%, ..."
    )
    add_patterns(prune)
    add_threads(prune)

    dequantize = command(
        "dequantize",
        _dequantize,
        "Write the packed tensors of a checkpoint as plain ones, which any framework loads.",
        "dequantize small.safetensors plain.safetensors --dtype bf16",
        "dequantize gptq-model plain-model --layout gptq --dtype bf16",
    )
    dequantize.add_argument("input", metavar="IN", help="checkpoint: safetensors, a folder, .npz, .pt, .onnx, .gguf")
    dequantize.add_argument("output", metavar="OUT", help="file to write, an existing one is replaced; or new folder")
    dequantize.add_argument(
        "--dtype", type=_one_dtype, metavar="DTYPE", help="f32, f16, bf16 or f64; by default that of before packing"
    )
    dequantize.add_argument("--layout", metavar="L", help=f"{IN_LAYOUT}; default: what its configuration says")
    add_threads(dequantize)

    inspect = command(
        "inspect",
        _inspect,
        "List the tensors of a checkpoint: formats, bytes, ranges, NaN.",
        "inspect model.safetensors",
    )
    inspect.add_argument("file", metavar="FILE", help="checkpoint: safetensors, a folder, .npz, .pt, .onnx, .gguf")
    inspect.add_argument("--layout", metavar="L", help=IN_LAYOUT)
    add_threads(inspect)

    bench = command(
        "bench",
        _bench,
        "Measure the kernels on this machine against OpenBLAS and the peers that are installed.",
        "bench gemm gemv --quick",
        "bench conv --threads 1 --markdown",
    )
    bench.add_argument("names", metavar="NAMES", nargs="*", help="benchmarks to run; all by default")
    bench.add_argument("--quick", action="store_true", help="small sizes and few repetitions")
    bench.add_argument("--markdown", action="store_true", help="tables in Markdown, with every candidate's rate")
    bench.add_argument("--costs", metavar="FOLDER", help="folder for the CSV file of measured costs that `plan` writes")
    add_threads(bench)

    cli_hardware.add_commands(command)
    cli_map.register(command)
    cli_accelerators.register(command)
    cli_explore.register(command)
    command("info", _info, "Show instruction sets, BLAS, threads and build.", "info")
    cli_completion.register(command, parser)
    return parser


def _one_pattern(text: str) -> Any:
    from ..files.recipes import parse_pattern_text  # 18 ms

    try:
        return parse_pattern_text(text, formats=False)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _one_size(text: str) -> int:
    from ..files.rewrite import size_of  # 18 ms

    try:
        return size_of(text) or 0
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _one_dtype(text: str) -> str:
    from ..files.checkpoint import plain_dtype  # 18 ms

    try:
        return plain_dtype(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# Output.


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
