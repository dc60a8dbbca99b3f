"""Passes of batches through a model whose weights change block by block: no pass begins with the first block again.

A layer is calibrated again by its block alone, with the inputs that the block had in each batch. The next block is
linked if one of its arguments is what this block returned, and the others do not depend on the blocks: then its inputs
are computed from those of this block. A whole run, in which the blocks return noise, shows what depends on them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ...base.float_env import call_back
from .batches import Batches
from .blocks import blocks_of, cloned, without_cache
from .recording import ProductRecorder, recording

Pass = tuple[int, Any, Sequence[Callable[[], Any]]]
Call = tuple[tuple[Any, ...], dict[str, Any]]


class Whole:
    """Passes through whole models.

    Parameters
    ----------
    models : sequence of torch.nn.Module
    source : Batches
    """

    def __init__(self, models: Sequence[Any], source: Batches) -> None:
        self.models, self.source = models, source

    def passes(self, paths: Iterable[str]) -> Iterator[Pass]:
        """Yield (index, mask of tokens, a function for each model that runs it) of each batch.

        Parameters
        ----------
        paths : iterable of str
            Modules whose calls are wanted.
        """
        for index, batch in enumerate(self.source):
            runs = [functools.partial(self.source.run, net, batch, index) for net in self.models]
            yield index, tokens_of(batch), runs


@dataclass
class _Seen:
    """What a run of a model shows of its blocks: each argument by reference, with its version."""

    wanted: str | None  # whose arguments are copied, None for all
    order: list[str] = field(default_factory=list)
    again: set[str] = field(default_factory=set)  # called more than once
    calls: dict[str, Call] = field(default_factory=dict)
    copies: dict[str, Call] = field(default_factory=dict)
    links: dict[str, list[tuple[int | str, int]]] = field(default_factory=dict)  # argument, tensor of the answer before
    answers: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    versions: list[tuple[str, torch.Tensor, int]] = field(default_factory=list)
    last: list[tuple[torch.Tensor, int]] = field(default_factory=list)

    def before(self, path: str, args: Any, kwargs: Any) -> None:
        if path in self.calls:
            self.again.add(path)
            return
        self.order.append(path)
        self.calls[path] = args, kwargs
        if self.wanted in (None, path):
            self.copies[path] = cloned((args, kwargs))
        given = [*enumerate(args), *kwargs.items()]
        self.links[path] = [
            (key, i)
            for key, value in given
            for i, (tensor, version) in enumerate(self.last)
            if value is tensor and version == tensor._version
        ]
        linked = {key for key, _ in self.links[path]}
        others = [value for key, value in given if key not in linked]
        self.versions += [(path, one, one._version) for one in tensors_in(others)]

    def after(self, path: str, answer: Any) -> None:
        parts = tensors_of(answer)
        self.last = [(one, one._version) for one in parts]
        if self.wanted is None:
            self.answers[path] = [one.detach().clone() for one in parts]

    def constants(self, path: str) -> Call:
        """Return the arguments of a block that are not linked; None in place of the others."""
        args, kwargs = self.calls[path]
        linked = {key for key, _ in self.links[path]}
        return (
            tuple(None if i in linked else value for i, value in enumerate(args)),
            {key: None if key in linked else value for key, value in kwargs.items()},
        )


class Chain:
    """Passes through the block that holds the wanted layers, or through whole models where this is not possible.

    Memory: the inputs of one block in all batches and models, and arguments that are the same for all blocks.

    Parameters
    ----------
    models : sequence of torch.nn.Module
        One, or two of one structure.
    source : Batches
    paths : iterable of str
        Of the layers.
    memory : int
        Bytes of kept inputs at most. Otherwise the models are run whole.
    """

    def __init__(self, models: Sequence[Any], source: Batches, paths: Iterable[str], memory: int) -> None:
        self._whole, self._memory = Whole(models, source), memory
        blocks = blocks_of(models[0], paths)
        self._block_of = {path: block for block, inner in blocks.items() for path in inner}
        self._blocks = [block for block in blocks if block]
        self._order: list[str] = []  # of the blocks that can be run alone
        self._links: dict[str, list[tuple[int | str, int]]] | None = None  # of each of these; None before the first run
        self._at: str | None = None  # the block whose inputs are kept
        self._inputs: list[list[Call]] = []  # of each batch, for each model
        self._constants: list[list[dict[str, Call]]] = []
        self._tokens: list[Any] = []

    def changed(self, paths: Iterable[str]) -> None:
        """Note that weights have changed: inputs of later blocks are no longer those that were kept."""
        for path in paths:
            block = self._block_of.get(path)
            if self._at is not None and (block not in self._order or self._index(block) < self._index(self._at)):
                self._at = None

    def passes(self, paths: Iterable[str]) -> Iterator[Pass]:
        """Yield the same as `Whole.passes`; the functions call the block of the given layers."""
        blocks = {self._block_of.get(path) for path in paths}
        block = blocks.pop() if len(blocks) == 1 else None
        if block is None or not self._arrives(block):
            yield from self._whole.passes(paths)
            return
        for index, (calls, tokens) in enumerate(zip(self._inputs, self._tokens, strict=True)):
            runs = [functools.partial(_run, net, block, call) for net, call in zip(self._models, calls, strict=True)]
            yield index, tokens, runs

    @property
    def _models(self) -> Sequence[Any]:
        return self._whole.models

    def _index(self, block: str | None) -> int:
        return self._order.index(block or "")

    def _arrives(self, block: str) -> bool:
        """Keep the inputs of a block, and tell whether that was possible."""
        links = self._links
        if links is not None and block not in self._order:
            return False
        at = None if self._at is None else self._index(self._at)
        between = [] if at is None else self._order[at + 1 : self._index(block) + 1]
        if links is None or at is None or at > self._index(block) or not all(map(links.get, between)):
            self._survey(block)
        else:
            for one in between:
                self._advance(one)
        return self._at == block

    def _advance(self, block: str) -> None:
        """Replace the kept inputs by those of the next block."""
        links, before = (self._links or {})[block], self._at or ""
        for calls, constants in zip(self._inputs, self._constants, strict=True):
            for m, net in enumerate(self._models):
                with recording(net, ProductRecorder({}), []):
                    parts = tensors_of(_run(net, before, calls[m]))
                args, kwargs = list(constants[m][block][0]), dict(constants[m][block][1])
                for key, i in links:
                    if isinstance(key, int):
                        args[key] = parts[i]
                    else:
                        kwargs[key] = parts[i]
                calls[m] = tuple(args), kwargs
        self._at = block

    def _survey(self, block: str) -> None:
        """Run the whole models, and keep the inputs of a block and the constant arguments of all."""
        self._at, self._inputs, self._constants, self._tokens = None, [], [], []
        held = dict[int, torch.Tensor]()  # by address, so that what blocks share is counted once
        for index, batch in enumerate(self._whole.source):
            calls, constants = list[Call](), list[dict[str, Call]]()
            for m, net in enumerate(self._models):
                seen = self._seen(net, batch, index, block if self._links is not None else None)
                if self._links is None:
                    self._begin(net, batch, seen)
                if block not in self._order:
                    return
                if not self._is_alike(seen):
                    self._order = []
                    return
                calls.append(seen.copies[block])
                own = {path: seen.constants(path) for path in self._order}
                if self._constants:
                    own = {path: _shared(one, self._constants[-1][m][path]) for path, one in own.items()}
                constants.append(own)
                held |= {one.data_ptr(): one for one in tensors_in((calls[-1], own))}
            if sum(one.nbytes for one in held.values()) > self._memory:
                self._order = []
                return
            self._inputs.append(calls)
            self._constants.append(constants)
            self._tokens.append(tokens_of(batch))
        self._at = block

    def _seen(self, net: Any, batch: Any, index: int, wanted: str | None, noise: bool = False) -> _Seen:
        """Run a model and see the calls of its blocks."""
        seen = _Seen(wanted)
        with contextlib.ExitStack() as stack:
            for path in self._blocks:
                module = net.get_submodule(path)
                before = functools.partial(_before, seen, path)
                after = functools.partial(_after, seen, path, noise)
                stack.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(after).remove)
            stack.enter_context(without_cache(net))
            stack.enter_context(recording(net, ProductRecorder({}), []))
            self._whole.source.run(net, batch, index)
        return seen

    def _begin(self, net: Any, batch: Any, seen: _Seen) -> None:
        """Find the blocks that can be run alone, and those that are linked to the block before."""
        self._order, self._links = [], {}
        with recording(net, ProductRecorder({}), []):
            alone = [path for path in seen.order if path not in seen.again and _repeats(net, path, seen)]
        try:
            other = self._seen(net, batch, 0, "", noise=True)
        except Exception:  # whatever a model raises for noise
            other = _Seen(None)
        self._order = alone
        written = {path for path, one, version in seen.versions if one._version != version}
        for path in alone:
            at = seen.order.index(path)
            same = path in other.calls and _is_equal(seen.constants(path), other.constants(path))
            is_next = at > 0 and seen.order[at - 1] in alone and path not in written
            self._links[path] = seen.links[path] if is_next and same else []

    def _is_alike(self, seen: _Seen) -> bool:
        """Tell whether a run called the same blocks with the same links."""
        own = [path for path in seen.order if path in self._order]
        written = {path for path, one, version in seen.versions if one._version != version}
        linked = [path for path in self._order if (self._links or {})[path]]
        return (
            own == self._order
            and seen.again.isdisjoint(own)
            and written.isdisjoint(linked)
            and all(seen.links[path] == (self._links or {})[path] for path in linked)
        )


def tokens_of(batch: object) -> Any:
    """Return a mask of the tokens of a batch, from its attention mask; None if it has none."""
    mask = batch.get("attention_mask") if hasattr(batch, "get") else None
    if mask is None or len(mask.shape) != 2:
        return None
    return np.asarray(mask) != 0


def tensors_of(answer: Any) -> list[torch.Tensor]:
    """Return the tensors of an answer: itself, or those that a tuple, list or mapping holds."""
    if isinstance(answer, torch.Tensor):
        return [answer]
    parts = answer.values() if isinstance(answer, Mapping) else answer if isinstance(answer, (tuple, list)) else ()
    return [one for one in parts if isinstance(one, torch.Tensor)]


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors of nested tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if type(value) is dict else value if type(value) in (tuple, list) else ()
    return [one for part in parts for one in tensors_in(part)]


def _before(seen: _Seen, path: str, module: Any, args: Any, kwargs: Any) -> None:
    seen.before(path, args, kwargs)


def _after(seen: _Seen, path: str, noise: bool, module: Any, args: Any, answer: Any) -> Any:
    answer = _noise(answer) if noise else answer
    seen.after(path, answer)
    return answer


def _noise(answer: Any) -> Any:
    """Return an answer with other floats of the same shapes."""
    if isinstance(answer, torch.Tensor) and answer.is_floating_point():
        drawn = torch.randn(answer.shape, generator=torch.Generator().manual_seed(0))
        return drawn.to(answer.dtype)
    if type(answer) in (tuple, list):
        return type(answer)(map(_noise, answer))
    if answer is None or isinstance(answer, torch.Tensor):
        return answer
    raise TypeError(f"a block that returns {type(answer).__name__}")


def _run(net: Any, path: str, call: Call) -> Any:
    args, kwargs = cloned(call)
    return call_back(net.get_submodule(path), *args, **kwargs)


def _repeats(net: Any, path: str, seen: _Seen) -> bool:
    """Tell whether a block returns the same for the same inputs; one with a state, such as a cache, may not."""
    try:
        again = tensors_of(_run(net, path, seen.copies[path]))
    except Exception:  # whatever a block raises outside of its model
        return False
    return len(again) == len(seen.answers[path]) > 0 and all(map(torch.equal, again, seen.answers[path]))


def _is_equal(a: Any, b: Any) -> bool:
    """Tell whether arguments are the same values; other objects than tensors and plain values by their class."""
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        both = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
        return both and a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_is_equal, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_is_equal(a[key], b[key]) for key in a)
    return bool(a == b) if isinstance(a, (bool, int, float, str, torch.dtype, type(None))) else True


def _shared(value: Any, known: Any) -> Any:
    """Return arguments in which tensors are those of the batch before where they are equal."""
    if isinstance(value, torch.Tensor):
        return known if _is_equal(value, known) else value
    if type(value) in (tuple, list) and type(known) is type(value) and len(known) == len(value):
        return type(value)(_shared(one, other) for one, other in zip(value, known, strict=True))
    if type(value) is dict and type(known) is dict:
        return {key: _shared(one, known.get(key)) for key, one in value.items()}
    return value
