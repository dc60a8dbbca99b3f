"""A machine of your own as a TOML file: levels of memory from the outermost in, and one multiply-add unit.

Energies follow from kinds, sizes, process, voltage and format by the component models of the package (`energies`,
`silicon.gate_costs`, `hw.mac`); each can be given instead. The machine becomes an `Accelerator`, whose mapper runs it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ...base.errors import WrongType, WrongValue, shown
from ...base.texts import near_words, shortened
from ...base.toml_text import read_toml
from ...base.values import as_list, check_choice, check_count, check_flag, check_number, check_text
from ..silicon.gate_costs import PROCESSES, sram_area
from ..silicon.operands import operand
from .accelerator import ALL, Accelerator, Store
from .energies import DRAMS, sram
from .mapped import mapped_cost, multiplier
from .report import AcceleratorReport

__all__ = ["Machine"]

MAX_BYTES = 1 << 16  # of a file
MAX_LEVELS, MAX_UNITS, MAX_SIZE = 24, 1 << 24, 1 << 50
KEYS = ("name", "process", "voltage", "clock", "level", "mac")
MEMORY = ("kind", "kib", "bytes", "width", "banks", "bandwidth", "keeps", "loops", "sums", "pj", "mm2")
FAN = ("count", "spread")
MAC = ("lanes", "spread", "weights", "activations", "sums", "zeros", "pj", "mm2")
TENSORS = {"weights": "W", "inputs": "I", "outputs": "O"}


@dataclass(frozen=True, repr=False)
class Machine:
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
        Number formats of weights and activations.
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
    ...     "level": [{"name": "dram", "kind": "lpddr4", "bandwidth": 50e9},
    ...               {"name": "buffer", "kib": 512, "width": 256, "banks": 8},
    ...               {"name": "pe", "count": [16, 16], "spread": ["K", "C"]},
    ...               {"name": "regs", "bytes": 64, "keeps": ["weights"]}],
    ...     "mac": {"weights": "int8", "activations": "int8", "sums": 24}})
    >>> mine.multipliers, mine.peak() / 1e12
    (256, 0.512)
    """

    table: Mapping[str, Any] = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", _checked(self.table))
        _ = self.accelerator

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Machine:
        """Read a machine from a TOML file.

        Parameters
        ----------
        path : str or os.PathLike

        Returns
        -------
        Machine

        Raises
        ------
        ValueError
            The file is not TOML or longer than 64 KiB, a key or a kind is unknown, a level keeps nothing, or spreads do
            not fit the counts.
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
        ...   {name = "dram", kind = "lpddr4", bandwidth = 50e9},
        ...   {name = "buffer", kib = 512, width = 256, banks = 8},
        ...   {name = "pe", count = [16, 16], spread = ["K", "C"]},
        ...   {name = "regs", bytes = 64, keeps = ["weights"]},
        ... ]
        ... mac = {weights = "int8", activations = "int8", sums = 24}''')
        >>> hw.Machine.read("mine.toml").multipliers
        256
        """
        return cls(read_toml(path, MAX_BYTES))

    def set(self, changes: Mapping[str, Any]) -> Machine:
        """Return the machine with other values.

        Parameters
        ----------
        changes : mapping of str to value
            By the key of the file, with the name of the level before it: ``{"clock": 5e8, "buffer.kib": 256,
            "mac.weights": "int4"}``.

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
        table = {key: value for key, value in self.table.items() if key not in ("level", "mac")}
        parts: dict[str, dict[str, Any]] = {one["name"]: dict(one) for one in self.table["level"]}
        parts["mac"] = dict(self.table["mac"])
        for path, value in changes.items():
            name, dot, key = check_text("Machine.set", "key of changes", path).rpartition(".")
            if not dot:
                table[key] = value
            elif name not in parts:
                raise WrongValue(f"Machine.set: level is {shown(name)}, {_near(name, parts)}")
            else:
                parts[name][key] = value
        mac = parts.pop("mac")
        return Machine({**table, "level": list(parts.values()), "mac": mac})

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
        return float(self.table["clock"])

    @property
    def format(self) -> str:
        mac = self.table["mac"]
        weights, activations = mac["weights"], mac.get("activations", mac["weights"])
        return str(weights) if weights == activations else f"{weights} x {activations}"

    @property
    def multipliers(self) -> int:
        counts = (count for one in self.table["level"] for count in one.get("count", ()))
        return int(math.prod(counts)) * int(self.table["mac"].get("lanes", 1))

    @cached_property
    def area(self) -> dict[str, float]:
        found, units = {}, 1
        for one in self.table["level"]:
            if "mm2" in one or (_size(one) is not None and "kind" not in one):
                cells = sram_area(8 * (_size(one) or 0), self.process) / 1e6
                found[one["name"]] = units * float(one.get("mm2", cells))
            units *= math.prod(one.get("count", ()))
        mac = self.table["mac"]
        lane = multiplier(self.format, _sums(mac), int(mac.get("lanes", 1)), self.process).area_um2 / 1e6
        found["mac"] = self.multipliers * float(mac.get("mm2", lane))
        return found

    def peak(self) -> float:
        """Return the peak operations/s, two per multiply-add.

        Returns
        -------
        float
        """
        return self.accelerator.peak()

    def report(self, model: object, batch: int = 1, **options: Any) -> AcceleratorReport:
        """Compute seconds, joules by part, utilisation and DRAM bytes of an inference, by the best mapping found.

        Parameters
        ----------
        model, batch, **options
            As of `Accelerator.report`, without a format. The voltage is the machine's unless it is given.

        Returns
        -------
        AcceleratorReport
        """
        return self.accelerator.report(model, None, batch, **{"voltage": self.voltage, **options})

    @cached_property
    def accelerator(self) -> Accelerator:
        mac = self.table["mac"]
        lanes, own = int(mac.get("lanes", 1)), mac.get("pj")
        stores = self._stores(lanes)
        return Accelerator(
            name=self.name,
            title=f"{self.multipliers:,} multipliers at {self.clock / 1e9:.4g} GHz, {self.process}",
            source="a file of its own",
            year=None,
            process=self.process,
            clock=self.clock,
            formats={self.format: self.multipliers},
            cost=mapped_cost,
            stores=lambda _: stores,
            accumulator_bits=_sums(mac),
            vector=lanes,
            mac_pj=None if own is None else float(own),
            waits="memory",
            gated="WI" if mac.get("zeros") == "gate" else "",
            notes=("clock tree, control, leakage and wires have no model",),
        )

    def _stores(self, lanes: int) -> tuple[Store, ...]:
        stores: list[Store] = []
        units = 1
        for one in self.table["level"]:
            if not _is_fan(one) or _size(one) is not None:
                stores.append(self._memory(one, units))
            for count, dims in zip(one.get("count", ()), one.get("spread", ()), strict=True):
                _fan_out(stores, one["name"], units, dims)
                units *= count
        if lanes > 1:
            _fan_out(stores, "lanes", units, str(self.table["mac"].get("spread", "C")))
        return tuple(stores)

    def _memory(self, one: Mapping[str, Any], units: int) -> Store:
        size, kind, banks = _size(one), str(one.get("kind", "")), int(one.get("banks", 1))
        pj = DRAMS[kind] if kind in DRAMS else sram((size or 0) / banks, self.process)
        rate = one.get("bandwidth")
        if rate is None and "width" in one:
            rate = one["width"] / 8 * banks * self.clock
        return Store(
            one["name"],
            None if size is None else int(size),
            float(one.get("pj", pj)),
            "".join(TENSORS[tensor] for tensor in one.get("keeps", TENSORS)),
            units,
            loops=one.get("loops", ALL),
            wide="O" if one.get("sums", "kind" not in one) else "",
            bandwidth=None if rate is None else float(rate),
            part="DRAM" if "kind" in one else "",
        )

    def __repr__(self) -> str:
        return f"<Machine {self.name}: {self.accelerator.title}, {self.voltage:g} V, {self.format}>"


def _fan_out(stores: list[Store], name: str, units: int, dims: str) -> None:
    """Let loops spread below the last store; a store that already spreads gets a store without tensors below it."""
    if stores[-1].over:
        stores.append(Store(f"{name} {dims}", None, 0.0, "", units, loops=""))
    stores[-1] = replace(stores[-1], over=dims)


def _size(one: Mapping[str, Any]) -> float | None:
    return 1024 * one["kib"] if "kib" in one else one.get("bytes")


def _is_fan(one: Mapping[str, Any]) -> bool:
    return "count" in one and "kind" not in one


def _sums(mac: Mapping[str, Any]) -> int:
    return int(mac.get("sums", 32))


def _near(word: object, words: Sequence[str] | Mapping[str, Any]) -> str:
    near = near_words(str(word), words, 1)
    return f"the nearest is {near[0]}" if near else f"expected one of {', '.join(words)}"


def _known(where: str, table: object, keys: Sequence[str], needed: Sequence[str] = ()) -> dict[str, Any]:
    if not isinstance(table, Mapping):
        raise WrongType(f"Machine: {where} is {shown(table)}, expected a table")
    for key in table:
        if key not in keys:
            raise WrongValue(f"Machine: {where} has key {shown(key)}, {_near(key, keys)}")
    for key in needed:
        if key not in table:
            raise WrongValue(f"Machine: {where} has no {key}, expected {', '.join(needed)}")
    return dict(table)


def _checked(table: object) -> dict[str, Any]:
    """Return the table with its values checked and in one spelling."""
    found = _known("file", table, KEYS, ("name", "process", "clock", "level", "mac"))
    found["name"] = shortened(check_text("Machine", "name", found["name"]))
    process = check_text("Machine", "process", found["process"]).replace(" ", "")
    found["process"] = check_choice("Machine", "process", process, PROCESSES)
    found["clock"] = check_number("Machine", "clock", found["clock"])
    if "voltage" in found:
        found["voltage"] = check_number("Machine", "voltage", found["voltage"], high=10.0)
    levels = as_list(found["level"], "Machine: level", "tables")
    if not 1 <= len(levels) <= MAX_LEVELS:
        raise WrongValue(f"Machine: level has {len(levels)} tables, expected 1 to {MAX_LEVELS}")
    found["level"] = [_level(one) for one in levels]
    names = [one["name"] for one in found["level"]]
    for name in names:
        if names.count(name) > 1 or name == "mac":
            raise WrongValue(f"Machine: two levels have the name {shown(name)}")
    first = found["level"][0]
    if _is_fan(first) or len(first.get("keeps", TENSORS)) < len(TENSORS):
        raise WrongValue(f"Machine: level {shown(names[0])} is the outermost, expected a memory that keeps everything")
    found["mac"] = _mac(found["mac"])
    counts = [count for one in found["level"] for count in one.get("count", ())]
    if math.prod(counts) * found["mac"].get("lanes", 1) > MAX_UNITS:
        raise WrongValue(f"Machine: counts and lanes make more than {MAX_UNITS:,} multipliers")
    return found


def _level(table: object) -> dict[str, Any]:
    one = _known("level", table, ("name", *MEMORY, *FAN), ("name",))
    name = one["name"] = shortened(check_text("Machine", "name of a level", one["name"]))
    where = f"level {shown(name)}"
    if "kind" in one:
        kind = one["kind"] = check_text("Machine", f"kind of {where}", one["kind"]).lower()
        if kind not in DRAMS and "pj" not in one:
            raise WrongValue(
                f"Machine: kind of {where} is {shown(kind)}, {_near(kind, DRAMS)}; another kind needs pj (a bit)"
            )
        if "kib" in one or "bytes" in one:
            raise WrongValue(f"Machine: {where} is DRAM, which has no size here")
    elif not {"kib", "bytes", "count"} & set(one):
        raise WrongValue(f"Machine: {where} has neither kind, kib, bytes nor count, so it is no memory and no fan-out")
    if "kib" in one and "bytes" in one:
        raise WrongValue(f"Machine: {where} has kib and bytes, expected one of them")
    if not {"kind", "kib", "bytes"} & set(one):
        for key in MEMORY:
            if key in one:
                raise WrongValue(f"Machine: {where} has {key}, which only a memory has: kib or bytes")
    for key, high in (("kib", MAX_SIZE >> 10), ("bytes", MAX_SIZE), ("bandwidth", 1e18), ("pj", 1e9), ("mm2", 1e6)):
        if key in one:
            one[key] = check_number("Machine", f"{key} of {where}", one[key], high=high, closed=key in ("pj", "mm2"))
    for key in ("width", "banks"):
        if key in one:
            one[key] = check_count("Machine", f"{key} of {where}", one[key])
    if "width" in one and "bandwidth" in one:
        raise WrongValue(f"Machine: {where} has width and bandwidth, expected one of them")
    if "keeps" in one:
        one["keeps"] = as_list(one["keeps"], f"Machine: keeps of {where}", "names of tensors")
        for tensor in one["keeps"]:
            if tensor not in TENSORS:
                raise WrongValue(f"Machine: keeps of {where} has {shown(tensor)}, {_near(tensor, TENSORS)}")
        if not one["keeps"]:
            raise WrongValue(f"Machine: {where} keeps nothing, expected some of {', '.join(TENSORS)}")
    if "sums" in one:
        one["sums"] = check_flag("Machine", f"sums of {where}", one["sums"])
    if "loops" in one:
        one["loops"] = _dims(f"loops of {where}", one["loops"], True)
    _spreads(where, one)
    return one


def _spreads(where: str, one: dict[str, Any]) -> None:
    for key in ("count", "spread"):
        if key in one:
            single = isinstance(one[key], (int, str))
            one[key] = as_list([one[key]] if single else one[key], f"Machine: {key} of {where}", "values")
    counts, spreads = len(one.get("count", ())), len(one.get("spread", ()))
    if counts != spreads:
        raise WrongValue(
            f"Machine: {where} has {counts} counts and {spreads} spreads, expected the loops that spread over each"
        )
    if "count" in one:
        one["count"] = [check_count("Machine", f"count of {where}", count) for count in one["count"]]
        one["spread"] = [_dims(f"spread of {where}", dims) for dims in one["spread"]]


def _dims(what: str, dims: object, empty: bool = False) -> str:
    text = dims if empty and dims == "" else check_text("Machine", what, dims)
    if not isinstance(text, str) or set(text) - set(ALL) or len(set(text)) != len(text):
        raise WrongValue(f"Machine: {what} is {shown(dims)}, expected letters of {ALL}, each once")
    return text


def _mac(table: object) -> dict[str, Any]:
    mac = _known("mac", table, MAC, ("weights",))
    for key in ("weights", "activations"):
        if key in mac:
            operand(check_text("Machine", f"{key} of mac", mac[key]))
    for key, high in (("lanes", MAX_UNITS), ("sums", 128)):
        if key in mac and check_count("Machine", f"{key} of mac", mac[key]) > high:
            raise WrongValue(f"Machine: {key} of mac is {shown(mac[key])}, expected at most {high}")
    if "spread" in mac:
        mac["spread"] = _dims("spread of mac", mac["spread"])
    for key in ("pj", "mm2"):
        if key in mac:
            mac[key] = check_number("Machine", f"{key} of mac", mac[key], closed=True)
    if "zeros" in mac and mac["zeros"] not in ("none", "gate"):
        raise WrongValue(
            f"Machine: zeros of mac is {shown(mac['zeros'])}, expected none or gate; machines that skip zeros are "
            "hw.accelerators.eie and scnn"
        )
    return mac
