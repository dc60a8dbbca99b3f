"""GGUF in parts, as llama.cpp splits a model: NAME-00001-of-00009.gguf and its siblings, each a GGUF file.

    split.no             the part, from 0
    split.count          how many
    split.tensors.count  the tensors of all

The first part has the other keys. llama.cpp, tools/gguf-split; llama_split_path in src/llama.cpp.
"""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.json_text import MAX_TENSORS
from ...base.locations import absolute, exists
from ...base.texts import counted, quoted
from .container import inside
from .gguf_files import Gguf

NUMBER, COUNT, TENSORS = KEYS = ("split.no", "split.count", "split.tensors.count")
NAME = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf", re.DOTALL)
MAX_PARTS = 512  # all are open at once


def whole(part: Gguf) -> Gguf:
    """Return the model to which a part belongs, or the file itself if it is not a part.

    Raises
    ------
    ValueError
        A part is missing, is in another folder, or belongs to another model.
    """
    if part.metadata.get(COUNT, "1") in ("0", "1"):
        return part
    try:
        return GgufParts(part)
    except BaseException:
        part.close()
        raise


class GgufParts(Gguf):
    """A model in several files; `others` are those that were not named.

    Parameters
    ----------
    part : Gguf
        Any of them; closed with this.
    """

    def __init__(self, part: Gguf) -> None:
        self.path, self._parts = part.path, [part]
        try:
            self._take_all(part)
        except BaseException:
            self.close()
            raise

    def _take_all(self, part: Gguf) -> None:
        numbers = self._numbers(part)
        number, count, n_tensors = numbers
        folder, own = os.path.split(absolute(part.path))
        found = NAME.fullmatch(own)
        if count > MAX_PARTS or not 0 <= number < count:
            self._fail(f"is part {number + 1} of {count}, expected at most {MAX_PARTS}")
        names = [f"{found[1] if found else ''}-{i + 1:05d}-of-{count:05d}.gguf" for i in range(count)]
        if found is None or own != names[number]:
            wanted = f"NAME-{number + 1:05d}-of-{count:05d}.gguf"
            self._fail(
                f"is part {number + 1} of {count} of a model, expected the name {wanted} and the others beside it"
            )
        parts = []
        for i, name in enumerate(names):
            if i == number:
                parts.append(part)
                continue
            path = inside(folder, name)
            if path is None or not exists(path):
                self._fail(f"is part {number + 1} of {count} of a model, of which {quoted(name)} is missing")
            parts.append(Gguf(os.path.join(folder, name)))
            self._parts.append(parts[-1])
            if self._numbers(parts[-1]) != (i, count, n_tensors):
                self._fail(f"{quoted(name)} is no part of the same model: its keys split.* say something else")
        self.others = [one.path for one in parts if one is not part]
        self._in_order = parts
        self.metadata, self.skipped = {}, {}
        self._of: dict[str, Gguf] = {}
        for one in parts:
            for name in one._infos:
                if name in self._of:
                    self._fail(f"two tensors are called {quoted(name)}")
                self._of[name] = one
            self.skipped |= one.skipped
            self.metadata = {**one.metadata, **self.metadata}
        self.metadata = {key: value for key, value in self.metadata.items() if key not in KEYS}
        if len(self._of) + len(self.skipped) != n_tensors or n_tensors > MAX_TENSORS:
            held = counted(len(self._of) + len(self.skipped), "tensor")
            self._fail(f"its {count} parts have {held}, {TENSORS} says {n_tensors}")
        self._infos = {name: one._infos[name] for name, one in self._of.items()}
        self.names = list(self._of)
        self._leave_scales_out()

    def _numbers(self, part: Gguf) -> tuple[int, int, int]:
        try:
            number, count, n_tensors = (int(part.metadata[key][:20], 10) for key in KEYS)
        except (KeyError, ValueError):
            self._fail(f"{quoted(os.path.basename(part.path))} is a part of a model without the keys {', '.join(KEYS)}")
        return number, count, n_tensors

    def close(self) -> None:
        """Close all files."""
        for part in self._parts:
            part.close()

    def tensor(self, name: str) -> NDArray[Any]:
        """Read one tensor from its file; the scale of NVFP4 may be in another one."""
        part = self._part(name)
        values = part.tensor(name)
        if name in self._scales and name not in part._scales:
            with np.errstate(all="ignore"):
                values *= self.tensor(self._scales[name]).reshape(())
        return values

    def kind(self, name: str) -> str | None:
        """Return the result of the tensor's file."""
        return self._of[name].kind(name) if name in self._of else None

    def stored_bytes(self, name: str) -> int:
        """Return the result of the tensor's file."""
        return self._part(name).stored_bytes(name)

    def blocks(self, name: str) -> tuple[str, NDArray[np.uint8]] | None:
        """Return the result of the tensor's file."""
        return self._part(name).blocks(name)

    def listed(self, key: str) -> list[bytes] | NDArray[Any] | None:
        """Return the list in the first part that has the key."""
        return next((found for part in self._in_order if (found := part.listed(key)) is not None), None)

    def keys(self) -> dict[str, Any]:
        """The keys of all parts; most are in the first."""
        found: dict[str, Any] = {}
        for part in self._in_order:
            found = {**part.keys(), **found}
        return {key: value for key, value in found.items() if key not in KEYS}

    def _part(self, name: str) -> Gguf:
        self.info(name)  # refuses an unknown name
        return self._of[name]
