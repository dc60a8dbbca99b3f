"""A machine as a TOML file: levels of memory from the outermost in, and one multiply-add unit.

Energies follow from kinds, sizes, process, voltage and format by the component models of the package (`energies`,
`silicon.gate_costs`, `hw.mac`); each can be given instead. The machine becomes an `Accelerator`, whose mapper runs it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ....base.errors import WrongType, WrongValue, shown
from ....base.lazy import renamed
from ....base.notebooks.shown import Shown, facts_html
from ....base.texts import near_words
from ....base.toml_text import read_toml
from ....base.values import check_text
from ...chips.chip import DTYPES, Device
from ...cost.roofline import Roofline, roofline
from ...silicon.gate_costs import PROCESSES
from ...silicon.operands import operand
from ..accelerator import Accelerator
from ..energies import operands
from ..report import AcceleratorReport
from .building import accelerator_of, area_of
from .checking import Plan, checked_file, format_names, planned, used_sizes
from .fusing import FusedNetwork, fuse_on
from .keys import FAN, KEYS, MAC, MEMORY, OVERHEADS, near

__all__ = ["Machine", "check_key", "machine_names", "machine_of"]

MAX_BYTES = 1 << 16  # of a file
#: Types of a roofline by the bits of an activation.
WIDTHS = (("int4", 4), ("int8", 8), ("fp16", 16), ("fp32", 32), ("fp64", 64))
FOLDER = Path(__file__).with_name("published")


def machine_names() -> list[str]:
    """Return the names of the published machines, which are files of this package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@dataclass(frozen=True, repr=False)
