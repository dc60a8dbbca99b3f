"""Results of studies in files: JSON, alone or inside the HTML page of the result."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, ClassVar, Self

from ..base.errors import WrongValue, printable, shown
from ..base.json_text import strict_json
from ..base.texts import file_name, read_small
from ..base.version import __version__
from ..report.files import write_text
from ..report.page import stored_json

VERSION = 1
LIMIT = 256 << 20  # bytes of a file that is read
PLAIN = (type(None), bool, int, float, str)


class Stored:
    """Base of the results of studies: a frozen dataclass whose fields JSON can hold."""

    kind: ClassVar[str]  # the name in files

    def _stored(self) -> dict[str, Any]:
        """Return what a file holds."""
        fields = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {"heterocompute": self.kind, "version": VERSION, "written_by": __version__, **fields}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result as JSON, which `load` reads.

        Parameters
        ----------
        path : str or os.PathLike
            Replaced by renaming if it exists.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        write_text(path, json.dumps(self._stored(), allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a result that `save` or `to_html` wrote.

        Parameters
        ----------
        path : str or os.PathLike
            A JSON file, or the HTML page. The page holds the histograms of the tensors that it shows.

        Raises
        ------
        ValueError
            The file holds something else, or a later version of it.
        OSError
            The file cannot be read.
        """
        where = file_name(path)
        name, text = printable(where), read_small(where, LIMIT)
        if text.lstrip()[:1] != "{":
            text = stored_json(text)
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
        fields = {one.name: found.get(one.name) for one in dataclasses.fields(cls)}  # type: ignore[arg-type]
        try:
            cls._check_fields(fields)
            return cls(**fields)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise WrongValue(f"{name}: not a saved {cls.kind}: {printable(str(error))}") from None

    @classmethod
    def _check_fields(cls, fields: dict[str, Any]) -> None:
        """Raise a ValueError if a field of a file has another type than the result's."""
        raise NotImplementedError


def check_rows(name: str, rows: object, texts: tuple[str, ...] = (), lists: tuple[str, ...] = ()) -> None:
    """Raise a ValueError unless a value is a list of rows whose columns hold numbers, and `texts` strings.

    Parameters
    ----------
    texts : sequence of str
        Columns that hold a string or None, ``format`` and ``name`` always a string.
    lists : sequence of str
        Columns that hold lists of numbers.
    """
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise WrongValue(f"{name} is not a list of rows")
    for row in rows:
        for key, value in row.items():
            if key in lists:
                good = isinstance(value, list) and all(type(one) in (int, float) for one in value)
            elif key in texts:
                good = isinstance(value, str) or (value is None and key not in ("format", "name"))
            else:
                good = value is None or isinstance(value, (bool, int, float))
            if not good:
                raise WrongValue(f"{name} has {shown(value)} as {shown(key)}")


def check_texts(name: str, texts: object) -> None:
    """Raise a ValueError unless a value is a list of strings."""
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise WrongValue(f"{name} is not a list of strings")
