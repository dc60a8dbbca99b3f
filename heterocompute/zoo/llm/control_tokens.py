"""Control tokens that llama.cpp knows by their texts, whatever type a vocabulary gives them.

llama.cpp, src/llama-vocab.cpp, llama_vocab::impl::load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)  # types of tokens
ENDS = frozenset((
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~[",
))  # fmt: skip
# Marks of models that fill in the middle of a text; the last three also end texts.
FILLS = {
    "fim_pre": ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uff5cfim\u2581begin\uff5c>", "<PRE>",
                "\u2581<PRE>", "<|code_prefix|>", "<|prefix|>"),
    "fim_suf": ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uff5cfim\u2581hole\uff5c>", "<SUF>",
                "\u2581<SUF>", "<|code_suffix|>", "<|suffix|>"),
    "fim_mid": ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uff5cfim\u2581end\uff5c>", "<MID>",
                "\u2581<MID>", "<|code_middle|>", "<|middle|>"),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}  # fmt: skip
SHOWN = frozenset(("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"))  # of gpt-oss: part of the text


def corrected(
    texts: Sequence[str], types: object, named: Mapping[str, int | None]
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], frozenset[int]]:
    """Return the types of tokens, and the tokens that end texts.

    Parameters
    ----------
    types : array_like of int
    named : mapping of str to int or None
        Tokens that keys name, by the name of the key without ``_token_id``.
    """
    found = np.array(types, np.int64)
    watched = ENDS | SHOWN | {text for several in FILLS.values() for text in several}
    places = {text: i for i, text in enumerate(texts) if text in watched}
    fills = dict(named)
    for role, several in FILLS.items():
        if fills.get(role) is None:
            fills[role] = min((places[text] for text in several if text in places), default=None)
            if fills[role] is not None:
                found[fills[role]] = CONTROL
    ends = {i for text, i in places.items() if text in ENDS}
    found[list(ends)] = CONTROL
    ends |= {i for role in ("fim_pad", "fim_rep", "fim_sep") if (i := fills[role]) is not None}
    for text in SHOWN & set(places):
        found[places[text]] = USER
    ends |= {i for role in ("eos", "eot", "eom") if (i := named.get(role)) is not None}

    def are_ends(*some: str) -> bool:
        return all(places.get(text) in ends for text in some)

    calls = are_ends("<|call|>") or are_ends("<|calls|>")
    if calls and are_ends("<|end|>") and (are_ends("<|return|>") or are_ends("<|flush|>")):
        ends.remove(places["<|end|>"])  # ends a message of several
        found[places["<|end|>"]] = USER
    if are_ends("<|tool_response>", "</s>"):
        ends.remove(places["</s>"])
        found[places["</s>"]] = NORMAL
    return found, frozenset(ends)


def is_phi3(name: str) -> bool:
    """Tell whether a model of this name is Phi-3 for llama.cpp."""
    return any(word in name.lower() for word in ("phi-3", "phi3"))


def strips(text: str) -> bool:
    """Tell whether white space after a special token of Phi-3 has no tokens."""
    return text not in ("<unk>", "<s>", "<|endoftext|>")