class Machine(Shown):
    """A machine for whole networks, described by a table as of a TOML file.

    Attributes
    ----------
    name : str
    process : str
        One of the processes of `hw.mac`, such as ``"7nm"``.
    voltage : float
        V. Energy on chip scales with its square.
    clock : float
        Hz.
    format : str
        Number formats of weights and activations; the first one if the machine has several.
    sizes : dict
        Named sizes of the file, which `named`, `read` and `set` change.
    multipliers : int
    area : dict of str to float
        mm^2 of each level and of the multipliers: cells and gates, without control and wires.
    accelerator : Accelerator
        The same machine for the mapper.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> mine = hw.Machine({
    ...     "name": "mine", "process": "7 nm", "clock": 1e9,
    ...     "level": [{"name": "dram", "kind": "lpddr5", "bandwidth": 50e9},
    ...               {"name": "buffer", "kib": 512, "width": 256, "banks": 8},
    ...               {"name": "pe", "count": [16, 16], "spread": ["K", "C"]},
    ...               {"name": "regs", "bytes": 64, "keeps": ["weights"]}],
    ...     "mac": {"weights": "int8", "activations": "int8", "sums": 24}})
    >>> mine.multipliers, mine.peak() / 1e12
    (256, 0.512)
    """

    table: Mapping[str, Any] = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", checked_file(self.table))
        _ = self.accelerator

    @classmethod
    def read(cls, path: str | os.PathLike[str], **sizes: Any) -> Machine:
        """Read a machine from a TOML file.

        Parameters
        ----------
        path : str or os.PathLike
        **sizes
            Other values of the file's ``sizes``.

        Returns
        -------
        Machine

        Raises
        ------
        ValueError
            The file is not TOML or longer than 64 KiB, a key or a kind is unknown, a level keeps nothing, spreads do
            not fit the counts, or the file has no such size.
        OSError
            The file cannot be read.

        Examples
        --------
        >>> from heterocompute import hardware as hw
        >>> with open("mine.toml", "w") as file:
        ...     _ = file.write('''name = "mine"
        ... process = "7 nm"
        ... clock = 1e9
        ... level = [
        ...   {name = "dram", kind = "lpddr5", bandwidth = 50e9},
        ...   {name = "buffer", kib = 512, width = 256, banks = 8},
        ...   {name = "pe", count = [16, 16], spread = ["K", "C"]},
        ...   {name = "regs", bytes = 64, keeps = ["weights"]},
        ... ]
        ... mac = {weights = "int8", activations = "int8", sums = 24}''')
        >>> hw.Machine.read("mine.toml").multipliers
        256
        """
        return cls(_with_sizes("Machine.read", read_toml(path, MAX_BYTES), sizes))

    @classmethod
    def named(cls, name: str, **sizes: Any) -> Machine:
        """Return a published machine, with other sizes if they are given.

        Parameters
        ----------
        name : str
            One of `hw.accelerators.names`, such as ``"tpu_v1"``.
        **sizes
            Sizes of the machine's file, such as ``rows=128``; `sizes` lists them. ``process``, ``voltage``, ``clock``
            and ``winograd`` are keys of the file itself.

        Returns
        -------
        Machine

        Raises
        ------
        ValueError
            The name is unknown, or the machine has no such size.

        Examples
        --------
        >>> from heterocompute import hardware as hw
        >>> small = hw.Machine.named("tpu_v1", rows=128)
        >>> small.multipliers, small.sizes["columns"]
        (32768, 256)
        """
        names = machine_names()
        if not isinstance(name, str) or name not in names:
            found = near_words(str(name).lower().replace("-", "_"), names, 3)
            words = f"; the nearest are {', '.join(found)}" if found else f", which are {', '.join(names)}"
            raise WrongValue(f"Machine.named: {shown(name)} is not a published machine{words}")
        return cls(_with_sizes(f"Machine.named: {name}", read_toml(FOLDER / f"{name}.toml", MAX_BYTES), sizes))

    def set(self, changes: Mapping[str, Any]) -> Machine:
        """Return the machine with other values.

        Parameters
        ----------
        changes : mapping of str to value
            By the key of the file, with the name of the level before it: ``{"clock": 5e8, "buffer.kib": 256,
            "mac.weights": "int4", "sizes.rows": 128}``.

        Returns
        -------
        Machine

        Raises
        ------
        ValueError
            No level has the name, or a value is invalid.

        Examples
        --------
        >>> from heterocompute import hardware as hw
        >>> small = hw.Machine({"name": "small", "process": "16nm", "clock": 1e9, "mac": {"weights": "int8"},
        ...                     "level": [{"name": "dram", "kind": "ddr3"}, {"name": "buffer", "kib": 64}]})
        >>> small.set({"buffer.kib": 128, "mac.lanes": 4}).multipliers
        4
        """
        if not isinstance(changes, Mapping):
            raise WrongType(f"Machine.set: changes is {shown(changes)}, expected {{'buffer.kib': 256}}")
        table = dict(self.table)
        table["level"] = [dict(one) for one in self.table["level"]]
        tables = {key: dict(self.table[key]) for key in ("mac", "sizes", "overhead")}
        table |= tables
        for path, value in changes.items():
            name, dot, key = check_text("Machine.set", "key of changes", path).rpartition(".")
            levels = [one for one in table["level"] if one["name"] == name]
            if not dot:
                table[key] = value
            elif name == "sizes" and key not in tables["sizes"]:
                raise WrongValue(f"Machine.set: size is {shown(key)}, {near(key, tables['sizes'])}")
            elif not levels and name not in tables:
                known = [one["name"] for one in table["level"]] + [*tables]
                raise WrongValue(f"Machine.set: level is {shown(name)}, {near(name, known)}")
            for one in [tables[name]] if name in tables else levels if dot else []:
                one[key] = value
        if not table["level"]:
            del table["level"]
        if "sizes" not in changes:  # a key that is a number now may have been the only one to read a size
            used = {*used_sizes(table), *(path.removeprefix("sizes.") for path in changes)}
            table["sizes"] = {name: size for name, size in table["sizes"].items() if name in used}
        return Machine(table)

    @property
    def name(self) -> str:
        return str(self.table["name"])

    @property
    def process(self) -> str:
        return str(self.table["process"])

    @property
    def voltage(self) -> float:
        return float(self.table.get("voltage", PROCESSES[self.process][1]))

    @property
    def clock(self) -> float:
        return float(self._plan.file["clock"])

    @property
    def formats(self) -> tuple[str, ...]:
        return tuple(self._plans)

    @property
    def format(self) -> str:
        return self._plan.format

    @property
    def sizes(self) -> dict[str, Any]:
        return dict(self.table["sizes"])

    @property
    def multipliers(self) -> int:
        return self._plan.multipliers

    @cached_property
    def area(self) -> dict[str, float]:
        return area_of(self._plan)

    @cached_property
    def _plans(self) -> dict[str, Plan]:
        return {name: planned(self.table, name) for name in format_names(self.table)}

    @property
    def _plan(self) -> Plan:
        return next(iter(self._plans.values()))

    def peak(self, format: str | None = None) -> float:
        """Return the peak operations/s, two per multiply-add.

        Parameters
        ----------
        format : str, optional
            One of `formats`. Default: the first.

        Returns
        -------
        float
        """
        return self.accelerator.peak(format)

    @renamed(model="network")
    def report(
        self, network: object, batch: int = 1, *, format: str | None = None, **options: Any
    ) -> AcceleratorReport:
        """Compute seconds, joules by part, utilisation and DRAM bytes of an inference, by the best mapping found.

        Parameters
        ----------
        network, batch, format, **options
            As of `Accelerator.report`. The voltage is the machine's unless it is given.

        Returns
        -------
        AcceleratorReport
        """
        if "voltage" in self.table and options.get("voltage") is None:
            options["voltage"] = self.voltage
        return self.accelerator.report(network, format, batch, **options)

    def roofline(self, network: object, batch: int = 1, **options: Any) -> Roofline:
        """Compute for each layer whether multipliers or the outermost memory limit it, and its least time.

        Parameters
        ----------
        network, batch, **options
            As of `hw.roofline`: `input_shape`, `context`, `kv_cache`.

        Returns
        -------
        Roofline
            Every value crosses the outermost memory once. A lower bound, unless the machine keeps the activations of a
            layer on chip (`resident`).

        Raises
        ------
        ValueError
            The outermost level has no bandwidth.

        Examples
        --------
        >>> from heterocompute import hardware as hw
        >>> hw.Machine.named("tpu_v1").roofline("resnet50").bound
        'memory'
        """
        rate = self._plan.levels[0].get("bandwidth") if self._plan.levels else None
        if rate is None:
            raise WrongValue(f"Machine.roofline: the outermost level of {self.name} has no bandwidth (bytes/s)")
        weights, activations = operands(self.format)
        kind = operand(activations)
        dtype = f"int{kind.bits}" if kind.kind == "int" else f"fp{kind.bits}"
        dtype = dtype if dtype in DTYPES else next(name for name, bits in WIDTHS if kind.bits <= bits)
        chip = Device(self.name, peak={dtype: self.peak()}, bandwidth=rate, process=self.process)
        return roofline(network, chip, dtype, None if weights == activations else weights, batch, **options)

    def fuse(
        self, network: object, batch: int = 1, objective: str = "energy", *, input_shape: Sequence[int] | None = None
    ) -> FusedNetwork:
        """Find the layers that run together, so that values between them stay in the shared buffer.

        Parameters
        ----------
        network : Network, str, path, torch.nn.Module or sequence of layers
        batch : int, optional
        objective : {"energy", "delay"}
            pJ or cycles.
        input_shape : sequence of int, optional
            Shape of one sample, without a batch.

        Returns
        -------
        FusedNetwork
            The groups with the least cost of all cuts of the chain, each with the rows of a tile, rows that two tiles
            need kept or computed again, and weights that stay or are read for each tile. Layers that share a value with
            others, or with pooling between, are not in one group.

        Raises
        ------
        ValueError
            The objective is unknown, or the network has no product.
        NotImplementedError
            The machine has no memory that one instance shares for inputs and outputs.

        Examples
        --------
        >>> from heterocompute import hardware as hw
        >>> chain = hw.as_network([hw.layers.Conv2d(8, 8, 3, padding=1) for _ in range(3)], (8, 32, 32))
        >>> found = hw.Machine.named("eyeriss").fuse(chain)
        >>> len(found.groups), found.dram_bytes < found.to_dict()["unfused"]["dram_bytes"]
        (1, True)
        """
        return fuse_on(network, self.accelerator, objective, batch, self.table.get("voltage"), input_shape)

    @cached_property
    def accelerator(self) -> Accelerator:
        return accelerator_of(self._plans)

    def __repr__(self) -> str:
        shape = f"{self.multipliers:,} multipliers at {self.clock / 1e9:.4g} GHz, {self.process}"
        return f"<Machine {self.name}: {shape}, {self.voltage:g} V, {', '.join(self.formats)}>"

    def _repr_html_(self) -> str:
        areas = {f"{name}, mm²": f"{area:.4g}" for name, area in self.area.items()}
        return facts_html({"machine": repr(self).strip("<>"), "peak": f"{self.peak():.4g} operations/s", **areas})


