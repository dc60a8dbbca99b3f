"""Searched scales, Hadamard rotations, rescaled inputs, corrected biases, bounds."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from common import bad_argument, isas, reals

import heterocompute as hc
from heterocompute.ptq.hadamard.matrices import FIRST, as_product, is_order, matrix_of, nearest_possible

GAUSSIAN = np.random.default_rng(0).standard_normal((16, 4096)).astype(np.float32)


@pytest.mark.parametrize(
    "fmt, least", [("int4", 18.8), ("vsq2-g16-s4", 7.7), ("nvfp4", 21.2), ("int4-g32", 20.7), ("nf4-g64", 21.2)]
)
def test_searched_scales_reach_what_is_known_for_gaussian_numbers(fmt: str, least: float) -> None:
    q = hc.quantize(GAUSSIAN, fmt, clip="search")
    assert q.nbytes == hc.quantize(GAUSSIAN, fmt).nbytes
    assert least < hc.error(GAUSSIAN, q).sqnr_db < least + 1


@pytest.mark.parametrize("fmt", ["int3-g5", "int4-asym", "int5-g16-f16", "vsq4-g16-s4-refit", "vsq4u-g16-s8-tensor"])
@pytest.mark.parametrize("shape, axis", [((6, 40), 1), ((4, 10, 3, 2), (2, 3, 1)), ((40, 6), 0), ((0, 3), 1)])
def test_searched_scales_are_never_worse(fmt: str, shape: tuple[int, ...], axis: Any) -> None:
    x = reals(shape, 1)
    plain, found = hc.quantize(x, fmt, axis), hc.quantize(x, fmt, axis, clip="search")
    assert hc.error(x, found).mse <= hc.error(x, plain).mse * (1 + 1e-6)
    assert (hc.fake_quantize(x, fmt, axis, clip="search") == found.dequantize()).all()
    for isa in isas("round_"):
        with hc.use(isa=isa, threads=3):
            assert hc.quantize(x, fmt, axis, clip="search") == found


def test_a_pattern_has_its_scales_searched_over_what_it_keeps() -> None:
    w = GAUSSIAN[:, :256]
    found = hc.quantize(w, "int4-g16+2:4", clip="search")
    assert found == hc.quantize(hc.prune(w, "2:4"), "int4-g16", clip="search")
    assert (
        hc.error(hc.prune(w, "2:4").to_dense(), found).mse
        < hc.error(hc.prune(w, "2:4").to_dense(), hc.quantize(w, "int4-g16+2:4")).mse
    )


def test_a_format_without_scales_has_none_to_search() -> None:
    for fmt in ("fp8_e4m3fn", "cb4"):
        with pytest.raises(ValueError, match=f"clip is 'search', but {fmt} has no scale"):
            hc.quantize(GAUSSIAN, fmt, clip="search")
    with bad_argument(ValueError, "clip", "missing"):
        hc.quantize(GAUSSIAN, "fp16", clip="search")
    with bad_argument(ValueError, "w", "value", r"at index \(0, 1\)"):
        hc.quantize(np.float32([[1, np.nan]]), "int4", clip="search")


@pytest.mark.parametrize("order", [order for order in range(1, 500) if is_order(order)])
@pytest.mark.sweep(every=3)
def test_every_order_has_an_orthogonal_matrix_of_ones(order: int) -> None:
    matrix = matrix_of(order).astype(np.int64)
    assert (np.abs(matrix) == 1).all() and (matrix @ matrix.T == order * np.eye(order, dtype=int)).all()


def test_orders_are_those_of_the_constructions() -> None:
    """Only these multiples of 4 up to 400 need other constructions than Paley's and the table's."""
    missing = {size for size in range(4, 401, 4) if as_product(size) is None}
    assert missing == {188, 236, 260, 268, 324, 356, 376}
    assert not any(as_product(size) for size in (3, 6, 10, 22, 344 // 8, 11009))


WIDTHS = [11008, 13440, 22016, 25600, 29568, 14336, 18944, 27648, 28672, 11520, 8960, 4864, 5120, 13824, 17920, 9216]


@pytest.mark.parametrize("size", WIDTHS)
@pytest.mark.sweep(every=3)
def test_widths_of_real_models_have_rotations(size: int) -> None:
    """Rows of the product are orthogonal: those of units, in integers, and the way back is exact to float32."""
    orders, power = as_product(size)
    assert np.prod(orders) * power == size and all(is_order(order) for order in orders)
    places = [0, 1, size // 2, size - 1]
    units = np.zeros((4, size), np.float32)
    units[range(4), places] = np.sqrt(size)
    turned = hc.ptq.hadamard(units).round().astype(np.int64)
    assert (np.abs(turned) == 1).all() and (turned @ turned.T == size * np.eye(4, dtype=int)).all()
    x = reals((2, size), 1)
    back = hc.ptq.hadamard(hc.ptq.hadamard(x, seed=3), seed=3, inverse=True)
    assert np.abs(back - x).max() < 1e-5 * np.abs(x).max()


def test_a_product_of_orders_is_kroneckers() -> None:
    size, (orders, power) = 800, as_product(800)
    assert (orders, power) == ((20, 20), 2)
    wanted = np.kron(np.kron(matrix_of(20), matrix_of(20)), [[1, 1], [1, -1]]).astype(np.float64)
    x = reals((3, size), 5)
    assert np.allclose(hc.ptq.hadamard(x), x @ wanted / np.sqrt(size), atol=1e-5)
    assert np.allclose(hc.ptq.hadamard(x, inverse=True), x @ wanted.T / np.sqrt(size), atol=1e-5)


def test_rotations_of_earlier_checkpoints_stay() -> None:
    """Versions that knew fewer orders rotated weights by these matrices, which must still undo the rotation."""
    for size, orders in ((28, (28,)), (72, (72,)), (9216, (72,)), (304, (152,)), (24, (12,)), (64, ())):
        assert as_product(size)[0] == orders, size
    written = b"".join(matrix_of(order).tobytes() for order in sorted(FIRST))
    assert hashlib.sha256(written).hexdigest().startswith("e9e0573c0079ecf9")
    assert as_product(10**9 + 7) is None and nearest_possible(11) == [8, 12]


@pytest.mark.parametrize("size", [1, 2, 12, 20, 28, 72, 76, 140, 384])
def test_hadamard_matrices_are_orthogonal(size: int) -> None:
    turned = hc.ptq.hadamard(np.eye(size, dtype=np.float32))
    assert np.abs(turned @ turned.T - np.eye(size)).max() < 1e-5
    assert np.allclose(np.abs(turned), 1 / np.sqrt(size), rtol=1e-6)
    back = hc.ptq.hadamard(hc.ptq.hadamard(np.eye(size), seed=7), seed=7, inverse=True)
    assert np.abs(back - np.eye(size)).max() < 1e-6


def test_a_rotation_has_blocks_axes_and_a_place() -> None:
    x = reals((3, 24, 5), 2)
    turned = hc.ptq.hadamard(x, axis=1, block=12)
    for half in (slice(0, 12), slice(12, 24)):
        assert (turned[:, half] == hc.ptq.hadamard(x[:, half], axis=1)).all()
    assert not (turned == hc.ptq.hadamard(x, axis=1)).any()
    own = x.copy()
    assert hc.ptq.hadamard(own, axis=1, block=12, out=own) is own and (own == turned).all()
    assert not (hc.ptq.hadamard(x, 1, seed=1) == hc.ptq.hadamard(x, 1, seed=2)).all()
    assert hc.ptq.hadamard(np.zeros((0, 12), np.float32)).shape == (0, 12)
    with bad_argument(ValueError, "axis", "shape"):
        hc.ptq.hadamard(x)
    with bad_argument(ValueError, "block", "value"):
        hc.ptq.hadamard(x, axis=1, block=7)


def test_rotation_helps_outliers_in_mxfp4_more_than_in_nvfp4() -> None:
    """Both sides are rounded: MXFP4's groups share a power of two, NVFP4's groups of 16 have a finer scale."""
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((256, 384)) * np.where(rng.random(384) < 0.02, 25, 1)).astype(np.float32)
    w = rng.standard_normal((64, 384)).astype(np.float32)

    def loss(fmt: str, a: Any, b: Any) -> float:
        product = hc.fake_quantize(a, fmt) @ hc.fake_quantize(b, fmt).T
        return hc.error(x @ w.T, product).sqnr_db

    turned = hc.ptq.hadamard(x), hc.ptq.hadamard(w)
    gain = {fmt: loss(fmt, *turned) - loss(fmt, x, w) for fmt in ("mxfp4", "nvfp4")}
    assert gain["mxfp4"] > 1.5 and gain["nvfp4"] < 0.5


def test_a_rescaling_keeps_the_layer_and_has_the_identity_among_its_candidates() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 64)) * np.where(np.arange(64) < 3, 40, 1)
    x[:, 9] = 0
    h = hc.ptq.Hessian(64)
    h.add(x)
    ws = [rng.standard_normal((8, 64), dtype=np.float32) for _ in range(2)]
    found = hc.ptq.rescale(ws, h, "int4")
    assert 0 < found.alpha < 1 and found.errors[found.alpha] == min(found.errors.values()) < found.errors[0.0]
    assert found.scale[9] == 1
    for w, scaled in zip(ws, found.weights, strict=True):
        assert np.allclose((x / found.scale) @ scaled.T, x @ w.T, rtol=1e-4, atol=1e-3)
    same = hc.ptq.rescale(ws, h, "int4", alpha=0)
    assert (same.scale == 1).all() and (same.weights[0] == ws[0]).all()
    flat = hc.ptq.Hessian(64)
    flat.add(np.eye(64))
    assert hc.ptq.rescale(ws, flat, "int4").alpha == 0


def test_a_corrected_bias_keeps_the_mean_output() -> None:
    x = reals((200, 40), 4) + 1
    w = reals((6, 40), 5)
    h = hc.ptq.Hessian(40)
    h.add(x)
    q, bias = hc.quantize(w, "int3"), reals(6, 6)
    corrected = hc.ptq.correct_bias(w, q, h, bias)
    exact, now = x.astype(float) @ w.T + bias, x.astype(float) @ q.dequantize().T + corrected
    assert np.allclose(exact.mean(axis=0), now.mean(axis=0), atol=1e-4)
    with bad_argument(TypeError, "h", "type"):
        hc.ptq.correct_bias(w, q, h.matrix)


def test_no_row_is_above_the_bound_where_nothing_is_clipped() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((400, 48)) @ rng.standard_normal((48, 48))
    w = rng.uniform(-1, 1, (200, 48)).astype(np.float32)
    h = hc.ptq.Hessian(48)
    h.add(x)
    matrix = h.matrix + 0.01 * np.diagonal(h.matrix).mean() * np.eye(48)
    for fmt in ("int8", "int8f3", "e1m6finite-row", "int12f4-g16"):  # levels of one distance, too
        q = hc.ptq.gptq(w, h, fmt, scales="absmax", sweeps=0)
        lost = w - q.dequantize(np.float64)
        share = np.einsum("ij,jk,ik->i", lost, matrix, lost) / hc.ptq.bound(w, fmt, h)
        assert share.max() <= 1 and abs(share.mean() - 1 / 3) < 0.02
    assert (hc.ptq.bound(w, "int8f3", h) == hc.ptq.bound(w, "int8", h)).all()
    uneven = hc.define(None, hc.Levels([-1, 0, 1], thresholds=[-0.9, 0.9]))  # 0 is not the nearest of 0.8
    for wrong in ("nf4-g64", "e4m3-row", "cb1", uneven):
        with bad_argument(ValueError, "format", "value", f"format is {wrong}, expected levels of one distance"):
            hc.ptq.bound(w, wrong, h)
