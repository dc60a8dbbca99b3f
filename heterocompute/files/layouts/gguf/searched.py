"""A checkpoint as GGUF with searched types: IQ1 to IQ3, and any type with an importance matrix.

Their blocks are made of whole tensors of llama.cpp with the weights of their columns, so patterns match the names of
the input and those of llama.cpp. llama.cpp, src/llama-quant.cpp, tensor_requires_imatrix.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ....base.errors import WrongValue, printable, shown
from ....base.texts import file_name, quoted
from ....formats import GGML
from ...containers.gguf_files import Gguf
from ...gguf import fitting, save_tensors
from ...opening import open_checkpoint, reader_of
from ...plain import NAMES, Plain, parse_type
from .importance import importance_in
from .lattices import LATTICES, Lattice
from .layout import Named
from .llama_cpp import Model, model_in, model_of_gguf
from .saving import SMALL

NEEDS = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs")  # importance, in llama.cpp
OUTER, OF_OUTER = ("token_embd.weight", "output.weight"), "q5_k"  # the matrices that have most of the error


def parse_searched(wanted: Any) -> Any:
    """Return a `Lattice` for one of their names, and the format or plain type of any other text.

    Examples
    --------
    >>> parse_searched("iq2_xs").nbytes, str(parse_searched("q4_k"))
    (74, 'q4_k')
    """
    if isinstance(wanted, Lattice):
        return wanted
    return (LATTICES.get(wanted) if isinstance(wanted, str) else None) or parse_type(wanted)


def needs_search(layout: str | None, importance: object, types: Iterable[Any]) -> bool:
    """Tell whether a checkpoint is written by this module.

    Raises
    ------
    ValueError
        A lattice or importance is given for another layout.
    """
    lattice = next((one for one in types if isinstance(one, Lattice)), None)
    if layout != "gguf" and (lattice is not None or importance is not None):
        what = f"format is {lattice}" if lattice is not None else "importance is given"
        raise WrongValue(f"quantize_checkpoint: {what}, which only layout 'gguf' has, and layout is {shown(layout)}")
    return lattice is not None or importance is not None


def quantize_searched(
    in_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    default: Any,
    recipe: Mapping[str, Any],
    include: str | Iterable[str],
    exclude: str | Iterable[str],
    importance: str | os.PathLike[str] | Mapping[str, Any] | None,
    requantize: bool,
    fallback: bool,
    check: str,
) -> dict[str, Any]:
    """Write a checkpoint, with the arguments and the result of `quantize_checkpoint`.

    Notes
    -----
    The embedding and the output matrix become q5_k, if neither `include` nor the recipe matches them and the default
    is a lattice: llama.cpp has no importance for them.
    """
    included, excluded = (list((one,) if isinstance(one, str) else one) for one in (include, exclude))
    with reader_of(in_path) as reader, open_checkpoint(in_path) as opened:
        model = _model_of(reader)
        arrays: Mapping[str, Any] = opened if model is None or isinstance(reader, Gguf) else Named(opened, model)
        if not requantize:
            _refuse_quantized(reader, printable(file_name(in_path)))
        plain = _Values(arrays)
        given = _importance(importance, plain)
        types = dict[str, Any]()
        for own in plain:
            names = (own, *_sources(model, own))
            chosen, is_named = next(
                ((kind, True) for pattern, kind in recipe.items() if _fits(pattern, names)), (default, False)
            )
            is_small = any(fnmatchcase(own, pattern) for pattern in SMALL)
            is_left = any(_fits(one, names) for one in excluded) or (
                bool(included) and not is_named and not any(_fits(one, names) for one in included)
            )
            if chosen is None or is_left or plain.ndim(own) < 2 or (is_small and not is_named):
                types[own] = "f32" if is_small or plain.ndim(own) < 2 else NAMES.get(plain.dtype(own), "f32")
                continue
            if own in OUTER and isinstance(chosen, Lattice) and not is_named and not included:
                chosen = parse_type(OF_OUTER)
            if isinstance(chosen, Lattice) and chosen.name in NEEDS and own not in given and own not in OUTER:
                raise WrongValue(
                    f"quantize_checkpoint: {chosen} of {quoted(own)} needs its importance, expected a file of "
                    "llama-imatrix with it (--importance FILE), or another type"
                )
            types[own] = str(chosen) if isinstance(chosen, Plain | Lattice) else chosen
            fits = fitting(chosen, plain.shape(own)) if isinstance(chosen, GGML | Lattice) else chosen
            if not fallback and fits != chosen:
                raise WrongValue(
                    f"quantize_checkpoint: tensor {quoted(own)}: rows of {plain.shape(own)[-1]} values, which are not "
                    f"whole blocks of {chosen}: {fits} fits"
                )
        keys = {} if model is None else {"general.architecture": model.architecture, **model.keys}
        written = save_tensors(out_path, plain, keys, types, {n: w for n, w in given.items() if n in plain}, check)
        shapes = {own: plain.shape(own) for own in written}
        dtypes, before = {own: plain.dtype(own) for own in written}, plain.nbytes()
    instead = {
        own: str(types[own]) for own, kind in written.items() if str(types[own]) != kind and len(shapes[own]) > 1
    }
    with Gguf(os.fspath(out_path)) as made:
        rows = [
            {"name": own, "format": None if kind in ("f32", "f16", "bf16") else kind, "shape": list(shapes[own]),
             "dtype": dtypes[own], "bytes_before": before[own], "bytes": made.stored_bytes(own)}
            for own, kind in written.items()
        ]  # fmt: skip
    return {
        "input": os.fspath(in_path), "output": os.fspath(out_path), "bytes_before": sum(before.values()),
        "bytes": sum(row["bytes"] for row in rows), "tensors": rows, "skipped": {}, "kept": {}, "instead": instead,
        "architecture": model and model.architecture, "notes": [*model.notes] if model else [],
    }  # fmt: skip


def _model_of(reader: Any) -> Model | None:
    try:
        return model_of_gguf(reader) if isinstance(reader, Gguf) else model_in(reader)
    except ValueError:
        return None  # tensors alone


def _sources(model: Model | None, own: str) -> tuple[str, ...]:
    """Return the names of the tensors of the input that a tensor of llama.cpp consists of."""
    if model is None:
        return ()
    stack = model.stacks.get(own)
    return tuple(stack.names) if stack is not None else tuple(a for a, b in model.names.items() if b == own)


def _fits(pattern: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _importance(given: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
    if given is None or isinstance(given, Mapping):
        return dict(given or {})
    found = importance_in(os.fspath(given))
    if not any(name in arrays for name in found):
        raise WrongValue(
            f"{printable(file_name(given))}: has importance for {quoted(next(iter(found)))} and others, none of which "
            "is a tensor of the model"
        )
    return found


def _refuse_quantized(reader: Any, path: str) -> None:
    for name in reader.names:
        if reader.format_of(name) is not None:
            raise WrongValue(
                f"{path}: tensor {quoted(name)} is already quantized ({reader.format_of(name)}); requantize=True, or "
                "--requantize, rounds its values a second time"
            )


class _Values(Mapping[str, Any]):
    """Tensors as floats, each when it is read."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = arrays
        self._infos: dict[str, tuple[tuple[int, ...], str, int]] = {}

    def __getitem__(self, name: str) -> Any:
        array = self._arrays[name]
        return array.dequantize() if hasattr(array, "dequantize") else array

    def _info(self, name: str) -> tuple[tuple[int, ...], str, int]:
        if name not in self._infos:
            array = self[name]
            self._infos[name] = tuple(np.shape(array)), str(array.dtype), int(array.nbytes)
        return self._infos[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._info(name)[0]

    def ndim(self, name: str) -> int:
        return len(self.shape(name))

    def dtype(self, name: str) -> str:
        return self._info(name)[1]

    def nbytes(self) -> dict[str, int]:
        return {name: self._info(name)[2] for name in self}

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
