"""A layout of files of another program: what each of them declares, and what they share.

A layout is one file with one subclass of `Layout`, and its entry in `table.LAYOUTS`. The subclass names the layout,
tells by which names its files are recognized, and has four methods: `shapes` and `values` write a weight, `config`
describes the weights of a file, and `read` reads one of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ...arrays.base import PackedArray
from ...arrays.components import entry_of
from ...arrays.layout import Entry, save_arrays
from ...arrays.quantized import QuantizedArray
from ...base.container import numpy_dtype
from ...base.errors import WrongValue, shown
from ...base.float_env import converted
from ...base.tensors import Tensors
from ...base.texts import quoted
from ...formats import Format
from ...products.quantize import quantize
from ..plain import plain_of
from . import scaled
from .configuration import KEY
from .linear import Array, Packed, Parts
from .weight import Weight

Target = Format | scaled.Blocks

# The output layer of language models, and the embeddings that it may be tied to.
HEAD = "lm_head.weight"
METADATA = "__metadata__"  # no entry of config.json
TABLES = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight")


class Layout:
    """A layout of files.

    Attributes
    ----------
    name : str
        The layout's name in options, messages and, unless `methods` has others, in a ``quant_method``.
    methods : tuple of str
        Further methods of a ``quantization_config`` that mean this layout.
    programs : tuple of str
        Names of programs that read it, which users may give instead of its own.
    marks : tuple of str
        Ends of tensors' names. Each name with such an end belongs to one weight.
    ends : tuple of str
        Ends of the names of all tensors of a weight. Default: all names that begin with the layer's name and continue
        with ``weight`` or a part of `reading.PARTS`.
    signs : tuple of tuple of str
        Ends of the names of a weight's tensors by which a file without a configuration is recognized. `fits` compares
        their dtypes.
    bare : str
        The mark of stacks of experts whose codes have the layer's own name. Both are read under the names of a matrix.
    markers : tuple of str
        Tensors that only mark a file of the layout.
    order_name : str
        The tensor with the group of each column, where columns may be stored in another order than their groups.
    config_key : str
        The program's key in config.json, if `KEY` is missing.
    needs_config, reads_metadata : bool
        Whether a weight's tensors need a configuration, and whether the file's metadata describe each weight; `read`
        then finds them in the configuration as ``metadata``.
    is_own, is_file : bool
        Whether the layout is that of this package, and whether it is a kind of file of its own. Other layouts are
        safetensors.
    is_written : bool
        Whether `save` and `convert` write the layout.
    examples : tuple of str
        Formats of matrices that it stores, with which tests write it. Without any, `quantize` does not offer it.
    has_several : bool
        Whether weights of one file may have several formats.
    only_stacks, stacks, stacks_blocks : bool
        Whether the layout stores stacks of experts alone, stacks as one weight, and stacks of 8-bit codes with scales
        of blocks as one weight. Otherwise each expert is a weight.
    reaches_lowest : bool
        Whether symmetric codes may be -2^(bits - 1).
    has_blocks, has_models : bool
        Whether rows are stored in whole blocks, and whether files describe language models.
    turns : bool
        Whether weights that a model has as (in, out) are stored as (out, in).
    keeps : tuple of str
        Parts of a model that the programs expect as plain values, see `roles.PARTS`. `quantize` copies them.
    reads_conv1d : bool
        Whether the programs read weights of `Conv1D` of transformers.
    """

    name: str
    methods: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    signs: tuple[tuple[str, ...], ...] = ()
    bare: str = ""
    markers: tuple[str, ...] = ()
    order_name: str = ""
    config_key: str = KEY
    needs_config: bool = True
    reads_metadata: bool = False
    is_own: bool = False
    is_file: bool = False
    is_written: bool = True
    examples: tuple[str, ...] = ()
    has_several: bool = False
    only_stacks: bool = False
    stacks: bool = False
    stacks_blocks: bool = False
    reaches_lowest: bool = False
    has_blocks: bool = False
    has_models: bool = False
    turns: bool = True
    keeps: tuple[str, ...] = ("embedding", "output layer", "vision tower", "router")
    reads_conv1d: bool = False

    # What a layout defines.

    def shapes(self, name: str, q: Packed) -> Parts:
        """Return dtypes and shapes of the tensors that represent a weight, or refuse it: `q` may be an `Entry`."""
        self.refuse_writing(f"tensor {quoted(name)}: ")

    def values(self, name: str, q: QuantizedArray) -> Iterable[Array]:
        """Return the tensors that represent a weight, in the order of `shapes`, which has accepted it."""
        raise NotImplementedError

    def config(self, formats: Mapping[str, Any], plain: Sequence[str], ordered: bool) -> dict[str, Any]:
        """Return the quantization_config of weights with these targets; the arguments are those of `described`."""
        self.refuse_writing("")

    def read(self, prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Weight:
        """Return the weight of the layer `prefix` from its tensors and the quantization_config.

        A `Weight` without an array has the reason in `why`.
        """
        raise NotImplementedError

    # What a layout may define.

    def tensors(self, name: str, q: QuantizedArray) -> dict[str, Array]:
        """Return the tensors that represent a weight, or refuse it."""
        return dict(zip(self.shapes(name, q), self.values(name, q), strict=True))

    def fits(self, reader: Tensors, prefix: str, dtypes: Sequence[str]) -> bool:
        """Tell whether tensors with the names of `signs` have the layout's dtypes; other programs use these names."""
        return True

    def is_weight(self, reader: Tensors, prefix: str, mark: str) -> bool:
        """Tell whether a tensor with a mark belongs to a weight, if others may have its name."""
        return True

    def files(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return further entries of config.json, and further files, from a quantization_config."""
        return {}

    def metadata(self, formats: Mapping[str, Any], parts: Parts, plain: Iterable[str]) -> dict[str, str]:
        """Return the metadata of a file that describe each weight, if `reads_metadata`.

        Parameters
        ----------
        formats : mapping of str to Target
            Of the weights by name.
        parts : mapping of str to (str, tuple of int)
            Dtypes and shapes of all tensors of weights.
        plain : iterable of str
            Names of the other tensors.
        """
        return {}

    def model_stacks(self, reader: Tensors, names: Iterable[str]) -> dict[str, str]:
        """Return the weights that their model has as (experts, in, out) under another name, and these names."""
        return {}

    def depends_on_values(self, fmt: object) -> bool:
        """Tell whether only some arrays of a format can be stored."""
        return False

    def stacked(self, name: str, parts: dict[str, Array], shape: tuple[int, ...]) -> dict[str, Array]:
        """Return the tensors of a stack of matrices, from those of one matrix of all their rows, if `stacks`."""
        return {key: part.reshape(*shape[:2], *part.shape[1:]) for key, part in parts.items()}

    def check_stack(self, shape: tuple[int, ...], fmt: object) -> None:
        """Raise ValueError for a stack of a format that one matrix may have."""

    def check_blocks(self, name: str, shape: tuple[int, ...], blocks: scaled.Blocks) -> None:
        """Raise ValueError if the layout does not store these codes with scales of blocks."""
        raise WrongValue(f"{self.name} has no place for {blocks}")

    def block_tensors(self, name: str, shape: tuple[int, ...], codes: scaled.Codes) -> dict[str, Array]:
        """Return the tensors of codes with scales of blocks that `check_blocks` accepts."""
        raise NotImplementedError

    # What a layout with a kind of file of its own defines, instead of `shapes`, `values`, `config` and `read`.

    def recognizes(self, reader: Tensors) -> bool:
        """Tell whether a file is of this layout."""
        return False

    def readers(self, reader: Tensors) -> dict[str, Callable[[], Any]]:
        """Return how each array of a file is read, a QuantizedArray or an ndarray; ValueError for another file."""
        raise NotImplementedError

    def weights(self, reader: Tensors) -> tuple[list[str], dict[str, Callable[[], Weight]]]:
        """Return the names of the arrays of a file, in order, and how each quantized weight is read."""
        raise NotImplementedError

    def why_not_plain(self, dtype: str, shape: tuple[int, ...]) -> str:
        """Return the reason why a plain tensor has no place, "" if it has one."""
        return ""

    def rounded(self, values: Any, fmt: Format, axes: tuple[int, ...]) -> QuantizedArray:
        """Return values rounded to a format as the programs round them."""
        return quantize(values, fmt, axes)

    def model_in(self, reader: Tensors) -> tuple[Any, str | None]:
        """Return the language model that a written file describes, or why no runtime will load the file."""
        return None, None

    def write_model(self, path: str | os.PathLike[str], arrays: Mapping[str, Any], model: object, check: str) -> None:
        """Write the arrays of a language model."""
        raise NotImplementedError

    def keys(self, reader: Tensors) -> dict[str, Any]:
        """Return the keys of a file that `write_mapping` keeps."""
        return {}

    def renamed(self, reader: Tensors) -> tuple[Any, str | None]:
        """Return a language model under the names of Hugging Face, or why it has none; both None for other files."""
        return None, None

    def companions(self, reader: Tensors) -> dict[str, str]:
        """Return further files of a folder that a model is converted to, by name; ValueError if it cannot have them."""
        return {}

    def write_mapping(
        self, path: Any, arrays: Mapping[str, Any], source: object, dtypes: Mapping[str, Any], check: str
    ) -> dict[str, Any]:
        """Write the arrays of a conversion, and return further entries of its summary.

        Parameters
        ----------
        path, arrays, check
            As of `save`; each array is made on access.
        source : foreign.Weights
        dtypes : mapping of str to Any
            The dtype of each plain tensor, the target of each weight.
        """
        self.save(path, dict(arrays), check)
        return {}

    # What follows from it.

    def __repr__(self) -> str:  # part of the digest by which a run that is repeated knows its files
        return f"{type(self).__name__}()"

    @property
    def has_tensors(self) -> bool:
        """Return whether a weight is several tensors of a safetensors file."""
        return not (self.is_file or self.is_own)

    def refuse_writing(self, what: str) -> NoReturn:
        raise WrongValue(f"save: {what}the layout {self.name} is read, not written: expected another one")

    def laid_out(self, name: str, entry: Entry) -> Parts:
        """Return dtypes and shapes of the tensors that represent a weight that is not quantized yet, or refuse it."""
        self._refuse_matrix(name, entry)
        return self.shapes(name, entry)

    def stored(self, name: str, q: QuantizedArray) -> dict[str, Array]:
        """Return the tensors that represent an array, or refuse it."""
        self._refuse_matrix(name, q)
        return self.tensors(name, q)

    def _refuse_matrix(self, name: str, q: Packed) -> None:
        if self.only_stacks and (len(q.shape) != 3 or tuple(q.axis) != (2,)):
            raise WrongValue(
                f"save: tensor {quoted(name)} of shape {q.shape} and axis {q.axis}: {self.name} stores stacks of "
                "experts (experts, out, in) quantized along in"
            )

    def check(self, name: str, shape: tuple[int, ...], target: Target) -> None:
        """Raise ValueError if the layout does not store a weight as a target, a matrix or a stack of matrices."""
        if self.only_stacks and len(shape) != 3:
            raise WrongValue(f"{self.name} has stacks of experts (experts, out, in) alone, not {shape}")
        if len(shape) not in (2, 3) or 0 in shape:
            raise WrongValue(f"{self.name} has matrices (out, in) and stacks of them, not {shape}")
        if isinstance(target, scaled.Blocks):
            self.check_blocks(name, shape, target)
        elif not self.depends_on_values(target):
            is_stack = self.stacks and len(shape) == 3
            rows = shape[0] * shape[1] if is_stack else shape[-2]
            self.shapes(name, entry_of(target, (rows, shape[-1]), (1,), "float32"))
            if is_stack:
                self.check_stack(shape, target)

    def described(self, formats: Mapping[str, Any], plain: Sequence[str], ordered: bool = False) -> dict[str, Any]:
        """Return the entries of config.json that the program expects.

        Parameters
        ----------
        formats : mapping of str to Target
            Of the weights by name.
        plain : sequence of str
            Matrices called ``NAME.weight`` that are not quantized; `config` gets the names of their layers.
        ordered : bool
            Whether columns lie in another order than their groups.

        Returns
        -------
        dict
            Under `METADATA` the function of `metadata` with its formats, if `reads_metadata`.

        Raises
        ------
        ValueError
            Formats that differ where a file has one, or none.
        """
        if not formats:
            raise WrongValue(f"save: no weight is packed, expected one at least for {self.name}")
        if len(set(formats.values())) != 1 and not self.has_several:
            texts = shown(sorted({str(one) for one in formats.values()}))
            raise WrongValue(f"save: the formats are {texts}: {self.name} has one of all weights in a file")
        # Without an output layer of its own a network multiplies by its embedding. Loaders expect codes if it is not
        # listed.
        is_tied = any(name.endswith(TABLES) for name in plain)
        if is_tied and not any(name.endswith(HEAD) for name in (*formats, *plain)):
            plain = [*plain, HEAD]
        # transformers 5 loads language_model.lm_head as lm_head.
        moved = [HEAD] if HEAD not in plain and any(name.endswith(f"language_model.{HEAD}") for name in plain) else []
        plain = [*plain, *moved]
        config = self.config(formats, [name.removesuffix(".weight") for name in plain], ordered)
        about = {METADATA: partial(self.metadata, formats)} if self.reads_metadata else {}
        return {KEY: config, **self.files(config), **about}

    def save(self, path: str | os.PathLike[str], arrays: Mapping[str, Any], check: str, model: object = None) -> None:
        """Write arrays to a file.

        Parameters
        ----------
        check : str
            What is read again, of `rereading.CHECKS`.
        model : Any
            Of `model_in`, which the arrays are; None writes the arrays alone.

        Raises
        ------
        ValueError
            A format without a place in the layout (the nearest that has one is named); formats that differ.
        """
        if model is not None:
            self.write_model(path, arrays, model, check)
            return
        packed: dict[str, QuantizedArray] = {}
        for key, array in arrays.items():
            if isinstance(array, PackedArray):
                if type(array) is not QuantizedArray:
                    kind = type(array).__name__
                    raise WrongValue(f"save: tensor {quoted(key)} is {kind}: {self.name} has no place for it")
                packed[key] = array
        cast = {key: found.dtype for key, array in packed.items() if (found := plain_of(array.format)) is not None}
        for key, dtype in cast.items():
            arrays = {**arrays, key: converted(packed.pop(key).dequantize(), numpy_dtype(dtype))}
        if self.is_file:  # other packages expect the byte order of the machine
            arrays = {key: array if key in packed else _native(np.asarray(array)) for key, array in arrays.items()}
        self.write(path, arrays, packed, check)

    def write(
        self, path: str | os.PathLike[str], arrays: Mapping[str, Any], packed: Mapping[str, QuantizedArray], check: str
    ) -> None:
        """Write the arrays of `save`, of which `packed` are quantized."""
        stored: dict[str, Any] = {}
        for key, array in arrays.items():
            parts = self.stored(key, packed[key]) if key in packed else {key: np.asarray(array)}
            for part, values in parts.items():
                if part in stored:
                    raise WrongValue(f"save: two tensors would be called {quoted(part)}")
                stored[part] = values
        plain = [key for key in arrays.keys() - packed.keys() if is_matrix(key, np.shape(arrays[key]))]
        config = self.described({key: array.format for key, array in packed.items()}, sorted(plain))
        metadata = {"format": "pt", KEY: json.dumps(config[KEY])}
        if METADATA in config:
            sizes = {key: (values.dtype.name, values.shape) for key, values in stored.items()}
            metadata |= config[METADATA](sizes, arrays.keys() - packed.keys())
        save_arrays(path, stored, {}, metadata=metadata, check=check)


def is_matrix(name: str, shape: Sequence[int]) -> bool:
    """Tell whether a program would treat a tensor as the weights of a linear layer."""
    return name.endswith(".weight") and len(shape) == 2


def _native(array: Array) -> Array:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
