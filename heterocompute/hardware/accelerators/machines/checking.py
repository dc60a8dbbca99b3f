"""Checks of a machine file: keys, kinds, sizes, spreads. A file that passes is a list of plain levels per format."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ....base.errors import WrongType, WrongValue, printable, shown
from ....base.texts import shortened
from ....base.values import as_list, check_choice, check_count, check_flag, check_number, check_text
from ...chips.database import device
from ...silicon.gate_costs import PROCESSES
from ...silicon.operands import operand
from ..energies import DRAMS, operands, value_bits
from ..mapped import multiply_add
from .keys import (
    CHIP,
    FAN,
    KEYS,
    MAC,
    MAC_AMOUNTS,
    MAX_FORMATS,
    MAX_LEVELS,
    MAX_NOTES,
    MAX_SIZE,
    MAX_SIZES,
    MAX_UNITS,
    MEMORY,
    MODELS,
    NETWORKS,
    OVERHEADS,
    TENSORS,
    checked_mac,
    dims_of,
    is_dram,
    is_fan,
    known,
    near,
    tensors_of,
)  # fmt: skip
from .sizes import amount, applies


@dataclass(frozen=True)
class Plan:
    """A machine in one number format: every value is a number.

    Attributes
    ----------
    format : str
    levels : tuple of dict
    mac : dict
    multipliers : int
    file : dict
        The other keys of the file.
    """

    format: str
    levels: tuple[dict[str, Any], ...]
    mac: dict[str, Any]
    multipliers: int
    file: dict[str, Any]

    @property
    def lanes(self) -> int:
        """Return the products of one unit per cycle."""
        return int(self.mac.get("lanes", 1))

    @property
    def tree(self) -> int:
        """Return the products that are added before the accumulator."""
        return int(self.mac.get("tree", self.lanes))

    @property
    def sums(self) -> int:
        """Return the bits of a stored sum."""
        return int(self.mac.get("sums", 32))


def checked_file(table: object) -> dict[str, Any]:
    """Return the table of a file with its outer keys checked and in one spelling.

    Parameters
    ----------
    table : object
    """
    found = known("file", table, KEYS, ("name", "process", "clock", "mac"))
    if "level" not in found and "model" not in found:
        raise WrongValue("Machine: file has no level, expected name, process, clock, level, mac")
    found["name"] = _text("name", found["name"], 80)
    for key in ("title", "source", "device"):
        if key in found:
            found[key] = _text(key, found[key], 200)
    if "year" in found:
        found["year"] = check_count("Machine", "year", found["year"])
    process = check_text("Machine", "process", found["process"]).replace(" ", "")
    found["process"] = check_choice("Machine", "process", process, PROCESSES)
    if "voltage" in found:
        found["voltage"] = check_number("Machine", "voltage", found["voltage"], high=10.0)
    if "winograd" in found:
        found["winograd"] = check_flag("Machine", "winograd", found["winograd"])
    if "model" in found:
        found["model"] = check_text("Machine", "model", found["model"])
        if found["model"] not in MODELS:
            raise WrongValue(f"Machine: model is {shown(found['model'])}, {near(found['model'], MODELS)}")
        for key in ("level", "winograd", "resident"):
            if key in found:
                raise WrongValue(f"Machine: file has model and {key}, expected one of them")
    found["sizes"] = _sizes(found.get("sizes", {}))
    found["overhead"] = known("overhead", found.get("overhead", {}), OVERHEADS)
    for key, value in found["overhead"].items():
        high = 1e6 if key == "leakage" else 100.0
        found["overhead"][key] = check_number("Machine", f"{key} of overhead", value, high=high, closed=True)
    found["mac"] = known("mac", found["mac"], MAC, () if found.get("formats") else ("weights",))
    if "formats" in found:
        formats = found["formats"]
        if not isinstance(formats, Mapping) or not 1 <= len(formats) <= MAX_FORMATS:
            raise WrongValue(f"Machine: formats is {shown(formats)}, expected 1 to {MAX_FORMATS} tables of sizes")
        found["formats"] = {
            check_text("Machine", "a format", name): known(f"format {shown(name)}", sizes, tuple(found["sizes"]))
            for name, sizes in formats.items()
        }
    levels = as_list(found.get("level", []), "Machine: level", "tables")
    if not 1 <= len(levels) <= MAX_LEVELS and "model" not in found:
        raise WrongValue(f"Machine: level has {len(levels)} tables, expected 1 to {MAX_LEVELS}")
    found["level"] = [known("level", one, ("name", "when", *MEMORY, *FAN), ("name",)) for one in levels]
    for one in found["level"]:
        one["name"] = _text("name of a level", one["name"], 80)
    _used(found)
    found["notes"] = as_list(found.get("notes", []), "Machine: notes", "texts")[: MAX_NOTES + 1]
    if len(found["notes"]) > MAX_NOTES:
        raise WrongValue(f"Machine: notes has more than {MAX_NOTES} texts")
    return found


def _sizes(table: object) -> dict[str, Any]:
    if not isinstance(table, Mapping) or len(table) > MAX_SIZES:
        raise WrongType(f"Machine: sizes is {shown(table)}, expected a table of at most {MAX_SIZES} values")
    for name, value in table.items():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w{0,63}", name):
            raise WrongValue(f"Machine: sizes has the name {shown(name)}, expected letters, digits and _")
        if name in ("weights", "activations", "sums", "mac"):
            raise WrongValue(f"Machine: sizes has the name {shown(name)}, which is that of a value of the format")
        if not isinstance(value, (bool, int, float, str)):
            raise WrongType(f"Machine: size {name} is {shown(value)}, expected a number, true, false or a text")
        if not isinstance(value, (bool, str)):
            check_number("Machine", f"size {name}", value, high=1e30, closed=True)
    return dict(table)


def _text(what: str, value: object, limit: int) -> str:
    """Return a text that a terminal can show."""
    return printable(shortened(check_text("Machine", what, value), limit))


def _used(file: Mapping[str, Any]) -> None:
    """Refuse a size that no key reads, and a model whose sizes are missing."""
    own = MODELS.get(file.get("model", ""), {})
    for name in own:
        if name not in file["sizes"]:
            raise WrongValue(f"Machine: model {file['model']} has no size {name}, expected {', '.join(own)}")
    _of_model(file, file["sizes"])
    used = used_sizes(file)
    for name in file["sizes"]:
        if name not in used:
            raise WrongValue(f"Machine: size {name} is read by no key, expected its name in a value or in when")


def _of_model(file: Mapping[str, Any], sizes: Mapping[str, Any]) -> None:
    """Check the sizes that the model of a machine reads."""
    for name, least in MODELS.get(file.get("model", ""), {}).items():
        value = sizes[name]
        if name == "crossbar":
            check_flag("Machine", "size crossbar", value)
        elif check_count("Machine", f"size {name}", value, least) > 1 << 20:
            raise WrongValue(f"Machine: size {name} is {shown(value)}, expected at most {1 << 20}")


def used_sizes(file: Mapping[str, Any]) -> set[str]:
    """Return the names in values and in ``when``, and those that the model of a machine reads.

    Parameters
    ----------
    file : mapping
    """
    words = re.findall(r"[A-Za-z_]\w*", " ".join(_texts({**file, "sizes": None, "notes": None}, 0)))
    return {*words, *MODELS.get(file.get("model", ""), ())}


def _texts(value: object, depth: int) -> Iterator[str]:
    """Yield the texts of values, and the keys of the tables of ``when``."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping) and depth < 8:
        when = value.get("when")
        yield from (map(str, when) if isinstance(when, Mapping) else ())
        for each in value.values():
            yield from _texts(each, depth + 1)
    elif isinstance(value, (list, tuple)) and depth < 8:
        for each in value:
            yield from _texts(each, depth + 1)


