"""Design-space exploration: many accelerators for the same networks, and the Pareto front.

MAGNet's space (Venkatesan et al., ICCAD 2019): vector width, lanes, elements, sizes of buffers, collectors as extra
levels, dataflow, number formats. A point is a `Design`; every layer is mapped again for each of them.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from types import SimpleNamespace
from typing import Any

from ...base.errors import WrongType, WrongValue, shown
from ...base.progress import Progress, reported
from ...base.texts import near_words
from ...base.values import Rng, as_int, as_list, check_count, is_several, seed_from
from ...base.workers import Workers, checked_workers, in_workers
from ...report.files import write_figure
from ...report.hardware import front_figure
from ...report.results.tabular import Tabular
from ..network.graph import Network
from ..network.lookup import as_network
from .design import DATAFLOWS, Design
from .energies import operands
from .machines.machine import Machine, check_key, machine_of
from .points import Points

SPACE: Mapping[str, Sequence[Any]] = {
    "vector": (8, 16, 32),
    "lanes": (8, 16),
    "weight_kib": (32, 64),
    "dataflow": DATAFLOWS,
    "format": ("int8", "int4"),
}
FIELDS = tuple(one.name for one in fields(Design))
#: Objectives of the model, each in its unit: smaller is better.
COSTS = ("energy", "seconds", "area", "edp", "dram_energy")
#: Columns of a study that are not measured numbers.
NO_METRIC = {"format", "method", "activations", "emulate", "retrained"}
MOST = 10**7

Point = dict[str, Any]
Task = tuple[Point, tuple[Network, ...], int, Machine | None]


@dataclass(frozen=True, eq=False, repr=False)
class Exploration(Tabular):
    """The result of `explore`.

    Attributes
    ----------
    networks : tuple of str
    objective : tuple of str
        Columns; the first one decides which point is the best. ``-name`` maximizes.
    table : list of dict
        One row per point, the best first: the values of the space, ``energy`` (J on chip, of all networks),
        ``dram_energy`` (J), ``seconds``, ``area`` (mm^2 of multipliers, adders and memory cells), ``edp`` (J s, on
        chip), ``operations_joule`` (on chip), ``operations_mm2`` (operations/s at the peak), ``arithmetic_share``, and
        the results of a study.
    refused : list of dict
        Points that cannot be built or cannot run the networks, with the ``reason``.
    metrics : tuple of str
        Columns from a study.
    names : tuple of str
        Columns that are values of the space.
    """

    networks: tuple[str, ...]
    objective: tuple[str, ...]
    table: list[dict[str, Any]]
    refused: list[dict[str, Any]] = field(default_factory=list)
    metrics: tuple[str, ...] = ()
    names: tuple[str, ...] = (*FIELDS, "format")

    kind = "exploration"

    @classmethod
    def _check_fields(cls, fields: dict[str, Any]) -> None:
        names = {name.removeprefix("-") for name in fields["objective"]}
        if not fields["objective"] or not all(names <= set(row) for row in fields["table"]) or not fields["table"]:
            raise WrongValue("table lacks a column of the objective")

    def _joined(self, other: Exploration) -> Exploration:
        if (self.networks, self.objective) != (other.networks, other.objective):
            raise WrongValue("exploration + exploration: other networks or another objective")
        names = tuple(dict.fromkeys((*self.names, *other.names)))
        table = replace(self, names=names)._joined_table(other)
        table.sort(key=lambda row: [_value(row, name) for name in self.objective])
        known = {self._key(row) for row in self.refused}
        refused = [*self.refused, *(row for row in other.refused if self._key(row) not in known)]
        return Exploration(
            self.networks, self.objective, table, refused, tuple(dict.fromkeys((*self.metrics, *other.metrics))), names
        )

    @property
    def varied(self) -> tuple[str, ...]:
        """Return the names of the space with more than one value in the table."""
        names = [name for name in self.table[0] if name in self.names]
        return tuple(name for name in names if len({str(row[name]) for row in self.table}) > 1)

    def pareto(self, objective: str | Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return the Pareto front: points for which no other is as good in every column and better in one.

        Parameters
        ----------
        objective : str or sequence of str, optional
            Columns; ``-name`` maximizes. Default: those of the exploration.

        Returns
        -------
        list of dict
            Rows of `table`, by increasing first column, without points that lack a number in a column.

        Raises
        ------
        ValueError
            A column does not exist or holds no numbers.
        """
        return [self.table[i] for i in self._front(objective)]

    def _front(self, objective: str | Sequence[str] | None = None) -> list[int]:
        """Return the indices in `table` of the rows of `pareto`."""
        names = self.objective if objective is None else _objective(objective, self.table)
        points = [(tuple(_value(row, name) for name in names), i) for i, row in enumerate(self.table)]
        points = sorted((point, i) for point, i in points if all(map(math.isfinite, point)))
        front: list[tuple[tuple[float, ...], int]] = []
        for point, i in points:  # a dominated point is dominated by an earlier one in this order
            if not any(other != point and all(a <= b for a, b in zip(other, point, strict=True)) for other, _ in front):
                front.append((point, i))
        return [i for _, i in front]

    @property
    def best(self) -> dict[str, Any]:
        """Return the row with the best first column."""
        return self.table[0]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON.

        Returns
        -------
        dict
        """
        keys = ("table", "refused")
        found = {"networks": list(self.networks), "objective": list(self.objective), "pareto": self._front()}
        return found | {key: getattr(self, key) for key in keys}

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plot the first two columns of the objective against each other, with the Pareto front.

        Parameters
        ----------
        path : str or os.PathLike, optional
            Also write the figure to this path, in the format of the suffix.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            matplotlib is not installed; install the extra ``plot``.
        ValueError
            The objective has only one column.
        """
        if len(self.objective) < 2:
            raise WrongValue(f"plot: the objective is {self.objective[0]} alone, expected two columns to draw")
        x, y = self.objective[:2]
        axes = x.removeprefix("-"), y.removeprefix("-")
        figure = front_figure(self.table, self._front((x, y)), *axes, ", ".join(self.networks), self.varied)
        if path is not None:
            write_figure(path, figure)
        return figure

    def __repr__(self) -> str:
        best = self.best
        chosen = ", ".join(f"{key} {best[key]}" for key in self.varied)
        refused = f", {len(self.refused)} refused" if self.refused else ""
        name = self.objective[0].lstrip("-")
        return (
            f"<Exploration of {', '.join(self.networks)}: {len(self.table)} points{refused}, {len(self._front())} "
            f"beaten by none; best {name} {best[name]:.4g}{f' with {chosen}' if chosen else ''}>"
        )


