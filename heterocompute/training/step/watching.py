"""Statistics of the roundings of a step: values lost to 0, values beyond the range, error, exponents."""

from __future__ import annotations

import html
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...base.errors import WrongValue, shown
from ...base.notebooks.shown import Shown
from ...base.values import as_int
from ...formats import Format, is_function
from ...products.quantize import quantize
from .layer import LayerState
from .recipe import FP32, unscaled

__all__ = ["Watch"]


def __dir__() -> list[str]:
    return __all__


Array = np.ndarray[Any, Any]
LOWEST, HIGHEST = -160, 160  # exponents of the histograms; smaller and larger ones are in the first and last bin


class Watch(Shown):
    """Statistics of the roundings of training steps. `heterocompute.interop.torch.watch` makes it.

    Parameters
    ----------
    states : sequence of LayerState
    every : int, optional
        Record one of this number of steps.
    host : callable, optional
        Returns an array as a NumPy array.

    Attributes
    ----------
    history : list of dict
        One row per rounding: ``step``, ``layer``, ``tensor``, ``format``, ``underflow`` (share of the values that
        become 0 although they are not), ``saturation`` (share of the values beyond the largest number), ``sqnr_db``
        (None if exact), ``scale`` (None of formats that scale groups), and ``count``.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> from heterocompute.training.step.layer import LayerState
    >>> state = LayerState(hc.training.recipe("fp16-loss-scale"), "fc", 0)
    >>> report = hc.training.Watch([state])
    >>> state.begin()
    >>> _ = state.rounded(np.float32([[1e-9, 1.0]]), "gradients", 1, 0)
    >>> report.rows[0]["tensor"], report.rows[0]["underflow"]
    ('gradients', 0.5)
    """

    def __init__(self, states: Sequence[LayerState], every: int = 1, host: Callable[[Any], Array] = np.asarray) -> None:
        self.every = as_int(every, "watch: every", 1)
        self.history: list[dict[str, Any]] = []
        self._states, self._host = list(states), host
        self._exponents: dict[tuple[str, str], Array] = {}
        self._limits: dict[tuple[str, str], tuple[float, float]] = {}
        for state in self._states:
            if state.watcher is not None:
                raise WrongValue(
                    f"watch: layer {shown(state.name)} is watched already, expected close() of the other watch"
                )
            state.watcher = self._record

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the latest step, one per layer and tensor, the worst rounding of each."""
        last = max((row["step"] for row in self.history), default=0)
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for row in self.history:
            key = row["layer"], row["tensor"]
            if row["step"] == last and (key not in found or _badness(row) > _badness(found[key])):
                found[key] = row
        return list(found.values())

    def worst(self) -> dict[str, Any] | None:
        """Return the row of the history with the largest share of lost values, or None if nothing is lost.

        Returns
        -------
        dict or None
        """
        found = max(self.history, key=_badness, default=None)
        return None if found is None or _badness(found) == 0 else found

    def exponents(self, layer: str, tensor: str) -> dict[int, int]:
        """Return the number of values per binary exponent, over all recorded steps.

        Parameters
        ----------
        layer, tensor : str
            As in the rows.

        Returns
        -------
        dict of int to int
        """
        counts = self._exponents.get((layer, tensor))
        if counts is None:
            raise WrongValue(f"exponents: no rounding of {shown(tensor)} of layer {shown(layer)} was recorded")
        return {LOWEST + int(index): int(counts[index]) for index in np.flatnonzero(counts)}

    def close(self) -> None:
        """Stop recording."""
        for state in self._states:
            if state.watcher == self._record:
                state.watcher = None

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Write a picture of the exponents of each tensor, with the range of its format, as SVG.

        Parameters
        ----------
        path : str or path-like
        """
        Path(path).write_text(self._repr_svg(), encoding="utf-8")

    def _repr_html_(self) -> str:
        return self._repr_svg() + _table(self.rows)

    def __repr__(self) -> str:
        steps = len({row["step"] for row in self.history})
        layers = sum(isinstance(state, LayerState) for state in self._states)
        return f"<Watch: {layers} layers, {steps} steps>"

    def _record(
        self, state: LayerState, tensor: str, values: Any, rounded: Any, fmt: Format, axis: int, scale: Any
    ) -> None:
        if state.step % self.every:
            return
        x, y = self._host(values), self._host(rounded)
        key = state.name, tensor
        with np.errstate(invalid="ignore", over="ignore"):
            error = float(np.square(np.subtract(x, y, dtype=np.float64)).sum())
            power = float(np.square(x, dtype=np.float64).sum())
        limit = _limits_of(x, fmt, axis, scale)
        magnitudes = np.abs(x)
        row = {
            "step": state.step,
            "layer": state.name,
            "tensor": tensor,
            "format": str(fmt),
            "underflow": float(np.mean((x != 0) & (y == 0))) if x.size else 0.0,
            "saturation": float(np.mean(magnitudes > limit)) if x.size else 0.0,
            "sqnr_db": 10 * math.log10(power / error) if 0 < error < math.inf and 0 < power < math.inf else None,
            "scale": None if scale is None else float(scale),
            "count": x.size,
        }
        self.history.append(row)
        used = magnitudes[(magnitudes > 0) & np.isfinite(magnitudes)]
        bins = np.clip(np.frexp(used)[1] - 1 - LOWEST, 0, HIGHEST - LOWEST)
        counts = np.bincount(bins, minlength=HIGHEST - LOWEST + 1)
        self._exponents[key] = self._exponents.get(key, 0) + counts
        if scale is not None or not (is_function(fmt) or fmt.form.has_scales):
            self._limits[key] = _range_of(fmt, 1.0 if scale is None else float(scale))

    def _repr_svg(self) -> str:
        keys, width, bar = list(self._exponents), 560, 44
        used = [index for counts in self._exponents.values() for index in np.flatnonzero(counts)]
        low, high = (min(used) + LOWEST, max(used) + LOWEST) if used else (0, 1)
        span, parts = max(high - low + 1, 1), []
        for row, key in enumerate(keys):
            counts, top = self._exponents[key], 24 + row * bar
            most = max(int(counts.max()), 1)
            if key in self._limits:
                within = [min(max(math.log2(end), low), high + 1) for end in self._limits[key]]
                ends = [180 + (end - low) / span * width for end in within]
                parts.append(f'<rect x="{ends[0]:.1f}" y="{top}" width="{max(ends[1] - ends[0], 0):.1f}" '
                             f'height="{bar - 8}" fill="#dcebdc"/>')  # fmt: skip
            parts.append(f'<text x="4" y="{top + 22}">{html.escape(" ".join(key))}</text>')
            for exponent in range(low, high + 1):
                tall = (bar - 8) * int(counts[exponent - LOWEST]) / most
                left = 180 + (exponent - low) / span * width
                parts.append(f'<rect x="{left:.1f}" y="{top + bar - 8 - tall:.1f}" width="{width / span * 0.85:.1f}" '
                             f'height="{tall:.1f}" fill="#33658a"/>')  # fmt: skip
        title = f"exponents from 2^{low} to 2^{high}; green: range of the format"
        size = f'width="{width + 200}" height="{32 + len(keys) * bar}"'
        return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
                f'<text x="180" y="14">{title}</text>{"".join(parts)}</svg>')  # fmt: skip


