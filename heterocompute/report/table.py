"""Tables for the terminal, all with the same rule for narrow ones. Imports nothing of ours.

On a terminal, columns are left out until the table fits: those with the highest nonzero `leaves` first, equal ones
together. A line below names them and tells how to see them. No name or number is cut: a name that is too long for the
remaining columns has its own line above its figures. Without a terminal the table is whole. If the stream cannot show
lines, dots and dashes, they are ASCII; nothing is bold with NO_COLOR or on a dumb terminal.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

MAX_TEXT = 2000  # characters of a name
WIDE = 1_000_000  # without a terminal
GAP = 2
NARROW = "─━●–µ×→…’"  # signs of one column
SIGNS = str.maketrans({"─": "-", "●": "*", "–": "-", "µ": "u", "×": "x", "→": "->", "…": "..."})


class Column(NamedTuple):
    """The content of a column, and when it is left out.

    Attributes
    ----------
    key : str
        Key in the rows.
    title : str
    write : callable
        Function that formats a value.
    leaves : int
        Order in which columns are left out, the highest first; 0: never.
    left : bool
        Whether it is left-aligned text; the first column always is.
    """

    key: str
    title: str
    write: Callable[[Any], str] = str
    leaves: int = 0
    left: bool = False


def clean(text: str) -> str:
    """Return a name as one line that cannot steer a terminal, with its middle left out if it is very long."""
    if len(text) > MAX_TEXT:
        text = f"{text[: MAX_TEXT // 2 - 2]}...{text[1 - MAX_TEXT // 2 :]}"
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def fitting(text: str, encoding: str | None) -> str:
    """Return a text in an encoding's characters: our own signs replaced by ASCII, those of names by escapes.

    Examples
    --------
    >>> fitting("● größe – 3 µs", "ascii")
    '* gr\\\\xf6\\\\xdfe - 3 us'
    >>> fitting("●", "utf-8")
    '●'
    """
    encoding = encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(SIGNS).encode(encoding, "backslashreplace").decode(encoding)
    return text


def cell_len(text: str) -> int:
    """Return the columns that a text takes on a terminal.

    Examples
    --------
    >>> cell_len("● größe"), cell_len("字")
    (7, 2)
    """
    if all(character < "\u0300" or character in NARROW for character in text):
        return len(text)
    from rich.cells import cell_len as measured  # 30 ms

    return measured(text)


class Lines:
    """A stream that is not a terminal: whole lines without styles, and without the 70 ms that rich takes to import."""

    def __init__(self, file: Any) -> None:
        self.width = WIDE
        self.encoding = getattr(file, "encoding", None) or "utf-8"
        self._file = file

    def print(self, text: str = "") -> None:
        """Print lines at once, so that a full stream is noticed where it is printed."""
        self._file.write(f"{text}\n")
        self._file.flush()


def lay_out(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], width: int = WIDE, encoding: str | None = None
) -> tuple[list[str], list[list[str]], list[str]]:
    """Return the heading and its rule, the lines of each row, and the titles of the columns that left.

    Parameters
    ----------
    columns : sequence of Column
        The first is the name of a row, and stays.
    width : int
        Of the terminal.
    encoding : str, optional
        Of the stream.

    Returns
    -------
    (list of str, list of list of str, list of str)

    Examples
    --------
    >>> columns = [Column("name", "tensor"), Column("bits", "bits"), Column("size", "size", "{:,} B".format, leaves=1)]
    >>> head, lines, left_out = lay_out(columns, [{"name": "fc.weight", "bits": 4, "size": 4096}], 16)
    >>> head, lines, left_out
    (['tensor     bits', '───────────────'], [['fc.weight     4']], ['size'])
    """

    def text(words: str) -> str:
        return fitting(clean(words), encoding)

    titles = [text(column.title) for column in columns]
    cells = [[text(column.write(row[column.key])) for column in columns] for row in rows]
    widths = [max(map(cell_len, found)) for found in zip(titles, *cells, strict=True)]
    stay = [i for i, column in enumerate(columns) if i == 0 or not column.leaves]
    room = max(width - sum(widths[i] + GAP for i in stay[1:]), cell_len(titles[0]))
    widths[0] = max([cell_len(titles[0]), *(n for n in (cell_len(line[0]) for line in cells) if n <= room)])
    kept = list(range(len(columns)))
    for leaves in sorted({column.leaves for column in columns[1:]} - {0}, reverse=True):
        if sum(widths[i] + GAP for i in kept) - GAP <= width:
            break
        kept = [i for i in kept if i == 0 or columns[i].leaves != leaves]

    def line(words: Sequence[str]) -> str:
        parts = []
        for i in kept:
            blanks = " " * (widths[i] - cell_len(words[i]))
            parts.append(words[i] + blanks if i == 0 or columns[i].left else blanks + words[i])
        return (" " * GAP).join(parts).rstrip()

    rule = fitting("─", encoding) * (sum(widths[i] + GAP for i in kept) - GAP)
    lines = [
        [line(words)] if cell_len(words[0]) <= widths[0] else [words[0], line(["", *words[1:]])] for words in cells
    ]
    return [line(titles), rule], lines, [titles[i] for i in range(len(columns)) if i not in kept]


def print_table(
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, Any]],
    console: Any = None,
    *,
    title: str = "",
    more: Sequence[str] = (),
    bold: Collection[int] = (),
) -> None:
    """Print a table.

    Parameters
    ----------
    columns, rows
        As of `lay_out`.
    console : rich.console.Console or Lines, optional
        Default: standard output.
    title : str
        A line above.
    more : sequence of str
        What shows the columns that left, besides a wider terminal: options of a command, methods.
    bold : collection of int
        Places of rows.
    """
    console = terminal() if console is None else console
    head, found, left_out = lay_out(columns, rows, console.width, console.encoding)
    top = [fitting(clean(title), console.encoding)] * bool(title) + head
    if isinstance(console, Lines):
        console.print("\n".join([*top, *(words for lines in found for words in lines)]))
        return
    from rich.segment import Segment, Segments  # 30 ms
    from rich.style import Style  # 30 ms

    strong = Style(bold=True)

    def segments() -> Iterator[Any]:
        for words in top:
            yield Segment(f"{words}\n")
        for i, lines in enumerate(found):
            for words in lines:
                yield Segment(words, strong if i in bold else None)
                yield Segment("\n")

    console.print(Segments(segments()), soft_wrap=True, end="")
    if left_out:
        where = ", ".join(["a wider terminal", *more])
        print_words(f"not shown: {', '.join(left_out)} ({where})", console)


def print_words(text: str, console: Any = None) -> None:
    """Print a sentence, broken between words at the terminal's width."""
    console = terminal() if console is None else console
    words = fitting(clean(text), console.encoding)
    if isinstance(console, Lines):
        broken = words if console.width >= WIDE else textwrap.fill(words, console.width, break_on_hyphens=False)
        console.print(broken)
        return
    from rich.text import Text  # 30 ms

    console.print(Text(words), soft_wrap=console.width >= WIDE)


