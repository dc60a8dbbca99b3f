"""Systolic arrays: cycles, utilisation and traffic by formula, and a simulation of the moving data to check them.

An array of R x C cells computes a matmul in folds. With Sr x Sc stationary values and T vectors that stream through,

    weights or inputs stationary   (2 R + C + T - 2) cycles x ceil(Sr / R) ceil(Sc / C) folds
    outputs stationary             (R + C + T - 2)   cycles x ceil(Sr / R) ceil(Sc / C) folds

    ws: Sr = K, Sc = N, T = M      is: Sr = K, Sc = M, T = N      os: Sr = M, Sc = N, T = K

as SCALE-Sim counts (Samajdar et al., ISPASS 2020), without stalls. It prints the index of the last cycle, one less.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _heterocompute as _core
from ..arrays.array_like import ArrayLike
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import counts_subnormals
from ..base.lazy import renamed
from ..base.notebooks.shown import Facts
from ..base.values import LARGEST, check_choice

__all__ = ["Run", "Simulation", "conv", "gemm", "simulate"]

#: In the order of csrc/model/systolic.h.
LARGEST_SIDE, MAX_CELLS, MAX_STEPS = 1 << 40, 1 << 26, 1 << 36
DATAFLOWS = ("ws", "is", "os")


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True)
class Run(Facts):
    """The counts of one matmul on an array. Words are values in any format.

    Attributes
    ----------
    rows, columns : int
    dataflow : str
    folds : int
    cycles : int
        Number of cycles.
    macs : int
        Multiply-adds of the matmul.
    utilisation : float
        `macs` / (cells x cycles).
    mapping_efficiency : float
        Share of the cells in use, over all folds.
    sram_reads_input, sram_reads_weight : int
        Words of the inputs (M, K) and the weights (K, N) that enter the array.
    sram_writes_output : int
        Words that leave the array. Partial sums count each time.
    dram_reads_input, dram_reads_weight, dram_reads_output : int
        Words from outside. For the output: partial sums that did not stay on chip.
    dram_writes_output : int
    """

    rows: int
    columns: int
    dataflow: str
    folds: int
    cycles: int
    macs: int
    utilisation: float
    mapping_efficiency: float
    sram_reads_input: int
    sram_reads_weight: int
    sram_writes_output: int
    dram_reads_input: int
    dram_reads_weight: int
    dram_reads_output: int
    dram_writes_output: int

    @property
    def last_cycle(self) -> int:
        """Return the index of the last cycle, which SCALE-Sim prints as its total."""
        return self.cycles - 1


@renamed(cols="columns")
def gemm(
    M: int,
    N: int,
    K: int,
    rows: int = 32,
    columns: int = 32,
    dataflow: str = "ws",
    sram_words: int | tuple[int, int, int] | None = None,
) -> Run:
    """Count the cycles and words of the matmul of (M, K) inputs and (K, N) weights.

    Parameters
    ----------
    M, N, K : int
    rows, columns : int, optional
        Cells of the array.
    dataflow : {"ws", "is", "os"}
        Stationary operand in the cells: weights, inputs or outputs.
    sram_words : int or (int, int, int), optional
        Capacity in words of the buffers of inputs, weights and outputs. None: unlimited. An operand that several folds
        use is read from outside each time, unless the part that they use fits its buffer.

    Returns
    -------
    Run

    Examples
    --------
    >>> run = gemm(256, 128, 256, rows=32, columns=32, dataflow="ws")
    >>> run.cycles, run.last_cycle, run.sram_reads_input
    (11200, 11199, 262144)
    """
    m, n, k = (_size(value, name) for value, name in ((M, "M"), (N, "N"), (K, "K")))
    r, c = _size(rows, "rows"), _size(columns, "columns")
    check_choice("systolic", "dataflow", dataflow, DATAFLOWS)
    still_rows, still_cols, stream = {"ws": (k, n, m), "is": (k, m, n), "os": (m, n, k)}[dataflow]
    row_folds, col_folds = -(-still_rows // r), -(-still_cols // c)
    cycles = row_folds * col_folds * ((r if dataflow == "os" else 2 * r) + c + stream - 2)
    # The columns of the folds are the outer loop. For inputs, weights and outputs: words that enter or leave the array,
    # the number of passes over them, and the number of words that must stay on chip until the next pass.
    if dataflow == "ws":
        traffic = (m * k * col_folds, k * n, m * n * row_folds)
        again = ((col_folds, m * k), (1, 0), (row_folds, m * min(c, n)))
    elif dataflow == "is":
        traffic = (m * k, k * n * col_folds, m * n * row_folds)
        again = ((1, 0), (col_folds, k * n), (row_folds, n * min(c, m)))
    else:
        traffic = (m * k * col_folds, k * n * row_folds, m * n)
        again = ((col_folds, m * k), (row_folds, k * min(c, n)), (1, 0))
    room = _rooms(sram_words)
    passes = [1, 1, 1]
    if room is not None:
        passes = [times if stays > words else 1 for (times, stays), words in zip(again, room, strict=True)]
    whole = (m * k, k * n, m * n)
    return Run(
        rows=r,
        columns=c,
        dataflow=dataflow,
        folds=row_folds * col_folds,
        cycles=cycles,
        macs=m * n * k,
        utilisation=m * n * k / (r * c * cycles),
        mapping_efficiency=still_rows * still_cols / (row_folds * r * col_folds * c),
        sram_reads_input=traffic[0],
        sram_reads_weight=traffic[1],
        sram_writes_output=traffic[2],
        dram_reads_input=whole[0] * passes[0],
        dram_reads_weight=whole[1] * passes[1],
        dram_reads_output=whole[2] * (passes[2] - 1),
        dram_writes_output=whole[2] * passes[2],
    )


@renamed(cols="columns")
def conv(
    C: int,
    H: int,
    W: int,
    K: int,
    R: int,
    S: int,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    batch: int = 1,
    rows: int = 32,
    columns: int = 32,
    dataflow: str = "ws",
    sram_words: int | tuple[int, int, int] | None = None,
    groups: int = 1,
) -> Run:
    """Count a convolution as the matmul of unrolled windows: M = batch P Q, N = K filters, K = C R S.

    Groups are separate matmuls, one after another.

    Parameters
    ----------
    C, H, W : int
        Channels, height and width of the input.
    K, R, S : int
        Filters, their height and width.
    stride, padding : int or (int, int), optional
        (vertical, horizontal).
    batch : int, optional
    rows, columns, dataflow, sram_words : as in `gemm`
        As in `gemm`. Words of the input are those of the unrolled windows.
    groups : int, optional

    Returns
    -------
    Run

    Raises
    ------
    ValueError
        A size is not a positive integer, a filter is larger than the input, or groups do not divide the channels.

    Examples
    --------
    >>> run = conv(C=3, H=227, W=227, K=96, R=11, S=11, stride=4)
    >>> run.sram_reads_input, run.sram_reads_weight, run.sram_writes_output
    (3294225, 34848, 3484800)
    """
    names = {"C": C, "H": H, "W": W, "K": K, "R": R, "S": S, "batch": batch, "groups": groups}
    c, h, w, k, r, s, n, g = (_size(value, name) for name, value in names.items())
    (down, across), (high, wide) = _pair(stride, "stride", 1), _pair(padding, "padding", 0)
    for name, value in (("C", c), ("K", k)):
        if value % g:
            raise WrongValue(f"systolic: {name} is {value}, expected a multiple of groups {g}")
    tall, broad = h + 2 * high, w + 2 * wide
    if tall < r or broad < s:
        raise WrongValue(f"systolic: the filter {r} x {s} is larger than the input {tall} x {broad}")
    p, q = (tall - r) // down + 1, (broad - s) // across + 1
    one = gemm(n * p * q, k // g, c // g * r * s, rows, columns, dataflow, sram_words)
    return one if g == 1 else _times(one, g)


@dataclass(frozen=True)
class Simulation(Facts):
    """The result and the counts of a simulated array.

    Attributes
    ----------
    product : ndarray of float64, (M, N)
    cycles, folds : int
    sram_reads_input, sram_reads_weight, sram_writes_output : int
        Words that entered and left the array.
    """

    product: NDArray[np.float64]
    cycles: int
    folds: int
    sram_reads_input: int
    sram_reads_weight: int
    sram_writes_output: int


@counts_subnormals
@renamed(cols="columns")
def simulate(a: ArrayLike, b: ArrayLike, rows: int = 32, columns: int = 32, dataflow: str = "ws") -> Simulation:
    """Simulate a matmul on an array, cycle by cycle, where every cell receives its neighbour's value.

    Parameters
    ----------
    a : array_like, (M, K)
        Inputs.
    b : array_like, (K, N)
        Weights.
    rows, columns : int, optional
    dataflow : {"ws", "is", "os"}

    Returns
    -------
    Simulation
        The time is proportional to cells times cycles, of which there are at most 2^36.

    Examples
    --------
    >>> run = simulate([[1, 2], [3, 4]], [[1, 0], [0, 1]], rows=2, columns=2, dataflow="os")
    >>> run.product.tolist(), run.cycles
    ([[1.0, 2.0], [3.0, 4.0]], 4)
    """
    left, right = _matrix("a", a), _matrix("b", b)
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise WrongValue(f"systolic: a is {left.shape} and b is {right.shape}, expected (M, K) and (K, N)")
    if 0 in (*left.shape, *right.shape):
        raise WrongValue(f"systolic: a is {left.shape} and b is {right.shape}, expected no empty side")
    check_choice("systolic", "dataflow", dataflow, DATAFLOWS)
    out = np.empty((left.shape[0], right.shape[1]))
    size = (_size(rows, "rows"), _size(columns, "columns"))
    if size[0] * size[1] > MAX_CELLS:
        raise WrongValue(f"systolic: rows x columns is {size[0]} x {size[1]}, expected at most 2^26 cells to simulate")
    (m, k), n = left.shape, right.shape[1]
    steps = size[0] * size[1] * gemm(m, n, k, *size, dataflow).cycles
    if steps > MAX_STEPS:
        raise WrongValue(f"systolic: {size[0]} x {size[1]} cells take {steps} steps, expected at most 2^36 to simulate")
    cycles, folds, from_left, from_top, writes = _core.systolic(left, right, *size, DATAFLOWS.index(dataflow), out)
    # With stationary inputs the weights stream in from the left.
    inputs, weights = (from_top, from_left) if dataflow == "is" else (from_left, from_top)
    return Simulation(out, cycles, folds, inputs, weights, writes)


def _matrix(name: str, value: object) -> NDArray[np.float64]:
    try:
        found = np.ascontiguousarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise WrongType(f"systolic: {name} is {shown(value)}, expected a matrix of numbers") from None
    if not (np.abs(found) <= LARGEST).all():  # so that sums of products are finite
        raise WrongValue(f"systolic: {name} has nan, infinity or numbers above {LARGEST:g}, expected finite ones")
    return found


def _times(one: Run, groups: int) -> Run:
    """Return the counts of this many equal products, one after the other."""
    extensive = [
        field.name for field in fields(Run) if field.name == "folds" or field.name.startswith(("sram", "dram"))
    ]
    many = {name: getattr(one, name) * groups for name in (*extensive, "cycles", "macs")}
    return replace(one, **many)


def _pair(value: object, name: str, least: int) -> tuple[int, int]:
    both = value if isinstance(value, (tuple, list)) else (value, value)
    if len(both) != 2:
        raise WrongValue(f"systolic: {name} is {shown(value)}, expected a number or two, down and across")
    return _size(both[0], name, least), _size(both[1], name, least)


def _size(value: Any, name: str, least: int = 1) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise WrongType(f"systolic: {name} is {shown(value)}, expected a whole number") from None
    if isinstance(value, bool) or not least <= number <= LARGEST_SIDE:
        wanted = f"at least {least}" if number < least else "at most 2^40"
        raise WrongValue(f"systolic: {name} is {shown(value)}, expected {wanted}")
    return number


def _rooms(sram_words: int | tuple[int, int, int] | None) -> tuple[int, int, int] | None:
    if sram_words is None:
        return None
    rooms = tuple(sram_words) if isinstance(sram_words, (tuple, list)) else (sram_words,) * 3
    if len(rooms) != 3:
        raise WrongValue(
            f"systolic: sram_words is {shown(sram_words)}, expected one number, or those of input, weight, output"
        )
    first, second, third = (_size(room, "sram_words") for room in rooms)
    return first, second, third
