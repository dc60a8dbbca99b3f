"""Reduction axes and tensors that are no matrices, by the configuration of a model, the file or the shapes."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute.arrays.layout import save_arrays
from heterocompute.cli import main
from heterocompute.files.checkpoint import dequantize_checkpoint, prune_checkpoint
from heterocompute.files.roles import NOTHING, roles_in
from heterocompute.files.selection import axis_of

RNG = np.random.default_rng(0)
GPT2 = {
    "h.0.attn.c_attn.weight": (64, 192),
    "h.0.attn.c_attn.bias": (192,),
    "h.0.attn.c_proj.weight": (64, 64),
    "h.0.mlp.c_fc.weight": (64, 256),
    "h.0.mlp.c_proj.weight": (256, 64),
    "wte.weight": (96, 64),
    "wpe.weight": (32, 64),
}
MATRICES = [name for name in GPT2 if name.endswith(".weight") and "c_" in name]


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def folder(path: Path, shapes: dict[str, tuple[int, ...]], config: dict[str, Any], metadata: Any = None) -> Path:
    """Write a folder of Hugging Face with random tensors."""
    path.mkdir()
    hc.save(path / "model.safetensors", {name: normal(*shape) for name, shape in shapes.items()})
    if config:
        (path / "config.json").write_text(json.dumps(config))
    return path


def axes_in(path: Path) -> dict[str, Any]:
    return {name: getattr(array, "axis", None) for name, array in hc.load(path).items()}


def found(config: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return the axes of tensors, or "plain"."""
    roles = roles_in(config, shapes)
    return {
        name: "plain" if name in roles.plain else axis_of(name, shape, None, roles.axes.get(name))
        for name, shape in shapes.items()
        if len(shape) > 1
    }


