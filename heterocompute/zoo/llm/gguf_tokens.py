"""Tokens of the vocabulary in a GGUF file, as llama.cpp has them.

    keys tokenizer.ggml.model, .pre    the kind of vocabulary, and the rule that splits texts into words
    .tokens, .token_type               texts and types; some texts are control tokens whatever their type
    .scores or .merges                 what is joined first; of Unigram (t5) also .precompiled_charsmap
    .bos_token_id, .add_bos_token, ... tokens around texts, with the defaults of llama.cpp
    general.name                       of Phi-3: white space after most control tokens has no tokens

The file heterocompute wrote may hold two keys more, for what llama.cpp has no key for: `NORMALIZER` and `PREFIX`.

llama.cpp, src/llama-vocab.cpp.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from ...base.cached import cached
from ...base.errors import WrongValue, printable, shown
from .control_tokens import BYTE, CONTROL, NORMAL, UNKNOWN, USER, corrected, is_phi3, strips
from .offsets import Surface, spans_of
from .pieces import Charsmap, Pieces, Unigram, WordPiece
from .special import Special
from .tokenizers_package import package, refusals
from .tokens import REPLACEMENT, Around, Coder, Tokens
from .words import RULES, Rule

NORMALIZER, PREFIX = "heterocompute.tokenizer.normalizer", "heterocompute.tokenizer.space_prefix"
PREFIXES = ("first", "always")  # as the schemes of Metaspace of the package tokenizers
SUPPRESSED = "tokenizer.ggml.suppress_tokens"  # tokens that llama.cpp never generates
SPACE = "\u2581"
SPECIAL = (CONTROL, USER, UNKNOWN)  # types of tokens that are found in texts before words are
ID_NAMES = ("bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask", "cls", "prefix", "suffix", "middle",
            "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep")  # fmt: skip
# Keys that are read here, and keys without effect on these vocabularies.
KNOWN = frozenset((
    "model", "pre", "tokens", "token_type", "scores", "merges", "add_bos_token", "add_eos_token", "add_space_prefix",
    "add_sep_token", "remove_extra_whitespaces", "precompiled_charsmap", "token_type_count", "normalizer.lowercase",
    "normalizer.strip_accents", *(f"{name}_token_id" for name in ID_NAMES), "bos_token", "eos_token",
))  # fmt: skip


def of_gguf(path: str, metadata: Mapping[str, str], listed: Callable[[str], Any], vocabulary: int) -> Tokens:
    """Return the tokens of a GGUF file.

    Parameters
    ----------
    listed : callable
        Returns the list of a key, as of `Gguf.listed`.
    vocabulary : int
        Rows of the embedding, which no token passes.
    """
    found = Vocabulary(path, metadata, listed, vocabulary)
    return Tokens(found.coder, found.around, found.ends, vocabulary)


def vocabulary_of(path: str, metadata: Mapping[str, str], listed: Callable[[str], Any], vocabulary: int) -> Vocabulary:
    """Return the keys of the vocabulary of a GGUF file, with the arguments of `of_gguf`."""
    return Vocabulary(path, metadata, listed, vocabulary)


class Vocabulary:
    """The keys of a vocabulary, read when they are needed."""

    def __init__(self, path: str, metadata: Mapping[str, str], listed: Callable[[str], Any], vocabulary: int) -> None:
        self._path, self._metadata, self._listed, self._vocabulary = path, metadata, listed, vocabulary
        self._kind, self._pre = self._said("model"), self._said("pre")

    @property
    def kind(self) -> str | None:
        """The kind of the vocabulary: ``gpt2``, ``llama``, ``bert``, ``t5`` or another one."""
        return self._kind

    @property
    def path(self) -> str:
        """The path of the file, for errors."""
        return self._path

    def _said(self, key: str) -> str | None:
        return self._metadata.get(f"tokenizer.ggml.{key}")

    def _refuse(self, what: str) -> ValueError:
        return WrongValue(f"{printable(self._path)}: {what}")

    def _flag(self, key: str, usual: bool) -> bool:
        declared = self._said(key)
        if declared not in (None, "True", "False"):
            raise self._refuse(f"tokenizer.ggml.{key} is {shown(declared)}, expected a bool")
        return usual if declared is None else declared == "True"

    @cached
    def texts(self) -> list[str]:
        """Texts of all tokens; bytes that are not UTF-8 as surrogates."""
        if self._maybe_texts is None:
            raise self._refuse("the key tokenizer.ggml.tokens is missing or longer than the embedding")
        return self._maybe_texts

    @cached
    def _maybe_texts(self) -> list[str] | None:
        found = self._listed("tokenizer.ggml.tokens")
        if not isinstance(found, list) or not 0 < len(found) <= self._vocabulary:
            return None
        return [one.decode("utf-8", "surrogateescape") or f"[EMPTY_{i}]" for i, one in enumerate(found)]

    @cached
    def _given(self) -> tuple[Any, frozenset[int]]:
        """Types of all tokens as llama.cpp corrects them, and the tokens that end texts by their text."""
        types = self._listed("tokenizer.ggml.token_type")
        if types is None:
            types = np.full(len(self.texts), NORMAL)
        if isinstance(types, list) or len(types) < len(self.texts):
            raise self._refuse("the key tokenizer.ggml.token_type does not hold one number for each token")
        types = types[: len(self.texts)]
        if self._kind not in ("gpt2", "llama", "t5"):
            return np.asarray(types), frozenset()
        return corrected(self.texts, np.asarray(types), {name: self.number(name) for name in ID_NAMES})

    @property
    def kinds(self) -> list[int]:
        """Types of all tokens."""
        found: list[int] = self._given[0].tolist()
        return found

    def number(self, name: str) -> int | None:
        """Return the number of a token that a key names, or that of llama.cpp without the key."""
        usual = {"bos": 1, "eos": 2, "unknown": 0} if self._kind == "llama" else {}
        usual = {"bos": 101, "seperator": 102, "unknown": 100, "padding": 0} if self._kind == "bert" else usual
        usual = {"eos": 1, "unknown": 2, "padding": 0} if self._kind == "t5" else usual
        old = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}.get(name)
        declared = self._said(f"{old}_token_id") if old is not None else None
        declared = self._said(f"{name}_token_id") if declared is None else declared
        count = self._vocabulary if self._maybe_texts is None else len(self.texts)
        if declared is not None and declared.isdecimal() and len(declared) < 12 and int(declared) < count:
            return int(declared)
        found = usual.get(name)
        return found if found is not None and found < count else None

    @cached
    def _rule(self) -> Rule:
        name = "default" if self._pre is None else self._pre
        if name not in RULES:
            known = ", ".join(RULES)
            raise self._refuse(
                f"tokenizer.ggml.pre is {shown(name)}, expected one of {known}; give tokens instead of texts"
            )
        return RULES[name]

    def around(self) -> Around:
        """Return the tokens around each text."""
        if self._kind == "bert":
            return Around(self._edge("bos"), (self._edge("seperator"),))
        begins = self._kind == "llama" or (self._kind == "gpt2" and self._pre in RULES and RULES[self._pre].begins)
        begin = self._edge("bos") if self._flag("add_bos_token", begins) else None
        return Around(begin, (self._edge("eos"),) if self._flag("add_eos_token", self._kind == "t5") else ())

    def _edge(self, name: str) -> int:
        """Return the token that begins or ends texts."""
        found = self.number(name)
        if found is None:
            raise self._refuse(
                f"the key tokenizer.ggml.{name}_token_id is missing or names no token, expected the token that "
                f"{'begins' if name == 'bos' else 'ends'} texts"
            )
        return found

    def ends(self) -> list[int]:
        """Return the tokens that end texts or a turn, first the one that the file names."""
        named = [self.number(name) for name in ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")]
        if self._maybe_texts is None:
            return [one for one in named if one is not None]
        by_text = self._given[1]
        return list(dict.fromkeys([one for one in named[:3] if one is not None] + sorted(by_text)))

    def coder(self) -> Coder:
        """Return the coder of the vocabulary."""
        keys = [key for key in (*self._metadata, SUPPRESSED) if key.startswith("tokenizer.ggml.")]
        unknown = next((key for key in keys if key.removeprefix("tokenizer.ggml.") not in KNOWN), None)
        if unknown == SUPPRESSED and self._listed(SUPPRESSED) is None:
            unknown = None
        if self._kind not in ("gpt2", "llama", "bert", "t5"):
            raise self._refuse(
                f"tokenizer.ggml.model is {shown(self._kind)}, expected gpt2, llama, bert or t5; put tokenizer.json "
                "into a folder with the file's name, or give tokens instead of texts"
            )
        if unknown is not None:
            raise self._refuse(f"the key {shown(unknown)} is not supported; give tokens instead of texts")
        kinds, texts = self._given[0], self.texts
        numbers = {text: i for i, text in enumerate(texts)}
        if len(numbers) != len(texts):
            again = next(i for i, text in enumerate(texts) if numbers[text] != i)
            raise self._refuse(f"tokenizer.ggml.tokens has {shown(texts[again])} twice; give tokens instead of texts")
        if self._kind == "bert":
            lower, strips = (self._flag(f"normalizer.{key}", True) for key in ("lowercase", "strip_accents"))
            none = self.number("unknown")
            if none is None:
                raise self._refuse("the key tokenizer.ggml.unknown_token_id is missing or names no token")
            return WordPiece(self._path, texts, kinds.tolist(), none, lower, strips)
        prefix = self.prefixes
        if self._kind == "t5":
            return _Unigram(self, texts, kinds, self._unigram(numbers, kinds), prefix)
        if self._kind == "llama":
            return _SentencePiece(self, texts, kinds, self._pieces(numbers, kinds), prefix)
        return _Bytes(self, texts, kinds, self._merges(numbers), prefix)

    @property
    def prefixes(self) -> bool:
        """True if a space is put before texts."""
        return self._flag("add_space_prefix", self._kind == "llama")

    @property
    def scores(self) -> list[float]:
        """The scores of the pieces of SentencePiece."""
        found: list[float] = np.asarray(self._listed("tokenizer.ggml.scores"), np.float64).tolist()
        return found

    @cached
    def charsmap(self) -> bytes | None:
        """Replacements of characters, as SentencePiece stores them."""
        found = self._listed("tokenizer.ggml.precompiled_charsmap")
        if found is None:
            return None
        if isinstance(found, list) or np.asarray(found).dtype.kind not in "iu":
            raise self._refuse("the key tokenizer.ggml.precompiled_charsmap holds no bytes")
        return np.asarray(found).astype(np.uint8).tobytes()

    @property
    def merges_spaces(self) -> bool:
        """True if Unigram has no tokens for white space at the ends of a text and next to another one."""
        return self._flag("remove_extra_whitespaces", False)

    def _given_scores(self, count: int) -> list[float]:
        scores = self._listed("tokenizer.ggml.scores")
        if scores is None or len(scores) < count:
            raise self._refuse("the key tokenizer.ggml.scores is missing or does not hold one number for each token")
        if isinstance(scores, list) or not np.isfinite(scores).all():
            raise self._refuse("the key tokenizer.ggml.scores holds no finite numbers")
        return self.scores

    def _pieces(self, numbers: dict[str, int], kinds: object) -> Callable[[str], list[int]]:
        return Pieces(numbers, self._given_scores(len(numbers)), self.number("unknown")).encode

    def _unigram(self, numbers: dict[str, int], kinds: Any) -> Callable[[str], list[int]]:
        unknown = self.number("unknown")
        if unknown is None:
            raise self._refuse("the key tokenizer.ggml.unknown_token_id is missing or names no token")
        return Unigram(numbers, self._given_scores(len(numbers)), kinds.tolist(), unknown).encode

    def byte_level(self, numbers: dict[str, int]) -> tuple[Any, dict[int, list[int]]]:
        """Return byte-level BPE of the package tokenizers, and the tokens of joins that are no token."""
        merges = self._listed("tokenizer.ggml.merges")
        rule = self._rule
        if not isinstance(merges, list):
            raise self._refuse("the key tokenizer.ggml.merges is missing")
        whole = {text: i for text, i in numbers.items() if _is_text(text)}
        pairs: dict[tuple[str, str], None] = {}
        for one in merges:
            text = one.decode("utf-8", "replace")
            at = text.find(" ", 1)
            if at > 0:
                pairs[text[:at], text[at + 1 :]] = None
        # Joins that are not tokens get numbers beyond the vocabulary; their characters are tokens then.
        parts, spelt = dict(whole), dict[int, list[int]]()
        for first, second in pairs:
            for text in (first, second, first + second):
                if text and text not in parts:
                    parts[text] = len(self.texts) + len(spelt)
                    spelt[parts[text]] = [numbers[c] for c in text if c.isascii() and c in numbers]
        tokenizers = package()
        with refusals(self._path, "make this vocabulary"):
            made = tokenizers.Tokenizer(
                tokenizers.models.BPE(
                    vocab=parts, merges=[pair for pair in pairs if all(pair)], ignore_merges=rule.keeps_words
                )
            )
            split, steps = tokenizers.pre_tokenizers.Split, []
            steps += [split(tokenizers.Regex(words), "isolated") for words in rule.words]
            steps.append(tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
            made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(steps)
        return made, spelt

    def _merges(self, numbers: dict[str, int]) -> Callable[[str], list[int]]:
        """Return the function from texts to tokens of byte-level BPE."""
        made, spelt = self.byte_level(numbers)

        def encode(text: str) -> list[int]:
            with refusals(self._path, "encode this text"):
                ids = list(made.encode(text, add_special_tokens=False).ids)
            return [token for i in ids for token in spelt.get(i, (i,))] if spelt else ids

        return encode

    @cached
    def normalizer(self) -> Literal["NFC"] | None:
        """The form of Unicode to which texts are brought first."""
        declared = self._metadata.get(NORMALIZER)
        if declared not in (None, "NFC"):
            raise self._refuse(f"{NORMALIZER} is {shown(declared)}, expected NFC")
        return None if declared is None else "NFC"

    @cached
    def scheme(self) -> str | None:
        """Rule for the space before words; None is the rule of llama.cpp."""
        declared = self._metadata.get(PREFIX)
        if declared is not None and declared not in PREFIXES:
            raise self._refuse(f"{PREFIX} is {shown(declared)}, expected one of {', '.join(PREFIXES)}")
        return declared

    @property
    def is_phi3(self) -> bool:
        """True if white space after control tokens has no tokens."""
        return is_phi3(self._metadata.get("general.name", ""))


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Coder:
    """Base of both kinds of vocabularies: special tokens of a text are matched first, the longest ones first."""

    def __init__(
        self, declared: Vocabulary, texts: list[str], kinds: Any, encode: Callable[[str], list[int]], prefix: bool
    ) -> None:
        self._texts, self._kinds, self._words, self._prefix = texts, kinds.tolist(), encode, prefix
        self._normalizer, self._scheme = declared.normalizer, declared.scheme
        phi3 = declared.is_phi3
        special = np.flatnonzero(np.isin(kinds, SPECIAL)).tolist()
        self._special = Special([(texts[i], i, phi3 and strips(texts[i])) for i in special])

    def encode(self, text: str) -> list[int]:
        found: list[int] = []
        is_first = after_special = True
        for part in self._special.parts(text):
            if isinstance(part, str):
                text = part if self._normalizer is None else unicodedata.normalize(self._normalizer, part)
                found += self._words(self._prepared(text, is_first, after_special))
            else:
                found.append(part)
            is_first, after_special = False, not isinstance(part, str)
        return found

    def spans(self, text: str) -> list[tuple[int, int]]:
        if self._normalizer is not None and unicodedata.normalize(self._normalizer, text) != text:
            raise WrongValue(f"offsets: text is not in the form {self._normalizer}, which the vocabulary turns it into")
        return spans_of(text, [self._surface(token) for token in self.encode(text)])

    def special(self) -> dict[str, int]:
        return {self._texts[i]: i for i, kind in enumerate(self._kinds) if kind == CONTROL and i < len(self._texts)}

    def _prepared(self, text: str, is_first: bool, after_special: bool) -> str:
        return text

    def _surface(self, token: int) -> Surface:
        """Return the bytes that a token stands for."""
        kind, text = self._kinds[token], self._texts[token]
        if kind == BYTE and len(text) == 6:
            return Surface(bytes([int(text[3:5], 16)]))
        if kind == NORMAL:
            return self._plain(text)
        return Surface(text.encode("utf-8", "surrogateescape"), is_open=kind == UNKNOWN)

    def _plain(self, text: str) -> Surface:
        """Return the bytes of a token of the usual type."""
        raise NotImplementedError

    def decode(self, ids: list[int]) -> str:
        raise NotImplementedError


class _SentencePiece(_Coder):
    def _plain(self, text: str) -> Surface:
        return Surface(text.replace(SPACE, " ").encode("utf-8", "surrogateescape"), adds=True)

    def _prepared(self, text: str, is_first: bool, after_special: bool) -> str:
        text = text.replace(" ", SPACE)
        if self._scheme is None:
            wants = self._prefix and after_special
        else:
            wants = (is_first or self._scheme == "always") and not text.startswith(SPACE)
        return SPACE + text if wants else text

    def decode(self, ids: list[int]) -> str:
        found, held = list[str](), bytearray()

        def close() -> None:
            if held:
                try:
                    found.append(held.decode())
                except UnicodeDecodeError:
                    found.append(REPLACEMENT * len(held))
                held.clear()

        for i in ids:
            kind, text = (self._kinds[i], self._texts[i]) if i < len(self._texts) else (CONTROL, "")
            if kind == BYTE and len(text) == 6:
                held.append(int(text[3:5], 16))
            elif kind in (NORMAL, USER):
                close()
                found.append(text if kind == USER else text.replace(SPACE, " "))
        close()
        text = "".join(found)
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return text[1:] if (self._prefix or self._scheme) and text.startswith(" ") else text


class _Unigram(_SentencePiece):
    """Spaces as llama.cpp has them: one before the first character, or one before each word and no other."""

    def __init__(self, declared: Vocabulary, *given: Any) -> None:
        super().__init__(declared, *given)
        blob, self._merges = declared.charsmap, declared.merges_spaces
        self._charsmap = None if not blob else Charsmap(declared.path, blob)

    def _prepared(self, text: str, is_first: bool, after_special: bool) -> str:
        text = text if self._charsmap is None else self._charsmap.replaced(text)
        if self._merges:
            return "".join(SPACE + word for word in text.split(" ") if word)
        spaces = len(text) - len(text.lstrip(" "))
        if self._scheme is not None:
            wants = bool(text) and (is_first or self._scheme == "always") and spaces == 0 and text[0] != SPACE
        else:
            wants = self._prefix and spaces < len(text)
        return SPACE * wants + text.replace(" ", SPACE)

    def spans(self, text: str) -> list[tuple[int, int]]:
        if self._charsmap is not None and self._charsmap.replaced(text) != text:
            raise WrongValue("offsets: text has characters that the vocabulary replaces")
        return super().spans(text)


class _Bytes(_Coder):
    def _plain(self, text: str) -> Surface:
        values = [ALPHABET.get(character) for character in text]
        known = [value for value in values if value is not None]
        return Surface(bytes(known) if len(known) == len(values) else text.encode("utf-8", "surrogateescape"))

    def decode(self, ids: list[int]) -> str:
        found = bytearray()
        for i in ids:
            kind, text = (self._kinds[i], self._texts[i]) if i < len(self._texts) else (CONTROL, "")
            if kind == NORMAL:
                found += self._plain(text).content
            elif kind == USER:
                found += text.encode("utf-8", "surrogateescape")
            elif kind == BYTE and len(text) == 6:
                found.append(int(text[3:5], 16))
        return found.decode("utf-8", "replace")


def _alphabet() -> dict[str, int]:
    """Return the byte of each character of byte-level BPE: printable bytes first, then the others, as in GPT-2."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


ALPHABET = _alphabet()
