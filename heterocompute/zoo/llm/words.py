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

_CASED = (  # letters with a case, as listed there
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-"
    "\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-"
    "\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-"
    "\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-"
    "\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-"
    "\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-"
    "\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-"
    "\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
DEEPSEEK = (r"[\r\n]", rf"\s?[{_CASED}]+", r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001\u3002]+",
            r"\s+\z", CODER[3], r"\p{N}+")  # fmt: skip
SPARK = (*DEEPSEEK3[:2], _SIGNS.replace(r"[\r\n]*|\s*[\r\n]+", r"|[\r\n]"), r"\p{N}")
_MARKED = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"  # llama.cpp knows no kinds of letters
YOUTU = ("[\uac00-\ud7a3\u3131-\u318e]+"
         "|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
         f"|[\u3105-\u312f]+|{DEEPSEEK3[1]}", f"{_MARKED}{_ENDS}?" + r"|\p{N}" + _REST)  # fmt: skip
CHAMELEON = ("<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", r"[\t\n]|    |  ", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", GPT2)
GRANITE = GPT4O.replace(r"[\p{L}&&", r"[\p{L}\p{M}&&")
LAGUNA = (r"[^\n]+|[\n]+", _QWEN2)
UFAK = _QWEN2.replace(f"{_ENDS}|", "")
_HALVES = "|".join(rf"\s{{{n}}}(?!\S)" for n in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2"))
JAIS2 = _LLAMA3.replace(r"\s+(?!\S)|\s+", rf"{_HALVES}|\s")
# Digits in groups of three from the right, each with the text before it, which the other expressions split.
AFMOE = (r"[^\p{N}]*(?:\p{N}{1,2}(?=(?:\p{N}{3})*(?!\p{N}))|\p{N}{3})",
         "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
         "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+",
         _SIGNS)  # fmt: skip


class Rule(NamedTuple):
    """Expressions whose matches are words, one after the other; the rest between matches are words as well.

    `keeps_words`: a word that is a token is not split. `begins`: texts begin with a token unless a key says otherwise.
    """

    words: tuple[str, ...]
    keeps_words: bool = False
    begins: bool = False


_LLAMA, _DIGITS = Rule((_LLAMA3,), keeps_words=True, begins=True), Rule((r"\p{N}", GPT2))
_NAMES = {
    Rule((GPT2,)): "gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 mpt olmo jais trillion granite-docling modern-bert "
    "jina-es jina-de jina-v2-es jina-v2-de",
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
    Rule(DEEPSEEK): "deepseek-llm",
    Rule(SPARK): "spark2_5",
    Rule(YOUTU, keeps_words=True): "youtu",
    Rule(CHAMELEON, begins=True): "chameleon",
    Rule((GRANITE,), keeps_words=True): "granite-embed-multi-97m",
    Rule(LAGUNA): "laguna",
    Rule((UFAK,)): "ufakzeka",
    Rule((JAIS2,)): "jais-2",
    Rule(AFMOE): "afmoe",
    Rule(DEEPSEEK3): "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
    Rule(CODER): "deepseek-coder",
    Rule((PUNCTUATION.replace("|]", "|`]"), GPT2, "[0-9][0-9][0-9]")): "falcon",
    Rule((PUNCTUATION, GPT2, r"\p{N}+", "[0-9][0-9][0-9]")): "default",
}
RULES: dict[str, Rule] = {name: rule for rule, names in _NAMES.items() for name in names.split()}

# Expressions of pre-tokenizers in folders, and llama.cpp's names of their rules. `near`: llama.cpp splits some words
# otherwise, because it knows no case of letters, no marks or no digits beyond ASCII.
_ANY_CASE = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASES = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+END|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*END"
_O200K = _CASES.replace("END", f"{_ANY_CASE}?") + r"|\p{N}{1,3}" + _REST
_SEED = QWEN2.replace(r" ?[^\s\p{L}\p{N}]+[\r\n]*", r" ?[^\s\p{L}\p{N}\r\n]+")
PUNCTUATION_STEP, NUMBER = "punctuation", r"\p{N}"


class Named(NamedTuple):
    """llama.cpp's names of a rule, without and with `keeps_words`."""

    names: tuple[str, ...]
    near: bool = False


OF_FOLDERS: dict[tuple[str, ...], Named] = {
    (GPT2,): Named(("gpt-2",)),
    (NUMBER, GPT2): Named(("smollm",)),
    (LLAMA3,): Named(("dbrx", "llama-bpe")),
    (QWEN2,): Named(("qwen2",)),
    (_CASES.replace("END", "") + r"|\p{N}" + _REST,): Named(("tekken",), near=True),
    (_O200K,): Named(("gpt-4o",), near=True),
    (_SEED,): Named(("seed-coder",)),
    (_SEED.replace(r"|\p{N}|", r"|\p{N}{1}|"),): Named(("seed-coder",)),
    (QWEN35.replace(_ENDS, _ANY_CASE),): Named(("qwen35",)),
    (EXAONE.replace(_ENDS, _ANY_CASE),): Named(("exaone-moe",)),
    DEEPSEEK3: Named(("deepseek-v3",)),
    (r" ?[^(\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",): Named(("bloom",)),
    (PUNCTUATION_STEP, GPT2, r"\p{N}+", "[0-9][0-9][0-9]"): Named(("falcon",), near=True),
}
