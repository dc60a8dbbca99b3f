"""The time to open a file, or to refuse it: ordinary headers, and headers made to take long.

Each is opened at two sizes. `growth` is the time per byte of the larger one over that of the smaller: 1 if time grows
in proportion to the file, the ratio of the sizes if it grows with their square.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from ..arrays.layout import KEY, VERSION
from ..base.container import Reader
from ..files.safetensors import entries
from .measure import Candidate, CheckFailed, Options, Row, Table, Times

SIZES, QUICK_SIZES = (1 << 20, 1 << 22), (1 << 12, 1 << 14)
LONGEST_MESSAGE = 1000
PLAIN = {"dtype": "F32", "shape": [0, 64], "data_offsets": [0, 0]}
EIE = {"format": "eie-p1", "shape": [1, 1], "axis": [1], "dtype": "float32"}


def measure(options: Options) -> list[Table]:
    """Measure every header at both sizes."""
    sizes = QUICK_SIZES if options.quick else SIZES
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in HEADERS.items():
            options.report_progress(name)
            headers = [make(size) for size in sizes]
            paths = [_write(os.path.join(folder, f"{i}.safetensors"), header) for i, header in enumerate(headers)]
            small, large = (_candidate(path, name, len(header)) for path, header in zip(paths, headers, strict=True))
            times = Times([small, large], options, 1)
            row = times.row(large.name)
            growth = times.median(large.name) / times.median(small.name) * small.work / large.work
            rows.append({**row, "name": name, "growth": growth})
    return [{"title": "Headers", "threads": 1, "rows": rows}]


def _write(path: str, header: bytes) -> str:
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
    return path


def _candidate(path: str, name: str, size: int) -> Candidate:
    def check() -> None:
        message = _opened(path)
        if (message is None) != name.startswith("honest"):
            raise CheckFailed(f"{name}: {message or 'nothing was wrong with it'}")
        if message is not None and (not message.startswith(f"{path}: ") or len(message) > LONGEST_MESSAGE):
            raise CheckFailed(f"{name}: a message of {len(message)} characters, or one that does not name the file")

    return Candidate(f"{name}, {size} bytes", lambda: _opened(path), size * 1e3, "MB/s", check)  # of 1e9 a second


def _opened(path: str) -> str | None:
    """Read the whole header; return why it was refused."""
    try:
        with Reader(path) as reader:
            entries(reader)
    except ValueError as error:
        return str(error)
    return None


# Headers of about this many bytes.


def _repeated(begin: bytes, piece: bytes, end: bytes) -> Callable[[int], bytes]:
    return lambda size: begin + piece * (size // len(piece)) + end


def _described(tensors: dict[str, Any], more: Iterable[str] = ()) -> bytes:
    text = json.dumps({"version": VERSION, "single": False, "tensors": tensors})
    return json.dumps({"__metadata__": {KEY: text}, **dict.fromkeys(more, PLAIN)}).encode()


def _names(size: int, each: int) -> list[str]:
    return [f"model.layers.{i}.weight" for i in range(size // each)]


def _dimensions(number: int) -> Callable[[int], bytes]:
    return lambda size: _described({"w": {**EIE, "format": "int8", "shape": [number] * (size // len(f"{number}, "))}})


HEADERS: dict[str, Callable[[int], bytes]] = {
    "honest: plain tensors": lambda size: json.dumps(dict.fromkeys(_names(size, 90), PLAIN)).encode(),
    "honest: a long text": _repeated(b'{"__metadata__": {"tokens": "', rb"{\"a\": [1, 2]}, ", b'"}}'),
    "dimensions of a description": _dimensions(2**62),
    "dimensions of a tensor": _repeated(b'{"w": {"dtype": "F32", "data_offsets": [0, 0], "shape": [', b"2, ", b"2]}}"),
    "packed arrays without components": lambda size: _described(
        dict.fromkeys(_names(size, 230), EIE), [f"{name}.x" for name in _names(size, 230)]
    ),
    "objects": _repeated(b'{"a": [', b"{},", b"{}]}"),
    "lists": _repeated(b'{"a": [', b"[],", b"[]]}"),
    "numbers": _repeated(b'{"a": [', b"7,", b"7]}"),
    "depth": _repeated(b'{"a": ', b"[", b"}"),
    "texts": lambda size: json.dumps({f"{i}": "" for i in range(size // 12)}).encode(),
    "a long name": _repeated(b'{"', b"n", b'": {"dtype": "F33"}}'),
    "a name of escapes": _repeated(b'{"', rb"\u001b", b'": {"dtype": "F33"}}'),
    "a text that does not end": _repeated(b'{"a": "', rb"\"{", b""),
    "a long number": _repeated(b'{"a": ', b"9", b"}"),
    "one key many times": _repeated(b"{", b'"a":1,', b'"a":1}'),
}