def format_names(file: Mapping[str, Any]) -> list[str]:
    """Return the formats of a file, the default first."""
    mac = file["mac"]
    if "weights" not in mac:
        return list(file["formats"])
    for key in ("weights", "activations"):
        if key in mac:
            operand(check_text("Machine", f"{key} of mac", mac[key]))
    weights, activations = mac["weights"], mac.get("activations", mac["weights"])
    return [weights if weights == activations else f"{weights} x {activations}"]


def planned(file: Mapping[str, Any], format: str) -> Plan:
    """Return a checked file in one format, with every value as a number.

    Parameters
    ----------
    file : mapping
        As `checked_file` returns it.
    format : str
    """
    for one in operands(format):
        operand(one)
    sizes = dict(file["sizes"])
    given = file.get("formats", {}).get(format, {})
    sizes |= {name: amount(f"{name} of format {shown(format)}", value, file["sizes"]) if isinstance(value, str)
              and not isinstance(file["sizes"][name], str) else value for name, value in given.items()}  # fmt: skip
    for name, value in sizes.items():
        if isinstance(value, str):
            _choice(file, name, value)
        elif not isinstance(value, bool):
            check_number("Machine", f"size {name}", value, high=1e30, closed=True)
    _of_model(file, sizes)
    chip = None if "device" not in file else device(file["device"])

    def lookup(name: str) -> float | None:
        room, _, figure = name.partition(".")
        value = getattr(chip, figure, None) if room == "device" and chip is not None else None
        return value if isinstance(value, (int, float)) else None

    names: dict[str, Any] = {**sizes, "weights": value_bits(format, "W"), "activations": value_bits(format, "I")}
    mac = checked_mac({key: amount(f"{key} of mac", value, names, lookup) if key in MAC_AMOUNTS else value
                for key, value in file["mac"].items()})  # fmt: skip
    tree = int(mac.get("tree", mac.get("lanes", 1)))
    adder = int(mac.get("adder", mac.get("sums", 32)))
    names |= {"sums": int(mac.get("sums", 32))}
    names["mac"] = float(mac["pj"]) if "pj" in mac else multiply_add(format, adder, tree, file["process"])
    levels = [
        _level(one, names, lookup)
        for one in file["level"]
        if "when" not in one or applies(f"level {shown(one['name'])}", one["when"], sizes)
    ]
    named = [one["name"] for one in levels]
    for name in named:
        if named.count(name) > 1 or name in ("mac", "sizes", "overhead"):
            raise WrongValue(f"Machine: two levels have the name {shown(name)}")
    if levels and (is_fan(levels[0]) or len(levels[0].get("keeps", TENSORS)) < len(TENSORS)):
        raise WrongValue(f"Machine: level {shown(named[0])} is the outermost, expected a memory that keeps everything")
    if not levels and "model" not in file:
        raise WrongValue("Machine: level has no table that applies to these sizes, expected at least one")
    counts = [count for one in levels for count in one.get("count", ())]
    units = math.prod(counts) * mac.get("lanes", 1)
    if units > MAX_UNITS and "model" not in file:
        raise WrongValue(f"Machine: counts and lanes make more than {MAX_UNITS:,} multipliers")
    rest: dict[str, Any] = {
        "clock": check_number("Machine", "clock", amount("clock", file["clock"], names, lookup)),
        "sizes": sizes,
        "notes": _notes(file, sizes, chip),
    }
    for key in ("watts", "holds"):
        if key in file:
            rest[key] = check_number("Machine", key, amount(key, file[key], names, lookup))
    if "chips" in file:
        rest["chips"] = check_count("Machine", "chips", amount("chips", file["chips"], names, lookup))
    for level in levels:
        if "idle" in level and mac.get("zeros", "none") == "none":
            raise WrongValue(f"Machine: level {shown(level['name'])} has idle, expected zeros of mac as gate or skip")
    if "chips" in file and "holds" not in file:
        raise WrongValue("Machine: file has chips, expected holds, the bytes of weights that one chip holds")
    if "resident" in file and file["resident"] not in named:
        raise WrongValue(f"Machine: resident is {shown(file['resident'])}, {near(file['resident'], named)}")
    return Plan(format, tuple(levels), mac, int(units), {**file, **rest})


