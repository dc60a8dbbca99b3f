"""Chips and what they can do at most: peak rates, bandwidth, memory, links, each figure with its source.

The figures are data, in devices.toml: one block a device, units in the keys. What is unknown is absent.
Rates are operations/s, one multiply-add being two operations; dense and 2:4-sparse rates are kept apart.
"""

from __future__ import annotations

import difflib
import numbers
import os
import sys
import tomllib
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

__all__ = ["DTYPES", "KINDS", "Device", "dtype_bits", "device", "devices", "load_devices", "plain_dtype"]

FILE = Path(__file__).with_name("devices.toml")
MAX_FILE_BYTES = 1 << 22
LARGEST = sys.float_info.max
KINDS = ("gpu", "tpu", "npu", "cpu", "fpga", "asic", "phone", "host", "system")

# Types that rates are stated for, with the bits of one stored value.
DTYPES: Mapping[str, int] = MappingProxyType({
    "fp64": 64, "fp64-tensor": 64, "fp32": 32, "tf32": 32, "fp16": 16, "fp16-vector": 16, "fp16-acc16": 16, "bf16": 16,
    "fp8": 8, "fp8-acc16": 8, "fp4": 4, "int16": 16, "int8": 8, "int4": 4,
})  # fmt: skip
SYNONYMS = {
    "float64": "fp64", "double": "fp64", "float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16",
    "bfloat16": "bf16", "fp8_e4m3": "fp8", "fp8_e4m3fn": "fp8", "fp8_e5m2": "fp8", "uint8": "int8", "uint4": "int4",
}  # fmt: skip

# Key of a block -> (attribute, factor to the plain unit).
_FIGURES: Mapping[str, tuple[str, int]] = {
    "memory_gib": ("memory", 2**30),
    "memory_gb": ("memory", 10**9),
    "on_chip_mib": ("on_chip", 2**20),
    "on_chip_mb": ("on_chip", 10**6),
    "bandwidth_gb_s": ("bandwidth", 10**9),
    "tdp_w": ("tdp", 1),
    "die_mm2": ("die_mm2", 1),
}
_RATES = ("peak_tops", "sparse_tops")
_TEXTS = ("title", "kind", "process", "note")
_OTHERS = ("year", "aliases", "links_gb_s", "clock", "source", "unverified")


