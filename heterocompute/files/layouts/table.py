"""The layouts by name: `export` writes arrays in a layout, `readers_in` returns functions that read them."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...arrays.base import PackedArray
from ...arrays.layout import save_arrays
from ...arrays.quantized import QuantizedArray
from ...arrays.stored import wrong_part
from ...base.container import numpy_dtype
from ...base.errors import WrongValue, printable, shown
from ...base.float_env import converted
from ...base.tensors import Tensors
from ...base.texts import near_words, quoted
from ..plain import plain_of
from ..roles import roles_of, turned_in
from .configuration import KEY, config_in, config_of, layout_named, method_of, own_config, plain_names
from .detection import layout_in
from .gguf import model as gguf_model
from .layout import LAYOUTS, Layout, refuse_no_stack
from .onnx import graph as onnx_graph, matmul as onnx_matmul, model as onnx_model
from .refusals import refuse_changed, refuse_lone_codes, refuse_one, refuse_programs, refuse_scales, refuse_unread
from .weight import Weight, of_array, of_blocks, of_values, turned_array

__all__ = ["NAMES", "WHOLE", "check_layout", "described", "export", "is_matrix", "operands_in", "readers_in",
           "weight_from", "weights_in"]  # fmt: skip

# The output layer of language models, and the embeddings that it may be tied to.
HEAD = "lm_head.weight"
TABLES = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight")
# Suffixes of the tensors of a layer's weight, besides those that begin with `weight`.
PARTS = ("qweight", "qzeros", "scales", "g_idx", "SCB")
# Factors of a layer's inputs. Without them the weights would belong to another layer.
INPUTS = (".pre_quant_scale", "_act_pre_scale", ".w_bf16_to_fp8_scale")
# Layouts with a file format of their own.
WHOLE: dict[str, Callable[[Any, Mapping[str, Any], str], None]] = {
    "onnx": onnx_model.write,
    onnx_matmul.NAME: onnx_matmul.write,
    "gguf": gguf_model.write_tensors,
}
NAMES = (*LAYOUTS, *WHOLE)
WRITTEN = tuple(name for name in NAMES if name in WHOLE or not LAYOUTS[name].is_read_alone)


def export(path: str | os.PathLike[str], arrays: Mapping[str, Any], name: str, check: str = "sample") -> None:
    """Write arrays in the layout of another program.

    Parameters
    ----------
    path : str or os.PathLike
    arrays : mapping of str to QuantizedArray and ndarray
        Quantized ones have one format; ndarrays are written as they are.
    name : str
        ``"compressed-tensors"``, ``"gptq"``, ``"awq"``, ``"bitsandbytes"``, ``"fp8"``, ``"modelopt"``, ``"mlx"``:
        safetensors, with the ``quantization_config`` of the program's config.json in the metadata; or ``"onnx"``,
        ``"onnx-matmulnbits"``, ``"gguf"``.
    check : str
        What is read again, of `rereading.CHECKS`.

    Raises
    ------
    ValueError
        Another name; a format without a place in the layout (the nearest that has one is named); formats that differ.
    """
    check_layout(name)
    packed: dict[str, QuantizedArray] = {}
    for key, array in arrays.items():
        if isinstance(array, PackedArray):
            if type(array) is not QuantizedArray:
                raise WrongValue(f"save: tensor {quoted(key)} is {type(array).__name__}: {name} has no place for it")
            packed[key] = array
    cast = {key: found.dtype for key, array in packed.items() if (found := plain_of(array.format)) is not None}
    for key, dtype in cast.items():
        arrays = {**arrays, key: converted(packed.pop(key).dequantize(), numpy_dtype(dtype))}
    if name in WHOLE:
        WHOLE[name](path, {key: _native(array) for key, array in arrays.items()}, check)
        return
    stored: dict[str, Any] = {}
    for key, array in arrays.items():
        parts = _parts_of(name, key, array) if key in packed else {key: np.asarray(array)}
        for part, values in parts.items():
            if part in stored:
                raise WrongValue(f"save: two tensors would be called {quoted(part)}")
            stored[part] = values
    plain = [key for key in arrays.keys() - packed.keys() if is_matrix(key, np.shape(arrays[key]))]
    config = described(name, {key: array.format for key, array in packed.items()}, sorted(plain))
    save_arrays(path, stored, {}, metadata={"format": "pt", KEY: json.dumps(config[KEY])}, check=check)


def _native(array: Any) -> Any:
    """Return an array in the byte order of the machine, which other packages expect."""
    if isinstance(array, PackedArray):
        return array
    plain = np.asarray(array)
    return plain if plain.dtype.isnative else plain.astype(plain.dtype.newbyteorder("="))


def _parts_of(name: str, key: str, q: QuantizedArray) -> dict[str, Any]:
    """Return the tensors that represent a weight."""
    refuse_no_stack(name, key, q)
    return LAYOUTS[name].parts_of(key, q)


# Program -> the layout that it reads.
PROGRAMS = {"vllm": "compressed-tensors", "llm-compressor": "compressed-tensors", "sglang": "compressed-tensors"}
PROGRAMS |= {"llama.cpp": "gguf", "ollama": "gguf", "ggml": "gguf", "bnb": "bitsandbytes", "qlora": "bitsandbytes"}
PROGRAMS |= {"autogptq": "gptq", "gptqmodel": "gptq", "autoawq": "awq", "onnxruntime": "onnx-matmulnbits"}


def check_layout(name: Any) -> None:
    """Raise ValueError for a name that is not in `NAMES`."""
    if name not in NAMES:
        raise WrongValue(f"save: layout is {shown(name)}, expected {expected_of(name, WRITTEN)}")


def expected_of(name: Any, names: Sequence[str]) -> str:
    """Return the list of layouts for an error about another name, with the most similar name."""
    word = name.lower() if isinstance(name, str) else ""
    near = [PROGRAMS[word]] if word in PROGRAMS else near_words(word, names)
    return ", ".join(names) + "".join(f"; the nearest is {shown(word)}" for word in near)


def is_matrix(name: str, shape: Sequence[int]) -> bool:
    """Tell whether a program would treat a tensor as the weights of a linear layer."""
    return name.endswith(".weight") and len(shape) == 2


def _with_tied_head(formats: Mapping[str, Any], plain: Sequence[str]) -> Sequence[str]:
    """Return the plain matrices, with the output layer of a network that has none of its own.

    The output layer then multiplies by the embedding. Loaders would expect codes for it if it were not listed.
    """
    is_tied = any(name.endswith(TABLES) for name in plain) and not any(
        name.endswith(HEAD) for name in (*formats, *plain)
    )
    return [*plain, HEAD] if is_tied else plain


def described(name: str, formats: Mapping[str, Any], plain: Sequence[str], ordered: bool = False) -> dict[str, Any]:
    """Return what the program wants to find in config.json.

    Parameters
    ----------
    name : str
        A layout of `LAYOUTS`.
    formats : mapping of str to Format
        Of the weights by name.
    plain : sequence of str
        Matrices called ``NAME.weight`` that are not quantized.
    ordered : bool
        Whether columns lie in another order than their groups.

    Raises
    ------
    ValueError
        Formats that differ where a file has one, or none.
    """
    if not formats:
        raise WrongValue(f"save: no weight is packed, expected one at least for {name}")
    if len(set(formats.values())) != 1 and not LAYOUTS[name].has_several:
        raise WrongValue(f"save: the formats are {shown(sorted({str(one) for one in formats.values()}))}: {name} has "
                         "one of all weights in a file")  # fmt: skip
    layout = LAYOUTS[name]
    config = layout.config_of(formats, _with_tied_head(formats, plain), ordered)
    return {KEY: config, **(layout.files_of(config) if layout.files_of is not None else {})}


def readers_in(reader: Tensors, name: str) -> dict[str, Callable[[], Any]]:
    """Return how each array of a file in the layout of another program is read.

    Parameters
    ----------
    reader : Tensors
    name : str
        As in `export`, of safetensors, or ``"gguf"``.

    Returns
    -------
    dict of str to callable
        Each answers with a QuantizedArray or an ndarray, and raises ValueError for a weight that no format here has.

    Raises
    ------
    ValueError
        Another name, or no configuration.
    """
    if name not in NAMES:
        raise WrongValue(f"layout is {shown(name)}, expected {', '.join(NAMES)}")
    with _blaming(reader, name):
        if name == "gguf":
            found = gguf_model.readers(reader)
        elif name in WHOLE:
            plain, packed = onnx_graph.readers(reader)
            found = {one: partial(reader.tensor, one) for one in plain} | dict(packed)
        else:
            plain, weights = _weights_in(reader, name)
            found = {one: partial(reader.tensor, one) for one in plain}
            found |= {one: partial(_array, LAYOUTS[name], weight) for one, weight in weights.items()}
    return {one: partial(_read, reader, name, read) for one, read in found.items()}


def weights_in(reader: Tensors, name: str) -> tuple[list[str], dict[str, Callable[[], Weight]]]:
    """Return what a file in the layout of another program holds: the plain tensors, and how each weight is read.

    Parameters
    ----------
    reader : Tensors
    name : str
        Of `LAYOUTS`.

    Returns
    -------
    list of str, dict of str to callable
        Each answers with a `Weight`.

    Raises
    ------
    ValueError
        As `readers_in`.
    """
    if name not in LAYOUTS:
        raise WrongValue(f"layout is {shown(name)}, expected {', '.join(LAYOUTS)}")
    with _blaming(reader, name):
        plain, weights = _weights_in(reader, name)
        refuse_lone_codes(reader, plain, shown(name))
    return plain, {
        one: partial(_read, reader, name, partial(_decoded, LAYOUTS[name], weight)) for one, weight in weights.items()
    }


def operands_in(reader: Tensors) -> tuple[list[str], dict[str, Callable[[], Any]]]:
    """Return what a checkpoint of any layout holds for matmuls: the plain tensors, and how each weight is read.

    Parameters
    ----------
    reader : Tensors
        Its configuration or the names of its tensors say the layout.

    Returns
    -------
    list of str, dict of str to callable
        Each answers with a QuantizedArray, or with float32 values where no format here holds the weight.

    Raises
    ------
    ValueError
        Another program has quantized it, in no layout that is read.
    """
    config = config_in(reader)
    name, method = layout_in(reader, config), method_of(config)
    with _blaming(reader, str(name)):
        if name is None:
            if method == "heterocompute":
                said = "load it by from_pretrained, or open the output of heterocompute quantize instead"
                raise WrongValue(f"HeteroConfig of transformers wrote it: {said}")
            if method is not None and (layout_named(config) or method) not in LAYOUTS:
                raise WrongValue(f"quant_method is {shown(method)}, which is not read; expected {', '.join(LAYOUTS)}")
            refuse_unread(reader)
            return plain_names(reader), {}
        plain, weights = _weights_in(reader, name)
        refuse_lone_codes(reader, plain, shown(name))
    layout = LAYOUTS[name]
    return plain, {
        one: partial(_read, reader, name, partial(_operand, layout, weight)) for one, weight in weights.items()
    }


def _operand(layout: Layout, weight: Stored) -> Any:
    found = _decoded(layout, weight)
    if found.array is None or found.order is not None:
        return found.values()  # as the model has them
    return found.array if found.array.shape == found.model_shape else _array(layout, weight)


class Stored(NamedTuple):
    """A stored weight: its layer, a function that reads its tensors, the configuration, and `Weight.turned`."""

    prefix: str
    read: Callable[[], dict[str, Any]]
    config: Any
    turned: bool = False


def _weights_in(reader: Tensors, name: str) -> tuple[list[str], dict[str, Stored]]:
    try:
        config = config_in(reader) or config_of(reader, LAYOUTS[name].config_key)
    except FileNotFoundError:
        if not LAYOUTS[name].is_whole:
            said = f"has no {KEY}, and no config.json beside it has one"
            raise FileNotFoundError(errno.ENOENT, said, reader.path) from None
        config = {}
    said, own = config.get("quant_method", name), layout_named(config)
    if own in LAYOUTS and own != layout_named({"quant_method": name}):
        raise WrongValue(f"layout is {shown(name)}, but its configuration says {shown(said)}")
    config = own_config(config)
    marks, ends, is_weight = LAYOUTS[name].marks, LAYOUTS[name].ends, LAYOUTS[name].is_weight
    marked = [(one.removesuffix(mark), mark) for one in reader.names for mark in marks if one.endswith(mark)]
    prefixes = [one for one, mark in marked if is_weight is None or is_weight(reader, one, mark)]
    bare = LAYOUTS[name].bare
    stacks = [one for one, mark in marked if mark and mark == bare and one in prefixes]
    mine: dict[str, list[str]] = {one: [f"{one}{end}" for end in ends if f"{one}{end}" in reader] for one in prefixes}
    mine |= {one: [one, f"{one}{bare}"] for one in stacks}
    for tensor in () if ends else reader.names:
        places = (i for i in range(len(tensor) - 1, -1, -1) if tensor[i] == ".")
        owner = next((tensor[:i] for i in places if tensor[:i] in mine), None)
        part = "" if owner is None else tensor[len(owner) + 1 :]
        if owner is not None and (part in PARTS or part.startswith("weight")):
            mine[owner].append(tensor)
    owned = {tensor for tensors in mine.values() for tensor in tensors}
    plain = [one for one in reader.names if one not in owned and one not in LAYOUTS[name].markers]
    refuse_changed(config)
    if LAYOUTS[name].reads_metadata:
        config = {**config, "metadata": reader.metadata}
    refuse_one(next((one for one in plain if one.endswith(INPUTS)), None), shown(said))
    refuse_scales(plain, shown(said))  # such weights would be read as plain ones
    refuse_programs(reader, plain, shown(said))
    found = {
        f"{one}.weight": Stored(one, partial(_tensors, reader, mine[one]), config) for one in mine if one not in stacks
    }
    found = _with_turned(reader, LAYOUTS[name], found)
    axes = roles_of(reader, {one: reader.info(one).shape for one in stacks}).axes if stacks else {}
    return plain, found | {one: _stack(reader, one, bare, config, axes.get(one) == (1,)) for one in stacks}


def _stack(reader: Tensors, name: str, bare: str, config: Mapping[str, Any], turned: bool) -> Stored:
    """Return a stack of experts with the layer's own name; one of (experts, in, out) is read as (experts, out, in)."""

    def read() -> dict[str, Any]:
        found = {f"{name}.weight": reader.tensor(name), f"{name}.weight{bare}": reader.tensor(f"{name}{bare}")}
        return (
            {key: part.swapaxes(-1, -2) if part.ndim == 3 else part for key, part in found.items()} if turned else found
        )

    block = config.get("weight_block_size")
    if turned and isinstance(block, list):
        config = {**config, "weight_block_size": block[::-1]}
    return Stored(name, read, config, turned)


