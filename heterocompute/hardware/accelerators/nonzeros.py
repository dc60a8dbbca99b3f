"""Nonzeros of random arrays, counted without storing the arrays: the work of machines that skip zeros.

EIE: a column has an entry for each nonzero of an element's rows, and for each 16 zeros between two of them. The rows
are drawn 64 at a time. SCNN: only the number of nonzeros in a tile of the image and in a group of filters counts. That
number is binomial. A layer beyond the limits below repeats a sample of its columns, channels or groups of filters.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import Unsupported, shown
from ..network.loops import Loops

__all__: list[str] = []

Counts = NDArray[Any]  # integers, as int64 or float64

SEED = 0
RUN = 16  # rows per padding entry of EIE: the longest run of zeros, 15, and the padding zero
#: Values drawn for a matrix of EIE, and its rows and columns. Further columns repeat the first ones.
VALUES, LENGTH = 1 << 24, 1 << 18
#: Counts drawn for a layer of SCNN, of filters and of the image.
COUNTS = 1 << 22
MANY = 1 << 31


@dataclass(frozen=True)
class Entries:
    """Entries of EIE by column and element.

    Attributes
    ----------
    counts : ndarray of int64, (columns, elements)
        Including padding.
    nonzeros : ndarray of int64, (columns,)
        Without padding.
    """

    counts: Counts
    nonzeros: Counts


def count_entries(planes: Iterable[NDArray[np.bool_]], columns: int, elements: int) -> Entries:
    """Count the entries of a matrix whose row i belongs to element i % `elements`.

    Parameters
    ----------
    planes : iterable of ndarray of bool, (columns, elements)
        Where each element's next row is not zero.
    """
    counts, nonzeros = np.zeros((columns, elements), np.int32), np.zeros(columns, np.int64)
    after = np.zeros((columns, elements), np.int32)  # the row after the last nonzero
    for row, nonzero in enumerate(planes):
        entries = (row - after) // RUN
        entries += 1
        entries *= nonzero
        counts += entries
        nonzeros += np.count_nonzero(nonzero, axis=1)
        np.putmask(after, nonzero, row + 1)
    return Entries(counts.astype(np.int64), nonzeros)


def draw_entries(rows: int, columns: int, density: float, elements: int) -> Entries:
    """Count the entries of a random matrix, of which only one plane is in memory at a time.

    Parameters
    ----------
    density : float
        Share of nonzeros.
    """
    random = np.random.default_rng(SEED)

    def planes() -> Iterable[NDArray[np.bool_]]:
        for first in range(0, rows, elements):
            nonzero = random.random((columns, elements), dtype=np.float32) < density
            nonzero[:, rows - first :] = False
            yield nonzero

    return count_entries(planes(), columns, elements)


@dataclass(frozen=True)
class Load:
    """The work of EIE for one vector.

    Attributes
    ----------
    cycles, broadcasts, stalls, busy, padding : float
        As of `heterocompute.EIELoad`; busy cycles are those of all elements together.
    entries : float
        Of the whole matrix.
    """

    cycles: float
    broadcasts: float
    stalls: float
    busy: float
    padding: float
    entries: float


def run_queues(entries: Entries, active: NDArray[np.intp], depth: int) -> Load:
    """Run EIE for one vector, as `heterocompute.EIEArray.load_balance` does.

    Parameters
    ----------
    active : ndarray of int
        Columns whose activation is not zero, in the order of the broadcasts. Columns beyond the entries repeat the
        first ones. In each repetition an element takes over the rows of the next element, so that no element gets the
        longest rows of the sample each time.
    depth : int
        Capacity of an element's queue in activations.
    """
    drawn, elements = entries.counts.shape
    steps = np.tile(np.maximum(entries.counts, 1), 2)
    finish, leaves = np.zeros(elements, np.int64), [0] * min(depth, max(len(active), 1))
    now, stalls = -1, 0
    columns = active % drawn
    turns = active // drawn % elements
    for k, (column, turn) in enumerate(zip(columns.tolist(), turns.tolist(), strict=True)):
        soonest, place = now + 1, k % len(leaves)
        now = max(soonest, leaves[place])
        stalls += now - soonest
        np.maximum(finish, now + 1, out=finish)
        finish += steps[column, turn : turn + elements]
        leaves[place] = int(finish.max())
    times = np.bincount(columns, minlength=drawn)
    busy = int(times @ entries.counts.sum(1))
    padding = busy - int(times @ entries.nonzeros)
    return Load(int(finish.max()), len(active), stalls, busy, padding, int(entries.counts.sum()))


def eie_load(rows: int, columns: int, weights: float, inputs: float, depth: int, elements: int) -> Load:
    """Run EIE on a random matrix and a random vector.

    Parameters
    ----------
    weights, inputs : float
        Shares of nonzeros.
    """
    tall, wide = min(rows, LENGTH), min(columns, LENGTH)
    drawn = min(wide, max(1, VALUES // tall))
    entries = draw_entries(tall, drawn, weights, elements)
    active = np.flatnonzero(np.random.default_rng(SEED).random(wide) < inputs)
    load = run_queues(entries, active, depth)
    across = columns / wide
    times = rows / tall * across
    return Load(
        cycles=load.cycles * times,
        broadcasts=load.broadcasts * across,
        stalls=load.stalls * times,
        busy=load.busy * times,
        padding=load.padding * times,
        entries=load.entries * rows / tall * columns / drawn,
    )


@dataclass(frozen=True)
class Axis:
    """One axis of a convolution on SCNN; the phases of a stride are channels.

    Attributes
    ----------
    outputs, taps, stride, dilation, padding : int
    """

    outputs: int
    taps: int
    stride: int
    dilation: int
    padding: int

    @property
    def filter(self) -> int:
        """Return the extent of a filter."""
        return self.dilation * (self.taps - 1) + 1

    @property
    def halo(self) -> int:
        """Return the outputs that a tile has besides its own."""
        return -(-self.filter // self.stride) - 1

    @property
    def stored(self) -> int:
        """Return the padding on each side that is stored as zeros: a strided axis is split into phases with it."""
        return self.padding if self.stride > 1 else 0

    @property
    def length(self) -> int:
        """Return the stored values of a phase."""
        return max(1, self.outputs + self.halo - 2 * (self.padding - self.stored))

    def phase_taps(self) -> Counts:
        """Return the taps of each phase.

        Returns
        -------
        ndarray of int64, (stride,)
        """
        return np.bincount(np.arange(self.taps) * self.dilation % self.stride, minlength=self.stride)

    def cells(self, parts: int) -> Counts:
        """Return how many values of the image a part of each phase has, without padding.

        Returns
        -------
        ndarray of int64, (stride, parts)
        """
        end = (self.outputs - 1) * self.stride + self.filter - 2 * self.padding + self.stored
        edges = np.minimum(np.arange(parts + 1) * -(-self.length // parts), self.length)
        phase = np.arange(self.stride)[:, None]
        real = [np.clip(-(-(limit - phase) // self.stride), 0, None) for limit in (self.stored, end)]
        return np.diff(np.clip(edges, *real), axis=1)


@dataclass(frozen=True)
class Tiling:
    """The division of one group of a layer's channels over the cells of SCNN.

    Attributes
    ----------
    values : ndarray of int64, (channels, parts, parts)
        Nonzeros of each tile of the image.
    weights : ndarray of int64, (groups of filters, channels)
        Nonzeros of each group of filters.
    group : int
        Filters at a time.
    """

    values: Counts
    weights: Counts
    group: int


def outer_steps(tiling: Tiling, cells: int, per_run: int = 4) -> dict[str, float]:
    """Count the steps of a convolution by outer products, as `hc.conv2d_outer`, and the cycles without conflicts.

    A cell multiplies, for each channel, every four nonzero values of its tile with every four nonzero weights of the
    group of filters. After a group the cells wait for the slowest. Queues before the banks absorb every conflict.

    Parameters
    ----------
    cells : int
        Cells per side. A cell computes its tiles one after the other if there are more tiles.
    per_run : int, optional
        Values, and weights, of a step.

    Returns
    -------
    dict of str to float
        ``cycles``, ``steps`` of all cells, ``products``, ``group`` (filters at a time), ``groups``.
    """
    values, weights = tiling.values, tiling.weights
    tiles = -(-values // per_run).reshape(len(values), -1)
    steps = np.asarray(-(-weights // per_run), float) @ tiles.astype(
        float
    )  # of each group and tile; integers are exact
    cuts = values.shape[1] // cells
    own = steps.reshape(len(steps), cells, cuts, cells, cuts).sum((2, 4)).reshape(len(steps), -1)
    products = weights.sum(0).astype(float) @ values.reshape(len(values), -1).sum(1).astype(float)
    return {
        "cycles": float(own.max(1).sum()),
        "steps": float(steps.sum()),
        "products": float(products),
        "group": float(tiling.group),
        "groups": float(len(weights)),
    }


@functools.lru_cache(maxsize=64)
def conflict_factor(products: int, banks: int, queue: int) -> float:
    """Return the cycles per step of a cell whose products go to random banks, each behind a queue.

    A bank adds one product per cycle. A step waits until each of its products has room in its queue. Simulated for
    4,096 steps from a fixed seed.

    Parameters
    ----------
    products : int
        Of a step.
    banks : int
    queue : int
        Products that wait at a bank.

    Examples
    --------
    >>> round(conflict_factor(16, 32, 1), 1), conflict_factor(16, 32, 64) < 1.01
    (2.4, True)
    """
    random = np.random.default_rng(SEED)
    waiting = np.zeros(banks, np.int64)
    cycles, steps = 0, 4096
    for _ in range(steps):
        arriving = np.bincount(random.integers(0, banks, products), minlength=banks)
        over = int((waiting + arriving).max()) - max(queue, int(arriving.max()))
        stalls = max(0, over)
        cycles += 1 + stalls
        waiting = np.maximum(waiting - stalls, 0) + arriving
        if queue < (most := int(waiting.max())):  # a step alone may exceed the queue: it takes more cycles
            cycles += most - queue
            waiting = np.maximum(waiting - (most - queue), 0)
        waiting = np.maximum(waiting - 1, 0)
    return cycles / steps


def check_phases(loops: Loops, parts: int) -> None:
    """Raise NotImplementedError for a layer with more phases or taps than can be counted.

    Parameters
    ----------
    parts : int
        Tiles per side.
    """
    most = COUNTS // (parts * parts)
    if loops.stride[0] * loops.stride[1] > most or max(loops.r, loops.s) > COUNTS:
        raise Unsupported(
            f"scnn: layer {shown(loops.name)} has the strides {loops.stride} and filters of {loops.r} x {loops.s}, "
            f"expected at most {most} phases and {COUNTS} taps on a side"
        )


def scnn_steps(loops: Loops, weights: float, inputs: float, cells: int, cuts: int, sums: int) -> dict[str, float]:
    """Count the steps of one image of a layer with random zeros.

    Parameters
    ----------
    weights, inputs : float
        Shares of nonzeros.
    cells : int
        Cells per side.
    cuts : int
        Each cell's tile is cut into this many parts down and across, which the cell computes one after the other.
    sums : int
        Accumulators of a cell.

    Returns
    -------
    dict of str to float
        As of `outer_steps`.
    """
    pairs = zip((loops.p, loops.q), (loops.r, loops.s), loops.stride, loops.dilation, loops.padding, strict=True)
    down, across = (Axis(*each) for each in pairs)
    parts = cells * cuts
    tile = math.prod(-(-axis.length // parts) + axis.halo for axis in (down, across))
    group = max(1, sums // tile)
    filters, channels = loops.k // loops.groups, loops.c // loops.groups
    phases = down.stride * across.stride
    drawn = min(channels, max(1, COUNTS // (phases * parts * parts)))
    groups = -(-filters // group)
    run = min(groups, COUNTS // max(phases * drawn, parts * parts))
    sizes = loops.c, loops.k, loops.p, loops.q, loops.r, loops.s
    random = np.random.default_rng((SEED, *sizes))  # layers of one network do not deviate in the same direction
    area = down.cells(parts)[:, None, :, None].astype(float) * across.cells(parts)[:, None, :]
    values = _binomial(random, area, inputs, (drawn, *area.shape)).reshape(-1, parts, parts)
    taps = np.multiply.outer(down.phase_taps(), across.phase_taps()).reshape(-1).astype(float)
    of_group = np.minimum(group, filters - group * np.arange(run))
    nonzeros = _binomial(random, of_group[:, None, None] * taps, weights, (run, drawn, phases)).reshape(run, -1)
    found = outer_steps(Tiling(values, nonzeros, group), cells)
    times = channels / drawn * groups / run * loops.groups
    return found | {key: found[key] * times for key in ("cycles", "steps", "products")} | {"groups": float(groups)}


def _binomial(random: np.random.Generator, trials: Counts, share: float, shape: tuple[int, ...]) -> Counts:
    """Draw numbers of nonzeros; of very many trials the mean, from which they would deviate by less than 0.003%."""
    if trials.max() > MANY:
        return np.broadcast_to(np.rint(trials * share), shape)
    return random.binomial(np.broadcast_to(trials.astype(np.int64), shape), share).astype(float)
