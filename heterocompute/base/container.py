"""Safetensors files of plain tensors, read strictly; `writer` writes them.

    8 bytes   length of the header, little end first
    header    JSON {"__metadata__": {str: str}, name: {"dtype", "shape", "data_offsets": [begin, end]}}
    data      the tensors' bytes, one after another, without holes

The package `safetensors` is not used: it writes only tensors that are all in memory, and needs names of dtypes that
NumPy lacks. https://github.com/huggingface/safetensors describes the format.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import TooLarge, WrongValue, printable, shown
from .json_text import is_count, strict_json
from .locations import read_at, size_of
from .magic import FIRST_BYTES, MAX_HEADER, what_it_is
from .regular import open_regular
from .tensors import CHUNK as CHUNK, Info as Info, Tensors
from .texts import counted, file_name, quoted, sentence

# Name in the file -> (name in NumPy, bits per value). Largest first: written in this order, all tensors are aligned.
DTYPES = {
    "C64": ("complex64", 64),
    "F64": ("float64", 64),
    "I64": ("int64", 64),
    "U64": ("uint64", 64),
    "F32": ("float32", 32),
    "I32": ("int32", 32),
    "U32": ("uint32", 32),
    "F16": ("float16", 16),
    "BF16": ("bfloat16", 16),
    "I16": ("int16", 16),
    "U16": ("uint16", 16),
    "F8_E4M3": ("float8_e4m3fn", 8),
    "F8_E5M2": ("float8_e5m2", 8),
    "F8_E8M0": ("float8_e8m0fnu", 8),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 8),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 8),
    "I8": ("int8", 8),
    "U8": ("uint8", 8),
    "BOOL": ("bool", 8),
    "F6_E2M3": ("float6_e2m3fn", 6),
    "F6_E3M2": ("float6_e3m2fn", 6),
    "F4": ("float4_e2m1fn", 4),
}
FILE_NAMES = {name: key for key, (name, _) in DTYPES.items()}

MAX_DIMENSIONS = 64  # NumPy's


def bits_of(dtype: str) -> int:
    """Return the bits of a value in a file, by NumPy's name of the dtype."""
    return DTYPES[FILE_NAMES[dtype]][1]


def nbytes_of(dtype: str, shape: Iterable[int]) -> int:
    """Return the bytes of a tensor in a file, by NumPy's name of the dtype.

    Raises
    ------
    ValueError
        If a row of 4- or 6-bit values does not end on a byte.
    """
    bits = math.prod(shape) * bits_of(dtype)
    if bits % 8:
        raise WrongValue(f"{dtype} values of shape {list(shape)} do not fill whole bytes")
    return bits // 8


