"""Keys of a GGUF file for a Unigram tokenizer, as XLM-RoBERTa has it, and that tokenizer of such a file.

    model Unigram                     tokenizer.ggml.model t5, .scores
    Precompiled                       .precompiled_charsmap
    WhitespaceSplit, Metaspace        .add_space_prefix, .remove_extra_whitespaces
    Metaspace                         .add_space_prefix

llama.cpp, convert_hf_to_gguf.py, and src/llama-vocab.cpp, llm_tokenizer_ugm_session.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....base.errors import WrongValue, printable, shown
from ....zoo.llm.control_tokens import NORMAL, UNKNOWN, USER
from ....zoo.llm.gguf_tokens import PREFIX, Vocabulary
from ....zoo.llm.pieces import Charsmap
from ....zoo.llm.tokenizers_package import package, refusals
from .vocabulary import MASKS, SPACE, TOKENIZER, Folder, refuse

RUNS = {"Regex": " {2,}"}
# White space at which WhitespaceSplit splits.
WHITE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
BY_LONGEST = (
    "llama.cpp replaces the longest run of characters that has a replacement, and transformers a character and its "
    "marks: texts with combining marks may have other tokens"
)


class UnigramFolder(Folder):
    """The Unigram tokenizer of a folder."""

    def _model_of(self, declared: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, int]]:
        model = declared["model"]
        listed, unknown = model.get("vocab"), model.get("unk_id")
        if not isinstance(listed, list) or not all(
            isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and isinstance(one[1], (int, float))
            for one in listed
        ):
            raise refuse("its vocab is not a list of pieces and scores")
        if type(unknown) is not int or not 0 <= unknown < len(listed):
            raise refuse(f"unk_id is {shown(unknown)}, expected the number of a piece")
        if model.get("byte_fallback"):
            raise refuse("byte_fallback is true, which Unigram in GGUF has no key for")
        words = {text: i for i, (text, _) in enumerate(listed)}
        if len(words) != len(listed):
            raise refuse("two numbers have one token")
        return model, words

    def keys(self) -> dict[str, Any]:
        """Return the keys without the part of their names that is the same."""
        listed, added = self._model["vocab"], self._added()
        texts, types = self._pieces(added)
        self._check_added(added, texts, types)
        unknown = self._model["unk_id"]
        types[unknown] = UNKNOWN
        scores = [float(score) for _, score in listed] + [0.0] * (len(texts) - len(listed))
        if not np.isfinite(scores).all():
            raise refuse("a score is not finite")
        least = [i for i in range(len(listed)) if scores[i] == min(scores)]
        if not any(types[i] == NORMAL for i in least):
            raise refuse(f"the token {shown(texts[least[0]])} has the least score, which llama.cpp does not count")
        found = {"model": "t5", "pre": "default", "scores": scores, "unknown_token_id": unknown}
        found |= self._white_space(texts, types) | {"tokens": texts, "token_type": types} | self._around(texts, types)
        ends = {"cls_token_id": found.get("bos_token_id"), "seperator_token_id": found.get("eos_token_id")}
        ends["mask_token_id"] = next((texts.index(mask) for mask in MASKS if mask in texts), None)
        return found | {key: i for key, i in ends.items() if i is not None}

    def _white_space(self, texts: list[str], types: list[int]) -> dict[str, Any]:
        """Return the keys for the steps before Unigram."""
        steps, charsmap = list(self._normal), None
        found: dict[str, Any] = {}
        if steps and steps[0].get("type") == "Precompiled":
            blob = _decoded(steps.pop(0).get("precompiled_charsmap"))
            found["precompiled_charsmap"] = list(np.frombuffer(blob, np.uint8))
            charsmap = Charsmap(TOKENIZER, blob)
            self.notes.append(BY_LONGEST)
        strips = {side for one in steps if one.get("type") == "Strip" for side in ("left", "right")
                  if one.get(f"strip_{side}")}  # fmt: skip
        runs = [one for one in steps if one.get("type") == "Replace" and one.get("pattern") == RUNS
                and one.get("content") in (" ", SPACE)]  # fmt: skip
        kinds = [str(one.get("type")) for one in (*self._normal, *self._pre)]
        wrong = len(runs) + sum(one.get("type") == "Strip" for one in steps) != len(steps)
        splits = [one.get("type") for one in self._pre] == ["WhitespaceSplit", "Metaspace"]
        if wrong or not (splits or [one.get("type") for one in self._pre] == ["Metaspace"]):
            raise refuse(f"its steps {', '.join(kinds) or 'none'} before Unigram have no key in GGUF")
        step = self._pre[-1]
        scheme = step.get("prepend_scheme") or ("always" if step.get("add_prefix_space", True) else "never")
        if step.get("replacement", SPACE) != SPACE:
            raise refuse(f"replacement of Metaspace is {shown(step['replacement'])}, expected {SPACE}")
        if splits or step.get("split", True):
            matched = (NORMAL, USER)
            long = next((t for t, kind in zip(texts, types, strict=True) if kind in matched and SPACE in t[1:]), "")
            if long:
                raise refuse(f"the piece {shown(long)} spans words, which are split first")
        merges = splits or bool(runs)
        if merges and scheme != "always":
            raise refuse(
                f"prepend_scheme of Metaspace is {shown(scheme)}, expected 'always' where white space is merged"
            )
        if splits:
            self._note_white(charsmap)
        elif merges and "right" not in strips:
            self.notes.append("white space at the end of a text has no token in llama.cpp")
        elif strips and not merges:
            raise refuse("its step Strip has no key in GGUF without one that merges white space")
        elif not merges and scheme != "never":
            self.own[PREFIX] = scheme
            self.notes.append("llama.cpp puts a space before texts that begin with white space, too")
        return found | {"add_space_prefix": scheme != "never", "remove_extra_whitespaces": merges}

    def _note_white(self, charsmap: Charsmap | None) -> None:
        """Note white space that ends words in transformers only."""
        others = [one for one in WHITE if (one if charsmap is None else charsmap.replaced(one)).strip(" ")]
        if others:
            names = ", ".join(f"U+{ord(one):04X}" for one in others[:3]) + (", ..." if len(others) > 3 else "")
            self.notes.append(f"white space such as {names} is part of a word in llama.cpp")


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else "", validate=True)
    except binascii.Error:
        raise refuse("precompiled_charsmap is not base64") from None


def tokenizer_of(path: str, found: Vocabulary) -> Any:
    """Return the tokenizer of the package tokenizers for the keys of a GGUF file."""
    tokenizers, unknown = package(), found.number("unknown")
    normalizers, metaspace = tokenizers.normalizers, tokenizers.pre_tokenizers.Metaspace
    steps = []
    with refusals(path, "make this vocabulary"):
        pieces = list(zip(found.texts, found.scores, strict=True))
        made = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=unknown, byte_fallback=False))
        if found.charsmap:
            steps.append(normalizers.Precompiled(found.charsmap))
    if found.merges_spaces:
        regex = tokenizers.Regex
        steps += [normalizers.Replace(regex("^ +| +$"), ""), normalizers.Replace(regex(RUNS["Regex"]), " ")]
    elif found.prefixes and found.scheme is None:
        raise WrongValue(
            f"{printable(path)}: add_space_prefix puts a space before white space, which tokenizer.json has no step for"
        )
    made.normalizer = normalizers.Sequence(steps)
    scheme = "always" if found.merges_spaces else found.scheme or "never"
    made.pre_tokenizer = metaspace(SPACE, scheme, split=False)
    made.decoder = tokenizers.decoders.Metaspace(SPACE, scheme)
    return made
