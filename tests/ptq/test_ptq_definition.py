"""The column operations of the C core equal the NumPy definition bitwise, on every instruction set and thread count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from common import isas, reals, same_bits

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.base import runtime
from heterocompute.products.columns import to_columns
from heterocompute.products.grid import Grid, Scales
from heterocompute.products.grid_of import grid_of
from heterocompute.ptq.gptq import turn_of
from heterocompute.ptq.levels import Part, refit_levels
from heterocompute.reference import ptq as definition

PTQ = ("gemm_f64", "axpy_f64", "round_steps", "round_levels")
SIZES = [(1, 1), (3, 5), (70, 37), (200, 19)]  # columns around a block of 96, rows around tiles
# formats that round differently: steps, zero points, tables, tables per row, and each kind of stored scale
FORMATS = ["int4", "int3-g5", "int4-g32-asym", "int5-g16-f16", "vsq4-g16-s4", "vsq8-g16-s10", "vsq4u-g16-s4"]
FORMATS += ["nf4-g64-dq", "mxfp4", "nvfp4", "fp8_e5m2", "fp4_e2m1-tensor", "log4-1-g16", "cb3-g16", "cb2-tensor"]
FORMATS += ["e5m4-row", "int10f4-g16-f16"]  # more levels than kernels compare with one by one


def contexts() -> Iterator[Any]:
    for isa in isas(*PTQ):
        for threads in (1, 3):
            yield hc.use(isa=isa, threads=threads)


def hessian(k: int, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((k + 8, k)) * np.exp(rng.standard_normal(k))
    found: np.ndarray[Any, Any] = x.T @ x
    return np.triu(found) + np.triu(found, 1).T


def problem(columns: int, rows: int, fmt: str) -> tuple[Grid, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    w = reals((rows, columns), columns)
    return grid_of(hc.quantize(w, fmt)), to_columns(w, (1,)), hessian(columns)


@pytest.mark.parametrize("columns", [1, 7, 96, 201])
def test_sums_and_factors_are_the_definition(columns: int) -> None:
    x, y = reals((37, columns), 1, np.float64), reals((37, columns), 2, np.float64)
    h = hessian(columns)
    upper, diagonal = definition.factor(h)
    for context in contexts():
        with context:
            both, own, matrix, found = np.zeros_like(h), np.zeros_like(h), h.copy(), np.empty(columns)
            core.ptq_gram(runtime.run(), len(x), columns, x, y, both)
            core.ptq_gram(runtime.run(), len(x), columns, x, x, own)
            assert core.ptq_factor(runtime.run(), matrix, found) == -1
        assert same_bits(both, definition.gram(x, y))
        assert same_bits(np.triu(own), np.triu(definition.gram(x, x)))
        assert same_bits(matrix, upper) and same_bits(found, diagonal)
    scaled = upper * diagonal
    assert np.abs(scaled @ scaled.T - h).max() <= 4 * columns * np.finfo(float).eps * np.abs(h).max()


def test_a_matrix_that_does_not_factor_names_its_column() -> None:
    h = np.diag([1.0, 1.0, -1.0, 1.0])
    for bad in (h, np.where(h < 0, np.nan, h), np.where(h < 0, np.inf, h)):
        assert core.ptq_factor(runtime.run(), bad.copy(), np.empty(4)) == 2
        with pytest.raises(ValueError, match="column 2"):
            definition.factor(bad)


@pytest.mark.sweep(every=8)
@pytest.mark.parametrize("fmt", FORMATS)
def test_columns_and_scores_are_the_definition(fmt: str) -> None:
    for columns, rows in SIZES[2:] if fmt != FORMATS[0] else SIZES:
        grid, w, h = problem(columns, rows, fmt)
        upper, _ = definition.factor(h + np.eye(columns))
        order = np.random.default_rng(3).permutation(columns).astype(np.int32)
        weight = np.diagonal(h).copy()
        wanted = definition.columns(grid.core(), w, upper, order), definition.score(grid.core(), w, weight)
        for context in contexts():
            with context:
                codes, sums = np.empty(w.shape, np.int32), np.empty(grid.scale.shape)
                core.ptq_columns(runtime.run(), grid.core(), w, upper, order, None, codes)
                core.ptq_score(runtime.run(), grid.core(), w, weight, sums)
            assert same_bits(codes, wanted[0]) and same_bits(sums, wanted[1])
        assert same_bits(grid.nearest(w), definition.columns(grid.core(), w, None, order))


@pytest.mark.parametrize("fmt", ["int4-g32", "mxfp4", "cb3-g16", "log4-1-g16", "int4-g6+3:7"])
@pytest.mark.sweep(every=5)
def test_qronos_is_the_definition(fmt: str) -> None:
    """The solution without drift, the first column's value, the loop and the damping."""
    columns, rows = 135, 21
    rng = np.random.default_rng(4)
    w = reals((rows, columns), 1)
    x_float = rng.standard_normal((400, columns)) * np.exp(rng.standard_normal(columns))
    x = x_float + rng.standard_normal(x_float.shape) / 4
    h = hc.ptq.Hessian(columns)
    h.add(x, x_float)
    cross, matrix, own = h.cross, h.matrix, to_columns(w, (1,))
    assert cross is not None
    amount = 1e-3 * definition.largest(matrix)
    solved = definition.without_drift(own, matrix, cross, amount)
    grid = grid_of(hc.quantize(solved.T.astype(np.float32), fmt))
    pattern = grid.pattern
    turn = turn_of(np.diagonal(matrix), "activation", None if pattern is None else pattern.block)
    damped = matrix[turn][:, turn] + amount * np.eye(columns)
    upper, diagonal = definition.factor(damped)
    choice = None if pattern is None else (pattern.fmt.n, pattern.block, diagonal * diagonal)
    first = definition.first_of(own, matrix, cross, turn[0])
    assert np.abs(first - solved[turn[0]]).max() > 1e-3
    wanted = definition.columns(grid.core(), solved, upper, turn, choice, first)
    for context in contexts():
        with context:
            assert core.ptq_largest(runtime.run(), columns, matrix, 30) == definition.largest(matrix)
            codes = np.empty(solved.shape, np.int32)
            core.ptq_columns(runtime.run(), grid.core(), solved, upper, turn, choice, codes, first)
        assert same_bits(codes, wanted)
    assert definition.largest(np.zeros((3, 3))) == core.ptq_largest(runtime.run(), 3, np.zeros((3, 3)), 30) == 0


