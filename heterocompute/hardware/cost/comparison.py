"""Devices side by side on one network, and one device over batch sizes. Times are the roofline's: lower bounds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import WrongType, WrongValue, shown
from ...base.lazy import renamed
from ...base.notebooks.shown import Facts
from ...base.values import as_int, check_count, check_number, is_several
from ...formats import Format
from ...report.files import write_figure
from ...report.hardware import line_figure
from ..chips.chip import Device, dtype_bits
from ..chips.database import as_devices, device as find_device
from ..network.graph import Network
from ..network.layers import Scores
from ..network.lookup import as_network
from .memory import held_bytes
from .pairing import product_dtype
from .roofline import roofline

YEAR = 365 * 86400
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def compare(
    network: object,
    devices: str | Device | Iterable[str | Device],
    dtype: str | None = None,
    format: str | Format | None = None,
    batch: int = 1,
    *,
    input_shape: Sequence[int] | None = None,
    kv_cache: str | Format | None = None,
    context: int | None = None,
    price: Mapping[str, float] | None = None,
    lifetime_years: float = 3.0,
) -> list[dict[str, Any]]:
    """Compare devices on a network and return a table.

    Parameters
    ----------
    network : Network, str, path or sequence of layers
    devices : str, Device, or iterable of them
    dtype : str, optional
        Type to compute in. Default: the fastest of fp16, bf16 and fp32 on each device.
    format : Format or str, optional
        Format of the weights in memory.
    batch : int, optional
        Number of samples, or sequences, at once.
    input_shape : sequence of int, optional
    kv_cache : Format or str, optional
        Format of cached keys and values. Default: `dtype`.
    context : int, optional
        For transformers: a step generates one token per sequence, after this number of tokens. Default: a step is the
        whole input.
    price : mapping of str to float, optional
        Price per device, by name, in any currency. The package has no prices.
    lifetime_years : float, optional
        Service life of a device, for `cost`.

    Returns
    -------
    list of dict
        One row per device:

        - ``device``, ``dtype``.
        - ``seconds``: arithmetic and memory of a step, without links.
        - ``throughput``: samples or tokens per second. A step takes `seconds` and `link_seconds`; the devices work one
          after another.
        - ``bound``, and ``share`` of the peak.
        - ``memory``: bytes of weights, live activations, keys and values.
        - ``fits``.
        - ``count``: number of such devices that hold it; None if the memory is unknown.
        - ``link_seconds``: for each cut between them, the batch's widest activation over the fastest link one way.
        - ``price``.
        - ``performance_price``: throughput of all devices over their price.
        - ``cost``: price of a million samples or tokens over the lifetime, for the devices only.
        - ``cost_each``: cost of one sample or token.

        If several devices are needed and no link is known, all values that depend on the link are None. If the memory
        is unknown, `throughput` is that of one device that would hold the network.

    Raises
    ------
    ValueError
        A name or type is unknown, also in `price`; a device has no bandwidth; a price or lifetime is not positive.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> rows = hw.compare("llama_7b", ["h100-sxm", "a100-sxm-80gb"], context=1024)
    >>> [(row["device"], row["bound"], row["fits"]) for row in rows]
    [('h100-sxm', 'memory', True), ('a100-sxm-80gb', 'memory', True)]
    """
    batch = check_count("compare", "batch", batch)
    lifetime_years = check_number("compare", "lifetime_years", lifetime_years)
    _refuse_devices(network)
    chips = as_devices("compare", devices)
    whole = as_network(network, input_shape)
    step = whole if context is None else whole.decoding(as_int(context, "compare: context", 0))
    if price is not None and not isinstance(price, Mapping):
        raise WrongType(f"compare: price is {shown(price)}, expected a mapping of devices to numbers")
    prices = dict(price or {})
    for name, value in prices.items():
        prices[name] = check_number("compare", f"the price of {shown(name)}", value)
        if not any(name in (chip.name, *chip.aliases) for chip in chips):
            find_device(name)  # a device that is not compared is valid, an unknown name is an error
    rows = []
    for chip in chips:
        kind = dtype if dtype is not None else product_dtype(chip, None, None)
        found = roofline(step, chip, kind, format, batch, kv_cache=kv_cache)
        memory = held_bytes(step, batch, kind, format, kv_cache)
        count = None if chip.memory is None else -(-memory // int(chip.memory))
        links = _link_seconds(step, chip, kind, batch, count)
        stuck = links is None and count is not None
        throughput = None if stuck else batch / (found.seconds + (links or 0.0))
        cost = next((prices[name] for name in (chip.name, *chip.aliases) if name in prices), None)
        each: float | None = None
        worth: float | None = None
        if cost is not None and count is not None and throughput is not None:
            each, worth = cost * count / (throughput * lifetime_years * YEAR), throughput / (cost * count)
        rows.append({
            "device": chip.name, "dtype": kind, "seconds": found.seconds, "throughput": throughput,
            "bound": found.bound, "share": found.share, "memory": memory, "fits": None if count is None else count == 1,
            "count": count, "link_seconds": links, "price": cost, "performance_price": worth,
            "cost": None if each is None else 1e6 * each, "cost_each": each,
        })  # fmt: skip
    return rows


@dataclass(frozen=True, repr=False)
class BatchSweep(Facts):
    """The result of `batch_sweep`.

    Attributes
    ----------
    network, device, dtype, format : str
    rows : list of dict
        ``batch``, ``seconds``, ``throughput`` (samples per second), ``memory`` (bytes), ``fits``, ``bound``, ``share``.
    knee : int or None
        The first compute-bound batch size; None if all are memory-bound.
    largest : int or None
        The largest batch size of the sweep that fits the device's memory.
    """

    network: str
    device: str
    dtype: str
    format: str
    rows: list[dict[str, Any]] = field(compare=False)
    knee: int | None = None
    largest: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON.

        Returns
        -------
        dict
        """
        keys = ("network", "device", "dtype", "format", "knee", "largest", "rows")
        return {key: getattr(self, key) for key in keys}

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plot time, throughput and memory against the batch size, with the knee marked.

        Parameters
        ----------
        path : str or os.PathLike, optional
            Also write the figure to this path.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            matplotlib is not installed; install the extra ``plot``.
        """

        lines = {"seconds": "time (s)", "throughput": "samples a second", "memory": "memory (bytes)"}
        figure = line_figure(self.rows, "batch", lines, f"{self.network} on {self.device}, {self.dtype}", self.knee)
        if path is not None:
            write_figure(path, figure)
        return figure

    def __repr__(self) -> str:
        best = max(row["throughput"] for row in self.rows)
        return (
            f"<BatchSweep of {self.network} on {self.device}, {self.dtype}: batch {self.rows[0]['batch']} to "
            f"{self.rows[-1]['batch']}, knee at {self.knee}, at most {best:.4g} samples a second>"
        )


@renamed(device_name="device")
def batch_sweep(
    network: object,
    device: str | Device,
    batches: int | Iterable[int] = BATCHES,
    *,
    dtype: str | None = None,
    format: str | Format | None = None,
    input_shape: Sequence[int] | None = None,
    kv_cache: str | Format | None = None,
) -> BatchSweep:
    """Compute time, throughput and memory of a network for several batch sizes.

    Parameters
    ----------
    network : Network, str, path or sequence of layers
    device : str or Device
    batches : int or iterable of int, optional
    dtype : str, optional
        Default: the fastest of fp16, bf16 and fp32 on the device.
    format : Format or str, optional
        Format of the weights in memory.
    input_shape : sequence of int, optional
    kv_cache : Format or str, optional
        Format of cached keys and values. Default: `dtype`.

    Returns
    -------
    BatchSweep

    Raises
    ------
    ValueError
        batches is empty or has a size that is not positive, or a name or type is unknown.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> sweep = hw.batch_sweep(hw.networks["llama_7b"].decoding(0), "h100-sxm")
    >>> sweep.knee
    512
    """
    chip, net = find_device(device), as_network(network, input_shape)
    kind = dtype if dtype is not None else product_dtype(chip, None, None)
    listed = list(batches) if is_several(batches) else [batches]
    sizes = sorted({check_count("batch_sweep", "batches", one) for one in listed})
    if not sizes:
        raise WrongValue("batch_sweep: batches is empty, expected at least one batch size")
    rows: list[dict[str, Any]] = []
    found = None
    for batch in sizes:
        found = roofline(net, chip, kind, format, batch, kv_cache=kv_cache)
        memory = held_bytes(net, batch, kind, format, kv_cache)
        rows.append({
            "batch": batch, "seconds": found.seconds, "throughput": batch / found.seconds, "memory": memory,
            "fits": None if chip.memory is None else memory <= chip.memory, "bound": found.bound, "share": found.share,
        })  # fmt: skip
    knee = next((row["batch"] for row in rows if row["bound"] == "compute"), None)
    largest = max((row["batch"] for row in rows if row["fits"]), default=None)
    return BatchSweep(net.name, chip.name, kind, found.format if found else "", rows, knee, largest)


def _refuse_devices(network: object) -> None:
    """Refuse devices in place of the network: they were the first argument."""
    first = next(iter(network)) if isinstance(network, (list, tuple, set, frozenset)) and network else network
    try:
        find_device(first)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return
    raise WrongType(f"compare: network is {shown(network)}, expected a network: compare(network, devices)")


def _link_seconds(network: Network, chip: Device, dtype: str, batch: int, count: int | None) -> float | None:
    if count is None or (count > 1 and not chip.links):
        return None
    if count == 1:
        return 0.0
    attends = any(isinstance(flow.layer, Scores) for flow in network)
    width = (network.stream if attends else 0) or max(flow.output_elements for flow in network)
    one_way = max(chip.links.values()) / 2
    return (count - 1) * batch * width * dtype_bits(dtype) / 8 / one_way
