"""Statements about a written checkpoint: its files, the base files, and the command with all options that count.

A statement is in-toto JSON next to the output: ``OUT.intoto.json``, or ``statement.intoto.json`` in a folder. It names
no path, host or time, so the same run makes the same statement. Signatures of other tools sign this file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base.errors import WrongValue, printable, shown
from ..base.json_text import json_object
from ..base.locations import absolute, names_in
from ..base.regular import open_regular
from ..base.texts import file_name, quoted
from ..base.version import __version__
from ..files.companions import STATEMENT, STATEMENTS, files_beside
from ..files.opening import reader_of
from ..files.recipes import SKIP
from ..files.shards import located, write_whole
from ..formats import Format
from ..formats.defining import carried

TYPE = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:heterocompute:derivation:v1"
BEGUN = ".begun" + STATEMENTS  # a statement without subjects, of an output that is written in parts
MAX_STATEMENT = 64 << 20
DIGEST = re.compile(r"[0-9a-f]{64}")
FIELDS = ("program", "version", "command", "options", "recipe", "base", "tensors", "calibration")
# The options of a command that its output depends on.
OPTIONS = {
    "quantize": ("format", "include", "exclude", "axis", "fake", "shard_size", "layout", "requantize", "fallback"),
    "prune": ("pattern", "include", "exclude", "axis", "shard_size"),
    "convert": ("layout", "lossy", "source", "shard_size"),
    "ptq": ("sequential", "method", "include", "exclude", "layout"),
}
SCALARS = (str, int, bool, type(None))
FLAGS = ("fake", "requantize", "fallback", "lossy", "sequential")
NEEDED = {"quantize": (), "prune": (), "convert": ("layout",), "ptq": ()}


@dataclass(frozen=True)
class Statement:
    """A statement about a checkpoint.

    Attributes
    ----------
    subject, base : dict of str to str
        SHA-256 of each file of the output, and of each file of the base.
    command : str
        One of `OPTIONS`.
    options : dict of str to Any
    recipe : list of (str, str), or None
        Pattern and format, in their order.
    tensors : dict of str to str
        SHA-256 of the stored bytes of each tensor of the output.
    calibration : dict of str to str, or None
        SHA-256 of each array of calibration inputs; empty for a function. None: no calibration.
    version : str
        The version of the program.
    """

    subject: dict[str, str]
    base: dict[str, str]
    command: str
    options: dict[str, Any]
    recipe: list[tuple[str, str]] | None = None
    tensors: dict[str, str] = field(default_factory=dict)
    calibration: dict[str, str] | None = None
    version: str = __version__

    def text(self) -> str:
        """Return the statement as JSON."""
        predicate = {
            "program": "heterocompute",
            "version": self.version,
            "command": self.command,
            "options": self.options,
            "recipe": None if self.recipe is None else [list(pair) for pair in self.recipe],
            "base": _listed(self.base),
            "tensors": _listed(self.tensors),
            "calibration": None if self.calibration is None else _listed(self.calibration),
        }
        whole = {"_type": TYPE, "subject": _listed(self.subject), "predicateType": PREDICATE, "predicate": predicate}
        return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def statement_place(path: str | os.PathLike[str]) -> str:
    """Return the path of the statement of a checkpoint.

    Examples
    --------
    >>> statement_place("small.safetensors")
    'small.safetensors.intoto.json'
    """
    name = file_name(path)
    return os.path.join(name, STATEMENT) if os.path.isdir(name) else name.rstrip(os.sep) + STATEMENTS


def read_statement(path: str | os.PathLike[str], begun: bool = False) -> Statement:
    """Read a statement, which is not trusted.

    Parameters
    ----------
    path : str or os.PathLike
    begun : bool
        Whether it is that of an output in parts, which has no subjects yet.

    Raises
    ------
    ValueError
        The file is not a statement of this program. The message has one line.
    OSError
        The file cannot be read.
    """
    place = os.fspath(path)
    where = printable(os.fsdecode(place))
    found = json_object(place, MAX_STATEMENT)
    if found.get("_type") != TYPE:
        raise WrongValue(f"{where}: _type is {shown(found.get('_type'))}, expected {shown(TYPE)}")
    if found.get("predicateType") != PREDICATE:
        raise WrongValue(f"{where}: predicateType is {shown(found.get('predicateType'))}, expected {shown(PREDICATE)}")
    predicate = found.get("predicate")
    if not isinstance(predicate, dict) or set(predicate) != set(FIELDS):
        got = shown(sorted(predicate)) if isinstance(predicate, dict) else shown(predicate)
        raise WrongValue(f"{where}: predicate has {got}, expected {', '.join(FIELDS)}")
    if predicate["program"] != "heterocompute" or not isinstance(predicate["version"], str):
        raise WrongValue(f"{where}: program is {shown(predicate['program'])}, expected 'heterocompute' and a version")
    command = predicate["command"]
    if not isinstance(command, str) or command not in OPTIONS:
        raise WrongValue(f"{where}: command is {shown(command)}, expected one of {', '.join(OPTIONS)}")
    calibration = predicate["calibration"]
    if (calibration is None) == (command == "ptq"):
        raise WrongValue(f"{where}: calibration is {shown(calibration)}, which does not fit the command {command}")
    statement = Statement(
        _digests(where, "subject", found.get("subject"), files=True, empty=begun),
        _digests(where, "base", predicate["base"], files=True),
        command,
        _options(where, command, predicate["options"]),
        _pairs(where, predicate["recipe"]),
        _digests(where, "tensors", predicate["tensors"]),
        None if calibration is None else _digests(where, "calibration", calibration),
        predicate["version"],
    )
    if set(statement.subject.values()) & set(statement.base.values()) and statement.subject == statement.base:
        raise WrongValue(f"{where}: subject and base are the same files, expected an output and its base")
    return statement


def _listed(digests: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()]


def _digests(where: str, key: str, value: object, files: bool = False, empty: bool = False) -> dict[str, str]:
    """Return the digests of a list of a statement."""
    if not isinstance(value, list):
        raise WrongValue(f"{where}: {key} is {shown(value)}, expected a list of names with digests")
    found: dict[str, str] = {}
    for one in value:
        name = one.get("name") if isinstance(one, dict) else None
        digest = one.get("digest") if isinstance(one, dict) else None
        sha = digest.get("sha256") if isinstance(digest, dict) else None
        if (
            not isinstance(name, str)
            or not isinstance(sha, str)
            or (key != "subject" and set(one) != {"name", "digest"})
        ):
            raise WrongValue(f"{where}: {key} has {shown(one)}, expected a name and its sha256")
        if not DIGEST.fullmatch(sha):
            raise WrongValue(
                f"{where}: {key}: {quoted(name)} has the digest {shown(sha)}, expected 64 hexadecimal digits"
            )
        if files and not _is_plain_name(name):
            raise WrongValue(
                f"{where}: {key}: {quoted(name)} is a path, expected the name of a file in the same folder"
            )
        if name in found:
            raise WrongValue(f"{where}: {key} names {quoted(name)} twice")
        found[name] = sha
    if files and not found and not empty:
        raise WrongValue(f"{where}: {key} is empty, expected at least one file")
    return found


def _is_plain_name(name: str) -> bool:
    return bool(name) and name not in (".", "..") and not set(name) & set("/\\\0") and ":" not in name


def _options(where: str, command: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or not set(value) <= set(OPTIONS[command]):
        raise WrongValue(f"{where}: options are {shown(value)}, expected some of {', '.join(OPTIONS[command])}")
    for key, one in value.items():
        some = one if isinstance(one, list) else [one]
        if not all(isinstance(part, SCALARS) for part in some):
            raise WrongValue(f"{where}: options: {key} is {shown(one)}, expected texts, integers or flags")
        if key in FLAGS and not isinstance(one, bool):
            raise WrongValue(f"{where}: options: {key} is {shown(one)}, expected true or false")
    for key in NEEDED[command]:
        if value.get(key) is None:
            raise WrongValue(f"{where}: options have no {key}, which {command} needs")
    return {key: tuple(one) if isinstance(one, list) else one for key, one in value.items()}


def _pairs(where: str, value: object) -> list[tuple[str, str]] | None:
    if value is None:
        return None
    wanted = isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair) for pair in value
    )
    if not isinstance(value, list) or not wanted or len({pair[0] for pair in value}) < len(value):
        raise WrongValue(f"{where}: recipe is {shown(value)}, expected pairs of a pattern and a format")
    return [(pair[0], pair[1]) for pair in value]


def sha256_of(path: str) -> str:
    """Return the SHA-256 of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def base_files(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the files of a checkpoint that its outputs depend on: name -> path."""
    with reader_of(path) as reader:
        found = located(reader)
        files = sorted({*found.files.values(), *found.others})
        if not os.path.isdir(file_name(path)) and absolute(found.path) in files:
            return {os.path.basename(file): file for file in files}
        beside = {name: place for name, place in files_beside(found.path, {}).items() if isinstance(place, str)}
        files += [found.path] if found.path not in files and os.path.exists(found.path) else []
        return {os.path.basename(file): file for file in files} | beside


def output_files(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the files of a written checkpoint: name -> path."""
    name = file_name(path)
    if not os.path.isdir(name):
        return {os.path.basename(name): name}
    names = sorted(one for one in names_in(name) if one != STATEMENT and not one.startswith("."))
    return {one: os.path.join(name, one) for one in names}


def digests_of(files: Mapping[str, str]) -> dict[str, str]:
    """Return the SHA-256 of each file."""
    return {name: sha256_of(path) for name, path in files.items()}


def tensor_digests(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the SHA-256 of the stored bytes of each tensor of a checkpoint."""
    found = {}
    with reader_of(path) as reader:
        stored = getattr(reader, "stored", None)  # blocks of GGUF are read as values otherwise
        for name in reader.names:
            digest = hashlib.sha256()
            for piece in stored(name) if stored else reader.chunks(name):
                digest.update(piece)
            found[name] = digest.hexdigest()
    return found


class Hashing:
    """The digests of the files of a base, computed on another thread while the output is written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._files = base_files(path)
        self._found: dict[str, str] = {}
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = digests_of(self._files)
        except BaseException as error:
            self._error = error

    def result(self) -> dict[str, str]:
        """Wait for the digests, and return them by name."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found


def begin_statement(
    base: Mapping[str, str],
    command: str,
    options: Mapping[str, Any],
    recipe: Mapping[str, Any] | None = None,
    calibration: Mapping[str, str] | None = None,
) -> Statement:
    """Return a statement without subjects, of a run that has not written its output yet.

    Parameters
    ----------
    base : mapping of str to str
        Digest of each file of the base.
    command : str
        One of `OPTIONS`.
    options : mapping of str to Any
        Options of the command; those that the output does not depend on are left out.
    recipe : mapping of str to str, optional
        Pattern -> format.
    calibration : mapping of str to str, optional
        As `Statement.calibration`.
    """
    kept = {}
    for key in OPTIONS[command]:
        value = options.get(key)
        if value in (None, (), [], False) and key not in ("fallback", "shard_size"):
            continue
        kept[key] = (
            value if isinstance(value, SCALARS) else [*value] if isinstance(value, (list, tuple)) else _text(value)
        )
    pairs = None if recipe is None else [(pattern, _text(fmt)) for pattern, fmt in recipe.items()]
    return Statement({}, dict(base), command, kept, pairs, {}, None if calibration is None else dict(calibration))


def _text(fmt: object) -> str:
    """Return a value of a recipe as a text that any process reads."""
    return SKIP if fmt is None else carried(fmt) if isinstance(fmt, Format) else str(fmt)


def write_statement(statement: Statement, out_path: str | os.PathLike[str]) -> str:
    """Write the statement of a finished output next to it, and return its path."""
    from_files = Statement(
        digests_of(output_files(out_path)),
        statement.base,
        statement.command,
        statement.options,
        statement.recipe,
        tensor_digests(out_path),
        statement.calibration,
        statement.version,
    )
    place = statement_place(out_path)
    write_whole(place, from_files.text())
    return place
