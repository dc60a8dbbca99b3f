"""Encoders give the states of transformers, and embeddings by the pooling that their folders name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import isas, run, same_bits

import heterocompute as hc
from heterocompute.families.table import ENCODER_KINDS
from heterocompute.files.checkpoint import dequantize_checkpoint
from heterocompute.files.layouts.gguf.llama_cpp import model_in
from heterocompute.files.opening import reader_of
from heterocompute.hardware.network.language import decoder_of_config

# Families that run: the class of transformers without its ending, and options of a small model.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", {}),
    "roberta": ("Roberta", {"pad_token_id": 1}),
    "xlm-roberta": ("XLMRoberta", {"pad_token_id": 1, "type_vocab_size": 1}),
    "modernbert": ("ModernBert", {"local_attention": 8}),
    "nomic_bert": ("NomicBert", {}),
}
MORE = {
    "bert with relu": ("Bert", {"hidden_act": "relu"}),
    "modernbert with biases": ("ModernBert", {"local_attention": 20, "attention_bias": True, "mlp_bias": True,
                                              "global_attn_every_n_layers": 2}),
    "nomic_bert with heads of another width": ("NomicBert", {"head_dim": 8}),
}  # fmt: skip
IDS = np.random.default_rng(0).integers(3, 128, (2, 50))


def extra_of(name: str) -> dict[str, bool]:
    return {} if name == "ModernBert" else {"add_pooling_layer": False}


def made_encoder(path: Path, family: str, **more: Any) -> Any:
    """Write a small encoder with drawn weights, and return the model of transformers."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    name, options = {**FAMILIES, **MORE}[family]
    config = getattr(transformers, f"{name}Config")(**{
        "vocab_size": 128, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 4,
        "num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0, **options, **more,
    })  # fmt: skip
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}Model")(config, **extra_of(name)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(path)
    return model


@pytest.mark.parametrize("family", [*FAMILIES, *MORE])
def test_states_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    model = made_encoder(tmp_path, family)
    import torch

    ids = IDS.copy()
    ids[1, 20:24] = 1  # padding of RoBERTa, which is not counted
    with torch.no_grad():
        wanted = model(torch.tensor(ids)).last_hidden_state.numpy()
    net = hc.zoo.open_encoder(tmp_path)
    found = net.states(ids)
    assert np.abs(found - wanted).max() <= 40 * np.finfo(np.float32).eps * np.abs(wanted).max()
    short = np.stack([net.states(row[:5]) for row in ids])
    with torch.no_grad():
        wanted = model(torch.tensor(ids[:, :5])).last_hidden_state.numpy()
    assert np.abs(short - wanted).max() <= 40 * np.finfo(np.float32).eps * np.abs(wanted).max()


@pytest.mark.parametrize("family", [*FAMILIES, *MORE])
def test_parameters_are_those_of_transformers(family: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    name, options = {**FAMILIES, **MORE}[family]
    config = getattr(transformers, f"{name}Config")(**{"num_hidden_layers": 4, "pad_token_id": 0, **options})
    with torch.device("meta"):
        model = getattr(transformers, f"{name}Model")(config, **extra_of(name))
    network = decoder_of_config("config.json", json.loads(config.to_json_string()), family).network()
    assert network.params == sum(one.numel() for one in model.parameters())


def test_every_family_of_encoders_has_a_small_model() -> None:
    assert {*ENCODER_KINDS} == {*FAMILIES}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("encoder")
    made_encoder(path, "bert")
    return hc.zoo.open_encoder(path)


def pool(path: Path, modes: dict[str, Any], *modules: str) -> None:
    """Write the files of sentence-transformers."""
    (path / "1_Pooling").mkdir(exist_ok=True)
    (path / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), *((f"2_{one}", one) for one in modules)]
    listed = [{"idx": i, "name": str(i), "path": at, "type": f"sentence_transformers.models.{kind}"}
              for i, (at, kind) in enumerate(kinds)]  # fmt: skip
    (path / "modules.json").write_text(json.dumps(listed))


