"""The blocks of ggml: bytes and values of the package gguf, and errors of ggml's own encoders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import bad_argument, same_bits

import heterocompute as hc
from heterocompute.files.layouts.gguf.blocks import array_of, block_bytes, bytes_of
from heterocompute.reference.formats.ggml.storage import blocks_of, parts_of

Array = np.ndarray[Any, Any]
TYPES = hc.GGML.examples
# SQNR in dB of ggml 0.13.1's encoding of 64 x 4096 values of default_rng(0).standard_normal
GGML_DB = {"q2_k": 10.546, "q3_k": 16.425, "q4_k": 22.917, "q5_k": 28.830, "q6_k": 35.013, "iq4_nl": 22.357,
           "iq4_xs": 22.292}  # fmt: skip


def gaussian(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def decoded(data: Array, text: str) -> Array:
    gguf = pytest.importorskip("gguf")
    with np.errstate(all="ignore"):
        found: Array = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[text.upper()])
    return found


@pytest.mark.parametrize("text", TYPES)
def test_blocks_decode_as_gguf_decodes_them(text: str) -> None:
    q = hc.quantize(gaussian(4, 512), text)
    data = bytes_of(q)
    assert data.shape == (4, 512 // q.format.block * block_bytes(q.format))
    assert data.nbytes == q.nbytes if text != "tq1_0" else data.nbytes == q.nbytes // 66 * 54
    assert same_bits(q.dequantize(), decoded(data, text))


@pytest.mark.parametrize("text", [text for text in TYPES if not hc.GGML(text).is_ternary])
def test_any_bytes_are_a_block_and_come_back(text: str) -> None:
    fmt = hc.format(text)
    data = np.random.default_rng(1).integers(0, 256, (16, 1024 // fmt.block * block_bytes(fmt)), dtype=np.uint8)
    q, wanted = array_of(fmt, data, (16, 1024)), decoded(data, text)
    assert np.array_equal(bytes_of(q), data)
    finite = np.isfinite(wanted)  # d may be any float16
    assert finite.mean() > 0.5 and same_bits(q.dequantize()[finite], wanted[finite])


@pytest.mark.parametrize("text", ["tq1_0", "tq2_0"])
def test_any_ternary_codes_are_a_block_and_come_back(text: str) -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(-1, 2, (16, 1024))
    scales = rng.integers(0, 0x7C00, (16, 4)).astype(np.uint16).view(np.float16)  # any finite scale
    scales[:, 1] *= -1
    q = hc.quantize(codes.astype(np.float32), text)
    assert np.array_equal(q.codes(), codes)
    q = hc.QuantizedArray({"codes": q.components["codes"], "scales": scales}, q.format, q.shape, (1,))
    data = bytes_of(q)
    assert np.array_equal(blocks_of(text, q.components, 16, 4), data)
    assert same_bits(q.dequantize(), decoded(data, text))
    back = array_of(q.format, data, (16, 1024))
    assert back == q and all(np.array_equal(parts_of(text, data, 4)[key], q.components[key]) for key in q.components)


def test_every_byte_of_tq1_0_decodes_as_gguf_decodes_it() -> None:
    """ggml never writes 13 of the 256 bytes."""
    data = np.random.default_rng(2).permuted(np.tile(np.arange(256, dtype=np.uint8), (54, 1)), axis=1).T.copy()
    data[:, 52:] = np.float16(0.5).tobytes()[0], np.float16(0.5).tobytes()[1]
    q = array_of(hc.GGML("tq1_0"), data, (256, 256))
    assert same_bits(q.dequantize(), decoded(data, "tq1_0"))
    assert array_of(q.format, bytes_of(q), q.shape) == q


@pytest.mark.parametrize("text", ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "tq1_0", "tq2_0"])
def test_types_without_a_search_are_those_of_ggml(text: str) -> None:
    gguf = pytest.importorskip("gguf")
    x = gaussian(8, 1024) * np.float32(0.02)
    x[0], x[1, ::2], x[2, :64] = 0, 1, np.arange(64) - 31.5
    wanted = gguf.quants.quantize(x, gguf.GGMLQuantizationType[text.upper()])
    assert np.array_equal(bytes_of(hc.quantize(x, text)), wanted)


@pytest.mark.parametrize("text", GGML_DB)
def test_errors_are_at_most_those_of_ggml(text: str) -> None:
    x = gaussian(64, 4096)
    error = x.astype(np.float64) - hc.fake_quantize(x, text)
    assert -10 * np.log10((error**2).sum() / (x.astype(np.float64) ** 2).sum()) >= GGML_DB[text]


@pytest.mark.parametrize("text", TYPES)
def test_values_beyond_any_block_saturate_and_small_ones_vanish(text: str) -> None:
    large = hc.quantize(np.float32([[3e38, -3e38, 1e30, 0]]), text).dequantize()
    assert np.isfinite(large).all() and large[0, 0] > 1e4 > -1e4 > large[0, 1]
    tiny = hc.quantize(np.float32([[1e-38, -1e-40, 0, 1e-20]]), text).dequantize()
    assert (tiny == 0).all()


@pytest.mark.parametrize("text", ["q4_1", "q4_k", "q2_k"])
def test_a_constant_stays_where_there_is_a_minimum(text: str) -> None:
    x = np.full((2, 256), -0.5, np.float32)
    assert np.allclose(hc.fake_quantize(x, text), x, rtol=2.0**-11, atol=0)  # e is a float16


@pytest.mark.parametrize("text", TYPES)
@pytest.mark.parametrize("activations", [None, "int8"])
def test_convolutions_see_no_padding(text: str, activations: str | None) -> None:
    """8 channels are padded to a block for each of nine taps."""
    w, x = gaussian(4, 8, 3, 3), np.abs(gaussian(2, 8, 6, 6))
    q = hc.quantize(w, text, axis=(2, 3, 1))
    wanted = hc.conv2d(x, q.dequantize())
    found = hc.conv2d(x, q, activations=activations)
    assert np.allclose(found, wanted, rtol=0, atol=1e-4 if activations is None else 0.5)


def test_what_does_not_go_with_blocks_is_refused() -> None:
    x = gaussian(1, 32)
    with bad_argument(ValueError, "q4_k", "missing"):
        hc.quantize(x, "q4_k", clip=0.9)
    with bad_argument(ValueError, "q4_k", "value"):
        hc.Sparse(hc.GGML("q4_k"), 2, 4)
    with bad_argument(ValueError, "type", "value"):
        hc.GGML("q4_x")


@pytest.mark.parametrize("seed", range(5))
def test_levels_with_unequal_weights_are_near_the_best_scale(seed: int) -> None:
    """The scale that the weights want may leave the largest value beyond the levels."""
    from heterocompute.reference.formats.ggml.encoding import LEVELS

    rng = np.random.default_rng(seed)
    x = rng.standard_normal((16, 32)).astype(np.float32)
    w = np.exp(2 * rng.standard_normal((16, 32))).astype(np.float32)
    found = hc.quantize(x, "iq4_nl", importance=w).dequantize()
    largest, best = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1).astype(np.float64), np.full(16, np.inf)
    for ends in np.arange(40, 200):
        q = LEVELS[np.searchsorted((LEVELS[1:] + LEVELS[:-1]) / 2, x * (-ends / largest))]
        scale = (w * q * x).sum(1, keepdims=True) / (w * q * q).sum(1, keepdims=True)
        best = np.minimum(best, (w * (x - scale * q) ** 2).sum(1))
    assert (w * (x - found) ** 2).sum() <= 1.04 * best.sum()  # 1.045 to 1.55 with eight scales
