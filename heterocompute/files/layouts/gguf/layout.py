"""The layout gguf: a kind of file of its own, with the keys and names of llama.cpp where it holds a language model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from ....arrays.quantized import QuantizedArray
from ....base.errors import WrongValue, printable
from ....base.tensors import Tensors
from ....formats import Format, Int
from ...containers.gguf_files import Gguf
from ...gguf import save_tensors
from ...selection import escaped
from .. import scaled
from ..layout import Layout, Target
from ..weight import Weight, of_array, of_rows, of_values
from . import model
from .blocks import blocks_name
from .hugging_face import EMBEDDING, Renamed, renamed
from .llama_cpp import Model, model_in, model_of_gguf
from .rounding import rounded
from .tokenizer_json import tokenizer_files

PLAIN = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int16": "i16", "int32": "i32",
         "int64": "i64"}  # fmt: skip


class GGUF(Layout):
    name = "gguf"
    programs = ("llama.cpp", "ollama", "ggml")
    is_file = True
    keeps = ()
    has_several = True
    has_blocks = True
    has_models = True
    examples = ("q4_0", "int4-g32-f16")

    def recognizes(self, reader: Tensors) -> bool:
        return isinstance(reader, Gguf)

    def readers(self, reader: Tensors) -> dict[str, Callable[[], Any]]:
        return model.readers(reader)

    def weights(self, reader: Tensors) -> tuple[list[str], dict[str, Callable[[], Weight]]]:
        found = model.readers(reader)
        packed = [name for name in found if reader.format_of(name) is not None]
        return list(found), {name: partial(_weight, reader, name, found[name]) for name in packed}

    def check(self, name: str, shape: tuple[int, ...], target: Target) -> None:
        if isinstance(target, Int | scaled.Blocks) or blocks_name(target) is None:
            raise WrongValue(f"gguf has no place for {target}")
        if shape[-1] % model.block_of(target):
            raise WrongValue(f"rows of {shape[-1]} values, {target} has blocks of {model.block_of(target)}")

    def why_not_plain(self, dtype: str, shape: tuple[int, ...]) -> str:
        return "" if dtype in PLAIN and len(shape) <= 4 else f"gguf has no place for {dtype} of {len(shape)} dimensions"

    def rounded(self, values: object, fmt: Format, axes: tuple[int, ...]) -> QuantizedArray:
        return rounded(values, fmt, axes)

    def write(
        self, path: str | os.PathLike[str], arrays: Mapping[str, Any], packed: Mapping[str, QuantizedArray], check: str
    ) -> None:
        model.write(path, arrays, None, check)

    def write_model(self, path: str | os.PathLike[str], arrays: Mapping[str, Any], declared: Any, check: str) -> None:
        model.write(path, arrays, declared, check)

    def model_in(self, reader: Tensors) -> tuple[Model | None, str | None]:
        try:
            return model_of_gguf(reader) if isinstance(reader, Gguf) else model_in(reader), None
        except ValueError as error:
            return None, str(error)

    def keys(self, reader: Tensors) -> dict[str, Any]:
        assert isinstance(reader, Gguf)
        return reader.keys()

    def renamed(self, reader: Tensors) -> tuple[Renamed | None, str | None]:
        if not isinstance(reader, Gguf) or reader.metadata.get("general.architecture", "none") == "none":
            return None, None
        try:
            return renamed(reader), None
        except ValueError as error:
            return None, str(error).removeprefix(f"{printable(reader.path)}: ")

    def companions(self, reader: Tensors) -> dict[str, str]:
        assert isinstance(reader, Gguf)
        return tokenizer_files(reader, reader.info(EMBEDDING).shape[0])

    def write_mapping(
        self, path: Any, arrays: Mapping[str, Any], source: Any, dtypes: Mapping[str, Any], check: str
    ) -> dict[str, Any]:
        """Write arrays one at a time, and return the entries of the summary of `convert_checkpoint`."""
        declared, reason = (None, None) if source.keys else self.model_in(source)
        types: dict[str, Any] = {}
        for name, dtype in dtypes.items():
            own = name if declared is None else declared.names.get(name, name)
            is_stored = declared is None or len(source.info(name).shape) > 1
            if is_stored and isinstance(dtype, str) and dtype in ("float16", "bfloat16"):
                types[escaped(own)] = PLAIN[dtype]
        if declared is None:
            save_tensors(path, arrays, source.keys, types=types, check=check)
            return {"unloadable": reason, "notes": []}
        keys = {"general.architecture": declared.architecture, **declared.keys}
        save_tensors(path, Named(arrays, declared), keys, types=types, check=check)
        return {"unloadable": None, "notes": list(declared.notes)}


class Named(Mapping[str, Any]):
    """The arrays of a language model under the names, and in the order of rows, of llama.cpp."""

    def __init__(self, arrays: Mapping[str, Any], declared: Model) -> None:
        self._arrays, self._model = arrays, declared
        self._names = {own: name for name, own in declared.names.items()}

    def __getitem__(self, own: str) -> Any:
        array = self._array(own)
        model.refuse_scales(own, array, self._model)
        return array

    def _array(self, own: str) -> Any:
        if (stack := self._model.stacks.get(own)) is not None:
            return stack.of(own, [self._arrays[name] for name in stack.names])
        if own not in self._names:
            return self._model.more[own]
        array, rows = self._arrays[self._names[own]], self._model.rows.get(own)
        if isinstance(array, QuantizedArray):
            return array if rows is None else of_rows(array, rows)
        values = np.asarray(array)
        if values.ndim == 1 or own.endswith(".bias"):
            values = np.asarray(values, np.float32)  # llama.cpp has no others
        values = values if rows is None else values[rows]
        return values + np.float32(1) if own in self._model.plus_one else values

    def __iter__(self) -> Iterator[str]:
        return iter([*self._names, *self._model.stacks, *self._model.more])

    def __len__(self) -> int:
        return len(self._names) + len(self._model.stacks) + len(self._model.more)


def _weight(reader: Tensors, name: str, read: Callable[[], Any]) -> Weight:
    array = read()
    if isinstance(array, QuantizedArray) and array.ndim > 1:
        return of_array(array)
    values = np.asarray(array, np.float32)
    return of_values(values, str(reader.format_of(name)), reader.stored_bytes(name))
