"""One tensor of a study measured in its formats: error, size, time of its matmul, and a picture of its values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.components import component_layout, stored_bytes
from ..arrays.dense import as_single, refuse_infinite
from ..arrays.quantized import QuantizedArray
from ..arrays.rotated import RotatedArray
from ..base.float_env import counts_subnormals
from ..formats import Format, is_function
from ..products.clock import Clock
from ..products.error import error
from ..products.quantize import fake_quantize, quantize
from ..ptq.error import error as output_error
from ..ptq.methods import by_method
from .callers import finite
from .request import RunOptions, text_of
from .source import loaded, named

HISTOGRAM_BINS = 81
HISTOGRAM_VALUES = 1 << 17  # enough for a picture of any tensor


@dataclass(frozen=True)
class Measured:
    """One tensor in one format; `seconds` has one value per kind of activations."""

    row: dict[str, Any]
    size: int
    signal: float
    noise: float
    seconds: list[float | None]
    matrix: tuple[int, int, int, Format | None]  # rows, reduction, stored bytes, format
    judged: bool  # there is a Hessian

    def to_plain(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return {**vars(self), "matrix": self.matrix[:3]}

    @classmethod
    def from_plain(cls, found: dict[str, Any], way: RunOptions, fmt: Format | None = None) -> Measured:
        """Return what `to_plain` returned, for the same format; `fmt`: of the stored array if there is none."""
        names = ("row", "size", "signal", "noise", "seconds", "judged")
        matrix = (*found["matrix"], fmt if way.fmt is None else way.fmt)
        return cls(matrix=matrix, **{name: found[name] for name in names})


@dataclass(frozen=True)
class Tensor:
    """One tensor and its measurements: work that any process can do.

    `source`: the array, or the path and the layout of its checkpoint. `keeps`: whether to return weights that took long
    to round.
    """

    name: str
    source: Any
    axis: tuple[int, ...]
    ways: tuple[RunOptions, ...]
    hessian: Any
    kinds: tuple[Format | None, ...]
    keeps: bool

    def measured(
        self, w: NDArray[Any], clock: Clock | None, step: Callable[[str], None]
    ) -> tuple[dict[RunOptions, Measured], dict[RunOptions, QuantizedArray], dict[str, Any]]:
        """Return the measurements of each format, the weights that took long to round, and the picture."""
        found, packed = {}, {}
        with named(self.name):
            subject = _Subject(self.name, w, self.axis, clock, self.hessian)
            for way in self.ways:
                step(f"{self.name}  {way.text}")
                found[way], q = subject.measure(way, list(self.kinds))
                if self.keeps and q is not None and way.slow:
                    packed[way] = q
            return found, packed, subject.picture()


@counts_subnormals
def measured_alone(tensor: Tensor) -> Any:
    """Measure one tensor while others are measured: without times, which the others would disturb."""
    w = loaded(tensor.source, tensor.name)
    return tensor.measured(w, None, lambda text: None)


class _Subject:
    """One tensor as the matrix (rows, reduction) of its matmul."""

    @counts_subnormals
    def __init__(
        self, name: str, w: NDArray[Any], axis: tuple[int, ...], clock: Clock | None, h: object = None
    ) -> None:
        self.name, self.w, self.axis, self.clock, self.h = name, w, axis, clock, h
        self.times: dict[Format | None, list[float | None]] = {}
        refuse_infinite(w, "w")
        single = as_single(w, "w")
        others = [i for i in range(w.ndim) if i not in axis]
        self.rows = math.prod(w.shape[i] for i in others)
        self.columns = math.prod(w.shape[i] for i in axis)
        matrix = w.transpose(*others, *axis).reshape(self.rows, self.columns)
        self.signal = _sum_of_squares(matrix)
        self.matrix: NDArray[np.float32] = np.ascontiguousarray(
            single.transpose(*others, *axis).reshape(self.rows, self.columns)
        )
        self.shown = 0
        if w.size:
            self.x = np.random.default_rng(0).standard_normal((1, self.columns), dtype=np.float32)
            # pictures show the row of median size
            largest = np.maximum(self.matrix.max(axis=1), -self.matrix.min(axis=1))
            self.shown = int(np.argsort(largest, kind="stable")[self.rows // 2])
        self.by_row = others == [0]
        self.levels: dict[str, list[float]] = {}

    @counts_subnormals
    def measure(self, way: RunOptions, kinds: list[Format | None]) -> tuple[Measured, QuantizedArray | None]:
        w, fmt, q = self.w, way.fmt, None
        operand: Any = self.matrix
        stored, sqnr_db, noise, output_db = w.nbytes, None, 0.0, None
        if fmt is not None and not w.size:  # with any number of empty rows
            stored = stored_bytes(fmt, w.shape, self.axis)
        elif is_function(fmt):
            values = fake_quantize(w, fmt, self.axis)
            lost = error(w, values)
            stored, sqnr_db, noise = stored_bytes(fmt, w.shape, self.axis), finite(lost.sqnr_db), lost.mse * w.size
            others = [i for i in range(w.ndim) if i not in self.axis]
            matrix = values.transpose(*others, *self.axis).reshape(self.rows, self.columns)
            self.levels[way.label] = np.unique(matrix[self.shown]).tolist()
            if self.h is not None:
                output_db = finite(output_error(w, values, self.h, self.axis).output_db)
        elif fmt is not None:
            q = by_method(w, fmt, self.axis, way.method or "rtn", self.h)
            lost = error(w, q)
            stored, sqnr_db, noise = q.nbytes, finite(lost.sqnr_db), lost.mse * w.size
            operand = self._as_matrix(q)
            source, shown = q if self.by_row else operand, slice(self.shown, self.shown + 1)
            shared = not source.format.splits_into_rows
            row = source.dequantize()[shown] if shared else source[shown].dequantize()
            self.levels[way.label] = np.unique(row).tolist()
            if self.h is not None:
                output_db = finite(output_error(w, q, self.h, self.axis).output_db)
        if fmt not in self.times:  # times are the same for every method
            times: list[float | None] = [None] * len(kinds)
            if w.size and self.clock and not is_function(fmt):  # a function has no matmul
                times = [*self.clock.seconds(self.x, operand, kinds)]
            self.times[fmt] = times
        seconds = self.times[fmt]
        known = {} if self.h is None else {"output_db": output_db}
        row = layer_row(self.name, w.shape, way, stored, {"sqnr_db": sqnr_db, **known, "seconds": seconds[0]})
        sizes = (self.rows, self.columns, stored, fmt)
        return Measured(row, w.size, self.signal, noise, seconds, sizes, self.h is not None), q

    def _as_matrix(self, q: Any) -> Any:
        """Return the same codes as a matrix; quantized again if a group would extend into the next window position."""
        shape = (self.rows, self.columns)
        if isinstance(q, RotatedArray):
            return q if q.shape == shape and q.axis == (1,) else quantize(self.matrix, q.format, axis=1)
        if component_layout(q.format, shape, (1,)) == component_layout(q.format, q.shape, q.axis):
            return QuantizedArray(q.components, q.format, shape, (1,))
        return quantize(self.matrix, q.format, axis=1)

    @counts_subnormals
    def picture(self) -> dict[str, Any]:
        """Return a histogram of the values, and the levels of one row in each format."""
        values = self.matrix.reshape(-1)
        values = values[:: max(1, values.size // HISTOGRAM_VALUES)].astype(np.float64)  # distinct bins
        reach = 0.0
        if values.size:  # wide enough for the row and nearly all values, but not for a far outlier
            row = self.matrix[self.shown]
            reach = max(float(np.abs(row).max(initial=0.0)) * 1.05, float(np.percentile(np.abs(values), 99.5)))
        reach = reach or 1.0
        counts, _ = np.histogram(values, bins=HISTOGRAM_BINS, range=(-reach, reach))
        return {
            "name": self.name,
            "range": reach,
            "counts": counts.tolist(),
            "outside": 1 - int(counts.sum()) / values.size if values.size else 0.0,
            "row": self.shown,
            "levels": self.levels,
        }


def _sum_of_squares(matrix: NDArray[Any]) -> float:
    if not matrix.size:  # of any number of rows
        return 0.0
    block = max(1, (1 << 20) // matrix.shape[1])
    parts = (matrix[i : i + block].astype(np.float64) for i in range(0, len(matrix), block))
    return math.fsum(float(np.square(part, out=part).sum()) for part in parts)


def layer_row(
    name: str, shape: Sequence[int], way: RunOptions, stored: int, measured: dict[str, Any]
) -> dict[str, Any]:
    """Return the row of one tensor in one format."""
    about = {"name": name, "shape": list(shape), "format": text_of(way.fmt), "method": way.method}
    return {**about, "bits": bits_of(stored, math.prod(shape)), "bytes": stored, **measured}


@counts_subnormals
def pooled(chosen: Sequence[Measured], i: int) -> dict[str, Any]:
    """Return size, error and time of all tensors together, with the i-th kind of activations."""
    stored = sum(one.row["bytes"] for one in chosen)
    signal, noise = math.fsum(one.signal for one in chosen), math.fsum(one.noise for one in chosen)
    known = [seconds for one in chosen if (seconds := one.seconds[i]) is not None]
    return {
        "bits": bits_of(stored, sum(one.size for one in chosen)),
        "bytes": stored,
        "sqnr_db": finite(10 * math.log10(signal / noise)) if signal and noise else None,
        "seconds": math.fsum(known) if known else None,
    }


def bits_of(stored: int, size: int) -> float | None:
    """Return stored bits per value, None without values."""
    return 8 * stored / size if size else None
