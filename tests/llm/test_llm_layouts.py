"""Quantized folders of models open in every supported layout, with the logits of their values."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import made
import ml_dtypes
import numpy as np
import pytest
from common import run

import heterocompute as hc
from heterocompute.files.checkpoint import dequantize_checkpoint, quantize_checkpoint
from heterocompute.files.opening import reader_of

IDS, RNG = np.arange(2, 40), np.random.default_rng(12)
PLACES = [
    ("compressed-tensors", "int4-g32-f16"), ("compressed-tensors", "int8"), ("gptq", "int4-g32-f16"),
    ("awq", "int4-g32-asym-f16"), ("bitsandbytes", "nf4-g32"), ("fp8", "fp8_e4m3fn-tensor"), ("modelopt", "nvfp4"),
    ("mlx", "mxfp4"), (None, "vsq4-g16-s4"), (None, "nvfp4"),
]  # fmt: skip


def saved(path: Path, tensors: dict[str, Any], config: dict[str, Any]) -> Path:
    path.mkdir()
    hc.save(path / "model.safetensors", tensors)
    (path / "config.json").write_text(json.dumps({**made.CONFIG, **config}))
    return path


@pytest.mark.parametrize(("layout", "fmt"), PLACES)
@pytest.mark.parametrize("include", [["*proj*"], ["*proj*", "*embed*"]])
@pytest.mark.sweep(every=4)
def test_quantized_folders_are_opened(layout: str | None, fmt: str, include: list[str], tmp_path: Path) -> None:
    net = hc.zoo.open_llm(made.write_folder(tmp_path / "plain"))
    quantize_checkpoint(tmp_path / "plain", tmp_path / "packed", fmt, include=include, layout=layout)
    packed = hc.zoo.open_llm(tmp_path / "packed")
    chosen = [name for name in net.matrices if "proj" in name or len(include) == 2]
    weights = {name: hc.quantize(net.weights[name], fmt, axis=-1) for name in chosen}
    np.testing.assert_array_equal(packed.logits(IDS), net.logits(IDS, weights))
    assert {str(packed.weights[name].format) for name in chosen} == {fmt}


def blocks_of(w: np.ndarray[Any, Any], block: int) -> tuple[Any, Any, Any]:
    """Return float8 codes with one scale per block, and their values."""
    rows, columns = (-(-n // block) for n in w.shape)
    padded = np.zeros((rows * block, columns * block), np.float32)
    padded[: w.shape[0], : w.shape[1]] = w
    tiles = padded.reshape(rows, block, columns, block)
    scales = np.abs(tiles).max(axis=(1, 3)) / np.float32(448)
    codes = (tiles / scales[:, None, :, None]).reshape(padded.shape)[: w.shape[0], : w.shape[1]]
    codes = codes.astype(ml_dtypes.float8_e4m3fn)
    each = scales.repeat(block, 0).repeat(block, 1)[: w.shape[0], : w.shape[1]]
    return codes, scales, codes.astype(np.float32) * each


def test_fp8_in_blocks_is_opened_as_its_values(tmp_path: Path) -> None:
    tensors, values = {}, {}
    for name, w in made.weights().items():
        tensors[name] = values[name] = w
        if "proj" in name:
            tensors[name], tensors[f"{name}_scale_inv"], values[name] = blocks_of(w, 32)
    said = {"quant_method": "fp8", "weight_block_size": [32, 32], "activation_scheme": "dynamic"}
    packed = hc.zoo.open_llm(saved(tmp_path / "fp8", tensors, {"quantization_config": said}))
    plain = hc.zoo.open_llm(saved(tmp_path / "plain", values, {}))
    np.testing.assert_array_equal(packed.logits(IDS), plain.logits(IDS))


def test_columns_in_another_order_than_their_groups_are_opened_as_their_values(tmp_path: Path) -> None:
    made.write_folder(tmp_path / "m")
    quantize_checkpoint(tmp_path / "m", tmp_path / "g", "int4-g32-f16", include=["*proj*"], layout="gptq")
    found = hc.load(next((tmp_path / "g").glob("*.safetensors")))
    rng = np.random.default_rng(0)
    for name in [name for name in found if name.endswith("g_idx")]:
        found[name] = rng.permutation(found[name])
    config = json.loads((tmp_path / "g/config.json").read_text())
    turned = hc.zoo.open_llm(saved(tmp_path / "turned", found, config))
    dequantize_checkpoint(tmp_path / "turned", tmp_path / "plain", layout="gptq")
    plain = hc.zoo.open_llm(tmp_path / "plain")
    np.testing.assert_array_equal(turned.logits(IDS), plain.logits(IDS))


@pytest.mark.parametrize(("layout", "fmt"), [("gptq", "int4-g32-f16"), ("fp8", "fp8_e4m3fn-tensor")])
def test_experts_of_other_programs_are_opened(layout: str, fmt: str, tmp_path: Path) -> None:
    config, rng = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}, np.random.default_rng(1)
    tensors = {name: w for name, w in made.weights().items() if "mlp" not in name}
    for i in range(2):
        at = f"model.layers.{i}.block_sparse_moe."
        tensors[f"{at}gate.weight"] = rng.standard_normal((4, 64), np.float32)
        for expert in range(4):
            for name, shape in (("w1", (96, 64)), ("w3", (96, 64)), ("w2", (64, 96))):
                w = 0.2 * rng.standard_normal(shape, np.float32)
                tensors[f"{at}experts.{expert}.{name}.weight"] = w
    saved(tmp_path / "m", tensors, config)
    quantize_checkpoint(tmp_path / "m", tmp_path / "packed", fmt, include=["*experts*"], layout=layout)
    dequantize_checkpoint(tmp_path / "packed", tmp_path / "plain", layout=layout)
    packed, plain = hc.zoo.open_llm(tmp_path / "packed"), hc.zoo.open_llm(tmp_path / "plain")
    wanted = plain.logits(IDS)
    assert np.abs(packed.logits(IDS) - wanted).max() < 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("fmt", ["int8", "vsq4-g16-s4", "nvfp4"])
def test_stacked_experts_of_this_package_are_opened(fmt: str, tmp_path: Path) -> None:
    """Gate and up are rows of one packed stack."""
    config, rng = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}, np.random.default_rng(1)
    tensors = {name: w for name, w in made.weights().items() if "mlp" not in name}
    for i in range(2):
        at = f"model.layers.{i}.mlp."
        tensors[f"{at}gate.weight"] = rng.standard_normal((4, 64), np.float32)
        tensors[f"{at}experts.gate_up_proj"] = 0.2 * rng.standard_normal((4, 192, 64), np.float32)
        tensors[f"{at}experts.down_proj"] = 0.2 * rng.standard_normal((4, 64, 96), np.float32)
    saved(tmp_path / "m", tensors, config)
    quantize_checkpoint(tmp_path / "m", tmp_path / "packed", fmt, shard_size="50kB")
    dequantize_checkpoint(tmp_path / "packed", tmp_path / "plain")
    packed, plain = hc.zoo.open_llm(tmp_path / "packed"), hc.zoo.open_llm(tmp_path / "plain")
    wanted = plain.logits(IDS)
    assert np.abs(packed.logits(IDS) - wanted).max() < 1e-5 * np.abs(wanted).max()
    assert packed.roles["blk.0.ffn_gate_up_exps.weight"] == "model.layers.0.mlp.experts.gate_up_proj"


def test_a_folder_that_was_quantized_continues_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers")
    made.write_folder(tmp_path / "m")
    assert run(capsys, "quantize", tmp_path / "m", tmp_path / "q", "--format", "int8")[0] == 0
    code, text, _ = run(capsys, "generate", tmp_path / "q", "the cat", "--tokens", "3")
    assert code == 0 and text.startswith("the cat")


@pytest.mark.parametrize(
    ("tensors", "said", "words"),
    [
        ({}, {"quant_method": "heterocompute"}, "HeteroConfig of transformers wrote it: load it by from_pretrained"),
        ({}, {"quant_method": "aqlm"}, "quant_method is 'aqlm', which is not read; expected compressed-tensors"),
        ({"model.layers.0.mlp.up_proj.W_q": np.ones((96, 8), np.uint8),
          "model.layers.0.mlp.up_proj.scale": np.ones((96, 1), np.float32)}, None, "is already quantized, by HQQ"),
        ({"model.layers.0.mlp.up_proj.weight_packed": np.ones((96, 8), np.int32)},
         {"quant_method": "compressed-tensors"}, "m"),
    ],
)  # fmt: skip
def test_layouts_that_are_not_read_are_refused_by_name(
    tensors: dict[str, Any], said: Any, words: str, tmp_path: Path
) -> None:
    held = {**made.weights(), **tensors}
    path = saved(tmp_path / "m", held, {} if said is None else {"quantization_config": said})
    with pytest.raises(ValueError, match=words) as refused:
        hc.zoo.open_llm(path).logits(IDS, weights=None)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("family", ["llama4", "mamba"])
def test_families_that_are_not_known_are_refused_by_name(family: str, tmp_path: Path) -> None:
    made.write_folder(tmp_path / "m", {"model_type": family})
    with pytest.raises(ValueError, match=f"model_type is '{family}', expected one of llama"):
        hc.zoo.open_llm(tmp_path / "m")
    shutil.rmtree(tmp_path / "m")


MIXED = {
    "llama": ("Llama", {}),
    "qwen2": ("Qwen2", {}),
    "mixtral": ("Mixtral", {"num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": None}),
    "qwen3_moe": ("Qwen3Moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
                               "norm_topk_prob": True, "head_dim": 16}),
}  # fmt: skip


def with_two_formats(path: Path, family: str) -> tuple[Path, dict[str, Any]]:
    """Write a folder of ModelOpt, attention in FP8 and the rest in NVFP4, and return the packed weights."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    kind, more = MIXED[family]
    config = getattr(transformers, f"{kind}Config")(**{
        "vocab_size": len(made.vocabulary()), "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": 0,
        "eos_token_id": 1, "pad_token_id": None, **more})  # fmt: skip
    torch.manual_seed(0)
    made.write_folder(path)
    (path / "model.safetensors").unlink()
    getattr(transformers, f"{kind}ForCausalLM")(config).save_pretrained(path)
    tensors, packed = dict(hc.load(path / "model.safetensors")), {}
    for name in [one for one in tensors if one.endswith(".weight") and ("proj" in one or ".experts." in one)]:
        w = np.asarray(tensors[name], np.float32) * (1 + len(packed) % 5)  # scales differ
        packed[name] = q = hc.quantize(w, "fp8_e4m3fn-tensor" if "self_attn" in name else "nvfp4")
        place, parts, eights = name.removesuffix(".weight"), q.components, np.dtype(ml_dtypes.float8_e4m3fn)
        if "self_attn" not in name:
            tensors |= {name: parts["codes"], f"{place}.weight_scale": parts["scales"].view(eights),
                        f"{place}.weight_scale_2": parts["coarse"].reshape(())}  # fmt: skip
        else:
            tensors |= {name: parts["codes"].view(eights), f"{place}.weight_scale": parts["coarse"].reshape(())}
    of = {True: {"quant_algo": "NVFP4", "group_size": 16}, False: {"quant_algo": "FP8"}}
    declared = json.loads((path / "config.json").read_text())
    declared["quantization_config"] = {
        "quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "exclude_modules": ["lm_head"],
        "quantized_layers": {name.removesuffix(".weight"): of["self_attn" not in name] for name in packed},
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(declared))
    hc.save(path / "model.safetensors", tensors)
    return path, packed


