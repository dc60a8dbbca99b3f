"""Own formats in PyTorch, transformers, ONNX and JAX: they open in a process that never defined them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import reals, same_bits

import heterocompute as hc
from heterocompute.formats import Levels, Minifloat
from heterocompute.formats.defining import carried

torch = pytest.importorskip("torch")

from heterocompute.interop import torch as ht  # noqa: E402


def formats() -> list[hc.Format]:
    return [
        hc.define("carried-e3m4", Minifloat(3, 4, specials="fnuz"), scale="e8m0", group=16),
        hc.define("carried-levels", Levels([-1, -0.3, 0, 0.2, 1]), scale="f16", group=16),
        hc.define(None, Levels([-1, 0.25, 1], [-0.5, 0.5]), group=16),
        hc.format("e2m1-b4x8-e4m3fn-f32tensor"),
    ]


def model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))


def in_a_fresh_process(code: str, *arguments: object) -> str:
    call = [sys.executable, "-c", code, *map(str, arguments)]
    made = subprocess.run(call, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_converted_models_open_in_a_fresh_process(tmp_path: Path) -> None:
    x = torch.from_numpy(reals((5, 32), 1))
    for i, fmt in enumerate(formats()):
        activations = fmt if i != 3 else None
        packed = ht.convert(model(), fmt, activations=activations)
        y = packed(x)
        again = ht.convert(model(), "int8")
        again.load_state_dict(packed.state_dict())
        assert again[0].weight.format == fmt and torch.equal(again(x), y) and str(fmt) in repr(packed)
        assert str(fmt) in str(ht.summary(packed)) and torch.equal(torch.func.functional_call(packed, {}, (x,)), y)
        torch.save(packed.state_dict(), tmp_path / f"{i}.pt")
        torch.save({"x": x, "y": y}, tmp_path / f"{i}.io.pt")
    code = """
import sys, torch
from heterocompute.interop import torch as ht
for i in range(4):
    path = f"{sys.argv[1]}/{i}"
    io = torch.load(path + ".io.pt")
    net = ht.convert(torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)), "int8")
    net.load_state_dict(torch.load(path + ".pt"))
    assert torch.equal(net(io["x"]), io["y"]), i
    print(net[0].weight.format)
"""
    assert in_a_fresh_process(code, tmp_path).split("\n")[:4] == [str(fmt) for fmt in formats()]


def test_modules_that_train_open_in_a_fresh_process(tmp_path: Path) -> None:
    x = torch.from_numpy(reals((5, 32), 1))
    for i, fmt in enumerate(formats()):
        layer = ht.QuantLinear(32, 8, fmt)
        assert f"format={fmt}" in repr(layer) and np.array_equal(
            layer.rounded(layer.weight).detach().numpy(), hc.fake_quantize(layer.weight.detach().numpy(), fmt)
        )
        assert layer.packed().format == fmt
        turned = ht.parametrize(torch.nn.Linear(32, 8), fmt)
        assert str(fmt) in repr(turned)
        torch.save([layer, x, layer(x)], tmp_path / f"{i}.pt")
    code = """
import sys, torch, heterocompute.interop.torch
for i in range(4):
    layer, x, y = torch.load(f"{sys.argv[1]}/{i}.pt", weights_only=False)
    assert torch.equal(layer(x), y), i
"""
    in_a_fresh_process(code, tmp_path)


def test_gradients_and_compiled_programs_know_own_formats(tmp_path: Path) -> None:
    fmt = formats()[0]
    t = torch.from_numpy(reals((4, 32), 2)).requires_grad_()
    y = ht.fake_quantize(t, "carried-e3m4")
    y.sum().backward()
    assert same_bits(y.detach().numpy(), hc.fake_quantize(t.detach().numpy(), fmt)) and (t.grad == 1).all()
    chance = ht.fake_quantize(t.detach(), fmt, rounding="stochastic", seed=3)
    assert same_bits(
        chance.numpy(), hc.training.fake_quantize(t.detach().numpy(), fmt, rounding="stochastic", seed=3)[0]
    )
    program = torch.export.export(ht.convert(model(), fmt), (torch.from_numpy(reals((5, 32), 1)),))
    torch.export.save(program, tmp_path / "p.pt2")
    y = program.module()(torch.from_numpy(reals((5, 32), 1)))
    torch.save(y, tmp_path / "y.pt")
    np.save(tmp_path / "x.npy", reals((5, 32), 1))
    code = """
import sys, numpy as np, torch, heterocompute.interop.torch
x = torch.from_numpy(np.load(sys.argv[1] + "/x.npy"))
assert torch.equal(torch.export.load(sys.argv[1] + "/p.pt2").module()(x), torch.load(sys.argv[1] + "/y.pt"))
"""
    in_a_fresh_process(code, tmp_path)


def test_models_of_transformers_carry_definitions(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from heterocompute.interop.transformers import HeteroConfig

    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=64,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "plain")
    fmt = formats()[1]
    for i, given in enumerate((fmt, {"*mlp*": fmt, "*": "int8"})):
        made = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / "plain", quantization_config=HeteroConfig(given, activations="int8")
        )
        made.save_pretrained(tmp_path / f"packed{i}")
        torch.save(made(torch.arange(8)[None]).logits, tmp_path / f"y{i}.pt")
        about = json.loads((tmp_path / f"packed{i}" / "config.json").read_text())["quantization_config"]["format"]
        assert carried(fmt) in (about, about["*mlp*"] if isinstance(about, dict) else None)
    code = """
