"""N:M and the format in one loop: nonzeros are chosen by the inputs, and compensate for the removed values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import bad_argument, reals

import heterocompute as hc
from heterocompute.products.columns import to_columns
from heterocompute.products.grid_of import grid_of
from heterocompute.ptq.gptq import improve
from heterocompute.ptq.levels import Part

K, ROWS = 96, 24
PATTERNS = ["2:4", "3:7", "fp16+2:4", "int8+2:4", "int4-g32-asym+2:4", "vsq4-g16-s4+2:4", "int8+1:8", "mxfp4+2:4"]
PATTERNS += ["nvfp4+2:4", "nf4-g64-dq+2:4", "cb3-g16+2:4", "log4-1-g16+2:4", "bf16+17:32", "fp8_e4m3fn-row+2:4"]


@pytest.fixture(scope="module")
def h() -> hc.ptq.Hessian:
    rng = np.random.default_rng(0)
    found = hc.ptq.Hessian(K)
    found.add(rng.standard_normal((300, K)) @ (rng.standard_normal((K, K)) * np.exp(rng.standard_normal(K))))
    return found


@pytest.fixture(scope="module")
def w() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).standard_normal((ROWS, K)).astype(np.float32)


@pytest.mark.parametrize("fmt", PATTERNS)
@pytest.mark.sweep(every=2)
def test_every_pattern_gains_and_is_what_quantize_gives(fmt: str, w: Any, h: hc.ptq.Hessian) -> None:
    plain, q = hc.quantize(w, fmt), hc.ptq.gptq(w, h, fmt)
    assert type(q) is type(plain) and q.format == plain.format and q.axis == plain.axis
    assert {name: part.shape for name, part in q.components.items()} == {
        name: part.shape for name, part in plain.components.items()
    }
    assert type(q)(q.components, q.format, q.shape, q.axis) == q  # checks the components
    assert hc.ptq.error(w, q, h).output_db > hc.ptq.error(w, plain, h).output_db + 2
    assert hc.ptq.gptq(w.astype(np.float64), h, fmt, order="natural", scales="absmax", sweeps=0).shape == w.shape


def test_a_pattern_alone_beats_its_steps(w: Any, h: hc.ptq.Hessian) -> None:
    """Magnitudes, Wanda's scores, SparseGPT, its loop in the order of inputs, and sweeps over the nonzeros."""
    scores = hc.scores.wanda(w, h)
    assert np.allclose(scores, np.abs(w) * np.sqrt(np.diagonal(h.matrix)), rtol=1e-6)
    found = [hc.prune(w, "2:4"), hc.prune(w, "2:4", scores=scores), hc.prune(hc.scores.sparsegpt(w, h), "2:4")]
    found += [hc.ptq.gptq(w, h, "2:4", sweeps=count) for count in (0, 3)]
    errors = [-hc.ptq.error(w, s, h).output_db for s in found]
    assert errors == sorted(errors, reverse=True)
    assert (found[3].mask == found[4].mask).all() and isinstance(found[4], hc.SparseArray)


def test_independent_inputs_keep_the_largest(w: Any) -> None:
    assert hc.ptq.gptq(w, np.eye(K), "2:4") == hc.prune(w, "2:4")
    assert hc.ptq.gptq(w, np.eye(K), "int8+2:4", scales="absmax", sweeps=0) == hc.quantize(w, "int8+2:4")


def test_a_mask_is_kept_to(w: Any, h: hc.ptq.Hessian) -> None:
    mask = hc.prune_mask(w, "2:4", scores=hc.scores.wanda(w, h))
    for fmt in ("2:4", "int8+2:4", "nf4-g64+2:4"):
        q = hc.ptq.gptq(w, h, fmt, mask=mask)
        assert not q.dequantize()[~mask].any() and q.dequantize()[mask].any()
        assert hc.ptq.error(w, q, h).output_db > hc.ptq.error(w, np.where(mask, w, 0), h).output_db + 2
    with bad_argument(ValueError, None, "value", "gptq: row 0, group 0 of mask keeps 4 values of 4, 2:4 keeps 2"):
        hc.ptq.gptq(w, h, "int8+2:4", mask=np.ones(w.shape, bool))
    with bad_argument(ValueError, "mask", "value"):
        hc.ptq.gptq(w, h, "int8", mask=mask)


