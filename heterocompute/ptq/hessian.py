"""Sums over a layer's inputs, which calibration keeps instead of the inputs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from .. import _heterocompute as _core
from ..arrays.dense import as_array, refuse_infinite
from ..base import runtime
from ..base.errors import WrongValue, shown
from ..base.float_env import counts_subnormals
from ..base.texts import counted
from ..base.values import as_int
from ..files.opening import load
from ..files.safetensors import save

Array = np.ndarray[Any, Any]

_CHUNK = 1 << 21  # values converted to float64 at a time
_STRIP = 128  # columns mirrored at a time
MOST = 1 << 40  # sums of one Hessian; memory may hold fewer
PARTS = ("sum", "total", "absmax", "tokens")
TWINS = ("cross", "unrounded")  # if the inputs of the unrounded network were given


class Hessian:
    """Accumulate the second moments of a layer's inputs, in float64.

    Inputs (tokens, pixels, samples) are added one by one: each product is rounded, then the sum. The result is bitwise
    identical for every number of threads, every machine and every split of the inputs into calls. Two Hessians can be
    added.

    Parameters
    ----------
    k : int
        Number of inputs of the layer.
    groups : int
        Number of groups of a convolution, or of experts in a stack. Each group of outputs has its own k inputs.

    Attributes
    ----------
    matrix : ndarray of float64, (k, k)
        ``sum x x^T``. Twice this matrix is the second derivative of the layer's squared output error. With several
        groups, arrays have the shapes (groups, k, k) and (groups, k).
    cross : ndarray of float64, (k, k), or None
        ``sum x_float x^T``, if the inputs of the unrounded network were given too.
    unrounded : ndarray of float64, (k, k), or None
        ``sum x_float x_float^T``, if they were given.
    mean, absmax : ndarray of float64, (k,)
        Mean and largest magnitude of each input; 0 before any input is added.
    tokens : int
        Number of inputs added; of experts, those of the expert with the most inputs.

    Raises
    ------
    TypeError, ValueError
        k or groups is not a positive int.

    Notes
    -----
    Memory: 8 groups k^2 bytes, the same for each of `cross` and `unrounded`, and 64 MiB while inputs are added.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> h = hc.ptq.Hessian(2)
    >>> h.add(np.float32([[1, 2], [3, 0]]))
    >>> h.matrix
    array([[10.,  2.],
           [ 2.,  4.]])
    >>> h.tokens, h.absmax
    (2, array([3., 2.]))
    """

    def __init__(self, k: int, groups: int = 1) -> None:
        self.k, self.groups = as_int(k, "Hessian: k", 1), as_int(groups, "Hessian: groups", 1)
        if self.groups * self.k**2 > MOST:
            raise WrongValue(
                f"Hessian: {shown(self.groups)} x {shown(self.k)} x {shown(self.k)} sums, expected at most {MOST}"
            )
        self._sum = np.zeros((self.groups, self.k, self.k))  # the upper triangle with the diagonal
        self._mirrored = True
        self._cross: Array | None = None
        self._unrounded: Array | None = None  # the upper triangle with the diagonal
        self._total = np.zeros((self.groups, self.k))
        self._absmax = np.zeros((self.groups, self.k))
        self._tokens = np.zeros(self.groups, np.int64)

    @counts_subnormals
    def add(self, x: Any, x_float: Any = None) -> None:
        """Add inputs of the layer to the sums.

        Parameters
        ----------
        x : array_like, (..., k), or (..., groups, k) of several
            Floats: the actual inputs of the layer, after any rounded layers before it.
        x_float : array_like, optional
            The same inputs in the unrounded network. `gptq` and `qronos` then correct for the difference, and `error`
            compares with the outputs of the unrounded network. Give it for all inputs or for none.

        Raises
        ------
        TypeError
            x is not a float array.
        ValueError
            The last dimension is not k, x holds a NaN or an infinity (the message has the index of the first), or
            x_float has another shape or is given for some inputs only.
        """
        inputs = self._inputs(x, "Hessian: x")
        twins = None if x_float is None else self._inputs(x_float, "Hessian: x_float")
        tokens = inputs.size // (self.groups * self.k)
        if twins is not None and twins.size != inputs.size:
            found = counted(twins.size // (self.groups * self.k), "input")
            raise WrongValue(f"Hessian: x_float has {found} and x has {tokens}")
        if self.tokens and tokens and (twins is None) != (self._cross is None):
            raise WrongValue("Hessian: x_float was given for some inputs alone, expected it for all or none")
        if twins is not None and self._cross is None:
            self._cross, self._unrounded = np.zeros(self._sum.shape), np.zeros(self._sum.shape)
        for group in range(self.groups):
            self._add(group, inputs[..., group, :], None if twins is None else twins[..., group, :])

    def add_to(self, group: int, x: Any) -> None:
        """Add inputs (..., k) of one group, such as one expert of a stack."""
        self._add(group, self._inputs(x, "Hessian: x", 1)[..., 0, :])

    def forget_twins(self) -> None:
        """Drop the sums with inputs of the unrounded network."""
        self._cross = self._unrounded = None

    def _add(self, group: int, inputs: Array, twins: Array | None = None) -> None:
        tokens = inputs.size // self.k
        step = max(_CHUNK // self.k, 1)
        buffers = [np.empty((min(step, tokens), self.k)) for _ in ((inputs,) if twins is None else (inputs, twins))]
        self._mirrored = False
        twin_blocks = None if twins is None else _blocks(twins, buffers[1])
        for block in _blocks(inputs, buffers[0]):
            _core.ptq_gram(runtime.run(), len(block), self.k, block, block, self._sum[group])
            if twin_blocks is not None and self._cross is not None:
                twin = next(twin_blocks)
                _core.ptq_gram(runtime.run(), len(block), self.k, twin, block, self._cross[group])
                if self._unrounded is not None:
                    _core.ptq_gram(runtime.run(), len(block), self.k, twin, twin, self._unrounded[group])
            self._absmax[group] = np.maximum(self._absmax[group], np.maximum(block.max(axis=0), -block.min(axis=0)))
            block[0] += self._total[group]
            self._total[group] = np.cumsum(block, axis=0, out=block)[-1]
        self._tokens[group] += tokens

    def _inputs(self, x: Any, name: str, groups: int | None = None) -> Array:
        groups = self.groups if groups is None else groups
        array, wanted = as_array(x, name), (groups, self.k) if groups > 1 else (self.k,)
        if array.shape[-len(wanted) :] != wanted:
            size = f"a last dimension of {self.k}" if groups == 1 else f"last dimensions of {wanted}"
            raise WrongValue(f"{name} has shape {array.shape}, expected {size}")
        refuse_infinite(array, name)
        return array.reshape(*array.shape[: array.ndim - len(wanted)], groups, self.k)

    def _each(self, parts: Array) -> Array:
        """Return the parts of all groups, without the group dimension if there is one group."""
        return parts if self.groups > 1 else parts[0]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state from another process, where arrays may be in read-only memory."""
        for key, value in state.items():
            setattr(self, key, np.require(value, requirements="W") if isinstance(value, np.ndarray) else value)

    @counts_subnormals
    def full(self) -> Array:
        """Return the matrices, shape (groups, k, k), read-only."""
        if not self._mirrored:
            for part in self._sum:
                _mirror(part)
            self._mirrored = True
        return self._sum

    @property
    @counts_subnormals
    def matrix(self) -> Array:
        return self._each(self.full()).copy()

    @property
    @counts_subnormals
    def cross(self) -> Array | None:
        return None if self._cross is None else self._each(self._cross).copy()

    @property
    @counts_subnormals
    def unrounded(self) -> Array | None:
        return None if self._unrounded is None else self._each(_whole(self._unrounded))

    @property
    @counts_subnormals
    def mean(self) -> Array:
        return self._each(self._total / np.maximum(self._tokens, 1)[:, None])

    @property
    @counts_subnormals
    def absmax(self) -> Array:
        return self._each(self._absmax).copy()

    @property
    def tokens(self) -> int:
        return int(self._tokens.max())

    def __add__(self, other: object) -> Hessian:
        if not isinstance(other, Hessian):
            return NotImplemented
        if (other.k, other.groups) != (self.k, self.groups):
            one, two = (h._each(h._total).shape for h in (self, other))
            raise WrongValue(f"Hessian: one is of {shown(one)} inputs and the other of {shown(two)}")
        if self.tokens and other.tokens and (self._cross is None) != (other._cross is None):
            raise WrongValue("Hessian: x_float was given for one of the two alone")
        both = Hessian(self.k, self.groups)
        both._sum, both._total = self.full() + other.full(), self._total + other._total
        both._absmax = np.maximum(self._absmax, other._absmax)
        both._tokens = self._tokens + other._tokens
        given = [one for one in (self, other) if one._cross is not None]
        crosses = [one._cross for one in given if one._cross is not None]
        twins = [one._unrounded for one in given if one._unrounded is not None]
        both._cross = sum(crosses[1:], crosses[0].copy()) if crosses else None
        both._unrounded = sum(twins[1:], twins[0].copy()) if twins and len(twins) == len(given) else None
        return both

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the Hessian to a safetensors file.

        Parameters
        ----------
        path : path
        """
        parts = {"sum": self.full(), "total": self._total, "absmax": self._absmax}
        if self._cross is not None:
            parts["cross"] = self._cross
        if self._unrounded is not None:
            parts["unrounded"] = _whole(self._unrounded)
        parts = {name: self._each(part) for name, part in parts.items()}
        parts["tokens"] = self._tokens[: 1 if (self._tokens == self._tokens[0]).all() else None].astype(np.float64)
        save(path, parts)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a Hessian that `save` wrote.

        Parameters
        ----------
        path : path

        Returns
        -------
        Hessian

        Raises
        ------
        ValueError
            The file holds something else, a NaN or an infinity.
        OSError
            The file cannot be read.

        Examples
        --------
        >>> import numpy as np, tempfile, heterocompute as hc
        >>> h = hc.ptq.Hessian(1)
        >>> h.add(np.float32([[2]]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     h.save(f"{folder}/h.safetensors")
        ...     hc.ptq.Hessian.load(f"{folder}/h.safetensors").matrix
        array([[4.]])
        """
        parts = load(path)
        if not isinstance(parts, dict) or {*parts} - {*TWINS} != {*PARTS}:
            raise WrongValue(f"{os.fspath(path)}: holds no Hessian, expected the tensors {', '.join(PARTS)}")
        shape = getattr(parts["total"], "shape", ())
        groups, k = (1, *shape)[-2:] if len(shape) in (1, 2) else (0, 0)
        tokens = (groups,) if getattr(parts["tokens"], "shape", None) == (groups,) else (1,)
        wanted = {"total": shape, "absmax": shape, "tokens": tokens}
        wanted |= dict.fromkeys(("sum", *TWINS), (*shape, k))
        for name, part in parts.items():
            if getattr(part, "shape", None) != wanted[name] or part.dtype != np.float64 or not k or not groups:
                raise WrongValue(f"{os.fspath(path)}: tensor {shown(name)} is not a float64 of {wanted[name]}")
            refuse_infinite(part, f"{os.fspath(path)}: tensor {shown(name)}")
        found = cls(k, groups)
        found._sum = parts["sum"].reshape(groups, k, k).copy()
        found._total, found._absmax = (parts[name].reshape(groups, k).copy() for name in PARTS[1:3])
        found._tokens[:], found._mirrored = parts["tokens"], False
        found._cross, found._unrounded = (
            parts[name].reshape(groups, k, k).copy() if name in parts and "cross" in parts else None for name in TWINS
        )
        return found

    def equals(self, other: Hessian) -> bool:
        """Tell whether another Hessian has the same sums, which means the same inputs."""
        return self._tokens.tobytes() == other._tokens.tobytes() and all(
            np.array_equal(one, two)
            for one, two in ((self._total, other._total), (self._absmax, other._absmax), (self.full(), other.full()))
        )

    def facts(self) -> tuple[object, ...]:
        """Return the sums, which determine what is rounded for these inputs."""
        return self._tokens, self._total, self._absmax, self.full(), self.cross, self.unrounded

    def __repr__(self) -> str:
        groups = f", groups={self.groups}" if self.groups > 1 else ""
        return f"Hessian(k={self.k}{groups}, tokens={self.tokens})"


