"""A network on chiplets: the data that move between them and inside them, as on Simba.

Chiplets form a grid: the k columns share the output channels of a layer, the c rows its input channels. Weights stay.
Package: each chiplet gets the input channels of its row (k times the input in all), and a column adds its partial
sums (c - 1 times the output, wide); outputs leave once. The elements of a chiplet share its part in the same way:
that is the traffic of the chip. Groups of a layer are shared like output channels.
Shao et al., "Simba: scaling deep-learning inference with multi-chip-module-based architecture", MICRO 2019.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ....base.errors import WrongValue, shown
from ....base.lazy import renamed
from ....base.notebooks.shown import Facts
from ....base.values import check_count, check_number
from ...network.lookup import as_network
from ...network.loops import Loops

MOST = 1 << 20  # chiplets, and elements of one


@dataclass(frozen=True, repr=False)
class ChipletTraffic(Facts):
    """The result of `chiplets`.

    Attributes
    ----------
    network : str
    count, elements : int
        Number of chiplets, and of processing elements in each.
    layers : list of dict
        ``name``, ``macs``, ``grid`` (k, c) over chiplets and ``element_grid`` inside one, ``package_bytes``,
        ``chip_bytes`` (of all chiplets together), ``compute_seconds``, ``package_seconds``, ``seconds`` (the longer of
        the two: they overlap).
    energy : float
        Joules of the package's links.
    """

    network: str
    count: int
    elements: int
    energy: float
    layers: list[dict[str, Any]] = field(compare=False)

    @property
    def package_bytes(self) -> float:
        """Return the bytes between chiplets."""
        return math.fsum(row["package_bytes"] for row in self.layers)

    @property
    def chip_bytes(self) -> float:
        """Return the bytes between the elements inside chiplets."""
        return math.fsum(row["chip_bytes"] for row in self.layers)

    @property
    def seconds(self) -> float:
        """Return the time of the network, layer after layer."""
        return math.fsum(row["seconds"] for row in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON.

        Returns
        -------
        dict
        """
        keys = ("network", "count", "elements", "package_bytes", "chip_bytes", "seconds", "energy", "layers")
        return {key: getattr(self, key) for key in keys}

    def __repr__(self) -> str:
        return (
            f"<ChipletTraffic of {self.network} on {self.count} chiplets of {self.elements}: between chiplets "
            f"{self.package_bytes / 1e6:.4g} MB, {self.energy * 1e6:.4g} uJ; inside {self.chip_bytes / 1e6:.4g} MB; "
            f"{self.seconds * 1e3:.4g} ms>"
        )


