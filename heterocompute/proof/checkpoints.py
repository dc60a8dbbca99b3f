"""The differences of two checkpoints, tensor by tensor, whatever their layouts."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from ..base.float_env import call_back
from ..base.progress import Progress
from ..base.tensors import Tensors
from ..base.texts import quoted
from .difference import Difference
from .opened import array_in, declared_in, opened
from .reasons import steps_between

Array = np.ndarray[Any, Any]

BLOCK = 1 << 20
BINS = 256
KEYS = ("name", "status", "shape", "a", "b", "values", "ulp", "sqnr_db", "codes", "steps", "kl_bits", "index")
CAUSES = {"only in a": "missing", "only in b": "missing", "shape": "shape"}


def diff_checkpoints(
    a: str, b: str, layouts: tuple[str | None, str | None] = (None, None), progress: Progress | None = None
) -> Difference:
    """Compare two checkpoints; the arguments are those of `diff`."""
    with opened(a, layouts[0]) as left, opened(b, layouts[1]) as right:
        names = [*left.names, *(name for name in right.names if name not in left)]
        rows = []
        for i, name in enumerate(names):
            if progress:
                call_back(progress, i, len(names), name)
            rows.append(_row(left, right, name))
        notes = _notes(left, right)
    if progress:
        call_back(progress, len(names), len(names), "")
    rows.sort(key=_harm)
    wrong = [row for row in rows if row["status"] not in ("equal", "layout")]
    if not wrong:
        return Difference(True, None, None, rows=rows, notes=notes)
    first = wrong[0]
    cause = CAUSES.get(first["status"]) or ("format" if first["a"] != first["b"] else "weights")
    return Difference(False, first["name"], cause, rows=rows, notes=notes)


def _harm(row: dict[str, Any]) -> tuple[int, float]:
    """Return the order of rows: missing tensors, other shapes, the lowest ratio of signal to difference."""
    rank = {"only in a": 0, "only in b": 0, "shape": 1, "differs": 2, "layout": 3, "equal": 4}[row["status"]]
    worst = -math.inf if row["values"] else math.inf  # without a ratio: values that are not finite, or only bits differ
    return rank, worst if row["sqnr_db"] is None else row["sqnr_db"]


def _row(left: Tensors, right: Tensors, name: str) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(KEYS)
    row |= {"name": name, "status": "equal"}
    for key, reader in (("a", left), ("b", right)):
        if name in reader:
            row[key] = declared_in(reader, name)
            row["shape"] = list(reader.info(name).shape)
    if name not in left or name not in right:
        return row | {"status": "only in a" if name in left else "only in b"}
    shapes = left.info(name).shape, right.info(name).shape
    if shapes[0] != shapes[1]:
        return row | {"status": "shape", "shape": [list(shape) for shape in shapes]}
    first, second = (array_in(reader, name) if row["a"] == row["b"] else None for reader in (left, right))
    if first is not None and second is not None:
        try:
            share, steps = steps_between(first, second)
            row |= {"codes": share, "steps": steps}
        except (AttributeError, KeyError, TypeError, ValueError):  # codes without an order
            pass
    x, y = (np.asarray(reader.tensor(name)) for reader in (left, right))
    return row | _compared(x, y, row["a"] == row["b"])


def _compared(x: Array, y: Array, is_same_kind: bool) -> dict[str, Any]:
    """Return how the values of two arrays differ."""
    is_integer = x.dtype.kind in "biu" and y.dtype.kind in "biu"
    is_wide = np.float64 in (x.dtype, y.dtype)
    a, b = x.reshape(-1), y.reshape(-1)
    count, first, ulp, noise, signal = 0, None, 0, 0.0, 0.0
    for begin in range(0, a.size, BLOCK):
        p, q = a[begin : begin + BLOCK], b[begin : begin + BLOCK]
        signal += float(np.square(_finite(p)).sum())
        if x.dtype == y.dtype and p.tobytes() == q.tobytes():
            continue
        if not is_integer:
            p, q = (one.astype(np.float64 if is_wide else np.float32) for one in (p, q))
        wrong = (p != q) & ~((p != p) & (q != q))  # a NaN is a NaN
        if not wrong.any():
            continue
        count += int(wrong.sum())
        first = begin + int(wrong.argmax()) if first is None else first
        noise += float(np.square(_finite(p) - _finite(q)).sum())
        if not is_integer:
            ulp = max(ulp, int(_ulps(p[wrong], q[wrong]).max(initial=0)))
            noise = math.inf if (np.isfinite(p) != np.isfinite(q)).any() else noise
    if first is None:
        wrong_bits = _other_bits(a, b) if is_same_kind else None
        if wrong_bits is not None:
            return {"status": "differs", "values": 0.0, "ulp": 0, "index": _index(wrong_bits, x.shape)}
        return {"status": "equal" if is_same_kind else "layout", "values": 0.0}
    return {
        "status": "differs",
        "values": count / a.size,
        "ulp": None if is_integer else ulp,
        "sqnr_db": 10 * math.log10(signal / noise) if signal and 0 < noise < math.inf else None,
        "kl_bits": None if is_integer else _divergence(a, b),
        "index": _index(first, x.shape),
    }


def _finite(values: Array) -> Array:
    """Return values as float64, 0 for those that are not finite."""
    found = values.astype(np.float64)
    found[~np.isfinite(found)] = 0
    return found


def _other_bits(a: Array, b: Array) -> int | None:
    """Return the first index of other bits of equal values, such as -0 and 0."""
    if a.dtype != b.dtype or not a.size:
        return None
    one, other = (array.view(np.uint8).reshape(a.size, -1) for array in (a, b))
    wrong = (one != other).any(axis=1)
    return int(wrong.argmax()) if wrong.any() else None


def _index(at: int, shape: tuple[int, ...]) -> list[int]:
    return [int(i) for i in np.unravel_index(at, shape)] if shape else []


def _ulps(p: Array, q: Array) -> Array:
    """Return the number of floats between two arrays of floats, at most 2^62."""
    kind = np.int32 if p.dtype == np.float32 else np.int64
    least = np.iinfo(kind).min
    ordered = []
    for one in (p, q):
        bits = one.view(kind).astype(np.float64 if kind is np.int64 else np.int64)
        ordered.append(np.where(bits < 0, float(least) - bits if kind is np.int64 else least - bits, bits))
    return np.asarray(np.minimum(np.abs(ordered[0] - ordered[1]), 2**62), np.int64)


def _divergence(a: Array, b: Array) -> float | None:
    """Return the KL divergence of the histograms of values, in bits; one is added to each bin."""
    p, q = (one.astype(np.float32)[np.isfinite(one.astype(np.float32))] for one in (a, b))
    if not p.size or not q.size:
        return None
    ends = float(min(p.min(), q.min())), float(max(p.max(), q.max()))
    if ends[0] == ends[1]:
        return 0.0
    counts = [np.histogram(one, BINS, ends)[0] + 1.0 for one in (p, q)]
    first, second = (one / one.sum() for one in counts)
    return float((first * np.log2(first / second)).sum())


def _notes(left: Tensors, right: Tensors) -> list[str]:
    """Return differences of the metadata, and tensors that cannot be read."""
    found = []
    a, b = left.metadata, right.metadata
    keys = [key for key in sorted({*a, *b}) if a.get(key) != b.get(key) and key != "heterocompute"]
    if keys:
        found.append("metadata differ: " + ", ".join(map(quoted, keys[:8])) + (", ..." if len(keys) > 8 else ""))
    for word, reader in (("a", left), ("b", right)):
        if reader.skipped:
            names = ", ".join(map(quoted, list(reader.skipped)[:3]))
            found.append(f"{len(reader.skipped)} tensors of {word} cannot be read and are not compared: {names}")
    return found


def name_of(path: str) -> str:
    """Return the short name of a checkpoint for a title."""
    return os.path.basename(os.path.normpath(path))
