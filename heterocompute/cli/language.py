"""`heterocompute generate` continues a prompt with a language model, `heterocompute chat` talks with it."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..base.errors import printable, shown
from ..base.texts import counted, read_small
from ..report.table import can_steer
from .options import REPEATED, Options
from .parts import (
    ProgressBar,
    UsageError,
    add_threads,
    format_list,
    interruptible,
    note,
    print_json,
    print_line,
    recipe_of,
    standard_output,
)

MAX_TEXT = 64 << 20  # bytes
MAX_TEMPLATE = 1 << 20
EVERY = 16  # tokens between two lines about the KL divergence without a terminal
NOTICED = 1.1  # gains below it are not worth a hint
WORDS = "/reset forgets the conversation, /exit ends"


def register(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands to the parser.

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
    add_generation(add)
    add("--stop", "TEXT", "text that ends the continuation; repeatable", **REPEATED)
    add_threads(generate)
    _register_chat(command)


def add_generation(add: Options, tokens: int | None = None) -> None:
    """Add the options of the formats and of the draw of tokens."""
    more = {} if tokens is None else {"default": tokens}
    add("--tokens", "N", "maximum number of new tokens", type=_count, **more)
    add("--format", "F", "format of the layers' weights; default: unchanged", type=_one_format)
    add("--recipe", "FILE", 'TOML: [formats] "glob" = "format" or "skip"; before --format')
    add("--activations", "F", "format of the layers' inputs; default: unchanged", type=_one_format)
    add("--kv-cache", "F", "format of keys and values, perhaps with +had; default: unchanged", type=_one_cache)
    add("--temperature", "T", "sampling temperature; 0: always the most likely token")
    add("--top-k", "K", "draw from the K most likely tokens", type=_count)
    add("--top-p", "P", "draw from the most likely tokens whose shares reach P", type=float)
    add("--min-p", "P", "draw from tokens of at least P times the largest share", type=float)
    add("--seed", "S", "random seed of the sampling")


def sampling_of(arguments: argparse.Namespace) -> Any:
    """Return the options of the draw, checked."""
    from ..zoo.llm.chat.sampling import Sampling  # 16 ms

    if arguments.seed < 0:
        raise UsageError(f"--seed is {arguments.seed}, expected 0 or more")
    given = (arguments.temperature, arguments.top_k, arguments.top_p, arguments.min_p, arguments.seed)
    return Sampling(*given).checked("generate")


def run(arguments: argparse.Namespace) -> int:
    """Continue the prompt and print it.

    Returns
    -------
    int
        0.
    """
    sampling_of(arguments)

    def work() -> str:
        net = language_model(arguments.model)

        def continued(tokens: int, weights: object) -> str:
            answer: str = net.generate(
                arguments.prompt, tokens, arguments.temperature, arguments.seed, weights,
                arguments.activations, arguments.kv_cache, stop=arguments.stop or None, top_k=arguments.top_k,
                top_p=arguments.top_p, min_p=arguments.min_p,
            )  # fmt: skip
            return answer

        weights, recipe = None, recipe_of(arguments.recipe)
        if arguments.format is not None or recipe is not None:
            continued(0, None)  # refuses wrong options before the weights are quantized
            with ProgressBar("generate", arguments.model) as progress:
                weights = net.quantized(arguments.format, progress.update, recipe)
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


def network_and_text(path: str, text: str) -> tuple[Any, Any]:
    """Open a language model with the text of a file, or an encoder with the lines of a file."""
    from ..zoo.encoders.opening import is_encoder, open_encoder  # 16 ms

    if not is_encoder(path):
        return language_model(path), text_of(text)
    return open_encoder(path), [line for line in text_of(text).splitlines() if line.strip()]


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
    found = format_list(text)
    if len(found) != 1:
        raise argparse.ArgumentTypeError(f"{shown(text[:40])}, expected one format")
    return found[0]


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text[:9]) <= 1 << 24:
        raise argparse.ArgumentTypeError(f"{shown(text[:40])}, expected a number of tokens from 1 up")
    return int(text)


def _register_chat(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    chat = command(
        "chat",
        talk,
        "Talk with a chat model in the format of its file, or in another one by --format. Needs the chat template of "
        f"the model and jinja2. In a terminal {WORDS}; piped input is one message.",
        "chat model.gguf --format vsq4-g16-s4 --kv-cache int8",
        "chat model.gguf --format vsq4-g16-s4 --against stored",
    )
    add = Options(chat, "zoo.llm.network:LanguageModel.generate")
    add("model", "MODEL", "GGUF file or Hugging Face folder")
    add_generation(add, tokens=512)
    add("--system", "TEXT", "first message, of the role system")
    add("--stop", "TEXT", "text that ends an answer; repeatable", **REPEATED)
    add("--template", "FILE", "chat template, instead of that of the model")
    add("--template-name", "NAME", "one of several chat templates of the model; default: default")
    add("--now", "TIME", "time that the chat template is told, such as 2026-07-01T12:00; default: that of this machine")
    add("--against", None, "also show the answer of the stored network, and, while the first one is written, how far "
        "it differs", choices=("stored",))  # fmt: skip
    add_threads(chat)


def talk(arguments: argparse.Namespace) -> int:
    """Talk until the input ends.

    Returns
    -------
    int
        0.
    """
    sampling = sampling_of(arguments)
    template = None if arguments.template is None else read_small(arguments.template, MAX_TEMPLATE)
    recipe = recipe_of(arguments.recipe)
    changes = (arguments.format, recipe, arguments.activations, arguments.kv_cache)
    if arguments.against is not None and not any(changes):
        raise UsageError("--against stored needs --format, --activations or --kv-cache: otherwise both are the same")

    def opened() -> Any:
        from ..zoo.llm.chat.conversation import Chat  # 16 ms

        net = language_model(arguments.model)
        net.chat_ids([{"role": "user", "content": ""}], template, arguments.template_name, arguments.now)  # fails early
        weights = None
        if arguments.format is not None or recipe is not None:
            with ProgressBar("chat", arguments.model) as progress:
                weights = net.quantized(arguments.format, progress.update, recipe)
        return Chat(
            net, weights, arguments.activations, arguments.kv_cache, arguments.tokens, sampling, arguments.system,
            arguments.stop, template, arguments.template_name, arguments.now, against=arguments.against is not None,
        )  # fmt: skip

    chat = interruptible(opened)
    if arguments.json or not sys.stdin.isatty():
        return interruptible(lambda: _one_message(chat, arguments))
    note(WORDS)
    while True:
        text = _asked()
        if text is None or text.strip() == "/exit":
            return 0
        if text.strip() == "/reset":
            chat.reset()
        elif text.strip():
            interruptible(lambda text=text: _answer(chat, text, arguments))  # type: ignore[misc]


def _one_message(chat: Any, arguments: argparse.Namespace) -> int:
    """Answer what standard input holds."""
    text = sys.stdin.read().strip()
    if not text:
        raise UsageError("standard input is empty, expected a message")
    if not arguments.json:
        _answer(chat, text, arguments)
        return 0
    begun = time.perf_counter()
    answer = "".join(chat.say(text))
    found = {"messages": chat.messages, "text": answer, "tokens": chat.tokens}
    found |= {"seconds": time.perf_counter() - begun}
    if arguments.against is not None:
        found |= {"stored": chat.stored, "kl": chat.kl, "agreement": chat.agreement, "kl_of_tokens": chat.kl_of_tokens}
    return print_json(found)


def _asked() -> str | None:
    """Return the next line of the user, None at the end."""
    try:
        return input("> ")
    except EOFError:
        return None


def _answer(chat: Any, text: str, arguments: argparse.Namespace) -> None:
    """Print an answer piece by piece, and below it its speed and, if asked, the other answer."""
    first, last, status = 0.0, 0.0, Status() if arguments.against is not None else None
    with standard_output():
        for piece in chat.say(text):
            last = time.perf_counter()
            first = first or last
            if status is not None:
                status.clear()
            print(visible(piece), end="", flush=True)
            if status is not None:
                status.show(chat)
        if status is not None:
            status.clear()
        print(flush=True)
    if arguments.against is not None:
        print_line(f"stored: {visible(chat.stored)}")
        if chat.kl is not None:
            note(f"KL {chat.kl:.3g} nats a token; {chat.agreement:.0%} of the tokens are the stored network's choice")
    elif chat.tokens > 1 and last > first:
        faster = ""
        if arguments.activations is None and len(chat.messages) < 4:  # after the first answer
            gain = chat.gain("int8")
            if gain is not None and gain > NOTICED:
                faster = f"; --activations int8 is {gain:.1f} x as fast, measured on one token"
        note(f"{(chat.tokens - 1) / (last - first):.1f} tokens/s{faster}")


class Status:
    """The KL divergence while an answer is written: in the line below it, or a line per some tokens without a terminal.

    The terminal keeps the position of the answer: IND makes room for a line, DECSC and DECRC store the cursor.
    """

    def __init__(self) -> None:
        self._below, self._told = can_steer(sys.stdout), 0

    def show(self, chat: Any) -> None:
        """Tell the divergence of the last token and the mean so far."""
        each = chat.kl_of_tokens
        if not each:
            return
        text = f"KL {each[-1]:.3g} nats, mean {chat.kl:.3g} of {counted(len(each), 'token')}"
        if self._below:
            print(f"\x1bD\x1b[A\x1b7\x1b[B\r\x1b[2K\x1b[2m{text}\x1b[0m\x1b8", end="", flush=True)
        elif len(each) >= self._told + EVERY:
            self._told = len(each)
            note(text)

    def clear(self) -> None:
        """Erase the line, before the answer goes on."""
        if self._below:
            print("\x1b[J", end="", flush=True)


def visible(text: str) -> str:
    """Return a text without characters that steer a terminal, except line ends and tabs."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
