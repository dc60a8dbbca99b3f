"""Where to cut a network whose backward pass recomputes: least memory, of kept values plus the largest segment.

A cut keeps the values that are alive across it, each once; one segment at a time is recomputed and holds its other
outputs. For each bound on a segment the cheapest cuts are found by dynamic programming, and bounds are halved as long
as they may give less. There are at most `count` segments: allowing more is never worse. Chen et al., "Training deep
nets with sublinear memory cost", arXiv 1604.06174, section 4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..network.graph import Network
from ..network.liveness import last_memory_uses, memories, saved_sizes

# With more places only those are examined whose live set is no larger than those of their neighbours.
MAX_CUTS = 128


def cut(network: Network, count: int, bits: int = 32) -> tuple[int, int]:
    """Return the elements of one sample that are saved at the cuts, and the elements of the largest segment.

    Parameters
    ----------
    count : int
        Segments, at most.
    bits : int, optional
        Of an element; bytes of other types become elements.

    Returns
    -------
    (int, int)
    """
    saved, inside = _costs(network, bits)
    count = min(count, len(saved) - 1)
    best = (0, int(inside[0, -1]))
    # Open ranges of bounds on a segment, each with the least memory kept for its highest bound.
    ranges = [(int(np.diagonal(inside, 1).max(initial=0)), best[1], 0)]
    while ranges:
        low, high, floor = ranges.pop()
        if low > high or low + floor >= sum(best):
            continue
        middle = (low + high) // 2
        cuts = _cheapest(np.where(inside <= middle, saved, np.inf), count)
        ranges.append((middle + 1, high, floor))
        if cuts is None:
            continue
        steps = list(zip(cuts, cuts[1:], strict=False))
        total, largest = sum(int(saved[step]) for step in steps), max(int(inside[step]) for step in steps)
        best = min(best, (total, largest), key=sum)
        ranges.append((low, largest - 1, total))
    return best


def _costs(network: Network, bits: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return for each segment the newly kept elements at its end, and the elements of its other outputs."""
    flows = network.flows
    homes = memories(flows)
    uses = last_memory_uses(flows, homes)
    output = homes[flows[-1].name] if flows else None
    own = [homes[flow.name] == flow.name != output for flow in flows]
    # A tensor that is alive at a cut needs all of its memory there; inside a segment a backward pass needs a part of
    # it.
    sizes = np.array([flow.output_elements * mine for flow, mine in zip(flows, own, strict=True)], dtype=np.float64)
    needed = np.array([elements - -8 * rest // bits for elements, rest in saved_sizes(network)], dtype=np.float64)
    last = np.array([uses.get(flow.name, i) for i, flow in enumerate(flows)], dtype=np.int64)
    # Alive between node i - 1 and node i. At the ends only input and output are alive, which count elsewhere.
    at = np.arange(len(flows) + 1)
    alive = np.array([sizes[:i][last[:i] >= i].sum() for i in at])
    alive[0] = alive[-1] = 0
    inner = list(range(1, len(flows)))
    if len(inner) > MAX_CUTS:
        near = [0.0, *alive[inner], 0.0]
        near[0], near[-1] = alive[1], alive[len(flows) - 1]
        inner = [i for i in inner if alive[i] <= min(near[i - 1], near[i + 1])]
    cuts = [0, *inner, len(flows)]
    before = np.concatenate([[0], np.cumsum(needed)])
    n = len(cuts)
    saved, inside = np.full((n, n), np.inf), np.full((n, n), np.inf)
    for j in range(1, n):
        stop = cuts[j]
        # Of the values that are alive at the stop, the number that were computed from place i on.
        crossing = sizes[:stop] * (last[:stop] >= stop) * (stop < len(flows))
        stored, spared = (np.concatenate([np.cumsum(one[::-1])[::-1], [0]])
                        for one in (crossing, np.minimum(crossing, needed[:stop])))  # fmt: skip
        for i in range(j):
            saved[i, j] = stored[cuts[i]]
            inside[i, j] = before[stop] - before[cuts[i]] - spared[cuts[i]]
    return saved, inside


def _cheapest(cost: NDArray[np.float64], count: int) -> list[int] | None:
    """Return the indices on the cheapest path from 0 to the last in at most `count` steps; None if there is no path."""
    n = len(cost)
    total = np.full((count + 1, n), np.inf)
    total[:, 0] = 0
    come = np.zeros((count + 1, n), dtype=np.int64)
    for j in range(1, n):
        sums = total[:-1, :j] + cost[:j, j]
        come[1:, j] = np.argmin(sums, axis=1)
        total[1:, j] = np.min(sums, axis=1)
    if not np.isfinite(total[count, -1]):
        return None
    cuts, step = [n - 1], count
    while cuts[-1]:
        cuts.append(int(come[step, cuts[-1]]))
        step -= 1
    return cuts[::-1]