def _with_turned(reader: Tensors, layout: Layout, weights: dict[str, Stored]) -> dict[str, Stored]:
    """Mark the weights that their model has as (in, out), if the file stores them as (out, in).

    Programs that know no such weights store them as they are. The bias of a weight that is not square tells.
    """
    named = turned_in(reader, weights)
    for name in named:
        bias = f"{name.removesuffix('.weight')}.bias"
        if bias not in reader:
            continue
        with suppress(ValueError):
            rows, columns = _decoded(layout, weights[name]).shape[-2:]
            if rows != columns:
                return weights if reader.info(bias).shape == (columns,) else _turned(weights, named)
    return _turned(weights, named)


def _turned(weights: dict[str, Stored], names: Sequence[str]) -> dict[str, Stored]:
    return weights | {name: weights[name]._replace(turned=True) for name in names}


def _tensors(reader: Tensors, names: Sequence[str]) -> dict[str, Any]:
    return {name: reader.tensor(name) for name in names}


def _array(layout: Layout, weight: Stored) -> QuantizedArray:
    q = _sound(weight.prefix, layout.array_from(weight.prefix, weight.read(), weight.config))
    return turned_array(q) if weight.turned else q


def _decoded(layout: Layout, weight: Stored) -> Weight:
    found = weight_from(layout, weight.prefix, weight.read(), weight.config)
    return replace(found, turned=weight.turned)


