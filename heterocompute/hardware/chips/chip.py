"""A chip and its limits: peak rates, bandwidth, memory, links, each figure with its source.

Rates are operations/s, one multiply-add being two operations; dense and 2:4-sparse rates are kept apart.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ...base.errors import WrongType, WrongValue, shown
from ...base.notebooks.shown import Shown
from ...base.values import as_list, check_choice, check_flag, check_text
from ...report.page import rows_html

__all__ = ["Device"]

LARGEST = sys.float_info.max
KINDS = ("gpu", "tpu", "npu", "cpu", "fpga", "asic", "phone", "host", "system")

# Types for which rates are stated, with the bits of one stored value.
DTYPES: Mapping[str, int] = MappingProxyType({
    "fp64": 64, "fp64-tensor": 64, "fp32": 32, "tf32": 32, "fp16": 16, "fp16-vector": 16, "fp16-acc16": 16, "bf16": 16,
    "fp8": 8, "fp8-acc16": 8, "fp4": 4, "int16": 16, "int8": 8, "int4": 4,
})  # fmt: skip
SYNONYMS = {
    "float64": "fp64", "double": "fp64", "float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16",
    "bfloat16": "bf16", "fp8_e4m3": "fp8", "fp8_e4m3fn": "fp8", "fp8_e5m2": "fp8", "uint8": "int8", "uint4": "int4",
}  # fmt: skip


class Device(Shown):
    """The peak capabilities of a chip, or of a system of chips.

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
        Bytes of that memory, and of the last-level cache or the software-managed SRAM.
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
        Source of each figure. Keys are figures (``peak``, ``peak.int8``, ``bandwidth``, ...), ``"*"`` for the rest.
    unverified : iterable of str, optional
        Figures that no source confirms, named as in `source`.
    clock : mapping of str to (float, float, float), optional
        Per type: (units, operations of one unit per clock, clock in Hz). Their product should be the peak.

    Raises
    ------
    ValueError
        A figure is not a positive number, a type or kind is unknown, a type is given twice, or the year is not an
        integer.
    TypeError
        Rates are not a mapping.

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
            raise WrongValue(f"Device: name is {shown(name)}, expected a non-empty str")
        place = f"device {shown(name)}"
        check_choice(place, "kind", kind, KINDS)
        for what, value in (("title", title), ("process", process), ("note", note)):
            if value is not None:
                check_text(place, what, value)
        for what, table in (("peak", peak), ("sparse", sparse), ("links", links), ("source", source), ("clock", clock)):
            if table is not None and not isinstance(table, Mapping):
                raise WrongType(f"{place}: {what} is {shown(table)}, expected a mapping")
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
            raise WrongValue(f"{place}: year is {shown(year)}, expected an integer")
        self.year, self.process, self.note = year, process, note
        self.aliases = tuple(as_list(aliases, f"{place}: aliases", "names"))
        self.unverified = tuple(as_list(unverified, f"{place}: unverified", "names of figures"))
        self.source: Mapping[str, str] = dict(source or {})
        self.clock: Mapping[str, tuple[float, float, float]] = dict(clock or {})

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Return the types with a dense rate.

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
            Return the rate with 2:4 structured sparsity.

        Returns
        -------
        float
            Operations/s; one multiply-add is two.

        Raises
        ------
        ValueError
            The device does not support the type; the message lists the supported types.

        Examples
        --------
        >>> from heterocompute import hardware as hw
        >>> hw.device("a100-sxm-80gb").peak("int8") / 1e12
        624.0
        """
        rates = self.sparse_rates if check_flag(self.name, "sparse", sparse) else self.dense_rates
        wanted = plain_dtype(dtype)
        if wanted not in rates:
            what = "a 2:4-sparse rate" if sparse else "a rate"
            has = ", ".join(rates) or "none"
            raise WrongValue(f"{self.name}: no {what.split(' ', 1)[1]} for {shown(dtype)}; it has {has}")
        return rates[wanted]

    def ridge(self, dtype: str, sparse: bool = False) -> float:
        """Return the arithmetic intensity from which the peak rate is reached.

        Parameters
        ----------
        dtype : str
        sparse : bool, optional

        Returns
        -------
        float
            Operations per byte of the weights' memory.

        Raises
        ------
        ValueError
            The device does not support the type, or its bandwidth is unknown.
        """
        return self.peak(dtype, sparse) / self.need("bandwidth")

    def need(self, figure: str) -> float:
        """Return an optional figure, or raise an error if it is unknown.

        Parameters
        ----------
        figure : {"bandwidth", "memory", "on_chip", "tdp", "die_mm2"}

        Returns
        -------
        float

        Raises
        ------
        ValueError
            The figure is unknown for this device, or the name is invalid.
        """
        if not isinstance(figure, str) or figure not in ("bandwidth", "memory", "on_chip", "tdp", "die_mm2"):
            raise WrongValue(
                f"{self.name}: need of {shown(figure)}, expected bandwidth, memory, on_chip, tdp or die_mm2"
            )
        value: float | None = getattr(self, figure)
        if value is None:
            raise WrongValue(f"{self.name}: its {figure} is not known; give one with hw.Device(..., {figure}=...)")
        return value

    def source_of(self, figure: str) -> str | None:
        """Return the source of a figure such as ``"bandwidth"`` or ``"peak.int8"``; None if there is none.

        Parameters
        ----------
        figure : str

        Returns
        -------
        str or None
        """
        keys = [check_text(self.name, "figure", figure)]
        if figure.startswith("sparse."):
            keys.append("peak" + figure[6:])
        keys += [figure.split(".")[0], "peak" if figure.startswith("sparse") else "*", "*"]
        return next((self.source[key] for key in keys if key in self.source), None)

    def figures(self) -> dict[str, float]:
        """Return every known figure by its name, ``peak.fp16``, ``bandwidth`` ..., in base units.

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

    def _repr_html_(self) -> str:
        rows = [{"type": dtype, "operations/s": rate} for dtype, rate in self.dense_rates.items()]
        return rows_html(rows, repr(self).strip("<>"))

    def __repr__(self) -> str:
        rates = ", ".join(f"{dtype} {rate / 1e12:.4g}T" for dtype, rate in self.dense_rates.items())
        speed = "" if self.bandwidth is None else f", {self.bandwidth / 1e9:.4g} GB/s"
        return f"<Device {self.name}: {rates or 'no rate known'}{speed}>"


