"""The int8 matmul of CUDA, run on the host, gives the bits of the CPU's."""

from __future__ import annotations

import re

import emulated
import ml_dtypes  # noqa: F401 - numpy knows bfloat16
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.products.arguments import as_format

PAIRS = [
    *[("int8", "int8"), ("int8", "vsq4-g16-s4"), ("vsq4-g16-s4", "vsq4-g16-s4"), ("int4", "int8")],
    *[("int8", "int4-g32-f16"), ("int4-g32", "int4-g32"), ("vsq4-g16", "vsq8-g64"), ("vsq4-g16-s4", "int4-g64")],
    *[("int8", "int4-g16-asym"), ("int4-g24", "int4-g48"), ("int8", "mxint8"), ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4")],
    *[("int8", "q8_0"), ("int8", "q4_0"), ("int8", "vsq4-g16-s6"), ("vsq8-g16-s8", "vsq8-g16-s10"), ("int16", "int8")],
    *[("int8", "q4_1"), ("int8", "q4_k"), ("int4-g16", "q5_1"), ("int16", "q4_k"), ("int8", "q2_k")],
    *[("int24", "vsq4-g16-s4"), ("int16", "int4-g32-f16"), ("vsq4-g16-s6", "int4-g16")],
]
SHAPES = [(1, 3, 16), (17, 65, 100), (129, 9, 64)]


@pytest.mark.parametrize(("x_text", "w_text"), PAIRS)
@pytest.mark.sweep(every=3)
def test_matmul_gives_the_bits_of_the_cpu(x_text: str, w_text: str) -> None:
    rng = np.random.default_rng(0)
    for order, (m, n, k) in enumerate(SHAPES):
        x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
        bias = rng.standard_normal(n).astype(np.float32)
        q, activations = hc.quantize(w, w_text), hc.format(x_text)
        wanted = hc.linear(x, q, bias, activations=activations)
        assert emulated.linear(x, q, bias, activations, order).tobytes() == wanted.tobytes()
        packed = hc.quantize(x, activations)
        assert emulated.linear(packed, q).tobytes() == hc.linear(packed, q).tobytes()


@pytest.mark.parametrize("w_text", ["vsq4-g16-s4", "vsq4-g16-s4-tensor", "int4"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 3, 32), (16, 40, 288), (17, 33, 512), (40, 9, 288), (64, 32, 544)])
def test_weights_that_stay_packed_give_the_same_bits(w_text: str, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
    bias = rng.standard_normal(n).astype(np.float32)
    q = hc.quantize(w, w_text)
    for order in (0, 9):
        got = emulated.linear(x, q, bias, hc.format("int8"), order)
        assert got.tobytes() == hc.linear(x, q, bias, activations="int8").tobytes()
    assert any(name.startswith("hc_gemm_few_s4") for name in emulated.launched)


@pytest.mark.parametrize("w_text", ["int8", "int6", "int4", "vsq4-g16-s4", "int8+2:4", "int4-g32-f16", "q4_0"])
@pytest.mark.parametrize(("m", "multiprocessors"), [(1, 0), (8, 1), (9, 1), (33, 2), (64, 20)])
@pytest.mark.sweep(every=5)
def test_few_rows_give_the_bits_of_the_cpu(w_text: str, m: int, multiprocessors: int) -> None:
    rng = np.random.default_rng(0)
    for order, (n, k) in enumerate([(70, 128), (37, 2688 if m <= 9 else 1408)]):  # a step, and some turns of each warp
        x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
        bias = rng.standard_normal(n).astype(np.float32)
        q = hc.quantize(w, w_text)
        got = emulated.linear(x, q, bias, hc.format("int8"), order, multiprocessors=multiprocessors)
        assert got.tobytes() == hc.linear(x, q, bias, activations="int8").tobytes()
        assert emulated.launched[-1].startswith("hc_gemm_few_")


@pytest.mark.parametrize(("x_text", "w_text"), [("int8", "int8"), ("int8", "vsq4-g16-s4"), ("int4-g32", "int4-g64")])
def test_warpgroups_give_the_bits_of_the_cpu(x_text: str, w_text: str) -> None:
    rng = np.random.default_rng(0)
    for order, (m, n, k) in enumerate([(128, 9, 96), (131, 140, 700)]):
        x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
        bias = rng.standard_normal(n).astype(np.float32)
        q = hc.quantize(w, w_text)
        got = emulated.linear(x, q, bias, hc.format(x_text), order, architecture=90)
        assert got.tobytes() == hc.linear(x, q, bias, activations=x_text).tobytes()
        assert emulated.launched[-1].startswith("hc_gemm_90a")


@pytest.mark.parametrize(
    "w_text", ["int8", "int4", "vsq4-g16-s4", "int8-g32", "int4-g32-f16", "int4-g64", "int8-g128", "int4-g160"]
)
@pytest.mark.parametrize(
    ("columns", "multiprocessors", "m", "n", "k"),
    [
        *[(64, 99, 66, 9, 1600), (64, 99, 131, 150, 640), (128, 2, 131, 110, 1280), (256, 1, 259, 200, 640)],
        (128, 1, 70, 110, 320),
    ],
)
@pytest.mark.sweep(every=3)
def test_tiles_of_each_width_give_the_bits_of_the_cpu(
    w_text: str, columns: int, multiprocessors: int, m: int, n: int, k: int
) -> None:
    group = int(w_text.split("-g")[1].split("-")[0]) if "-g" in w_text and w_text != "vsq4-g16-s4" else 0
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
    bias = rng.standard_normal(n).astype(np.float32)
    q = hc.quantize(w, w_text)
    got = emulated.linear(x, q, bias, hc.format("int8"), m, architecture=90, multiprocessors=multiprocessors)
    assert got.tobytes() == hc.linear(x, q, bias, activations="int8").tobytes()
    has_codes = w_text.startswith(("int4", "vsq4")) and (group == 0 or k % group == 0)
    is_expanded = has_codes and (group > 0 or m > 256)
    assert ("hc_expand_nibbles" in emulated.launched) == is_expanded
    kind = "grouped" if group else "nibbles_folded" if has_codes and not is_expanded else "folded"
    has_whole_steps = group in (32, 64, 128) and -(-k // group) * group % 128 == 0
    width = "" if columns == 128 or (group and columns == 256) else f"_{columns}"
    if has_whole_steps:
        kind, width = f"g{group}", "" if group == 64 else width
    assert emulated.launched[-1] == f"hc_gemm_90a_{kind}{width}"


@pytest.mark.parametrize("w_text", ["int8+2:4", "vsq4-g16-s4+2:4"])
@pytest.mark.parametrize(
    ("tile", "m", "n", "k", "multiprocessors"),
    [
        ("64x64", 33, 140, 700, 3),
        ("64x64", 60, 9, 250, 1),
        *[("64x128", 128, 9, 64, 1), ("64x128", 131, 140, 400, 6), ("128x128", 131, 140, 700, 4)],
        *[("128x128", 257, 200, 64, 6), ("256x128", 131, 300, 400, 4), ("256x128", 128, 200, 250, 1)],
        *[("256x192", 131, 300, 700, 2), ("256x192", 380, 257, 64, 4)],
    ],
)
@pytest.mark.sweep(every=4)
def test_patterns_on_warpgroups_give_the_bits_of_the_cpu(
    w_text: str, tile: str, m: int, n: int, k: int, multiprocessors: int
) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
    w[: n // 2, : k // 2] = 0  # blocks without nonzeros
    bias = rng.standard_normal(n).astype(np.float32)
    q = hc.quantize(w, w_text)
    wanted = hc.linear(x, q, bias, activations="int8").tobytes()
    settings = {"architecture": 90, "multiprocessors": multiprocessors}
    for order, prepacked in enumerate((None, emulated.prepack(q))):
        assert emulated.linear(x, q, bias, hc.format("int8"), order, prepacked, **settings).tobytes() == wanted
        assert emulated.launched[-1] == f"hc_gemm_90a_24_{tile}_folded"


@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize(
    ("x_text", "w_text"),
    [
        *[("int8", "vsq4-g16-s4"), ("vsq4-g16-s4", "vsq4-g16-s4-tensor"), ("int8", "int4"), ("int4-g32", "int4")],
        *[("int8", "int4-g32-f16"), ("int8", "int4-g64"), ("int4-g32", "vsq4-g64"), ("int8", "q4_0")],
    ],
)
@pytest.mark.sweep(every=3)
def test_codes_of_4_bits_stay_packed_for_any_number_of_rows(x_text: str, w_text: str, architecture: int) -> None:
    rng = np.random.default_rng(0)
    for order, (m, n, k) in enumerate([(3, 70, 64), (66, 9, 192), (130, 140, 320)]):
        x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
        bias = rng.standard_normal(n).astype(np.float32)
        q, activations = hc.quantize(w, w_text), hc.format(x_text)
        wanted = hc.linear(x, q, bias, activations=activations).tobytes()
        for prepacked in (None, emulated.prepack(q, order)):
            got = emulated.linear(x, q, bias, activations, order, prepacked, architecture=architecture)
            assert got.tobytes() == wanted
            name = "hc_gemm_90a" if architecture == 90 and m > 64 else "hc_gemm_nibbles"
            assert emulated.launched[-1].startswith(("hc_gemm_few_s4", name))


@pytest.mark.parametrize(
    "text",
    [
        *["int8", "int6", "int4-g16-asym", "int4-g48", "mxfp4", "q4_1", "q4_k", "vsq4-g16", "int16"],
        *["int8+2:4", "vsq4-g16-s4+2:4", "int4-g32+1:4", "int4-g32-f16"],
    ],
)
@pytest.mark.sweep(every=3)
def test_prepacked_weights_give_the_same_bits(text: str) -> None:
    rng = np.random.default_rng(0)
    for order, (m, n, k) in enumerate([(3, 40, 256), (130, 9, 256)]):
        x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
        q = hc.quantize(w, text)
        made = emulated.prepack(q, order)
        for activations in ("int8", "int4-g16", "int16"):
            wanted, decoded = hc.linear(x, q, activations=activations).tobytes(), list[int]()
            for prepacked in (None, made):
                got = emulated.linear(x, q, None, hc.format(activations), order, prepacked, architecture=90)
                assert got.tobytes() == wanted
                decoded.append(sum(name.startswith("hc_integers") for name in emulated.launched))
            if activations == "int8":
                assert decoded[0] - decoded[1] == (made.size > 0)


PATTERNS = [
    *[("int8", "int8+2:4"), ("int8", "vsq4-g16-s4+2:4"), ("int4-g32", "int4-g64+2:4"), ("int8", "int4-g12+2:4")],
    *[("int8", "vsq4-g16-s4+1:4"), ("int8", "int8+3:7"), ("int4-g32", "int4-g32+4:8"), ("int16", "int8+2:4")],
    *[
        ("vsq4-g16-s4", "vsq4-g16+2:4"),
        ("int8+2:4", "int4"),
        ("int8+2:4", "vsq4-g16-s4+2:4"),
        ("int8", "int4-g16-asym+1:2"),
    ],
]


@pytest.mark.parametrize(("x_text", "w_text"), PATTERNS)
@pytest.mark.sweep(every=3)
def test_patterns_give_the_bits_of_the_cpu(x_text: str, w_text: str) -> None:
    rng = np.random.default_rng(0)
    for order, (m, n, k) in enumerate([(1, 3, 64), (17, 140, 102), (70, 9, 256)]):
        x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
        bias = rng.standard_normal(n).astype(np.float32)
        q, packed = hc.quantize(w, w_text), hc.quantize(x, x_text)
        assert emulated.linear(packed, q, bias, order=order).tobytes() == hc.linear(packed, q, bias).tobytes()
        is_sparse = w_text.endswith("2:4") and x_text != "int16"
        assert emulated.launched[-1].startswith(("hc_gemm_24", "hc_gemm_few_24") if is_sparse else "hc_gemm")
        if "+" not in x_text:
            wanted = hc.linear(x, q, bias, activations=x_text)
            assert emulated.linear(x, q, bias, hc.format(x_text), order).tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    "text",
    [
        *["int8", "int4", "int4-g32-f16", "int3-g5", "int4-g16-asym", "int4-asym", "vsq4-g16-s4", "vsq4-g16", "mxfp4"],
        *[
            "mxfp8_e4m3",
            "nvfp4",
            "fp8_e4m3fn-row",
            "bf16",
            "fp8_e5m2-tensor",
            "nf4-g64",
            "nf4-g64-dq",
            "log4-2",
            "q8_0",
        ],
        *["q4_1", "q4_k"],
    ],
)
@pytest.mark.sweep(every=3)
def test_floats_times_packed_weights_give_the_bits_of_the_cpu(text: str) -> None:
    rng = np.random.default_rng(0)
    for order, (m, n, k) in enumerate([(1, 3, 64), (5, 40, 100), (9, 65, 70)]):
        x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
        bias = rng.standard_normal(n).astype(np.float32)
        q = hc.quantize(w, text)
        assert emulated.linear(x, q, bias, order=order).tobytes() == hc.linear(x, q, bias).tobytes()


def bits_of(y: np.ndarray) -> bytes:
    """Return the bytes of y, with one NaN for all: a device computes a NaN of other bits than the CPU."""
    return np.where(np.isnan(y), np.float32(np.nan), y).tobytes()


@pytest.mark.parametrize("tile", [16, 32, 64, 128])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_all_tiles_of_float_matmuls_give_the_bits_of_the_cpu(tile: int, dtype: type) -> None:
    rng = np.random.default_rng(0)
    sizes = {16: (13, 60), 32: (30, 60), 64: (60, 60), 128: (125, 250)}
    for order, k in enumerate((64, 36, 70)):
        m, n = sizes[tile]
        x, w = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((n, k)).astype(np.float32)
        q = hc.quantize(w, "int8")
        got = emulated.linear(x, q, order=order, multiprocessors=1)
        assert emulated.launched[-1] == f"hc_sgemm_{tile}"
        assert got.tobytes() == hc.linear(x.astype(np.float32), q).tobytes()


@pytest.mark.parametrize(("tile", "m", "n"), [(32, 30, 60), (128, 125, 250)])
@pytest.mark.parametrize("text", ["int8+2:4", "int4-g32-f16+1:3"])
def test_all_tiles_of_patterns_times_floats_give_the_bits_of_the_cpu(text: str, tile: int, m: int, n: int) -> None:
    rng = np.random.default_rng(0)
    for order, k in enumerate((96, 70)):
        x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
        x[1, 5], x[0, 7] = np.inf, np.nan  # pruned values are never multiplied
        q = hc.quantize(w, text)
        got, wanted = emulated.linear(x, q, order=order, multiprocessors=1), hc.linear(x, q)
        assert emulated.launched[-1] == f"hc_sgemm_kept_{tile}"
        assert bits_of(got) == bits_of(wanted)


WORDS = [
    *["int8", "int4", "int4-g16", "int8-g32-f16", "vsq4-g16-s4", "vsq8-g64-s10", "vsq4-g32", "mxfp4", "nvfp4"],
    *["nf4-g64", "nf4-g64-dq", "q8_0", "q4_0", "vsq8-g16-s8", "int4-g16-f16", "int4-g64"],
]


@pytest.mark.parametrize("text", WORDS)
def test_vectors_by_words_of_codes_give_the_bits_of_the_cpu(text: str) -> None:
    rng = np.random.default_rng(0)
    for order, (m, n, k) in enumerate([(1, 9, 64), (1, 3, 2080), (1, 5, 1104), (3, 17, 576), (8, 5, 200)]):
        memory = np.zeros((m * k + 4,), np.float32)
        first = -memory.ctypes.data % 16 // 4
        x, w = memory[first : first + m * k].reshape(m, k), rng.standard_normal((n, k)).astype(np.float32)
        x[:] = rng.standard_normal((m, k)).astype(np.float32)
        q = hc.quantize(w, text)
        assert emulated.linear(x, q, order=order).tobytes() == hc.linear(x, q).tobytes()
        if k % 64 == 0:  # else pieces are cut
            assert emulated.launched[-1].endswith("_v1" if m == 1 else "_v8")


@pytest.mark.parametrize("text", ["int8", "int4", "int4-g16", "int8-g32", "vsq4-g16-s4", "int4-g64-f16"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 9, 128), (3, 17, 640), (8, 5, 2048)])
@pytest.mark.sweep(every=4)
def test_vectors_by_words_of_what_a_pattern_kept_give_the_bits_of_the_cpu(text: str, m: int, n: int, k: int) -> None:
    rng, memory = np.random.default_rng(0), np.zeros(m * k + 4, np.float32)
    first = -memory.ctypes.data % 16 // 4
    x, w = memory[first : first + m * k].reshape(m, k), rng.standard_normal((n, k)).astype(np.float32)
    x[:] = rng.standard_normal((m, k)).astype(np.float32)
    x[0, 7], x[m - 1, 13] = np.nan, np.inf  # pruned values are never multiplied
    q = hc.quantize(w, f"{text}+2:4")
    assert emulated.linear(x, q, order=m).tobytes() == hc.linear(x, q).tobytes()
    assert re.fullmatch(r"hc_gemv_kept_\w+_b[48]", emulated.launched[-1])


@pytest.mark.parametrize("text", ["int4-g32-f16", "vsq4-g16-s4", "nf4-g64", "fp8_e4m3fn-row"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.sweep(every=3)
def test_sums_in_the_order_of_the_device_are_within_their_bound(text: str, dtype: type) -> None:
    rng = np.random.default_rng(0)
    for order, (m, n, k) in enumerate([(9, 5, 40), (70, 66, 333)]):
        x, w = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((n, k)).astype(np.float32)
        bias = rng.standard_normal(n).astype(np.float32)
        q = hc.quantize(w, text)
        got = emulated.linear(x, q, bias, order=order, device_order=True).astype(np.float64)
        assert emulated.launched[-1] == ("hc_gemm_bf16_32" if m <= 64 else "hc_gemm_bf16_128")
        wide, decoded = x.astype(np.float64), q.dequantize().astype(np.float64)
        exact, sizes = wide @ decoded.T + bias, np.abs(wide) @ np.abs(decoded).T + np.abs(bias)
        assert (np.abs(got - exact) <= (3 * 2.0**-16 + (3 * k + 2) * 2.0**-22) * sizes).all()


@pytest.mark.parametrize("text", ["int8", "int6", "int8+2:4"])
@pytest.mark.parametrize("activations", ["int8", "int6"])
@pytest.mark.sweep(every=3)
def test_bytes_with_a_scale_per_row_are_multiplied_where_they_are(text: str, activations: str) -> None:
    rng = np.random.default_rng(0)
    fmt = as_format(activations, "activations")
    for order, (m, n, k) in enumerate([(3, 9, 128), (70, 66, 64), (130, 5, 192), (130, 5, 200)]):
        x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
        q, packed = hc.quantize(w, text), hc.quantize(x, activations)
        wanted = hc.linear(x, q, activations=activations).tobytes()
        architecture = 90 if order == 2 else 80
        of_w, of_x = text != "int8" or k % 64 != 0, activations != "int8" or k % (128 if "2:4" in text else 64) != 0
        for given, decoded in (({"x": x, "activations": fmt}, of_w), ({"x": packed}, of_w + of_x)):
            got = emulated.linear(w=q, order=order, architecture=architecture, **given)
            assert got.tobytes() == wanted
            assert sum(name.startswith("hc_integers") for name in emulated.launched) == decoded


@pytest.mark.parametrize("activations", ["int8", "vsq4-g16-s4", "mxfp4", "nvfp4", "int4-g32", "int16", "int4"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.sweep(every=9)
def test_x_becomes_integers_where_it_is_quantized(activations: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    fmt = hc.format(activations)
    weights = activations if fmt.group else "vsq4-g16-s4"
    for order, (m, n, k) in enumerate([(5, 9, 256), (66, 5, 320), (3, 4, 8448), (7, 5, 100)]):
        x = rng.standard_normal((m, k)).astype(dtype)
        q = hc.quantize(rng.standard_normal((n, k)).astype(np.float32), weights)
        wanted = hc.linear(x.astype(np.float64 if dtype == "float64" else np.float32), q, activations=activations)
        got = emulated.linear(x, q, None, fmt, order)
        assert got.tobytes() == wanted.astype(np.float32).tobytes()
        steps = [name for name in emulated.launched if name.startswith("hc_integers")]
        packed = hc.quantize(x, activations)
        assert emulated.linear(packed, q, None, None, order).tobytes() == hc.linear(packed, q).tobytes()
        assert len(steps) == max(sum(name.startswith("hc_integers") for name in emulated.launched) - 1, 0)


LOST = [
    *PAIRS,
    *[
        ("int8", "int8+2:4"),
        ("int4-g32", "int4-g32+2:4"),
        ("int8", "vsq4-g16-s4+1:4"),
        ("int8", "int4"),
        ("int4", "int4"),
    ],
]


@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize(("x_text", "w_text"), LOST)
@pytest.mark.sweep(every=6)
def test_nan_makes_the_rows_nan_that_depend_on_it(x_text: str, w_text: str, architecture: int) -> None:
    rng = np.random.default_rng(0)
    for order, (m, n, k, value) in enumerate([(3, 40, 256, np.nan), (40, 9, 100, np.inf), (130, 9, 256, -np.nan)]):
        k = 256 if "_k" in w_text else -(-k // 32) * 32 if w_text[:2] in {"mx", "nv", "q8", "q4", "q5"} else k
        x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((n, k)).astype(np.float32)
        q, activations = hc.quantize(w, w_text), hc.format(x_text)
        x[1] = 0
        wanted = hc.linear(x, q, activations=activations)
        x[1, k - 3] = value
        for prepacked in (None, emulated.prepack(q, order)):
            y = emulated.linear(x, q, None, activations, order, prepacked, architecture=architecture)
            assert np.isnan(y[1]).all()
            if x_text == "nvfp4":  # a scale of the whole array
                assert np.isnan(y).all()
            else:
                assert np.delete(y, 1, 0).tobytes() == np.delete(wanted, 1, 0).tobytes()