E = "model.layers.0.mlp.experts."
CASES: list[tuple[dict[str, Any], dict[str, tuple[int, ...]], dict[str, Any]]] = [
    ({"model_type": "gpt2"}, GPT2, {**dict.fromkeys(MATRICES, (0,)), "wte.weight": (1,), "wpe.weight": "plain"}),
    # nested, and a linear layer of the same name in a model without Conv1D
    ({"model_type": "vision-encoder-decoder", "decoder": {"model_type": "gpt2"}},
     {"decoder.transformer.h.0.mlp.c_fc.weight": (8, 32), "encoder.layer.0.query.weight": (8, 8)},
     {"decoder.transformer.h.0.mlp.c_fc.weight": (0,), "encoder.layer.0.query.weight": (1,)}),
    ({"model_type": "gpt_bigcode"}, {"h.0.attn.c_attn.weight": (80, 64)}, {"h.0.attn.c_attn.weight": (1,)}),
    # a GPT-2 whose fused projection is (3 out, in) has no Conv1D
    ({"model_type": "gpt2"}, {"h.0.attn.c_attn.weight": (192, 64), "h.0.attn.c_proj.weight": (64, 64)},
     {"h.0.attn.c_attn.weight": (1,), "h.0.attn.c_proj.weight": (1,)}),
    # LoRA of a GPT-2 has linear layers
    ({"model_type": "gpt2"}, {"h.0.attn.c_attn.lora_A.weight": (4, 64), "h.0.attn.c_attn.base_layer.weight": (64, 192)},
     {"h.0.attn.c_attn.lora_A.weight": (1,), "h.0.attn.c_attn.base_layer.weight": (0,)}),
    ({"model_type": "gpt_oss", "hidden_size": 64},
     {E + "gate_up_proj": (4, 64, 64), E + "gate_up_proj_bias": (4, 64), E + "down_proj": (4, 32, 64),
      E + "down_proj_bias": (4, 64), "model.layers.0.mlp.router.weight": (4, 64)},
     {E + "gate_up_proj": (1,), E + "gate_up_proj_bias": "plain", E + "down_proj": (1,), E + "down_proj_bias": "plain",
      "model.layers.0.mlp.router.weight": "plain"}),
    ({"model_type": "llama4", "text_config": {"model_type": "llama4_text", "hidden_size": 64}},
     {"language_model.model.layers.0.feed_forward.experts.gate_up_proj": (4, 64, 192),
      "language_model.model.layers.0.feed_forward.experts.down_proj": (4, 96, 64),
      "language_model.model.layers.0.feed_forward.shared_expert.down_proj.weight": (64, 96)},
     {"language_model.model.layers.0.feed_forward.experts.gate_up_proj": (1,),
      "language_model.model.layers.0.feed_forward.experts.down_proj": (1,),
      "language_model.model.layers.0.feed_forward.shared_expert.down_proj.weight": (1,)}),
    ({"model_type": "qwen3_moe", "hidden_size": 64}, {E + "gate_up_proj": (4, 64, 64), E + "down_proj": (4, 64, 32)},
     {E + "gate_up_proj": (2,), E + "down_proj": (2,)}),
    # published files of Qwen3-VL have (experts, in, out), those that transformers 5 writes (experts, out, in)
    ({"model_type": "qwen3_vl_moe", "text_config": {"hidden_size": 64}},
     {E + "gate_up_proj": (4, 64, 64), E + "down_proj": (4, 32, 64)},
     {E + "gate_up_proj": (1,), E + "down_proj": (1,)}),
    ({"model_type": "qwen3_vl_moe", "text_config": {"hidden_size": 64}},
     {E + "gate_up_proj": (4, 64, 64), E + "down_proj": (4, 64, 32)},
     {E + "gate_up_proj": (2,), E + "down_proj": (2,)}),
    # a type that is not in the table, whose shapes agree
    ({"model_type": "new", "hidden_size": 64}, {E + "w1": (4, 64, 96), E + "w2": (4, 96, 64)},
     {E + "w1": (1,), E + "w2": (1,)}),
    ({"model_type": "dbrx"}, {"transformer.blocks.0.ffn.experts.mlp.w1": (384, 64),
                              "transformer.blocks.0.ffn.experts.mlp.w2": (384, 64)},
     {"transformer.blocks.0.ffn.experts.mlp.w1": (1,), "transformer.blocks.0.ffn.experts.mlp.w2": (0,)}),
    ({"model_type": "granitemoe", "hidden_size": 64},
     {"model.layers.0.block_sparse_moe.input_linear.weight": (4, 96, 64),
      "model.layers.0.block_sparse_moe.output_linear.weight": (4, 64, 48),
      "model.layers.0.block_sparse_moe.router.layer.weight": (4, 64)},
     {"model.layers.0.block_sparse_moe.input_linear.weight": (2,),
      "model.layers.0.block_sparse_moe.output_linear.weight": (2,),
      "model.layers.0.block_sparse_moe.router.layer.weight": "plain"}),
    # a gate next to experts is a router, the gate of a gated layer is a matrix
    ({"model_type": "mixtral"}, {"m.block_sparse_moe.gate.weight": (8, 64),
                                 "m.block_sparse_moe.experts.0.w1.weight": (96, 64), "m.mlp.gate.weight": (96, 64)},
     {"m.block_sparse_moe.gate.weight": "plain", "m.block_sparse_moe.experts.0.w1.weight": (1,),
      "m.mlp.gate.weight": (1,)}),
    ({"model_type": "xlnet"}, {"transformer.layer.0.rel_attn.q": (64, 4, 16), "transformer.layer.0.rel_attn.o":
                               (64, 4, 16), "transformer.layer.0.rel_attn.r_w_bias": (4, 16)},
     {"transformer.layer.0.rel_attn.q": (0,), "transformer.layer.0.rel_attn.o": (1, 2),
      "transformer.layer.0.rel_attn.r_w_bias": "plain"}),
    ({"model_type": "recurrent_gemma"}, {"model.layers.0.temporal_block.rg_lru.input_gate_weight": (4, 16, 16)},
     {"model.layers.0.temporal_block.rg_lru.input_gate_weight": (1,)}),
    ({"model_type": "t5"}, {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": (32, 8)},
     {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": "plain"}),
    ({"model_type": "mamba"}, {"m.mixer.conv1d.weight": (64, 1, 4), "m.mixer.A_log": (64, 16)},
     {"m.mixer.conv1d.weight": (2, 1), "m.mixer.A_log": "plain"}),
    # long filters, filters of three dimensions, transposed filters
    ({"model_type": "wav2vec2"}, {"e.pos_conv_embed.conv.parametrizations.weight.original1": (64, 4, 128),
                                  "e.pos_conv_embed.conv.parametrizations.weight.original0": (1, 1, 128)},
     {"e.pos_conv_embed.conv.parametrizations.weight.original1": (2, 1),
      "e.pos_conv_embed.conv.parametrizations.weight.original0": "plain"}),
    ({"model_type": "qwen2_vl"}, {"visual.patch_embed.proj.weight": (32, 3, 2, 14, 14)},
     {"visual.patch_embed.proj.weight": (2, 3, 4, 1)}),
    ({"model_type": "mimi"}, {"decoder.layers.2.conv.weight": (64, 32, 8), "decoder.layers.2.conv.bias": (32,),
                              "decoder.layers.3.conv.weight": (32, 64, 3), "decoder.layers.3.conv.bias": (32,)},
     {"decoder.layers.2.conv.weight": (2, 0), "decoder.layers.3.conv.weight": (2, 1)}),
    ({"model_type": "vit"}, {"embeddings.position_embeddings": (1, 197, 64), "embeddings.cls_token": (1, 1, 64),
                             "embeddings.patch_embeddings.projection.weight": (64, 3, 16, 16)},
     {"embeddings.position_embeddings": "plain", "embeddings.cls_token": "plain",
      "embeddings.patch_embeddings.projection.weight": (2, 3, 1)}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "shapes", "wanted"), CASES, ids=[case[0]["model_type"] for case in CASES])
def test_a_configuration_states_the_axes(config: Any, shapes: Any, wanted: Any) -> None:
    assert found(config, shapes) == wanted


def test_a_configuration_without_a_model_states_nothing() -> None:
    assert roles_in({}, GPT2) is NOTHING and roles_in({"quantization": {}}, GPT2) is NOTHING


@pytest.mark.parametrize("text", ["[1]", "{", '{"model_type": 3}', '{"architectures": "x"}'])
def test_a_config_that_says_nothing_leaves_the_usual_axes(tmp_path: Path, text: str) -> None:
    source = folder(tmp_path / "in", {"c_attn.weight": (64, 192)}, {})
    (source / "config.json").write_text(text)
    hc.quantize_checkpoint(source, tmp_path / "out.safetensors", "int8")
    assert axes_in(tmp_path / "out.safetensors") == {"c_attn.weight": (1,)}


def test_all_commands_read_the_configuration(tmp_path: Path) -> None:
    source = folder(tmp_path / "in", GPT2, {"model_type": "gpt2"})
    hc.quantize_checkpoint(source, tmp_path / "q", "int8")
    prune_checkpoint(source, tmp_path / "p", "2:4")
    wanted = {**dict.fromkeys(MATRICES, (0,)), "wte.weight": (1,), "wpe.weight": None, "h.0.attn.c_attn.bias": None}
    assert axes_in(tmp_path / "q") == wanted == axes_in(tmp_path / "p")
    with hc.open_checkpoint(source) as weights:
        assert weights.axes == dict.fromkeys(MATRICES, (0,))
        plan = hc.ptq.search(weights, ["int4-g32", "int8"], {"bits": 5})
    assert plan.weights["h.0.mlp.c_fc.weight"].axis == (0,) and "wpe.weight" not in plan.recipe
    rows = {row["name"]: row["sqnr_db"] for row in hc.study(source / "model.safetensors", ["int4-g32"]).layers}
    w = hc.load(source)["h.0.mlp.c_fc.weight"]
    assert rows.keys() == {*MATRICES, "wte.weight"}
    assert rows["h.0.mlp.c_fc.weight"] == pytest.approx(hc.error(w, hc.quantize(w, "int4-g32", axis=0)).sqnr_db)
    hc.quantize_checkpoint(source, tmp_path / "a", "int8", include="*c_fc*", axis=1)  # what is asked for counts
    assert axes_in(tmp_path / "a")["h.0.mlp.c_fc.weight"] == (1,)
    hc.quantize_checkpoint(source, tmp_path / "e", "int8", include="wpe.weight")
    assert axes_in(tmp_path / "e")["wpe.weight"] == (1,)


def test_ptq_turns_weights_for_other_layouts(tmp_path: Path) -> None:
    source = folder(tmp_path / "in", GPT2, {"model_type": "gpt2"})
    inputs = {name: normal(80, GPT2[name][0]) for name in MATRICES}
    np.savez(tmp_path / "x.npz", **inputs)
    base = ["--format", "int4-g32-f16", "--inputs", str(tmp_path / "x.npz")]
    assert main(["ptq", str(source), str(tmp_path / "ours"), *base]) == 0
    assert main(["ptq", str(source), str(tmp_path / "gptq"), *base, "--layout", "gptq"]) == 0
    ours, theirs = hc.load(tmp_path / "ours"), hc.load(tmp_path / "gptq", layout="gptq")
    for name in MATRICES:
        assert ours[name].axis == (0,) and ours[name] == theirs[name]


LAYOUTS = {
    "gptq": "int4-g32-f16",
    "gptq-v1": "int8-g32-f16",
    "awq": "int4-g32-asym-f16",
    "compressed-tensors": "int4-g32",
    "bitsandbytes": "nf4-g64",
    "fp8": "fp8_e4m3fn-tensor",
    "modelopt": "nvfp4",
    "mlx": "int4-g32-f16",
    "eetq": "int8-f16",
}


@pytest.mark.filterwarnings("ignore:quantize")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.sweep(every=4)
def test_layouts_hold_turned_weights(tmp_path: Path, layout: str) -> None:
    source, out, fmt = folder(tmp_path / "in", GPT2, {"model_type": "gpt2"}), tmp_path / "out", LAYOUTS[layout]
    hc.quantize_checkpoint(source, out, fmt, layout=layout, exclude="wte*")
    weights, now = hc.load(source), hc.load(out, layout=layout)
    for name in MATRICES:
        assert now[name].shape == weights[name].shape and now[name].axis == (0,)
        assert np.array_equal(now[name].dequantize(), hc.quantize(weights[name], fmt, axis=0).dequantize())
    dequantize_checkpoint(out, tmp_path / "plain")
    plain = hc.load(tmp_path / "plain")
    hc.convert_checkpoint(out, tmp_path / "ours", "heterocompute")
    ours = hc.load(tmp_path / "ours")
    for name in MATRICES:
        assert np.array_equal(plain[name], now[name].dequantize())
        assert ours[name].axis == (0,) and np.array_equal(ours[name].dequantize(), plain[name])
    hc.convert_checkpoint(tmp_path / "ours", tmp_path / "back", layout)
    back = hc.load(tmp_path / "back", layout=layout)
    assert all(np.array_equal(back[name].dequantize(), plain[name]) for name in MATRICES)


def test_words_of_gptq_are_along_the_inputs(tmp_path: Path) -> None:
    source = folder(tmp_path / "in", GPT2, {"model_type": "gpt2"})
    hc.quantize_checkpoint(source, tmp_path / "out", "int4-g32-f16", layout="gptq", exclude="wte*")
    stored = hc.load(tmp_path / "out")
    assert stored["h.0.attn.c_attn.qweight"].shape == (64 // 8, 192)
    assert stored["h.0.mlp.c_proj.scales"].shape == (256 // 32, 64)


def test_weights_that_a_program_stored_unturned_stay(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    arrays: dict[str, Any] = {name: normal(*shape) for name, shape in GPT2.items() if "wte" not in name}
    for name in MATRICES:
        arrays[name] = hc.quantize(arrays[name], "int4-g32-f16")
    hc.save(tmp_path / "in" / "model.safetensors", arrays, layout="gptq")
    (tmp_path / "in" / "config.json").write_text('{"model_type": "gpt2"}')
    now = hc.load(tmp_path / "in", layout="gptq")
    assert all(now[name] == arrays[name] for name in MATRICES)


def test_gguf_and_matmulnbits_hold_turned_weights(tmp_path: Path) -> None:
    source = folder(tmp_path / "in", GPT2, {"model_type": "gpt2"})
    weights = hc.load(source)
    for layout, fmt in (("gguf", "q8_0"), ("onnx-matmulnbits", "int4-g32")):
        hc.quantize_checkpoint(source, tmp_path / layout, fmt, layout=layout, exclude="wte*")
        now = hc.load(tmp_path / layout, layout=layout)
        for name in MATRICES:
            wanted = hc.quantize(np.ascontiguousarray(weights[name].T), fmt)
            assert np.array_equal(now[name].dequantize(), wanted.dequantize())


@pytest.mark.parametrize(("layout", "warned"), [("gptq", False), ("bitsandbytes", False), ("compressed-tensors", True)])
def test_a_layout_whose_quantizer_skips_conv1d_is_named(tmp_path: Path, layout: str, warned: bool) -> None:
    source = folder(tmp_path / "in", GPT2, {"model_type": "gpt2"})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hc.quantize_checkpoint(source, tmp_path / "out", LAYOUTS[layout], layout=layout, exclude="wte*")
    assert [layout in str(one.message) and "Conv1D" in str(one.message) for one in caught] == [True] * warned


def test_stacks_in_out_are_read_along_their_inputs(tmp_path: Path) -> None:
    shapes = {E + "gate_up_proj": (2, 64, 192), E + "gate_up_proj_bias": (2, 192), E + "down_proj": (2, 96, 64),
              "model.layers.0.mlp.router.weight": (2, 64), "model.norm.weight": (64,)}  # fmt: skip
    source = folder(tmp_path / "in", shapes, {"model_type": "gpt_oss", "hidden_size": 64})
    hc.quantize_checkpoint(source, tmp_path / "out", "int4-g32-f16")
    assert axes_in(tmp_path / "out") == {
        **dict.fromkeys(shapes),
        E + "gate_up_proj": (1,),
        E + "down_proj": (1,),
    }
    hc.convert_checkpoint(tmp_path / "out", tmp_path / "ours", "heterocompute")
    ours, before = hc.load(tmp_path / "ours"), hc.load(tmp_path / "out")
    assert all(ours[E + name] == before[E + name] for name in ("gate_up_proj", "down_proj"))


def test_biases_are_no_matrices_without_a_configuration(tmp_path: Path) -> None:
    arrays = {"experts.up_bias": normal(4, 64), "fc.bias": normal(2, 64), "experts.up": normal(4, 8, 64)}
    hc.save(tmp_path / "a.safetensors", arrays)
    hc.quantize_checkpoint(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "int8")
    assert axes_in(tmp_path / "b.safetensors") == {"experts.up_bias": None, "fc.bias": None, "experts.up": (2,)}
    assert [row["name"] for row in hc.study(arrays, ["int8"]).layers] == ["experts.up"] * 2
    hc.quantize_checkpoint(tmp_path / "a.safetensors", tmp_path / "c.safetensors", "int8", include="fc.bias")
    assert axes_in(tmp_path / "c.safetensors")["fc.bias"] == (1,)


@pytest.mark.parametrize("form", ["tf", "flax"])
def test_the_metadata_of_a_file_state_the_layout_of_kernels(tmp_path: Path, form: str) -> None:
    shapes = {"conv/kernel": (3, 3, 16, 32), "conv/bias": (32,), "dense/kernel": (64, 32), "emb/embedding": (99, 16),
              "sep/depthwise_kernel": (3, 3, 16, 2), "attn/query/kernel": (64, 4, 16), "attn/out/kernel": (4, 16, 64),
              "signal/kernel": (3, 16, 32), "attn/query/bias": (4, 16)}  # fmt: skip
    path = tmp_path / "a.safetensors"
    save_arrays(path, {name: normal(*shape) for name, shape in shapes.items()}, {}, metadata={"format": form})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hc.quantize_checkpoint(path, tmp_path / "b.safetensors", "int8")
        prune_checkpoint(path, tmp_path / "c.safetensors", "20%")
    assert axes_in(tmp_path / "b.safetensors") == {
        "conv/kernel": (0, 1, 2),
        "conv/bias": None,
        "dense/kernel": (0,),
        "emb/embedding": (1,),
        "sep/depthwise_kernel": (0, 1),
        "attn/query/kernel": (0,),
        "attn/out/kernel": (0, 1),
        "signal/kernel": (0, 1),
        "attn/query/bias": None,
    }
    before, after = hc.load(path)["conv/kernel"], hc.load(tmp_path / "c.safetensors")["conv/kernel"]
    assert np.array_equal(after, np.where(hc.prune_mask(before, "20%", axis=(0, 1, 2)), before, 0))


STRANGE = [
    ({"w": (3, 3, 16, 32)}, "(0, 1, 2)"),
    ({"w": (1, 1, 64, 128)}, "(0, 1, 2)"),
    ({"w": (7, 7, 3, 64)}, "(0, 1, 2)"),
    ({"fc.weight": (64, 32), "fc.bias": (32,)}, "0"),
    ({"d/kernel": (64, 32), "d/bias": (32,)}, "0"),
    ({"c/kernel": (3, 3, 4, 6), "c/bias": (6,)}, "(0, 1, 2)"),
    ({"up.weight": (64, 32, 4, 4), "up.bias": (32,)}, "(2, 3, 0)"),
]
USUAL: list[dict[str, tuple[int, ...]]] = [
    {"w": (32, 16, 3, 3)},
    {"w": (3, 3, 3, 3)},
    {"w": (64, 64, 1, 7)},
    {"w": (64, 3, 16, 16)},
    {"w": (8, 8, 5, 5)},
    {"w": (1, 1, 5, 5)},
    {"c.weight": (3, 3, 16, 32), "c.bias": (3,)},
    {"fc.weight": (32, 64), "fc.bias": (32,)},
    {"fc.weight": (64, 64), "fc.bias": (64,)},
    {"ln.weight": (4, 64), "ln.bias": (4, 64)},
]


@pytest.mark.parametrize(("shapes", "axis"), STRANGE, ids=[str(case[0]) for case in STRANGE])
def test_a_shape_that_looks_otherwise_is_named_once(tmp_path: Path, shapes: Any, axis: str) -> None:
    arrays = {name: normal(*shape) for name, shape in shapes.items()}
    hc.save(tmp_path / "a.safetensors", arrays)
    name = next(iter(shapes))
    for call in (
        lambda: hc.quantize_checkpoint(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "int8"),
        lambda: prune_checkpoint(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "20%"),
        lambda: hc.study(arrays, ["int8"]),
        lambda: hc.ptq.search(arrays, ["int8"], {"bits": 9}),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert len(caught) == 1 and f"axis={{'{name}': {axis}}}" in str(caught[0].message)
    with pytest.warns(UserWarning, match="axis="):
        hc.quantize_checkpoint(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "int8")
    assert axes_in(tmp_path / "b.safetensors")[name] == ((2, 3, 1) if len(shapes[name]) == 4 else (1,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hc.study(arrays, ["int8"], axis={name: (0,)})


@pytest.mark.parametrize("shapes", USUAL, ids=str)
def test_a_usual_shape_is_not_named(shapes: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hc.study({name: normal(*shape) for name, shape in shapes.items()}, ["int8"])


def test_the_command_prints_the_warning_as_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hc.save(tmp_path / "a.safetensors", {"w": normal(3, 3, 16, 32)})
    arguments = [str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors"), "--pattern", "20%"]
    assert main(["prune", *arguments]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "axis=" in line]
    assert line.startswith("prune: tensor 'w' of shape (3, 3, 16, 32)")
    assert main(["prune", *arguments, "--axis", "0,1,2", "--overwrite"]) == 0
    assert "axis=" not in capsys.readouterr().err
    before, after = hc.load(tmp_path / "a.safetensors")["w"], hc.load(tmp_path / "b.safetensors")["w"]
    assert np.array_equal(after, np.where(hc.prune_mask(before, "20%", axis=(0, 1, 2)), before, 0))
