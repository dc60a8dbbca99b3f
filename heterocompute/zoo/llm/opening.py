"""A language model from its file: `open_llm`."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import WrongValue, printable
from ...base.json_text import json_object
from ...base.texts import file_name, quoted
from ...families.record import MLP
from .arranged import arrange
from .configuration import check_family, is_untied, of_config
from .experts import add_experts
from .folder_tokens import of_folder
from .gguf_tokens import of_gguf as tokens_of_gguf
from .network import LanguageModel
from .shape import Shape, of_gguf
from .tokens import Tokens
from .weights import (
    HARMLESS,
    OF_TASKS,
    Stored,
    as_held,
    expected,
    further_layers,
    gguf_names,
    hf_names,
    wanted_names,
)

MAX_CONFIG = 1 << 20
OF_EXPERTS = ("ffn_gate_inp", "ffn_gate_up_exps", "ffn_down_exps")
SHARED_GATE = ".ffn_gate_inp_shexp.weight"  # a vector in GGUF, a matrix of one row in Hugging Face
FACTORS = "rope_freqs.weight"
DIVISORS = ("rope_factors_short.weight", "rope_factors_long.weight")  # of longrope
GGUF_HARMLESS = re.compile(r"rope_freqs\.weight|rope_factors_(short|long)\.weight|blk\.\d+\.attn_rot_embd(\.weight)?")


class Parts(NamedTuple):
    """The content of a folder or of a file."""

    weights: Stored
    shape: Shape
    roles: dict[str, str]
    tokens: Tokens


class GgufParts(NamedTuple):
    """The content of a GGUF file: also the divisors of RoPE's frequencies, and all keys with one value."""

    parts: Parts
    factors: Any
    metadata: dict[str, str]


def open_llm(path: str | os.PathLike[str]) -> LanguageModel:
    """Open a language model and return it with its tokenizer.

    Parameters
    ----------
    path : str or os.PathLike
        A GGUF file (or one part of a split one), or a Hugging Face folder with safetensors, config.json and
        tokenizer.json. The folder may hold packed arrays of this package, or be in any layout of another program that
        `heterocompute.load` reads; config.json or the names of its tensors say which. An error lists the families.

    Returns
    -------
    LanguageModel
        Weights are packed as stored, each read on first access. Weights that no format here holds, such as FP8 in
        blocks, are float32.

    Raises
    ------
    ValueError
        The kind of file or the family is not supported, or the file lacks a tensor or is inconsistent.
    OSError
        The file cannot be read.

    Examples
    --------
    >>> net = hc.zoo.open_llm("SmolLM2-135M-Instruct.Q4_1.gguf")  # doctest: +SKIP
    >>> net  # doctest: +SKIP
    LanguageModel(llama, 30 layers, width 576, vocabulary 49152, context 8192)
    """
    place = file_name(path)
    if "\0" in place or not os.path.isdir(place):
        (weights, shape, roles, tokens), factors, _ = gguf_parts(place)
        return LanguageModel(place, weights, shape, roles, tokens, factors=factors)
    found = folder_parts(place)
    return LanguageModel(place, found.weights, found.shape, found.roles, found.tokens,
                         plus_one=found.shape.options.plus_one)  # fmt: skip