class Device:
    """A chip, or a system of chips: what it can do at most.

    Parameters
    ----------
    name : str
    peak : mapping of str to float, optional
        Dense operations/s by type: ``{"int8": 624e12}``. One multiply-add is two operations.
    sparse : mapping of str to float, optional
        The same with 2:4 structured sparsity, zeros counted as work.
    bandwidth : float, optional
        Bytes/s to the memory that holds the weights.
    memory, on_chip : float, optional
        Bytes of that memory, and of the last cache or the software-managed SRAM.
    links : mapping of str to float, optional
        Bytes/s to other chips and to the host, both directions together.
    tdp : float, optional
        Watts.
    die_mm2 : float, optional
    year : int, optional
    process : str, optional
        Such as ``"7 nm"``.
    kind : str, optional
        One of gpu, tpu, npu, cpu, fpga, asic, phone, host, system.
    title, note : str, optional
    aliases : iterable of str, optional
    source : mapping of str to str, optional
        Where each figure comes from; keys are figures (``peak``, ``peak.int8``, ``bandwidth``, ...), ``"*"`` the rest.
    unverified : iterable of str, optional
        Figures that no source confirms, named as in `source`.
    clock : mapping of str to (float, float, float), optional
        For a type: (units, operations of one unit in a clock, clock in Hz). Their product should be the peak.

    Raises
    ------
    ValueError
        A figure that is no positive number, an unknown type or kind, a type twice, a year that is no integer.
    TypeError
        Rates that are no mapping.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> mine = hw.Device("mine", peak={"int8": 4e12}, bandwidth=5e10)
    >>> mine.ridge("int8")
    80.0
    """

    def __init__(
        self,
        name: str,
        peak: Mapping[str, float] | None = None,
        bandwidth: float | None = None,
        memory: float | None = None,
        tdp: float | None = None,
        *,
        sparse: Mapping[str, float] | None = None,
        on_chip: float | None = None,
        links: Mapping[str, float] | None = None,
        die_mm2: float | None = None,
        year: int | None = None,
        process: str | None = None,
        kind: str = "asic",
        title: str | None = None,
        note: str | None = None,
        aliases: Iterable[str] = (),
        source: Mapping[str, str] | None = None,
        unverified: Iterable[str] = (),
        clock: Mapping[str, tuple[float, float, float]] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"Device: name is {name!r}, wanted a non-empty str")
        place = f"device {name!r}"
        if kind not in KINDS:
            raise ValueError(f"{place}: kind is {kind!r}, wanted one of {', '.join(KINDS)}")
        self.name, self.kind, self.title = name, kind, title or name
        self.dense_rates = _rates(place, "peak", peak)
        self.sparse_rates = _rates(place, "sparse", sparse)
        self.bandwidth = _positive(place, "bandwidth", bandwidth)
        self.memory = _positive(place, "memory", memory)
        self.on_chip = _positive(place, "on_chip", on_chip)
        self.tdp = _positive(place, "tdp", tdp)
        self.die_mm2 = _positive(place, "die_mm2", die_mm2)
        self.links: Mapping[str, float] = {
            link: _number(place, f"links.{link}", rate) for link, rate in (links or {}).items()
        }
        if year is not None and (isinstance(year, bool) or not isinstance(year, int)):
            raise ValueError(f"{place}: year is {year!r}, wanted an integer")
        self.year, self.process, self.note = year, process, note
        self.aliases, self.unverified = tuple(aliases), tuple(unverified)
        self.source: Mapping[str, str] = dict(source or {})
        self.clock: Mapping[str, tuple[float, float, float]] = dict(clock or {})

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The types that have a dense rate.

        Returns
        -------
        tuple of str
        """
        return tuple(self.dense_rates)

    def peak(self, dtype: str, sparse: bool = False) -> float:
        """Return the peak rate of a type.

        Parameters
        ----------
        dtype : str
            Such as ``"fp16"``, ``"int8"``; ``"fp16-vector"`` is the rate without matrix units.
        sparse : bool, optional
            The rate with 2:4 structured sparsity.

        Returns
        -------
        float
            Operations/s; one multiply-add is two.

        Raises
        ------
        ValueError
            The device lacks the type; the message names those that it has.

        Examples
        --------
        >>> from heterocompute import hardware as hw
        >>> hw.device("a100-sxm-80gb").peak("int8") / 1e12
        624.0
        """
        rates = self.sparse_rates if sparse else self.dense_rates
        wanted = plain_dtype(dtype)
        if wanted not in rates:
            what = "a 2:4-sparse rate" if sparse else "a rate"
            has = ", ".join(rates) or "none"
            raise ValueError(f"{self.name}: no {what.split(' ', 1)[1]} for {dtype!r}; it has {has}")
        return rates[wanted]

    def ridge(self, dtype: str, sparse: bool = False) -> float:
        """Return the arithmetic intensity at which the peak rate is reached.

        Parameters
        ----------
        dtype : str
        sparse : bool, optional

        Returns
        -------
        float
            Operations for each byte of the weights' memory.

        Raises
        ------
        ValueError
            The device lacks the type, or its bandwidth is not known.
        """
        return self.peak(dtype, sparse) / self.need("bandwidth")

    def need(self, figure: str) -> float:
        """Return a figure that may be absent.

        Parameters
        ----------
        figure : {"bandwidth", "memory", "on_chip", "tdp", "die_mm2"}

        Returns
        -------
        float

        Raises
        ------
        ValueError
            The figure is not known for this device, or is none of these.
        """
        if figure not in ("bandwidth", "memory", "on_chip", "tdp", "die_mm2"):
            raise ValueError(f"{self.name}: need of {figure!r}, wanted bandwidth, memory, on_chip, tdp or die_mm2")
        value: float | None = getattr(self, figure)
        if value is None:
            raise ValueError(f"{self.name}: its {figure} is not known; give one with hw.Device(..., {figure}=...)")
        return value

    def source_of(self, figure: str) -> str | None:
        """Return where a figure comes from: ``"bandwidth"``, ``"peak.int8"``; None if nothing is said.

        Parameters
        ----------
        figure : str

        Returns
        -------
        str or None
        """
        keys = [figure]
        if figure.startswith("sparse."):
            keys.append("peak" + figure[6:])
        keys += [figure.split(".")[0], "peak" if figure.startswith("sparse") else "*", "*"]
        return next((self.source[key] for key in keys if key in self.source), None)

    def figures(self) -> dict[str, float]:
        """Return every figure that is known, by its name: ``peak.fp16``, ``bandwidth`` ... in plain units.

        Returns
        -------
        dict of str to float
        """
        found = {f"peak.{dtype}": rate for dtype, rate in self.dense_rates.items()}
        found |= {f"sparse.{dtype}": rate for dtype, rate in self.sparse_rates.items()}
        for figure in ("bandwidth", "memory", "on_chip", "tdp", "die_mm2"):
            value = getattr(self, figure)
            if value is not None:
                found[figure] = value
        return found | {f"links.{link}": rate for link, rate in self.links.items()}

    def __repr__(self) -> str:
        rates = ", ".join(f"{dtype} {rate / 1e12:.4g}T" for dtype, rate in self.dense_rates.items())
        speed = "" if self.bandwidth is None else f", {self.bandwidth / 1e9:.4g} GB/s"
        return f"<Device {self.name}: {rates or 'no rate known'}{speed}>"


def dtype_bits(dtype: str) -> int:
    """Return the bits of one stored value of a type.

    Parameters
    ----------
    dtype : str

    Returns
    -------
    int

    Raises
    ------
    ValueError
        An unknown type.

    Examples
    --------
    >>> dtype_bits("bf16"), dtype_bits("float32")
    (16, 32)
    """
    name = plain_dtype(dtype)
    if name not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}, wanted one of {', '.join(DTYPES)}")
    return DTYPES[name]


def plain_dtype(dtype: str) -> str:
    """Return the name under which rates of a type are listed: ``"float16"`` is ``"fp16"``.

    Parameters
    ----------
    dtype : str

    Returns
    -------
    str

    Raises
    ------
    TypeError
        Not a str.
    """
    if not isinstance(dtype, str):
        raise TypeError(f"dtype is {dtype!r} of type {type(dtype).__name__}, wanted a str such as 'fp16'")
    name = dtype.strip().lower()
    return SYNONYMS.get(name, name)


def device(name: str | Device) -> Device:
    """Return a device of the database by its name or an alias; a `Device` comes back as it is.

    Parameters
    ----------
    name : str or Device
        ``"<chip>-<variant>"`` in lower case, such as ``"a100-sxm-80gb"``; ``"host"`` is this machine (see `host`).

    Returns
    -------
    Device

    Raises
    ------
    ValueError
        No such device; the message has the nearest names.
    TypeError
        Neither a name nor a device.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.device("v100-sxm2").bandwidth
    900000000000.0
    """
    if isinstance(name, Device):
        return name
    if not isinstance(name, str):
        raise TypeError(f"device: {name!r} of type {type(name).__name__}, wanted a name or a Device")
    plain = name.strip().lower().replace("_", "-").replace(" ", "-")
    if plain == "host":
        from .machine import host

        return host()
    table = _table()
    names = {alias: one for one in table.values() for alias in (one.name, *one.aliases)}
    if plain not in names:
        starts = [one for one in names if plain and one.startswith(plain[:64])]
        near = difflib.get_close_matches(plain[:64], names, n=4, cutoff=0.3)
        found = list(dict.fromkeys([*starts, *near]))[:5] or list(table)[:5]
        raise ValueError(f"device: {name[:64]!r} is no device; the nearest are {', '.join(found)}")
    return names[plain]


def devices(kind: str | None = None, year: int | None = None) -> dict[str, Device]:
    """Return the devices of the database.

    Parameters
    ----------
    kind : str, optional
        Only these: gpu, tpu, npu, cpu, fpga, asic, phone, system.
    year : int, optional
        Only those of this year.

    Returns
    -------
    dict of str to Device

    Raises
    ------
    ValueError
        An unknown kind, a year that is no integer.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> [name for name in hw.devices(kind="gpu", year=2016)]
    ['p4', 'p40', 'p100-sxm2', 'p100-pcie-12gb']
    """
    if kind is not None and kind not in KINDS:
        raise ValueError(f"devices: kind is {kind!r}, wanted one of {', '.join(KINDS)}")
    if year is not None and not isinstance(year, int):
        raise ValueError(f"devices: year is {year!r}, wanted an integer")
    return {
        name: one
        for name, one in _table().items()
        if (kind is None or one.kind == kind) and (year is None or one.year == year)
    }


def load_devices(path: str | os.PathLike[str]) -> dict[str, Device]:
    """Read devices from a TOML file, one block ``[device.NAME]`` each, as in the package's own table.

    Parameters
    ----------
    path : str or os.PathLike
        Keys of a block: title, kind, year, process, aliases, peak_tops, sparse_tops, memory_gib or memory_gb,
        on_chip_mib or on_chip_mb, bandwidth_gb_s, tdp_w, die_mm2, links_gb_s, clock, source, unverified, note.

    Returns
    -------
    dict of str to Device

    Raises
    ------
    ValueError
        No TOML, an unknown key, a figure that is no positive number.
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
    with open(path, "rb") as file:
        raw = file.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise ValueError(f"{os.fspath(path)}: more than {MAX_FILE_BYTES} bytes, too large for a table of devices")
    try:
        content = tomllib.loads(raw.decode("utf-8"), parse_float=Decimal)
    except (ValueError, RecursionError) as error:  # of TOML, UTF-8, or an integer of too many digits
        raise ValueError(f"{os.fspath(path)}: no TOML: {error}") from None
    return _parse(content, os.fspath(path))


