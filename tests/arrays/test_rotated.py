"""Rotated formats: the definition in NumPy, products with the other operand rotated, files, and what refuses them."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, isas, reals, run, same_bits

import heterocompute as hc
from heterocompute import reference
from heterocompute.ptq.hadamard import hadamard
from heterocompute.reference import rotation

BASES = ("int8", "int4-g32", "vsq4-g16-s4", "mxfp4", "nvfp4", "nf4-g64", "cb3-g16", "log5-1", "fp8_e4m3fn-g32", "q4_0",
         "int4-g32-asym", "e3m4-g32-e8m0")  # fmt: skip
SHAPES = [
    ((7, 64), (1,)),
    ((3, 5, 128), (2,)),
    ((256, 4), (0,)),
    ((6, 32, 2, 3), (2, 3, 1)),
    ((0, 32), (1,)),
    ((96,), (0,)),
]


def outliers(shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    w = reals(shape, seed)
    w[..., :1] *= 30
    return w


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("seed", range(3))
def test_codes_and_values_are_those_of_the_definition(base: str, seed: int) -> None:
    for number, (shape, axis) in enumerate(SHAPES):
        suffix = ("+had", "+had16", f"+had32-s{seed}")[(seed + number) % 3]
        fmt = hc.format(f"{base}{suffix}")
        w = outliers(shape, seed + number)
        q = hc.quantize(w, fmt, axis)
        width = shape[axis[-1]]
        block = min(width & -width, 256) if suffix == "+had" else int(suffix[4:6])
        signed = seed if "-s" in suffix else None
        turned = rotation.rotate(w, axis[-1], block, signed)
        assert (q.block, q.axis, q.shape, str(q.format)) == (block, axis, shape, f"{base}{suffix}")
        for name, part in reference.quantize(turned, fmt.base, axis).items():
            assert same_bits(q.components[name], part)
        values = reference.dequantize(dict(q.components), fmt.base, shape, axis)
        back = rotation.rotate(values, axis[-1], block, signed, inverse=True)
        assert same_bits(q.dequantize(), np.ascontiguousarray(back))
        assert same_bits(hc.fake_quantize(w, fmt, axis), q.dequantize())
        assert q.nbytes == hc.quantize(w, base, axis).nbytes


def test_signs_are_those_of_hadamard() -> None:
    w = reals((4, 64), 1)
    assert np.abs(rotation.rotate(w, 1, 16, 5) - hadamard(w, block=16, seed=5)).max() < 1e-5


@pytest.mark.parametrize("isa", isas("gemm_", "gemv_"))
@pytest.mark.parametrize("activations", [None, "int8"])
def test_products_are_those_of_the_rotated_operand(isa: str, activations: str | None) -> None:
    w, x = outliers((12, 96), 2), reals((2, 3, 96), 3)
    for text in ("int4-g32+had", "mxfp4+had16-s7", "int8+had32"):
        q = hc.quantize(w, text)
        turned = rotation.rotate(x, 2, q.block, q.format.seed)
        for threads in (1, 2):
            with hc.use(isa=isa, threads=threads):
                found = hc.linear(x, q, np.ones(12, np.float32), activations)
                assert same_bits(found, hc.linear(turned, q.source, np.ones(12, np.float32), activations))
                assert same_bits(hc.matmul(x, q.T, activations), hc.matmul(turned, q.source.T, activations))
                assert same_bits(hc.linear(x, hc.prepack(q), activations=activations), hc.matmul(x, q.T, activations))
    values = q.dequantize()
    assert np.abs(x @ q.T - x @ values.T).max() < 1e-4 * np.abs(x @ values.T).max()
    assert np.abs(q @ x[0].T - values @ x[0].T).max() < 1e-4 * np.abs(values @ x[0].T).max()
    assert same_bits(q @ x[0, 0], hc.linear(x[0, 0], q))


def test_two_rotated_operands_need_the_same_rotation() -> None:
    a, b = hc.quantize(reals((4, 64), 1), "int8+had32-s1"), hc.quantize(reals((6, 64), 2), "int8+had32-s1")
    assert same_bits(hc.matmul(a, b.T), hc.matmul(a.source, b.source.T))
    assert np.abs(hc.matmul(a, b.T) - a.dequantize() @ b.dequantize().T).max() < 1e-3
    other = hc.quantize(reals((6, 64), 2), "int8+had32-s2")
    with bad_argument(ValueError, "a", "value", "expected the same block and seed"):
        hc.matmul(a, other.T)
    with bad_argument(ValueError, "b", "value", "expected a dense b"):
        hc.matmul(a, b.source.T)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_convolutions_rotate_channels(layout: str) -> None:
    w, x = outliers((8, 32, 3, 3), 1), reals((2, 32, 6, 5), 2)
    q = hc.quantize(w, "int8+had16-s1", axis=(2, 3, 1))
    images = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if layout == "NHWC" else x
    turned = rotation.rotate(images, 3 if layout == "NHWC" else 1, 16, 1)
    found = hc.conv2d(images, q, padding=1, layout=layout, activations="int8")
    assert same_bits(found, hc.conv2d(turned, q.source, padding=1, layout=layout, activations="int8"))
    exact = hc.conv2d(x, w, padding=1)
    nchw = hc.conv2d(images, q, padding=1, layout=layout)
    lost = (nchw.transpose(0, 3, 1, 2) if layout == "NHWC" else nchw) - exact
    assert np.square(lost).sum() < 1e-3 * np.square(exact).sum()
    with bad_argument(ValueError, "groups", "value"):
        hc.conv2d(images, q, groups=2, layout=layout)
    with pytest.raises(hc.ArgumentError, match=r"w is quantized along axis \(3,\), expected \(2, 3, 1\)"):
        hc.conv2d(images, hc.quantize(reals((8, 32, 3, 16), 1), "int8+had"), layout=layout)


def test_an_outlier_costs_less() -> None:
    w = outliers((64, 256), 4)
    for base in ("int4-g32", "mxfp4", "int8"):
        plain, turned = (hc.error(w, hc.quantize(w, text)).sqnr_db for text in (base, f"{base}+had"))
        assert turned > plain + (2 if base == "int8" else 0)


def test_files_copies_and_slices(tmp_path: Path) -> None:
    w = outliers((6, 64), 1)
    own = hc.define("rotated-levels", hc.Levels([-1, -0.3, 0, 0.2, 1]), group=16)
    arrays = {
        "a": hc.quantize(w, "int4-g32+had"),
        "b": hc.quantize(w, "vsq4-g16-s4+had16-s9"),
        "c": hc.quantize(w, hc.Rotated(own, 64, 3)),
        "d": hc.quantize(w, "e3m4-g32-e8m0+had"),
        "plain": w,
    }
    hc.save(tmp_path / "m.safetensors", arrays)
    found = hc.load(tmp_path / "m.safetensors")
    for name, q in arrays.items():
        assert same_bits(found[name], w) if name == "plain" else found[name] == q
    q = arrays["b"]
    q.save(tmp_path / "one.safetensors")
    for other in (
        hc.load(tmp_path / "one.safetensors"),
        copy.deepcopy(q),
        copy.copy(q),
        pickle.loads(pickle.dumps(q)),
        q.T.T,
    ):
        assert other == q and type(other) is hc.RotatedArray and same_bits(other.dequantize(), q.dequantize())
    assert q != arrays["a"] and q != q.source and q != hc.quantize(w, "vsq4-g16-s4+had16-s8")
    assert same_bits(q[2:5].dequantize(), q.dequantize()[2:5]) and same_bits(q[-1].dequantize(), q.dequantize()[-1])
    assert same_bits(q.T.dequantize(), np.ascontiguousarray(q.dequantize().T)) and len(q) == 6
    assert q.dequantize(np.float64).dtype == np.float64 and hc.error(w, q).bits_per_value == q.bits_per_value


def test_a_file_with_an_axis_that_has_no_block_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    hc.quantize(np.ones((2, 32), np.float32), "int8+had32").save(path)
    path.write_bytes(path.read_bytes().replace(b"int8+had32", b"int8+had64"))
    with pytest.raises(ValueError, match="the rotated axis has 32 values, expected a multiple of 64"):
        hc.load(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [("int4+had7", "block is 7, expected 16, 32, 64, 128, 256 or None"), ("int4+had512", "block is 512"),
     ("int4+had-s99999999999", "seed is 99999999999"), ("int8+2:4+had", "is not a format"),
     ("int8+had+2:4", "is not a format"), ("int8+had+had", "is not a format"), ("int8+had016", "is not a format"),
     ("int4-g32+", "is not a format")],
)  # fmt: skip
def test_texts_without_a_rotation_are_refused(text: str, words: str) -> None:
    with pytest.raises(hc.ArgumentError, match=words):
        hc.format(text)


def test_texts_come_back() -> None:
    for text in hc.Rotated.examples:
        assert str(hc.format(text)) == text and hc.format(text) == hc.format(str(hc.format(text)))
    with bad_argument(TypeError, "base", "type"):
        hc.Rotated("int8")  # type: ignore[arg-type]
    with bad_argument(TypeError, "base", "type"):
        hc.Rotated(hc.format("int8+2:4"))
    with bad_argument(ValueError, None, "value", "function of values"):
        hc.Rotated(hc.define("rotated-function", round=lambda x: x, bits=8))


def test_what_does_not_rotate_refuses_by_name() -> None:
    w = reals((8, 64), 1)
    q, h, net = hc.quantize(w, "int8+had"), hc.ptq.Hessian(64), hc.zoo.digits()
    h.add(reals((100, 64), 2))
    for call in (
        lambda: hc.linear(w, w, activations="int8+had"),
        lambda: hc.ptq.bound(w, "int8+had", h),
        lambda: hc.ptq.rescale([w], h, "int8+had"),
        lambda: hc.KVCache("int8+had16-s1"),
        lambda: hc.ptq.gptq(w, h, "int4+had", mask=np.ones(w.shape, bool)),
        lambda: hc.ptq.gptq(w, h, "int4+had", accumulator=24, activations="int8", tile=64),
        lambda: hc.quantize(w, "int8+had", importance=np.ones_like(w)),
        lambda: hc.quantize(hc.prune(w, "2:4"), "int8+had"),
        lambda: hc.QuantizedArray(q.components, q.format, q.shape, q.axis),
        lambda: hc.Sparse(hc.format("int8+had"), 2, 4),
        lambda: hc.hardware.roofline("resnet50", "h100", format="int8+had"),
        lambda: hc.hardware.compare("resnet50", ["h100"], format="int8+had"),
        lambda: hc.study({"w": w}, ["int4"], activations="int8+had"),
        lambda: hc.training.Recipe("int8+had"),
        lambda: net.retrain(
            net.weights, {**net.weights, "fc2.weight": hc.quantize(net.weights["fc2.weight"], "int3+had")}
        ),
        lambda: hc.study(
            net, ["int3+had"], include="fc2*", retrain=lambda was, now, **_: {**now, "fc2.weight": was["fc2.weight"]}
        ),
    ):
        with pytest.raises(hc.ArgumentError, match=r"\+had"):
            call()
    for call in (lambda: np.einsum("ij->i", q), lambda: np.concatenate([q, q]), lambda: q + 1,
                 lambda: hc.explain(hc.linear, w, q), lambda: hc.conv2d(w, q.source)):  # fmt: skip
        with pytest.raises((TypeError, ValueError)):
            call()
    with bad_argument(ValueError, "w", "value", "the rotated axis has 24 values, expected a multiple of 16"):
        hc.quantize(reals((2, 24), 1), "int8+had")
    with bad_argument(ValueError, "w", "value", r"nan at index \(1, 3\)"):
        hc.quantize(np.where(np.arange(64).reshape(2, 32) == 35, np.nan, np.float32(1)).astype(np.float32), "int8+had")
    with pytest.raises(hc.ArgumentError, match="63 features"):
        hc.linear(w[:, 1:], q)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_the_dtype_of_the_source_stays(dtype: Any) -> None:
    w = reals((4, 64), 1).astype(dtype)
    q = hc.quantize(w, "int8+had")
    assert q.source_dtype == hc.quantize(w, "int8").source_dtype == np.dtype(dtype).name


@pytest.mark.filterwarnings("error")
def test_values_beyond_float32() -> None:
    for w in (np.full((2, 64), 3e38, np.float32), np.full((2, 64), 1e300)):
        with bad_argument(ValueError, "w", "value", "rotates beyond float32's largest"):
            hc.quantize(w, "int8+had")
    q = hc.quantize(reals((4, 64), 1), "int8+had")
    assert not np.isfinite(hc.linear(np.full((1, 64), 1e300), q)).all()


@pytest.mark.parametrize("method", ["gptq", "qronos"])
@pytest.mark.parametrize("fmt", ["int3-g16+had", "mxfp4+had16-s3"])
def test_calibrated_methods_round_the_rotated_weight(method: str, fmt: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((400, 64)) @ rng.standard_normal((64, 64))
    x[:, 5] *= 20
    w, turned, h = outliers((16, 64), 1), hc.ptq.Hessian(64), hc.ptq.Hessian(64)
    parsed = hc.format(fmt)
    block, seed = parsed.block_of(64, "w"), parsed.seed
    twin = x + 0.01 * rng.standard_normal(x.shape)
    h.add(x, twin)
    turned.add(*(hadamard(one, block=block, seed=seed) for one in (x, twin)))
    found = getattr(hc.ptq, method)(w, h, fmt)
    assert type(found) is hc.RotatedArray and found.format == parsed
    alone = getattr(hc.ptq, method)(rotation.rotate(w, 1, block, seed), turned, parsed.base)
    mine, same, plain = (
        hc.ptq.error(w, one, h).output_db for one in (found, hc.RotatedArray(alone, parsed), hc.quantize(w, fmt))
    )
    assert mine > plain + 3 and abs(mine - same) < 0.5  # sums of rotated inputs differ in their last bits
    assert mine == hc.ptq.error(w, found.dequantize(), h).output_db


def test_studies_searches_and_networks_take_rotated_formats() -> None:
    w = outliers((48, 64), 1)
    rows = hc.study({"w": w, "v": w[:, :32]}, ["int4-g32", "int4-g32+had"], timing=True, activations="int8").table
    by_text = {row["format"]: row for row in rows if row["activations"] is None}
    assert by_text["int4-g32+had"]["bits"] == by_text["int4-g32"]["bits"]
    assert by_text["int4-g32+had"]["sqnr_db"] > by_text["int4-g32"]["sqnr_db"] + 2
    plan = hc.ptq.search({"w": w}, ["int4-g32", "int4-g32+had"], {"bits": 5.0})
    assert plan.recipe == {"w": "int4-g32+had"} and type(plan.weights["w"]) is hc.RotatedArray
    net = hc.zoo.digits()
    calls = hc.ptq.quantize(net.weights, lambda some: net.forward(some, net.train_x[:64]), {"fc1*": "int3-g16+had16"})
    assert calls.table[0]["after"] > calls.table[0]["before"] and net.accuracy(calls.weights) > 0.95
    weights, gate = hc.ptq.accept(net.weights, [{"fc*": "int4+had16"}, {"fc*": "int8"}], net.accuracy, 0.9)
    assert gate.passed and type(weights["fc1.weight"]) is hc.RotatedArray


def test_the_command_quantizes_and_dequantizes(tmp_path: Path, capsys: Any) -> None:
    w = outliers((8, 64), 1)
    hc.save(tmp_path / "a.safetensors", {"fc.weight": w})
    code, _, error = run(capsys, "quantize", tmp_path / "a.safetensors", tmp_path / "b.safetensors", "--format",
                         "int4-g32+had32-s3")  # fmt: skip
    assert code == 0, error
    q = hc.load(tmp_path / "b.safetensors")["fc.weight"]
    assert q == hc.quantize(w, "int4-g32+had32-s3")
    assert run(capsys, "dequantize", tmp_path / "b.safetensors", tmp_path / "c.safetensors")[0] == 0
    assert same_bits(hc.load(tmp_path / "c.safetensors")["fc.weight"], q.dequantize())
    for layout, suffix in (("gptq", "safetensors"), ("gguf", "gguf"), ("onnx", "onnx"), ("mlx", "safetensors")):
        with pytest.raises(ValueError, match="has no place for it"):
            hc.save(tmp_path / f"d.{suffix}", {"fc.weight": q}, layout=layout)
