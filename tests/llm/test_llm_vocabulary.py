"""Vocabularies of GGUF files give the tokens of llama.cpp, and what has no rule here is refused by name."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.zoo.llm.gguf_tokens import ALPHABET, NORMALIZER, PREFIX, of_gguf
from heterocompute.zoo.llm.offsets import Surface, spans_of
from heterocompute.zoo.llm.special import Special
from heterocompute.zoo.llm.tokens import Tokens
from heterocompute.zoo.llm.words import RULES

SPACE = "\u2581"
LETTERS = list(ALPHABET)
PIECES = [
    "<unk>",
    "<s>",
    "</s>",
    *(f"<0x{i:02X}>" for i in range(256)),
    SPACE,
    *"ab",
    f"{SPACE}a",
    "ab",
    f"{SPACE}{SPACE}",
]
KINDS = [2, 3, 3, *[6] * 256, *[1] * 6]
SCORES = [0.0] * 259 + [-4.0, -5.0, -6.0, -1.0, -2.0, -3.0]


def vocabulary(keys: dict[str, Any]) -> Tokens:
    """Return the tokens of keys, whose names begin with tokenizer.ggml. unless they have a dot."""
    named = {key if "." in key else f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    lists: dict[str, Any] = {}
    for key, value in named.items():
        if isinstance(value, list):
            is_text = isinstance(value[0], str)
            lists[key] = [one.encode() for one in value] if is_text else np.asarray(value)
    texts = {key: str(value) for key, value in named.items() if not isinstance(value, list)}
    return of_gguf("m.gguf", texts, lists.get, len(named["tokenizer.ggml.tokens"]))


def pieces(more: tuple[str, ...] = (), kinds: tuple[int, ...] = (), **keys: Any) -> Tokens:
    scores = [np.float32(score) for score in (*SCORES, *[0.0] * len(more))]
    said = {"model": "llama", "tokens": [*PIECES, *more], "token_type": [*KINDS, *kinds], "scores": scores}
    return vocabulary(said | {key.replace("__", "."): value for key, value in keys.items()})


def of_bytes(more: tuple[str, ...] = (), kinds: tuple[int, ...] = (), **keys: Any) -> Tokens:
    pytest.importorskip("tokenizers")
    said = {"model": "gpt2", "tokens": [*LETTERS, *more], "token_type": [*[1] * 256, *kinds], "merges": ["x y"]}
    return vocabulary(said | {key.replace("__", "."): value for key, value in keys.items()})


def numbers(text: str) -> list[int]:
    return [LETTERS.index(character) for character in text]


def test_texts_begin_and_end_with_the_tokens_of_llama_cpp() -> None:
    assert pieces().encode("a") == [1, PIECES.index(f"{SPACE}a")]  # beginnings and ids have defaults
    assert (pieces().begin, pieces().end) == (1, 2)
    assert pieces(add_bos_token=False, add_eos_token=True, eos_token_id=0).encode("")[-1:] == [0]
    assert pieces(bos_token_id=10**6).begin == 1
    marks, kinds = ("<|begin|>", "<|eot_id|>"), (3, 3)
    named = {"bos_token_id": 256, "eos_token_id": 257}
    for pre, begins in (("llama-bpe", True), ("llama3", True), ("falcon3", True), ("dbrx", False), ("qwen2", False)):
        assert of_bytes(marks, kinds, pre=pre, **named).encode("c") == [*([256] if begins else []), *numbers("c")]
    with pytest.raises(ValueError, match="bos_token_id is missing or names no token"):
        of_bytes(marks, kinds, pre="llama-bpe").encode("c")
    assert of_bytes(marks, kinds, pre="llama-bpe", add_bos_token=False).encode("c") == numbers("c")


# As llama.cpp splits them, by the counts of tokens of vocabularies that join characters across words.
SPLIT: dict[str, list[str]] = {
    "tekken": ["He", "LLo\u0416\u0436a", " ", "1", "2", " it", "'\u017f", "'S", " a", "/\n/", "x"],
    "gpt-4o": ["He", "LLo\u0416\u0436a", " ", "12", " it", "'\u017f'S", " a", "/\n/", "x"],
    "seed-coder": ["HeLLo\u0416\u0436a", " ", "1", "2", " it", "'\u017f", "'S", " a", "/", "\n", "/x"],
    "deepseek-v3": ["HeLLo\u0416\u0436a", " ", "12", " it", "'", "\u017f", "'S", " a", "/\n", "/x"],
    "qwen35": [
        "He\u0416\u0436\u0301",
        " ",
        "1",
        "2",
        " it",
        "'\u017f",
        "'S",
        " a",
        " b",
        ".\n\n",
        "/x",
        " \u3002(",
        "y",
    ],
    "exaone-moe": [
        "He\u0416\u0436\u0301",
        " ",
        "1",
        " it",
        "'\u017f",
        "'S",
        " a b",
        ".\n",
        "\n",
        "/x",
        " \u3002(",
        "y",
    ],
    "bailingmoe": ["He\u0416\u0436", "\u0301", " ", "1", "2", " it", "'S", " a", " b", ".\n\n", "/x", " \n\n", "y"],
    "bloom": ["He\u0416\u0436\u0301", " 12", " it'\u017f'S", " a", " b", ".\n\n", "/x", " \u3002(", "y"],
    "viking": ["He\u0416\u0436\u0301", " ", "1", "2", " it'\u017f'S", " a", " b", ".\n\n", "/x", " \u3002(", "y"],
    "minicpm5": ["He\u0416\u0436", "\u0301", " ", "12", " it", "'\u017f", "'S", " a", ".\n\n", "/x", " \u3002(", "y"],
    "glm4": ["He\u0416\u0436", "\u0301", " ", "123", "4", " it", "'\u017f", "'S", " a", ".\n\n", "/x", " \u3002(", "y"],
    "deepseek-coder": ["HeLLo\u0416\u0436a", " ", "1", "2", " it", "'", "\u017f", "'", "S", " a", "/", "\n", "/", "x"],
}


@pytest.mark.parametrize("name", SPLIT)
def test_words_are_those_of_the_rule(name: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    split, text = tokenizers.pre_tokenizers.Split, "".join(SPLIT[name])
    steps = [split(tokenizers.Regex(words), "isolated") for words in RULES[name].words]
    found = tokenizers.pre_tokenizers.Sequence(steps).pre_tokenize_str(text)
    assert [word for word, _ in found] == SPLIT[name]


WORDS = ["the", "HeLLo", "\u0416\u0436\u0430", "e\u0301", "\ud55c\uad6d", "\u4e2d\u6587", "\u3001", "\u2026", "(a)",
         "x|y", " ", "  ", "\n", "\n\n", "12", "1234", "'s", "don't", "?!", "/", "\u00a0", "\U0001f469\u200d\U0001f4bb",
         "\u0928\u092e", "\u0964", "\u0663", "$"]  # fmt: skip


def test_rules_and_merges_are_those_of_trained_vocabularies() -> None:
    """Vocabularies of the package tokenizers, one trained for each rule, against their merges in a GGUF file."""
    tokenizers = pytest.importorskip("tokenizers")
    rng = np.random.default_rng(0)
    texts = ["".join(WORDS[i] for i in rng.integers(0, len(WORDS), 10)) for _ in range(40)]
    counts = set()
    for rule in dict.fromkeys(RULES.values()):
        trained = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=rule.keeps_words))
        steps = [tokenizers.pre_tokenizers.Split(tokenizers.Regex(one), "isolated") for one in rule.words]
        steps.append(tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        trained.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(steps)
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=420, initial_alphabet=LETTERS, show_progress=False)
        trained.train_from_iterator(texts, trainer)
        said = json.loads(trained.to_str())["model"]
        numbers, merges = said["vocab"], [pair if isinstance(pair, str) else " ".join(pair) for pair in said["merges"]]
        name = next(name for name, one in RULES.items() if one is rule)
        found = vocabulary({"model": "gpt2", "pre": name, "tokens": sorted(numbers, key=numbers.get), "merges": merges,
                            "add_bos_token": False})  # fmt: skip
        drawn = ["".join(WORDS[i] for i in rng.integers(0, len(WORDS), 12)) for _ in range(25)]
        assert [found.encode(text) for text in drawn] == [trained.encode(text).ids for text in drawn], name
        assert all(found.decode(found.encode(text)) == text for text in drawn), name
        counts.add(tuple(merges))
    assert len(counts) > len(set(RULES.values())) // 2  # rules differ in these texts


def test_words_without_a_rule_are_split_by_the_default_one() -> None:
    for keys in ({}, {"pre": "default"}):
        found = of_bytes(("'t", "12", "123"), (1, 1, 1), merges=["' t", "1 2", "12 3"], **keys)
        assert found.encode("don't") == numbers("don't")
        assert found.encode("1234") == [258, *numbers("4")]  # digits in threes from the left
    assert of_bytes(("'t",), (1,), merges=["' t"], pre="gpt-2").encode("don't") == [*numbers("don"), 256]


@pytest.mark.parametrize("kind", [1, 3, 4])
def test_control_tokens_are_known_by_their_texts(kind: int) -> None:
    found = of_bytes(("<|endoftext|>", "<|im_end|>", "<|fim_prefix|>"), (3, kind, kind), pre="qwen2", eos_token_id=256)
    assert found.encode("a<|im_end|>") == [*numbers("a"), 257]
    assert found.ends == {256, 257} and found.end == 256
    assert found.decode([*numbers("a"), 257, 258]) == "a"
    calls = of_bytes(("<|return|>", "<|call|>", "<|end|>", "<|channel|>"), (kind,) * 4, pre="gpt-2")
    assert calls.ends == {256, 257} and calls.decode([258, 259]) == "<|end|><|channel|>"
    assert of_bytes(("<|reponame|>",), (kind,), pre="gpt-2").ends == frozenset()


def test_lists_may_be_longer_than_the_vocabulary() -> None:
    """As in llama.cpp, which reads a number for each token."""
    longer = pieces(scores=[np.float32(one) for one in (*SCORES, 9.0)], token_type=[*KINDS, 3])
    assert longer.encode("a ab") == pieces().encode("a ab")


def test_the_unknown_token_in_a_text_is_one_token() -> None:
    a = PIECES.index(f"{SPACE}a")
    assert pieces().encode("a<unk>a") == [1, a, 0, a]
    assert pieces().decode([a, 0, a]) == "a a"


def test_white_space_after_tokens_of_phi3_has_no_tokens() -> None:
    more, kinds, a = ("<|user|>", "<|endoftext|>"), (3, 3), PIECES.index(f"{SPACE}a")
    for name in ("Phi-3 mini 4k", "my phi3"):
        found = pieces(more, kinds, general__name=name)
        assert found.encode("<|user|>\n\t a") == [1, len(PIECES), a]
        assert found.encode("<|endoftext|> a")[1:] == [len(PIECES) + 1, PIECES.index(SPACE), a]
    assert PIECES.index("<0x0A>") in pieces(more, kinds, general__name="Phi-4").encode("<|user|>\na")


def test_a_continuation_keeps_its_first_space() -> None:
    a, b = PIECES.index(f"{SPACE}a"), PIECES.index("b")
    found = pieces()
    assert found.decode([a, b, a]) == "ab a" and found.decode([a]) == "a"
    assert found.decode([a], after=[1, a, b]) == " a" and found.decode([b], after=[a]) == "b"
    assert found.decode([a], after=[1]) == "a"  # the first word of the whole text
    halves = [PIECES.index(f"<0x{byte:02X}>") for byte in "é".encode()]
    assert found.decode(halves[1:], after=[a, halves[0]]) == "é"
    with pytest.raises(ValueError, match="token 999 is out of range"):
        found.decode([a], after=[999])


def test_equal_scores_merge_the_leftmost_pair_first() -> None:
    more = ("c", "bc", "abc")
    found = pieces(more, (1,) * 3, add_space_prefix=False, scores=[np.float32(0)] * (len(PIECES) + 3))
    assert found.encode("abc", special=False) == [len(PIECES) + 2]
    ab, bc = PIECES.index("ab"), len(PIECES) + 1
    without = pieces(("c", "bc"), (1, 1), add_space_prefix=False, scores=[np.float32(0)] * (len(PIECES) + 2))
    assert without.encode("abc", special=False) == [ab, len(PIECES)] and without.encode("bbc", special=False)[-1] == bc


def test_long_pieces_and_texts_take_linear_time() -> None:
    long = "a" * 200_000
    found = pieces((long,), (1,))
    begin = time.process_time()
    assert (
        len(found.encode("ab")) == 3
        and len(pieces(tuple("a" * i for i in range(3, 1200)), (1,) * 1197).encode("ab")) == 3
    )
    assert len(found.encode("ba " * 30_000)) > 30_000
    marks = tuple(f"<|m{i}|>" for i in range(20_000))
    assert len(pieces(marks, (3,) * len(marks)).encode("<|a " * 5000 + "".join(marks[::7]))) > 5000
    assert time.process_time() - begin < 10  # quadratic work takes minutes


def test_the_longest_special_token_is_found_first() -> None:
    found = Special([("<|x", 1, False), ("x|>y", 2, False), (" ", 3, True)])
    assert found.parts("<|x|>y") == ["<|", 2] and found.parts("<|x  b ") == [1, 3, "b", 3]
    many = Special([(f"<{i}>", i, False) for i in range(500)])
    assert many.parts("".join(f"<{i}>" for i in range(0, 500, 3)) + "<a>") == [*range(0, 500, 3), "<a>"]
    assert found.parts("") == []


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"surprise": 1}, "tokenizer.ggml.surprise' is not supported"),
        ({"suppress_tokens": [1]}, "suppress_tokens"),
        ({"tokens": ["a"] * len(PIECES)}, "has 'a' twice"),
        ({"token_type": [1, 2]}, "token_type does not hold one number for each token"),
        ({NORMALIZER: "NFKD"}, "is 'NFKD', expected NFC"),
        ({PREFIX: "last"}, "is 'last', expected one of first, always"),
    ],
)
def test_keys_without_a_rule_are_refused_by_name(keys: dict[str, Any], words: str) -> None:
    said = {"model": "llama", "tokens": PIECES, "token_type": KINDS, "scores": [np.float32(one) for one in SCORES]}
    with pytest.raises(ValueError, match=words):
        vocabulary({**said, **keys}).encode("a")


def test_flags_that_are_no_bools_are_refused() -> None:
    with pytest.raises(ValueError, match="add_bos_token is '7', expected a bool"):
        pieces(add_bos_token=7).encode("a")


def test_own_keys_say_what_llama_cpp_has_no_key_for() -> None:
    e = "e\u0301"
    assert of_bytes(pre="qwen2", **{NORMALIZER: "NFC"}).encode(e) == numbers("Ã©")
    assert of_bytes(pre="qwen2").encode(e) != numbers("Ã©")
    plain, a = pieces(), PIECES.index(f"{SPACE}a")
    first = pieces(**{PREFIX: "first"})
    assert first.encode(" a") == [1, a] and plain.encode(" a") == [1, PIECES.index(SPACE), a]
    assert first.encode("a</s>a") == [1, a, 2, PIECES.index("a")] and plain.encode("a</s>a") == [1, a, 2, a]


def test_a_character_without_a_token_is_the_unknown_one_or_refused() -> None:
    said = {"model": "llama", "tokens": ["<unk>", "a"], "token_type": [2, 1], "scores": [np.float32(0)] * 2}
    found = vocabulary({**said, "add_space_prefix": False, "add_bos_token": False})
    assert found.encode("aéxa") == [1, 0, 1]
    none = {**said, "tokens": ["b", "a"], "token_type": [1, 1], "unknown_token_id": 9}
    assert vocabulary({**none, "add_space_prefix": False}).encode("a", special=False) == [1]


# The tokenizer of a network: offsets of tokens in a text, and special tokens.

PARTS = [
    "the",
    "a",
    " ",
    "  ",
    "\n",
    "\t",
    "<s>",
    "</s>",
    "e\u0301",
    "\u00e9",
    "\U0001f468\u200d\U0001f469",
    "12",
    "ab",
    "<unk>",
]


def drawn(seed: int, count: int = 12) -> str:
    rng = np.random.default_rng(seed)
    return "".join(PARTS[i] for i in rng.integers(0, len(PARTS), count))


def test_offsets_of_a_file_are_those_of_the_package(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    folder = hc.zoo.open_llm(made.write_folder(tmp_path / "m")).tokenizer
    gguf = hc.zoo.open_llm(made.write_gguf(tmp_path / "m.gguf")).tokenizer
    assert folder.special == gguf.special == {"<s>": 0, "</s>": 1}
    for seed in range(200):
        text = drawn(seed)
        assert folder.encode(text) == gguf.encode(text)
        assert folder.offsets(text) == gguf.offsets(text)


def test_offsets_cover_the_text_in_order() -> None:
    found = pieces(add_eos_token=True)
    assert found.offsets("ab") == [(0, 0), (0, 1), (1, 2), (2, 2)]  # begin, "a" with an added space, "b", end
    assert found.offsets("a  b", special=False) == [(0, 1), (1, 3), (3, 4)]
    assert found.offsets("\u00e9a", special=False) == [(0, 0), (0, 1), (0, 1), (1, 2)]
    for seed in range(100):
        text = drawn(seed)
        spans = found.offsets(text, special=False)
        assert len(spans) == len(found.encode(text, special=False))
        covered = {i for begin, end in spans for i in range(begin, end)}
        assert covered == set(range(len(text))) and spans == sorted(spans)


def test_an_unknown_token_covers_what_no_token_has() -> None:
    surfaces = [Surface(b"<unk>", is_open=True), Surface(b"b"), Surface(b"<unk>", is_open=True), Surface(b"u")]
    assert spans_of("xyb<unk>u", surfaces) == [(0, 2), (2, 3), (3, 8), (8, 9)]
    assert spans_of("bxy", [Surface(b"b"), Surface(b"<unk>", is_open=True)]) == [(0, 1), (1, 3)]
    assert spans_of("", []) == []


def test_what_offsets_cannot_say_is_said() -> None:
    composed = of_bytes(heterocompute__tokenizer__normalizer="NFC", pre="gpt-2")
    assert composed.offsets("a\u00e9", special=False)[0] == (0, 1)
    with pytest.raises(ValueError, match="offsets: text is not in the form NFC"):
        composed.offsets("e\u0301")
    for wrong, kind in ((1, TypeError), ("\ud800", ValueError)):
        with pytest.raises(kind, match="offsets: text"):
            composed.offsets(wrong)  # type: ignore[arg-type]


def test_the_old_name_says_the_new_one(tmp_path: Path) -> None:
    net: Any = hc.zoo.open_llm(made.write_gguf(tmp_path / "m.gguf"))
    with pytest.raises(AttributeError, match="net.tokenizer"):
        net.tokens  # noqa: B018
