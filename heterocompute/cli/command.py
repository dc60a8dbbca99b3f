"""The command line: parses the arguments, calls one function, and shows the result.

Exit codes: 0, 1 (failed), 2 (usage), 130 (interrupted). Those of verify and diff: 0, 1 (different), 2 (not compared).
Errors are one line on stderr; usage errors follow the usage of the subcommand. Long work runs on a second thread, so
that Ctrl-C works at once, even during a long call of the core.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from .. import __version__
from ..base.errors import printable, shown
from ..base.interrupt import over, seen
from ..base.locations import is_url
from ..base.regular import check_regular
from ..base.runtime import use
from ..base.texts import is_same_file, near_words, sentence, shortened
from . import (
    accelerators,
    bench,
    completion,
    convert,
    dequantize,
    explore,
    finish,
    formats,
    hardware,
    info,
    inspect,
    language,
    map,
    prune,
    quantize,
    reproduce,
    study,
)
from .options import Parser
from .parts import UsageError, note, note_lines, open_streams, print_line, refuse_closed_output, standard_output, tidy
from .proof import diff, vectors, verify
from .rounding import convert_model, ptq, search
from .training import train

__all__ = ["UsageError", "main"]

# The modules of the commands, in the order of the help. Each defines ``register(command)``. There ``command(name, run,
# text, *examples)`` adds a parser with its help and returns it. ``run(arguments)`` returns the exit code.
ROOMS = (study, language, formats, quantize, ptq, search, convert_model, prune, dequantize, convert, finish, inspect,
         verify, diff, vectors, bench, hardware, train, map, accelerators, reproduce, explore, info,
         completion)  # fmt: skip

# The options that name a file to write, and those that name a file to read, in any command.
WRITTEN = {
    "csv": "--csv",
    "html": "--html",
    "plot": "--plot",
    "yaml": "--toml or --yaml",
    "output": "OUT",
    "save": "--save",
    "keep": "--keep",
}
READ = {"input": "IN", "model": "MODEL", "file": "FILE", "files": "FILE", "recipe": "--recipe"}
READ |= {"inputs": "--inputs", "data": "--data", "labels": "--labels", "text": "--text"}
# any other file in a folder that is read is part of the checkpoint: weights, configuration, tokenizer
REPORTS = (".csv", ".html", ".png", ".svg", ".pdf", ".toml", ".yaml")
FOLDERS = ("quantize", "prune", "dequantize", "convert", "finish", "ptq", "vectors")  # whose OUT may be a folder
READ |= {"base": "--from", "other": "FILE", "device_file": "--device-file", "study_file": "--study", "models": "MODEL"}
READ |= {"template": "--template", "importance": "--importance"}


OLD_OPTIONS = {"--calibration": "--inputs", "--file": "--device-file"}  # old name -> its new name


class _Help(argparse.HelpFormatter):
    """Wraps the lines of a description, but not those of the examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("example:") else super()._fill_text(text, width, indent)


class _Parser(Parser):
    def __init__(self, *args: object, **options: object) -> None:
        options.setdefault("formatter_class", _Help)
        options.setdefault("allow_abbrev", False)
        super().__init__(*args, **options)

    def print_help(self, file: object = None) -> None:
        print_line(self.format_help().rstrip())
        with standard_output():
            sys.stdout.flush()

    def error(self, message: str) -> NoReturn:
        if "invalid choice" in message or "unrecognized" in message:  # argparse quotes the whole word
            message = re.sub(r"[^\s']{81,}", lambda word: shortened(word[0], 80), message)
        message = _with_nearest(message)
        self.show_error(message)
        sys.exit(2)

    def show_error(self, message: str) -> None:
        """Print the usage of this command, and below it the error in one line."""
        note_lines(self.format_usage().rstrip())
        note(f"{self.prog}: {message} (see {self.prog} --help)")

    def parse_known_args(self, args: object = None, namespace: object = None) -> Any:
        """Parse. An unknown option is refused by the subcommand's parser, so that its usage is shown."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [option for option in self._option_string_actions if option.startswith("--")]
            for word in unknown:
                name = word.partition("=")[0]
                if OLD_OPTIONS.get(name) in options:
                    self.error(f"{name} is an old name, expected {OLD_OPTIONS[name]}")
            near = [near_words(word.partition("=")[0], options) for word in unknown if word.startswith("--")][:1]
            nearest = "".join(f"; the nearest is {option}" for words in near for option in words)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{nearest}")
        return found, unknown


def _with_nearest(message: str) -> str:
    """Return argparse's message on an unknown choice with the nearest one in place of all, if one is near."""
    found = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message, re.DOTALL)
    near = near_words(found[1], re.findall(r"[\w.-]+", found[2])) if found and len(found[1]) > 3 else []
    if found is None or not near:
        return message
    return f"{message[: found.start()]}invalid choice: '{found[1]}'; the nearest is {near[0]}"


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
        with seen(), tidy(), _noted_warnings():
            return _run(argv)
    except KeyboardInterrupt:
        note("interrupted")
        return 130
    finally:
        over()


