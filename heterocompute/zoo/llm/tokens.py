"""Text to tokens and back: the object of a language model, whatever its vocabulary.

folder_tokens.py reads tokenizer.json, gguf_tokens.py the vocabulary of a GGUF file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...base.cached import cached
from ...base.errors import WrongType, WrongValue, shown
from ...base.values import check_text

MISSING = "open_llm: texts need the package tokenizers: pip install 'heterocompute[llm]'"
REPLACEMENT = "\ufffd"  # the text of bytes that are not UTF-8


class Around(NamedTuple):
    """Tokens before and after each text."""

    before: int | None = None
    after: tuple[int, ...] = ()


class Coder(Protocol):
    """Tokens of a text without those around it, and the text of tokens."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        ...

    def decode(self, ids: list[int]) -> str:
        """Return the text of tokens."""
        ...

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the characters of a text that each of its tokens covers."""
        ...

    def special(self) -> dict[str, int]:
        """Return the special tokens by their texts."""
        ...


class Tokens:
    """Text to tokens and back.

    The attribute `tokenizer` of `heterocompute.zoo.open_llm` and `open_encoder`.

    Parameters
    ----------
    make : callable
        Returns the coder; called when a text is first encoded.
    around : callable
        Returns the tokens around each text; called when they are first needed.
    ends : callable
        Returns the tokens that end texts, the usual one first; called when a text is first continued.
    vocabulary : int
        Number of tokens: rows of the embedding.
    """

    def __init__(
        self,
        make: Callable[[], Coder],
        around: Callable[[], Around],
        ends: Callable[[], Iterable[int]],
        vocabulary: int,
    ) -> None:
        self._make, self._around, self._ends, self.vocabulary = make, around, ends, vocabulary

    @cached
    def around(self) -> Around:
        """The tokens before and after each text."""
        return self._around()

    @property
    def begin(self) -> int | None:
        """The token that begins texts, None if the model wants none."""
        return self.around.before

    @cached
    def _ordered_ends(self) -> tuple[int, ...]:
        return tuple(self._ends())

    @cached
    def ends(self) -> frozenset[int]:
        """Tokens that end texts or the turn of a chat model."""
        return frozenset(self._ordered_ends)

    @property
    def end(self) -> int | None:
        """The token that ends texts, None if there is none."""
        return next(iter(self._ordered_ends), None)

    @cached
    def coder(self) -> Coder:
        """The coder of the vocabulary."""
        return self._make()

    @cached
    def special(self) -> dict[str, int]:
        """Special tokens by their texts: control tokens, which a text is searched for before it is split into words."""
        return self.coder.special()

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Return the tokens of a text.

        Parameters
        ----------
        special : bool
            Add the tokens that the model wants before and after each text, such as the one that begins texts.

        Raises
        ------
        TypeError
            No str.
        ValueError
            The text is no Unicode text: it holds half of a surrogate pair. Or the vocabulary is not supported.
        ImportError
            The package tokenizers is not installed.
        """
        ids = self.coder.encode(_checked_text(text, "encode"))
        if not special:
            return ids
        before, after = self.around
        return [*([] if before is None else [before]), *ids, *after]

    def offsets(self, text: str, special: bool = True) -> list[tuple[int, int]]:
        """Return the characters of a text that each of its tokens covers.

        Parameters
        ----------
        text, special
            As in `encode`.

        Returns
        -------
        list of (int, int)
            One per token of `encode`: begin and end, so that ``text[begin:end]`` is covered. Tokens before and after
            the text cover no character. Tokens that are bytes of one character all cover it. A folder has the offsets
            of the package tokenizers, which may leave out white space at the beginning of a word.

        Raises
        ------
        ValueError
            As of `encode`; or the vocabulary changes the form of Unicode of this text.
        """
        found = self.coder.spans(_checked_text(text, "offsets"))
        if not special:
            return found
        before, after = self.around
        return [*([] if before is None else [(0, 0)]), *found, *[(len(text), len(text))] * len(after)]

    def decode(self, ids: object, after: object = ()) -> str:
        """Return the text of tokens; those that begin and end texts have none.

        Parameters
        ----------
        ids : sequence of int
        after : sequence of int
            Tokens before these, such as those of a prompt. The result is what `ids` add to their text: it keeps the
            space of a first word, which decoding `ids` alone removes for some vocabularies.

        Raises
        ------
        TypeError
            The tokens are not integers.
        ValueError
            A token is out of range.
        """
        given, earlier = self._checked(ids), self._checked(after)
        if not earlier:
            return self.coder.decode(given)
        whole, begun = self.coder.decode(earlier + given), self.coder.decode(earlier)
        for start in (begun, begun.rstrip(REPLACEMENT)):  # the bytes of a character may be tokens of both
            if whole.startswith(start):
                return whole[len(start) :]
        return self.coder.decode(given)

    def _checked(self, ids: Any) -> list[int]:
        given = list(ids) if isinstance(ids, (Sequence, np.ndarray)) else [ids]
        if not all(isinstance(i, (int, np.integer)) for i in given):
            raise WrongType(f"decode: ids is {shown(ids)}, expected a sequence of integers")
        wrong = next((i for i in given if not 0 <= i < self.vocabulary), None)
        if wrong is not None:
            raise WrongValue(f"decode: token {wrong} is out of range, expected 0 to {self.vocabulary - 1}")
        return [int(i) for i in given]


def _checked_text(text: str, call: str) -> str:
    check_text(call, "text", text)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise WrongValue(
            f"{call}: text has half a surrogate pair at index {error.start}, which UTF-8 does not have"
        ) from None
    return text
