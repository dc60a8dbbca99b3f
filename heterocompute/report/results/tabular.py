"""The base of results with a table: files, ``a + b``, ``a - b``, CSV and pandas."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ...base.errors import WrongType, WrongValue
from ...base.texts import counted
from ..files import csv_text, write_text
from ..page import rows_html
from ..table import Column, captured, print_table, print_words
from .checking import check_columns
from .rows import Row, changes, joined_rows, key_by, named_by, only_in
from .saved import Saved


class Tabular(Saved):
    """Base of the results that have a `table`: frozen dataclasses.

    ``a + b`` joins two results of one kind, where that has a meaning. ``a - b`` has the differences of the rows that
    both have. `save` writes a file that `load` reads.
    """

    table: list[Row]

    names: tuple[str, ...]  # columns that identify a row
    columns_of_files: ClassVar[dict[str, Any]] = {}  # the types of columns that every row has
    no_sum: ClassVar[str]  # why two results have no sum
    _difference: ClassVar[type[TableDifference]]  # the class of a - b

    def _repr_html_(self) -> str:
        return rows_html(self.table, str(self).partition("\n")[0] if type(self).__str__ is not object.__str__ else "")

    def to_pandas(self) -> Any:
        """Return the table as a pandas DataFrame.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        try:
            import pandas  # optional
        except ImportError:
            raise ImportError("to_pandas needs pandas: pip install 'heterocompute[pandas]'") from None
        return pandas.DataFrame(self.table)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table as CSV, one line for each row.

        Parameters
        ----------
        path : str or os.PathLike
            Replaced by renaming if it exists.
        """
        write_text(path, csv_text(self.table))

    @classmethod
    def _check(cls, fields: dict[str, Any]) -> None:
        check_columns(fields["table"], cls.columns_of_files)
        cls._check_fields(fields)

    # Two results

    def _key(self, row: Row) -> tuple[Any, ...]:
        """Return what identifies a row."""
        return key_by(self.names)(row)

    def _name(self, row: Row) -> str:
        """Return the name of a row in words."""
        return named_by(self.names)(row)

    def __add__(self, other: object) -> Self:
        return self._joined(self._alike(other, "+"))

    def __sub__(self, other: object) -> TableDifference:
        second = self._alike(other, "-")
        given = self._key, self._name
        only = only_in(self.table, second.table, *given), only_in(second.table, self.table, *given)
        rows = changes(self.table, second.table, self._key, self.names)
        return self._difference(self.kind, rows, only, self.names)

    def _alike(self, other: object, sign: str) -> Self:
        if not isinstance(other, type(self)):
            raise WrongType(f"{self.kind} {sign} {type(other).__name__}: expected another {self.kind}")
        return other

    def _joined(self, other: Self) -> Self:
        """Return both as one result."""
        raise WrongValue(f"{self.kind} + {self.kind}: {self.no_sum}; a - b compares them")

    def _joined_table(self, other: Self) -> list[Row]:
        return joined_rows(self.kind, self.table, other.table, self._key, self._name)


@dataclass(frozen=True, eq=False, repr=False)
class TableDifference(Tabular):
    """The difference of two results of one kind, ``a - b``.

    Attributes
    ----------
    of : str
        The kind of the results.
    table : list of dict
        One row for each row that both have: the columns that identify it, ``a - b`` of each number that both know, and
        ``a <- b`` of each text that differs.
    only : tuple of list of str
        Names of the rows that only the first, and only the second result has.
    names_of_rows : tuple of str
        The columns that identify a row.
    """

    of: str
    table: list[Row]
    only: tuple[list[str], list[str]]
    names_of_rows: tuple[str, ...]

    kind = "difference"
    names = ()
    no_sum = "differences are not joined"

    def __sub__(self, other: object) -> TableDifference:
        raise WrongValue("difference - difference: expected the results themselves")

    def __repr__(self) -> str:
        return captured(self._show)

    def _columns(self, rows: Sequence[Row]) -> list[Column]:
        """Return the columns to print: the names of rows, and what differs in a row."""
        found = []
        for key in dict.fromkeys(key for row in rows for key in row):
            values = [row.get(key) for row in rows]
            is_text = key in self.names_of_rows or any(isinstance(value, str) for value in values)
            if any(values if key in self.names_of_rows else map(_differs, values)):
                write = _text if is_text else _signed
                found.append(Column(key, key.replace("_", " "), write, left=is_text))
        return found

    def _show(self, console: Any) -> None:
        rows = [row for row in self.table if any(_differs(row[key]) for key in row if key not in self.names_of_rows)]
        keys = dict.fromkeys(key for row in rows for key in row)
        if rows:
            whole = [{key: row.get(key) for key in keys} for row in rows]
            print_table(self._columns(rows), whole, console, title=f"the first {self.of} minus the second")
        if equal := len(self.table) - len(rows):
            print_words(counted(equal, "equal row"), console)
        if not self.table:
            print_words(f"{self.of} - {self.of}: no row in common", console)
        for which, names in zip(("first", "second"), self.only, strict=True):
            if names:
                print_words(f"only in the {which}: {', '.join(names)}", console)


def _differs(value: Any) -> bool:
    return " <- " in value if isinstance(value, str) else bool(value)


def _text(value: Any) -> str:
    return "–" if value is None else str(value)


def _signed(value: Any) -> str:
    return "–" if value is None else value if isinstance(value, str) else f"{value:+.4g}" if value else "0"


Tabular._difference = TableDifference
