"""`heterocompute generate`: continues a prompt with a language model. Registered by one line of command.py."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from ..base.errors import printable, shown
from ..base.texts import read_small
from .options import Options
from .parts import ProgressBar, UsageError, add_threads, cache_list, format_list, interruptible, print_json, print_line

MAX_TEXT = 64 << 20  # bytes


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser.

    Parameters
    ----------
    command : callable
        ``command(name, run, text, *examples)`` adds a parser and returns it.
    """
    generate = command(
        "generate",
        run,
        "Continue a prompt with a language model. Its weights keep the stored format, or get another one by --format.",
        'generate model.gguf "The capital of France is" --tokens 20',
        'generate model.gguf "Once upon a time" --format vsq4-g16-s4 --activations int8 --kv-cache int8',
    )
    add = Options(generate, "zoo.llm.network:LanguageModel.generate")
    add("model", "MODEL", "GGUF file or Hugging Face folder")
    add("prompt", "PROMPT", "text to continue")
    add("--tokens", "N", "maximum number of new tokens", type=_count, of="n")
    add("--format", "F", "format of the layers' weights; default: unchanged", type=_one_format)
    add("--activations", "F", "format of the layers' inputs; default: unchanged", type=_one_format)
    add("--kv-cache", "F", "format of keys and values, perhaps with +had; default: unchanged", type=_one_cache)
    add("--temperature", "T", "sampling temperature; 0: always the most likely token")
    add("--seed", "S", "random seed of the sampling")
    add_threads(generate)


def run(arguments: argparse.Namespace) -> int:
    """Continue the prompt and print it.

    Returns
    -------
    int
        0.
    """
    if arguments.seed < 0:
        raise UsageError(f"--seed is {arguments.seed}, expected 0 or more")

    def work() -> str:
        net = language_model(arguments.model)

        def continued(tokens: int, weights: object) -> str:
            answer: str = net.generate(
                arguments.prompt, tokens, arguments.temperature, arguments.seed, weights,
                arguments.activations, arguments.kv_cache,
            )  # fmt: skip
            return answer

        weights = None
        if arguments.format is not None:
            continued(0, None)  # refuses wrong options before the weights are quantized
            with ProgressBar("generate", arguments.model) as progress:
                weights = net.quantized(arguments.format, progress.update)
        return continued(arguments.tokens, weights)

    found = interruptible(work)
    if arguments.json:
        return print_json({"prompt": arguments.prompt, "text": found})
    print_line(arguments.prompt + found)
    return 0


def language_model(path: str) -> Any:
    """Open the language model of a file or folder."""
    from ..zoo import open_llm  # 16 ms

    return open_llm(path)


def text_of(path: str) -> str:
    """Return the text of a file of UTF-8, without a byte order mark."""
    try:
        return read_small(path, MAX_TEXT).removeprefix("\ufeff")
    except ValueError as error:
        about = f"{printable(path)}: "
        raise ValueError(about + str(error).removeprefix(about)) from None


@contextlib.contextmanager
def naming_text(path: str) -> Iterator[None]:
    """Let errors about a text name its file."""
    try:
        yield
    except ValueError as error:
        found = re.fullmatch(r"\w+: text (.*)", str(error), re.DOTALL)
        if found is None:
            raise
        raise ValueError(f"{printable(path)}: {found[1]}") from None


def _one_format(text: str) -> Any:
    found = format_list(text)
    if len(found) != 1:
        raise argparse.ArgumentTypeError(f"{shown(text[:40])}, expected one format")
    return found[0]


def _one_cache(text: str) -> Any:
    found = cache_list(text)
    if len(found) != 1:
        raise argparse.ArgumentTypeError(f"{shown(text[:40])}, expected one format")
    return found[0]


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text[:9]) <= 1 << 24:
        raise argparse.ArgumentTypeError(f"{shown(text[:40])}, expected a number of tokens from 1 up")
    return int(text)
