"""Text to tokens and back by the package `tokenizers`: from tokenizer.json, or from the vocabulary of a GGUF file.

GGUF has strings, scores or merges, and the name of the rule that splits a text into words: llama.cpp,
src/llama-vocab.cpp.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...base.json_text import json_object
from ...base.kept import kept
from ...base.regular import check_regular
from ...base.texts import printable
from ...base.values import check_text, shown

__all__ = ["MAX_TOKENIZER", "Tokens", "begin_of", "of_gguf", "of_json"]

MAX_TOKENIZER = 1 << 27  # bytes of tokenizer.json

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
LLAMA3 += r"|\s+(?!\S)|\s+"
# The words of each rule; with the flag, digits are split off first.
WORDS = {
    "gpt-2": (GPT2, False),
    "smollm": (GPT2, True),
    "starcoder": (GPT2, True),
    "llama-bpe": (LLAMA3, False),
    "dbrx": (LLAMA3, False),
    "qwen2": (LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"), False),
}
WORDS |= {"llama3": WORDS["llama-bpe"], "llama-v3": WORDS["llama-bpe"], "deepseek-r1-qwen": WORDS["qwen2"]}
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)  # types of tokens
# A GGUF file names one end of text. Chat models also end a turn with a control token, which is known by its text.
ENDS = frozenset((
    b"<|endoftext|>", b"<|end_of_text|>", b"<|im_end|>", b"<|eot_id|>", b"<|eom_id|>", b"<|end|>", b"<end_of_turn>",
    b"</s>", b"<eos>",
))  # fmt: skip
MISSING = "open_llm: texts need the package tokenizers: pip install 'heterocompute[llm]'"


class Tokens:
    """Text to tokens and back.

    Parameters
    ----------
    make : callable
        Returns the tokenizer of the package `tokenizers`; called when a text is first encoded.
    begin : callable
        Returns the token that begins texts, None if the model wants none; called when it is first needed.
    ends : iterable of int
        Tokens that end texts.
    vocabulary : int
        Rows of the embedding, which no token passes.
    more_ends : callable, optional
        Returns further tokens that end texts; called when a text is first continued.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        begin: Callable[[], int | None],
        ends: Iterable[int],
        vocabulary: int,
        more_ends: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        self._make, self._begin, self.vocabulary = make, begin, vocabulary
        self._ends, self._more_ends = frozenset(ends), more_ends

    @kept
    def begin(self) -> int | None:
        """The token that begins texts, None if the model wants none."""
        return self._begin()

    @kept
    def ends(self) -> frozenset[int]:
        """Tokens that end texts or the turn of a chat model."""
        return self._ends | frozenset(self._more_ends())

    @property
    def end(self) -> int | None:
        """The token that ends texts, None if there is none; the lowest one if the file names several."""
        return min(self._ends or self.ends, default=None)

    @kept
    def tokenizer(self) -> Any:
        """The tokenizer of the package `tokenizers`."""
        return self._make()

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Return the tokens of a text.

        Parameters
        ----------
        text : str
        special : bool
            Begin with the token that begins texts, if the model wants one.

        Returns
        -------
        list of int

        Raises
        ------
        TypeError
            No str.
        ValueError
            The text is no Unicode text: it holds half of a surrogate pair.
        ImportError
            The package tokenizers is not installed.
        """
        check_text("encode", "text", text)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"encode: text has half a surrogate pair at index {error.start}, which UTF-8 does not have"
            ) from None
        ids = list(self.tokenizer.encode(text, add_special_tokens=False).ids)
        return [self.begin, *ids] if special and self.begin is not None else ids

    def decode(self, ids: Any) -> str:
        """Return the text of tokens; those that begin and end texts have none.

        Parameters
        ----------
        ids : sequence of int

        Returns
        -------
        str

        Raises
        ------
        TypeError
            The tokens are not integers.
        ValueError
            A token is out of range.
        """
        given = list(ids) if isinstance(ids, (Sequence, np.ndarray)) else [ids]
        if not all(isinstance(i, (int, np.integer)) for i in given):
            raise TypeError(f"decode: ids is {shown(ids)}, expected a sequence of integers")
        wrong = next((i for i in given if not 0 <= i < self.vocabulary), None)
        if wrong is not None:
            raise ValueError(f"decode: token {wrong} is out of range, expected 0 to {self.vocabulary - 1}")
        return str(self.tokenizer.decode([int(i) for i in given], skip_special_tokens=True))


def _package() -> Any:
    try:
        import tokenizers  # optional
    except ImportError:
        raise ImportError(MISSING) from None
    return tokenizers


def begin_of(said: Mapping[str, Any], options: Mapping[str, Any], usual: int | None) -> int | None:
    """Return the token that begins texts, as in transformers.

    Parameters
    ----------
    said : mapping of str to Any
        tokenizer.json. Its template says which token begins a text.
    options : mapping of str to Any
        tokenizer_config.json, which counts if there is no template.
    usual : int or None
        The beginning-of-text token of config.json.
    """
    found = said.get("post_processor")
    several = found.get("processors") if isinstance(found, Mapping) else None
    steps = [step for step in (several if isinstance(several, list) else [found]) if isinstance(step, Mapping)]
    template = next((step for step in steps if step.get("type") == "TemplateProcessing"), None)
    if template is None:
        return usual if options.get("add_bos_token") is True else None
    single, known = template.get("single"), template.get("special_tokens")
    first = single[0] if isinstance(single, list) and single else None
    token = first.get("SpecialToken") if isinstance(first, Mapping) else None
    if not isinstance(token, Mapping):
        return None
    entry = known.get(str(token.get("id"))) if isinstance(known, Mapping) else None
    ids = entry.get("ids") if isinstance(entry, Mapping) else None
    return ids[0] if isinstance(ids, list) and ids and type(ids[0]) is int and ids[0] >= 0 else usual


def of_json(path: str, options: Mapping[str, Any], usual: int | None, ends: Iterable[int], vocabulary: int) -> Tokens:
    """Return the tokenizer of a file tokenizer.json.

    Parameters
    ----------
    path : str
    options, usual
        As of `begin_of`.
    ends, vocabulary
        As of `Tokens`.
    """

    def begin() -> int | None:
        said = json_object(path, MAX_TOKENIZER) if os.path.exists(path) else {}
        token = begin_of(said, options, usual)
        return token if token is not None and token < vocabulary else None

    def make() -> Any:
        package = _package()
        if not os.path.lexists(path):
            raise ValueError(
                f"{printable(path)}: is missing, expected the tokenizer of the model; copy it here, or pass tokens "
                "instead of texts"
            )
        check_regular(path)  # the package would wait for a FIFO
        try:
            return package.Tokenizer.from_file(path)
        except Exception as error:  # the package raises Exception itself
            raise ValueError(f"{printable(path)}: the package tokenizers does not read it ({error})") from None

    return Tokens(make, begin, ends, vocabulary)


def of_gguf(path: str, metadata: Mapping[str, str], listed: Callable[[str], Any], vocabulary: int) -> Tokens:
    """Return the tokens of a GGUF file.

    Parameters
    ----------
    path : str
    metadata : mapping of str to str
    listed : callable
        Returns the list of a key, as of `Gguf.listed`.
    vocabulary : int
        Rows of the embedding, which no token passes.
    """

    def number(key: str) -> int | None:
        text = metadata.get(f"tokenizer.ggml.{key}", "")
        return int(text) if text.isdecimal() and len(text) < 12 and int(text) < vocabulary else None

    kind = metadata.get("tokenizer.ggml.model")
    adds = metadata.get("tokenizer.ggml.add_bos_token", str(kind == "llama")) == "True"
    begin = number("bos_token_id") if adds else None
    ends = {found for key in ("eos_token_id", "eot_token_id", "eom_token_id") if (found := number(key)) is not None}

    def more_ends() -> list[int]:
        texts, types = listed("tokenizer.ggml.tokens"), listed("tokenizer.ggml.token_type")
        if not isinstance(texts, list) or types is None or not len(types) == len(texts) <= vocabulary:
            return []
        return [int(i) for i in np.flatnonzero(np.asarray(types) == CONTROL) if texts[i] in ENDS]

    def make() -> Any:
        package = _package()
        texts = listed("tokenizer.ggml.tokens")
        if not isinstance(texts, list) or not 0 < len(texts) <= vocabulary:
            raise ValueError(
                f"{printable(path)}: the key tokenizer.ggml.tokens is missing or longer than the embedding"
            )
        pieces = [text.decode("utf-8", "replace") for text in texts]
        types = listed("tokenizer.ggml.token_type")
        kinds = np.full(len(pieces), NORMAL) if types is None or len(types) != len(pieces) else np.asarray(types)
        if kind == "gpt2":
            made = _byte_level(
                package, path, pieces, listed("tokenizer.ggml.merges"), metadata.get("tokenizer.ggml.pre", "gpt-2")
            )
        elif kind == "llama":
            scores = listed("tokenizer.ggml.scores")
            made = _sentence_piece(
                package, path, pieces, scores, metadata.get("tokenizer.ggml.add_space_prefix", "True") == "True"
            )
        else:
            raise ValueError(
                f"{printable(path)}: tokenizer.ggml.model is {shown(kind)}, expected gpt2 or llama; put tokenizer.json "
                "into a folder with the file's name, or give tokens instead of texts"
            )
        special = [pieces[i] for i in np.flatnonzero(kinds == CONTROL)]
        made.add_special_tokens([package.AddedToken(text, normalized=False, special=True) for text in special if text])
        own = [pieces[i] for i in np.flatnonzero(kinds == USER)]
        made.add_tokens([package.AddedToken(text, normalized=False, special=False) for text in own if text])
        return made

    return Tokens(make, lambda: begin, ends, vocabulary, more_ends)


def _byte_level(package: Any, path: str, pieces: Sequence[str], merges: Any, rule: str) -> Any:
    """Return byte-level BPE, as in GPT-2."""
    if rule not in WORDS:
        raise ValueError(
            f"{printable(path)}: tokenizer.ggml.pre is {shown(rule)}, expected one of {', '.join(WORDS)}; give tokens "
            "instead of texts"
        )
    if not isinstance(merges, list):
        raise ValueError(f"{printable(path)}: the key tokenizer.ggml.merges is missing")
    pairs = [tuple(text.decode("utf-8", "replace").split(" ", 1)) for text in merges]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    pairs = [pair for pair in pairs if len(pair) == 2 and all(one in vocabulary for one in (*pair, pair[0] + pair[1]))]
    made = package.Tokenizer(
        package.models.BPE(vocab=vocabulary, merges=pairs, fuse_unk=False, ignore_merges=rule.startswith("llama"))
    )
    words, digits = WORDS[rule]
    steps = [package.pre_tokenizers.Digits(individual_digits=True)] if digits else []
    steps.append(package.pre_tokenizers.Split(package.Regex(words), "isolated"))
    steps.append(package.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    made.pre_tokenizer = package.pre_tokenizers.Sequence(steps)
    made.decoder = package.decoders.ByteLevel()
    return made


def _sentence_piece(package: Any, path: str, pieces: Sequence[str], scores: Any, prefix: bool) -> Any:
    """Return BPE of SentencePiece: the pair of pieces whose join has the highest score is merged first."""
    if scores is None or len(scores) != len(pieces):
        raise ValueError(f"{printable(path)}: the key tokenizer.ggml.scores is missing or has another length")
    if isinstance(scores, list) or not np.isfinite(scores).all():
        raise ValueError(f"{printable(path)}: the key tokenizer.ggml.scores holds no finite numbers")
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    found: list[tuple[float, int, int, str, str]] = []
    place = vocabulary.get
    for piece, i in vocabulary.items():
        splits = []
        for at in range(1, len(piece)):
            first = place(piece[:at])
            if first is not None and (second := place(piece[at:])) is not None:
                splits.append((-float(scores[i]), first, second, piece[:at], piece[at:]))
        found += sorted(splits) if len(splits) > 1 else splits
    found.sort(key=lambda one: one[0])
    merges = [(left, right) for _, _, _, left, right in found]
    has_bytes = all(f"<0x{byte:02X}>" in vocabulary for byte in range(256))
    unknown = next((piece for piece in ("<unk>", "[UNK]") if piece in vocabulary), None)
    made = package.Tokenizer(
        package.models.BPE(vocab=vocabulary, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=has_bytes)
    )
    steps = [package.normalizers.Prepend("\u2581")] if prefix else []
    made.normalizer = package.normalizers.Sequence([*steps, package.normalizers.Replace(" ", "\u2581")])
    parts = [package.decoders.Replace("\u2581", " "), package.decoders.ByteFallback(), package.decoders.Fuse()]
    if prefix:
        parts.append(package.decoders.Strip(content=" ", left=1))
    made.decoder = package.decoders.Sequence(parts)
    return made