def test_pooling_is_that_of_the_folder(net: Any, tmp_path: Path) -> None:
    made_encoder(tmp_path, "bert")
    x = net.states(IDS[0]).astype(np.float64)
    at = np.arange(1, 51)[:, None]
    wanted = {
        "cls": x[0], "max": x.max(0), "mean": x.mean(0), "mean_sqrt": x.sum(0) / 50**0.5,
        "weighted_mean": (x * at).sum(0) / at.sum(), "last": x[-1],
    }  # fmt: skip
    for kind, values in wanted.items():
        assert np.abs(net.embed(IDS[0], kind) - values).max() < 1e-5 * np.abs(values).max()
    assert same_bits(net.embed(IDS[0]), net.embed(IDS[0], "mean", False))
    pool(tmp_path, {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "Normalize")
    other = hc.zoo.open_encoder(tmp_path)
    assert other.pooling == ("cls", "mean") and other.normalizes and "cls+mean, normalized" in repr(other)
    assert repr(hc.open(tmp_path)) == repr(other)
    both = np.concatenate([wanted["cls"], wanted["mean"]])
    assert np.abs(other.embed(IDS[0]) - both / np.sqrt((both**2).sum())).max() < 1e-6
    pool(tmp_path, {"pooling_mode": "lasttoken"})
    assert hc.zoo.open_encoder(tmp_path).pooling == ("last",)
    for modes, modules, match in (({}, (), "no pooling_mode is true"), ({"pooling_mode": "x"}, (), "one of cls"),
                                  ({"pooling_mode": "mean"}, ("Dense",), "a module 'Dense'")):  # fmt: skip
        pool(tmp_path, modes, *modules)
        with pytest.raises(ValueError, match=match):
            hc.zoo.open_encoder(tmp_path)


def test_a_text_has_its_embedding_in_any_list(net: Any) -> None:
    several = [IDS[0, :7], IDS[1].tolist(), [5]]
    found = net.embed(several, activations="int8")
    assert found.shape == (3, 48) and found.dtype == np.float32
    for row, ids in zip(found, several, strict=True):
        assert same_bits(row, net.embed(ids, activations="int8"))
    assert net.embed(IDS).shape == (2, 48) and net.embed(IDS[:1].tolist()).shape == (1, 48)
    packed = net.quantized("vsq4-g16-s4")
    wanted = net.embed(several, weights=packed, activations="int8")
    for isa in isas():
        for threads in (1, 2):
            with hc.use(isa=isa, threads=threads):
                assert same_bits(net.embed(several, weights=packed, activations="int8"), wanted)


def test_a_study_is_by_cosines(net: Any) -> None:
    texts = [IDS[0, :9], IDS[1, :20], IDS[0, 30:]]
    table = hc.study(net, ["int8", "int3"], text=texts, activations=["int8"]).table
    assert [(row["format"], row["activations"]) for row in table[:3]] == [
        ("fp32", None),
        ("fp32", "int8"),
        ("int8", None),
    ]
    assert table[0]["cosine"] == pytest.approx(1) and table[0]["rank_correlation"] == pytest.approx(1)
    assert table[0]["cosine"] > table[2]["cosine"] > table[4]["cosine"] >= table[4]["worst_cosine"]
    a, b = (net.embed(texts, normalize=True, weights=w) for w in (None, net.quantized("int3")))
    assert table[4]["cosine"] == pytest.approx(float((a * b).sum(1).mean()), abs=1e-6)
    for options, match in (({}, "text is None"), ({"text": texts, "kv_cache": "int8"}, "kv_cache does not apply")):
        with pytest.raises(ValueError, match=match):
            hc.study(net, ["int8"], **options)


def test_a_folder_of_texts_by_commands(tmp_path: Path, capsys: Any) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    made_encoder(tmp_path, "bert")
    words = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "cat": 4, "##s": 5, "dog": 6}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    made.save(str(tmp_path / "tokenizer.json"))
    net = hc.zoo.open_encoder(tmp_path)
    assert same_bits(net.embed(["a cats", "dog"]), net.embed([[1, 3, 4, 5, 2], [1, 6, 2]]))
    assert same_bits(net.states("dog"), net.states([1, 6, 2]))
    (tmp_path / "t.txt").write_text("a cats\n\ndog\n")
    code, text, _ = run(capsys, "study", str(tmp_path), "--text", str(tmp_path / "t.txt"), "--formats", "int8,int4")
    assert code == 0 and "cosine" in text


