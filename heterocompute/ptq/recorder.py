"""Recorders: weights that gather the Hessians of their layers while a network multiplies by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from string import ascii_letters
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
    """A weight that records what `hc.matmul`, `hc.linear`, `hc.conv2d` and functions of NumPy multiply it by.

    These are ``@``, `numpy.matmul`, `dot`, `inner`, `tensordot`, and `einsum` of two operands, if they sum one axis of
    a matrix. It is a view of the weight. Its transpose (``.T``) and its values in another dtype (``.astype``) record,
    too, and so does each matrix of a stack of experts (``stack[3]``), with sums of its own. Any other slice or copy is
    a plain array.
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
        return self._like(np.asarray(self).T, not self._turned)

    def astype(self, *args: Any, **options: Any) -> Any:
        return self._like(np.asarray(self).astype(*args, **options), self._turned)

    def dot(self, b: Any, out: Any = None) -> Any:
        return np.dot(self, b) if out is None else np.dot(self, b, out)

    def _like(self, values: Array, turned: bool) -> Recorder:
        found = values.view(type(self))
        found._sums, found._turned, found._name = self._sums, turned, self._name
        found._expert, found._make = self._expert, self._make
        return found

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
        out = options.pop("out", (None,))
        is_real = not any(map(np.iscomplexobj, inputs))
        if ufunc is np.matmul and method == "__call__" and not options and self._sums is not None and is_real:
            found = matmul(*map(_floats, inputs))
            return found if out[0] is None else _copied(found, out[0])
        plain = [np.asarray(one) if isinstance(one, Recorder) else one for one in inputs]
        return getattr(ufunc, method)(*plain, **options, **({} if out[0] is None else {"out": out}))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        labels = LABELS.get(function)
        if labels is not None and not kwargs.keys() - {"axes"}:
            found = labels(*args, **kwargs)
            answer = None if found is None else _contracted(*found)
            if answer is not None:
                return answer
        return super().__array_function__(function, types, args, kwargs)

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


def _floats(x: Any) -> Any:
    """Return an operand of the core: integers and Booleans are float32."""
    return x if isinstance(x, Recorder) or np.asarray(x).dtype.kind not in "iub" else np.asarray(x, np.float32)


def _copied(values: Array, to: Array) -> Array:
    np.copyto(to, values, casting="same_kind")
    return to


Labels = tuple[Any, str, Any, str, str]  # two operands with the labels of their axes, and those of the answer


def _parts(text: str) -> list[str]:
    return text.partition("->")[0].split(",")


def _of_einsum(*args: Any) -> Labels | None:
    if len(args) != 3 or not isinstance(args[0], str):
        return None
    text, free = args[0].replace(" ", ""), [one for one in ascii_letters if one not in args[0]]
    count = max(np.ndim(one) - len(part.replace("...", "")) for one, part in zip(args[1:], _parts(text), strict=False))
    text = text.replace("...", "".join(free[: max(count, 0)]))  # of the matrix it is empty, or the labels do not fit
    given, arrow, out = text.partition("->")
    first, comma, second = given.partition(",")
    if not arrow:
        out = "".join(one for one in sorted(set(first + second)) if (first + second).count(one) == 1)
    return (args[1], first, args[2], second, out) if comma else None


def _of_tensordot(a: Any, b: Any, axes: Any = 2) -> Labels | None:
    n, m = np.ndim(a), np.ndim(b)
    pair = (range(n - axes, n), range(axes)) if isinstance(axes, int) else axes
    if len(pair) != 2:
        return None
    summed = [[int(one) for one in np.atleast_1d(some)] for some in pair]
    first, second = [chr(97 + i) for i in range(n)], [chr(65 + i) for i in range(m)]
    if len(summed[0]) != len(summed[1]) or max(n, m) > 26:
        return None
    for i, j in zip(*summed, strict=True):
        if not (-n <= i < n and -m <= j < m):
            return None
        second[j] = first[i]
    out = "".join(one for one in first + second if (first + second).count(one) == 1)
    return a, "".join(first), b, "".join(second), out


def _of_dot(*args: Any) -> Labels | None:
    if len(args) != 2 or not all(map(np.ndim, args)):
        return None
    return _of_tensordot(*args, axes=(-1, max(np.ndim(args[1]) - 2, 0)))


def _of_inner(*args: Any) -> Labels | None:
    return _of_tensordot(*args, axes=(-1, -1)) if len(args) == 2 and all(map(np.ndim, args)) else None


LABELS: dict[Any, Callable[..., Labels | None]] = {
    np.einsum: _of_einsum, np.tensordot: _of_tensordot, np.dot: _of_dot, np.inner: _of_inner,
}  # fmt: skip


def _contracted(a: Any, first: str, b: Any, second: str, out: str) -> Any:
    """Return the product of a matrix, which is a recorder, and of any array; None if it sums anything but one axis."""
    if isinstance(a, Recorder):
        a, first, b, second = b, second, a, first
    x, shape = np.asarray(a), b.shape
    if (
        isinstance(a, Recorder)
        or np.iscomplexobj(x)
        or b._sums is None
        or len(second) != 2
        or (x.ndim, b.ndim) != (len(first), 2)
    ):
        return None
    common = [one for one in second if one in first]
    rest = [one for one in first if one not in common]
    if len(common) != 1 or len({*first, *second}) != len(first) + 1 or {*rest, *second} - {*common} != {*out}:
        return None
    at = second.index(common[0])
    if len(out) != len(first) or x.shape[first.index(common[0])] != shape[at]:
        return None
    x = np.moveaxis(_floats(x), first.index(common[0]), -1)
    y = matmul(x.reshape(-1, shape[at]), b.T if at else b).reshape(*x.shape[:-1], shape[1 - at])
    labels = [*rest, second[1 - at]]
    return y.transpose([labels.index(one) for one in out])


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