@pytest.mark.parametrize("fmt", ["2:4", "int8+2:4", "vsq4-g8-s4+2:4", "int4-asym+2:4"])
def test_a_mask_may_keep_fewer_values_than_the_pattern(fmt: str, w: Any, h: hc.ptq.Hessian) -> None:
    mask = hc.prune_mask(w, "1:4")
    mask[0], mask[1, :4] = False, False
    found = np.asarray(hc.ptq.gptq(w, h, fmt, mask=mask))
    assert (found[~mask] == 0).all() and (found[mask] != 0).mean() > 0.8
    best = hc.ptq.error(w, hc.ptq.gptq(w, h, "1:4"), h).output_db
    assert hc.ptq.error(w, found, h).output_db < best  # which chooses the mask and does not round


@pytest.mark.parametrize("fmt", ["2:4", "int4-g16+2:4", "vsq4-g16-s4+2:4", "mxfp4+1:4"])
def test_sweeps_over_what_is_kept_never_raise_the_error(fmt: str, w: Any, h: hc.ptq.Hessian) -> None:
    q = hc.quantize(w, fmt)
    grid, columns, matrix = grid_of(q), to_columns(w, (1,)), h.matrix
    codes, last = grid.nearest(columns), np.inf
    for refit in (False, True, False, True, True):
        improve([Part(slice(0, ROWS), grid, columns, matrix, codes)], 1, refit)
        found = grid.quantized(codes, "float32")
        now = hc.ptq.error(w, found, h).squared
        assert now <= last and (found.components["metadata"] == q.components["metadata"]).all()
        last = now


def test_filters_have_blocks_within_a_window(h: hc.ptq.Hessian) -> None:
    """Blocks along the channels of each place, the last one short: K = 96 = 3 x 4 x 8 in the order (r, s, c)."""
    images = reals((ROWS, 8, 3, 4), 3)
    for fmt in ("int8+2:4", "3:5", "int4-g6+3:5"):
        q = hc.ptq.gptq(images, h, fmt)
        assert q.axis == (2, 3, 1) and q.shape == images.shape
        plain = hc.quantize(images, fmt, (2, 3, 1))
        assert hc.ptq.error(images, q, h).output_db > hc.ptq.error(images, plain, h).output_db + 2
        stored = np.pad(q.dequantize() != 0, ((0, 0), (0, 2 if "3:5" in fmt else 0), (0, 0), (0, 0)))
        n, m = int(fmt[-3]), int(fmt[-1])
        assert stored.reshape(ROWS, -1, m, 3, 4).sum(axis=2).max() == n


@pytest.mark.parametrize("shape", [(0, 8), (3, 1), (2, 3)])
def test_empty_and_tiny_weights(shape: tuple[int, int]) -> None:
    for fmt in ("2:4", "int4+2:4"):
        assert hc.ptq.gptq(np.ones(shape, np.float32), np.eye(shape[1]), fmt).shape == shape


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("method", [hc.ptq.gptq, hc.ptq.qronos])
def test_a_pattern_alone_keeps_the_dtype_of_the_weights(dtype: str, method: Any, w: Any, h: hc.ptq.Hessian) -> None:
    narrow = w.astype(np.dtype(dtype))
    plain, q = hc.quantize(narrow, "2:4"), method(narrow, h, "2:4")
    assert q.source_dtype == plain.source_dtype and q.nbytes == plain.nbytes
    for name, part in plain.components.items():
        assert (q.components[name].dtype, q.components[name].shape) == (part.dtype, part.shape)
    assert hc.ptq.error(w, q, h).output_db > hc.ptq.error(w, plain, h).output_db + 2
