"""Recorders: weights that gather the Hessians of their layers while a network multiplies by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from ..base.errors import WrongValue, shown
from ..products.matmul import matmul
from .hessian import Hessian

Array = np.ndarray[Any, Any]


class Sums(Protocol):
    """Receive the inputs that recorders hear: a `Hessian`, `Kept` or `Paired`."""

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


Maker = Callable[[tuple[int, ...], int, int], Sums]  # of axes, inputs and groups


def plain_sums(axes: tuple[int, ...], k: int, groups: int) -> Sums:
    """Return an empty Hessian."""
    return Hessian(k, groups)


class Recorder(np.ndarray[Any, Any]):
    """A weight that records what `hc.matmul`, `hc.linear`, `hc.conv2d`, ``@`` and `numpy.matmul` multiply it by.

    It is a view of the weight. Its transpose (``.T``) records too, and so does each matrix of a stack of experts
    (``stack[3]``), which has sums of its own. Any other slice or copy is a plain array.
    """

    _sums: dict[tuple[int, ...], Any] | None
    _make: Maker
    _turned: bool
    _name: str
    _expert: tuple[int, int] | None  # which matrix of how many

    def __array_finalize__(self, source: Any) -> None:
        self._sums, self._turned, self._name, self._expert = None, False, "", None
        self._make = plain_sums

    @classmethod
    def of(cls, weight: Array, name: str, twin: Recorder | None = None, make: Maker = plain_sums) -> Recorder:
        """Return a recording view of a weight, with a name for messages; it shares sums and `make` with its twin."""
        view = weight.view(cls)
        view._make = make if twin is None else twin._make
        view._sums, view._name = {} if twin is None else twin._sums, name
        return view

    @property
    def T(self) -> Any:  # noqa: N802 (NumPy's name)
        turned = np.asarray(self).T.view(type(self))
        turned._sums, turned._turned, turned._name = self._sums, not self._turned, self._name
        turned._expert, turned._make = self._expert, self._make
        return turned

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if self.ndim == 3 and self._sums is not None and not self._turned and isinstance(index, (int, np.integer)):
            found._sums, found._name = self._sums, f"{self._name}[{index}]"
            found._make = self._make
            found._expert = int(index) % len(self), len(self)
        return found

    @property
    def recorded(self) -> tuple[tuple[int, ...], Any] | None:
        """Return the reduction axes with which the weight was used, and its sums; None if it was not used.

        Raises
        ------
        ValueError
            It was multiplied along one axis and along another.
        """
        sums = self._sums or {}
        if len(sums) > 1:
            raise WrongValue(f"is multiplied along the axes {' and '.join(map(str, sums))}, expected one of them")
        return next(iter(sums.items()), None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc is np.matmul and method == "__call__" and not options and self._sums is not None:
            return matmul(*inputs)
        plain = [np.asarray(one) if isinstance(one, Recorder) else one for one in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def _hear(self, axis: int, x: Any, window: tuple[Any, ...] | None) -> None:
        """Add the operand that a matmul reports: see `heterocompute.products.arguments.tell`."""
        if self._sums is None:
            return
        inputs = x if isinstance(x, np.ndarray) else x.dequantize()
        if window is None:
            axis = self.ndim - 1 - axis if self._turned else axis
            self._add((axis,) if self._expert is None else (axis + 1,), inputs)
            return
        strides, before, dilations, groups, answer = window
        for image in inputs:
            found = patches(image, self.shape[2:], strides, before, dilations, answer)
            count = len(found)
            found = found.reshape(count, -1, groups, len(image) // groups).swapaxes(1, 2)
            self._add((2, 3, 1), found.reshape((count, groups, -1) if groups > 1 else (count, -1)), groups)

    def _add(self, axes: tuple[int, ...], inputs: Array, groups: int = 1) -> None:
        assert self._sums is not None
        if axes not in self._sums:
            self._sums[axes] = self._make(axes, inputs.shape[-1], groups if self._expert is None else self._expert[1])
        try:
            if self._expert is None:
                self._sums[axes].add(inputs)
            else:
                self._sums[axes].add_to(self._expert[0], inputs)
        except ValueError as problem:
            raise WrongValue(f"calibrate: {shown(self._name)}: {problem}") from None


def patches(image: Array, size: tuple[int, ...], strides: Any, before: Any, dilations: Any, answer: Any) -> Array:
    """Return the windows of an image (C, H, W) as rows over (r, s, c), the order of a filter's values."""
    rows, columns = answer
    parts = []
    for r in range(size[0]):
        for s in range(size[1]):
            part = np.zeros((rows, columns, len(image)), np.float64)
            top, left = (d * i - b for d, i, b in zip(dilations, (r, s), before, strict=True))
            y, x = (np.arange(n) * step + at for n, step, at in zip(answer, strides, (top, left), strict=True))
            inside_y, inside_x = (y >= 0) & (y < image.shape[1]), (x >= 0) & (x < image.shape[2])
            found = image[:, y[inside_y]][:, :, x[inside_x]]
            part[np.ix_(inside_y, inside_x)] = found.transpose(1, 2, 0)
            parts.append(part)
    return np.concatenate(parts, axis=2).reshape(rows * columns, -1)