def _choice(file: Mapping[str, Any], name: str, value: str) -> None:
    """Refuse a text that no level is there for."""
    wanted = [
        one["when"][name] for one in file["level"] if isinstance(one.get("when"), Mapping) and name in one["when"]
    ]
    choices = [str(one) for each in wanted for one in (each if isinstance(each, list) else [each])]
    if choices and value not in choices:
        raise WrongValue(f"Machine: size {name} is {shown(value)}, {near(value, list(dict.fromkeys(choices)))}")


def filled(text: str, sizes: Mapping[str, Any], title: str | None = None) -> str:
    """Return a text with ``{name}`` replaced by the size of that name, and ``{device}`` by the device's title."""
    values = {**sizes, **({} if title is None else {"device": title})}
    return re.sub(r"\{(\w+)\}", lambda match: str(values.get(match[1], match[0])), text)


def _notes(file: Mapping[str, Any], sizes: Mapping[str, Any], chip: Any) -> tuple[str, ...]:
    found = []
    for one in file["notes"]:
        if isinstance(one, Mapping):
            one = known("note", one, ("text", "when"), ("text",))
            if "when" in one and not applies("note", one["when"], sizes):
                continue
            one = one["text"]
        text = _text("a note", one, 300)
        found.append(filled(text, sizes, None if chip is None else chip.title))
    return tuple(found)


