"""Several devices: the time of an all-reduce, and of training steps that share it."""

from __future__ import annotations

import math

from ...base.values import check_count
from ..chips.chip import Device
from ..chips.database import device

__all__ = ["allreduce", "data_parallel"]


def allreduce(size: float, count: int, link: float | str | Device, latency: float = 0.0) -> float:
    """Return the time of a ring all-reduce: 2 (n - 1) / n of the bytes leave each device, in 2 (n - 1) steps.

    Parameters
    ----------
    size : float
        Bytes that each device holds.
    count : int
        Devices.
    link : float, str or Device
        B/s one way out of each device; or a device, whose fastest link it is (half of the rate of both directions).
    latency : float, optional
        Seconds of each step.

    Returns
    -------
    float
        Seconds.

    Raises
    ------
    ValueError
        A count or a link that is not positive, a negative size or latency, a device without links.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> round(hw.multi.allreduce(1e9, 8, "a100-sxm-80gb") * 1e3, 3)
    5.833
    """
    check_count("multi.allreduce", "count", count)
    for name, value in (("size", size), ("latency", latency)):
        if not 0 <= value < math.inf:
            raise ValueError(f"multi.allreduce: {name} is {value!r}, wanted a number from 0 up")
    if isinstance(link, (int, float)):
        rate = float(link)
        if not rate > 0:
            raise ValueError(f"multi.allreduce: link is {link!r}, wanted B/s above 0")
    else:
        one = device(link)
        if not one.links:
            raise ValueError(f"{one.name}: no link is known")
        rate = max(one.links.values()) / 2
    return 2 * (count - 1) / count * size / rate + 2 * (count - 1) * latency


def data_parallel(
    step_seconds: float,
    gradient_bytes: float,
    count: int,
    link: float | str | Device,
    overlapped: float = 0.0,
) -> dict[str, float]:
    """Return what a step of data-parallel training takes: the same network everywhere, gradients summed.

    Parameters
    ----------
    step_seconds : float
        Forward and backward pass on one device.
    gradient_bytes : float
    count : int
    link : float, str or Device
        As for `allreduce`.
    overlapped : float, optional
        Share of the all-reduce that is hidden behind the backward pass, 0 to 1.

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
    if not step_seconds > 0:
        raise ValueError(f"multi.data_parallel: step_seconds is {step_seconds!r}, wanted a number above 0")
    if not 0 <= overlapped <= 1:
        raise ValueError(f"multi.data_parallel: overlapped is {overlapped!r}, wanted 0 to 1")
    reduce = allreduce(gradient_bytes, count, link)
    seconds = step_seconds + reduce * (1 - overlapped)
    return {"seconds": seconds, "allreduce": reduce, "efficiency": step_seconds / seconds}
