"""Rounding of weights in which later columns compensate the errors of earlier ones: `gptq`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.dense import as_array, normalize_axes, refuse_infinite
from ..arrays.quantized import QuantizedArray
from ..arrays.rotated import RotatedArray
from ..arrays.sparse import SparseArray, choose
from ..base import runtime
from ..base.errors import WrongValue
from ..base.float_env import counts_subnormals
from ..base.lazy import renamed
from ..formats import Format, Sparse, has_pattern, is_rotated
from ..products.arguments import as_format
from ..products.columns import from_columns, to_columns
from ..products.grid import Grid
from ..products.grid_of import grid_of
from ..products.quantize import quantize
from ..products.scale_search import no_worse, search_scales
from ..training.latent import refuse_latent
from .error import layer_axis
from .guarantee import as_published, budget_of, round_within
from .hadamard.turning import turned_layer
from .hessian import Hessian, as_matrices
from .levels import Part, refit_levels, refit_second
from .options import Options, mean_of

Array = np.ndarray[Any, Any]

_STRIP = 128  # rows of a matrix that are permuted at a time
_CHUNK = 1 << 20  # values decoded at a time
_HARDER = 10.0  # factor of the damping if a matrix does not factor
# Times the damping, with an accumulator, for the choice between the improved rounding and the published one. Searched
# scales and sweeps fit the calibration inputs more closely. On other inputs of MiniLM's layers they lost up to .08 dB.
FIRMER = (1.0, 5.0, 20.0)


@dataclass(frozen=True)
class Rounding:
    """A rounded weight, and the statistics of its rounding.

    Attributes
    ----------
    q : QuantizedArray or RotatedArray
    damping : float
        The damping that was used: the requested one, or more if the matrix did not factor with it.
    dead : int
        Inputs that were always 0, whose weights are rounded alone.
    changed : tuple of int
        Number of codes that each sweep changed.
    """

    q: Any
    damping: float
    dead: int
    changed: tuple[int, ...]


@renamed(fmt="format")
@counts_subnormals
def gptq(
    w: Any,
    h: Any,
    format: Format | str,
    order: str = "activation",
    scales: str = "search",
    damping: float = 0.01,
    sweeps: int = 3,
    refit: bool | int = True,
    axis: int | tuple[int, ...] | None = None,
    mask: Any = None,
    accumulator: int | None = None,
    activations: Format | str | None = None,
    tile: int | None = None,
    shrinkage: float = 0.0,
) -> QuantizedArray:
    """Round a weight so that its layer's output changes least, to any format with steps or a table of levels.

    Columns are rounded one by one. Each column first corrects for the errors of the columns before it (GPTQ). Then each
    code and each stored scale is set to its best value while all others are fixed. This step never raises the error
    under h without damping. The error under the damped matrix may rise.

    Parameters
    ----------
    w : array_like, (outputs, inputs) or (K, C, R, S)
        Floats.
    h : Hessian or array_like, (inputs, inputs) or (groups, inputs, inputs)
        Hessian of the layer's inputs, in the order of the reduction axes. A convolution with several groups has one
        matrix per group. If h also knows the unrounded network's inputs (`Hessian.add`, x_float), the weights are first
        corrected for the difference.
    format : Format or str
        The order of rounding does not change the groups. ``"int8+2:4"`` also chooses the nonzeros of every 4. ``"2:4"``
        only chooses them and corrects the nonzeros for the removed values (SparseGPT).
    order : {"activation", "natural"}
        Order of the columns: by decreasing input, or from the first.
    scales : {"search", "absmax"}
        Scales, or centres, with the least error, each weight's scaled by its input; or those of round-to-nearest.
    damping : float
        0 or more. This share of the mean of the diagonal is added to the diagonal. If the matrix does not factor, ten
        times as much is added, with a warning.
    sweeps : int
        Maximum number of passes that improve the codes one by one. The passes end when no code changes.
    refit : bool or int
        Also improve the stored scales one by one before the first sweep, or before this number of sweeps, and the
        centres of codebooks before each sweep.
    axis : int or tuple of int, optional
        The reduction axes. Default: the last of two dimensions, (2, 3, 1) of four.
    mask : array_like of bool, of w's shape, optional
        For formats with N:M: the values that may be kept, such as
        ``hc.prune_mask(w, "2:4", scores=hc.scores.wanda(w, h))``. Default: chosen during rounding by the error that
        each removal causes. All other values become 0, or the value of a codebook that is nearest to 0.
    accumulator : int, optional
        Round so that no input of `activations` can overflow an accumulator of this many bits, as
        `heterocompute.ptq.accumulator_bits` proves. For integers with float scales. Scales become larger where that
        costs less than smaller codes.
    activations : Format or str, optional
        With `accumulator`: the integers that the layer's inputs are quantized to.
    tile : int, optional
        With `accumulator`: the number of values along k after which the machine stores its sum elsewhere.
    shrinkage : float
        0 or more. This share of the mean of the diagonal is added to the diagonal of h for all steps: scales, columns
        and sweeps. `damping` is for the columns only. Inputs that are always 0 stay 0. 0.1 rounds better on other
        inputs if there are few: docs/ptq.md has measurements.

    Returns
    -------
    QuantizedArray
        As `hc.quantize` returns for the format: a `RotatedArray` for ``+had``, whose weight and h are rotated first; a
        `SparseArray` if the format is only a pattern. Bitwise identical on every machine, instruction set and number of
        threads.

    Raises
    ------
    TypeError
        w is not a float array.
    ValueError
        - w or h holds a NaN or an infinity.
        - h has another size, is not symmetric, or does not factor with any damping.
        - The format has neither steps nor levels (fp16, fp32, codebooks of vectors).
        - The mask keeps more than N of M.
        - `accumulator` is given without `activations` and `tile`, or one product exceeds it.
        - w is the memory of a weight that a layer of `heterocompute.interop.torch` rounds in training.

    Notes
    -----
    Frantar et al., "GPTQ", ICLR 2023 (arXiv 2210.17323), in the form of LDLQ, which gives the same codes without an
    inverse: Chee et al., "QuIP", NeurIPS 2023 (arXiv 2307.13304), section 3. Sweeps: Behdin et al., "QuantEase", 2023
    (arXiv 2309.01885), algorithm 1. Patterns: Frantar and Alistarh, "SparseGPT", ICML 2023 (arXiv 2301.00774).
    Accumulators: Colbert et al., "Accumulator-Aware Post-Training Quantization", 2024 (arXiv 2409.17092), which is one
    of the candidates; the best candidate of each row by its error is improved by sweeps within the bound. The result
    is the published form if that has less error under the damping, 5 or 20 times as much.
    Memory in addition to the arguments: one matrix of h's size, two of w's in float64 and 64 MiB; three more of h's
    size if it has `cross`.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((256, 64)) @ rng.standard_normal((64, 64))
    >>> w = rng.standard_normal((32, 64), dtype=np.float32)
    >>> h = hc.ptq.Hessian(64)
    >>> h.add(x)
    >>> better, plain = hc.ptq.gptq(w, h, "int4-g32"), hc.quantize(w, "int4-g32")
    >>> hc.ptq.error(w, better, h).output_db > hc.ptq.error(w, plain, h).output_db + 4
    True
    """
    options = {"order": order, "scales": scales, "damping": damping, "sweeps": sweeps, "refit": refit}
    options |= {"accumulator": accumulator, "activations": activations, "tile": tile, "shrinkage": shrinkage}
    found: QuantizedArray = warned(rounded_under(w, h, format, axis, mask, **options), "gptq", damping)
    return found


def warned(found: Rounding, name: str, damping: float) -> Any:
    """Return the array of a rounding, with a warning if it needed more damping."""
    if found.damping > damping:
        warnings.warn(
            f"{name}: h does not factor with damping {damping:g}, so {found.damping:g} was used", stacklevel=4
        )
    return found.q


def rounded_under(w: Any, h: Any, fmt: Format | str, axis: Any = None, mask: Any = None, **options: Any) -> Rounding:
    """Round like `gptq`, and return its statistics too."""
    how = Options.of(**options)
    name = how.method
    x = as_array(w, f"{name}: w")
    axes = normalize_axes(layer_axis(x.ndim, axis, name), x.ndim, name)
    return rounded_layer(x, h, as_format(fmt, f"{name}: format", rotated=True), axes, how, mask)


def rounded_layer(x: Array, h: Any, fmt: Format, axes: tuple[int, ...], options: Options, mask: Any = None) -> Rounding:
    """Round a weight whose dtype and axes are checked already."""
    name, given = options.method, x
    refuse_latent(x, f"{name}: w")
    if is_rotated(fmt):
        for word, value in (("mask", mask), ("accumulator", options.limit)):
            if value is not None:
                raise WrongValue(f"{name}: {word} is given with {fmt}, which rotates w, expected none")
        values, h = turned_layer(x, h, fmt, axes, name)
        turned = rounded_layer(values, h, fmt.base, axes, options)
        return replace(turned, q=RotatedArray(turned.q, fmt))
    refuse_infinite(x, f"{name}: w")
    columns = to_columns(x, axes)
    matrices = as_matrices(h, len(columns), columns.shape[1], name)
    more = [_shrunk(matrix, options.shrinkage) for _, matrix in matrices] if options.shrinkage else []
    if more:
        matrices = [(rows, matrix + added) for (rows, matrix), added in zip(matrices, more, strict=True)]
    units = [options.unit(matrix) for _, matrix in matrices]
    crosses = h.cross if columns.size and isinstance(h, Hessian) else None
    drifts: list[tuple[Array, Array] | None] = [None] * len(matrices)
    if crosses is not None:
        found = []
        crosses = crosses.reshape(-1, *crosses.shape[-2:])
        for i, ((rows, matrix), cross, unit) in enumerate(zip(matrices, crosses, units, strict=True)):
            cross = cross + more[i] if more else cross
            found.append(_without_drift(columns[:, rows], matrix, cross, options, unit))
            if name == "qronos":
                drifts[i] = columns[:, rows], cross
        columns = np.ascontiguousarray(np.concatenate(found, axis=1))
        x = from_columns(columns, x.shape, axes)
    diagonals = np.array([np.diagonal(matrix) for _, matrix in matrices])
    plain, grid = _plainly(x, fmt, axes, diagonals, mask, options.scales == "search", name)
    budget = None if options.limit is None else budget_of(plain, options.limit, name)
    if not columns.size:
        return Rounding(grid.quantized(np.zeros(columns.shape, np.int32), x.dtype.name), options.damping, 0, ())
    if options.scales == "search":
        grid = search_scales(grid, columns if grid.pattern is None else columns * grid.pattern.mask, diagonals)
    parts, published, firmer, used = [], [], [], options.damping
    refits, rounds = min(options.refits, options.sweeps), np.zeros(options.sweeps, np.int64)
    for (rows, matrix), unit, drift in zip(matrices, units, drifts, strict=True):
        own = columns if len(matrices) == 1 else np.ascontiguousarray(columns[:, rows])
        part = Part(rows, grid.of_rows(rows), own, matrix, np.empty(own.shape, np.int32))
        parts.append(part)
        if budget is None:
            used = max(used, _begin(part, options, unit, mask is None, drift))
            continue
        turn = turn_of(np.diagonal(matrix), options.order)
        factor, _, damping = damped_factor(matrix, turn, options.damping, unit, name)
        published.append(as_published(grid_of(plain).of_rows(rows), own, budget, factor, turn))
        firmer.append((rows, matrix, damping * unit))
        part.matrix = matrix + damping * unit * np.eye(len(matrix))  # few inputs do not know the rest of the budget
        rounds += round_within(part, budget, np.diagonal(matrix), factor, turn, options.sweeps, refits)
        used = max(used, damping)
    changed = tuple(improve(parts, options.sweeps, refits) if budget is None else rounds.tolist())
    codes = parts[0].codes if len(parts) == 1 else np.concatenate([part.codes for part in parts], axis=1)
    for part in parts:
        grid.take_rows(part.rows, part.grid)
    q = grid.quantized(codes, x.dtype.name)
    del codes, parts
    if budget is not None:
        other = grid_of(plain).quantized(np.concatenate(published, axis=1), x.dtype.name)
        for times in FIRMER:
            damped = [(rows, matrix + times * added * np.eye(len(matrix))) for rows, matrix, added in firmer]
            lost, least = (float(np.cumsum(_losses(one, columns, damped))[-1]) for one in (q, other))
            if least < lost:
                q = other
        return Rounding(q, used, int((diagonals == 0).sum()), changed)
    if refits:
        q = refit_second(q, lambda one: _losses(one, columns, matrices))
    others = [plain]
    if (has_pattern(fmt) and mask is None) or (fmt.learns_codebook and options.scales == "search"):
        others.append(quantize(x, fmt, axes))  # with the mask of the magnitudes, and centres without weights
    if name == "qronos" and crosses is not None and mask is None:
        others.append(quantize(given, fmt, axes))  # without any correction
    for other in others:
        q = no_worse(q, other, [_losses(one, columns, matrices) for one in (q, other)])
    return Rounding(q, used, int((diagonals == 0).sum()), changed)


def _shrunk(matrix: Array, shrinkage: float) -> Array:
    """Return what is added to a matrix: a share of the mean of its diagonal, 0 for inputs that are always 0."""
    diagonal = np.diagonal(matrix)
    return np.diag(np.where(diagonal > 0, shrinkage * mean_of(matrix), 0.0))


def _begin(part: Part, options: Options, unit: float, chosen: bool, drift: tuple[Array, Array] | None) -> float:
    """Round the columns of some rows one after another; return the damping.

    drift: the weight without correction and the cross matrix, from which Qronos computes its first column.
    """
    pattern = part.grid.pattern if chosen else None
    turn = turn_of(np.diagonal(part.matrix), options.order, None if pattern is None else pattern.block)
    factor, pivots, used = damped_factor(part.matrix, turn, options.damping, unit, options.method)
    first = None if drift is None else _first_of(*drift, part.matrix, int(turn[0]))
    choice = None if pattern is None else (pattern.fmt.n, pattern.block, pivots * pivots)
    _core.ptq_columns(runtime.run(), part.grid.core(), part.w, factor, turn, choice, part.codes, first)
    return used


def turn_of(diagonal: Array, order: str, block: Array | None = None) -> Array:
    """Return the order of columns; blocks with a choice stay together, ordered by their largest input."""
    if order == "natural":
        return np.arange(len(diagonal), dtype=np.int32)
    if block is None:
        return np.argsort(-diagonal, kind="stable").astype(np.int32)
    largest = np.maximum.reduceat(diagonal, np.searchsorted(block, np.arange(block[-1] + 1)))
    return np.lexsort((-diagonal, block, -largest[block])).astype(np.int32)


def _first_of(w: Array, cross: Array, matrix: Array, at: int) -> Array | None:
    """Return what Qronos rounds in column `at`, its first: the best value while all other weights are those of w."""
    if not matrix[at, at] > 0:
        return None
    total = np.zeros(w.shape[1])
    for change, row in zip(cross[:, at] - matrix[:, at], w, strict=True):
        total = total + change * row
    found: Array = w[at] + total / matrix[at, at]
    return found


def _without_drift(w: Array, matrix: Array, cross: Array, options: Options, unit: float) -> Array:
    """Return real weights whose output on the actual inputs is closest to the unrounded network's output.

    ``(w cross + l w) (H + l I)^-1``, l = damping times the unit: by two triangular systems, sums of
    columns one after the other, so that no LAPACK decides a code.
    """
    k, rows = w.shape
    factor, pivots, used = damped_factor(matrix, np.arange(k, dtype=np.int32), options.damping, unit, options.method)
    solved = used * unit * w
    for first in range(0, rows, k):
        block, part = np.zeros((k, k)), np.zeros((k, k))
        count = min(k, rows - first)
        block[:, :count] = w[:, first : first + count]
        _core.ptq_gram(runtime.run(), k, k, cross, block, part)
        solved[:, first : first + count] += part[:, :count]
    for j in range(k - 1, -1, -1):
        solved[:j] -= factor[:j, j, None] * solved[j]
    solved /= (pivots * pivots)[:, None]
    for j in range(k):
        solved[j + 1 :] -= factor[j, j + 1 :, None] * solved[j]
    return solved


def _losses(q: QuantizedArray, columns: Array, matrices: list[tuple[slice, Array]]) -> Array:
    """Return the error of each row at the output, with some rows decoded at a time."""
    k, rows = columns.shape
    inner = [q.shape[a] for a in q.axis]
    whole = q._remade(q.components, (rows, *inner), tuple(range(1, len(inner) + 1)))
    found: Array = np.zeros(rows)
    first = 0
    for _, values in whole._slabs(max(_CHUNK, k)):
        last = first + len(values)
        for own, matrix in matrices:
            some = slice(max(first, own.start), min(last, own.stop))
            if some.start < some.stop:
                lost = columns[:, some] - values[some.start - first : some.stop - first].reshape(-1, k).T
                sums = np.empty(some.stop - some.start)
                _core.ptq_losses(runtime.run(), k, np.ascontiguousarray(lost), matrix, sums)
                found[some] = sums
        first = last
    return found


def _plainly(
    x: Array, fmt: Format, axes: tuple[int, ...], diagonals: Array, mask: Any, weighted: bool, name: str
) -> tuple[QuantizedArray, Grid]:
    """Return plain rounding and its grid; for N:M, of the values that the mask or Wanda keeps, for the first scales.

    weighted: codebooks are learned with each error weighted by its input.
    """
    if mask is not None and not has_pattern(fmt):
        raise WrongValue(f"{name}: mask is for formats with N:M, format is {fmt}")
    try:
        source: Any = x
        weight = None
        if has_pattern(fmt):
            source = _pruned(x, fmt, axes, diagonals, mask, name)
        elif fmt.learns_codebook and weighted:
            count = x.size // max(diagonals.size, 1)
            shares = np.ldexp(diagonals, -np.frexp(diagonals.max(initial=0.0))[1])  # which float32 holds
            weight = from_columns(np.repeat(shares.T, count, axis=1), x.shape, axes)
        q = quantize(source, fmt, axes, importance=weight)
        grid = grid_of(q)
        if mask is not None and grid.pattern is not None:  # some blocks may keep fewer than n
            grid.pattern.mask[...] &= to_columns(np.asarray(mask), axes, np.uint8)
        return q, grid
    except ValueError as problem:
        text = str(problem)
        raise WrongValue(text if text.startswith(f"{name}: ") else f"{name}: {text}") from None


def _pruned(x: Array, fmt: Sparse, axes: tuple[int, ...], diagonals: Array, mask: Any, name: str) -> SparseArray:
    """Return the values that the mask keeps, or the scores of Wanda if there is none."""
    if mask is not None:
        return SparseArray._masked(x, mask, f"{fmt.n}:{fmt.m}", axes, (name, "w", "mask"))
    with np.errstate(over="ignore"):
        scores = np.abs(to_columns(x, axes, np.float32))
    each = scores.shape[1] // len(diagonals)
    for i, own in enumerate(np.sqrt(diagonals)):
        scores[:, i * each : (i + 1) * each] *= (own / (own.max(initial=0) or 1.0)).astype(np.float32)[:, None]
    return choose(x, from_columns(scores, x.shape, axes), fmt.n, fmt.m, axes, name)


def damped_factor(
    matrix: Array, order: Array, damping: float, unit: float | None = None, name: str = "gptq"
) -> tuple[Array, Array, float]:
    """Return the unit upper factor of the matrix in this order, its diagonal, and the damping that was needed.

    Raises
    ------
    ValueError
        No damping up to 1e6 times the unit, by default the mean of the diagonal, makes it positive definite.
    """
    unit = mean_of(matrix) if unit is None else unit
    pivots = np.empty(len(matrix))
    used = damping
    damped = np.zeros(matrix.shape)  # its upper triangle is read
    while used <= 1e6:
        for first in range(0, len(order), _STRIP):
            rows = order[first : first + _STRIP]
            matrix[rows].take(order[first:], axis=1, out=damped[first : first + _STRIP, first:], mode="clip")
        damped[np.diag_indices(len(damped))] += used * unit
        if _core.ptq_factor(runtime.run(), damped, pivots) < 0:
            return damped, pivots, used
        used = used * _HARDER if used else 1e-8
    raise WrongValue(f"{name}: h is not positive definite with any damping")


def improve(parts: list[Part], sweeps: int, refits: int) -> list[int]:
    """Improve codes, and scales that are free, in place; return the number of codes that each sweep changed."""
    if not parts[0].grid.fmt.learns_codebook or not refits:
        return _descend(parts, sweeps, refits)
    changed: list[int] = []
    while len(changed) < sweeps and (not changed or changed[-1]):
        refit_levels(parts)  # for all rows together, so each sweep is a separate call
        changed += _descend(parts, 1, refits - len(changed))
    return changed


def _descend(parts: list[Part], sweeps: int, refits: int) -> list[int]:
    total = np.zeros(sweeps, np.int64)
    for part in parts if sweeps else ():
        scales, changed = part.grid.scales, np.zeros(sweeps, np.int64)
        moving = (scales.kind, scales.table, scales.unit) if scales.free and refits > 0 else None
        _core.ptq_descend(runtime.run(), part.grid.core(), part.w, part.matrix, moving, refits, part.codes, changed)
        total += changed
    rounds = total.tolist()
    return rounds[: rounds.index(0) + 1] if 0 in rounds else rounds