@contextmanager
def _noted_warnings() -> Iterator[None]:
    """Print warnings as lines on standard error, without the code that raised them."""
    shown_before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, UserWarning):
            note(str(message))
        else:
            shown_before(message, category, *where, **more)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = shown_before


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
            if is_closed and not end.code:  # the help cannot be shown
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
    except BrokenPipeError:  # the reader of the pipe has closed it
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
    """Remove the command's name from the start of a message, unless a file of that name was given."""
    return text if given.count(name) > 1 else text.removeprefix(f"{name}: ")


def _with_file(arguments: argparse.Namespace, text: str) -> str:
    """Prefix a message with the file that the command reads, unless the message begins with it."""
    given = (getattr(arguments, key, None) for key in ("input", "file", "model"))
    path = next((one for one in given if isinstance(one, str)), None)
    return text if path is None or text.startswith(printable(path)) else f"{path}: {text}"


def _check_files(arguments: argparse.Namespace) -> None:
    """Raise before any work if a result cannot be written, or would replace a file that is read."""
    given = {key: path for key, path in vars(arguments).items() if key in {**READ, **WRITTEN} and path is not None}
    files = [(key, path) for key, paths in given.items() for path in (paths if isinstance(paths, list) else [paths])]
    for key, path in files:
        if isinstance(path, str) and (not path or "\0" in path):
            raise UsageError(f"{({**WRITTEN, **READ})[key]} is {shown(path)}, expected the path of a file")
    for key, path in files:
        if key not in WRITTEN:
            continue
        if path == "-":  # it would become the name of a file
            name = WRITTEN[key]
            raise UsageError(f"{name} is '-', expected the path of a file; --json prints on standard output")
        for other_key, other in files:
            if other_key != key and is_same_file(path, other):
                raise UsageError(
                    f"{WRITTEN[key]} and {({**WRITTEN, **READ})[other_key]} are the same file: {printable(path)}"
                )
            if other_key in READ and _is_part_of(path, other):
                raise UsageError(f"{WRITTEN[key]} is a file of {READ[other_key]}, which it would replace: "
                                 f"{printable(path)}")  # fmt: skip
        _check_output(path, folder=key == "output" and arguments.command in FOLDERS)
        if key == "output" and os.path.isfile(path) and not getattr(arguments, "overwrite", True):
            raise UsageError(f"OUT is an existing file, which --overwrite replaces: {printable(path)}")
        if key == "plot":
            _check_figure(path)


def _check_figure(path: str) -> None:
    """Raise before any work if matplotlib is missing, or does not support the suffix of a figure."""
    from ..report.plot import new_figure  # 300 ms of matplotlib

    suffix = os.path.splitext(path)[1][1:].lower()
    if (suffix or "png") not in new_figure(1, 1).canvas.get_supported_filetypes():
        raise UsageError(f"--plot is {shown(path)}, expected a suffix such as .png, .svg or .pdf")


def _is_part_of(path: str, folder: object) -> bool:
    """Tell whether a file to write exists in a folder that is read, and is not a report of an earlier run."""
    if not (isinstance(folder, str) and os.path.isdir(folder) and os.path.isfile(path)) or path.endswith(REPORTS):
        return False
    return is_same_file(os.path.dirname(os.path.realpath(path)), folder)


def _check_output(path: str, folder: bool) -> None:
    if folder and is_url(path):
        return  # the store reports errors itself
    if os.path.isdir(path):
        if folder:
            return  # the writer checks that the folder is empty
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    check_regular(path)
    above = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(above):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if not os.access(above, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="heterocompute",
        description="Study number formats for neural networks, quantize checkpoints, model the cost on hardware.",
        epilog="example:\n  heterocompute study model.safetensors --formats int8,vsq4-g16-s4",
    )
    parser.add_argument("--version", action="version", version=f"heterocompute {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str, *examples: str) -> _Parser:
        lines = "".join(f"\n  heterocompute {example}" for example in examples)
        brief = text.replace("%", "%%")  # argparse expands % in `help`, but not in the other two texts
        added: _Parser = commands.add_parser(name, help=brief, description=text, epilog=f"example:{lines}")
        added.set_defaults(run=run, parser=added, whole=parser)
        added.add_argument("--json", action="store_true", help="print one JSON object on stdout, nothing else")
        return added

    for room in ROOMS:
        room.register(command)
    return parser
