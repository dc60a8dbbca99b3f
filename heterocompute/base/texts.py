"""Untrusted names and texts: made printable for sentences and terminals, matched with files, read if small."""

from __future__ import annotations

import errno
import os
import reprlib
from collections.abc import Iterable, Iterator
from typing import Any

from .errors import WrongType, WrongValue, printable
from .locations import is_url, local_path, size_of
from .regular import open_regular

MAX_NAME = 200  # characters: longer than the name of any layer of a real network
MAX_QUOTED = 80
MAX_MESSAGE = 2000
MAX_PATH, MAX_PART = 4096, 255


def shortened(text: str, limit: int = MAX_NAME) -> str:
    """Return a text without its middle if it is longer than `limit`; beginnings and ends distinguish names.

    Examples
    --------
    >>> shortened("model.layers.0.weight", 16)
    'model.l...weight'
    """
    if len(text) <= limit:
        return text
    end = (limit - 3) // 2
    return f"{text[: limit - 3 - end]}...{text[-end:]}"


def quoted(name: str) -> str:
    """Return a name from a file for use in a sentence: in quotes, printable, not too long.

    Examples
    --------
    >>> print(quoted("fc\\x1b[31m"))
    'fc\\x1b[31m'
    """
    return repr(shortened(name, MAX_QUOTED))


def one_line(message: str) -> str:
    """Return a message without its line ends and control characters, and without its middle if it is very long."""
    lines = shortened(message, MAX_MESSAGE).splitlines()
    return shortened(" ".join(printable(line.strip()) for line in lines if line.strip()), MAX_MESSAGE)


def counted(count: int, noun: str) -> str:
    """Return a number and the thing that it counts, in the plural unless the number is 1.

    Examples
    --------
    >>> counted(1, "tensor"), counted(0, "tensor"), counted(1200, "byte")
    ('1 tensor', '0 tensors', '1200 bytes')
    """
    return f"{count} {noun}{'s'[: count != 1]}"


def near_words(word: str, words: Iterable[str], n: int = 1) -> list[str]:
    """Return the words that resemble another one, most similar first; empty if none does.

    Examples
    --------
    >>> near_words("mpx4", ["int4", "mxfp4"]), near_words("gptq", ["int4", "mxfp4"])
    (['mxfp4'], [])
    """
    import difflib  # 1 ms, for errors alone

    return difflib.get_close_matches(word[:MAX_NAME], list(words), n=n)


def is_same_file(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> bool:
    """Tell whether two paths lead to one file, also through links."""
    if is_url(first) or is_url(second):
        return os.fsdecode(first).rstrip("/") == os.fsdecode(second).rstrip("/")
    first, second = (local_path(os.fsdecode(path)) for path in (first, second))
    try:
        return os.path.samefile(first, second)
    except OSError:
        return os.path.realpath(first) == os.path.realpath(second)


def sentence(error: BaseException) -> str:
    """Return the message of an error; a MemoryError often has none."""
    return str(error) or ("not enough memory" if isinstance(error, MemoryError) else type(error).__name__)


def file_name(path: str | bytes | os.PathLike[str]) -> str:
    """Return a path as a str, also of a URL ``file://``.

    Raises
    ------
    TypeError
        No path.
    OSError
        The name is longer than any system allows; the system's own message would contain all of it.

    Examples
    --------
    >>> file_name(b"a/b.npz")
    'a/b.npz'
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise WrongType(f"path is {reprlib.repr(path):.80}, expected the name of a file")
    name = local_path(os.fsdecode(path))
    if len(name) > MAX_PATH or any(len(part) > MAX_PART for part in name.split(os.sep)):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), shortened(name, MAX_QUOTED))
    return name


def read_small(path: str | os.PathLike[str], limit: int) -> str:
    """Read a whole text file.

    Parameters
    ----------
    limit : int
        Bytes that it may have.

    Raises
    ------
    ValueError
        The file is not a regular one (a device may never end, a pipe never begin), exceeds the limit, or is not UTF-8.
    OSError
        The file cannot be read.
    """
    path = file_name(path)
    name = printable(path)
    with open_regular(path) as file:
        size = size_of(file)
        raw = file.read(min(limit, size) + 1) or b""  # allocates only this many; None if the system has no data yet
    if len(raw) > limit:
        raise WrongValue(f"{name}: more than {limit} bytes")
    if len(raw) > size:  # a file of /proc, or a file that grows
        raise WrongValue(f"{name}: has more than the {counted(size, 'byte')} that the file system reports")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WrongValue(f"{name}: not UTF-8: {error}") from None


def text_of(value: object) -> str:
    """Return a text; protobuf gives bytes if it is not UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def decoded(model: Any, is_own: bool = True) -> tuple[Any, bool]:
    """Return a model without texts that are not UTF-8, which protobuf gives as bytes, and whether there were any.

    Parameters
    ----------
    model : onnx.ModelProto
    is_own : bool
        Whether the model may be changed in place.

    Raises
    ------
    ValueError
        Two different names would have the same text.
    """
    found = list(_bytes_in(model))
    if found and not is_own:
        copy = type(model)()
        copy.CopyFrom(model)
        return decoded(copy)
    origins: dict[str, bytes] = {}
    for message, name, place in found:
        values = getattr(message, name)
        origin = values if place is None else values[place]
        text = text_of(origin)
        if name in ("name", "input", "output") and origins.setdefault(text, origin) != origin:
            raise WrongValue(f"two names that are not UTF-8 are both {quoted(text)}")
        if place is None:
            setattr(message, name, text)
        else:
            values[place] = text
    return model, bool(found)


def _bytes_in(message: Any) -> Iterator[tuple[Any, str, int | None]]:
    """Yield message, field and index of each text that is not UTF-8."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for one in [value] if hasattr(value, "ListFields") else value:
                yield from _bytes_in(one)
        elif field.type == field.TYPE_STRING:
            if isinstance(value, bytes):
                yield message, field.name, None
            elif not isinstance(value, str):
                yield from ((message, field.name, i) for i, one in enumerate(value) if isinstance(one, bytes))
