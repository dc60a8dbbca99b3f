"""Systolic arrays: SCALE-Sim's numbers, and a simulated array that computes the matmul."""

from __future__ import annotations

import numpy as np
import pytest
from common import bad_argument
from hypothesis import given, settings, strategies as st

from heterocompute.hardware import systolic

small = st.integers(1, 12)


def test_scale_sim_golden_cycles() -> None:
    ws, os = (systolic.gemm(256, 128, 256, rows=32, columns=32, dataflow=kind) for kind in ("ws", "os"))
    assert (ws.folds, ws.cycles, ws.last_cycle) == (32, 11_200, 52_447 - 41_248)
    assert (os.folds, os.cycles, os.last_cycle) == (32, 10_176, 52_447 - 42_272)


def test_scale_sim_golden_traffic() -> None:
    runs = [systolic.gemm(256, 128, 256), systolic.conv(C=3, H=227, W=227, K=96, R=11, S=11, stride=4)]
    found = [(run.sram_reads_input, run.sram_reads_weight, run.sram_writes_output) for run in runs]
    assert found == [(262_144, 32_768, 262_144), (3_294_225, 34_848, 3_484_800)]


@given(
    st.tuples(small, small, small),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.sampled_from(systolic.DATAFLOWS),
    st.integers(0, 99),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_the_formula_is_what_the_machine_does(
    size: tuple[int, int, int], cells: tuple[int, int], kind: str, seed: int
) -> None:
    (m, n, k), (rows, columns) = size, cells
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-99, 99, (m, k)), rng.integers(-99, 99, (k, n))
    pulsed, counted = systolic.simulate(a, b, rows, columns, kind), systolic.gemm(m, n, k, rows, columns, kind)
    np.testing.assert_array_equal(pulsed.product, a @ b)
    for key in ("cycles", "folds", "sram_reads_input", "sram_reads_weight", "sram_writes_output"):
        assert getattr(pulsed, key) == getattr(counted, key), key


def test_one_large_product_is_computed() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (256, 256)), rng.integers(-9, 9, (256, 128))
    run = systolic.simulate(a, b, 32, 32, "ws")
    assert run.cycles == 11_200 and (run.product == a @ b).all()


def test_utilisation_of_a_small_layer() -> None:
    """A 256 x 256 array is nearly idle on a layer with 16 channels, a small array is not."""
    large, tiny = (systolic.conv(C=16, H=14, W=14, K=16, R=1, S=1, rows=side, columns=side) for side in (256, 4))
    assert large.mapping_efficiency == 16 * 16 / 256**2 and tiny.mapping_efficiency == 1
    assert large.utilisation < 0.002 and tiny.utilisation > 0.9
    assert large.utilisation == large.macs / (256 * 256 * large.cycles)


def test_words_from_outside() -> None:
    free = systolic.gemm(256, 128, 256)
    assert (free.dram_reads_input, free.dram_reads_weight, free.dram_writes_output) == (65_536, 32_768, 32_768)
    tight = systolic.gemm(256, 128, 256, sram_words=(65_535, 1, 256 * 32 - 1))
    assert (tight.dram_reads_input, tight.dram_reads_weight) == (4 * 65_536, 32_768)
    assert (tight.dram_writes_output, tight.dram_reads_output) == (8 * 32_768, 7 * 32_768)
    assert systolic.gemm(256, 128, 256, sram_words=65_536).dram_reads_input == 65_536
    os = systolic.gemm(256, 128, 256, dataflow="os", sram_words=1)
    assert (os.dram_reads_input, os.dram_reads_weight, os.dram_writes_output) == (4 * 65_536, 8 * 32_768, 32_768)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"M": 0}, "systolic: M is 0, expected at least 1"),
        ({"rows": -1}, "systolic: rows is -1, expected at least 1"),
        ({"dataflow": "rs"}, "systolic: dataflow is 'rs', expected one of ws, is, os"),
        ({"K": 2.5}, "systolic: K is 2.5, expected a whole number"),
    ],
)
def test_wrong_sizes(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        systolic.gemm(**{"M": 4, "N": 4, "K": 4, **arguments})
    assert str(caught.value) == sentence
    with bad_argument(ValueError, "a", "value"):
        systolic.simulate(np.ones((2, 3)), np.ones((2, 3)))
    with bad_argument(ValueError, None, "value", "the filter 5 x 5 is larger than the input 4 x 4"):
        systolic.conv(C=1, H=4, W=4, K=1, R=5, S=5)


def test_strides_by_axis_and_groups() -> None:
    both = systolic.conv(C=8, H=15, W=16, K=8, R=3, S=3, stride=(2, 1), padding=(1, 0), rows=8, columns=8)
    assert both.macs == 8 * 14 * 8 * 8 * 9  # 8 rows down, 14 columns across
    assert systolic.conv(C=8, H=9, W=9, K=8, R=3, S=3, stride=(2, 2)) == systolic.conv(
        C=8, H=9, W=9, K=8, R=3, S=3, stride=2
    )
    one = systolic.conv(C=2, H=9, W=9, K=2, R=3, S=3, rows=4, columns=4)
    four = systolic.conv(C=8, H=9, W=9, K=8, R=3, S=3, rows=4, columns=4, groups=4)
    assert four.cycles == 4 * one.cycles and four.sram_reads_input == 4 * one.sram_reads_input
    assert four.utilisation == one.utilisation and four.folds == 4 * one.folds
    with bad_argument(ValueError, "C", "value"):
        systolic.conv(C=8, H=9, W=9, K=9, R=3, S=3, groups=3)
    with bad_argument(ValueError, "stride", "value"):
        systolic.conv(C=8, H=9, W=9, K=9, R=3, S=3, stride=(1, 2, 3))  # type: ignore[arg-type]


def test_the_old_name_of_columns_is_an_error() -> None:
    for call in (lambda: systolic.gemm(8, 4, 8, rows=4, cols=4), lambda: systolic.simulate([[1]], [[1]], cols=4)):
        with pytest.raises(TypeError, match="cols is an old name, expected columns="):
            call()
