"""A property that is computed once an instance, as functools.cached_property, but without a lock.

Up to Python 3.11 that one holds a lock while it computes, one for all instances: a process that another thread forks
meanwhile (a data loader's worker) finds it closed for ever. Two threads may compute a value here; the last one stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class kept(Generic[T]):  # noqa: N801  as property
    """A non-data descriptor: a value in the instance's dictionary is found first, so the function runs once."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> kept[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> kept[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.compute(instance)
        return value