def test_wrong_arguments_are_said(net: Any, tmp_path: Path) -> None:
    for call, match in (
        (lambda: net.embed([]), "texts is empty"),
        (lambda: net.embed(IDS[0], "sum"), "pooling is 'sum', expected one of cls"),
        (lambda: net.embed([[1, 999]]), "token 999 is out of range"),
        (lambda: net.embed(np.ones(65, int)), "65 tokens are more than the context of 64"),
        (lambda: hc.zoo.open_llm(net.path), "an encoder: open it by heterocompute.zoo.open_encoder"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=match):
            call()
    made_encoder(tmp_path, "bert")
    config = json.loads((tmp_path / "config.json").read_text())
    for change, match in (({"is_decoder": True}, "is_decoder is true"), ({"position_embedding_type": "relative_key"},
                          "position_embedding_type is 'relative_key'"), ({"mystery": 1}, "mystery is 1")):  # fmt: skip
        (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(ValueError, match=match):
            hc.zoo.open_encoder(tmp_path)


def test_early_names_of_norms_and_heads_of_tasks(net: Any, tmp_path: Path) -> None:
    made_encoder(tmp_path, "bert")
    renamed = {
        "bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): w
        for name, w in ((name, np.asarray(net.weights[name])) for name in net.weights)
    }
    renamed |= {"cls.predictions.bias": np.ones(128, np.float32), "bert.pooler.dense.bias": np.ones(48, np.float32)}
    hc.save(tmp_path / "model.safetensors", renamed)
    assert same_bits(hc.zoo.open_encoder(tmp_path).embed(IDS), net.embed(IDS))


MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PARTS = ["the", "The", "cats", "dog!", "caf\u00e9", "\u4e2d\u6587", "  ", "\n", "12", "a-b", "\u017f", "e\u0301",
         "x" * 20, "don't", "[MASK]", "\u00a0", "\u00df", "\u200d"]  # fmt: skip


def with_words(path: Path, family: str = "bert", **more: Any) -> list[str]:
    """Write an encoder with a small vocabulary, and return drawn texts."""
    tokenizers = pytest.importorskip("tokenizers")
    made_encoder(path, family, **more)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = [*MARKS, *letters, *(f"##{one}" for one in letters), *".,!?-'", "the", "cat", "dog", "##at", "\u4e2d"]
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.add_special_tokens(MARKS)
    made.save(str(path / "tokenizer.json"))
    rng = np.random.default_rng(3)
    texts = [
        "".join(PARTS[i] + " " * int(rng.random() < 0.6) for i in rng.integers(0, len(PARTS), 5)) for _ in range(80)
    ]
    return [text for text in texts if len(made.encode(text).ids) < 60]


def with_bytes(path: Path, family: str, **more: Any) -> list[str]:
    """Write an encoder with byte-level BPE, and return drawn texts."""
    tokenizers = pytest.importorskip("tokenizers")
    names = ["[CLS]", "[PAD]", "[SEP]", "[UNK]"] if family == "modernbert" else ["<s>", "<pad>", "</s>", "<unk>"]
    mask = "[MASK]" if family == "modernbert" else "<mask>"
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=names, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator(PARTS * 3, trainer)
    made.add_special_tokens([tokenizers.AddedToken(mask, lstrip=True, normalized=False)])
    count = made.get_vocab_size()
    first, last = names[0], names[2]
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single=[first, "$A", last], special_tokens=[(first, 0), (last, 2)]
    )
    made_encoder(path, family, vocab_size=count, bos_token_id=0, pad_token_id=1, eos_token_id=2, **more)
    made.save(str(path / "tokenizer.json"))
    rng = np.random.default_rng(4)
    texts = ["".join(PARTS[i] + " " * int(rng.random() < 0.6) for i in rng.integers(0, len(PARTS), 5))
             for _ in range(80)]  # fmt: skip
    return [text for text in texts if len(made.encode(text).ids) < 60 and not re.search(r"\s" + re.escape(mask), text)]


@pytest.mark.parametrize("family", ["roberta", "modernbert"])
def test_encoders_of_bytes_are_gguf_files(family: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    texts = with_bytes(tmp_path / "in", family)
    summary = hc.quantize_checkpoint(tmp_path / "in", tmp_path / "m.gguf", "q8_0", exclude="*", layout="gguf")
    assert summary["architecture"] == {"roberta": "bert", "modernbert": "modern-bert"}[family], summary
    notes = " ".join(summary["notes"])
    assert "tanh form of gelu" in notes
    assert "white space before" in notes and ("padding token" in notes) == (family == "roberta")
    net, plain = hc.zoo.open_encoder(tmp_path / "m.gguf"), hc.zoo.open_encoder(tmp_path / "in")
    assert [net.tokenizer.encode(text) for text in texts] == [plain.tokenizer.encode(text) for text in texts]
    assert net.shape.windows == plain.shape.windows and net.shape.context == plain.shape.context
    assert same_bits(net.embed(texts[:9]), plain.embed(texts[:9]))


@pytest.mark.parametrize(
    ("family", "more", "words"),
    [
        ("modernbert", {"attention_bias": True}, "modern-bert has no tensor blk.0.attn_qkv.bias"),
        ("modernbert", {"layer_types": ["sliding_attention"] * 2 + ["full_attention"] * 2}, "no list of layers"),
    ],
)
def test_encoders_that_llama_cpp_does_not_have(family: str, more: dict[str, Any], words: str, tmp_path: Path) -> None:
    with_bytes(tmp_path / "in", family, **more)
    with pytest.raises(ValueError, match=words):
        model_in(reader_of(str(tmp_path / "in")))


def test_bert_is_a_gguf_file(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("gguf")
    texts = with_words(tmp_path / "in")
    summary = hc.quantize_checkpoint(tmp_path / "in", tmp_path / "m.gguf", "q8_0", exclude="*", layout="gguf")
    assert summary["architecture"] == "bert" and "tanh form of gelu" in summary["notes"][0]
    net, plain = hc.zoo.open_encoder(tmp_path / "m.gguf"), hc.zoo.open_encoder(tmp_path / "in")
    assert [net.tokenizer.encode(text) for text in texts] == [plain.tokenizer.encode(text) for text in texts]
    assert same_bits(net.embed(texts[:4]), plain.embed(texts[:4]))
    assert net.tokenizer.special == plain.tokenizer.special and net.tokenizer.decode([2, 5, 42, 3]) == "ab"
    (tmp_path / "t.txt").write_text("the cats\ndog\n")
    for command in (("count",), ("study", "--text", tmp_path / "t.txt", "--formats", "int8"), ("roofline", "h100-sxm")):
        code, text, _ = run(capsys, command[0], tmp_path / "m.gguf", *command[1:])
        assert code == 0 and text, command
    with pytest.raises(
        ValueError, match="general.architecture is 'bert', an encoder: open it by heterocompute.zoo.open"
    ):
        hc.zoo.open_llm(tmp_path / "m.gguf")
    (tmp_path / "in/modules.json").write_text(json.dumps([{"type": "a.Pooling", "path": "1_Pooling"}]))
    (tmp_path / "in/1_Pooling").mkdir()
    for mode, architecture in (("cls", "bert"), ("max", None)):
        (tmp_path / "in/1_Pooling/config.json").write_text(json.dumps({"pooling_mode": mode}))
        summary = hc.quantize_checkpoint(tmp_path / "in", tmp_path / "p.gguf", "q8_0", exclude="*", layout="gguf")
        assert summary["architecture"] == architecture
        assert architecture is None or hc.zoo.open_encoder(tmp_path / "p.gguf").pooling == (mode,)
    made_encoder(tmp_path / "other", "roberta")  # without a tokenizer
    summary = hc.quantize_checkpoint(tmp_path / "other", tmp_path / "n.gguf", "q8_0", exclude="*", layout="gguf")
    assert summary["architecture"] is None


def with_text(path: Path, family: str, **more: Any) -> list[str]:
    return (with_words if family in ("bert", "nomic_bert") else with_bytes)(path, family, **more)


@pytest.mark.parametrize("family", ["bert", "nomic_bert", "roberta", "modernbert"])
def test_transformers_opens_a_folder_that_was_gguf(family: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    texts = with_text(tmp_path / "in", family, hidden_size=64, intermediate_size=96)
    hc.quantize_checkpoint(tmp_path / "in", tmp_path / "m.gguf", "q8_0", layout="gguf")
    summary = hc.convert_checkpoint(tmp_path / "m.gguf", tmp_path / "out", "compressed-tensors")
    assert summary["unloadable"] is None
    dequantize_checkpoint(tmp_path / "out", tmp_path / "plain")
    model = transformers.AutoModel.from_pretrained(tmp_path / "plain", attn_implementation="eager").eval()
    assert "tokenizer" not in summary
    tokens = hc.zoo.open_encoder(tmp_path / "m.gguf").tokenizer
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "plain")
    assert [words(one)["input_ids"] for one in texts] == [tokens.encode(one) for one in texts]
    with torch.no_grad():
        found = model(torch.tensor(IDS)).last_hidden_state.numpy()
    wanted = hc.zoo.open_encoder(tmp_path / "m.gguf").states(IDS)
    assert np.abs(found - wanted).max() <= 40 * np.finfo(np.float32).eps * np.abs(wanted).max()


@pytest.mark.parametrize("family", ["bert", "nomic_bert", "roberta", "modernbert"])
def test_llama_cpp_embeds_the_same(family: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    xllamacpp = pytest.importorskip("xllamacpp")
    texts = with_text(tmp_path / "in", family)[:12]
    hc.quantize_checkpoint(tmp_path / "in", tmp_path / "m.gguf", "q8_0", exclude="*", layout="gguf")
    net, options = hc.zoo.open_encoder(tmp_path / "m.gguf"), xllamacpp.CommonParams()
    options.model.path, options.n_ctx, options.cpuparams.n_threads = str(tmp_path / "m.gguf"), 64, 1
    options.warmup, options.embedding = False, True
    server = xllamacpp.Server(options)
    for text in texts:
        answer = server.handle_embeddings({"input": text})
        answer = json.loads(answer) if isinstance(answer, str) else answer
        assert answer["usage"]["prompt_tokens"] == len(net.tokenizer.encode(text))
        found, wanted = np.array(answer["data"][0]["embedding"]), net.embed(text, normalize=True)
        assert found @ wanted / np.linalg.norm(found) > 1 - 1e-5