_AMOUNTS: dict[str, tuple[float, bool]] = {  # key of a level: largest value, whether 0 is allowed
    "kib": (MAX_SIZE >> 10, False), "bytes": (MAX_SIZE, False), "bandwidth": (1e18, False), "pj": (1e9, True),
    "read_pj": (1e9, True), "mm2": (1e6, True), "coded": (100.0, False), "wire_pj": (1e9, True),
}  # fmt: skip
_WHOLE = ("width", "banks", "entries", "network_bits")


def _level(table: Mapping[str, Any], names: Mapping[str, Any], lookup: Any) -> dict[str, Any]:
    one = {key: value for key, value in table.items() if key != "when"}
    where = f"level {shown(one['name'])}"
    for key in (*_AMOUNTS, *_WHOLE):
        if isinstance(one.get(key), str):
            one[key] = amount(f"{key} of {where}", one[key], names, lookup)
    _kind(where, one)
    for key, (high, closed) in _AMOUNTS.items():
        if key in one and not (key == "bytes" and isinstance(one[key], Mapping)):
            one[key] = check_number("Machine", f"{key} of {where}", one[key], high=high, closed=closed)
    for key in _WHOLE:
        if key in one:
            whole = int(one[key]) if isinstance(one[key], float) and one[key].is_integer() else one[key]
            one[key] = check_count("Machine", f"{key} of {where}", whole)
    if "width" in one and "bandwidth" in one:
        raise WrongValue(f"Machine: {where} has width and bandwidth, expected one of them")
    for key in ("keeps", "masked", "idle"):
        if key in one:
            one[key] = tensors_of(f"{key} of {where}", one[key])
    if one.get("keeps") == []:
        raise WrongValue(f"Machine: {where} keeps nothing, expected some of {', '.join(TENSORS)}")
    if isinstance(one.get("bytes"), Mapping):
        sizes = known(f"bytes of {where}", one["bytes"], tuple(TENSORS))
        for tensor, value in sizes.items():
            sizes[tensor] = check_number("Machine", f"bytes of {where}", value, high=MAX_SIZE)
        one["bytes"] = sizes
        if set(one["bytes"]) != set(one.get("keeps", TENSORS)):
            raise WrongValue(f"Machine: bytes of {where} has {', '.join(one['bytes']) or 'nothing'}, expected a size "
                             f"for each of {', '.join(one.get('keeps', TENSORS))}")  # fmt: skip
    if "sums" in one:
        one["sums"] = check_flag("Machine", f"sums of {where}", one["sums"])
    if "loops" in one:
        one["loops"] = dims_of(f"loops of {where}", one["loops"], True)
    _spreads(where, one, names, lookup)
    return one


