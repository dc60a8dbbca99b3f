"""Tables of golden vectors as files: JSON, hexadecimal text, a C header, and ``$readmemh`` of SystemVerilog.

A column has rows of one or more words of equal width. In ``.mem`` files, a row is one number with word 0 in its lowest
bits, as SystemVerilog packs ``logic [count-1:0][bits-1:0]``. Files do not depend on machine or time.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..files.shards import write_whole

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Words:
    """A column of a table.

    Attributes
    ----------
    bits : int
        Width of a word.
    values : ndarray of uint64, (rows, count)
    meaning : str
    """

    bits: int
    values: Array
    meaning: str

    @property
    def count(self) -> int:
        """Words per row."""
        return int(self.values.shape[1])


def float_words(values: Any, meaning: str) -> Words:
    """Return float32 values as a column of their bits; every NaN is 7fc00000.

    Examples
    --------
    >>> column = float_words([[1.0, -0.0]], "value")
    >>> column.bits, [hex(word) for word in column.values[0].tolist()]
    (32, ['0x3f800000', '0x80000000'])
    """
    found = np.array(values, np.float32, ndmin=2)
    found[np.isnan(found)] = np.float32(np.nan)
    bits = found.view(np.uint32).astype(np.uint64)
    bits[np.isnan(found)] = 0x7FC00000
    return Words(32, bits, meaning)


def integer_words(values: Any, bits: int, meaning: str) -> Words:
    """Return integers as a column in two's complement of some bits."""
    found = np.array(values, np.int64, ndmin=2).view(np.uint64)
    return Words(bits, found & np.uint64(2**bits - 1), meaning)


def written(folder: str, kind: str, columns: Mapping[str, Words]) -> dict[str, Any]:
    """Write the files of a table, and return its description for the manifest."""
    rows = len(next(iter(columns.values())).values)
    texts = {f"{kind}.json": _json(kind, columns), f"{kind}.hex": _hex(columns), f"{kind}.h": _header(kind, columns)}
    texts |= {f"{kind}.{name}.mem": _mem(column) for name, column in columns.items()}
    digests = {}
    for name, text in texts.items():
        write_whole(os.path.join(folder, name), text)
        digests[name] = hashlib.sha256(text.encode()).hexdigest()
    described = {
        name: {"bits": column.bits, "count": column.count, "meaning": column.meaning}
        for name, column in columns.items()
    }
    return {"rows": rows, "columns": described, "files": digests}


def _digits(bits: int) -> int:
    return -(-bits // 4)


def _lines(column: Words) -> list[list[str]]:
    width = _digits(column.bits)
    return [[f"{word:0{width}x}" for word in row] for row in column.values.tolist()]


def _json(kind: str, columns: Mapping[str, Words]) -> str:
    lines = {name: _lines(column) for name, column in columns.items()}
    whole = {
        "kind": kind,
        "columns": {
            name: {"bits": one.bits, "count": one.count, "meaning": one.meaning} for name, one in columns.items()
        },
        "rows": [dict(zip(lines, row, strict=True)) for row in zip(*lines.values(), strict=True)],
    }
    return json.dumps(whole, indent=1) + "\n"


def _hex(columns: Mapping[str, Words]) -> str:
    head = "# " + " ".join(f"{name}:{column.bits}x{column.count}" for name, column in columns.items())
    rows = zip(*map(_lines, columns.values()), strict=True)
    return "\n".join([head, *(" ".join(word for part in row for word in part) for row in rows)]) + "\n"


def _header(kind: str, columns: Mapping[str, Words]) -> str:
    stem = re.sub(r"\W", "_", kind)
    guard = f"VECTORS_{stem.upper()}_H"
    lines = [f"#ifndef {guard}", f"#define {guard}", "#include <stdint.h>", ""]
    rows = len(next(iter(columns.values())).values)
    lines.append(f"#define {stem.upper()}_ROWS {rows}")
    for name, column in columns.items():
        kind_of = next(size for size in (8, 16, 32, 64) if column.bits <= size)
        suffix = "ull" if kind_of == 64 else "u"
        lines += ["", f"/* {column.meaning} */"]
        lines.append(
            f"static const uint{kind_of}_t {stem}_{re.sub(r'[^0-9A-Za-z]', '_', name)}[{rows}][{column.count}] = {{"
        )
        lines += ["    {" + ", ".join(f"0x{word}{suffix}" for word in row) + "}," for row in _lines(column)]
        lines.append("};")
    return "\n".join([*lines, "", "#endif", ""])


def _mem(column: Words) -> str:
    width = _digits(column.bits * column.count)
    found = []
    for row in column.values.tolist():
        whole = 0
        for i, word in enumerate(row):
            whole |= word << (i * column.bits)
        found.append(f"{whole:0{width}x}")
    return "\n".join(found) + "\n"