def _badness(row: dict[str, Any]) -> float:
    return float(row["underflow"] + row["saturation"])


def _limits_of(x: Array, fmt: Format, axis: int, scale: Any) -> Any:
    """Return the largest magnitude that each value may have."""
    if fmt == FP32 or is_function(fmt) or not x.size:
        return math.inf
    form = fmt.form
    if scale is not None or not form.has_scales:
        largest = form.maximum if form.codes == "float" else max(map(abs, form.levels), default=math.inf)
        return largest * float(1 if scale is None else scale) * (1 + 2.0**-23)
    if form.codes != "float" or form.scale in ("own", "f32") or not np.isfinite(x).all():
        return math.inf  # absmax scales: nothing is beyond the range
    return quantize(x, fmt, axis).scales_expanded(np.float64) * form.maximum * (1 + 2.0**-23)


def _range_of(fmt: Format, scale: float) -> tuple[float, float]:
    """Return half the smallest and the largest magnitude of a format, in units of a scale."""
    bare = unscaled(fmt) or fmt
    form = bare.form
    if form.codes == "float":
        return 2.0 ** (form.smallest - form.precision) * scale, form.maximum * scale
    levels = [abs(level) for level in form.levels if level and math.isfinite(level)]
    return (min(levels) / 2 * scale, max(levels) * scale) if levels else (2.0**-149, 2.0**127)


def _table(rows: list[dict[str, Any]]) -> str:
    names = ("layer", "tensor", "format", "underflow", "saturation", "sqnr_db", "scale")
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{_shown(row[name])}</td>" for name in names) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else html.escape(str(value))
