"""A checkpoint in parts: a folder with an index from tensors to files.

The index must agree with the headers both ways: a missing tensor would be garbage after loading, an extra one would
belong to another model. Other files of the folder are ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

from ...arrays.layout import KEY
from ...base.errors import WrongValue, printable, shown
from ...base.json_text import strict_json
from ...base.locations import absolute, exists, names_in
from ...base.magic import INDEX, names_index
from ...base.tensors import Info, Tensors
from ...base.texts import quoted, read_small
from .container import inside

MAX_INDEX = 64 << 20
MAX_PARTS = 1 << 14
ALONE = ("model.safetensors", "pytorch_model.bin")


def index_in(folder: str) -> str:
    """Return the file that stands for a folder: its index, that of its only variant, or its only file of weights.

    Raises
    ------
    ValueError
        There is no such file, or there are several.
    """
    names = names_in(folder)
    indices = [name for name in names if name.endswith(INDEX)]
    weights = [name for name in names if name.endswith(".safetensors")]
    first = next((name for name in ALONE if name in names), None)
    safe = [name for name in indices if name.endswith(".safetensors" + INDEX)]
    variants = [] if first else [name for name in names if names_index(name) and name not in indices]
    for some in (safe, indices, variants, [first] if first else weights):
        if len(some) == 1:
            return os.path.join(folder, some[0])
        if some:
            break
    found = ", ".join(map(quoted, (indices or variants or weights)[:9])) or "none"
    raise WrongValue(
        f"{printable(folder)}: expected one index of a checkpoint or one file of weights, there is {found}"
    )


def weight_map(path: str) -> dict[str, str]:
    """Return the map of an index: tensor -> file.

    Raises
    ------
    ValueError
        The file is not an index.
    """
    prefix = f"{printable(path)}: "
    try:
        index = strict_json(read_small(path, MAX_INDEX))
    except ValueError as error:
        text = str(error)
        raise WrongValue(text if text.startswith(prefix) else f"{prefix}no index of a checkpoint: {text}") from None
    where = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(where, dict) or not all(isinstance(part, str) for part in where.values()):
        raise WrongValue(f"{prefix}no index of a checkpoint: it has no weight_map of names to files")
    return where


class Located(Tensors):
    """Tensors that are known, in files that are opened when one of theirs is read, one at a time.

    Parameters
    ----------
    path : str
        What stands for all of them, in errors.
    files : mapping of str to str
        Name of a tensor -> the path of its file.
    infos : mapping of str to Info
    metadata : mapping of str to str
    open_part : callable
        Opens one file.

    Raises
    ------
    ValueError
        The file of a tensor has changed its description since it was opened.
    """

    def __init__(
        self,
        path: str,
        files: Mapping[str, str],
        infos: Mapping[str, Info],
        metadata: Mapping[str, str],
        open_part: Callable[[str], Tensors],
    ) -> None:
        self.path, self.metadata, self.skipped = path, dict(metadata), {}
        self.files, self._infos, self.names = dict(files), dict(infos), list(infos)
        self._open = open_part
        self._current: tuple[str, Tensors] | None = None

    def close(self) -> None:
        """Close the file that is open."""
        if self._current is not None:
            self._current[1].close()
            self._current = None

    def tensor(self, name: str) -> NDArray[Any]:
        """Read one tensor from its file."""
        return self._part_of(name).tensor(name)

    def lent(self, name: str) -> NDArray[Any]:
        """Return the result of the tensor's file."""
        return self._part_of(name).lent(name)

    def shared(self, name: str) -> NDArray[Any]:
        """Return the result of the tensor's file."""
        return self._part_of(name).shared(name)

    def parts(self, name: str) -> Any:
        """Return the result of the tensor's file."""
        return self._part_of(name).parts(name)

    def chunks(self, name: str) -> Iterable[memoryview]:
        """Return the result of the tensor's file."""
        return self._part_of(name).chunks(name)

    def _part_of(self, name: str) -> Tensors:
        info, path = self.info(name), self.files[name]
        reader = self._opened(path)
        if name not in reader or (reader.info(name).dtype, reader.info(name).shape) != (info.dtype, info.shape):
            self._fail(f"tensor {quoted(name)} of {quoted(os.path.basename(path))} changed while the checkpoint was "
                       "open")  # fmt: skip
        return reader

    def _opened(self, path: str) -> Tensors:
        """Return the reader of one file; only one is open at a time."""
        if self._current is None or self._current[0] != path:
            self.close()
            self._current = (path, self._open(path))
        return self._current[1]


class Folder(Located):
    """The tensors that an index names, file by file.

    Parameters
    ----------
    path : str
        Of the index.
    open_part : callable
        Opens one file.

    Raises
    ------
    ValueError
        There is no index, a file is missing or outside the folder, or the index and a file name different tensors.
    """

    def __init__(self, path: str, open_part: Callable[[str], Tensors]) -> None:
        super().__init__(path, {}, {}, {}, open_part)
        parts: dict[str, set[str]] = {}
        for name, part in weight_map(path).items():
            parts.setdefault(part, set()).add(name)
        if len(parts) > MAX_PARTS:
            self._fail(f"an index of {len(parts)} files, at most {MAX_PARTS} are read")
        described: dict[str, Any] = {}
        for part in sorted(parts):
            self._take(part, parts[part], described)
        if described:
            self.metadata[KEY] = json.dumps({"version": 1, "single": False, "tensors": described}, ensure_ascii=False)
        self.names = list(self._infos)

    def _place(self, part: str) -> str:
        """Return the path of a file that the index names."""
        path = inside(os.path.dirname(absolute(self.path)), part)
        if path is None or "/" in part:
            self._fail(f"the index names {shown(part)}, expected a file of its own folder")
        if not exists(path):
            self._fail(f"the index names {quoted(part)}, which is missing")
        return path

    def _take(self, part: str, wanted: set[str], described: dict[str, Any]) -> None:
        path = self._place(part)
        reader = self._opened(path)
        held = set(reader.names)
        if missing := wanted - held - set(reader.skipped):
            self._fail(f"the index says that {quoted(min(missing))} is in {quoted(part)}, which does not have it")
        if extra := held - wanted:
            self._fail(f"{quoted(part)} holds {quoted(min(extra))}, which the index does not say")
        for name in reader.names:
            self._infos[name], self.files[name] = reader.info(name), path
        self.skipped |= reader.skipped
        self.axes, self.quantized = {**self.axes, **reader.axes}, self.quantized or reader.quantized
        for key, value in reader.metadata.items():
            if key != KEY:
                self.metadata.setdefault(key, value)
                continue
            try:
                found = strict_json(value)
                described.update(found["tensors"])
                if found["version"] != 1:
                    raise ValueError
            except (KeyError, TypeError, ValueError):
                self._fail(f"{quoted(part)} describes its packed arrays in a way that is not known")