def width_of(file: Any) -> int:
    """Return the columns of a terminal; unlimited without one."""
    return shutil.get_terminal_size().columns if file is not None and file.isatty() else WIDE


def captured(print_: Callable[[Any], None]) -> str:
    """Return the text that a function prints on the console passed to it, without colours."""
    out = io.StringIO()
    console = terminal(out)
    console.width = width_of(sys.stdout)
    print_(console)
    return out.getvalue().rstrip()


def can_steer(file: Any) -> bool:
    """Tell whether a stream is a terminal that can move its cursor and show more than ASCII."""
    steers = file.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return steers and (file.encoding or "").lower().startswith("utf")


def terminal(file: Any = None) -> Any:
    """Return the console of a stream, by default standard output: rich's on a terminal, `Lines` otherwise."""
    file = sys.stdout if file is None else file
    return rich_console(file) if file is not None and file.isatty() else Lines(file)


def rich_console(file: Any) -> Any:
    """Return the rich console of a stream, as bars of progress need one."""
    from rich.console import Console  # 30 ms

    options: dict[str, Any] = {"force_jupyter": False, "highlight": False, "legacy_windows": False}
    options["color_system"] = "auto" if can_steer(file) and not os.environ.get("NO_COLOR") else None
    return Console(file=file, width=width_of(file), height=WIDE, **options)
