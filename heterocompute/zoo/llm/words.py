"""Rules that split a text into the words of byte-level BPE, under llama.cpp's names for tokenizer.ggml.pre.

llama.cpp, src/llama-vocab.cpp, llm_tokenizer_bpe and llama_vocab::impl::load.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["GPT2", "LLAMA3", "QWEN2", "RULES", "Rule"]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
LLAMA3 += r"|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
PUNCTUATION = r"[\p{P}\$\+<=>\^~\|]+"


class Rule(NamedTuple):
    """Expressions whose matches are words, one after the other; the rest between matches are words as well.

    `keeps_words`: a word that is a token is not split. `begins`: texts begin with a token unless a key says otherwise.
    """

    words: tuple[str, ...]
    keeps_words: bool = False
    begins: bool = False


_LLAMA, _DIGITS = Rule((LLAMA3,), keeps_words=True, begins=True), Rule((r"\p{N}", GPT2))
_NAMES = {
    Rule((GPT2,)): "gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 mpt olmo jais trillion granite-docling",
    _DIGITS: "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    _LLAMA: "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2",
    Rule((LLAMA3,)): "dbrx smaug-bpe",
    Rule((QWEN2,)): "qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 megrez hunyuan solar-open grok-2",
    Rule((PUNCTUATION.replace("|]", "|`]"), GPT2, "[0-9][0-9][0-9]")): "falcon",
    Rule((PUNCTUATION, GPT2, r"\p{N}+", "[0-9][0-9][0-9]")): "default",
}
RULES: dict[str, Rule] = {name: rule for rule, names in _NAMES.items() for name in names.split()}
