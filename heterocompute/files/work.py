"""Options for writing a checkpoint: the workers, the size of files, and the part that this run writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import call_back
from ..base.progress import Progress, reported
from ..base.rereading import as_check
from ..base.values import as_int
from ..base.workers import Workers, checked_workers
from .manifest import MAX_PARTS

UNITS = {
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}

# What receives the planned files of a checkpoint instead of a writer, see `planned_by`.
Receiver = Callable[[Any, Any], None]
_RECEIVER: ContextVar[Receiver | None] = ContextVar("receiver", default=None)


@contextmanager
def planned_by(receiver: Receiver) -> Iterator[None]:
    """Inside the ``with`` block, functions that rewrite a checkpoint plan its files and write none.

    Parameters
    ----------
    receiver : callable
        ``receiver(shards, companions)`` of the planned files: the shards, and the other files of the folder by name.
        `companions` is None if the output is one file.
    """
    token = _RECEIVER.set(receiver)
    try:
        yield
    finally:
        _RECEIVER.reset(token)


@dataclass(frozen=True)
class Work:
    """Options for writing a checkpoint: see `checkpoint.quantize_checkpoint`."""

    workers: Workers = None
    resume: bool = True
    shard_size: int | str | None = "5GB"
    consume: bool = False
    part: Any = None
    check: str = "sample"
    caller: str = "quantize_checkpoint"  # the function that errors name
    progress: Progress | bool | None = None
    # called when the output has its name, while a run that is begun again would still know the output as its own
    finished: Callable[[], None] | None = None
    receiver: Receiver | None = field(default_factory=_RECEIVER.get)

    def report(self, done: int, total: int, name: str = "") -> None:
        """Report progress, if somebody wants to know."""
        if callable(self.progress):
            call_back(self.progress, done, total, name)

    def __post_init__(self) -> None:
        object.__setattr__(self, "progress", reported(self.progress, self.caller))
        object.__setattr__(self, "part", None if self.part is None else part_of(self.part, self.caller))
        object.__setattr__(self, "workers", checked_workers(self.workers, self.caller))
        as_check(self.check, self.caller)
        for name in ("resume", "consume"):  # a string such as "no" must not delete anything
            if not isinstance(getattr(self, name), bool):
                raise WrongType(f"{self.caller}: {name} is {shown(getattr(self, name))}, expected True or False")
        if self.part is not None and self.consume:
            raise WrongValue(f"{self.caller}: consume and part are given, expected one of them: a part does not "
                             "know what the others still need")  # fmt: skip


USUAL = Work()


def size_of(text: object) -> int | None:
    """Return the bytes that a text such as ``"5GB"`` says: kB, KB, MB, GB, TB of thousands, KiB to TiB of 1024.

    Raises
    ------
    ValueError
        Another text, or no byte.
    TypeError
        No text, int or None.

    Examples
    --------
    >>> size_of("5GB"), size_of("0.5 MiB"), size_of(None)
    (5000000000, 524288, None)
    """
    if text is None or (isinstance(text, int) and not isinstance(text, bool)):
        return None if text is None else as_int(text, "shard_size", 1)
    if not isinstance(text, str):
        raise WrongType(f"shard_size is {shown(text)}, expected a text such as '5GB', or an int of bytes")
    found = text.strip()
    unit = next((unit for unit in UNITS if found.endswith(unit)), "")
    try:
        count = float(found.removesuffix(unit)) * UNITS.get(unit, 1)
        if not 1 <= count < 2**62:
            raise ValueError
    except ValueError:
        raise WrongValue(
            f"shard_size is {shown(text)}, expected a size such as '5GB' or '500MiB', of the units {', '.join(UNITS)}"
        ) from None
    return int(count)


def part_of(text: object, caller: str) -> tuple[int, int]:
    """Return the number of a part and the count of parts, of a text such as ``"2/3"``.

    Raises
    ------
    TypeError
        No text.
    ValueError
        Another text, or no such part.

    Examples
    --------
    >>> part_of("2/3", "quantize_checkpoint")
    (2, 3)
    """
    wanted = "expected a text such as '2/3', the second of three parts"
    if not isinstance(text, str):
        raise WrongType(f"{caller}: part is {shown(text)}, {wanted}")
    fit = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    number, count = (int(fit[1]), int(fit[2])) if fit else (0, 0)
    if not 1 <= number <= count <= MAX_PARTS:
        raise WrongValue(f"{caller}: part is {shown(text)}, {wanted}")
    return number, count


def part_with(i: int, n_shards: int, count: int) -> int:
    """Return the number of the part that writes a shard; neighbouring shards share files, so they are in one part."""
    return i * count // n_shards + 1