@pytest.mark.parametrize("family", ["llama", "mixtral", "qwen3_moe"])
def test_folders_of_two_formats_become_a_file_of_llama_cpp(family: str, tmp_path: Path) -> None:
    """NVFP4 stays, each expert with its own scale; FP8 is rounded."""
    pytest.importorskip("gguf")
    folder, packed = with_two_formats(tmp_path / "in", family)
    command = tmp_path / "in", tmp_path / "m.gguf", "gguf"
    with pytest.raises(ValueError, match="gguf has no place for fp8_e4m3fn-tensor; lossy='q8_0' rounds such weights"):
        hc.convert_checkpoint(*command)
    summary = hc.convert_checkpoint(*command, lossy="q8_0")
    assert summary["unloadable"] is None
    with reader_of(str(tmp_path / "m.gguf")) as reader:
        down = [name for name in reader.names if ".ffn_down" in name]
        assert down and all(reader.kind(name) == "NVFP4" for name in down)
    net = hc.zoo.open_llm(tmp_path / "m.gguf")
    for role in [one for one in net.roles if ".ffn_down" in one]:
        i, found = role.split(".")[1], np.asarray(net.weights[net.roles[role]], np.float32)
        names = [name for name in packed if f"layers.{i}." in name and ("down_proj" in name or ".w2." in name)]
        names = [name for name in names if ("shared" in name) == ("shexp" in role)]
        wanted = np.stack([packed[name].dequantize() for name in sorted(names)])
        assert np.array_equal(found, wanted if found.ndim == 3 else wanted[0])
    plain = hc.zoo.open_llm(folder)
    found, wanted = net.logits(IDS), plain.logits(IDS)
    assert np.median(np.abs(found - wanted)) < 0.01 * np.abs(wanted).max()  # some tokens may take other experts
    xllamacpp = pytest.importorskip("xllamacpp")
    options = xllamacpp.CommonParams()
    options.model.path, options.n_ctx, options.cpuparams.n_threads = str(tmp_path / "m.gguf"), 128, 1
    options.warmup = False
    answer = xllamacpp.Server(options).handle_completions(
        {"prompt": "the cat sat in", "n_predict": 1, "temperature": 0, "n_probs": 300}
    )
    answer = json.loads(answer) if isinstance(answer, str) else answer
    logits = net.logits(np.array(net.tokenizer.encode("the cat sat in")), activations="int8-g32-f16")[-1]
    wanted = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    said = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    spread = max(wanted) - min(wanted)
    assert max(abs(wanted[one["id"]] - one["logprob"]) for one in said) < 0.05 * spread  # it rounds activations


