"""The contents of a packed array, one number per value: codes, scales, zero points, minima.

No format is decoded here. A scale is the core's decoded value of the code for 1 (`StoredForm.one`), so each format's
scales are defined in one place.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..base import runtime
from ..base.devices import A_DEVICE
from ..base.errors import Unsupported, WrongType, WrongValue, unsupported
from ..base.float_env import counts_subnormals
from ..formats import has_pattern
from .bits import pack, rows_per_chunk, unpack
from .components import component_layout
from .device import DeviceArray
from .metadata import check_metadata

Array = np.ndarray[Any, Any]

_FLOAT32 = np.dtype(np.float32)
_BLOCK = 1 << 20  # codes packed at a time


def code_geometry(q: Any) -> tuple[int, int, int, int]:
    """Return the runs of a row, the stored values of a run, and its codes with and without mere padding."""
    length, fmt = q.shape[q.axis[-1]], q.format
    if has_pattern(fmt):
        length, fmt = fmt.stored_length(length), fmt.base
    dim, unit = max(fmt.form.code_values, 1), fmt.unit
    runs = prod(q.shape[a] for a in q.axis[:-1])
    group = length if q.format.group is None else min(q.format.group, length)
    group = -(-max(group, 1) // unit) * unit
    padded = -(-length // group) * group
    return runs, length, padded // dim, -(-length // dim)


def row_codes(q: Any, first: int = 0, rows: int | None = None) -> Array:
    """Return the codes of some rows, (rows, runs, codes of a run), padding included."""
    runs, _, padded, _ = code_geometry(q)
    stored = q._packed()[3]["codes"][first : None if rows is None else first + rows]
    return unpack(stored, q._stored_format.bits, runs * padded).reshape(len(stored), runs, padded)


def codes_of(q: Any) -> Array:
    """Return the codes as integers in the array's shape, signed if the format is; 0 at pruned positions."""
    fmt = q._stored_format
    bits = fmt.bits
    width = 8 if bits <= 8 else 16 if bits <= 16 else 32
    found = row_codes(q)[:, :, : code_geometry(q)[3]].astype(f"u{width // 8}", copy=False)
    if fmt.form.signed:
        spare = width - bits
        found = (found << found.dtype.type(spare)).view(f"i{width // 8}") >> np.int8(spare)
    return _in_shape(q, _scattered(q, found))


def zero_points_of(q: Any) -> Array:
    """Return the zero point of each value, uint8; zeros if the format has none."""
    if "zero_points" not in q.components:
        return np.zeros(q.shape, np.uint8)
    return _in_shape(q, _scattered(q, _row_zero_points(q)[:, :, : code_geometry(q)[1]]))


@counts_subnormals
def scales_of(q: Any, dtype: Any) -> Array:
    """Return the scale of each value: the decoded value of the code for 1."""
    fmt, parts = q.format, dict(q.components)
    runs, _, padded, _ = code_geometry(q)
    if "values" in parts:
        parts["values"] = np.ones_like(parts["values"])
    elif "zero_points" in parts:
        points = _row_zero_points(q).astype(np.int16)
        beside = np.where(points > 0, points - 1, 1).reshape(len(points), runs * padded)  # one step from the zero point
        parts["codes"] = _packed(beside, fmt.bits)
    elif "codebook" in parts:
        parts["codebook"] = np.ones_like(parts["codebook"])
    else:
        if "minima" in parts:
            parts["minima"] = np.zeros_like(parts["minima"])
        if fmt.form.one is None:
            raise WrongValue(f"scales_expanded: {fmt} has no code of the value 1, from which scales are read")
        one = np.full((1, runs * padded), fmt.form.one, np.uint32)
        parts["codes"] = np.broadcast_to(pack(one, fmt.bits), parts["codes"].shape).copy()
    scales: Array = q._remade(parts, q.shape, q.axis).dequantize(dtype)
    return scales if fmt.stored_rules().negative else np.abs(scales)


@counts_subnormals
def minima_of(q: Any) -> Array:
    """Return the minimum that is added to each scaled value, float32: the value of code 0; zeros without minima."""
    if "minima" not in q.components:
        return np.zeros(q.shape, np.float32)
    parts = {**q.components, "codes": np.zeros_like(q.components["codes"])}
    minima: Array = q._remade(parts, q.shape, q.axis).dequantize()
    return minima