def from_bits(data: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Return the codes of 4 or 6 bits of whole groups of bytes, the first in the lowest bits.

    Examples
    --------
    >>> from_bits(np.array([0x21], np.uint8), 4).tolist(), from_bits(np.array([1, 32, 0], np.uint8), 6).tolist()
    ([1, 2], [1, 0, 2, 0])
    """
    if bits == 4:
        return np.stack([data & np.uint8(15), data >> np.uint8(4)], -1).reshape(-1)
    a, b, c = data.reshape(-1, 3).T
    parts = [a & 63, a >> 6 | (b & 15) << 2, b >> 4 | (c & 3) << 4, c >> 2]
    return np.stack(parts, -1).astype(np.uint8, copy=False).reshape(-1)


def to_bits(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Return codes of 4 or 6 bits as bytes; the inverse of `from_bits`."""
    if bits == 4:
        return codes[::2] | codes[1::2] << np.uint8(4)
    a, b, c, d = codes.reshape(-1, 4).T
    return np.stack([a | b << 6, b >> 2 | c << 4, c >> 4 | d << 2], -1).astype(np.uint8, copy=False).reshape(-1)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a name in `DTYPES`; bfloat16 and floats of 8 bits and less are those of ml_dtypes."""
    if name.startswith(("bfloat", "float8_", "float6_", "float4_")):
        import ml_dtypes  # 5 ms

        custom: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return custom
    return np.dtype(name)


class Loans:
    """Memory that is lent once nothing refers to it: reuse saves the system the clearing of new pages.

    Whoever keeps a view of lent memory keeps the memory. The next loan is then other memory, so that a view never
    changes. A bytearray counts the arrays and memoryviews in it, and cannot be resized as long as there are any.

    Attributes
    ----------
    poison : bool
        Whether lent memory is filled with 0xFF bytes, as in the tests. A pointer that outlives its array then reads
        NaN.

    Examples
    --------
    >>> loans = Loans()
    >>> first = loans.take(8)
    >>> first[:] = 1
    >>> kept, place = first[2:4], first.ctypes.data
    >>> del first
    >>> loans.take(8).ctypes.data == place, kept.tolist()
    (False, [1, 1])
    """

    poison = False

    def __init__(self) -> None:
        self._memory = bytearray()

    def take(self, nbytes: int) -> NDArray[np.uint8]:
        """Return memory of some bytes, with any content.

        Raises
        ------
        MemoryError
            If there is not enough.
        """
        if len(self._memory) < nbytes or not self._is_free():
            self._memory = bytearray()  # free the old memory before the new one is allocated
            self._memory = bytearray(nbytes)
        found: NDArray[np.uint8] = np.asarray(memoryview(self._memory))[:nbytes]
        if self.poison:
            found.fill(255)
        return found

    def _is_free(self) -> bool:
        """Tell whether no array is in the memory."""
        try:
            self._memory.append(self._memory.pop())
        except BufferError:
            return False
        except IndexError:  # no memory yet
            return True
        return True


def _fresh(nbytes: int) -> NDArray[np.uint8]:
    return np.empty(nbytes, np.uint8)


class Reader(Tensors):
    """Read a safetensors file tensor by tensor.

    Parameters
    ----------
    path : str or os.PathLike
        The file. Its whole header is checked here; the data are read when they are asked for.

    Attributes
    ----------
    path : str
    names : list of str
        In the order of the header.
    metadata : dict of str to str

    Raises
    ------
    ValueError
        If the file is no safetensors file, or is cut off, or its header contradicts itself; one line that
        names the file and, where there is one, the tensor.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from heterocompute.base.writer import Writer
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> with Writer(path, {"w": ("float32", (2, 3))}) as writer:
    ...     writer.write("w", np.arange(6, dtype=np.float32).reshape(2, 3))
    >>> with Reader(path) as reader:
    ...     print(reader.names, reader.info("w").shape, reader.tensor("w").sum())
    ['w'] (2, 3) 15.0
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = file_name(path)
        self.skipped = {}
        self._loans = Loans()
        self._file = open_regular(self.path, buffered=False)
        try:
            self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Reader:
        return self

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def tensor(self, name: str) -> NDArray[Any]:
        """Read one tensor into a new array.

        Returns
        -------
        ndarray
            bfloat16 and float8 as the dtypes of ml_dtypes.

        Raises
        ------
        ValueError
            If the file ends too early, or holds a bool that is neither 0 nor 1.
        """
        return self._read(name, self._new(name, _fresh))

    def lent(self, name: str) -> NDArray[Any]:
        """Read one tensor into memory that a later call reuses once no array refers to it: see `Loans`."""
        return self._read(name, self._new(name, self._loans.take))

    def _new(self, name: str, new: Callable[[int], NDArray[np.uint8]]) -> NDArray[np.uint8]:
        try:
            return new(self.info(name).nbytes)
        except MemoryError as error:
            raise TooLarge(f"{printable(self.path)}: tensor {quoted(name)}: {sentence(error)}") from None

    def _read(self, name: str, data: NDArray[np.uint8]) -> NDArray[Any]:
        info, dtype = self.info(name), self._numpy_dtype(name)
        self._read_into(data.data, self._data_begin + info.begin, name)
        return self.values(data, dtype, name).reshape(info.shape)

    def parts(self, name: str) -> Iterator[NDArray[Any]]:
        """Yield a tensor's values in flat parts."""
        dtype = self._numpy_dtype(name)
        if bits_of(dtype.name) == 6:  # a code may begin in one piece and end in the next one
            yield self.tensor(name).reshape(-1)
            return
        for piece in self.chunks(name):
            yield self.values(np.frombuffer(piece, np.uint8), dtype, name)

    def values(self, data: NDArray[np.uint8], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
        """Return bytes as values; those of 4 and 6 bits get a byte each, as NumPy has them."""
        bits = bits_of(dtype.name)
        return super().values(from_bits(data, bits) if bits < 8 else data, dtype, name)

    def _numpy_dtype(self, name: str) -> np.dtype[Any]:
        return numpy_dtype(self.info(name).dtype)

    def chunks(self, name: str) -> Iterable[memoryview]:
        """Yield a tensor's bytes in pieces; the memory of a piece is reused once nothing refers to it."""
        info = self.info(name)
        loans = Loans(), Loans()  # a loop over the pieces still has one when it asks for the next one
        for i, begin in enumerate(range(0, info.nbytes, CHUNK)):
            piece = loans[i % 2].take(min(CHUNK, info.nbytes - begin)).data
            self._read_into(piece, self._data_begin + info.begin + begin, name)
            yield piece
            del piece

    def _read_into(self, view: memoryview, begin: int, name: str) -> None:
        while len(view):
            n_read = read_at(self._file, view[:CHUNK], begin)
            if not n_read:
                self._fail(f"cut off in tensor {quoted(name)}")
            view, begin = view[n_read:], begin + n_read

    def _read_header(self) -> None:
        size = size_of(self._file)
        length = int.from_bytes(self._file.read(8), "little")
        if not size:
            self._fail("is an empty file")
        if size < 8 + 2 or not 2 <= length <= min(size - 8, MAX_HEADER):
            self._file.seek(0)
            found = what_it_is(self._file.read(FIRST_BYTES)) if length > MAX_HEADER else None  # else: perhaps truncated
            if found:
                self._fail(f"is no safetensors file, it {found}")
            self._fail(f"not a safetensors file, or cut off: header of {counted(length, 'byte')} in a file of {size}")
        text = bytearray(length)
        self._read_into(memoryview(text), 8, "__metadata__")
        try:
            header = strict_json(bytes(text))
        except ValueError as error:
            self._fail(f"not a safetensors file: its header is not JSON ({printable(str(error))})")
        if not isinstance(header, dict):
            self._fail("not a safetensors file: its header is not a JSON object")
        metadata = header.pop("__metadata__", None)
        self.metadata: dict[str, str] = {} if metadata is None else metadata
        if not isinstance(self.metadata, dict) or not all(isinstance(v, str) for v in self.metadata.values()):
            self._fail("__metadata__ is not an object of strings")
        for name in (*header, *self.metadata, *self.metadata.values()):
            try:
                name.encode("utf-8")
            except UnicodeEncodeError:
                self._fail(f"the header holds {quoted(name)}, which is not a string")
        self._data_begin = 8 + length
        self._infos = {name: self._parse(name, entry) for name, entry in header.items()}
        self.names = list(self._infos)
        self._check_offsets(size - self._data_begin)

    def _parse(self, name: str, entry: object) -> Info:
        if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= set(entry):
            self._fail(f"tensor {quoted(name)} does not have dtype, shape and data_offsets")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in DTYPES:
            self._fail(f"tensor {quoted(name)} has the unknown dtype {shown(dtype)}")
        numpy_name, bits = DTYPES[dtype]
        if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not all(is_count(n) for n in shape):
            self._fail(f"tensor {quoted(name)} has the illegal shape {shown(shape)}")
        # NumPy refuses overflow even if another dimension is 0.
        if math.prod(n for n in shape if n) * bits >= 2**63:
            self._fail(f"tensor {quoted(name)} has the shape {shown(shape)}, whose size overflows")
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(is_count(n) for n in offsets):
            self._fail(f"tensor {quoted(name)} has the illegal data_offsets {shown(offsets)}")
        begin, end = offsets
        if (end - begin) * 8 != math.prod(shape) * bits:
            self._fail(f"tensor {quoted(name)}: {dtype} {shape} needs {math.prod(shape) * bits / 8:.0f} bytes, "
                       f"its data_offsets span {end - begin}")  # fmt: skip
        return Info(numpy_name, tuple(shape), end - begin, begin)

    def _check_offsets(self, size: int) -> None:
        end = 0
        for name, info in sorted(self._infos.items(), key=lambda item: (item[1].begin, item[1].nbytes)):
            if info.begin != end:
                self._fail(f"tensor {quoted(name)} begins at {info.begin}, but the one before it ends at {end}")
            end += info.nbytes
            if end > size:
                self._fail(
                    f"cut off: tensor {quoted(name)} ends at {end}, but there are {counted(size, 'byte')} of data"
                )
        if end != size:
            self._fail(f"{counted(size - end, 'byte')} of data behind the last tensor")
