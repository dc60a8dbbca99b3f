"""The best device for each layer among several, with the copies between them counted.

A layer's time is the device's roofline time. Data start and end at the first device, the home. If the next layer runs
on another device, all live tensors move over the PCIe link of each device involved except the home. Weights are stored
on the device that uses them. Layers run in order, so the cheapest assignment is found exactly: of all ways to reach a
layer on a device, only the cheapest can be part of the best assignment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ...base.errors import WrongType, WrongValue, shown
from ...base.notebooks.shown import Facts
from ...base.texts import shortened
from ...base.values import as_int, check_choice, check_count, check_number
from ...formats import Format
from ..chips.chip import Device, dtype_bits
from ..chips.database import as_devices
from ..cost.estimates import copy_seconds
from ..cost.roofline import is_work, roofline
from ..network.graph import INPUT, Network
from ..network.liveness import last_uses
from ..network.lookup import as_network

OBJECTIVES = ("time", "energy")
Work = Mapping[str, Any]
Rates = Mapping[str, float]


@dataclass(frozen=True, repr=False)
class Dispatch(Facts):
    """The result of `dispatch`.

    Attributes
    ----------
    objective : str
    chosen : str
        The devices of the plan in the order of their first layers, joined by " + ".
    seconds : float
    energy : float or None
        Joules at the devices' power limits; None if one of them is unknown.
    plan : list of dict
        One row per layer: ``layer``, ``device``, ``seconds``, ``copy_seconds`` (before it), ``bound``.
    back_seconds : float
        Time to copy the result to the home device.
    alone : list of dict
        One row per device, as if it ran everything: ``device``, ``seconds``, ``energy``, ``copies`` (seconds), ``why``:
        the reason if it cannot.
    flips : list of dict
        Sizes at which the choice changes: ``size`` (the first with the new one), ``before``, ``after``.
    """

    objective: str
    chosen: str
    seconds: float
    energy: float | None
    plan: list[dict[str, Any]] = field(compare=False)
    back_seconds: float
    alone: list[dict[str, Any]] = field(compare=False)
    flips: list[dict[str, Any]] = field(compare=False, default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON.

        Returns
        -------
        dict
        """
        return asdict(self)

    def __repr__(self) -> str:
        joules = "" if self.energy is None else f", {self.energy:.4g} J"
        copied = math.fsum(row["copy_seconds"] for row in self.plan) + self.back_seconds
        head = f"<Dispatch by {self.objective}: {self.chosen}, {self.seconds * 1e3:.4g} ms{joules}, "
        rows = [f"{head}{copied * 1e3:.4g} ms of it copies"]
        for row in self.alone:
            if row["why"]:
                rows.append(f"  {row['device']} alone: {row['why']}")
                continue
            joules = "" if row["energy"] is None else f", {row['energy']:.4g} J"
            rows.append(f"  {row['device']} alone: {row['seconds'] * 1e3:.4g} ms{joules}")
        rows += [f"  from size {row['size']:,} on {row['after']} instead of {row['before']}" for row in self.flips]
        return "\n".join(rows) + ">"


def product_work(m: int, n: int, k: int, dtype: str = "fp32") -> dict[str, Any]:
    """Return the matmul of two matrices as work for `dispatch`: both operands are copied in, the result out.

    Parameters
    ----------
    m, n, k : int
        Rows and columns of the result, and the length of the sums.
    dtype : str, optional

    Returns
    -------
    dict
        ``name``, ``operations``, ``bytes``, ``input_bytes``, ``output_bytes``.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.systems.product_work(2, 3, 4)["operations"]
    48
    """
    m, n, k = (check_count("product_work", name, size) for name, size in (("m", m), ("n", n), ("k", k)))
    bits = dtype_bits(dtype)
    came, left = (m * k + k * n) * bits / 8, m * n * bits / 8
    return {"name": f"{m} x {k} by {k} x {n}", "operations": 2 * m * n * k, "bytes": came + left,
            "input_bytes": came, "output_bytes": left}  # fmt: skip


