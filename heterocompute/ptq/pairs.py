"""The inputs of a layer in the unrounded and in the rounded network, one after the other: sums over both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from .hessian import Hessian

Array = np.ndarray[Any, Any]


class Sums(Protocol):
    """Receive the inputs that recorders hear: a `Hessian`, or a class of this file."""

    def add(self, x: Any, /) -> None: ...

    def add_to(self, group: int, x: Any, /) -> None: ...


class Kept:
    """Copies of inputs, call by call. Those of experts are left out: rounding sends tokens to other experts."""

    def __init__(self) -> None:
        self.parts: list[Array] = []

    def add(self, x: Any) -> None:
        self.parts.append(np.array(x))

    def add_to(self, group: int, x: Any) -> None: ...


class Paired:
    """A Hessian of the inputs of the rounded network, each with its twin in the unrounded one.

    If a call has no twin of its shape, such as one of an expert, the Hessian has no `cross`.

    Parameters
    ----------
    hessian : Hessian
        Empty.
    twins : iterable of ndarray
        The inputs of the unrounded network, in the order of the calls. Each is read once.
    """

    def __init__(self, hessian: Hessian, twins: Iterable[Array]) -> None:
        self.hessian, self._twins, self._alone = hessian, iter(twins), False

    def add(self, x: Any) -> None:
        twin = None if self._alone else next(self._twins, None)
        if twin is None or twin.shape != np.shape(x):
            self._alone = True
            self.hessian.forget_twins()
            self.hessian.add(x)
        else:
            self.hessian.add(x, twin)

    def add_to(self, group: int, x: Any) -> None:
        self.hessian.add_to(group, x)
