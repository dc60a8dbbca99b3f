"""A computation: loops with bounds, tensors that they index, one of them the output.

A tensor is a list of axes, an axis a sum of loop indices with whole coefficients: the input of a convolution has the
axes c, stride p + dilation r, stride q + dilation s. The box that a tile covers along an axis is
1 + sum over d of coefficient_d (size_d - 1).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping as MappingABC, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import WrongType, WrongValue, shown
from ...base.values import check_choice

Axis = dict[str, int]

# Counts are kept exactly in float64 by the C core and by the page.
MAX_COUNT = 2**53
MAX_NAME = 80  # sentences have names whole


def whole(value: Any, what: str, least: int = 1) -> int:
    """Return a whole number from `least` to 2^53; an error names the argument."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise WrongType(f"{what} is {shown(value)}, expected a whole number") from None
    if number < least:
        raise WrongValue(f"{what} is {shown(number)}, expected at least {least}")
    if number > MAX_COUNT:
        raise WrongValue(f"{what} is more than 2^53")
    return number


def named(value: object, what: str) -> str:
    """Return a name: text that is not empty."""
    if not isinstance(value, str) or not value:
        raise WrongType(f"{what} is {shown(value)}, expected a name")
    if len(value) > MAX_NAME:
        raise WrongValue(f"{what} is {shown(value)}, expected a name of at most {MAX_NAME} characters")
    return value


@dataclass(frozen=True)
class Density:
    """The share and distribution of a tensor's nonzeros.

    Parameters
    ----------
    share : float
        Share of nonzeros, in (0, 1].
    kind : {"fixed", "uniform"}
        ``fixed``: every tile holds the same share, as in N:M sparsity. ``uniform``: nonzeros are at random positions.
        Counts are then expectations, and a compressed tile reserves enough space for 99 % of the tiles.

    Examples
    --------
    >>> Density.n_of_m(2, 4)
    Density(share=0.5, kind='fixed')
    """

    share: float = 1.0
    kind: str = "fixed"

    def __post_init__(self) -> None:
        if isinstance(self.share, bool) or not isinstance(self.share, (int, float)):
            raise WrongType(f"Density: share is {shown(self.share)}, expected a number")
        if not 0 < self.share <= 1:
            raise WrongValue(f"Density: share is {shown(self.share)}, expected above 0 and at most 1")
        if not isinstance(self.kind, str) or self.kind not in ("fixed", "uniform"):
            raise WrongValue(f"Density: kind is {shown(self.kind)}, expected 'fixed' or 'uniform'")

    @classmethod
    def n_of_m(cls, n: int, m: int) -> Density:
        """Return the density of N nonzeros in every group of M values.

        Parameters
        ----------
        n, m : int

        Returns
        -------
        Density
        """
        n, m = whole(n, "Density.n_of_m: n"), whole(m, "Density.n_of_m: m")
        if n > m:
            raise WrongValue(f"Density.n_of_m: n is {n}, expected at most m, which is {m}")
        return cls(n / m)


