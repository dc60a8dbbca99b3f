"""Weights in the layouts of other programs, compared with the values that these programs compute."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from common import bad_argument, reals, same_bits

import heterocompute as hc
from heterocompute.base.container import numpy_dtype

W = np.random.default_rng(2).standard_normal((32, 128)).astype(np.float32)
BIAS = np.ones(32, np.float32)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("fmt", ["int4-g32", "int8", "int8-g32", "int4-g16-asym", "int8-asym"])
def test_runtimes_of_onnx_have_the_same_values(tmp_path, fmt, axis):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    q = hc.quantize(W, fmt, axis=axis)
    hc.save(tmp_path / "w.onnx", {"fc.weight": q, "fc.bias": BIAS}, layout="onnx")
    session = runtime.InferenceSession(str(tmp_path / "w.onnx"), providers=["CPUExecutionProvider"])
    (values,) = session.run(["fc.weight"], {})
    assert same_bits(values, q.dequantize())


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("fmt", ["int4-g32", "int8-g16", "int4-g64-asym", "int8-g32-asym"])
def test_the_last_block_of_onnx_may_be_short(tmp_path, fmt, axis):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    q = hc.quantize(reals((41, 41), 1), fmt, axis=axis)
    hc.save(tmp_path / "w.onnx", {"fc.weight": q}, layout="onnx")
    session = runtime.InferenceSession(str(tmp_path / "w.onnx"), providers=["CPUExecutionProvider"])
    assert same_bits(session.run(None, {})[0], q.dequantize())


FILTERS = (
    ((8, 32, 3, 3), (2, 3, 1)),
    ((6, 30, 3, 3), (2, 3, 1)),
    ((6, 21, 5), (2, 1)),
    ((3, 5, 40), (2,)),
    ((9, 67), (1,)),
)


@pytest.mark.parametrize("shape, axis", FILTERS)
@pytest.mark.parametrize("fmt", ["int2", "int2-g16-asym", "int4-g16", "int4-asym", "int8", "int8-g16-asym"])
def test_filters_and_two_bits_of_onnx_have_the_same_values_and_come_back(tmp_path, fmt, shape, axis):
    onnx = pytest.importorskip("onnx")
    if not hasattr(onnx.TensorProto, "INT2"):
        pytest.skip("onnx has no integers of 2 bits")
    q = hc.quantize(reals(shape, 1), fmt, axis=axis)
    hc.save(tmp_path / "w.onnx", {"fc.weight": q, "fc.bias": BIAS}, layout="onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "w.onnx"))
    with warnings.catch_warnings():  # 2- and 4-bit codes are read without a warning
        warnings.simplefilter("error")
        found = hc.load(tmp_path / "w.onnx", layout="onnx")
    assert found["fc.weight"] == q and same_bits(found["fc.bias"], BIAS)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(tmp_path / "w.onnx"), providers=["CPUExecutionProvider"])
    assert same_bits(session.run(["fc.weight"], {})[0], q.dequantize())


@pytest.mark.parametrize("axis", [(1,), (3,), (0,), (2, 3, 0), (0, 1, 2, 3), (3, 1)])
@pytest.mark.parametrize("fmt", ["int4", "int4-asym", "int8-g16", "int4-g8-asym"])
def test_onnx_has_blocks_along_any_axis(tmp_path, fmt, axis):
    """The axes that are read may differ; the values and the bytes of the next file are the same."""
    pytest.importorskip("onnx")
    q = hc.quantize(reals((6, 20, 3, 9), 1), fmt, axis=axis)
    hc.save(tmp_path / "w.onnx", {"fc.weight": q}, layout="onnx")
    found = hc.load(tmp_path / "w.onnx", layout="onnx")["fc.weight"]
    assert same_bits(found.dequantize(), q.dequantize())
    hc.save(tmp_path / "again.onnx", {"fc.weight": found}, layout="onnx")
    again = hc.load(tmp_path / "again.onnx", layout="onnx")["fc.weight"]
    assert again == found
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(tmp_path / "w.onnx"), providers=["CPUExecutionProvider"])
    assert same_bits(session.run(None, {})[0], q.dequantize())


def test_filters_of_a_convolution_in_onnxruntime(tmp_path):
    """The nodes are moved in front of a Conv; and a model as other programs write it, with one scale per filter."""
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    q = hc.quantize(reals((4, 8, 3, 3), 1), "int8", axis=(2, 3, 1))
    hc.save(tmp_path / "w.onnx", {"fc.weight": q}, layout="onnx")
    model = onnx.load(tmp_path / "w.onnx")
    model.graph.node.append(onnx.helper.make_node("Conv", ["x", "fc.weight"], ["y"]))
    infos = [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [1, 8, 6, 6]), ("y", [1, 4, 4, 4]))]
    model.graph.input.append(infos[0])
    model.graph.output.append(infos[1])
    onnx.save(model, tmp_path / "conv.onnx")
    assert hc.load(tmp_path / "conv.onnx", layout="onnx")["fc.weight"] == q
    x = reals((1, 8, 6, 6), 2)
    session = runtime.InferenceSession(str(tmp_path / "conv.onnx"), providers=["CPUExecutionProvider"])
    wanted = hc.conv2d(x, q.dequantize())
    assert np.allclose(session.run(["y"], {"x": x})[0], wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("fmt", ["int4-g32", "int4-g16-asym-f16", "int8-g32", "int8-g128-asym", "int4-g128"])
def test_products_of_onnx_have_the_same_weights(tmp_path, fmt):
    onnx = pytest.importorskip("onnx")
    q = hc.quantize(W, fmt)
    hc.save(tmp_path / "w.onnx", {"fc.weight": q, "fc.bias": BIAS}, layout="onnx-matmulnbits")
    model = onnx.load(tmp_path / "w.onnx")
    parts = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    bits, group = q.format.bits, q.format.group
    both = np.stack([parts["fc.B"] & 15, parts["fc.B"] >> 4], -1) if bits == 4 else parts["fc.B"]
    points = 1 << (bits - 1)
    if not q.format.symmetric:
        packed = parts["fc.zero_points"]
        few = np.stack([packed & 15, packed >> 4], -1).reshape(32, -1) if bits == 4 else packed
        points = few[:, : 128 // group, None].astype(np.int16)
    values = (both.reshape(32, -1, group).astype(np.int16) - points) * parts["fc.scales"][:, :, None]
    assert same_bits(values.reshape(32, 128).astype(np.float32), q.dequantize())
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(tmp_path / "w.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(["fc.output"], {"fc.input": np.eye(128, dtype=np.float32)})
    assert np.array_equal(found, q.dequantize().T + BIAS)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("bias", [None, "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("asym", ["", "-asym"])
@pytest.mark.parametrize(
    ("fmt", "count"),
    [("int2-g32", 64), ("int2-g16", 40), ("int2-g256", 300), ("int4-g32", 40), ("int4-g32", 20), ("int4-g16", 17),
     ("int4-g64", 200), ("int8-g32", 72), ("int8-g128", 100)],
)  # fmt: skip
@pytest.mark.sweep(every=3)
def test_matmulnbits_has_short_blocks_and_two_bits(tmp_path, fmt, count, asym, bias, rows):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    q, x = hc.quantize(reals((5, count), 1), fmt + asym), reals((rows, count), 2)
    added = {} if bias is None else {"fc.bias": reals((5,), 3).astype(numpy_dtype(bias))}
    hc.save(tmp_path / "w.onnx", {"fc.weight": q, **added}, layout="onnx-matmulnbits")
    session = runtime.InferenceSession(str(tmp_path / "w.onnx"), providers=["CPUExecutionProvider"])
    w = q.dequantize().astype(np.float64)
    wanted = x @ w.T + np.float64(added.get("fc.bias", 0))
    bound = 2 * (count + 2) * 2.0**-24 * (np.abs(x) @ np.abs(w).T + 4)
    assert (np.abs(session.run(None, {"fc.input": x})[0] - wanted) <= bound).all()


def test_what_matmulnbits_has_no_place_for(tmp_path):
    pytest.importorskip("onnx")
    for fmt in ("int4", "nf4-g64", "int4-g24", "int3-g32", "int5-g32", "int8-g8", "int2-g512", "int4-g32+2:4"):
        with bad_argument(ValueError, None, "missing", "int4-g32.*int8-g32"):
            hc.save(tmp_path / "a", {"fc.weight": hc.quantize(W, fmt)}, layout="onnx-matmulnbits")
    with bad_argument(ValueError, None, "value", "none of which is quantized"):
        hc.save(tmp_path / "a", {"fc.bias": BIAS}, layout="onnx-matmulnbits")
    for bias in (np.ones(5, np.float32), np.ones((1, 32), np.float32), np.ones(32, np.int32)):
        with bad_argument(ValueError, None, "value", r"'fc\.bias'.*\(32,\)"):
            hc.save(
                tmp_path / "a", {"fc.weight": hc.quantize(W, "int4-g32"), "fc.bias": bias}, layout="onnx-matmulnbits"
            )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("fmt", ["int4-g32", "int8", "int4-g128-asym"])
def test_compressed_tensors_has_the_same_codes(tmp_path, fmt):
    pytest.importorskip("compressed_tensors")
    torch = pytest.importorskip("torch")
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32

    q = hc.quantize(W, fmt)
    hc.save(tmp_path / "a", {"fc.weight": q}, layout="compressed-tensors")
    found, bits = hc.load(tmp_path / "a"), q.format.bits
    codes = q.codes().astype(np.int16) - (0 if q.format.symmetric else 1 << (bits - 1))
    theirs = pack_to_int32(torch.from_numpy(codes.astype(np.int8)), bits).numpy()
    assert same_bits(found["fc.weight_packed"], theirs)
    back = unpack_from_int32(torch.from_numpy(found["fc.weight_packed"]), bits, torch.Size(W.shape)).numpy()
    group = q.format.group or 128
    scales = np.repeat(found["fc.weight_scale"], group, 1)
    points = np.zeros((32, 128), np.int16)
    if not q.format.symmetric:
        packed = torch.from_numpy(found["fc.weight_zero_point"])
        few = unpack_from_int32(packed, bits, torch.Size((32, 128 // group)), packed_dim=0).numpy()
        points = np.repeat(few, group, 1)
    assert same_bits(((back - points) * scales).astype(np.float32), q.dequantize())


def test_mxfp4_of_compressed_tensors_has_the_same_values(tmp_path):
    pytest.importorskip("compressed_tensors")
    torch = pytest.importorskip("torch")
    from compressed_tensors.compressors.mx_utils import decompress_mx_scale
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8

    q = hc.quantize(W, "mxfp4")
    hc.save(tmp_path / "a", {"fc.weight": q}, layout="compressed-tensors")
    found = hc.load(tmp_path / "a")
    codes = unpack_fp4_from_uint8(torch.from_numpy(found["fc.weight_packed"]), *W.shape, torch.float32)
    scales = decompress_mx_scale(torch.from_numpy(found["fc.weight_scale"])).to(torch.float32)
    assert same_bits((codes.view(32, -1, 32) * scales[..., None]).view(W.shape).numpy(), q.dequantize())


@pytest.mark.parametrize("fmt", ["int4-g32-f16", "int8-f16", "int3-g64-f16", "int2-g16-f16"])
def test_autogptq_has_the_same_values(tmp_path, fmt):
    """A matmul with the unit matrix returns the weight, rounded to float16 like its scales."""
    torch = pytest.importorskip("torch")
    qlinear = pytest.importorskip("auto_gptq.nn_modules.qlinear.qlinear_cuda_old")
    q = hc.quantize(W, fmt)
    hc.save(tmp_path / "a", {"fc.weight": q}, layout="gptq")
    found = hc.load(tmp_path / "a")
    layer = qlinear.QuantLinear(q.format.bits, q.format.group or -1, 128, 32, bias=False)
    layer.load_state_dict({name.removeprefix("fc."): torch.from_numpy(part) for name, part in found.items()})
    theirs = layer(torch.eye(128, dtype=torch.float16)).numpy().T
    assert np.array_equal(theirs, q.dequantize().astype(np.float16))


@pytest.mark.parametrize("fmt", ["int4-g32-asym-f16", "int8-asym-f16", "int3-g64-asym-f16", "int4-g16-f16"])
def test_what_autogptq_packs_is_read(tmp_path, fmt):
    """It stores zero points minus 1; without a zero point 0, both versions represent all of them."""
    torch = pytest.importorskip("torch")
    qlinear = pytest.importorskip("auto_gptq.nn_modules.qlinear.qlinear_cuda_old")
    q = hc.quantize(W, fmt)
    bits, group, points = q.format.bits, q.format.group or 128, q.zero_points_expanded()[:, :: q.format.group or 128]
    points = points + (1 << (bits - 1)) if q.format.symmetric else points
    assert points.min() > 0
    layer = qlinear.QuantLinear(bits, group, 128, 32, bias=False)
    linear = torch.nn.Linear(128, 32, bias=False)
    linear.weight.data = torch.from_numpy(q.dequantize())
    scales = torch.from_numpy(q.components["scales"].astype(np.float32))
    layer.pack(linear, scales, torch.from_numpy(points.astype(np.float32)), None)
    hc.save(tmp_path / "a", {"fc.weight": q}, layout="gptq")
    ours = hc.load(tmp_path / "a")
    theirs = {f"fc.{name}": np.ascontiguousarray(getattr(layer, name).numpy()) for name in ("qweight", "qzeros")}
    theirs["fc.scales"] = layer.scales.numpy().astype(np.float16)
    assert same_bits(theirs["fc.qweight"], ours["fc.qweight"]) and same_bits(theirs["fc.scales"], ours["fc.scales"])
    assert same_bits(theirs["fc.qzeros"], ours["fc.qzeros"]) == q.format.symmetric  # otherwise ours is version 2
    hc.save(tmp_path / "v1", {"fc.weight": q}, layout="gptq-v1")
    assert same_bits(theirs["fc.qzeros"], hc.load(tmp_path / "v1")["fc.qzeros"])
    hc.save(tmp_path / "b", theirs)
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": q.format.symmetric}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    found = hc.load(tmp_path / "b", layout="gptq")["fc.weight"]
    assert same_bits(found.dequantize(), q.dequantize())


@pytest.mark.parametrize("group", [16, 32, 128])
def test_autoawq_has_the_same_values(tmp_path, group):
    torch = pytest.importorskip("torch")
    gemm = pytest.importorskip("awq.modules.linear.gemm")
    q = hc.quantize(W, f"int4-g{group}-asym-f16")
    hc.save(tmp_path / "a", {"fc.weight": q}, layout="awq")
    found = hc.load(tmp_path / "a")
    parts = [torch.from_numpy(found[f"fc.{name}"]) for name in ("qweight", "qzeros", "scales")]
    theirs = gemm.dequantize_gemm(*parts, 4, group).numpy().T
    assert np.array_equal(theirs, q.dequantize().astype(np.float16))
    linear = torch.nn.Linear(128, 32, bias=False)
    linear.weight.data = torch.from_numpy(q.dequantize())
    points = torch.from_numpy(q.zero_points_expanded()[:, ::group].T.astype(np.float32))
    scales = torch.from_numpy(q.components["scales"].T.astype(np.float32))
    packed = gemm.WQLinear_GEMM.from_linear(linear, 4, group, scales=scales, zeros=points)
    for name in ("qweight", "qzeros", "scales"):
        assert same_bits(np.ascontiguousarray(getattr(packed, name).numpy()), found[f"fc.{name}"])


def test_bitsandbytes_has_the_same_values(tmp_path):
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("bitsandbytes.functional")
    q = hc.quantize(W, "nf4-g64")
    hc.save(tmp_path / "a", {"fc.weight": q}, layout="bitsandbytes")
    parts = {name: torch.from_numpy(array) for name, array in hc.load(tmp_path / "a").items()}
    codes = parts.pop("fc.weight")
    state = functional.QuantState.from_dict(
        {name.removeprefix("fc.weight."): part for name, part in parts.items()}, device=torch.device("cpu")
    )
    assert same_bits(functional.dequantize_4bit(codes, state).float().numpy(), q.dequantize())
    codes, state = functional.quantize_4bit(torch.from_numpy(W), blocksize=64, quant_type="nf4")
    theirs = {"fc.weight": codes.numpy()}
    theirs |= {f"fc.weight.{name}": part.numpy() for name, part in state.as_dict(packed=True).items()}
    hc.save(tmp_path / "b", theirs)
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    ours = hc.load(tmp_path / "b", layout="bitsandbytes")["fc.weight"]
    assert ours == q
    assert same_bits(functional.dequantize_4bit(codes, state).float().numpy(), ours.dequantize())


@pytest.mark.parametrize("fmt, kind", [("int4-g32-f16", "Q4_0"), ("int8-g32-f16", "Q8_0"), ("mxfp4-ceil", "MXFP4")])
def test_gguf_has_the_same_values(tmp_path, fmt, kind):
    gguf = pytest.importorskip("gguf")
    w = np.concatenate([W, np.zeros((1, 128), np.float32), W[:3] * np.float32(1e-3), W[:3] * np.float32(900)])
    q = hc.quantize(w, fmt)
    hc.save(tmp_path / "w.gguf", {"fc.weight": q, "fc.bias": BIAS}, layout="gguf")
    assert [path.name for path in tmp_path.iterdir()] == ["w.gguf"]
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "w.gguf").tensors}
    assert theirs["fc.weight"].tensor_type.name == kind and same_bits(np.array(theirs["fc.bias"].data), BIAS)
    values = gguf.quants.dequantize(theirs["fc.weight"].data, theirs["fc.weight"].tensor_type)
    assert np.array_equal(values, q.dequantize())
    assert np.array_equal(hc.load(tmp_path / "w.gguf")["fc.weight"], q.dequantize())


def test_what_gguf_has_no_place_for(tmp_path):
    pytest.importorskip("gguf")
    nan = hc.quantize(np.full((1, 32), np.nan, np.float32), "mxfp4")
    for q in (hc.quantize(W, "int4-g32"), hc.quantize(W, "int8"), nan):
        with bad_argument(ValueError, None, "missing", "the nearest"):
            hc.save(tmp_path / "a", {"w": q}, layout="gguf")
    with bad_argument(ValueError, None, "axis", "blocks of 32"):
        hc.save(tmp_path / "a", {"w": hc.quantize(W[:, :40], "int4-g32-f16")}, layout="gguf")
    with bad_argument(ValueError, None, "value", "at most 63 bytes"):
        hc.save(tmp_path / "a", {"w" * 64: BIAS}, layout="gguf")
    fp4 = hc.quantize(np.ones((2, 64), np.float32), "nvfp4")
    for write in (lambda **tensors: hc.save(tmp_path / "a", tensors, layout="gguf"),
                  lambda **tensors: hc.save_gguf(tmp_path / "a", tensors, types={})):  # fmt: skip
        with bad_argument(ValueError, None, "value", "at most 63 bytes"):  # the name of its scale is too long
            write(**{"w" * 60: fp4})
        for others in ({"fc.weight": fp4}, {"fc.scale": BIAS}):
            with pytest.raises(ValueError, match=r"(?i)two tensors would be called|duplicated tensor name.*fc\.scale"):
                write(fc=fp4, **others)
    with bad_argument(TypeError, None, "shape", "at most 4 dimensions"):
        hc.save(tmp_path / "a", {"w": np.ones((1,) * 5)}, layout="gguf")
    assert not list(tmp_path.iterdir())
