"""The tokenizer of a network: offsets of tokens in a text, and special tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from test_llm_vocabulary import of_bytes, pieces

import heterocompute as hc
from heterocompute.zoo.llm.offsets import Surface, spans_of

ALPHABET = [
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
    return "".join(ALPHABET[i] for i in rng.integers(0, len(ALPHABET), count))


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
