"""Options of a command from the function that it calls: types and defaults from its signature, texts from its docs.

The function is imported when the options of its command are first needed, not at the start of every command.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

PARAMETERS = re.compile(r"^Parameters\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", re.DOTALL | re.MULTILINE)
PARAMETER = re.compile(r"^(\w[\w, ]*) : .*\n((?:    .*\n|\n)*)", re.MULTILINE)


class Parser(argparse.ArgumentParser):
    """A parser of one command. Its arguments are added when they are first needed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._later: list[Callable[[], Any]] | None = None
        super().__init__(*args, **options)
        self._later = []

    def defer(self, add: Callable[[], Any]) -> None:
        """Delay a function that adds arguments until `fill`, which keeps the order of the calls."""
        if self._later is None:
            add()
        else:
            self._later.append(add)

    def add_argument(self, *args: Any, **options: Any) -> Any:
        if self._later is None:
            return super().add_argument(*args, **options)
        return self._later.append(functools.partial(super().add_argument, *args, **options))

    def fill(self) -> None:
        """Add the arguments that were deferred."""
        later, self._later = self._later or (), None
        for add in later:
            add()

    def format_help(self) -> str:
        self.fill()
        return super().format_help()

    def format_usage(self) -> str:
        self.fill()
        return super().format_usage()

    def parse_known_args(self, args: Any = None, namespace: object = None) -> Any:
        self.fill()
        return super().parse_known_args(args, namespace)


REPEATED: dict[str, Any] = {"action": "append", "default": []}
COMMON = {
    "model": ("MODEL", "network name (resnet50, Llama-3.1-8B, ...), ONNX or GGUF file, or Hugging Face folder"),
    "--csv": ("PATH", "also write the table as CSV"),
    "--html": ("PATH", "also write an HTML page"),
    "--plot": ("PATH", "also draw a plot: png, svg or pdf"),
    "--include": ("PATTERN", "only tensors whose names match; repeatable"),
    "--exclude": ("PATTERN", "skip tensors whose names match; repeatable"),
    "--device-file": ("FILE", "take devices from your own TOML table"),
    "--batch": ("N", "batch size"),
}


class Options:
    """Adds the options of a command to its parser.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    function : str, optional
        ``module:name`` below heterocompute. Options with the names of its parameters have their defaults and types.
    """

    def __init__(self, parser: argparse.ArgumentParser, function: str = "") -> None:
        self._parser, self._function = cast(Parser, parser), function
        self._groups: dict[str, Any] = {}

    def __call__(self, flags: str, metavar: str | None = None, help: str | None = None, **more: object) -> None:
        """Add an option.

        Parameters
        ----------
        flags : str
            Its names, blanks between. Without a leading ``-`` it is an argument.
        metavar : str, optional
            None if there is no value.
        help : str, optional
            Default: the first sentence on the parameter in the documentation of the function.
        **more
            As of `argparse.ArgumentParser.add_argument`; these win over the signature. ``of``: the parameter, if it
            has another name. ``alone``: the name of a group of options of which one can be given. ``parse``: a function
            of the text, or ``module:name`` below heterocompute, whose ValueError is the error of the option.
        """
        self._parser.defer(lambda: self._add(flags.split(), metavar, help, more))

    def common(self, *flags: str, **more: Any) -> None:
        """Add options with the same words in each command."""
        for flag in flags:
            self(flag, *COMMON[flag], **more)

    def _add(self, flags: list[str], metavar: str | None, help: str | None, more: dict[str, Any]) -> None:
        is_off = flags[0].startswith("--no-")
        if (parse := more.pop("parse", None)) is not None:
            more["type"] = functools.partial(_parsed, parse, flags[0])
        name = more.get("dest") or flags[0].lstrip("-").replace("-", "_").removeprefix("no_" if is_off else "")
        known: Any = _documented(_named(self._function)) if self._function else {}
        of = more.pop("of", None)  # a name that the function lacks is a KeyError
        default, text = known.get(name, (None, "")) if of is None or not known else known[of]
        help = help or text
        if flags[0].startswith("-") and "action" not in more and metavar is None and "choices" not in more:
            more = {"action": "store_false" if is_off else "store_true", **({"dest": name} if is_off else {}), **more}
        elif default is not None and default != () and not {"default", "action"} & set(more):
            more = {"default": ",".join(default) if isinstance(default, tuple) else default, **more}
            if isinstance(default, (int, float)):
                more = {"type": type(default), **more}
            help += "" if "default" in help else f"; default: {more['default']:g}" if isinstance(default, float) else (
                f"; default: {more['default']}")  # fmt: skip
        if metavar is not None:
            more["metavar"] = metavar
        place: Any = self._parser
        if (group := more.pop("alone", None)) is not None:
            if group not in self._groups:
                self._groups[group] = place.add_mutually_exclusive_group()
            place = self._groups[group]
        place.add_argument(*flags, help=help, **more)


def options_of(function: Callable[..., Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a command that are parameters of a function."""
    given = vars(arguments)
    return {name: given[name] for name in inspect.signature(function).parameters if name in given}


def _named(function: str) -> Any:
    """Return a function by ``module:name`` below heterocompute."""
    module, _, name = function.partition(":")
    return functools.reduce(getattr, name.split("."), import_module(f"heterocompute.{module}"))


def _parsed(parse: str | Callable[[str], Any], flag: str, text: str) -> Any:
    """Return the value of an option's text."""
    try:
        return (_named(parse) if isinstance(parse, str) else parse)(text)
    except ValueError as error:
        words = str(error).removeprefix(f"{flag}: ").removeprefix(f"{flag.lstrip('-')}: ")
        raise argparse.ArgumentTypeError(words) from None


@functools.cache
def _documented(found: Callable[..., Any]) -> dict[str, tuple[Any, str]]:
    """Return the default and the first sentence on each parameter of a function."""
    texts: dict[str, str] = {}
    section = PARAMETERS.search(inspect.getdoc(found) or "")
    for names, text in PARAMETER.findall(section[1] + "\n" if section else ""):
        first = re.split(r"[.;](?:\s|$)", " ".join(text.split()), maxsplit=1)[0].replace("`", "")
        texts |= dict.fromkeys(names.split(", "), first[:1].lower() + first[1:])
    parameters = inspect.signature(found).parameters.values()
    return {
        one.name: (None if one.default is inspect.Parameter.empty else one.default, texts.get(one.name, ""))
        for one in parameters
    }
