"""Texts become the tokens of the original tokenizers, and decode to the same text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.zoo.llm import words

TEXTS = [
    "the winter in a hat",
    "  two  spaces\n\nand lines\t",
    "12 + 345 = 357",
    "naïve Ångström — 東京 🙂",
    "",
    "<s>the</s>",
]


def test_a_folder_and_a_gguf_file_have_the_same_tokens(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    folder = hc.zoo.open_llm(made.write_folder(tmp_path / "m")).tokenizer
    gguf = hc.zoo.open_llm(made.write_gguf(tmp_path / "m.gguf")).tokenizer
    for text in TEXTS:
        ids = folder.encode(text)
        assert gguf.encode(text) == ids, text
        assert gguf.decode(ids) == folder.decode(ids) == text.replace("<s>", "").replace("</s>", "")
    assert folder.encode("the")[0] == len(made.vocabulary()) - len(made.MERGES) + 1
    assert folder.ends == gguf.ends == {1} and folder.begin is None


def test_a_folder_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (made.write_folder(tmp_path / "m") / "tokenizer.json").unlink()
    net = hc.zoo.open_llm(tmp_path / "m")
    with pytest.raises(ValueError, match=r"tokenizer.json: is missing, expected the tokenizer of the model"):
        net.generate("the", 1)
    assert net.generate([3, 4], 1).shape == (1,)


def test_the_control_token_that_ends_a_turn_ends_a_text(tmp_path: Path) -> None:
    """GGUF files of chat models name one end of text; llama.cpp also stops at the end of a turn."""
    pytest.importorskip("tokenizers")
    texts, ids = made.vocabulary(), np.arange(5, 15)
    plain = hc.zoo.open_llm(made.write_gguf(tmp_path / "plain.gguf"))
    token = int(plain.generate(ids, 1)[0])
    for kind, ends in ((3, {1, token}), (1, {1, token}), (4, {1, token})):  # llama.cpp goes by the text
        types = [3, 3] + [1] * (len(texts) - 2)
        types[token] = kind
        keys = {
            "tokenizer.ggml.tokens": [*texts[:token], "<end_of_turn>", *texts[token + 1 :]],
            "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.merges": ["t h"],
        }
        net = hc.zoo.open_llm(made.write_gguf(tmp_path / "turns.gguf", keys=keys))
        assert net.tokenizer.ends == ends and net.tokenizer.end == 1
        assert len(net.generate(ids, 3)) == (1 if token in ends else 3)
        assert net.generate([ids, ids[:4]], 3)[0].tolist() == [token, 1, 1] or token not in ends


def test_a_text_begins_with_the_token_that_the_model_wants(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    path = made.write_gguf(tmp_path / "m.gguf", keys={"tokenizer.ggml.add_bos_token": True})
    net = hc.zoo.open_llm(path)
    assert net.tokenizer.encode("a")[0] == 0 and net.tokenizer.encode("a", special=False)[0] != 0
    windows = list(net.windows(np.arange(2, 102), stride=20, window=41))
    assert all(tokens[0] == 0 and len(tokens) <= 41 for tokens, _ in windows)
    found = np.concatenate([tokens[first:] for tokens, first in windows])
    assert found.tolist() == list(range(2, 102))  # each is predicted once


def test_digits_are_words_of_their_own_where_the_rule_says_so(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    texts = [*made.vocabulary(), "12"]
    keys = {"tokenizer.ggml.tokens": texts, "tokenizer.ggml.token_type": [3, 3] + [1] * (len(texts) - 2)}
    keys |= {"tokenizer.ggml.merges": [*(" ".join(pair) for pair in made.MERGES), "1 2"]}
    table = np.ones((len(texts), 64), np.float32)
    for rule, count in (("gpt-2", 1), ("smollm", 2), ("qwen2", 2), ("llama-bpe", 1)):
        path = made.write_gguf(tmp_path / "m.gguf", keys={**keys, "tokenizer.ggml.pre": rule}, token_embd__weight=table)
        assert len(hc.zoo.open_llm(path).tokenizer.encode("12")) == count, rule


def test_pieces_with_scores_join_by_the_highest_score(tmp_path: Path) -> None:
    """SentencePiece: the pair whose join has the highest score merges first; unknown characters become bytes."""
    pytest.importorskip("tokenizers")
    space = "\u2581"
    pieces = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{b:02X}>" for b in range(256)),
        space,
        "a",
        "b",
        "c",
        "ab",
        "bc",
        f"{space}a",
        "abc",
    ]
    scores = [0.0] * 259 + [-10.0, -11.0, -12.0, -13.0, -3.0, -2.0, -4.0, -1.0]
    kinds = [2, 3, 3] + [6] * 256 + [1] * 8
    keys = {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": pieces, "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": None, "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_space_prefix": False, "llama.vocab_size": len(pieces),
    }  # fmt: skip
    table = np.ones((len(pieces), 64), np.float32)
    net = hc.zoo.open_llm(made.write_gguf(tmp_path / "m.gguf", keys=keys, token_embd__weight=table))
    named = {piece: i for i, piece in enumerate(pieces)}
    assert net.tokenizer.encode("abc") == [1, named["abc"]]  # b c first, then a bc
    assert net.tokenizer.encode("ab", special=False) == [named["ab"]]
    assert net.tokenizer.encode(" a", special=False) == [named[f"{space}a"]]
    assert net.tokenizer.encode("é", special=False) == [named["<0xC3>"], named["<0xA9>"]]
    for text in ("abc ab", "é 東", "a  b"):
        assert net.tokenizer.decode(net.tokenizer.encode(text)) == text
    prefixed = hc.zoo.open_llm(
        made.write_gguf(
            tmp_path / "p.gguf", keys={**keys, "tokenizer.ggml.add_space_prefix": True}, token_embd__weight=table
        )
    )
    assert prefixed.tokenizer.encode("a", special=False) == [named[f"{space}a"]]
    assert prefixed.tokenizer.decode(prefixed.tokenizer.encode("ab c")) == "ab c"


def test_without_the_package_tokens_still_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = hc.zoo.open_llm(made.write_folder(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install 'heterocompute\[llm\]'"):
        net.tokenizer.encode("a")
    assert net.generate([3, 4], 2).shape == (2,)


def test_rules_are_known_by_one_name() -> None:
    assert {"gpt-2", "smollm", "llama-bpe", "qwen2", "default"} <= set(words.RULES)


TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}


@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "LlamaTokenizerFast"])
@pytest.mark.parametrize(
    ("step", "begins"),
    [
        (TEMPLATE, True),
        ({"type": "Sequence", "processors": [BYTES, TEMPLATE]}, True),  # Llama 3
        (BYTES, False),
        (None, False),
        ({**TEMPLATE, "single": TEMPLATE["single"][1:], "special_tokens": {}}, False),
    ],
)
def test_the_template_of_a_folder_says_which_token_begins_a_text(
    step: Any, begins: bool, kind: str, tmp_path: Path
) -> None:
    pytest.importorskip("tokenizers")
    pytest.importorskip("gguf")
    folder = made.write_folder(tmp_path / "m")
    said = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**said, "post_processor": step}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind, "bos_token": "<s>"}))
    ids = hc.zoo.open_llm(folder).tokenizer.encode("the hat")
    assert (ids[0] == 0) == begins
    hc.quantize_checkpoint(folder, tmp_path / "m.gguf", "q8_0", layout="gguf")
    assert hc.zoo.open_llm(tmp_path / "m.gguf").tokenizer.encode("the hat") == ids
    try:
        from transformers import AutoTokenizer  # optional
    except ImportError:
        return
    assert AutoTokenizer.from_pretrained(str(folder))("the hat").input_ids == ids
