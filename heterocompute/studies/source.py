"""The weights of a study: names, dtypes and shapes, then one tensor at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from ..arrays.dense import as_any, as_array
from ..arrays.foreign import Unreadable
from ..arrays.quantized import QuantizedArray
from ..base.errors import TooLarge, WrongType, WrongValue, shown
from ..base.texts import quoted, sentence
from ..files.opening import Checkpoint, Place, check_weights, open_checkpoint, place_of
from ..files.roles import roles_from
from .request import Request

Array = np.ndarray[Any, Any]


class Source:
    """Names, dtypes and shapes of the weights, and one tensor at a time.

    If a file names the operands of matmuls (`axes`), only those are weights; the rest stays unchanged.

    Attributes
    ----------
    names : list of str
        Names of all arrays.
    infos : dict of str to (str, tuple of int)
        Dtype and shape of the arrays that are not packed.
    roles : Roles
        Reduction axes that the file or its configuration states, and the tensors that are no matrices.
    shapes : dict of str to tuple of int
        Shapes of the arrays that are not packed, with those that are not weights.
    """

    def __init__(self, weights: object, stack: ExitStack) -> None:
        if isinstance(weights, (str, os.PathLike)):
            weights = stack.enter_context(open_checkpoint(weights))
        if isinstance(weights, QuantizedArray):
            weights = {"array": weights}
        if isinstance(weights, Mapping):
            check_weights(weights, "study")
        else:
            weights = {"array": as_array(weights, "study: weights")}
        self._arrays: Mapping[str, Any] = weights
        self._plain: dict[str, Array] = {}  # arrays in memory, unchanged
        self.names = list(weights)
        self.roles = roles_from(weights)
        self.infos = weights.plain_infos() if isinstance(weights, Checkpoint) else self._in_memory()
        if not self.infos and not isinstance(weights, Checkpoint):
            self.infos = self._decoded()
        self.shapes = {name: shape for name, (_, shape) in self.infos.items()}
        is_named = weights.names_operands if isinstance(weights, Checkpoint) else bool(getattr(weights, "axes", {}))
        if is_named:
            self.infos = {name: info for name, info in self.infos.items() if name in self.roles.axes}

    def _in_memory(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        for name, value in self._arrays.items():
            if not isinstance(name, str):
                raise WrongType(f"study: the names of weights are str, got {shown(name)} of type {type(name).__name__}")
            try:
                self._plain[name] = as_any(value, f"study: weights[{shown(name)}]")
            except Unreadable:
                raise
            except TypeError:
                continue  # tensors that cannot be quantized stay unchanged
        return {name: (array.dtype.name, array.shape) for name, array in self._plain.items()}

    def _decoded(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Decode arrays that are all packed: their values are what is studied."""
        self._plain = {n: q.dequantize() for n, q in self._arrays.items() if isinstance(q, QuantizedArray)}
        return {name: (array.dtype.name, array.shape) for name, array in self._plain.items()}

    def original(self, name: str) -> Any:
        """Return an array unchanged."""
        return self._arrays[name]

    def load(self, name: str) -> Array:
        """Return a tensor of `infos` as an array of floats."""
        return as_array(self._plain[name] if name in self._plain else self._arrays[name], name)

    def of(self, name: str) -> Any:
        """Return what another process needs to load a tensor of `infos`: its array or the path of its checkpoint."""
        if isinstance(self._arrays, Checkpoint):
            return place_of(self._arrays)
        return self._plain[name] if name in self._plain else self._arrays[name]


def loaded(source: object, name: str) -> Array:
    """Return a tensor as an array of floats, from what `Source.of` returns."""
    if not isinstance(source, Place):
        return as_array(source, name)
    with source.opened() as checkpoint:
        return as_array(checkpoint[name], name)


class Network(NamedTuple):
    """The weights of a value, with its functions for evaluation and training if it has them."""

    weights: Any
    evaluate: Callable[..., Any] | None
    retrain: Callable[..., Any] | None


def network_of(weights: object) -> Network:
    """Return the weights of a network and its functions; any other value is weights without functions."""
    found = getattr(weights, "weights", None)
    if isinstance(weights, Mapping) or not isinstance(found, Mapping):
        return Network(weights, None, None)
    evaluate, retrain = getattr(weights, "evaluate", None), getattr(weights, "retrain", None)
    return Network(found, evaluate if callable(evaluate) else None, retrain if callable(retrain) else None)


def module_of(request: Request) -> Request:
    """Return the request for a torch.nn.Module as one for its weights, and a function that evaluates it with others.

    Raises
    ------
    ValueError
        An argument does not apply to a module.
    """
    for value, name, how in (
        (request.axis, "axis", "the layers of a module say theirs"),
        (request.layout, "layout", "the layers of a module say theirs"),
        (request.emulate, "emulate",
         "a module has the arithmetic of its layers: pass weights and evaluate(weights, emulate=)"),
        (request.retrain or None, "retrain",
         "train a module with QuantLinear or parametrize of heterocompute.interop.torch"),
    ):  # fmt: skip
        if value is not None:
            raise WrongValue(f"{request.study}: {name} does not apply to a torch.nn.Module: {how}")
    from ..interop.models.network import module_network  # optional: torch

    weights, evaluate = module_network(
        request.weights, request.evaluate, request.include, request.exclude, request.study
    )
    if isinstance(evaluate, FunctionType):  # the column of a single number has the name of the caller's function
        evaluate.__name__ = getattr(request.evaluate, "__name__", "")
    return replace(request, weights=weights, evaluate=evaluate, include=None, exclude=None)


@contextmanager
def named(name: str) -> Iterator[None]:
    """Put the tensor's name in front of an error's message."""
    try:
        yield
    except (TypeError, ValueError, MemoryError) as error:
        kinds = {TypeError: WrongType, ValueError: WrongValue, MemoryError: TooLarge}
        kind = next(ours for builtin, ours in kinds.items() if isinstance(error, builtin))
        raise kind(f"tensor {quoted(name)}: {sentence(error)}") from error
