"""The named chips: data in devices.toml, one block per device, units in the keys.

Unknown figures are absent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import Any

from ...base.errors import WrongType, WrongValue, printable, shown
from ...base.texts import near_words, quoted, shortened
from ...base.toml_text import read_toml
from ...base.values import as_list, check_choice
from .chip import KINDS, Device
from .host import host

__all__ = ["device", "devices", "load_devices"]

FILE = Path(__file__).with_name("devices.toml")
MAX_FILE_BYTES = 1 << 22

# Key of a block -> (attribute, factor to the base unit).
_FIGURES: Mapping[str, tuple[str, int]] = {
    "memory_gib": ("memory", 2**30),
    "memory_gb": ("memory", 10**9),
    "on_chip_mib": ("on_chip", 2**20),
    "on_chip_mb": ("on_chip", 10**6),
    "bandwidth_gb_s": ("bandwidth", 10**9),
    "tdp_w": ("tdp", 1),
    "die_mm2": ("die_mm2", 1),
    "memory": ("memory", 1),  # as `Device` takes them, in base units
    "on_chip": ("on_chip", 1),
    "bandwidth": ("bandwidth", 1),
    "tdp": ("tdp", 1),
}
_RATES: Mapping[str, tuple[str, int]] = {
    "peak_tops": ("peak", 10**12),
    "sparse_tops": ("sparse", 10**12),
    "links_gb_s": ("links", 10**9),
    "peak": ("peak", 1),
    "sparse": ("sparse", 1),
    "links": ("links", 1),
}
_TEXTS = ("title", "kind", "process", "note")
_OTHERS = ("year", "aliases", "clock", "source", "unverified")


def device(name: str | Device) -> Device:
    """Return a device of the database by its name or an alias; a `Device` is returned unchanged.

    Parameters
    ----------
    name : str or Device
        ``"<chip>-<variant>"`` in lower case, such as ``"a100-sxm-80gb"``; ``"host"`` is this machine (see `host`);
        or the path of a TOML file with one device (see `load_devices`).

    Returns
    -------
    Device

    Raises
    ------
    ValueError
        The device is unknown; the message has the nearest names. Or a file has several devices.
    TypeError
        name is neither a str nor a Device.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.device("v100-sxm2").bandwidth
    900000000000.0
    """
    if isinstance(name, Device):
        return name
    if not isinstance(name, str):
        raise WrongType(f"device: {shown(name)} of type {type(name).__name__}, expected a name or a Device")
    if name.endswith(".toml"):
        found = list(load_devices(name).values())
        if len(found) != 1:
            words = ", ".join(printable(one.name) for one in found) or "none"
            raise WrongValue(
                f"device: {shown(name)} has {words}, expected one device; hw.load_devices reads all "
                "(--device-file of the command line)"
            )
        return found[0]
    plain = name.strip().lower().replace("_", "-").replace(" ", "-")
    if plain == "host":
        return host()
    table = _table()
    names = {alias: one for one in table.values() for alias in (one.name, *one.aliases)}
    if plain not in names:
        starts = [one for one in names if plain and one.startswith(plain[:64])]
        near = list(dict.fromkeys([*starts, *near_words(plain, names, 4)]))[:5]
        words = f"the nearest are {', '.join(near)}" if near else "'heterocompute devices' and hw.devices() list them"
        raise WrongValue(f"device: {shown(name)} is not a known device; {words}")
    return names[plain]


def as_devices(function: str, values: object) -> list[Device]:
    """Return one device, or several, as a list.

    Parameters
    ----------
    function : str
        What asks.
    values : str, Device, or iterable of them

    Raises
    ------
    ValueError, TypeError
        A name is unknown; or the value cannot be iterated.
    """
    listed = (
        [values]
        if isinstance(values, (str, Device))
        else as_list(values, f"{function}: devices", "names of devices or Devices")
    )
    try:
        return [device(one) for one in listed]
    except (WrongValue, WrongType) as error:
        raise type(error)(f"{function}: {str(error).removeprefix('device: ')}") from None


def devices(kind: str | None = None, year: int | None = None) -> dict[str, Device]:
    """Return the devices of the database, by name.

    Parameters
    ----------
    kind : str, optional
        Only devices of this kind: gpu, tpu, npu, cpu, fpga, asic, phone or system.
    year : int, optional
        Only devices of this year.

    Returns
    -------
    dict of str to Device

    Raises
    ------
    ValueError
        The kind is unknown, or the year is not an integer.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> [name for name in hw.devices(kind="gpu", year=2016)]
    ['p4', 'p40', 'p100-sxm2', 'p100-pcie-12gb']
    """
    if kind is not None:
        check_choice("devices", "kind", kind, KINDS)
    if year is not None and (isinstance(year, bool) or not isinstance(year, int)):
        raise WrongValue(f"devices: year is {shown(year)}, expected an integer")
    return {
        name: one
        for name, one in _table().items()
        if (kind is None or one.kind == kind) and (year is None or one.year == year)
    }


def load_devices(path: str | os.PathLike[str]) -> dict[str, Device]:
    """Read devices from a TOML file with one block ``[device.NAME]`` each, as in the package's own table.

    Parameters
    ----------
    path : str or os.PathLike
        The keys of a block are the arguments of `Device`, in base units: ``peak = { int8 = 4e12 }``. Keys with a unit
        are the same in that unit: peak_tops, sparse_tops, memory_gib, memory_gb, on_chip_mib, on_chip_mb,
        bandwidth_gb_s, tdp_w, links_gb_s. The clock has ``{ units, per_clock, ghz }`` for each type.

    Returns
    -------
    dict of str to Device

    Raises
    ------
    ValueError
        The file is not TOML, a key is unknown, or a figure is not a positive number.
    OSError
        The file cannot be read.

    Examples
    --------
    >>> from pathlib import Path
    >>> from heterocompute import hardware as hw
    >>> _ = Path("mine.toml").write_text('[device.mine]\\npeak_tops = { int8 = 4 }\\nbandwidth_gb_s = 50\\n')
    >>> hw.load_devices("mine.toml")["mine"].ridge("int8")
    80.0
    """
    return _parse(read_toml(path, MAX_FILE_BYTES, _decimal), printable(os.fsdecode(path)))


def _decimal(text: str) -> Decimal:
    """Return a number of TOML; infinity if its exponent is too large."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("inf")


