"""Chat templates: the text that a chat model expects for a list of messages.

    GGUF     tokenizer.chat_template, tokenizer.chat_template.NAME
    folder   chat_template.jinja, additional_chat_templates/NAME.jinja, chat_template of tokenizer_config.json

A template is a program in the language of jinja2. `rendering.py` runs it in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ....base.errors import WrongType, WrongValue, printable, shown
from ....base.json_text import json_object
from ....base.texts import read_small

MAX_TEMPLATE = 1 << 20  # bytes
MAX_ANSWER = 4 << 20  # bytes
MAX_CONFIG = 1 << 24
SECONDS, START = 2.0, 60.0  # of rendering, and of the start of a process on a busy machine
MEMORY = 1 << 30
KEY = "tokenizer.chat_template"
SPECIAL = ("bos", "eos", "unk", "pad", "sep", "cls", "mask")


def templates_of(path: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the templates of a model by name, and its special tokens such as ``bos_token``.

    Parameters
    ----------
    path : str
        A GGUF file or a Hugging Face folder.
    """
    return _of_folder(path) if os.path.isdir(path) else _of_gguf(path)


def _of_gguf(path: str) -> tuple[dict[str, str], dict[str, str]]:
    from ....files.opening import reader_of  # files stand above the networks

    with reader_of(path) as reader:
        known: Mapping[str, Any] = reader.metadata
        found = {"default": known[KEY]} if isinstance(known.get(KEY), str) else {}
        for key, value in known.items():
            if key.startswith(f"{KEY}.") and isinstance(value, str):
                found[key.removeprefix(f"{KEY}.")] = value
        texts = reader.listed("tokenizer.ggml.tokens") if hasattr(reader, "listed") else None
        special = {}
        for name, role in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
            at = known.get(f"tokenizer.ggml.{role}_token_id")
            if texts is not None and at is not None and 0 <= int(at) < len(texts):
                token = texts[int(at)]
                special[f"{name}_token"] = token.decode("utf-8", "replace") if isinstance(token, bytes) else str(token)
    return found, special


def _of_folder(path: str) -> tuple[dict[str, str], dict[str, str]]:
    place = os.path.join(path, "tokenizer_config.json")
    options = json_object(place, MAX_CONFIG) if os.path.exists(place) else {}
    found, given = {}, options.get("chat_template")
    if isinstance(given, str):
        found["default"] = given
    for one in given if isinstance(given, list) else ():
        if isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("template"), str):
            found[one["name"]] = one["template"]
    own, more = os.path.join(path, "chat_template.jinja"), os.path.join(path, "additional_chat_templates")
    if os.path.exists(own):
        found["default"] = read_small(own, MAX_TEMPLATE)
    for name in sorted(os.listdir(more)) if os.path.isdir(more) else ():
        if name.endswith(".jinja"):
            found[name.removesuffix(".jinja")] = read_small(os.path.join(more, name), MAX_TEMPLATE)
    special = {}
    for name in SPECIAL:
        token = options.get(f"{name}_token")
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str):
            special[f"{name}_token"] = text
    return found, special


def chosen(path: str, found: Mapping[str, str], name: str | None) -> str:
    """Return the template with a name, or the only or default one; ValueError if there is none."""
    if not found:
        raise WrongValue(
            f"{printable(path)}: has no chat template; expected template= with the text of one (in a shell: --template "
            "FILE), or a prompt instead of messages"
        )
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    wanted = "default" if name is None else name
    if wanted not in found:
        raise WrongValue(f"{printable(path)}: has no chat template {shown(wanted)}, expected one of {', '.join(found)}")
    return found[wanted]


