"""Roofline: a layer takes the time of its arithmetic or of its traffic, whichever is longer.

Model: each layer with a product or a table reads its input and its weights from memory once and writes its output;
operations between (normalization, activations, sums, pooling) are fused and free. Operations are twice the
multiply-adds. Rates are the device's peaks, so times are lower bounds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import WrongValue, shown
from ...base.lazy import renamed
from ...base.notebooks.shown import Shown
from ...base.texts import counted
from ...base.values import check_count, check_flag
from ...formats import Format
from ...report.files import write_figure, write_text
from ...report.page import rows_html
from ...report.roofline import roofline_figure, roofline_page
from ..chips.chip import LARGEST, Device, dtype_bits
from ..chips.database import device as find_device
from ..network.graph import Flow, Network
from ..network.heads import Experts
from ..network.layers import Embedding, Scores
from ..network.lookup import as_network
from .memory import held_bytes
from .stored import Stored, stored, stored_cache, weight_matrix


@dataclass(frozen=True, repr=False)
class Roofline(Shown):
    """The result of `roofline`.

    Attributes
    ----------
    network, device, dtype, format, kv_cache : str
    batch : int
    peak : float
        Operations/s of the type, with 2:4 sparsity if the weights have it and the device supports it.
    bandwidth : float
        B/s.
    seconds : float
        Sum over the layers.
    operations, traffic : float
        Operations and bytes of the whole batch.
    layers : list of dict
        ``name``, ``operations``, ``bytes``, ``weight_bytes``, ``intensity`` (operations per byte), ``seconds``,
        ``bound`` (``"compute"`` or ``"memory"``), ``share`` (attained share of the peak rate).
    note : str
        The rate that was used, if it is not the plain one, and whether the network exceeds the device's memory.
    plain_seconds : float or None
        The time with dense weights of `dtype`, if a format was given.
    """

    network: str
    device: str
    dtype: str
    format: str
    batch: int
    peak: float
    bandwidth: float
    layers: list[dict[str, Any]] = field(compare=False)
    note: str = ""
    plain_seconds: float | None = None
    kv_cache: str = ""

    @property
    def seconds(self) -> float:
        """Return the time of the whole batch."""
        return math.fsum(row["seconds"] for row in self.layers)

    @property
    def speedup(self) -> float:
        """Return the speedup from the weight format: the time with plain weights over this time."""
        return 1.0 if self.plain_seconds is None else self.plain_seconds / self.seconds

    @property
    def operations(self) -> float:
        return math.fsum(row["operations"] for row in self.layers)

    @property
    def traffic(self) -> float:
        return math.fsum(row["bytes"] for row in self.layers)

    @property
    def intensity(self) -> float | None:
        """Return operations per byte over all layers; None if no bytes are moved."""
        return self.operations / self.traffic if self.traffic else None

    @property
    def ridge(self) -> float:
        """Return the intensity from which the peak rate is reached."""
        return self.peak / self.bandwidth

    @property
    def bound(self) -> str:
        """Return the bound with most of the time, ``"compute"`` or ``"memory"``."""
        memory = math.fsum(row["seconds"] for row in self.layers if row["bound"] == "memory")
        return "memory" if 2 * memory > self.seconds else "compute"

    @property
    def share(self) -> float:
        """Return the attained share of the peak rate."""
        return self.operations / (self.seconds * self.peak)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON.

        Returns
        -------
        dict
        """
        keys = ("network", "device", "dtype", "format", "kv_cache", "batch", "peak", "bandwidth", "seconds",
                "operations", "traffic", "intensity", "ridge", "bound", "share", "speedup", "plain_seconds",
                "note")  # fmt: skip
        return {**{key: getattr(self, key) for key in keys}, "layers": self.layers}

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plot the layers under the roofline.

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
        """

        figure = roofline_figure(self.to_dict())
        if path is not None:
            write_figure(path, figure)
        return figure

    def to_html(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Write one self-contained page with the roofline plot and the table of layers.

        Parameters
        ----------
        path : str or os.PathLike
            Replaced by renaming if it exists.
        title : str, optional
            Heading of the page. Default: the network and the device.
        """
        write_text(path, roofline_page(self.to_dict(), title))

    def _repr_html_(self) -> str:
        return rows_html(self.layers, repr(self).strip("<>"))

    def __repr__(self) -> str:
        weights = "" if self.format == self.dtype else f", weights {self.format}"
        weights += "" if self.kv_cache in ("", self.dtype) else f", keys and values {self.kv_cache}"
        bought = "" if self.plain_seconds is None else f", {self.speedup:.3g} x as fast as {self.dtype} weights"
        moved = "no traffic" if self.intensity is None else f"{self.intensity:.4g} operations a byte"
        noted = f"; {self.note}" if self.note else ""
        return (
            f"<Roofline of {self.network} on {self.device}, {self.dtype}{weights}, batch {self.batch}: "
            f"{self.seconds * 1e3:.4g} ms, {self.bound}-bound, {moved} "
            f"(ridge {self.ridge:.4g}), {self.share:.1%} of the peak{bought}{noted}>"
        )