import sys, torch, transformers, heterocompute.interop.transformers
for i in range(2):
    net = transformers.AutoModelForCausalLM.from_pretrained(f"{sys.argv[1]}/packed{i}")
    assert torch.equal(net(torch.arange(8)[None]).logits, torch.load(f"{sys.argv[1]}/y{i}.pt"))
    print(net.model.layers[0].mlp.up_proj.weight.format)
"""
    assert in_a_fresh_process(code, tmp_path).split() == [str(fmt)] * 2


ONNX = {
    "DequantizeLinear": [
        "int4-g16-bf16", "int4f2-g16-e8m0", "uint4-g5", "int12", "int13f5-g16-e8m0", "int8full", "e4m3fn-b4x16",
        "e5m2fnuz-row", "e4m3fnuz", "int4f2-g6-f16+2:6", "e5m2-nosat", "mxint8", "fp8_e4m3fn-row", "int3-g4-asym+2:4",
        "int4-g6+2:4", "q8_0",
    ],
    "Gather": [
        "e3m4-row", "posit8.1-g16", "e2m1-b4x8-e4m3fn-f32tensor", "ternary-g16", "ternary-tensor-absmean+2:4", "binary",
        "e5m10", "e5m4-g7-e8m0", "e3m2-g16-s4-f32row", "log5-3", "mxfp4", "nf4-g16-dq", "levels",
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", ONNX)
def test_onnx_decodes_to_the_bits_of_the_package(kind: str, tmp_path: Path) -> None:
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    linear, filters = torch.nn.Linear(32, 12, bias=False), torch.nn.Conv2d(32, 12, 1, bias=False)
    x = np.eye(32, dtype=np.float32)
    for i, text in enumerate(ONNX[kind]):
        fmt = formats()[2] if text == "levels" else hc.format(text)
        made = ht.convert(filters if i % 3 == 1 else linear, fmt)
        given = x[..., None, None] if i % 3 == 1 else x
        ht.export_onnx(made, (torch.from_numpy(given),), tmp_path / "m.onnx")
        session = runtime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
        (y,) = session.run(None, {session.get_inputs()[0].name: given})
        wanted = made.weight.array().dequantize().reshape(12, 32).T
        assert (y.reshape(32, 12) == wanted).all(), text
        assert kind in {node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node}, text


def test_onnx_has_scales_in_two_levels_to_the_last_digit_and_refuses_by_name(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    x = reals((5, 32), 1)
    for fmt in ("int6-g16-e4m3fn-f32row", "int4-g16-s4-f32row", "vsq4-g16-s4"):
        made = ht.convert(model(), hc.format(fmt))
        ht.export_onnx(made, (torch.from_numpy(x),), tmp_path / "m.onnx")
        session = runtime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
        (y,) = session.run(None, {session.get_inputs()[0].name: x})
        assert np.allclose(y, made(torch.from_numpy(x)).detach().numpy(), rtol=1e-5, atol=1e-6), fmt
    for fmt in ("binary+2:4", "cb4-g16", "q4_1", "fp16", "2:4", "int24"):
        with pytest.raises(ValueError, match=f"'0.weight' is {re.escape(fmt)}, which no operators of ONNX decode"):
            ht.export_onnx(ht.convert(model(), fmt), (torch.from_numpy(x),), tmp_path / "none.onnx")
    rounded = ht.convert(model(), "int8", activations=formats()[0])
    with pytest.raises(ValueError, match="activations of '0.weight' are carried-e3m4, expected None or int8"):
        ht.export_onnx(rounded, (torch.from_numpy(x),), tmp_path / "none.onnx")
    assert not (tmp_path / "none.onnx").exists()


def test_jax_takes_own_formats() -> None:
    jax = pytest.importorskip("jax")
    from heterocompute.interop import jax as hj

    w, x = reals((8, 32), 1), reals((5, 32), 2)
    for fmt in formats():
        q = hc.quantize(w, fmt)
        y = jax.jit(lambda t, q=q: hj.linear(t, q))(x)
        assert same_bits(np.asarray(y), hc.linear(x, q))
        assert same_bits(np.asarray(hj.fake_quantize(x, fmt)), hc.fake_quantize(x, fmt))
        gradient = jax.grad(lambda t, fmt=fmt: hj.fake_quantize(t, fmt).sum())(x)
        assert (np.asarray(gradient) == 1).all()


def test_a_state_with_a_hostile_definition_is_a_sentence() -> None:
    packed = ht.convert(torch.nn.Linear(32, 16), formats()[1])
    state = packed.state_dict()
    about = json.loads(bytes(state["weight.format"].tolist()).decode())
    good = json.loads(about["format"])
    for change in (
        {"definition": {"element": {"levels": [0, float("nan")]}}},
        {"definition": {"element": {"levels": [1, 0]}}},
        {"definition": {"element": {"levels": []}}},
        {"definition": {"element": "int4", "group": 1 << 31}},
        {"definition": {"element": "int4", "unknown": 1}},
        {"definition": 3},
        {"format": 3},
        {"more": 1},
    ):
        text = json.dumps({**about, "format": json.dumps({**good, **change})}).encode()
        broken = {**state, "weight.format": torch.tensor(list(text), dtype=torch.uint8)}
        with pytest.raises((RuntimeError, ValueError), match=r"weight\.format is not the text of a packed weight"):
            ht.convert(torch.nn.Linear(32, 16), "int8").load_state_dict(broken)