def _kind(where: str, one: dict[str, Any]) -> None:
    if "kind" in one:
        kind = one["kind"] = check_text("Machine", f"kind of {where}", one["kind"]).lower()
        if kind not in DRAMS and kind not in CHIP and "pj" not in one:
            words = near(kind, [*DRAMS, *CHIP])
            raise WrongValue(f"Machine: kind of {where} is {shown(kind)}, {words}; another kind needs pj (a bit)")
        if is_dram(one) and {"kib", "bytes", "entries"} & set(one):
            raise WrongValue(f"Machine: {where} is DRAM, which has no size here")
        if kind == "latches" and not {"entries", "width"} <= set(one):
            raise WrongValue(f"Machine: {where} has latches, expected entries and width (bits of an entry)")
        if kind == "sram" and not {"kib", "bytes"} & set(one):
            raise WrongValue(f"Machine: {where} is SRAM, expected kib or bytes")
    elif not {"kib", "bytes", "count"} & set(one):
        raise WrongValue(f"Machine: {where} has neither kind, kib, bytes nor count, so it is no memory and no fan-out")
    if "kib" in one and "bytes" in one:
        raise WrongValue(f"Machine: {where} has kib and bytes, expected one of them")
    if one.get("kind") == "latches":
        for key in ("kib", "bytes", "banks", "bandwidth"):
            if key in one:
                raise WrongValue(f"Machine: {where} has latches and {key}, expected entries and width alone")
    elif "entries" in one:
        raise WrongValue(f"Machine: {where} has entries, which only latches have")
    if "coded" in one and not is_dram(one):
        raise WrongValue(f"Machine: {where} has coded, which only DRAM has")
    if is_dram(one):
        for key in ("banks", "width", "mm2"):
            if key in one:
                raise WrongValue(f"Machine: {where} has {key}, which DRAM does not have: bandwidth")
    if not {"kind", "kib", "bytes"} & set(one):
        for key in MEMORY:
            if key in one:
                raise WrongValue(f"Machine: {where} has {key}, which only a memory has: kib or bytes")


def _spreads(where: str, one: dict[str, Any], names: Mapping[str, Any], lookup: Any) -> None:
    for key in ("count", "spread"):
        if key in one:
            single = isinstance(one[key], (int, float, str))
            one[key] = as_list([one[key]] if single else one[key], f"Machine: {key} of {where}", "values")
    counts, spreads = len(one.get("count", ())), len(one.get("spread", ()))
    if counts != spreads:
        raise WrongValue(
            f"Machine: {where} has {counts} counts and {spreads} spreads, expected the loops that spread over each"
        )
    if counts > 8:
        raise WrongValue(f"Machine: {where} has {counts} counts, expected at most 8")
    if "count" in one:
        values = [amount(f"count of {where}", count, names, lookup) for count in one["count"]]
        whole = [int(value) if isinstance(value, float) and value.is_integer() else value for value in values]
        one["count"] = [check_count("Machine", f"count of {where}", count) for count in whole]
        one["spread"] = [dims_of(f"spread of {where}", dims) for dims in one["spread"]]
    if "network" in one:
        check_text("Machine", f"network of {where}", one["network"])
        if one["network"] not in NETWORKS:
            raise WrongValue(
                f"Machine: network of {where} is {shown(one['network'])}, {near(one['network'], NETWORKS)}"
            )
        if "count" not in one or "wire_pj" in one:
            raise WrongValue(f"Machine: {where} has a network, expected count and no wire_pj")
    elif "network_bits" in one:
        raise WrongValue(f"Machine: {where} has network_bits, expected a network, too")
    if "wire_pj" in one and "count" not in one:
        raise WrongValue(f"Machine: {where} has wire_pj, expected count: its wires end at the instances below")
