"""Rules that split a text into the words of byte-level BPE, under llama.cpp's names for tokenizer.ggml.pre.

llama.cpp, src/llama-vocab.cpp, llm_tokenizer_bpe and llama_vocab::impl::load.
"""

from __future__ import annotations

from typing import NamedTuple

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
LLAMA3 += r"|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_ENDS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"  # (?i:'s) has a long s, too
_LLAMA3, _QWEN2 = (rule.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)", _ENDS) for rule in (LLAMA3, QWEN2))
PUNCTUATION = r"[\p{P}\$\+<=>\^~\|]+"
# Of letters beyond ASCII, llama.cpp knows no case.
_LETTERS = (
    r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+END|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*END"
)
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = _LETTERS.replace("END", "") + r"|\p{N}" + _REST
GPT4O = _LETTERS.replace("END", f"{_ENDS}?") + r"|\p{N}{1,3}" + _REST
SEED = _QWEN2.replace(r" ?[^\s\p{L}\p{N}]+[\r\n]*", r" ?[^\s\p{L}\p{N}\r\n]+")
_SIGNS = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
_SIGNS += r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK3 = (r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", _SIGNS)
BLOOM = r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"  # a class with brackets and a bar
QWEN35 = _QWEN2.replace(r"]?\p{L}+", r"]?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
_HANGUL = r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+"  # words with single spaces between letters
EXAONE = f"{_ENDS}|{_HANGUL}" + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
LING = _QWEN2.replace(r"|\s*[\r\n]+", r"|\s*[\r\n]")
CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[\u0800-\u9fa5\uac00-\ud7ff&&[^\s]]+", r"\p{N}")


class Rule(NamedTuple):
    """Expressions whose matches are words, one after the other; the rest between matches are words as well.

    `keeps_words`: a word that is a token is not split. `begins`: texts begin with a token unless a key says otherwise.
    """

    words: tuple[str, ...]
    keeps_words: bool = False
    begins: bool = False


_LLAMA, _DIGITS = Rule((_LLAMA3,), keeps_words=True, begins=True), Rule((r"\p{N}", GPT2))
_NAMES = {
    Rule((GPT2,)): "gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 mpt olmo jais trillion granite-docling modern-bert",
    _DIGITS: "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    _LLAMA: "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
    Rule((_LLAMA3,)): "dbrx smaug-bpe glm4 chatglm-bpe",
    Rule((r"\p{N}{1,3}", _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}+")), keeps_words=True): "minicpm5",
    Rule((_QWEN2,)): "qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 megrez hunyuan solar-open grok-2",
    Rule((QWEN35,)): "qwen35",
    Rule((EXAONE,)): "exaone-moe",
    Rule((LING,)): "bailingmoe bailingmoe2 llada-moe",
    Rule((BLOOM,)): "bloom poro-chat gpt3-finnish",
    Rule((BLOOM, r"\p{N}")): "viking",
    Rule((TEKKEN,), keeps_words=True, begins=True): "tekken",
    Rule((GPT4O,)): "gpt-4o llama4 kanana2 minimax-m2 talkie",
    Rule((SEED,)): "seed-coder",
    Rule(DEEPSEEK3): "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
    Rule(CODER): "deepseek-coder",
    Rule((PUNCTUATION.replace("|]", "|`]"), GPT2, "[0-9][0-9][0-9]")): "falcon",
    Rule((PUNCTUATION, GPT2, r"\p{N}+", "[0-9][0-9][0-9]")): "default",
}
RULES: dict[str, Rule] = {name: rule for rule, names in _NAMES.items() for name in names.split()}
