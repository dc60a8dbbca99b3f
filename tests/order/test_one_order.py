"""Under hc.use(order="one") the result of a row does not depend on the other rows of the call."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, isas, reals, same_bits

import heterocompute as hc

MOST = 130
FORMATS = [
    "int8", "int4-g32-f16", "int3-g6-asym", "vsq4-g16-s4", "nf4-g64", "mxfp4", "nvfp4", "fp8_e4m3fn-row", "cb4-g32",
    "log4-1-g16", "q4_k", "2:4", "int8+2:4", "nf4-g64+2:4", "int4-g32-f16+1:8",
]  # fmt: skip
ACTIVATIONS = [None, "int8", "int8-g32", "mxfp8_e4m3", "fp8_e4m3fn-row"]
FEW = (1, 2, 7, 8, 9, 16, 17, 63, 64, 65, 129, 130)


def alone(x: Any, w: Any, **options: Any) -> Any:
    """Return the matmul of each row alone."""
    return np.concatenate([hc.linear(row[None], w, **options) for row in x])


@pytest.mark.parametrize("isa", [*isas("gem", "rows", "lanes"), None])
@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.sweep(every=16)
def test_rows_of_a_batch_are_rows_alone(weights: str, isa: str | None) -> None:
    k, n = 256, 19
    x, q = reals((MOST, k), 1), hc.quantize(reals((n, k), 2), weights)
    bias = reals(n, 3)
    panels = hc.prepack(q)
    for activations in ACTIVATIONS:
        with hc.use(isa=isa, threads=1, order="one"):
            wanted = alone(x, q, bias=bias, activations=activations)
        for threads in (1, 2):
            with hc.use(isa=isa, threads=threads, order="one"):
                for m in range(1, MOST + 1) if threads == 1 and activations is None else FEW:
                    assert same_bits(hc.linear(x[:m], q, bias, activations), wanted[:m]), (m, activations)
                    assert same_bits(hc.linear(x[-m:], panels, bias, activations), wanted[-m:]), (m, activations)
        with hc.use(isa=isa):  # the order is that of a row alone, which has not changed
            assert same_bits(alone(x[:3], q, bias=bias, activations=activations), wanted[:3])


@pytest.mark.parametrize("m", [1, 2, 8, 9, 40])
def test_leading_dimensions_and_the_other_side_have_the_same_order(m: int) -> None:
    x, q = reals((2, m, 96), 4), hc.quantize(reals((11, 96), 5), "int4-g32-f16")
    with hc.use(order="one"):
        wanted = alone(x.reshape(-1, 96), q)
        assert same_bits(hc.linear(x, q).reshape(-1, 11), wanted)
        assert same_bits(hc.matmul(x, q.T).reshape(-1, 11), wanted)
        assert same_bits(hc.matmul(q, np.ascontiguousarray(x.reshape(-1, 96).T)), wanted.T)


@pytest.mark.parametrize("isa", [*isas("gem"), None])
def test_rows_of_a_dense_product_are_rows_alone(isa: str | None) -> None:
    x, w = reals((MOST, 200), 6), reals((37, 200), 7)
    with hc.use(isa=isa, order="one"):
        wanted = alone(x, w)
        for m in range(1, MOST + 1):
            assert same_bits(hc.linear(x[:m], w), wanted[:m]), m
        for m in FEW:
            assert same_bits(hc.matmul(np.asfortranarray(x[:m]), np.ascontiguousarray(w.T)), wanted[:m]), m
            assert same_bits(hc.linear(x[:m], w, activations="int8"), alone(x[:m], w, activations="int8"))
    with hc.use(blas="own"):
        assert same_bits(hc.linear(x, w), wanted)


def test_rows_of_compressed_products_are_rows_alone() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    w = reals((30, 80), 8) * (np.random.default_rng(9).random((30, 80)) < 0.2)
    x = reals((MOST, 80), 10)
    for stored in (sparse.csr_array(w), hc.encode_eie(w, elements=4)):
        with hc.use(order="one"):
            wanted = alone(x, stored)
            for m in FEW:
                assert same_bits(hc.linear(x[:m], stored), wanted[:m]), m


FILTERS = [None, "int8", "int4-g8-f16", "vsq4-g16-s4", "2:4"]
WINDOWS = [
    ((6, 16, 9, 9), (12, 16, 3, 3), {"padding": 1}),
    ((6, 16, 12, 12), (9, 16, 5, 5), {"padding": 2, "stride": 2}),
    ((6, 64, 14, 14), (64, 64, 3, 3), {"padding": 1}),
    ((6, 16, 9, 9), (16, 1, 3, 3), {"padding": 1, "groups": 16}),
    ((6, 16, 7, 7), (20, 16, 1, 1), {}),
]  # fmt: skip


@pytest.mark.parametrize("isa", [isas()[0], None])
@pytest.mark.parametrize("fmt", FILTERS)
@pytest.mark.parametrize("activations", [None, "int8", "int8-g8"])
@pytest.mark.sweep(every=20)
def test_images_of_a_batch_are_images_alone(fmt: str | None, activations: str | None, isa: str | None) -> None:
    for seed, (x_shape, w_shape, options) in enumerate(WINDOWS):
        if fmt is not None and w_shape[1] == 1:
            continue
        x, w = reals(x_shape, seed), reals(w_shape, seed + 20)
        w = w if fmt is None else hc.quantize(w, fmt, axis=(2, 3, 1))
        ready = hc.prepack(w)
        hc.conv2d(x, ready, activations=activations, **options)  # packs for another algorithm
        with hc.use(isa=isa, order="one"):
            wanted = np.concatenate([hc.conv2d(one[None], w, activations=activations, **options) for one in x])
            for n in range(1, len(x) + 1):
                for threads in (1, 2):
                    with hc.use(threads=threads):
                        for filters in (w, ready):
                            found = hc.conv2d(x[:n], filters, activations=activations, **options)
                            assert same_bits(found, wanted[:n]), n


def test_positions_of_an_image_are_windows_alone() -> None:
    """A window has the same result at any position, also in an image for which other algorithms are faster."""
    x, w = reals((1, 32, 34, 34), 30), reals((48, 32, 3, 3), 31)
    with hc.use(order="one"):
        whole = hc.conv2d(x, w)
        for row, column in ((0, 0), (0, 31), (13, 7), (31, 31)):
            window = np.ascontiguousarray(x[:, :, row : row + 3, column : column + 3])
            assert same_bits(hc.conv2d(window, w)[0, :, 0, 0], whole[0, :, row, column])
            rows = window.transpose(0, 2, 3, 1).reshape(1, -1)
            assert same_bits(hc.linear(rows, w.transpose(0, 2, 3, 1).reshape(48, -1))[0], whole[0, :, row, column])


@pytest.mark.parametrize("isa", [*isas("atte"), None])
@pytest.mark.parametrize("kept", [None, "int8", "nf4-g16"])
@pytest.mark.parametrize("options", [{}, {"window": 20}, {"cap": 5.0}, {"causal": False}])
@pytest.mark.sweep(every=3)
def test_attention_of_many_queries_is_attention_of_one(kept: str | None, options: Any, isa: str | None) -> None:
    """Prefill and decoding: query i sees the keys up to its own position."""
    m, width = MOST, 16
    q, k, v = (reals((heads, m, width), seed) for seed, heads in ((40, 4), (41, 2), (42, 2)))

    def taken(values: Any) -> Any:
        return values if kept is None else hc.quantize(values, kept)

    with hc.use(isa=isa, order="one"):
        whole = hc.attention(q, taken(k), taken(v), **options)
        for threads in (1, 2):
            with hc.use(threads=threads):
                for i in (0, 1, 15, 16, 17, 63, 64, 65, 100, 129):
                    last = m if options.get("causal") is False else i + 1
                    some = hc.attention(q[:, i : i + 1], taken(k[:, :last]), taken(v[:, :last]), **options)
                    assert same_bits(some[:, 0], whole[:, i]), i
                for n in (2, 17, 40):
                    assert same_bits(hc.attention(q[:, -n:], taken(k), taken(v), **options), whole[:, -n:]), n


@pytest.mark.parametrize("isa", [isas()[0], None])
@pytest.mark.parametrize("algorithm", ["direct", "implicit", "im2col", "winograd2", "winograd4", "winograd6", "fft"])
@pytest.mark.sweep(every=12)
def test_named_algorithms_do_not_depend_on_the_number_of_images(algorithm: str, isa: str | None) -> None:
    for seed, shape in enumerate([(7, 16, 13, 13), (5, 40, 30, 30)]):
        x, w = reals(shape, seed), reals((24, shape[1], 3, 3), seed + 70)
        with hc.use(isa=isa, order="one"):
            alone = [hc.conv2d(one[None], w, padding=1, algorithm=algorithm) for one in x]
            for n in range(1, len(x) + 1):
                for threads in (1, 2):
                    with hc.use(threads=threads):
                        found = hc.conv2d(x[:n], w, padding=1, algorithm=algorithm)
                        assert same_bits(found, np.concatenate(alone[:n])), n


def test_explain_says_that_a_blas_has_another_order() -> None:
    x, w = reals((64, 256), 50), reals((64, 256), 51)
    with hc.use(order="one"):
        found = {one.path: one.reason for one in hc.explain(x, w.T).candidates}
        assert found["OpenBLAS"] == "it sums in other orders for other numbers of rows"
        paths = {one.path for one in hc.explain(hc.linear, x, hc.quantize(w, "int4-g32-f16")).candidates}
        assert "gemm" not in paths and "gemv" in paths
        with pytest.raises(ValueError, match="path 'gemm' does not apply to this matmul"), hc.use(path="gemm"):
            hc.linear(x, hc.quantize(w, "int4-g32-f16"))
        images, filters = reals((8, 64, 28, 28), 52), reals((64, 64, 3, 3), 53)
        found = hc.explain(hc.conv2d, images, filters, padding=1)
        assert found.chosen == "direct"
        assert "more than auto admits here" in next(one.reason for one in found.candidates if one.path == "winograd4")


def test_wrong_orders_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with bad_argument(ValueError, "order", "value"), hc.use(order="two"):
        pass
    with bad_argument(ValueError, "order", "value"), hc.use(order=1):  # type: ignore[arg-type]
        pass
    with bad_argument(ValueError, "blas", "value"), hc.use(blas="openblas", order="one"):
        pass
    with hc.use(order="one"), hc.use(order="fast"), hc.use(blas="own"):
        pass


def test_the_environment_sets_the_order() -> None:
    code = (
        "import numpy as np, heterocompute as hc; x = np.random.default_rng(0).standard_normal((20, 300), np.float32);"
        "q = hc.quantize(x, 'int4-g32-f16'); y = hc.linear(x, q);"
        "print(np.array_equal(y[3], hc.linear(x[3], q)), hc.explain(hc.linear, x, q).chosen)"
    )
    for order, wanted in (
        ("", "False gemm"),
        ("one", "True gemv"),
        ("two", "HETEROCOMPUTE_ORDER: expected 'fast', 'one' or 'device', got 'two'"),
    ):
        environment = {**os.environ, "HETEROCOMPUTE_ORDER": order}
        found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert wanted in (found.stdout or found.stderr)


@pytest.mark.parametrize("activations", ["nvfp4", "fp8_e4m3fn-tensor", "nf4-g64-dq"])
def test_activations_whose_rows_share_a_scale_are_refused(activations: str) -> None:
    x, w = reals((4, 64), 60), reals((3, 64), 61)
    images, filters = reals((2, 64, 3, 3), 62), reals((4, 64, 3, 3), 63)
    for weights in (w, hc.quantize(w, "int8"), hc.quantize(w, "mxfp4")):
        hc.linear(x, weights, activations=activations)
        with hc.use(order="one"), bad_argument(ValueError, "activations", "value"):
            hc.linear(x, weights, activations=activations)
    for kernels in (filters, hc.quantize(filters, "int8", axis=(2, 3, 1))):
        hc.conv2d(images, kernels, activations=activations)
        with hc.use(order="one"), bad_argument(ValueError, "activations", "value"):
            hc.conv2d(images, kernels, activations=activations)


def test_tuned_ways_have_the_order_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HETEROCOMPUTE_CACHE", str(tmp_path))
    images, filters = reals((4, 16, 14, 14), 64), reals((16, 16, 3, 3), 65)
    x, q, w = reals((40, 64), 66), hc.quantize(reals((24, 64), 67), "nf4-g64"), reals((24, 64), 68)
    calls = [(hc.conv2d, (images, filters)), (hc.linear, (x, q)), (hc.linear, (x, w))]
    for function, arguments in calls:
        hc.tune(function, *arguments, seconds=0)
        with hc.use(order="one"):
            wanted = function(*arguments)
            hc.tune(function, *arguments, seconds=0)
            with hc.use(tuned=True):
                assert same_bits(function(*arguments), wanted)
        with hc.use(tuned=True), hc.use(order="one"):
            assert same_bits(function(*arguments), wanted)
