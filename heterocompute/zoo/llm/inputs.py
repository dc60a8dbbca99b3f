"""Texts and tokens as arguments of a language model, checked and as int64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.errors import WrongType, WrongValue, shown
from ...base.texts import counted

if TYPE_CHECKING:
    from .model import Model
    from .network import LanguageModel

IntArray = np.ndarray[Any, np.dtype[np.int64]]


def text_ids_of(net: LanguageModel, text: object, name: str = "perplexity: text") -> IntArray:
    """Return the tokens of a text for evaluation: one sequence, which may be longer than the context."""
    if isinstance(text, str):
        ids = np.asarray(net.tokenizer.encode(text, special=False), np.int64)
    else:
        ids = ids_of(net, text, name, whole=False)
    if ids.ndim != 1 or len(ids) < 2 - (net.tokenizer.begin is not None):
        raise WrongValue(f"{name} has {counted(ids.size, 'token')}, expected at least 2 in one sequence")
    return ids


def sequences_of(net: Model, given: Sequence[Any], name: str) -> list[IntArray]:
    """Return the tokens of several texts or sequences."""
    found: list[IntArray] = []
    if len({isinstance(one, str) for one in given}) > 1:
        raise WrongType(f"{name} has texts and tokens, expected one kind")
    for i, one in enumerate(given):
        ids = ids_of(net, net.tokenizer.encode(one) if isinstance(one, str) else one, f"{name}[{i}]")
        if ids.ndim != 1:
            raise WrongValue(f"{name}[{i}]: ids have shape {ids.shape}, expected (n,)")
        found.append(ids)
    return found


def ids_of(net: Model, ids: object, name: str, whole: bool = True) -> IntArray:
    """Return tokens as int64, (n,) or (batch, n), checked; `whole`: a sequence fits the context."""
    try:
        array = np.asarray(ids)
    except ValueError:
        raise WrongValue(f"{name}: ids are sequences of different lengths, expected one length per batch") from None
    is_large = array.dtype == object and all(type(one) is int for one in array.flat)  # beyond int64, so out of range
    if array.size and array.dtype.kind not in "iu" and not is_large:
        kind = type(ids).__name__ if array.dtype == object and not array.ndim else array.dtype
        raise WrongType(f"{name}: ids are {kind}, expected integers")
    if not array.size:
        raise WrongValue(f"{name} has no tokens, expected at least 1")
    if array.ndim not in (1, 2):
        raise WrongValue(f"{name}: ids have shape {array.shape}, expected (n,) or (batch, n)")
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= net.shape.vocabulary:
        raise WrongValue(
            f"{name}: token {shown(low if low < 0 else high)} is out of range, expected 0 to {net.shape.vocabulary - 1}"
        )
    if whole and array.shape[-1] > net.shape.context:
        raise WrongValue(
            f"{name}: {array.shape[-1]} tokens are more than the context of {net.shape.context}; shorten the text"
        )
    return array.astype(np.int64)


def is_list(given: object, equal: bool = False) -> bool:
    """Tell whether a value is a list of texts, or of sequences with different lengths (`equal`: with any lengths)."""
    if not isinstance(given, (list, tuple)) or not given:
        return False
    if any(isinstance(one, str) for one in given):
        return True
    if not all(isinstance(one, (list, tuple)) or getattr(one, "ndim", 0) == 1 for one in given):
        return False
    return equal or len({len(one) for one in given}) > 1
