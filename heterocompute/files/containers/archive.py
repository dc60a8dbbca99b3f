"""Zip archives: the position of each member and its bytes; stored and deflated members, also zip64.

    members   one after another: local header, data
    directory a header for each member: method, sizes, name, position of its local header
    end       position and size of the directory

Own code, because `zipfile` makes every member of a hostile directory before one can count them. PKWARE APPNOTE 6.3,
sections 4.3 and 4.4.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...base.json_text import MAX_TENSORS
from ...base.texts import counted, quoted
from .container import Container

MAX_DIRECTORY = 64 << 20
MAX_RATIO = 1032  # the maximum of deflate: a larger ratio is false
STORED, DEFLATED = 0, 8


@dataclass(frozen=True)
class Member:
    """A member of an archive; `begin` is the position of its data."""

    name: str
    method: int
    stored: int
    size: int
    crc: int
    begin: int


def members_of(file: Container) -> dict[str, Member]:
    """Return the members of an archive, by name.

    Raises
    ------
    ValueError
        The file is not an archive, or members overlap, are encrypted, use other methods, or have impossible sizes.
    """
    begin, size, count = _directory(file)
    if size > MAX_DIRECTORY or count > MAX_TENSORS or count * 46 > size:
        file._fail(f"an archive of {counted(count, 'member')}, whose directory has {counted(size, 'byte')}")
    data = file.bytes_at(begin, size, "the directory of the archive").tobytes()
    found: dict[str, Member] = {}
    places: list[tuple[int, int, str]] = []
    at = 0
    for _ in range(count):
        if data[at : at + 4] != b"PK\x01\x02" or at + 46 > size:
            file._fail("the directory of the archive is cut off")
        flags, method = struct.unpack_from("<HH", data, at + 8)
        crc, stored, plain, n_name, n_extra, n_comment = struct.unpack_from("<IIIHHH", data, at + 16)
        (place,) = struct.unpack_from("<I", data, at + 42)
        raw = data[at + 46 : at + 46 + n_name]
        extra = data[at + 46 + n_name : at + 46 + n_name + n_extra]
        at += 46 + n_name + n_extra + n_comment
        plain, stored, place = _long(extra, [plain, stored, place])
        name = raw.decode("utf-8", "replace")
        if flags & 1 or method not in (STORED, DEFLATED):
            file._fail(f"member {quoted(name)} is encrypted, or compressed by another method than deflate")
        if plain > stored * MAX_RATIO + 64 or (method == STORED and plain != stored):
            file._fail(f"member {quoted(name)} claims {counted(plain, 'byte')} of {stored}")
        head = file.bytes_at(place, 30, f"member {quoted(name)}").tobytes()
        if head[:4] != b"PK\x03\x04":
            file._fail(f"member {quoted(name)} is not where the directory says")
        first = place + 30 + sum(struct.unpack_from("<HH", head, 26))
        if name in found:
            file._fail(f"two members are called {quoted(name)}")
        found[name] = Member(name, method, stored, plain, crc, first)
        places.append((place, first + stored, name))
    end = 0
    for place, last, name in sorted(places):
        if place < end or last > begin:
            file._fail(f"member {quoted(name)} overlaps another, or the directory")
        end = last
    return found


def member_bytes(file: Container, member: Member, check: bool = False, limit: int | None = None) -> NDArray[np.uint8]:
    """Return the bytes of a member, or the first `limit` of them; `check` compares their CRC."""
    what = f"member {quoted(member.name)}"
    wanted = member.size if limit is None else min(limit, member.size)
    if member.method == STORED:
        data = file.bytes_at(member.begin, wanted, what)
    else:
        packed = file.bytes_at(member.begin, member.stored if limit is None else min(member.stored, limit + 512), what)
        machine = zlib.decompressobj(-15)
        try:
            plain = machine.decompress(packed.tobytes(), wanted + (limit is None))
        except zlib.error as error:
            file._fail(f"{what}: {error}")
        if len(plain) != wanted:
            file._fail(f"{what} has {counted(len(plain), 'byte')} or more, not {wanted}")
        data = np.frombuffer(bytearray(plain), np.uint8)
    if check and zlib.crc32(data.data) != member.crc:
        file._fail(f"{what} was changed: its checksum is another one")
    return data


def _directory(file: Container) -> tuple[int, int, int]:
    """Return the position and size of the directory, and its members."""
    tail_at = max(0, file.size - 65_557)
    tail = file.bytes_at(tail_at, file.size - tail_at, "the end of the archive").tobytes()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + 22 > len(tail):
        file._fail("an archive without its end: cut off")
    count, size, begin = struct.unpack_from("<HII", tail, at + 10)
    if at >= 20 and tail[at - 20 : at - 16] == b"PK\x06\x07":
        (place,) = struct.unpack_from("<Q", tail, at - 12)
        record = file.bytes_at(place, 56, "the end of the archive").tobytes()
        if record[:4] != b"PK\x06\x06":
            file._fail("an archive without its end: cut off")
        count, size, begin = struct.unpack_from("<QQQ", record, 32)
    return begin, size, count


def _long(extra: bytes, sizes: list[int]) -> list[int]:
    """Replace sizes that are all ones by the 64-bit sizes of the extra field."""
    at = 0
    while at + 4 <= len(extra):
        key, length = struct.unpack_from("<HH", extra, at)
        field = extra[at + 4 : at + 4 + length]
        if key == 1:
            longs = [int.from_bytes(field[i : i + 8], "little") for i in range(0, len(field) - 7, 8)]
            return [longs.pop(0) if one == 0xFFFFFFFF and longs else one for one in sizes]
        at += 4 + length
    return sizes


def opened(file: Container) -> dict[str, Member]:
    """Return the members that are not folders."""
    return {name: member for name, member in members_of(file).items() if not name.endswith("/")}
