"""GGUF files of llama.cpp: this module reads the header, the package `gguf` decodes blocks.

    magic GGUF, u32 version, u64 tensors, u64 keys
    keys      text, u32 type, value
    tensors   text, u32 dimensions, u64 sizes (the fastest first), u32 type, u64 offset in the data
    data      from the next multiple of the alignment

The package does not read the header, since it trusts the sizes there (llama.cpp #18674). ggml, docs/gguf.md.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.json_text import MAX_TENSORS
from ...base.tensors import CHUNK
from ...base.texts import counted, quoted
from .container import MAX_NAME, Container

PLAIN = {0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64", 30: "bfloat16"}
# Type -> its name, values and bytes of a block.
BLOCKS = {
    2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 29: ("IQ1_M", 256, 56), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
}  # fmt: skip
OF_IK = {  # types of ik_llama.cpp alone
    133: "q6_0", 134: "iq1_bn", 135: "iq2_bn", 137: "iq2_k", 138: "iq3_k", 139: "iq4_k", 140: "iq5_k", 141: "iq6_k",
    144: "iq4_ks", 145: "iq2_ks", 146: "iq4_kss", 152: "iq5_ks", 153: "iq2_kt", 154: "iq3_kt", 155: "iq4_kt",
    156: "iq3_ks", 157: "iq2_kl", 158: "iq1_kt",
}  # fmt: skip
NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
TEXT, LIST = 8, 9
VERSIONS = (2, 3)
MAX_KEYS, MAX_TEXTS, MAX_TEXT = 1 << 16, 1 << 22, 1 << 20
MAX_DIMENSIONS = 4
PIECE = 1 << 16  # bytes of strings read at a time


def scale_name(name: str) -> str:
    """Return what the tensor is called that holds the scale of an NVFP4 tensor.

    Examples
    --------
    >>> scale_name("blk.0.ffn_up.weight"), scale_name("w")
    ('blk.0.ffn_up.scale', 'w.scale')
    """
    return f"{name.removesuffix('.weight')}.scale"


class Gguf(Container):
    """A GGUF file. `metadata` has its numbers and strings; `listed` reads lists, such as a vocabulary.

    The float32 scale of an NVFP4 tensor is not in `names`: the values are multiplied by it.
    """

    is_configured = False  # it has names of its own, and all matrices are (out, in)

    def _read(self) -> None:
        self._at = 0
        self._blocks: dict[str, tuple[int, int]] = {}
        self._begins: dict[str, int] = {}
        self._kinds: dict[str, int] = {}  # type of the value of a key
        self._lists: dict[str, tuple[int, int, int]] = {}  # key -> type and number of its values, where they begin
        if self._take(4) != b"GGUF":
            self._fail("no GGUF file")
        version = self._number("<I")
        if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
            self._fail("GGUF of the other order of bytes (big-endian): expected little-endian, which gguf's "
                       "gguf-convert-endian makes of it")  # fmt: skip
        if version not in VERSIONS:
            self._fail(f"GGUF of version {version}, expected 2 or 3")
        n_tensors, n_keys = self._number("<Q"), self._number("<Q")
        if n_tensors > MAX_TENSORS or n_keys > MAX_KEYS:
            self._fail(f"GGUF of {n_tensors} tensors and {n_keys} keys, at most {MAX_TENSORS} and {MAX_KEYS} are read")
        self._texts = 0
        for _ in range(n_keys):
            key, kind = self._text(), self._number("<I")
            value = self._value(kind, key)
            if key in self.metadata:
                self._fail(f"two keys are called {quoted(key)}")
            self._kinds[key] = kind
            if value is not None:
                self.metadata[key] = value
        tensors = [self._entry() for _ in range(n_tensors)]
        alignment = int(self.metadata.get("general.alignment", "32"), 10) if self._aligned() else 0
        if not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
            self._fail(
                f"the alignment is {quoted(self.metadata.get('general.alignment', ''))}, expected a power of two"
            )
        begin = -(-self._at // alignment) * alignment
        end = begin
        for name, shape, kind, offset in sorted(tensors, key=lambda tensor: tensor[3]):
            if offset % alignment or begin + offset < end:
                self._fail(f"tensor {quoted(name)} begins at {offset}, inside another one or at no multiple of "
                           f"{alignment}")  # fmt: skip
            end = begin + offset + self._nbytes(name, shape, kind)
            if end > self.size and 0 not in shape:
                self._fail(
                    f"cut off: tensor {quoted(name)} ends at {end}, but the file has {counted(self.size, 'byte')}"
                )
        for name, shape, kind, offset in tensors:
            self._add(name, shape, kind, begin + offset)
        self._leave_scales_out()

    def _leave_scales_out(self) -> None:
        """Find the scales of NVFP4 tensors and remove them from `names`."""
        self._scales = {name: scale_name(name) for name in self.names if self.kind(name) == "NVFP4"}
        self._scales = {name: scale for name, scale in self._scales.items() if self._is_scale(scale, name)}
        taken = set(self._scales.values())
        self.names = [name for name in self.names if name not in taken]

    def _is_scale(self, name: str, of: str) -> bool:
        """Tell whether a tensor is the scale of another one, or those of its matrices."""
        if name not in self or self.info(name).dtype != "float32":
            return False
        count = math.prod(self.info(name).shape)
        return count == 1 or (len(self.info(of).shape) == 3 and count == self.info(of).shape[0])

    def _aligned(self) -> bool:
        text = self.metadata.get("general.alignment", "32")
        return text.isdecimal() and len(text) < 20

    def _add(self, name: str, shape: tuple[int, ...], kind: int, begin: int) -> None:
        self._begins[name] = begin
        if kind in PLAIN:
            dtype = PLAIN[kind]
            self.add(name, dtype, shape, lambda: self.plain(begin, dtype, shape, name))
        else:
            self.add(name, "float32", shape, lambda: self._decoded(name, shape, kind))
            self._blocks[name] = kind, begin

    def kind(self, name: str) -> str | None:
        """Return the type of a tensor of blocks; None for other tensors."""
        return BLOCKS[self._blocks[name][0]][0] if name in self._blocks else None

    def format_of(self, name: str) -> str | None:
        """Return the format string of a type of blocks."""
        kind = self.kind(name)
        return kind and kind.lower()

    def stored_bytes(self, name: str) -> int:
        """Return the stored bytes of a tensor, or of its blocks."""
        info = self.info(name)
        return self._nbytes(name, info.shape, self._blocks[name][0]) if name in self._blocks else info.nbytes

    def blocks(self, name: str) -> tuple[str, NDArray[np.uint8]] | None:
        """Return the type and the bytes of a tensor of blocks, (rows, bytes of a row); None for other tensors."""
        shape = self.info(name).shape
        if name not in self._blocks or 0 in shape:
            return None
        kind, begin = self._blocks[name]
        text, values, n_bytes = BLOCKS[kind]
        data = self.bytes_at(begin, self._nbytes(name, shape, kind), f"tensor {quoted(name)}")
        return text, data.reshape(-1, shape[-1] // values * n_bytes)

    def stored(self, name: str) -> Iterator[NDArray[np.uint8]]:
        """Yield the bytes of a tensor in pieces, of blocks or of plain values."""
        count = self.stored_bytes(name)
        for first in range(0, count, CHUNK):
            yield self.bytes_at(self._begins[name] + first, min(CHUNK, count - first), f"tensor {quoted(name)}")

    def _nbytes(self, name: str, shape: tuple[int, ...], kind: int) -> int:
        if kind in PLAIN:
            return math.prod(shape) * np.dtype(_width(PLAIN[kind])).itemsize
        if kind not in BLOCKS:
            known = f"{OF_IK[kind]} of ik_llama.cpp, which is not read" if kind in OF_IK else ""
            self._fail(f"tensor {quoted(name)} is of the type {known or f'{kind}, which is not known'}")
        _, values, n_bytes = BLOCKS[kind]
        if not shape or shape[-1] % values:
            self._fail(f"tensor {quoted(name)} has rows of {shape[-1:]} values, expected a multiple of {values}")
        return math.prod(shape) // values * n_bytes

    def _decoded(self, name: str, shape: tuple[int, ...], kind: int) -> NDArray[Any]:
        text = BLOCKS[kind][0]
        try:
            from gguf import GGMLQuantizationType, quants  # optional
        except ImportError:
            raise ImportError(
                f"{self.path}: tensor {quoted(name)} is {text}, which the package gguf decodes: "
                "pip install 'heterocompute[gguf]'"
            ) from None
        found = self.blocks(name)
        if found is None:
            return np.zeros(shape, np.float32)
        try:
            with np.errstate(all="ignore"):
                values = quants.dequantize(found[1], GGMLQuantizationType(kind))
        except (NotImplementedError, KeyError, ValueError) as error:
            self._fail(f"tensor {quoted(name)} is {text}, which this version of gguf does not decode ({error})")
        values = np.ascontiguousarray(values, np.float32).reshape(shape)
        if name in self._scales:
            with np.errstate(all="ignore"):
                scale = self.tensor(self._scales[name])
                values *= scale.reshape(()) if scale.size == 1 else scale.reshape(-1, 1, 1)
        return values

    def _entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name, n_dims = self._text(MAX_NAME), self._number("<I")
        if n_dims > MAX_DIMENSIONS:
            self._fail(f"tensor {quoted(name)} has {n_dims} dimensions, at most {MAX_DIMENSIONS} are possible")
        shape = tuple(self._number("<Q") for _ in range(n_dims))[::-1]
        if math.prod(n for n in shape if n) >= 2**60:
            self._fail(f"tensor {quoted(name)} has the shape {list(shape)}, whose size overflows")
        return name, shape, self._number("<I"), self._number("<Q")

    def _value(self, kind: int, key: str) -> str | None:
        if kind in NUMBERS:
            return str(self._number(NUMBERS[kind]))
        if kind == TEXT:
            return self._text()
        if kind != LIST:
            self._fail(f"a value of the type {kind}, which is not known")
        inner, count = self._number("<I"), self._number("<Q")
        if key in self._lists:
            self._fail(f"two keys are called {quoted(key)}")
        self._lists[key] = inner, count, self._at
        if inner == TEXT:
            self._texts += count
            if self._texts > MAX_TEXTS:
                self._fail(f"lists of more than {MAX_TEXTS} texts")
            for text in self._texts_from(self._at, count):
                self._at += 8 + len(text)
            self._file.seek(self._at)
        elif inner in NUMBERS:
            self._skip(count * struct.calcsize(NUMBERS[inner]))
        else:
            self._fail(f"a list of the type {inner}; lists of lists are not read")
        return None

    @property
    def lists(self) -> list[str]:
        """Return the keys that have lists."""
        return list(self._lists)

    def listed(self, key: str) -> list[bytes] | NDArray[Any] | None:
        """Read the list of a key: texts as UTF-8, numbers as an array.

        Returns
        -------
        list of bytes, ndarray or None
            None if the file has no list of this name.
        """
        if key not in self._lists:
            return None
        inner, count, begin = self._lists[key]
        if inner == TEXT:
            return list(self._texts_from(begin, count))
        dtype = np.dtype(NUMBERS[inner])
        return self.bytes_at(begin, count * dtype.itemsize, f"key {quoted(key)}").view(dtype)

    def keys(self) -> dict[str, Any]:
        """Return the keys as `save_gguf` accepts them: strings, bools, NumPy's numbers, and nonempty lists."""
        found: dict[str, Any] = {}
        for key, kind in self._kinds.items():
            if kind == LIST:
                values = self.listed(key)
                assert values is not None
                texts = [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in values]
                found |= {key: texts} if texts else {}
            elif kind == TEXT:
                found[key] = self.metadata[key]
            else:
                dtype = np.dtype(NUMBERS[kind])
                text = self.metadata[key]
                found[key] = dtype.type(
                    text == "True" if dtype.kind == "b" else float(text) if dtype.kind == "f" else int(text)
                )
        return found

    def _texts_from(self, begin: int, count: int) -> Iterator[bytes]:
        """Yield consecutive strings of the file, which is read in pieces."""
        piece, at = b"", 0
        for _ in range(count):
            if len(piece) - at < 8:
                begin, piece, at = begin + at, self._piece(begin + at, PIECE), 0
            length = int.from_bytes(piece[at : at + 8], "little")
            if len(piece) - at < 8 or length > self.size:
                self._fail("cut off in the header")
            if len(piece) - at < 8 + length:
                begin, piece, at = begin + at, self._piece(begin + at, length + PIECE), 0
                if len(piece) < 8 + length:
                    self._fail("cut off in the header")
            yield piece[at + 8 : at + 8 + length]
            at += 8 + length

    def _piece(self, begin: int, count: int) -> bytes:
        """Return the next bytes of the file, fewer at its end."""
        return self.bytes_at(begin, min(count, max(self.size - begin, 0)), "the header").tobytes()

    def _text(self, most: int = MAX_TEXT) -> str:
        length = self._number("<Q")
        if length > most:
            self._fail(f"a text of {length} bytes, at most {most} are possible")
        return self._take(length).decode("utf-8", "replace")

    def _number(self, form: str) -> Any:
        (found,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return found

    def _take(self, count: int) -> bytes:
        found = self._file.read(count)
        if len(found) != count:
            self._fail("cut off in the header")
        self._at += count
        return found

    def _skip(self, count: int) -> None:
        if self._at + count > self.size:
            self._fail("cut off in the header")
        if count <= 4096:
            self._take(count)
        else:
            self._at += count
            self._file.seek(self._at)


def _width(name: str) -> str:
    return "uint16" if name == "bfloat16" else name
