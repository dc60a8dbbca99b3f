"""NumPy's own files: one array (.npy), or an archive of them (.npz).

    6 bytes   \\x93NUMPY
    2 bytes   version, 1 to 3
    2 or 4    length of the header
    header    {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
    data

Own code, because `numpy.lib.format` gives the header to Python's parser. The dtypes of ml_dtypes have no names there.
bfloat16 alone is ``<V2`` and float8_e5m2 alone ``<f1``, so these are read; ``<V1`` may be any of a dozen, and is not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ...arrays.layout import SINGLE
from ...base.container import numpy_dtype
from ...base.errors import shown
from ...base.texts import counted, quoted, shortened
from .archive import Member, member_bytes, opened
from .container import Container

MAX_HEADER = 1 << 16
ITEM = re.compile(
    r"\s*'(descr|fortran_order|shape)'\s*:\s*('[^'\\]*'|True|False|\([0-9,\sL]*\)|\[.*\])\s*(?:,|$)", re.S
)
UNNAMED = {"<V2": "bfloat16", ">V2": "bfloat16", "<f1": "float8_e5m2", "|f1": "float8_e5m2"}
PLAIN = re.compile(r"[<>|=]?[biufc][0-9]{1,2}")

Header = tuple[np.dtype[Any] | str, tuple[int, ...], bool, int]  # dtype or its text, shape, order, start of the data


def _header(data: bytes, fail: Callable[[str], NoReturn]) -> Header:
    version = data[6:8]
    wide = 2 if version == b"\x01\x00" else 4
    if data[:6] != b"\x93NUMPY" or version not in (b"\x01\x00", b"\x02\x00", b"\x03\x00") or len(data) < 8 + wide:
        fail("no array of NumPy, or of a version that is not known")
    length = int.from_bytes(data[8 : 8 + wide], "little")
    text = data[8 + wide : 8 + wide + length].decode("latin-1").strip()
    if length > MAX_HEADER or len(data) < 8 + wide + length or text[:1] != "{" or text[-1:] != "}":
        fail(f"a header of {counted(length, 'byte')} that is cut off, or none")
    items: dict[str, str] = {}
    rest = text[1:-1].rstrip()
    while rest:
        match = ITEM.match(rest)
        if match is None or match[1] in items:
            fail(f"the header {quoted(shortened(text, 80))} is not one that NumPy writes")
        items[match[1]] = match[2]
        rest = rest[match.end() :].strip()
    descr, order, shape = (items.get(key, "") for key in ("descr", "fortran_order", "shape"))
    if descr[:1] not in ("'", "[") or order not in ("True", "False") or shape[:1] != "(":
        fail(f"the header {quoted(shortened(text, 80))} is not one that NumPy writes")
    sizes = tuple(int(digits) for digits in re.findall(r"[0-9]{1,20}", shape))
    dtype: np.dtype[Any] | str = descr.strip("'")
    if dtype in UNNAMED:
        dtype = numpy_dtype(UNNAMED[str(dtype)]).newbyteorder(">" if str(dtype)[0] == ">" else "=")
    elif PLAIN.fullmatch(str(dtype)):
        try:
            dtype = np.dtype(str(dtype))
        except TypeError:
            fail(f"the dtype {quoted(str(dtype))} is none of NumPy's")
    return dtype, sizes, order == "True", 8 + wide + length


def _native(data: NDArray[np.uint8], header: Header) -> NDArray[Any]:
    dtype, shape, fortran, _ = header
    assert isinstance(dtype, np.dtype)
    array = data.view(dtype).reshape(shape[::-1]).T if fortran else data.view(dtype).reshape(shape)
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))


class _Arrays(Container):
    def _take(self, name: str, header: Header, size: int, load: Callable[[], NDArray[np.uint8]]) -> None:
        dtype, shape, _, begin = header
        if isinstance(dtype, str):  # texts, objects, records, raw bytes
            what = ", raw bytes, such as NumPy makes of float8" if "V" in dtype else ""
            self.add(name, f"of the dtype {dtype}{what}", shape, lambda: np.empty(0))
            return
        if begin + math.prod(shape) * dtype.itemsize != size:
            self._fail(f"array {quoted(name)} of {dtype.name} {shown(shape)} does not fill its {counted(size, 'byte')}")
        if dtype.kind == "b":
            self.add(name, "bool", shape, lambda: self.values(load(), dtype, name).reshape(shape))
        else:
            self.add(name, dtype.newbyteorder("=").name, shape, lambda: _native(load(), header))


class Npy(_Arrays):
    """One array, called ``array``."""

    def _read(self) -> None:
        data = self.bytes_at(0, min(self.size, MAX_HEADER + 12), "the header").tobytes()
        header = _header(data, self._fail)
        begin = header[3]
        self._take(SINGLE, header, self.size, lambda: self.bytes_at(begin, self.size - begin, "the array"))


class Npz(_Arrays):
    """An archive of arrays, each named like its member without ``.npy``."""

    def _read(self) -> None:
        for member in opened(self).values():
            name = member.name.removesuffix(".npy")
            start = member_bytes(self, member, limit=MAX_HEADER + 12).tobytes()
            self._take_member(name, member, start)

    def _take_member(self, name: str, member: Member, start: bytes) -> None:
        def fail(what: str) -> NoReturn:
            self._fail(f"array {quoted(name)}: {what}")

        header = _header(start, fail)
        self._take(name, header, member.size, lambda: member_bytes(self, member, check=True)[header[3] :])
