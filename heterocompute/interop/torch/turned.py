"""Linear layers whose inputs are rotated in the call, with the weight rotated alike: `convert(rotate="online")`.

    y = (x M) (w M)^T = x w^T,   M: Sylvester's matrix of each block of inputs, +-1 / sqrt(block)

M spreads an outlier channel over its block. Weights and activations then need fewer bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from ...base.errors import WrongValue
from ...base.texts import quoted
from ...formats import Format, is_rotated, unrotated
from ...products.layers.turned import sylvester
from ...products.quantize import fake_quantize
from ..models.batches import evaluating
from .carrying import carry, copied
from .folding import output_error, own_weight
from .judging import ROWS, Divided, improves, some_rows
from .modules import PackedLinear
from .products import linear
from .walk import Layer, layers, matching
from .weights import PackedWeight

Array = np.ndarray[Any, Any]
LEAST, MOST = 16, 256  # values of a block
WORSE = "the rotation does not reduce the error of the model"
BLOCK = "turn"  # name of the buffer that states the block


def block_of(width: int) -> int:
    """Return the largest power of two that divides a width, at most `MOST`; 0 if it is less than `LEAST`."""
    found = min(width & -width, MOST)
    return found if found >= LEAST else 0


def turned(x: torch.Tensor, block: int) -> torch.Tensor:
    """Rotate blocks of the last axis, in float32; a second call rotates back."""
    parts = x.float().reshape(*x.shape[:-1], -1, block)
    return (parts @ _matrix(block, x.device)).reshape(x.shape).to(x.dtype)


@functools.cache
def _matrix(block: int, device: torch.device) -> torch.Tensor:
    with torch.inference_mode(False):  # later calls may have gradients
        return torch.from_numpy(sylvester(block).copy()).to(device)


class TurnedLinear(torch.nn.Linear):
    """A linear layer with a rotated weight, before it is packed.

    Parameters
    ----------
    old : torch.nn.Linear
    block : int
        Values of a block.
    """

    def __init__(self, old: Any, block: int) -> None:
        super().__init__(old.in_features, old.out_features, old.bias is not None, device="meta")
        with torch.no_grad():
            self.weight = torch.nn.Parameter(turned(old.weight, block), requires_grad=old.weight.requires_grad)
        self.bias, self.block = old.bias, block

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return functional.linear(turned(input, self.block), self.weight, self.bias)


class PackedTurnedLinear(PackedLinear):
    """A packed linear layer whose inputs are rotated in the call. Returned by ``convert(rotate="online")``.

    Parameters
    ----------
    q : QuantizedArray or PackedWeight
        The rotated weight.
    bias : torch.Tensor, optional
    activations : Format or str, optional
        Round the rotated inputs to this format.
    block : int
        Inputs that are rotated together, a power of two. A state_dict has it as ``turn``.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> w = hc.ptq.hadamard(np.eye(4, 32, dtype=np.float32), block=16)
    >>> layer = PackedTurnedLinear(hc.quantize(w, "int8"), block=16)
    >>> layer(torch.ones(2, 32)).round(decimals=1).tolist()
    [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    """

    def __init__(self, q: Any, bias: object = None, activations: Format | str | None = None, block: int = 16) -> None:
        super().__init__(q, bias, activations)
        if block < 2 or block & (block - 1) or self.in_features % block:
            raise WrongValue(
                f"PackedTurnedLinear: block is {block}, expected a power of two that divides {self.in_features}"
            )
        self.block = block
        self.register_buffer(BLOCK, torch.tensor(block))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = linear(turned(input, self.block), self.weight, self.bias)
        return answer

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        return turned(x, self.block)

    def _values(self) -> Array:
        """Return the float32 weight for inputs that are not rotated."""
        values: Array = turned(self.weight.dequantize(), self.block).numpy()
        return values

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local: object, strict: bool, missing: object,
                              unexpected: object, errors: Any) -> None:  # fmt: skip
        super()._load_from_state_dict(state_dict, prefix, local, strict, missing, unexpected, errors)
        given = state_dict.get(f"{prefix}{BLOCK}")
        if given is not None and int(given) != self.block:
            errors.append(f"{prefix}{BLOCK} is {int(given)}, but the layer rotates blocks of {self.block}")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, block={self.block}"


def packed_turned(old: Any, weight: PackedWeight, block: int) -> Any:
    """Return the packed layer of a linear layer with rotated inputs."""
    return carry(old, PackedTurnedLinear(weight, old.bias, block=block))


@dataclass(frozen=True)
class Turned:
    """A copy of a model, and for each layer the block that is rotated, or the reason why none is."""

    model: Any
    rows: dict[str, dict[str, Any]]


def turned_online(
    model: Any,
    layers: list[Layer],
    format_of: Callable[[Layer], Format | None],
    batches: Divided,
    activations: Format | None,
    clip: str | None,
    rounded: Callable[[Any], Any],
) -> Turned:
    """Return a copy of a model in which the layers that gain rotate their inputs, or the model if that is worse.

    Parameters
    ----------
    model, layers, format_of, batches, activations, clip
        As of `folding.folded`. A layer is rotated if its outputs then have less error on `ROWS` inputs.
    rounded : callable
        Returns a model with its layers rounded to nearest. Both roundings are compared on the held-out batches.

    Raises
    ------
    ValueError
        No layer can be rotated; the message has the reason of the first one.
    """
    rows: dict[str, dict[str, Any]] = {}
    wanted = [layer for layer in layers if format_of(layer) is not None]
    uses = _uses(model)
    chosen: dict[int, Layer] = {}
    for layer in wanted:
        reason = _why_not(layer, uses)
        rows[layer.name] = {"rotated": 0, "kept": reason}
        if not reason:
            chosen[id(layer.module)] = layer
    if not chosen:
        name, row = next(iter(rows.items()), ("the model", {"kept": "it has no layer to pack"}))
        raise WrongValue(f"convert: rotate='online' rotates no layer: {name}: {row['kept']}")
    inputs = _inputs(model, chosen, batches)
    shared = {id(one): one for one in model.parameters()}
    small = copied(model, shared, model.modules(), "convert", "a model without it")
    for layer in chosen.values():
        x, block, fmt = inputs.get(layer.name), block_of(layer.shape[1]), format_of(layer)
        if x is None or fmt is None:
            rows[layer.name]["kept"] = "it was not called"
            continue
        w = own_weight(layer.module, layer)
        exact = x @ w.T
        errors = []
        for inner, weight in ((x, w), (_turned(x, block), _turned(w, block))):
            errors.append(output_error(inner if activations is None else fake_quantize(inner, activations), weight,
                                       exact, fmt, clip))  # fmt: skip
        if errors[1] >= errors[0]:
            rows[layer.name]["kept"] = "the rotation does not reduce the error of its outputs"
            continue
        rows[layer.name] = {"rotated": block, "kept": ""}
        small = _with_turned(small, layer, block)
    if any(row["rotated"] for row in rows.values()) and improves(model, small, batches, rounded):
        return Turned(small, rows)
    return Turned(model, {name: {"rotated": 0, "kept": row["kept"] or WORSE} for name, row in rows.items()})


def turned_by_format(model: Any, table: Mapping[str, Any], include: Any, exclude: Any) -> tuple[Any, dict[str, Any]]:
    """Return a copy of a model whose layers of rotated formats rotate their inputs, and the recipe without rotations.

    Raises
    ------
    ValueError
        A layer of such a format cannot rotate its inputs, or the format flips signs.
    """
    of_format = matching({pattern: (fmt,) for pattern, fmt in table.items()})
    chosen: list[tuple[Layer, int]] = []
    uses = _uses(model)
    for layer in layers(model, include, exclude):
        fmt = (of_format(layer) or (None,))[0]
        if not is_rotated(fmt) or layer.problem:
            continue
        reason = "a layer has no signs, expected a format without a seed" if fmt.seed is not None else ""
        reason = reason or _why_not(layer, uses)
        if reason:
            raise WrongValue(f"convert: {quoted(layer.name)} in {fmt}: {reason}; give it a format without rotation")
        chosen.append((layer, fmt.block_of(layer.shape[1], f"convert: {quoted(layer.name)}")))
    shared = {id(one): one for one in model.parameters()}
    small = copied(model, shared, model.modules(), "convert", "a model without it")
    for layer, block in chosen:
        small = _with_turned(small, layer, block)
    return small, {pattern: unrotated(fmt) for pattern, fmt in table.items()}


def _with_turned(model: Any, layer: Layer, block: int) -> Any:
    """Put a layer that rotates its inputs in the place of a linear layer; return the model."""
    old = model.get_submodule(layer.path)
    new = carry(old, TurnedLinear(old, block))
    if not layer.path:
        return new
    parent, _, name = layer.path.rpartition(".")
    setattr(model.get_submodule(parent), name, new)
    return model


def _uses(model: Any) -> dict[int, int]:
    """Return the number of modules that have each parameter."""
    uses: dict[int, int] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            uses[id(parameter)] = uses.get(id(parameter), 0) + 1
    return uses


def _turned(x: Array, block: int) -> Array:
    found: Array = turned(torch.from_numpy(np.ascontiguousarray(x)), block).numpy()
    return found


def _why_not(layer: Layer, uses: dict[int, int]) -> str:
    if layer.kind != "linear" or layer.axis == (0,):
        return f"it is a {type(layer.module).__name__}, expected a torch.nn.Linear"
    parameter = layer.module._parameters.get(layer.attribute)
    if parameter is None:
        return "its weight is computed by a parametrization"
    if uses[id(parameter)] > 1:
        return "its weight is tied to another layer"
    if type(layer.module) is not torch.nn.Linear:
        return f"it is a {type(layer.module).__name__}, expected a torch.nn.Linear"
    return "" if block_of(layer.shape[1]) else f"its {layer.shape[1]} inputs have no block of {LEAST} to {MOST}"


def _inputs(model: Any, chosen: dict[int, Layer], batches: Divided) -> dict[str, Array]:
    """Return up to `ROWS` inputs of each layer, from all batches that are not held out."""
    found: dict[str, list[Array]] = {}

    def called(module: Any, args: Any) -> None:
        parts = found.setdefault(chosen[id(module)].name, [])
        if args and sum(map(len, parts)) < ROWS:
            parts.append(some_rows(args[0], batches.share))

    hooks = [layer.module.register_forward_pre_hook(called) for layer in chosen.values()]
    try:
        with evaluating(model):
            for index, batch in enumerate(batches.chosen()):
                batches.source.run(model, batch, index)
                if len(found) == len(chosen) and all(sum(map(len, some)) >= ROWS for some in found.values()):
                    break
    finally:
        for hook in hooks:
            hook.remove()
    return {name: np.concatenate(parts)[:ROWS] for name, parts in found.items() if parts}