def scale_of(scales: Scales) -> Any:
    """Return the stored scale nearest to a value, the lower of two, by a search over all."""
    if scales.table is None or scales.unit is None:
        return scales.stored
    every = scales.unit[:, None] * scales.table
    every = every.astype(np.float32).astype(np.float64) if scales.kind == 3 else every
    return lambda t: every[np.arange(len(t)), np.abs(every - t[:, None]).argmin(axis=1)]


def descended(grid: Grid, w: Any, h: Any, begun: Any, sweeps: int, refits: int) -> tuple[Any, Any, list[int]]:
    """Return codes and scales after the core's descent."""
    codes, scales, changed = begun.copy(), grid.scale.copy(), np.zeros(sweeps, np.int64)
    moving = (grid.scales.kind, grid.scales.table, grid.scales.unit) if grid.scales.free else None
    core.ptq_descend(runtime.run(), grid.core(scales), w, h, moving, refits, codes, changed)
    return codes, scales, changed.tolist()


@pytest.mark.parametrize("fmt", [text for text in FORMATS if text != "fp4_e2m1-tensor"] + ["fp8_e5m2", "nf4-g64"])
@pytest.mark.sweep(every=7)
def test_descent_is_the_definition(fmt: str) -> None:
    """Columns around blocks of 64 and strips of 512; scales move before the first two sweeps."""
    for columns, rows, seed in ((110, 37, 0), (521, 3, 1))[: 2 if fmt == FORMATS[0] else 1]:
        grid, w, _ = problem(columns, rows, fmt)
        h, begun = hessian(columns, seed), grid.nearest(w)
        stored = scale_of(grid.scales) if grid.scales.free else None
        codes, scales, changed = definition.descend(grid.core(), w, h, begun, 3, 2, stored)
        assert not same_bits(codes, begun) and len(changed) > 1
        for context in contexts():
            with context:
                found = descended(grid, w, h, begun, 3, 2)
            assert same_bits(found[0], codes) and same_bits(found[1], scales)
            assert found[2] == changed + [0] * (3 - len(changed))


