"""Several sequences of any lengths continued together, with the same tokens as when each runs alone.

Sequences share the matmuls of new tokens, but not the attention. Prompts run alone, because sharing saves nothing for
many rows. Sequences run one after another if sharing would change results, as with activations whose rows share a
scale.

rows       1 to `FEW` rows of a float32 matmul are summed in one order, more of them in another
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays.components import rows_stand_alone
from ...base.runtime import tuned
from ...products.arguments import as_format
from .run import Run, RunOptions

if TYPE_CHECKING:
    from .network import LanguageModel

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

FEW = 8  # rows of a matmul with the order of sums of GEMV


def _share(net: LanguageModel, way: RunOptions) -> bool:
    """Tell whether sequences may share matmuls; experts and RoPE that depends on the length exclude this."""
    if (
        net.shape.experts
        or net.shape.latent is not None
        or net.shape.long_rope is not None
        or way.emulate is not None
        or tuned()
    ):
        return False
    return way.activations is None or rows_stand_alone(as_format(way.activations, "activations"), net.shape.width)


def continued(
    net: LanguageModel,
    way: RunOptions,
    prompts: Sequence[IntArray],
    goes_on: Callable[[int, FloatArray], int | None],
) -> None:
    """Continue prompts, up to `FEW` of them together; the next one begins where another has ended.

    Parameters
    ----------
    prompts : sequence of ndarray of int64
        Each (n,) with n of 1 or more.
    goes_on : callable
        ``goes_on(i, logits)`` is told the logits after the last token of prompt i. It returns the next token, or None
        at the end.
    """
    most = FEW if _share(net, way) else 1
    waiting, active = list(range(len(prompts)))[::-1], dict[int, Run]()
    tokens, together = dict[int, int](), _Together(net, way)
    while waiting or active:
        while waiting and len(active) < most:
            i = waiting.pop()
            run = Run(net, way, 1)
            token = goes_on(i, run.logits(prompts[i][None], last=True)[0, -1])
            if token is not None:
                active[i], tokens[i] = run, token
        if not active:
            return
        found = together.next(list(active.values()), [tokens[i] for i in active])
        for i, logits in zip(list(active), found, strict=True):
            token = goes_on(i, logits)
            if token is None:
                del active[i], tokens[i]
            else:
                tokens[i] = token


class _Together(Run):
    """The next token of several runs: each matmul has one row per run, each attention uses the cache of one run."""

    def __init__(self, net: LanguageModel, way: RunOptions) -> None:
        super().__init__(net, way, 1)
        self._runs: list[Run] = []

    def next(self, runs: list[Run], tokens: list[int]) -> FloatArray:
        """Add a token to each run and return the logits, (runs, vocabulary)."""
        self._runs, ids = runs, np.array(tokens, np.int64)[None]
        run: Run = runs[0] if len(runs) == 1 else self
        found: FloatArray = run.logits(ids)[0]
        return found

    def _is_plain(self) -> bool:
        return False

    def _positions(self, n: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([run.cache.length for run in self._runs], np.float64)

    def _attended(self, i: int, q: FloatArray, k: FloatArray, v: FloatArray) -> FloatArray:
        parts = [slice(at, at + 1) for at in range(len(self._runs))]
        found = [
            run._attended(i, q[:, :, at], k[:, :, at], v[:, :, at]) for run, at in zip(self._runs, parts, strict=True)
        ]
        joined: FloatArray = np.concatenate(found, axis=2)
        return joined