def dtype_bits(dtype: str) -> int:
    """Return the bits of one stored value of a type.

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
        raise WrongValue(f"dtype is {shown(dtype)}, expected one of {', '.join(DTYPES)}")
    return DTYPES[name]


def plain_dtype(dtype: str) -> str:
    """Return the name under which rates of a type are listed: ``"float16"`` is ``"fp16"``.

    Raises
    ------
    TypeError
        Not a str.
    """
    if not isinstance(dtype, str):
        raise WrongType(f"dtype is {shown(dtype)} of type {type(dtype).__name__}, expected a str such as 'fp16'")
    name = dtype.strip().lower()
    return SYNONYMS.get(name, name)


def _rates(place: str, what: str, rates: Mapping[str, float] | None) -> Mapping[str, float]:
    if not isinstance(rates or {}, Mapping):
        raise WrongType(f"{place}: {what} is {shown(rates)}, expected a mapping such as {{'int8': 4e12}}")
    found: dict[str, float] = {}
    for dtype, rate in (rates or {}).items():
        plain = plain_dtype(dtype)
        if plain not in DTYPES:
            raise WrongValue(f"{place}: {what} names the type {shown(dtype)}, expected {', '.join(DTYPES)}")
        if plain in found:
            raise WrongValue(f"{place}: {what} names {plain} twice, once as {shown(dtype)}")
        found[plain] = _number(place, f"{what}[{shown(dtype)}]", rate)
    return found


def _positive(place: str, what: str, value: float | None) -> float | None:
    return None if value is None else _number(place, what, value)


def _number(place: str, what: str, value: float) -> float:
    wrong = WrongValue(f"{place}: {what} is {shown(value)}, expected a positive number")
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise wrong
    try:
        number = float(value)
    except OverflowError:
        raise wrong from None
    if not 0 < number <= LARGEST:
        raise wrong
    return number