def _row_zero_points(q: Any) -> Array:
    runs, length, padded, _ = code_geometry(q)
    stored, bits = q.components["zero_points"], q.format.bits
    if q.format.group is None:
        return np.broadcast_to(unpack(stored, bits, 1)[:, :, None], (len(stored), runs, padded))
    group = max(1, min(q.format.group, length))
    points = unpack(stored, bits, runs * (padded // group)).reshape(len(stored), runs, padded // group)
    return np.repeat(points, group, axis=2)


def _packed(codes: Array, bits: int) -> Array:
    rows = rows_per_chunk(len(codes), codes.shape[1], _BLOCK)
    parts = [pack(codes[i : i + rows], bits) for i in range(0, len(codes), rows)]
    return np.concatenate(parts) if parts else pack(codes, bits)


def _scattered(q: Any, kept: Array) -> Array:
    """Return a pattern's kept values at their positions, (rows, runs, length); without a pattern, return `kept`."""
    fmt = q.format
    if not has_pattern(fmt):
        return kept
    rows, runs, count = kept.shape
    length, bits = q.shape[q.axis[-1]], (fmt.m - 1).bit_length()
    full = np.zeros((rows, runs, -(-length // fmt.m) * fmt.m), kept.dtype)
    if kept.size:
        problem = check_metadata(q.components["metadata"], fmt, q.shape, q.axis)  # components can be written to
        if problem:
            raise WrongValue(f"{type(q).__name__}: component metadata has {problem}")
        inside = unpack(q.components["metadata"], bits, runs * count) if bits else np.zeros(kept.shape, np.uint8)
        block = np.arange(count) // fmt.n * fmt.m
        np.put_along_axis(full, inside.reshape(kept.shape) + block, kept, 2)
    return full[:, :, :length]


def _in_shape(q: Any, rows: Array) -> Array:
    """Return (rows, runs, length) in the order of the array's axes; length may be one of vectors."""
    order = [*(a for a in range(q.ndim) if a not in q.axis), *q.axis]
    sizes = [q.shape[a] for a in order[:-1]] + [rows.shape[2]]
    return rows.reshape(sizes).transpose(np.argsort(order))


def unsigned_codes(q: Any) -> Array:
    """Return the codes as unsigned integers of the array's shape; a view if codes are whole bytes."""
    bits, axis = q._format.bits, q._axis
    others = [a for a in range(q.ndim) if a not in axis]
    runs, length, padded, _ = code_geometry(q)
    stored = q._components["codes"]
    if bits in (8, 16, 32):
        rows = stored.view(f"<u{bits // 8}") if stored.size else stored.astype(f"<u{bits // 8}")
    else:
        block = rows_per_chunk(len(stored), runs * padded, _BLOCK)
        parts = [unpack(stored[i : i + block], bits, runs * padded) for i in range(0, len(stored), block)]
        rows = np.concatenate(parts) if parts else stored
    rows = rows.reshape(len(stored), runs, padded)[:, :, :length]
    order = [*others, *axis]
    values: Array = rows.reshape([q._shape[a] for a in order]).transpose(np.argsort(order))
    return values


def elements_of(q: Any) -> Array:
    """Return the unscaled elements in the matching type of NumPy or ml_dtypes."""
    element = q._format.element_dtype
    if element is None:
        raise WrongType(f"view_ml_dtypes: neither NumPy nor ml_dtypes has a type for the elements of {q._format}")
    import ml_dtypes  # 5 ms

    dtype = np.dtype(getattr(ml_dtypes, element, element))
    codes: Array = q._codes()
    values: Array
    bits = q._format.bits
    if codes.itemsize == dtype.itemsize:
        values = codes.view(dtype)
    else:
        values = codes.astype(f"u{dtype.itemsize}").view(dtype)
    if bits < 8 and element.startswith("int"):  # two's complement in the low bits of a byte
        values = (codes.astype(np.int8) << (8 - bits) >> (8 - bits)).astype(dtype)
    return values


def codes_along(q: Any, axis: tuple[int, ...]) -> Array:
    """Return the packed codes in rows along other axes, for formats without components per row."""
    others = [a for a in range(q.ndim) if a not in axis]
    length = prod(q._shape[a] for a in axis)
    transposed = q._codes().transpose([*others, *axis]).reshape(-1 if length else 0, length)
    layout = component_layout(q._format, q._shape, axis)
    codes = np.zeros(layout["codes"][1], np.uint8)
    block = rows_per_chunk(len(transposed), length, _BLOCK)
    for i in range(0, len(transposed), block):
        codes[i : i + block] = pack(transposed[i : i + block], q._format.bits)
    return codes


def decoded_on_device(q: Any, wanted: np.dtype[Any], first: DeviceArray) -> DeviceArray:
    """Return the values on the device of the first component."""
    if wanted is not _FLOAT32 and wanted not in (np.float32, np.float64):
        raise Unsupported(f"dequantize: dtype is {wanted.name}, {A_DEVICE} writes float32 or float64")
    out = DeviceArray.empty(q._shape, wanted, first.number, first.stream)
    if out.size:
        try:
            _core.dequantize(runtime.run_on(first.number, first.stream), q._packed(), out.view)
        except NotImplementedError as problem:
            raise unsupported("dequantize", problem) from None
    return out
