"""Tokens of a Hugging Face folder: tokenizer.json, and the keys of other files that change tokens, as in transformers.

    tokenizer.json          the tokenizer; its truncation, padding and dropout are settings of training
    post_processor          tokens before and after each text; add_bos_token and add_eos_token have no effect beside it
    tokenizer_config.json   further tokens, and LlamaTokenizer with legacy and add_prefix_space
    special_tokens_map.json, added_tokens.json   further tokens of older folders

transformers 5.24, tokenization_utils_base.py, tokenization_utils_tokenizers.py, models/llama/tokenization_llama.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...base.errors import WrongValue, printable, shown
from ...base.json_text import json_object
from ...base.regular import check_regular
from ...families.kind import Kind
from ...families.table import KINDS
from .tokenizers_package import package, refusals
from .tokens import Around, Tokens

MAX_TOKENIZER = 1 << 27  # bytes of tokenizer.json
MAX_CONFIG = 1 << 20
TOKENIZER, OPTIONS, GENERATION = "tokenizer.json", "tokenizer_config.json", "generation_config.json"
NAMED = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
FLAGS = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
CLEAN = "clean_up_tokenization_spaces"
CLEAN_BPE = f"{CLEAN}_for_bpe_even_though_it_will_corrupt_output"
CLEANED = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
           (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"))  # fmt: skip
SPACE = "\u2581"
# The tokens of LlamaTokenizer where a folder that names it names none.
LLAMA_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def of_folder(path: str, config: Mapping[str, Any], vocabulary: int) -> Tokens:
    """Return the tokens of a folder.

    Parameters
    ----------
    config : mapping of str to Any
        config.json.
    vocabulary : int
        Rows of the embedding.
    """
    place = os.path.join(path, TOKENIZER)

    def around() -> Around:
        declared = json_object(place, MAX_TOKENIZER) if os.path.exists(place) else {}
        return around_of(place, declared, vocabulary)

    return Tokens(
        lambda: _Folder(path, config),
        around,
        lambda: sorted(ends_of(path, config, vocabulary)),
        vocabulary,
    )


def ends_of(path: str, config: Mapping[str, Any], vocabulary: int) -> list[int]:
    """Return the tokens that end texts: those of config.json, then further ones of generation_config.json."""
    inner, found = config.get("text_config"), dict[int, None]()
    files = [config, inner if isinstance(inner, Mapping) else {}, _object(path, GENERATION)]
    if not any("eos_token_id" in declared for declared in files) and not files[2]:
        files.append({"eos_token_id": kind.end if (kind := _kind(config)) else None})
    for declared in files:
        value = declared.get("eos_token_id")
        for one in value if isinstance(value, list) else [value]:
            if type(one) is int and 0 <= one < vocabulary:
                found[one] = None
    return list(found)


def around_of(path: str, declared: Mapping[str, Any], vocabulary: int) -> Around:
    """Return the tokens that the post-processor of tokenizer.json adds to each text.

    Raises
    ------
    ValueError
        The template repeats the text, begins it with several tokens, or has a token beyond the vocabulary.
    """
    before, after = list[int](), list[int]()
    for step in _parts(declared.get("post_processor"), "processors"):
        first, last = _around_step(path, step)
        before, after = first + before, after + last
    wrong = next((token for token in (*before, *after) if not 0 <= token < vocabulary), None)
    if wrong is not None:
        raise WrongValue(
            f"{printable(path)}: post_processor adds the token {shown(wrong)}, expected 0 to {vocabulary - 1}"
        )
    if len(before) > 1:
        raise WrongValue(f"{printable(path)}: post_processor begins texts with {len(before)} tokens, expected 0 or 1")
    return Around(before[0] if before else None, tuple(after))


def _parts(found: object, key: str) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a processor or normalizer one by one."""
    if isinstance(found, Mapping):
        several = found.get(key)
        for part in several if isinstance(several, list) else ():
            yield from _parts(part, key)
        if not isinstance(several, list):
            yield found


