"""The base of results in files: `save` as JSON, and `load` of it or of a page that holds it."""

from __future__ import annotations

import dataclasses
import json
import os
import typing
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from ...base.errors import WrongValue, printable, shown
from ...base.json_text import strict_json
from ...base.notebooks.shown import Shown
from ...base.texts import file_name, read_small
from ...base.version import __version__
from ..files import write_text
from ..page import stored_json
from .checking import fitted, from_json, to_json

VERSION = 1
LIMIT = 256 << 20  # bytes of a file that is read
WRITERS = {".csv": "to_csv", ".html": "to_html", ".pdf": "plot", ".png": "plot", ".svg": "plot"}  # methods by suffix


def saved_path(name: str, suffixes: Sequence[str] = (".json",), kind: type | None = None) -> str:
    """Return a path for `save`, unless its suffix says that the file is of another kind.

    Parameters
    ----------
    suffixes : sequence of str
        What `save` writes. A name without a suffix is one of these, too.
    kind : type, optional
        Class of the result: the message names its method that writes such files.

    Raises
    ------
    ValueError
        The name has another suffix.

    Examples
    --------
    >>> saved_path("study.json"), saved_path("study")
    ('study.json', 'study')
    """
    suffix = os.path.splitext(name)[1].lower()
    if suffix in ("", *suffixes):
        return name
    writer = WRITERS.get(suffix, "")
    other = f"; {writer} writes {suffix}" if writer and hasattr(kind, writer) else ""
    raise WrongValue(f"save: {printable(name)} ends in {printable(suffix)}, expected {' or '.join(suffixes)}{other}")


def plan_path(name: str) -> str:
    """Return a path for the result of a search, which `save` also writes as a recipe or with its weights."""
    return saved_path(name, (".toml", ".json", ".safetensors"))


class Saved(Shown):
    """Base of frozen dataclasses that `save` writes and `load` reads."""

    kind: ClassVar[str]  # the name in files and errors
    unsaved: ClassVar[tuple[str, ...]] = ()  # fields that JSON does not hold
    suffixes: ClassVar[tuple[str, ...]] = (".json",)  # of the files that `save` writes

    def _fields(self) -> dict[str, Any]:
        """Return the fields that a file holds."""
        names = [one.name for one in dataclasses.fields(self)]  # type: ignore[arg-type]
        return {name: getattr(self, name) for name in names if name not in self.unsaved}

    def _stored(self) -> dict[str, Any]:
        """Return what a file holds, ready for JSON."""
        head = {"heterocompute": self.kind, "version": VERSION, "written_by": __version__}
        return head | {name: to_json(value) for name, value in self._fields().items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result as JSON, which `load` reads.

        Parameters
        ----------
        path : str or os.PathLike
            It ends in ``.json``, or has no suffix. Replaced by renaming if it exists.

        Raises
        ------
        ValueError
            The path has the suffix of another kind of file.
        OSError
            The file cannot be written.
        """
        write_text(
            saved_path(file_name(path), self.suffixes, type(self)), json.dumps(self._stored(), allow_nan=False) + "\n"
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a result that `save` or `to_html` wrote.

        Parameters
        ----------
        path : str or os.PathLike
            A JSON file, or the HTML page.

        Raises
        ------
        ValueError
            The file holds something else, or a later version of it.
        OSError
            The file cannot be read.
        """
        where = file_name(path)
        text = read_small(where, LIMIT)
        return cls._from_text(printable(where), text if text.lstrip()[:1] == "{" else stored_json(text))

    @classmethod
    def _from_text(cls, name: str, text: str, **more: Any) -> Self:
        """Return the result that a text holds; `more` are its other fields."""
        try:
            found = strict_json(text)
        except ValueError as error:
            raise WrongValue(f"{name}: not a saved {cls.kind}: {printable(str(error))}") from None
        if not isinstance(found, dict) or not isinstance(found.get("heterocompute"), str):
            raise WrongValue(f"{name}: not a saved {cls.kind}, expected a file that save or to_html wrote")
        if found["heterocompute"] != cls.kind:
            raise WrongValue(f"{name}: holds a {shown(found['heterocompute'])}, expected a {cls.kind}")
        if found.get("version") != VERSION:
            raise WrongValue(f"{name}: version is {shown(found.get('version'))}, expected {VERSION}")
        try:
            hints = typing.get_type_hints(cls)
            names = [one.name for one in dataclasses.fields(cls) if one.name not in cls.unsaved]  # type: ignore[arg-type]
            fields = {key: fitted(key, from_json(found.get(key)), hints[key]) for key in names}
            cls._check(fields)
            return cls(**fields, **more, **cls._restored(found))
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise WrongValue(f"{name}: not a saved {cls.kind}: {printable(str(error))}") from None

    @classmethod
    def _check(cls, fields: dict[str, Any]) -> None:
        """Raise a ValueError unless fields are those of a result."""
        cls._check_fields(fields)

    @classmethod
    def _check_fields(cls, fields: dict[str, Any]) -> None:
        """Raise a ValueError if fields do not fit each other."""

    @classmethod
    def _restored(cls, found: dict[str, Any]) -> dict[str, Any]:
        """Return the fields that a file does not hold as such."""
        return {}