@cache
def _table() -> dict[str, Device]:
    return load_devices(FILE)


def _parse(content: Mapping[str, Any], place: str) -> dict[str, Device]:
    extra = set(content) - {"device", "sources"}
    if extra:
        raise ValueError(f"{place}: unknown table {sorted(extra)[0]!r}, wanted [sources] and [device.NAME]")
    sources, blocks = content.get("sources", {}), content.get("device", {})
    if not isinstance(sources, dict) or not isinstance(blocks, dict):
        raise ValueError(f"{place}: 'device' and 'sources' are tables")
    found: dict[str, Device] = {}
    taken: dict[str, str] = {}
    for name, block in blocks.items():
        where = f"{place}: device {name!r}"
        if not isinstance(block, dict):
            raise ValueError(f"{where} is no table")
        found[name] = _device(name, block, sources, where)
        for alias in (name, *found[name].aliases):
            if alias in taken:
                raise ValueError(f"{where}: the name {alias!r} is taken by {taken[alias]!r}")
            taken[alias] = name
    return found


def _device(name: str, block: Mapping[str, Any], sources: Mapping[str, str], where: str) -> Device:
    known = (*_TEXTS, *_OTHERS, *_RATES, *_FIGURES)
    for key in block:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
            raise ValueError(f"{where}: unknown key {key!r}, the nearest is {near[0]!r}")
    options: dict[str, Any] = {key: _text(where, key, block[key]) for key in _TEXTS if key in block}
    for key, (attribute, factor) in _FIGURES.items():
        if key in block:
            if attribute in options:
                raise ValueError(f"{where}: {key} and another unit of it, wanted one of them")
            options[attribute] = _scaled(where, key, block[key], factor)
    for key, attribute, factor in (("peak_tops", "peak", 10**12), ("sparse_tops", "sparse", 10**12),
                                   ("links_gb_s", "links", 10**9)):  # fmt: skip
        rates = _mapping(where, key, block.get(key, {}))
        options[attribute] = {one: _scaled(where, f"{key}.{one}", rate, factor) for one, rate in rates.items()}
    if "year" in block:
        if not isinstance(block["year"], int) or isinstance(block["year"], bool):
            raise ValueError(f"{where}: year is {block['year']}, wanted an integer")
        options["year"] = block["year"]
    for key in ("aliases", "unverified"):
        listed = block.get(key, [])
        if not isinstance(listed, list):
            raise ValueError(f"{where}: {key} is {listed!r}, wanted a list of texts")
        options[key] = [_text(where, key, one) for one in listed]
    clock = _mapping(where, "clock", block.get("clock", {}))
    options["clock"] = {dtype: _clock(where, dtype, one) for dtype, one in clock.items()}
    source = block.get("source", {})
    cited = {"*": source} if isinstance(source, str) else _mapping(where, "source", source)
    options["source"] = {key: sources.get(text := _text(where, f"source.{key}", value), text)
                         for key, value in cited.items()}  # fmt: skip
    try:
        made = Device(name, **options)
    except ValueError as error:
        raise ValueError(f"{where.split(': device')[0]}: {error}") from None
    for figure in made.unverified:
        if figure not in made.figures() and figure not in ("year", "process"):
            raise ValueError(f"{where}: unverified names {figure!r}, which the block does not have")
    return made


