"""Invalid files and arguments are refused with one message, before large allocations."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute import _heterocompute as _core
from heterocompute.base import runtime
from heterocompute.base.errors import printable


def one_sentence(error: BaseException, path: Path) -> str:
    text = str(error)
    assert text.startswith(printable(str(path))) and "\n" not in text and len(text) < 400, text
    return text


KEYS = {
    "architecture": ({"general.architecture": "mamba"}, "general.architecture is 'mamba', expected one of llama"),
    "near architecture": ({"general.architecture": "qwen"}, "the nearest is qwen"),
    "no layers": ({"llama.block_count": None}, "the key 'llama.block_count' is missing"),
    "many layers": ({"llama.block_count": 2**31}, "expected a number from 1 to 4096"),
    "one layer more": ({"llama.block_count": 3}, "the tensor 'blk.2.attn_norm.weight' is missing"),
    "width": ({"llama.embedding_length": 32}, "RoPE rotates 16 of 8 values"),
    "no heads": ({"llama.attention.head_count": 0}, "expected a number from 1"),
    "heads that do not share": ({"llama.attention.head_count_kv": 3}, "4 heads share 3 heads of keys"),
    "text for a number": ({"llama.attention.head_count": "four"}, "is 'four', expected a number"),
    "half a layer": ({"llama.block_count": 1.5}, "expected an integer"),
    "context": ({"llama.context_length": 0}, "llama.context_length is '0'"),
    "hidden": ({"llama.feed_forward_length": 2**30}, "has shape (96, 64), expected (1073741824, 64)"),
    "RoPE of nothing": ({"llama.rope.freq_base": 0.0}, "llama.rope.freq_base is '0.0'"),
    "RoPE of NaN": ({"llama.rope.freq_base": float("nan")}, "llama.rope.freq_base is 'nan'"),
    "RoPE wider than a head": ({"llama.rope.dimension_count": 18}, "RoPE rotates 18 of 16 values"),
    "RoPE of odd width": ({"llama.rope.dimension_count": 7}, "RoPE rotates 7 of 16 values"),
    "scaling": ({"llama.rope.scaling.type": "dream"}, "llama.rope.scaling.type is 'dream'"),
    "epsilon": ({"llama.attention.layer_norm_rms_epsilon": -1.0}, "expected a number from 0 to 1"),
    "experts": ({"llama.expert_count": 4, "llama.expert_used_count": 9}, "expected a number from 1 to 4"),
}


@pytest.mark.parametrize("case", KEYS)
def test_keys_that_lie_are_refused(case: str, tmp_path: Path) -> None:
    keys, words = KEYS[case]
    path = made.write_gguf(tmp_path / "m.gguf", keys=keys)
    with pytest.raises(ValueError) as refused:
        hc.zoo.open_llm(path)
    assert words in one_sentence(refused.value, path)


TENSORS: dict[str, tuple[dict[str, Any], str]] = {
    "no embedding": ({"token_embd__weight": None}, "the tensor 'token_embd.weight' is missing: this is"),
    "a vector": ({"token_embd__weight": np.ones(64, np.float32)}, "expected (vocabulary, width)"),
    "no norm": ({"blk__1__ffn_norm__weight": None}, "the tensor 'blk.1.ffn_norm.weight' is missing"),
    "no keys": ({"blk__0__attn_k__weight": None}, "the tensor 'blk.0.attn_k.weight' is missing"),
    "a narrow product": ({"blk__0__ffn_up__weight": np.ones((95, 64), np.float32)}, "expected (96, 64)"),
    "factors": ({"rope_freqs__weight": np.zeros(8, np.float32)}, "does not hold 8 numbers above 0"),
    "output": ({"output__weight": np.ones((9, 64), np.float32)}, "expected (264, 64)"),
}  # fmt: skip


@pytest.mark.parametrize("case", TENSORS)
def test_tensors_that_do_not_fit_are_refused(case: str, tmp_path: Path) -> None:
    tensors, words = TENSORS[case]
    path = made.write_gguf(tmp_path / "m.gguf", **tensors)
    with pytest.raises(ValueError) as refused:
        hc.zoo.open_llm(path)
    assert words in one_sentence(refused.value, path)


def test_weights_that_are_integers_are_refused(tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", token_embd__weight=np.ones((264, 64), np.int32))
    with pytest.raises(ValueError) as refused:
        hc.zoo.open_llm(path).logits([3])
    assert "tensor 'token_embd.weight' is int32, expected float16" in one_sentence(refused.value, path)


def test_files_cut_anywhere_are_refused(tmp_path: Path) -> None:
    whole = made.write_gguf(tmp_path / "m.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    for size in [0, 3, 4, 20, 200, 2000, 6000, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError) as refused:
            hc.zoo.open_llm(path)
        one_sentence(refused.value, path)


def test_lists_of_absurd_length_are_refused(tmp_path: Path) -> None:
    whole = made.write_gguf(tmp_path / "m.gguf").read_bytes()
    at = whole.index(b"tokenizer.ggml.tokens") + len("tokenizer.ggml.tokens") + 8
    path = tmp_path / "list.gguf"
    for count in (2**22 + 1, 2**63, 2**21):
        path.write_bytes(whole[:at] + struct.pack("<Q", count) + whole[at + 8 :])
        with pytest.raises(ValueError) as refused:
            hc.zoo.open_llm(path)
        one_sentence(refused.value, path)


CONFIGS: dict[str, tuple[Any, str]] = {
    "a list": ([1], "not a JSON object"),
    "not JSON": (None, "config.json"),
    "family": ({**made.CONFIG, "model_type": "mamba"}, "model_type is 'mamba', expected one of llama"),
    "no family": ({k: v for k, v in made.CONFIG.items() if k != "model_type"}, "model_type is None"),
    "layers": ({**made.CONFIG, "num_hidden_layers": [2]}, "num_hidden_layers is [2], expected a number"),
    "scaling": ({**made.CONFIG, "rope_scaling": {"rope_type": "su"}}, "rope_type is 'su'"),
    "scaling without divisors": (
        {**made.CONFIG, "rope_scaling": {"rope_type": "longrope"}}, "short_factor is None, expected 8 numbers above 0",
    ),
    "scaling of half the pairs": (
        {**made.CONFIG, "original_max_position_embeddings": 64,
         "rope_scaling": {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.0] * 8}},
        "short_factor is [1.0, 1.0, 1.0, 1.0], expected 8 numbers above 0",
    ),
    "scaling by nothing": (
        {**made.CONFIG, "original_max_position_embeddings": 64,
         "rope_scaling": {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [0.0] * 8}},
        "expected 8 numbers above 0",
    ),
    "experts of other shares": (
        {**made.CONFIG, "model_type": "qwen3_moe", "num_experts": 8, "norm_topk_prob": "no"},
        "norm_topk_prob is",
    ),
    "more experts a token than there are": (
        {**made.CONFIG, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 5},
        "num_experts_per_tok is 5",
    ),
    "experts that are missing": (
        {**made.CONFIG, "model_type": "mixtral", "num_local_experts": 4}, "ffn_gate_inp.weight' is missing",
    ),
    "experts of a dense family": ({**made.CONFIG, "num_local_experts": 4}, "num_local_experts is 4, expected none in"),
    "scaling of text": ({**made.CONFIG, "rope_scaling": "yarn"}, "rope_scaling is 'yarn', expected an object"),
    "low above high": (
        {**made.CONFIG, "rope_scaling": {"rope_type": "llama3", "factor": 2, "low_freq_factor": 4,
                                         "high_freq_factor": 1}},
        "high_freq_factor is 1, expected more than low_freq_factor",
    ),
    "method": ({**made.CONFIG, "quantization_config": {"quant_method": "aqlm"}}, "quant_method is 'aqlm', which"),
}  # fmt: skip


@pytest.mark.parametrize("case", CONFIGS)
def test_configurations_that_are_wrong_are_refused(case: str, tmp_path: Path) -> None:
    config, words = CONFIGS[case]
    made.write_folder(tmp_path)
    (tmp_path / "config.json").write_text("{" if config is None else json.dumps(config))
    with pytest.raises(ValueError) as refused:
        hc.zoo.open_llm(tmp_path)
    assert words in one_sentence(refused.value, tmp_path)


def test_folders_of_other_families_name_their_family(tmp_path: Path) -> None:
    """Their tensors have other names, so the family is checked first."""
    hc.save(tmp_path / "model.safetensors", {"transformer.wte.weight": np.ones((9, 4), np.float32)})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mpt", "n_embed": 4}))
    with pytest.raises(ValueError, match="model_type is 'mpt', expected one of llama"):
        hc.zoo.open_llm(tmp_path)


def test_other_files_are_no_language_models(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        hc.zoo.open_llm(tmp_path / "none.gguf")
    with pytest.raises(OSError):
        hc.zoo.open_llm(tmp_path)  # a folder without config.json
    hc.save(tmp_path / "w.safetensors", {"w": np.ones((2, 2), np.float32)})
    with bad_argument(ValueError, None, "file", "GGUF"):
        hc.zoo.open_llm(tmp_path / "w.safetensors")
    with pytest.raises(TypeError):
        hc.zoo.open_llm(3)  # type: ignore[arg-type]


IDS = list(range(2, 12))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda net: net.logits([264]), ValueError, "logits: token 264 is out of range, expected 0 to 263"),
        (lambda net: net.logits([-1]), ValueError, "token -1 is out of range"),
        (lambda net: net.logits([]), ValueError, "logits has no tokens, expected at least 1"),
        (lambda net: net.logits([2**70]), ValueError, "token 1180591620717411303424 is out of range"),
        (lambda net: net.logits({3}), TypeError, "ids are set, expected integers"),
        (lambda net: net.logits([[[1]], [[1, 2]]]), ValueError, "sequences of different lengths"),
        (lambda net: net.logits([0.5]), TypeError, "ids are float64, expected integers"),
        (lambda net: net.logits(np.ones(129, int)), ValueError, "129 tokens are more than the context of 128"),
        (lambda net: net.generate(IDS, 119), ValueError, "the prompt of 10 tokens and tokens of 119 are more than"),
        (lambda net: net.generate(IDS, -1), ValueError, "tokens is -1"),
        (lambda net: net.generate(IDS, 1, temperature=-1), ValueError, "temperature is -1, expected 0 or more"),
        (lambda net: net.generate(IDS, 1, temperature=float("nan")), ValueError, "temperature is nan"),
        (lambda net: net.generate(IDS, 1, seed=-1), ValueError, "seed is -1"),
        (lambda net: net.logits(IDS, activations="int17"), ValueError, "int17"),
        (lambda net: net.logits(IDS, kv_cache="nvfp4"), ValueError, "whose rows share a scale"),
        (lambda net: net.logits(IDS, {"model.norm.weight": np.ones(3)}), ValueError, r"shape \(3,\), expected \(64,\)"),
        (lambda net: net.logits(IDS, {"model.norm.wait": np.ones(3)}), ValueError, "model.norm.wait', which is"),
        (lambda net: net.generate(IDS, 1, weights=3), TypeError, "weights is 3, expected a mapping"),
        (lambda net: net.logits(IDS, {"model.norm.weight": "int8"}), TypeError, "is 'int8', expected an array or"),
        (lambda net: net.judged(IDS, None), TypeError, "ways is None, expected a list of"),
        (lambda net: net.judged(IDS, ["int8"]), TypeError, r"ways\[0\] is 'int8', expected \(weights, activations"),
        (lambda net: net.judged(IDS, [(None,) * 5]), TypeError, r"ways\[0\] is \(None, None, None, None, None\)"),
        (lambda net: net.judged([5], [()]), ValueError, "judged: text has 1 token, expected at least 2"),
        (lambda net: hc.study(net, "int8", text=[5]), ValueError, "study: text has 1 token, expected at least 2"),
        (lambda net: net.generate(["a", [3]], 1), TypeError, "prompt has texts and tokens, expected one kind"),
        (lambda net: net.perplexity([5]), ValueError, "text has 1 token, expected at least 2"),
        (lambda net: net.perplexity(IDS, window=1), ValueError, "window is 1"),
        (lambda net: net.perplexity(IDS, window=8, stride=9), ValueError, "stride is 9, expected 1 to 8"),
        (lambda net: hc.study(net, "int8"), ValueError, "text is None, expected the text"),
        (lambda net: hc.study(net, "int8", text=IDS, retrain=True), ValueError, "retrain does not apply"),
        (lambda net: hc.study(net, "int8", text=IDS, include="nope*"), ValueError, "nope"),
        (lambda net: hc.study(net, "int8", text=IDS, kv_cache="int99"), ValueError, "int99"),
        (lambda net: hc.study(np.ones((2, 2)), "int8", text="a"), ValueError, "text is for a language model"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(call: Any, error: type[Exception], words: str, tmp_path: Path) -> None:
    net = hc.zoo.open_llm(made.write_folder(tmp_path))
    with pytest.raises(error, match=words):
        call(net)


def test_values_that_are_not_finite_are_said(tmp_path: Path) -> None:
    bad = {"blk__0__ffn_up__weight": np.full((96, 64), np.nan, np.float32)}
    net = hc.zoo.open_llm(made.write_gguf(tmp_path / "m.gguf", **bad))
    for call in (net.logits, net.generate, net.perplexity, lambda ids: net.generate([ids, ids[:3]])):
        with pytest.raises(ValueError, match=r"the logits hold NaN or infinity"):
            call(IDS)


def test_texts_that_are_none_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    net = hc.zoo.open_llm(made.write_folder(tmp_path / "m"))
    for call, error, words in (
        (lambda: net.perplexity(""), ValueError, "text has 0 tokens"),
        (lambda: net.generate(""), ValueError, "prompt has no tokens, expected at least 1"),
        (lambda: net.generate(["a", ""]), ValueError, r"prompt\[1\] has no tokens, expected at least 1"),
        (lambda: net.tokenizer.decode([264]), ValueError, "decode: token 264 is out of range, expected 0 to 263"),
        (lambda: net.tokenizer.decode([-1]), ValueError, "decode: token -1 is out of range, expected 0 to 263"),
        (lambda: net.tokenizer.decode([1.5]), TypeError, r"decode: ids is \[1.5\], expected a sequence of integers"),
        (lambda: net.tokenizer.decode("abc"), TypeError, "decode: ids is 'abc', expected a sequence of integers"),
        (lambda: net.tokenizer.encode("\ud800"), ValueError, "text has half a surrogate pair at index 0"),
        (lambda: net.tokenizer.encode(b"a"), TypeError, "text is b'a', expected a str"),
        (lambda: net.generate("a" * 200), ValueError, "more than the context"),
    ):
        with pytest.raises(error, match=words):
            call()
    (tmp_path / "m/tokenizer.json").write_text("{}")
    with bad_argument(ValueError, None, "file", "the package tokenizers does not read it"):
        hc.zoo.open_llm(tmp_path / "m").tokenizer.encode("a")
    (tmp_path / "m/tokenizer.json").unlink()
    os.mkfifo(tmp_path / "m/tokenizer.json")
    with pytest.raises(ValueError, match="tokenizer.json: is a FIFO, expected a regular file"):
        hc.zoo.open_llm(tmp_path / "m").tokenizer.encode("a")
    for keys, words in (
        ({"tokenizer.ggml.pre": "martian"}, "tokenizer.ggml.pre is 'martian', expected one of gpt-2"),
        ({"tokenizer.ggml.model": "t5"}, "tokenizer.ggml.scores is missing"),
        ({"tokenizer.ggml.model": "rwkv"}, "tokenizer.ggml.model is 'rwkv', expected gpt2, llama, bert or t5"),
        ({"tokenizer.ggml.merges": None}, "tokenizer.ggml.merges is missing"),
        ({"tokenizer.ggml.tokens": None}, "tokenizer.ggml.tokens is missing"),
        ({"tokenizer.ggml.model": "llama"}, "tokenizer.ggml.scores is missing"),
        ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": ["a"] * 264}, "scores holds no finite numbers"),
        ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [float("nan")] * 264}, "holds no finite numbers"),
    ):
        other = hc.zoo.open_llm(made.write_gguf(tmp_path / "t.gguf", keys=keys))
        other.logits([3])
        with pytest.raises(ValueError, match=words):
            other.tokenizer.encode("a")


def test_sizes_of_latents_whose_product_overflows_are_not_run() -> None:
    """The layer is left to the path step by step, which says what is wrong; nothing of that size is allocated."""
    heads, keys, plain = 1 << 20, 1 << 14, 1 << 30  # times each other: 0 modulo 2**64
    half, silu, norms = keys // 2 + 1, 3, (None,) * 8
    zero, none, one = np.float32(0), np.zeros(0, np.float32), np.ones((1, 1), np.float32)
    memory, x = np.zeros((1, 1, 1, half), np.float32), np.ones((1, 1, 1), np.float32)
    matrices = (None, *(np.broadcast_to(zero, (n, 1)) for n in (heads * (plain + 2), keys + 2)))
    latents = ((0, keys, plain, 2, plain), 1e-5, (None, np.ones(keys, np.float32)), matrices, (None,) * 3, (none,) * 2)
    weights = (*(None,) * 4, np.broadcast_to(zero, (1, heads * plain)), *(None,) * 4)
    sizes = (heads, 1, half, 1, 1, False, silu, False, False, 0, 0, 0, False)
    layer = (sizes, (1e-5, 1.0, 0.0, 1.0), norms, norms, weights, (None,) * 9, None, None, latents)
    found, done = _core.llm_layers(runtime.run(), None, x, [(*layer, None, one, one, None, memory, memory.copy(), 0)])
    assert done == 0 and found is x