def explore(
    space: Mapping[str, Any] | None = None,
    networks: object = "resnet50",
    objective: str | Sequence[str] = ("energy", "area"),
    *,
    base: Machine | str | os.PathLike[str] | None = None,
    set: Mapping[str, Any] | None = None,
    study: object = None,
    batch: int = 1,
    budget: int = 1000,
    seed: int = 0,
    workers: Workers = None,
    progress: Progress | bool | None = None,
    keep: str | os.PathLike[str] | None = None,
    rng: Rng = None,
) -> Exploration:
    """Evaluate many accelerators on the same networks, and find the Pareto front in energy, area, time or accuracy.

    Parameters
    ----------
    space : mapping of str to sequence, optional
        Values to try for ``elements``, ``lanes``, ``vector``, ``weight_kib``, ``input_kib``, ``sum_kib``,
        ``global_kib``, ``weight_banks``, ``global_banks``, ``entries`` (of a collector), ``dataflow`` (``ws``,
        ``ws-los`` and ``os-lws``; the last two have one more level), ``process``, ``clock`` (Hz), ``format`` (as in
        `hw.mac`; ``"int4 x int8"`` for weights and activations). A single value need not be in a list. Names that are
        not given are as in `hw.accelerators.magnet`. Default: 72 points.
    networks : Network, str, path or sequence of them, optional
        Energies and times are sums over them.
    objective : str or sequence of str, optional
        Columns of the result to minimize; ``-name`` maximizes. ``energy``, ``seconds``, ``area``, ``edp``,
        ``dram_energy``, or a number of the study, such as ``-accuracy``. The first one decides which point is the best.
    base : Machine, str or path, optional
        A machine of your own, its TOML file, or the name of a published one, whose values `set` changes. It excludes
        `space`, whose machine is MAGNet.
    set : mapping of str to sequence, optional
        Values to try of keys of the base, as of `hw.Machine.set`: ``{"buffer.kib": [64, 128], "mac.weights": ["int8",
        "int4"]}``.
    study : Study, mapping or sequence of dict, optional
        A study (`heterocompute.study`) of the formats, or its ``to_dict()``. Its results are added to the rows with the
        same formats of weights and activations.
    batch : int, optional
    budget : int, optional
        Maximum number of points. They are drawn at random from a larger space.
    seed : int, optional
    rng : int or numpy.random.Generator, optional
        In place of `seed`: an int is the seed, a generator draws it (SPEC 7).
    workers : int, str or callable, optional
        Number of processes, ``"dask:ADDRESS"``, ``"ray:ADDRESS"``, or a function like `map`, as in
        `heterocompute.quantize_checkpoint`. Default: this process. The result does not depend on it.
    progress : callable or bool, optional
        Called as ``progress(done, total, text)`` after each point. True: a bar of tqdm. False: nothing. Default: a bar
        in notebooks.
    keep : str or os.PathLike, optional
        File of evaluated points. Each point is appended as soon as it is evaluated. A later call with the same file
        reads these points instead of evaluating them, also after an interruption, and for another space or objective.

    Returns
    -------
    Exploration

    Raises
    ------
    ValueError
        A name or value is unknown, the space is empty, a column does not exist, no point runs the networks, or the
        file `keep` holds something else.
    TypeError
        The space is not a mapping, or `workers` has the wrong type.
    OSError
        The file `keep` cannot be read or written.

    Notes
    -----
    Venkatesan et al., "MAGNet: A Modular Accelerator Generator for Neural Networks", ICCAD 2019. Area is that of gates
    and memory cells, without periphery, wires and control. Use it for comparisons.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> found = hw.explore({"dataflow": ["ws", "os-lws"], "lanes": [8, 16]}, "digits")
    >>> len(found.table), found.best["dataflow"]
    (4, 'os-lws')
    >>> sizes = hw.explore(base="tpu_v1", set={"sizes.rows": [64, 256]}, networks="digits", objective="area")
    >>> sizes.best["sizes.rows"]
    64
    """
    who = checked_workers(workers, "explore")
    tell = reported(progress, "explore")
    own = _base(base, space, set)
    given: Mapping[str, Any] = set or {} if own is not None else SPACE if space is None else space
    points = _points(given, budget, seed_from("explore", seed, rng), own)
    nets = tuple(as_network(one) for one in _several(networks))
    batch = check_count("explore", "batch", batch)
    measured, metrics = _measured(study)
    known = {**dict.fromkeys((*COSTS, "operations_joule", "operations_mm2", "arithmetic_share"), 0.0), **metrics}
    names = _objective(objective, [known])
    rows = _rows([(point, nets, batch, own) for point in points], who, Points(keep, nets, batch, own), tell)
    measured_rows = [row | measured.get(operands(str(row["format"])), metrics) for row in rows if "reason" not in row]
    refused = [row for row in rows if "reason" in row]
    if not measured_rows:
        raise WrongValue(f"explore: no point runs the networks; the first one: {refused[0]['reason']}")
    measured_rows.sort(key=lambda row: [_value(row, name) for name in names])
    varied = (*FIELDS, "format") if own is None else (*given, "format")
    return Exploration(tuple(net.name for net in nets), names, measured_rows, refused, tuple(metrics), varied)