@dataclass(frozen=True)
class Problem:
    """Nested loops over tensors.

    Parameters
    ----------
    dims : dict of str to int
        Loops and their bounds, each at least 1.
    tensors : dict of str to list of dict
        The axes of each tensor, and for each axis ``{loop: coefficient}``. The order matters only to the dataflows: the
        first tensor that is not the output is the weights, the second the inputs.
    output : str
        The tensor that is summed into. All other tensors are read-only.
    densities : dict of str to Density or float, optional
        Default: no zeros.

    Raises
    ------
    ValueError, TypeError
        A bound or coefficient is below 1, an axis uses an unknown loop, the output is not a tensor, or there are more
        than 2^53 operations.

    Examples
    --------
    >>> p = Problem({"P": 16, "R": 3}, {"W": [{"R": 1}], "I": [{"P": 1, "R": 1}], "O": [{"P": 1}]}, output="O")
    >>> p.computes, p.words("I")
    (48, 18)
    """

    dims: dict[str, int]
    tensors: dict[str, list[Axis]]
    output: str
    densities: dict[str, Density] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.dims, MappingABC) or not self.dims:
            raise WrongType(f"Problem: dims is {shown(self.dims)}, expected {{name: bound}}")
        if not isinstance(self.tensors, MappingABC) or not self.tensors:
            raise WrongType(f"Problem: tensors is {shown(self.tensors)}, expected {{name: [axis, ...]}}")
        dims = {named(d, "Problem: a dimension"): whole(n, f"Problem: dimension {d}") for d, n in self.dims.items()}
        object.__setattr__(self, "dims", dims)
        tensors = {named(t, "Problem: a tensor"): self._axes(t, axes) for t, axes in self.tensors.items()}
        object.__setattr__(self, "tensors", tensors)
        if not isinstance(self.output, str) or self.output not in tensors:
            raise WrongValue(f"Problem: output is {shown(self.output)}, the tensors are {', '.join(tensors)}")
        densities = {}
        if not isinstance(self.densities, MappingABC):
            raise WrongType(f"Problem: densities is {shown(self.densities)}, expected {{tensor: density}}")
        for tensor, density in self.densities.items():
            if tensor not in tensors:
                raise WrongValue(f"Problem: a density of {shown(tensor)}, the tensors are {', '.join(tensors)}")
            if tensor == self.output:
                raise WrongValue(f"Problem: a density of the output {tensor}; it is summed into, so all of it is kept")
            densities[tensor] = density if isinstance(density, Density) else Density(density)
        object.__setattr__(self, "densities", densities)
        if math.prod(dims.values()) > MAX_COUNT or any(self.words(tensor) > MAX_COUNT for tensor in tensors):
            raise WrongValue(f"Problem: more than 2^53 operations or words ({math.prod(dims.values())} operations)")

    def _axes(self, tensor: str, axes: object) -> list[Axis]:
        if isinstance(axes, (str, MappingABC)) or not isinstance(axes, Sequence):
            raise WrongType(
                f"Problem: tensor {tensor} is {shown(axes)}, expected a list of axes {{dimension: coefficient}}"
            )
        checked = []
        for axis in axes:
            if not isinstance(axis, MappingABC) or not axis:
                raise WrongType(f"Problem: an axis of {tensor} is {shown(axis)}, expected {{dimension: coefficient}}")
            for dim in axis:
                if dim not in self.dims:
                    raise WrongValue(
                        f"Problem: {tensor} has an axis over {shown(dim)}, the dims are {', '.join(self.dims)}"
                    )
            checked.append({dim: whole(c, f"Problem: coefficient of {dim} in {tensor}") for dim, c in axis.items()})
        return checked

    @property
    def computes(self) -> int:
        """Return the number of multiply-adds, the product of all bounds."""
        return math.prod(self.dims.values())

    @property
    def inputs(self) -> list[str]:
        """Return the tensors that are only read."""
        return [tensor for tensor in self.tensors if tensor != self.output]

    def _known(self, tensor: str) -> list[Axis]:
        check_choice("Problem", "tensor", tensor, self.tensors)
        return self.tensors[tensor]

    def words(self, tensor: str) -> int:
        """Return the number of values in the bounding box of a tensor.

        Parameters
        ----------
        tensor : str

        Returns
        -------
        int
        """
        return tile(self._known(tensor), self.dims)

    def density(self, tensor: str) -> float:
        """Return the share of nonzeros of a tensor.

        Parameters
        ----------
        tensor : str

        Returns
        -------
        float
        """
        self._known(tensor)
        return self.densities[tensor].share if tensor in self.densities else 1.0

    def relevant(self, tensor: str) -> frozenset[str]:
        """Return the loops that move along a tensor.

        Parameters
        ----------
        tensor : str

        Returns
        -------
        frozenset of str
        """
        return frozenset(dim for axis in self._known(tensor) for dim in axis)

    @classmethod
    def gemm(cls, m: int, n: int, k: int) -> Problem:
        """Return the problem of a matmul of (M, K) inputs I and (K, N) weights W.

        Parameters
        ----------
        m, n, k : int

        Returns
        -------
        Problem

        Examples
        --------
        >>> Problem.gemm(4, 8, 16).computes
        512
        """
        tensors: dict[str, list[Axis]] = {
            "W": [{"K": 1}, {"N": 1}],
            "I": [{"M": 1}, {"K": 1}],
            "O": [{"M": 1}, {"N": 1}],
        }
        return cls({"M": m, "N": n, "K": k}, tensors, "O")

    @classmethod
    def conv2d(
        cls,
        c: int,
        k: int,
        p: int,
        q: int,
        r: int,
        s: int,
        n: int = 1,
        stride: int = 1,
        dilation: int = 1,
    ) -> Problem:
        """Return the problem of a convolution with seven loops; padding counts as values.

        Parameters
        ----------
        c, k : int
            Input and output channels.
        p, q : int
            Height and width of the output.
        r, s : int
            Height and width of the filter.
        n : int, optional
            Number of images.
        stride, dilation : int, optional

        Returns
        -------
        Problem

        Examples
        --------
        >>> Problem.conv2d(c=3, k=96, p=55, q=55, r=11, s=11, stride=4).words("I")  # 3 x 227 x 227
        154587
        """
        tensors: dict[str, list[Axis]] = {
            "W": [{"K": 1}, {"C": 1}, {"R": 1}, {"S": 1}],
            "I": [{"N": 1}, {"C": 1}, {"P": stride, "R": dilation}, {"Q": stride, "S": dilation}],
            "O": [{"N": 1}, {"K": 1}, {"P": 1}, {"Q": 1}],
        }
        return cls({"N": n, "K": k, "C": c, "P": p, "Q": q, "R": r, "S": s}, tensors, "O")


def extent(axis: Axis, sizes: MappingABC[str, int]) -> int:
    """Return the length of a tile's box along one axis: 1 + sum of coefficient (size - 1)."""
    return 1 + sum(coefficient * (sizes[dim] - 1) for dim, coefficient in axis.items())


def tile(axes: Sequence[Axis], sizes: MappingABC[str, int]) -> int:
    """Return the words in the box of a tile."""
    return math.prod(extent(axis, sizes) for axis in axes)
