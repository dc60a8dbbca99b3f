"""Reads the files of layouts: which tensors are a weight's, and what each weight is."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ...arrays.quantized import QuantizedArray
from ...arrays.stored import wrong_part
from ...base.errors import WrongValue, printable, shown
from ...base.tensors import Tensors
from ..roles import roles_of, turned_in
from .configuration import KEY, config_in, config_of, method_of, own_config, plain_names
from .layout import Layout
from .refusals import refuse_changed, refuse_lone_codes, refuse_one, refuse_programs, refuse_scales, refuse_unread
from .table import LAYOUTS, layout_in, layout_named, read_layout, tensor_layout
from .weight import Weight, turned_array

# Suffixes of the tensors of a layer's weight, besides those that begin with `weight`.
PARTS = ("qweight", "qzeros", "scales", "g_idx", "SCB")
# Factors of a layer's inputs. Without them the weights would belong to another layer.
INPUTS = (".pre_quant_scale", "_act_pre_scale", ".w_bf16_to_fp8_scale")

Reads = dict[str, Callable[[], Any]]


def readers_in(reader: Tensors, name: str) -> Reads:
    """Return how each array of a file in the layout of another program is read.

    Parameters
    ----------
    name : str
        Of `LAYOUTS`.

    Returns
    -------
    dict of str to callable
        Each answers with a QuantizedArray or an ndarray, and raises ValueError for a weight that no format here has.

    Raises
    ------
    ValueError
        Another name, or no configuration.
    """
    layout = read_layout(name)
    with _blaming(reader, name):
        found = layout.readers(reader) if layout.is_file else _readers_of(reader, layout, Stored.packed)
    return {one: partial(_read, reader, name, read) for one, read in found.items()}


def weights_in(reader: Tensors, layout: Layout) -> tuple[list[str], dict[str, Callable[[], Weight]]]:
    """Return the names of the arrays of a file of safetensors in order, and how each weight is read.

    Raises
    ------
    ValueError
        As `readers_in`.
    """
    plain, weights = _checked(reader, layout, Stored.weight)
    return [*plain, *weights], weights


def operands_in(reader: Tensors) -> tuple[list[str], Reads]:
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
    if name is not None:
        return _checked(reader, LAYOUTS[name], Stored.operand)
    with _blaming(reader, str(name)):
        if method == "heterocompute":
            declared = "load it by from_pretrained, or open the output of heterocompute quantize instead"
            raise WrongValue(f"HeteroConfig of transformers wrote it: {declared}")
        if method is not None and tensor_layout(layout_named(config) or method) is None:
            known = ", ".join(one.name for one in LAYOUTS.values() if not one.is_file)
            raise WrongValue(f"quant_method is {shown(method)}, which is not read; expected {known}")
        refuse_unread(reader)
        return plain_names(reader), {}


class Stored(NamedTuple):
    """A stored weight: its layout and layer, a function that reads its tensors, the configuration, `Weight.turned`."""

    layout: Layout
    prefix: str
    read: Callable[[], dict[str, Any]]
    config: Any
    turned: bool = False

    def weight(self) -> Weight:
        found = sound(self.prefix, self.unchecked())
        return replace(found, turned=self.turned)

    def unchecked(self) -> Weight:
        return self.layout.read(self.prefix, self.read(), self.config)

    def packed(self) -> Any:
        q = _checked_array(self.prefix, self.unchecked().packed())
        return turned_array(q) if self.turned else q

    def operand(self) -> Any:
        found = self.weight()
        return found.packed() if found.array is not None and found.order is None else found.values()


def _checked(reader: Tensors, layout: Layout, how: Callable[[Stored], Any]) -> tuple[list[str], Reads]:
    """Return the plain tensors, none of which are codes, and how each weight is read."""
    with _blaming(reader, layout.name):
        plain, weights = _weights_in(reader, layout)
        refuse_lone_codes(reader, plain, shown(layout.name))
    return plain, {one: partial(_read, reader, layout.name, partial(how, weight)) for one, weight in weights.items()}


def _readers_of(reader: Tensors, layout: Layout, how: Callable[[Stored], Any]) -> Reads:
    plain, weights = _weights_in(reader, layout)
    found: Reads = {one: partial(reader.tensor, one) for one in plain}
    return found | {one: partial(how, weight) for one, weight in weights.items()}


def _weights_in(reader: Tensors, layout: Layout) -> tuple[list[str], dict[str, Stored]]:
    try:
        config = config_in(reader) or config_of(reader, layout.config_key)
    except FileNotFoundError:
        if layout.needs_config:
            declared = f"has no {KEY}, and no config.json beside it has one"
            raise FileNotFoundError(errno.ENOENT, declared, reader.path) from None
        config = {}
    declared, own = config.get("quant_method", layout.name), layout_named(config)
    if tensor_layout(own) is not None and own != layout_named({"quant_method": layout.name}):
        raise WrongValue(f"layout is {shown(layout.name)}, but its configuration says {shown(declared)}")
    config = own_config(config)
    marked = [(one.removesuffix(mark), mark) for one in reader.names for mark in layout.marks if one.endswith(mark)]
    prefixes = [one for one, mark in marked if layout.is_weight(reader, one, mark)]
    stacks = [one for one, mark in marked if mark and mark == layout.bare and one in prefixes]
    mine: dict[str, list[str]] = {one: [f"{one}{e}" for e in layout.ends if f"{one}{e}" in reader] for one in prefixes}
    mine |= {one: [one, f"{one}{layout.bare}"] for one in stacks}
    for tensor in () if layout.ends else reader.names:
        places = (i for i in range(len(tensor) - 1, -1, -1) if tensor[i] == ".")
        owner = next((tensor[:i] for i in places if tensor[:i] in mine), None)
        part = "" if owner is None else tensor[len(owner) + 1 :]
        if owner is not None and (part in PARTS or part.startswith("weight")):
            mine[owner].append(tensor)
    owned = {tensor for tensors in mine.values() for tensor in tensors}
    plain = [one for one in reader.names if one not in owned and one not in layout.markers]
    refuse_changed(config)
    if layout.reads_metadata:
        config = {**config, "metadata": reader.metadata}
    refuse_one(next((one for one in plain if one.endswith(INPUTS)), None), shown(declared))
    refuse_scales(plain, shown(declared))  # such weights would be read as plain ones
    refuse_programs(reader, plain, shown(declared))
    found = {
        f"{one}.weight": Stored(layout, one, partial(_tensors, reader, mine[one]), config)
        for one in mine
        if one not in stacks
    }
    found = _with_turned(reader, found)
    axes = roles_of(reader, {one: reader.info(one).shape for one in stacks}).axes if stacks else {}
    return plain, found | {one: _stack(reader, layout, one, config, axes.get(one) == (1,)) for one in stacks}


def _stack(reader: Tensors, layout: Layout, name: str, config: Mapping[str, Any], turned: bool) -> Stored:
    """Return a stack of experts with the layer's own name; one of (experts, in, out) is read as (experts, out, in)."""

    def read() -> dict[str, Any]:
        found = {f"{name}.weight{end}": reader.tensor(f"{name}{end}") for end in ("", layout.bare)}
        if not turned:
            return found
        return {key: part.swapaxes(-1, -2) if part.ndim == 3 else part for key, part in found.items()}

    block = config.get("weight_block_size")
    if turned and isinstance(block, list):
        config = {**config, "weight_block_size": block[::-1]}
    return Stored(layout, name, read, config, turned)


def _with_turned(reader: Tensors, weights: dict[str, Stored]) -> dict[str, Stored]:
    """Mark the weights that their model has as (in, out), if the file stores them as (out, in).

    Programs that know no such weights store them as they are. The bias of a weight that is not square tells.
    """
    named = turned_in(reader, weights)
    for name in named:
        bias = f"{name.removesuffix('.weight')}.bias"
        if bias not in reader:
            continue
        with suppress(ValueError):
            rows, columns = weights[name].weight().shape[-2:]
            if rows != columns and reader.info(bias).shape == (columns,):
                return weights
            if rows != columns:
                break
    return weights | {name: weights[name]._replace(turned=True) for name in named}


def _tensors(reader: Tensors, names: Sequence[str]) -> dict[str, Any]:
    return {name: reader.tensor(name) for name in names}


def sound(prefix: str, weight: Weight) -> Weight:
    """Return a weight, or raise ValueError if the components of its array are not those of its format."""
    if weight.array is not None:
        _checked_array(prefix, weight.array)
    return weight


def _checked_array(prefix: str, q: QuantizedArray) -> QuantizedArray:
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