def _blocks(inputs: Array, buffer: Array) -> Iterator[Array]:
    """Yield inputs as float64, in one buffer, which is full each time except the last."""
    filled = 0
    for piece in _pieces(inputs):
        used = 0
        while used < len(piece):
            count = min(len(piece) - used, len(buffer) - filled)
            buffer[filled : filled + count] = piece[used : used + count]
            used, filled = used + count, filled + count
            if filled == len(buffer):
                yield buffer
                filled = 0
    if filled:
        yield buffer[:filled]


def _pieces(inputs: Array) -> Iterator[Array]:
    """Yield the inputs as (inputs, k), without copying them."""
    lead, strides = inputs.shape[:-1], inputs.strides
    merged = all(strides[i] == strides[i + 1] * lead[i + 1] for i in range(len(lead) - 1) if lead[i] > 1)
    if inputs.size and len(lead) > 1 and not merged:
        for part in inputs:
            yield from _pieces(part)
    else:
        yield inputs.reshape(-1, inputs.shape[-1])


def _whole(parts: Array) -> Array:
    """Return copies of matrices of which only the upper triangle is valid."""
    found = parts.copy()
    for part in found:
        _mirror(part)
    return found


def _mirror(matrix: Array) -> None:
    """Write the upper triangle of a matrix to the lower, in place."""
    for first in range(0, len(matrix), _STRIP):
        last = first + _STRIP
        corner = np.triu(matrix[first:last, first:last])
        matrix[first:last, first:last] = corner + np.triu(corner, 1).T
        matrix[last:, first:last] = matrix[first:last, last:].T