def _around_step(path: str, step: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Return the tokens that one step adds before and after a text."""
    kind = step.get("type")
    if kind in ("BertProcessing", "RobertaProcessing"):
        pairs = [step.get(key) for key in ("cls", "sep")]
        ids = [pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2 and type(pair[1]) is int]
        if len(ids) == 2:
            return ids[:1], ids[1:]
    elif kind == "TemplateProcessing":
        parts, known = step.get("single"), step.get("special_tokens")
        names = [_named(part, known) for part in parts] if isinstance(parts, list) else []
        texts = [i for i, ids in enumerate(names) if ids is None]
        if len(texts) == 1:
            before, after = names[: texts[0]], names[texts[0] + 1 :]
            return [i for ids in before for i in ids or ()], [i for ids in after for i in ids or ()]
    elif kind in ("ByteLevel", None):
        return [], []
    raise WrongValue(f"{printable(path)}: post_processor has a step {shown(kind)} that is not supported")


def _named(part: object, known: object) -> list[int] | None:
    """Return the tokens of a part of a template; None for the text."""
    token = part.get("SpecialToken") if isinstance(part, Mapping) else None
    if not isinstance(token, Mapping):
        return None
    entry = known.get(str(token.get("id"))) if isinstance(known, Mapping) else None
    ids = entry.get("ids") if isinstance(entry, Mapping) else None
    return [one if type(one) is int else -1 for one in ids] if isinstance(ids, list) else [-1]


class _Folder:
    """The tokenizer of a folder."""

    def __init__(self, path: str, config: Mapping[str, Any]) -> None:
        tokenizers = package()
        self._path = place = os.path.join(path, TOKENIZER)
        if not os.path.lexists(place):
            raise WrongValue(
                f"{printable(place)}: is missing, expected the tokenizer of the model; copy it here, or pass tokens "
                "instead of texts"
            )
        check_regular(place)  # the package would wait for a FIFO
        options = _object(path, OPTIONS)
        if options.get("fix_mistral_regex") is True:
            raise WrongValue(
                f"{printable(os.path.join(path, OPTIONS))}: fix_mistral_regex is true, which is not supported; pass "
                "tokens instead of texts"
            )
        with refusals(place, "read it"):
            made = self._made = tokenizers.Tokenizer.from_file(place)
            padding = made.padding
            made.no_truncation()
            made.no_padding()
            is_bpe = type(made.model).__name__ == "BPE"
            if is_bpe:
                made.model.dropout = None
            made.encode_special_tokens = options.get("split_special_tokens") is True
        steps = (made.normalizer, made.pre_tokenizer, made.post_processor, made.decoder)
        if is_bpe and is_rebuilt(steps, options, config):
            _rebuild(tokenizers, made, options, place)
            options = {**LLAMA_TOKENS, **options}
        _add_tokens(tokenizers, path, made, options, padding)
        self._cleans = options.get(CLEAN) is True and (not is_bpe or options.get(CLEAN_BPE) is True)

    def encode(self, text: str) -> list[int]:
        with refusals(self._path, "encode this text"):
            return list(self._made.encode(text, add_special_tokens=False).ids)

    def spans(self, text: str) -> list[tuple[int, int]]:
        with refusals(self._path, "encode this text"):
            return list(self._made.encode(text, add_special_tokens=False).offsets)

    def special(self) -> dict[str, int]:
        return {one.content: i for i, one in self._made.get_added_tokens_decoder().items() if one.special}

    def decode(self, ids: list[int]) -> str:
        with refusals(self._path, "decode these tokens"):
            text = str(self._made.decode(ids, skip_special_tokens=True))
        for given, wanted in CLEANED if self._cleans else ():
            text = text.replace(given, wanted)
        return text


def _object(path: str, name: str) -> dict[str, Any]:
    """Return the JSON object of a file of the folder, empty without the file."""
    place = os.path.join(path, name)
    return json_object(place, MAX_CONFIG) if os.path.exists(place) else {}


def is_rebuilt(steps: Iterable[Any], options: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Tell whether transformers takes only the vocabulary of tokenizer.json, for its class LlamaTokenizer."""
    named = options.get("tokenizer_class") or config.get("tokenizer_class")
    is_llama = isinstance(named, str) and named.removesuffix("Fast") == "LlamaTokenizer"
    is_bytes = any("ByteLevel" in repr(step) for step in steps)
    kind = _kind(config)
    return is_llama and not is_bytes and kind is not None and kind.is_rebuilt


def _kind(config: Mapping[str, Any]) -> Kind | None:
    found = KINDS.get(str(config.get("model_type")))
    return None if found is None else found[1]


def scheme_of(options: Mapping[str, Any]) -> str:
    """Return before which texts LlamaTokenizer puts a space."""
    prefix = options.get("add_prefix_space")
    if prefix is not None and not prefix:
        return "never"
    return "always" if options.get("legacy") else "first"


def _rebuild(tokenizers: Any, made: Any, options: Mapping[str, Any], place: str) -> None:
    """Replace all but the vocabulary and the template, as LlamaTokenizer does."""
    known = {token.content for token in made.get_added_tokens_decoder().values()}
    lost = known - set(map(_content, (options.get("added_tokens_decoder") or {}).values()))
    if "added_tokens_decoder" in options and lost:
        raise WrongValue(
            f"{printable(place)}: the token {shown(min(lost))} is not in added_tokens_decoder of {OPTIONS}, without "
            "which LlamaTokenizer does not have it"
        )
    scheme = scheme_of(options)
    made.model.unk_token, made.model.fuse_unk, made.model.byte_fallback = None, True, True
    made.normalizer = None
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme, split=False)
    decoders = tokenizers.decoders
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    steps += [decoders.Strip(content=" ", left=1)] if scheme != "never" else []
    made.decoder = decoders.Sequence(steps)