@renamed(model="network", device_name="device", chip="device", positions="context")
def roofline(
    network: Any,
    device: str | Device,
    dtype: str = "fp16",
    format: str | Format | Mapping[str, Any] | None = None,
    batch: int = 1,
    *,
    input_shape: Sequence[int] | None = None,
    sparse: bool = False,
    kv_cache: str | Format | None = None,
    context: int | None = None,
    recipe: str | os.PathLike[str] | Mapping[str, Any] | None = None,
) -> Roofline:
    """Compute for each layer whether it is compute-bound or memory-bound on a device, and its least time.

    Parameters
    ----------
    network : Network, str, path, torch.nn.Module, sequence of layers, or sequence of dict
        As in `count`; or plain operations, ``[{"name": "mlp0", "operations": 2e9, "bytes": 1e7}, ...]``, without
        `format` and `batch`, because their bytes are given.
    device : str or Device
    dtype : str, optional
        Type that the device computes in, and type of activations and plain weights in memory.
    format : Format, str or mapping, optional
        Format of the weights in memory, or patterns of layers' names -> format; the first match applies. It changes
        their bytes, exactly, including scales and padding. A 2:4 pattern (``"2:4"``, ``"int8+2:4"``) also uses the
        device's sparse rate of `dtype`, if it has one. The rate stays that of `dtype`: 4-bit weights are multiplied as
        `dtype`. A mapping changes no rate.
    batch : int, optional
    input_shape : sequence of int, optional
        Shape of one sample, without a batch.
    sparse : bool, optional
        Require the sparse rate: ValueError if the device has none.
    kv_cache : Format or str, optional
        Format of the cached keys and values of `Network.decoding`, in memory. Default: `dtype`.
    context : int, optional
        One generated token after so many others, of a transformer, as ``network.decoding(context)``.
    recipe : path, or mapping of str to (Format, str or None), optional
        As a mapping in `format`, also as a TOML file of `heterocompute.quantize_checkpoint`. Its patterns come before
        `format`.

    Returns
    -------
    Roofline
        A lower bound, even if weights and activations exceed the device's memory. `note` then has both sizes.

    Raises
    ------
    ValueError
        The network, device or type is unknown, the device lacks the type or a bandwidth, or shapes do not match.

    Notes
    -----
    Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52 (2009).

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> layer = hw.layers.Linear(4096, 4096, bias=False)
    >>> found = hw.roofline(layer, "h100-sxm", "fp16", format="int4-g32-f16", batch=1, input_shape=(4096,))
    >>> found.bound, round(found.speedup, 2)
    ('memory', 3.55)
    """
    chip = find_device(device)
    batch = check_count("roofline", "batch", batch)
    check_flag("roofline", "sparse", sparse)
    if recipe is not None:
        from ...files.recipes import with_recipe  # files reads counts, too

        format = with_recipe(format, recipe)
    weights, cache = stored(format, dtype), stored_cache(kv_cache, dtype)
    rate, note = _rate(chip, dtype, weights, sparse)
    bandwidth = chip.need("bandwidth")
    plain = None
    if _is_work(network):
        if context is not None:
            raise WrongValue("roofline: context does not apply to operations, whose bytes are given")
        if format is not None or kv_cache is not None or batch != 1:
            raise WrongValue(f"roofline: format {shown(str(format))} and batch {batch} change no operations as such, "
                             "whose bytes are given; expected neither")  # fmt: skip
        name, rows = "operations", [_work_row(one) for one in network]
    else:
        network = as_network(network, input_shape)
        if context is not None:
            network = network.decoding(context)
        name, task = network.name, _task(network)
        bits = dtype_bits(dtype)
        flows = [flow for flow in network if is_work(flow)]
        parts = (task, note, _overflow(network, chip, dtype, format, batch, kv_cache))
        note = "; ".join(text for text in parts if text)
        rows = [_flow_row(flow, bits, weights, batch, cache) for flow in flows]
        if format is not None:
            dense = chip.peak(dtype)
            others = (_flow_row(flow, bits, stored(None, dtype), batch, cache) for flow in flows)
            plain = math.fsum(_timed(row, dense, bandwidth)["seconds"] for row in others)
    if not rows:
        raise WrongValue(f"roofline: {name} has no layer with a product or a table")
    layers = [_timed(row, rate, bandwidth) for row in rows]
    return Roofline(name, chip.name, dtype, weights.text, batch, rate, bandwidth, layers, note, plain, cache.text)