def test_descent_ends_and_a_row_that_is_done_rests() -> None:
    grid, w, h = problem(70, 37, "int4-g32")
    begun = grid.nearest(w)
    codes, scales, changed = definition.descend(grid.core(), w, h, begun, 60, 60, scale_of(grid.scales))
    assert changed[-1] == 0 < changed[-2] and len(changed) > 4
    for context in contexts():
        with context:
            found = descended(grid, w, h, begun, 60, 60)
        assert same_bits(found[0], codes) and same_bits(found[1], scales)
        assert found[2] == changed + [0] * (60 - len(changed))


@pytest.mark.parametrize("fmt", ["cb3-g16", "cb2-tensor", "cb2", "cb3-g16+2:4"])
@pytest.mark.sweep(every=4)
def test_centres_are_the_definition(fmt: str) -> None:
    grid, w, h = problem(110, 19, fmt)
    codes, grid.scale[:, 5] = grid.nearest(w), 0.0
    curvature, slope = definition.level_sums(grid.core(), w, h, codes)
    assert grid.levels is not None
    if grid.levels.ndim == 2:
        tables = [definition.refit_levels(*row) for row in zip(grid.levels.T, curvature, slope, strict=True)]
        wanted = np.array(tables).T
    else:
        added = np.add.accumulate(curvature)[-1], np.add.accumulate(slope)[-1]
        wanted = definition.refit_levels(grid.levels, *added)
    assert not same_bits(wanted, grid.levels)
    for context in contexts():
        with context:
            found, sums = np.empty_like(curvature[2:]), np.empty_like(slope[2:])
            core.ptq_levels(runtime.run(), grid.core(), w, h, codes, 2, 17, found, sums)
            moved = replace(grid)
            refit_levels([Part(slice(0, 19), moved, w, h, codes)])
        assert same_bits(found, curvature[2:]) and same_bits(sums, slope[2:])
        assert moved.levels is not None and same_bits(moved.levels, wanted)
    with pytest.raises(ValueError, match="expected some of the grid's"):
        core.ptq_levels(runtime.run(), grid.core(), w, h, codes, 3, 17, found, sums)


@pytest.mark.parametrize("fmt", ["2:4", "int4-g6+3:7", "vsq4-g16-s4+1:8", "cb3-g16+2:4", "nf4-g64+16:32"])
def test_masks_are_the_definition(fmt: str) -> None:
    """Blocks around those of 96 columns, and a last one that is short."""
    grid, w, h = problem(135, 21, fmt)
    pattern = grid.pattern
    assert pattern is not None
    upper, diagonal = definition.factor(h + np.eye(135))
    order = np.lexsort((np.random.default_rng(3).permutation(135), -pattern.block)).astype(np.int32)
    choice = (pattern.fmt.n, pattern.block, diagonal * diagonal)
    codes = definition.columns(grid.core(), w, upper, order, choice)
    mask = pattern.mask.copy()
    stored = scale_of(grid.scales) if grid.scales.free else None
    better, scales, _ = definition.descend(grid.core(), w, h, codes, 2, 1, stored)
    sums = definition.score(grid.core(), w, np.diagonal(h).copy())
    length = np.bincount(pattern.block)
    counts = np.add.reduceat(mask, np.searchsorted(pattern.block, np.arange(len(length))), axis=0, dtype=np.int64)
    assert (counts == np.minimum(length, pattern.fmt.n)[:, None]).all() and not same_bits(better, codes)
    for context in contexts():
        with context:
            pattern.mask[:] = 1
            found, scores = np.empty(w.shape, np.int32), np.empty(grid.scale.shape)
            core.ptq_columns(runtime.run(), grid.core(), w, upper, order, choice, found)
            assert same_bits(found, codes) and same_bits(pattern.mask, mask)
            core.ptq_score(runtime.run(), grid.core(), w, np.diagonal(h).copy(), scores)
            found, moved, _ = descended(grid, w, h, codes, 2, 1)
        assert same_bits(found, better) and same_bits(scores, sums)
        assert same_bits(moved, scales)