def _clock(where: str, dtype: str, value: Any) -> tuple[float, float, float]:
    keys = ("units", "per_clock", "ghz")
    if not isinstance(value, dict) or set(value) != set(keys):
        raise ValueError(f"{where}: clock.{dtype} is {value!r}, wanted {{ units, per_clock, ghz }}")
    units, per_clock, hertz = (
        _scaled(where, f"clock.{dtype}.{key}", value[key], 10**9 if key == "ghz" else 1) for key in keys
    )
    return units, per_clock, hertz


def _text(where: str, key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where}: {key} is {value!r}, wanted a text")
    return value


def _mapping(where: str, key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: {key} is {value!r}, wanted a table")
    return value


def _scaled(where: str, key: str, value: Any, factor: int) -> float:
    """Scale in decimals, so that 989.4 TOPS are exactly 989.4e12."""
    number = Decimal(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else Decimal(0)
    if not number.is_finite() or not 0 < number <= 10**12:
        raise ValueError(f"{where}: {key} is {value}, wanted a positive number")
    return float(number * factor)


def _rates(place: str, what: str, rates: Mapping[str, float] | None) -> Mapping[str, float]:
    if not isinstance(rates or {}, Mapping):
        raise TypeError(f"{place}: {what} is {rates!r}, wanted a mapping such as {{'int8': 4e12}}")
    found: dict[str, float] = {}
    for dtype, rate in (rates or {}).items():
        plain = plain_dtype(dtype)
        if plain not in DTYPES:
            raise ValueError(f"{place}: {what} names the type {dtype!r}, wanted {', '.join(DTYPES)}")
        if plain in found:
            raise ValueError(f"{place}: {what} names {plain} twice, once as {dtype!r}")
        found[plain] = _number(place, f"{what}[{dtype!r}]", rate)
    return found


def _positive(place: str, what: str, value: float | None) -> float | None:
    return None if value is None else _number(place, what, value)


def _number(place: str, what: str, value: float) -> float:
    wrong = ValueError(f"{place}: {what} is {value!r}, wanted a positive number")
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise wrong
    try:
        number = float(value)
    except OverflowError:
        raise wrong from None
    if not 0 < number <= LARGEST:
        raise wrong
    return number