@cache
def _table() -> dict[str, Device]:
    return load_devices(FILE)


def _parse(content: Mapping[str, Any], place: str) -> dict[str, Device]:
    extra = set(content) - {"device", "sources"}
    if extra:
        raise WrongValue(f"{place}: unknown table {quoted(sorted(extra)[0])}, expected [sources] and [device.NAME]")
    sources, blocks = content.get("sources", {}), content.get("device", {})
    if not isinstance(sources, dict) or not isinstance(blocks, dict):
        raise WrongValue(f"{place}: 'device' and 'sources' are tables")
    found: dict[str, Device] = {}
    owner_of: dict[str, str] = {}
    for name, block in blocks.items():
        where = f"{place}: device {quoted(name)}"
        if not isinstance(block, dict):
            raise WrongValue(f"{where} is not a table")
        found[name] = _device(name, block, sources, where)
        for alias in (name, *found[name].aliases):
            if alias in owner_of:
                raise WrongValue(f"{where}: the name {quoted(alias)} is taken by {quoted(owner_of[alias])}")
            owner_of[alias] = name
    return found


def _device(name: str, block: Mapping[str, Any], sources: Mapping[str, str], where: str) -> Device:
    known = (*_TEXTS, *_OTHERS, *_RATES, *_FIGURES)
    for key in block:
        if key not in known:
            near = "".join(f", the nearest is {shown(word)}" for word in near_words(key, known))
            raise WrongValue(f"{where}: unknown key {quoted(key)}{near}")
    options: dict[str, Any] = {key: _text(where, key, block[key]) for key in _TEXTS if key in block}
    for key, (attribute, factor) in _FIGURES.items():
        if key in block:
            if attribute in options:
                raise WrongValue(f"{where}: {key} and another unit of it, expected one of them")
            options[attribute] = _scaled(where, key, block[key], factor)
    for key, (attribute, factor) in _RATES.items():
        if key not in block:
            continue
        if attribute in options:
            raise WrongValue(f"{where}: {key} and another unit of it, expected one of them")
        rates = _mapping(where, key, block[key])
        options[attribute] = {one: _scaled(where, f"{key}.{one}", rate, factor) for one, rate in rates.items()}
    if "year" in block:
        if not isinstance(block["year"], int) or isinstance(block["year"], bool):
            raise WrongValue(f"{where}: year is {_short_name(block['year'])}, expected an integer")
        options["year"] = block["year"]
    for key in ("aliases", "unverified"):
        listed = block.get(key, [])
        if not isinstance(listed, list):
            raise WrongValue(f"{where}: {key} is {shown(listed)}, expected a list of texts")
        options[key] = [_text(where, key, one) for one in listed]
    clock = _mapping(where, "clock", block.get("clock", {}))
    options["clock"] = {dtype: _clock(where, dtype, one) for dtype, one in clock.items()}
    source = block.get("source", {})
    cited = {"*": source} if isinstance(source, str) else _mapping(where, "source", source)
    options["source"] = {key: sources.get(text := _text(where, f"source.{key}", value), text)
                         for key, value in cited.items()}  # fmt: skip
    try:
        device_of_entry = Device(name, **options)
    except ValueError as error:
        raise WrongValue(f"{where.split(': device')[0]}: {error}") from None
    for figure in device_of_entry.unverified:
        if figure not in device_of_entry.figures() and figure not in ("year", "process"):
            raise WrongValue(f"{where}: unverified names {quoted(figure)}, which the block does not have")
    return device_of_entry


def _clock(where: str, dtype: str, value: object) -> tuple[float, float, float]:
    keys = ("units", "per_clock", "ghz")
    if not isinstance(value, dict) or set(value) != set(keys):
        raise WrongValue(
            f"{where}: clock.{_short_name(dtype)} is {_short_name(value)}, expected {{ units, per_clock, ghz }}"
        )
    units, per_clock, hertz = (
        _scaled(where, f"clock.{dtype}.{key}", value[key], 10**9 if key == "ghz" else 1) for key in keys
    )
    return units, per_clock, hertz


def _text(where: str, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise WrongValue(f"{where}: {key} is {shown(value)}, expected a text")
    return value


def _mapping(where: str, key: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise WrongValue(f"{where}: {key} is {shown(value)}, expected a table")
    return value


def _scaled(where: str, key: str, value: object, factor: int) -> float:
    """Scale in decimals, so that 989.4 TOPS are exactly 989.4e12."""
    number = Decimal(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else Decimal(0)
    if not number.is_finite() or not 0 < number * factor <= 10**24 or not float(number):
        raise WrongValue(f"{where}: {key} is {_short_name(value)}, expected a positive number")
    return float(number * factor)


def _short_name(value: object) -> str:
    return shortened(str(value), 80) if isinstance(value, (str, Decimal)) else shown(value)