def _rows(tasks: list[Task], who: Workers, points: Points, progress: Progress | None) -> list[Point]:
    """Return the row of each task: stored rows, and rows that workers evaluate."""
    found = [points.find(point) for point, *_ in tasks]
    left = [i for i, row in enumerate(found) if row is None]
    done = len(tasks) - len(left)
    if progress is not None and done:
        progress(done, len(tasks), "kept")
    for i, row in in_workers(who, point_cost, [tasks[i] for i in left], "explore", processes=True):
        points.add(tasks[left[i]][0], row)
        found[left[i]], done = row, done + 1
        if progress is not None:
            progress(done, len(tasks), f"point {left[i]}")
    return [row for row in found if row is not None]


def _several(networks: object) -> list[Any]:
    if isinstance(networks, (list, tuple)) and all(isinstance(one, (str, Network, os.PathLike)) for one in networks):
        if not networks:
            raise WrongValue("explore: networks is empty, expected at least one")
        return list(networks)
    return [networks]


def _base(base: object, space: object, changes: object) -> Machine | None:
    """Return the machine whose keys are changed, or None for MAGNet's space."""
    if base is None:
        if changes is not None:
            raise WrongValue("explore: set changes keys of a machine, expected base, too")
        return None
    if space is not None:
        raise WrongValue("explore: base and space are given, expected one of them: set changes keys of base")
    if changes is not None and not isinstance(changes, Mapping):
        raise WrongType(f"explore: set is {shown(changes)}, expected a mapping such as {{'buffer.kib': [64, 128]}}")
    found = machine_of("explore", base)
    for path in changes or {}:
        check_key(found, "explore: set", path)
    return found


