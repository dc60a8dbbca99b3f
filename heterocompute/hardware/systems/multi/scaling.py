"""One network on more and more devices: by data, within its blocks, by its layers.

A step is three times the forward pass's roofline (one forward, two backward), divided by the share of it that devices
reach. By data each device has a batch of its own; the other two share one batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ....base.errors import WrongType, shown
from ....base.lazy import renamed
from ....base.values import as_list, check_count, check_number
from ...chips.chip import Device, dtype_bits
from ...cost.roofline import is_work, roofline
from ...network.graph import Network
from ...network.layers import Context
from ...network.lookup import as_network
from .fabric import Fabric
from .parallel import data_parallel, pipeline_parallel, tensor_parallel


@renamed(chip="device", model="network")
def scaling(
    network: object,
    device: str | Device,
    fabric: Fabric,
    counts: Iterable[int] | None = None,
    *,
    dtype: str = "bf16",
    batch: int = 32,
    utilization: float = 0.5,
    overlapped: float = 0.0,
    input_shape: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """Compute how training scales over the devices of a fabric with data, tensor and pipeline parallelism.

    Parameters
    ----------
    network, input_shape
        As in `count`.
    device : str or Device
    fabric : Fabric
    counts : iterable of int, optional
        Numbers of devices. Default: 1, 2, 4 ... up to those of the fabric.
    dtype : str, optional
        Type of arithmetic, weights, gradients and activations.
    batch : int, optional
        Batch size per device for data parallelism, otherwise of all devices. Pipeline parallelism cuts it into as many
        microbatches.
    utilization : float, optional
        Assumed share of the roofline that a device reaches.
    overlapped : float, optional
        Share of the sum of gradients that overlaps, for data parallelism.

    Returns
    -------
    list of dict
        One row per count: ``count``; ``data``, ``tensor`` and ``pipeline``, each with ``seconds``, ``efficiency`` and
        ``throughput`` (samples per second). They are None if blocks are cut into more parts than heads, the network has
        no attention, or there are fewer layers than devices.

    Raises
    ------
    ValueError
        As in `roofline` and `Fabric.of`.

    Notes
    -----
    Memory is not checked (see `memory.training`). The lower efficiency of smaller matmuls is not modelled.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> rows = hw.multi.scaling("gpt2", "a100-sxm-80gb", hw.multi.fabric("dgx-a100"), [8])
    >>> {way: round(rows[0][way]["efficiency"], 2) for way in ("data", "pipeline")}, rows[0]["tensor"]  # 12 heads
    ({'data': 0.99, 'pipeline': 0.5}, None)
    """
    network = as_network(network, input_shape)
    batch = check_count("multi.scaling", "batch", batch)
    utilization = check_number("multi.scaling", "utilization", utilization, high=1.0)
    if not isinstance(fabric, Fabric):
        raise WrongType(f"multi.scaling: fabric is {shown(fabric)}, expected a Fabric: multi.fabric('dgx-a100')")
    bits = dtype_bits(dtype)
    layers = [3 * row["seconds"] / utilization for row in roofline(network, device, dtype, None, batch).layers]
    step, gradients = math.fsum(layers), (network.params - network.frozen) * bits / 8
    widths = [flow.output_elements for flow in network if is_work(flow)]
    heads, blocks, width = _attention(network)
    if counts is None:
        counts = [2**power for power in range(fabric.count.bit_length()) if 2**power <= fabric.count]
    rows = []
    for one in as_list(counts, "multi.scaling: counts", "a sequence of integers"):
        count = check_count("multi.scaling", "counts", one)
        part = fabric.of(count)
        data = data_parallel(step, gradients, count, part, overlapped)
        row: dict[str, Any] = {"count": count, "data": _row(data, count * batch), "tensor": None, "pipeline": None}
        if blocks and heads % count == 0:
            cut = tensor_parallel(step, batch * width * bits / 8, blocks, count, part)
            row["tensor"] = _row(cut, batch)
        if count <= len(layers):
            ends = balanced(layers, count)
            stages = [math.fsum(layers[a:b]) / batch for a, b in zip([0, *ends], ends, strict=False)]
            moved = max((widths[end - 1] for end in ends[:-1]), default=0)
            rate = next(tier.rate for tier in reversed(part.tiers) if tier.count > 1 or tier is part.tiers[0])
            copied = 2 * moved * bits / 8 / rate  # outputs forward, their gradients back
            row["pipeline"] = _row(pipeline_parallel(stages, batch, copy_seconds=copied), batch)
        rows.append(row)
    return rows


def balanced(times: Sequence[float], parts: int) -> list[int]:
    """Return where to cut a row of times into parts so that the longest part is as short as can be.

    Parameters
    ----------
    parts : int
        No more than times.

    Returns
    -------
    list of int
        The end of each part.

    Examples
    --------
    >>> balanced([1, 1, 4, 2, 2], 3)
    [2, 3, 5]
    """
    low, high = max(times), math.fsum(times)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if len(_cut(times, middle)) <= parts else (middle, high)
    ends = _cut(times, high * (1 + 1e-12))
    while len(ends) < parts:  # more parts than needed: divides the longest part that can be divided
        begins = [0, *ends[:-1]]
        spans = [(math.fsum(times[a:b]), a, b) for a, b in zip(begins, ends, strict=True) if b - a > 1]
        _, a, _ = max(spans)
        ends = sorted({*ends, a + 1})
    return ends


def _cut(times: Sequence[float], most: float) -> list[int]:
    ends, total = [], 0.0
    for i, seconds in enumerate(times):
        if total and total + seconds > most:
            ends.append(i)
            total = 0.0
        total += seconds
    return [*ends, len(times)]


def _attention(network: Network) -> tuple[int, int, int]:
    """Return the heads, the blocks with attention, and the elements of a sample between two blocks."""
    found = [flow.layer for flow in network if isinstance(flow.layer, Context)]
    return (found[0].heads, len(found), network.stream) if found and network.stream else (0, 0, 0)


def _row(found: dict[str, float], samples: int) -> dict[str, float]:
    return {"seconds": found["seconds"], "efficiency": found["efficiency"], "throughput": samples / found["seconds"]}
