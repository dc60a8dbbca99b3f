"""Sizes of the products of ONNX graphs: convolutions, matrix products and recurrent layers, from shapes."""

from __future__ import annotations

import math
import re
from typing import Any

from ...base.errors import WrongValue, shown

Sizes = tuple[int, int, int, int]
Dims = tuple[int, ...]

# Families of operators that multiply: newer opsets have more members of each.
MULTIPLIES = re.compile(r"Conv|MatMul|Gemm|Attention|LSTM|GRU|RNN|Einsum|^DFT$|^STFT$|^Det$")
CONVOLUTIONS = {"Conv": 1, "ConvInteger": 1, "DeformConv": 1, "ConvTranspose": 1, "QLinearConv": 3}
MATRICES = {"MatMul": 1, "MatMulInteger": 1, "QLinearMatMul": 3}
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def is_product(kind: str) -> bool:
    """Tell whether an operator multiplies, supported or not."""
    return MULTIPLIES.search(kind) is not None


def sizes_of(
    kind: str, shapes: list[Dims], options: dict[str, Any], output: Dims, batch: int
) -> tuple[Sizes, int, int | None]:
    """Return (count, m, n, k) of one sample, and the places of the two inputs that are multiplied.

    Parameters
    ----------
    shapes : list of tuple of int
        Of the inputs, with the batch.
    options : dict
        Attributes.
    output : tuple of int
        Shape with the batch.

    Returns
    -------
    (int, int, int, int)
    int
    int or None
        None: all other inputs are weights.

    Raises
    ------
    ValueError
        The kind or the shapes are not supported; the message continues a node's name.
    """
    if kind in CONVOLUTIONS:
        second = CONVOLUTIONS[kind]
        return _one_sample(_convolution(kind, shapes, second, options, output), batch), 0, second
    if kind in MATRICES:
        second = MATRICES[kind]
        return _one_sample(_matrices(*_sides(kind, shapes, second)), batch), 0, second
    if kind == "Gemm":
        a, b = _sides(kind, shapes, 1)
        if len(a) != 2 or len(b) != 2:
            raise WrongValue(f"multiplies {shown(a)} and {shown(b)}, expected two matrices")
        a, b = a[::-1] if options.get("transA", 0) else a, b[::-1] if options.get("transB", 0) else b
        return _one_sample(_matrices(a, b), batch), 0, 1
    if kind in GATES and len(shapes) > 2:
        return _one_sample(_recurrent(kind, shapes), batch), 0, None
    raise WrongValue(f"is a {kind} of a kind that is not read")


def _sides(kind: str, shapes: list[Dims], second: int) -> tuple[Dims, Dims]:
    if len(shapes) <= second or not shapes[0] or not shapes[second]:
        raise WrongValue(f"is a {kind} of a kind that is not read")
    return shapes[0], shapes[second]


def _convolution(kind: str, shapes: list[Dims], second: int, options: dict[str, Any], output: Dims) -> Sizes:
    x, weight = _sides(kind, shapes, second)
    groups = options.get("group", 1)
    if not isinstance(groups, int) or groups < 1:
        raise WrongValue(f"has the group {shown(groups)}, expected a number above 0")
    transposed = kind == "ConvTranspose"
    channels = weight[0] if transposed else weight[1] * groups
    if len(x) != len(weight) or len(x) < 3 or x[1] != channels or weight[0] % groups:
        raise WrongValue(f"convolves {shown(x)} with filters {shown(weight)} in {groups} groups, which do not fit")
    taps = math.prod(weight[2:])
    positions = x[0] * math.prod((x if transposed else output)[2:])
    if transposed:
        return groups, positions, weight[1] * taps, weight[0] // groups
    return groups, positions, weight[0] // groups, weight[1] * taps


def _matrices(a: Dims, b: Dims) -> Sizes:
    """(..., m, k) times (..., k, n), a vector as a matrix; axes of size 1 are repeated."""
    first, second = a if len(a) > 1 else (1, *a), b if len(b) > 1 else (*b, 1)
    if first[-1] != second[-2]:
        raise WrongValue(f"multiplies {shown(a)} and {shown(b)}, which do not fit")
    length = max(len(first), len(second)) - 2
    left, right = ((1,) * (length + 2 - len(one)) + one[:-2] for one in (first, second))
    count = math.prod(max(one) for one in zip(left, right, strict=True))
    if len(b) == 2:  # one matrix for all rows
        return 1, count * first[-2], second[-1], first[-1]
    return count, first[-2], second[-1], first[-1]


def _recurrent(kind: str, shapes: list[Dims]) -> Sizes:
    """One product per step of every sample: the gates of input and state."""
    x, inputs, state = shapes[:3]
    steps = len(x) == 3 and x[0] * x[1]
    rows = len(inputs) == 3 and inputs[1]
    if not steps or not rows or len(state) != 3 or inputs[2] != x[2] or rows != GATES[kind] * state[2]:
        raise WrongValue(f"is a {kind} of {shown(x)} with {shown(inputs)} and {shown(state)}, which do not fit")
    return inputs[0], steps, rows, inputs[2] + state[2]


def _one_sample(sizes: Sizes, batch: int) -> Sizes:
    """Divide the first size that contains the batch by it."""
    for i, size in enumerate(sizes[:3]):
        if size % batch == 0:
            found = list(sizes)
            found[i] = size // batch
            return found[0], found[1], found[2], found[3]
    raise WrongValue(f"multiplies {shown(sizes)}, where no size holds the batch {batch}")