def declared_tokens(
    path: str, options: Mapping[str, Any], padding: object
) -> tuple[list[tuple[int, dict[str, Any]]], list[dict[str, Any]], frozenset[str]]:
    """Return the tokens that a folder adds to tokenizer.json, whose padding names one of them.

    Returns
    -------
    with_ids : list of (int, dict)
        Tokens with their numbers, in order of the numbers.
    named : list of dict
        Tokens that have the next free numbers, if they are not in the vocabulary.
    special : frozenset of str
        Tokens that are special whatever tokenizer.json says.

    Raises
    ------
    ValueError
        A file has something else.
    """
    entries, options = options.get("added_tokens_decoder"), dict(options)
    found: dict[int, dict[str, Any]] = {}
    if entries is not None:
        for key, entry in entries.items() if isinstance(entries, Mapping) else [("", entries)]:
            if not key.isdecimal() or not _is_token(entry):
                raise WrongValue(
                    f"{printable(os.path.join(path, OPTIONS))}: added_tokens_decoder has {shown(entry)} for "
                    f"{shown(key)}, expected the content and flags of a token"
                )
            found[int(key)] = {name: value for name, value in entry.items() if name in FLAGS}
    else:
        options |= {key: value for key, value in _object(path, "special_tokens_map.json").items() if value}
    if isinstance(padding, Mapping) and isinstance(padding.get("pad_token"), str):
        options.setdefault("pad_token", padding["pad_token"])
    roles, extra = _named_tokens(options)
    named = [{**_entry(one), "special": True} for one in roles] + [_entry(one) for one in extra]
    if entries is None:
        texts = {one["content"] for one in named}
        for text, i in _object(path, "added_tokens.json").items():
            if type(i) is not int:
                raise WrongValue(f"{printable(path)}: added_tokens.json has {shown(i)} for {shown(text)}, expected int")
            found[i] = {"content": text, "special": text in texts, "normalized": text not in texts}
    return sorted(found.items(), key=lambda one: one[0]), named, frozenset(map(_content, roles))


def _is_token(entry: object) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get("content"), str)


def _content(token: Any) -> str:
    return token if isinstance(token, str) else str(token["content"])


def _entry(token: Any) -> dict[str, Any]:
    """Return the content and the flags of a token; a str is a special one."""
    return {"content": token, "special": True} if isinstance(token, str) else _flags(token)


def _named_tokens(options: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Return the tokens that keys name, and those of lists."""
    extra, several = options.get("extra_special_tokens"), options.get("additional_special_tokens")
    keys = [*NAMED, *(key for key in options if key.endswith("_token") and key not in NAMED)]
    roles = [options.get(key) for key in keys]
    if isinstance(extra, Mapping):
        roles, extra = roles + list(extra.values()), None
    several = extra or several
    found = (roles, several if isinstance(several, list) else [])
    one, other = ([token for token in some if (token and isinstance(token, str)) or _is_token(token)] for some in found)
    return one, other


def _add_tokens(tokenizers: Any, path: str, made: Any, options: Mapping[str, Any], padding: object) -> None:
    """Add the tokens that other files than tokenizer.json name."""
    with_ids, named, special = declared_tokens(path, options, padding)
    known = {token.content: token for token in made.get_added_tokens_decoder().values()}
    given = [{**entry, "special": bool(entry.get("special")) or entry["content"] in special} for _, entry in with_ids]
    texts = {*known, *(entry["content"] for entry in given)}
    for one in named:
        if one["content"] not in texts:
            given.append(one)
            texts.add(one["content"])
    for text in () if "added_tokens_decoder" in options else special & known.keys():
        if not known[text].special:
            flags = {name: getattr(known[text], name) for name in FLAGS}
            given.append({**flags, "special": True})
    with refusals(os.path.join(path, OPTIONS), "add its tokens"):
        made.add_tokens([tokenizers.AddedToken(**entry) for entry in given if entry["content"]])
    for i, entry in with_ids:
        if (number := made.token_to_id(entry["content"])) != i:
            raise WrongValue(
                f"{printable(os.path.join(path, OPTIONS))}: added_tokens_decoder has {shown(entry['content'])} as "
                f"token {i}, which is token {number} in {TOKENIZER}"
            )


def _flags(token: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in token.items() if name in FLAGS}
