"""The blocks of a model: repeated modules, such as decoder layers or stages of a convolutional network.

A block is a module of a Sequential or ModuleList that another module of the same class is next to. A layer outside of
such blocks is a block of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch


def blocks_of(model: Any, paths: Iterable[str]) -> dict[str, list[str]]:
    """Return the paths of blocks, each with the paths of the given layers in it."""
    found: dict[str, list[str]] = {}
    for path in dict.fromkeys(paths):
        parts, block, module = path.split(".") if path else [], path, model
        for i, part in enumerate(parts):
            inner = getattr(module, part)
            if isinstance(module, (torch.nn.Sequential, torch.nn.ModuleList)):
                if sum(type(one) is type(inner) for one in module.children()) > 1:
                    block = ".".join(parts[: i + 1])
                    break
            module = inner
        found.setdefault(block, []).append(path)
    return found


def cloned(value: Any) -> Any:
    """Return arguments with copies of their tensors, which a block may write to."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) in (tuple, list):
        return type(value)(map(cloned, value))
    if type(value) is dict:
        return {key: cloned(one) for key, one in value.items()}
    return value


@contextlib.contextmanager
def without_cache(model: Any) -> Iterator[None]:
    """Turn off the cache of keys and values of a model of transformers, which a repeated call would extend."""
    config: Any = getattr(model, "config", None)
    had = getattr(config, "use_cache", False)
    if had:
        config.use_cache = False
    try:
        yield
    finally:
        if had:
            config.use_cache = had
