"""Every path of every matmul, forced by its name: the same bits, or a reason."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from common import bad_argument, isas, reals, same_bits

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.arrays.components import core_format
from heterocompute.base import runtime
from heterocompute.products.arguments import core_operand

WEIGHTS = [
    "int8", "int4", "int3-g6-asym", "int4-g32-f16", "vsq4-g16-s4", "vsq4-g16", "vsq8-g64-s10", "nf4-g64", "mxfp4",
    "nvfp4", "fp8_e4m3fn-row", "cb4-g32", "log4-1-g16", "2:4", "3:4", "1:16", "int8+2:4", "int8+3:4", "int8+1:8",
    "vsq4-g16-s4+2:4", "vsq4-g16-s4+1:4", "nf4-g64+2:4", "mxfp4+1:2", "int4-g32-f16+2:4", "fp8_e5m2+5:8",
    "q4_1", "q2_k", "q4_k", "q5_k", "q6_k",
]  # fmt: skip
ACTIVATIONS = [None, "int8", "int16", "vsq4-g16-s4", "int4-g32", "mxfp8_e4m3", "int8+2:4"]
SHAPES = [(1, 5, 64), (3, 17, 200), (8, 33, 328), (9, 16, 96), (40, 24, 513)]


def candidates(x: np.ndarray, q: hc.QuantizedArray, activations: str | None) -> dict[str, str | None]:
    """Return path -> reason why it refuses, or None."""
    with hc.use(path="auto"):
        _, _, (number, found, _) = core.explain(
            runtime.run(), *(core_operand(v) for v in (x, q.T)),
            None if activations is None else core_format(hc.format(activations)),
            np.empty((len(x), q.shape[0]), np.float32),
        )  # fmt: skip
    assert number < 0 or found[number][2] is None
    return {path: reason for path, _, reason, *_ in found}


@pytest.mark.parametrize("isa", [*isas("gem", "expand_", "masks_", "indices_"), None])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.sweep(every=24)
def test_every_path_gives_the_same_bits_or_a_reason(weights: str, isa: str | None) -> None:
    with hc.use(isa=isa, threads=2):
        for seed, ((m, n, k), activations) in enumerate(itertools.product(SHAPES, ACTIVATIONS)):
            x, q = reals((m, k), seed), hc.quantize(reals((n, k), seed + 1), weights)
            y = hc.linear(x, q, activations=activations)
            panels = hc.prepack(q)
            for path, reason in candidates(x, q, activations).items():
                with hc.use(path=path):
                    if reason is None:
                        for w in (q, panels):
                            found = hc.linear(x, w, activations=activations)
                            assert same_bits(found, y), (path, activations, (m, n, k))
                        continue
                    with pytest.raises(ValueError, match="refuses this product") as caught:
                        hc.linear(x, q, activations=activations)
                    assert reason in str(caught.value)


def test_every_path_is_taken_by_some_product_of_this_file() -> None:
    taken = set()
    with hc.use(isa=isas()[-1]):
        for weights, activations, (m, n, k) in itertools.product(WEIGHTS, ACTIVATIONS, SHAPES[:4]):
            found = candidates(reals((m, k), 1), hc.quantize(reals((n, k), 2), weights), activations)
            taken |= {path for path, reason in found.items() if reason is None}
    some_have_none = "gemv-2:4"  # scalar kernels, and those of AVX2
    assert taken | {some_have_none} == set(core.paths()[0])
    assert some_have_none in taken or len(isas("gemv_24_groups", "gemv_24_folded")) == 1


@pytest.mark.sweep(every=0)
def test_many_rows_in_lanes_are_those_of_panels_whatever_is_left_over() -> None:
    cases = itertools.product(
        (
            ("int8", "int8"),
            ("vsq4-g16-s4", "int8"),
            ("vsq4-g64-s8", "int16"),
            ("vsq4-g64-s8", "int8+2:4"),
            ("int4-g32-f16", "int8"),
            ("nvfp4", "int8+2:4"),
        ),
        ((16, 24, 64), (65, 101, 2050), (150, 9, 67), (17, 200, 1)),
        (1, 2),
    )
    for (text, activations), (m, n, k), threads in cases:
        x, q = reals((k, m), m).T, hc.quantize(reals((n, k), n), text)
        answers = []
        with hc.use(path="auto"):
            paths = [path for path in ("gemm", "lanes") if candidates(x, q, activations)[path] is None]
        for path in paths:
            for out in (
                None,
                np.full((n, m), np.nan, np.float32).T,
                np.full((2 * m, 3 * n), np.nan, np.float32)[::2, ::3],
            ):
                with hc.use(path=path, threads=threads):
                    answers.append(hc.linear(x, q, activations=activations, out=out))
        assert all(same_bits(np.ascontiguousarray(y), answers[0]) for y in answers), (text, m, n, k, threads)


def test_codes_and_integer_scales_apart_are_the_folded_integers() -> None:
    rng = np.random.default_rng(8)
    for fmt, columns in (("vsq4-g32-s8", 20000), ("vsq4-g20-s8", 450), ("vsq5-g16-s8", 97)):  # 20000: in several blocks
        x = np.sign(rng.standard_normal((9, columns), dtype=np.float32))  # codes of 127 and -127
        q = hc.quantize(rng.standard_normal((11, columns), dtype=np.float32), fmt)
        with hc.use(isa="scalar"):
            wanted = hc.linear(x, q, activations="int8")
        with hc.use(path="gemm"):
            assert same_bits(hc.linear(x, q, activations="int8"), wanted)
            assert same_bits(hc.linear(x, hc.prepack(q), activations="int8"), wanted)
            assert same_bits(hc.linear(x, q, activations="int8", out=np.empty((11, 9), np.float32).T), wanted)
    x, q = hc.quantize(reals((9, 64)), "int8+2:4"), hc.quantize(reals((11, 64), 1), "vsq4-g32-s8")
    with hc.use(isa="scalar"):
        wanted = hc.linear(x, q)
    for isa in isas("gemm_nm")[1:]:  # the sparse operand becomes the right side, the codes the left side
        with hc.use(path="gemm-nonzeros", isa=isa):
            assert same_bits(hc.linear(x, q), wanted)


@pytest.mark.parametrize("isa", [*isas("gem"), None])
@pytest.mark.parametrize("fmt", ["int8", "vsq8-g64-s8", "vsq6-g16-s6", "int8-g64", "int4-g128-asym"])
def test_few_rows_of_prepacked_weights_have_the_same_bits(fmt: str, isa: str | None) -> None:
    columns = 1301  # integers of vsq8 pass int32 after 512
    x = np.sign(reals((14, columns), 3))  # codes of 127 and -127
    extreme = np.sign(x[:1]) * np.sign(reals((45, 1), 4))
    q = hc.quantize(np.concatenate([extreme, reals((5, columns), 5)]), fmt)
    with hc.use(isa="scalar", path="gemm"):
        wanted = hc.linear(x, q, activations="int8")
    with hc.use(isa=isa, path="gemm", threads=2):
        ready = hc.prepack(q)
        for m in range(1, 15):
            assert same_bits(hc.linear(x[:m], ready, activations="int8"), wanted[:m]), m
            assert same_bits(hc.linear(x[:m], q, activations="int8"), wanted[:m]), m


def test_a_path_of_another_order_is_refused() -> None:
    x, q = reals((20, 64), 1), hc.quantize(reals((8, 64), 2), "int8")
    with hc.use(path="gemv"), bad_argument(ValueError, None, "unsupported", "'gemv'"):
        hc.linear(x, q)
    with bad_argument(ValueError, None, "value", "'fast'"), hc.use(path="fast"):
        pass
    with hc.use(path="gemm"), hc.use(path="auto"):
        assert same_bits(hc.linear(x[:4], q), hc.linear(x[:4], q))
    with hc.use(path="gemm"):  # this package's kernel, although there is a BLAS
        assert same_bits(hc.matmul(x, x.T), hc.matmul(x, x.T))
        assert hc.explain(x, x.T).chosen == "gemm"


@pytest.mark.parametrize(("weights", "activations"), [("int8", "int16"), ("int8", "int24"), ("vsq8-g64-s8", "int8")])
def test_sums_of_16_bit_limbs_stay_exact_at_the_bound_of_int32(weights: str, activations: str) -> None:
    """Every product has the largest magnitude, so the sums of more than 516 columns pass int32."""
    for columns in (512, 517, 1100):
        signs = np.where(np.arange(columns) < 1030, 1, -1).astype(np.float32)
        x = np.repeat(signs[None], 70, 0)
        q = hc.quantize(np.concatenate([x[:9], -signs[None]]), weights)
        for isa in isas():
            with hc.use(isa=isa, path="rows"):
                wanted = hc.linear(x, q, activations=activations)
            for w in (q, hc.prepack(q)):
                for rows in (7, 32, 33, 70):
                    with hc.use(isa=isa, path="gemm"):
                        assert same_bits(hc.linear(x[:rows], w, activations=activations), wanted[:rows])
