"""Which recipe gives the tensors of a file: the formats and rules that its layout allows, tried for each tensor."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..arrays.unpacked import codes_of
from ..base.container import numpy_dtype
from ..base.errors import shown
from ..base.float_env import converted
from ..base.tensors import Tensors
from ..files.layouts.gguf.rounding import rounded
from ..products.quantize import quantize
from .opened import array_in, declared_in, is_packed, opened, weight_in
from .reasons import CLIPS, siblings, steps_between
from .result import DIFFERENT, DIFFERS, EQUAL, EXTRA, MISSING, SKIPPED, UNCHECKED, VERIFIED, TensorCheck, Verification
from .rules import block_rules, casts, integer_rules, levels_of
from .sampling import chosen

Array = np.ndarray[Any, Any]


def guessed(
    place: str,
    source: str,
    layout: str | None,
    sample: int | None,
    seed: int | None,
    part: tuple[int, int] | None,
) -> Verification:
    """Return the answer of `verify` with ``guess=True``; the arguments are those of `verify`."""
    with opened(place, layout) as there, opened(source) as base:
        names = chosen(list(there.names), sample, seed, part)
        rows, labels = [], []
        first = ""
        for name in there.names:
            if name not in names:
                rows.append(TensorCheck(name, SKIPPED))
                continue
            if name not in base:
                rows.append(TensorCheck(name, EXTRA))
                continue
            row, label = _tensor(there, base, name, first)
            first = label if row.status == EQUAL else first
            rows.append(row)
            labels.append(label)
        rows += [TensorCheck(name, MISSING) for name in base.names if name not in there]
    nearest = "; ".join(f"{label}: {count}" for label, count in Counter(filter(None, labels)).most_common()) or None
    wrong = [row for row in rows if row.status not in (EQUAL, SKIPPED)]
    if not any(row.status == EQUAL for row in rows) and all(row.status == EXTRA for row in wrong):
        verdict = f"{UNCHECKED}: no tensor of {os.path.basename(place)} has the name of a tensor of the base"
        return Verification(False, verdict, rows, nearest=nearest, seed=seed)
    if wrong:
        verdict = f"{DIFFERENT}: {wrong[0].name} {wrong[0].status}" + (wrong[0].how and f", {wrong[0].how}")
        return Verification(False, verdict, rows, nearest=nearest, seed=seed)
    return Verification(True, f"{VERIFIED}: {nearest}", rows, nearest=nearest, seed=seed)


def _tensor(there: Tensors, base: Tensors, name: str, first: str) -> tuple[TensorCheck, str]:
    """Check one tensor; return its row and the name of the nearest recipe."""
    values = np.array(base.tensor(name))
    q = array_in(there, name)
    if q is None and not is_packed(there, name):
        return _plain(there.tensor(name), values, name)
    if q is None and (weight := weight_in(there, name)) is not None:
        if weight.model_shape != values.shape:
            return TensorCheck(name, DIFFERS, None, f"has the shape {weight.model_shape}, not {values.shape}"), ""
        rows = values.swapaxes(-1, -2) if weight.turned else values
        rows = np.ascontiguousarray(rows.reshape(weight.matrix))
        if weight.array is not None:
            return _ordered(weight, rows, name, first)
        if weight.order is None and weight.blocks.points is None and "float" in weight.blocks.codes.dtype.name:
            return _blocks(weight, rows, name)
    if q is None:
        return TensorCheck(name, SKIPPED, None, f"no recipe is known for {declared_in(there, name)}"), ""
    if q.shape != values.shape:
        return TensorCheck(name, DIFFERS, None, f"has the shape {q.shape} instead of {values.shape}"), ""
    return _packed(q, values, name, first)


def _ordered(weight: Any, values: Array, name: str, first: str) -> tuple[TensorCheck, str]:
    """Check a matrix whose groups are columns in a stored order, such as that of activations."""
    row, label = _packed(weight.array, np.ascontiguousarray(values[:, weight.order]), name, first)
    at = row.index
    if at is not None:
        at = int(at[0]), int(weight.order[at[1]])
    return TensorCheck(name, row.status, at, f"{row.how}, columns in the stored order"), label


def _blocks(weight: Any, values: Array, name: str) -> tuple[TensorCheck, str]:
    """Check float8 codes with one scale for each block of rows and columns."""
    held = weight.blocks
    stored, scales = _bytes(held.codes).reshape(held.codes.shape), np.asarray(held.scales, np.float32)
    nearest: tuple[float, str, Any] = (2.0, "", None)
    sources = [("", values)]
    sources += [(f" after {one}", converted(values, numpy_dtype(one))) for one in ("bfloat16",)
                if str(values.dtype) != one]  # fmt: skip
    for words, source in sources:
        for rule, codes, wanted in block_rules(source, held.block, held.codes.dtype):
            label = f"{held.codes.dtype} in blocks of {held.block[0]} x {held.block[1]}, {rule}{words}"
            wrong = stored != _bytes(codes).reshape(codes.shape)
            narrow = converted(wanted, held.scales.dtype).astype(np.float32)
            if not wrong.any() and np.array_equal(narrow, scales):
                return TensorCheck(name, EQUAL, None, label), label
            index = _index(wrong, wrong.shape)
            nearest = min(nearest, (float(wrong.mean()), label, index), key=lambda one: one[0])
    share, label, index = nearest
    how = f"nearest is {label}: {share:.2%} of the codes differ" + ("" if share else ", scales differ")
    return TensorCheck(name, DIFFERS, index, how), label


def _plain(stored: Array, values: Array, name: str) -> tuple[TensorCheck, str]:
    if stored.shape != values.shape:
        return TensorCheck(name, DIFFERS, None, f"has the shape {stored.shape} instead of {values.shape}"), ""
    if stored.dtype == values.dtype:
        wrong = _bytes(stored) != _bytes(values)
        if not wrong.any():
            return TensorCheck(name, EQUAL, None, "copied"), "copied"
        return TensorCheck(name, DIFFERS, _index(wrong, stored.shape), f"{wrong.mean():.2%} of the values differ"), ""
    nearest: tuple[float, str, Any] = (2.0, "", None)
    for label, made in casts(values, str(stored.dtype)):
        wrong = _bytes(stored) != _bytes(made)
        if not wrong.any():
            return TensorCheck(name, EQUAL, None, label), label
        nearest = min(nearest, (float(wrong.mean()), label, _index(wrong, stored.shape)), key=lambda one: one[0])
    share, label, index = nearest
    return TensorCheck(name, DIFFERS, index, f"nearest is {label}: {share:.2%} of the values differ"), label


def _bytes(array: Array) -> Array:
    """Return the bytes of each value as one row."""
    flat = np.ascontiguousarray(array).reshape(-1)
    kind = np.dtype((np.void, flat.dtype.itemsize))
    return flat.view(np.uint8).view(kind) if flat.size else np.empty(0, kind)


def _index(wrong: Array, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return tuple(int(i) for i in np.unravel_index(wrong.reshape(-1).argmax(), shape)) if wrong.any() else None


def _packed(q: Any, values: Array, name: str, first: str) -> tuple[TensorCheck, str]:
    """Try each candidate, first the one that fitted the last tensor."""
    nearest: tuple[float, int, str] = (2.0, 0, "")
    ordered = sorted(_makers(q, values), key=lambda one: one[0] != first)
    for label, make in ordered:
        try:
            made = make()
        except (TypeError, ValueError, NotImplementedError):
            continue
        if _equal(q, made):
            return TensorCheck(name, EQUAL, None, label), label
        if (narrow := _narrow_scales(q, made)) is not None:
            words = f"{label}, scales in {narrow}"
            return TensorCheck(name, EQUAL, None, words), words
        nearest = min(nearest, (*steps_between(q, made), label))
    share, steps = nearest[0], nearest[1]
    stored: tuple[Array, Array] | None = None
    for label, levels, scales in integer_rules(values, q):
        stored = stored or levels_of(q)
        far = np.abs(levels - stored[0])
        if not far.any() and np.array_equal(scales, stored[1]):
            return TensorCheck(name, EQUAL, None, label), f"{q.format}, {label}"
        nearest = min(nearest, (float((far > 0).mean()), int(far.max()), label))
    share, steps, label = nearest
    if share > 1:
        return TensorCheck(name, SKIPPED, None, f"no recipe is known for {q.format}"), ""
    index = _first_code(q, ordered, label)
    how = f"nearest is {label}: {share:.2%} of the codes differ" + (
        f" by at most {steps} steps" if steps else ", scales differ"
    )
    return TensorCheck(name, DIFFERS, index, how), label


def _makers(q: Any, values: Array) -> Iterator[tuple[str, Any]]:
    fmt, axes = q.format, q.axis
    yield str(fmt), lambda: quantize(values, fmt, axis=axes)
    yield f"{fmt}, as ggml rounds", lambda: rounded(values, fmt, axes)
    for other in siblings(fmt):
        yield str(other), lambda other=other: quantize(values, other, axis=axes)
    for dtype in ("bfloat16", "float16"):
        if str(values.dtype) != dtype:
            narrow = lambda dtype=dtype: converted(values, numpy_dtype(dtype))  # noqa: E731
            yield f"{fmt} after {dtype}", lambda narrow=narrow: quantize(narrow(), fmt, axis=axes)
            yield f"{fmt} after {dtype}, as ggml rounds", lambda narrow=narrow: rounded(narrow(), fmt, axes)
    for clip in CLIPS:
        yield f"{fmt}, clip={shown(clip)}", lambda clip=clip: quantize(values, fmt, axis=axes, clip=clip)


def _equal(q: Any, made: Any) -> bool:
    """Tell whether two arrays hold the same components; formats may differ in a rule, or in the width of scales."""
    own, other = q.components, made.components
    return own.keys() == other.keys() and all(_is_same(own[key], other[key]) for key in own)


def _narrow_scales(q: Any, made: Any) -> str | None:
    """Return the 16-bit type to which a program rounded the scales of an array; None if that is not the difference."""
    own, other = q.components, made.components
    if own.keys() != other.keys() or "scales" not in own or own["scales"].dtype != np.float32:
        return None
    if not all(_is_same(own[key], other[key]) for key in own if key != "scales"):
        return None
    wanted = np.asarray(other["scales"], np.float32)
    for dtype in ("bfloat16", "float16"):
        with np.errstate(over="ignore"):
            if np.array_equal(converted(wanted, numpy_dtype(dtype)).astype(np.float32), own["scales"]):
                return dtype
    return None


def _is_same(one: Array, other: Array) -> bool:
    if one.dtype == other.dtype:
        return one.tobytes() == other.tobytes()
    return one.dtype.kind == other.dtype.kind == "f" and np.array_equal(
        one.astype(np.float32), other.astype(np.float32)
    )


def _first_code(q: Any, makers: list[tuple[str, Any]], label: str) -> tuple[int, ...] | None:
    make = dict(makers).get(label)
    if make is None:
        return None
    wrong = codes_of(q) != codes_of(make())
    return tuple(int(i) for i in np.unravel_index(wrong.argmax(), wrong.shape)) if wrong.any() else None