@renamed(model="network")
def chiplets(
    network: object,
    count: int = 36,
    elements: int = 16,
    *,
    batch: int = 1,
    input_shape: Sequence[int] | None = None,
    operand_bytes: float = 1.0,
    sum_bytes: float = 3.0,
    element_rate: float = 127.8e12 / (36 * 16),
    link: float = 100e9,
    pj_a_bit: float = 1.285,
) -> ChipletTraffic:
    """Compute the traffic of a network between chiplets and inside them, with the fastest grid per layer.

    Parameters
    ----------
    network, input_shape
        As in `count`.
    count : int, optional
        Number of chiplets.
    elements : int, optional
        Processing elements per chiplet.
    batch : int, optional
    operand_bytes, sum_bytes : float, optional
        Bytes of an input or output, and of a partial sum. Simba's: 8 and 24 bits.
    element_rate : float, optional
        Operations/s of an element.
    link : float, optional
        B/s out of one chiplet.
    pj_a_bit : float, optional
        Energy of the package's links in pJ per bit. Simba's are 0.82 to 1.75; the default is the middle.

    Returns
    -------
    ChipletTraffic

    Raises
    ------
    ValueError
        Counts, rates or sizes are not positive, there are more than 2^20 chiplets or elements, or shapes do not match.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> found = hw.multi.chiplets("resnet50")
    >>> one = hw.multi.chiplets("resnet50", 1)
    >>> one.package_bytes, round(found.package_bytes / 1e6), round(one.seconds / found.seconds)
    (0.0, 175, 28)
    """
    count, elements, batch = (
        check_count("multi.chiplets", name, number)
        for name, number in (("count", count), ("elements", elements), ("batch", batch))
    )
    for name, number in (("count", count), ("elements", elements)):
        if number > MOST:
            raise WrongValue(f"multi.chiplets: {name} is {shown(number)}, at most {MOST} are possible")
    operand_bytes, sum_bytes, element_rate, link, pj_a_bit = (
        check_number("multi.chiplets", name, value)
        for name, value in (("operand_bytes", operand_bytes), ("sum_bytes", sum_bytes), ("element_rate", element_rate),
                            ("link", link), ("pj_a_bit", pj_a_bit))
    )  # fmt: skip
    network = as_network(network, input_shape)
    rows = []
    for loops in network.problems(batch):
        best: dict[str, Any] | None = None
        for k, c in _grids(count):
            moved = _between(loops, k, c, operand_bytes, sum_bytes)
            inner, inside = _inside(loops, k, c, elements, operand_bytes, sum_bytes)
            ways = min(k, loops.k) * min(c, _depth(loops))
            busiest = _share(loops, k, c, *inner)
            compute = 2 * busiest / element_rate
            package = moved / (ways * link)
            row = {"name": loops.name, "macs": loops.macs, "grid": (k, c), "element_grid": inner,
                   "package_bytes": moved, "chip_bytes": inside * ways, "compute_seconds": compute,
                   "package_seconds": package, "seconds": max(compute, package)}  # fmt: skip
            key = (row["seconds"], moved)
            if best is None or key < (best["seconds"], best["package_bytes"]):
                best = row
        assert best is not None
        rows.append(best)
    energy = math.fsum(row["package_bytes"] for row in rows) * 8 * pj_a_bit * 1e-12
    return ChipletTraffic(network.name, count, elements, energy, rows)


def _grids(count: int) -> list[tuple[int, int]]:
    """Return all grids of `count` chiplets; a layer with fewer channels leaves some of them idle."""
    low = [k for k in range(1, math.isqrt(count) + 1) if count % k == 0]
    return [(k, count // k) for k in sorted({*low, *(count // k for k in low)})]


def _depth(loops: Loops) -> int:
    return loops.c // loops.groups


def _between(loops: Loops, k: int, c: int, operand: float, wide: float) -> float:
    """Return the bytes between the cells of a k x c grid; one cell holds the inputs before and the outputs after."""
    columns, rows = min(k, loops.k), min(c, _depth(loops))
    if columns == rows == 1:
        return 0.0
    copies = max(1, math.ceil(columns / loops.groups)) if loops.groups > 1 else columns
    return operand * (loops.inputs * copies + loops.outputs) + wide * loops.outputs * (rows - 1)


def _inside(loops: Loops, k: int, c: int, elements: int, operand: float, wide: float) -> tuple[tuple[int, int], float]:
    """Return the grid of elements that moves the fewest bytes in one chiplet, and these bytes."""
    k_part, c_part = math.ceil(loops.k / k), math.ceil(_depth(loops) / c)
    inputs, outputs = loops.inputs * c_part / _depth(loops), loops.outputs * k_part / loops.k
    if loops.groups > 1:
        inputs *= k_part / loops.k
    found = []
    for columns, rows in _grids(elements):
        across, down = min(columns, k_part), min(rows, c_part)
        copies = 1 if loops.groups > 1 and across <= loops.groups else across
        moved = operand * (inputs * copies + outputs) + wide * outputs * (down - 1)
        found.append((math.ceil(k_part / columns) * math.ceil(c_part / rows), moved, (columns, rows)))
    _, moved, grid = min(found)
    return grid, moved


def _share(loops: Loops, k: int, c: int, columns: int, rows: int) -> float:
    """Return the multiply-adds of the busiest element."""
    k_part = math.ceil(math.ceil(loops.k / k) / columns)
    c_part = math.ceil(math.ceil(_depth(loops) / c) / rows)
    return k_part * c_part * loops.n * loops.p * loops.q * loops.r * loops.s
