"""The forward pass of encoders: each token sees all tokens of its text, or those in a window around it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...products.layers.attention import attention
from ..llm.run import Run
from ..llm.weights import embedding_rows

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

TOGETHER = 32  # tokens whose windows are copied together


class EncoderRun(Run):
    """One pass over a text."""

    both_sides = True

    def embedded(self, ids: IntArray) -> FloatArray:
        """Return the input of the first layer for tokens (batch, n), all of the first type."""
        options = self.shape.options
        x = embedding_rows(self.operand("token_embd.weight"), ids)
        if options.token_types:
            x = x + embedding_rows(self.operand("token_types.weight"), np.zeros(1, np.int64))
        if options.learned_positions:
            x = x + embedding_rows(self.operand("position_embd.weight"), self._rows_of(ids))
        if options.embedding_norm:
            x = self._norm(x, self.operand("token_embd_norm.weight"), self.operand("token_embd_norm.bias"))
        return x

    def _rows_of(self, ids: IntArray) -> IntArray:
        """Return the rows of the table of positions; the padding token of RoBERTa has the row of its number."""
        offset = self.shape.options.position_offset
        if not self.shape.options.skips_padding:
            return np.broadcast_to(np.arange(ids.shape[1]) + offset, ids.shape)
        is_text = (ids != offset - 1).astype(np.int64)
        found: IntArray = np.cumsum(is_text, axis=1) * is_text + offset - 1
        return found

    def normed(self, x: FloatArray) -> FloatArray:
        """Return the states after the last norm, if there is one."""
        return super().normed(x) if self.shape.options.output_norm else x

    def _attended(self, i: int, q: FloatArray, k: FloatArray, v: FloatArray) -> FloatArray:
        """Return attention of the queries, (batch, heads, n, width)."""
        s, window = self.shape, self.shape.windows[i]
        if window is None or window >= q.shape[2]:
            return attention(q, k, v, False, s.scale)
        return np.concatenate([_windowed(*one, window, s.scale) for one in zip(q, k, v, strict=True)])


def _windowed(q: FloatArray, k: FloatArray, v: FloatArray, window: int, scale: float) -> FloatArray:
    """Return attention of queries (heads, n, width) that see less than `window` tokens on each side."""
    n, out = q.shape[1], np.empty((1, *q.shape), np.float32)
    middle = range(window - 1, n - window + 1, TOGETHER)  # their windows are whole
    groups = [range(i, i + 1) for i in range(min(window - 1, n))]
    groups += [range(at, min(at + TOGETHER, n - window + 1)) for at in middle]
    groups += [range(i, i + 1) for i in range(max(n - window + 1, window - 1), n)]
    for group in groups:
        spans = [slice(max(i - window + 1, 0), i + window) for i in group]
        keys, values = (np.stack([part[:, span] for span in spans]) for part in (k, v))
        queries = np.ascontiguousarray(q[:, group.start : group.stop].swapaxes(0, 1)[:, :, None])
        out[0, :, group.start : group.stop] = attention(queries, keys, values, False, scale)[:, :, 0].swapaxes(0, 1)
    return out