def test_scales_that_llama_cpp_does_not_read_are_refused(tmp_path: Path) -> None:
    """It gives NaN, or other logits: the feed-forward part of most architectures has no factor of NVFP4."""
    pytest.importorskip("gguf")
    with_two_formats(tmp_path / "in", "qwen2")
    with pytest.raises(ValueError, match="does not read the scale of nvfp4 in the feed-forward part of qwen2"):
        hc.convert_checkpoint(tmp_path / "in", tmp_path / "m.gguf", "gguf", lossy="q8_0")
    dequantize_checkpoint(tmp_path / "in", tmp_path / "plain")
    summary = quantize_checkpoint(tmp_path / "plain", tmp_path / "m.gguf", "q8_0", layout="gguf")
    assert summary["architecture"] == "qwen2"


@pytest.mark.parametrize("kind", ["iq2_xxs", "iq3_xxs"])
def test_lattices_of_a_model_run_in_llama_cpp(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.Qwen3MoeConfig(
        vocab_size=len(made.vocabulary()), hidden_size=256, moe_intermediate_size=256, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, head_dim=64, num_experts=2, num_experts_per_tok=1,
        norm_topk_prob=True, max_position_embeddings=128, bos_token_id=0, eos_token_id=1, intermediate_size=256,
    )  # fmt: skip
    torch.manual_seed(0)
    made.write_folder(tmp_path / "in")
    (tmp_path / "in/model.safetensors").unlink()
    transformers.Qwen3MoeForCausalLM(config).save_pretrained(tmp_path / "in")
    importance = {"blk.0.ffn_down_exps.weight": RNG.random((2, 256)), "blk.0.attn_q.weight": RNG.random(256)}
    types = {"token_embd*": "q8_0", "output.weight": "q8_0", "*": kind}
    chosen = hc.save_gguf(tmp_path / "m.gguf", tmp_path / "in", types=types, importance=importance)
    assert chosen["blk.0.ffn_down_exps.weight"] == kind and chosen["blk.0.ffn_gate_inp.weight"] == "f32"
    again = hc.save_gguf(tmp_path / "n.gguf", tmp_path / "m.gguf", types=dict.fromkeys(chosen, "f16"))
    assert again["blk.0.attn_q.weight"] == "f16"
    net = hc.zoo.open_llm(tmp_path / "m.gguf")
    assert np.abs(net.logits(IDS) - hc.zoo.open_llm(tmp_path / "n.gguf").logits(IDS)).max() < 1e-2
    xllamacpp = pytest.importorskip("xllamacpp")
    options = xllamacpp.CommonParams()
    options.model.path, options.n_ctx, options.cpuparams.n_threads = str(tmp_path / "m.gguf"), 128, 1
    options.warmup = False
    answer = xllamacpp.Server(options).handle_completions(
        {"prompt": "the cat sat in", "n_predict": 1, "temperature": 0, "n_probs": 300}
    )
    answer = json.loads(answer) if isinstance(answer, str) else answer
    logits = net.logits(np.array(net.tokenizer.encode("the cat sat in")))[-1]
    wanted = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    said = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    apart = [abs(wanted[one["id"]] - one["logprob"]) for one in said]
    assert np.median(apart) < 0.05 * wanted.std()  # it rounds activations
