"""Encoders with a Unigram vocabulary, as XLM-RoBERTa: tokens from a folder, from GGUF, and of llama.cpp."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import same_bits
from test_encoders import made_encoder

import heterocompute as hc
from heterocompute.files.layouts.gguf.llama_cpp import model_in
from heterocompute.files.opening import reader_of
from heterocompute.zoo.llm.pieces import Charsmap, Unigram

REPLACED = {"\t": " ", "\n": " ", "\u3000": " ", "\u00a0": " ", "\u200b": " ", "\ufb01": "fi", "\u00bd": "1\u20442",
            "\uff21": "A", "\x07": "", "\u2581": " ", "e\u0301": "\u00e9", "\u2460": "1"}  # fmt: skip
ODD = [*REPLACED, "<mask>", "</s>", "  ", "\u4e2d\u6587", "\U0001f600", "\u00df", "1", "...", "x" * 9, "<s>", "\u00e9"]
MARKS = ["<s>", "<pad>", "</s>", "<unk>"]


def double_array(words: dict[bytes, int]) -> list[int]:
    """Return the units of a double array that maps words to numbers, as SentencePiece stores it."""
    units, taken, roots = {0: 0}, {0}, set[int]()

    def put(node: int, several: dict[bytes, int]) -> None:
        heads: dict[int, dict[bytes, int]] = {}
        for word, value in several.items():
            heads.setdefault(word[0] if word else 0, {})[word[1:]] = value
        base = next(b for b in range(1, 1 << 20) if b not in roots and not any(b ^ c in taken for c in heads))
        roots.add(base)
        taken.update(base ^ c for c in heads)
        ends = b"" in several
        units[node] |= (node ^ base) << 10 | ends << 8
        for c, inner in heads.items():
            if ends and c == 0:
                units[base] = 1 << 31 | several[b""]
            else:
                units[base ^ c] = c
                put(base ^ c, inner)

    put(0, words)
    return [units.get(i, 0) for i in range((max(units) | 255) + 1)]


def charsmap(replaced: dict[str, str] = REPLACED) -> bytes:
    """Return a precompiled_charsmap."""
    texts, places = b"", {}
    for text, other in replaced.items():
        places[text.encode()] = len(texts)
        texts += other.encode() + b"\0"
    array = np.array(double_array(places), "<u4").tobytes()
    return len(array).to_bytes(4, "little") + array + texts


def with_pieces(path: Path, kind: str = "words", **more: Any) -> list[str]:
    """Write an XLM-RoBERTa whose Unigram vocabulary was trained, and return 1,000 drawn texts."""
    tokenizers = pytest.importorskip("tokenizers")
    steps, pre, regex = tokenizers.normalizers, tokenizers.pre_tokenizers, tokenizers.Regex
    rng = np.random.default_rng(11)
    trained = tokenizers.Tokenizer(tokenizers.models.Unigram())
    trained.pre_tokenizer = pre.Metaspace()
    syllables = [a + b for a in "bcdfglmnrst" for b in ("a", "e", "i", "on", "er", "\u00e9")]
    words = ["".join(rng.choice(syllables, int(rng.integers(1, 5)))) for _ in range(400)]
    trainer = tokenizers.trainers.UnigramTrainer(vocab_size=300, special_tokens=MARKS, unk_token="<unk>")
    trained.train_from_iterator([" ".join(rng.choice(words, 9)) for _ in range(200)], trainer)
    listed = json.loads(trained.to_str())["model"]["vocab"]
    pieces = [(text, score) for text, score in listed if text not in (*MARKS, "fi", "1", "A")]
    made = tokenizers.Tokenizer(
        tokenizers.models.Unigram(
            [*((text, 0.0) for text in MARKS), *pieces, ("fi", -4.0), ("1", -9.0), ("A", -9.5), ("<mask>", 0.0)],
            unk_id=3, byte_fallback=False,
        )
    )  # fmt: skip
    made.add_special_tokens([*MARKS, tokenizers.AddedToken("<mask>", lstrip=True, normalized=False)])
    precompiled = steps.Precompiled(charsmap())
    if kind == "words":
        made.normalizer = precompiled
        made.pre_tokenizer = pre.Sequence([pre.WhitespaceSplit(), pre.Metaspace()])
    elif kind == "runs":
        parts = [precompiled, steps.Strip(left=False, right=True), steps.Replace(regex(" {2,}"), "\u2581")]
        made.normalizer, made.pre_tokenizer = steps.Sequence(parts), pre.Metaspace()
    else:
        made.normalizer, made.pre_tokenizer = precompiled, pre.Metaspace(split=False)
    made.decoder = tokenizers.decoders.Metaspace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    made_encoder(path, "xlm-roberta", vocab_size=made.get_vocab_size(), bos_token_id=0, eos_token_id=2,
                 max_position_embeddings=300, **more)  # fmt: skip
    made.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "XLMRobertaTokenizer"}))
    known = [text.replace("\u2581", " ") for text, _ in pieces]
    return [
        "".join(str(rng.choice(known if rng.random() < 0.7 else ODD)) + " " * int(rng.integers(0, 3) // 2)
                for _ in range(rng.integers(0, 9)))
        for _ in range(1000)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["words", "runs", "plain"])
def test_tokens_of_folders_and_files_are_those_of_tokenizers(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    texts = with_pieces(tmp_path / "in", kind)
    tokenizers = pytest.importorskip("tokenizers")
    wanted = tokenizers.Tokenizer.from_file(str(tmp_path / "in/tokenizer.json"))
    summary = hc.quantize_checkpoint(tmp_path / "in", tmp_path / "m.gguf", "q8_0", exclude="*", layout="gguf")
    notes = " ".join(summary["notes"])
    assert summary["architecture"] == "bert" and "longest run of characters" in notes
    assert ("white space such as U+000B" in notes) == (kind == "words")
    assert ("begin with white space" in notes) == (kind == "plain")
    net, plain = hc.zoo.open_encoder(tmp_path / "m.gguf"), hc.zoo.open_encoder(tmp_path / "in")
    masked = re.compile(r"\s<mask>|[\u3000\u00a0\u200b\u2581]<mask>")  # white space before a mask has tokens there
    compared = 0
    for text in texts:
        ids = wanted.encode(text).ids
        assert plain.tokenizer.encode(text) == ids
        if not masked.search(text):
            assert net.tokenizer.encode(text) == ids, text
            compared += 1
    assert compared > 900
    assert same_bits(net.embed(texts[:9]), plain.embed(texts[:9]))
    assert {**net.tokenizer.special, "<unk>": 3} == plain.tokenizer.special
    some = [text for text in texts if not set(text) & {*"".join(ODD)}][:50]
    for text in some:
        ids = net.tokenizer.encode(text)
        assert net.tokenizer.decode(ids) == wanted.decode(ids)
    assert "".join("ba de"[a:b] for a, b in net.tokenizer.offsets("ba de")) == "ba de"
    with pytest.raises(ValueError, match="characters that the vocabulary replaces"):
        net.tokenizer.offsets("\ufb01")


def test_transformers_opens_a_folder_of_pieces_that_was_gguf(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    transformers = pytest.importorskip("transformers")
    texts = with_pieces(tmp_path / "in", hidden_size=64, intermediate_size=96)
    hc.quantize_checkpoint(tmp_path / "in", tmp_path / "m.gguf", "q8_0", layout="gguf")
    summary = hc.convert_checkpoint(tmp_path / "m.gguf", tmp_path / "out", "compressed-tensors")
    assert summary["unloadable"] is None and "tokenizer" not in summary
    tokens = hc.zoo.open_encoder(tmp_path / "m.gguf").tokenizer
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    back = hc.zoo.open_encoder(tmp_path / "out").tokenizer
    for text in texts:
        assert back.encode(text) == tokens.encode(text) == words(text)["input_ids"], text


def test_llama_cpp_embeds_texts_of_pieces_the_same(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    xllamacpp = pytest.importorskip("xllamacpp")
    texts = [text for text in with_pieces(tmp_path / "in")[:120] if text.strip()]
    hc.quantize_checkpoint(tmp_path / "in", tmp_path / "m.gguf", "q8_0", exclude="*", layout="gguf")
    net, options = hc.zoo.open_encoder(tmp_path / "m.gguf"), xllamacpp.CommonParams()
    options.model.path, options.n_ctx, options.cpuparams.n_threads = str(tmp_path / "m.gguf"), 256, 1
    options.warmup, options.embedding = False, True
    server = xllamacpp.Server(options)
    for text in texts:
        answer = server.handle_embeddings({"input": text})
        answer = json.loads(answer) if isinstance(answer, str) else answer
        assert answer["usage"]["prompt_tokens"] == len(net.tokenizer.encode(text))
        found, wanted = np.array(answer["data"][0]["embedding"]), net.embed(text, normalize=True)
        assert found @ wanted / np.linalg.norm(found) > 1 - 1e-5


def test_the_longest_run_is_replaced() -> None:
    rng = np.random.default_rng(5)
    for _ in range(30):
        sources = {"".join(rng.choice(list("ab\u00e9\u4e2d"), int(rng.integers(1, 4)))) for _ in range(6)}
        pairs = {one: "".join(rng.choice(list("xyz "), int(rng.integers(0, 3)))) for one in sorted(sources)}
        found = Charsmap("a.gguf", charsmap(pairs))
        text = "".join(rng.choice(list("ab\u00e9\u4e2dq"), 12))
        wanted, at = "", 0
        while at < len(text):
            key = max((one for one in pairs if text.startswith(one, at)), key=len, default="")
            wanted += pairs[key] if key else text[at]
            at += len(key) or 1
        assert found.replaced(text) == wanted


def test_the_best_pieces_are_those_of_all_ways_to_split() -> None:
    rng = np.random.default_rng(6)

    def ways(text: str) -> list[list[str]]:
        return [[text[:i], *rest] for i in range(1, len(text) + 1) for rest in ways(text[i:])] if text else [[]]

    for _ in range(20):
        words = sorted({"".join(rng.choice(list("abc"), int(rng.integers(1, 4)))) for _ in range(9)} - {"c"})
        scores = [0.0, *(-rng.random(len(words)) * 5).tolist()]
        coder = Unigram({"?": 0} | {w: i + 1 for i, w in enumerate(words)}, scores, [2] + [1] * len(words), 0)
        text = "".join(rng.choice(list("abc"), 7))
        cost = min(scores[1:]) - 10

        def total(
            split: list[str], words: list[str] = words, scores: list[float] = scores, cost: float = cost
        ) -> float:
            known = dict(zip(words, scores[1:], strict=True))
            return sum(known.get(p, cost if len(p) == 1 else -1e9) for p in split)

        best = max(ways(text), key=total)
        wanted = [words.index(p) + 1 if p in words else 0 for p in best]
        merged = [i for k, i in enumerate(wanted) if not (i == 0 and k and wanted[k - 1] == 0)]
        assert coder.encode(text) == merged


def test_broken_replacements_are_errors() -> None:
    blob, rng = charsmap(), np.random.default_rng(7)
    for wrong in (b"", b"\1\0\0\0", (1 << 30).to_bytes(4, "little") + blob[4:], blob[:-1] + b"x"):
        with pytest.raises(ValueError, match="precompiled_charsmap is no double array"):
            Charsmap("a.gguf", wrong)
    refused = 0
    for _ in range(200):
        data = bytearray(blob)
        for at in rng.integers(4, len(blob), 40):
            data[at] = int(rng.integers(256))
        try:
            Charsmap("a.gguf", bytes(data)).replaced("".join(ODD))
        except ValueError as error:
            assert "precompiled_charsmap" in str(error)
            refused += 1
    assert refused


def test_files_do_not_take_more_memory_or_time_than_their_size() -> None:
    with pytest.raises(ValueError, match="a text of more than 1024 bytes"):
        Charsmap("a.gguf", charsmap({"a": "b" * 2000})).replaced("a")
    nodes = np.zeros(128, np.uint32)
    nodes[0], nodes[1] = 96 << 10, 97 << 10 | 97  # "a" leads to itself
    cycle = Charsmap("a.gguf", nodes.nbytes.to_bytes(4, "little") + nodes.tobytes() + b"x\0")
    assert cycle.replaced("a" * 9) == "a" * 9
    with pytest.raises(ValueError, match="a text of more than 1024 bytes"):
        cycle.replaced("a" * 5000)
    tracemalloc.start()
    coder = Unigram({"?": 0, "a" * 20000: 1, "a": 2}, [0.0, -1.0, -2.0], [2, 1, 1], 0)
    assert tracemalloc.get_traced_memory()[1] < 20 << 20  # all beginnings of the piece are 200 MB
    tracemalloc.stop()
    assert coder.encode("a" * 9) == [2] * 9


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model.byte_fallback": True}, "byte_fallback is true"),
        ({"model.unk_id": None}, "unk_id is None"),
        ({"normalizer": {"type": "Lowercase"}}, "its steps Lowercase, WhitespaceSplit, Metaspace before Unigram"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "%"}}, "precompiled_charsmap is not base64"),
        ({"pre_tokenizer.pretokenizers.1.prepend_scheme": "first"}, "prepend_scheme of Metaspace is 'first'"),
        ({"model.vocab.9.0": "a\u2581b"}, "spans words"),
        ({"model.vocab.0.1": -99.0}, "the token '<s>' has the least score"),
    ],
)
def test_what_gguf_has_no_key_for_is_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    with_pieces(tmp_path / "in")
    declared = json.loads((tmp_path / "in/tokenizer.json").read_text())
    for name, value in change.items():
        *outer, last = [int(one) if one.isdigit() else one for one in name.split(".")]
        place = declared
        for one in outer:
            place = place[one]
        place[last] = value
    (tmp_path / "in/tokenizer.json").write_text(json.dumps(declared))
    with pytest.raises(ValueError, match=re.escape(words)):
        model_in(reader_of(str(tmp_path / "in")))