def gguf_parts(path: str, encoder: bool = False) -> GgufParts:
    """Return the content of a GGUF file with a language model, or with an encoder."""
    from ...files.containers.gguf_files import Gguf  # files stand above the networks
    from ...files.layouts.reading import readers_in  # files stand above the networks
    from ...files.opening import reader_of  # files stand above the networks

    reader = reader_of(path)
    try:
        if not isinstance(reader, Gguf):
            raise WrongValue(f"{printable(path)}: is not a GGUF file; expected one, or a folder with config.json")
        reads = readers_in(reader, "gguf")
        sizes = {name: reader.info(name).shape for name in reads}
        for name in [one for one in reads if one.endswith(SHARED_GATE) and len(sizes[one]) == 1]:
            reads[name], sizes[name] = partial(_as_row, reads[name]), (1, *sizes[name])
        vocabulary = _rows(path, sizes, "token_embd.weight")
        divisors = {name: np.asarray(reads[name](), np.float32).tolist() for name in DIVISORS if name in reads}
        if divisors and FACTORS in reads:
            raise WrongValue(f"{printable(path)}: the tensors {FACTORS} and {DIVISORS[0]} exclude each other")
        if len(divisors) == 1:
            raise WrongValue(f"{printable(path)}: only one of the tensors {' and '.join(DIVISORS)} is there")
        shape = of_gguf(path, reader.metadata, vocabulary, FACTORS in reads, reader.listed, divisors, reader.lists,
                        encoder)  # fmt: skip
        shape = as_held(shape, reads)
        roles = gguf_names(reads, shape)
        used = _check(path, shape, roles, sizes)
        _refuse_unused(path, shape, reads, used, GGUF_HARMLESS)
        factors = None
        if FACTORS in reads:
            factors = np.asarray(reads[FACTORS](), np.float32)
            if factors.shape != (shape.rope.width // 2,) or not (np.isfinite(factors) & (factors > 0)).all():
                raise WrongValue(
                    f"{printable(path)}: tensor {quoted(FACTORS)} does not hold {shape.rope.width // 2} numbers above 0"
                )
        source = _Source(reader)
        tokens = tokens_of_gguf(path, reader.metadata, source.listed, vocabulary)
    except BaseException:
        reader.close()
        raise
    return GgufParts(Parts(Stored(path, reads, source), shape, roles, tokens), factors, dict(reader.metadata))


def _as_row(read: Callable[[], Any]) -> Any:
    return np.asarray(read(), np.float32)[None]


class _Source:
    """A file that is closed when neither weights nor tokens need it any longer."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        weakref.finalize(self, reader.close)

    def listed(self, key: str) -> Any:
        """Return the list of a key of a GGUF file."""
        return self._reader.listed(key)


def folder_parts(path: str, encoder: bool = False) -> Parts:
    """Return the content of a Hugging Face folder with a language model, or with an encoder."""
    from ...files.layouts.reading import operands_in  # files stand above the networks
    from ...files.opening import reader_of  # files stand above the networks
    from ...files.safetensors import entries, read_array  # files stand above the networks

    settings = os.path.join(path, "config.json")
    config = json_object(settings, MAX_CONFIG)
    family, kind = check_family(settings, config, encoder)  # tensors of other families have other names
    reader = reader_of(path)
    try:
        plain, packed = operands_in(reader)
        own = entries(reader)[0]
        packed |= {name: partial(read_array, reader, name, entry) for name, entry in own.items()}
        reads: dict[str, Callable[[], Any]] = {**{name: partial(reader.tensor, name) for name in plain}, **packed}
        sizes = {name: reader.info(name).shape for name in plain} | {name: entry.shape for name, entry in own.items()}
        if encoder:
            _rename(reads, sizes)
        table = next((name for name in reads if name.endswith(family.table)), f"model.{family.table}")
        if table in packed and table not in own:
            sizes[table] = reads[table]().shape
        vocabulary = _rows(path, sizes, table)
        shape = of_config(settings, config, vocabulary, encoder)
        experts, parts = add_experts(reads, sizes, shape)
        roles = {**hf_names(path, reads, shape), **experts}
        arrange(reads, sizes, roles, shape, kind.turned)
        if encoder:
            roles = {role: name for role, name in roles.items() if not role.startswith("output.")}
        elif "output.weight" not in roles and is_untied(config):
            raise WrongValue(
                f"{printable(path)}: the tensor 'lm_head.weight' is missing; config.json has tie_word_embeddings false"
            )
        _check_biases(path, shape, roles, table.removesuffix(family.table))
        used = _check(path, shape, roles, sizes) | parts
        further = further_layers(table.removesuffix(family.table), shape, config, kind)
        _refuse_unused(path, shape, [name for name in reads if not name.startswith(further)], used,
                       OF_TASKS if encoder else HARMLESS)  # fmt: skip
        tokens = of_folder(path, config, vocabulary)
    except BaseException:
        reader.close()
        raise
    held = {name: read for name, read in reads.items() if name not in parts}
    return Parts(Stored(path, held, _Source(reader)), shape, roles, tokens)


def _rename(reads: dict[str, Any], sizes: dict[str, Any]) -> None:
    """Give layer norms the names of today: BERT's early files call them gamma and beta."""
    for name in [one for one in reads if one.endswith((".LayerNorm.gamma", ".LayerNorm.beta"))]:
        found = name.replace(".gamma", ".weight").replace(".beta", ".bias")
        for table in (reads, sizes):
            if name in table:
                table[found] = table.pop(name)


def _rows(path: str, sizes: Mapping[str, tuple[int, ...]], name: str) -> int:
    shape = sizes.get(name)
    if shape is None:
        raise WrongValue(f"{printable(path)}: the tensor {quoted(name)} is missing: this is not a language model")
    if len(shape) != 2 or 0 in shape:
        raise WrongValue(f"{printable(path)}: tensor {quoted(name)} has shape {shape}, expected (vocabulary, width)")
    return shape[0]


def _check(path: str, shape: Shape, roles: Mapping[str, str], sizes: Mapping[str, tuple[int, ...]]) -> set[str]:
    """Refuse a file that lacks a tensor, or has one of another shape than its keys say; return the tensors used."""
    wanted_shapes = expected(shape, roles)
    for role, wanted in wanted_shapes.items():
        name = roles.get(role)
        if name is None:
            raise WrongValue(f"{printable(path)}: the tensor {quoted(role)} is missing")
        if name in sizes and tuple(sizes[name]) != wanted:
            raise WrongValue(
                f"{printable(path)}: tensor {quoted(name)} has shape {tuple(sizes[name])}, expected {wanted}"
            )
    return {roles[role] for role in wanted_shapes}


def _check_biases(path: str, shape: Shape, roles: Mapping[str, str], prefix: str) -> None:
    """Refuse a folder with some of the biases that config.json names; none at all are zeros, as in transformers."""
    parts = {part for one in shape.biases or () for part in (OF_EXPERTS if one == "ffn_exps" else (one,))}
    mixed = {i for i in range(shape.layers) if shape.experts and i not in shape.dense}
    wanted = [f"blk.{i}.{part}.bias" for i in range(shape.layers) for part in sorted(parts)
              if i not in mixed or part not in MLP]  # fmt: skip
    wanted += [f"blk.{i}.{part}_shexp.bias" for i in sorted(mixed) for part in sorted(parts & {*MLP})
               if shape.shared_hidden]  # fmt: skip
    missing = next((role for role in wanted if role not in roles), None)
    if missing is not None and (not shape.options.always_biased or any(role in roles for role in wanted)):
        name = wanted_names(shape, prefix, "lm_head").get(missing, missing)
        raise WrongValue(f"{printable(path)}: the tensor {quoted(name)} is missing, which config.json names")


def _refuse_unused(
    path: str, shape: Shape, names: Iterable[str], used: Container[str], harmless: re.Pattern[str]
) -> None:
    """Refuse a tensor that would not be read."""
    for name in names:
        if name not in used and not harmless.fullmatch(name):
            raise WrongValue(
                f"{printable(path)}: tensor {quoted(name)} is not part of the family {shape.family} with "
                f"{shape.layers} layers and these keys; the results would be wrong without it"
            )