@pytest.mark.parametrize("method", ["gptq", "qronos"])
@pytest.mark.parametrize("fmt", ["int4-g16", "log4-1-g16", "mxfp4"])
def test_whole_methods_are_the_definition(method: str, fmt: str) -> None:
    """The steps of both methods one after the other: drift, scales of the largest magnitude, columns, descent."""
    rng = np.random.default_rng(3)
    x_float = (rng.standard_normal((256, 64)) @ rng.standard_normal((64, 64))).astype(np.float32)
    h = hc.ptq.Hessian(64)
    h.add(np.asarray(hc.quantize(x_float, "int4")), x_float)
    w, matrix, cross = rng.standard_normal((9, 64), dtype=np.float32), h.matrix, h.cross
    assert cross is not None
    damping = {"gptq": 0.01, "qronos": 1e-3}[method]
    unit = definition.largest(matrix) if method == "qronos" else float(np.cumsum(np.diagonal(matrix))[-1] / 64)
    given = to_columns(w, (1,))
    solved = definition.without_drift(given, matrix, cross, damping * unit)
    grid = grid_of(hc.quantize(np.ascontiguousarray(solved.T), fmt))
    turn = np.argsort(-np.diagonal(matrix), kind="stable")
    upper, _ = definition.factor(matrix[turn][:, turn] + damping * unit * np.eye(64))
    first = definition.first_of(given, matrix, cross, int(turn[0])) if method == "qronos" else None
    codes = definition.columns(grid.core(), solved, upper, turn, None, first)
    stored = scale_of(grid.scales) if grid.scales.free else None
    codes, scales, _ = definition.descend(grid.core(), solved, matrix, codes, 3, 1 if stored else 0, stored)
    grid.scale[...] = scales
    wanted = grid.quantized(codes, "float64")
    for context in contexts():
        with context:
            found = getattr(hc.ptq, method)(w, h, fmt, scales="absmax")
        assert same_bits(found.dequantize(), wanted.dequantize())


def test_blocks_that_are_too_long_are_refused() -> None:
    grid, w, h = problem(40, 3, "2:4")
    order = np.arange(40, dtype=np.int32)
    with pytest.raises(ValueError, match="expected blocks of at most 32 columns"):
        choice = (2, np.zeros(40, np.int32), np.ones(40))
        core.ptq_columns(runtime.run(), grid.core(), w, h, order, choice, np.empty(w.shape, np.int32))


def test_a_weight_is_no_matrix_of_its_inputs() -> None:
    """A weight of 1 row and 3 columns has 3 values, but 9 would be read."""
    w, codes = np.ones((3, 1)), np.zeros((3, 1), np.int32)
    grid = (1, 1, np.zeros(3, np.int32), np.ones((1, 1)), None, -7.0, 7.0, None, None, None, False)
    with pytest.raises(ValueError, match="the matrix: expected 9"):
        core.ptq_descend(runtime.run(), grid, w, w, None, 0, codes, np.zeros(1, np.int64))
    order = np.arange(3, dtype=np.int32)
    core.ptq_columns(runtime.run(), grid, w, None, order, None, codes)
    assert (codes == 1).all()
