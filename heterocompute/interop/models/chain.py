"""Passes of batches through a model whose weights change block by block: no pass begins with the first block again.

A layer is calibrated again by its block alone, with the inputs that the block had in each batch. The next block is
linked if one of its arguments is what this block returned, and the others do not depend on the blocks: then its inputs
are computed from those of this block. A whole run, in which the blocks return noise, shows what depends on them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...base.float_env import call_back
from .batches import Batches
from .blocks import blocks_of, cloned, without_cache
from .recording import COPIES, PRODUCTS, ProductRecorder, recording

Pass = tuple[int, Any, Sequence[Callable[[], Any]]]
Call = tuple[tuple[Any, ...], dict[str, Any]]
Links = list[tuple[int | str, int]]  # an argument, and the tensor of the answer before
CONSTANTS = (type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.Size)


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
    """Calls of the blocks in one run of a model."""

    wanted: str | None = None  # whose inputs are copied, None for all
    linked: Collection[str] | None = None  # whose constant arguments are copied, None for all
    limits: Mapping[str, int] | None = None  # of calls of each block: a loop need not end under noise
    order: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    active: list[str] = field(default_factory=list)  # the blocks that are running
    foreign: set[str] = field(default_factory=set)  # blocks whose weights are used outside of them
    copies: dict[str, Call] = field(default_factory=dict)
    constants: dict[str, Call] = field(default_factory=dict)  # arguments that are not linked; None for the others
    links: dict[str, Links] = field(default_factory=dict)
    answers: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    odd: set[str] = field(default_factory=set)  # blocks with arguments that are not copied, perhaps with a state
    last: tuple[str, list[tuple[torch.Tensor, int]]] = ("", [])

    @property
    def again(self) -> set[str]:
        """Blocks that were called more than once."""
        return {path for path, count in self.counts.items() if count > 1}

    def before(self, path: str, args: Any, kwargs: Any) -> None:
        self.active.append(path)
        self.counts[path] = self.counts.get(path, 0) + 1
        if self.limits is not None and self.counts[path] > self.limits.get(path, 0):
            raise RuntimeError("a block is called more often than before")
        if self.counts[path] > 1:
            return
        before = self.order[-1] if self.order else ""
        previous, answered = self.constants.get(before, ((), {})), self.last[1] if self.last[0] == before else []
        self.order.append(path)
        if not _is_plain((args, kwargs)):
            self.odd.add(path)
            self.links[path] = []
            return
        if self.wanted in (None, path):
            self.copies[path] = cloned((args, kwargs))
        self.links[path] = [
            (key, i)
            for key, value in [*enumerate(args), *kwargs.items()]
            for i, (tensor, version) in enumerate(answered)
            if value is tensor and version == tensor._version and self._is_as_answered(i, tensor)
        ]
        if self.linked is None or path in self.linked:
            linked = {key for key, _ in self.links[path]}
            given = (
                tuple(None if i in linked else value for i, value in enumerate(args)),
                {key: None if key in linked else value for key, value in kwargs.items()},
            )
            self.constants[path] = _kept(given, previous)

    def _is_as_answered(self, i: int, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor has the values that a block returned: writes through `data` have no version."""
        answers = self.answers.get(self.last[0])
        return answers is None or torch.equal(answers[i], tensor)

    def after(self, path: str, answer: Any) -> None:
        self.active.pop()
        parts = tensors_of(answer)
        self.last = path, [(one, one._version) for one in parts]
        if self.wanted is None:
            self.answers[path] = [one.detach().clone() for one in parts]


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
        self._links: dict[str, Links] | None = None  # of each of these; None before the first run
        self._first: _Seen | None = None  # of the first batch, until the second shows what depends on the batch
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
        if self._size() > self._memory:
            self._end()

    def _size(self) -> int:
        held = tensors_in([(self._inputs, self._constants)])
        return sum({one.data_ptr(): one.nbytes for one in held}.values())  # what blocks share is counted once

    def _end(self) -> None:
        """Keep nothing, and run the whole models from now on."""
        self._order, self._at, self._first = [], None, None
        self._inputs, self._constants, self._tokens = [], [], []

    def _survey(self, block: str) -> None:
        """Run the whole models, and keep the inputs of a block and the constant arguments of all."""
        self._at, self._inputs, self._constants, self._tokens = None, [], [], []
        for index, batch in enumerate(self._whole.source):
            calls, constants = list[Call](), list[dict[str, Call]]()
            for m, net in enumerate(self._models):
                if self._links is None:
                    seen = self._begin(net, batch)
                else:
                    linked = {path for path, links in self._links.items() if links}
                    seen = self._seen(net, batch, index, _Seen(block, linked))
                if self._first is not None and index and not m:
                    self._check_first(net)
                if block not in self._order:
                    return
                if not self._is_alike(seen):
                    self._end()
                    return
                calls.append(seen.copies[block])
                own = {path: seen.constants[path] for path in self._order if (self._links or {})[path]}
                if self._constants:
                    own = {path: _kept(one, self._constants[-1][m].get(path), False) for path, one in own.items()}
                constants.append(own)
            self._inputs.append(calls)
            self._constants.append(constants)
            self._tokens.append(tokens_of(batch))
            if self._size() > self._memory:
                self._end()
                return
        self._at = block

    def _seen(self, net: Any, batch: Any, index: int, seen: _Seen, noise: bool = False) -> _Seen:
        """Run a model and see the calls of its blocks."""
        with contextlib.ExitStack() as stack:
            for path in self._blocks:
                module = net.get_submodule(path)
                before = functools.partial(_before, seen, path)
                after = functools.partial(_after, seen, path, noise)
                stack.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(after).remove)
            if seen.linked is None:
                for path, block in self._block_of.items():
                    call = functools.partial(_use, seen, {block})
                    stack.callback(net.get_submodule(path).register_forward_pre_hook(call).remove)
            stack.enter_context(without_cache(net))
            stack.enter_context(recording(net, ProductRecorder({}), []))
            if seen.linked is None:
                stack.enter_context(_uses(seen, net, self._blocks))
            self._whole.source.run(net, batch, index)
        return seen

    def _begin(self, net: Any, batch: Any) -> _Seen:
        """Find the blocks that can be run alone, and those that are linked to the block before."""
        self._order, self._links = [], {}
        seen = self._seen(net, batch, 0, _Seen())
        left = seen.again | seen.foreign | seen.odd
        alone = [path for path in seen.order if path not in left]
        other = _Seen()
        if alone:
            with contextlib.suppress(Exception):  # whatever a model raises for noise
                other = self._seen(net, batch, 0, _Seen("", None, seen.counts), noise=True)
        with recording(net, ProductRecorder({}), []):
            for path in alone:  # so that what a block leaves for other blocks is noise, too
                with contextlib.suppress(Exception):
                    _run(net, path, _noise(seen.copies[path], strict=False))
        alone = self._repeating(net, alone, seen)
        for path in alone:
            at = seen.order.index(path)
            same = path in other.constants and _is_equal(seen.constants[path], other.constants[path])
            is_next = at > 0 and seen.order[at - 1] in alone
            self._links[path] = seen.links[path] if is_next and same else []
        self._order, self._first = alone, seen
        return seen

    def _check_first(self, net: Any) -> None:
        """Leave out blocks that depend on the batch by more than their arguments: they no longer return the same."""
        assert self._first is not None and self._links is not None
        alone = self._repeating(net, self._order, self._first)
        for i, path in enumerate(self._order):
            if path not in alone or (i and self._order[i - 1] not in alone):
                self._links[path] = []
        self._order, self._first = alone, None

    def _repeating(self, net: Any, paths: Sequence[str], seen: _Seen) -> list[str]:
        """Return the blocks that return the same for the same inputs; with a state, such as a cache, they may not.

        The last block comes first, so that none has what an earlier one leaves for it.
        """
        with recording(net, ProductRecorder({}), []):
            found = [path for path in reversed(paths) if _repeats(net, path, seen)]
        return found[::-1]

    def _is_alike(self, seen: _Seen) -> bool:
        """Tell whether a run called the same blocks with the same links."""
        own = [path for path in seen.order if path in self._order]
        linked = [path for path in self._order if (self._links or {})[path]]
        return (
            own == self._order
            and seen.again.isdisjoint(own)
            and seen.odd.isdisjoint(own)
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


def _use(seen: _Seen, owners: set[str], *_: object) -> None:
    """Note that a weight of blocks is used: it is foreign to those that are not running."""
    seen.foreign |= owners.difference(seen.active)


def _uses(seen: _Seen, net: Any, blocks: Sequence[str]) -> Any:
    """Return the mode that notes the products of weights outside of their blocks."""
    owners: dict[int, set[str]] = {}
    for path in blocks:
        for one in net.get_submodule(path).parameters():
            owners.setdefault(_place(one), set()).add(path)

    class Uses(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
            if func._schema.name.removeprefix("aten::") in (*PRODUCTS, *COPIES, "linear", "convolution"):
                for one in tensors_of(args):
                    if found := owners.get(_place(one)):
                        _use(seen, found)
            return func(*args, **(kwargs or {}))

    return Uses()


def _place(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _noise(answer: Any, strict: bool = True) -> Any:
    """Return an answer with other values of the same shapes; strict: raise TypeError where others are not known."""
    if isinstance(answer, torch.Tensor):
        generator = torch.Generator().manual_seed(0)
        if answer.is_floating_point() or answer.is_complex():
            dtype = answer.dtype if answer.is_complex() else torch.float32
            return torch.randn(answer.shape, generator=generator, dtype=dtype).to(answer.dtype)
        if answer.dtype == torch.bool:
            return ~answer
        if answer.numel() and answer.min() < answer.max():  # perhaps indices: others in their range
            drawn = torch.rand(answer.shape, generator=generator) < 0.5
            return torch.where(drawn, answer.min(), answer.max())
        if answer.numel() and strict:
            raise TypeError("a block that returns one integer")
        return answer
    if type(answer) in (tuple, list):
        return type(answer)(_noise(one, strict) for one in answer)
    if type(answer) is dict:
        return {key: _noise(one, strict) for key, one in answer.items()}
    if strict and answer is not None:
        raise TypeError(f"a block that returns {type(answer).__name__}")
    return answer


def _is_plain(value: Any) -> bool:
    """Tell whether a value is made of tensors and constants, which `cloned` copies whole."""
    if type(value) in (tuple, list):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(map(_is_plain, value.values()))
    return isinstance(value, (torch.Tensor, *CONSTANTS))


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
    """Tell whether plain arguments are the same values."""
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        both = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
        return both and a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
    if type(a) is not type(b):
        return False
    if type(a) in (tuple, list):
        return len(a) == len(b) and all(map(_is_equal, a, b))
    if type(a) is dict:
        return a.keys() == b.keys() and all(_is_equal(a[key], b[key]) for key in a)
    return bool(a == b)


def _kept(value: Any, known: Any, copy: bool = True) -> Any:
    """Return arguments in which tensors are those of known arguments where they are equal, and copies elsewhere."""
    if isinstance(value, torch.Tensor):
        return known if _is_equal(value, known) else value.detach().clone() if copy else value
    if type(value) in (tuple, list):
        others = known if type(known) is type(value) and len(known) == len(value) else [None] * len(value)
        return type(value)(_kept(one, other, copy) for one, other in zip(value, others, strict=True))
    if type(value) is dict:
        others = known if type(known) is dict else {}
        return {key: _kept(one, others.get(key), copy) for key, one in value.items()}
    return value