def check_key(machine: Machine, function: str, path: object) -> None:
    """Refuse a key of `set` that the machine's file cannot have.

    Parameters
    ----------
    function : str
        What asks, for the message.
    path : str

    Raises
    ------
    ValueError
        No level has the name, or there is no such key.
    """
    name, dot, key = check_text(function, "a key", path).rpartition(".")
    tables: dict[str, tuple[str, ...]] = {
        **{one["name"]: (*MEMORY, *FAN) for one in machine.table["level"]},
        "mac": MAC,
        "sizes": tuple(machine.table["sizes"]),
        "overhead": OVERHEADS,
    }
    if dot and name not in tables:
        raise WrongValue(f"{function} has level {shown(name)}, {near(name, tables)}")
    keys = tables[name] if dot else KEYS
    if key not in keys:
        raise WrongValue(f"{function} has key {shown(key)}, {near(key, keys)}")


def machine_of(function: str, value: object) -> Machine:
    """Return a machine from itself, the path of a TOML file, or the name of a published one.

    Parameters
    ----------
    function : str
        What asks, for the message.
    value : Machine, str or path
    """
    if isinstance(value, Machine):
        return value
    if isinstance(value, os.PathLike) or (isinstance(value, str) and value.endswith(".toml")):
        return Machine.read(value)
    if isinstance(value, str):
        return Machine.named(value)
    raise WrongType(f"{function}: machine is {shown(value)}, expected a Machine, the path of a TOML file, or a name")


def _with_sizes(function: str, table: dict[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with other sizes; a few keys of the file itself can be given, too."""
    known = table.get("sizes") if isinstance(table.get("sizes"), dict) else {}
    assert isinstance(known, dict)
    own = ("process", "voltage", "clock", "winograd")
    for name, value in sizes.items():
        if name in known:
            kind = known[name]
            if isinstance(kind, (bool, str)) != isinstance(value, (bool, str)):
                raise WrongType(f"{function}: {name} is {shown(value)}, expected a value such as {shown(kind)}")
            table["sizes"][name] = value
        elif name in own:
            table[name] = value
        else:
            raise WrongValue(f"{function}: size is {shown(name)}, {near(name, [*known, *own])}")
    return table
