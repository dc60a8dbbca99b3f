"""How well a language model predicts a text, and how far it is from the network as stored."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from ...products.layers import softmax
from .run import Run

__all__ = ["Reference", "Totals"]

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

LOGITS = 1 << 22  # logits at a time: 16 MiB, which the allocator of C keeps for the next


class Reference:
    """Probabilities of a window by the network as stored, a piece at a time.

    `states` are what the output multiplies, of an earlier judgement of the same window.
    """

    def __init__(self, run: Run, tokens: IntArray, first: int, states: FloatArray | None = None) -> None:
        self._run = run
        self.states = run.hidden_of(tokens)[first - 1 : -1].copy() if states is None else states

    def part(self, rows: slice) -> tuple[FloatArray, FloatArray]:
        """Return probabilities of some rows, and their logarithms."""
        logits = self._run.scores(self.states[rows])
        shares = softmax(logits)
        return shares, log_softmax(logits, shares)


class Totals:
    """Sums over the tokens of a text, in float64; the losses also by the tokens before each in its window."""

    def __init__(self, window: int) -> None:
        self.loss = self.kl = 0.0
        self.count = self.same = 0
        self._losses, self._counts = np.zeros(window), np.zeros(window, np.int64)

    def add(self, run: Run, tokens: IntArray, first: int, reference: Reference | None) -> None:
        """Add the tokens of a window from the first that is predicted in it."""
        x, targets = run.hidden_of(tokens)[first - 1 : -1], tokens[first:]
        pieces = -(-len(targets) * run.shape.vocabulary // LOGITS)
        step = -(-len(targets) // pieces)  # equal pieces: few rows sum in another order
        for begin in range(0, len(targets), step):
            rows = slice(begin, begin + step)
            logits, wanted = run.scores(x[rows]), targets[rows]
            logs = log_softmax(logits, softmax(logits))
            losses = -logs[np.arange(len(wanted)), wanted].astype(np.float64)
            self.loss += float(losses.sum())
            self.count += len(wanted)
            places = slice(first + begin, first + begin + len(wanted))
            self._losses[places] += losses
            self._counts[places] += 1
            if reference is not None:
                shares, stored = reference.part(rows)
                self.kl += float(np.einsum("ij,ij->i", shares, stored - logs).sum(dtype=np.float64))
                self.same += int((stored.argmax(axis=-1) == logs.argmax(axis=-1)).sum())

    def found(self, compare: bool, parts: int = 0) -> dict[str, Any]:
        """Return the means, and perplexities of so many equal parts of a window."""
        found: dict[str, Any] = {"perplexity": _perplexity(self.loss, self.count)}
        if parts:
            edges = np.arange(parts + 1) * len(self._losses) // parts
            sums = [[one[a:b].sum() for a, b in pairwise(edges)] for one in (self._losses, self._counts)]
            found["by_position"] = [_perplexity(float(loss), int(count)) for loss, count in zip(*sums, strict=True)]
        if compare:
            found |= {"kl": max(self.kl / self.count, 0.0), "agreement": self.same / self.count}
        return found


def _perplexity(loss: float, count: int) -> float:
    """Return exp of a mean; NaN of nothing."""
    if not count:
        return math.nan
    return math.exp(loss / count) if loss / count < 700 else math.inf


def log_softmax(logits: FloatArray, shares: FloatArray) -> FloatArray:
    """Return log(softmax(logits)) along the last axis; the largest of the shares is 1 / sum(exp(logits - max))."""
    total = np.log(shares.max(axis=-1, keepdims=True).astype(np.float64)).astype(np.float32)
    found: FloatArray = logits - logits.max(axis=-1, keepdims=True)
    found += total
    return found
