"""A property computed once per instance, like functools.cached_property, but without a lock.

Up to Python 3.11 cached_property holds one lock for all instances while it computes: a process forked by another thread
meanwhile (a data loader's worker) would wait for that lock for ever. Here two threads may compute a value; the last one
is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached(Generic[T]):  # noqa: N801  as property
    """A non-data descriptor: a value in the instance's dictionary is found first, so the function runs once."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> cached[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.compute(instance)
        return value
