"""Batches: calls of a model from the usual kinds of data.

    tensor, array                  model(tensor)                          one batch
    mapping of names               model(**those that forward accepts)    one batch, as tokenizers return it
    list, DataLoader, iterator     each item is a batch                   of (images, labels): model(images)
    function without arguments     its result, at each pass

A batch that is a tuple or a list fills the arguments that `forward` requires; further items are left out.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ...base.errors import WrongType, WrongValue, shown
from ...base.float_env import call_back
from ...base.progress import Steps
from ...base.texts import sentence
from .blocks import cloned

EVERY = 4  # one of this many batches is held out
ONCE = (
    "is an iterator, which can be read once, but several passes are needed: pass a list, a DataLoader or a function "
    "that returns the batches"
)
_WANTED = (
    "expected a DataLoader, a list of batches, a tensor, a dict of tensors, or a function without arguments that "
    "returns batches"
)


@contextlib.contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Run a model in evaluation mode without gradients; its modes are restored afterwards."""
    import torch  # optional

    modes = [(one, one.training) for one in model.modules()]
    try:
        model.eval()
        with torch.inference_mode(False), torch.no_grad():
            yield
    finally:
        for one, training in modes:
            one.training = training


class Problem(WrongValue):
    """An error of this package, raised while the model runs: it is not the model's own refusal of a batch."""


class Batches:
    """Batches that can be passed through a model several times, one in memory at a time.

    Parameters
    ----------
    source : object
        As the table above says.
    name : str
        The function and argument that sentences begin with, such as ``"calibrate: batches"``.
    step : Steps, optional
        Called before each batch of each pass. Its total is raised by the batches of this source.

    Raises
    ------
    TypeError
        The source holds no batches.
    """

    def __init__(self, source: Any, name: str, step: Steps | None = None) -> None:
        self.name, self._step = name, step
        self._is_iterator = isinstance(source, Iterator)
        self._passes = 0
        self._read: Callable[[], Iterable[Any]]
        if _is_array(source) or isinstance(source, Mapping):
            self._read = lambda: [source]
        elif isinstance(source, (str, bytes)):
            raise WrongType(f"{name} is {shown(source)}, {_WANTED}")
        elif hasattr(source, "__iter__") or hasattr(source, "__getitem__"):
            self._read = lambda: source
        elif callable(source) and not hasattr(source, "parameters"):
            self._read = lambda: self._returned(source)
        else:
            raise WrongType(f"{name} is {shown(source)}, {_WANTED}")
        if step is not None:
            step.total += _count_of(source)

    def _returned(self, source: Callable[[], Any]) -> Iterable[Any]:
        found = call_back(source)
        if _is_array(found) or isinstance(found, Mapping):
            return [found]
        if isinstance(found, (str, bytes)) or not hasattr(found, "__iter__"):
            raise WrongType(f"{self.name} is a function that returned {shown(found)}, expected batches")
        return found  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[Any]:
        """Yield each batch; refuse a second pass over batches that can be read only once."""
        self._passes += 1
        if self._is_iterator and self._passes > 1:
            raise WrongValue(f"{self.name} {ONCE}")
        count = 0
        for count, batch in enumerate(self._read(), 1):
            if self._step is not None:
                self._step.total = max(self._step.total, self._step.done + 1)
                self._step(f"batch {count}")
            yield batch
        if not count:
            raise WrongValue(f"{self.name} is empty, expected one batch or more")

    def run(self, model: Any, batch: object, index: int) -> Any:
        """Call the model with a batch.

        Parameters
        ----------
        model : torch.nn.Module
        batch : object
        index : int
            Of the batch, which the sentence names if the model refuses it.

        Returns
        -------
        object
            The model's answer.

        Raises
        ------
        ValueError
            The model raised an error.
        """
        args, kwargs = self.arguments(model, batch, index)
        try:
            return call_back(model, *cloned(args), **cloned(kwargs))  # a model may write to its inputs
        except (Problem, MemoryError):
            raise
        except Exception as problem:  # whatever a model raises
            kinds = ", ".join([*map(_kind, args), *(f"{key} {_kind(value)}" for key, value in kwargs.items())])
            raise WrongValue(
                f"{self.name}: the model refuses batch {index} ({kinds}): {sentence(problem)}"
            ) from problem

    def arguments(self, model: object, batch: object, index: int) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call of the model with a batch, by position and by name."""
        positional, keys = _accepted(model)
        if isinstance(batch, (tuple, list)) and batch and isinstance(batch[0], Mapping):
            batch = batch[0]
        if isinstance(batch, Mapping):
            chosen = {key: _tensor(value) for key, value in batch.items() if keys is None or key in keys}
            if not chosen:
                raise WrongValue(
                    f"{self.name}: batch {index} has the keys {', '.join(map(str, batch))}, but the model accepts "
                    f"{', '.join(keys or ()) or 'none'}"
                )
            return [], chosen
        if isinstance(batch, (tuple, list)):
            if not batch:
                raise WrongValue(f"{self.name}: batch {index} is empty, expected the inputs of the model")
            return [_tensor(one) for one in batch[:positional]], {}
        if not _is_array(batch):
            raise WrongType(
                f"{self.name}: batch {index} is {shown(batch)}, expected a tensor, a tuple or a dict of tensors"
            )
        return [_tensor(batch)], {}


def _count_of(source: Any) -> int:
    """Return the number of batches, 0 if it is not known before they are read."""
    if _is_array(source) or isinstance(source, Mapping):
        return 1
    try:
        return len(source)
    except TypeError:  # a function, an iterator, or a DataLoader of a stream
        return 0


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray) or (hasattr(value, "__dlpack__") and hasattr(value, "shape"))


def _tensor(value: object) -> Any:
    """Return a NumPy array as a tensor, anything else unchanged."""
    if not isinstance(value, np.ndarray):
        return value
    import torch  # optional

    return torch.from_numpy(np.require(value, requirements="W"))


def _kind(value: Any) -> str:
    if _is_array(value):
        size = "x".join(map(str, value.shape)) or "one value"
        return f"{str(value.dtype).removeprefix('torch.')} {size}"
    return type(value).__name__


def _accepted(model: Any) -> tuple[int | None, set[str] | None]:
    """Return the number of tuple items that the model takes, None for all, and the names it accepts, None for any."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):  # of a scripted module, for example
        return None, None
    kinds = inspect.Parameter
    names = {one.name for one in parameters if one.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)}
    required = [
        one
        for one in parameters
        if one.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD) and one.default is kinds.empty
    ]
    everything = any(one.kind is kinds.VAR_POSITIONAL for one in parameters)
    return (
        None if everything else max(len(required), 1),
        None if any(one.kind is kinds.VAR_KEYWORD for one in parameters) else names,
    )