def _points(space: Mapping[str, Any], budget: int, seed: int, own: Machine | None = None) -> list[Point]:
    if not isinstance(space, Mapping):
        raise WrongType(f"explore: space is {shown(space)}, expected a mapping such as {{'lanes': [8, 16]}}")
    budget = check_count("explore", "budget", budget)
    seed = as_int(seed, "explore: seed", 0)
    values: dict[str, list[Any]] = {}
    for name, given in space.items():
        if own is None and name not in (*FIELDS, "format"):
            near = near_words(str(name), (*FIELDS, "format"), 2)
            words = f"; the nearest are {', '.join(near)}" if near else f", expected {', '.join((*FIELDS, 'format'))}"
            raise WrongValue(f"explore: space has {shown(name)}, which is not one of its names{words}")
        values[name] = _distinct(given if is_several(given) else [given])
        if not values[name]:
            raise WrongValue(f"explore: space has no values of {name}")
        for value in values[name]:
            if isinstance(value, Real) and not isinstance(value, int) and not math.isfinite(value):
                raise WrongValue(f"explore: space has {shown(value)} for {name}, expected finite numbers")
    if own is None:
        values.setdefault("format", ["int8"])
    total = math.prod(map(len, values.values()))
    if total <= budget:
        return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
    if total > MOST:
        raise WrongValue(f"explore: the space has {total:.3g} points, at most {MOST:,} can be drawn from")
    found = []
    for place in sorted(random.Random(seed).sample(range(total), budget)):
        point = {}
        for name, listed in reversed(values.items()):
            place, at = divmod(place, len(listed))
            point[name] = listed[at]
        found.append(dict(reversed(point.items())))
    return found


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Return the values without repetitions; they may be lists, which are refused later."""
    found: list[Any] = []
    for value in values:
        if not any(type(value) is type(one) and value == one for one in found):
            found.append(value)
    return found


def _measured(study: object) -> tuple[dict[tuple[str, str], Point], Point]:
    """Return the results of a study by the formats of weights and activations, and an empty row."""
    if study is None:
        return {}, {}
    if isinstance(study, Mapping):  # as Study.to_dict() returns it
        study = SimpleNamespace(table=study.get("rows"))
    table = getattr(study, "table", study)
    if not isinstance(table, Sequence) or not all(isinstance(row, Mapping) and "format" in row for row in table):
        raise WrongType(f"explore: study is {shown(study)}, expected a Study, or rows with a format each")
    names = getattr(study, "metrics", None)
    if names is None:
        names = list(dict.fromkeys(key for row in table for key in row if key not in NO_METRIC))
    reserved = sorted({*names} & {*COSTS, *FIELDS})
    names = [name for name in names if name not in reserved]
    found: dict[tuple[str, str], Point] = {}
    for row in table:
        if row.get("emulate") is None and row.get("retrained") is None and row.get("activations") is not None:
            numbers = {name: row.get(name) for name in names}
            found.setdefault((str(row["format"]), str(row["activations"])), numbers)
    return found, dict.fromkeys(names)


def _objective(objective: str | Sequence[str], rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    wanted = "a column or a sequence of them"
    names = (objective,) if isinstance(objective, str) else tuple(as_list(objective, "explore: objective", wanted))
    texts = {*FIELDS, "format"}
    columns = [name for name in (rows[0] if rows else {}) if name not in texts]
    for name in names:
        if not isinstance(name, str) or name.removeprefix("-") not in columns:
            raise WrongValue(f"explore: objective has {shown(name)}, expected columns among {', '.join(columns)}")
    if not names:
        raise WrongValue(f"explore: objective is empty, expected columns among {', '.join(columns)}")
    return names


def _value(row: Mapping[str, Any], name: str) -> float:
    """Return a number of a row, where smaller is better; infinity if it has none."""
    found = row[name.removeprefix("-")]
    if found is None or found != found:  # NaN has no order
        return math.inf
    return -float(found) if name.startswith("-") else float(found)


def point_cost(task: Task) -> Point:
    """Return the row of one point, or why it has none; a function that other processes find by its name.

    Parameters
    ----------
    task : (dict, tuple of Network, int, Machine or None)
        The point, the networks, the batch, the base.
    """
    point, networks, batch, base = task
    try:
        machine = _machine(point) if base is None else base.set(point)
        area = math.fsum(machine.area.values())
        reports = [machine.report(network, batch) for network in networks]
    except (ValueError, TypeError, NotImplementedError) as error:
        return {**point, "reason": str(error)}
    dram = math.fsum(one.energy_parts["DRAM"] for one in reports)
    energy = math.fsum(one.energy for one in reports) - dram
    seconds = math.fsum(one.seconds for one in reports)
    return {
        **point,
        "format": machine.format,
        "energy": energy,
        "seconds": seconds,
        "area": area,
        "edp": energy * seconds,
        "dram_energy": dram,
        "operations_joule": 2 * sum(one.macs for one in reports) / energy,
        "operations_mm2": machine.peak() / area if area else 0.0,
        "arithmetic_share": math.fsum(one.energy_parts["arithmetic"] for one in reports) / energy,
    }


def _machine(point: Point) -> Machine:
    design = Design(**{name: value for name, value in point.items() if name != "format"})
    return _built(design, str(point["format"]))


@functools.lru_cache(maxsize=4096)
def _built(design: Design, format: str) -> Machine:
    return design.machine("design", (format,))