def check_messages(messages: object, caller: str) -> list[dict[str, Any]]:
    """Return messages as plain values; TypeError or ValueError if they are none."""
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise WrongType(f"{caller}: messages is {shown(messages)}, expected a list such as [{{'role': 'user', ...}}]")
    if not messages:
        raise WrongValue(f"{caller}: messages is empty, expected at least one message")
    found = []
    for i, one in enumerate(messages):
        if not isinstance(one, Mapping) or not isinstance(one.get("role"), str) or "content" not in one:
            raise WrongType(f"{caller}: messages[{i}] is {shown(one)}, expected a mapping with 'role' and 'content'")
        found.append(dict(one))
    return found


def time_of(now: Any, caller: str) -> datetime | None:
    """Return the time that a template is told; None: that of this machine.

    Raises
    ------
    TypeError, ValueError
        `now` is neither a datetime nor a text such as ``"2026-07-01"`` or ``"2026-07-01T12:00"``.

    Examples
    --------
    >>> time_of("2026-07-01", "generate")
    datetime.datetime(2026, 7, 1, 0, 0)
    """
    if now is None or isinstance(now, datetime):
        return now
    if not isinstance(now, str):
        raise WrongType(f"{caller}: now is {shown(now)}, expected a datetime or a text such as '2026-07-01T12:00'")
    try:
        return datetime.fromisoformat(now)
    except ValueError:
        raise WrongValue(f"{caller}: now is {shown(now)}, expected a time such as '2026-07-01T12:00'") from None


def prompt_of(
    net: Any, messages: object, template: str | None = None, template_name: str | None = None,
    now: datetime | str | None = None, caller: str = "generate",
) -> str:  # fmt: skip
    """Return the text of messages by the template of a model; see `LanguageModel.generate`.

    Parameters
    ----------
    now : datetime or str, optional
        The time that the template is told. Default: that of this machine.
    """
    given = check_messages(messages, caller)
    if template is not None and not isinstance(template, str):
        raise WrongType(f"{caller}: template is {shown(template)}, expected the text of a template")
    found, special = templates_of(net.path)
    source = chosen(net.path, found, template_name) if template is None else template
    values = {**special, "messages": given, "tools": None, "documents": None, "add_generation_prompt": True}
    return rendered(source, values, time_of(now, caller), f"{caller}: the chat template of {printable(net.path)}")


def rendered(source: str, values: Mapping[str, Any], now: datetime | None, what: str) -> str:
    """Return the text of a template; `what` names it in errors.

    Raises
    ------
    ImportError
        jinja2 is not installed.
    ValueError
        The template or its text is too long, takes too much time or memory, or fails.
    """
    if len(source.encode("utf-8", "replace")) > MAX_TEMPLATE:
        raise WrongValue(f"{what} has more than {MAX_TEMPLATE} bytes")
    try:
        import jinja2  # optional
    except ImportError:
        raise ImportError("messages need jinja2: pip install 'heterocompute[llm]'") from None
    asked = {
        "source": source, "values": dict(values), "now": None if now is None else now.isoformat(),
        "path": str(Path(jinja2.__file__).parent.parent), "seconds": SECONDS, "memory": MEMORY, "most": MAX_ANSWER,
    }  # fmt: skip
    try:
        text = json.dumps(asked)
    except (TypeError, ValueError) as error:
        raise WrongType(f"{what}: messages hold more than texts, numbers, lists and mappings: {error}") from None
    script = str(Path(__file__).with_name("rendering.py"))
    try:
        child = subprocess.run(
            [sys.executable, "-P", script], input=text.encode(), capture_output=True, timeout=START, check=False
        )
    except subprocess.TimeoutExpired:
        raise WrongValue(f"{what} does not end") from None
    try:
        answer = json.loads(child.stdout[: 8 * MAX_ANSWER])
    except ValueError:
        late = child.returncode == 124 or child.returncode < 0
        raise WrongValue(f"{what} {f'takes more than {SECONDS:g} s' if late else 'ends without a text'}") from None
    if "error" in answer:
        raise WrongValue(f"{what}: {printable(answer['error'])}")
    return str(answer["text"])