def weight_from(layout: Layout, prefix: str, tensors: Mapping[str, Any], config: Mapping[str, Any]) -> Weight:
    """Return a weight from the tensors that stand for it.

    Parameters
    ----------
    layout : Layout
    prefix : str
        The name of the layer.
    tensors : mapping of str to ndarray
    config : mapping
        The quantization_config.

    Returns
    -------
    Weight

    Raises
    ------
    ValueError, KeyError, AttributeError, TypeError, IndexError
        The tensors or the configuration are not what the layout has.
    """
    if layout.values_from is not None and (found := layout.values_from(prefix, tensors, config)) is not None:
        return of_values(*found)
    if layout.blocks_from is not None and (blocks := layout.blocks_from(prefix, tensors, config)) is not None:
        return of_blocks(*blocks)
    if layout.sorted_from is None:
        q, order = layout.array_from(prefix, tensors, config), None
    else:
        q, order = layout.sorted_from(prefix, tensors, config)
    return of_array(_sound(prefix, q), order)


def _sound(prefix: str, q: QuantizedArray) -> QuantizedArray:
    wrong = wrong_part(dict(q.components), q.format, q.shape, q.axis)
    if wrong is not None:
        raise WrongValue(f"{prefix}: component {wrong[0]} {wrong[1]}")
    return q


def _read(reader: Tensors, name: str, read: Callable[[], Any]) -> Any:
    with _blaming(reader, name):
        return read()


@contextmanager
def _blaming(reader: Tensors, name: str) -> Iterator[None]:
    """Add the name of the file to errors."""
    prefix = f"{printable(reader.path)}: "
    try:
        yield
    except KeyError as error:
        raise WrongValue(f"{prefix}is not a {name} file, or not all of one: {error} is missing") from None
    except (AttributeError, TypeError, IndexError, ZeroDivisionError, OverflowError) as error:
        raise WrongValue(f"{prefix}is not a {name} file, or its configuration is missing ({error})") from None
    except ValueError as error:
        raise WrongValue(str(error) if str(error).startswith(prefix) else prefix + str(error)) from None
