"""Keys of a GGUF file for the tokenizer of a Hugging Face folder.

    model BPE with ByteLevel        tokenizer.ggml.model gpt2, .pre for the rule of words, .merges
    model BPE with byte_fallback    llama: .scores from the ranks of merges, .add_space_prefix
    added_tokens                    .token_type; llama.cpp finds them in texts, the longest first
    post_processor, eos_token_id    .add_bos_token, .bos_token_id, .add_eos_token, .eos_token_id, ...
    NFC, Metaspace                  two keys of heterocompute, which llama.cpp does not read

Whatever changes tokens and has no key is refused. llama.cpp, convert_hf_to_gguf.py and src/llama-vocab.cpp.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ....base.errors import WrongValue, shown
from ....base.json_text import json_object
from ....base.locations import is_file
from ....base.texts import read_small
from ....zoo.llm.control_tokens import (
    BYTE,
    CONTROL,
    ENDS,
    FILLS,
    NORMAL,
    SHOWN,
    UNKNOWN,
    UNUSED,
    USER,
    corrected,
    is_phi3,
    strips,
)
from ....zoo.llm.folder_tokens import (
    LLAMA_TOKENS,
    MAX_TOKENIZER,
    around_of,
    declared_tokens,
    ends_of,
    is_rebuilt,
    scheme_of,
)
from ....zoo.llm.gguf_tokens import ALPHABET, NORMALIZER, PREFIX
from ....zoo.llm.tokenizers_package import package
from ....zoo.llm.words import GPT2, NUMBER, OF_FOLDERS, PUNCTUATION_STEP, RULES
from ...configuration import MAX_CONFIG

TOKENIZER, OPTIONS, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
SPACE = "\u2581"
LONGEST = 1000  # characters of a piece, whose ways to split are all compared with the merges
BYTES = re.compile(r"<0x[0-9A-F]{2}>")
BY_TEXT = ENDS | SHOWN | {text for several in FILLS.values() for text in several}
MASKS = ("<mask>", "[MASK]")  # of encoders
BYTES_ONLY = "bytes"  # the step of ByteLevel without an expression


def vocabulary_keys(
    folder: str,
    config: Mapping[str, Any],
    vocabulary: int,
    notes: list[str] | None = None,
    encoder: bool = False,
    folder_type: type[Folder] | None = None,
) -> dict[str, Any]:
    """Return the keys for the tokenizer of a folder, and ``general.name``, by which llama.cpp knows Phi-3.

    Parameters
    ----------
    config : mapping of str to Any
        config.json.
    vocabulary : int
        Rows of the embedding.
    notes : list of str, optional
        Sentences about texts that llama.cpp splits otherwise are appended.
    encoder : bool
        White space before a mask, which is in no text of an encoder's user, is noted instead of refused.
    folder_type : type, optional
        Reads another kind of vocabulary than BPE.

    Raises
    ------
    ValueError
        The tokenizer is missing, or has an option that changes tokens and for which GGUF has no key.
    """
    place = os.path.join(folder, TOKENIZER)
    if not is_file(place):
        raise WrongValue(f"{TOKENIZER} is missing")
    declared = json_object(place, MAX_TOKENIZER)
    options = json_object(os.path.join(folder, OPTIONS), MAX_CONFIG) if is_file(os.path.join(folder, OPTIONS)) else {}
    found = (folder_type or Folder)(folder, declared, options, config, vocabulary, encoder)
    keys = {f"tokenizer.ggml.{key}": value for key, value in found.keys().items() if value != []}
    if notes is not None:
        notes += found.notes
    template = _template(folder, options)
    keys |= found.own | ({} if template is None else {"tokenizer.chat_template": template})
    return keys | {"general.name": _name(os.path.basename(os.path.abspath(folder)), found.strips)}


def _name(name: str, is_wanted: bool) -> str:
    """Return a name by which llama.cpp leaves out white space after control tokens, or does not."""
    if is_wanted:
        return name if is_phi3(name) else f"phi-3 {name}"
    return re.sub(r"(?i)phi-?3", "phi 3", name)


def refuse(what: str) -> ValueError:
    """Return the error of a tokenizer that is not written."""
    return WrongValue(f"{TOKENIZER}: {what}")


class Folder:
    """The tokenizer of a folder."""

    def __init__(
        self,
        folder: str,
        declared: Mapping[str, Any],
        options: Mapping[str, Any],
        config: Mapping[str, Any],
        count: int,
        encoder: bool,
    ) -> None:
        self._encoder = encoder
        self._folder, self._said, self._options, self._config, self._count = folder, declared, options, config, count
        self._model, self._words = self._model_of(declared)
        if options.get("split_special_tokens") is True:
            raise WrongValue(f"{OPTIONS}: split_special_tokens is true, which GGUF has no key for")
        self._is_rebuilt = is_rebuilt(
            [declared.get(key) for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder")], options, config
        )
        self._normal = [] if self._is_rebuilt else list(_steps(declared.get("normalizer"), "normalizers"))
        self._pre = list(_steps(declared.get("pre_tokenizer"), "pretokenizers"))
        self.own: dict[str, Any] = {}
        self.strips = False
        self.notes: list[str] = []

    def _model_of(self, declared: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the model and the numbers of its tokens."""
        model = declared.get("model")
        if (
            not isinstance(model, Mapping)
            or model.get("type", "BPE") != "BPE"
            or not isinstance(model.get("vocab"), Mapping)
        ):
            raise refuse("its model is not BPE")
        for key in ("continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(key):
                raise refuse(f"{key} is {shown(model[key])}, which GGUF has no key for")
        return model, model["vocab"]

    def keys(self) -> dict[str, Any]:
        """Return the keys without the part of their names that is the same."""
        model = self._model
        pairs = [tuple(one.split(" ", 1)) if isinstance(one, str) else tuple(one) for one in model.get("merges") or ()]
        if any(len(pair) != 2 or not all(isinstance(part, str) for part in pair) for pair in pairs):
            raise refuse("a merge is not a pair of strings")
        added = self._added()
        texts, types = self._pieces(added)
        if any(step.get("type") == "ByteLevel" for step in self._pre):
            found = self._of_bytes(texts, types, pairs)
        elif model.get("byte_fallback") or self._is_rebuilt:
            found = self._of_sentencepiece(texts, types, pairs)
        else:
            raise refuse("its BPE is neither of bytes nor of SentencePiece")
        self._check_added(added, texts, types)
        unknown = model.get("unk_token")
        if isinstance(unknown, str) and unknown in texts:
            found["unknown_token_id"] = number = texts.index(unknown)
            types[number] = UNKNOWN if types[number] == CONTROL else types[number]
        return found | {"tokens": texts, "token_type": types} | self._around(texts, types)

    def _added(self) -> list[dict[str, Any]]:
        """Return the tokens that are found in texts, those of the other files too."""
        found: dict[str, dict[str, Any]] = {}
        for one in self._said.get("added_tokens") or ():
            if isinstance(one, Mapping) and isinstance(one.get("content"), str):
                found[one["content"]] = dict(one)
        options = {**LLAMA_TOKENS, **self._options} if self._is_rebuilt else self._options
        with_ids, named, special = declared_tokens(self._folder, options, self._said.get("padding"))
        given = set(found)
        declared = {entry["content"] for _, entry in with_ids}
        for i, entry in with_ids:
            found[entry["content"]] = {**found.get(entry["content"], {}), **entry, "id": i}
        for entry in named:
            text = entry["content"]
            if text not in found:
                found[text] = {**entry, "id": self._words.get(text, self._next(found))}
            elif text in special and ("added_tokens_decoder" not in self._options or text in declared):
                found[text]["special"] = True
        return [one for one in found.values() if one["content"] in given or 0 <= one["id"] < self._count]

    def _next(self, added: Mapping[str, Mapping[str, Any]]) -> int:
        """Return the number of a new token, as the package tokenizers counts."""
        last = max((one["id"] for one in added.values() if type(one.get("id")) is int), default=-1)
        return max(last + 1, len(self._words))

    def _pieces(self, added: list[dict[str, Any]]) -> tuple[list[str], list[int]]:
        """Return the text and the type of the token of each row of the embedding."""
        texts: list[str | None] = [None] * self._count
        types = [NORMAL] * self._count
        for text, i in [*self._words.items(), *((one["content"], one.get("id")) for one in added)]:
            if type(i) is not int or not isinstance(text, str) or not 0 <= i < self._count:
                raise refuse(f"the token {shown(text)} has number {shown(i)}, beyond the embedding")
            if texts[i] not in (None, text):
                raise refuse(f"the tokens {shown(texts[i])} and {shown(text)} have one number {i}")
            texts[i] = text
        for one in added:
            types[one["id"]] = CONTROL if one.get("special") else USER
        taken = set(texts)
        for i, text in enumerate(texts):
            if text is None:
                types[i], texts[i] = UNUSED, f"[PAD{i}]" if f"[PAD{i}]" not in taken else f"[UNUSED{i}]"
        found = [text for text in texts if text is not None]
        if len(set(found)) != len(found):
            raise refuse("two numbers have one token")
        return found, types

    def _check_added(self, added: list[dict[str, Any]], texts: list[str], types: list[int]) -> None:
        """Refuse flags of tokens that GGUF has no key for, and tokens that llama.cpp finds in texts by itself."""
        is_changed = any(step.get("type") == "Prepend" for step in self._normal)
        for one in added:
            for flag in ("lstrip", "single_word"):
                if one.get(flag) and flag == "lstrip" and self._encoder and one["content"] in MASKS:
                    self.notes.append(f"white space before {one['content']} in a text has tokens in llama.cpp")
                elif one.get(flag):
                    raise refuse(f"{flag} of the token {shown(one['content'])} is true, which GGUF has no key for")
            if one.get("normalized", not one.get("special")) and is_changed:
                raise refuse(f"normalized of the token {shown(one['content'])} is true, which GGUF has no key for")
        check_overlaps({one["content"]: bool(one.get("normalized", not one.get("special"))) for one in added})
        stripped = {one["content"] for one in added if one.get("rstrip")}
        if stripped:
            if stripped != {one["content"] for one in added if strips(one["content"])} or "</s>" not in texts:
                raise refuse(
                    f"rstrip of the token {shown(min(stripped))} is true, which GGUF has no key for but for all tokens "
                    "that Phi-3 has it for"
                )
            self.strips = True
        plain = next(
            (text for text, kind in zip(texts, types, strict=True) if kind == NORMAL and text in BY_TEXT), None
        )
        if plain is not None:
            raise refuse(f"{shown(plain)} is not in added_tokens, but llama.cpp takes it for a control token")

    def _of_bytes(self, texts: list[str], types: list[int], pairs: list[tuple[str, ...]]) -> dict[str, Any]:
        normal = [step.get("type") for step in self._normal]
        if normal not in ([], ["NFC"]):
            raise refuse(f"its normalizer {', '.join(map(str, normal))} has no key in GGUF")
        if normal:
            self.own[NORMALIZER] = "NFC"
        if self._model.get("unk_token") is not None and not set(ALPHABET) <= set(texts):
            raise refuse("its vocabulary lacks bytes, which are then the unknown token, not so in llama.cpp")
        if [step.get("type") for step in self._decoder()] not in ([], ["ByteLevel"]):
            raise refuse("its decoder is not ByteLevel")
        if not pairs:
            raise refuse("its model has no merges, without which llama.cpp does not load a file")
        return {"model": "gpt2", "pre": self._rule(), "merges": [" ".join(pair) for pair in pairs]}

    def _decoder(self) -> list[Mapping[str, Any]]:
        return list(_steps(self._said.get("decoder"), "decoders"))

    def _rule(self) -> str:
        """Return llama.cpp's name of the rule that splits a text into words."""
        steps = [_step(step) for step in self._pre]
        words = tuple(one for one in steps if one != BYTES_ONLY)
        found = OF_FOLDERS.get(words)
        if found is None or (BYTES_ONLY in steps and steps.index(BYTES_ONLY) != len(steps) - 1):
            raise refuse("splits texts into words by a rule that llama.cpp has no name for")
        if any(step.get("type") == "ByteLevel" and step.get("add_prefix_space", True) for step in self._pre):
            raise refuse("add_prefix_space of ByteLevel is true, which GGUF has no key for")
        whole = bool(self._model.get("ignore_merges"))
        name = next((one for one in found.names if RULES[one].keeps_words == whole), None)
        if name is None and not self._joins_all():
            raise refuse(f"ignore_merges is {str(whole).lower()}, unlike in llama.cpp with the rule {found.names[0]}")
        if found.near:
            self.notes.append(
                "llama.cpp knows no case, marks or digits beyond ASCII here, and splits some words otherwise"
            )
        return name or found.names[0]

    def _joins_all(self) -> bool:
        """Tell whether merges make each token that is a word, so that `ignore_merges` changes nothing."""
        words, added = self._words, {one["content"] for one in self._added()}
        pairs = [one.split(" ", 1) if isinstance(one, str) else one for one in self._model.get("merges") or ()]
        model = package().models.BPE(vocab=dict(words), merges=[tuple(pair) for pair in pairs])
        texts = [text for text in words if text not in added and set(text) <= ALPHABET.keys()]
        return all(len(model.tokenize(text)) == 1 for text in texts)

    def _of_sentencepiece(self, texts: list[str], types: list[int], pairs: list[tuple[str, ...]]) -> dict[str, Any]:
        prefix = self._prefix(texts)
        known = set(texts)
        lost = next((byte for byte in range(256) if f"<0x{byte:02X}>" not in known), None)
        if lost is not None:
            raise refuse(f"its vocabulary lacks the token <0x{lost:02X}>, which llama.cpp needs")
        if self._model.get("ignore_merges"):
            raise refuse("ignore_merges is true, which SentencePiece in GGUF has no key for")
        _check_merges(texts, types, set(pairs))
        rank = {first + second: i for i, (first, second) in reversed(list(enumerate(pairs)))}
        for i, text in enumerate(texts):
            types[i] = BYTE if BYTES.fullmatch(text) and types[i] == NORMAL else types[i]
        scores = [0.0 if kind == BYTE else -float(rank.get(text, len(pairs)))
                  for text, kind in zip(texts, types, strict=True)]  # fmt: skip
        return {"model": "llama", "pre": "default", "scores": scores, "add_space_prefix": prefix}

    def _prefix(self, texts: list[str]) -> bool:
        """Tell whether a space is put before texts."""
        if self._is_rebuilt:
            scheme = scheme_of(self._options)
        elif not self._normal and [step.get("type") for step in self._pre] == ["Metaspace"]:
            step = self._pre[0]
            scheme = step.get("prepend_scheme") or ("always" if step.get("add_prefix_space", True) else "never")
            if step.get("replacement", SPACE) != SPACE:
                raise refuse(f"replacement of Metaspace is {shown(step['replacement'])}, expected {SPACE}")
            if step.get("split", True) and any(SPACE in text[1:] for text in texts):
                raise refuse("split of Metaspace is true, which GGUF has no key for")
        else:
            return self._prefix_of_normalizer()
        if scheme != "never":
            self.own[PREFIX] = scheme
        self._check_decoder(scheme != "never")
        return bool(scheme != "never")

    def _prefix_of_normalizer(self) -> bool:
        harmless = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
        prepend = {"type": "Prepend", "prepend": SPACE}
        replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
        steps = list(self._normal)
        prefix = prepend in steps
        if prefix:
            steps.remove(prepend)
        if steps != [replace] or self._pre not in ([], [harmless]):
            names = [str(step.get("type")) for step in (*self._normal, *self._pre)]
            raise refuse(f"its steps {', '.join(names) or 'none'} before BPE have no key in GGUF")
        self._check_decoder(prefix)
        return prefix

    def _check_decoder(self, prefix: bool) -> None:
        if self._is_rebuilt:
            return
        wanted: list[Mapping[str, Any]] = [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, *([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []),
        ]  # fmt: skip
        if self._decoder() not in ([], wanted):
            raise refuse("its decoder is not that of SentencePiece")

    def _around(self, texts: list[str], types: list[int]) -> dict[str, Any]:
        """Return the keys for tokens at the beginning and end of texts."""
        ends = ends_of(self._folder, self._config, self._count)
        found: dict[str, Any] = {"eos_token_id": ends[0]} if ends else {}
        by_text = corrected(texts, types, {})[1]  # llama.cpp ends texts at these without a key
        others = [i for i in ends[1:] if i not in by_text]
        if len(others) > 2:
            raise WrongValue(f"eos_token_id has {len(ends)} tokens, of which GGUF has no keys for more than 3")
        found |= dict(zip(("eot_token_id", "eom_token_id"), others, strict=False))
        for key, name in (("bos_token_id", "bos_token_id"), ("pad_token_id", "padding_token_id")):
            value = self._config.get(key)
            if type(value) is int and 0 <= value < self._count:
                found[name] = value
        before, after = around_of(TOKENIZER, self._said, self._count)
        found |= {"add_bos_token": before is not None, "add_eos_token": bool(after)}
        if before is not None:
            found["bos_token_id"] = before
        if after and after != (found.get("eos_token_id"),):
            raise refuse("post_processor ends texts with tokens other than eos_token_id, which GGUF has no key for")
        return found


def check_overlaps(is_late: Mapping[str, bool]) -> None:
    """Refuse tokens that overlap in a text: transformers takes the leftmost, llama.cpp the longest.

    `is_late`: tokens, and whether transformers finds them after the others (normalized).
    """
    longest: dict[str, list[str]] = {}  # of the tokens that begin so, the two longest ones: one may be the token itself
    for text in is_late:
        if len(text) > LONGEST:
            raise refuse(f"a token has {len(text)} characters, expected at most {LONGEST}")
        for end in range(1, len(text)):
            known = longest.setdefault(text[:end], [])
            known.append(text)
            known.sort(key=len, reverse=True)
            del known[2:]
    is_mixed = len(set(is_late.values())) > 1
    for text, late in is_late.items():
        for at in range(1, len(text)):
            for other in longest.get(text[at:], ()):
                if other == text or (len(other) < len(text) and is_late[other] == late):
                    continue
                if not (text[:at] + other).startswith(other):
                    raise refuse(
                        f"its tokens {shown(text)} and {shown(other)} overlap, which llama.cpp resolves otherwise"
                    )
        if is_mixed and late:
            inner = (text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1))
            if other := next((one for one in inner if is_late.get(one) is False), ""):
                raise refuse(f"normalized of the token {shown(text)} is true, and {shown(other)} is found in it first")


def _check_merges(texts: list[str], types: list[int], pairs: set[tuple[str, ...]]) -> None:
    """Refuse merges that leave out a way to split a piece, which llama.cpp joins by the score of the piece."""
    known = set(texts)
    for text, kind in zip(texts, types, strict=True):
        if kind not in (NORMAL, UNUSED) and SPACE not in text:
            continue  # found in texts before words are
        if len(text) > LONGEST:
            raise refuse(f"a piece has {len(text)} characters, expected at most {LONGEST}")
        for at in range(1, len(text)):
            pair = text[:at], text[at:]
            if pair not in pairs and all(part in known or len(part) == 1 for part in pair):
                raise refuse(f"its merges lack {shown(pair[0])} and {shown(pair[1])}, which llama.cpp joins to a token")


def _steps(found: object, key: str) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a pre-tokenizer, normalizer or decoder one by one."""
    if isinstance(found, Mapping):
        parts = found.get(key)
        if isinstance(parts, list):
            for part in parts:
                yield from _steps(part, key)
        else:
            yield found


def _step(step: Mapping[str, Any]) -> str:
    """Return a word for a step of a pre-tokenizer of bytes, or the expression by which it splits."""
    kind, pattern = step.get("type"), step.get("pattern")
    if kind == "ByteLevel":
        return GPT2 if step.get("use_regex", True) else BYTES_ONLY
    if kind == "Digits":
        return NUMBER if step.get("individual_digits") else rf"{NUMBER}+"
    if kind == "Punctuation" and str(step.get("behavior")).lower() == "contiguous":
        return PUNCTUATION_STEP
    if kind == "Split" and isinstance(pattern, Mapping) and not step.get("invert"):
        if str(step.get("behavior")).lower() == "isolated" and isinstance(pattern.get("Regex"), str):
            return str(pattern["Regex"])
    return f"another: {kind}"


def _template(folder: str, options: Mapping[str, Any]) -> str | None:
    place = os.path.join(folder, TEMPLATE)
    if is_file(place):
        return read_small(place, MAX_CONFIG)
    found = options.get("chat_template")
    return found if isinstance(found, str) else None