def dispatch(
    op: object,
    devices: Iterable[str | Device],
    objective: str = "time",
    *,
    dtype: str | Mapping[str, str] = "fp32",
    format: str | Format | None = None,
    batch: int = 1,
    input_shape: Sequence[int] | None = None,
    links: Rates | None = None,
    launch: Rates | None = None,
    sizes: tuple[int, int] | None = None,
) -> Dispatch:
    """Choose the devices for an operation or a network, and find the sizes at which the choice changes.

    Parameters
    ----------
    op : Network, str, layers, sequence of dict, or callable
        As in `roofline`; or work, such as the result of `product_work`, once or as a sequence; or with `sizes` a
        callable that returns one of these for a size.
    devices : iterable of str or Device
        The first is the home device, which holds the data before and after.
    objective : {"time", "energy"}, optional
        Energy is time at the device's power limit; copies count at the limits of both ends.
    dtype : str or mapping of str to str, optional
        Type that devices compute in. A mapping gives it by device name, ``"*"`` for the rest. Copies have the bytes of
        the home device's type.
    format : Format or str, optional
        Format of the weights in memory.
    batch : int, optional
    input_shape : sequence of int, optional
    links : mapping of str to float, optional
        B/s one way between a device and the home device. Default: the device's PCIe link.
    launch : mapping of str to float, optional
        Seconds that a device needs to start a layer.
    sizes : (int, int), optional
        The smallest and the largest size to call `op` with. The returned plan is that of the largest.

    Returns
    -------
    Dispatch

    Raises
    ------
    ValueError
        There is no device, the objective is unknown, the sizes are invalid, or no device, including the home device,
        can run the work.

    Notes
    -----
    The times are lower bounds, as in the roofline model. Devices reach different fractions of them.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> square = lambda n: hw.systems.product_work(n, n, n)
    >>> found = hw.systems.dispatch(square, ["xeon-platinum-8256", "t4"], sizes=(16, 8192))
    >>> found.chosen, [(row["size"], row["after"]) for row in found.flips]
    ('t4', [(422, 't4')])
    """
    chips = as_devices("dispatch", devices)
    if not chips or len({one.name for one in chips}) < len(chips):
        raise WrongValue(f"dispatch: devices are {shown([one.name for one in chips])}, expected one or more, each once")
    check_choice("dispatch", "objective", objective, OBJECTIVES)
    for table, rates in (("links", links), ("launch", launch)):
        if rates is not None and not isinstance(rates, Mapping):
            raise WrongType(f"dispatch: {table} is {shown(rates)}, expected a mapping of devices to numbers")
        for name, value in (rates or {}).items():
            check_number("dispatch", f"{table}[{shown(name)}]", value, closed=table == "launch")
    batch = check_count("dispatch", "batch", batch)
    kinds = dict(dtype) if isinstance(dtype, Mapping) else {"*": dtype}
    question = _Question(chips, objective, kinds, format, batch, input_shape, dict(links or {}), dict(launch or {}))
    if not callable(op):
        if sizes is not None:
            raise WrongValue(f"dispatch: sizes is {shown(sizes)}, expected a callable op with it")
        return question.answer(op)
    if sizes is None:
        raise WrongValue("dispatch: sizes is missing: op is a callable of a size")
    if not isinstance(sizes, Sequence) or len(sizes) != 2:
        raise WrongValue(f"dispatch: sizes is {shown(sizes)}, expected the least and the largest")
    low = as_int(sizes[0], "dispatch: sizes", 1)
    high = as_int(sizes[1], "dispatch: sizes", low)
    flips = _flips(lambda size: question.answer(op(size)).chosen, low, high)
    found = question.answer(op(high))
    return Dispatch(**{**found.__dict__, "flips": flips})


