"""Training split over devices: by data (synchronous or not), within layers, by layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....base.errors import WrongValue
from ....base.values import check_count, check_number
from ...chips.chip import Device
from .collectives import allreduce, collective, link_rate
from .fabric import Fabric


def data_parallel(
    step_seconds: float,
    gradient_bytes: float,
    count: int,
    link: float | str | Device | Fabric,
    overlapped: float = 0.0,
    algorithm: str = "ring",
) -> dict[str, float]:
    """Compute the time of a step of synchronous data-parallel training: replicated network, summed gradients.

    Parameters
    ----------
    step_seconds : float
        Forward and backward pass on one device.
    gradient_bytes : float
    count : int
    link : float, str, Device or Fabric
        As in `allreduce`.
    overlapped : float, optional
        Share of the all-reduce that overlaps the backward pass, 0 to 1.
    algorithm : {"ring", "tree", "switch"}, optional

    Returns
    -------
    dict
        ``seconds`` per step, ``allreduce`` (seconds), ``efficiency`` (of `count` devices).

    Raises
    ------
    ValueError
        The share is outside 0 to 1, or the time is not positive.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> found = hw.multi.data_parallel(0.1, 1e9, 8, "a100-sxm-80gb")
    >>> round(found["efficiency"], 3)
    0.945
    """
    step_seconds = check_number("multi.data_parallel", "step_seconds", step_seconds)
    overlapped = check_number("multi.data_parallel", "overlapped", overlapped, high=1.0, closed=True)
    reduce = allreduce(gradient_bytes, count, link, algorithm=algorithm)
    seconds = step_seconds + reduce * (1 - overlapped)
    return {"seconds": seconds, "allreduce": reduce, "efficiency": step_seconds / seconds}


def one_process(
    step_seconds: float,
    gradient_bytes: float,
    count: int,
    link: float | str | Device,
    input_bytes: float = 0.0,
    output_bytes: float = 0.0,
) -> dict[str, float]:
    """Compute the time of a step if one process feeds all devices, as torch's ``DataParallel`` does.

    In each step the first device broadcasts the weights, scatters the batch, gathers the outputs, and receives the sum
    of the gradients. Nothing overlaps the work. `data_parallel` is ``DistributedDataParallel``.

    Parameters
    ----------
    step_seconds : float
        Forward and backward pass on one device.
    gradient_bytes : float
        The weights that are sent have as many bytes.
    count : int
    link : float, str or Device
        As in `collective`.
    input_bytes, output_bytes : float, optional
        Bytes of the whole batch.

    Returns
    -------
    dict
        ``seconds`` per step, ``moved`` (seconds of the four collectives), ``efficiency`` (of `count` devices).

    Raises
    ------
    ValueError
        A time is not positive, bytes are negative, or a count or link is not positive.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> found = hw.multi.one_process(0.1, 1e9, 8, "a100-sxm-80gb")
    >>> round(found["efficiency"], 3), round(hw.multi.data_parallel(0.1, 1e9, 8, "a100-sxm-80gb")["efficiency"], 3)
    (0.938, 0.945)
    """
    step_seconds = check_number("multi.one_process", "step_seconds", step_seconds)
    sizes = {"broadcast": gradient_bytes, "scatter": input_bytes, "gather": output_bytes, "reduce": gradient_bytes}
    moved = sum(collective(kind, size, count, link) for kind, size in sizes.items())
    seconds = step_seconds + moved
    return {"seconds": seconds, "moved": moved, "efficiency": step_seconds / seconds}


def parameter_server(
    step_seconds: float, gradient_bytes: float, count: int, link: float | str | Device, servers: int = 1
) -> dict[str, Any]:
    """Compute the rate of asynchronous data-parallel training, in which workers push gradients and pull weights.

    Parameters
    ----------
    step_seconds : float
        Forward and backward pass on one worker.
    gradient_bytes : float
        The weights that are returned have as many bytes.
    count : int
        Number of workers.
    link : float, str or Device
        B/s one way of each worker and each server.
    servers : int, optional
        Number of servers that share the weights.

    Returns
    -------
    dict
        ``updates`` (per second, of all workers), ``efficiency`` (of `count` workers), ``staleness`` (mean number of
        updates by other workers between a worker's pull and its push), ``bound``: ``"workers"`` or ``"servers"``.

    Raises
    ------
    ValueError
        A number is not positive.

    Notes
    -----
    Each update sends the gradients in and the weights out; links work in both directions at once. Workers do not wait
    for each other. Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> found = hw.multi.parameter_server(0.1, 1e9, 8, 12.5e9, servers=2)
    >>> round(found["updates"], 1), found["bound"], found["staleness"]
    (25.0, 'servers', 7.0)
    """
    step_seconds = check_number("multi.parameter_server", "step_seconds", step_seconds)
    gradient_bytes = check_number("multi.parameter_server", "gradient_bytes", gradient_bytes, closed=True)
    count = check_count("multi.parameter_server", "count", count)
    servers = check_count("multi.parameter_server", "servers", servers)
    rate = link_rate(link)
    single_rate = count / (step_seconds + 2 * gradient_bytes / rate)
    served = servers * rate / gradient_bytes if gradient_bytes else math.inf
    updates = min(single_rate, served)
    return {
        "updates": updates,
        "efficiency": updates * step_seconds / count,
        "staleness": float(count - 1),
        "bound": "workers" if single_rate <= served else "servers",
    }


def tensor_parallel(
    step_seconds: float,
    activation_bytes: float,
    blocks: int,
    count: int,
    link: float | str | Device | Fabric,
    reductions: int = 4,
) -> dict[str, float]:
    """Compute the time of a step if each block of a transformer is cut over devices, with sums of the outputs.

    Parameters
    ----------
    step_seconds : float
        Time on one device that could hold everything, at the rate that each device reaches.
    activation_bytes : float
        Bytes of one block's output: batch x positions x width x bytes.
    blocks : int
    count : int
    link : float, str, Device or Fabric
        As in `allreduce`.
    reductions : int, optional
        All-reduces per block: 2 forward (attention, feed-forward), 2 backward; 2 more with recomputation; 2 to infer.

    Returns
    -------
    dict
        ``seconds``, ``allreduce`` (seconds of all), ``efficiency``.

    Raises
    ------
    ValueError
        A number is not positive.

    Notes
    -----
    Shoeybi et al., "Megatron-LM", arXiv 1909.08053, section 3. Nothing overlaps, because the sum is needed at once. The
    lower efficiency of narrower matmuls is not modelled.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> round(hw.multi.tensor_parallel(14.6, 50.3e6, 72, 8, 150e9, 6)["efficiency"], 2)
    0.88
    """
    step_seconds = check_number("multi.tensor_parallel", "step_seconds", step_seconds)
    blocks = check_count("multi.tensor_parallel", "blocks", blocks)
    reductions = check_count("multi.tensor_parallel", "reductions", reductions)
    reduce = blocks * reductions * allreduce(activation_bytes, count, link)
    single_rate = step_seconds / count
    return {"seconds": single_rate + reduce, "allreduce": reduce, "efficiency": single_rate / (single_rate + reduce)}


def pipeline_parallel(
    stages: int | Sequence[float], microbatches: int, interleaved: int = 1, copy_seconds: float = 0.0
) -> dict[str, float]:
    """Compute the time of a batch that passes through stages in microbatches, and the share of idle time.

    Parameters
    ----------
    stages : int or sequence of float
        Number of equal stages, or the seconds of each stage for one microbatch, forward and backward.
    microbatches : int
        Microbatches per batch.
    interleaved : int, optional
        Number of separate parts of a stage, which divides the filling time. Only for equal stages.
    copy_seconds : float, optional
        Time from one stage to the next, for one microbatch.

    Returns
    -------
    dict
        ``seconds`` (in units of a stage's time if `stages` is a number); ``bubble``, the share of idle time of the
        stages, (p - 1) / (m + p - 1) for equal ones; ``efficiency`` = 1 - bubble; ``speedup`` over one device.

    Raises
    ------
    ValueError
        Counts or times are not positive, or unequal stages have several parts.

    Notes
    -----
    Seconds: the sum of the stages and of the copies between them for the first microbatch, and the slowest stage for
    every other one. Huang et al., "GPipe", NeurIPS 2019; interleaving: Narayanan et al., SC 2021.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> found = hw.multi.pipeline_parallel(8, 32)
    >>> round(found["bubble"], 4), round(found["speedup"], 2)
    (0.1795, 6.56)
    """
    name = "multi.pipeline_parallel"
    microbatches = check_count(name, "microbatches", microbatches)
    interleaved = check_count(name, "interleaved", interleaved)
    copy_seconds = check_number(name, "copy_seconds", copy_seconds, closed=True)
    if isinstance(stages, Sequence):
        times = [check_number(name, "stages", seconds) for seconds in stages]
        if interleaved > 1 and len(set(times)) > 1:
            raise WrongValue(f"{name}: interleaved is {interleaved}, expected 1: the stages are not equal")
    else:
        if check_count(name, "stages", stages) > 1 << 20:
            raise WrongValue(f"{name}: stages is {stages}, expected at most 2^20")
        times = [1.0] * stages
    if not times:
        raise WrongValue(f"{name}: stages are empty, expected one or more")
    first = sum(times) - max(times) + copy_seconds * (len(times) - 1) * interleaved
    seconds = first / interleaved + microbatches * max(times)
    busy = microbatches * math.fsum(times)
    efficiency = busy / (seconds * len(times))
    return {"seconds": seconds, "bubble": 1 - efficiency, "efficiency": efficiency, "speedup": busy / seconds}
