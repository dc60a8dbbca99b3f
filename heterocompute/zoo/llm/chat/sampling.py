"""Draws of the next token from logits, and the end of an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....base.errors import WrongType, WrongValue, shown
from ....base.values import as_int, as_list, as_real
from ..tokens import REPLACEMENT, Tokens

FloatArray = np.ndarray[Any, np.dtype[np.float32]]

NOT_FINITE = "the logits hold NaN or infinity; expected finite weights, and values that stay within float32"
EARLIER = 16  # tokens before a new one that are decoded with it


class Sampling(NamedTuple):
    """Options of the draw; `temperature` 0 is the most likely token."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int = 0

    def checked(self, caller: str) -> Sampling:
        """Return the options with their types; ValueError for one out of range."""
        heat, start = (
            as_real(self.temperature, f"{caller}: temperature", "a number"),
            as_int(self.seed, f"{caller}: seed", 0),
        )
        if not 0.0 <= heat < math.inf:
            raise WrongValue(f"{caller}: temperature is {shown(self.temperature)}, expected 0 or more")
        most = None if self.top_k is None else as_int(self.top_k, f"{caller}: top_k", 1)
        shares = []
        for name, value in (("top_p", self.top_p), ("min_p", self.min_p)):
            share = None if value is None else as_real(value, f"{caller}: {name}", "a number from 0 to 1")
            if (
                share is not None
                and not (0.0 < share if name == "top_p" else 0.0 <= share)
                or not (share or 0.0) <= 1.0
            ):
                raise WrongValue(f"{caller}: {name} is {shown(value)}, expected a number from 0 to 1")
            shares.append(share)
        return Sampling(heat, most, shares[0], shares[1], start)

    def drawn(self, logits: FloatArray, rng: np.random.Generator) -> int:
        """Return a token: the most likely one, or one drawn from ``softmax(logits / temperature)``.

        Of these shares, `top_k` leaves the largest, `top_p` the largest until their sum reaches it, and `min_p` those
        of at least this fraction of the largest. Tokens that tie with the last one stay.
        """
        if not np.isfinite(logits.max()):
            raise WrongValue(f"generate: {NOT_FINITE}")
        if self.temperature == 0:
            return int(logits.argmax())
        scaled = logits.astype(np.float64)
        with np.errstate(over="ignore"):  # with a temperature near 0, exp(-inf) is 0
            weights = np.exp((scaled - scaled.max()) / self.temperature)
        least = 0.0
        if self.top_k is not None and self.top_k < len(weights):
            least = float(np.partition(weights, -self.top_k)[-self.top_k])
        if self.top_p is not None:
            ordered = np.sort(weights[weights >= least])[::-1]
            sums = np.cumsum(ordered)
            least = max(least, float(ordered[int((sums < self.top_p * sums[-1]).sum())]))
        if self.min_p is not None:
            least = max(least, self.min_p)  # the largest weight is 1
        shares = np.cumsum(np.where(weights >= least, weights, 0.0))
        return min(int((shares <= rng.random() * shares[-1]).sum()), len(logits) - 1)


def stops_of(stop: object, caller: str) -> tuple[str, ...]:
    """Return the texts that end an answer."""
    if stop is None:
        return ()
    found = [stop] if isinstance(stop, str) else as_list(stop, f"{caller}: stop", "texts")
    for one in found:
        if not isinstance(one, str) or not one:
            raise WrongType(f"{caller}: stop has {shown(one)}, expected texts of one or more characters")
    return tuple(found)


class Pieces:
    """Text of an answer, token by token: whole characters, up to the first text of `stops`.

    Parameters
    ----------
    prompt : sequence of int
        The tokens before the answer.
    stops : sequence of str
        Texts that end the answer; they are no part of it.

    Attributes
    ----------
    ended : bool
        A text of `stops` was found.
    """

    def __init__(self, tokens: Tokens, prompt: Sequence[int], stops: Sequence[str] = ()) -> None:
        self._tokens, self._ids, self._stops = tokens, [int(i) for i in prompt[-EARLIER:]], stops
        self._done, self._held, self.ended = len(self._ids), "", False

    def add(self, token: int) -> str:
        """Return the text that is certain after one more token."""
        self._ids.append(int(token))
        before = self._ids[max(0, self._done - EARLIER) : self._done]
        text = self._tokens.decode(self._ids[self._done :], after=before)
        if text.endswith(REPLACEMENT) and len(self._ids) - self._done < 4:  # a part of a character
            return ""
        self._done = len(self._ids)
        return self._certain(text)

    def rest(self) -> str:
        """Return the text that was held back, at the end of the answer."""
        if self.ended:
            return ""
        before = self._ids[max(0, self._done - EARLIER) : self._done]
        left = self._tokens.decode(self._ids[self._done :], after=before) if self._done < len(self._ids) else ""
        self._done = len(self._ids)
        found = self._certain(left)
        found, self._held = found + self._held, ""
        return found

    def _certain(self, text: str) -> str:
        """Return what cannot be the beginning of a stop, and hold the rest."""
        held = self._held + text
        places = [at for stop in self._stops if (at := held.find(stop)) >= 0]
        if places:
            self._held, self.ended = "", True
            return held[: min(places)]
        longest = max((n for stop in self._stops for n in range(1, len(stop)) if held.endswith(stop[:n])), default=0)
        self._held = held[len(held) - longest :]
        return held[: len(held) - longest]