def _flips(choose: Callable[[int], str], low: int, high: int) -> list[dict[str, Any]]:
    """Bisect between sizes that double; two sizes with the same plan are assumed to have it in between, too."""
    marks = [low]
    while marks[-1] < high:
        marks.append(min(high, 2 * marks[-1]))
    found = []
    chosen = {size: choose(size) for size in marks}
    for left, right in zip(marks, marks[1:], strict=False):
        begin = left
        while chosen[begin] != chosen[right]:
            below, above = begin, right
            while above - below > 1:
                middle = (below + above) // 2
                chosen[middle] = choose(middle)
                below, above = (middle, above) if chosen[middle] == chosen[begin] else (below, middle)
            found.append({"size": above, "before": chosen[begin], "after": chosen[above]})
            begin = above
    return found


@dataclass
class _Question:
    """The parts of the problem that are the same for every size."""

    chips: list[Device]
    objective: str
    kinds: dict[str, str]
    format: str | Format | None
    batch: int
    input_shape: Sequence[int] | None
    links: dict[str, float]
    launch: dict[str, float]

    def answer(self, op: object) -> Dispatch:
        names, moved, runs = self._layers(op)
        count = len(names)
        able = [one for one in self.chips if isinstance(runs[one.name], list)]
        if not able:
            raise WrongValue(f"dispatch: no device can run it: {shortened('; '.join(map(str, runs.values())), 250)}")
        alone = [self._on_one_device(one, runs, moved) for one in self.chips]
        # cost and path of the best assignment that ends with layer i on a device
        home = self.chips[0]
        ways: dict[str, tuple[float, list[Device]]] = {}
        for one in able:
            ways[one.name] = (self._price(home, one, moved[0]) + self._cost(one, runs[one.name][0]), [one])
        for i in range(1, count):
            ways = {
                one.name: min(
                    (
                        (cost + self._price(way[-1], one, moved[i]) + self._cost(one, runs[one.name][i]), [*way, one])
                        for cost, way in ways.values()
                    ),
                    key=lambda pair: pair[0],
                )
                for one in able
            }
        back = {name: cost + self._price(way[-1], home, moved[-1]) for name, (cost, way) in ways.items()}
        way = ways[min(back, key=lambda name: back[name])][1]
        plan, before = [], home
        for i, one in enumerate(way):
            seconds, bound = runs[one.name][i]
            plan.append({"layer": names[i], "device": one.name, "seconds": seconds,
                         "copy_seconds": self._copy(before, one, moved[i]), "bound": bound})  # fmt: skip
            before = one
        last = self._copy(before, home, moved[-1])
        total = math.fsum(row["seconds"] + row["copy_seconds"] for row in plan) + last
        chosen = " + ".join(dict.fromkeys(one.name for one in way))
        return Dispatch(self.objective, chosen, total, self._energy(way, plan, last), plan, last, alone)

    def _layers(self, op: Any) -> tuple[list[str], list[float], dict[str, Any]]:
        """Return names of layers, bytes that would move before each and after the last, times and bounds by device."""
        works = [op] if isinstance(op, Mapping) else op
        given = isinstance(works, (list, tuple)) and bool(works) and all(isinstance(one, Mapping) for one in works)
        if given:
            names, moved = [str(one.get("name", "")) for one in works], _given_bytes(works)
            model: Any = [
                {key: one[key] for key in ("name", "operations", "bytes", "weight_bytes") if key in one}
                for one in works
            ]
        else:
            model = as_network(op, self.input_shape)
            bits = dtype_bits(self._kind(self.chips[0]))
            names, elements = _alive(model)
            moved = [self.batch * one * bits / 8 for one in elements]
        runs: dict[str, Any] = {}
        for one in self.chips:
            try:
                format, batch = (None, 1) if given else (self.format, self.batch)
                rows = roofline(model, one, self._kind(one), format, batch).layers
            except ValueError as error:
                runs[one.name] = str(error)
                continue
            if self.objective == "energy" and one.tdp is None:
                runs[one.name] = f"{one.name}: its power is not known"
                continue
            try:
                self._copy(self.chips[0], one, 1.0)
            except ValueError as error:
                runs[one.name] = str(error)
                continue
            begin = self.launch.get(one.name, 0.0)
            runs[one.name] = [(begin + row["seconds"], row["bound"]) for row in rows]
        return names, moved, runs

    def _kind(self, one: Device) -> str:
        kind = self.kinds.get(one.name, self.kinds.get("*"))
        if kind is None:
            raise WrongValue(f"dispatch: dtype has neither {shown(one.name)} nor '*'")
        return kind

    def _copy(self, a: Device, b: Device, size: float) -> float:
        """Return the seconds to copy from one device to another through the home device."""
        if a is b:
            return 0.0
        seconds = 0.0
        for one in (a, b):
            if one is not self.chips[0]:
                rate = self.links.get(one.name)
                seconds += copy_seconds(size, one if rate is None else rate)
        return seconds

    def _price(self, a: Device, b: Device, size: float) -> float:
        """Return the cost of a copy in the unit of the objective."""
        seconds = self._copy(a, b, size)
        return seconds if self.objective == "time" or not seconds else seconds * ((a.tdp or 0.0) + (b.tdp or 0.0))

    def _cost(self, one: Device, run: tuple[float, str]) -> float:
        return run[0] if self.objective == "time" else run[0] * (one.tdp or 0.0)

    def _energy(self, way: Sequence[Device], plan: Sequence[Mapping[str, Any]], last: float) -> float | None:
        home = self.chips[0]
        copied = {home} if last or any(row["copy_seconds"] for row in plan) else set()
        if any(one.tdp is None for one in {*way, *copied}):
            return None
        total, before = 0.0, home
        for one, row in zip(way, plan, strict=True):
            total += row["seconds"] * (one.tdp or 0.0)
            total += row["copy_seconds"] * ((before.tdp or 0.0) + (one.tdp or 0.0))
            before = one
        return total + last * ((before.tdp or 0.0) + (home.tdp or 0.0))

    def _on_one_device(self, one: Device, runs: Mapping[str, Any], moved: Sequence[float]) -> dict[str, Any]:
        run = runs[one.name]
        if isinstance(run, str):
            return {"device": one.name, "seconds": None, "energy": None, "copies": None, "why": run}
        home = self.chips[0]
        copies = self._copy(home, one, moved[0]) + self._copy(one, home, moved[-1])
        busy = math.fsum(seconds for seconds, _ in run)
        known = one.tdp is not None and (one is home or home.tdp is not None)
        energy = busy * (one.tdp or 0) + copies * ((one.tdp or 0) + (home.tdp or 0)) if known else None
        return {"device": one.name, "seconds": busy + copies, "energy": energy, "copies": copies, "why": ""}


def _given_bytes(works: Sequence[Work]) -> list[float]:
    for one in works:
        if not {"input_bytes", "output_bytes", "operations", "bytes"} <= set(one):
            wanted = "operations, bytes, input_bytes and output_bytes"
            raise WrongValue(f"dispatch: work is {shown(dict(one))}, expected {wanted}")
        for key in ("input_bytes", "output_bytes"):
            check_number("dispatch", key, one[key], closed=True)
    return [*(float(one["input_bytes"]) for one in works), float(works[-1]["output_bytes"])]


def _alive(network: Network) -> tuple[list[str], list[int]]:
    """Return the names of the layers that take time, and the live elements before each and after the last."""
    uses = last_uses(network.flows)
    sizes = {INPUT: math.prod(network.input_shape)} | {flow.name: flow.output_elements for flow in network.flows}
    available = {INPUT}
    names, elements = [], []
    for i, flow in enumerate(network.flows):
        if is_work(flow):
            names.append(flow.name)
            elements.append(sum(sizes[name] for name in available if uses.get(name, -1) >= i))
        available.add(flow.name)
    return names, [*elements, math.prod(network.output_shape)]