def _is_symmetric(matrix: Array) -> bool:
    return all(
        np.array_equal(matrix[first : first + _STRIP], matrix[:, first : first + _STRIP].T)
        for first in range(0, len(matrix), _STRIP)
    )


@counts_subnormals
def as_matrices(h: Any, columns: int, rows: int, name: str) -> list[tuple[slice, Array]]:
    """Return the rows of a weight and the matrix of their inputs per group, read-only.

    Raises
    ------
    ValueError
        The matrix does not fit the weight, is not symmetric, or has a negative diagonal value.
    """
    if isinstance(h, Hessian):
        given = h.full()
    else:
        given = as_array(h, f"{name}: h").astype(np.float64, copy=False)
        given = np.ascontiguousarray(given if given.ndim == 3 else given[None])
        refuse_infinite(given, f"{name}: h")
    if given.shape[1:] != (columns, columns):
        shape = given.shape if len(given) > 1 or given.ndim != 3 else given.shape[1:]
        raise WrongValue(
            f"{name}: h is of {shown(shape)}, but w has {counted(columns, 'input')}: expected a Hessian of the "
            f"inputs x of the layer, or x.T @ x, ({columns}, {columns})"
        )
    if not len(given) or rows % len(given):
        raise WrongValue(f"{name}: h is of {counted(len(given), 'group')}, but w has {counted(rows, 'row')}")
    for matrix in given:
        if not isinstance(h, Hessian) and not _is_symmetric(matrix):
            raise WrongValue(f"{name}: h is not symmetric")
        if (np.diagonal(matrix) < 0).any():
            raise WrongValue(f"{name}: h has a diagonal below 0")
    each = rows // len(given)
    return [(slice(i * each, (i + 1) * each), matrix) for i, matrix in enumerate(given)]
