"""Compares two files of a kind that is built as a whole, such as GGUF, and names the tensor of a difference."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..base.errors import printable
from ..base.locations import size_of
from ..base.regular import open_regular
from ..base.tensors import CHUNK, Tensors
from ..files.opening import reader_of
from .result import DIFFERS, EQUAL, EXTRA, MISSING, FileCheck, TensorCheck


def compare_whole(expected: str, stored: str) -> tuple[list[TensorCheck], list[FileCheck]]:
    """Compare a derived file with an existing one: each tensor, then every byte."""
    name = os.path.basename(stored)
    offset = first_byte(expected, stored)
    with reader_of(expected) as derived:
        if offset is None:
            return [TensorCheck(one, EQUAL) for one in derived.names], []
        try:
            with reader_of(stored) as there:
                rows = list(_rows(derived, there))
        except ValueError as error:
            why = str(error).removeprefix(f"{printable(stored)}: ")
            return [], [FileCheck(name, offset, f"differs from byte {offset}: {why}")]
    if any(row.status == DIFFERS for row in rows):
        return rows, []
    return rows, [FileCheck(name, offset, f"differs from byte {offset}")]


def first_byte(expected: str, stored: str) -> int | None:
    """Return the first byte in which two files differ, None if they are equal."""
    with open_regular(expected) as one, open_regular(stored) as other:
        for begin in range(0, max(size_of(one), size_of(other)), CHUNK):
            a, b = (np.frombuffer(file.read(CHUNK), np.uint8) for file in (one, other))
            both = min(a.size, b.size)
            wrong = np.flatnonzero(a[:both] != b[:both])
            if wrong.size or a.size != b.size:
                return begin + (int(wrong[0]) if wrong.size else both)
    return None


def _rows(derived: Tensors, there: Tensors) -> Iterator[TensorCheck]:
    for name in derived.names:
        if name not in there:
            yield TensorCheck(name, MISSING)
            continue
        own, other = derived.info(name), there.info(name)
        kinds = (own.dtype, own.shape, derived.format_of(name)), (other.dtype, other.shape, there.format_of(name))
        if kinds[0] != kinds[1]:
            yield TensorCheck(name, DIFFERS, None, f"is {_kind(*kinds[1])} instead of {_kind(*kinds[0])}")
            continue
        at = 0
        for a, b in zip(_pieces(derived, name), _pieces(there, name), strict=True):
            wrong = a ^ b
            if wrong.any():
                byte = int(np.flatnonzero(wrong)[0])
                bits = int(np.bitwise_count(wrong).sum(dtype=np.int64))
                how = f"one bit of byte {at + byte}" if bits == 1 else f"bytes differ from byte {at + byte}"
                yield TensorCheck(name, DIFFERS, _index(derived, there, name), how)
                break
            at += a.size
        else:
            yield TensorCheck(name, EQUAL)
    yield from (TensorCheck(name, EXTRA) for name in there.names if name not in derived)


def _index(derived: Tensors, there: Tensors, name: str) -> tuple[int, ...] | None:
    """Return the first index whose value differs, None if only bits that carry no value differ."""
    wrong = derived.tensor(name) != there.tensor(name)
    return tuple(int(i) for i in np.unravel_index(wrong.argmax(), wrong.shape)) if wrong.any() else None


def _kind(dtype: str, shape: tuple[int, ...], fmt: str | None) -> str:
    return f"{fmt or dtype} {shape}"


def _pieces(reader: Tensors, name: str) -> Iterator[Any]:
    stored = getattr(reader, "stored", None)
    for piece in stored(name) if stored else reader.chunks(name):
        yield np.frombuffer(piece, np.uint8)
