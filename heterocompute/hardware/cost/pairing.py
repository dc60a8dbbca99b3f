"""The type in which a device multiplies a pair of formats, and the cost of a product of stored weights with one row."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ...base.errors import WrongValue
from ...base.lazy import renamed
from ...formats import Format, format as parse_format, is_function, is_rotated, unrotated
from ..chips.chip import Device
from ..chips.database import device as find_device
from ..silicon.gate_costs import float_add
from ..silicon.mac import mac
from ..silicon.operands import Operand, operand

__all__ = ["product_dtype"]

FLOATS = ("fp16", "bf16", "fp32")  # the fastest of these, the first if equal, replaces a type without a rate


@renamed(chip="device")
def product_dtype(device: str | Device, weights: str | Format | None, activations: str | Format | None) -> str:
    """Return the fastest type of a device that holds the codes of both operands; scales are applied afterwards.

    Parameters
    ----------
    device : str or Device
    weights, activations : Format, str or None
        None is float: with None for the activations, packed weights are decoded on the fly.

    Returns
    -------
    str
        ``int4``, ``int8``, ``int16``, ``fp8``, ``fp4``, or the fastest of fp16, bf16, fp32; on a tie the first.

    Raises
    ------
    ValueError
        The device supports none of them.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.product_dtype("a100-sxm-80gb", "vsq4-g16-s4", "int8"), hw.product_dtype("a100-sxm-80gb", "int4", None)
    ('int8', 'fp16')
    """
    one = find_device(device)
    if weights is not None and activations is not None:
        w, x = operand(weights), operand(activations)
        if w.kind == x.kind == "int":
            bits = max(w.bits, x.bits)
            fitting = [name for name, width in (("int4", 4), ("int8", 8), ("int16", 16)) if bits <= width]
            for name in fitting:
                if name in one.dense_rates:
                    return name
        small = max(_fp8_bits(w), _fp8_bits(x))
        for name, width in (("fp4", 4), ("fp8", 8)):
            if small <= width and name in one.dense_rates:
                return name
    found = max((name for name in FLOATS if name in one.dense_rates), key=one.dense_rates.__getitem__, default=None)
    if found is None:
        if one.dense_rates:
            return max(one.dense_rates, key=lambda name: one.dense_rates[name])
        raise WrongValue(f"{one.name}: no rate is known; pass a device with a rate, such as hw.Device(..., peak=...)")
    return found


def format_columns(
    chip: str | Device,
    tensors: Iterable[tuple[int, int, int, str | Format | None]],
    activations: str | Format | None,
    additions: float = 0.0,
) -> dict[str, Any]:
    """Return the columns that a study adds to a row: the modelled cost of one product of each tensor with one row.

    Parameters
    ----------
    chip : str or Device
        ``"mac"`` is the arithmetic alone, at 45 nm.
    tensors : iterable of (rows, columns, stored bytes, format)
        Weights as matrices (outputs, reduction); a format of None are floats as they came. For a rotated format the
        input of the product is rotated in the call: log2 of the block additions in fp32 per value, and no bytes.
    additions : float, optional
        Further additions of a device, such as those of rotated queries.

    Returns
    -------
    dict
        For ``"mac"``: ``mac_pj`` and ``mac_um2`` of one multiply-add, the mean over the tensors weighted by their
        sizes; activations of None are fp32. For a device: ``device_us`` (roofline of each product, summed) and
        ``device_uj`` (that time at the full design power, so an upper bound; None where it is not known).
    """
    listed = list(tensors)
    if any(is_function(fmt) for *_, fmt in listed):  # what would compute it is unknown
        return dict.fromkeys(("mac_pj", "mac_um2") if chip == "mac" else ("device_us", "device_uj"))
    if chip == "mac":
        total = sum(rows * columns for rows, columns, _, _ in listed)
        if not total:
            return {"mac_pj": None, "mac_um2": None}
        costs = [
            (
                rows * columns / total,
                mac("fp32" if fmt is None else unrotated(fmt), activations or "fp32", _sum_bits(fmt, activations)),
                float_add(24) * (turning(columns, fmt) / max(rows * columns, 1)),
            )
            for rows, columns, _, fmt in listed
        ]
        return {
            "mac_pj": math.fsum(share * (cost.energy_pj + turn.energy) for share, cost, turn in costs),
            "mac_um2": math.fsum(share * (cost.area_um2 + turn.area) for share, cost, turn in costs),
        }
    one = find_device(chip)
    adding = one.peak(product_dtype(one, None, None))
    seconds = [additions / adding]
    for rows, columns, stored_bytes, fmt in listed:
        dtype = product_dtype(one, unrotated(fmt), activations)
        moved = stored_bytes + 2 * columns + 2 * rows  # 16-bit activations
        operating = 2 * rows * columns / one.peak(dtype) + turning(columns, fmt) / adding
        seconds.append(max(operating, moved / one.need("bandwidth")))
    time = math.fsum(seconds)
    return {"device_us": 1e6 * time, "device_uj": None if one.tdp is None else 1e6 * time * one.tdp}


def turning(columns: int, fmt: str | Format | None) -> float:
    """Return the additions that rotate a row of a product's input, 0 for a format without rotation.

    Examples
    --------
    >>> turning(4096, "int4-g32+had"), turning(4096, "int4-g32")
    (32768.0, 0.0)
    """
    found = parse_format(fmt) if isinstance(fmt, str) else fmt
    if found is None or not is_rotated(found):
        return 0.0
    return columns * math.log2(found.block_of(columns, "format"))


def _sum_bits(weights: str | Format | None, activations: str | Format | None) -> int | None:
    """Return the bits of sums: for integers the default of `mac`, for floats fp32."""
    return None if weights is not None and activations is not None else 32


def _fp8_bits(one: Operand) -> int:
    return one.bits if one.kind == "float" else 99
