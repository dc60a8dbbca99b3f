"""Training split over devices: by data (with or without waiting), by the inside of layers, by layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....base.values import check_count, check_number
from ...chips.chip import Device
from .collectives import allreduce, collective, link_rate
from .fabric import Fabric

__all__ = ["data_parallel", "one_process", "parameter_server", "pipeline_parallel", "tensor_parallel"]


def data_parallel(
    step_seconds: float,
    gradient_bytes: float,
    count: int,
    link: float | str | Device | Fabric,
    overlapped: float = 0.0,
    algorithm: str = "ring",
) -> dict[str, float]:
    """Return what a step of synchronous data-parallel training takes: the same network everywhere, gradients summed.

    Parameters
    ----------
    step_seconds : float
        Forward and backward pass on one device.
    gradient_bytes : float
    count : int
    link : float, str, Device or Fabric
        As for `allreduce`.
    overlapped : float, optional
        Share of the all-reduce that is hidden behind the backward pass, 0 to 1.
    algorithm : {"ring", "tree", "switch"}, optional

    Returns
    -------
    dict
        ``seconds`` a step, ``allreduce`` (seconds), ``efficiency`` (of `count` devices).

    Raises
    ------
    ValueError
        A share outside 0 to 1, a time that is not positive.

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
    """Return what a step takes where one process feeds all devices, as torch's ``DataParallel`` does.

    Each step the first device broadcasts the weights, scatters the batch, gathers the outputs, and gets the sum of the
    gradients; nothing of it hides behind the work. `data_parallel` is ``DistributedDataParallel``.

    Parameters
    ----------
    step_seconds : float
        Forward and backward pass on one device.
    gradient_bytes : float
        As many bytes of weights go out.
    count : int
    link : float, str or Device
        As for `collective`.
    input_bytes, output_bytes : float, optional
        Of the whole batch.

    Returns
    -------
    dict
        ``seconds`` a step, ``moved`` (seconds of the four collectives), ``efficiency`` (of `count` devices).

    Raises
    ------
    ValueError
        A time that is not positive, negative bytes, a count or a link that is not positive.

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
    """Return what asynchronous data-parallel training reaches: workers push gradients, pull weights, wait for nobody.

    Parameters
    ----------
    step_seconds : float
        Forward and backward pass on one worker.
    gradient_bytes : float
        As many bytes of weights come back.
    count : int
        Workers.
    link : float, str or Device
        B/s one way of each worker and each server.
    servers : int, optional
        Which share the weights.

    Returns
    -------
    dict
        ``updates`` (a second, of all workers), ``efficiency`` (of `count` workers), ``staleness`` (updates of others
        between a worker's pull and its push, on average), ``bound``: ``"workers"`` or ``"servers"``.

    Raises
    ------
    ValueError
        Numbers that are not positive.

    Notes
    -----
    Each update sends the gradients in and the weights out; links carry both directions at once. Li et al., "Scaling
    distributed machine learning with the parameter server", OSDI 2014.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> found = hw.multi.parameter_server(0.1, 1e9, 8, 12.5e9, servers=2)
    >>> round(found["updates"], 1), found["bound"], found["staleness"]
    (25.0, 'servers', 7.0)
    """
    step_seconds = check_number("multi.parameter_server", "step_seconds", step_seconds)
    gradient_bytes = check_number("multi.parameter_server", "gradient_bytes", gradient_bytes, closed=True)
    check_count("multi.parameter_server", "count", count)
    check_count("multi.parameter_server", "servers", servers)
    rate = link_rate(link)
    alone = count / (step_seconds + 2 * gradient_bytes / rate)
    served = servers * rate / gradient_bytes if gradient_bytes else math.inf
    updates = min(alone, served)
    return {
        "updates": updates,
        "efficiency": updates * step_seconds / count,
        "staleness": float(count - 1),
        "bound": "workers" if alone <= served else "servers",
    }


def tensor_parallel(
    step_seconds: float,
    activation_bytes: float,
    blocks: int,
    count: int,
    link: float | str | Device | Fabric,
    reductions: int = 4,
) -> dict[str, float]:
    """Return what a step takes when each block of a transformer is cut over devices: outputs are summed in each.

    Parameters
    ----------
    step_seconds : float
        On one device that could hold it all, at the rate that each device reaches.
    activation_bytes : float
        Of one block's output: batch x positions x width x bytes.
    blocks : int
    count : int
    link : float, str, Device or Fabric
        As for `allreduce`.
    reductions : int, optional
        All-reduces a block: 2 forward (attention, feed-forward), 2 backward; 2 more with recomputation; 2 to infer.

    Returns
    -------
    dict
        ``seconds``, ``allreduce`` (seconds of all), ``efficiency``.

    Raises
    ------
    ValueError
        Numbers that are not positive.

    Notes
    -----
    Shoeybi et al., "Megatron-LM", arXiv 1909.08053, section 3. Nothing is hidden: the sum is needed at once. That
    narrower products reach less of a chip's rate is not in here.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> round(hw.multi.tensor_parallel(14.6, 50.3e6, 72, 8, 150e9, 6)["efficiency"], 2)
    0.88
    """
    step_seconds = check_number("multi.tensor_parallel", "step_seconds", step_seconds)
    check_count("multi.tensor_parallel", "blocks", blocks)
    check_count("multi.tensor_parallel", "reductions", reductions)
    reduce = blocks * reductions * allreduce(activation_bytes, count, link)
    alone = step_seconds / count
    return {"seconds": alone + reduce, "allreduce": reduce, "efficiency": alone / (alone + reduce)}


def pipeline_parallel(
    stages: int | Sequence[float], microbatches: int, interleaved: int = 1, copy_seconds: float = 0.0
) -> dict[str, float]:
    """Return what a batch takes that passes through stages in small pieces, and how long stages wait.

    Parameters
    ----------
    stages : int or sequence of float
        How many equal ones; or the seconds of each for one piece, forward and backward.
    microbatches : int
        Pieces of a batch.
    interleaved : int, optional
        Parts of a stage that lie apart, so that filling takes a part of the time. Only of equal stages.
    copy_seconds : float, optional
        From one stage to the next, for one piece.

    Returns
    -------
    dict
        ``seconds`` (in units of a stage's time if `stages` is a number), ``bubble``: the share of the time in which
        stages wait, (p - 1) / (m + p - 1) of equal ones; ``efficiency`` = 1 - bubble; ``speedup`` over one device.

    Raises
    ------
    ValueError
        Counts or times that are not positive; parts of unequal stages.

    Notes
    -----
    Seconds: the sum of the stages and of the copies between them for the first piece, and the slowest stage for every
    other. Huang et al., "GPipe", NeurIPS 2019; interleaving: Narayanan et al., SC 2021.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> found = hw.multi.pipeline_parallel(8, 32)
    >>> round(found["bubble"], 4), round(found["speedup"], 2)
    (0.1795, 6.56)
    """
    name = "multi.pipeline_parallel"
    check_count(name, "microbatches", microbatches)
    check_count(name, "interleaved", interleaved)
    check_number(name, "copy_seconds", copy_seconds, closed=True)
    if isinstance(stages, Sequence):
        times = [check_number(name, "stages", seconds) for seconds in stages]
        if interleaved > 1 and len(set(times)) > 1:
            raise ValueError(f"{name}: interleaved is {interleaved}, wanted 1: the stages are not equal")
    else:
        if check_count(name, "stages", stages) > 1 << 20:
            raise ValueError(f"{name}: stages is {stages}, wanted at most 2^20")
        times = [1.0] * stages
    if not times:
        raise ValueError(f"{name}: stages are empty, wanted one or more")
    first = sum(times) - max(times) + copy_seconds * (len(times) - 1) * interleaved
    seconds = first / interleaved + microbatches * max(times)
    busy = microbatches * math.fsum(times)
    efficiency = busy / (seconds * len(times))
    return {"seconds": seconds, "bubble": 1 - efficiency, "efficiency": efficiency, "speedup": busy / seconds}
