"""Tokens of folders: what files of a folder say is read as in transformers, and survives a GGUF file or is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from common import run

import heterocompute as hc
from heterocompute.files.layouts.gguf.vocabulary import vocabulary_keys
from heterocompute.zoo.llm.folder_tokens import around_of, of_folder
from heterocompute.zoo.llm.gguf_tokens import of_gguf
from heterocompute.zoo.llm.tokens import Tokens
from heterocompute.zoo.llm.words import GPT2, OF_FOLDERS, PUNCTUATION_STEP

tokenizers = pytest.importorskip("tokenizers")

SPACE = "\u2581"
COUNT = len(made.vocabulary())


def folder(path: Path, options: dict[str, Any] | None = None, **said: Any) -> Path:
    """Write the tokenizer of `made`, with changes to tokenizer.json and with tokenizer_config.json."""
    made.write_folder(path)
    place = path / "tokenizer.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), **said}))
    if options is not None:
        (path / "tokenizer_config.json").write_text(json.dumps(options))
    return path


def tokens(path: Path, more: int = 0) -> Tokens:
    return of_folder(str(path), json.loads((path / "config.json").read_text()), COUNT + more)


def through_gguf(path: Path, more: int = 0) -> Tokens:
    """Return the tokens of the keys of a GGUF file for a folder."""
    keys = vocabulary_keys(str(path), json.loads((path / "config.json").read_text()), COUNT + more)
    lists = {key: [one.encode() for one in value] if isinstance(value[0], str) else np.asarray(value)
             for key, value in keys.items() if isinstance(value, list)}  # fmt: skip
    return of_gguf("m", {key: str(value) for key, value in keys.items()}, lists.get, COUNT + more)


def test_settings_of_training_do_not_change_tokens(tmp_path: Path) -> None:
    text = "the winter in the hat, 12 times"
    want = tokens(folder(tmp_path / "plain")).encode(text)
    cut = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    fill = {"strategy": {"Fixed": 100}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
            "pad_token": "<s>"}  # fmt: skip
    found = tokens(folder(tmp_path / "cut", truncation=cut, padding=fill))
    model = {**json.loads((tmp_path / "plain/tokenizer.json").read_text())["model"], "dropout": 0.9}
    assert found.encode(text) == want == through_gguf(tmp_path / "cut").encode(text)
    assert tokens(folder(tmp_path / "drop", model=model)).encode(text) == want


def entry(text: str, **flags: Any) -> dict[str, Any]:
    plain = {name: False for name in ("special", "lstrip", "rstrip", "normalized", "single_word")}
    return {"content": text, **plain, **flags}


def test_tokens_of_the_other_files_are_added(tmp_path: Path) -> None:
    ways: dict[str, tuple[str, dict[str, Any]]] = {
        "decoder": ("tokenizer_config.json", {"added_tokens_decoder": {str(COUNT): entry("<think>")}}),
        "extra": ("tokenizer_config.json", {"additional_special_tokens": ["<think>"]}),
        "named": ("tokenizer_config.json", {"pad_token": {"__type": "AddedToken", **entry("<think>")}}),
        "map": ("special_tokens_map.json", {"pad_token": "<think>"}),
        "old": ("added_tokens.json", {"<think>": COUNT}),
    }
    for way, (name, said) in ways.items():
        path = folder(tmp_path / way)
        (path / name).write_text(json.dumps(said))
        found = tokens(path, 1)
        ids = found.encode("a<think>b")
        assert ids[1] == COUNT and len(ids) == 3, way
        assert found.decode(ids) == ("a<think>b" if way in ("decoder", "old") else "ab"), way
        assert through_gguf(path, 1).encode("a<think>b") == ids, way
    wrong = folder(tmp_path / "wrong", {"added_tokens_decoder": {str(COUNT + 3): entry("<think>")}})
    with pytest.raises(ValueError, match=f"has '<think>' as token {COUNT + 3}, which is token {COUNT} in"):
        tokens(wrong, 9).encode("a")


def test_lists_and_objects_of_special_tokens_are_added_together(tmp_path: Path) -> None:
    """A key with a role makes a token special that is there already; a list does not."""
    several: dict[str, Any] = {"extra_special_tokens": {"image_token": "<image>"}, "additional_special_tokens": ["<x>"]}
    found = tokens(folder(tmp_path / "both", several), 2)
    assert found.encode("<image>a<x>")[::2] == [COUNT, COUNT + 1]
    ends = [{"id": i, **entry(text, special=True)} for i, text in enumerate(("<s>", "</s>"))]
    added = [*ends, {"id": COUNT, **entry("<x>")}]
    for i, (said, text) in enumerate((({"additional_special_tokens": ["<x>"]}, "<x>"), ({"pad_token": "<x>"}, ""))):
        path = folder(tmp_path / str(i), said, added_tokens=added)
        assert tokens(path, 1).decode([COUNT]) == text
        assert through_gguf(path, 1).encode("a<x>") == tokens(path, 1).encode("a<x>")


def test_a_text_has_the_tokens_of_the_template_around_it(tmp_path: Path) -> None:
    marks = {
        "<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]},
        "</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]},
    }
    both = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "</s>", "type_id": 0}}]  # fmt: skip
    step = {"type": "TemplateProcessing", "single": both, "pair": [], "special_tokens": marks}
    roberta = {"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0], "trim_offsets": True,
               "add_prefix_space": False}  # fmt: skip
    for i, said in enumerate((step, roberta)):
        path = folder(tmp_path / str(i), {"add_bos_token": False, "add_eos_token": False}, post_processor=said)
        ids = tokens(path).encode("the")
        assert (ids[0], ids[-1]) == (0, 1) and through_gguf(path).encode("the") == ids
    assert around_of("t", {"post_processor": {**step, "single": both[1:2]}}, 9) == (None, ())
    for single, words in (([*both[:1], *both], "begins texts with 2 tokens"), ([both[1]] * 2, "is not supported")):
        with pytest.raises(ValueError, match=words):
            around_of("t", {"post_processor": {**step, "single": single}}, 9)
    with pytest.raises(ValueError, match="adds the token 1, expected 0 to 0"):
        around_of("t", {"post_processor": step}, 1)


def test_special_tokens_are_letters_where_a_folder_says_so(tmp_path: Path) -> None:
    path = folder(tmp_path, {"split_special_tokens": True})
    assert len(tokens(path).encode("<s>")) == 3
    with pytest.raises(ValueError, match="split_special_tokens is true"):
        through_gguf(path)


def test_spaces_are_cleaned_up_for_words_alone(tmp_path: Path) -> None:
    path = folder(tmp_path, {"clean_up_tokenization_spaces": True})
    found = tokens(path)
    assert found.decode(found.encode("the . hat ?")) == "the . hat ?"  # of BPE, spaces are part of the text
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0, "a": 1, ".": 2}, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(path / "tokenizer.json"))
    assert tokens(path).decode([1, 2]) == "a."


def pieces(path: Path, **said: Any) -> Path:
    """Write a vocabulary of SentencePiece, whose space is put before words by Metaspace."""
    path = folder(path)
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), SPACE, "a", f"{SPACE}a"]
    model = tokenizers.models.BPE({text: i for i, text in enumerate(texts)}, [(SPACE, "a")], byte_fallback=True)
    one = tokenizers.Tokenizer(model)
    one.add_special_tokens(["<s>", "</s>"])
    metaspace = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    one.pre_tokenizer, decoders = metaspace, tokenizers.decoders
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    one.decoder = decoders.Sequence(steps)
    one.save(str(path / "tokenizer.json"))
    place = path / "tokenizer.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), **said}))
    return path


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"legacy": True}, [261, 2, 261]),
        ({"legacy": False}, [261, 2, 260]),
        ({}, [261, 2, 260]),
        ({"add_prefix_space": False}, [260, 2, 260]),
    ],
)
def test_llamas_class_puts_spaces_as_its_options_say(options: dict[str, Any], want: list[int], tmp_path: Path) -> None:
    """transformers takes only the vocabulary from tokenizer.json for LlamaTokenizer."""
    path = pieces(tmp_path)
    options = {"tokenizer_class": "LlamaTokenizer", **options}
    (path / "tokenizer_config.json").write_text(json.dumps(options))
    assert tokens(path).encode("a</s>a") == want == through_gguf(path).encode("a</s>a")
    transformers = pytest.importorskip("transformers")
    assert transformers.AutoTokenizer.from_pretrained(str(path))("a</s>a").input_ids == want


REFUSED: dict[str, dict[str, Any]] = {
    "normalizer Lowercase has no key": {"normalizer": {"type": "Lowercase"}},
    "normalizer NFKC has no key": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}]}},
    "normalizer Prepend has no key": {"normalizer": {"type": "Prepend", "prepend": "x"}},
    "add_prefix_space of ByteLevel": {
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    },
    "decoder is not ByteLevel": {"decoder": {"type": "Fuse"}},
    "rstrip of the token '<s>'": {"added_tokens": [{"id": 0, **entry("<s>", special=True, rstrip=True)}]},
    "lstrip of the token '<s>'": {"added_tokens": [{"id": 0, **entry("<s>", special=True, lstrip=True)}]},
    "single_word of the token": {"added_tokens": [{"id": 0, **entry("<s>", special=True, single_word=True)}]},
    "'</s>' is not in added_tokens": {"added_tokens": [{"id": 0, **entry("<s>", special=True)}]},
    "overlap, which llama.cpp": {"added_tokens": [
        {"id": i, **entry(text)} for i, text in ((0, "<s>"), (1, "</s>"), (COUNT, "<|x"), (COUNT + 1, "x|>y"))]},
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_what_gguf_has_no_key_for_is_refused(words: str, tmp_path: Path, capsys: Any) -> None:
    path = folder(tmp_path / "m", None, **REFUSED[words])
    with pytest.raises(ValueError, match=words):
        through_gguf(path, 2)
    if "Lowercase" in words:
        pytest.importorskip("gguf")
        code, _, errors = run(capsys, "quantize", path, tmp_path / "m.gguf", "--layout", "gguf", "--format", "q8_0")
        assert code == 0 and "holds tensors alone" in errors and words in errors


def test_nfc_and_phi3_are_kept(tmp_path: Path) -> None:
    path = folder(tmp_path / "nfc", None, normalizer={"type": "NFC"})
    assert through_gguf(path).encode("e\u0301") == tokens(path).encode("e\u0301")
    added = [entry("<s>", special=True), entry("</s>", rstrip=True), entry("<|user|>", special=True, rstrip=True)]
    ids = (0, 1, COUNT)
    path = folder(tmp_path / "m", None, added_tokens=[{"id": i, **one} for i, one in zip(ids, added, strict=True)])
    found = through_gguf(path, 1).encode("<|user|>\n the")
    assert found == tokens(path, 1).encode("<|user|>\n the") and found[0] == COUNT
    plain = folder(tmp_path / "phi3-mine")  # llama.cpp would leave out white space by this name
    assert through_gguf(plain).encode("</s> a") == tokens(plain).encode("</s> a")


def test_every_end_of_a_folder_is_kept(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 7, 9]}))
    assert tokens(path).ends == through_gguf(path).ends == {1, 7, 9}
    (path / "generation_config.json").unlink()
    config = {key: value for key, value in made.CONFIG.items() if key != "eos_token_id"}
    (path / "config.json").write_text(json.dumps(config))
    assert tokens(path).ends == {2}  # the default of transformers' configuration


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "zzz"}, "pre_tokenizer": None}, "c"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "c"),
        ({"model": {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": None}}, "c"),
    ],
)
def test_what_the_package_cannot_do_is_one_sentence(change: Any, text: str, tmp_path: Path, capsys: Any) -> None:
    path = folder(tmp_path / "m", None, **change)
    code, _, errors = run(capsys, "generate", path, text, "--tokens", 1)
    assert code == 1 and "the package tokenizers does not" in errors and str(path) in errors
    assert len(errors.strip().splitlines()) == 1 and "Traceback" not in errors


def test_the_text_of_a_continuation_follows_the_prompt(tmp_path: Path) -> None:
    net = hc.zoo.open_llm(pieces(tmp_path / "m"))
    text = net.generate("a", 3)
    ids = net.tokenizer.encode("a")
    assert "a" + text == net.tokenizer.decode([*ids, *net.generate(np.asarray(ids), 3)])


def test_llama_tokenizer_has_the_tokens_of_its_class(tmp_path: Path) -> None:
    """As in transformers, which takes the vocabulary alone, also for other families that name this class."""
    path = pieces(tmp_path / "m")
    said = json.loads((path / "tokenizer.json").read_text())
    (path / "tokenizer.json").write_text(json.dumps({**said, "added_tokens": []}))
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizerFast"}))
    for kind in ("llama", "gemma", "qwen3"):
        ids = of_folder(str(path), {"model_type": kind}, COUNT).encode("a</s> a<unk>")
        assert ids == [261, 2, 261, 0] and of_folder(str(path), {"model_type": kind}, COUNT).decode(ids) == "a a", kind
    assert len(of_folder(str(path), {"model_type": "mistral"}, COUNT).encode("</s>")) > 1


def test_bpe_without_merges_is_no_model_of_llama_cpp(tmp_path: Path) -> None:
    path = folder(tmp_path)
    said = json.loads((path / "tokenizer.json").read_text())
    said["model"] = {**said["model"], "merges": []}
    (path / "tokenizer.json").write_text(json.dumps(said))
    with pytest.raises(ValueError, match="its model has no merges, without which llama.cpp does not load"):
        through_gguf(path)


PARTS = ["the", "The", "HELLO", "\ud55c\uad6d", "\u4e2d\u6587", "\u3001", "(a)", "x|y", " ", "  ", "\n", "\n\n", "12",
         "1234", "'s", "'S", "don't", "?!", "/", "\u00a0", "$", "\u0928\u092e", "\u0964"]  # fmt: skip


@pytest.mark.parametrize("steps", OF_FOLDERS)
def test_rules_of_folders_have_names_in_gguf(steps: tuple[str, ...], tmp_path: Path) -> None:
    rng, split = np.random.default_rng(1), tokenizers.pre_tokenizers.Split
    texts = ["".join(PARTS[i] for i in rng.integers(0, len(PARTS), 10)) for _ in range(60)]
    given: list[Any] = [
        tokenizers.pre_tokenizers.Punctuation("contiguous") if one == PUNCTUATION_STEP
        else tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False) if one == GPT2
        else split(tokenizers.Regex(one), "isolated") for one in steps
    ]  # fmt: skip
    if GPT2 not in steps:
        given.append(tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(given)
    trained.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=COUNT + 200, initial_alphabet=made.bytes_alphabet(),
                                             show_progress=False, special_tokens=["<s>", "</s>"])  # fmt: skip
    trained.train_from_iterator(texts[:30], trainer)
    path = made.write_folder(tmp_path / "in")
    trained.save(str(path / "tokenizer.json"))
    more = trained.get_vocab_size() - COUNT
    wanted, found = tokens(path, more), through_gguf(path, more)
    assert [found.encode(text) for text in texts] == [wanted.encode(text) for text in texts]


def test_merges_that_are_ignored_must_not_matter(tmp_path: Path) -> None:
    model = json.loads((folder(tmp_path / "plain") / "tokenizer.json").read_text())["model"]
    path = folder(tmp_path / "all", model={**model, "ignore_merges": True})
    assert through_gguf(path).encode(made.TEXT) == tokens(path).encode(made.TEXT)
    more = {**model["vocab"], "hat": COUNT}  # no merge makes it
    with pytest.raises(ValueError, match="ignore_merges is true, unlike in llama.cpp with the rule gpt-2"):
        through_gguf(folder(tmp_path / "one", model={**model, "vocab": more, "ignore_merges": True}), 1)
