"""Perplexity of a language model on a text, and its distance from the network as stored."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from ...products.layers import softmax
from .run import Run

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

LOGITS = 1 << 22  # logits at a time: 16 MiB, which C's allocator keeps for the next block
BLOCK = 1 << 17  # logits per step: 512 KiB


class Reference:
    """Probabilities of a window from the network as stored, a piece at a time.

    `states` are the inputs of the output matrix from an earlier evaluation of the same window.
    """

    def __init__(self, run: Run, tokens: IntArray, first: int, states: FloatArray | None = None) -> None:
        self._run = run
        self.states = run.hidden_of(tokens)[first - 1 : -1].copy() if states is None else states

    def part(self, rows: slice) -> tuple[FloatArray, FloatArray]:
        """Return probabilities of some rows, and their logarithms."""
        logits = self._run.scores(self.states[rows])
        shares, logs = np.empty_like(logits), np.empty_like(logits)
        for some in _blocks(logits):
            shares[some] = softmax(logits[some])
            logs[some] = log_softmax(logits[some], shares[some])
        return shares, logs


class Totals:
    """Sums over the tokens of a text, in float64; losses also by the number of tokens before each in its window."""

    def __init__(self, window: int) -> None:
        self.loss = self.kl = 0.0
        self.count = self.same = 0
        self._losses, self._kl, self._counts = np.zeros(window), np.zeros(window), np.zeros(window, np.int64)

    def add(
        self, logits: FloatArray, wanted: IntArray, begin: int, reference: tuple[FloatArray, FloatArray] | None
    ) -> None:
        """Add tokens by the logits before each; `begin` is the index of the first in its window."""
        losses, kl = np.empty(len(wanted)), np.empty(len(wanted), np.float32)
        for some in _blocks(logits):
            part = logits[some]
            logs = log_softmax(part, softmax(part))
            losses[some] = -logs[np.arange(len(logs)), wanted[some]].astype(np.float64)
            if reference is not None:
                shares, stored = (one[some] for one in reference)
                self.same += int((stored.argmax(axis=-1) == logs.argmax(axis=-1)).sum())
                kl[some] = np.einsum("ij,ij->i", shares, np.subtract(stored, logs, out=logs))
        self.loss += float(losses.sum())
        self.count += len(wanted)
        places = slice(begin, begin + len(wanted))
        self._losses[places] += losses
        self._counts[places] += 1
        if reference is not None:
            self.kl += float(kl.sum(dtype=np.float64))
            self._kl[places] += kl

    def found(self, compare: bool, parts: int = 0) -> dict[str, Any]:
        """Return the means, and perplexities and divergences of this many equal parts of a window."""
        found: dict[str, Any] = {"perplexity": _perplexity(self.loss, self.count)}
        if parts:
            edges = np.arange(parts + 1) * len(self._losses) // parts
            given = self._losses, self._kl, self._counts
            sums = [[float(one[a:b].sum()) for a, b in pairwise(edges)] for one in given]
            found["by_position"] = [_perplexity(loss, int(count)) for loss, _, count in zip(*sums, strict=True)]
            if compare:
                kl = [max(part / count, 0.0) if count else math.nan for _, part, count in zip(*sums, strict=True)]
                found["kl_by_position"] = kl
        if compare:
            found |= {"kl": max(self.kl / self.count, 0.0), "agreement": self.same / self.count}
        return found


def pieces(count: int, vocabulary: int) -> list[slice]:
    """Return pieces of rows whose logits fit in memory together: equal in size, since few rows sum in another order."""
    step = -(-count // -(-count * vocabulary // LOGITS))
    return [slice(begin, begin + step) for begin in range(0, count, step)]


def _blocks(logits: FloatArray) -> list[slice]:
    """Return a few rows at a time, which stay in the cache between the steps that use them."""
    step = max(1, BLOCK // logits.shape[1])
    return [slice(begin, begin + step) for begin in range(0, len(logits), step)]


def _perplexity(loss: float, count: int) -> float:
    """Return exp of a mean; NaN for no values, and for NaN."""
    if not count:
        return math.nan
    return math.inf if loss / count >= 700 else math.exp(loss / count)


def log_softmax(logits: FloatArray, shares: FloatArray) -> FloatArray:
    """Return log(softmax(logits)) along the last axis; the largest of the shares is 1 / sum(exp(logits - max))."""
    total = np.log(shares.max(axis=-1, keepdims=True).astype(np.float64)).astype(np.float32)
    found: FloatArray = logits - logits.max(axis=-1, keepdims=True)
    found += total
    return found