def _task(network: Network) -> str:
    """Return what a step of a language model is: tokens of one sequence, or one token after others."""
    if len(network.input_shape) != 1 or not any(isinstance(node.layer, Scores) for node in network.nodes):
        return ""
    tokens = network.input_shape[0]
    return network.note if tokens == 1 and network.note else f"all {counted(tokens, 'token')} of a text at once"


def is_work(flow: Flow) -> bool:
    """Return True if a node takes time: a product, or a table that is read."""
    return flow.macs > 0 or isinstance(flow.layer, Embedding)


def traffic_bits(flow: Flow, bits: int, weights: Stored, batch: int, cache: Stored | None = None) -> tuple[int, int]:
    """Return (bits of weights, bits of activations) that a node moves if it fetches and writes everything once.

    Parameters
    ----------
    bits : int
        Of an activation.
    cache : Stored, optional
        Of cached keys and values. Default: as activations.

    Returns
    -------
    (int, int)
    """
    layer = flow.layer
    if isinstance(layer, Embedding):
        rows = batch * flow.output_elements
        return rows * bits, batch * flow.inputs[0][0] * 32 + rows * bits
    moved = (flow.input_elements + flow.output_elements) * bits
    if hasattr(layer, "cached") and layer.cached:  # keys or values that are in memory already
        groups, _, n, k = layer.gemm(*flow.inputs) or (0, 0, 0, 0)
        width = k if isinstance(layer, Scores) else n
        rows = groups * layer.cached
        moved += rows * width * bits if cache is None else cache.bits(rows, width)
    matrix = weight_matrix(flow, batch)
    biases = layer.bias_params
    if matrix and isinstance(layer, Experts):  # of the experts in use, one for each row
        biases = min(biases, matrix[0])
    return biases * bits + (weights.of(flow.name).bits(*matrix) if matrix else 0), batch * moved


def _rate(chip: Device, dtype: str, weights: Stored, sparse: bool) -> tuple[float, str]:
    dense = chip.dense_rates.get(dtype)
    if sparse:
        return chip.peak(dtype, sparse=True), "sparse rate"
    if weights.doubles_the_rate and chip.sparse_rates:
        try:
            return chip.peak(dtype, sparse=True), "sparse rate"
        except ValueError:
            pass
    note = "" if weights.pattern is None else "dense rate: the device takes no such pattern; zeros are work"
    return dense or chip.peak(dtype), note


def _overflow(network: Network, chip: Device, dtype: str, format: object, batch: int, kv_cache: object) -> str:
    """Say by how much weights, live activations and cached keys and values exceed the device's memory."""
    if chip.memory is None:
        return ""
    held = held_bytes(network, batch, dtype, format, kv_cache)
    if held <= chip.memory:
        return ""
    return (
        f"does not fit: weights and activations are {held / 1e9:.4g} GB, {chip.name} has {chip.memory / 1e9:.4g} GB; "
        "the time is still a lower bound"
    )


def _flow_row(flow: Flow, bits: int, weights: Stored, batch: int, cache: Stored) -> dict[str, Any]:
    held, moved = traffic_bits(flow, bits, weights, batch, cache)
    return {
        "name": flow.name,
        "operations": 2 * batch * flow.macs,
        "bytes": (held + moved) / 8,
        "weight_bytes": held / 8,
    }


def _is_work(model: object) -> bool:
    if isinstance(model, (str, bytes)) or not isinstance(model, Sequence) or not model:
        return False
    return all(isinstance(one, Mapping) for one in model)


def _work_row(work: Mapping[str, Any]) -> dict[str, Any]:
    if not {"operations", "bytes"} <= set(work) <= {"name", "operations", "bytes", "weight_bytes"}:
        raise WrongValue(f"roofline: {shown(dict(work))}, expected name, operations and bytes")
    row = {"name": str(work.get("name", "")), "weight_bytes": float(work.get("weight_bytes", 0))}
    for key in ("operations", "bytes"):
        value = work[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LARGEST:
            raise WrongValue(f"roofline: {key} of {shown(row['name'])} is {shown(value)}, expected a number from 0 up")
        row[key] = value
    if not row["bytes"] and not row["operations"]:
        raise WrongValue(f"roofline: {shown(row['name'])} has neither operations nor bytes")
    return row


def _timed(row: dict[str, Any], rate: float, bandwidth: float) -> dict[str, Any]:
    compute, memory = row["operations"] / rate, row["bytes"] / bandwidth
    seconds = max(compute, memory)
    return {
        **row,
        "intensity": row["operations"] / row["bytes"] if row["bytes"] else None,
        "seconds": seconds,
        "bound": "compute" if compute >= memory else "memory",
        "share": compute / seconds,
    }
