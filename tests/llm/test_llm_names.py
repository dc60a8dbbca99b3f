"""GGUF under the names of Hugging Face and back: tensors, order of rows, config.json."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import made
import numpy as np
import pytest
from common import run
from test_llm_llama_cpp import FAMILIES, MIXTURES, folder_of

import heterocompute as hc
from heterocompute.files.checkpoint import dequantize_checkpoint, quantize_checkpoint
from heterocompute.files.convert import convert_checkpoint
from heterocompute.files.layouts.gguf.tokenizer_json import tokenizer_files
from heterocompute.zoo.llm.gguf_tokens import of_gguf

pytest.importorskip("gguf")


def plain_of(path: Path) -> Path:
    dequantize_checkpoint(path, path.parent / "plain")
    return path.parent / "plain"


def copy_tokenizer(folder: Path, out: Path) -> None:
    for path in folder.glob("*token*.json"):
        shutil.copy(path, out)


def test_a_gguf_file_gets_names_rows_and_a_configuration(tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", "q8_0")
    summary = convert_checkpoint(path, tmp_path / "out", "compressed-tensors")
    assert {row["name"] for row in summary["tensors"]} == set(made.weights())
    assert {row["status"] for row in summary["tensors"]} == {"closed form", "copied"}
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    wanted = {
        key: made.CONFIG[key] for key in ("hidden_size", "num_hidden_layers", "num_key_value_heads", "model_type")
    }
    assert {key: config[key] for key in wanted} == wanted
    assert config["quantization_config"]["quant_method"] == "compressed-tensors"
    found = hc.open_checkpoint(plain_of(tmp_path / "out"))
    for name, w in made.weights().items():
        values = w if w.ndim == 1 else hc.fake_quantize(w, "q8_0")
        assert np.array_equal(found[name], values), name
    ids = np.arange(2, 22)[None]
    logits, wanted = hc.zoo.open_llm(tmp_path / "plain").logits(ids), hc.zoo.open_llm(path).logits(ids)
    assert np.abs(logits - wanted).max() <= 40 * np.finfo(np.float32).eps * np.abs(wanted).max()


def test_a_folder_gets_the_names_of_llama_cpp_again(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    folder = made.write_folder(tmp_path / "in")
    quantize_checkpoint(folder, tmp_path / "m.gguf", "q8_0", layout="gguf")
    convert_checkpoint(tmp_path / "m.gguf", tmp_path / "out", "compressed-tensors")
    copy_tokenizer(folder, tmp_path / "out")
    convert_checkpoint(tmp_path / "out", tmp_path / "back.gguf", "gguf")
    with hc.open_checkpoint(tmp_path / "m.gguf") as first, hc.open_checkpoint(tmp_path / "back.gguf") as second:
        assert set(first) == set(second)
        assert all(first[name].tobytes() == second[name].tobytes() for name in first)
        assert all(value == second.metadata[key] or key == "general.name" for key, value in first.metadata.items())


def test_without_a_known_family_names_stay(tmp_path: Path) -> None:
    keys = {"general.architecture": "mamba"}
    path = made.write_gguf(tmp_path / "m.gguf", "q8_0", keys)
    summary = convert_checkpoint(path, tmp_path / "out", "compressed-tensors")
    assert "blk.0.attn_q.weight" in {row["name"] for row in summary["tensors"]}
    for i, name in enumerate(("strange.weight", "foo", "blk.0.attn_k_b.weight", "blk.9.attn_k_b.weight", "blk.0")):
        strange: Any = {name.replace(".", "__"): np.ones((2, 32), np.float32)}
        path = made.write_gguf(tmp_path / f"{i}.gguf", "q8_0", **strange)
        summary = convert_checkpoint(path, tmp_path / f"more{i}", "compressed-tensors", lossy="f32")
        assert summary["unloadable"] == f"the tensor '{name}' has no name there"
        assert "blk.0.attn_q.weight" in {row["name"] for row in summary["tensors"]}


EXPERTS = [name for name in MIXTURES if name != "gpt_oss"]  # another layout


@pytest.mark.sweep(every=5)
@pytest.mark.parametrize("family", (*FAMILIES, *EXPERTS))
def test_transformers_loads_what_was_gguf(family: str, tmp_path: Path) -> None:
    """The logits are those of the GGUF file, and a file written from the folder has the same tensors."""
    folder, _ = folder_of(tmp_path / "in", family)
    import torch
    import transformers

    path = tmp_path / "m.gguf"
    quantize_checkpoint(folder, path, "q8_0", layout="gguf")
    convert_checkpoint(path, tmp_path / "out", "compressed-tensors")
    options: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "eager"}
    model = transformers.AutoModelForCausalLM.from_pretrained(plain_of(tmp_path / "out"), **options).eval()
    ids = np.random.default_rng(0).integers(0, 90, (2, 40))
    with torch.no_grad():
        found = model(torch.tensor(ids)).logits.numpy()
    wanted = hc.zoo.open_llm(path).logits(ids)
    assert np.abs(found - wanted).max() <= 40 * np.finfo(np.float32).eps * max(np.abs(wanted).max(), 1.0)
    copy_tokenizer(folder, tmp_path / "out")
    convert_checkpoint(tmp_path / "out", tmp_path / "back.gguf", "gguf")
    first, second = hc.open_checkpoint(path), hc.open_checkpoint(tmp_path / "back.gguf")
    assert set(first) == set(second) and all(first[one].tobytes() == second[one].tobytes() for one in first)


def test_gate_and_up_of_gpt_oss_alternate_again(tmp_path: Path) -> None:
    folder, _ = folder_of(tmp_path / "in", "gpt_oss")
    import torch
    import transformers

    path = tmp_path / "m.gguf"
    quantize_checkpoint(folder, path, "mxfp4", layout="gguf", include="*experts*")
    summary = convert_checkpoint(path, tmp_path / "out", "gpt-oss")
    assert {row["to"] for row in summary["tensors"] if "experts" in row["name"] and "bias" not in row["name"]} == {
        "mxfp4"
    }
    options: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "eager"}
    model = transformers.AutoModelForCausalLM.from_pretrained(plain_of(tmp_path / "out"), **options).eval()
    ids = np.random.default_rng(0).integers(0, 90, (2, 40))
    with torch.no_grad():
        found = model(torch.tensor(ids)).logits.numpy()
    wanted = hc.zoo.open_llm(path).logits(ids)
    assert np.abs(found - wanted).max() <= 40 * np.finfo(np.float32).eps * max(np.abs(wanted).max(), 1.0)
    copy_tokenizer(folder, tmp_path / "out")
    convert_checkpoint(tmp_path / "out", tmp_path / "back.gguf", "gguf")
    first, second = hc.open_checkpoint(path), hc.open_checkpoint(tmp_path / "back.gguf")
    assert set(first) == set(second) and all(first[one].tobytes() == second[one].tobytes() for one in first)


def test_latents_of_early_files_are_one_matrix(tmp_path: Path) -> None:
    """llama.cpp wrote attn_kv_b, and heads of keys without latents, before April 2025."""
    folder, _ = folder_of(tmp_path / "in", "deepseek_v3")
    quantize_checkpoint(folder, tmp_path / "m.gguf", "q8_0", exclude="*", layout="gguf")
    with hc.open_checkpoint(tmp_path / "m.gguf") as found:
        tensors, keys = {name: np.asarray(w) for name, w in found.items()}, dict(found.metadata)
    for i in range(2):
        k, v = (tensors.pop(f"blk.{i}.attn_{one}_b.weight") for one in "kv")
        both = np.concatenate([k.swapaxes(1, 2), v], axis=1)
        tensors[f"blk.{i}.attn_kv_b.weight"] = both.reshape(-1, both.shape[-1])
    at = "deepseek2.attention"
    numbers = {key: float(value) if "." in value or "e" in value else int(value) for key, value in keys.items()
               if key.startswith("deepseek2.") and value not in ("True", "False")}  # fmt: skip
    numbers |= {f"{at}.key_length": numbers.pop(f"{at}.key_length_mla"),
                f"{at}.value_length": numbers.pop(f"{at}.value_length_mla"), f"{at}.head_count_kv": 4}  # fmt: skip
    more = {"general.architecture": "deepseek2", "deepseek2.expert_weights_norm": True}
    hc.save_gguf(tmp_path / "early.gguf", tensors, {**numbers, **more}, {"*": "f32"})
    ids = np.arange(2, 40)
    wanted = hc.zoo.open_llm(tmp_path / "m.gguf").logits(ids)
    assert np.array_equal(hc.zoo.open_llm(tmp_path / "early.gguf").logits(ids), wanted)


def test_names_stay_where_no_configuration_describes_the_model(tmp_path: Path) -> None:
    """transformers scores groups of DeepSeek 2 by their best expert, llama.cpp by the best two."""
    folder, _ = folder_of(tmp_path / "in", "deepseek_v3")
    quantize_checkpoint(folder, tmp_path / "m.gguf", "q8_0", layout="gguf")
    with hc.open_checkpoint(tmp_path / "m.gguf") as found:
        tensors, keys = dict(found.items()), dict(found.metadata)
    numbers = {key: float(value) if "." in value or "e" in value else int(value) for key, value in keys.items()
               if key.startswith("deepseek2.") and value not in ("True", "False")}  # fmt: skip
    numbers["deepseek2.expert_gating_func"] = 1
    tensors = {name: w for name, w in tensors.items() if "exp_probs_b" not in name}
    hc.save_gguf(tmp_path / "other.gguf", tensors, {**numbers, "general.architecture": "deepseek2"})
    summary = convert_checkpoint(tmp_path / "other.gguf", tmp_path / "out", "compressed-tensors")
    assert "differ in routing" in summary["unloadable"]
    for flag in ("abc", -1, 2.5):
        wrong = {**numbers, "general.architecture": "deepseek2", "deepseek2.expert_weights_norm": flag}
        hc.save_gguf(tmp_path / "wrong.gguf", tensors, wrong)
        with pytest.raises(ValueError, match="deepseek2.expert_weights_norm is .*, expected a bool"):
            hc.zoo.open_llm(tmp_path / "wrong.gguf")
    assert "blk.0.attn_norm.weight" in {row["name"] for row in summary["tensors"]}


def test_a_folder_made_of_a_gguf_file_has_its_tokenizer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    texts = [*made.vocabulary(), "<|im_end|>", "<think>"]
    keys = {"tokenizer.ggml.tokens": texts, "tokenizer.ggml.token_type": [3, 3, *[1] * (len(texts) - 4), 3, 4],
            "tokenizer.ggml.add_bos_token": True, "tokenizer.chat_template": "{{ messages[0]['content'] }}!",
            "tokenizer.ggml.pre": "qwen2", "llama.vocab_size": len(texts)}  # fmt: skip
    table = np.resize(made.gguf_tensors()["token_embd.weight"], (len(texts), 64))
    path = made.write_gguf(tmp_path / "m.gguf", "q8_0", keys, token_embd__weight=table)
    summary = convert_checkpoint(path, tmp_path / "out", "compressed-tensors")
    assert "tokenizer" not in summary
    found, net = transformers.AutoTokenizer.from_pretrained(tmp_path / "out"), hc.zoo.open_llm(path)
    rng = np.random.default_rng(0)
    parts = ["the", " cat", "12", "\n", "  ", "caf\u00e9", "<|im_end|>", "<think>", "'s", "\u4e2d"]
    for _ in range(100):
        text = "".join(parts[i] for i in rng.integers(0, len(parts), 8))
        assert found.encode(text) == net.tokenizer.encode(text), text
        assert hc.zoo.open_llm(plain_or(tmp_path)).tokenizer.encode(text) == net.tokenizer.encode(text)
    assert found.bos_token == "<s>" and found.eos_token == "</s>"
    assert found.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "hi!"


@pytest.mark.parametrize("seed", range(6))
def test_pieces_of_a_gguf_file_become_a_tokenizer(seed: int, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    rng = np.random.default_rng(seed)
    letters = ["\u2581", *"abcd\u00e9"]
    pieces = list(dict.fromkeys("".join(rng.choice(letters, int(rng.integers(2, 5)))) for _ in range(30)))
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *letters, *pieces, "<|im_end|>", "<think>"]
    types = [2, 3, 3, *[6] * 256, *[1] * (len(letters) + len(pieces)), 3, 4]
    scores = [0.0] * 259 + rng.permutation(len(letters) + len(pieces)).astype(float).tolist() + [0.0, 0.0]
    keys = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": texts, "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.scores": scores, "tokenizer.ggml.pre": "default", "llama.vocab_size": len(texts),
            "tokenizer.ggml.add_space_prefix": seed % 2 == 0,
            "tokenizer.ggml.add_eos_token": seed % 3 == 0}  # fmt: skip
    table = np.resize(made.gguf_tensors()["token_embd.weight"], (len(texts), 64))
    drop = {"tokenizer__ggml__merges": None}
    path = made.write_gguf(tmp_path / "m.gguf", "q8_0", {**keys, **drop}, token_embd__weight=table)
    summary = convert_checkpoint(path, tmp_path / "out", "compressed-tensors")
    assert "tokenizer" not in summary, summary["tokenizer"]
    found, net = tokenizers.Tokenizer.from_file(str(tmp_path / "out/tokenizer.json")), hc.zoo.open_llm(path)
    parts = [*"abcd ", "  ", "\u00e9", "\u4e2d", "<|im_end|>", "<think>", "ab", "cad", "\n"]
    for _ in range(200):
        text = "".join(parts[i] for i in rng.integers(0, len(parts), 8))
        ids = found.encode(text).ids
        assert ids == net.tokenizer.encode(text), text
        assert found.decode(ids) == net.tokenizer.decode([i for i in ids if i > 2 and texts[i] != "<|im_end|>"])


def test_pieces_with_other_tokens_are_named(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *"abc", "ab", "bc"]
    keys = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": texts,
            "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * 5], "tokenizer.ggml.pre": "default",
            "tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.scores": [0.0] * len(texts),
            "llama.vocab_size": len(texts)}  # fmt: skip
    table = np.resize(made.gguf_tensors()["token_embd.weight"], (len(texts), 64))
    path = made.write_gguf(tmp_path / "m.gguf", "q8_0", keys, token_embd__weight=table)
    assert "tokenizer" not in convert_checkpoint(
        path, tmp_path / "out", "compressed-tensors"
    )  # the first piece is first
    keys |= {"tokenizer.ggml.tokens": [*texts[:-2], "bc", "ab"]}  # of equal scores the leftmost is first
    path = made.write_gguf(tmp_path / "n.gguf", "q8_0", keys, token_embd__weight=table)
    summary = convert_checkpoint(path, tmp_path / "other", "compressed-tensors")
    assert "its pieces 'bc' and 'ab' have the same score" in summary["tokenizer"]


@pytest.mark.parametrize(
    ("more", "types", "scores", "bos", "words"),
    [
        (["ab"], [5], [-1.0], None, None),  # an unused piece is joined
        (["\u2581x"], [4], [-1.0], None, None),  # and one that is found in texts, after spaces became marks
        (["bc", "ab"], [1, 1], [-1.0, -1.0], None, "its pieces 'bc' and 'ab' have the same score"),
        (["ab", "bc"], [1, 1], [-1.0, -1.0], None, None),
        (["az"], [1], [-1.0], None, "the character 'z' of 'az' is no token"),
        ([b"a\xff"], [1], [-1.0], None, "the character '.*' of '.*' is no token"),
        (["bb", "b\u2581"], [4, 4], [-1.0, -2.0], None, "overlap, which llama.cpp resolves otherwise"),
        ([b"\xff"], [1], [-1.0], None, "the package tokenizers does not make this vocabulary"),
        (["a:1"], [3], [0.0], -1, "the package tokenizers does not put tokens around texts"),
        (["$A"], [3], [0.0], -1, "the text '' has other tokens"),
    ],
)
def test_rare_pieces_of_a_long_vocabulary(
    more: list[Any], types: list[int], scores: list[float], bos: int | None, words: str | None
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    letters = [chr(0x4E00 + i) for i in range(200)]
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *"abc\u2581xy", *letters]
    texts += [a + b for a in letters for b in letters[:20] if a != b]  # nearly all texts that are compared
    kinds, values = [2, 3, 3, *[6] * 256, *[1] * (len(texts) - 259)], [*np.arange(len(texts)) * -1.0]
    listed = {"tokenizer.ggml.tokens": [one if isinstance(one, bytes) else one.encode() for one in [*texts, *more]],
              "tokenizer.ggml.token_type": np.array(kinds + types, np.int32),
              "tokenizer.ggml.scores": np.array(values + scores, np.float32)}  # fmt: skip
    count = len(texts) + len(more)
    keys = {"tokenizer.ggml.model": "llama"} | (
        {} if bos is None else {"tokenizer.ggml.bos_token_id": f"{count + bos}"}
    )
    reader: Any = SimpleNamespace(path="m.gguf", metadata=keys, listed=listed.get)
    if words is not None:
        with pytest.raises(ValueError, match=words):
            tokenizer_files(reader, count)
        return
    found = tokenizers.Tokenizer.from_str(tokenizer_files(reader, count)["tokenizer.json"])
    coder = of_gguf("m.gguf", keys, listed.get, count)
    for text in ("abc", "aabcc", "a x", " x", "ab ab"):
        assert found.encode(text).ids == coder.encode(text)


def plain_or(path: Path) -> Path:
    if not (path / "plain").exists():
        dequantize_checkpoint(path / "out", path / "plain")
    return path / "plain"


def test_a_vocabulary_without_a_tokenizer_is_named(tmp_path: Path, capsys: Any) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", "q8_0", {"tokenizer.ggml.pre": "unheard"})
    code, _, errors = run(capsys, "convert", path, tmp_path / "out", "--layout", "compressed-tensors")
    assert code == 0 and "copy tokenizer.json of the original model (tokenizer.ggml.pre is 'unheard'" in errors
    assert not (tmp_path / "out/tokenizer.json").exists() and (tmp_path / "out/config.json").exists()
